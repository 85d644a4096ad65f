//! The plan: what each service can promise on this machine, computed before anything is served.

use std::path::PathBuf;

use rt_core::{
    Admission, AdmissionError, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Density, Instant,
    LatencyProfile, Shield, Span, StreamSpec, System, Workers, largest_count, seed_theorem_1, seed_theorem_2,
};
use sha2::{Digest, Sha256};

use crate::config::{Config, ModelChoice, Optimise, ReservedStream, ServiceConfig};
use crate::engine::{EngineKind, ModelSpec, RunMode, TensorSpec};
use crate::manifest::{Manifest, ManifestError};
use crate::profile::{Entry, Fingerprint, Profile, ProfileError};

/// Every service's plan, and the machine that was profiled.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) services: Vec<ServicePlan>,
    pub(crate) profiled: Fingerprint,
}

/// What one service can promise, and why.
#[derive(Clone, Debug)]
pub(crate) struct ServicePlan {
    pub(crate) config: ServiceConfig,
    pub(crate) spec: ModelSpec,
    /// How each batch size was run when it was measured.
    pub(crate) modes: Vec<RunMode>,
    /// The median time of the chosen batch size: what a batch usually takes, and no promise rests on.
    pub(crate) typical: Span,
    /// The workers with the chosen batch size; its latency is the deadline less the guard.
    pub(crate) system: System,
    /// The reserved streams together.
    pub(crate) admission: Admission,
    /// The largest rate under the service's own constraints; absent if it has none.
    pub(crate) rate: Option<RatePlan>,
}

/// The largest rate of one stream, under the densest of a service's constraints: counts for it alone, the
/// rate beside the reserved streams.
#[derive(Clone, Debug)]
pub(crate) struct RatePlan {
    pub(crate) binding: Constraint,
    pub(crate) density: Density,
    /// The largest `N` such that at most `N` requests in any window of `P` are admitted.
    pub(crate) count: u64,
    /// Theorem B's `N*`, which no policy can pass; equals `count` if `L ≥ 2P`.
    pub(crate) upper: u64,
    /// The seed paper's theorem for that constraint on one worker.
    pub(crate) seed: u64,
    /// The shortest period of one more stream, up to the service's jitter late, beside the reserved ones, and
    /// its tightest instant; `None` if they leave no room.
    pub(crate) spare: Option<(Span, Admission)>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("{}: service[{index}].model = \"{model}\": daemon.models names no manifest", path.display())]
    NoManifest { path: PathBuf, index: usize, model: String },
    #[error(
        "service {service}: batch = {batch}, but the profile covers 1..={profiled}: run `weir profile` again"
    )]
    Batch { service: String, batch: usize, profiled: usize },
    #[error(
        "service {service}: P(1) = {time} leaves nothing of the deadline {deadline} less the guard {guard}"
    )]
    Deadline { service: String, time: Span, deadline: Span, guard: Span },
    #[error("service {service}: the promise to stream {stream}, {constraint}, cannot be kept: {source}")]
    Stream { service: String, stream: String, constraint: Constraint, source: AdmissionError },
    #[error("service {service}: queue = {queue}, but up to {waiting} requests that must be served can wait")]
    Queue { service: String, queue: usize, waiting: u64 },
    #[error(
        "service {service}: {constraint} cannot be promised at any rate: a request can wait for one batch and \
         then needs its own, together {twice}, but deadline less guard is {latency}"
    )]
    Never { service: String, constraint: Constraint, twice: Span, latency: Span },
}

impl Plan {
    /// Computes what `config` can promise, from the manifest and profile that it names.
    ///
    /// # Errors
    /// If a file is missing or does not fit, or a promise cannot hold: the message names service,
    /// stream and constraint.
    pub(crate) fn compute(config: &Config) -> Result<Self, PlanError> {
        let profile = Profile::load(&config.daemon.profile)?;
        let models = resolve_models(config)?;
        let services: Result<Vec<_>, _> = config
            .services
            .iter()
            .zip(models)
            .map(|(service, spec)| ServicePlan::compute(service, spec, &profile))
            .collect();
        Ok(Self { services: services?, profiled: profile.fingerprint().clone() })
    }

    /// In what this machine differs from the one that was profiled, one line each; empty if in nothing.
    pub(crate) fn mismatches(&self) -> Vec<String> {
        self.profiled.differences(&Fingerprint::current())
    }
}

/// The model of each service, in order.
pub(crate) fn resolve_models(config: &Config) -> Result<Vec<ModelSpec>, PlanError> {
    let manifest = config.daemon.models.as_deref().map(Manifest::load).transpose()?;
    let resolve = |(index, service): (usize, &ServiceConfig)| match (&service.model, &manifest) {
        (ModelChoice::Simulated { times, input, output }, _) => Ok(simulated(times, *input, *output)),
        (ModelChoice::Named(model), Some(manifest)) => Ok(manifest.model(model)?.clone()),
        (ModelChoice::Named(model), None) => {
            Err(PlanError::NoManifest { path: config.path.clone(), index, model: model.clone() })
        }
    };
    config.services.iter().enumerate().map(resolve).collect()
}

