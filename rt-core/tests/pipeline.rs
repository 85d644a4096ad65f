//! Pipelines, small ones exhausted: no source takes longer than Theorems P1 and P2 say, whatever an adversary does.
//! `WEIR_EXHAUSTIVE=n` looks at `n` times as many of each kind.

use rt_core::pipeline::{self, Parents, PipelineAdmission, PipelineError, Stage};
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, MAX_SPAN, Span, Stalls, StreamSpec};

use crate::harness::{Dice, instances};
use crate::oracle::pipeline::Pipeline;
use crate::{oracle, shared};

fn ns(n: u8) -> Span {
    Span::from_nanos(u64::from(n))
}

fn asked(small: &Pipeline, deadline: Span) -> Result<PipelineAdmission, PipelineError> {
    with_stalls(small, deadline, None)
}

fn with_stalls(
    small: &Pipeline,
    deadline: Span,
    stalls: Option<Stalls>,
) -> Result<PipelineAdmission, PipelineError> {
    let stages = small.stages.iter().map(|stage| Stage {
        parents: if stage.join {
            Parents::join(stage.parents.iter().copied())
        } else {
            Parents::each(stage.parents.iter().copied())
        },
        fan_out: stage.fan_out.into(),
        workers: stage.workers,
        batch: stage.batch,
        time: ns(stage.time),
    });
    let pipeline = pipeline::Pipeline { deadline, guard: ns(small.late), stalls, stages: stages.collect() };
    pipeline.admit([&shared::spec(&small.stream)])
}

fn bound(small: &Pipeline) -> u64 {
    let admission = asked(small, Span::from_millis(1)).expect("below capacity, or at it");
    let mut ends: Vec<u64> = Vec::new();
    for (stage, response) in small.stages.iter().zip(&admission.responses) {
        ends.push(stage.parents.iter().map(|&p| ends[p]).max().unwrap_or(0) + response.as_nanos());
    }
    let apart = ends.into_iter().max().expect("a stage");
    let tightest = admission.tightest.expect("something is promised");
    let together: u64 = tightest.path.iter().map(|leg| leg.time.as_nanos()).sum();
    assert_eq!(admission.bound.as_nanos(), apart.min(together - tightest.delta.as_nanos()), "{small:?}");
    admission.bound.as_nanos()
}

/// How a small pipeline is drawn.
type Draw = fn(&mut Dice, u8) -> Pipeline;

/// Looks at `limit` states of each of `count` systems; no source takes longer than its bound.
fn never_later_than_said(draw: Draw, late: u8, (count, limit): (usize, usize), seed: u64) -> Tally {
    let (mut dice, mut tally) = (Dice(seed), Tally::default());
    for _ in 0..count {
        let small = draw(&mut dice, late);
        let bound = bound(&small);
        let Some(truth) = small.judge(limit) else {
            tally.too_large += 1;
            continue;
        };
        assert!(u64::from(truth) <= bound, "{truth} where {bound} is promised: {small:?}");
        let exact = usize::from(u64::from(truth) == bound);
        tally.judged += 1;
        tally.exact += exact;
        if small.stages.iter().any(|stage| !stage.join && stage.parents.len() > 1) {
            tally.merges += 1;
            tally.exact_merges += exact;
        }
    }
    println!("late {late}: {tally:?}");
    assert!(tally.judged * 3 > count, "too many searches were cut short");
    tally
}

/// How many were judged, in how many the bound is the truth, and how many of each have a merge.
#[derive(Debug, Default)]
struct Tally {
    judged: usize,
    exact: usize,
    merges: usize,
    exact_merges: usize,
    too_large: usize,
}

#[test]
fn no_source_takes_longer_than_said() {
    let tally = never_later_than_said(Pipeline::draw, 0, (instances(17), 60_000), 1);
    assert!(tally.exact * 10 >= tally.judged * 9);
}

#[test]
fn no_source_takes_longer_than_said_where_dispatch_is_late() {
    never_later_than_said(Pipeline::draw, 1, (instances(20), 200_000), 2);
}

/// Of joins the bound is the truth in nearly all; of merges it counts what comes the quick way as if it came with the last.
#[test]
fn no_source_takes_longer_than_said_through_merges_and_joins() {
    let Tally { judged, exact, merges, exact_merges, .. } =
        never_later_than_said(Pipeline::draw_graph, 0, (instances(24), 30_000), 4);
    assert!(merges > 2 && judged > merges + 2 && (exact - exact_merges) * 10 >= (judged - merges) * 9);
}

#[test]
fn no_source_takes_longer_than_said_through_merges_and_joins_where_dispatch_is_late() {
    never_later_than_said(Pipeline::draw_graph, 1, (instances(10), 30_000), 5);
}

