//! From a problem of several services as written to values that can only be right, or an error that says which field is
//! not.

use std::collections::{BTreeMap, HashSet};

use rt_core::sharing::{MAX_SERVICES, MAX_TURN, Rule};
use rt_core::{MAX_BATCH, MAX_WORKERS, Span, Stalls};
use serde_json::value::RawValue;

use super::super::check::{Check, name, number, refuse, without_levels};
use super::super::{MAX_STREAMS, ProblemError};
use super::{Service, SharedProblem, raw};
use crate::number::Number;

pub(super) fn problem(raw: raw::SharedProblem) -> Result<SharedProblem, ProblemError> {
    let check = Check { unit: raw.unit };
    number("workers.count", raw.workers.count, 1, MAX_WORKERS)?;
    let rule = match raw.rule.as_str() {
        "edf" => Some(Rule::Earliest),
        "turns" => Some(Rule::Turns),
        "auto" => None,
        "patience" => return Err(refuse("rule", "patience", "is not supported: must be edf, turns or auto")),
        other => return Err(refuse("rule", other, "must be edf, turns or auto")),
    };
    let stalls = raw.stalls.map(|stalls| check.stalls(stalls)).transpose()?;
    if let Some(recovery) = raw.stalls.and_then(|stalls| stalls.recovery) {
        let reason = "stalls of shared workers are kept back of the deadlines: remove it";
        return Err(refuse("stalls.recovery", recovery, reason));
    }
    number("length of services", raw.services.len(), 1, MAX_SERVICES)?;
    let (mut names, mut services, mut streams) = (HashSet::new(), Vec::new(), 0);
    for (i, one) in raw.services.iter().enumerate() {
        let field = format!("services[{i}]");
        name(&format!("{field}.name"), &one.name)?;
        if !names.insert(&one.name) {
            return Err(refuse(&format!("{field}.name"), &one.name, "is taken already"));
        }
        services.push(service(&check, &field, one, stalls)?);
        streams += one.streams.len();
        let all = format!("length of {field}.streams, added to those before,");
        number(&all, streams, 0, MAX_STREAMS)?;
    }
    Ok(SharedProblem { workers: raw.workers.count, stalls, rule, services, raw })
}

fn service(
    check: &Check,
    field: &str,
    raw: &raw::Service,
    stalls: Option<Stalls>,
) -> Result<Service, ProblemError> {
    let of = |name: &str| format!("{field}.{name}");
    let deadline = check.span(&of("deadline"), raw.deadline, Span::from_nanos(1))?;
    let guard = check.span(&of("guard"), raw.guard, Span::ZERO)?;
    if guard >= deadline {
        let reason = format_args!("must be below the deadline, {}", raw.deadline);
        return Err(refuse(&of("guard"), raw.guard, reason));
    }
    let batch = number(&of("batch"), raw.batch, 1, MAX_BATCH)?;
    let profile = check.profile(field, batch, raw.time, raw.times.as_deref())?;
    let one = profile.bound(1);
    let lost = Stalls::reserve_of(stalls);
    if guard + lost + one > deadline {
        let [one, lost] = [one, lost].map(|span| Number::of_span(span, check.unit));
        let (words, more) = stalls.map_or(("", String::new()), |_| (" + stalls", format!(" + {lost}")));
        let reason = format_args!(
            "leaves no time for one request: must be at least guard + P(1){words} = {} + {one}{more}",
            raw.guard
        );
        return Err(refuse(&of("deadline"), raw.deadline, reason));
    }
    if let Some(turn) = raw.turn {
        number(&of("turn"), turn as usize, 1, MAX_TURN as usize)?;
    }
    let streams = check.streams(&of("streams"), &raw.streams)?;
    without_levels(&of("streams"), &streams)?;
    let (name, time, turn) = (raw.name.clone(), profile.bound(batch), raw.turn);
    Ok(Service { name, deadline, guard, batch, time, profile, turn, streams })
}

/// Refuses, beside `services`, what only a problem of a single service has.
pub(super) fn no_field_of_one(fields: &BTreeMap<String, Box<RawValue>>) -> Result<(), ProblemError> {
    for (field, reason) in [
        ("deadline", "each of the services has its own: move it there"),
        ("guard", "each of the services has its own: move it there"),
        ("streams", "each of the services has its own: move them there"),
        ("dispatch", "a worker that is shared takes a batch at once: remove it"),
    ] {
        if let Some(value) = fields.get(field) {
            return Err(refuse(field, value, reason));
        }
    }
    match fields.get("workers") {
        Some(list) if list.get().starts_with('[') => {
            let reason = "must be {\"count\": N} beside services, each of which has its own batch and times";
            Err(refuse("workers", list, reason))
        }
        _ => Ok(()),
    }
}
