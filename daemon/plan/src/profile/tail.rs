//! P(b) from the times of one batch size: the quantile that they support, or that of their fitted tail, or else the longest
//! with a margin.

mod clusters;
mod goodness;
mod pareto;
mod supported;

use serde::{Deserialize, Serialize};

use super::ProfileError;
use clusters::extremal_index;
use goodness::{ACCEPT, Goodness};
pub(crate) use pareto::Pareto;
use supported::supported;

/// The share by which a bound lies above the longest time seen where there is no tail, unless told otherwise.
pub const DEFAULT_MARGIN: f64 = 0.10;
/// The largest margin: a bound of eleven times the longest time seen.
pub(crate) const MAX_MARGIN: f64 = 10.0;
/// The probability with which a batch may exceed P(b), unless told otherwise.
pub const DEFAULT_EXCEEDANCE: f64 = 1e-4;
/// The largest such probability; beyond it nothing is a tail.
pub(crate) const MAX_EXCEEDANCE: f64 = 0.1;
/// A tail is followed to at most a tenth of what the sample shows, for beyond that every guess is as good.
const REACH: f64 = 0.1;
/// The shares of the sample that are tried as tail, largest first.
const SHARES: [f64; 9] = [0.20, 0.15, 0.10, 0.075, 0.05, 0.035, 0.025, 0.015, 0.01];
/// The fewest clusters of excesses, and different values of them, that a tail is fitted to: with fewer the test of the fit
/// accepts almost anything.
const FEWEST: usize = 50;
/// The most: of a large sample the tail may begin higher, where the limit theorem holds better.
const MOST: usize = 1000;
/// The largest standard error of a quantile, as a share of it: what is known no better is not known. Heavy tails need
/// many times for that.
const UNSURE: f64 = 0.25;

/// How P(b) is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rule {
    exceedance: f64,
    margin: f64,
    longest: bool,
}

/// P(b) of one batch size, and what it was made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// In nanoseconds; below the longest time only where it is a quantile that the runs support.
    pub bound_ns: u64,
    /// Which of the ways.
    pub basis: Basis,
    /// The tail that P(b) is a quantile of, or the best of those that were rejected.
    pub tail: Option<Tail>,
}

/// What a bound rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The quantile, which so many runs support without a fit.
    Quantile,
    /// The quantile of a fitted tail and its standard error, or the longest time if that is longer.
    Tail,
    /// The longest time with the margin, for there were too few times, or too few long ones that differ.
    Few,
    /// The longest time with the margin, for the long times do not look like a tail.
    Rejected,
    /// The longest time with the margin, for the tail is too heavy to be followed so far with so few times.
    Unsure,
    /// The longest time with the margin, as asked for.
    Longest,
}

/// A fitted tail, rounded, so that everybody can compute P(b) from what is written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// Where the tail begins.
    pub threshold_ns: u64,
    /// ξ of `Pareto`.
    pub shape: f64,
    /// σ of `Pareto`, in nanoseconds.
    pub scale_ns: u64,
    /// Times above the threshold.
    pub excesses: usize,
    /// θ: 1/θ of them come together on average.
    pub extremal_index: f64,
    /// A² of the fit.
    pub anderson_darling: f64,
    /// The share of samples drawn from the fit that fit no better.
    pub p_value: f64,
}

impl Rule {
    /// P(b) that a batch exceeds with probability `exceedance` at most, as far as the runs tell; where that cannot be said, or if `longest` is set, the
    /// longest time and `margin` of it.
    ///
    /// # Errors
    /// An exceedance outside (0, `MAX_EXCEEDANCE`], a margin outside 0..=`MAX_MARGIN`.
    pub fn new(exceedance: f64, margin: f64, longest: bool) -> Result<Self, ProfileError> {
        if !(0.0..=MAX_MARGIN).contains(&margin) {
            return Err(ProfileError::Margin { margin });
        }
        if !(exceedance > 0.0 && exceedance <= MAX_EXCEEDANCE) {
            return Err(ProfileError::Exceedance { exceedance });
        }
        Ok(Self { exceedance, margin, longest })
    }

    /// The probability asked for.
    pub fn exceedance(&self) -> f64 {
        self.exceedance
    }

    /// The share asked for.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// The fewest times of which a tail can be followed as far as asked for.
    pub fn fewest(&self) -> usize {
        if self.longest { 1 } else { (REACH / self.exceedance).ceil() as usize }
    }

    /// P(b) from times in nanoseconds, in the order in which they were measured; at least 1.
    pub fn bound(&self, times: &[u64]) -> Bound {
        let (n, exceedance) = (times.len(), self.exceedance);
        let max = times.iter().copied().max().unwrap_or(0);
        if let Some(bound) = supported(times, exceedance).filter(|_| !self.longest) {
            return Bound { bound_ns: bound.max(1), basis: Basis::Quantile, tail: None };
        }
        let tail = if self.longest || n < self.fewest() { None } else { Tail::fit(times) };
        let quantile = tail.map(|tail| (tail.quantile(exceedance, n), tail.error(exceedance, n)));
        let basis = match (&tail, quantile) {
            _ if self.longest => Basis::Longest,
            (Some(tail), _) if tail.p_value < ACCEPT => Basis::Rejected,
            (Some(_), Some((quantile, error))) if error as f64 <= UNSURE * quantile as f64 => Basis::Tail,
            (Some(_), _) => Basis::Unsure,
            (None, _) => Basis::Few,
        };
        let wanted = match quantile {
            Some((quantile, error)) if basis == Basis::Tail => quantile.saturating_add(error),
            _ => max.saturating_add((max as f64 * self.margin).ceil() as u64),
        };
        Bound { bound_ns: wanted.max(max).max(1), basis, tail }
    }
}

