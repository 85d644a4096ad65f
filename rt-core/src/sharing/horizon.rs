//! How far a line is looked at: beyond a distance it holds because the workers are faster than what comes, or because all
//! repeats.

use alloc::vec::Vec;

use super::{Demands, SharedService, Sharing};
use crate::curve::ArrivalCurve;
use crate::growth::{growth, lcm, repetition};
use crate::word::Density;

/// What is nearer to capacity than this part of it is looked at until it repeats.
const NEARLY_ALL: f64 = 1e-9;

/// When a line need no longer be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    /// Beyond this distance it holds.
    over: u64,
    /// From this distance on the counts repeat after this length, by which the workers have done what has come.
    repeat: Option<(u64, u64)>,
}

/// The demand of a service, in workers.
pub(super) fn utilisation(demands: &Demands, service: &SharedService) -> f64 {
    let (rate, _) = envelope(demands);
    rate * service.time.as_nanos() as f64 / service.batch as f64
}

/// `(r, e)` so that never more than `r·Δ + e` mandatory requests come in `Δ` nanoseconds.
pub(super) fn envelope(demands: &Demands) -> (f64, f64) {
    let of = |&(density, curve): &(Density, &ArrivalCurve)| {
        let slowest = curve.slowest();
        let (count, per) = slowest.rate();
        let density = density.as_f64();
        (density * count as f64 / per.as_nanos() as f64, density * slowest.excess_over_rate() as f64 + 1.0)
    };
    demands.iter().map(of).fold((0.0, 0.0), |(r, e), (rate, excess)| (r + rate, e + excess))
}

impl Horizon {
    /// Of the lines of rule E, whatever the times within which requests begin.
    pub(super) fn of_earliest(sharing: &Sharing, demands: &[Demands]) -> Self {
        let services = || sharing.services.iter().zip(demands).filter(|(_, of)| !of.is_empty());
        let (mut slope, mut constant) = (0.0, 0.0);
        for (service, of) in services() {
            let (time, batch) = (service.time.as_nanos() as f64, service.batch as f64);
            let (rate, excess) = envelope(of);
            slope += time * rate / batch;
            constant += time * ((rate + excess) / batch + 1.0);
        }
        let latency = services().map(|(s, _)| (s.latency + sharing.guard).as_nanos()).max().unwrap_or(0);
        let repeat = || {
            let all: Vec<_> = demands.iter().flatten().copied().collect();
            let sizes = services().try_fold(1, |sizes, (s, _)| lcm(sizes, s.batch as u64))?;
            let repetition = repetition(&all, [])?;
            let length = repetition.length.checked_mul(sizes)?;
            let done = |(s, of): (&SharedService, &Demands)| {
                u128::from(s.time.as_nanos()) * u128::from(grown(of, length) / s.batch as u64)
            };
            let work: u128 = services().map(done).sum();
            let keeps_up = work <= sharing.workers as u128 * u128::from(length);
            keeps_up.then_some((repetition.from.checked_add(latency)?, length))
        };
        Self { over: crossing(sharing, slope, constant, latency as f64), repeat: repeat() }
    }

    /// Of the line of rule T for service `s`.
    pub(super) fn of_turns(sharing: &Sharing, demands: &[Demands], s: usize) -> Self {
        let own = &sharing.services[s];
        let (rate, excess) = envelope(&demands[s]);
        let (batches, turns) = (rate / own.batch as f64, rate / own.batch as f64 / f64::from(own.turn));
        let more = (rate + excess) / own.batch as f64 + 1.0;
        let time = own.time.as_nanos() as f64;
        let (mut slope, mut constant) = (time * batches, time * more);
        for (i, other) in sharing.services.iter().enumerate().filter(|&(i, _)| i != s) {
            let (time, turn) = (other.time.as_nanos() as f64, f64::from(other.turn));
            let (rate, excess) = envelope(&demands[i]);
            // At most its turns, and at most what can have come: whichever grows less.
            if turns * turn <= rate {
                slope += time * turns * turn;
                constant += time * turn * (more / f64::from(own.turn) + 1.0);
            } else {
                let ahead = (own.latency + other.latency + sharing.guard + sharing.guard).as_nanos() as f64;
                slope += time * rate;
                constant += time * (rate * (ahead + 1.0) + excess);
            }
        }
        let repeat = || {
            let repetition = repetition(&demands[s], [])?;
            let turn = (own.batch as u64).checked_mul(own.turn.into())?;
            let length = repetition.length.checked_mul(turn)?;
            let cycle: u128 =
                sharing.services.iter().map(|o| u128::from(o.time.as_nanos()) * u128::from(o.turn)).sum();
            let work = cycle * u128::from(grown(&demands[s], length) / turn);
            let keeps_up = work <= sharing.workers as u128 * u128::from(length);
            keeps_up.then_some((repetition.from, length))
        };
        Self { over: crossing(sharing, slope, constant, 0.0), repeat: repeat() }
    }

    /// Whether the counts repeat from before `y` on.
    pub(super) fn is_settled(&self, y: u64) -> bool {
        self.repeat.is_some_and(|(from, _)| y > from)
    }

    /// Whether the line holds at `y` and beyond.
    pub(super) fn is_over(&self, y: u64) -> bool {
        y > self.over
    }

    /// Whether all that comes at `y` and beyond has been seen from `from` on.
    pub(super) fn has_repeated(&self, from: u64, y: u64) -> bool {
        self.repeat.is_some_and(|(_, length)| y > from.saturating_add(length))
    }
}

/// From where on `n·y` is above `n·(g + 2·P̂ + later) + slope·y + constant`, rounding errors included; the longest of all
/// distances if nowhere.
fn crossing(sharing: &Sharing, slope: f64, constant: f64, later: f64) -> u64 {
    let n = sharing.workers as f64;
    let spare = 1.0 - slope / n;
    if spare < NEARLY_ALL {
        return u64::MAX;
    }
    let fixed = (sharing.guard + sharing.longest + sharing.longest).as_nanos() as f64 + later;
    let crossing = (fixed + constant / n) / spare;
    // What is lost in rounding is at most some 10^-15 of capacity, so some 10^-6 of what is spare.
    (crossing * 1.0001) as u64 + 1
}

/// By how many mandatory requests a settled load rises in `length`, of which every density makes whole ones.
fn grown(demands: &Demands, length: u64) -> u64 {
    demands.iter().map(|(density, curve)| density.ceil_of(growth(curve, length))).fold(0, u64::saturating_add)
}
