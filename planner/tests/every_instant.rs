//! Theorem A, its refinement and the condition of stalls at every instant, far beyond all that the admission test and the
//! checker look at: both say what the page says, of many small systems. `WEIR_EXHAUSTIVE=n` looks at `n` times as many.

use std::collections::BTreeMap;

use planner::certificate::{Binding, Limit, Limits, Rule, StreamAnswer};
use planner::certify::MAX_SCALE;
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, Claim, Number, Problem, certify};
use rt_core::{Admission, AdmissionError};

use crate::naive;
use crate::naive::instants::{Moment, System, draw};
use crate::naive::{Dice, arrivals, effort};

/// Systems that take longer to repeat are left out.
const LONGEST_PERIOD: u64 = 360;

/// A promise with this for its tightest instant.
fn claim(problem: &Problem, system: &System, rule: Rule, told: (Moment, u64, u64)) -> Claim {
    let (at, busy, waiting) = told;
    let [delta, lhs, rhs] = [at.delta, at.lhs, at.rhs].map(Number::whole);
    let stream = |(i, s): (usize, &naive::Stream)| StreamAnswer {
        name: format!("s{i}"),
        density: (s.density().0 as u32, s.density().1 as u32),
        constraints: s.constraints().into_iter().map(|c| (c, "binds".to_owned())).collect(),
        max_rate_scale: None,
        largest_count: None,
    };
    Claim {
        service: None,
        problem: problem.raw.clone(),
        admissible: true,
        rule,
        binding: Some(Binding { delta, backlog: at.backlog, lhs, rhs }),
        busy: Some(Number::whole(busy)),
        waiting: Some(waiting),
        max_load_scale: None,
        limits: Limits::default(),
        contingencies: Vec::new(),
        streams: system.streams.iter().enumerate().map(stream).collect(),
        reason: None,
        refutation: None,
    }
}

fn check(claim: Claim) -> Result<Verified, VerifyError> {
    verify(&Certificate::new("by hand", BTreeMap::new(), vec![claim]))
}

/// So many of the instants at which Theorem A says no are looked at by the refinement, which takes long.
const LATE: usize = 12;

/// What was looked at.
#[derive(Debug, Default)]
struct Seen {
    admitted: u64,
    refined: u64,
    at_capacity: u64,
    refused: u64,
    stalled: u64,
    unconfirmed: u64,
    /// Of which the checker was asked for the refinement, which takes it long.
    asked: u64,
}