impl Tail {
    /// The tail that begins lowest of those that the sample does not speak against (Bader, Yan and Zhang 2018), or else
    /// the best of the others. `None` if there are too few long times for any.
    ///
    /// All times above the threshold are fitted, also those of one cluster: what is wanted is how often any one batch is
    /// long, and the longest of each cluster would tell of these alone. Clusters make a sample worth less, so they are
    /// what must be many. They also make the test stricter than it says, never laxer.
    fn fit(times: &[u64]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let mut best: Option<Self> = None;
        for share in SHARES {
            let count = (share * times.len() as f64) as usize;
            if !(FEWEST..=MOST).contains(&count) {
                continue;
            }
            let threshold_ns = sorted[times.len() - 1 - count];
            let Some(tail) = Self::above(threshold_ns, times, &sorted) else { continue };
            if tail.p_value >= ACCEPT {
                return Some(tail);
            }
            if best.is_none_or(|best| tail.p_value > best.p_value) {
                best = Some(tail);
            }
        }
        best
    }

    fn above(threshold_ns: u64, times: &[u64], sorted: &[u64]) -> Option<Self> {
        let tail = &sorted[sorted.partition_point(|&time| time <= threshold_ns)..];
        let different = 1 + tail.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let places: Vec<usize> = (0..times.len()).filter(|&i| times[i] > threshold_ns).collect();
        let index = extremal_index(&places, times.len());
        let clusters = (index * tail.len() as f64) as usize;
        if clusters.min(different) < FEWEST {
            return None;
        }
        let excesses: Vec<f64> = tail.iter().map(|&time| (time - threshold_ns) as f64).collect();
        let fit = Pareto::fit(&excesses)?;
        let goodness = Goodness::of(&fit, &excesses);
        let round = |value: f64| (value * 1e4).round() / 1e4;
        Some(Self {
            threshold_ns,
            shape: round(fit.shape),
            scale_ns: (fit.scale.round() as u64).max(1),
            excesses: tail.len(),
            extremal_index: round(index).max(1e-4),
            anderson_darling: round(goodness.anderson_darling),
            p_value: round(goodness.p_value),
        })
    }

    /// The time in nanoseconds that one of `samples` times exceeds with probability `exceedance`; not below the
    /// threshold.
    pub fn quantile(&self, exceedance: f64, samples: usize) -> u64 {
        let within = (exceedance / self.share(samples)).min(1.0);
        self.threshold_ns.saturating_add(self.pareto().quantile(within).ceil() as u64)
    }

    /// The standard error of that quantile in nanoseconds, with as many independent excesses as there are clusters.
    ///
    /// By the delta method from the covariance of the likeliest shape and scale (Smith 1987), and from that of the share
    /// of times above the threshold.
    pub fn error(&self, exceedance: f64, samples: usize) -> u64 {
        let Pareto { shape, scale } = self.pareto();
        let share = self.share(samples);
        let log = (share / exceedance).ln().max(0.0);
        let by_share = scale * (shape * log).exp();
        let by_scale = self.pareto().quantile((-log).exp()) / scale;
        let by_shape = if shape.abs() < 1e-5 {
            // Where the quotients below lose their digits, their limit.
            scale * log * log / 2.0
        } else {
            (by_share * log - scale * by_scale) / shape
        };
        let room = (1.0 + shape).max(0.0);
        let variance = by_shape * by_shape * room * room - 2.0 * by_shape * by_scale * scale * room
            + by_scale * by_scale * 2.0 * scale * scale * room
            + by_share * by_share * (1.0 - share);
        (variance.max(0.0) / (self.excesses as f64 * self.extremal_index)).sqrt().ceil() as u64
    }

    /// In what values contradict each other, if they do.
    pub fn fault(&self, max_ns: u64, samples: usize) -> Option<String> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let sound = self.scale_ns > 0
            && self.shape.is_finite()
            && self.threshold_ns < max_ns
            && (1..=samples).contains(&self.excesses)
            && share(self.p_value)
            && share(self.extremal_index)
            && self.anderson_darling.is_finite();
        (!sound).then(|| format!("{self:?} is no tail of {samples} times up to {max_ns} ns"))
    }

    fn pareto(&self) -> Pareto {
        Pareto { shape: self.shape, scale: self.scale_ns as f64 }
    }

    fn share(&self, samples: usize) -> f64 {
        self.excesses as f64 / samples.max(1) as f64
    }
}

#[cfg(test)]
pub(super) mod tests;
