//! Holds a certificate against what is planned here: the machine, the models, the profiles and the problems must be the same.

use std::collections::BTreeMap;
use std::fmt::Display;

use planner::Certificate;
use planner::certificate::{Claim, PipelineClaim, Service, SharedClaim};
use planner::verify::{Verified, VerifyError, verify};
use serde::Serialize;
use serde_json::Value;

use super::{engine_field, machine, told_as};
use crate::config::{Config, ModelChoice, ServiceConfig};
use crate::models::reach_engines;
use crate::profile::Fingerprint;
use weir_engine::{EngineError, EngineKind, Equipment};

/// Why a certificate is not served by.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    #[error("{field} is {certified}, here it is {here}: run `weir certify` again")]
    Field { field: String, certified: String, here: String },
    #[error("{what} is refused by its own certificate: {reason}")]
    Refused { what: String, reason: String },
    #[error(
        "the profile is of another machine, whose {field} is {profiled}, here it is {here}: run `weir profile`, then \
         `weir certify`"
    )]
    Machine { field: String, profiled: String, here: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the checker: {0}")]
    Unverified(#[from] VerifyError),
}

/// Checks `certificate` by the independent checker, and that it is about this machine and the same as `here`, which
/// was made from `config`, the manifest and the profile as they are now.
///
/// # Errors
/// The first difference, a refused service, or what the checker finds.
pub fn check(certificate: &Certificate, here: &Certificate, config: &Config) -> Result<Verified, Mismatch> {
    for (name, value) in machine_here(config, &here.machine)? {
        if let Some(profiled) = here.machine.get(&name).filter(|profiled| **profiled != value) {
            return Err(Mismatch::Machine { field: name, profiled: profiled.clone(), here: value });
        }
        same(format!("machine.{name}"), certificate.machine.get(&name).map_or("", String::as_str), &value)?;
    }
    same("number of services", certificate.claims.len(), here.claims.len())?;
    for (one, other) in certificate.claims.iter().zip(&here.claims) {
        let name = |claim: &Claim| claim.service.as_ref().map_or("", |s| s.name.as_str()).to_owned();
        same("service", name(one), name(other))?;
        let service = name(one);
        if let (Some(a), Some(b)) = (&one.service, &other.service) {
            same_service(a, b)?;
        }
        let what = format!("service {service}");
        same_promise(what, (&one.problem, &other.problem), (one.admissible, one.reason.as_deref()))?;
    }
    same("number of devices", certificate.shared.len(), here.shared.len())?;
    for (one, other) in certificate.shared.iter().zip(&here.shared) {
        let of = |claim: &SharedClaim| claim.device.clone().map(|d| (d.name, d.services)).unwrap_or_default();
        let ((name, services), (here, own)) = (of(one), of(other));
        same("device", &name, &here)?;
        same(format!("device {name}: number of services"), services.len(), own.len())?;
        for (a, b) in services.iter().zip(&own) {
            same(format!("device {name}: service"), &a.name, &b.name)?;
            same_service(a, b)?;
        }
        let what = format!("device {name}");
        same_promise(what, (&one.problem, &other.problem), (one.admissible, one.reason.as_deref()))?;
    }
    same("number of pipelines", certificate.pipelines.len(), here.pipelines.len())?;
    for (one, other) in certificate.pipelines.iter().zip(&here.pipelines) {
        let of =
            |claim: &PipelineClaim| claim.service.clone().map(|s| (s.name, s.stages)).unwrap_or_default();
        let ((name, stages), (here, own)) = (of(one), of(other));
        same("pipeline", &name, &here)?;
        same(format!("pipeline {name}: number of stages"), stages.len(), own.len())?;
        for (a, b) in stages.iter().zip(&own) {
            same(format!("pipeline {name}: stage"), &a.name, &b.name)?;
            same_service(a, b).map_err(|other| match other {
                Mismatch::Field { field, certified, here } => {
                    let field = format!("pipeline {name}: {}", field.replacen("service", "stage", 1));
                    Mismatch::Field { field, certified, here }
                }
                other => other,
            })?;
        }
        let what = format!("pipeline {name}");
        same_promise(what, (&one.problem, &other.problem), (one.admissible, one.reason.as_deref()))?;
    }
    Ok(verify(certificate)?)
}

/// Whether the problem that was certified is that of here, and is promised.
fn same_promise(
    what: String,
    (certified, here): (&impl Serialize, &impl Serialize),
    (admissible, reason): (bool, Option<&str>),
) -> Result<(), Mismatch> {
    let [certified, here] =
        [serde_json::to_value(certified), serde_json::to_value(here)].map(Result::unwrap_or_default);
    differs(&format!("{what}: problem"), &certified, &here)?;
    if admissible {
        Ok(())
    } else {
        Err(Mismatch::Refused { what, reason: reason.unwrap_or_default().to_owned() })
    }
}

/// Whether a service was certified with the same models and profiles as it is `here`.
fn same_service(certified: &Service, here: &Service) -> Result<(), Mismatch> {
    let (a, b, service) = (certified, here, &certified.name);
    same(format!("service {service}: model"), &a.model, &b.model)?;
    same(format!("service {service}: model file"), &a.model_sha256, &b.model_sha256)?;
    same(format!("service {service}: engine"), &a.engine, &b.engine)?;
    same(format!("service {service}: profile"), &a.profile_sha256, &b.profile_sha256)?;
    same(format!("service {service}: number of kinds of workers"), a.kinds.len(), b.kinds.len())?;
    for (i, (a, b)) in a.kinds.iter().zip(&b.kinds).enumerate() {
        let at = |what: &str| format!("service {service}: kinds[{i}], {}: {what}", b.name);
        same(format!("service {service}: kinds[{i}]"), &a.name, &b.name)?;
        same(at("engine"), &a.engine, &b.engine)?;
        same(at("profile"), &a.profile_sha256, &b.profile_sha256)?;
    }
    let counts = [a, b].map(|service| service.variants.len());
    same(format!("service {service}: number of variants that may answer"), counts[0], counts[1])?;
    for (i, (a, b)) in a.variants.iter().zip(&b.variants).enumerate() {
        let at = |what: &str| format!("service {service}: variants[{i}], {}: {what}", b.model);
        same(format!("service {service}: variants[{i}]"), &a.model, &b.model)?;
        same(at("model file"), &a.model_sha256, &b.model_sha256)?;
        same(at("profile"), &a.profile_sha256, &b.profile_sha256)?;
    }
    Ok(())
}

/// The first field in which two problems differ.
fn differs(field: &str, certified: &Value, here: &Value) -> Result<(), Mismatch> {
    match (certified, here) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().zip(b.values()).try_for_each(|((key, a), b)| differs(&format!("{field}.{key}"), a, b))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.try_for_each(|(i, (a, b))| differs(&format!("{field}[{i}]"), a, b))
        }
        (a, b) => same(field, a.to_string(), b.to_string()),
    }
}

