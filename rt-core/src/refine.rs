//! The refinement of Theorem A: the requests that occupy the workers before a burst are missing from the burst.
//!
//! Theorem A lets every worker be busy for a whole batch time when the burst comes, at no cost. In a *closed*
//! system, where every request is under a declared curve, that takes requests, and they come out of the same
//! curves as the burst. Let `s` be the last batch start at which no mandatory request waits that came before it,
//! `q` the workers busy at `s`, the first of which took its batch at `s - d`. Going back from there, let `u` be
//! the last instant at or before `s - d` at which some worker was idle, and `T = s - d - u`. Then
//!
//! - whatever runs at `s` or was begun since `u` came at or after `u` (eager dispatch; full-or-latest lets
//!   requests wait while a worker idles, up to `L - P` longer);
//! - these are at least `x = Σ b + τ(T) + (n-1)·τ(T - P + 1)` requests, `b` in each batch that runs at `s`, where
//!   `τ(T)` is the least number of requests that keep a worker busy for `T`: the worker that was idle at `u` is busy
//!   from there on, any other may still run a batch that began at least 1 ns before;
//! - the mandatory requests that wait at `s + δ` came within `δ + 1`, and `x` further ones with them within
//!   `δ + 1 + d + T`: stream by stream at most `min(ceil(ρ·α(δ+1)), ceil(ρ·(α(δ+1+d+T) - x_s)))`, `Σ x_s = x`;
//! - the workers are free at 0 (not busy at `s`), or at `P(b)` after a batch of `b`, the first one `d` earlier;
//! - all batches from `s` to the one that answers are full; that one holds what is left of all that has come.
//!
//! Full-or-latest lets fewer than `B` requests wait for as long as `L - P` while a worker is idle: `x` came within
//! `L - P` more, and all but `B - 1` of them as above. A worker that is idle at `s`, with fewer than `B` mandatory
//! requests waiting, is no worse than one blocked by a full batch of them. Late dispatch lengthens every wait by
//! the guard.
//!
//! The worst case over `q`, the sizes `b`, `d`, `T` and the split of `x` replaces the left side of Theorem A. Within the
//! limits below fewer arrivals or more workers never turn a yes into a no; full-or-latest, a longer deadline can.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::admission::{Binding, Dispatch, Load, System, margin};
use crate::growth::{growth, repetition};
use crate::time::Span;
use crate::word::Density;

/// Steps spent at most in one admission; beyond, Theorem A decides alone.
const MAX_STEPS: u64 = 1 << 22;
/// Sets of batch sizes looked at one by one at most; beyond, one request is taken to block a worker for `P`.
const MAX_SHAPES: usize = 256;
/// Workers at most.
const MAX_WORKERS: usize = 64;
/// Requests at most in the batches that keep one worker busy before `s`; longer chains count as free.
const MAX_CHAIN: usize = 64;

/// The batches that run at `s`.
#[derive(Clone, Debug, Default)]
struct Blocking {
    /// How long each lasts, at most one a worker.
    lengths: Vec<u64>,
    /// The requests in them.
    requests: u64,
}

impl Blocking {
    /// By how much a worker can be ahead: one alone is the one that starts at `s`, and one that is ahead by its
    /// whole batch is not busy.
    fn most_ahead(&self) -> u64 {
        if self.lengths.len() < 2 { 0 } else { self.lengths[0] - 1 }
    }
}

/// Looks closer at the instants where Theorem A says no. Times are in nanoseconds.
pub(crate) struct Refinement<'a> {
    load: &'a Load<'a>,
    workers: usize,
    batch: u64,
    /// `P(1), P(2), …, P`.
    times: Vec<u64>,
    time: u64,
    /// `L`.
    latency: u64,
    /// How long any number of requests may wait while a worker is idle, and fewer than `B` longer than that.
    guard: u64,
    patience: u64,
    blockings: Vec<Blocking>,
    chains: Chains,
    steps_left: Cell<u64>,
}

