//! Value iteration (section 4.1).

use super::policy::Policy;
use super::problem::{Choice, Problem};
use super::spec::Flavour;
use super::work::Work;

/// Sweeps of the released program.
const PROGRAM_SWEEPS: usize = 100;
/// Sweeps at most.
const MAX_SWEEPS: usize = 20_000;
/// The part of the way to their next values that values are moved: the whole way, values of chains that come back to where they
/// were every few decisions, as those of an idle worker do, go round for ever.
pub(super) const DAMPED: f64 = 0.75;
/// How close to the best possible reward per decision a policy must be proven.
const CLOSE: f64 = 1e-9;

/// A policy and how good it is known to be.
#[derive(Clone, Debug)]
pub struct Solution {
    /// What to do in each state.
    pub policy: Policy,
    /// How often all states were looked at.
    pub sweeps: usize,
    /// The expected reward per decision lies between these, and so does the best possible; for
    /// [`Flavour::Requests`] per request, less what misses cost. About 1e-9 apart, or as far as the limit on
    /// sweeps left them: 100 for [`Flavour::Program`], and enough for a few seconds else, which loads near
    /// capacity may use up; the upper one is infinite then.
    pub gain: (f64, f64),
}

impl Problem {
    /// A policy of the largest reward per decision, or what [`Flavour::Requests`] asks for. Of equally good actions
    /// the first is taken: the larger batch, then the model that comes first.
    #[must_use]
    pub fn solve(&self) -> Solution {
        if let Flavour::Requests { max_miss } = self.spec.flavour {
            return self.solve_requests(max_miss);
        }
        let mut search = Search::new(self);
        let (sweeps, close) = match self.spec.flavour {
            Flavour::Program => (PROGRAM_SWEEPS, f64::NEG_INFINITY),
            _ => (MAX_SWEEPS, CLOSE),
        };
        let gain = search.improve(|_, choice| choice.reward, sweeps, |(low, high)| high - low <= close);
        Solution { policy: Policy::new(self, &search.chosen), sweeps: search.sweeps, gain }
    }
}

/// Values of states, better from sweep to sweep.
pub(super) struct Search<'a> {
    problem: &'a Problem,
    values: Vec<f64>,
    next: Vec<f64>,
    work: Work,
    /// The best choice in each state, by its index there.
    pub(super) chosen: Vec<u16>,
    /// Sweeps so far.
    pub(super) sweeps: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let values = vec![0.0; problem.layout.len()];
        Self { problem, next: values.clone(), values, work: Work::default(), chosen: Vec::new(), sweeps: 0 }
    }

    /// Sweeps until the reward per decision is known well enough, or so many times, and chooses; it tells between
    /// what that reward is, of the choice and of the best possible one (A. Odoni, On finding the maximal gain for
    /// Markov decision processes, 1969).
    pub(super) fn improve(
        &mut self,
        reward: impl Fn(usize, &Choice) -> f64,
        sweeps: usize,
        enough: impl Fn((f64, f64)) -> bool,
    ) -> (f64, f64) {
        let problem = self.problem;
        let (empty, lone) = (problem.layout.empty(), problem.layout.lone());
        let paper = problem.spec.flavour == Flavour::Paper;
        let program = problem.spec.flavour == Flavour::Program;
        let mut gain = (f64::NEG_INFINITY, f64::INFINITY);
        let mut done = 0;
        while done < sweeps && !enough(gain) {
            self.look(&reward);
            self.next[empty] = if paper { self.values[lone] } else { self.next[lone] };
            let steps = self.next.iter().zip(&self.values).map(|(next, value)| next - value);
            gain = steps.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), step| (a.min(step), b.max(step)));
            // Only differences count; large numbers would cost digits.
            let base = self.next[lone];
            for (value, next) in self.values.iter_mut().zip(&self.next) {
                let next = next - base;
                *value = if program { next } else { *value + DAMPED * (next - *value) };
            }
            done += 1;
        }
        self.sweeps += done;
        self.look(reward);
        gain
    }

    /// Finds the best choice in each state, and what it is worth with all that follows.
    fn look(&mut self, reward: impl Fn(usize, &Choice) -> f64) {
        let problem = self.problem;
        problem.pull(&self.values, &mut self.work);
        self.chosen.clear();
        for (state, next) in self.next[..problem.layout.empty()].iter_mut().enumerate() {
            let mut best = (0, f64::NEG_INFINITY);
            for (i, choice) in problem.choices(state).iter().enumerate() {
                let worth = reward(state, choice) + problem.expect(state, choice, &self.work);
                if worth > best.1 {
                    best = (i as u16, worth);
                }
            }
            self.chosen.push(best.0);
            *next = best.1;
        }
    }
}
