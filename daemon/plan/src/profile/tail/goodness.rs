//! Whether excesses look like draws from the distribution that was fitted to them.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::pareto::Pareto;

/// Samples drawn at most to compare with.
const DRAWS: u32 = 99;
/// As soon as so many fit worse, the p-value is known to be above [`ACCEPT`] (Besag and Clifford, 1991).
const ENOUGH: u32 = 10;
/// A p-value below this rejects the fit.
pub(crate) const ACCEPT: f64 = 0.1;

/// How well a distribution fits the sample it was fitted to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goodness {
    /// A² of Anderson and Darling (1952), which weighs both ends more than the middle; the smaller the better.
    pub anderson_darling: f64,
    /// The share of samples of the same size, drawn from the fit and fitted anew, that fit no better; 0..=1.
    pub p_value: f64,
}

impl Goodness {
    /// Of `fit`, the estimate from `excesses` in rising order, by parametric bootstrap: the distribution of A² depends
    /// on the shape and on its having been estimated. The draws are the same at each call.
    pub(crate) fn of(fit: &Pareto, excesses: &[f64]) -> Self {
        let anderson_darling = anderson_darling(fit, excesses);
        let mut random = StdRng::seed_from_u64(excesses.len() as u64);
        let unit = Pareto { shape: fit.shape, scale: 1.0 };
        let (mut drawn, mut worse) = (0, 0);
        while drawn < DRAWS && worse < ENOUGH {
            let mut sample: Vec<f64> =
                excesses.iter().map(|_| unit.quantile(positive(&mut random))).collect();
            sample.sort_by(f64::total_cmp);
            drawn += 1;
            let a2 = Pareto::fit(&sample).map(|fit| self::anderson_darling(&fit, &sample));
            worse += u32::from(a2.is_some_and(|a2| a2 >= anderson_darling));
        }
        let p_value = match worse {
            ENOUGH => f64::from(worse) / f64::from(drawn),
            _ => f64::from(worse + 1) / f64::from(drawn + 1),
        };
        Self { anderson_darling, p_value }
    }
}

/// Uniform in what is above 0 and at most 1.
fn positive(random: &mut StdRng) -> f64 {
    1.0 - (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn anderson_darling(fit: &Pareto, sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    // The logarithm of 0 at the end of a bounded tail would hide all else.
    let survivals: Vec<f64> = sorted.iter().map(|&x| fit.survival(x).clamp(1e-300, 1.0)).collect();
    let below = |s: f64| (1.0 - s).max(1e-300).ln();
    let pairs = survivals.iter().zip(survivals.iter().rev()).enumerate();
    let sum: f64 = pairs.map(|(i, (&low, &high))| (2 * i + 1) as f64 * (below(low) + high.ln())).sum();
    -n - sum / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tail::tests::{draws, sorted};

    fn goodness(sample: Vec<f64>) -> Goodness {
        let sample = sorted(sample);
        Goodness::of(&Pareto::fit(&sample).unwrap(), &sample)
    }

    #[test]
    fn the_statistic_of_a_worked_example() {
        // One point at the median: −1 − 2 ln(1/2) − … = −1 + 2 ln 2.
        let exponential = Pareto { shape: 0.0, scale: 1.0 };
        assert!((anderson_darling(&exponential, &[2f64.ln()]) - (2.0 * 2f64.ln() - 1.0)).abs() < 1e-12);
        // Two points at survivals 3/4 and 1/4: −2 − (2 ln 1/4 + 6 ln 3/4) / 2.
        let points = [-(0.75f64.ln()), -(0.25f64.ln())];
        let by_hand = -2.0 - (2.0 * 0.25f64.ln() + 6.0 * 0.75f64.ln()) / 2.0;
        assert!((anderson_darling(&exponential, &points) - by_hand).abs() < 1e-12);
    }

    #[test]
    fn a_true_fit_is_rejected_about_as_often_as_asked() {
        let rejected = |shape: f64| {
            let truth = Pareto { shape, scale: 3.0 };
            (0..100).filter(|&seed| goodness(draws(seed, 60, |u| truth.quantile(u))).p_value < ACCEPT).count()
        };
        for shape in [-0.4, 0.0, 0.6] {
            // 10 expected, with a standard deviation of 3.
            let rejected = rejected(shape);
            assert!((1..=21).contains(&rejected), "{rejected} of 100 at shape {shape}");
        }
    }

    #[test]
    fn what_is_no_tail_is_rejected() {
        // Two heaps far apart, as where another program takes the processor now and then.
        let heaps = |u: f64| if u < 0.3 { 100.0 + u } else { 1.0 + u };
        let rejected = (0..20).filter(|&seed| goodness(draws(seed, 100, heaps)).p_value < ACCEPT).count();
        assert_eq!(rejected, 20);
    }

    #[test]
    fn the_same_sample_is_judged_the_same() {
        let sample = draws(5, 80, |u| -u.ln());
        assert_eq!(goodness(sample.clone()), goodness(sample));
    }
}
