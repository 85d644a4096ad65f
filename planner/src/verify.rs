//! The checker: reads a certificate as if its maker were a liar, and derives every promise again from its problem.
//!
//! It shares nothing but types with the program that writes certificates: it reads decimals, constraints and curves
//! itself, into integers of 128 bits. Of a claim that says yes it checks the densities, Theorem A or its refinement at
//! every instant that matters, `binding`, `busy` and `waiting`, and that `min_deadline`, `min_workers` and
//! `max_load_scale` pass, and every scale of `contingencies`. A claim that says no promises nothing: its refutation must keep to the curves.
//!
//! Of services that share workers it derives every line of Theorems E and T in the same way (`verify/shared.rs`), of a
//! pipeline every term of Theorems P1 and P2 (`verify/pipeline.rs`).
//!
//! Not checked: whether a refutation replays to a miss, which is for `replay` to see; that a limit is the last value
//! that passes, what binds there, limits that need the refinement or too many steps, those of bursts and of single
//! streams; the standing of constraints, Theorem B; `service`, `machine`; with what others would promise a pipeline is compared. Where the refinement decides, the tightest
//! instant is checked by its margin, to within a tick; where a load repeats at capacity, `busy` may be any time.
//! There `waiting` may be more than is derived.

mod contingency;
mod levels;
mod pipeline;
mod problem;
mod proved;
mod refined;
mod shared;
mod theorem;

use std::collections::HashMap;
use std::fmt::Display;

use serde::Serialize;

use crate::certificate::{Certificate, Claim, Refutation, Rule};
use crate::number::Number;
use crate::problem::raw::Unit;
use problem::{Stream, System, time};

pub use proved::{Prover, ProverError, Unproved, chosen_line, problem_line, sharing_line};

/// The most rises of a curve that are looked at; beyond, nothing is confirmed.
const MAX_STEPS: i128 = 1 << 22;
/// How the reason begins where nothing is known to be wrong.
const UNCONFIRMED: &str = "not confirmed";

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Claims that promise something, all of which holds.
    pub promised: usize,
    /// Claims that promise nothing.
    pub refused: usize,
    /// Limits of claims that were derived again.
    pub limits: usize,
}

/// A field that does not say what follows from the problem, or that cannot be confirmed with so little work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{claim}: {field} is {claimed}, derived: {derived}")]
pub struct VerifyError {
    /// Which claim, if it is about one.
    pub claim: String,
    /// Which field.
    pub field: String,
    /// What it says.
    pub claimed: String,
    /// What follows.
    pub derived: String,
}

/// Checks everything that `certificate` promises. Its version is checked where it is read.
///
/// # Errors
/// [`VerifyError`] for the first thing that does not follow, or is not confirmed.
pub fn verify(certificate: &Certificate) -> Result<Verified, VerifyError> {
    let mut verified = Verified::default();
    same("digest", &certificate.digest, &certificate.compute_digest())?;
    for (i, claim) in certificate.claims.iter().enumerate() {
        let service = claim.service.as_ref().map(|s| format!(", service {}", s.name)).unwrap_or_default();
        let name = |error| VerifyError { claim: format!("claim {i}{service}"), ..error };
        check(claim, &mut verified).map_err(name)?;
    }
    for claim in &certificate.shared {
        let name = |error: VerifyError| match &claim.device {
            Some(device) => VerifyError { claim: format!("device {}", device.name), ..error },
            None => error,
        };
        shared::check(claim, &mut verified).map_err(name)?;
    }
    for claim in &certificate.pipelines {
        let name = |error: VerifyError| match &claim.service {
            Some(service) => VerifyError { claim: format!("pipeline {}", service.name), ..error },
            None => error,
        };
        pipeline::check(claim, &mut verified).map_err(name)?;
    }
    Ok(verified)
}

