//! Theorems E and T, line by line at every distance, far beyond all that the admission test and the checker look at:
//! both say what the lines say, of many small systems near capacity. `WEIR_EXHAUSTIVE=n` looks at `n` times as many.

use planner::certificate::{SharedBinding, SharedReason, SharedServiceAnswer, SharedStreamAnswer};
use planner::certify::MAX_SCALE;
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, Number, Question, SharedClaim, SharedProblem, certify_shared};
use rt_core::sharing::{Rule, SharedAdmission, SharingError};
use rt_core::{Span, StreamSpec};

use crate::naive::lines::{Line, Service, Shared, Walk, draw, name};
use crate::naive::{CONSTRAINTS, Dice, Stream, arrivals, effort};

/// What of a system is no longer than this repeats often enough to be seen.
const LONGEST_PERIOD: u64 = 480;

fn read(system: &Shared, turns: bool) -> SharedProblem {
    match Question::parse(&system.text(if turns { "turns" } else { "edf" })) {
        Ok(Question::Shared(problem)) => problem,
        other => panic!("{system:?}: {other:?}"),
    }
}

fn whole(n: i64) -> Number {
    Number::whole(u64::try_from(n).expect("not negative"))
}

/// A promise with these starts, of which this is the tightest line.
fn claim(problem: &SharedProblem, system: &Shared, walk: &Walk, within: &[i64], line: &Line) -> SharedClaim {
    let turns = line.reference == planner::certificate::Reference::Turn;
    let stream = |s: &Stream, told: &str| SharedStreamAnswer {
        name: told.to_owned(),
        density: (s.density().0 as u32, s.density().1 as u32),
        constraints: s.constraints().into_iter().map(|c| (c, "binds".to_owned())).collect(),
    };
    let service = |(s, of): (usize, &Service)| SharedServiceAnswer {
        name: name(s),
        start_within: walk.demands(s).then(|| whole(within[s])),
        turn: turns.then_some(of.turn as u32),
        max_rate_scale: None,
        min_deadline: None,
        streams: of.streams.iter().enumerate().map(|(k, of)| stream(of, &format!("s{k}"))).collect(),
    };
    SharedClaim {
        device: None,
        problem: problem.raw.clone(),
        admissible: true,
        rule: if turns { SharedReason::Turns } else { SharedReason::Edf },
        binding: Some(SharedBinding {
            reference: line.reference.clone(),
            service: name(line.service),
            distance: whole(line.distance),
            lhs: whole(line.lhs),
            rhs: whole(line.rhs.max(0)),
        }),
        overrun_margin: Some(whole(line.margin().max(0))),
        max_load_scale: None,
        services: system.services.iter().enumerate().map(service).collect(),
        reason: None,
        refutation: None,
    }
}

fn check(claim: SharedClaim) -> Result<Verified, VerifyError> {
    verify(&Certificate::of_shared("by hand", claim))
}

/// Whoever leaves, those who stay may run over by as much.
fn fewer_leave_no_less(system: &Shared, turns: bool, margin: Span) {
    let streams = system.services.iter().enumerate();
    for (s, i) in streams.flat_map(|(s, of)| (0..of.streams.len()).map(move |i| (s, i))) {
        let mut fewer = system.clone();
        fewer.services[s].streams[i].constraint = None;
        let left = admission(&fewer, &read(&fewer, turns), turns).expect("fewer are admitted");
        assert!(
            left.overrun_margin() >= margin,
            "{left:?}, not {margin}, without {s}/{i}: {}",
            system.text("auto")
        );
    }
}

/// What was looked at.
#[derive(Debug, Default)]
struct Seen {
    admitted: u64,
    /// By starts that are as early as can be.
    early: u64,
    /// Of those, with as much to run over by as is kept where that can be.
    reserved: u64,
    /// Of those, though not all lines hold.
    relieved: u64,
    refused: u64,
    at_capacity: u64,
    forged: u64,
    /// Refused because nobody saw the end.
    too_far: u64,
}

fn admission(system: &Shared, problem: &SharedProblem, turns: bool) -> Result<SharedAdmission, SharingError> {
    let stated: Vec<u32> = system.services.iter().map(|s| s.turn as u32).collect();
    let specs: Vec<Vec<StreamSpec>> = problem.specs().collect();
    let specs: Vec<&[StreamSpec]> = specs.iter().map(Vec::as_slice).collect();
    let rule = if turns { Rule::Turns } else { Rule::Earliest };
    problem.sharing(rule, &stated).admit(&specs)
}

/// Times to begin in, or the first found that are too late.
type Found = Result<Vec<i64>, Vec<i64>>;

