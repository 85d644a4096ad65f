//! How far the round of arrivals has come at a decision, given the queue and its slack (interval A of section
//! 4.4.2).

use super::arrivals::Clock;
use super::poisson::{CUT, ln_pmf, pmf};

/// For each state, the probabilities of the phases from some first one on.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// First phase, then where in `mass` its probabilities begin and end.
    states: Vec<(u32, u32, u32)>,
    mass: Vec<f64>,
    likely: Vec<f64>,
}

impl Phases {
    /// Adds the next state: `n` requests, of which the oldest came `age` nanoseconds ago.
    pub(super) fn push(&mut self, clock: Clock, n: usize, age: f64, underflow: bool) {
        let from = (n - 1) * clock.ticks;
        let mean = clock.per_ns * age;
        // Below this, numbers lose their digits and then vanish.
        let vanishes = || [from, from + clock.ticks - 1].iter().any(|&k| ln_pmf(k, mean) < -700.0);
        let mut likely = None;
        let dense: Vec<f64> = if underflow && (mean <= 0.0 || vanishes()) {
            let mut dense: Vec<f64> = (0..clock.ticks).map(|phase| pmf(from + phase, mean)).collect();
            if dense.contains(&0.0) {
                dense.iter_mut().for_each(|p| *p += f64::from_bits(1));
            }
            dense
        } else if mean <= 0.0 {
            // So soon after the oldest came, the others did just now.
            vec![1.0]
        } else {
            let mode = (mean as usize).clamp(from, from + clock.ticks - 1) - from;
            let mut dense = vec![1.0; clock.ticks];
            for phase in mode + 1..clock.ticks {
                dense[phase] = dense[phase - 1] * mean / (from + phase) as f64;
            }
            for phase in (0..mode).rev() {
                dense[phase] = dense[phase + 1] * (from + phase + 1) as f64 / mean;
            }
            likely = Some(pmf(from + mode, mean) * dense.iter().sum::<f64>());
            dense
        };
        let round = |phase| pmf(from + phase, mean);
        self.likely.push(likely.unwrap_or_else(|| (0..clock.ticks).map(round).sum()));
        let sum: f64 = dense.iter().sum();
        let counts = |p: &f64| *p >= CUT * sum;
        let first = dense.iter().position(counts).unwrap_or(0);
        let last = dense.iter().rposition(counts).unwrap_or(0);
        let at = self.mass.len() as u32;
        self.mass.extend(dense[first..=last].iter().map(|p| p / sum));
        self.states.push((first as u32, at, self.mass.len() as u32));
    }

    /// The probability of a state's queue, given when its oldest request came.
    pub(super) fn likely(&self, state: usize) -> f64 {
        self.likely[state]
    }

    /// The first phase of a state, and the probabilities from it on.
    pub(super) fn of(&self, state: usize) -> (usize, &[f64]) {
        let (first, from, to) = self.states[state];
        (first as usize, &self.mass[from as usize..to as usize])
    }
}
