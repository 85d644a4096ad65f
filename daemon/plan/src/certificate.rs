//! From a configuration to its certificate and back: what is promised here, written down, and checked before it is
//! served.

mod staged;

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::Context;
use planner::certificate::{
    Claim, Kind, PipelineClaim, Refutation, Service, SharedClaim, SharedDevice, Variant,
};
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, PipelineProblem, Problem, ProblemError, SharedProblem, certify, certify_shared};
use rt_core::Workers;
use serde::Serialize;
use serde_json::Value;

use crate::config::{Config, DeviceConfig, ModelChoice, Select, ServiceConfig};
use crate::models::{Timed, reach_engines, resolve_models, running};
use crate::plan::{
    DevicePlan, Plan, PlanError, ServicePlan, VariantPlan, kind_sizes, pipeline_identity, planned_problem,
    refused_problem, workers_of,
};
use crate::problem::{problem, problem_of_device, reserved};
use crate::profile::{Fingerprint, Profile};
use weir_engine::{EngineError, EngineKind, Equipment, ModelSpec};

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

/// What finds arrivals that show a refusal.
#[derive(Clone, Copy, Debug)]
pub struct Refuters {
    /// Of a service by itself.
    pub service: fn(&Problem) -> Option<Refutation>,
    /// Of services that share a device.
    pub device: fn(&SharedProblem) -> Option<Refutation>,
    /// Of a pipeline.
    pub pipeline: fn(&PipelineProblem) -> Option<Refutation>,
}

/// The certificate of everything that `config` reserves, and of one more stream at the promised rate of each service
/// that has constraints of its own. A service that cannot be promised is refused in it, with the arrivals that one of
/// `refuters` finds to show it, and so is a device or a pipeline.
///
/// # Errors
/// If the profile or the manifest cannot be read or do not fit, or a declaration has no form as a problem.
pub fn certificate(config: &Config, refuters: Refuters) -> anyhow::Result<Certificate> {
    let (profile, models) = (Profile::load(&config.daemon.profile)?, resolve_models(config)?);
    let (mut equipment, mut claims, mut pipelines) = (Vec::new(), Vec::new(), Vec::new());
    for runs in running(config, &models) {
        for spec in runs.specs {
            let entry = profile.timed(&runs.timed(spec), runs.config.engine)?;
            equipment.push((runs.config, told_as(runs.config, &spec.name), entry.equipment.clone()));
        }
    }
    for (service, specs) in config.services.iter().zip(&models) {
        if service.is_staged() {
            pipelines.push(staged::claim(service, specs, &profile)?);
        } else if service.share.is_none() {
            claims.push(match ServicePlan::compute(service, specs.clone(), &profile) {
                Ok(plan) => promise(&plan),
                Err(error) if error.is_refusal() => refusal(service, specs, &profile),
                Err(error) => Err(error.into()),
            }?);
        }
    }
    let devices = (0..config.devices.len()).map(|device| device_claim(config, device, &models, &profile));
    let mut devices = devices.collect::<anyhow::Result<Vec<_>>>()?;
    for claim in devices.iter_mut().filter(|claim| !claim.admissible) {
        claim.refutation = (refuters.device)(&SharedProblem::from_raw(claim.problem.clone())?);
    }
    for claim in pipelines.iter_mut().filter(|claim| !claim.admissible) {
        claim.refutation = (refuters.pipeline)(&PipelineProblem::from_raw(claim.problem.clone())?);
    }
    for claim in claims.iter_mut().filter(|claim| !claim.admissible) {
        claim.refutation = (refuters.service)(&Problem::from_raw(claim.problem.clone())?);
    }
    let machine = machine(profile.fingerprint(), equipment);
    Ok(Certificate::new(made_by(), machine, claims).with_devices(devices).with_pipelines(pipelines))
}

