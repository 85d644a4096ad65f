//! Tables that select among variants of one model, worked out ahead for given loads, and what to expect of them.
//!
//! The scheduler decides on the batch, and the table on the variant. Tables are tried on the scheduler itself, in virtual
//! time, and the best is taken. What a shield forbids is not in it.

mod auto;
mod error;
mod missing;
mod trial;

use std::panic::resume_unwind;

use rt_core::{
    ClassWorth, LearnedScale, LoadMonitor, Net, SelectError, SelectTable, Selector, Span, Variant,
};

use error::within;
use trial::{Effort, Trial};

pub use auto::{AUTO_PARTS, By, COMPARED_PARTS, Choice, Compared, auto_tables, choose_all};
pub use error::SelectionError;
pub use missing::{APART, MAX_PLANNED};

/// The most loads at once.
pub const MAX_LOADS: usize = rt_core::MAX_TABLES;
/// The share of requests that may miss their deadlines unless said otherwise.
pub const DEFAULT_MAX_MISS: f64 = 1e-3;
/// The largest batch.
pub const MAX_BATCH: usize = 32;
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
    /// The classes that requests are of; none if they are all alike.
    pub classes: Vec<Class>,
}

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// How many of all requests are of it, in parts of the sum of all classes.
    pub share: f64,
    /// What answers to them are worth.
    pub worth: ClassWorth,
}

/// A table for one load, and what to expect there.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The load, in requests a second.
    pub rate_per_s: f64,
    /// As the scheduler reads it, up to this load.
    pub table: SelectTable,
    /// Of the table.
    pub expected: Expected,
    /// Of each variant, were it the only one; none if it cannot carry the load, or takes too long for one request.
    pub alone: Vec<Option<Expected>>,
}

/// Which tables are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// Those of wishes, which know how much waits and in what time the first of a batch is due.
    Wishes,
    /// Those of prices, which know how much waits and who is free, and have the batch's own requests decide. None without
    /// classes: requests that are all alike decide nothing.
    Prices,
    /// All.
    #[default]
    Both,
}

/// What to expect in the long run: what became of 100,000 requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The share of right answers among the requests that are answered in time; with classes, what such an answer is worth on
    /// the whole. 0 if there are none.
    pub accuracy: f64,
    /// The share of requests that miss their deadlines.
    pub missed: f64,
}

/// The best tables found for `loads`, in requests a second and rising, each below what the base can carry unless all may be missed.
///
/// Requests come at random (Poisson). A table wishes for what is worth most at a price of worker time, which rises with
/// what waits, or, where there are classes, has these prices, which
/// also fall with the workers that are free. Tables for many prices, and each variant
/// alone, are tried on the same requests, on the scheduler that the daemon has, those of wishes each plain and
/// [`Manner::Forming`](rt_core::Manner::Forming), and the one with the most right answers is taken of those with at most
/// `max_miss` missed, with what became of it there; if none has so few, the one that misses least.
///
/// # Errors
/// [`SelectionError`] for the first value that is outside its range.
pub fn plan(inputs: &Inputs, loads: &[f64]) -> Result<Vec<Planned>, SelectionError> {
    plan_kinds(inputs, loads, Kinds::default())
}

/// The same of tables of such kinds alone.
///
/// # Errors
/// As [`plan`].
pub fn plan_kinds(inputs: &Inputs, loads: &[f64], kinds: Kinds) -> Result<Vec<Planned>, SelectionError> {
    plan_with(inputs, loads, (kinds, Effort::default()))
}

fn plan_with(
    inputs: &Inputs,
    loads: &[f64],
    effort: (Kinds, Effort),
) -> Result<Vec<Planned>, SelectionError> {
    inputs.check()?;
    within("number of loads", loads.len() as f64, 0.0, MAX_LOADS as f64)?;
    for (i, pair) in loads.windows(2).enumerate() {
        if pair[1] <= pair[0] {
            let limit = format!("must be above {}, the one before", pair[0]);
            return Err(SelectionError::value(format!("loads[{}]", i + 1), pair[1], limit));
        }
    }
    if let Some(load) = loads.first().filter(|load| load.is_nan() || **load <= 0.0) {
        return Err(SelectionError::value("loads[0]", load, "must be above 0"));
    }
    let most = if inputs.max_miss < 1.0 { inputs.capacity_per_s(0) } else { f64::INFINITY };
    if let Some((i, load)) = loads.iter().enumerate().find(|(_, load)| **load >= most) {
        let limit = format!("must be below {most}, what the base can carry");
        return Err(SelectionError::value(format!("loads[{i}]"), load, limit));
    }
    in_parallel(loads, |&load| inputs.plan(load, effort))
}

