//! Beyond the guarantee: in constant overload misses stay apart, and the workers stay busy with what counts.

use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, StreamId, StreamSpec};

use crate::harness::load::ns;
use crate::harness::{Dice, Harness, config};

/// Time of a full batch.
const P: u64 = 1_000;

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Evenly, the streams in turn.
    Even,
    /// Evenly on average, each up to half a `P` late.
    Jittered,
}

/// What the streams declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared {
    /// What was certified: what comes beyond it is in excess, and optional.
    Certified,
    /// What really comes, although no test would admit it: too much is mandatory.
    Real,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    dispatch: Dispatch,
    streams: usize,
    /// The constraint of every stream.
    constraint: (u32, u32),
    /// Arrivals over the certified rate.
    factor: f64,
    pattern: Pattern,
    declared: Declared,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// The longest run of misses of any stream, and what would be ideal.
    longest: usize,
    ideal: usize,
    /// Served requests in percent of what the worker can do.
    goodput: f64,
    /// The least and most served of any stream, in percent of the mean.
    least: f64,
    most: f64,
}

fn measure(case: Case) -> Spread {
    let Case { batch, streams, factor, .. } = case;
    let times: Vec<u64> = (1..=batch as u64).map(|b| P / 2 + P / 2 * b / batch as u64).collect();
    let mut harness = Harness::new(config(&times, batch, 1, 2 * P, case.dispatch), |_, bound| bound);
    let constraint = Constraint::any_miss(case.constraint.0, case.constraint.1).expect("valid");
    let set = ConstraintSet::new(&[constraint]).expect("one");
    let (hits, window) = (f64::from(constraint.hits()), f64::from(constraint.window()));
    // Certified: B·K/(K-m) per P, shared equally by the streams.
    let certified = batch as f64 * window / hits / P as f64;
    let rate = certified * factor;
    let declared = if case.declared == Declared::Real { rate } else { certified };
    let period = (streams as f64 / declared).floor() as u64;
    let jitter = if case.pattern == Pattern::Jittered { P / 2 } else { 2 };
    let bound = ArrivalBound::periodic(ns(period), ns(jitter)).expect("valid");
    let spec = StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"));
    let ids: Vec<_> = (0..streams).map(|_| harness.add(spec.clone())).collect();
    let mut dice = Dice(7);
    let count = 3_000 * streams;
    let mut arrivals: Vec<(u64, usize)> = (0..count)
        .map(|i| {
            ((i as f64 / rate) as u64 + if jitter > 2 { dice.within(0, jitter) } else { 0 }, i % streams)
        })
        .collect();
    arrivals.sort_unstable();
    for (at, stream) in arrivals {
        harness.advance_to(at);
        harness.arrive(ids[stream]);
    }
    let end = harness.now;
    harness.drain();
    ids.iter().for_each(|&id| harness.account(id));
    let runs = |id| harness.outcomes(id).split(|&hit| hit).map(<[bool]>::len).max().unwrap_or(0);
    let served: Vec<f64> =
        ids.iter().map(|&id| harness.outcomes(id).iter().filter(|&&hit| hit).count() as f64).collect();
    let total: f64 = served.iter().sum();
    let mean = total / streams as f64;
    Spread {
        longest: ids.iter().map(|&id| runs(id)).max().unwrap_or(0),
        ideal: (rate * P as f64 / batch as f64 - 1e-9).ceil() as usize - 1,
        goodput: 100.0 * total / (end as f64 / P as f64 * batch as f64),
        least: 100.0 * served.iter().copied().fold(f64::MAX, f64::min) / mean,
        most: 100.0 * served.iter().copied().fold(0.0, f64::max) / mean,
    }
}

const FACTORS: [f64; 6] = [1.0, 1.2, 1.5, 2.0, 3.0, 4.0];
const CONSTRAINTS: [(u32, u32); 4] = [(0, 1), (1, 2), (3, 10), (4, 5)];
const PATTERNS: [Pattern; 2] = [Pattern::Even, Pattern::Jittered];

