//! Theorem A, rise by rise of the mandatory curve.

use super::problem::{Absorbed, Bound, Kind, Stream, System, up};
use super::{MAX_STEPS, UNCONFIRMED};

/// An instant of the inequality `lhs ≤ rhs`.
#[derive(Clone, Copy)]
pub(super) struct Instant {
    pub(super) delta: i128,
    pub(super) backlog: i128,
    pub(super) lhs: i128,
    pub(super) rhs: i128,
}

/// What follows where the inequality holds.
pub(super) struct Derived {
    pub(super) tightest: Instant,
    /// Whether the refinement decided at the tightest instant.
    pub(super) refined: bool,
    pub(super) waiting: i128,
    /// `None` if only a repetition ended the walk.
    pub(super) busy: Option<i128>,
}

impl System {
    /// `min{ u : σ(u) ≥ α_m(δ + 1) } + P_max ≤ δ + L` wherever `α_m` rises, until a busy period must have ended.
    ///
    /// Let a mandatory request come at `s + δ`, where `s` is the last batch start before its own that left none
    /// waiting that had come before. No more than `α_m` of any length below `next` come before `s + next - 1`, and if
    /// `begun < next`, all these are begun by then. Were `δ ≥ next - 1`, the batch that begins the last of them would
    /// be a later such start. So no length from `next` on needs a look. This counts only what comes from `s` on, so
    /// it does not matter whether the bounds of a stream agree with one another.
    ///
    /// At capacity that need not happen. But beyond `from`, `α_m` gains in every `period` the same number, which the
    /// workers begin in a `period` too: the inequality there follows from the one a `period` earlier.
    pub(super) fn test(&self, refine: bool) -> Result<Derived, String> {
        if self.absorbed.is_none() {
            return self.tested(refine);
        }
        let streams: Option<Vec<_>> = self.dense().into_iter().collect();
        let streams = streams.ok_or("stalls make more requests miss than constraints have room for")?;
        Self { streams, ..self.clone() }.tested(refine)
    }

    fn tested(&self, refine: bool) -> Result<Derived, String> {
        let begun_by = |u| self.begun_by(u);
        let slowest = self.kinds.iter().map(Kind::time).max().unwrap_or(0);
        let filling = self.kinds.iter().map(|k| k.times.len() as i128 - 1).max().unwrap_or(0);
        let gain = |period| self.streams.iter().map(|s| s.p * s.growth(period) / s.q).sum::<i128>();
        self.stalls_are_rare()?;
        let repetition = self.repetition(1).filter(|&(_, period)| gain(period) <= begun_by(period));
        let mut demand: Vec<_> = self.streams.iter().filter(|s| s.p > 0).map(|s| (s, 0, 1)).collect();
        let (mut length, mut begun, mut waiting) = (1, 0, 0);
        let (mut tightest, mut least, mut refined, mut steps) = (None, i128::MAX, false, 0);
        for _ in 0..MAX_STEPS {
            for (stream, mandatory, next) in demand.iter_mut().filter(|d| d.2 == length) {
                *mandatory = stream.mandatory(length);
                *next = stream.rise(length);
            }
            let backlog = demand.iter().map(|d| d.1).sum();
            let next = demand.iter().map(|d| d.2).min().unwrap_or(i128::MAX);
            begun = self.time_to_begin(backlog, begun);
            let (delta, mut lhs, rhs) = (length - 1, begun + slowest, length - 1 + self.latency);
            // What is due at `delta` itself, or less than the guard before, may still wait.
            waiting = waiting.max((backlog - begun_by((delta - self.guard - 1).max(0))).max(0) + filling);
            let refine = refine && lhs > rhs;
            if refine {
                // From `delta + lhs - rhs` on it holds as it is.
                lhs = rhs - self.least_margin(delta, (next - 1).min(delta + lhs - rhs), &mut steps)?;
            }
            if lhs > rhs {
                return Err(format!("{backlog} by {delta} ns need {lhs} ns, there are {rhs} ns"));
            }
            if rhs - lhs < least {
                (tightest, least, refined) = (Some(Instant { delta, backlog, lhs, rhs }), rhs - lhs, refine);
            }
            // And what was lost before the first round may still wait behind all of it.
            let repeats = repetition.is_some_and(|(from, period)| length > from + period + self.guard + 1);
            if let Some(tightest) = tightest.filter(|_| begun < next || repeats) {
                // From a period on, another walk may take the repetition for the end.
                let ends = begun < next && repetition.is_none_or(|(_, period)| length <= period);
                // What comes at the end of the busy period may still find the last of it waiting.
                let end = begun + self.guard + 1;
                if ends && end >= next {
                    let come: i128 = demand.iter().map(|d| d.0.mandatory(end)).sum();
                    waiting = waiting.max((come - begun_by((next - self.guard - 2).max(0))).max(0) + filling);
                }
                return Ok(Derived { tightest, refined, waiting, busy: ends.then_some(begun) });
            }
            length = next;
        }
        Err(format!("{UNCONFIRMED}: the busy period has more than {MAX_STEPS} rises"))
    }

    /// No two windows of stalls meet in what a request can see: behind a delay of a deadline `D` the workers have caught
    /// up after `busy`, the least length with `D + min{ u : σ(u) ≥ α_m(busy) } ≤ busy`, and a stall that begins
    /// by another `D` ends a stall later.
    fn stalls_are_rare(&self) -> Result<(), String> {
        let Some((window, length)) = self.stalls else { return Ok(()) };
        let deadline = self.latency + self.guard;
        if let Some(absorbed) = self.absorbed {
            return self.stalls_are_absorbed(absorbed, (window, length), deadline);
        }
        self.caught_up(deadline, |busy| {
            let needed = busy + deadline + length;
            if needed <= window {
                Ok(())
            } else {
                Err(format!("stalls must be {needed} ns apart, not {window}"))
            }
        })
    }

