//! Problems as they are written: what is read, and what is refused with field, value and limit.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::problem::raw::{Arrivals, Stream, Unit};

fn worked() -> Value {
    json!({
        "unit": "us", "deadline": 6000, "guard": 100, "dispatch": "full-or-latest",
        "workers": [{"count": 2, "batch": 2, "times": [1500, 2000, 2500]}],
        "streams": [
            {"name": "cam0", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 4000]]}},
            {"name": "imu", "constraints": ["row_miss(1)"], "arrivals": {
                "periodic": {"period": 5000, "jitter": 5000, "distance": 0.1},
                "token_bucket": {"burst": 3, "period": 4000}}},
            {"name": "log"},
        ],
    })
}

/// `worked()` with the value at `path` replaced.
fn with(path: &str, value: Value) -> String {
    let mut problem = worked();
    *problem.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
    problem.to_string()
}

fn refusal(text: &str) -> String {
    Problem::parse(text).expect_err(text).to_string()
}

#[test]
fn a_problem_is_read_exactly() {
    let problem = Problem::parse(&worked().to_string()).expect("a problem");
    let us = Span::from_micros;
    assert_eq!((problem.deadline, problem.guard), (us(6000), us(100)));
    assert_eq!((problem.dispatch, problem.background), (Dispatch::FullOrLatest, false));
    assert_eq!(problem.workers[0].batch_time(), us(2000));
    let curve = problem.streams[1].1.arrivals().expect("declared");
    assert_eq!(curve.bounds().len(), 3);
    assert_eq!(curve.count(Span::from_nanos(100)), 1, "0.1 µs is 100 ns");
    assert_eq!(curve.count(Span::from_nanos(101)), 2);
    assert!(problem.streams[2].1.arrivals().is_none());
    let system = problem.system();
    assert_eq!((system.latency, system.guard), (us(5900), us(100)));
    let nothing = r#"{"unit":"ns","deadline":1,"workers":[{"count":1,"batch":1,"time":1}],"streams":[]}"#;
    assert_eq!(Problem::parse(nothing).expect("no streams").dispatch, Dispatch::Eager);
}