/// What comes of each, in their order. The last ones take longest: each processor gets some of them.
fn in_parallel<T: Sync, R: Send>(
    all: &[T],
    one: impl Fn(&T) -> Result<R, SelectionError> + Sync,
) -> Result<Vec<R>, SelectionError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len());
    let mut made: Vec<_> = std::thread::scope(|scope| {
        let one = &one;
        let some = |first| {
            move || (first..all.len()).step_by(threads).map(|i| (i, one(&all[i]))).collect::<Vec<_>>()
        };
        let started: Vec<_> = (0..threads).map(|first| scope.spawn(some(first))).collect();
        started.into_iter().flat_map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    made.sort_by_key(|&(i, _)| i);
    made.into_iter().map(|(_, made)| made).collect()
}

impl Planned {
    /// The variant that is best alone, if at most `max_miss` may miss, and what to expect of it.
    #[must_use]
    pub fn best_alone(&self, max_miss: f64) -> Option<(usize, Expected)> {
        let all = self.alone.iter().enumerate().filter_map(|(i, one)| one.map(|one| (i, one)));
        all.reduce(|best, other| if other.1.betters(best.1, max_miss) { other } else { best })
    }
}

impl Expected {
    /// The share of requests that are answered in time and right; with classes, what a request is worth on the whole.
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

    /// What a network that selects is shown parts of: a full batch, the whole latency, what the base can carry.
    #[must_use]
    pub fn scale(&self) -> LearnedScale {
        LearnedScale {
            requests: self.batch,
            slack: self.latency,
            rate_per_s: self.capacity_per_s(0),
            workers: self.workers,
            classes: self.classes.len(),
        }
    }

    /// Who asks `net`, which was trained for these inputs.
    ///
    /// # Errors
    /// A network of other inputs or outputs than there are, or variants that no selector has.
    pub fn learned(&self, net: Net) -> Result<Selector, SelectError> {
        Selector::learned(self.variants.clone(), net, self.scale(), LoadMonitor::default())
    }

    /// Who takes the most accurate variant after which the base still answers what waits.
    ///
    /// # Errors
    /// Variants that no selector has.
    pub fn accurate(&self) -> Result<Selector, SelectError> {
        Ok(Selector::greedy(self.variants.clone())?.sparing(self.capacity_per_s(0)))
    }

    /// What an answer of a variant in time is worth to a request, on the whole.
    ///
    /// # Panics
    /// If there is no such variant.
    #[must_use]
    pub fn worth(&self, variant: usize) -> f64 {
        if self.classes.is_empty() {
            return self.variants[variant].accuracy;
        }
        let all: f64 = self.classes.iter().map(|class| class.share).sum();
        self.classes.iter().map(|class| class.share * class.worth.worth[variant]).sum::<f64>() / all
    }

    /// The variant that is worth most to a batch of `size` in time, of as many of each class as there are on the whole, beyond
    /// its time at `price` a second.
    #[must_use]
    pub fn worthiest(&self, size: usize, price: f64) -> usize {
        let worth = |v: usize| {
            size as f64 * self.worth(v) - price * self.variants[v].profile.bound(size).as_secs_f64()
        };
        let able = (1..self.variants.len()).filter(|&v| size <= self.variants[v].profile.max_batch());
        able.fold(0, |best, v| if worth(v) > worth(best) { v } else { best })
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
        for (i, class) in self.classes.iter().enumerate() {
            let share = within(format!("classes[{i}].share"), class.share, 0.0, f64::MAX)?;
            if share == 0.0 {
                return Err(SelectionError::value(format!("classes[{i}].share"), share, "must be above 0"));
            }
        }
        // All else is checked where it is used.
        within("max_miss", self.max_miss, 0.0, 1.0)?;
        let shortest = self.variants[0].profile.bound(1).as_nanos().max(BINS as u64);
        within("latency in nanoseconds", self.latency.as_nanos() as f64, shortest as f64, f64::MAX).map(drop)
    }

    fn plan(&self, load: f64, (kinds, effort): (Kinds, Effort)) -> Result<Planned, SelectionError> {
        let trial = Trial::new(self, load, effort);
        let alone = |variant| (!self.is_hopeless(variant, load)).then(|| trial.alone(variant)).transpose();
        let alone = (0..self.variants.len()).map(alone).collect::<Result<Vec<_>, _>>()?;
        let (table, expected) = trial.best(kinds)?;
        Ok(Planned { rate_per_s: load, table: table.up_to(load)?, expected, alone })
    }

    /// Whether a variant cannot carry the load, or takes too long for one request; the base is never given up.
    fn is_hopeless(&self, variant: usize, load: f64) -> bool {
        let time = self.variants[variant].profile.bound(1);
        let kept = load * (1.0 - self.max_miss);
        variant > 0 && (kept >= self.capacity_per_s(variant) || time > self.latency)
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