    /// Behind all stalls of a window, and what is late by a guard in reading and in dispatch, the workers have caught up within the
    /// recovery; and no more than these stalls meet what a stream sends at its full rate of as many requests as a constraint counts.
    fn stalls_are_absorbed(
        &self,
        Absorbed { count, recovery }: Absorbed,
        (window, length): (i128, i128),
        deadline: i128,
    ) -> Result<(), String> {
        same_kind(&self.kinds)?;
        let spans = self.streams.iter().filter_map(|s| {
            let longest = s.constraints.iter().map(|c| c.1).max()?;
            s.bounds.iter().map(|b| up(longest * b.step, b.count()) + b.shift).max()
        });
        let needed = recovery + length.max(deadline + spans.max().unwrap_or(0));
        if needed > window {
            return Err(format!("stalls must be {needed} ns apart, not {window}"));
        }
        self.caught_up(count * length + 2 * self.guard, |busy| {
            if busy <= recovery {
                Ok(())
            } else {
                Err(format!("the workers catch up in {busy} ns, not {recovery}"))
            }
        })
    }

    /// The workers begin all that comes behind a `delay` within what is `allowed`, the length of a busy period.
    fn caught_up(&self, delay: i128, allowed: impl Fn(i128) -> Result<(), String>) -> Result<(), String> {
        let mut busy = delay;
        for _ in 0..MAX_STEPS {
            allowed(busy)?;
            let backlog = self.streams.iter().filter(|s| s.p > 0).map(|s| s.mandatory(busy)).sum();
            let longer = delay + self.time_to_begin(backlog, 0);
            if longer <= busy {
                return Ok(());
            }
            busy = longer;
        }
        Err(format!("{UNCONFIRMED}: the busy period behind a delay has more than {MAX_STEPS} rises"))
    }

    /// `σ(u)`.
    fn begun_by(&self, u: i128) -> i128 {
        self.kinds.iter().map(|k| k.round() * (u / k.time())).sum()
    }

    /// `min{ u : σ(u) ≥ backlog }`, which is known to be `begun` or later.
    fn time_to_begin(&self, backlog: i128, mut begun: i128) -> i128 {
        // One kind alone has begun them all by `high`.
        let mut high = self.kinds.iter().map(|k| up(backlog, k.round()) * k.time()).min().unwrap_or(0);
        while begun < high {
            let middle = (begun + high) / 2;
            (begun, high) =
                if self.begun_by(middle) < backlog { (middle + 1, high) } else { (begun, middle) };
        }
        begun
    }

    /// Of all streams, in whole batches of each kind, and `times` of its time.
    pub(super) fn repetition(&self, times: i128) -> Option<(i128, i128)> {
        let whole = self.kinds.iter().try_fold(times, |whole, kind| lcm(whole, kind.time()))?;
        repetition(&self.streams, whole)
    }
}

impl Kind {
    /// `P`, the time of a full batch.
    pub(super) fn time(&self) -> i128 {
        self.times[self.times.len() - 1]
    }

    /// The requests in one full batch of each.
    fn round(&self) -> i128 {
        self.count * self.times.len() as i128
    }
}

impl Stream {
    pub(super) fn slowest(&self) -> Option<&Bound> {
        self.bounds.iter().min_by(|a, b| (a.count() * b.step).cmp(&(b.count() * a.step)))
    }

    /// The next length at which the least of all bounds is larger.
    pub(super) fn rise(&self, length: i128) -> i128 {
        let most = self.most(length).unwrap_or(0);
        self.bounds.iter().map(|b| b.least_above(most)).max().unwrap_or(i128::MAX)
    }

    /// By how many requests the curve grows in a `period` of [`System::repetition`].
    pub(super) fn growth(&self, period: i128) -> i128 {
        self.slowest().map_or(0, |b| b.count() * (period / b.step))
    }
}

/// `(from, period)`: from lengths above `from` on each curve grows by the same number of requests, and so do the
/// mandatory ones, in any `period` more, which is a multiple of `whole`.
pub(super) fn repetition<'a>(
    streams: impl IntoIterator<Item = &'a Stream>,
    mut whole: i128,
) -> Option<(i128, i128)> {
    let (mut from, mut words) = (0, 1);
    for (stream, b) in streams.into_iter().flat_map(|s| s.bounds.iter().map(move |b| (s, b))) {
        (whole, words) = (lcm(whole, b.step)?, lcm(words, stream.q)?);
        let slow = stream.slowest()?;
        // α_b(Δ) ≥ Δ·count/step - count, and for the slowest α(Δ) ≤ Δ·count/step + α(step).
        let gain = b.count() * slow.step - slow.count() * b.step;
        let behind = (b.count() + slow.most(slow.step).0).checked_mul(b.step * slow.step)?;
        from = from.max(if gain > 0 { up(behind, gain) } else { 0 });
    }
    Some((from, whole.checked_mul(words).filter(|&period| period < 1 << 64)?))
}

pub(super) fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(super) fn lcm(a: i128, b: i128) -> Option<i128> {
    (a / gcd(a, b)).checked_mul(b).filter(|&l| l < 1 << 64)
}

fn same_kind(kinds: &[Kind]) -> Result<(), String> {
    if kinds.len() == 1 { Ok(()) } else { Err("stalls are absorbed by workers of one kind only".to_owned()) }
}
