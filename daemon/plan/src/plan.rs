//! The plan: what each service can promise on this machine, computed before anything is served.

mod absorb;
mod device;
mod error;
mod fused;
mod kinds;
mod measured;
mod merit;
mod pipeline;
mod rate;
mod run;
mod select;
mod selection;
mod service;
mod stalls;
#[cfg(test)]
mod tests;
mod variants;
mod weights;

use std::sync::Arc;

use rt_core::{Admission, LatencyProfile, Net, Selector, System, Workers};
use weir_engine::{EngineKind, ModelSpec};

use crate::config::{Config, ServiceConfig};
use crate::models::{Timed, prepare_engines_here, reach_engines, resolve_models};
use crate::profile::{Entry, Fingerprint, Profile, Work};

pub use device::{DevicePlan, Searching, Share, Split, planned_problem, refused_problem, splits};
pub use error::PlanError;
pub use fused::FusedPlan;
pub(crate) use fused::least_loads;
pub use kinds::{KindPlan, sizes as kind_sizes};
pub use measured::Proposal;
pub use pipeline::{
    Carried, PipelinePlan, StagePlan, identity as pipeline_identity, stage_entries, stage_sizes,
};
use rate::densest;
pub use rate::{Counts, RatePlan};
pub use select::{TableError, check_tables, inputs, inputs_sha256};
pub use selection::{SelectionPlan, WriteError};
pub use stalls::Stalls;
pub(crate) use variants::times_of;
pub use variants::{Meanwhile, VariantPlan};
pub use weights::{WeightsError, check_weights, write_weights};

/// Every service's plan, and what was profiled otherwise than it would be served.
#[derive(Debug)]
pub struct Plan {
    pub services: Vec<ServicePlan>,
    /// The machine.
    pub profiled: Fingerprint,
    /// Other numbers of workers at once, one line for each model.
    pub other_company: Vec<String>,
    /// Servers that were out of reach while other workers of their service were there, one line each.
    pub unreached: Vec<String>,
}

/// What one service can promise, and why.
#[derive(Clone, Debug)]
pub struct ServicePlan {
    pub config: ServiceConfig,
    /// The base variant's.
    pub spec: ModelSpec,
    /// The base and more accurate ones.
    pub variants: Vec<VariantPlan>,
    /// Selects among the variants; absent if the base answers everything.
    pub selector: Option<Selector>,
    /// The network that may select, where simulation says who does.
    network: Option<Net>,
    /// The SHA-256 of the profile's entry, in hexadecimal.
    pub profile_sha256: String,
    /// What the profile says of the base; absent in a plan of what could be.
    pub entry: Option<Entry>,
    /// In what its engine is not the one that was profiled, one line each: that of a process does not change.
    pub mismatches: Vec<String>,
    /// The workers, kind by kind, with the chosen batch sizes; its latency is the deadline less the guard.
    pub system: System,
    /// What else might have held the promise through the stalls that are declared, and why it does not.
    pub otherwise: Option<String>,
    /// The reserved streams together; absent where the service shares its workers.
    pub admission: Option<Admission>,
    /// Its part of the plan of its device, if it shares one.
    pub shared: Option<Share>,
    /// The largest rate under the service's own constraints; absent if it has none.
    pub rate: Option<RatePlan>,
    /// The kinds of its workers, if there are several.
    pub kinds: Vec<KindPlan>,
    /// Its stages, if it is a pipeline and they have workers of their own.
    pub pipeline: Option<Box<PipelinePlan>>,
    /// Or if it is one on a device.
    pub fused: Option<Box<FusedPlan>>,
}

impl Plan {
    /// Computes what `config` can promise, from the manifest and profile that it names.
    ///
    /// # Errors
    /// If a file is missing or does not fit, or promises cannot hold: the message names service, stream and constraint of each
    /// service, and each device, that cannot be planned.
    pub fn compute(config: &Config) -> Result<Self, PlanError> {
        let profile = Profile::load(&config.daemon.profile)?;
        Self::of(config, resolve_models(config)?, &profile)
    }

    /// The same from what was read already: the `models` of each service, and the `profile`.
    ///
    /// # Errors
    /// As [`Plan::compute`].
    pub fn of(config: &Config, models: Vec<Vec<ModelSpec>>, profile: &Profile) -> Result<Self, PlanError> {
        Self::watched(config, models, profile, &mut |_| {})
    }

