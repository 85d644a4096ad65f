//! The promise's batch size is no cap of service: what waits is served in larger batches, by what they are expected to take.

use crate::harness::{DAEMON, Deployment, answers, best_effort};
use serde_json::Value;
use weir_client::{Outcome, RequestId};

/// One worker that is promised by batches of one; a batch of up to four takes 20 to 26 ms, and may take `bound_ms`.
fn deployment(bound_ms: u64) -> Deployment {
    let place = Deployment::new(format!(
        "{DAEMON}{}",
        r#"
        [[service]]
        name = "line"
        engine = "simulated"
        simulated = { times = ["20ms", "22ms", "24ms", "26ms"], input = 3, output = 3 }
        deadline = "4s"
        guard = "100ms"
        batch = 1
        "#
    ));
    let place = place.profiled(&[bound_ms; 4]);
    place.change_entries(|entries| {
        for batch in entries[0]["batches"].as_array_mut().expect("batches") {
            for field in ["p50_ns", "p90_ns", "p95_ns", "p99_ns", "mean_ns"] {
                batch[field] = Value::from(30_000_000);
            }
        }
    });
    place
}

/// Sends forty requests at once to `place`; their answers.
fn burst(place: &Deployment) -> Vec<Outcome> {
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("line", "burst")).expect("best effort");
    let send = |_| client.submit(&stream, &[0.0; 3]).expect("sent");
    let ids: Vec<RequestId> = (0..40).map(send).collect();
    answers(&mut client, &ids)
}

fn batches(outcomes: &[Outcome]) -> Vec<u16> {
    outcomes.iter().filter_map(|outcome| outcome.result().map(|result| result.batch)).collect()
}

#[test]
fn what_waits_is_served_in_batches_beyond_that_of_the_promise() {
    let batches = batches(&burst(&deployment(30)));
    assert_eq!(batches.len(), 40, "all have time");
    assert!(batches.iter().all(|&size| (1..=4).contains(&size)), "{batches:?}");
    // The first begins alone, or with what came meanwhile.
    assert!(batches.iter().filter(|&&size| size == 4).count() >= 28, "{batches:?}");
}

#[test]
fn a_bound_that_rests_on_a_rare_stall_refuses_nobody_whom_nothing_was_promised() {
    // By the bound a batch must begin in the first 100 ms; by what they are expected to take, all have time.
    let batches = batches(&burst(&deployment(3_800)));
    assert_eq!(batches.len(), 40, "{batches:?}");
}

#[test]
fn a_promise_that_only_rare_long_times_forbid_is_refused_with_them() {
    let place = deployment(3_800);
    let config = std::fs::read_to_string(place.config()).expect("it was written");
    place.configure(config + "constraints = [{ any-miss = { m = 1, k = 3 } }]\n");
    let text = place.fail(&["plan"]);
    let told =
        ["cannot be promised at any rate", "it could be but for rare long times", "90 % of batches of 1"];
    assert!(told.iter().all(|words| text.contains(words)) && text.contains("P(1) = 3.8"), "{text}");
}
