//! Arrivals that nobody recorded, and recorded ones at any rate: drawn from a seed, one at a time, in bounded memory.
//!
//! A [`Process`] says how the requests of one stream come; [`Process::arrivals`] makes a [`Source`] of it at some
//! rate, and [`Merged`] makes one sequence of several. For one seed the arrivals are the same on every machine: see
//! [`stream_seed`] for the seeds of streams.
//!
//! ```
//! use sim::process::{Merged, Process, stream_seed};
//!
//! let kinds = [Process::Poisson, Process::Bursts { size: 8 }];
//! let sources = kinds.iter().enumerate().map(|(i, kind)| kind.arrivals(250.0, stream_seed(1, i)));
//! let sources: Vec<_> = sources.collect::<Result<_, _>>()?;
//! let first: Vec<_> = Merged::new(sources).take(1_000).collect();
//! assert!(first.is_sorted());
//! # Ok::<(), sim::process::ProcessError>(())
//! ```

mod adversary;
mod draws;
mod even;
mod limits;
mod merged;
mod phases;
mod playback;
mod recording;
mod renewal;
mod ticks;

use std::iter::FusedIterator;
use std::sync::Arc;

use rt_core::{ArrivalCurve, Instant, Span};

pub use draws::stream_seed;
pub use limits::{
    MAX_DWELL_S, MAX_JITTER, MAX_RATE, MAX_SHAPE, MAX_SWITCHES, MAX_WEIGHT, MIN_RATE, MIN_SHAPE, ProcessError,
};
pub use merged::Merged;
pub use recording::{Recording, RecordingError};

use adversary::Adversary;
use draws::{Draws, Gamma};
use even::{Even, Jittered};
use phases::Phases;
use playback::Playback;
use renewal::{Gaps, Renewal, Rows};

/// How the requests of one stream come. Rates are set apart from shape: one process can be had at many rates.
#[derive(Clone, Debug, PartialEq)]
pub enum Process {
    /// Request `i`, from 0, at exactly `i/rate`, rounded down to nanoseconds.
    Constant,
    /// Request `i` at `i/rate`, and late by a time that is uniform in `[0, jitter/rate)`. They arrive in order of
    /// time: with a jitter above 1, requests may overtake one another.
    Periodic {
        /// In periods: `0..=MAX_JITTER`.
        jitter: f64,
    },
    /// Exponential gaps.
    Poisson,
    /// Gaps that are Gamma distributed with mean `1/rate`; their coefficient of variation is `1/√shape`: above that
    /// of a Poisson process for a shape below 1.
    Gamma {
        /// In `MIN_SHAPE..=MAX_SHAPE`.
        shape: f64,
    },
    /// A Poisson process whose rate is that of a hidden state (MMPP; Fischer and Meier-Hellstern, "The
    /// Markov-modulated Poisson process cookbook", 1993). The states take turns in the order given, each for an
    /// exponential time, the first one again after the last; at 0 the chain is in equilibrium. The rates are scaled
    /// so that the mean of the long run is `rate`.
    MarkovModulated {
        /// One at least, and one at least of a rate above 0.
        states: Vec<ModulatedState>,
    },
    /// `size` requests at one instant, from 0 on every `size/rate`.
    Bursts {
        /// One at least.
        size: u32,
    },
    /// The worst that a curve allows, again and again: requests as early as they may, for a random number of them,
    /// then a pause after which just nothing of that counts any more, so that a full burst follows, or a random one.
    /// Satisfies the curve. The curve says all, so the rate is ignored; ends up to four hours before the clock does.
    Adversarial(ArrivalCurve),
    /// A recorded trace, in order, with all times scaled so that its mean rate is `rate`. The first request comes at
    /// 0, and again one mean gap after the last: repeated, the trace keeps its mean rate. At its [`own
    /// rate`](Process::own_rate) it plays as recorded, to the nanosecond for 104 days.
    Trace(Arc<[Instant]>),
    /// Rows of the gaps of a recorded trace, each from a random place on: the stationary bootstrap (Politis and Romano
    /// 1994). What comes within a row is as it was recorded; rows are independent, and their lengths geometric.
    Resampled {
        /// Two instants at least, in order, not all one.
        trace: Arc<[Instant]>,
        /// The mean length of a row in requests, in `1..=MAX_COUNT`.
        row: f64,
    },
    /// A Poisson process that follows a series of rates, repeated when it ends. The rates are scaled so that their
    /// mean is `rate`; times are not.
    Rates {
        /// Requests a second in each interval, each in `0..=MAX_WEIGHT`; one at least must be above 0.
        rates: Arc<[f64]>,
        /// How long each holds, at least 1 ns.
        interval: Span,
    },
}

/// A state of [`Process::MarkovModulated`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModulatedState {
    /// Its rate against that of the others, in `0..=MAX_WEIGHT`.
    pub rate: f64,
    /// How long it lasts on average: seconds, above 0, at most `MAX_DWELL_S`.
    pub dwell_s: f64,
}

