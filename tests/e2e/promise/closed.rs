//! A closed service: nothing is served that no stream declared, and so more can be promised.

use std::time::Duration;

use crate::harness::{Deployment, Listener, answers, best_effort, daemon_in_real_time, pause, quiet};
use weir_client::{ArrivalBound, Constraint, Error, MissReason, Outcome, RefusalCode, Registration};

const WINDOW: Duration = Duration::from_secs(1);

/// The third example of the guarantee, in hundreds of its milliseconds: three requests of 300 ms do not fit in 700 ms, and
/// two of them are all there can be if nothing else is served.
fn config(background: &str) -> String {
    format!(
        "{}certificate = \"promise.json\"\n{}",
        daemon_in_real_time(),
        r#"
        [[service]]
        name = "brake"
        engine = "simulated"
        simulated = { times = ["100ms"], input = 1, output = 1 }
        deadline = "1s"
        guard = "300ms"
        handover = "0ms"
        max-batch = 1
        BACKGROUND
        [[service.stream]]
        name = "pedal"
        constraints = [{ row-miss = 0 }]
        arrivals = [{ window = { count = 2, length = "1s" } }]
        "#
        .replace("BACKGROUND", background)
    )
}

pub(super) fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> (RefusalCode, String) {
    match answer {
        Err(Error::Refused(refusal)) => (refusal.code, refusal.text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_load_that_background_would_break_is_admitted_and_served_without() {
    quiet();
    let place = Deployment::new(config("")).profiled(&[300]);
    let refused = place.fail(&["plan"]);
    assert!(refused.contains("pedal"), "{refused}");
    place.configure(config("background = false"));
    place.succeed(&["check"]);
    assert!(place.succeed(&["plan"]).contains("closed (background = false)"));
    assert!(place.succeed(&["certify"]).contains("brake: admissible"));
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    assert_eq!(daemon.status()["services"][0]["background"], false);
    let (code, text) = refusal(client.register(&best_effort("brake", "stranger")));
    assert!(code == RefusalCode::InvalidArrivals && text.contains("background = false"), "{text}");
    let pedal = client.register(&best_effort("brake", "pedal")).expect("it is reserved");
    let mut outcomes: Vec<Outcome> = Vec::new();
    for _ in 0..4 {
        let ids = [0.0, 1.0].map(|value| client.submit(&pedal, &[value]).expect("submitted"));
        outcomes.extend(answers(&mut client, &ids));
        pause(WINDOW);
    }
    let kept = outcomes.iter().all(|outcome| outcome.result().is_some());
    listener.kept_or_told("brake", kept, &outcomes);
    // Beyond the declaration nothing is served.
    let ids: Vec<_> = (0..5).map(|_| client.submit(&pedal, &[0.0]).expect("submitted")).collect();
    let excess = answers(&mut client, &ids);
    let shed = |outcome: &&Outcome| matches!(outcome, Outcome::Miss(miss) if miss.reason == MissReason::Shed);
    assert_eq!(excess.iter().filter(shed).count(), 3, "{excess:?}");
    // With background the promise would not stand.
    place.configure(config(""));
    assert!(daemon.reload_refused().contains("pedal"));
}

#[test]
fn a_stream_that_declares_nothing_is_not_taken_into_a_closed_service() {
    let open = config("").replace("count = 2", "count = 1");
    let place = Deployment::new(open).profiled(&[300]);
    place.succeed(&["certify"]);
    let daemon = place.serve();
    let mut client = daemon.client();
    client.register(&best_effort("brake", "stranger")).expect("a stream");
    place.configure(config("background = false"));
    place.succeed(&["certify"]);
    let refused = daemon.reload_refused();
    assert!(refused.contains("stranger") && refused.contains("background = false"), "{refused}");
}

#[test]
fn what_a_closed_service_cannot_have_is_refused_with_its_field() {
    let undeclared = config("background = false") + "[[service.stream]]\nname = \"log\"\nconstraints = []\n";
    let refused = Deployment::new(undeclared).fail(&["check"]);
    assert!(refused.contains("service[0].stream[1].arrivals") && refused.contains("background"), "{refused}");
    let variants = config("background = false").replace(
        "times = [\"100ms\"]",
        "accuracy = 0.5, variants = [{ times = [\"200ms\"], accuracy = 0.9 }], times = [\"100ms\"]",
    );
    let refused = Deployment::new(variants).fail(&["check"]);
    assert!(refused.contains("service[0].background = false"), "{refused}");
}

/// A promise that only a closed service can give is given to a client as well, and given up again.
#[test]
fn streams_come_and_go_in_a_closed_service() {
    quiet();
    let alone = config("background = false");
    let alone = alone.split("[[service.stream]]").next().expect("a service");
    let place = Deployment::new(alone).profiled(&[300]);
    place.succeed(&["certify"]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let strict = || {
        let stream = Registration::builder("brake", "pedal").constraint(Constraint::RowMiss { misses: 0 });
        stream.arrivals(ArrivalBound::window(2, WINDOW)).build().expect("it fits")
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for _ in 0..3 {
        let mut client = daemon.client();
        let pedal = client.register(&strict()).expect("it can be promised");
        let another = Registration::builder("brake", "another").constraint(Constraint::RowMiss { misses: 0 });
        let another = another.arrivals(ArrivalBound::window(2, WINDOW)).build().expect("it fits");
        assert_eq!(refusal(client.register(&another)).0, RefusalCode::NotAdmissible);
        let ids = [0.0, 1.0].map(|value| client.submit(&pedal, &[value]).expect("submitted"));
        outcomes.extend(answers(&mut client, &ids));
        client.unregister(&pedal).expect("given up");
    }
    let kept = outcomes.iter().all(|outcome| outcome.result().is_some());
    listener.kept_or_told("brake", kept, &outcomes);
}
