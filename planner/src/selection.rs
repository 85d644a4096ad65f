//! Tables that select among variants of one model, worked out ahead for given loads, and what to expect of them.
//!
//! The decision problem is that of [`crate::ramsis`] with accuracy per request: the scheduler decides on the batch, at
//! most so many of those that wait longest, and the table on the variant. What a shield forbids is not in it.

mod error;
mod missing;
mod rows;
mod shared;

use std::panic::resume_unwind;

use rt_core::{SelectError, SelectTable, Span, Variant};

use crate::ramsis::{
    Batching, Evaluation, Flavour, MAX_QUEUE, Model, Policy, Problem, RoundRobin, Slack, Spec,
};
use error::within;
use shared::Trial;

pub use error::SelectionError;
pub use missing::{APART, MAX_PLANNED};

/// The most loads at once.
pub const MAX_LOADS: usize = rt_core::MAX_TABLES;
/// The share of requests that may miss their deadlines unless said otherwise.
pub const DEFAULT_MAX_MISS: f64 = 1e-3;
/// The largest batch.
pub const MAX_BATCH: usize = MAX_QUEUE / 2;
/// The part of the misses allowed from which on the base answers all: nearer to the limit the search takes long and
/// gains next to nothing.
const NOTHING_LEFT: f64 = 0.05;
/// Intervals of slack.
const BINS: usize = 25;

/// What is served, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// The variants by rising accuracy, the first of them the base; bounds on their batch times with the handover.
    pub variants: Vec<Variant>,
    /// From a request's arrival to its answer, less the guard.
    pub latency: Span,
    /// How many workers share the queue.
    pub workers: usize,
    /// The most requests that the scheduler puts in a batch, at most [`MAX_BATCH`].
    pub batch: usize,
    /// The share of requests that may miss their deadlines, 0 to 1.
    pub max_miss: f64,
}

/// A table for one load, and what to expect there.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The load, in requests a second.
    pub rate_per_s: f64,
    /// How long each interval of slack is.
    pub bin: Span,
    /// `wishes[n - 1][j]`: the variant for `n` requests in the batch and waiting, and a slack from `j` bins on; the
    /// last of either also for more.
    pub wishes: Vec<Vec<u8>>,
    /// Of the table.
    pub expected: Expected,
    /// Of each variant, were it the only one; none if it cannot carry the load, or takes too long for one request.
    pub alone: Vec<Option<Expected>>,
}

/// What to expect in the long run: of one worker accuracy from below and misses from above, of several what became of
/// 100,000 requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The share of right answers among the requests that are answered in time; 0 if there are none.
    pub accuracy: f64,
    /// The share of requests that miss their deadlines.
    pub missed: f64,
}

/// The best tables for `loads`, in requests a second and rising, each below what the base can carry.
///
/// Requests come at random (Poisson) and are dealt to the workers in turn; the policy is that with the most right
/// answers of those that were found with at most `max_miss` missed. Where the base alone misses a twentieth of that or more,
/// there is little to choose, and it answers all.
/// That is exact for one worker. Several share a queue, of which the policy takes a worker to have its batch and its
/// even part of what waits behind. So its table is one of several: others wish for what is worth most at a price of
/// worker time, which rises with what waits. All are tried on the same requests at a shared queue, and the best is
/// taken, with what became of it there. At most [`MAX_QUEUE`] requests of one worker are told apart in the policy, so
/// no batch is wished for during which about that many would come, and what waits beyond counts as missed.
///
/// # Errors
/// [`SelectionError`] for the first value that is outside its range.
pub fn plan(inputs: &Inputs, loads: &[f64]) -> Result<Vec<Planned>, SelectionError> {
    inputs.check()?;
    within("number of loads", loads.len() as f64, 0.0, MAX_LOADS as f64)?;
    for (i, pair) in loads.windows(2).enumerate() {
        if pair[1] <= pair[0] {
            let limit = format!("must be above {}, the one before", pair[0]);
            return Err(SelectionError::value(format!("loads[{}]", i + 1), pair[1], limit));
        }
    }
    let most = inputs.capacity_per_s(0);
    if let Some((i, load)) = loads.iter().enumerate().find(|(_, load)| **load >= most) {
        let limit = format!("must be below {most}, what the base can carry");
        return Err(SelectionError::value(format!("loads[{i}]"), load, limit));
    }
    // High loads take longest: each processor gets some of them.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(loads.len());
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let some = |first| {
            move || (first..loads.len()).step_by(threads).map(|i| (i, inputs.plan(loads[i]))).collect()
        };
        let started: Vec<_> = (0..threads).map(|first| scope.spawn::<_, Vec<_>>(some(first))).collect();
        started.into_iter().flat_map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    all.sort_by_key(|&(i, _)| i);
    all.into_iter().map(|(_, planned)| planned).collect()
}

