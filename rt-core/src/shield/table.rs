//! The table of the shield: how many batch starts the requests to come leave to spare, at the worst.
//!
//! Let the `k`-th mandatory request come at `δ_k` at the earliest, and write `δ_k + L - P = a·P + b`
//! with `0 ≤ b < P`, and `g = p·P + q` likewise. By then a worker has begun `a + 1 - p - [q > b]` full batches (never
//! below 0, as `g ≤ L`), so what the shield asks of the requests to come is, for every `k`,
//!
//! ```text
//! Σ_w (p_w + [q_w > b])  ≤  n·(a + 1) - ⌈(k + r mod B)/B⌉ - ⌊r/B⌋ .
//! ```
//!
//! The left side is known at run time. Of the right side only the *slack*, its first two terms, depends on `k`.
//! For each `r mod B` the table holds the pairs of `b` and slack that no other beats in both; and as the left side
//! varies by at most `n - 1` with `b`, only those with less than `n` above the least slack: at most `B·n` entries. That is all
//! of it, exactly, where a curve is subadditive, as each kind of bound is. The least of several need not be (2 in 10
//! and 1 in 4 allow 3 in 10 + 3): what really comes keeps to its closure, which is, and is no more, so the table is
//! safe there too, but may allow more than the definition does with the bounds as they stand.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::{AdmissionError, System};
use crate::busy::{BusyPeriod, Rise};
use crate::curve::ArrivalCurve;
use crate::time::Span;
use crate::word::Density;
use crate::workers::Workers;

/// By `r mod B`, steps in rising order of `b` and falling order of slack; none if nothing is promised.
#[derive(Clone, Debug)]
pub(super) struct Table(Box<[Vec<Step>]>);

/// A request that comes as early as it can, and what is left to spare for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// `b`, below `P`.
    rest: u64,
    slack: i64,
}

impl Table {
    /// Looks at every rise of `α_m` in the longest busy period. What comes a busy period of `Δ` later is at most
    /// `α_m(Δ)` more, for which the workers have begun as many full batches more by then: its step is beaten by
    /// the one before, or at least `n` above it. With a tolerance each request may come so much sooner, though not before the
    /// start that is asked about, and the busy period is one behind a delay.
    pub(super) fn new(
        workers: &Workers,
        (latency, tolerance): (Span, Span),
        load: &[(Density, &ArrivalCurve)],
    ) -> Result<Self, AdmissionError> {
        let Workers { count, batch, .. } = *workers;
        let mut table = vec![Vec::new(); batch].into_boxed_slice();
        if load.is_empty() {
            return Ok(Self(table));
        }
        let system = System::identical(workers.clone(), latency);
        let mut rises = BusyPeriod::after(&system, load, tolerance);
        let time = workers.batch_time();
        for Rise { length, backlog, .. } in &mut rises {
            let offset = length.saturating_sub(tolerance + Span::from_nanos(1));
            let latest = (offset + latency.saturating_sub(time)).as_nanos();
            let begun = count as i128 * (i128::from(latest / time.as_nanos()) + 1);
            for (residue, steps) in table.iter_mut().enumerate() {
                let needed = backlog.saturating_add(residue as u64).div_ceil(batch as u64);
                let slack = i64::try_from(begun - i128::from(needed)).unwrap_or(i64::MAX);
                insert(steps, Step { rest: latest % time.as_nanos(), slack }, count);
            }
        }
        if rises.ended { Ok(Self(table)) } else { Err(AdmissionError::Horizon) }
    }

    /// The largest `p·P + q` for which every step has room beside `others`, those that take more than `P`, with `waiting`
    /// requests left; `None` if nothing is promised.
    pub(super) fn longest(
        &self,
        workers: &Workers,
        others: impl Iterator<Item = Span> + Clone,
        waiting: usize,
    ) -> Option<Span> {
        let time = workers.batch_time().as_nanos();
        // `P` is one period, and no rest.
        let prompt = workers.count as i64 - 1;
        let full = waiting / workers.batch;
        let steps = &self.0[waiting - full * workers.batch];
        if others.clone().next().is_none() {
            // Slack falls from step to step.
            let last = steps.last()?;
            return Some(begin_by(last.slack - prompt - full as i64, last.rest, time));
        }
        let taken = |rest: u64| {
            let more = |g: Span| g.as_nanos() / time + u64::from(g.as_nanos() % time > rest) - 1;
            prompt + others.clone().map(more).sum::<u64>() as i64
        };
        let room = steps.iter().map(|step| (step.slack - taken(step.rest), step.rest));
        // The first step with the least room: one `q` above its `b` would take one more.
        let (room, rest) = room.min_by_key(|&(room, _)| room)?;
        Some(begin_by(room - full as i64, rest, time))
    }
}

/// The largest `p·P + q` with so many periods to spare, none if there are none.
fn begin_by(periods: i64, rest: u64, time: u64) -> Span {
    match u64::try_from(periods).unwrap_or(0) {
        0 => Span::ZERO,
        periods => Span::from_nanos(time.saturating_mul(periods).saturating_add(rest)),
    }
}

/// Keeps `steps` in rising order of `b` and falling order of slack, each less than `workers` above the last.
fn insert(steps: &mut Vec<Step>, step: Step, workers: usize) {
    let at = steps.partition_point(|other| other.rest <= step.rest);
    let beaten = at.checked_sub(1).is_some_and(|before| steps[before].slack <= step.slack);
    let least = steps.last().map_or(step.slack, |last| last.slack);
    if beaten || step.slack >= least.saturating_add(workers as i64) {
        return;
    }
    let from = steps.partition_point(|other| other.rest < step.rest);
    let to = from + steps[from..].partition_point(|other| other.slack >= step.slack);
    steps.splice(from..to, [step]);
    if let Some(least) = steps.last().map(|last| last.slack) {
        steps.retain(|other| other.slack < least.saturating_add(workers as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_kept_only_if_no_other_beats_them_and_they_can_bind() {
        let step = |(rest, slack)| Step { rest, slack };
        let mut steps = Vec::new();
        for (given, kept) in [
            ((5, 7), &[(5, 7)][..]),
            // Later and no less: beaten. Earlier and more: kept. As much, earlier: beats.
            ((6, 7), &[(5, 7)]),
            ((2, 8), &[(2, 8), (5, 7)]),
            ((4, 7), &[(2, 8), (4, 7)]),
            // Three workers: what is three above the least never binds.
            ((0, 10), &[(2, 8), (4, 7)]),
            ((9, 5), &[(4, 7), (9, 5)]),
            ((0, 1), &[(0, 1)]),
        ] {
            insert(&mut steps, step(given), 3);
            assert_eq!(steps, kept.iter().map(|&s| step(s)).collect::<Vec<_>>(), "{given:?}");
        }
    }
}
