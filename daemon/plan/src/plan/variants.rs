//! The variants of a service: what each takes and is worth, and what may choose among them.

use std::iter::empty;

use planner::selection::{Class, DEFAULT_MAX_MISS, Inputs};
use rt_core::{
    BatchTime, ClassWorth, Instant, LatencyProfile, LoadMonitor, Net, Selector, Shield, ShieldError, Span,
    StreamSpec, Variant,
};

use super::{PlanError, ServicePlan, select, weights};
use crate::config::{RequestClass, Select, ServiceConfig};
use crate::profile::Entry;
use weir_engine::{Equipment, ModelSpec, RunMode};

/// One variant, measured.
#[derive(Clone, Debug)]
pub struct VariantPlan {
    pub spec: ModelSpec,
    /// How each batch size was run when it was measured.
    pub modes: Vec<RunMode>,
    /// What its batches take, up to the largest that is served, with the handover.
    pub times: LatencyProfile,
    /// The median time of the largest batch that is served.
    pub typical: Span,
    /// The SHA-256 of the profile's entry, in hexadecimal.
    pub profile_sha256: String,
    /// What the engine was when it was measured.
    pub equipment: Equipment,
    /// What it was when this was planned.
    pub here: Equipment,
}

/// What is planned while a service runs.
#[derive(Debug)]
pub struct Meanwhile {
    pub inputs: Inputs,
    /// Who selects at which rate, with the network that may, if it is not tables for the load that comes.
    pub auto: Option<Option<Net>>,
}

impl VariantPlan {
    fn new(
        config: &ServiceConfig,
        spec: ModelSpec,
        entry: &Entry,
        here: Equipment,
    ) -> Result<Self, PlanError> {
        let times = times_of(config, entry)?;
        let typical = Span::from_nanos(entry.batches[times.max_batch() - 1].p50_ns);
        let (modes, equipment, profile_sha256) = (entry.modes(), entry.equipment.clone(), entry.digest());
        Ok(Self { spec, modes, times, typical, profile_sha256, equipment, here })
    }
}

/// What batches of 1, 2, … take, up to the largest that is served, with the handover.
///
/// # Errors
/// If a time is outside what a plan can count with.
pub(crate) fn times_of(config: &ServiceConfig, entry: &Entry) -> Result<LatencyProfile, PlanError> {
    // Where nothing is promised no bound is needed beyond the end of the deadline: what takes longer is too late anyway, and
    // sizes that usually do are not served.
    let room = config.deadline.saturating_sub(config.guard);
    // What would leave nothing of the deadline is not kept back of it.
    let reserve = config.stalls.map(|stalls| stalls.reserve()).filter(|&reserve| reserve < room);
    let left = room.saturating_sub(reserve.unwrap_or(Span::ZERO)).max(Span::from_nanos(1));
    let most = if config.is_best_effort() { left } else { Span::from_nanos(u64::MAX) };
    let fewest = config.batch.unwrap_or(1);
    let whole = |time: BatchTime| {
        let [bound, likely, mean] =
            [time.bound, time.likely, time.mean].map(|time| (time + config.handover).min(most));
        BatchTime { bound, likely, mean }
    };
    let served = |&(size, time): &(usize, BatchTime)| size <= fewest || time.likely + config.handover <= most;
    let times: Vec<_> = (1..=config.max_batch)
        .zip(entry.times(config.probability, config.stalls))
        .take_while(served)
        .map(|(_, time)| whole(time))
        .collect();
    LatencyProfile::expected(&times).map_err(|source| {
        let (service, model) = (config.name.clone(), entry.model.clone());
        PlanError::Times { service, model, source }
    })
}