/// `f` of Theorem P2, term by term; and how many sources that must be answered come up to an offset behind one.
fn terms(small: &Pipeline) -> (impl Fn(u64) -> u64, impl Fn(u64) -> u64) {
    fn latest(small: &Pipeline, i: usize, requests: u64) -> u64 {
        let stage = &small.stages[i];
        // Sources are counted where a stage takes the results of several, or a source at once.
        let (each, tree) = (small.descendants()[i], small.is_tree());
        let served = |x: u64| {
            let batches = (if tree { x } else { x * each }).div_ceil(stage.batch as u64);
            u64::from(small.late) + u64::from(stage.time) * (1 + batches.div_ceil(stage.workers as u64))
        };
        let below = |x: u64| {
            let children = (0..small.stages.len()).filter(|&c| small.stages[c].parents.contains(&i));
            let fan_out = |c: usize| if tree { u64::from(small.stages[c].fan_out) } else { 1 };
            let child = |c: usize| latest(small, c, fan_out(c) * (requests - x + 1));
            children.map(child).max()
        };
        (1..=requests)
            .map(|x| below(x).map_or(served(requests), |below| served(x) + below))
            .max()
            .expect("one")
    }
    let (p, q) = oracle::theory::density(&small.stream.constraints);
    let come = move |delta| {
        let all = oracle::theory::arrivals_within(&small.stream, delta + 1);
        (all * u64::from(p)).div_ceil(u64::from(q))
    };
    (move |sources| latest(small, 0, sources), come)
}

/// Theorem P2, term by term, at every offset of a long while.
fn by_definition(small: &Pipeline, horizon: u64) -> u64 {
    let (latest, come) = terms(small);
    let at = |delta| latest(come(delta)).saturating_sub(delta);
    (0..horizon).filter(|&delta| delta == 0 || come(delta) > come(delta - 1)).map(at).max().expect("some")
}

#[test]
fn the_tables_say_what_the_theorem_says() {
    let mut dice = Dice(3);
    for i in 0..instances(250) {
        let late = dice.within(0, 2) as u8;
        let draw = if i % 5 < 3 { Pipeline::draw } else { Pipeline::draw_graph };
        let small = draw(&mut dice, late);
        let tightest =
            asked(&small, Span::from_millis(1)).expect("below capacity").tightest.expect("promised");
        let together: u64 = tightest.path.iter().map(|leg| leg.time.as_nanos()).sum();
        assert_eq!(together - tightest.delta.as_nanos(), by_definition(&small, 45), "{small:?}");
    }
}

/// How rare stalls must be is `β + D + ℓ`, `β` the least length with `D + f_0(α_m(β)) ≤ β`.
#[test]
fn stalls_must_be_as_rare_as_the_theorem_says() {
    let (mut dice, mut seen) = (Dice(6), 0);
    for i in 0..instances(150) {
        let draw = if i % 3 < 2 { Pipeline::draw } else { Pipeline::draw_graph };
        let small = draw(&mut dice, (i % 2) as u8);
        let (count, length) = (dice.within(1, 3) as u32, dice.within(1, 9));
        let deadline = bound(&small) + u64::from(count) * length + dice.within(0, 5);
        let stalls =
            Stalls::new(count, Span::from_nanos(1_000_000_000), Span::from_nanos(length)).expect("valid");
        let needed = |window| {
            let stalls =
                Stalls::new(count, Span::from_nanos(window), Span::from_nanos(length)).expect("valid");
            match with_stalls(&small, Span::from_nanos(deadline), Some(stalls)) {
                Err(PipelineError::Stalls { needed, .. }) => Some(needed.as_nanos()),
                other => other.map(|_| None).expect("in time"),
            }
        };
        let short = stalls.lost().as_nanos() + 1;
        let (latest, come) = terms(&small);
        let Some(busy) = (1..400).find(|&x| deadline + latest(come(x - 1)) <= x) else { continue };
        assert_eq!(needed(short), Some(busy + deadline + length), "{small:?}");
        assert_eq!(needed(busy + deadline + length), None);
        seen += 1;
    }
    println!("{seen} catch up");
    assert!(seen > instances(150) / 2);
}

