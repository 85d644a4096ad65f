//! Whether a plan is taken, and when the next one is looked for: rules alone, with time as an argument.

use std::collections::VecDeque;

use rt_core::{Instant, Span};

use super::solver::Trial;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Proposal {
    /// Whether all demand and every promise fit.
    pub(crate) feasible: bool,
    /// In points.
    pub(crate) accuracy: Option<f64>,
    /// Services that it has elsewhere, or with other models.
    pub(crate) changes: usize,
    /// Whether one of these cannot do what is expected of it where it is, with the workers that it has left.
    pub(crate) is_needed: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is what is served.
    Same,
    /// It gains too little.
    TooLittle,
    /// Virtual time says something against it.
    Worse,
    /// Not everything fits, and what is served does what is asked of it as well.
    DoesNotFit,
    Take,
}

/// A plan is taken if it changes a service that cannot carry what is expected of it, or if it gains `hysteresis` points over the `present`
/// share of right answers, in points, which nobody may know.
pub(crate) fn verdict(present: Option<f64>, proposal: Proposal, hysteresis: f64) -> Verdict {
    let gain = present.zip(proposal.accuracy).map(|(now, then)| then - now);
    match proposal {
        Proposal { changes: 0, feasible: true, .. } => Verdict::Same,
        Proposal { changes: 0, .. } => Verdict::DoesNotFit,
        Proposal { is_needed: true, .. } => Verdict::Take,
        Proposal { feasible: false, .. } => Verdict::DoesNotFit,
        // What nobody knows is no reason.
        _ if gain.is_some_and(|gain| gain >= hysteresis) => Verdict::Take,
        _ => Verdict::TooLittle,
    }
}

/// What virtual time says against a plan that was to be tried in it.
pub(crate) fn objection(trial: Option<&Trial>) -> Option<String> {
    let Some(Trial { seconds, requests, present, planned, broken }) = trial else {
        return Some("there was no time to try it for demand that was never seen".to_owned());
    };
    let tried = format!("in {seconds:.0} s of virtual time, of {requests} requests that come at random,");
    if !broken.is_empty() {
        return Some(format!("{tried} it breaks the promise of {}", broken.join(", ")));
    }
    let worse = present.filter(|present| planned < present)?;
    Some(format!("{tried} it answers {planned:.3} % right, and what is served {worse:.3} %"))
}

/// How many services may be changed still: so many in any stretch of a period.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(VecDeque<Instant>);

impl Budget {
    /// What is left of `budget` changes a `period`.
    pub(crate) fn left(&mut self, now: Instant, budget: usize, period: Span) -> usize {
        while self.0.front().is_some_and(|&at| now.since(at) >= period) {
            self.0.pop_front();
        }
        budget.saturating_sub(self.0.len())
    }

    /// One is made now.
    pub(crate) fn spend(&mut self, now: Instant) {
        self.0.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of what the rules look at, each with the answer that follows from the words of the documentation.
    #[test]
    fn a_plan_is_taken_for_need_or_for_gain() {
        let accuracies = [None, Some(80.0), Some(80.4), Some(80.5), Some(90.0)];
        for (now, then) in accuracies.into_iter().flat_map(|now| accuracies.map(|then| (now, then))) {
            for (is_needed, feasible, changes) in [true, false]
                .into_iter()
                .flat_map(|n| [true, false].map(|f| (n, f)))
                .flat_map(|(n, f)| [0, 1, 4].map(|c| (n, f, c)))
            {
                let proposal = Proposal { feasible, accuracy: then, changes, is_needed };
                let told = verdict(now, proposal, 0.5);
                let gains = matches!((now, then), (Some(now), Some(then)) if then - now >= 0.5);
                let taken = changes > 0 && (is_needed || feasible && gains);
                assert_eq!(told == Verdict::Take, taken, "{now:?} {proposal:?}");
                assert_eq!(told == Verdict::Same, changes == 0 && feasible);
            }
        }
    }

    #[test]
    fn what_is_worse_in_virtual_time_or_breaks_a_promise_there_is_objected_to() {
        let trial = |present, planned, broken: &[&str]| Trial {
            seconds: 30.0,
            requests: 900,
            present,
            planned,
            broken: broken.iter().map(|&name| name.to_owned()).collect(),
        };
        let objects = |trial: Trial| objection(Some(&trial));
        assert_eq!(objects(trial(Some(80.0), 80.0, &[])), None);
        assert_eq!(objects(trial(None, 10.0, &[])), None, "nothing to compare with");
        let told = objects(trial(Some(80.0), 79.5, &[])).expect("worse");
        assert!(told.ends_with("it answers 79.500 % right, and what is served 80.000 %"), "{told}");
        let told = objects(trial(Some(10.0), 90.0, &["a", "b"])).expect("broken");
        assert!(told.ends_with("it breaks the promise of a, b"), "{told}");
        assert!(objection(None).is_some(), "what was not tried is not known");
    }

    #[test]
    fn no_stretch_of_a_period_has_more_changes_than_the_budget() {
        let at = |ms: u64| Instant::ZERO + Span::from_millis(ms);
        let (mut budget, mut made) = (Budget::default(), Vec::new());
        for ms in (0..10_000).step_by(37) {
            if budget.left(at(ms), 3, Span::from_millis(1_000)) > 0 {
                budget.spend(at(ms));
                made.push(ms);
            }
        }
        assert!(made.windows(4).all(|four| four[3] - four[0] >= 1_000), "{made:?}");
        assert!(made.len() > 25, "what may be changed is: {made:?}");
    }
}
