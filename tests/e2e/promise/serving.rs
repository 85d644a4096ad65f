//! The whole way of many requests: what is promised holds below the declared rate, and beside one who breaks it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::{
    Deployment, Listener, answers, best_effort, daemon_in_real_time, eventually, pause, quiet, values,
};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{
    ArrivalBound, Constraint, Outcome, RefusalCode, Registration, SafeModeCause, SafeModeEvent, StreamInfo,
    StreamState,
};

/// One worker; a request takes 60 ms, and promises are computed with 100 ms. The machine is this test's alone.
fn deployment(streams: &str) -> Deployment {
    quiet();
    Deployment::new(format!(
        "{}{}{streams}",
        daemon_in_real_time(),
        r#"
        [safe-mode]
        hold = "200ms"
        clean = "200ms"
        [[service]]
        name = "cameras"
        engine = "simulated"
        simulated = { times = ["60ms"], input = 3, output = 3 }
        deadline = "1200ms"
        guard = "300ms"
        queue = 512
        "#
    ))
    .profiled(&[100])
}

/// What became of each request of a stream, in the order in which the daemon took them.
#[derive(Default)]
struct History(BTreeMap<u64, bool>);

impl History {
    fn add(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let (sequence, hit) = match outcome {
                Outcome::Result(result) => (result.sequence, true),
                Outcome::Miss(miss) => (miss.sequence, false),
            };
            assert_eq!(self.0.insert(sequence, hit), None, "two answers have sequence {sequence}");
        }
    }

    /// The most misses among any `window` consecutive requests.
    fn most_missed(&self, window: usize) -> usize {
        let hits: Vec<bool> = self.0.values().copied().collect();
        hits.windows(window).map(|w| w.iter().filter(|hit| !**hit).count()).max().unwrap_or(0)
    }

    fn served(&self) -> usize {
        self.0.values().filter(|hit| **hit).count()
    }

    /// That every request has its number, and that the daemon counted as many of each kind.
    fn agrees_with(&self, status: &Value) {
        assert!(self.0.keys().copied().eq(0..self.0.len() as u64), "the numbers have gaps: {:?}", self.0);
        assert_eq!(status["arrived"], self.0.len(), "{status}");
        assert_eq!(status["served"], self.served(), "{status}");
        let missed: u64 =
            status["missed"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
        assert_eq!(missed, (self.0.len() - self.served()) as u64, "{status}");
    }
}

/// Sends `count` requests at once, `bursts` times. The answer to PING says that the daemon has read a burst,
/// so no window of that length holds more than `count` of them, however the host stalls.
fn bursts(
    client: &mut Client,
    stream: &StreamInfo,
    bursts: usize,
    count: usize,
    length: Duration,
) -> History {
    let mut ids = Vec::new();
    for burst in 0..bursts {
        for _ in 0..count {
            ids.push(client.submit(stream, &[burst as f32, 1.0, 2.0]).expect("submitted"));
        }
        client.ping().expect("an answer");
        pause(length + Duration::from_millis(5));
    }
    let mut history = History::default();
    let outcomes = answers(client, &ids);
    for outcome in &outcomes {
        assert!(values(stream, outcome).is_none_or(|values| values[1..] == [1.0, 2.0]), "{outcome:?}");
    }
    history.add(&outcomes);
    history
}

#[test]
fn below_the_declared_rate_constraints_hold_and_every_request_is_answered_once() {
    let daemon = deployment("").serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let window = Duration::from_millis(400);
    let registration = Registration::builder("cameras", "front")
        .constraint(Constraint::any_miss(3, 4))
        .arrivals(ArrivalBound::window(14, window))
        .build()
        .expect("it fits the frame");
    let stream = client.register(&registration).expect("it can be promised");
    assert_eq!((stream.density_numerator, stream.density_denominator), (1, 4));
    // 35 requests a second where fewer than 17 can be served: misses there must be, but never four in a row.
    let history = bursts(&mut client, &stream, 12, 14, window);
    assert_eq!(history.0.len(), 12 * 14);
    history.agrees_with(&daemon.stream_status("front"));
    assert!(history.served() < history.0.len(), "nothing was missed, so nothing is shown");
    listener.kept_or_told("cameras", history.most_missed(4) <= 3, &history.0);
    assert_eq!(listener.suspensions(), []);
    let violated = |change: &SafeModeEvent| change.cause == SafeModeCause::ConstraintViolated;
    let violated = listener.changes().iter().any(violated);
    listener.kept_or_told("cameras", !violated, &"no constraint violated");
}