impl Planned {
    /// The table as the scheduler reads it.
    ///
    /// # Errors
    /// If there are more wishes than a table may have.
    pub fn table(&self) -> Result<SelectTable, SelectError> {
        let bins = self.wishes.first().map_or(0, Vec::len);
        SelectTable::new(self.rate_per_s, self.bin, bins, self.wishes.concat())
    }

    /// The variant that is best alone, if at most `max_miss` may miss, and what to expect of it.
    #[must_use]
    pub fn best_alone(&self, max_miss: f64) -> Option<(usize, Expected)> {
        let all = self.alone.iter().enumerate().filter_map(|(i, one)| one.map(|one| (i, one)));
        all.reduce(|best, other| if other.1.betters(best.1, max_miss) { other } else { best })
    }
}

impl Expected {
    /// The share of requests that are answered in time and right.
    #[must_use]
    pub fn right(&self) -> f64 {
        self.accuracy * (1.0 - self.missed)
    }

    /// Whether this is better than `other`: few enough misses first, then more right answers, or fewer misses.
    #[must_use]
    pub fn betters(&self, other: Self, max_miss: f64) -> bool {
        match (self.missed <= max_miss, other.missed <= max_miss) {
            (true, true) => self.right() > other.right(),
            (false, false) => self.missed < other.missed,
            (mine, _) => mine,
        }
    }
}

impl From<Evaluation> for Expected {
    fn from(found: Evaluation) -> Self {
        Self { accuracy: found.accuracy, missed: found.missed }
    }
}

impl Inputs {
    /// What the workers can carry of a variant in its full batches, in requests a second.
    ///
    /// # Panics
    /// If there is no such variant.
    #[must_use]
    pub fn capacity_per_s(&self, variant: usize) -> f64 {
        let profile = &self.variants[variant].profile;
        let batch = self.batch.min(profile.max_batch());
        (self.workers * batch) as f64 / profile.bound(batch).as_secs_f64()
    }

    /// Whether tables can be planned at all.
    ///
    /// # Errors
    /// [`SelectionError`] for the first value that is outside its range.
    pub fn check(&self) -> Result<(), SelectionError> {
        within("number of variants", self.variants.len() as f64, 1.0, rt_core::MAX_VARIANTS as f64)?;
        within("workers", self.workers as f64, 1.0, rt_core::MAX_WORKERS as f64)?;
        within("batch", self.batch as f64, 1.0, MAX_BATCH as f64)?;
        within(
            "batches of variants[0]",
            self.variants[0].profile.max_batch() as f64,
            self.batch as f64,
            f64::MAX,
        )?;
        let mut least = 0.0;
        for (i, variant) in self.variants.iter().enumerate() {
            least = within(format!("variants[{i}].accuracy"), variant.accuracy, least, 1.0)?;
        }
        // All else is checked where it is used.
        within("max_miss", self.max_miss, 0.0, 1.0)
            .and_then(|_| {
                within("latency in nanoseconds", self.latency.as_nanos() as f64, BINS as f64, f64::MAX)
            })
            .map(drop)
    }

    fn plan(&self, load: f64) -> Result<Planned, SelectionError> {
        if self.workers > 1 {
            return self.plan_shared(load);
        }
        let arrivals = RoundRobin::poisson(load, self.workers)?;
        let alone: Vec<_> = (0..self.variants.len())
            .map(|variant| self.alone(variant, load, &arrivals))
            .collect::<Result<_, _>>()?;
        let (policy, expected) = self.policy(load, &arrivals, &alone)?;
        let bin = self.bin();
        let wishes = rows::wishes(&policy, bin, self.batch, self.workers);
        Ok(Planned { rate_per_s: load, bin, wishes, expected, alone })
    }