impl ServicePlan {
    /// Adds the variants and who selects among them.
    ///
    /// # Errors
    /// If one is not profiled, is faster than the one before at every batch size, or the file of tables or weights is wrong.
    pub(super) fn with_variants(mut self, specs: Vec<(ModelSpec, &Entry)>) -> Result<Self, PlanError> {
        for (spec, entry) in specs {
            let mut here = Equipment::current(self.config.backend(0)).as_measured(&entry.equipment);
            if self.config.is_on_some_servers() {
                here = here.among(&entry.equipment);
            }
            self.mismatches.extend(entry.differences(&here));
            self.variants.push(VariantPlan::new(&self.config, spec, entry, here)?);
        }
        self.check_timeout()?;
        for (i, pair) in self.variants.windows(2).enumerate() {
            let (before, variant) = (&pair[0], &pair[1]);
            let sizes = 1..=variant.times.max_batch().min(before.times.max_batch());
            let last = *sizes.end();
            let sooner = sizes.into_iter().all(|b| variant.times.bound(b) < before.times.bound(b));
            // What is better for one class may be less accurate on the whole.
            let better = |class: &RequestClass| class.worth(&before.spec) > class.worth(&variant.spec);
            if sooner && !self.config.classes.iter().any(better) {
                let time = variant.times.bound(last);
                return Err(PlanError::Variant {
                    field: format!("service {}: variants[{i}]", self.config.name),
                    value: format!("{} with P({last}) = {time}", variant.spec.name),
                    reason: format!(
                        "must not be faster than {} before it, which is less accurate and takes {}: leave that out",
                        before.spec.name,
                        before.times.bound(last)
                    ),
                });
            }
        }
        self.selecting()
    }

    /// Whether a server is waited for as long as it may take for a call, be that a batch or a request of one.
    fn check_timeout(&self) -> Result<(), PlanError> {
        let remote = self.config.backend(0).remote.as_ref().filter(|_| !self.config.is_best_effort());
        let Some(timeout) = remote.map(|remote| Span::from_nanos(remote.timeout.as_nanos() as u64)) else {
            return Ok(());
        };
        for VariantPlan { modes, times, .. } in &self.variants {
            let called = |&batch: &usize| modes.get(batch - 1) == Some(&RunMode::Batched);
            let batch = (1..=times.max_batch()).rev().find(called).unwrap_or(1);
            let bound = times.bound(batch);
            if bound > timeout {
                return Err(PlanError::Timeout { field: self.config.at.clone(), timeout, batch, bound });
            }
        }
        Ok(())
    }

    /// The plan as if each batch took its bound: that of an abstract problem, which says nothing else of times.
    ///
    /// # Errors
    /// If the file of tables or weights is wrong.
    pub fn by_bounds(mut self) -> Result<Self, PlanError> {
        let workers = self.system.workers.iter_mut().map(|workers| &mut workers.profile);
        for times in workers.chain(self.variants.iter_mut().map(|variant| &mut variant.times)) {
            let bounds: Vec<Span> = times.bounds().collect();
            // Bounds of a profile are a profile.
            *times = LatencyProfile::new(&bounds).unwrap_or_else(|_| times.clone());
        }
        self.selecting()
    }

    /// Who selects among the variants that are there.
    fn selecting(mut self) -> Result<Self, PlanError> {
        let name = self.config.name.clone();
        let failed = |source| PlanError::Select { service: name.clone(), source };
        self.selector = match &self.config.select {
            _ if self.variants.len() == 1 => None,
            Select::Base => None,
            Select::Accurate => {
                let greedy = Selector::greedy(self.core_variants()).map_err(failed)?;
                Some(greedy.sparing(self.capacity()))
            }
            Select::Planned => {
                let checked = self.selection_inputs(DEFAULT_MAX_MISS).check();
                checked.map_err(|source| PlanError::Planned { service: name.clone(), source })?;
                let none = Selector::new(self.core_variants(), [], LoadMonitor::default());
                Some(none.map_err(failed)?)
            }
            Select::Table(path) => Some(select::load(path, &self)?),
            Select::Learned(path) => {
                let net = weights::network(path, &self)?;
                Some(self.selection_inputs(DEFAULT_MAX_MISS).learned(net).map_err(failed)?)
            }
            Select::Auto(path) => {
                let net = path.as_ref().map(|path| weights::network(path, &self)).transpose()?;
                let inputs = self.selection_inputs(DEFAULT_MAX_MISS);
                let checked = inputs.check();
                checked.map_err(|source| PlanError::Planned { service: name.clone(), source })?;
                let selector = inputs.auto(&[], net.as_ref()).map_err(failed)?;
                self.network = net;
                Some(selector)
            }
        };
        if !self.config.classes.is_empty() {
            let classes = self.class_worths();
            let classed = self.selector.take().map(|selector| selector.for_classes(classes));
            self.selector = classed.transpose().map_err(failed)?;
        }
        Ok(self)
    }

    /// The variants as the scheduler sees them.
    pub(super) fn core_variants(&self) -> Vec<Variant> {
        let variant = |v: &VariantPlan| Variant { profile: v.times.clone(), accuracy: v.spec.accuracy };
        self.variants.iter().map(variant).collect()
    }

