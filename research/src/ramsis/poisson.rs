//! Poisson probabilities, good to about 1e-14 of their value, and the quadrature that integrates them.

use std::f64::consts::{PI, TAU};

/// Probabilities below this are left out.
pub(super) const CUT: f64 = 1e-18;

/// The probability of `count` where `mean` ≥ 0 are expected (C. Loader, Fast and accurate computation of binomial
/// probabilities, 2000).
pub(super) fn pmf(count: usize, mean: f64) -> f64 {
    if mean <= 0.0 { f64::from(u8::from(count == 0)) } else { ln_pmf(count, mean).exp() }
}

/// The natural logarithm of [`pmf`]; `mean` is above 0.
pub(super) fn ln_pmf(count: usize, mean: f64) -> f64 {
    if count == 0 {
        return -mean;
    }
    let x = count as f64;
    -stirling_error(count) - deviance(x, mean) - 0.5 * (TAU * x).ln()
}

/// `ln(k!)` less Stirling's formula for it.
fn stirling_error(k: usize) -> f64 {
    let x = k as f64;
    if k <= 15 {
        let factorial: f64 = (1..=k).map(|i| i as f64).product();
        return factorial.ln() - (x + 0.5) * x.ln() + x - 0.5 * TAU.ln();
    }
    let y = x * x;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / 1188.0 / y) / y) / y) / y) / x
}

/// `x ln(x/m) + m - x`, also where the terms nearly cancel.
fn deviance(x: f64, m: f64) -> f64 {
    if (x - m).abs() >= 0.1 * (x + m) {
        return x * (x / m).ln() + m - x;
    }
    let v = (x - m) / (x + m);
    let (mut sum, mut term) = ((x - m) * v, 2.0 * x * v);
    for j in 1..1000 {
        term *= v * v;
        let next = sum + term / f64::from(2 * j + 1);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

/// The probabilities of the counts from the returned one on, as far as they are at least [`CUT`] and the count is
/// at most `last`.
pub(super) fn window(mean: f64, last: usize, mass: &mut Vec<f64>) -> usize {
    mass.clear();
    let mode = (mean.max(0.0) as usize).min(last);
    let peak = pmf(mode, mean);
    if peak < CUT {
        return 0;
    }
    let mut first = mode;
    let mut at = peak;
    while first > 0 {
        at *= first as f64 / mean;
        if at < CUT {
            break;
        }
        mass.push(at);
        first -= 1;
    }
    mass.reverse();
    mass.push(peak);
    at = peak;
    for count in mode + 1..=last {
        at *= mean / count as f64;
        if at < CUT {
            break;
        }
        mass.push(at);
    }
    first
}

/// Points of a rule, and the longest panel on which its error is about 1e-13, in units of the width of what it
/// integrates: that of a Gaussian bell, the derivatives of which the remainder is made of.
const RULES: [(usize, f64); 5] = [(3, 0.03), (4, 0.11), (5, 0.26), (6, 0.45), (8, 1.06)];
/// The width that a single tick's exponential density is given.
pub(super) const SHARP: f64 = 2.36;

/// Gauss-Legendre rules for panels of different lengths.
pub(super) struct Rules([Vec<(f64, f64)>; 5]);

impl Rules {
    pub(super) fn new() -> Self {
        Self(RULES.map(|(points, _)| gauss_legendre(points)))
    }

    /// The longest panel for things of this width, in ticks.
    pub(super) fn longest(width: f64) -> f64 {
        RULES[4].1 * width.max(SHARP)
    }

    /// Calls `node(place, weight)` for points of `from..to` that integrate products of Poisson probabilities of
    /// a clock that ticks `rate` times per unit, none of which is narrower than `width` ticks.
    pub(super) fn integrate(
        &self,
        from: f64,
        to: f64,
        rate: f64,
        width: f64,
        mut node: impl FnMut(f64, f64),
    ) {
        let ticks = rate * (to - from);
        if ticks <= 0.0 {
            return;
        }
        // A hair's breadth more is no new panel.
        let panels = (ticks / Self::longest(width) - 1e-9).ceil().max(1.0);
        let each = ticks / panels / width.max(SHARP);
        let rule = &self.0[RULES.iter().position(|&(_, most)| each <= most).unwrap_or(4)];
        let half = (to - from) / panels / 2.0;
        for panel in 0..panels as usize {
            let middle = from + half * (2 * panel + 1) as f64;
            for &(x, weight) in rule {
                node(middle + half * x, half * weight);
            }
        }
    }
}

/// The places in -1..1, ascending, and weights of the rule with so many points, by Newton's method on the Legendre polynomial.
fn gauss_legendre(points: usize) -> Vec<(f64, f64)> {
    let n = points as f64;
    let root = |i: usize| {
        let mut x = (PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..50 {
            let (mut before, mut at) = (1.0, x);
            for k in 2..=points {
                let k = k as f64;
                (before, at) = (at, ((2.0 * k - 1.0) * x * at - (k - 1.0) * before) / k);
            }
            slope = n * (x * at - before) / (x * x - 1.0);
            let step = at / slope;
            x -= step;
            if step.abs() < 1e-16 {
                break;
            }
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..points).rev().map(root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_and_follow_their_recurrence() {
        for mean in [0.0, 1e-3, 0.7, 3.0, 43.8, 300.0, 877.0, 20_000.0] {
            let mut mass = Vec::new();
            let first = window(mean, usize::MAX >> 1, &mut mass);
            let sum: f64 = mass.iter().sum();
            assert!((sum - 1.0).abs() < 1e-12, "{mean}: {sum}");
            for (i, &p) in mass.iter().enumerate() {
                let direct = pmf(first + i, mean);
                assert!((p - direct).abs() <= 1e-12 * direct.max(1e-3), "{mean}, {}", first + i);
            }
        }
        // 2^5 e^-2 / 5!
        assert!((pmf(5, 2.0) - 0.036_089_408_863_096_72).abs() < 1e-16);
    }

    #[test]
    fn a_window_ends_where_it_is_told_to() {
        let mut mass = Vec::new();
        assert_eq!((window(50.0, 10, &mut mass), mass.len()), (3, 8));
        window(5000.0, 10, &mut mass);
        assert!(mass.is_empty());
    }

    #[test]
    fn rules_integrate_what_they_are_for() {
        let rules = Rules::new();
        for (from, to) in [(0.0, 0.1), (0.0, 1.0), (2.0, 40.0)] {
            let mut sum = 0.0;
            rules.integrate(from, to, 1.0, 0.0, |x, weight| sum += weight * pmf(3, x));
            // The integral of the fourth arrival's density is the chance of at most 3 less the same later.
            let at_most_3 = |t: f64| (0..4).map(|k| pmf(k, t)).sum::<f64>();
            assert!(
                (sum - (at_most_3(from) - at_most_3(to))).abs() < 1e-13,
                "{from}..{to}: {:e}",
                sum - (at_most_3(from) - at_most_3(to))
            );
        }
    }
}