impl<'a> Refinement<'a> {
    /// For identical workers and streams that all declare their arrivals; `load` holds all of them. `None` for
    /// workers of several kinds, or too many.
    pub(crate) fn new(system: &System, load: &'a Load<'a>) -> Option<Self> {
        let [workers] = system.workers.as_slice() else { return None };
        if workers.count > MAX_WORKERS {
            return None;
        }
        let times: Vec<u64> = (1..=workers.batch).map(|b| workers.profile.bound(b).as_nanos()).collect();
        let time = times[workers.batch - 1];
        let latency = system.latency.as_nanos();
        let guard = system.guard.as_nanos();
        let waits = system.dispatch == Dispatch::FullOrLatest && workers.batch > 1;
        let patience = if waits { latency.saturating_sub(time) } else { 0 };
        let blockings = shapes(&times, workers.count);
        let chains = chains(load, &times, workers.count);
        let (workers, batch) = (workers.count, workers.batch as u64);
        let steps_left = Cell::new(MAX_STEPS);
        Some(Self {
            load,
            workers,
            batch,
            times,
            time,
            latency,
            guard,
            patience,
            blockings,
            chains,
            steps_left,
        })
    }

    /// The worst instant from that of `plain`, where Theorem A fails, until before the length `next`, at which
    /// `α_m` rises again.
    pub(crate) fn worst(&self, plain: Binding, next: Span) -> Binding {
        let first = plain.delta.as_nanos();
        // From here on even Theorem A holds.
        let deficit = plain.lhs.as_nanos() - plain.rhs.as_nanos();
        let last = (next.as_nanos() - 2).min(first.saturating_add(deficit - 1));
        let mut worst =
            self.behind(first, plain.backlog, vec![0; self.workers], 0, self.guard + self.patience);
        for blocking in &self.blockings {
            let mut ended = self.chains.repeats;
            for &(busy, more) in &self.chains.list {
                let spent = blocking.requests + more;
                let (window, longer) = (busy + self.guard, busy + self.guard + self.patience);
                if self.arrived(longer.max(1)) < more {
                    // The workers cannot be kept busy for so long.
                    ended = true;
                    break;
                }
                // All that was spent came within the longer window, all but `B - 1` within the shorter one.
                let late = if self.patience > 0 { spent.saturating_sub(self.batch - 1) } else { spent };
                let steps = (spent + 1).saturating_mul(spent + 1).saturating_mul(2 * self.load.len() as u64);
                let Some(instants) = self.instants(first, last, [window, longer], blocking) else {
                    return plain;
                };
                for (delta, shift) in instants {
                    if self.spend(steps).is_none() {
                        return plain;
                    }
                    let k = self.mandatory(delta, longer + shift, spent).min(self.mandatory(
                        delta,
                        window + shift,
                        late,
                    ));
                    let Some(k @ 1..) = k else { continue };
                    for free in self.free_times(blocking, shift) {
                        let found = self.behind(delta, k, free, spent, longer + blocking.most_ahead());
                        if margin(&found) < margin(&worst) {
                            worst = found;
                        }
                    }
                    if margin(&worst) <= margin(&plain) {
                        return plain;
                    }
                }
            }
            if !ended {
                return plain;
            }
        }
        worst
    }

    /// Counts work; `None` once it is too much.
    fn spend(&self, steps: u64) -> Option<()> {
        self.steps_left.set(self.steps_left.get().checked_sub(steps)?);
        Some(())
    }

    /// When the last of `backlog` mandatory requests at offset `delta` is answered, and when it must be. The workers
    /// become free at `free`, none later than `P`; of all that came since `before` ahead of `s`, `spent` are gone.
    fn behind(&self, delta: u64, backlog: u64, mut free: Vec<u64>, spent: u64, before: u64) -> Binding {
        free.sort_unstable();
        let (workers, last) = (self.workers as u64, (backlog.max(1) - 1) / self.batch);
        // A batch that starts a whole P before the last one has ended before it does.
        let ends = (last.saturating_sub(workers)..=last).map(|batch| {
            // The workers take turns in the order in which they become free, since no batch takes longer than P.
            let start = self.time.saturating_mul(batch / workers) + free[(batch % workers) as usize];
            // All batches before this one are full; it holds at most what is left of all that has come.
            let come = self.arrived(before.saturating_add(start).saturating_add(1));
            let size = come.saturating_sub(spent).saturating_sub(batch * self.batch).clamp(1, self.batch);
            start.saturating_add(self.times[size as usize - 1])
        });
        let span = Span::from_nanos;
        let lhs = span(ends.max().unwrap_or(u64::MAX));
        Binding { delta: span(delta), backlog, lhs, rhs: span(delta.saturating_add(self.latency)) }
    }

