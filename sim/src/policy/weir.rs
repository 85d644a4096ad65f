//! The daemon's own scheduler as a policy: mandatory requests first.

use planner::Problem;
use rt_core::{
    Action, ConfigError, Event, Instant, Ran, Resolution, SafeModeConfig, Scheduler, SchedulerConfig,
    SelectError, Selector, Shield, ShieldError, Span, StreamError, StreamId, StreamSpec, WorkerId,
};

use super::{End, Policy, Step};

/// The scheduler of a problem. Safe mode is left after a second without a breach.
#[derive(Debug)]
pub struct Weir {
    scheduler: Scheduler,
    streams: Vec<StreamId>,
    workers: usize,
}

/// Why there is no scheduler for a problem.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WeirError {
    /// It cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A stream cannot be served: one of no promise, where the problem has no background.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// There is no shield that would let batches run with slower variants.
    #[error("no variants: {0}")]
    Shield(#[from] ShieldError),
    /// The variants cannot be selected so.
    #[error(transparent)]
    Select(#[from] SelectError),
}

impl Weir {
    /// The scheduler of `problem`, with place for `queue` waiting requests. Of `streams` streams those beyond the
    /// problem's are promised nothing.
    ///
    /// # Errors
    /// [`WeirError`]: more than 4096 streams, or a deadline that no batch can meet.
    pub fn new(problem: &Problem, queue: usize, streams: usize) -> Result<Self, WeirError> {
        let streams = streams.max(problem.streams.len());
        let second = Span::from_millis(1_000);
        let config = SchedulerConfig {
            deadline: problem.deadline,
            guard: problem.guard,
            workers: problem.workers.clone(),
            dispatch: problem.dispatch,
            // A stream that declares nothing is background, as admission sees it.
            background: problem.background || problem.specs().any(|spec| spec.arrivals().is_none()),
            queue,
            streams: streams.max(1),
            safe_mode: SafeModeConfig { hold: second, clean: second, latch: false },
        };
        let workers = config.worker_count();
        let mut scheduler = Scheduler::new(config)?;
        let mut add = |index: usize| {
            let declared = problem.streams.get(index).map(|(_, spec)| spec.clone());
            scheduler.add_stream(declared.unwrap_or_else(StreamSpec::best_effort))
        };
        let streams = (0..streams).map(&mut add).collect::<Result<_, _>>()?;
        let mut weir = Self { scheduler, streams, workers };
        // Batches larger than the promised one need a shield; where it refuses, they stay within that.
        if let [kind] = &problem.workers[..]
            && kind.profile.max_batch() > kind.batch
        {
            let _ = weir.shield(problem);
        }
        Ok(weir)
    }

    /// Sets a shield for the promised streams of `problem`.
    fn shield(&mut self, problem: &Problem) -> Result<(), ShieldError> {
        let [workers] = &problem.workers[..] else { return Err(ShieldError::Foreign) };
        let load: Vec<_> = problem.specs().filter_map(StreamSpec::demand).collect();
        let shield = Shield::new(workers, problem.deadline.saturating_sub(problem.guard), load)?;
        self.scheduler.set_shield(Some(shield))
    }

    /// Has `selector` choose the variant of each batch, behind a shield for the promised streams of `problem`.
    ///
    /// # Errors
    /// [`WeirError`]: workers of several kinds or without the base variant, a load that has no shield, or a queue
    /// that is too short for what can wait behind long batches.
    pub fn selecting(mut self, problem: &Problem, selector: Selector) -> Result<Self, WeirError> {
        self.shield(problem)?;
        self.scheduler.set_selector(Some(selector))?;
        Ok(self)
    }
}

impl Policy for Weir {
    fn workers(&self) -> usize {
        self.workers
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        self.scheduler.handle_arrival(now, self.streams[stream], token).map(end)
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.scheduler.handle_completion(now, worker, Ran::Done(time));
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            return match self.scheduler.poll(now) {
                Action::Start { worker } => Step::Start { worker },
                Action::Resolve(resolution) => Step::End(end(resolution)),
                Action::Event(Event::SafeMode(transition)) => Step::SafeMode(transition),
                Action::Event(Event::Suspension(_) | Event::MissesLeft { .. }) => continue,
                Action::WakeAt(until) => Step::Wait { until },
            };
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.scheduler.batch(worker).iter().map(|request| request.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let (variant, size) = (self.variant(worker), self.scheduler.batch(worker).len());
        let selected = self.scheduler.selector().and_then(|selector| selector.time(variant, size));
        let base = || self.scheduler.config().worker(worker).map(|kind| kind.profile.bound(size));
        selected.or_else(base).unwrap_or(Span::ZERO)
    }

    fn variant(&self, worker: WorkerId) -> usize {
        self.scheduler.variant(worker)
    }
}

fn end(Resolution { request, outcome, .. }: Resolution) -> End {
    End { token: request.token, mandatory: request.mandatory, outcome }
}
