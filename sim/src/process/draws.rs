//! Randomness that is the same on every machine and in every release.
//!
//! The bits come from xoshiro256++ (Blackman and Vigna 2021), one of the generators of `rand` that are named, and
//! thereby promised never to change; `StdRng` and `SmallRng` are not. Distributions are drawn here, in plain
//! arithmetic and with the logarithm of `libm`: `rand_distr` changes its values between releases, and its logarithm
//! is the platform's, or not, as the features of a whole build have it.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use crate::dice::Dice;

/// The seed of stream number `stream` in an experiment with this `seed`: for one seed, no two streams have the same.
///
/// It is a pure function, so whoever asks for the arrivals of a stream is given the same ones, whatever else runs.
#[must_use]
pub fn stream_seed(seed: u64, stream: usize) -> u64 {
    Dice(Dice(seed).next() ^ stream as u64).next()
}

/// A sequence of draws.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    bits: Xoshiro256PlusPlus,
    /// The second of two normal numbers, which are drawn together.
    spare: Option<f64>,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self { bits: Xoshiro256PlusPlus::seed_from_u64(seed), spare: None }
    }

    /// Any 64 bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.bits.next_u64()
    }

    /// A whole number below `count`, which must not be 0; uneven by at most `count` in 2^64.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }

    /// Uniform in (0, 1], in steps of 2^-53.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential of mean 1, by inversion: in [0, 36.8).
    pub(super) fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// Normal of mean 0 and variance 1: the polar method (Marsaglia and Bray 1964).
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

/// The Gamma distribution of mean 1: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
#[derive(Clone, Copy, Debug)]
pub(super) struct Gamma {
    d: f64,
    c: f64,
    /// `1/shape` of a shape below 1, which is drawn as one more and then made smaller.
    root: Option<f64>,
    scale: f64,
}

impl Gamma {
    /// `shape` must be above 0 and finite.
    pub(super) fn new(shape: f64) -> Self {
        let drawn = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = drawn - 1.0 / 3.0;
        let root = (shape < 1.0).then(|| 1.0 / shape);
        Self { d, c: 1.0 / (9.0 * d).sqrt(), root, scale: 1.0 / shape }
    }

    pub(super) fn draw(&self, draws: &mut Draws) -> f64 {
        // Accepts more than nineteen in twenty.
        let drawn = loop {
            let x = draws.normal();
            let v = 1.0 + self.c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            let u = draws.unit();
            if u < 1.0 - 0.0331 * (x * x) * (x * x)
                || libm::log(u) < 0.5 * x * x + self.d * (1.0 - v + libm::log(v))
            {
                break self.d * v;
            }
        };
        drawn * self.root.map_or(1.0, |root| libm::pow(draws.unit(), root)) * self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const COUNT: usize = 200_000;

    /// Of so many draws, the share that `holds`; five standard deviations of it around `expected` are allowed.
    fn share(expected: f64, mut holds: impl FnMut() -> bool) {
        let found = (0..COUNT).filter(|_| holds()).count() as f64 / COUNT as f64;
        let deviation = (expected * (1.0 - expected) / COUNT as f64).sqrt();
        assert!((found - expected).abs() < 5.0 * deviation, "{found} of {expected}");
    }

    #[test]
    fn the_bits_and_the_draws_are_those_of_every_machine() {
        let mut draws = Draws::new(7);
        // What the same steps give in another language: splitmix64 for the seed, then xoshiro256++.
        assert_eq!([draws.bits(), draws.bits()], [1_021_219_803_524_665_661, 3_174_977_118_032_272_916]);
        let numbers = [draws.exponential(), draws.normal(), Gamma::new(0.3).draw(&mut draws)];
        assert_eq!(numbers, [0.331_876_234_734_771_5, -0.078_030_358_196_106_01, 1.751_180_549_518_495]);
        assert_eq!(stream_seed(1, 2), 13_608_149_317_741_381_227);
    }

    #[test]
    fn no_two_streams_share_a_seed() {
        let seeds: HashSet<_> =
            (0..100).flat_map(|seed| (0..100).map(move |s| stream_seed(seed, s))).collect();
        assert_eq!(seeds.len(), 10_000);
    }

    #[test]
    fn the_distributions_have_their_quantiles() {
        let mut draws = Draws::new(1);
        for x in [0.01f64, 0.5, 1.0, 3.0, 6.0] {
            share(1.0 - (-x).exp(), || draws.exponential() < x);
            // Gamma(2, 1/2) and Gamma(1, 1) in closed form; Gamma(1/2, 2) is the square of a normal number.
            share(1.0 - (1.0 + 2.0 * x) * (-2.0 * x).exp(), || Gamma::new(2.0).draw(&mut draws) < x);
            share(1.0 - (-x).exp(), || Gamma::new(1.0).draw(&mut draws) < x);
        }
        // The table of the normal distribution.
        for (x, below) in [(-1.959_964, 0.025), (0.0, 0.5), (1.0, 0.841_344_7), (2.326_348, 0.99)] {
            share(below, || draws.normal() < x);
        }
        for (x, below) in [(0.015_790_77, 0.1), (0.454_936_4, 0.5), (2.705_543, 0.9), (6.634_897, 0.99)] {
            share(below, || Gamma::new(0.5).draw(&mut draws) < x);
        }
        share(0.25, || draws.below(4) == 2);
    }
}