    /// What answers of each variant are worth to the classes of requests; none where these are all alike.
    pub fn class_worths(&self) -> Vec<ClassWorth> {
        let worth = |class: &RequestClass| self.variants.iter().map(|v| class.worth(&v.spec)).collect();
        let class = |class: &RequestClass| ClassWorth {
            worth: worth(class),
            deadline: class.deadline,
            decay: class.decay.clone(),
        };
        self.config.classes.iter().map(class).collect()
    }

    /// What tables are planned for, if at most a share `max_miss` of the requests may be missed for them.
    pub fn selection_inputs(&self, max_miss: f64) -> Inputs {
        let (workers, latency) = (self.workers(), self.system.unstalled_latency());
        let (count, batch) = (workers.count, workers.batch);
        let shares = self.config.classes.iter().map(|class| class.share);
        let classes = shares.zip(self.class_worths()).map(|(share, worth)| Class { share, worth }).collect();
        Inputs { variants: self.core_variants(), latency, workers: count, batch, max_miss, classes }
    }

    /// What is planned while the service runs; none if nothing is.
    pub fn meanwhile(&self) -> Option<Meanwhile> {
        self.selector.as_ref()?;
        let inputs = || self.selection_inputs(DEFAULT_MAX_MISS);
        match &self.config.select {
            Select::Planned => Some(Meanwhile { inputs: inputs(), auto: None }),
            Select::Auto(_) => Some(Meanwhile { inputs: inputs(), auto: Some(self.network.clone()) }),
            _ => None,
        }
    }

    /// The variants that are ever run: the base alone if nobody selects.
    pub fn running_variants(&self) -> &[VariantPlan] {
        if self.selector.is_some() { &self.variants } else { &self.variants[..1] }
    }

    /// The shield for `load`, and beside it for one more stream at the promised rate, if there is room, none like it
    /// among `load` yet, and a shield for both: so that it can come at any time.
    ///
    /// # Errors
    /// If there is none for `load` alone; no batch may take longer then.
    pub fn shield(&self, load: &[&StreamSpec]) -> Result<Shield, ShieldError> {
        let both = self.anticipated(load).map(|promised| {
            let all: Vec<_> = load.iter().copied().chain([&promised]).collect();
            self.shield_for(&all)
        });
        match both {
            Some(Ok(shield)) => Ok(shield),
            _ => self.shield_for(load),
        }
    }

    /// The stream at the promised rate that may come beside `load`.
    fn anticipated(&self, load: &[&StreamSpec]) -> Option<StreamSpec> {
        let promised = self.promised_stream().map(|(_, spec)| spec);
        let missing = |spec: &StreamSpec| {
            let reserved = self.config.reserved.iter().filter(|s| s.spec == *spec).count();
            load.iter().filter(|s| **s == spec).count() <= reserved
        };
        // Who is there may be no less early for one that is not.
        let anyone = load.iter().any(|spec| spec.demand().is_some());
        let tolerance = if anyone { self.tolerance(load.iter().copied()) } else { Span::ZERO };
        promised.filter(missing).filter(|spec| {
            let all = || load.iter().copied().chain([spec]);
            self.system.admit(all()).is_ok_and(|a| a.waiting <= self.config.queue as u64)
                && self.tolerance(all()) >= tolerance
        })
    }

    fn shield_for(&self, load: &[&StreamSpec]) -> Result<Shield, ShieldError> {
        if self.is_absorbed() {
            return Err(ShieldError::Absorbed);
        }
        let shield = self.shield_alone(load.iter().copied())?;
        let waiting = shield.most_waiting(self.config.deadline);
        if waiting > self.config.queue as u64 {
            return Err(ShieldError::Queue { waiting, limit: self.config.queue });
        }
        Ok(shield)
    }

    /// The longest that a batch may take while nothing waits and nothing else runs, beside the reserved streams and,
    /// if there is room, one at the promised rate; on a device as long as any of its batches.
    ///
    /// # Errors
    /// If there is no shield for them.
    pub fn lull(&self) -> Result<Span, ShieldError> {
        if let Some(share) = &self.shared {
            return Ok(share.device.sharing.longest.min(self.system.latency));
        }
        let reserved = self.config.reserved.iter().map(|s| &s.spec);
        let all: Vec<_> = reserved.clone().collect();
        let promised = self.anticipated(&all);
        let all: Vec<_> = reserved.chain(&promised).collect();
        Ok(self.shield_for(&all)?.longest(Instant::ZERO, empty(), empty::<Instant>(), Span::ZERO))
    }
}