/// Both programs against the lines, for one rule.
fn agree(system: &Shared, turns: bool, dice: &mut Dice, seen: &mut Seen) {
    let period = system.hyperperiod(turns) as i64;
    let problem = read(system, turns);
    let said = admission(system, &problem, turns);
    if said == Err(SharingError::Horizon) {
        seen.too_far += 1;
        return;
    }
    // What is refused may fail far out.
    let mut walk = system.walk(turns, 2 * period + 200);
    while said.is_err() && walk.tightest(&walk.latest()).0.margin() >= 0 {
        assert!(walk.reach() < 100_000, "{said:?}, yet all lines hold: {}", system.text("auto"));
        walk = system.walk(turns, 8 * walk.reach());
    }
    let latest = walk.latest();
    let (line, holding) = walk.tightest(&latest);
    let sooner = |walk: &Walk| {
        let least = walk.least();
        let eased = match (&least, walk.singly()) {
            (Err(_), Some(singly)) => Some(walk.least_eased(&singly)),
            _ => None,
        };
        (least, eased)
    };
    let found = |(least, eased): &(Found, Option<Found>)| {
        let eased = eased.as_ref().and_then(|eased| eased.as_ref().ok());
        least.as_ref().ok().or(eased).cloned()
    };
    let reserve = if turns { 0 } else { walk.reserve() };
    let later = walk.with_overruns(reserve);
    let with_reserve = (line.margin() < reserve && !turns).then(|| sooner(&later));
    let without = (line.margin() < 0 && !turns).then(|| sooner(&walk));
    // What is promised must hold even without.
    let reserved = with_reserve.as_ref().and_then(found);
    let within = match &reserved {
        Some(within) => Some(within.clone()),
        None if line.margin() >= 0 => Some(latest.clone()),
        None => without.as_ref().and_then(found),
    };
    let early = within.as_ref().is_some_and(|within| *within != latest);
    let running_over = if reserved.is_some() { reserve } else { 0 };
    // By lines, or by what stands for some of them, with so much to run over by.
    let holds = |within: &[i64], margin: i64| match walk.tightest(within).0 {
        line if line.margin() >= margin => Some(line),
        _ if turns => None,
        _ => {
            let later = walk.with_overruns(margin);
            let line = later.tightest_eased(within, &later.singly()?)?;
            Some(Line { lhs: line.lhs - margin, ..line })
        }
    };
    let about = || format!("turns {turns}: {}", system.text("auto"));
    match (&said, &within) {
        (Ok(admission), Some(within)) => {
            let starts = admission.start_within.iter().enumerate().filter(|(s, _)| walk.demands(*s));
            for (s, start) in starts {
                assert_eq!(*start, Span::from_nanos(within[s] as u64), "{s}: {}", about());
            }
            let line = holds(within, running_over).unwrap_or_else(|| panic!("no line holds: {}", about()));
            assert_eq!(admission.overrun_margin().as_nanos() as i64, line.margin(), "{}", about());
            assert_eq!(admission.binding.map(|b| b.margin()), Some(line.margin().into()), "{}", about());
            seen.admitted += 1;
            seen.early += u64::from(early);
            seen.reserved += u64::from(reserved.is_some());
            let is_relieved = walk.tightest(within).0.margin() < running_over;
            seen.relieved += u64::from(is_relieved);
            assert_eq!(admission.relieved != 0, is_relieved, "{}", about());
            fewer_leave_no_less(system, turns, admission.overrun_margin());
            let (work, done) = system.load();
            seen.at_capacity += u64::from(work == done);
        }
        (Err(SharingError::Rate { .. } | SharingError::Late(_)), None) => seen.refused += 1,
        _ => panic!("{said:?}, but by the lines {within:?} will do: {}", about()),
    }
    // Whatever starts are claimed, they are confirmed exactly if all lines hold, and the tightest one is the one named.
    let mut tried = vec![latest.clone()];
    let sought = [with_reserve, without].into_iter().flatten();
    sought.flat_map(|(least, eased)| [Some(least), eased]).flatten().for_each(|found| match found {
        Ok(least) => {
            // The least are the least.
            let s = dice.within(0, least.len() as u64 - 1) as usize;
            let mut less = least.clone();
            less[s] = (less[s] - 1).max(0);
            tried.extend([least, less]);
        }
        Err(beyond) => {
            tried.push(beyond.iter().zip(&latest).map(|(start, latest)| *start.min(latest)).collect());
        }
    });
    if !turns {
        tried.push(latest.iter().map(|&latest| dice.within(0, latest as u64) as i64).collect());
    }
    for within in tried {
        let (tightest, plausible) = match within == latest {
            true => (line.clone(), holding.clone()),
            false => walk.tightest(&within),
        };
        // A start that is nobody's is told as 0.
        let told: Vec<_> =
            within.iter().enumerate().map(|(s, &start)| if walk.demands(s) { start } else { 0 }).collect();
        let eased = holds(&within, 0).filter(|_| tightest.margin() < 0);
        let plausible = eased.clone().or(plausible);
        let forged = claim(&problem, system, &walk, &within, plausible.as_ref().unwrap_or(&tightest));
        let said = check(forged).map(|_| ()).map_err(|no| no.field);
        let derived = if tightest.margin() >= 0
            || eased.is_some()
            || told != within && walk.tightest(&told).0.margin() >= 0
        {
            Ok(())
        } else {
            Err("admissible".to_owned())
        };
        assert_eq!(said, derived, "{within:?}: {}", about());
        seen.forged += u64::from(derived.is_err());
        // With what stands for lines that hold by less, it may be more.
        let more = holds(&within, reserve);
        if let Some(line) = &more {
            let said = check(claim(&problem, system, &walk, &within, line));
            assert!(said.is_ok(), "{said:?}, by {line:?}: {}", about());
        }
        // A line that holds by more, if there is one that near.
        if let (Ok(()), Some(line)) = (&said, more.as_ref().or(plausible.as_ref())) {
            let mut forged = claim(&problem, system, &walk, &within, line);
            forged.overrun_margin = Some(whole(line.margin() + 1));
            let no = check(forged).expect_err("a margin that is none");
            assert_eq!(no.field, "overrun_margin", "{}", about());
        }
    }
}

