//! Problems of several services on the same workers, read from text or made of any bytes.

use planner::certificate::SharedReason;
use planner::verify::verify;
use planner::{Certificate, Question, SharedClaim, SharedProblem, certify_shared};

use super::small::small_sharing;

/// Makes a small problem of several services of `data`, or reads one if it is text: it is written and read back as the same. A small
/// one is answered, as [`crate::answer`] does. Returns whether it is one.
pub fn sharing(data: &[u8]) -> bool {
    let question = match super::text(data).filter(|text| text.starts_with('{')) {
        Some(text) => Question::parse(text),
        None => Question::parse(&small_sharing(data)),
    };
    let Ok(Question::Shared(problem)) = question else { return false };
    let written = serde_json::to_string(&problem.raw).expect("keys are strings");
    let again = Question::parse(&written).expect("it was accepted");
    assert_eq!(again, Question::Shared(problem.clone()), "{written}");
    if is_small(&problem) {
        answer(&problem);
    }
    true
}

/// Answers it; whether all of it is promised.
fn answer(problem: &SharedProblem) -> bool {
    let claim = certify_shared(problem);
    let certificate = Certificate::of_shared("fuzz", claim.clone());
    let written = certificate.to_json();
    assert_eq!(Certificate::parse(&written).expect("just made"), certificate, "{written}");
    let said = verify(&certificate);
    assert!(said.as_ref().err().is_none_or(super::unconfirmed), "{said:?}: {written}");
    if !claim.admissible && claim.rule != SharedReason::Horizon {
        for rule in [SharedReason::Edf, SharedReason::Turns, SharedReason::NothingPromised] {
            let forced = SharedClaim { admissible: true, rule, ..claim.clone() };
            let forced = Certificate::of_shared("fuzz", forced);
            assert!(verify(&forced).is_err(), "a refusal is confirmed as a promise: {written}");
        }
    }
    claim.admissible
}

/// Whether an answer takes next to no time.
fn is_small(problem: &SharedProblem) -> bool {
    let streams: usize = problem.services.iter().map(|service| service.streams.len()).sum();
    let batches = problem.services.iter().all(|service| service.batch <= 4);
    problem.workers <= 3 && problem.services.len() <= 4 && streams <= 6 && batches
}