fn same<T: Display + PartialEq>(field: impl Into<String>, certified: T, here: T) -> Result<(), Mismatch> {
    if certified == here {
        return Ok(());
    }
    let (certified, here) = (certified.to_string(), here.to_string());
    Err(Mismatch::Field { field: field.into(), certified, here })
}

/// What this machine and the engines of `config` tell now; servers that are out of reach while other workers of their service are there
/// tell what they were when they were `measured`.
fn machine_here(
    config: &Config,
    measured: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, EngineError> {
    reach_engines(config)?;
    let mut here = machine(&Fingerprint::current(), []);
    let running = config.services.iter().flat_map(ServiceConfig::running);
    for service in running.filter(|service| service.engine != EngineKind::Simulated) {
        let ModelChoice::Named(names) = &service.model else { continue };
        let line = Equipment::current(service.backend(0)).line();
        for name in names {
            let field = engine_field(service, &told_as(service, name));
            let measured = measured.get(&field);
            let mut told = line.clone();
            if let Some(measured) = measured {
                told = Equipment::line_as_measured(&told, measured);
                if service.is_on_some_servers() {
                    told = Equipment::line_among(&told, measured);
                }
            }
            // Of several services with the model one whose servers are not as they were is told.
            if Some(&told) != measured || !here.contains_key(&field) {
                here.insert(field, told);
            }
        }
    }
    Ok(here)
}