/// Two stages by hand: two sources at once every 14, each becomes two. The first stage has answered both by 3 + 3 + 3; the
/// second, of two workers that take two each, needs 2 + 2 behind the first result.
#[test]
fn two_stages_by_hand() {
    let stream: StreamSpec = shared::spec(&oracle::Stream {
        bounds: vec![oracle::Bound::Window { count: 2, length: 14 }],
        constraints: vec![(0, 1)],
    });
    let stage =
        |parents, fan_out, workers, batch, time| Stage { parents, fan_out, workers, batch, time: ns(time) };
    let mut asked = pipeline::Pipeline {
        deadline: ns(13),
        guard: Span::ZERO,
        stalls: None,
        stages: vec![stage(Parents::NONE, 1, 1, 1, 3), stage(Parents::each([0]), 2, 2, 2, 2)],
    };
    let admission = asked.admit([&stream]).expect("in time");
    assert_eq!(admission.bound, ns(13));
    assert_eq!(admission.responses, [ns(9), ns(4)]);
    let tightest = admission.tightest.expect("promised");
    let legs: Vec<_> = tightest.path.iter().map(|leg| (leg.stage, leg.requests, leg.time)).collect();
    assert_eq!((tightest.delta, tightest.sources), (Span::ZERO, 2));
    assert_eq!(legs, [(0, 2, ns(9)), (1, 2, ns(4))]);
    asked.deadline = ns(12);
    assert!(
        matches!(asked.admit([&stream]), Err(PipelineError::Late { admission, .. }) if admission.bound == ns(13))
    );
    // A guard is kept at each stage.
    asked.guard = ns(1);
    assert!(
        matches!(asked.admit([&stream]), Err(PipelineError::Late { admission, .. }) if admission.bound == ns(15))
    );
    asked.stages[1].fan_out = 1 << 5;
    assert!(matches!(asked.admit([&stream]), Err(PipelineError::Rate { stage: 1, thousandths: 2286, .. })));
    asked.stages[1].parents = Parents::each([0, 1]);
    let refused = asked.admit([&stream]);
    assert!(matches!(refused, Err(PipelineError::Range { field: "parent", stage: 1, value: 1, max: 0, .. })));
    assert_eq!(
        asked.descendants().map_err(|e| e.to_string()),
        Err("parent of stage 1 = 1 is outside 0..=0".into())
    );
}

/// A frame goes two ways, of 2 and 3, and what both found is put together in 1, once for each frame; two frames may come at once.
#[test]
fn a_join_by_hand() {
    let stream: StreamSpec = shared::spec(&oracle::Stream {
        bounds: vec![oracle::Bound::Window { count: 2, length: 20 }],
        constraints: vec![(0, 1)],
    });
    let stage = |parents, time| Stage { parents, fan_out: 1, workers: 1, batch: 1, time: ns(time) };
    let mut asked = pipeline::Pipeline {
        deadline: ns(30),
        guard: Span::ZERO,
        stalls: None,
        stages: vec![
            stage(Parents::NONE, 1),
            stage(Parents::each([0]), 2),
            stage(Parents::each([0]), 3),
            stage(Parents::join([1, 2]), 1),
        ],
    };
    // The slower way decides: one frame at the first stage, both at the second, one at the join, which may have just begun another.
    let admission = asked.admit([&stream]).expect("in time");
    assert_eq!((admission.bound, admission.responses), (ns(13), vec![ns(3), ns(6), ns(9), ns(3)]));
    let legs: Vec<_> = admission.tightest.expect("promised").path;
    let legs: Vec<_> = legs.iter().map(|leg| (leg.stage, leg.requests, leg.time)).collect();
    assert_eq!(legs, [(0, 1, ns(2)), (2, 2, ns(9)), (3, 1, ns(2))]);
    assert_eq!(asked.descendants(), Ok(vec![1, 1, 1, 1]));
    // A merge has what both found to do; a join as much as it declares.
    asked.stages[3].parents = Parents::each([1, 2]);
    assert_eq!(asked.descendants(), Ok(vec![1, 1, 1, 2]));
    asked.stages[3] = Stage { fan_out: 5, ..stage(Parents::join([1, 2]), 1) };
    assert_eq!(asked.descendants(), Ok(vec![1, 1, 1, 5]));
    assert!(!asked.is_tree());
    asked.stages[0].parents = Parents::join([]);
    let refused = asked.descendants();
    assert!(matches!(refused, Err(PipelineError::Range { field: "parent", stage: 0, .. })), "{refused:?}");
}

/// Batches that take half a billionth more than comes are behind by more and more, however little that is in an hour: they are
/// not in step with what comes, so nothing repeats, and a test that looked no further than an hour would say yes.
#[test]
fn what_is_too_much_by_a_hair_is_refused() {
    let period = Span::from_millis(2_000);
    let curve =
        ArrivalCurve::new(&[ArrivalBound::periodic(period, Span::ZERO).expect("valid")]).expect("one");
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let load = [StreamSpec::promised(set, curve)];
    let admit = |time: Span| {
        let stage = Stage { parents: Parents::NONE, fan_out: 1, workers: 1, batch: 1, time };
        pipeline::Pipeline { deadline: MAX_SPAN, guard: Span::ZERO, stalls: None, stages: vec![stage] }
            .admit(&load)
    };
    assert_eq!(admit(period).map(|admission| admission.bound), Ok(period + period));
    let more = admit(period + Span::from_nanos(1));
    assert!(matches!(more, Err(PipelineError::Horizon | PipelineError::Rate { .. })), "{more:?}");
}
