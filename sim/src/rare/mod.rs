//! How often a constraint is violated where arrivals are random: an estimate, and how far to trust it.
//!
//! Violations that are frequent are counted in plain runs of the daemon's scheduler. For rare ones a run is copied whenever it comes
//! nearer to one than it seldom does, by misses in the windows of the constraints and by what waits, and the copies end where it
//! is no longer as near: RESTART (Villén-Altamirano 1991), a kind of multilevel splitting. What a copy sees counts for as much less
//! as there are more of them, so that the estimate is right on average wherever the levels are.
//!
//! It is a statement about a model of arrivals, of batches that all take *P(b)*: nothing is proved.

mod coming;
mod levels;
mod path;
mod rates;
mod record;
#[cfg(test)]
mod tests;

use std::num::NonZero;
use std::thread::{available_parallelism, scope};

use planner::Problem;
use rt_core::{ArrivalCurve, Instant, Span};

pub use rates::{OverRates, Point, over_rates};

use crate::dice::Dice;
use crate::policy::{PlayError, scheduled, within_deadline};
use crate::process::{Process, ProcessError, stream_seed};
use crate::statistics::student;
use coming::Coming;
use levels::{Tried, find};
use path::{Count, Levels, Path};
use record::Record;

/// Runs that are made together.
const ROUND: usize = 32;
/// Rounds at most.
const ROUNDS: usize = 16;
/// A run may take so many times the steps that it was expected to.
const BEYOND: u64 = 64;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The service: workers, deadline, and what each stream is promised if it sends as declared.
    pub problem: &'a Problem,
    /// How each of its streams sends, as declared or not, and at how many requests a second.
    pub arrivals: Vec<(Process, f64)>,
    /// Which stream's constraints; any of them.
    pub stream: usize,
    /// Of the interval: above 0, below 1.
    pub confidence: f64,
    /// Half the width of the interval that is precise enough, as a part of the estimate.
    pub precision: f64,
    /// Steps of all runs together at most, about: a request takes two or three.
    pub effort: u64,
    /// All that is random comes from it.
    pub seed: u64,
}

/// How often violations begin.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Violations {
    /// A second, on average.
    pub per_s: f64,
    /// The interval: from.
    pub low: f64,
    /// The interval: to. If none was seen, what they are surely below, as far as plain runs tell.
    pub high: f64,
    /// Independent runs.
    pub runs: usize,
    /// How long they were together, without copies.
    pub seconds: f64,
    /// Levels at which they were copied; 0 for plain runs.
    pub levels: usize,
    /// Steps of all, with copies.
    pub steps: u64,
}

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub enum RareError {
    /// The runs cannot be made.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// Nothing can come so.
    #[error("arrivals of {stream}: {error}")]
    Process {
        /// Of which stream.
        stream: String,
        /// Why.
        error: ProcessError,
    },
    /// Nothing that could be violated.
    #[error("{0} has no constraint that could be violated")]
    NoConstraint(String),
    /// Copies of copies come to too much.
    #[error("the runs would take too long: what is asked comes neither often nor step by step")]
    TooMuch,
    /// Even the shortest runs come to far more than was asked for.
    #[error(
        "so much comes that the shortest runs take some {needed} steps, far more than the {effort} that they may take: allow more"
    )]
    Effort {
        /// About the steps of one round of runs.
        needed: u64,
        /// Those that were asked for.
        effort: u64,
    },
}

/// Estimates how often violations of the constraints of a stream begin. The same for the same question on every machine.
/// `progress` is told which part of the effort is spent, at most.
///
/// # Errors
/// [`RareError`].
pub fn violations(question: &Question<'_>, progress: &mut dyn FnMut(f64)) -> Result<Violations, RareError> {
    let path = question.path(question.seed)?;
    let capacity = within_deadline(question.problem) as f64;
    let Tried { mut levels, mut steps_per_s } = find(&path, (capacity, question.seed), question.effort / 32)?;
    loop {
        match question.estimate(&levels, steps_per_s, progress) {
            Err(RareError::TooMuch) if !levels.thresholds.is_empty() => {
                levels.thin();
                steps_per_s /= 2.0;
            }
            found => return found,
        }
    }
}

/// The worst that a curve allows, with which streams are taken to send of which nothing is said.
#[must_use]
pub fn worst(curve: &ArrivalCurve) -> (Process, f64) {
    (Process::Adversarial(curve.clone()), curve.rate_per_s())
}

/// What a run says of violations behind its beginning.
struct Begun {
    from: Instant,
    sum: f64,
}

impl Count for Begun {
    fn step(&mut self, now: Instant, weight: f64, _: (f64, f64), begun: u64) {
        if begun > 0 && now >= self.from {
            self.sum += begun as f64 * weight;
        }
    }
}