fn agree(system: &System, seen: &mut Seen) {
    let about = || system.text();
    let Ok(problem) = Problem::parse(&about()) else { return };
    let said = problem.system().admit(problem.specs());
    let (work, done) = system.load();
    let reach = 3 * system.hyperperiod() + 150;
    let busy = system.busy(reach);
    // By the page: at every instant of the first busy period, or everywhere if it never ends.
    let looked = busy.unwrap_or(reach);
    let plain = system.plain((1..=looked).map(|length| system.mandatory(length)));
    let tightest = *plain.iter().min_by_key(|at| at.margin()).expect("an instant");
    let holds = work <= done && tightest.margin() >= 0;
    if !system.stalls_are_rare() {
        assert!(
            matches!(said, Err(AdmissionError::Stalls { .. } | AdmissionError::Rate { .. })),
            "{said:?}: {}",
            about()
        );
        seen.stalled += 1;
    } else {
        match said {
            Ok(Admission { binding: Some(binding), plain: true, .. }) => {
                assert!(holds, "{binding:?}, but {tightest:?}: {}", about());
                let margin = binding.rhs.as_nanos() as i64 - binding.lhs.as_nanos() as i64;
                assert_eq!(margin, tightest.margin(), "{}", about());
                // Beyond the busy period, of what can really come.
                let possible = system.possible(reach.min(300));
                for at in system.plain(possible.into_iter().skip(1)) {
                    assert!(at.margin() >= 0, "{at:?}: {}", about());
                }
                seen.admitted += 1;
                seen.at_capacity += u64::from(busy.is_none());
            }
            Ok(Admission { plain: false, .. }) => {
                assert!(system.closed() && !holds, "{}", about());
                seen.refined += 1;
                seen.at_capacity += u64::from(busy.is_none());
                // At every instant that counts either the one or the other.
                for at in plain.iter().filter(|at| at.margin() < 0).take(LATE) {
                    let found = system.refined(at.delta, 25);
                    assert!(found.margin() >= 0, "{found:?}, {said:?}: {}", about());
                }
            }
            Err(AdmissionError::Rate { .. }) => assert!(work > done, "{}", about()),
            Err(AdmissionError::Burst(_)) => {
                assert!(!holds, "{}", about());
                seen.refused += 1;
            }
            other => panic!("{other:?}: {}", about()),
        }
    }
    // The checker, told what the page says, or what it nearly says.
    let promised = system.streams.iter().any(|s| s.density().0 > 0);
    let nearly = plain.iter().filter(|at| at.margin() >= 0).min_by_key(|at| at.margin());
    let (told_busy, told_waiting) = match &said {
        Ok(admission) => (admission.busy.as_nanos(), admission.waiting),
        Err(_) => (busy.unwrap_or(1), 1),
    };
    if !promised {
        return;
    }
    for rule in [Rule::TheoremA, Rule::Refined] {
        if rule == Rule::Refined && system.closed() {
            seen.asked += 1;
            if seen.asked > 50 * effort() {
                continue;
            }
        }
        let at = if holds { &tightest } else { nearly.unwrap_or(&tightest) };
        let verdict = check(claim(&problem, system, rule, (*at, told_busy, told_waiting)));
        let unconfirmed = verdict.as_ref().is_err_and(|no| no.derived.starts_with("not confirmed"));
        let yes = holds && said.is_ok();
        let field = verdict.as_ref().err().map(|no| no.field.as_str());
        match (rule, yes) {
            (Rule::TheoremA, true) => assert!(field.is_none(), "{verdict:?}, {tightest:?}: {}", about()),
            (Rule::TheoremA, false) => assert_eq!(field, Some("admissible"), "{verdict:?}: {}", about()),
            (_, _) if !system.closed() => assert_eq!(field, Some("rule"), "{}", about()),
            (_, true) => assert!(field.is_none(), "{verdict:?}: {}", about()),
            (_, false) if unconfirmed => seen.unconfirmed += 1,
            // What the refinement promises is told with the wrong instant.
            (_, false) => {
                let admissible = field != Some("admissible");
                assert_eq!(admissible, said.is_ok(), "{verdict:?}, {said:?}: {}", about());
            }
        }
    }
}

fn look(kinds: u64, wanted: u64, mut dice: Dice, worth: impl Fn(&System, (u64, u64)) -> bool) -> Seen {
    let (all, mut seen, mut looked) = (arrivals(), Seen::default(), 0);
    while looked < wanted * effort() {
        let system = draw(&mut dice, kinds, &all);
        if system.hyperperiod() <= LONGEST_PERIOD && worth(&system, system.load()) {
            looked += 1;
            agree(&system, &mut seen);
        }
    }
    println!("{seen:?}");
    seen
}

#[test]
fn workers_of_one_kind_promise_what_the_page_says() {
    let seen = look(1, 1500, Dice(1), |_, (work, done)| {
        work > 0 && work * 100 / done >= 60 && work * 50 <= done * 51
    });
    assert!(seen.refined > 10 && seen.at_capacity > 5 && seen.stalled > 20, "{seen:?}");
}

#[test]
fn workers_of_two_kinds_promise_what_the_page_says() {
    let seen = look(2, 1000, Dice(2), |_, (work, done)| {
        work > 0 && work * 100 / done >= 60 && work * 50 <= done * 51
    });
    assert!(seen.admitted > 100 && seen.stalled > 10, "{seen:?}");
}