#[test]
fn two_streams_keep_their_different_constraints_side_by_side() {
    let daemon = deployment(
        r#"
        [[service.stream]]
        name = "often"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 4, length = "600ms" } }]
        [[service.stream]]
        name = "seldom"
        constraints = [{ any-miss = { m = 7, k = 10 } }, { row-miss = 3 }]
        arrivals = [{ window = { count = 10, length = "600ms" } }]
        "#,
    )
    .serve();
    let mut listener = Listener::new(&daemon);
    let window = Duration::from_millis(600);
    let run = |name: &'static str, count| {
        let mut client = daemon.client();
        let stream = client.register(&best_effort("cameras", name)).expect("it is reserved");
        bursts(&mut client, &stream, 10, count, window)
    };
    let (often, seldom) = std::thread::scope(|scope| {
        let often = scope.spawn(|| run("often", 4));
        let seldom = scope.spawn(|| run("seldom", 10));
        (often.join().expect("no panic"), seldom.join().expect("no panic"))
    });
    assert_eq!((often.0.len(), seldom.0.len()), (40, 100));
    listener.kept_or_told("cameras", often.most_missed(2) <= 1, &often.0);
    listener.kept_or_told("cameras", seldom.most_missed(10) <= 7 && seldom.most_missed(4) <= 3, &seldom.0);
}

#[test]
fn a_flood_suspends_its_own_stream_and_leaves_other_streams_their_promise() {
    let daemon = deployment(
        r#"
        [[service.stream]]
        name = "calm"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 2, length = "500ms" } }]
        [[service.stream]]
        name = "flood"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 2, length = "500ms" } }]
        "#,
    )
    .serve();
    let mut listeners: Vec<_> = (0..3).map(|_| Listener::new(&daemon)).collect();
    let mut deaf = daemon.client();
    let window = Duration::from_millis(500);
    let mut calm = daemon.client();
    let calm_stream = calm.register(&best_effort("cameras", "calm")).expect("it is reserved");
    let mut flood = daemon.client();
    let flood_stream = flood.register(&best_effort("cameras", "flood")).expect("it is reserved");
    let (calm_history, flood_history) = std::thread::scope(|scope| {
        let calm = scope.spawn(|| bursts(&mut calm, &calm_stream, 8, 2, window));
        // Ten times what it declared.
        let flood = scope.spawn(|| bursts(&mut flood, &flood_stream, 4, 20, window));
        (calm.join().expect("no panic"), flood.join().expect("no panic"))
    });
    calm_history.agrees_with(&daemon.stream_status("calm"));
    flood_history.agrees_with(&daemon.stream_status("flood"));
    let heard: Vec<_> =
        listeners.iter_mut().map(|l| l.until_promised_anew("flood", 1)[..2].to_vec()).collect();
    assert!(heard.iter().all(|told| *told == heard[0]), "listeners heard different things: {heard:?}");
    let first = &heard[0][0];
    assert_eq!((first.state, first.cause), (StreamState::Suspended, SafeModeCause::ArrivalExcess));
    // At the first request too many.
    assert_eq!((first.limit, first.seen, first.window, first.sequence), (2, 3, window, 1));
    assert!(first.service == "cameras" && first.text.contains("flood"), "{first:?}");
    assert_eq!(heard[0][1].state, StreamState::Normal);
    let told = listeners[0].suspensions();
    assert!(
        told.iter().all(|told| told.stream == "flood"),
        "others have kept to what they declared: {told:?}"
    );
    assert!(told.iter().map(|told| told.sequence).eq(1..=told.len() as u64), "{told:?}");
    // The service is in safe mode for nothing that a stream does.
    let entered = listeners[0].changes().iter().any(|change| change.state.is_suspended());
    listeners[0].kept_or_told("cameras", !entered, &"no safe mode");
    assert_eq!(deaf.next_event_timeout(Duration::from_millis(10)).expect("it stays"), None, "it never asked");

    // Served as before.
    let outcome = calm.infer(&calm_stream, &[9.0, 1.0, 2.0]).expect("an answer");
    assert!(values(&calm_stream, &outcome).is_none_or(|values| values == [9.0, 1.0, 2.0]), "{outcome:?}");
    listeners[0].kept_or_told("cameras", outcome.result().is_some(), &outcome);
    // The flood of another stream has not reached it.
    listeners[0].kept_or_told("cameras", calm_history.most_missed(2) <= 1, &calm_history.0);
}

