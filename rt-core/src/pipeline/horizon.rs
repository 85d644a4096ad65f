//! How far the sources are looked at: beyond a distance every stage has caught up, or all repeats.

use super::path::round;
use super::{Pipeline, Stage};
use crate::admission::Load;
use crate::curve::ArrivalCurve;
use crate::growth::{Envelope, growth, lcm, repetition};
use crate::time::Span;
use crate::word::Density;

/// What is nearer to capacity than this part of it, and so much more for each stream, is looked at until it repeats. It would be too
/// much to look at until it is worked off; and the checker of certificates, which rounds up what each stream brings, has to see that
/// it ever is.
const NEARLY_ALL: f64 = 1e-7;
const FOR_EACH: f64 = 4e-9;

/// When no later source can be answered later after its arrival than those that have been looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    /// From this length on what is waited for takes less than it takes to come.
    over: u64,
    /// From the length `from` and `sources` on, a `period` more brings so many sources that each stage needs no more than the
    /// period for what they become in whole rounds.
    repeat: Option<Repeat>,
}

#[derive(Clone, Copy, Debug)]
struct Repeat {
    from: u64,
    sources: u64,
    period: u64,
}

/// What a source costs a stage, in nanoseconds of all its workers.
pub(super) fn cost(stage: &Stage, descendants: u64) -> f64 {
    stage.time.as_nanos() as f64 * descendants as f64 / round(stage) as f64
}

impl Horizon {
    /// On a path `A_i(X) ≤ g + 2·P_i + X·P_i/(n_i·B_i)`, and in sources the `X` of all its stages add up to no more than `Y`
    /// and one for each stage. So `f(Y)` is at most the constants of the longest path and `Y` and its length times what a
    /// source costs the busiest stage.
    ///
    /// If `N` sources more make whole rounds of every stage, which take it no longer than the `period` in which they come,
    /// then beyond `N` sources for each stage of the path some stage waits for what more than `N` become. With these taken
    /// away the same path is one for `N` sources less, and at most the period shorter: all that comes later has been seen.
    pub(super) fn new(pipeline: &Pipeline, descendants: &[u64], load: &Load) -> Self {
        let (mut fixed, mut depth) = (alloc::vec::Vec::new(), alloc::vec::Vec::new());
        for stage in &pipeline.stages {
            let (above, before): (f64, u64) = (stage.parents.most(&fixed), stage.parents.most(&depth));
            fixed.push(above + pipeline.guard.as_nanos() as f64 + 2.0 * stage.time.as_nanos() as f64);
            depth.push(before + 1);
        }
        let fixed = fixed.into_iter().fold(0.0, f64::max);
        let depth = depth.into_iter().max().unwrap_or(1);
        let stages = || pipeline.stages.iter().zip(descendants);
        let cost = stages().map(|(stage, &m)| cost(stage, m)).fold(0.0, f64::max);
        let come = Envelope::of(load);
        let spare = 1.0 - cost * come.rate;
        let over = if spare < NEARLY_ALL + FOR_EACH * load.len() as f64 {
            u64::MAX
        } else {
            // What is lost in rounding is at most some 10^-15 of capacity, so some 10^-6 of what is spare.
            ((fixed + cost * (come.at_once() + depth as f64)) / spare * 1.0001) as u64 + 2
        };
        let repeat = || {
            let rounds = stages().try_fold(1, |all, (stage, _)| lcm(all, round(stage)))?;
            let repetition = repetition(load, [])?;
            let period = repetition.length.checked_mul(rounds)?;
            let sources = load.iter().try_fold(0, |all: u64, (density, curve)| {
                all.checked_add(density.ceil_of(growth(curve, period)))
            })?;
            let keeps_up = |(stage, &m): (&Stage, &u64)| {
                let work = u128::from(stage.time.as_nanos()) * u128::from(m) * u128::from(sources);
                work / u128::from(round(stage)) <= u128::from(period)
            };
            let repeat = Repeat { from: repetition.from, sources: sources.checked_mul(depth)?, period };
            stages().all(keeps_up).then_some(repeat)
        };
        Self { over, repeat: repeat() }
    }

    /// Whether what has piled up is ever worked off, so far from capacity that it is seen.
    pub(super) fn catches_up(&self) -> bool {
        self.over < u64::MAX
    }

    /// How many sources are looked at before it is over; `None` if it never is.
    pub(super) fn sources(&self, load: &Load) -> Option<u64> {
        let come = |length: u64| {
            let of = |&(density, curve): &(Density, &ArrivalCurve)| {
                density.ceil_of(curve.count(Span::from_nanos(length)))
            };
            load.iter().map(of).fold(0, u64::saturating_add)
        };
        let over = (self.over < u64::MAX).then(|| come(self.over));
        let repeated = |r: Repeat| come(r.from.saturating_add(r.period)).max(r.sources.saturating_mul(2));
        over.into_iter().chain(self.repeat.map(repeated)).min()
    }

    /// Whether no length from `next` on matters, all having been looked at up to `length`, in which so many sources come.
    pub(super) fn is_over(&self, next: u64, length: u64, sources: u64) -> bool {
        let repeated = |r: Repeat| {
            // A period ago there were enough sources already.
            length > r.from.saturating_add(r.period) && sources > r.sources.saturating_mul(2)
        };
        next > self.over || self.repeat.is_some_and(repeated)
    }
}
