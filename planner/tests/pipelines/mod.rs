//! What the tests of certificates of pipelines ask of both programs.

use planner::verify::{Verified, verify};
use planner::{Certificate, PipelineClaim, PipelineProblem, Question, certify_pipeline};

pub(crate) use crate::prover::prover;
use serde_json::Value;

pub(crate) fn read(problem: &Value) -> PipelineProblem {
    match Question::parse(&problem.to_string()) {
        Ok(Question::Pipeline(problem)) => problem,
        other => panic!("{problem}: {other:?}"),
    }
}

pub(crate) fn certified(problem: &Value) -> PipelineClaim {
    certify_pipeline(&read(problem))
}

pub(crate) fn checked(claim: PipelineClaim) -> Result<Verified, String> {
    let made = Certificate::of_pipeline("weir 0.1.0", claim);
    // As anyone reads it.
    let read = Certificate::parse(&made.to_json()).expect("a certificate");
    assert_eq!(read, made);
    verify(&read).map_err(|no| no.to_string())
}