    /// The instants `δ` in `first..=last`, and by how much the first worker is ahead, that can be the worst.
    ///
    /// What can come rises with `δ`, with the shift, and with their sum. So the worst is where so much has just come: at `first`
    /// and the least shift with which it has, or where the sum rises. Of all with one sum the answer is due later by as much as the
    /// shift is smaller, and comes later by no more than that, but where the worker that is ahead changes places with another,
    /// or its batch, beginning later, holds more. So it is the least shift that is worst, the largest, or one with which
    /// places change. `None` if these are too many.
    fn instants(
        &self,
        first: u64,
        last: u64,
        windows: [u64; 2],
        blocking: &Blocking,
    ) -> Option<Vec<(u64, u64)>> {
        let most = blocking.most_ahead();
        let mut shifts = vec![0, most];
        for (i, length) in blocking.lengths.iter().enumerate() {
            shifts.extend(
                blocking.lengths[i..].iter().map(|other| length - other).filter(|&shift| shift <= most),
            );
        }
        let mut sums = vec![first];
        for window in windows {
            let before = window + 1;
            shifts.extend(self.rises(before, before + most)?.iter().map(|length| length - before));
            sums.extend(
                self.rises(first + before, last + most + before)?.iter().map(|length| length - before),
            );
        }
        [&mut shifts, &mut sums].into_iter().for_each(|list| {
            list.sort_unstable();
            list.dedup();
        });
        let mut found: Vec<(u64, u64)> = shifts.iter().map(|&shift| (first, shift)).collect();
        for &sum in &sums {
            self.spend(shifts.len() as u64 + 2)?;
            let ends = [sum.saturating_sub(last), sum - first];
            let on_line = shifts.iter().copied().chain(ends).filter(|&shift| shift <= most.min(sum - first));
            found.extend(on_line.map(|shift| (sum - shift, shift)).filter(|&(delta, _)| delta <= last));
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    /// The lengths in `after+1..=until` at which the curve of some stream rises; `None` if they are too many.
    fn rises(&self, after: u64, until: u64) -> Option<Vec<u64>> {
        let mut found = Vec::new();
        for (_, arrivals) in self.load {
            let mut at = arrivals.next_rise(Span::from_nanos(after));
            while at.as_nanos() <= until {
                self.spend(self.load.len() as u64)?;
                found.push(at.as_nanos());
                at = arrivals.next_rise(at);
            }
        }
        Some(found)
    }

    /// When the workers become free, for each one that may be ahead by `shift`.
    fn free_times(&self, blocking: &Blocking, shift: u64) -> Vec<Vec<u64>> {
        let mut all = blocking.lengths.clone();
        all.resize(self.workers, 0);
        if shift == 0 {
            return vec![all];
        }
        let ahead = |index: usize| {
            let mut free = all.clone();
            free[index] = free[index].saturating_sub(shift);
            free
        };
        let distinct = |&i: &usize| i == 0 || all[i] != all[i - 1];
        (0..blocking.lengths.len()).filter(distinct).map(ahead).collect()
    }

    /// All that can come within `length`.
    fn arrived(&self, length: u64) -> u64 {
        let length = Span::from_nanos(length);
        self.load.iter().map(|(_, arrivals)| arrivals.count(length)).fold(0, u64::saturating_add)
    }

    /// The most mandatory requests that can wait at `delta` when `spent` requests went before them, which came
    /// at most `window` before `s`; `None` if there are not so many.
    fn mandatory(&self, delta: u64, window: u64, spent: u64) -> Option<u64> {
        let span = Span::from_nanos;
        let spent = usize::try_from(spent).ok()?;
        // By the mandatory requests lost to it, how many requests can be spent.
        let mut spendable = vec![0u64; spent + 1];
        let mut total = 0u64;
        for (density, arrivals) in self.load {
            let most = density.ceil_of(arrivals.count(span(delta + 1)));
            let in_all = arrivals.count(span(delta.saturating_add(1).saturating_add(window)));
            let before = arrivals.count(span(window + 1)).min(in_all);
            let one = |lost: usize| {
                before.min(in_all.saturating_sub(least_holding(*density, most.saturating_sub(lost as u64))))
            };
            for lost in (0..=spent).rev() {
                let best = (0..=lost).map(|own| spendable[lost - own].saturating_add(one(own))).max();
                spendable[lost] = best.unwrap_or(0);
            }
            total = total.saturating_add(most);
        }
        let lost = spendable.iter().position(|&s| s >= spent as u64)?;
        Some(total.saturating_sub(lost as u64))
    }
}

/// The least number of consecutive requests that can hold `mandatory` mandatory ones.
fn least_holding(density: Density, mandatory: u64) -> u64 {
    let (p, q) = (u64::from(density.numerator()), u64::from(density.denominator()));
    match mandatory.checked_sub(1) {
        Some(before) if p > 0 => before.saturating_mul(q) / p + 1,
        _ => 0,
    }
}

/// How long all workers can have been busy before the first blocking batch.
struct Chains {
    /// `(T, τ(T) + (n-1)·τ(T - P + 1))`, at the longest `T` for each number of requests.
    list: Vec<(u64, u64)>,
    /// Any longer `T` is no worse than one of the list.
    repeats: bool,
}

/// `τ(T) = ceil(T/g)`, with `g` the longest batch time a request.
///
/// Let every curve grow by at most `a_s` in any `H` more, and `Σ a_s ≤ n·floor(H/g)`. Then `T + H` is no worse
/// than `T ≥ P`: take `a_s` requests from what is spent of each stream, and as many from what can come.
fn chains(load: &Load, times: &[u64], workers: usize) -> Chains {
    let ratio = |&(b, &t): &(usize, &u64)| (u128::from(t) << 64) / (b as u128 + 1);
    let (slow, &slowest) = times.iter().enumerate().max_by_key(ratio).unwrap_or((0, &1));
    let (per, requests) = (u128::from(slowest), slow as u128 + 1);
    let time = times[times.len() - 1];
    let least = |t: u64| (u128::from(t) * requests).div_ceil(per) as u64;
    let longest = |count: usize| (count as u128 * per / requests) as u64;
    let mut list: Vec<_> = (0..=MAX_CHAIN).flat_map(|i| [longest(i), longest(i) + time - 1]).collect();
    list.sort_unstable();
    list.dedup();
    list.retain(|&t| t <= longest(MAX_CHAIN));
    let repetition = repetition(load, []).filter(|r| {
        let grown = load.iter().map(|(_, a)| growth(a, r.length)).fold(0, u64::saturating_add);
        u128::from(grown) <= workers as u128 * (u128::from(r.length) * requests / per)
    });
    let end = repetition.and_then(|r| r.length.checked_add(r.from.max(time)));
    let end = end.filter(|&end| end <= longest(MAX_CHAIN));
    let last = list.partition_point(|&t| t < end.unwrap_or(u64::MAX));
    list.truncate(last + 1);
    let others = |t: u64| (workers as u64 - 1) * least((t + 1).saturating_sub(time));
    let list = list.into_iter().map(|t| (t, least(t) + others(t))).collect();
    Chains { list, repeats: end.is_some() }
}

/// The sets of batches that may block up to `workers` workers, from the largest to the smallest size in each.
fn shapes(times: &[u64], workers: usize) -> Vec<Blocking> {
    let mut all = vec![(Blocking::default(), times.len())];
    let mut next = 0;
    while next < all.len() {
        let (blocking, largest) = all[next].clone();
        next += 1;
        if blocking.lengths.len() == workers {
            continue;
        }
        if all.len() > MAX_SHAPES {
            let one = |count: usize| Blocking {
                lengths: vec![times[times.len() - 1]; count],
                requests: count as u64,
            };
            return (1..=workers).map(one).collect();
        }
        for size in 1..=largest {
            let mut more = blocking.clone();
            more.lengths.push(times[size - 1]);
            more.requests += size as u64;
            all.push((more, size));
        }
    }
    all.into_iter().map(|(blocking, _)| blocking).filter(|b| !b.lengths.is_empty()).collect()
}
