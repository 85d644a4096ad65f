//! Looking up, writing and reading policies.

use rt_core::Span;

use super::super::*;
use super::{REQUESTS, all, three};

fn problem(slack: Slack) -> Problem {
    let spec = three(slack, Batching::Variable, Flavour::Paper);
    Problem::new(&spec, &RoundRobin::poisson(300.0, 3).expect("valid")).expect("valid")
}

#[test]
fn every_slack_is_found_in_its_interval() {
    for slack in [Slack::Fixed(1), Slack::Fixed(7), Slack::Fixed(100), Slack::ModelBased] {
        let problem = problem(slack);
        let policy = problem.solve().policy;
        let around = problem.slack().iter().flat_map(|&end| [end.floor(), end.ceil(), end + 1.0]);
        for ns in around.chain((0..500).map(|i| f64::from(i) * 50_001.0)) {
            let bin = problem.grid.bin(ns);
            assert_eq!(policy.bin(Span::from_nanos(ns as u64)), problem.grid.bin((ns as u64) as f64), "{ns}");
            for n in 1..=4 {
                let ns = problem.grid.ends[bin].ceil() as u64;
                let action = policy.action(n, Span::from_nanos(ns));
                assert_eq!(Some(action), policy.at(State::Queue { n, bin }));
            }
        }
        assert_eq!(Some(policy.action(5, Span::from_millis(20))), policy.at(State::Full));
    }
}

#[test]
fn what_is_looked_up_keeps_the_deadline_if_anything_does() {
    let problem = problem(Slack::Fixed(40));
    let policy = problem.solve().policy;
    let models = &problem.spec.models;
    for n in 1..=4 {
        for us in (0..20_000).step_by(97) {
            let action = policy.action(n, Span::from_micros(us));
            let time = models[usize::from(action.model)].latency(action.batch.into());
            // Slack is rounded down to half a millisecond.
            let in_time = time <= us as f64 * 1e3;
            assert!(
                in_time || us < 2_500 && action.model == 0 && usize::from(action.batch) == n,
                "{n}, {us} µs"
            );
        }
    }
}

#[test]
fn files_are_read_as_they_were_written() {
    let problem = problem(Slack::ModelBased);
    let policy = problem.solve().policy;
    let text = policy.to_json();
    assert_eq!(Policy::parse(&text, Some(problem.hash())).expect("its own"), policy);
    let file = std::env::temp_dir().join(format!("weir-ramsis-{}.json", std::process::id()));
    policy.save(&file).expect("written");
    assert_eq!(Policy::load(&file, None).expect("read"), policy);
    std::fs::remove_file(&file).expect("removed");
    let gone = Policy::load(&file, None).expect_err("gone").to_string();
    assert!(gone.contains("cannot be read"), "{gone}");
}

#[test]
fn files_that_are_not_right_are_refused_with_the_reason() {
    let problem = problem(Slack::Fixed(4));
    let text = problem.solve().policy.to_json();
    let refusal = |text: &str| Policy::parse(text, None).expect_err("refused").to_string();
    let other = Policy::parse(&text, Some("0815")).expect_err("other inputs").to_string();
    assert!(other.ends_with("those here have 0815: make it anew"), "{other}");
    let changed = text.replacen("[0,1]", "[1,1]", 1);
    assert_ne!(changed, text);
    assert!(refusal(&changed).contains("was changed after it was made"));
    assert_eq!(
        refusal(&text.replacen("\"weir_ramsis_policy\":1", "\"weir_ramsis_policy\":2", 1)),
        "weir_ramsis_policy is 2, this program reads 1: make the policy anew"
    );
    assert!(refusal("{}").contains("missing field `weir_ramsis_policy`"));
    assert!(refusal(&text[..text.len() / 2]).starts_with("no policy: EOF"));
    assert!(refusal(&text.replacen("\"digest\"", "\"digits\"", 1)).contains("unknown field `digits`"));

    let signed = |from: &str, to: &str| {
        let policy = problem.solve().policy;
        let body = serde_json::to_string(policy.parts()).expect("JSON");
        let body = body.replacen(from, to, 1);
        let parts = serde_json::from_str(&body).expect("parts");
        Policy::of_parts(parts).expect_err("refused").to_string()
    };
    assert_eq!(signed("\"table\":[[[0,1]", "\"table\":[[[3,1]"), "table[0][0][0] = 3: must be 0 to 2");
    assert_eq!(signed("\"table\":[[[0,1]", "\"table\":[[[0,2]"), "table[0][0][1] = 2: must be 1 to 1");
    assert_eq!(signed("\"slack_ns\":[0,", "\"slack_ns\":[1,"), "slack_ns[0] = 1: must be 0 to 0");
    assert_eq!(signed("\"slack_ns\":[0,", "\"slack_ns\":[0,9,"), "length of table[0] = 5: must be 6 to 6");
}