/// Where the load never ends, the refinement must hold for ever.
#[test]
fn at_capacity_the_refinement_holds_for_ever() {
    let (mut dice, all, mut seen, mut looked) = (Dice(3), arrivals(), Seen::default(), 0);
    for _ in 0..60_000 * effort() {
        let system = draw(&mut dice, 1, &all);
        if !system.closed() || system.hyperperiod() > LONGEST_PERIOD || system.kinds[0].times.len() < 2 {
            continue;
        }
        let (work, done) = system.load();
        let Some(problem) = Problem::parse(&system.text()).ok().filter(|_| work == done) else { continue };
        if problem.system().admit(problem.specs()).is_ok_and(|admission| !admission.plain) {
            looked += 1;
            agree(&system, &mut seen);
        }
    }
    println!("{looked} at capacity: {seen:?}");
    assert!(seen.refined > 2, "{seen:?}");
}

/// What Theorem A says on the page; `None` if that takes too long to tell.
fn by_the_page(system: &System) -> Option<bool> {
    let (work, done) = system.load();
    if work > done {
        return Some(false);
    }
    let reach = 2 * system.hyperperiod() + 150;
    if reach > 3000 {
        return None;
    }
    let looked = system.busy(reach).unwrap_or(reach);
    let plain = system.plain((1..=looked).map(|length| system.mandatory(length)));
    Some(plain.iter().all(|at| at.margin() >= 0) && system.stalls_are_rare())
}

/// Each limit holds; a step beyond, nothing does: who claims it is refused, and for nothing else.
#[test]
fn a_limit_that_is_a_step_too_large_is_refused() {
    let (mut dice, all, mut looked, mut forged) = (Dice(6), arrivals(), 0, 0);
    while looked < 100 * effort() {
        let kinds = dice.within(1, 2);
        let system = System { background: true, ..draw(&mut dice, kinds, &all) };
        let (work, done) = system.load();
        let Ok(problem) = Problem::parse(&system.text()) else { continue };
        if work == 0 || work > done || system.hyperperiod() > LONGEST_PERIOD {
            continue;
        }
        let honest = certify(&problem);
        if !honest.admissible || honest.binding.is_none() {
            continue;
        }
        looked += 1;
        check(honest.clone()).unwrap_or_else(|no| panic!("{no}: {}", system.text()));
        let none = Claim { max_load_scale: None, limits: Limits::default(), ..honest.clone() };
        let mut look = |field: &str, claim: Claim, there: Option<System>, limit: bool| {
            let said = check(claim).map(|verified| verified.limits).map_err(|no| no.field);
            let holds = there.map_or(Some(false), |there| by_the_page(&there));
            assert!(!limit || holds != Some(false), "{field} is none: {}", system.text());
            match holds {
                Some(true) => assert!(said == Ok(1) || said == Ok(0), "{said:?}, {field}: {}", system.text()),
                Some(false) => assert_eq!(said, Err(field.to_owned()), "{}", system.text()),
                None => {}
            }
            forged += u64::from(holds == Some(false));
        };
        if let Some(scale) = honest.max_load_scale.map(|scale| (scale.as_f64() * 1000.0).round() as u64) {
            for (scale, limit) in
                [(scale, true), (scale + 1, false)].into_iter().filter(|s| s.0 <= 1000 * MAX_SCALE)
            {
                let claim = Claim { max_load_scale: Some(Number::thousandths(scale)), ..none.clone() };
                look("max_load_scale", claim, system.faster(scale), limit);
            }
        }
        let limits = |limits| Claim { limits, ..none.clone() };
        if let Some(least) = honest.limits.min_deadline {
            for less in [0, 1] {
                let deadline = least.value.as_f64() as u64 - less;
                let min_deadline = Some(Limit { value: Number::whole(deadline), binding: None });
                let claim = limits(Limits { min_deadline, ..Limits::default() });
                let latency = deadline.checked_sub(system.guard);
                look(
                    "limits.min_deadline",
                    claim,
                    latency.and_then(|latency| system.with_latency(latency)),
                    less == 0,
                );
            }
        }
        if let Some(least) = honest.limits.min_workers {
            for less in [0, 1] {
                let value = least.value - less;
                let claim =
                    limits(Limits { min_workers: Some(Limit { value, binding: None }), ..Limits::default() });
                let mut there = system.clone();
                there.kinds[0].count = value;
                look("limits.min_workers", claim, Some(there).filter(|_| value > 0), less == 0);
            }
        }
    }
    println!("{looked} systems, {forged} limits");
}