/// Stands for a model that does not exist; its hash is that of the times it waits out.
fn simulated(times: &[Span], input: usize, output: usize) -> ModelSpec {
    let mut hash = Sha256::new();
    times.iter().for_each(|t| hash.update(t.as_nanos().to_le_bytes()));
    let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let tensor = |name: &str, values| TensorSpec { name: name.into(), shape: vec![values] };
    ModelSpec {
        name: format!("simulated-{}", &sha256[..8]),
        path: PathBuf::new(),
        sha256,
        input: tensor("input", input),
        output: tensor("output", output),
        accuracy: f64::NAN,
        parameters: 0,
        macs: 0,
    }
}

impl ServicePlan {
    /// What `config` can promise with the best of its batch sizes.
    ///
    /// # Errors
    /// As [`Plan::compute`].
    pub(crate) fn compute(
        config: &ServiceConfig,
        spec: ModelSpec,
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        let entry = profile.entry(&spec.name, &spec.sha256, config.engine)?;
        let all = workers_of(config, entry)?;
        let latency = config.deadline.saturating_sub(config.guard);
        if let Some(time) = all.first().map(|w| w.profile.bound(1)).filter(|&time| time > latency) {
            let (service, deadline, guard) = (config.name.clone(), config.deadline, config.guard);
            return Err(PlanError::Deadline { service, time, deadline, guard });
        }
        let systems = all.into_iter().map(|workers| System {
            guard: config.guard,
            dispatch: config.dispatch,
            ..System::identical(workers, latency)
        });
        // The batch size that is best for what is wanted, of those with which everything holds; of equals, the
        // smallest.
        let mut best: Option<(f64, Self)> = None;
        let mut first_error = None;
        for system in systems {
            match Self::with_system(config, &spec, entry, system) {
                Ok(plan) => {
                    let merit = plan.merit();
                    if best.as_ref().is_none_or(|(most, _)| merit > *most) {
                        best = Some((merit, plan));
                    }
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match (best, first_error) {
            (Some((_, plan)), _) => Ok(plan),
            (None, Some(error)) => Err(error),
            (None, None) => unreachable!("there is a batch size"),
        }
    }

    fn with_system(
        config: &ServiceConfig,
        spec: &ModelSpec,
        entry: &Entry,
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
            config: config.clone(),
            spec: spec.clone(),
            modes: entry.modes(),
            typical: Span::from_nanos(entry.batches[system.workers[0].batch - 1].p50_ns),
            system,
            admission,
            rate,
        })
    }

    /// The workers: a service has one kind.
    pub(crate) fn workers(&self) -> &Workers {
        &self.system.workers[0]
    }

    /// Requests a second in full batches.
    pub(crate) fn capacity(&self) -> f64 {
        self.workers().round() as f64 / self.workers().batch_time().as_secs_f64()
    }

    /// One more stream of the service's own constraints at the promised rate, and a name for it that is free.
    pub(crate) fn promised_stream(&self) -> Option<(String, StreamSpec)> {
        let (period, _) = self.rate.as_ref()?.spare?;
        self.config.stream_every(period)
    }

    /// How good this batch size is for what the service wants of it; the larger the better.
    fn merit(&self) -> f64 {
        let promised = self.promised_stream();
        let rate =
            promised.as_ref().and_then(|(_, spec)| spec.arrivals()).map_or(0.0, ArrivalCurve::rate_per_s);
        match self.config.optimise {
            Optimise::Rate if self.rate.is_some() => rate,
            Optimise::Rate => self.spare_capacity(),
            Optimise::Burst => self.largest_burst() as f64,
            Optimise::Headroom => self.headroom().as_secs_f64(),
        }
    }

    /// The share of the workers that the reserved streams leave.
    fn spare_capacity(&self) -> f64 {
        let demand = |s: &ReservedStream| s.spec.demand().map_or(0.0, |(d, a)| d.as_f64() * a.rate_per_s());
        1.0 - self.config.reserved.iter().map(demand).sum::<f64>() / self.capacity()
    }

    /// The most requests at once that are promised beside the reserved streams, to one that must not miss and
    /// then is silent for a second.
    fn largest_burst(&self) -> u64 {
        let admits = |count: u64| {
            let window = ArrivalBound::window(count, Span::from_millis(1_000)).ok()?;
            let strict = ConstraintSet::new(&[Constraint::any_miss(0, 1).ok()?]).ok()?;
            let one = StreamSpec::promised(strict, ArrivalCurve::new(&[window]).ok()?);
            let all = self.config.reserved.iter().map(|s| &s.spec).chain([&one]);
            self.system.admit(all).ok().filter(|a| a.waiting <= self.config.queue as u64)
        };
        let (mut yes, mut no) = (0, self.config.queue as u64 + 1);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            if admits(middle).is_some() { yes = middle } else { no = middle }
        }
        yes
    }

    /// The longest batch that the shield allows while nothing waits: the time that a slower, more accurate model
    /// may take in a lull.
    pub(crate) fn headroom(&self) -> Span {
        let load = self.config.reserved.iter().filter_map(|s| s.spec.demand());
        let shield = Shield::new(self.workers(), self.system.latency, load);
        let idle = vec![Span::ZERO; self.workers().count - 1];
        shield.map_or(Span::ZERO, |s| s.longest(Instant::ZERO, &idle, std::iter::empty::<Instant>()))
    }

