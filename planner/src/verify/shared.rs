//! The checker where services share workers: the lines of Theorems E and T, derived from the problem and from what the
//! claim says of starts and turns.
//!
//! Starts that keep every line of Theorem E are proof by themselves, however they were found. Of limits it looks for such
//! starts itself, from below.

mod curves;
mod horizon;
mod lines;
mod rare;
mod read;
mod relief;
mod starts;

use super::problem::time;
use super::{
    UNCONFIRMED, Verified, VerifyError, answered, explained, is_of, keeps_to_curves, same, same_time, wrong,
};
use crate::certificate::{Reference, SharedBinding, SharedClaim, SharedReason};
use crate::number::Number;
use crate::problem::raw::Unit;
use lines::{Line, Lines, Rule};
use read::Shared;

pub(super) fn check(claim: &SharedClaim, verified: &mut Verified) -> Result<(), VerifyError> {
    let (shared, unit) = (Shared::read(&claim.problem)?, claim.problem.unit);
    let asked = claim.problem.rule.as_str();
    if !["edf", "turns", "auto"].contains(&asked) {
        return Err(wrong("problem.rule", asked, "edf, turns or auto"));
    }
    same("services", &claim.services.len(), &shared.services.len())?;
    for (s, (answer, service)) in claim.services.iter().zip(&shared.services).enumerate() {
        let field = format!("services[{s}]");
        same(format!("{field}.name"), &answer.name, &service.name)?;
        same(format!("{field}.streams"), &answer.streams.len(), &service.streams.len())?;
        for (i, (answer, stream)) in answer.streams.iter().zip(&service.streams).enumerate() {
            let (told, asked) = (&answer.constraints, &claim.problem.services[s].streams[i].constraints);
            let field = format!("{field}.streams[{i}]");
            answered(&field, (&answer.name, answer.density, told), asked, stream)?;
        }
    }
    explained(claim.admissible, claim.reason.as_deref(), claim.refutation.as_ref())?;
    if !claim.admissible {
        verified.refused += 1;
        let Some(refutation) = &claim.refutation else { return Ok(()) };
        let mut streams = Vec::new();
        for service in &shared.services {
            streams.extend(service.streams.iter().map(|s| (format!("{}/{}", service.name, s.name), s)));
        }
        let background = |name: &str| {
            claim.problem.background && is_of(shared.services.iter().map(|service| &service.name), name)
        };
        return keeps_to_curves(refutation, streams.into_iter(), unit, background);
    }
    verified.promised += 1;
    let nothing = shared.services.iter().all(|s| !s.demands());
    let rule = match (nothing, claim.rule, asked) {
        (true, ..) => SharedReason::NothingPromised,
        (_, SharedReason::Turns, "turns" | "auto") | (_, _, "turns") => SharedReason::Turns,
        _ => SharedReason::Edf,
    };
    same("rule", &claim.rule, &rule)?;
    same("binding", &claim.binding.is_some(), &!nothing)?;
    same("overrun_margin", &claim.overrun_margin.is_some(), &!nothing)?;
    let turns = turns(claim, rule == SharedReason::Turns)?;
    let within = starts(claim, &shared)?;
    let Some(binding) = &claim.binding else { return Ok(()) };
    let rule = if rule == SharedReason::Turns { Rule::Turns(turns) } else { Rule::Earliest };
    shared.stalls_are_rare(&rule).map_err(|no| wrong("admissible", true, no))?;
    let line = claimed(binding, &Lines::new(&shared, &rule, &within), unit);
    let least = |margin| {
        let later = shared.later_by(margin);
        let least = Lines::new(&later, &rule, &within).all();
        least.map(|least| margin + least).map_err(|no| wrong("admissible", true, lines::told(&no)))
    };
    // Something may leave more in place of a line that holds by less.
    let told = line.as_ref().map_or(0, |line| line.margin().max(0));
    let least = least(told).or_else(|no| if told == 0 { Err(no) } else { least(0) })?;
    let line = line?;
    same_time("binding.lhs", Some(binding.lhs), unit, line.lhs)?;
    same_time("binding.rhs", Some(binding.rhs), unit, line.rhs)?;
    if line.margin() != least {
        let derived = format!("one of {least} ns");
        return Err(wrong("binding", format!("a line of margin {} ns", line.margin()), derived));
    }
    same_time("overrun_margin", claim.overrun_margin, unit, least)?;
    limits(claim, &shared, &rule, verified)
}

/// What a claim that promises something says to another checker.
pub(super) struct Told {
    pub(super) problem: Shared,
    pub(super) turns: Vec<i128>,
    /// Within what time of its arrival a request of each service begins.
    pub(super) within: Vec<i128>,
    /// By how much batches may exceed their times in all.
    pub(super) margin: i128,
}

pub(super) fn told(claim: &SharedClaim) -> Result<Told, VerifyError> {
    let problem = Shared::read(&claim.problem)?;
    let margin = claim.overrun_margin.and_then(|margin| time(margin, claim.problem.unit)).unwrap_or(0);
    let turns = turns(claim, claim.rule == SharedReason::Turns)?;
    let within = starts(claim, &problem)?;
    Ok(Told { problem, turns, within, margin })
}

