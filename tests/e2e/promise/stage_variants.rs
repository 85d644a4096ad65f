//! Variants of a stage: the most accurate one that comes in nobody's way answers, behind the promise of the pipeline.

use serde_json::Value;
use std::time::Duration;

use super::pipelines::METER;
use crate::harness::{Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, pause, quiet};

/// The reader is right more often with a model that takes much longer.
fn reader() -> Deployment {
    let better = r#"simulated = { accuracy = 0.5, times = ["3ms", "4ms"], input = 1, output = 1, variants = [{ accuracy = 0.9, times = ["60ms", "70ms"] }] }"#;
    let plain = r#"simulated = { times = ["3ms", "4ms"], input = 1, output = 1 }"#;
    assert!(METER.contains(plain));
    let streams = r#"
        [[pipeline.stream]]
        name = "line"
        constraints = [{ row-miss = 1 }]
        arrivals = [{ periodic = { period = "400ms", jitter = "100ms" } }]
    "#;
    let config = METER.replace(plain, better);
    let daemon = daemon_in_real_time().replace("[daemon]", "[daemon]\nclient-requests = 4096");
    let place = Deployment::new(format!("{daemon}{config}{streams}"));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| if usual < 30 { 15 } else { 100 });
    place
}

/// How many results each variant of the reader gave.
fn by_variant(daemon: &Daemon) -> Vec<u64> {
    let stage: &Value = &daemon.status()["services"][0]["stages"][1];
    let variants = stage["variants"].as_array().expect("variants");
    variants.iter().map(|variant| variant["answered"].as_u64().expect("a number")).collect()
}

#[test]
fn a_stage_runs_its_better_variant_in_a_lull_and_its_base_where_much_waits() {
    quiet();
    let place = reader();
    let plan = place.succeed(&["plan"]);
    assert!(plan.contains("the most accurate runs that comes in nobody's way"), "{plan}");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let line = client.register(&best_effort("meter", "line")).expect("reserved");
    let mut missed = Vec::new();
    for _ in 0..4 {
        pause(Duration::from_millis(400));
        missed.push(client.infer(&line, &[0.9, 0.0, 0.0, 0.0]).expect("an answer").result().is_none());
    }
    let [base, better] = by_variant(&daemon)[..] else { panic!("two variants") };
    // One is answered by it at least, if the machine does not hold all of them back.
    assert!(better > 0 && base + better <= 4, "{base} by the base, {better} by the better");
    let mut other = daemon.client();
    let flood = other.register(&best_effort("meter", "flood")).expect("registered");
    for round in 0..5 {
        let ids: Vec<_> =
            (0..240).map(|_| other.submit(&flood, &[0.9, 0.8, 0.7, 0.0]).expect("submitted")).collect();
        pause(Duration::from_millis(300));
        missed.push(client.infer(&line, &[0.9, 0.0, 0.0, 0.0]).expect("an answer").result().is_none());
        assert!(answers(&mut other, &ids).iter().any(|outcome| outcome.result().is_some()), "{round}");
    }
    let [after, better_after] = by_variant(&daemon)[..] else { panic!("two variants") };
    assert!(
        after - base > better_after - better,
        "{after} and {better_after}: mostly the base; missed {}",
        daemon.status()["services"][0]["missed"]
    );
    let rows = missed.windows(2).filter(|two| two.iter().all(|&missed| missed)).count();
    listener.kept_or_told("meter", rows == 0, &missed);
}

#[test]
fn who_joins_a_pipeline_whose_stages_have_variants_is_promised_beside_them() {
    let place = reader();
    let daemon = place.serve();
    let mut client = daemon.client();
    let flood = client.register(&best_effort("meter", "any")).expect("registered");
    let run = |client: &mut weir_client::blocking::Client| {
        client.infer(&flood, &[0.9, 0.0, 0.0, 0.0]).expect("an answer").result().is_some()
    };
    assert!(run(&mut client));
    let stream = weir_client::Registration::builder("meter", "new")
        .constraint(weir_client::Constraint::RowMiss { misses: 1 })
        .arrivals(weir_client::ArrivalBound::window(2, Duration::from_secs(2)));
    let new = client.register(&stream.build().expect("valid")).expect("it can be promised");
    assert!(client.infer(&new, &[0.9, 0.0, 0.0, 0.0]).expect("an answer").result().is_some());
    let before: u64 = by_variant(&daemon)[1];
    pause(Duration::from_millis(300));
    assert!(run(&mut client));
    assert!(
        by_variant(&daemon)[1] > before,
        "its shield counts the new one as well: {:?}",
        by_variant(&daemon)
    );
}