impl Question<'_> {
    fn path(&self, seed: u64) -> Result<Path, RareError> {
        let (name, spec) = &self.problem.streams[self.stream];
        let constraints: Vec<_> = spec.constraints().as_slice().to_vec();
        if constraints.is_empty() {
            return Err(RareError::NoConstraint(name.clone()));
        }
        let source = |(i, (process, rate)): (usize, &(Process, f64))| {
            let stream = || self.problem.streams[i].0.clone();
            let arrivals = process.arrivals(*rate, stream_seed(seed, i));
            arrivals.map_err(|error| RareError::Process { stream: stream(), error })
        };
        let sources = self.arrivals.iter().enumerate().map(source).collect::<Result<Vec<_>, _>>()?;
        // As many as can be answered in time, and as many again; what is beyond is missed whether it is kept or not.
        let queue = 2 * within_deadline(self.problem) + 16;
        let policy = scheduled(self.problem, queue, self.problem.streams.len()).map_err(PlayError::from)?;
        Ok(Path::new(policy, Coming::new(sources), Record::new(self.stream, &constraints)))
    }

    fn estimate(
        &self,
        levels: &Levels,
        steps_per_s: f64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Violations, RareError> {
        let each = self.effort / (ROUND * ROUNDS) as u64;
        // Some thousand deadlines at least, so that what a run begins with counts for nothing.
        let least = 1_000.0 * self.problem.deadline.as_secs_f64();
        let seconds = (each as f64 / steps_per_s).max(least);
        let needed = (least * steps_per_s * ROUND as f64) as u64;
        if needed / BEYOND > self.effort {
            return Err(RareError::Effort { needed, effort: self.effort });
        }
        let length = Span::from_nanos((seconds * 1e9) as u64);
        let limit = BEYOND * (seconds * steps_per_s) as u64 + 1_000_000;
        let run = |seed: u64| -> Result<(f64, u64), RareError> {
            let mut begun =
                Begun { from: Instant::ZERO + Span::from_nanos(length.as_nanos() / 20), sum: 0.0 };
            let end = (Instant::ZERO + length, limit);
            let path = self.path(seed)?;
            let (steps, _) =
                path.go(levels, (within_deadline(self.problem) as f64, seed), end, &mut begun)?;
            if steps >= limit { Err(RareError::TooMuch) } else { Ok((begun.sum, steps)) }
        };
        let counted = length.as_secs_f64() * 19.0 / 20.0;
        let (mut dice, mut samples, mut steps) = (Dice(self.seed ^ 0x5ee_d0f0), Vec::new(), 0);
        loop {
            let seeds: Vec<u64> = (0..ROUND).map(|_| dice.next()).collect();
            for found in side_by_side(&seeds, &run) {
                let (sum, taken) = found?;
                samples.push(sum / counted);
                steps += taken;
            }
            progress((steps as f64 / self.effort as f64).max(samples.len() as f64 / (ROUND * ROUNDS) as f64));
            let found = self.sum_up(&samples, counted, (levels.thresholds.len(), steps));
            let precise = found.per_s > 0.0 && found.high - found.per_s <= self.precision * found.per_s;
            if (precise && samples.len() > ROUND) || samples.len() >= ROUND * ROUNDS || steps >= self.effort {
                return Ok(found);
            }
        }
    }

    fn sum_up(&self, samples: &[f64], counted: f64, (levels, steps): (usize, u64)) -> Violations {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let half = student(samples.len() - 1, self.confidence) * (squares / (n - 1.0) / n).sqrt();
        let seconds = counted * n;
        // Of a Poisson process none comes within so long with what is left of the confidence.
        let none = -(1.0 - self.confidence).ln() / seconds;
        let high = if mean > 0.0 { mean + half } else { none };
        let runs = samples.len();
        Violations { per_s: mean, low: (mean - half).max(0.0), high, runs, seconds, levels, steps }
    }
}

impl Levels {
    /// Every other one is left out.
    fn thin(&mut self) {
        let mut odd = [false, true].into_iter().cycle();
        self.thresholds.retain(|_| odd.next() == Some(true));
        let mut odd = [false, true].into_iter().cycle();
        self.splits.retain(|_| odd.next() == Some(true));
    }
}

/// What comes of each, in order, worked out on all processors.
fn side_by_side<T: Send>(seeds: &[u64], run: &(impl Fn(u64) -> T + Sync)) -> Vec<T> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let parts = seeds.chunks(seeds.len().div_ceil(threads));
    scope(|scope| {
        let of = |part: &[u64]| part.iter().map(|&seed| run(seed)).collect::<Vec<_>>();
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || of(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    })
}