/// The `plan` of `config`, held against the certificate that it names, or checked like one.
///
/// # Errors
/// A plan that is not what was certified or what the checker derives.
pub fn checked(config: &Config, plan: Plan) -> anyhow::Result<Plan> {
    let planned = of_plan(&plan)?;
    match &config.daemon.certificate {
        Some(path) => {
            let name = || format!("daemon.certificate = {}, which `weir certify` writes", path.display());
            check(&Certificate::load(path).with_context(name)?, &planned, config).with_context(name)?;
        }
        // What was planned just now is checked no less.
        None => drop(verify(&planned).context("the plan is not what the checker derives")?),
    }
    Ok(plan)
}

/// The certificate of what was planned.
///
/// # Errors
/// If a declaration has no form as a problem.
pub fn of_plan(plan: &Plan) -> anyhow::Result<Certificate> {
    let alone = plan.services.iter().filter(|service| service.shared.is_none() && service.pipeline.is_none());
    let claims: anyhow::Result<_> = alone.map(promise).collect();
    let device = |device: &DevicePlan| {
        let told = plan.on(device).map(|plan| {
            let base = told(&plan.config, &plan.spec, plan.profile_sha256.clone());
            Service { variants: slower(plan), ..base }
        });
        anyhow::Ok(of_device(&device.config, &planned_on(plan, device)?, told.collect()))
    };
    let devices: anyhow::Result<Vec<_>> = plan.devices().into_iter().map(device).collect();
    let pipelines: anyhow::Result<Vec<_>> = plan.services.iter().filter_map(staged::promise).collect();
    let equipment = plan.services.iter().flat_map(ServicePlan::running).flat_map(|runs| {
        let of = |v: &VariantPlan| (&runs.config, told_as(&runs.config, &v.spec.name), v.equipment.clone());
        runs.variants.iter().map(of)
    });
    let machine = machine(&plan.profiled, equipment);
    Ok(Certificate::new(made_by(), machine, claims?).with_devices(devices?).with_pipelines(pipelines?))
}

/// What a service has planned as an abstract problem, in nanoseconds: its workers and its reserved streams.
///
/// # Errors
/// If a declaration has no form as a problem.
pub fn problem_of(plan: &ServicePlan) -> Result<Problem, ProblemError> {
    problem(&plan.config, plan.all_workers(), &reserved(&plan.config).collect::<Vec<_>>())
}

pub use staged::problem_of as staged_problem_of;

/// What a device has planned as an abstract problem, in nanoseconds: its services and their reserved streams.
///
/// # Errors
/// If a declaration has no form as a problem.
pub fn planned_on(plan: &Plan, device: &DevicePlan) -> Result<SharedProblem, ProblemError> {
    let chosen = Some(&device.sharing);
    problem_of_device(&device.config, chosen, plan.on(device).map(|plan| (&plan.config, plan.workers())))
}

/// What a machine and its engines tell of themselves, model by model; simulated ones tell nothing.
fn machine<'a>(
    machine: &Fingerprint,
    equipment: impl IntoIterator<Item = (&'a ServiceConfig, String, Equipment)>,
) -> BTreeMap<String, String> {
    let fields = machine.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
    let real = equipment.into_iter().filter(|(service, ..)| service.engine != EngineKind::Simulated);
    let engines = real.map(|(service, model, equipment)| (engine_field(service, &model), equipment.line()));
    fields.chain(engines).collect()
}

/// What a machine tells of the engine of a model by.
fn engine_field(service: &ServiceConfig, model: &str) -> String {
    format!("{model} on {}", service.engine)
}