/// Measures every combination, prints a line each, and gives `check` the results.
fn sweep(
    streams: usize,
    batches: &[usize],
    declared: Declared,
    pattern: Pattern,
    check: impl Fn(Case, Spread),
) {
    for dispatch in [Dispatch::Eager, Dispatch::FullOrLatest] {
        for (&batch, constraint) in batches.iter().flat_map(|b| CONSTRAINTS.map(|c| (b, c))) {
            print!("{declared:?} {pattern:?} streams={streams} {dispatch:?} B={batch} {constraint:?}:");
            for factor in FACTORS {
                let case = Case { batch, dispatch, streams, constraint, factor, pattern, declared };
                let s = measure(case);
                print!(
                    " {factor}: {}/{} {:.0}% {:.0}..{:.0} |",
                    s.longest, s.ideal, s.goodput, s.least, s.most
                );
                check(case, s);
            }
            println!();
        }
    }
}

/// Of mandatory requests, one in `factor` is served; between two of them lie `ceil(K/(K-m)) - 1` others.
/// `more` is how many further mandatory ones in a row may be lost to uneven arrivals.
fn within(case: Case, spread: Spread, more: usize) {
    let gap = case.constraint.1.div_ceil(case.constraint.1 - case.constraint.0) as usize;
    let bound = (case.factor.ceil() as usize + more) * gap - 1;
    assert!(spread.longest <= bound, "{} misses in a row, bound {bound}: {case:?}", spread.longest);
}

#[test]
fn misses_of_one_even_stream_are_as_far_apart_as_its_word_allows() {
    sweep(1, &[1, 4, 8], Declared::Real, Pattern::Even, |case, spread| within(case, spread, 1));
    // A place that is kept for the next request that is to be served may come one later.
    sweep(1, &[1, 4, 8], Declared::Certified, Pattern::Even, |case, spread| {
        within(case, Spread { longest: spread.longest.saturating_sub(1), ..spread }, 2);
    });
}

#[test]
fn misses_of_one_uneven_stream_stay_apart() {
    sweep(1, &[1, 4, 8], Declared::Real, Pattern::Jittered, |case, spread| within(case, spread, 2));
}

#[test]
fn misses_of_several_streams_stay_apart_and_are_shared_fairly() {
    for pattern in PATTERNS {
        sweep(4, &[4, 8], Declared::Real, pattern, |case, spread| {
            within(case, spread, 4);
            assert!(spread.least > 70.0 && spread.most < 130.0, "{spread:?} {case:?}");
        });
    }
}

#[test]
fn workers_stay_busy_with_requests_that_count() {
    for (declared, pattern) in
        [Declared::Real, Declared::Certified].iter().flat_map(|&d| PATTERNS.map(|p| (d, p)))
    {
        for streams in [1, 4] {
            sweep(streams, &[1, 4, 8], declared, pattern, |case, spread| {
                // At the certified rate uneven arrivals leave a worker idle now and then.
                let least = if case.factor > 1.0 { 98.0 } else { 94.0 };
                assert!(spread.goodput >= least, "{spread:?} {case:?}");
            });
        }
    }
}

