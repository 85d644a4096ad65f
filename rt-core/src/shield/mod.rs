//! The shield: how long a batch may take beyond its profile without putting any promise at risk.
//!
//! `n` identical workers on one queue keep every promise if a full batch of `B` takes at most `P` (Theorem A of
//! `docs/guarantee.md`). In a lull a batch may take longer, with a slower and more accurate model, say. Let it
//! start at `t`, take `ℓ > P`, and leave `r` mandatory requests waiting, due at `d_1 ≤ d_2 ≤ …` (less the guard).
//! Let `g = ℓ` for its worker and `g = max(f, P)` for every other, `f` being the bound on what its batch still
//! takes; let `S_j` be the `j`-th smallest of all `g + i·P`, `i ≥ 0`. The batch is safe if each of its own
//! requests is answered in time, and
//!
//! ```text
//! (1)  S_⌈i/B⌉ + P  ≤  d_i - t                 for the i-th of the r,
//! (2)  S_⌈(r + α_m(δ + 1 ns))/B⌉ + P  ≤  δ + L    for every offset δ ≥ 0.
//! ```
//!
//! *Why.* Take a mandatory request that starts at `τ`, and of what happened before, whichever was last: a start
//! that took longer than `P`, a start that left no mandatory request waiting, or a worker that was left idle.
//! Since then every free worker took a full batch of mandatory requests at once, in at most `P`.
//!
//! If it was a long start, at `t`, the `j`-th batch since then began by `t + S_j`: (1) speaks for those that waited
//! at `t`, and (2) for those that came since. If it was another, at `s`, then those that come from `s` on find every
//! worker free by `s + max(f, P)`, for what began by then other than by a long start takes at most `P`. The last long
//! start before `s` saw the same or more of each worker, hence its (2), with `r = 0`, speaks for `s`; without any,
//! Theorem A does. What waited beside an idle worker, fewer than `B`, was taken by the batch it began at `s`, by its
//! latest start. So batches of at most `P` need no check at any time, whoever they serve.
//!
//! If nothing is left waiting and no mandatory request can come before `e = t + h`, a *lull* of those streams that are
//! there, (2) need hold at `e` only, with `g - h` (at least `P`) for `g`. For at `e` nothing mandatory waits, and what
//! starts in between takes at most `P`, or is long and was allowed by itself, with what was then left of the others.
//!
//! (1) is looked at when asked; for (2) there is a [`Table`], made ahead.

mod table;

use alloc::vec::Vec;
use core::iter::empty;

use crate::admission::AdmissionError;
use crate::counted::Counted;
use crate::curve::ArrivalCurve;
use crate::ledger::digest;
use crate::scheduler::MAX_WORKERS;
use crate::stream::StreamSpec;
use crate::time::{Instant, Span};
use crate::word::Density;
use crate::workers::Workers;
use table::Table;

/// Which long batches are safe on given workers under a given load; see the module's proof.
#[derive(Clone, Debug)]
pub struct Shield {
    workers: Workers,
    latency: Span,
    tolerance: Span,
    load: Counted,
    table: Table,
    /// See [`Shield::longest_alone`].
    alone: Span,
}

/// Why there is no shield.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShieldError {
    /// More workers than a scheduler has, or none, or a batch outside its range.
    #[error("{count} workers are outside 1..={MAX_WORKERS}, or batch {batch} outside 1..={max_batch}")]
    Workers {
        /// Workers given.
        count: usize,
        /// Their batch.
        batch: usize,
        /// The largest batch of their profile.
        max_batch: usize,
    },
    /// Not even one full batch can be answered in time.
    #[error("a full batch takes {time}, and {latency} is all there is")]
    Latency {
        /// The latency given.
        latency: Span,
        /// The time of a full batch.
        time: Span,
    },
    /// The load cannot be promised, or not be looked at as far as is needed.
    #[error(transparent)]
    Load(#[from] AdmissionError),
    /// The scheduler has other workers than the shield was made for, or workers of several kinds.
    #[error("the shield is for other workers")]
    Foreign,
    /// The scheduler's deadline less its guard is below the latency that the shield was made for.
    #[error("the shield is for a latency of {latency}, but only {limit} is there")]
    Deadline {
        /// The shield's latency.
        latency: Span,
        /// The scheduler's deadline less its guard.
        limit: Span,
    },
    /// Constraints absorb what stalls make miss, which counts on batches of `P`.
    #[error("where stalls are absorbed no batch is longer than promises are computed for")]
    Absorbed,
    /// Behind long batches more mandatory requests can wait than the scheduler's queue holds.
    #[error("{waiting} mandatory requests can wait at once, but the queue holds {limit}")]
    Queue {
        /// Mandatory requests that can wait at once.
        waiting: u64,
        /// The scheduler's queue.
        limit: usize,
    },
    /// The scheduler has promised streams that are not in the load that the shield was made for.
    #[error("the shield does not count {count} of the promised streams")]
    Stream {
        /// How many streams are not counted.
        count: usize,
    },
}