#[test]
fn nonsense_is_refused_with_field_value_and_limit() {
    let spaced = |bad: Value| with("/streams/0/arrivals", bad);
    for (text, expected) in [
        (with("/deadline", json!(0)), "deadline = 0: must be in 0.001..=3600000000 us"),
        (with("/deadline", json!(3_600_000_001u64)), "deadline = 3600000001: must be in"),
        (with("/deadline", json!(-5)), "deadline = -5: must not be negative"),
        (with("/deadline", json!(1e300)), "deadline = 1e300: is too large"),
        (with("/deadline", json!(100)), "guard = 100: must be below the deadline, 100"),
        (with("/deadline", json!(1599)), "must be at least guard + P(1) = 100 + 1500"),
        (with("/guard", json!(0.0001)), "guard = 0.0001: must be a whole number of nanoseconds"),
        (with("/workers", json!([])), "length of workers = 0: must be in 1..=256"),
        (with("/workers/0/count", json!(0)), "workers[0].count = 0: must be in 1..=256"),
        (with("/workers/0/count", json!(257)), "workers[0].count = 257: must be in 1..=256"),
        (
            with(
                "/workers",
                json!([{"count": 200, "batch": 1, "time": 1}, {"count": 57, "batch": 1, "time": 1}]),
            ),
            "workers[1].count, added to those before, = 257: must be in 1..=256",
        ),
        (with("/workers/0/batch", json!(0)), "workers[0].batch = 0: must be in 1..=64"),
        (with("/workers/0/batch", json!(4)), "length of workers[0].times = 3: must be in 4..=64"),
        (
            with("/workers/0/times", json!([3, 2])),
            "workers[0].times[1] = 2: must not be below the one before it, 3",
        ),
        (with("/workers/0/times", json!([0, 2])), "workers[0].times[0] = 0: must be in 0.001..="),
        (with("/workers/0", json!({"count": 1, "batch": 1})), "workers[0].time = (absent): needs time"),
        (
            with("/workers/0", json!({"count": 1, "batch": 1, "time": 1, "times": [1]})),
            "workers[0].time = 1: times are there too",
        ),
        (with("/streams/1/name", json!("cam0")), "streams[1].name = cam0: is taken already"),
        (with("/streams/1/name", json!("a b")), "streams[1].name = \"a b\": must be 1..=64 letters"),
        (with("/streams/1/name", json!("")), "streams[1].name = \"\": must be 1..=64 letters"),
        (
            with("/streams/0/constraints", json!(["any_miss(1,2)", "any_miss(5,5)"])),
            "streams[0].constraints[1] = any_miss(5,5): m = 5 misses in a window of K = 5 promise nothing",
        ),
        (with("/streams/0/constraints", json!(["any_mis(1,2)"])), "= any_mis(1,2): must be any_miss(m,K)"),
        (
            with("/streams/0/constraints", json!(["any_miss(-1,2)"])),
            "streams[0].constraints[0] = any_miss(-1,2)",
        ),
        (with("/streams/0/constraints", json!(["any_miss(1,99999999999)"])), "= any_miss(1,99999999999)"),
        (with("/streams/0/constraints", json!(["any_miss(1,4097)"])), "K = 4097 is outside 1..=4096"),
        (with("/streams/0/constraints", json!(["row_miss()"])), "streams[0].constraints[0] = row_miss()"),
        (with("/streams/0/constraints", json!(["any_hit(0,4)"])), "h = 0 hits in a window of K = 4"),
        (
            with("/streams/0/constraints", json!(vec!["row_miss(1)"; 9])),
            "9 constraints on one stream, at most 8",
        ),
        (
            with("/streams/2", json!({"name": "x", "constraints": ["row_miss(1)"]})),
            "streams[2].arrivals = (absent): a stream with constraints must declare its arrivals",
        ),
        (spaced(json!({})), "streams[0].arrivals = (0 bounds)"),
        (
            spaced(json!({"windows": [[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]})),
            "= (5 bounds): 5 arrival bounds",
        ),
        (
            spaced(json!({"windows": [[0, 5]]})),
            "streams[0].arrivals.windows[0] = 0: 0 requests are outside 1..=65536",
        ),
        (spaced(json!({"windows": [[1, 0]]})), "streams[0].arrivals.windows[0][1] = 0: must be in 0.001..="),
        (spaced(json!({"periodic": {"period": 0}})), "arrivals.periodic.period = 0: must be in 0.001..="),
        (
            spaced(json!({"periodic": {"period": 1, "jitter": 65536}})),
            "arrivals.periodic.jitter = 65536: jitter",
        ),
        (
            spaced(json!({"periodic": {"period": 1, "distance": 2}})),
            "arrivals.periodic.distance = 2: must be at most the period, 1",
        ),
        (spaced(json!({"token_bucket": {"burst": 0, "period": 1}})), "arrivals.token_bucket.burst = 0"),
        (
            spaced(json!({"token_bucket": {"burst": 65537, "period": 1}})),
            "arrivals.token_bucket.burst = 65537",
        ),
        (
            spaced(json!({"distances": [2, 1]})),
            "arrivals.distances[1] = 1: must not be below the one before it, 2",
        ),
        (spaced(json!({"trace": [1]})), "length of streams[0].arrivals.trace = 1: must be in 2..=65536"),
        (spaced(json!({"trace": [1, 0]})), "arrivals.trace[1] = 0: must not be below the one before it, 1"),
        (spaced(json!({"trace": vec![1; MAX_TRACE + 1]})), "trace = 65537: must be in 2..=65536"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(expected), "{message:?} instead of {expected:?}");
    }
    let one = json!({"name": "x"});
    let many = refusal(&with("/streams", json!(vec![one; MAX_STREAMS + 1])));
    assert!(many.contains("length of streams = 4097: must be in 0..=4096"), "{many}");
}

#[test]
fn what_is_not_the_schema_is_refused_with_its_place() {
    let text = worked().to_string();
    for (bad, expected) in [
        (text.replacen("\"guard\"", "\"gaurd\"", 1), "unknown field `gaurd`"),
        (text.replacen("\"guard\"", "\"deadline\"", 1), "duplicate field `deadline`"),
        (
            text.replacen("\"us\"", "\"fortnight\"", 1),
            "unit: must be one of \"ns\", \"us\", \"ms\", \"s\", not \"fortnight\"",
        ),
        (
            text.replacen("full-or-latest", "lazy", 1),
            "dispatch: must be \"eager\" or \"full-or-latest\", not \"lazy\"",
        ),
        (text.replacen(":6000", ":NaN", 1), "column"),
        (text.replacen(":6000", ":\"6000\"", 1), "deadline: \"6000\" is no number"),
        (text.replacen(":6000", ":6000.00000000000000000000000000000001", 1), "more than 30 digits"),
        ("{".repeat(5000), "column"),
        ("[".repeat(5000), "column"),
        (String::new(), "it ends where a value must stand"),
    ] {
        let message = refusal(&bad);
        assert!(message.contains(expected), "{message:?} instead of {expected:?}");
    }
    let huge = refusal(&" ".repeat(MAX_BYTES + 1));
    assert!(huge.contains("16777217 bytes or more, at most 16777216"), "{huge}");
    let long = refusal(&with("/streams/0/name", json!("x".repeat(1 << 20))));
    assert!(long.len() < 300, "cut");
}

#[test]
fn distances_and_traces_are_read() {
    let spec = |bound: Value| {
        let problem = Problem::parse(&with("/streams/0/arrivals", bound)).expect("a problem");
        problem.streams[0].1.arrivals().expect("declared").clone()
    };
    let us = Span::from_micros;
    let curve = spec(json!({ "distances": [1000, 3000] }));
    assert_eq!([1, 1001, 3001, 4001].map(|l| curve.count(us(l))), [1, 2, 3, 4]);
    let curve = spec(json!({ "trace": [0, 5000, 6000, 11000] }));
    assert_eq!([1, 1001, 6001].map(|l| curve.count(us(l))), [1, 2, 3]);
    let message = refusal(&with("/streams/0/arrivals", json!({ "trace": [3] })));
    assert!(message.contains("streams[0].arrivals.trace") && message.contains("2..=65536"), "{message}");
    let message = refusal(&with("/streams/0/arrivals", json!({ "distances": [0, 0] })));
    assert!(message.contains("streams[0].arrivals.distances = (2 distances)"), "{message}");
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let time = |range| (Just(()), range).prop_map(|((), n)| Number::whole(n));
    (
        proptest::collection::vec((1u64..9, time(1..10_000u64)), 0..3),
        proptest::option::of((1000u64..9000, time(0..9000u64), proptest::option::of(time(1..1000u64)))),
        1u64..9,
        time(1..10_000u64),
    )
        .prop_map(|(windows, periodic, burst, period)| Arrivals {
            windows,
            token_bucket: periodic.is_none().then_some(raw::TokenBucket { burst, period }),
            periodic: periodic
                .into_iter()
                .map(|(period, jitter, distance)| {
                    let period = Number::whole(period);
                    raw::Periodic { period, jitter, distance }
                })
                .collect(),
            ..Arrivals::default()
        })
}

/// Small problems of all kinds.
pub(crate) fn problems() -> impl Strategy<Value = raw::Problem> {
    let constraint = (1u32..5, 0u32..5).prop_map(|(h, m)| format!("any_hit({h},{})", h + m));
    let stream = (proptest::collection::vec(constraint, 0..3), arrivals());
    let workers = (1usize..4, 1usize..4, proptest::collection::vec(1u64..50, 4), any::<bool>());
    (
        (any::<bool>(), any::<bool>(), 0u64..999),
        proptest::collection::vec(workers, 1..4),
        proptest::collection::vec(stream, 0..4),
        prop_oneof![Just(Unit::Ns), Just(Unit::Us), Just(Unit::Ms)],
    )
        .prop_map(|((latest, background, guard), workers, streams, unit)| raw::Problem {
            unit,
            deadline: Number::whole(2000),
            guard: if unit == Unit::Ns { Number::whole(guard) } else { Number::thousandths(guard) },
            stalls: None,
            dispatch: if latest { raw::Dispatch::FullOrLatest } else { raw::Dispatch::Eager },
            background,
            workers: workers
                .into_iter()
                .map(|(count, batch, mut times, same)| {
                    times.sort_unstable();
                    let times: Vec<_> = times.into_iter().map(Number::whole).collect();
                    let (time, times) = if same { (Some(times[0]), None) } else { (None, Some(times)) };
                    raw::Workers { count, batch, time, times }
                })
                .collect(),
            streams: (0..)
                .zip(streams)
                .map(|(i, (constraints, arrivals))| Stream {
                    name: format!("s{i}"),
                    constraints,
                    arrivals: Some(arrivals),
                    degraded: Vec::new(),
                })
                .collect(),
        })
}

proptest! {
    #[test]
    fn writing_and_reading_is_the_identity(raw in problems()) {
        let problem = Problem::from_raw(raw).expect("in range");
        let text = serde_json::to_string(&problem.raw).expect("JSON");
        let whole = [".0,", ".0}", ".0]"].iter().all(|end| !text.contains(end));
        prop_assert!(whole, "whole numbers are written as such: {}", text);
        prop_assert_eq!(Problem::parse(&text).expect("its own text"), problem);
    }

    #[test]
    fn no_text_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(Problem::parse(&String::from_utf8_lossy(&bytes)));
    }

    #[test]
    fn no_change_to_a_problem_makes_it_panic(
        raw in problems(),
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(b'9'), Just(b'-'), Just(b'e'), Just(b'0')]), 1..8),
    ) {
        let mut text = serde_json::to_vec(&raw).expect("JSON");
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        if let Ok(problem) = Problem::parse(&String::from_utf8_lossy(&text)) {
            prop_assert!(problem.guard < problem.deadline && problem.deadline <= rt_core::MAX_SPAN);
        }
    }
}