    /// The same for one of many that are tried, whose refusal nobody reads: it is not looked for what would hold instead, and no server is
    /// met for it.
    ///
    /// # Errors
    /// As [`Plan::compute`].
    pub fn tried(config: &Config, models: Vec<Vec<ModelSpec>>, profile: &Profile) -> Result<Self, PlanError> {
        Self::planned(config, models, profile, (&mut |_| {}, false))
    }

    /// The same, which tells `observe` now and then how far it is with a device.
    ///
    /// # Errors
    /// As [`Plan::compute`].
    pub fn watched(
        config: &Config,
        models: Vec<Vec<ModelSpec>>,
        profile: &Profile,
        observe: &mut dyn FnMut(Searching<'_>),
    ) -> Result<Self, PlanError> {
        Self::planned(config, models, profile, (observe, true))
    }

    fn planned(
        config: &Config,
        models: Vec<Vec<ModelSpec>>,
        profile: &Profile,
        (observe, explain): (&mut dyn FnMut(Searching<'_>), bool),
    ) -> Result<Self, PlanError> {
        let unreached = match explain {
            true => reach_engines(config)?.iter().map(ToString::to_string).collect(),
            false => prepare_engines_here(config).map(|()| Vec::new())?,
        };
        let other_company = Work::other_company(config, &models, profile);
        let (devices, mut refused) = device::compute_all(config, &models, profile, observe, explain);
        let mut services = Vec::with_capacity(models.len());
        for ((service, specs), part) in config.services.iter().zip(models).zip(devices) {
            let plan = match part {
                _ if service.is_staged() => ServicePlan::of_pipeline(service, &specs, profile),
                Some(part) if service.is_fused() => ServicePlan::fused(service, &specs, profile, part),
                Some(part) => ServicePlan::on_device(service, specs, profile, part),
                // Why is said of its device.
                None if service.share.is_some() => continue,
                None => ServicePlan::compute(service, specs, profile),
            };
            match plan {
                Ok(plan) => services.push(plan),
                Err(error) => refused.push(error),
            }
        }
        match refused.len() {
            0 => Ok(Self { services, profiled: profile.fingerprint().clone(), other_company, unreached }),
            1 => Err(refused.remove(0)),
            _ => Err(PlanError::Several(refused)),
        }
    }

    /// The services by what they run on, each with its place among all: those of a device together, every other by itself.
    pub fn into_devices(self) -> Vec<Vec<(usize, ServicePlan)>> {
        let mut devices: Vec<Vec<(usize, ServicePlan)>> = Vec::new();
        for (place, plan) in self.services.into_iter().enumerate() {
            let of = |plan: &ServicePlan| plan.shared.as_ref().map(|share| Arc::as_ptr(&share.device));
            match devices.iter_mut().find(|all| of(&plan).is_some() && of(&all[0].1) == of(&plan)) {
                Some(device) => device.push((place, plan)),
                None => devices.push(vec![(place, plan)]),
            }
        }
        devices
    }

    /// The devices that services share, in the order of their first service.
    pub fn devices(&self) -> Vec<&DevicePlan> {
        let shared = self.services.iter().filter_map(|service| service.shared.as_ref());
        shared.filter(|share| share.index == 0).map(|share| &*share.device).collect()
    }

    /// The services on a device, in its order.
    pub fn on<'a>(&'a self, device: &'a DevicePlan) -> impl Iterator<Item = &'a ServicePlan> {
        let is_on = move |share: &Share| std::ptr::eq(&*share.device, device);
        self.services.iter().filter(move |service| service.shared.as_ref().is_some_and(is_on))
    }

    /// In what this machine and its engines differ from those that were profiled, one line each; empty if in nothing.
    pub fn mismatches(&self) -> Vec<String> {
        let mut lines = self.profiled.differences(&Fingerprint::current());
        for line in self.services.iter().flat_map(|service| &service.mismatches) {
            if !lines.contains(line) {
                lines.push(line.clone());
            }
        }
        lines
    }
}

impl ServicePlan {
    /// What `config` can promise with the best of its batch sizes, by the first of `specs`, its base variant.
    ///
    /// # Errors
    /// As [`Plan::compute`].
    pub fn compute(
        config: &ServiceConfig,
        specs: Vec<ModelSpec>,
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        if !config.kinds.is_empty() {
            return Self::of_kinds(config, &specs, profile);
        }
        let spec = &specs[0];
        let entry = profile.timed(&Timed::by(config, spec), config.engine)?;
        let all = workers_of(config, entry)?;
        let explain = |error: PlanError| error.or_stalls(config, spec, &all).or_proposal(config, spec, entry);
        let plan = Self::of(config, spec, &entry.digest(), &all).map_err(explain)?;
        Self { entry: Some(entry.clone()), ..plan }.with_variants(profile.with_entries(specs, config)?)
    }

    /// The best of `all`, workers that differ in the batch size that is promised by.
    pub(crate) fn of(
        config: &ServiceConfig,
        spec: &ModelSpec,
        profile_sha256: &str,
        all: &[Workers],
    ) -> Result<Self, PlanError> {
        if config.stalls.is_some() {
            return Self::through_stalls(config, spec, profile_sha256, all);
        }
        Self::held_by_deadline(config, spec, profile_sha256, all)
    }

    /// The same, where what stalls may take is kept back of the deadline.
    fn held_by_deadline(
        config: &ServiceConfig,
        spec: &ModelSpec,
        profile_sha256: &str,
        all: &[Workers],
    ) -> Result<Self, PlanError> {
        let latency = config.deadline.saturating_sub(config.guard);
        let reserve = rt_core::Stalls::reserve_of(config.stalls);
        if let Some(time) = all.first().map(|w| w.profile.bound(1)).filter(|&time| time + reserve > latency) {
            let (service, deadline, guard) = (config.name.clone(), config.deadline, config.guard + reserve);
            return Err(PlanError::Deadline { service, time, deadline, guard });
        }
        let systems = all.iter().map(|workers| Self::system_of(config, workers, config.stalls));
        Self::best(config, spec, profile_sha256, systems)
    }

    /// What is admitted to, with `workers` and these stalls.
    fn system_of(config: &ServiceConfig, workers: &Workers, stalls: Option<rt_core::Stalls>) -> System {
        System {
            guard: config.guard,
            stalls,
            dispatch: config.dispatch,
            background: config.background,
            ..System::identical(workers.clone(), config.deadline.saturating_sub(config.guard))
        }
    }

    fn with_system(
        config: &ServiceConfig,
        spec: &ModelSpec,
        profile_sha256: &str,
        system: System,
    ) -> Result<Self, PlanError> {
        let streams = || config.reserved.iter().map(|s| &s.spec);
        let admission = system.admit(streams()).map_err(|source| {
            // The first stream that is one too many, with the constraint that demands most of it.
            let fails = |n: &usize| system.admit(streams().take(*n)).is_err();
            let culprit = (1..=config.reserved.len()).find(fails).map_or(0, |n| n - 1);
            let stream = &config.reserved[culprit];
            PlanError::Stream {
                service: config.name.clone(),
                stream: stream.name.clone(),
                constraint: densest(stream.spec.constraints()),
                source,
            }
        })?;
        if admission.waiting > config.queue as u64 {
            let (service, queue, waiting) = (config.name.clone(), config.queue, admission.waiting);
            return Err(PlanError::Queue { service, queue, waiting });
        }
        let rate = match config.constraints.as_slice() {
            [] => None,
            list => Some(RatePlan::compute(config, &system, list)?),
        };
        Ok(Self {
            // With what holds the promise through them.
            config: ServiceConfig { stalls: system.stalls, ..config.clone() },
            spec: spec.clone(),
            otherwise: None,
            variants: Vec::new(),
            selector: None,
            network: None,
            profile_sha256: profile_sha256.to_owned(),
            entry: None,
            mismatches: Vec::new(),
            system,
            admission: Some(admission),
            shared: None,
            rate,
            kinds: Vec::new(),
            pipeline: None,
            fused: None,
        })
    }
}

/// The workers of a service, for each batch size that it may promise by.
///
/// # Errors
/// If the profile does not go as far as the batch size that is configured.
pub fn workers_of(config: &ServiceConfig, entry: &Entry) -> Result<Vec<Workers>, PlanError> {
    sizes_of(config, times_of(config, entry)?)
}

/// The same of what all batches take.
fn sizes_of(config: &ServiceConfig, profile: LatencyProfile) -> Result<Vec<Workers>, PlanError> {
    let profiled = profile.max_batch();
    if let Some(batch) = config.batch.filter(|&batch| batch > profiled) {
        let remedy = match config.engine {
            EngineKind::Simulated => {
                "simulated.times says how long so many take; list more, or say a smaller batch"
            }
            _ => "run `weir profile` again",
        };
        return Err(PlanError::Batch { service: config.name.clone(), batch, profiled, remedy });
    }
    let sizes = match config.batch {
        Some(batch) => batch..=batch,
        None => 1..=profiled,
    };
    Ok(sizes.map(|batch| Workers { count: config.workers, batch, profile: profile.clone() }).collect())
}
