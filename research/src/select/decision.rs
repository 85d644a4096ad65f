//! What is to be served, what a policy is asked and what it answers.

use rt_core::{Instant, Span};

use super::profile::Profile;

/// The most workers that share a queue.
pub const MAX_SELECT_WORKERS: usize = 4096;
/// The largest load, in requests per second.
pub const MAX_LOAD: f64 = 1e6;

/// What is to be served, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Poisson arrivals, per second: above 0 and at most [`MAX_LOAD`].
    pub load: f64,
    /// How many workers there are: 1 to [`MAX_SELECT_WORKERS`].
    pub workers: usize,
    /// Which requests a batch may take.
    pub order: Order,
}

/// Why something is no demand, or no numbers for a policy.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DemandError {
    /// Not above 0, or too large.
    #[error("load = {0}: must be above 0 and at most {MAX_LOAD} per second")]
    Load(f64),
    /// None, or too many.
    #[error("workers = {0}: must be 1 to {MAX_SELECT_WORKERS}")]
    Workers(usize),
    /// A number of [`Tuning`] outside its range.
    #[error("{field} = {value}: must be {reason}")]
    Tuning {
        /// Which one.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        reason: &'static str,
    },
    /// No policy is to be tried.
    #[error("tries = 0: must be at least 1")]
    Tries,
    /// No requests are to be tried on.
    #[error("requests = 0: must be at least 1")]
    Requests,
}

/// Which waiting requests a batch may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest ones only.
    #[default]
    Fifo,
    /// The newest ones too, where they alone can use a long batch; the older ones wait on.
    NewestToo,
}

/// Which waiting requests a batch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The oldest.
    Oldest,
    /// The newest; only under [`Order::NewestToo`].
    Newest,
}

/// What a free worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run this batch; every request in it is answered in time.
    Start {
        /// Which model, from 0.
        model: usize,
        /// How many requests, from 1.
        batch: usize,
        /// Which ones.
        take: Take,
    },
    /// Nothing now. Ask again at each arrival, each end of a batch, and at this instant if nothing happens before.
    Wait {
        /// The instant, after now; `None` if no worker is free, no request waits, or no batch may be as long as one is.
        until: Option<Instant>,
    },
    /// Give the oldest request up: it cannot be answered in time, or only so dearly that more would be late.
    Refuse,
}

/// What a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The present.
    pub now: Instant,
    /// When the waiting requests arrived, oldest first, in two parts as of `VecDeque::as_slices`; none after `now`.
    pub waiting: (&'a [Instant], &'a [Instant]),
    /// How many workers are free.
    pub free: usize,
    /// How many busy workers will be free within [`super::Policy::horizon`].
    pub soon: usize,
    /// No batch may take longer, whatever it is worth: what a guarantee allows, or the objective if there is none.
    pub longest: Span,
}

impl State<'_> {
    /// How many requests wait.
    pub(super) fn count(&self) -> usize {
        self.waiting.0.len() + self.waiting.1.len()
    }

    /// When the oldest of them came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.0.first().or(self.waiting.1.first()).copied()
    }

    /// A free worker's share of them, if others are free too.
    pub(super) fn share(&self) -> usize {
        self.count().div_ceil(self.free.max(1))
    }
}

/// The numbers of a policy that the fluid bound does not give; [`super::plan()`] finds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// The part of the objective that is kept for waiting when worker time is priced, in 0..1.
    pub reserve: f64,
    /// The load for which worker time is priced, over the load to come: positive.
    pub pressure: f64,
    /// Twice the cost of a stock one request off its target, in accuracy times requests: at least 0.
    pub stiffness: f64,
    /// The stock aimed at, in requests.
    pub target: f64,
    /// How many of the requests that come during a batch, of all over the number of workers, count against it: at least 0.
    pub drift: f64,
    /// How many requests a worker free now or soon stands for: at least 0.
    pub share: f64,
    /// How far ahead "soon" is.
    pub horizon: Span,
    /// While the oldest request is no older than this, a free worker may wait, and newer requests be taken first.
    pub patience: Span,
    /// Requests that have waited for longer are given up if more wait than are about to be taken: a part, in 0..=1, of the
    /// longest after which one can be in time.
    pub lost: f64,
    /// When the oldest has waited for this part of that time, in 0..=1, what takes least for each request is taken.
    pub drain: f64,
    /// What a batch must be worth to be started, in accuracy times requests: on the last free worker, on others.
    pub hold: [f64; 2],
    /// What must be gained by keeping the last free worker for a batch that is still forming.
    pub anticipation: f64,
}

impl Demand {
    /// The worker time for each request, in seconds.
    #[must_use]
    pub fn per_request(&self) -> f64 {
        self.workers as f64 / self.load
    }

    pub(super) fn check(&self) -> Result<(), DemandError> {
        if !(self.load > 0.0 && self.load <= MAX_LOAD) {
            return Err(DemandError::Load(self.load));
        }
        if self.workers == 0 || self.workers > MAX_SELECT_WORKERS {
            return Err(DemandError::Workers(self.workers));
        }
        Ok(())
    }
}

impl Tuning {
    pub(super) fn check(&self, profile: &Profile) -> Result<(), DemandError> {
        let wrong = |field, value, reason| Err(DemandError::Tuning { field, value, reason });
        if !(0.0..1.0).contains(&self.reserve) {
            return wrong("reserve", self.reserve, "at least 0 and below 1");
        }
        if !(self.pressure > 0.0 && self.pressure.is_finite()) {
            return wrong("pressure", self.pressure, "above 0");
        }
        for (field, value) in [("stiffness", self.stiffness), ("drift", self.drift), ("share", self.share)] {
            if !(value >= 0.0 && value.is_finite()) {
                return wrong(field, value, "at least 0");
            }
        }
        for (field, value) in [("lost", self.lost), ("drain", self.drain)] {
            if !(0.0..=1.0).contains(&value) {
                return wrong(field, value, "in 0..=1");
            }
        }
        let numbers = [("target", self.target), ("anticipation", self.anticipation)];
        for (field, value) in numbers.into_iter().chain(self.hold.map(|hold| ("hold", hold))) {
            if !value.is_finite() {
                return wrong(field, value, "finite");
            }
        }
        for (field, span) in [("horizon", self.horizon), ("patience", self.patience)] {
            if span > profile.slo() {
                return wrong(field, span.as_secs_f64(), "at most the objective");
            }
        }
        Ok(())
    }
}
