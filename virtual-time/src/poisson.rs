//! Arrivals at random, the same on every machine.

use rt_core::Instant;

/// Poisson arrivals: the same for the same seed, on every machine.
///
/// The bits come from SplitMix64 (Steele, Lea, Flood 2014), the gaps by inversion, with the logarithm of `libm`.
#[derive(Clone, Debug)]
pub struct Poisson {
    state: u64,
    /// The mean gap, in nanoseconds.
    gap: f64,
    now: f64,
}

impl Poisson {
    /// Arrivals from instant 0 on, `load` per second, which must be positive.
    #[must_use]
    pub fn new(load: f64, seed: u64) -> Self {
        Self { state: seed, gap: 1e9 / load, now: 0.0 }
    }

    /// A draw that is uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((z >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

impl Iterator for Poisson {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        self.now -= libm::log(self.unit()) * self.gap;
        Some(Instant::from_nanos(self.now as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_poisson_and_the_same_for_the_same_seed() {
        let gaps = |seed| -> Vec<f64> {
            let arrivals: Vec<Instant> = Poisson::new(1000.0, seed).take(100_000).collect();
            arrivals.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect()
        };
        let one = gaps(1);
        let mean = one.iter().sum::<f64>() / one.len() as f64;
        let variance = one.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / one.len() as f64;
        assert!((mean * 1000.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
        assert_eq!(one, gaps(1));
        assert_ne!(one, gaps(2));
    }
}