/// A model, and the name of the workers that have it where they have one.
fn told_as(config: &ServiceConfig, model: &str) -> String {
    config.named_place().map_or_else(|| model.to_owned(), |place| format!("{model} by {place}"))
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

/// What certificates say of their maker.
pub fn made_by() -> String {
    format!("weir {}", env!("CARGO_PKG_VERSION"))
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

fn promise(plan: &ServicePlan) -> anyhow::Result<Claim> {
    let streams = reserved(&plan.config).chain(plan.promised_stream());
    let problem = problem(&plan.config, plan.all_workers(), &streams.collect::<Vec<_>>())?;
    let mut claim = certify(&problem);
    let mut service = told(&plan.config, &plan.spec, plan.profile_sha256.clone());
    service.kinds =
        plan.kinds.iter().map(|kind| of_kind(&kind.runs.config, &kind.runs.profile_sha256)).collect();
    service.variants = slower(plan);
    claim.service = Some(service);
    Ok(claim)
}

/// The variants that may run beside the base.
fn slower(plan: &ServicePlan) -> Vec<Variant> {
    let of = |v: &VariantPlan| variant(&v.spec, v.profile_sha256.clone());
    plan.running_variants()[1..].iter().map(of).collect()
}

fn variant(spec: &ModelSpec, profile_sha256: String) -> Variant {
    Variant { model: spec.name.clone(), model_sha256: spec.identity(), profile_sha256 }
}

/// What cannot be planned is refused for the batch sizes that serve most, unless they are configured.
fn refusal(config: &ServiceConfig, specs: &[ModelSpec], profile: &Profile) -> anyhow::Result<Claim> {
    let (entries, sizes) = if config.kinds.is_empty() {
        let entry = profile.timed(&Timed::by(config, &specs[0]), config.engine)?;
        (vec![entry], vec![workers_of(config, entry)?])
    } else {
        kind_sizes(config, specs, profile)?
    };
    let faster = |a: Workers, b: Workers| if b.capacity_per_s() > a.capacity_per_s() { b } else { a };
    let workers: Option<Vec<_>> = sizes.into_iter().map(|sizes| sizes.into_iter().reduce(faster)).collect();
    let workers = workers.ok_or_else(|| anyhow::anyhow!("service {}: no batch size", config.name))?;
    let streams = reserved(config).chain(config.example_stream());
    let mut claim = certify(&problem(config, &workers, &streams.collect::<Vec<_>>())?);
    let mut service = told(config, &specs[0], entries[0].digest());
    let kinds = config.kinds.iter().zip(entries);
    service.kinds = kinds.map(|(kind, entry)| of_kind(kind, &entry.digest())).collect();
    claim.service = Some(service);
    Ok(claim)
}

/// What is said of a kind of workers, where there are several.
fn of_kind(config: &ServiceConfig, profile_sha256: &str) -> Kind {
    let (name, engine) = (config.kind_name(), config.engine.to_string());
    Kind { name, engine, profile_sha256: profile_sha256.to_owned() }
}

/// The claim about a device, be it that not all can be promised.
fn device_claim(
    config: &Config,
    index: usize,
    models: &[Vec<ModelSpec>],
    profile: &Profile,
) -> anyhow::Result<SharedClaim> {
    let device = &config.devices[index];
    let problem = match planned_problem(config, index, models, profile) {
        Err(PlanError::Device { .. }) => refused_problem(config, index, models, profile)?,
        other => other?,
    };
    let mut told_of = Vec::new();
    for (service, specs) in config.services.iter().zip(models).filter(|(service, _)| service.is_on(index)) {
        if service.is_fused() {
            let (spec, digest) = pipeline_identity(service, specs, profile)?;
            told_of.push(told(service, &spec, digest));
            continue;
        }
        let digest =
            |spec: &ModelSpec| anyhow::Ok(profile.timed(&Timed::by(service, spec), service.engine)?.digest());
        let mut told = told(service, &specs[0], digest(&specs[0])?);
        let running = if service.select == Select::Base { 1 } else { specs.len() };
        let slower = specs[1..running].iter().map(|spec| Ok(variant(spec, digest(spec)?)));
        told.variants = slower.collect::<anyhow::Result<_>>()?;
        told_of.push(told);
    }
    Ok(of_device(device, &problem, told_of))
}

fn of_device(device: &DeviceConfig, problem: &SharedProblem, services: Vec<Service>) -> SharedClaim {
    SharedClaim {
        device: Some(SharedDevice { name: device.name.clone(), services }),
        ..certify_shared(problem)
    }
}

/// What is said of a service whose promise rests on its base variant.
fn told(config: &ServiceConfig, spec: &ModelSpec, profile_sha256: String) -> Service {
    Service {
        name: config.name.clone(),
        model: spec.name.clone(),
        model_sha256: spec.identity(),
        engine: config.engine.to_string(),
        profile_sha256,
        kinds: Vec::new(),
        variants: Vec::new(),
    }
}
