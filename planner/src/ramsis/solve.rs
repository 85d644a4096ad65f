//! Value iteration (section 4.1).

use super::policy::Policy;
use super::problem::{Problem, Work};
use super::spec::Flavour;

/// Sweeps of the released program.
const PROGRAM_SWEEPS: usize = 100;
/// Sweeps at most.
const MAX_SWEEPS: usize = 20_000;
/// How close to the best possible reward per decision a policy must be proven.
const CLOSE: f64 = 1e-9;

/// A policy and how good it is known to be.
#[derive(Clone, Debug)]
pub struct Solution {
    /// What to do in each state.
    pub policy: Policy,
    /// How often all states were looked at.
    pub sweeps: usize,
    /// The expected reward per decision lies between these; so does the best possible. At most 1e-9 apart, unless
    /// sweeps were limited ([`Flavour::Program`]).
    pub gain: (f64, f64),
}

impl Problem {
    /// A policy of the largest reward per decision. Of equally good actions the first is taken: the larger batch,
    /// then the model that comes first.
    #[must_use]
    pub fn solve(&self) -> Solution {
        let mut values = vec![0.0; self.layout.len()];
        let mut next = values.clone();
        let mut work = Work::default();
        let (empty, lone) = (self.layout.empty(), self.layout.lone());
        let program = self.spec.flavour == Flavour::Program;
        let (mut sweeps, mut gain) = (0, (f64::NEG_INFINITY, f64::INFINITY));
        let most = if program { PROGRAM_SWEEPS } else { MAX_SWEEPS };
        while sweeps < most && (program || gain.1 - gain.0 > CLOSE) {
            if self.spec.flavour != Flavour::Paper {
                values[empty] = values[lone];
            }
            self.pull(&values, &mut work);
            for (state, next) in next[..empty].iter_mut().enumerate() {
                *next = self.best(state, &work).1;
            }
            next[empty] = values[lone];
            if self.spec.flavour != Flavour::Paper {
                next[empty] = next[lone];
            }
            let steps = next.iter().zip(&values).map(|(next, value)| next - value);
            gain = steps.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), step| (a.min(step), b.max(step)));
            std::mem::swap(&mut values, &mut next);
            if !program {
                // Only differences count; large numbers would cost digits.
                let base = values[lone];
                values.iter_mut().for_each(|value| *value -= base);
            }
            sweeps += 1;
        }
        if self.spec.flavour != Flavour::Paper {
            values[empty] = values[lone];
        }
        self.pull(&values, &mut work);
        let chosen = (0..empty).map(|state| self.best(state, &work).0).collect();
        Solution { policy: Policy::new(self, chosen), sweeps, gain }
    }

    /// The best choice in `state`, by its index there, and what it is worth with all that follows.
    fn best(&self, state: usize, work: &Work) -> (u16, f64) {
        let mut best = (0, f64::NEG_INFINITY);
        for (i, choice) in self.choices(state).iter().enumerate() {
            let worth = choice.reward + self.expect(state, choice, work);
            if worth > best.1 {
                best = (i as u16, worth);
            }
        }
        best
    }
}