    /// For workers that share a queue.
    fn plan_shared(&self, load: f64) -> Result<Planned, SelectionError> {
        let arrivals = RoundRobin::poisson(load, self.workers)?;
        let trial = Trial::new(self, load);
        let alone = |variant| (!self.is_hopeless(variant, load)).then(|| trial.alone(variant)).transpose();
        let alone = (0..self.variants.len()).map(alone).collect::<Result<Vec<_>, _>>()?;
        let (policy, _) = self.policy(load, &arrivals, &alone)?;
        let bin = self.bin();
        let dealt = rows::wishes(&policy, bin, self.batch, self.workers);
        let able = (1..self.variants.len()).filter(|&variant| alone[variant].is_some());
        let constant = able.map(|variant| vec![vec![variant as u8; BINS]]);
        let (wishes, expected) = trial.best(constant.chain([dealt]))?;
        Ok(Planned { rate_per_s: load, bin, wishes, expected, alone })
    }

    /// The best policy of one worker to which requests are dealt in turn.
    fn policy(
        &self,
        load: f64,
        arrivals: &RoundRobin,
        alone: &[Option<Expected>],
    ) -> Result<(Policy, Expected), SelectionError> {
        let problem = Problem::new(&self.spec(load, 0..self.variants.len(), self.batch), arrivals)?;
        let mut policy = Policy::constant(&problem, 0);
        let mut expected = Expected::from(problem.evaluate(&policy)?);
        let mut tried = Vec::new();
        if expected.missed <= NOTHING_LEFT * self.max_miss {
            tried.push(problem.solve().policy);
            // Prices of misses lead past policies between two of the best: the plainest of them are tried too.
            let able = (1..self.variants.len()).filter(|&variant| alone[variant].is_some());
            tried.extend(able.map(|variant| Policy::constant(&problem, variant)));
        }
        for other in tried {
            let found = Expected::from(problem.evaluate(&other)?);
            if found.betters(expected, self.max_miss) {
                (policy, expected) = (other, found);
            }
        }
        Ok((policy, expected))
    }

    /// Whether a variant cannot carry the load, or takes too long for one request; the base is never given up.
    fn is_hopeless(&self, variant: usize, load: f64) -> bool {
        let time = self.variants[variant].profile.bound(1);
        variant > 0 && (load >= self.capacity_per_s(variant) || time > self.latency)
    }

    fn alone(
        &self,
        variant: usize,
        load: f64,
        arrivals: &RoundRobin,
    ) -> Result<Option<Expected>, SelectionError> {
        if self.is_hopeless(variant, load) {
            return Ok(None);
        }
        let profile = &self.variants[variant].profile;
        let spec = self.spec(load, variant..variant + 1, self.batch.min(profile.max_batch()));
        let problem = Problem::new(&spec, arrivals)?;
        Ok(Some(problem.evaluate(&Policy::constant(&problem, 0))?.into()))
    }

    /// The problem of one worker that has only `variants`.
    fn spec(&self, load: f64, variants: std::ops::Range<usize>, batch: usize) -> Spec {
        let base = variants.start;
        // All that can come to a worker before the oldest is late, and two batches.
        let rate = load / self.workers as f64;
        let coming = |time: Span| rate * time.as_secs_f64() + 4.0 * (rate * time.as_secs_f64()).sqrt();
        let room = MAX_QUEUE - 2 * batch;
        let queue = room.min(coming(self.latency) as usize) + 2 * batch;
        let model = |i: usize| {
            let Variant { profile, accuracy } = &self.variants[i];
            // Batches are not run either that were not measured, or during which more come than are told apart.
            let most = self.longest();
            let fits = |time: Span| time <= most && coming(time) <= room.max(batch) as f64;
            let fits = |b| i == base || b <= profile.max_batch() && fits(profile.bound(b));
            let time = |b| if fits(b) { profile.bound(b) } else { rt_core::MAX_SPAN };
            let latencies = (1..=batch).map(|b| time(b).as_nanos() as f64).collect();
            Model { name: i.to_string(), accuracy: *accuracy, latencies }
        };
        Spec {
            models: variants.map(model).collect(),
            slo_ns: self.latency.as_nanos(),
            queue,
            slack: Slack::Fixed(BINS),
            batching: Batching::Limited(batch),
            flavour: Flavour::Requests { max_miss: self.max_miss },
        }
    }

    /// A request that has just come is, when it is looked at, no longer in the last interval of slack, which is that of
    /// the whole latency: no variant is chosen that takes so long.
    fn longest(&self) -> Span {
        self.latency.saturating_sub(self.bin())
    }

    fn bin(&self) -> Span {
        Span::from_nanos(self.latency.as_nanos().div_ceil(BINS as u64))
    }
}

#[cfg(test)]
mod tests;
