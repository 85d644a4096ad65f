//! Refutations: for a load that is refused, arrivals that it allows and that break the promise.
//!
//! Every candidate is verified by running it in the scheduler. First all streams send as early as they may, which
//! must break a load above capacity in the end. Then bursts come just as all workers have become busy, with every
//! word in the phase in which it asks for most. Then such bursts with random changes, within a budget.

mod case;
mod shorten;
mod traces;

use planner::certificate::{Refutation, Shows};
use planner::certify::decide;
use planner::{Problem, SharedProblem};
use rt_core::sharing::SharingError;
use rt_core::{AdmissionError, Instant};

use crate::curves::check_curves;
use crate::dice::Dice;
use crate::replay::{Found, examine};
pub(crate) use case::Case;
use shorten::shorten;
use virtual_time::Order;

/// Requests that may be simulated in the search, and to shorten what it finds.
const BUDGET: u64 = 500_000;
/// The most requests of a trace of a load above capacity.
const MAX_TRACE: u64 = 2_000_000;

/// Arrivals that keep to every declaration of `problem`, have background only where it is allowed, and break a
/// promise that admission refuses: they violate a constraint, or else make the scheduler miss a mandatory request.
/// `None` if the load is admitted, or none were found: the refusal may be pessimistic.
///
/// Deterministic. What it shows is shown again by [`crate::replay`].
#[must_use]
pub fn refute(problem: &Problem) -> Option<Refutation> {
    let refused = problem.system().admit(problem.streams.iter().map(|(_, spec)| spec)).err()?;
    // Above capacity, a longer trace is certain to show more, and one of `needed` to show a violation.
    let needed = traces::overload(problem).unwrap_or(0);
    refuted(&Case::one(problem), binding_instant(&refused), needed)
}

/// The same of services that share workers, by the rule and the turns that decided: streams are named as
/// `service/stream`. What it shows is shown again by [`crate::replay_shared`].
#[must_use]
pub fn refute_shared(problem: &SharedProblem) -> Option<Refutation> {
    // A batch that is too long for its deadline is refused though nothing is promised.
    problem.specs().flatten().find(|spec| spec.demand().is_some())?;
    let decision = decide(problem);
    let hint = match decision.answer.as_ref().err()? {
        SharingError::Late(line) => line.distance.as_nanos(),
        _ => 0,
    };
    let needed = traces::overload_shared(problem).unwrap_or(0);
    refuted(&Case::several(problem, &decision), hint, needed)
}

/// See [`refute`]: what is tightest `hint` nanoseconds after a burst, and so many requests are sure to break it.
fn refuted(case: &Case<'_>, hint: u64, needed: u64) -> Option<Refutation> {
    // Nothing can be shown where nothing can be run.
    case.play(&[], Order::Together).ok()?;
    let mut search = Search { case, budget: BUDGET, best: None };
    search.run(hint, needed);
    let (arrivals, order, shows) = search.best?;
    let budget = BUDGET.max(4 * arrivals.len() as u64);
    let arrivals = shorten(arrivals, budget, |fewer| {
        let run = case.play(fewer, order).ok();
        run.and_then(|run| examine(&case.problem, &run)).is_some_and(|found| found.shows == shows)
    });
    check_curves(&case.problem, &arrivals).ok()?;
    // Orders are tried as the replay will try them.
    let (_, _, found) = case.find(&arrivals, shows, None).ok()??;
    let unit = case.problem.raw.unit;
    let named = |&(instant, stream): &(Instant, usize)| {
        (crate::Time { instant, unit }.number(), case.name_of(stream))
    };
    Some(Refutation {
        shows,
        stream: case.problem.streams[found.stream].0.clone(),
        arrivals: arrivals.iter().map(named).collect(),
    })
}

/// The search for a refutation: what it may still spend, and the best so far.
struct Search<'a> {
    case: &'a Case<'a>,
    budget: u64,
    best: Option<Best>,
}

/// Arrivals, the order in which they show it, and what they show.
type Best = (Vec<(Instant, usize)>, Order, Shows);

impl Search<'_> {
    fn run(&mut self, hint: u64, needed: u64) {
        let problem: &Problem = &self.case.problem;
        let mut lengths = [64, 1_000, 8_000, 60_000].map(|length| length.min(needed.max(1_000))).to_vec();
        lengths.dedup();
        for length in lengths {
            if self.sustained(length) {
                return;
            }
        }
        // Of each service's background.
        let strangers = 0..self.case.strangers();
        let ours = |stream: usize, s: usize| if stream < problem.streams.len() { stream } else { stream + s };
        for trace in traces::floods(problem, hint) {
            let of = |s: usize| trace.iter().map(|&(at, stream)| (at, ours(stream, s))).collect::<Vec<_>>();
            if strangers.clone().any(|s| self.shown(&of(s), &Order::ALL)) {
                return;
            }
        }
        let mut dice = Dice(1);
        while self.budget > 0 {
            if self.shown(&traces::adversary(problem, &mut dice, hint), &Order::ALL) {
                return;
            }
        }
        if needed > 60_000 {
            self.sustained(needed.min(MAX_TRACE));
        }
    }

    /// Whether so many requests, as early as they may come, violate a constraint.
    fn sustained(&mut self, requests: u64) -> bool {
        [true, false].into_iter().any(|phased| {
            // Not at the expense of the rest of the search.
            self.budget += requests;
            self.shown(&traces::sustained(&self.case.problem, requests as usize, phased), &[Order::Together])
        })
    }

    /// Whether a constraint is violated by `arrivals` under one of `orders`. Remembers what they show.
    fn shown(&mut self, arrivals: &[(Instant, usize)], orders: &[Order]) -> bool {
        for &order in orders {
            self.budget = self.budget.saturating_sub(arrivals.len().max(16) as u64);
            let run = self.case.play(arrivals, order).ok();
            let found = run.and_then(|run| examine(&self.case.problem, &run));
            let Some(Found { shows, .. }) = found else { continue };
            if shows == Shows::Violation || self.best.is_none() {
                self.best = Some((arrivals.to_vec(), order, shows));
            }
            if shows == Shows::Violation {
                return true;
            }
        }
        false
    }
}

/// How long after the start of its burst the load asks for too much; zero if the burst is not to blame.
fn binding_instant(refused: &AdmissionError) -> u64 {
    match refused {
        AdmissionError::Burst(binding) => binding.delta.as_nanos(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
