//! Arrivals with gaps of one distribution, independent or in recorded rows.

use std::sync::Arc;

use rt_core::Instant;

use super::draws::{Draws, Gamma};
use super::ticks::Ticks;

/// The gaps, as multiples of their mean.
#[derive(Clone, Debug)]
pub(super) enum Gaps {
    Exponential,
    Gamma(Gamma),
    Recorded(Rows),
}

/// Rows of recorded gaps, of a mean length, each from a random place on: the stationary bootstrap.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    gaps: Arc<[f64]>,
    length: f64,
    at: usize,
}

impl Rows {
    /// Of instants in order that are not all one; `length` is 1 at least.
    pub(super) fn new(trace: &[Instant], length: f64, draws: &mut Draws) -> Self {
        let gaps = trace.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos() as f64);
        let mean = gaps.clone().sum::<f64>() / (trace.len() - 1) as f64;
        let gaps: Arc<[f64]> = gaps.map(|gap| gap / mean).collect();
        let at = draws.below(gaps.len() as u64) as usize;
        Self { gaps, length, at }
    }

    fn draw(&mut self, draws: &mut Draws) -> f64 {
        let gap = self.gaps[self.at];
        let ends = draws.unit() * self.length <= 1.0;
        let next = if ends { draws.below(self.gaps.len() as u64) as usize } else { self.at + 1 };
        self.at = next % self.gaps.len();
        gap
    }
}

/// A renewal process; the first request comes one gap after 0.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    now: Ticks,
    /// Nanoseconds.
    mean: f64,
    gaps: Gaps,
    draws: Draws,
}

impl Renewal {
    pub(super) fn new(mean: f64, gaps: Gaps, draws: Draws) -> Self {
        Self { now: Ticks::ZERO, mean, gaps, draws }
    }

    pub(super) fn reseed(&mut self, draws: Draws) {
        self.draws = draws;
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<Instant> {
        let gap = match &mut self.gaps {
            Gaps::Exponential => self.draws.exponential(),
            Gaps::Gamma(gamma) => gamma.draw(&mut self.draws),
            Gaps::Recorded(rows) => rows.draw(&mut self.draws),
        };
        self.now = self.now.after(Ticks::of_nanos(gap * self.mean)?)?;
        Some(self.now.instant())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and coefficient of variation of so many gaps.
    fn moments(gaps: Gaps, seed: u64, count: usize) -> (f64, f64) {
        let mut source = Renewal::new(1e6, gaps, Draws::new(seed));
        let sent: Vec<_> = std::iter::from_fn(|| source.next()).take(count + 1).collect();
        assert!(sent.is_sorted());
        let gaps: Vec<_> =
            sent.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos() as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / count as f64;
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / count as f64;
        (mean, variance.sqrt() / mean)
    }

    /// Of `n` gaps of Gamma(k, 1/k), whose variation is `c = 1/√k`: the mean deviates by `c/√n`, and the variation,
    /// by the delta method with the central moments `1/k`, `2/k²` and `3/k² + 6/k³`, by `c·√((1 + 1/k)/(2n))`.
    /// Five such deviations are allowed, and a nanosecond of rounding in a million.
    fn fits(shape: f64, gaps: Gaps) {
        let n = 400_000;
        for seed in 0..4 {
            let (mean, variation) = moments(gaps.clone(), seed, n);
            let (c, root) = (1.0 / shape.sqrt(), (n as f64).sqrt());
            assert!((mean - 1.0).abs() < 5.0 * c / root + 1e-6, "{shape}: mean {mean}");
            let deviation = c * ((1.0 + 1.0 / shape) / 2.0).sqrt() / root;
            assert!((variation - c).abs() < 5.0 * deviation + 1e-6, "{shape}: {variation} of {c}");
        }
    }

    #[test]
    fn gaps_have_the_mean_and_the_variation_of_their_distribution() {
        fits(1.0, Gaps::Exponential);
        for shape in [0.1, 0.5, 1.0, 2.0, 16.0, 1_000.0] {
            fits(shape, Gaps::Gamma(Gamma::new(shape)));
        }
    }
}
