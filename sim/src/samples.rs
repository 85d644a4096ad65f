//! Problems for the tests: small ones by hand, and random ones.

use planner::problem::raw;
use planner::{Number, Problem};
use proptest::prelude::*;
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, LatencyProfile, StreamSpec, Workers,
};

use crate::time::ns;

/// A problem of one kind of workers in nanoseconds, with streams `s0`, `s1`, …
pub(crate) fn problem(times: &[u64], count: usize, deadline: u64, streams: &[StreamSpec]) -> Problem {
    let times: Vec<_> = times.iter().map(|&time| ns(time)).collect();
    let profile = LatencyProfile::new(&times).expect("a profile");
    Problem {
        raw: raw::Problem {
            unit: raw::Unit::Ns,
            deadline: Number::whole(deadline),
            guard: Number::default(),
            stalls: None,
            dispatch: raw::Dispatch::Eager,
            background: false,
            workers: Vec::new(),
            streams: streams.iter().enumerate().map(written).collect(),
        },
        deadline: ns(deadline),
        guard: ns(0),
        stalls: None,
        dispatch: Dispatch::Eager,
        background: false,
        workers: vec![Workers { count, batch: times.len(), profile }],
        streams: streams.iter().enumerate().map(|(i, spec)| (format!("s{i}"), spec.clone())).collect(),
    }
}

/// A stream as it could have been written, but for its arrivals.
fn written((i, spec): (usize, &StreamSpec)) -> raw::Stream {
    let constraints = spec.constraints().as_slice().iter().map(ToString::to_string);
    raw::Stream {
        name: format!("s{i}"),
        constraints: constraints.collect(),
        arrivals: None,
        degraded: Vec::new(),
    }
}

/// A stream of `any_miss(m,k)` that sends at most `count` in any `length`.
pub(crate) fn stream(m: u32, k: u32, count: u64, length: u64) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("valid")]).expect("one");
    StreamSpec::promised(set, window(count, length))
}

pub(crate) fn window(count: u64, length: u64) -> ArrivalCurve {
    ArrivalCurve::new(&[ArrivalBound::window(count, ns(length)).expect("valid")]).expect("one")
}

pub(crate) fn curve() -> impl Strategy<Value = ArrivalCurve> {
    let bound = prop_oneof![
        (1u64..5, 1u64..24).prop_map(|(n, w)| ArrivalBound::window(n, ns(w)).expect("valid")),
        (1u64..15, 0u64..30).prop_map(|(t, j)| ArrivalBound::periodic(ns(t), ns(j)).expect("valid")),
        proptest::collection::vec(0u64..8, 1..5).prop_map(|mut gaps| {
            gaps[0] += 1;
            let sums = gaps.iter().scan(0, |sum, gap| {
                *sum += gap;
                Some(ns(*sum))
            });
            ArrivalBound::distances(&sums.collect::<Vec<_>>()).expect("valid")
        }),
    ];
    proptest::collection::vec(bound, 1..=2).prop_map(|bounds| ArrivalCurve::new(&bounds).expect("few"))
}

fn spec() -> impl Strategy<Value = StreamSpec> {
    let constraint = (1u32..6).prop_flat_map(|k| (0..k, Just(k)));
    let constraint = constraint.prop_map(|(m, k)| Constraint::any_miss(m, k).expect("m < k"));
    (proptest::collection::vec(constraint, 1..3), curve())
        .prop_map(|(set, curve)| StreamSpec::promised(ConstraintSet::new(&set).expect("few"), curve))
}

fn workers() -> impl Strategy<Value = Workers> {
    let times = (1u64..8, proptest::collection::vec(0u64..3, 0..3));
    (times, 1usize..4).prop_map(|((first, steps), count)| {
        let mut times = vec![ns(first)];
        steps.iter().for_each(|&step| times.push(times[times.len() - 1] + ns(step)));
        Workers { count, batch: times.len(), profile: LatencyProfile::new(&times).expect("a profile") }
    })
}

/// Any small problem, admissible or not; one in four has two kinds of workers.
pub(crate) fn any_problem() -> impl Strategy<Value = Problem> {
    let workers = (workers(), proptest::option::weighted(0.25, workers()));
    let streams = proptest::collection::vec(spec(), 1..4);
    (workers, 0u64..30, streams, any::<bool>(), any::<bool>()).prop_map(
        |((first, second), slack, streams, latest, background)| {
            let base = problem(&[1], 1, 1, &streams);
            let workers: Vec<_> = [Some(first), second].into_iter().flatten().collect();
            let dispatch = if latest { Dispatch::FullOrLatest } else { Dispatch::Eager };
            let problem = Problem { workers, dispatch, background, ..base };
            Problem { deadline: problem.system().longest_batch() + ns(slack), ..problem }
        },
    )
}

/// Small problems that are admitted: streams are given up, and the deadline relaxed, until they are.
pub(crate) fn admitted_problem() -> impl Strategy<Value = Problem> {
    any_problem().prop_map(|mut problem| {
        let longest = problem.system().longest_batch();
        while problem.system().admit(problem.streams.iter().map(|(_, spec)| spec)).is_err() {
            problem.deadline = problem.deadline + longest;
            if problem.deadline > ns(12 * longest.as_nanos()) {
                problem.streams.pop();
            }
        }
        problem
    })
}
