//! The plan: what each service can promise on this machine, computed before anything is served.

mod absorb;
mod device;
mod measured;
mod merit;
mod pipeline;
mod rate;
mod select;
mod selection;
mod stalls;
mod variants;

use std::path::PathBuf;
use std::sync::Arc;

use planner::certificate::Contingency;
use planner::certify::contingencies;
use planner::selection::SelectionError;
use rt_core::{
    Admission, AdmissionError, ArrivalCurve, Constraint, LoadMonitor, SelectError, Selector, Shield,
    ShieldError, Span, StreamSpec, System, Workers,
};

use crate::config::{Config, ServiceConfig, Tolerance};
use crate::models::{ModelsError, prepare_engines, resolve_models};
use crate::problem::{problem, reserved};
use crate::profile::{Entry, Fingerprint, Profile, ProfileError, Work};
use weir_engine::{EngineError, EngineKind, ModelSpec};

pub use device::{DevicePlan, Searching, Share, planned_problem, refused_problem};
pub use measured::Proposal;
pub use pipeline::{Carried, PipelinePlan, StagePlan, stage_entries, stage_sizes};
use rate::densest;
pub use rate::{Counts, RatePlan};
pub use select::{TableError, check_tables, inputs, inputs_sha256};
pub use selection::SelectionPlan;
pub use stalls::Stalls;
pub use variants::VariantPlan;
pub(crate) use variants::times_of;

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
    /// The SHA-256 of the profile's entry, in hexadecimal.
    pub profile_sha256: String,
    /// What the profile says of the base; absent in a plan of what could be.
    pub entry: Option<Entry>,
    /// In what its engine is not the one that was profiled, one line each: that of a process does not change.
    pub mismatches: Vec<String>,
    /// The workers with the chosen batch size; its latency is the deadline less the guard.
    pub system: System,
    /// What else might have held the promise through the stalls that are declared, and why it does not.
    pub otherwise: Option<String>,
    /// The reserved streams together; absent where the service shares its workers.
    pub admission: Option<Admission>,
    /// Its part of the plan of its device, if it shares one.
    pub shared: Option<Share>,
    /// The largest rate under the service's own constraints; absent if it has none.
    pub rate: Option<RatePlan>,
    /// Its stages, if it is a pipeline.
    pub pipeline: Option<Box<PipelinePlan>>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Models(#[from] ModelsError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(
        "service {service}: batch = {batch}, but the profile covers 1..={profiled}: run `weir profile` again"
    )]
    Batch { service: String, batch: usize, profiled: usize },
    #[error("service {service}: the times of {model} with the handover: {source}")]
    Times { service: String, model: String, source: rt_core::ProfileError },
    #[error(
        "service {service}: P(1) = {time} leaves nothing of the deadline {deadline} less {guard} for late dispatch \
         and stalls"
    )]
    Deadline { service: String, time: Span, deadline: Span, guard: Span },
    #[error("service {service}: the promise to stream {stream}, {constraint}, cannot be kept: {source}")]
    Stream { service: String, stream: String, constraint: Constraint, source: AdmissionError },
    #[error("service {service}: queue = {queue}, but up to {waiting} requests that must be served can wait")]
    Queue { service: String, queue: usize, waiting: u64 },
    #[error(
        "pipeline {service}: deadline {deadline} is too short for one source: P(1) is {times}, and at each stage dispatch may be \
         late by {guard}"
    )]
    Path { service: String, times: String, deadline: Span, guard: Span },
    #[error("pipeline {service}: the promise to stream {stream}, {constraint}, cannot be kept: {reason}")]
    Reserved { service: String, stream: String, constraint: Constraint, reason: String },
    #[error("pipeline {service}: {constraint} cannot be promised at any rate: {reason}")]
    Unkept { service: String, constraint: Constraint, reason: String },
    #[error("pipeline {service}: {reason}")]
    Reason { service: String, reason: String },
    #[error("pipeline {service}: {source}")]
    Problem { service: String, source: planner::ProblemError },
    #[error("device {device}: its worker(s) load model files of {bytes} bytes in all, max-memory = {limit}")]
    Memory { device: String, bytes: u64, limit: u64 },
    #[error("device {device}: not every promise can be kept: {reason}")]
    Device { device: String, reason: String },
    #[error("{field} = {value}: {reason}")]
    Variant { field: String, value: String, reason: String },
    #[error("service {service}: {source}")]
    Select { service: String, source: SelectError },
    #[error("service {service}: select = \"planned\": {source}")]
    Planned { service: String, source: SelectionError },
    #[error("{}: {source}", path.display())]
    Table { path: PathBuf, source: TableError },
    #[error(
        "service {service}: {constraint} cannot be promised at any rate: a request can wait for one batch and \
         then needs its own, together {twice}, but the deadline less guard and stalls is {latency}"
    )]
    Never { service: String, constraint: Constraint, twice: Span, latency: Span },
    #[error("service {service}: {constraint} cannot be promised at any rate: {source}")]
    Declared { service: String, constraint: Constraint, source: AdmissionError },
    #[error(
        "{source}; it could be but for rare long times: {share} % of batches of {batch} take at most {likely}, but \
         P({batch}) = {bound}"
    )]
    Stalls { source: Box<Self>, share: f64, batch: usize, likely: Span, bound: Span },
    #[error("{source}; {proposal}")]
    Declare { source: Box<Self>, proposal: Box<Proposal> },
}

