//! The checker of services that share workers against the program that certifies them, on random problems.

use planner::certificate::{Reference, SharedBinding, SharedReason};
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, Number, Question, SharedClaim, SharedProblem, certify_shared};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::MAX_SPAN;
use rt_core::sharing::SharingError;

use crate::prover::prover;

fn check(claim: &SharedClaim) -> Result<Verified, VerifyError> {
    verify(&Certificate::of_shared("by chance", claim.clone()))
}

fn arrivals() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (1u64..4, 2u64..12).prop_map(|(n, w)| format!(r#""windows": [[{n}, {w}]]"#)),
        2 => (2u64..12, 0u64..12).prop_map(|(t, j)| format!(r#""periodic": {{"period": {t}, "jitter": {j}}}"#)),
        1 => (3u64..9, 0u64..20)
            .prop_map(|(t, j)| format!(r#""periodic": {{"period": {t}, "jitter": {j}, "distance": 2}}"#)),
        1 => (1u64..5, 2u64..9, 1u64..4, 1u64..7).prop_map(|(b, t, n, w)| {
            format!(r#""token_bucket": {{"burst": {b}, "period": {t}}}, "windows": [[{n}, {w}]]"#)
        }),
        1 => prop::collection::vec(0u64..8, 1..5).prop_map(|steps| {
            let sums = steps.iter().scan(2, |sum, step| {
                *sum += step;
                Some(*sum)
            });
            format!(r#""distances": {:?}"#, sums.collect::<Vec<u64>>())
        }),
    ]
}

/// Batch, its time, whether smaller ones are quicker; slack and guard; turn; constraint and arrivals of each stream.
type Service = ((usize, u64, bool), (u64, u64), Option<u32>, Vec<(String, String)>);

/// Two or three services near what one to three workers can do, in nanoseconds.
fn random_problem(rule: &'static str) -> impl Strategy<Value = String> {
    let constraint = prop_oneof![
        5 => (0u64..2, 1u64..3).prop_map(|(m, more)| format!("\"any_miss({m},{})\"", m + more)),
        1 => Just(String::new()),
    ];
    let stream = (constraint, arrivals());
    let service = (
        (1usize..4, 1u64..5, prop::bool::ANY),
        (1u64..26, 0u64..3),
        prop::option::weighted(0.3, 1u32..4),
        prop::collection::vec(stream, 1..3),
    );
    (1usize..4, prop::collection::vec(service, 2..4)).prop_map(move |(workers, services)| {
        let service = |(i, (batch, slack, turn, streams)): (usize, &Service)| {
            let &(batch, time, by_size) = batch;
            let stream = |(i, (constraint, arrivals)): (usize, &(String, String))| {
                format!(r#"{{"name": "s{i}", "constraints": [{constraint}], "arrivals": {{{arrivals}}}}}"#)
            };
            let streams: Vec<_> = streams.iter().enumerate().map(stream).collect();
            let times: Vec<_> = (1..=batch as u64).map(|b| (b * time).div_ceil(batch as u64)).collect();
            let times =
                if by_size { format!("\"times\": {times:?}") } else { format!("\"time\": {time}") };
            let turn = turn.map_or_else(String::new, |turn| format!("\"turn\": {turn},"));
            format!(
                r#"{{"name": "v{i}", "deadline": {}, "guard": {}, "batch": {batch}, {times}, {turn} "streams": [{}]}}"#,
                time + slack.0 + slack.1,
                slack.1,
                streams.join(",")
            )
        };
        let services: Vec<_> = services.iter().enumerate().map(service).collect();
        format!(
            r#"{{"unit": "ns", "background": true, "workers": {{"count": {workers}}}, "rule": "{rule}",
                "services": [{}]}}"#,
            services.join(",")
        )
    })
}

/// Of stalls: what is certified is confirmed, and the program and its checker ask for the same window to the nanosecond; the checker
/// that is proved knows none and says so.
#[test]
fn what_is_certified_of_stalls_is_confirmed_and_what_counts_on_less_is_not() {
    let (prover, mut runner) = (prover(), TestRunner::deterministic());
    let (mut by, mut refused) = ([0; 2], 0);
    for i in 0..300 {
        let rule = if i % 2 == 0 { "edf" } else { "turns" };
        let text = random_problem(rule).new_tree(&mut runner).expect("a problem").current();
        let mut raw: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let (count, length) = (1 + i % 3, 1 + i % 7);
        for service in raw["services"].as_array_mut().expect("services") {
            service["deadline"] = (service["deadline"].as_u64().expect("whole") + count * length).into();
        }
        let with = |window: u64| {
            let mut raw = raw.clone();
            raw["stalls"] = serde_json::json!({"count": count, "window": window, "length": length});
            read(&raw.to_string())
        };
        let short = with(count * length + 1);
        let window = match planner::certify::decide(&short).answer {
            Err(SharingError::Stalls { needed, .. }) if needed < MAX_SPAN => needed.as_nanos(),
            _ => continue,
        };
        refused += 1;
        assert_eq!(certify_shared(&short).rule, SharedReason::Stalls);
        let claim = certify_shared(&with(window));
        assert!(claim.admissible, "{text}: {window}");
        assert!(!certify_shared(&with(window - 1)).admissible);
        check(&claim).unwrap_or_else(|no| panic!("{text} {window}: {no}"));
        by[usize::from(rule == "turns")] += 1;
        if let Some(prover) = &prover {
            let (proved, unproved) =
                prover.check(&Certificate::of_shared("by chance", claim.clone())).expect("answers");
            assert_eq!((proved, unproved[0].reason), (0, "it counts on stalls, of which nothing is proved"));
        }
        for (field, value) in
            [("window", window - 1), ("length", length + 1), ("count", count + 1), ("recovery", 1)]
        {
            let mut changed = serde_json::to_value(&claim).expect("JSON");
            changed["problem"]["stalls"][field] = value.into();
            let forged = serde_json::from_value(changed).expect("a claim");
            assert!(check(&forged).is_err(), "{field} = {value} is confirmed: {text}");
        }
    }
    println!("{by:?} certified in the least window, of {refused}");
    assert!(by.iter().all(|&certified| certified > 20));
}

/// What is not stated is chosen so that all may be sent fastest: no rule and no turns that could be stated carry more.
#[test]
fn nothing_that_could_be_stated_carries_more_than_what_is_chosen() {
    const LONGEST: u32 = 4;
    let mut runner = TestRunner::deterministic();
    let (mut by, mut longer, mut gained) = ([0; 2], 0, 0);
    for _ in 0..400 {
        let text = random_problem("auto").new_tree(&mut runner).expect("a problem").current();
        let mut raw: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let mut carries = |rule: &str, turns: Option<&[u32]>| {
            raw["rule"] = rule.into();
            for (s, service) in raw["services"].as_array_mut().expect("services").iter_mut().enumerate() {
                service["turn"] = turns.map(|turns| turns[s]).into();
            }
            let claim = certify_shared(&read(&raw.to_string()));
            let scale = claim.max_load_scale.filter(|_| claim.admissible);
            (scale.map_or(0.0, |scale| scale.to_string().parse::<f64>().expect("a number")), claim)
        };
        let (chosen, claim) = carries("auto", None);
        if claim.rule == SharedReason::NothingPromised {
            continue;
        }
        let count = claim.services.len();
        let all = (0..LONGEST.pow(count as u32))
            .map(|n| (0..count as u32).map(|s| 1 + n / LONGEST.pow(s) % LONGEST).collect::<Vec<_>>());
        let edf = carries("edf", None).0;
        let by_turns = carries("turns", None).0;
        let stated = all.map(|turns| carries("turns", Some(&turns)).0).fold(0.0, f64::max);
        assert!(by_turns >= stated, "{text}: {by_turns} by turns, {stated} as stated");
        assert!((chosen - edf.max(by_turns)).abs() < 1e-9, "{text}: {chosen} of {edf} and {by_turns}");
        if claim.admissible {
            check(&claim).unwrap_or_else(|no| panic!("{text}: {no}"));
            by[usize::from(claim.rule == SharedReason::Turns)] += 1;
            longer += usize::from(claim.services.iter().any(|service| service.turn > Some(1)));
            gained += usize::from(edf > 0.0 && chosen > edf);
        }
    }
    println!(
        "{by:?} by deadline and by turns, {longer} of these longer than one batch; {gained} that edf would have admitted"
    );
    assert!(by[0] > 50 && by[1] > 10 && longer > 5 && gained > 5, "{by:?} {longer} {gained}");
}

fn read(text: &str) -> SharedProblem {
    match Question::parse(text) {
        Ok(Question::Shared(problem)) => problem,
        other => panic!("{text}: {other:?}"),
    }
}

fn cases() -> u32 {
    std::env::var("CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

/// A refusal told as a promise, with every start as late as can be.
fn forced(claim: &SharedClaim, rule: SharedReason) -> SharedClaim {
    let line = SharedBinding {
        reference: Reference::Clear,
        service: claim.services[0].name.clone(),
        distance: Number::whole(0),
        lhs: Number::whole(0),
        rhs: Number::whole(0),
    };
    let mut claim = SharedClaim {
        admissible: true,
        rule,
        overrun_margin: Some(Number::whole(0)),
        binding: Some(claim.binding.clone().unwrap_or(line)),
        reason: None,
        refutation: None,
        ..claim.clone()
    };
    let problem = claim.problem.clone();
    let late = problem.services.iter().map(|s| s.guard.as_f64() as u64).min().unwrap_or(0);
    for (answer, s) in claim.services.iter_mut().zip(&problem.services) {
        let time = s.time.or_else(|| Some(*s.times.as_ref()?.get(s.batch - 1)?)).expect("one of them");
        let [deadline, guard, time] = [s.deadline, s.guard, time].map(|n| n.as_f64() as u64);
        let demands = s.streams.iter().any(|s| !s.constraints.is_empty());
        answer.start_within = demands.then(|| Number::whole((deadline - guard + late).saturating_sub(time)));
        answer.turn = (rule == SharedReason::Turns).then(|| s.turn.or(answer.turn).unwrap_or(1));
    }
    claim
}

fn agrees(text: &str) -> Result<(), TestCaseError> {
    let claim = certify_shared(&read(text));
    let said = check(&claim);
    let unconfirmed = said.as_ref().is_err_and(|e| e.derived.starts_with("not confirmed"));
    prop_assert!(said.is_ok() || unconfirmed, "{:?}: {} for {:?}", said, text, claim);
    if !claim.admissible && claim.rule != SharedReason::Horizon {
        for rule in [SharedReason::Edf, SharedReason::Turns, SharedReason::NothingPromised] {
            // Refused for what does not hold, not for the numbers told of it.
            let no = check(&forced(&claim, rule)).expect_err(text).field;
            let numbers = ["binding", "overrun_margin", "max_", "min_"].iter().any(|told| no.contains(told));
            prop_assert!(!numbers, "{} for {}", no, text);
        }
    }
    Ok(())
}

/// The checker that is proved sound may be more cautious than the other, at capacity, and never less.
#[test]
fn what_is_proved_is_certified_and_nearly_all_that_is_certified_is_proved() {
    let Some(prover) = prover() else { return };
    let asked = |claim: SharedClaim| {
        let said = prover.check(&Certificate::of_shared("by chance", claim));
        said.expect("answers").0
    };
    let mut runner = TestRunner::deterministic();
    let (mut confirmed, mut cautious, mut refused) = (0, 0, 0);
    // Confirmed too, where what stands for lines is what binds.
    let mut relieved = 0;
    let rules = [
        ("edf", &[SharedReason::Edf][..]),
        ("turns", &[SharedReason::Turns]),
        ("auto", &[SharedReason::Edf, SharedReason::Turns]),
    ];
    for case in 0..300 {
        let (rule, tried) = rules[case % rules.len()];
        let text = random_problem(rule).new_tree(&mut runner).expect("a problem").current();
        let claim = certify_shared(&read(&text));
        match (claim.admissible, claim.rule) {
            (_, SharedReason::NothingPromised | SharedReason::Horizon) => {}
            (true, _) => {
                let stands = |line: &SharedBinding| {
                    matches!(line.reference, Reference::Singly | Reference::Arrival | Reference::After)
                };
                let eased = claim.binding.as_ref().is_some_and(stands);
                match asked(claim) {
                    0 => cautious += 1,
                    _ if eased => relieved += 1,
                    _ => confirmed += 1,
                }
            }
            (false, _) => {
                for &rule in tried {
                    assert_eq!(asked(forced(&claim, rule)), 0, "confirmed, but refused: {text}");
                    refused += 1;
                }
            }
        }
    }
    println!("{confirmed} and {relieved} confirmed, {cautious} not, {refused} refused");
    assert!(cautious * 20 <= confirmed, "{cautious} are not confirmed");
    assert!(confirmed > 50 && relieved > 5 && refused > 50, "too few to say anything");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn what_is_certified_by_earliest_deadline_is_verified(text in random_problem("edf")) {
        agrees(&text)?;
    }

    #[test]
    fn what_is_certified_by_turns_is_verified(text in random_problem("turns")) {
        agrees(&text)?;
    }

    #[test]
    fn what_is_certified_by_either_is_verified(text in random_problem("auto")) {
        agrees(&text)?;
    }
}
