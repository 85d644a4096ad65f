//! Means over repeated runs, and how far to trust them.

use std::fmt;

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The mean of independent samples of one quantity, one for each seed, and its 95 % confidence interval.
///
/// The interval is Student's (1908): `mean ± t · s / √n`, with `t` the 97.5 % quantile of his distribution with
/// `n - 1` degrees of freedom and `s` the standard deviation of the samples. It holds for samples that are normally
/// distributed, and nearly so for means over long runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The mean, in the samples' unit; 0 for none.
    pub mean: f64,
    /// Half the width of the interval, in the same unit; 0 for fewer than two samples, which tell nothing of it,
    /// and for samples that are all the same.
    pub half_width: f64,
    /// How many samples.
    pub n: usize,
}

impl Estimate {
    /// Of `samples`. Those that are not a number or infinite, as a share of no requests is, are not samples: they
    /// are skipped, and `n` tells how many remain.
    #[must_use]
    pub fn of(samples: &[f64]) -> Self {
        let samples: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
        let n = samples.len();
        if n == 0 {
            return Self::default();
        }
        // Around the first sample, so that samples that are all the same have exactly themselves as mean.
        let first = samples[0];
        let mean = first + samples.iter().map(|sample| sample - first).sum::<f64>() / n as f64;
        if n == 1 {
            return Self { mean, half_width: 0.0, n };
        }
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let error = (squares / (n - 1) as f64 / n as f64).sqrt();
        Self { mean, half_width: student(n - 1, 0.95) * error, n }
    }

    /// The lower and the upper end of the interval.
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        (self.mean - self.half_width, self.mean + self.half_width)
    }
}

/// `12.3 ± 0.4`: the half-width with two significant digits if they begin with 1, else with one, and the mean as
/// precisely; without a half-width the mean alone, with six significant digits at most.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, half_width, .. } = *self;
        if !(half_width > 0.0 && half_width.is_finite()) {
            let exponent = if mean == 0.0 { 0 } else { mean.abs().log10().floor() as i32 };
            let rounded = format!("{mean:.0$}", (5 - exponent).clamp(0, 17) as usize);
            // As a number again, without the zeros at the end.
            return write!(f, "{}", rounded.parse().unwrap_or(mean));
        }
        let exponent = half_width.log10().floor() as i32;
        let leading = half_width / 10f64.powi(exponent);
        let places = (i32::from(leading < 1.95) - exponent).clamp(0, 17) as usize;
        write!(f, "{mean:.places$} ± {half_width:.places$}")
    }
}

/// How many standard errors lie within an interval of that `confidence`, above 0 and below 1, on each side: Student's.
pub(crate) fn student(freedom: usize, confidence: f64) -> f64 {
    let below = f64::midpoint(1.0, confidence);
    StudentsT::new(0.0, 1.0, freedom as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, upper 0.025.
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (19, 2.093),
            (29, 2.045),
            (49, 2.010),
            (99, 1.984),
            (10_000, 1.960),
        ];
        for (freedom, t) in table {
            assert!(
                (student(freedom, 0.95) - t).abs() < 0.0006,
                "{freedom}: {} is not {t}",
                student(freedom, 0.95)
            );
        }
    }

    #[test]
    fn the_interval_of_a_worked_example() {
        // Mean 5, standard deviation sqrt(32/7), t = 2.3646 with 7 degrees of freedom.
        let estimate = Estimate::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((estimate.mean, estimate.n), (5.0, 8));
        assert!((estimate.half_width - 1.7875).abs() < 1e-4, "{estimate:?}");
        assert_eq!(estimate.to_string(), "5.0 ± 1.8");
        assert_eq!(estimate.interval(), (5.0 - estimate.half_width, 5.0 + estimate.half_width));
    }

    #[test]
    fn samples_that_tell_nothing_of_the_spread_have_none() {
        let of = |samples: &[f64]| {
            let Estimate { mean, half_width, n } = Estimate::of(samples);
            (mean, half_width, n)
        };
        assert_eq!(of(&[]), (0.0, 0.0, 0));
        assert_eq!(of(&[0.1]), (0.1, 0.0, 1));
        assert_eq!(of(&[0.1; 7]), (0.1, 0.0, 7));
        assert_eq!(of(&[f64::NAN, 3.0, f64::INFINITY]), (3.0, 0.0, 1));
    }

    #[test]
    fn digits_follow_the_half_width() {
        let told = |mean, half_width| Estimate { mean, half_width, n: 9 }.to_string();
        assert_eq!(told(12.345, 0.4321), "12.3 ± 0.4");
        assert_eq!(told(12.345, 0.1321), "12.35 ± 0.13");
        assert_eq!(told(0.001_234, 0.000_051), "0.00123 ± 0.00005");
        assert_eq!(told(1234.5, 56.7), "1234 ± 57");
        assert_eq!(told(5.0, 0.97), "5.0 ± 1.0");
        assert_eq!(told(5.0, 0.0), "5");
        assert_eq!(told(-1.0 / 3.0, 0.0), "-0.333333");
        assert_eq!(told(0.0, 0.0), "0");
    }
}