    /// Whether this is no real engine.
    pub(crate) fn is_simulated(&self) -> bool {
        self.config.engine == EngineKind::Simulated
    }
}

/// The workers of a service, for each batch size that it may choose.
///
/// # Errors
/// If the profile does not go as far as the batch size that is configured.
pub(crate) fn workers_of(config: &ServiceConfig, entry: &Entry) -> Result<Vec<Workers>, PlanError> {
    let whole = |bound| Span::from_nanos(bound) + config.handover;
    let mut times: Vec<Span> = entry.bounds().into_iter().map(whole).collect();
    times.truncate(config.max_batch);
    let profiled = times.len();
    let wanted = config.batch.unwrap_or(1);
    let profile = match LatencyProfile::new(&times) {
        Ok(profile) if wanted <= profiled => profile,
        _ => return Err(PlanError::Batch { service: config.name.clone(), batch: wanted, profiled }),
    };
    let sizes = match config.batch {
        Some(batch) => batch..=batch,
        None => 1..=profiled,
    };
    Ok(sizes.map(|batch| Workers { count: config.workers, batch, profile: profile.clone() }).collect())
}

impl RatePlan {
    fn compute(config: &ServiceConfig, system: &System, list: &[Constraint]) -> Result<Self, PlanError> {
        let workers = &system.workers[0];
        let set = ConstraintSet::new(list).unwrap_or_default();
        let (binding, density) = (densest(&set), set.density());
        let never = || PlanError::Never {
            service: config.name.clone(),
            constraint: binding,
            twice: workers.batch_time() + workers.batch_time(),
            latency: system.latency,
        };
        let upper = largest_count(workers.count, workers.batch, density).ok_or_else(never)?;
        let admits = |reserved: &[ReservedStream], bound: Result<ArrivalBound, _>| {
            let curve = ArrivalCurve::new(&[bound.ok()?]).ok()?;
            let one = StreamSpec::promised(set.clone(), curve);
            let admitted = system.admit(reserved.iter().map(|s| &s.spec).chain([&one])).ok()?;
            (admitted.waiting <= config.queue as u64).then_some(admitted)
        };
        let window = |n: u64| admits(&[], ArrivalBound::window(n, workers.batch_time()));
        // Admission is monotone in N: bisect between 0, which is always fine, and the upper bound.
        let (mut count, mut above) = (0, upper + 1);
        while above - count > 1 {
            let middle = count + (above - count) / 2;
            if window(middle).is_some() { count = middle } else { above = middle }
        }
        if count == 0 {
            return Err(never());
        }
        let spare = shortest_period(workers, density, config.jitter, |t| {
            admits(&config.reserved, ArrivalBound::periodic(t, config.jitter))
        });
        if spare.is_none() && config.reserved.is_empty() {
            return Err(never());
        }
        let seed = match binding.misses() + 1 == binding.window() {
            true => seed_theorem_1(workers.batch, binding.misses()),
            false => seed_theorem_2(workers.batch, binding.misses(), binding.window()),
        };
        Ok(Self { binding, density, count, upper, seed, spare })
    }

    /// Requests a second of that stream: the rate that the plan promises.
    pub(crate) fn per_second(&self) -> Option<f64> {
        self.spare.map(|(period, _)| 1.0 / period.as_secs_f64())
    }
}

/// The shortest period that is admitted, to within a thousandth: from the period at which the workers are
/// just busy, the excess is doubled until it is admitted, then bisected.
fn shortest_period(
    workers: &Workers,
    density: Density,
    jitter: Span,
    admits: impl Fn(Span) -> Option<Admission>,
) -> Option<(Span, Admission)> {
    let round = u128::from(workers.round()) * u128::from(density.denominator());
    let busy = u128::from(workers.batch_time().as_nanos()) * u128::from(density.numerator());
    let least = u64::try_from(busy.div_ceil(round)).ok()?.max(1);
    let step = (least / 1024).max(1);
    let longest = least.max(jitter.as_nanos()).saturating_mul(1 << 20);
    let (mut refused, mut excess) = (0, step);
    let mut found = loop {
        let period = Span::from_nanos(least.saturating_add(excess));
        match admits(period) {
            Some(admission) => break (period, admission),
            None if period.as_nanos() > longest => return None,
            None => (refused, excess) = (excess, excess.saturating_mul(2)),
        }
    };
    while excess - refused > step {
        let middle = refused + (excess - refused) / 2;
        let period = Span::from_nanos(least + middle);
        match admits(period) {
            Some(admission) => (excess, found) = (middle, (period, admission)),
            None => refused = middle,
        }
    }
    Some(found)
}

/// The constraint that demands the largest share.
pub(crate) fn densest(set: &ConstraintSet) -> Constraint {
    let most = set.as_slice().iter().copied().max_by_key(|c| c.density());
    most.unwrap_or_else(|| unreachable!("asked only of streams with constraints"))
}