impl Plan {
    /// Computes what `config` can promise, from the manifest and profile that it names.
    ///
    /// # Errors
    /// If a file is missing or does not fit, or a promise cannot hold: the message names service,
    /// stream and constraint.
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
        prepare_engines(config)?;
        let other_company = Work::other_company(config, &models, profile);
        let mut devices: Vec<_> =
            device::compute_all(config, &models, profile, observe)?.into_iter().map(Some).collect();
        let services: Result<Vec<_>, _> = config
            .services
            .iter()
            .zip(models)
            .zip(&mut devices)
            .map(|((service, specs), device)| match device.take().flatten() {
                _ if !service.stages.is_empty() => ServicePlan::of_pipeline(service, &specs, profile),
                Some(part) => ServicePlan::on_device(service, specs, profile, part),
                None => ServicePlan::compute(service, specs, profile),
            })
            .collect();
        Ok(Self { services: services?, profiled: profile.fingerprint().clone(), other_company })
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
        let spec = &specs[0];
        let entry = profile.entry(&spec.name, &spec.identity(), config.engine)?;
        let all = workers_of(config, entry)?;
        let explain = |error: PlanError| error.or_stalls(config, spec, &all).or_proposal(config, spec, entry);
        let plan = Self::of(config, spec, &entry.digest(), &all).map_err(explain)?;
        Self { entry: Some(entry.clone()), ..plan }.with_variants(profile.with_entries(specs, config.engine)?)
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
            profile_sha256: profile_sha256.to_owned(),
            entry: None,
            mismatches: Vec::new(),
            system,
            admission: Some(admission),
            shared: None,
            rate,
            pipeline: None,
        })
    }

    /// How many requests that must be served can wait at most if all of `load` is promised what it asks, by workers that are the
    /// service's own; of a pipeline how many sources can be open.
    ///
    /// # Errors
    /// Why it cannot be promised.
    pub fn most_waiting<'a>(&self, load: impl IntoIterator<Item = &'a StreamSpec>) -> Result<u64, String> {
        match &self.pipeline {
            Some(pipeline) => pipeline.most_open(load).map_err(|error| error.to_string()),
            None => Ok(self.system.admit(load).map_err(|error| error.to_string())?.waiting),
        }
    }

    /// By how much the requests of all of `load` may come before their declarations allow them, so that it harms nobody: what
    /// their admission leaves of the deadline, and no more than is configured.
    pub fn tolerance<'a>(&self, load: impl IntoIterator<Item = &'a StreamSpec>) -> Span {
        if self.shared.is_some() || self.pipeline.is_some() {
            return Span::ZERO;
        }
        let Tolerance { most, paced } = self.config.tolerance;
        let load: Vec<_> = load.into_iter().collect();
        let quarter = |arrivals: &ArrivalCurve| Span::from_nanos((1e9 / arrivals.rate_per_s() / 4.0) as u64);
        let paces = load.iter().filter_map(|spec| spec.demand()).filter(|_| paced);
        let most = paces.map(|(_, arrivals)| quarter(arrivals)).fold(most, Span::min);
        self.system.tolerance(load, most, self.config.queue as u64)
    }

    /// The shield for `load`.
    fn shield_alone<'a>(
        &self,
        load: impl IntoIterator<Item = &'a StreamSpec> + Clone,
    ) -> Result<Shield, ShieldError> {
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

    /// The workers: a service has one kind.
    pub fn workers(&self) -> &Workers {
        &self.system.workers[0]
    }

    /// What runs models: the service itself, or each stage of a pipeline.
    pub fn running(&self) -> impl Iterator<Item = &Self> {
        let own = self.pipeline.is_none().then_some(self);
        own.into_iter().chain(self.pipeline.iter().flat_map(|all| &all.stages).map(|stage| &stage.runs))
    }

    /// All workers: of a pipeline those of its stages, which are numbered stage by stage.
    pub fn worker_count(&self) -> usize {
        self.pipeline.as_ref().map_or(self.workers().count, |pipeline| pipeline.workers())
    }

    /// What a worker runs: this service, or a stage of this pipeline; and its number among the workers of that.
    pub fn on_worker(&self, worker: usize) -> (&Self, usize) {
        let Some(pipeline) = &self.pipeline else { return (self, worker) };
        let (stage, worker) = pipeline.place_of(worker);
        (&pipeline.stages[stage].runs, worker)
    }

    /// The largest batch that is served, of what waits: at least that of the promise.
    pub fn max_batch(&self) -> usize {
        self.workers().profile.max_batch()
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
        each.reduce(f64::min).unwrap_or_else(|| self.workers().capacity_per_s())
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

    /// What would be left of the levels of promises with a worker less or longer batches, of the reserved streams alone, or without any of the
    /// promised one; none without levels.
    pub fn contingencies(&self) -> (Vec<(String, StreamSpec)>, Vec<Contingency>) {
        let streams: Vec<_> = match self.config.reserved.is_empty() {
            true => self.promised_stream().into_iter().collect(),
            false => reserved(&self.config).collect(),
        };
        let problem = match self.shared.is_some() || self.pipeline.is_some() {
            true => None,
            false => problem(&self.config, self.workers(), &streams).ok(),
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
    let profile = times_of(config, entry)?;
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