/// Whether it is near what the workers can do, and repeats soon.
fn worth(system: &Shared) -> bool {
    if system.hyperperiod(false).max(system.hyperperiod(true)) > LONGEST_PERIOD {
        return false;
    }
    let (work, done) = system.load();
    work > 0 && (work * 100 / done >= 85 && work <= done || work > done && work * 50 <= done * 51)
}

fn look(systems: impl IntoIterator<Item = Shared>, dice: &mut Dice) -> Seen {
    let mut seen = Seen::default();
    for system in systems {
        for turns in [false, true] {
            agree(&system, turns, dice, &mut seen);
        }
    }
    println!("{seen:?}");
    seen
}

/// Every service alone, and every two of which neither has more than one stream.
#[test]
fn one_and_two_services_are_promised_what_the_lines_say() {
    let mut dice = Dice(1);
    let mut kinds = Vec::new();
    for bounds in arrivals() {
        for constraint in CONSTRAINTS {
            for (batch, time) in (1..=3).flat_map(|b| (1..=4).map(move |t| (b, t))) {
                let streams = vec![Stream { bounds: bounds.clone(), constraint: Some(constraint) }];
                kinds.push(Service { batch, time, slack: 1, guard: 0, turn: 1, streams });
            }
        }
    }
    let mut systems = Vec::new();
    for service in &kinds {
        for slack in [2, 5, 9, 14] {
            let services = vec![Service { slack, ..service.clone() }];
            systems.extend((1..3).map(|workers| Shared { workers, services: services.clone() }));
        }
    }
    systems.retain(worth);
    let alone = systems.len();
    // Every pair that is worth it comes in one of so many runs.
    let stride = 500 / effort().clamp(1, 500);
    let mut at = 0;
    for (i, one) in kinds.iter().enumerate() {
        for other in &kinds[i..] {
            at += 1;
            if at % stride != 0 {
                continue;
            }
            let mut with = |service: &Service| Service {
                slack: dice.within(1, 20),
                guard: dice.within(0, 2),
                turn: dice.within(1, 2),
                ..service.clone()
            };
            let services = vec![with(one), with(other)];
            let system = Shared { workers: dice.within(1, 2), services };
            systems.extend(Some(system).filter(worth));
        }
    }
    println!("{alone} alone, {} in twos", systems.len() - alone);
    let seen = look(systems, &mut dice);
    assert!(seen.at_capacity > 100 && seen.forged > 500, "{seen:?}");
}

/// Deadlines that are long beside the batches, for which starts as late as can be are not the best.
#[test]
fn starts_are_the_earliest_where_late_ones_will_not_do() {
    let mut dice = Dice(4);
    let (all, mut systems, mut drawn) = (arrivals(), Vec::new(), 0);
    while (systems.len() as u64) < 25 * effort() {
        let count = dice.within(2, 3);
        let mut services = draw(&mut dice, count, &all);
        services.iter_mut().for_each(|s| s.slack = dice.within(6, 50));
        let system = Shared { workers: dice.within(1, 2), services };
        let (work, done) = system.load();
        if work == 0 || work >= done || system.hyperperiod(false) > LONGEST_PERIOD {
            continue;
        }
        drawn += 1;
        let Ok(admission) = admission(&system, &read(&system, false), false) else { continue };
        let latest = system.walk(false, 1).latest();
        let starts = admission.start_within.iter().map(|start| start.as_nanos() as i64);
        systems.extend(Some(system).filter(|_| starts.zip(latest).any(|(start, latest)| start < latest)));
    }
    println!("{drawn} drawn");
    let seen = look(systems, &mut dice);
    assert!(seen.early >= 25 && seen.relieved > 15 && seen.forged > 25, "{seen:?}");
}