/// The arrivals of one stream, never decreasing. Ends where the clock does, after 584 years.
#[derive(Clone, Debug)]
pub struct Source(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Even(Even),
    Jittered(Jittered),
    Renewal(Renewal),
    Phases(Phases),
    Adversary(Adversary),
    Playback(Playback),
    Ended,
}

impl Process {
    /// The rate that a process has by itself, in requests a second: that of a curve, the mean of a trace or of a
    /// series of rates. `None` of all that have none, and of what [`Process::arrivals`] refuses at any rate.
    #[must_use]
    pub fn own_rate(&self) -> Option<f64> {
        self.check().ok()?;
        match self {
            Self::Adversarial(curve) => Some(curve.rate_per_s()),
            Self::Trace(trace) | Self::Resampled { trace, .. } => playback::mean_rate(trace),
            Self::Rates { rates, .. } => Some(rates.iter().sum::<f64>() / rates.len() as f64),
            _ => None,
        }
    }

    /// The arrivals of one stream at a mean of `rate_per_s` requests a second, in `MIN_RATE..=MAX_RATE`. Those of
    /// one process, rate and seed are always the same. Periods are `1/rate` in 48 significant bits, so that the
    /// rate of a period of whole nanoseconds gives just that period, without drift.
    ///
    /// # Errors
    /// [`ProcessError`], with field, value and limit: of the rate and of everything that the process holds; also if
    /// some state or interval would, scaled to the rate, come above `MAX_RATE`, or if there were more than
    /// `MAX_SWITCHES` of them from one request to the next on average.
    pub fn arrivals(&self, rate_per_s: f64, seed: u64) -> Result<Source, ProcessError> {
        self.check()?;
        let mut draws = Draws::new(seed);
        let mean = if let Self::Adversarial(_) = self { 1.0 } else { limits::period(rate_per_s)? };
        let period = limits::ticks("1/rate", mean)?;
        let kind = match self {
            Self::Constant => Kind::Even(Even::new(period, 1)),
            Self::Bursts { size } => {
                let period = limits::ticks("size/rate", mean * f64::from(*size))?;
                Kind::Even(Even::new(period, *size))
            }
            Self::Periodic { jitter } => {
                let jitter = limits::ticks("jitter/rate", ticks::tidy(mean * jitter))?;
                Kind::Jittered(Jittered::new(period, jitter, draws))
            }
            Self::Poisson => Kind::Renewal(Renewal::new(mean, Gaps::Exponential, draws)),
            Self::Gamma { shape } => {
                Kind::Renewal(Renewal::new(mean, Gaps::Gamma(Gamma::new(*shape)), draws))
            }
            Self::Resampled { trace, row } => {
                let rows = Rows::new(trace, *row, &mut draws);
                Kind::Renewal(Renewal::new(mean, Gaps::Recorded(rows), draws))
            }
            Self::MarkovModulated { states } => {
                Kind::Phases(Phases::new(limits::modulated(states, mean)?, draws))
            }
            Self::Adversarial(curve) => Kind::Adversary(Adversary::new(curve, draws)),
            Self::Trace(trace) => {
                let own = playback::mean_rate(trace).unwrap_or(rate_per_s);
                let round = period.times(trace.len() as u64);
                let round =
                    round.ok_or_else(|| limits::beyond("requests/rate", mean * trace.len() as f64))?;
                Kind::Playback(Playback::new(trace.clone(), own / rate_per_s, round))
            }
            Self::Rates { rates, interval } => {
                Kind::Phases(Phases::new(limits::series(rates, *interval, mean)?, draws))
            }
        };
        Ok(Source(kind))
    }
}

impl Source {
    /// Whatever is random from now on is drawn from another seed. The arrivals of a source without randomness stay as they are.
    pub(crate) fn reseed(&mut self, seed: u64) {
        let draws = Draws::new(seed);
        match &mut self.0 {
            Kind::Jittered(jittered) => jittered.reseed(draws),
            Kind::Renewal(renewal) => renewal.reseed(draws),
            Kind::Phases(phases) => phases.reseed(draws),
            Kind::Adversary(adversary) => adversary.reseed(draws),
            Kind::Even(_) | Kind::Playback(_) | Kind::Ended => {}
        }
    }
}

impl Iterator for Source {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let next = match &mut self.0 {
            Kind::Even(even) => even.next(),
            Kind::Jittered(jittered) => jittered.next(),
            Kind::Renewal(renewal) => renewal.next(),
            Kind::Phases(phases) => phases.next(),
            Kind::Adversary(adversary) => adversary.next(),
            Kind::Playback(playback) => playback.next(),
            Kind::Ended => None,
        };
        if next.is_none() {
            self.0 = Kind::Ended;
        }
        next
    }
}

impl FusedIterator for Source {}

#[cfg(test)]
mod tests;
