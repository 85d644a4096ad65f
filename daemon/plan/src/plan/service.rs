//! What the plan of a service says of its load, its workers and its rates.

use planner::certificate::Contingency;
use planner::certify::contingencies;
use rt_core::{ArrivalCurve, Fallbacks, LoadMonitor, Shield, ShieldError, Span, StreamSpec, Workers};
use weir_engine::EngineKind;

use super::{KindPlan, RatePlan, ServicePlan, StagePlan};
use crate::config::Tolerance;
use crate::models::Reply;
use crate::problem::{problem, reserved};

/// Who sends more than this part of the certified rate is warned.
const WARNING_SHARE: f64 = 0.9;
/// The rate is measured over at least so many requests of it.
const RATE_COUNT: f64 = 40.0;

impl ServicePlan {
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
    pub(super) fn shield_alone<'a>(
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

    /// How much of a shared worker's time a request takes on average, in seconds: in those of the batches that are started in time which
    /// take least of it.
    pub(crate) fn least_load(&self) -> f64 {
        let (times, batch) = (&self.workers().profile, self.workers().batch);
        let most = self.config.deadline.saturating_sub(self.config.guard);
        let most = times.largest_within(most, self.largest_batch()).max(batch);
        let time =
            |size: usize| self.fused.as_ref().map_or(times.bound(size), |fused| fused.usual_bound(size));
        let each = (batch..=most).map(|size| time(size).as_secs_f64() / size as f64);
        each.fold(f64::INFINITY, f64::min)
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