/// Two and three services, some of which have two streams, or one that is promised nothing.
#[test]
fn any_services_are_promised_what_the_lines_say() {
    let mut dice = Dice(2);
    let (all, wanted) = (arrivals(), 500 * effort());
    let mut systems = Vec::new();
    while (systems.len() as u64) < wanted {
        let services = dice.within(2, 3);
        let system = Shared { workers: dice.within(1, 3), services: draw(&mut dice, services, &all) };
        systems.extend(Some(system).filter(worth));
    }
    let seen = look(systems, &mut dice);
    assert!(seen.at_capacity > 5 && seen.forged > 500, "{seen:?}");
}

/// Whether there are starts with which all lines hold; `None` if that takes too long to tell.
fn by_the_lines(system: &Shared, turns: bool) -> Option<bool> {
    let (period, (work, done)) = (system.hyperperiod(turns) as i64, system.load());
    if work > done {
        return Some(false);
    }
    if period > 3000 {
        return None;
    }
    let walk = system.walk(turns, 2 * period + 200);
    let late = walk.tightest(&walk.latest()).0.margin() >= 0;
    let eased = || walk.singly().is_some_and(|singly| walk.least_eased(&singly).is_ok());
    Some(late || !turns && (walk.least().is_ok() || eased()))
}

/// One step beyond each limit nothing is promised: who claims it is refused, and not for another reason.
#[test]
fn a_limit_that_is_a_step_too_large_is_refused() {
    let mut dice = Dice(3);
    let (all, mut looked, mut forged) = (arrivals(), 0, 0);
    while looked < 25 * effort() {
        let services = dice.within(1, 2);
        let system = Shared { workers: dice.within(1, 2), services: draw(&mut dice, services, &all) };
        let (work, done) = system.load();
        if work > done || work == 0 || system.hyperperiod(true) > LONGEST_PERIOD {
            continue;
        }
        let honest = certify_shared(&read(&system, looked % 2 == 0));
        if !honest.admissible || honest.binding.is_none() {
            continue;
        }
        looked += 1;
        check(honest.clone()).unwrap_or_else(|no| panic!("{no}: {}", system.text("auto")));
        let turns = looked % 2 == 1;
        let mut none = SharedClaim { max_load_scale: None, ..honest.clone() };
        none.services.iter_mut().for_each(|s| (s.max_rate_scale, s.min_deadline) = (None, None));
        // What is claimed of one limit alone, and the system there.
        let mut look = |field: String, claim: SharedClaim, there: Option<Shared>, limit: bool| {
            let said = check(claim).map(|verified| verified.limits).map_err(|no| no.field);
            let holds = there.map_or(Some(false), |there| by_the_lines(&there, turns));
            assert!(!limit || holds != Some(false), "{field} is none: {}", system.text("auto"));
            match holds {
                // At capacity nobody may see the end, and a limit may be too cautious.
                Some(true) => assert!(said == Ok(1) || said == Ok(0), "{said:?}: {}", system.text("auto")),
                Some(false) => assert_eq!(said, Err(field), "{}", system.text("auto")),
                None => {}
            }
            forged += u64::from(holds == Some(false));
        };
        let scales = |scale: Number| {
            let scale = (scale.as_f64() * 1000.0).round() as u64;
            [(scale, true), (scale + 1, false)].into_iter().filter(|s| s.0 <= 1000 * MAX_SCALE)
        };
        for (scale, limit) in honest.max_load_scale.into_iter().flat_map(scales) {
            let claim = SharedClaim { max_load_scale: Some(Number::thousandths(scale)), ..none.clone() };
            look("max_load_scale".to_owned(), claim, system.faster(None, scale), limit);
        }
        for (s, answer) in honest.services.iter().enumerate() {
            for (scale, limit) in answer.max_rate_scale.into_iter().flat_map(scales) {
                let mut claim = none.clone();
                claim.services[s].max_rate_scale = Some(Number::thousandths(scale));
                look(format!("services[{s}].max_rate_scale"), claim, system.faster(Some(s), scale), limit);
            }
            let Some(deadline) = answer.min_deadline else { continue };
            for (deadline, limit) in [0, 1].map(|less| (deadline.as_f64() as u64 - less, less == 0)) {
                let (mut claim, mut there) = (none.clone(), system.clone());
                claim.services[s].min_deadline = Some(Number::whole(deadline));
                let least = there.services[s].guard + there.services[s].time;
                let there = deadline.checked_sub(least).map(|slack| {
                    there.services[s].slack = slack;
                    there
                });
                look(format!("services[{s}].min_deadline"), claim, there, limit);
            }
        }
    }
    println!("{looked} systems, {forged} limits");
}
