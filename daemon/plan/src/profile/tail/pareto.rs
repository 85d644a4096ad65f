//! The generalised Pareto distribution: what lies beyond a high threshold follows it, whatever the times follow.

/// Beyond this the distribution is taken for the exponential one, which it is at 0.
const FLAT: f64 = 1e-9;

/// The distribution of excesses over a threshold (Balkema and de Haan 1974, Pickands 1975).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pareto {
    /// ξ: below 0 there is a largest time, at 0 the tail is exponential, from 1 on it has no mean.
    pub shape: f64,
    /// σ, above 0, in the unit of the excesses.
    pub scale: f64,
}

impl Pareto {
    /// The estimate of Zhang and Stephens (*Technometrics* 51, 2009) from excesses above 0 in rising order.
    ///
    /// The likelihood is averaged rather than maximised. So it exists for every sample and needs no iteration, as
    /// little as moments do (Hosking and Wallis 1987); but moments fail from ξ = 1/2 on, which the tails of shared
    /// machines reach, and the maximum (Grimshaw 1993) does not exist for some small samples. `None` without two
    /// different excesses.
    pub(crate) fn fit(excesses: &[f64]) -> Option<Self> {
        let n = excesses.len();
        let (least, most) = (*excesses.first()?, *excesses.last()?);
        if !(least > 0.0 && least < most && most.is_finite()) {
            return None;
        }
        let quartile = excesses[((n as f64 / 4.0 + 0.5).floor() as usize).clamp(1, n) - 1];
        let points = 20 + (n as f64).sqrt().floor() as usize;
        let place =
            |j: usize| 1.0 / most + (1.0 - (points as f64 / (j as f64 + 0.5)).sqrt()) / (3.0 * quartile);
        let shape = |theta: f64| excesses.iter().map(|x| (-theta * x).ln_1p()).sum::<f64>() / n as f64;
        let likely = |theta: f64| {
            let k = -shape(theta);
            n as f64 * ((theta / k).ln() + k - 1.0)
        };
        // At 0 itself, the exponential distribution, the formula is 0/0; the places around it stand for it.
        let places = (0..points).map(place).filter(|theta| theta.abs() > f64::EPSILON / most);
        let weighted: Vec<(f64, f64)> = places.map(|theta| (theta, likely(theta))).collect();
        let best = weighted.iter().map(|&(_, l)| l).fold(f64::NEG_INFINITY, f64::max);
        let weights = || weighted.iter().map(|&(theta, l)| (theta, (l - best).exp()));
        let theta =
            weights().map(|(theta, w)| theta * w).sum::<f64>() / weights().map(|(_, w)| w).sum::<f64>();
        let shape = shape(theta);
        let scale = -shape / theta;
        (shape.is_finite() && scale.is_finite() && scale > 0.0).then_some(Self { shape, scale })
    }

    /// The probability of an excess above `x`.
    pub(crate) fn survival(&self, x: f64) -> f64 {
        let x = x / self.scale;
        if self.shape.abs() < FLAT {
            return (-x).exp();
        }
        let base = 1.0 + self.shape * x;
        if base <= 0.0 { 0.0 } else { (-base.ln() / self.shape).exp() }
    }

    /// The excess that is exceeded with `probability`, in 0.0..=1.0.
    pub(crate) fn quantile(&self, probability: f64) -> f64 {
        let log = -probability.ln();
        if self.shape.abs() < FLAT {
            self.scale * log
        } else {
            self.scale * (self.shape * log).exp_m1() / self.shape
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tail::tests::{draws, sorted};
    use proptest::prelude::*;

    #[test]
    fn quantiles_undo_survival() {
        for shape in [-1.0, -0.3, 0.0, 1e-12, 0.3, 1.5] {
            let pareto = Pareto { shape, scale: 7.0 };
            for probability in [0.9, 0.5, 1e-3, 1e-9] {
                let again = pareto.survival(pareto.quantile(probability));
                assert!((again / probability - 1.0).abs() < 1e-6, "{shape} {probability} {again}");
            }
        }
        assert_eq!(Pareto { shape: -0.5, scale: 1.0 }.survival(2.5), 0.0);
    }

    #[test]
    fn known_parameters_are_recovered() {
        for shape in [-0.8, -0.3, 0.0, 0.25, 0.5, 0.9] {
            let truth = Pareto { shape, scale: 250.0 };
            let (mut shapes, mut scales) = (0.0, 0.0);
            for seed in 0..40 {
                let fit = Pareto::fit(&sorted(draws(seed, 500, |u| truth.quantile(u)))).unwrap();
                shapes += fit.shape / 40.0;
                scales += fit.scale / 40.0;
            }
            // Forty fits of 500: their mean is off by a few standard errors of some 0.01 at most.
            assert!((shapes - shape).abs() < 0.04, "{shapes} is not {shape}");
            assert!((scales / 250.0 - 1.0).abs() < 0.05, "{scales} is not 250, shape {shape}");
        }
    }

    #[test]
    fn a_sample_without_two_different_excesses_has_none() {
        for sample in [&[][..], &[1.0], &[3.0, 3.0, 3.0], &[0.0, 1.0], &[1.0, f64::INFINITY]] {
            assert_eq!(Pareto::fit(sample), None, "{sample:?}");
        }
        assert!(Pareto::fit(&[1.0, 2.0]).is_some());
    }

    proptest! {
        #[test]
        fn any_sample_fits_within_its_support(sample in prop::collection::vec(1u32..=u32::MAX, 2..200)) {
            let sample = sorted(sample.into_iter().map(f64::from).collect());
            if let Some(fit) = Pareto::fit(&sample) {
                prop_assert!(fit.scale > 0.0 && fit.shape.is_finite());
                // The largest excess seen must be possible.
                prop_assert!(fit.survival(sample[sample.len() - 1]) > 0.0, "{fit:?}");
            }
        }

        #[test]
        fn the_unit_does_not_matter(seed in 0u64..1000, unit in 1e-3..1e9f64) {
            let sample = sorted(draws(seed, 60, |u| -u.ln()));
            let scaled: Vec<f64> = sample.iter().map(|x| x * unit).collect();
            let (a, b) = (Pareto::fit(&sample).unwrap(), Pareto::fit(&scaled).unwrap());
            prop_assert!((a.shape - b.shape).abs() < 1e-6 && (a.scale * unit / b.scale - 1.0).abs() < 1e-6);
        }
    }
}
