//! How accurate a policy is and how often it is late, in the long run (section 5.1).

use super::RamsisError;
use super::error::refuse;
use super::policy::Policy;
use super::problem::{Choice, Problem};
use super::solve::DAMPED;
use super::work::Work;

/// Steps at most.
const MAX_STEPS: usize = 20_000;
/// When the shares of states are taken to be settled: the sum of all changes in one step.
const SETTLED: f64 = 1e-13;

/// What to expect of a policy.
///
/// In a state, what happens is no worse: slack is rounded down, so that what is taken to be in time is; lateness is that of the
/// oldest request of a batch, and the others are taken to be late with it; of what finds the queue full, as many are lost as
/// Poisson arrivals would lose, which come less evenly than those of a turn. How often a state is seen is no bound: who else
/// waits is worked out as if the oldest had come as early as its interval allows, which is the rougher the wider intervals
/// are, and model-based ones are as wide as the times of batches lie apart. So a share of misses that was planned for may be
/// exceeded: by no more than half a percent of the requests on the random problems of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The expected accuracy of a decision, a late one counting 0 (section 5.1).
    pub accuracy_per_decision: f64,
    /// The share of decisions that are late (section 5.1).
    pub late_per_decision: f64,
    /// The share of right answers among the requests that are answered in time; 0 if there are none.
    pub accuracy: f64,
    /// The share of requests that are late or dropped.
    pub missed: f64,
    /// Requests in a batch, on average.
    pub batch: f64,
    /// How much the shares of states still changed in the last step, all changes added up: 1e-13 or less, unless
    /// 20,000 steps did not settle them.
    pub residual: f64,
}

impl Evaluation {
    /// The share of requests that are answered in time and right.
    #[must_use]
    pub fn right(&self) -> f64 {
        self.accuracy * (1.0 - self.missed)
    }
}

impl Problem {
    /// What to expect of `policy` with these arrivals, from the states' long-run shares.
    ///
    /// # Errors
    /// [`RamsisError::Value`] if the policy has an action, or intervals of slack, that the problem does not have.
    pub fn evaluate(&self, policy: &Policy) -> Result<Evaluation, RamsisError> {
        let chosen = self.chosen(policy)?;
        Ok(self.weigh(&chosen, &mut self.start(), SETTLED))
    }

    /// The choice of `policy` in each state.
    pub(super) fn chosen(&self, policy: &Policy) -> Result<Vec<Choice>, RamsisError> {
        let one = |number: usize| {
            let state = self.state(number);
            let action = policy.at(state);
            let found = self.choices(number).iter().find(|choice| Some(choice.action) == action);
            let unknown = || {
                refuse(format!("action in {state:?}"), format!("{action:?}"), "is no action of the problem")
            };
            found.copied().ok_or_else(unknown)
        };
        (0..self.layout.empty()).map(one).collect()
    }

    /// An idle worker, to which one request comes.
    pub(super) fn start(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.layout.len()];
        shares[self.layout.lone()] = 1.0;
        shares
    }

    /// As [`Problem::evaluate`]; `shares` is where to begin, and then the states' long-run
    /// shares, settled when their changes in a step add up to `settled` at most.
    pub(super) fn weigh(&self, chosen: &[Choice], shares: &mut [f64], settled: f64) -> Evaluation {
        let mut work = Work::default();
        let mut next = vec![0.0; shares.len()];
        let mut residual = f64::INFINITY;
        for _ in 0..MAX_STEPS {
            next.fill(0.0);
            for ((state, choice), &share) in chosen.iter().enumerate().zip(shares.iter()) {
                if share > 0.0 {
                    self.spread(state, choice, share, &mut work);
                }
            }
            self.push(&mut work, &mut next);
            next[self.layout.lone()] += shares[self.layout.empty()];
            let sum: f64 = next.iter().sum();
            next.iter_mut().for_each(|share| *share /= sum);
            residual = next.iter().zip(shares.iter()).map(|(a, b)| (a - b).abs()).sum();
            for (share, next) in shares.iter_mut().zip(&next) {
                *share += DAMPED * (next - *share);
            }
            if residual <= settled {
                break;
            }
        }
        let mut sums = Sums::default();
        for (choice, &share) in chosen.iter().zip(shares.iter()) {
            sums.add(self, choice, share);
        }
        sums.evaluation(residual)
    }
}

#[derive(Default)]
struct Sums {
    decisions: f64,
    right: f64,
    late: f64,
    requests: f64,
    served: f64,
    in_time: f64,
    accurate: f64,
}

impl Sums {
    fn add(&mut self, problem: &Problem, choice: &Choice, share: f64) {
        let batch = f64::from(choice.action.batch);
        let accuracy = problem.spec.models.get(usize::from(choice.action.model)).map(|model| model.accuracy);
        let on_time = accuracy.filter(|_| choice.on_time);
        self.requests += share * (batch + choice.lost);
        let Some(served) = accuracy.map(|_| batch) else { return };
        self.decisions += share;
        self.served += share * served;
        match on_time {
            Some(accuracy) => {
                self.right += share * accuracy;
                self.in_time += share * batch;
                self.accurate += share * batch * accuracy;
            }
            None => self.late += share,
        }
    }

    fn evaluation(&self, residual: f64) -> Evaluation {
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        Evaluation {
            accuracy_per_decision: ratio(self.right, self.decisions),
            late_per_decision: ratio(self.late, self.decisions),
            accuracy: ratio(self.accurate, self.in_time),
            missed: ratio(self.requests - self.in_time, self.requests),
            batch: ratio(self.served, self.decisions),
            residual,
        }
    }
}
