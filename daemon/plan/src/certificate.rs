//! From a configuration to its certificate and back: what is promised here, written down, and checked before it is
//! served.

mod check;
mod staged;

use std::collections::BTreeMap;

use anyhow::Context;
use planner::certificate::{Claim, Kind, Refutation, Service, SharedClaim, SharedDevice, Variant};
use planner::verify::verify;
use planner::{Certificate, PipelineProblem, Problem, ProblemError, SharedProblem, certify, certify_shared};
use rt_core::Workers;

use crate::config::{Config, DeviceConfig, Select, ServiceConfig};
use crate::models::{Timed, resolve_models, running};
use crate::plan::{
    DevicePlan, Plan, PlanError, ServicePlan, VariantPlan, kind_sizes, pipeline_identity, planned_problem,
    refused_problem, workers_of,
};
use crate::problem::{problem, problem_of_device, reserved};
use crate::profile::{Fingerprint, Profile};
use weir_engine::{EngineKind, Equipment, ModelSpec};

pub use check::{Mismatch, check};
pub use staged::problem_of as staged_problem_of;

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
/// that has constraints of its own, on the times of `profile`. A service that cannot be promised is refused in it, with the
/// arrivals that one of `refuters` finds to show it, and so is a device or a pipeline.
///
/// # Errors
/// If the manifest cannot be read, it or the profile do not fit, or a declaration has no form as a problem.
pub fn certificate(config: &Config, profile: &Profile, refuters: Refuters) -> anyhow::Result<Certificate> {
    let models = resolve_models(config)?;
    let (mut equipment, mut claims, mut pipelines) = (Vec::new(), Vec::new(), Vec::new());
    for runs in running(config, &models) {
        for spec in runs.specs {
            let entry = profile.timed(&runs.timed(spec), runs.config.engine)?;
            equipment.push((runs.config, told_as(runs.config, &spec.name), entry.equipment.clone()));
        }
    }
    for (service, specs) in config.services.iter().zip(&models) {
        if service.is_staged() {
            pipelines.push(staged::claim(service, specs, profile)?);
        } else if service.share.is_none() {
            claims.push(match ServicePlan::compute(service, specs.clone(), profile) {
                Ok(plan) => promise(&plan),
                Err(error) if error.is_refusal() => refusal(service, specs, profile),
                Err(error) => Err(error.into()),
            }?);
        }
    }
    let devices = (0..config.devices.len()).map(|device| device_claim(config, device, &models, profile));
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

/// What certificates say of their maker.
pub fn made_by() -> String {
    format!("weir {}", env!("CARGO_PKG_VERSION"))
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