fn check(claim: &Claim, verified: &mut Verified) -> Result<(), VerifyError> {
    let (system, unit) = (System::read(&claim.problem)?, claim.problem.unit);
    levels::check(&claim.problem.streams, unit)?;
    if !system.background || system.absorbed.is_some() {
        levels::absent(&claim.problem.streams)?;
    }
    if let Some(service) = &claim.service {
        same("service.kinds", &service.kinds.len().max(1), &system.kinds.len())?;
    }
    contingency::check(claim, &system, &mut verified.limits)?;
    same("streams", &claim.streams.len(), &system.streams.len())?;
    for (i, (answer, stream)) in claim.streams.iter().zip(&system.streams).enumerate() {
        let (told, asked) = (&answer.constraints, &claim.problem.streams[i].constraints);
        answered(&format!("streams[{i}]"), (&answer.name, answer.density, told), asked, stream)?;
    }
    explained(claim.admissible, claim.reason.as_deref(), claim.refutation.as_ref())?;
    if !claim.admissible {
        verified.refused += 1;
        return claim.refutation.as_ref().map_or(Ok(()), |r| {
            let streams = system.streams.iter().map(|stream| (stream.name.clone(), stream));
            keeps_to_curves(r, streams, unit, |_| system.background)
        });
    }
    verified.promised += 1;
    let rule = match claim.rule {
        _ if system.streams.iter().all(|s| s.p == 0) => Rule::NothingPromised,
        Rule::Refined if system.closed() => Rule::Refined,
        _ => Rule::TheoremA,
    };
    same("rule", &claim.rule, &rule)?;
    same("binding", &claim.binding.is_some(), &(rule != Rule::NothingPromised))?;
    let Some(claimed) = claim.binding else { return Ok(()) };
    let derived = system.test(rule == Rule::Refined).map_err(|no| wrong("admissible", true, no))?;
    let mut at = derived.tightest;
    let [delta, lhs, rhs] = [claimed.delta, claimed.lhs, claimed.rhs].map(|number| time(number, unit));
    if derived.refined {
        // There may be several such instants, and they need not be whole ticks.
        let there = delta.unwrap_or(0) + system.latency;
        let near = lhs.filter(|lhs| (there - lhs).abs_diff(at.rhs - at.lhs) < system.tick().unsigned_abs());
        let (lhs, backlog) = (near.unwrap_or(there - at.rhs + at.lhs), i128::from(claimed.backlog));
        at = theorem::Instant { delta: there - system.latency, backlog, lhs, rhs: there };
    }
    same("binding.delta", &delta, &Some(at.delta))?;
    same("binding.backlog", &i128::from(claimed.backlog), &at.backlog)?;
    same("binding.lhs", &lhs, &Some(at.lhs))?;
    same("binding.rhs", &rhs, &Some(at.rhs))?;
    // Where another walk may end elsewhere, it may count a little more.
    let waiting = claim.waiting.map(i128::from);
    let enough = derived.busy.is_none() && waiting.is_some_and(|claimed| claimed >= derived.waiting);
    same("waiting", &waiting, &if enough { waiting } else { Some(derived.waiting) })?;
    let busy = claim.busy.and_then(|busy| time(busy, unit));
    same("busy", &busy, &derived.busy.or(Some(busy.unwrap_or(0))))?;
    if system.closed() { Ok(()) } else { limits(claim, &system, verified) }
}

/// What is told of a stream, its name, density and constraints with their standings, is what was asked.
fn answered(
    field: &str,
    (name, (p, q), told): (&String, (u32, u32), &[(String, String)]),
    asked: &[String],
    stream: &Stream,
) -> Result<(), VerifyError> {
    same(format!("{field}.name"), name, &stream.name)?;
    let told: Vec<_> = told.iter().map(|(constraint, _)| constraint).collect();
    same(format!("{field}.constraints"), &told, &asked.iter().collect())?;
    let of = format!("{}/{}", stream.p, stream.q);
    let equal = q > 0 && i128::from(p) * stream.q == i128::from(q) * stream.p;
    let derived = if equal { format!("{p}/{q}") } else { of };
    same(format!("{field}.density"), &format!("{p}/{q}"), &derived)
}

