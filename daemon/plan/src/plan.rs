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
mod stalls;
#[cfg(test)]
mod tests;
mod variants;
mod weights;

use std::sync::Arc;

use planner::certificate::Contingency;
use planner::certify::contingencies;
use rt_core::{
    Admission, ArrivalCurve, Fallbacks, LatencyProfile, LoadMonitor, Net, Selector, Shield, ShieldError,
    Span, StreamSpec, System, Workers,
};

use crate::config::{Config, ServiceConfig, Tolerance};
use crate::models::{Reply, Timed, reach_engines, resolve_models};
use crate::problem::{problem, reserved};
use crate::profile::{Entry, Fingerprint, Profile, Work};
use weir_engine::{EngineKind, ModelSpec};

pub use device::{DevicePlan, Searching, Share, planned_problem, refused_problem};
pub use error::PlanError;
pub use fused::FusedPlan;
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

/// Who sends more than this part of the certified rate is warned.
const WARNING_SHARE: f64 = 0.9;
/// The rate is measured over at least so many requests of it.
const RATE_COUNT: f64 = 40.0;

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
        let unreached = reach_engines(config)?.iter().map(ToString::to_string).collect();
        let other_company = Work::other_company(config, &models, profile);
        let (devices, mut refused) = device::compute_all(config, &models, profile, observe);
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

    /// How many requests that must be served can wait at most if all of `load` is promised what it asks, by workers that are the
    /// service's own. Of a pipeline how many sources can be open, and by how much its batches may take longer in all then: of other
    /// services there is nothing of the kind, or the device's.
    ///
    /// # Errors
    /// Why it cannot be promised.
    pub fn room<'a>(&self, load: impl IntoIterator<Item = &'a StreamSpec>) -> Result<(u64, Span), String> {
        match &self.pipeline {
            Some(pipeline) => pipeline.room(load).map_err(|error| error.to_string()),
            None => Ok((self.system.admit(load).map_err(|error| error.to_string())?.waiting, Span::ZERO)),
        }
    }

    /// By how much the requests of all of `load` may come before their declarations allow them, so that it harms nobody: what
    /// their admission leaves of the deadline, and no more than is configured.
    pub fn tolerance<'a>(&self, load: impl IntoIterator<Item = &'a StreamSpec>) -> Span {
        if self.shared.is_some() || self.pipeline.is_some() {
            return Span::ZERO;
        }
        let load: Vec<_> = load.into_iter().collect();
        let most = self.most_early(&load);
        self.system.tolerance(load, most, self.config.queue as u64)
    }

    /// By how much batches may take longer in all beside `load`, as [`room`](Self::room) has it; not at all if it cannot be promised.
    pub fn overrun_margin<'a>(&self, load: impl IntoIterator<Item = &'a StreamSpec>) -> Span {
        let Some(pipeline) = &self.pipeline else { return Span::ZERO };
        pipeline.room(load).map_or(Span::ZERO, |(_, margin)| margin)
    }

    /// What the promises to all of `load` fall back on if a worker is lost or batches take longer.
    pub fn fallbacks<'a>(&self, load: impl IntoIterator<Item = &'a StreamSpec>) -> Fallbacks {
        if !self.may_fall_back() {
            return Fallbacks::default();
        }
        let load: Vec<_> = load.into_iter().collect();
        let most = self.most_early(&load);
        self.system.fallbacks(load, most, self.config.queue as u64)
    }

    /// Whether its promises may fall back.
    pub fn may_fall_back(&self) -> bool {
        self.shared.is_none() && self.pipeline.is_none() && self.config.background && !self.is_absorbed()
    }

    /// By how much the requests of `load` may come early at most, as configured.
    fn most_early(&self, load: &[&StreamSpec]) -> Span {
        let Tolerance { most, paced } = self.config.tolerance;
        let quarter = |arrivals: &ArrivalCurve| Span::from_nanos((1e9 / arrivals.rate_per_s() / 4.0) as u64);
        let paces = load.iter().filter_map(|spec| spec.demand()).filter(|_| paced);
        paces.map(|(_, arrivals)| quarter(arrivals)).fold(most, Span::min)
    }

    /// The shield for `load`.
    fn shield_alone<'a>(
        &self,
        load: impl IntoIterator<Item = &'a StreamSpec> + Clone,
    ) -> Result<Shield, ShieldError> {
        if !self.kinds.is_empty() || self.system.workers.len() > 1 {
            return Err(ShieldError::Foreign);
        }
        let times = (self.system.unstalled_latency(), self.tolerance(load.clone()));
        Shield::tolerant(self.workers(), times, load.into_iter().filter_map(StreamSpec::demand))
    }

    /// The device whose workers it shares, if it does.
    pub fn shared_device(&self) -> Option<&str> {
        self.shared.as_ref().map(|share| &*share.device.config.name)
    }

    /// The name of what it runs on: its own, unless it shares a device.
    pub fn device_name(&self) -> &str {
        self.shared_device().unwrap_or(&self.config.name)
    }

    /// The workers; where they are of several kinds, those of the first.
    pub fn workers(&self) -> &Workers {
        &self.system.workers[0]
    }

    /// What runs models: the service itself, each kind of its workers, or each stage of a pipeline.
    pub fn running(&self) -> impl Iterator<Item = &Self> {
        let own = (self.stages().is_empty() && self.kinds.is_empty()).then_some(self);
        let stages = self.stages().iter().map(|stage| &stage.runs);
        own.into_iter().chain(self.kinds.iter().map(|kind| &kind.runs)).chain(stages)
    }

    /// The stages of a pipeline; none of a service with one model.
    pub fn stages(&self) -> &[StagePlan] {
        let fused = self.fused.as_ref().map_or(&[][..], |fused| &fused.stages);
        self.pipeline.as_ref().map_or(fused, |pipeline| &pipeline.stages)
    }

    /// How the results of the stages of a pipeline become its answer.
    pub fn reply(&self) -> Option<&Reply> {
        let fused = self.fused.as_ref().map(|fused| &fused.reply);
        self.pipeline.as_ref().map(|pipeline| &pipeline.reply).or(fused)
    }

    /// All workers: those of a pipeline are numbered stage by stage, those of several kinds kind by kind.
    pub fn worker_count(&self) -> usize {
        let own = || self.system.workers.iter().map(|kind| kind.count).sum();
        self.pipeline.as_ref().map_or_else(own, |pipeline| pipeline.workers())
    }

    /// What a worker runs: this service, a kind of its workers, or a stage of this pipeline; and its number among the workers of that.
    pub fn on_worker(&self, worker: usize) -> (&Self, usize) {
        if let Some(pipeline) = &self.pipeline {
            let (stage, worker) = pipeline.place_of(worker);
            return (&pipeline.stages[stage].runs, worker);
        }
        let mut own = worker;
        for KindPlan { runs, .. } in &self.kinds {
            match own.checked_sub(runs.workers().count) {
                None => return (runs, own),
                Some(behind) => own = behind,
            }
        }
        (self, worker)
    }

    /// The largest batch that is served, of what waits: at least that of the promise.
    pub fn max_batch(&self) -> usize {
        self.system.workers.iter().map(|kind| kind.profile.max_batch()).max().unwrap_or(1)
    }

    /// The largest batch that is ever started: where workers are shared, none takes longer than the longest of the promises.
    pub fn largest_batch(&self) -> usize {
        let longest = self.shared.as_ref().map(|share| share.device.sharing.longest);
        longest.map_or(self.max_batch(), |longest| {
            self.workers().profile.largest_within(longest, self.max_batch())
        })
    }

    /// Requests a second in full batches of the promise; of a pipeline by the stage that carries least of them.
    pub fn capacity(&self) -> f64 {
        let stages = self.pipeline.iter().flat_map(|pipeline| &pipeline.stages);
        let each = stages.map(|stage| stage.runs.capacity() / stage.most as f64);
        let own = || self.system.workers.iter().map(Workers::capacity_per_s).sum();
        each.reduce(f64::min).unwrap_or_else(own)
    }

    /// The same in the mean: of a pipeline by what a source becomes on average.
    pub fn mean_capacity(&self) -> f64 {
        let stages = self.pipeline.iter().flat_map(|pipeline| &pipeline.stages).zip(self.config.means());
        let each = stages.map(|(stage, mean)| stage.runs.capacity() / mean);
        each.reduce(f64::min).unwrap_or_else(|| self.capacity())
    }

    /// Requests a second that are certified: of the reserved streams and the promise together; `None` without either.
    pub fn certified_per_s(&self) -> Option<f64> {
        let reserved = self.config.reserved.iter().filter_map(|s| s.spec.demand());
        let reserved: f64 = reserved.map(|(_, arrivals)| arrivals.rate_per_s()).sum();
        let promised = self.rate.as_ref().and_then(RatePlan::per_second).unwrap_or(0.0);
        Some(reserved + promised).filter(|&rate| rate > 0.0)
    }

    /// What counts requests, and how many are nine tenths of the certified rate.
    pub fn rate_warning(&self) -> Option<(LoadMonitor, u64)> {
        let rate = self.certified_per_s()?;
        let window = (RATE_COUNT / rate).max(LoadMonitor::DEFAULT_WINDOW.as_secs_f64());
        let monitor = LoadMonitor::new(Span::from_nanos((window * 1e9) as u64)).ok()?;
        Some((monitor, (WARNING_SHARE * rate * window).ceil() as u64))
    }

    /// One more stream of the service's own constraints at the promised rate, and a name for it that is free.
    pub fn promised_stream(&self) -> Option<(String, StreamSpec)> {
        let (period, _) = self.rate.as_ref()?.spare?;
        self.config.stream_every(period)
    }

    /// The reserved streams, or without any the promised one.
    pub fn foreseen(&self) -> Vec<(String, StreamSpec)> {
        match self.config.reserved.is_empty() {
            true => self.promised_stream().into_iter().collect(),
            false => reserved(&self.config).collect(),
        }
    }

    /// What would be left of the levels of promises with a worker less or longer batches, of the reserved streams alone, or without any of the
    /// promised one; none without levels.
    pub fn contingencies(&self) -> (Vec<(String, StreamSpec)>, Vec<Contingency>) {
        let streams = self.foreseen();
        let problem = match self.shared.is_some() || self.pipeline.is_some() {
            true => None,
            false => problem(&self.config, self.all_workers(), &streams).ok(),
        };
        let contingencies = problem.as_ref().map(contingencies).unwrap_or_default();
        (streams, contingencies)
    }

    /// Whether this is no real engine.
    pub fn is_simulated(&self) -> bool {
        self.config.engine == EngineKind::Simulated
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
        return Err(PlanError::Batch { service: config.name.clone(), batch, profiled });
    }
    let sizes = match config.batch {
        Some(batch) => batch..=batch,
        None => 1..=profiled,
    };
    Ok(sizes.map(|batch| Workers { count: config.workers, batch, profile: profile.clone() }).collect())
}