/// The batches in a turn of each service, where they matter.
fn turns(claim: &SharedClaim, matter: bool) -> Result<Vec<i128>, VerifyError> {
    let mut turns = Vec::new();
    for (s, (answer, asked)) in claim.services.iter().zip(&claim.problem.services).enumerate() {
        let stated = asked.turn.or(answer.turn).filter(|turn| (1..=1 << 16).contains(turn));
        let derived = matter.then(|| stated.unwrap_or(1));
        same(format!("services[{s}].turn"), &answer.turn, &derived)?;
        turns.push(answer.turn.unwrap_or(1).into());
    }
    Ok(turns)
}

/// Within what time of its arrival a request of each service is in a batch, as it is claimed; never later than in time.
fn starts(claim: &SharedClaim, shared: &Shared) -> Result<Vec<i128>, VerifyError> {
    let mut within = Vec::new();
    for (s, (answer, service)) in claim.services.iter().zip(&shared.services).enumerate() {
        let field = format!("services[{s}].start_within");
        same(&field, &answer.start_within.is_some(), &service.demands())?;
        let Some(claimed) = answer.start_within else {
            within.push(0);
            continue;
        };
        let latest = shared.latest(s);
        let fits = time(claimed, claim.problem.unit).filter(|&start| start <= latest);
        within.push(fits.ok_or_else(|| wrong(&field, claimed, format!("{latest} ns at most")))?);
        if claim.rule == SharedReason::Turns {
            same(&field, &within[s], &latest)?;
        }
    }
    Ok(within)
}

/// The line that a claim names, reckoned anew.
fn claimed(binding: &SharedBinding, lines: &Lines<'_>, unit: Unit) -> Result<Line, VerifyError> {
    let service = |field: &str, name: &String| {
        let found = lines.shared.services.iter().position(|s| s.name == *name);
        found.ok_or_else(|| wrong(format!("binding.{field}"), name, "one of the services"))
    };
    let reference = match &binding.reference {
        Reference::Clear => lines::Reference::Clear,
        Reference::Short(name) => lines::Reference::Short(service("reference", name)?),
        Reference::Turn => lines::Reference::Turn,
        Reference::Singly => lines::Reference::Singly,
        Reference::Arrival => lines::Reference::Arrival,
        Reference::After => lines::Reference::After,
    };
    let of = service("service", &binding.service)?;
    if matches!(reference, lines::Reference::Arrival | lines::Reference::After) {
        let distance = time(binding.distance, unit).filter(|z| (0..=lines::FARTHEST).contains(z));
        let distance = distance.ok_or_else(|| wrong("binding.distance", binding.distance, "a distance"))?;
        let both = lines.counted_from(reference, of, distance);
        // Either is a line.
        let claimed = |line: &&Line| time(binding.lhs, unit) == Some(line.lhs);
        return Ok(*both.iter().find(claimed).unwrap_or(&both[0]));
    }
    let no = || wrong("binding.distance", binding.distance, "where there is such a line");
    time(binding.distance, unit).and_then(|distance| lines.at(reference, of, distance)).ok_or_else(no)
}

/// What is claimed to be just admissible is.
fn limits(
    claim: &SharedClaim,
    shared: &Shared,
    rule: &Rule,
    verified: &mut Verified,
) -> Result<(), VerifyError> {
    let mut test = |field: String, value: Number, changed: Option<Shared>| {
        match changed.map_or(Err("no value".to_owned()), |changed| starts::admits(&changed, rule)) {
            Err(no) if !no.starts_with(UNCONFIRMED) => return Err(wrong(field, value, no)),
            tested => verified.limits += usize::from(tested.is_ok()),
        }
        Ok(())
    };
    // Its thousandths are the nanoseconds of as many microseconds.
    let hastened = |scale: Number, one: Option<usize>| {
        let (mut changed, thousandths) = (shared.clone(), time(scale, Unit::Us)?);
        let services =
            changed.services.iter_mut().enumerate().filter(|(s, _)| one.is_none_or(|one| one == *s));
        let mut bounds = services.flat_map(|(_, s)| &mut s.streams).flat_map(|s| &mut s.bounds);
        bounds.try_for_each(|bound| bound.hasten(thousandths))?;
        Some(changed)
    };
    if let Some(scale) = claim.max_load_scale {
        test("max_load_scale".to_owned(), scale, hastened(scale, None))?;
    }
    for (s, answer) in claim.services.iter().enumerate() {
        if let Some(scale) = answer.max_rate_scale {
            test(format!("services[{s}].max_rate_scale"), scale, hastened(scale, Some(s)))?;
        }
        if let Some(deadline) = answer.min_deadline {
            let mut changed = shared.clone();
            let latency = time(deadline, claim.problem.unit).map(|d| d - changed.services[s].guard);
            let changed = latency.map(|latency| {
                changed.services[s].latency = latency;
                changed
            });
            test(format!("services[{s}].min_deadline"), deadline, changed)?;
        }
    }
    Ok(())
}