#[test]
fn inputs_have_a_hash_that_tells_them_apart() {
    let spec = three(Slack::Fixed(4), Batching::Maximal, Flavour::Paper);
    let other = Spec { slo_ns: spec.slo_ns + 1, ..spec.clone() };
    let poisson = |rate| RoundRobin::poisson(rate, 3).expect("valid");
    let hashes = [spec.hash(&poisson(1.0)), spec.hash(&poisson(2.0)), other.hash(&poisson(1.0))];
    assert_eq!(spec.hash(&poisson(1.0)), hashes[0]);
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[0].len() == 64);
}

#[test]
fn inputs_outside_their_range_are_refused() {
    let arrivals = RoundRobin::poisson(300.0, 3).expect("valid");
    let spec = three(Slack::Fixed(4), Batching::Maximal, Flavour::Program);
    let refusal = |spec: Spec| Problem::new(&spec, &arrivals).err().expect("refused").to_string();
    assert_eq!(refusal(Spec { queue: 0, ..spec.clone() }), "queue = 0: must be 1 to 64");
    assert_eq!(
        refusal(Spec { slack: Slack::Fixed(1001), ..spec.clone() }),
        "slack = 1001: must be 1 to 1000"
    );
    assert_eq!(
        refusal(Spec { queue: 5, ..spec.clone() }),
        "length of models[0].latencies = 5: must be 6 to 65"
    );
    assert_eq!(
        refusal(Spec { slo_ns: 1_999_999, ..spec.clone() }),
        "slo_ns = 1999999: must be at least 2000000, the time of the fastest model (2.00 ms)"
    );
    let flavour = Flavour::Requests { max_miss: -0.1 };
    assert_eq!(refusal(Spec { flavour, ..spec.clone() }), "max_miss = -0.1: must be 0 to 1");
    let crowd = RoundRobin::poisson(1e7, 3).expect("valid");
    let crowd = Problem::new(&spec, &crowd).err().expect("refused").to_string();
    assert!(crowd.starts_with("ticks expected within the longest time = 200000"), "{crowd}");
}

#[test]
fn limited_batches_are_those_of_the_scheduler() {
    let spec = three(Slack::Fixed(10), Batching::Limited(2), REQUESTS);
    let arrivals = RoundRobin::poisson(300.0, 1).expect("valid");
    let problem = Problem::new(&spec, &arrivals).expect("valid");
    for (state, Action { model, batch }) in all(&problem) {
        let State::Queue { n, bin } = state else { continue };
        // The fastest takes 2 ms for one and 3 ms for two; intervals are 2 ms long.
        match bin {
            0 => assert_eq!(model, Action::DROP, "{state:?}"),
            1 => assert_eq!((model, batch), (0, 1), "{state:?}"),
            _ => assert!(model < 3 && usize::from(batch) == n.min(2), "{state:?}: {model}, {batch}"),
        }
        let sum: f64 = problem.next(state, Action { model, batch }).iter().map(|(_, p)| p).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{state:?}: {sum}");
    }
    assert!(problem.error() < 1e-9, "{}", problem.error());
    let refusal = |spec: &Spec| spec.check(&arrivals).expect_err("refused").to_string();
    let paper = refusal(&Spec { flavour: Flavour::Paper, ..spec.clone() });
    assert_eq!(paper, "flavour = Paper: must be requests for these batches");
    assert_eq!(refusal(&Spec { batching: Batching::Limited(0), ..spec }), "batching = 0: must be 1 to 64");
}
