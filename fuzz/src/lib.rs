//! What must hold whatever the input; each function is the body of one fuzz target.
#![forbid(unsafe_code)]

mod files;
mod frames;
mod inference;
mod recording;
mod sharing;
mod small;

use std::collections::BTreeMap;

use planner::certificate::Rule;
use planner::verify::{VerifyError, verify};
use planner::{Certificate, CertificateError, Claim, Problem, certify};
use rt_core::AdmissionError;

pub use files::{experiment, policy};
pub use frames::{client_frames, daemon_frames};
pub use inference::{grpc_answer, grpc_call, http_answer, http_call};
pub use recording::recording;
pub use sharing::sharing;
pub use small::{small_problem, small_sharing};

/// Reads `data` as a problem. One that is accepted is written and read back as the same.
pub fn problem(data: &[u8]) {
    let Some(problem) = text(data).and_then(|text| Problem::parse(text).ok()) else { return };
    let written = serde_json::to_string(&problem.raw).expect("keys are strings");
    assert_eq!(Problem::parse(&written).expect("it was accepted"), problem, "{written}");
}

/// Reads `data` as a certificate, its digest put right if need be. One that is accepted is written and read back as
/// the same; checking it comes to an end, and confirms no promise that admission refuses.
pub fn certificate(data: &[u8]) {
    let Some(certificate) = text(data).and_then(read) else { return };
    let written = certificate.to_json();
    assert_eq!(Certificate::parse(&written).expect("it was accepted"), certificate, "{written}");
    if verify(&certificate).is_err() {
        return;
    }
    for claim in certificate.claims.iter().filter(|claim| claim.admissible && claim.rule != Rule::Refined) {
        // The checker does not care for names, numbers of workers and other limits of the format.
        let Ok(problem) = Problem::from_raw(claim.problem.clone()) else { continue };
        let answer = problem.system().admit(problem.specs());
        assert!(!matches!(answer, Err(e) if e != AdmissionError::Horizon), "{answer:?}: {written}");
    }
}

/// Makes a small problem of `data`, or reads one if it is text, and answers it: the certificate survives being written
/// and read, and the checker confirms it or has too much work, but contradicts nothing. Nor does it confirm the
/// opposite of a refusal.
pub fn answer(data: &[u8]) {
    let problem = match text(data).filter(|text| text.starts_with('{')) {
        Some(text) => Problem::parse(text).ok().filter(is_small),
        None => Problem::parse(&small_problem(data)).ok(),
    };
    let Some(problem) = problem else { return };
    let claim = certify(&problem);
    let certificate = Certificate::new("fuzz", BTreeMap::new(), vec![claim.clone()]);
    let written = certificate.to_json();
    assert_eq!(Certificate::parse(&written).expect("just made"), certificate, "{written}");
    let said = verify(&certificate);
    assert!(said.as_ref().err().is_none_or(unconfirmed), "{said:?}: {written}");
    if !claim.admissible && claim.rule != Rule::Horizon {
        for rule in [Rule::TheoremA, Rule::Refined, Rule::NothingPromised] {
            let forced = Claim { admissible: true, rule, ..claim.clone() };
            let forced = Certificate::new("fuzz", BTreeMap::new(), vec![forced]);
            assert!(verify(&forced).is_err(), "a refusal is confirmed as a promise: {written}");
        }
    }
}

/// Runs `target` on every file that is named on the command line, one line each: to look at what a fuzzer found, with
/// no fuzzer.
///
/// # Errors
/// If a file cannot be read.
pub fn replay<T>(target: impl Fn(&[u8]) -> T) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(&path)?;
        println!("{}: {} bytes", path.display(), data.len());
        target(&data);
    }
    Ok(())
}

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// As [`Certificate::parse`], but no input can be expected to have the right digest.
fn read(text: &str) -> Option<Certificate> {
    match Certificate::parse(text) {
        Err(CertificateError::Digest { written, computed }) if !written.is_empty() => {
            Certificate::parse(&text.replacen(&written, &computed, 1)).ok()
        }
        other => other.ok(),
    }
}

/// Whether an answer takes next to no time: certificates of large problems are promised to be quick, not that quick.
fn is_small(problem: &Problem) -> bool {
    problem.streams.len() <= 3 && problem.system().workers.iter().all(|w| w.count <= 3 && w.batch <= 4)
}

fn unconfirmed(error: &VerifyError) -> bool {
    error.derived.starts_with("not confirmed")
}