impl Shield {
    /// Works out the shield for `workers` that answer within `latency` (`L`, the user's deadline less the guard)
    /// under `load`: the density and arrivals of every promised stream ([`StreamSpec::demand`]). Under a load
    /// that the admission test refuses it allows nothing longer than a full batch. Allocates.
    ///
    /// # Errors
    /// If a number is outside its range, the load is above the workers' capacity, or so close to it that too
    /// many instants would need a look.
    pub fn new<'a, I>(workers: &Workers, latency: Span, load: I) -> Result<Self, ShieldError>
    where
        I: IntoIterator<Item = (Density, &'a ArrivalCurve)>,
    {
        Self::tolerant(workers, (latency, Span::ZERO), load)
    }

    /// The same where requests may come before their declaration allows them by up to a tolerance: with the curves
    /// `α(Δ + tolerance)` in (2).
    ///
    /// # Errors
    /// As [`Shield::new`].
    pub fn tolerant<'a, I>(
        workers: &Workers,
        (latency, tolerance): (Span, Span),
        load: I,
    ) -> Result<Self, ShieldError>
    where
        I: IntoIterator<Item = (Density, &'a ArrivalCurve)>,
    {
        let Workers { count, batch, ref profile } = *workers;
        if !workers.is_valid() || count > MAX_WORKERS {
            return Err(ShieldError::Workers { count, batch, max_batch: profile.max_batch() });
        }
        let time = workers.batch_time();
        if latency < time {
            return Err(ShieldError::Latency { latency, time });
        }
        let load: Vec<_> = load.into_iter().filter(|(density, _)| density.numerator() > 0).collect();
        let table = Table::new(workers, (latency, tolerance), &load)?;
        let load = Counted::new(&load);
        let mut shield = Self { workers: workers.clone(), latency, tolerance, load, table, alone: latency };
        shield.alone = shield.longest(Instant::ZERO, empty(), empty(), Span::ZERO);
        Ok(shield)
    }

    /// Whether a batch that starts at `now` may take `length`; see [`Shield::longest`].
    #[must_use]
    pub fn allows(
        &self,
        now: Instant,
        length: Span,
        others: impl Iterator<Item = Span> + Clone,
        waiting: impl ExactSizeIterator<Item = Instant>,
    ) -> bool {
        length <= self.longest(now, others, waiting, Span::ZERO)
    }

    /// The longest time that a batch started at `now` may take as far as all *other* requests are concerned, at
    /// least `P`. `others` gives for each other worker whose batch may still take more than `P` the bound on that (others
    /// may be left out), `waiting` the deadlines, less the guard, of the mandatory requests left waiting, in order; for the
    /// `lull` from `now` on none can come.
    ///
    /// Linear in `others` and the batches that wait, and never more than the slack allows; allocates nothing.
    #[must_use]
    pub fn longest(
        &self,
        now: Instant,
        others: impl Iterator<Item = Span> + Clone,
        waiting: impl ExactSizeIterator<Item = Instant>,
        lull: Span,
    ) -> Span {
        let time = self.workers.batch_time();
        // What waits has to be served meanwhile.
        let lull = if waiting.len() == 0 { lull } else { Span::ZERO };
        let others = others.map(move |f| f.saturating_sub(lull)).filter(move |&f| f > time);
        if others.clone().count() >= self.workers.count {
            return time;
        }
        let mut longest = match self.table.longest(&self.workers, others.clone(), waiting.len()) {
            // Beside what others take not even `P` is safe at the end of the lull: it adds to nothing.
            Some(longest) if longest < time => return time,
            Some(longest) => (longest + lull).min(self.latency),
            None => self.latency,
        };
        for (batch, deadline) in waiting.step_by(self.workers.batch).enumerate() {
            if longest <= time {
                break;
            }
            longest = longest.min(self.longest_for(deadline.since(now), batch as u64 + 1, others.clone()));
        }
        longest.max(time)
    }

    /// The same where none waits, no other batch is long, and there is no lull.
    pub(crate) fn longest_alone(&self) -> Span {
        self.alone
    }

    /// (1) alone, for requests that need not be mandatory: how long a batch may take so that each, with so many before
    /// it, is answered by its deadline (less the guard).
    pub(crate) fn longest_beside(
        &self,
        now: Instant,
        others: impl Iterator<Item = Span> + Clone,
        waiting: impl Iterator<Item = (usize, Instant)>,
    ) -> Span {
        let time = self.workers.batch_time();
        let others = others.filter(|&f| f > time);
        let mut longest = self.latency;
        for (before, deadline) in waiting {
            if longest <= time {
                break;
            }
            let batch = (before / self.workers.batch) as u64 + 1;
            longest = longest.min(self.longest_for(deadline.since(now), batch, others.clone()));
        }
        longest
    }

    /// `L`, the latency that the shield was made for.
    #[must_use]
    pub const fn latency(&self) -> Span {
        self.latency
    }

    /// By how much requests may come early.
    #[must_use]
    pub const fn tolerance(&self) -> Span {
        self.tolerance
    }

    /// The workers that the shield was made for.
    #[must_use]
    pub const fn workers(&self) -> &Workers {
        &self.workers
    }

    /// How many streams like `spec` the shield counts; as many as there may be if it is promised nothing.
    #[must_use]
    pub fn counts(&self, spec: &StreamSpec) -> usize {
        self.counts_alike(spec, digest(spec, spec.constraints().density()))
    }

    /// The same, of a stream whose digest is known.
    pub(crate) fn counts_alike(&self, spec: &StreamSpec, digest: u64) -> usize {
        self.load.alike(spec, digest)
    }

    /// The streams that it counts.
    pub(crate) fn counted(&self) -> &Counted {
        &self.load
    }

    /// The most mandatory requests that wait at once if each starts by `deadline - P` of its arrival.
    #[must_use]
    pub fn most_waiting(&self, deadline: Span) -> u64 {
        let life = deadline.saturating_sub(self.workers.batch_time()) + self.tolerance + Span::from_nanos(1);
        let most = |(density, arrivals, count): (Density, &ArrivalCurve, usize)| {
            density.ceil_of(arrivals.count(life)).saturating_mul(count as u64)
        };
        self.load.iter().map(most).fold(0, u64::saturating_add)
    }

    /// (1) for the first request of the `batch`-th batch that waits, due `within` from now; `others` take more than `P`.
    fn longest_for(&self, within: Span, batch: u64, others: impl Iterator<Item = Span>) -> Span {
        let time = self.workers.batch_time().as_nanos();
        let Some(latest) = within.as_nanos().checked_sub(time) else { return Span::ZERO };
        // What each of the others has begun by then: all but those that are given are free by `P`.
        let prompt = latest / time;
        let fewer = |g: Span| prompt - latest.checked_sub(g.as_nanos()).map_or(0, |rest| rest / time + 1);
        let begun = prompt * (self.workers.count as u64 - 1) - others.map(fewer).sum::<u64>();
        match batch.saturating_sub(begun) {
            0 => self.latency,
            // The acting worker must begin so many batches by `latest` itself.
            own => Span::from_nanos(latest.saturating_sub(time.saturating_mul(own - 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::ArrivalBound;
    use crate::profile::LatencyProfile;

    fn ms(t: u64) -> Span {
        Span::from_millis(t)
    }

    /// At most two requests in any 4 ms, of which `hits` must be answered; one takes 2 ms, within 6 ms.
    fn shield(count: usize, hits: u32) -> Shield {
        let profile = LatencyProfile::new(&[ms(2)]).expect("valid");
        let curve = ArrivalCurve::new(&[ArrivalBound::window(2, ms(4)).expect("valid")]).expect("one");
        let density = Density::new(hits, 2).expect("at most 2");
        Shield::new(&Workers { count, batch: 1, profile }, ms(6), [(density, &curve)]).expect("in range")
    }

    fn longest(shield: &Shield, others: &[u64], due: &[u64]) -> u64 {
        let others = others.iter().map(|&t| ms(t));
        let waiting = due.iter().map(|&t| Instant::ZERO + ms(t));
        shield.longest(Instant::ZERO, others, waiting, Span::ZERO).as_nanos() / 1_000_000
    }

    /// The worked example of `docs/guarantee.md`: one mandatory request comes in each 4 ms. The first, at 0, must
    /// start by 6 - 2 = 4; the second, at 4, by 8, behind the first.
    #[test]
    fn one_worker_by_hand() {
        let shield = shield(1, 1);
        assert_eq!(longest(&shield, &[], &[]), 4);
        // One that waits goes first, and the one to come must start by 4 all the same.
        assert_eq!(longest(&shield, &[], &[20]), 2);
        assert_eq!(longest(&shield, &[], &[3]), 2, "as long as a full batch, whatever waits");
        // In a lull of 1 it may take as much longer, and so may what runs beside it; not if one waits.
        let lull = |due: &[Instant]| shield.longest(Instant::ZERO, empty(), due.iter().copied(), ms(1));
        assert_eq!((lull(&[]), lull(&[Instant::ZERO + ms(20)])), (ms(5), ms(2)));
        assert!(shield.allows(Instant::ZERO, ms(4), empty(), empty()));
        assert!(!shield.allows(Instant::ZERO, ms(4) + Span::from_nanos(1), empty(), empty()));
    }

    /// Two at once, all mandatory, need 2 · 2 + 2 = 6 ms behind what runs, and there are 5: Theorem A says no, and a
    /// lull adds nothing to nothing.
    #[test]
    fn a_load_that_admission_refuses_is_granted_nothing_in_a_lull() {
        let profile = LatencyProfile::new(&[ms(2)]).expect("valid");
        let curve = ArrivalCurve::new(&[ArrivalBound::window(2, ms(40)).expect("valid")]).expect("one");
        let density = Density::new(1, 1).expect("at most 1");
        let shield = Shield::new(&Workers { count: 1, batch: 1, profile }, ms(5), [(density, &curve)]);
        let none = empty::<Instant>();
        assert_eq!(shield.expect("in range").longest(Instant::ZERO, empty(), none, ms(30)), ms(2));
    }

    /// Two in each 4 ms, all mandatory, by 4. The other worker does both if it is free by 2; if it is busy
    /// longer, until 4 it can only do one, and beyond that none.
    #[test]
    fn two_workers_by_hand() {
        let shield = shield(2, 2);
        assert_eq!(longest(&shield, &[0], &[]), 6);
        assert_eq!(longest(&shield, &[2], &[]), 6);
        assert_eq!(longest(&shield, &[3], &[]), 4);
        assert_eq!(longest(&shield, &[4], &[]), 4);
        assert_eq!(longest(&shield, &[5], &[]), 2);
        // One waits, due at 6: three must start by 4, at 2, 4 and 4.
        assert_eq!(longest(&shield, &[0], &[6]), 4);
        assert_eq!(longest(&shield, &[0], &[6, 6]), 2);
        // Due at 4: it must start by 2, where the other worker is.
        assert_eq!(longest(&shield, &[0], &[4]), 4);
        assert_eq!(longest(&shield, &[], &[]), 6, "a worker that is left out takes no more than P");
        assert_eq!(longest(&shield, &[3, 3], &[]), 2, "more than there are");
    }

    #[test]
    fn nothing_promised_is_nothing_to_protect() {
        let profile = LatencyProfile::new(&[ms(2)]).expect("valid");
        let workers = Workers { count: 1, batch: 1, profile };
        let shield = Shield::new(&workers, ms(6), []).expect("in range");
        assert_eq!(longest(&shield, &[], &[]), 6);
        assert_eq!(shield.most_waiting(ms(6)), 0);
        let none = Workers { count: 0, ..workers.clone() };
        assert!(matches!(Shield::new(&none, ms(6), []), Err(ShieldError::Workers { count: 0, .. })));
        let short = Shield::new(&workers, ms(1), []).map(drop);
        assert_eq!(short, Err(ShieldError::Latency { latency: ms(1), time: ms(2) }));
    }
}