#[test]
fn suspensions_are_numbered_without_gaps_and_told_in_the_status() {
    let daemon = deployment(
        r#"
        [[service.stream]]
        name = "burst"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 1, length = "300ms" } }]
        "#,
    )
    .serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("cameras", "burst")).expect("it is reserved");
    for times in 1..=3 {
        let ids: Vec<_> = (0..5).map(|_| client.submit(&stream, &[0.0; 3]).expect("submitted")).collect();
        client.ping().expect("an answer");
        let why = daemon.stream_status("burst")["suspended"].clone();
        let told = listener.suspensions().last().expect("it was told").clone();
        assert_eq!(
            (why["cause"].as_str(), why["entered_ns"].as_u64(), why["text"].as_str()),
            (Some("arrival-excess"), u64::try_from(told.entered.as_nanos()).ok(), Some(told.text.as_str())),
            "{why}"
        );
        answers(&mut client, &ids);
        listener.until_promised_anew("burst", times);
        assert_eq!(daemon.stream_status("burst")["suspended"], Value::Null);
    }
    let told = listener.suspensions().to_vec();
    assert!(told.iter().map(|told| told.sequence).eq(1..=6), "{told:?}");
    assert!(told.iter().map(|told| told.state.is_suspended()).eq([true, false].repeat(3)), "{told:?}");
    assert!(told.iter().all(|told| told.breaches >= told.sequence / 2), "{told:?}");
    let service = daemon.status()["services"][0].clone();
    assert_eq!(
        (&service["suspensions"]["sequence"], &service["suspensions"]["streams"]),
        (&6.into(), &0.into())
    );
}

#[test]
fn a_stream_that_cannot_be_promised_beside_the_others_is_refused_and_harms_nobody() {
    let daemon = deployment(
        r#"
        [[service.stream]]
        name = "first"
        constraints = [{ any-miss = { m = 0, k = 1 } }]
        arrivals = [{ window = { count = 4, length = "500ms" } }]
        "#,
    )
    .serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let greedy = Registration::builder("cameras", "greedy")
        .constraint(Constraint::any_miss(0, 1))
        .arrivals(ArrivalBound::window(4, Duration::from_millis(500)))
        .build()
        .expect("it fits the frame");
    let refusal = match client.register(&greedy) {
        Err(weir_client::Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal.code, RefusalCode::NotAdmissible);
    assert!(refusal.text.contains("8 mandatory") || refusal.text.contains("requests/s"), "{}", refusal.text);
    let stream = client.register(&best_effort("cameras", "first")).expect("it is reserved");
    let history = bursts(&mut client, &stream, 3, 4, Duration::from_millis(500));
    assert_eq!(history.0.len(), 12);
    // Every request was promised.
    listener.kept_or_told("cameras", history.served() == 12, &history.0);
    eventually("an idle daemon", || (daemon.status()["services"][0]["running"] == 0).then_some(()));
}