/// The system with one input at its limit passes Theorem A.
fn limits(claim: &Claim, system: &System, verified: &mut Verified) -> Result<(), VerifyError> {
    let mut test = |field, value: &dyn Display, change: &dyn Fn(&mut System) -> Option<()>| {
        let mut system = system.clone();
        match change(&mut system).map_or(Err("no value".to_owned()), |()| system.test(false)) {
            Err(no) if !no.starts_with(UNCONFIRMED) => return Err(wrong(field, value, no)),
            tested => verified.limits += usize::from(tested.is_ok()),
        }
        Ok(())
    };
    if let Some(limit) = claim.limits.min_deadline {
        let latency = time(limit.value, claim.problem.unit).map(|deadline| deadline - system.guard);
        test("limits.min_deadline", &limit.value, &|s| latency.map(|latency| s.latency = latency))?;
    }
    if let Some(limit) = claim.limits.min_workers {
        let one_kind = |s: &System| s.kinds.len() == 1 && (1..1 << 16).contains(&limit.value);
        test("limits.min_workers", &limit.value, &|s| {
            one_kind(s).then(|| s.kinds[0].count = limit.value.into())
        })?;
    }
    // Its thousandths are the nanoseconds of as many microseconds.
    claim
        .max_load_scale
        .map_or(Ok(()), |scale| test("max_load_scale", &scale, &|s| s.hasten(time(scale, Unit::Us)?)))
}

/// No half-open interval holds more arrivals of a stream than it may send; other names are `background`.
fn keeps_to_curves<'a>(
    refutation: &Refutation,
    streams: impl Iterator<Item = (String, &'a Stream)>,
    unit: Unit,
    background: impl Fn(&str) -> bool,
) -> Result<(), VerifyError> {
    let streams = streams.map(|(name, s)| (name, (Vec::new(), vec![0; s.bounds.len()], s)));
    let (mut streams, mut last): (HashMap<_, _>, _) = (streams.collect(), 0);
    for (j, (instant, name)) in refutation.arrivals.iter().enumerate() {
        let field = format!("refutation.arrivals[{j}]");
        let now = time(*instant, unit).filter(|&now| now >= last);
        last = now.ok_or_else(|| wrong(&field, instant, format!("an instant from {last} ns on")))?;
        let Some((sent, regular, stream)) = streams.get_mut(name.as_str()) else {
            same(field, &"background", &if background(name) { "background" } else { "a stream" })?;
            continue;
        };
        for (bound, regular) in stream.bounds.iter().zip(regular) {
            let earliest = bound.earliest(sent, *regular);
            if last < earliest {
                return Err(wrong(
                    field,
                    format!("{name} at {last} ns"),
                    format!("{earliest} ns at the earliest"),
                ));
            }
            *regular = last.max(*regular) + bound.step;
        }
        sent.push(last);
    }
    let shown = streams.get(refutation.stream.as_str()).is_some_and(|(sent, ..)| !sent.is_empty());
    same(format!("refutation: requests of stream {}", refutation.stream), &shown, &true)
}

/// Whether a name is of one of these services or stages, as `NAME/…`.
fn is_of<'a>(mut parts: impl Iterator<Item = &'a String>, name: &str) -> bool {
    parts.any(|part| name.strip_prefix(part.as_str()).is_some_and(|rest| rest.starts_with('/')))
}

/// A no gives its reason, and nothing speaks against a yes.
fn explained(
    admissible: bool,
    reason: Option<&str>,
    refutation: Option<&Refutation>,
) -> Result<(), VerifyError> {
    let told = reason.is_some_and(|reason| admissible || !reason.is_empty());
    same("reason", &told, &!admissible)?;
    same("refutation", &(admissible && refutation.is_some()), &false)
}

fn same<T: PartialEq + Serialize>(field: impl Display, claimed: &T, derived: &T) -> Result<(), VerifyError> {
    if claimed == derived {
        Ok(())
    } else {
        // As the certificate has it.
        let text = |value: &T| serde_json::to_string(value).unwrap_or_default();
        Err(wrong(field, text(claimed), text(derived)))
    }
}

/// Of a time, which is told as the certificate has it.
fn same_time(
    field: impl Display,
    claimed: Option<Number>,
    unit: Unit,
    derived: i128,
) -> Result<(), VerifyError> {
    if claimed.and_then(|claimed| time(claimed, unit)) == Some(derived) {
        return Ok(());
    }
    let unit = serde_json::to_string(&unit).unwrap_or_default();
    let claimed = claimed.map(|claimed| format!("{claimed} {}", unit.trim_matches('"')));
    Err(wrong(field, claimed.as_deref().unwrap_or("null"), format!("{derived} ns")))
}

fn wrong(field: impl Display, claimed: impl Display, derived: impl Display) -> VerifyError {
    let [field, claimed, derived] = [field.to_string(), claimed.to_string(), derived.to_string()];
    VerifyError { claim: String::from("certificate"), field, claimed, derived }
}