/// Batches of up to 4 in `P/4 + P/4·b`, and a promise for one in 3 of a stream that declares `count` in each `P`.
fn third(count: u64) -> (Harness, StreamSpec) {
    let times: Vec<u64> = (1..=4).map(|b| P / 4 + P * 3 / 16 * b).collect();
    let harness = Harness::new(config(&times, 4, 1, 3 * P, Dispatch::Eager), |_, bound| bound);
    let set = ConstraintSet::new(&[Constraint::row_miss(2).expect("valid")]).expect("one");
    let bound = ArrivalBound::window(count, ns(P)).expect("valid");
    (harness, StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one")))
}

/// How many windows of three the stream misses whole.
fn violations(outcomes: &[bool]) -> usize {
    outcomes.windows(3).filter(|w| w.iter().all(|&hit| !hit)).count()
}

#[test]
fn an_excess_stream_is_served_evenly() {
    // Half of what the worker can keep is declared, and up to twice as many come, evenly or two by two.
    for (factor, pair) in [1.2, 1.5, 1.7, 2.0].into_iter().flat_map(|f| [1, 2].map(|pair| (f, pair))) {
        let (mut harness, spec) = third(6);
        let id = harness.add(spec);
        for i in 0..3_000 {
            harness.advance_to((f64::from(i / pair * pair) * P as f64 / (6.0 * factor)) as u64);
            harness.arrive(id);
        }
        harness.drain();
        let outcomes = harness.outcomes(id);
        assert_eq!(violations(&outcomes), 0, "{factor} times the declaration, {pair} at once");
    }
}

#[test]
fn an_excess_stream_takes_nothing_from_those_that_conform() {
    let run = |factor: u64| {
        let (mut harness, spec) = third(3);
        let ids: Vec<_> = (0..4).map(|_| harness.add(spec.clone())).collect();
        for i in 0..3_000 * factor {
            harness.advance_to(i * P / (3 * factor));
            harness.arrive(ids[0]);
            if i % factor == 0 {
                ids[1..].iter().for_each(|&id| {
                    harness.arrive(id);
                });
            }
        }
        harness.drain();
        let violated: Vec<_> = ids.iter().map(|&id| violations(&harness.outcomes(id))).collect();
        (violated, harness.mandatory_misses().len())
    };
    assert_eq!(run(1), (vec![0; 4], 0));
    for factor in [2, 5, 20] {
        let (violated, mandatory) = run(factor);
        assert_eq!((&violated[1..], mandatory), (&[0; 3][..], 0), "{factor} times the declaration");
    }
}

#[test]
fn a_burst_that_can_be_worked_off_is() {
    // In three full batches the worker answers twelve within the deadline.
    for promised in [false, true] {
        let (mut harness, spec) = third(3);
        let id = harness.add(if promised { spec } else { StreamSpec::best_effort() });
        for burst in 0..100 {
            harness.advance_to(burst * 4 * P);
            for _ in 0..12 {
                harness.arrive_unpolled(id);
            }
            harness.settle();
        }
        harness.drain();
        assert!(harness.outcomes(id).iter().all(|&hit| hit), "promised: {promised}");
    }
}

#[test]
fn streams_take_turns_for_what_no_promise_counts_on() {
    for (batch, factor, flood) in
        [1, 4].into_iter().flat_map(|b| [(b, 4, 1), (b, 3, 1), (b, 2, 1), (b, 4, 7)])
    {
        let times: Vec<u64> = (1..=batch as u64).map(|b| P / 2 + P / 2 * b / batch as u64).collect();
        let mut harness = Harness::new(config(&times, batch, 1, 2 * P, Dispatch::Eager), |_, bound| bound);
        let ids: Vec<_> = (0..4).map(|_| harness.add(StreamSpec::best_effort())).collect();
        let of = |i: usize| (i % (3 + flood)).saturating_sub(flood - 1);
        for i in 0..10_000 {
            harness.advance_to((i as u64 * P) / (factor * batch as u64));
            harness.arrive(ids[of(i)]);
        }
        harness.drain();
        let served: Vec<_> =
            ids.iter().map(|&id| harness.outcomes(id).iter().filter(|&&hit| hit).count()).collect();
        println!("B={batch} {factor} times the capacity, flood of {flood}: {served:?}");
        // A flood takes no more than twice of what the others get.
        assert!(served[1..].iter().all(|&s| (s + 2) * (flood.min(2)) >= served[0]), "{served:?}");
    }
}

/// More than a batch of what must be served waits: it is full all the same, though no stream has earned a whole place yet; and
/// where only a smaller one is in time, that is begun.
#[test]
fn a_worker_goes_without_nothing_that_it_can_still_answer() {
    let strict = |count| {
        let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let window = ArrivalBound::window(count, ns(100)).expect("valid");
        StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"))
    };
    let mut harness = Harness::new(config(&[4, 6, 8, 10], 4, 1, 18, Dispatch::Eager), |_, bound| bound);
    let ids: Vec<_> = (0..16).map(|_| harness.add(strict(1))).collect();
    let all_at_once = |harness: &mut Harness, ids: &[StreamId]| {
        for &id in ids {
            harness.arrive_unpolled(id);
        }
        harness.settle();
    };
    all_at_once(&mut harness, &ids);
    harness.drain();
    assert_eq!(harness.batches, [(0, 4)], "the rest is late behind it");
    harness.advance_to(100);
    all_at_once(&mut harness, &ids[..4]);
    // At 110 all of them have 8 left, time for three.
    all_at_once(&mut harness, &ids[4..9]);
    harness.drain();
    assert_eq!(harness.batches[1..], [(100, 4), (110, 3)]);
}
