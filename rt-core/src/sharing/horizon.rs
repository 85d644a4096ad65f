//! How far a line is looked at: beyond a distance it is less tight than others because the workers are faster than what
//! comes, or because all repeats.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::{Demands, SharedService, Sharing};
use crate::growth::{Envelope, growth, lcm, repetition};

/// What is nearer to capacity than this part of it is looked at until it repeats.
const NEARLY_ALL: f64 = 1e-9;
/// Far more than what is lost in rounding, far less than what is spare.
const ROUNDING: f64 = 1e-11;

impl Envelope {
    /// The demand of a service, in workers.
    pub(super) fn utilisation(self, service: &SharedService) -> f64 {
        self.rate * service.time.as_nanos() as f64 / service.batch as f64
    }
}

/// The work that a line counts is never above `Σ max(0, slope·y + constant)`.
///
/// So what `n` workers can have done by `y` gains on it faster and faster; once it is ahead, it stays.
pub(super) struct Ceiling {
    workers: f64,
    lines: Vec<(f64, f64)>,
    slope: f64,
}

impl Ceiling {
    pub(super) fn new(workers: usize) -> Self {
        Self { workers: workers as f64, lines: Vec::new(), slope: 0.0 }
    }

    /// Counts `weight` for each mandatory request in lengths of `y + more`, and for so many `others`.
    pub(super) fn count(&mut self, weight: f64, of: Envelope, more: f64, others: f64) {
        let slope = weight * of.rate * (1.0 + ROUNDING);
        let constant = weight * (of.rate * more + of.excess + others);
        let rounding = ROUNDING * weight * (of.rate * more.abs() + of.excess + others.abs());
        self.lines.push((slope, constant + rounding));
        self.slope += slope;
    }

    /// What is counted at `y` at most.
    pub(super) fn at(&self, y: f64) -> f64 {
        self.lines.iter().map(|(slope, constant)| (slope * y + constant).max(0.0)).sum()
    }

    /// Whether it rises more slowly than the workers work.
    pub(super) fn is_caught_up_with(&self) -> bool {
        self.workers - self.slope >= NEARLY_ALL * self.workers
    }

    /// The first distance, not before `from`, where the workers, who begin so much work late, are ahead of all that is counted; the
    /// end of time if there is none.
    pub(super) fn ahead_from(&self, from: u64, late: f64) -> u64 {
        if !self.is_caught_up_with() {
            return u64::MAX;
        }
        let late = late + ROUNDING * late.abs() + 1.0;
        let mut y = from as f64;
        // From one bend to the next at most.
        for step in 0..self.lines.len() + 2 {
            let (mut ahead, mut gain) = (self.workers * y - late, self.workers);
            for (slope, constant) in &self.lines {
                let work = slope * y + constant;
                if work > 0.0 {
                    (ahead, gain) = (ahead - work, gain - slope);
                }
            }
            if ahead >= 0.0 {
                return if step == 0 { from } else { (y as u64).saturating_add(1) };
            }
            y += 1.0 - ahead / gain * (1.0 + ROUNDING);
        }
        u64::MAX
    }
}

/// From this distance on the counts repeat after this length, by which the workers have done what has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    pub(super) from: u64,
    pub(super) length: u64,
}

impl Repeat {
    /// Of the lines of rule E, whatever the times within which requests begin.
    pub(super) fn of_earliest(sharing: &Sharing, demands: &[Demands]) -> Option<Self> {
        let services = || sharing.services.iter().zip(demands).filter(|(_, of)| !of.is_empty());
        let latency = services().map(|(s, _)| (s.latency + sharing.guard).as_nanos()).max().unwrap_or(0);
        let all: Vec<_> = demands.iter().flatten().copied().collect();
        let sizes = services().try_fold(1, |sizes, (s, _)| lcm(sizes, s.batch as u64))?;
        let repetition = repetition(&all, [])?;
        let length = repetition.length.checked_mul(sizes)?.checked_mul(sharing.shares(demands))?;
        let done = |(s, of): (&SharedService, &Demands)| {
            u128::from(s.time.as_nanos()) * u128::from(grown(of, length) / s.batch as u64)
        };
        let keeps_up = services().map(done).sum::<u128>() <= sharing.workers as u128 * u128::from(length);
        keeps_up.then_some(Self { from: repetition.from.checked_add(latency)?, length })
    }

    /// Of the line of rule T for service `s`, if turns of the others grow so fast against what can come of them.
    pub(super) fn of_turns(
        sharing: &Sharing,
        demands: &[Demands],
        s: usize,
        grows: &[Ordering],
    ) -> Option<Self> {
        let turn = sharing.turn(s);
        let arriving = (0..demands.len()).filter(|&i| i == s || grows[i].is_ge());
        let all: Vec<_> = arriving.flat_map(|i| &demands[i]).copied().collect();
        let repetition = repetition(&all, [])?;
        let length = repetition.length.checked_mul(turn)?.checked_mul(sharing.shares(demands))?;
        let turns = grown(&demands[s], length) / turn;
        let mut work = 0;
        for (i, own) in sharing.services.iter().enumerate() {
            let (taken, come) = (turns.saturating_mul(own.turn.into()), grown(&demands[i], length));
            let batches = match grows[i] {
                _ if i == s => taken,
                Ordering::Less => taken,
                // Only if they are as many does the lesser of both repeat.
                Ordering::Equal if taken != come => return None,
                _ => come,
            };
            work += u128::from(own.time.as_nanos()) * u128::from(batches);
        }
        let keeps_up = work <= sharing.workers as u128 * u128::from(length);
        keeps_up.then_some(Self { from: repetition.from, length })
    }
}

impl Sharing {
    /// Whether all batches that count take the same time. Then the number of batches never says less than the average does.
    pub(super) fn is_uniform(&self, demands: &[Demands]) -> bool {
        let mut times =
            self.services.iter().zip(demands).filter(|(_, of)| !of.is_empty()).map(|(s, _)| s.time);
        times.next().is_none_or(|first| times.all(|time| time == first))
    }

    /// The requests in a turn of service `s`.
    pub(super) fn turn(&self, s: usize) -> u64 {
        self.services[s].batch as u64 * u64::from(self.services[s].turn)
    }

    /// After so many periods a share that never becomes the average repeats: when each worker has got one more of them.
    fn shares(&self, demands: &[Demands]) -> u64 {
        if self.is_uniform(demands) { self.workers as u64 } else { 1 }
    }
}

/// By how many mandatory requests a settled load rises in `length`, of which every density makes whole ones.
fn grown(demands: &Demands, length: u64) -> u64 {
    demands.iter().map(|(density, curve)| density.ceil_of(growth(curve, length))).fold(0, u64::saturating_add)
}
