//! The refinement of Theorem A by brute force, as the page of `rt_core::refine` states it.

use super::UNCONFIRMED;
use super::problem::{System, up};
use super::theorem::gcd;

/// The most splits of requests over streams that are looked at.
const MAX_STEPS: i128 = 1 << 26;

impl System {
    /// Whether the refinement has a say: workers of one kind without stalls, and no request that is under no curve.
    pub(super) fn closed(&self) -> bool {
        self.kinds.len() == 1
            && self.stalls.is_none()
            && !self.background
            && self.streams.iter().all(|s| !s.bounds.is_empty())
    }

    /// The tick: all times are multiples of it.
    pub(super) fn tick(&self) -> i128 {
        self.clone().times().map(|t| *t).fold(0, gcd)
    }

    /// The smallest margin at any `δ` in `from..until`, which are ticks: rounded down to nanoseconds, and wrong by
    /// less than a tick, but never in its sign.
    ///
    /// `δ`, `d` and `T` are any nanoseconds, but within a tick only matters which of them are whole, and between
    /// which ticks `δ + d`, `d + T`, `δ + d + T` and `T - d` are. Quarters of a tick take all combinations that
    /// any finer division takes. What keeps a worker busy changes at parts of a batch time, which become ticks.
    ///
    /// `steps` counts the work, over all calls.
    pub(super) fn least_margin(&self, from: i128, until: i128, steps: &mut i128) -> Result<i128, String> {
        let times = &self.kinds[0].times;
        // The batch of the longest time a request.
        let slow =
            (1..=times.len() as i128).zip(times).reduce(|a, b| if b.1 * a.0 > a.1 * b.0 { b } else { a });
        let (size, tick) = (slow.map_or(1, |s| s.0), self.tick());
        // Nothing is finer than a nanosecond.
        let parts = (4 * size).min(tick);
        let fine = |t: i128| t / tick * parts;
        let mut system = self.clone();
        system.times().for_each(|t| *t = fine(*t));
        let margin = system.brute_force(size, fine(from)..fine(until), steps)?;
        Ok((margin * tick).div_euclid(parts))
    }

    fn brute_force(
        &self,
        size: i128,
        deltas: std::ops::Range<i128>,
        steps: &mut i128,
    ) -> Result<i128, String> {
        let (kind, mut least) = (&self.kinds[0], i128::MAX);
        *steps += kind.count.pow(4);
        let (workers, batch, time) = (kind.count, kind.times.len() as i128, kind.time());
        let per = kind.times[size as usize - 1];
        // τ(T) + (n-1)·τ(T - P + 1)
        let busy = |t: i128| up(t.max(0) * size, per);
        let chain = |t: i128| busy(t) + (workers - 1) * busy(t - time + 1);
        let patience = if self.full_or_latest && batch > 1 { (self.latency - time).max(0) } else { 0 };
        let arrived = |length: i128| self.streams.iter().map(|s| s.most(length).unwrap_or(0)).sum::<i128>();
        // Beyond, a whole period more spends all that can come in it.
        let repeats = self.repetition(per).filter(|&(_, period)| {
            self.streams.iter().map(|s| s.growth(period)).sum::<i128>() <= workers * busy(period)
        });
        let end = repeats.map_or(i128::MAX, |(from, period)| from.max(time) + period);
        let mut shapes = vec![vec![]];
        while let Some(shape) = shapes.pop() {
            if shape.len() < kind.count as usize {
                let smaller = 1..=shape.last().copied().unwrap_or(kind.times.len());
                shapes.extend(smaller.map(|b| [&shape[..], &[b]].concat()));
            }
            let lengths: Vec<i128> = shape.iter().map(|&b| kind.times[b - 1]).collect();
            let ahead = if shape.len() < 2 { 0 } else { lengths[0] - 1 };
            for t in 0..if shape.is_empty() { 1 } else { end } {
                let (short, long) = (t + self.guard, t + self.guard + patience);
                if long > 0 && arrived(long) < chain(t) {
                    break;
                }
                // A longer T that takes no more requests is worse.
                *steps += 1;
                if !shape.is_empty() && t + 1 < end && chain(t + 1) == chain(t) && *steps < MAX_STEPS {
                    continue;
                }
                let spent = shape.iter().map(|&b| b as i128).sum::<i128>() + chain(t);
                let late = if patience > 0 { (spent - batch + 1).max(0) } else { spent };
                for (d, delta) in (0..=ahead).flat_map(|d| deltas.clone().map(move |delta| (d, delta))) {
                    *steps += (spent + 1) * (spent + 1) * self.streams.len() as i128;
                    if *steps > MAX_STEPS {
                        return Err(format!(
                            "{UNCONFIRMED}: too fine, or too many workers, for the refinement"
                        ));
                    }
                    let all = self.left(delta, long + d, spent).min(self.left(delta, short + d, late));
                    let Some(k @ 1..) = all else { continue };
                    for first in 0..shape.len().max(1) {
                        let mut free = lengths.clone();
                        free.resize(workers as usize, 0);
                        free[first] = (free[first] - d).max(0);
                        free.sort_unstable();
                        let last = (k - 1) / batch;
                        for j in (last - workers).max(0)..=last {
                            let start = j / workers * time + free[(j % workers) as usize];
                            let size = arrived(long + ahead + start + 1) - spent - j * batch;
                            let answer = start + kind.times[size.clamp(1, batch) as usize - 1];
                            least = least.min(delta + self.latency - answer);
                            if least < 0 {
                                return Ok(least);
                            }
                        }
                    }
                }
            }
        }
        Ok(least)
    }

    /// The most mandatory requests that can wait at `delta` if `spent` others came at most `before` earlier than 0.
    fn left(&self, delta: i128, before: i128, spent: i128) -> Option<i128> {
        // By how many were spent of the streams so far.
        let mut most = vec![None; spent as usize + 1];
        most[0] = Some(0);
        for stream in &self.streams {
            let all = stream.most(delta + 1 + before)?;
            let mut next = vec![None; most.len()];
            for (j, so_far) in most.iter().enumerate() {
                for own in 0..=stream.most(before + 1)?.min(all).min(spent - j as i128) {
                    let waiting = stream.mandatory(delta + 1).min(up(stream.p * (all - own), stream.q));
                    let place = &mut next[j + own as usize];
                    *place = (*place).max(so_far.map(|s: i128| s + waiting));
                }
            }
            most = next;
        }
        most[spent as usize]
    }

    /// Everything that is a time.
    fn times(&mut self) -> impl Iterator<Item = &mut i128> {
        let bounds = self.streams.iter_mut().flat_map(|s| &mut s.bounds);
        let spans =
            bounds.flat_map(|b| b.starts.iter_mut().map(|s| &mut s.0).chain([&mut b.step, &mut b.shift]));
        let kinds = self.kinds.iter_mut().flat_map(|k| &mut k.times);
        spans.chain(kinds).chain([&mut self.latency, &mut self.guard])
    }

    /// All streams so many thousandths times as fast.
    pub(super) fn hasten(&mut self, thousandths: i128) -> Option<()> {
        self.streams.iter_mut().flat_map(|s| &mut s.bounds).try_for_each(|bound| bound.hasten(thousandths))
    }
}
