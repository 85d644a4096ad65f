//! By which rule services share workers, and with which turns: those by which they carry most.

use std::cell::RefCell;

use rt_core::StreamSpec;
use rt_core::sharing::{Rule, SharedAdmission, SharingError};

use super::MAX_SCALE;
use super::scale::ONE;
use super::shared::{MAX_POINTS, Search, largest_scale, sent_faster, told};
use crate::problem::SharedProblem;

/// How often a turn is made longer before a load is given up.
const MAX_TRIES: usize = 64;

/// The rule that decided, with its turns, and what its test says.
#[derive(Clone, Debug)]
pub struct Decision {
    /// By which the workers must go.
    pub rule: Rule,
    /// Batches in a turn of each service, for [`Rule::Turns`].
    pub turns: Vec<u32>,
    /// What the test of the rule says.
    pub answer: Result<SharedAdmission, SharingError>,
    /// For a refusal, in words.
    pub reason: Option<String>,
}

/// The answer of the admission tests to `problem`, without its limits: by the rule that is asked for, else by the one with which all
/// streams may send fastest; of equals by earliest deadline. Turns that are not stated are the shortest with which they may.
#[must_use]
pub fn decide(problem: &SharedProblem) -> Decision {
    if let Some(rule) = problem.rule {
        return carrying_most(problem, decide_by(problem, rule));
    }
    let first = decide_by(problem, Rule::Earliest);
    // These speak of every rule.
    if matches!(first.answer, Err(SharingError::Rate { .. } | SharingError::Latency { .. })) {
        return first;
    }
    let second = carrying_most(problem, decide_by(problem, Rule::Turns));
    match (&first.reason, &second.reason) {
        (Some(edf), Some(turns)) => Decision { reason: Some(by_neither(edf, turns)), ..first },
        (Some(_), None) => second,
        (None, Some(_)) => first,
        (None, None) if second.carries_more(problem, &first) => second,
        (None, None) => first,
    }
}

/// The same by one rule, and with the shortest turns with which all is kept.
#[must_use]
pub fn decide_by(problem: &SharedProblem, rule: Rule) -> Decision {
    let stated: Vec<u32> = problem.services.iter().map(|s| s.turn.unwrap_or(1)).collect();
    let specs: Vec<Vec<StreamSpec>> = problem.specs().collect();
    let admit = |turns: &[u32]| problem.sharing(rule, turns).admit(&lists(&specs));
    let (turns, answer) = match rule {
        Rule::Earliest => (stated.clone(), admit(&stated)),
        Rule::Turns => match shortest_turns(problem, stated.clone(), admit) {
            Ok((turns, admission)) => (turns, Ok(admission)),
            Err(no) => (stated, Err(no)),
        },
    };
    let reason = answer.as_ref().err().map(|no| told(no, |service| &problem.services[service].name));
    Decision { rule, turns, answer, reason }
}

/// Why no rule will do, in words, where each of the two has a reason.
#[must_use]
pub fn by_neither(edf: &str, turns: &str) -> String {
    format!("by earliest deadline: {edf}; by turns: {turns}")
}

impl Decision {
    /// Whether all streams may send faster than by the `other`. Both hold.
    fn carries_more(&self, problem: &SharedProblem, other: &Self) -> bool {
        fn search<'a>(problem: &'a SharedProblem, of: &'a Decision) -> Search<'a> {
            Search { problem, rule: of.rule, turns: &of.turns, admitted: of.answer.is_ok() }
        }
        let most = search(problem, other).scale(None);
        // What passes at a scale passes below it.
        most < MAX_SCALE * ONE && search(problem, self).passes_at(most + 1, None)
    }
}

/// What holds, with the shortest turns with which all streams may send fastest: these hold for what is sent more slowly as well.
fn carrying_most(problem: &SharedProblem, decision: Decision) -> Decision {
    let chosen = problem.services.iter().any(|service| service.turn.is_none());
    if decision.rule == Rule::Earliest || decision.answer.is_err() || !chosen {
        return decision;
    }
    let turns = RefCell::new(decision.turns.clone());
    let _ = largest_scale(|scale| {
        let Some(specs) = sent_faster(problem, scale, None) else { return false };
        let from = turns.borrow().clone();
        let passes = |turns: &[u32]| problem.sharing(Rule::Turns, turns).admits(&lists(&specs), MAX_POINTS);
        shortest_turns(problem, from, passes).map(|(longer, ())| turns.replace(longer)).is_ok()
    });
    let turns = turns.into_inner();
    let specs: Vec<Vec<StreamSpec>> = problem.specs().collect();
    let answer = problem.sharing(Rule::Turns, &turns).admit(&lists(&specs));
    if answer.is_ok() { Decision { turns, answer, ..decision } } else { decision }
}

/// The shortest turns that pass, from `turns` on, and what is said of them: where a service fails whose turn is not stated, its turn
/// must be longer, for longer turns of others only make it wait longer.
///
/// # Errors
/// If none of those that are tried do: what is said of those that were tried first.
pub(super) fn shortest_turns<T>(
    problem: &SharedProblem,
    mut turns: Vec<u32>,
    passes: impl Fn(&[u32]) -> Result<T, SharingError>,
) -> Result<(Vec<u32>, T), SharingError> {
    let first = match passes(&turns) {
        Ok(said) => return Ok((turns, said)),
        Err(no) => no,
    };
    let mut last = first;
    for _ in 0..MAX_TRIES {
        let SharingError::Late(line) = last else { break };
        if problem.services[line.service].turn.is_some() {
            break;
        }
        turns[line.service] += 1;
        match passes(&turns) {
            Ok(said) => return Ok((turns, said)),
            Err(no) => last = no,
        }
    }
    Err(first)
}

pub(super) fn lists(specs: &[Vec<StreamSpec>]) -> Vec<&[StreamSpec]> {
    specs.iter().map(Vec::as_slice).collect()
}
