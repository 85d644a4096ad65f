//! Which variant of a stage runs a batch of a pipeline, in cases that are reckoned by hand.

use rt_core::pipeline::{PipelineAction, PipelineConfig, PipelineScheduler, StageConfig, StageVariants};
use rt_core::{
    Arrival, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Instant, Joined, LatencyProfile, Ran,
    SafeModeConfig, Span, StreamId, StreamSpec, Workers,
};

fn ns(t: u64) -> Span {
    Span::from_nanos(t)
}

fn at(t: u64) -> Instant {
    Instant::from_nanos(t)
}

fn profile(times: &[u64]) -> LatencyProfile {
    LatencyProfile::new(&times.iter().copied().map(ns).collect::<Vec<_>>()).expect("valid")
}

/// Two stages with a worker each: the first takes 2, the second 3, or 10 or 20 with better variants. Deadline 40.
fn pipeline(variants: [(&[u64], u64); 2]) -> PipelineScheduler {
    let stage = |parent: Option<usize>, time| {
        let workers = Workers { count: 1, batch: 1, profile: profile(&[time]) };
        StageConfig { parents: parent.into(), fan_out: 1, mean: 1.0, workers }
    };
    let mut scheduler = PipelineScheduler::new(&PipelineConfig {
        deadline: ns(40),
        guard: Span::ZERO,
        stalls: None,
        stages: vec![stage(None, 2), stage(Some(0), 3)],
        queue: 16,
        streams: 4,
        safe_mode: SafeModeConfig { hold: ns(1), clean: ns(1), latch: false },
    })
    .expect("valid");
    let variants = variants.map(|(times, leave)| StageVariants {
        times: times.iter().map(|&time| profile(&[time])).collect(),
        leave: ns(leave),
    });
    scheduler.set_variants(variants.into());
    scheduler
}

/// Sources that come at once at 0, each of which becomes one request; which variant the second stage runs with for each, in order, and
/// when it began that. Every batch takes its bound.
fn run(
    scheduler: &mut PipelineScheduler,
    stream: StreamId,
    sources: u64,
    times: &[u64],
) -> Vec<(u64, usize)> {
    let mut chosen = Vec::new();
    let mut ends: Vec<(u64, usize)> = Vec::new();
    for token in 0..sources {
        assert!(scheduler.handle_arrival(at(0), Arrival::new(stream, token, at(0))).is_none());
    }
    let mut now = 0;
    loop {
        loop {
            match scheduler.poll(at(now)) {
                PipelineAction::Start { stage, worker } => {
                    let variant = scheduler.choose(at(now), (stage, worker));
                    let time = if stage == 0 { 2 } else { times[variant] };
                    ends.push((now + time, stage));
                    if stage == 1 {
                        chosen.push((now, variant));
                    }
                }
                PipelineAction::WakeAt(_) => break,
                PipelineAction::Resolve(_) | PipelineAction::Event(_) => {}
            }
        }
        ends.sort_unstable();
        if ends.is_empty() {
            return chosen;
        }
        let (end, stage) = ends.remove(0);
        now = end;
        let ran = Ran::Done(ns(if stage == 0 { 2 } else { 1 }));
        scheduler.handle_completion(at(now), (stage, 0), ran, |_, _| 1);
    }
}

#[test]
fn alone_a_source_gets_the_best_and_where_others_wait_what_they_can_wait_for() {
    let times = [3, 10, 20];
    let mut one = pipeline([(&[], 2), (&[10, 20], 40)]);
    let stream = one.add_stream(at(0), StreamSpec::best_effort()).expect("room");
    assert_eq!(run(&mut one, stream, 1, &times), [(2, 2)]);
    // At 2 two more are on their way: three times 20 is more than 40. At 12 one waits: twice 20 is more than the 28 that are left. At 22
    // nobody waits, and 18 are left.
    let mut many = pipeline([(&[], 2), (&[10, 20], 40)]);
    let stream = many.add_stream(at(0), StreamSpec::best_effort()).expect("room");
    assert_eq!(run(&mut many, stream, 3, &times), [(2, 1), (12, 1), (22, 1)]);
}

#[test]
fn stages_have_parts_of_the_deadline_by_what_they_take_on_the_longest_way() {
    let scheduler = pipeline([(&[], 2), (&[], 40)]);
    assert_eq!(scheduler.pipeline().parts(&[ns(2), ns(6)]), [ns(10), ns(40)]);
}

#[test]
fn a_source_that_is_late_gets_the_base() {
    // It should leave by 11 and cannot with any better one: 2 + 10 is late.
    let mut scheduler = pipeline([(&[], 2), (&[10, 20], 11)]);
    let stream = scheduler.add_stream(at(0), StreamSpec::best_effort()).expect("room");
    assert_eq!(run(&mut scheduler, stream, 1, &[3, 10, 20]), [(2, 0)]);
}

#[test]
fn who_comes_after_a_longer_batch_waits_no_longer_than_that_runs_though_nobody_polls_an_idle_scheduler() {
    let constraints = ConstraintSet::new(&[Constraint::row_miss(1).expect("valid")]).expect("one");
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, ns(30)).expect("valid")]).expect("one");
    let mut scheduler = pipeline([(&[], 2), (&[10, 20], 40)]);
    let any = scheduler.add_stream(at(0), StreamSpec::best_effort()).expect("room");
    assert!(scheduler.handle_arrival(at(0), Arrival::new(any, 0, at(0))).is_none());
    let poll = |scheduler: &mut PipelineScheduler, now| loop {
        match scheduler.poll(at(now)) {
            PipelineAction::Start { stage, worker } => return scheduler.choose(at(now), (stage, worker)),
            PipelineAction::WakeAt(_) => return 0,
            PipelineAction::Resolve(_) | PipelineAction::Event(_) => {}
        }
    };
    assert_eq!(poll(&mut scheduler, 0), 0);
    scheduler.handle_completion(at(2), (0, 0), Ran::Done(ns(2)), |_, _| 1);
    assert_eq!(poll(&mut scheduler, 2), 2, "twenty, until 22");
    let promised = || StreamSpec::promised(constraints.clone(), curve.clone());
    let mut newcomer = scheduler.newcomer(promised());
    for now in 3..22 {
        match scheduler.try_add_stream(at(now), newcomer).expect("room") {
            Joined::Wait(back) => newcomer = back,
            // At 19 the batch ends within a full one of 3.
            Joined::Added(..) => return assert_eq!(now, 19),
            Joined::Stale(_) => panic!("nobody else has come"),
        }
    }
    panic!("it waits for good");
}

#[test]
fn beside_a_promise_nothing_but_the_base_runs_without_a_shield_and_what_it_allows_with_one() {
    let constraints = ConstraintSet::new(&[Constraint::row_miss(1).expect("valid")]).expect("one");
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, ns(30)).expect("valid")]).expect("one");
    let spec = StreamSpec::promised(constraints, curve);
    let chosen = |shielded: bool| {
        let mut scheduler = pipeline([(&[], 2), (&[10, 20], 40)]);
        let stream = scheduler.add_stream(at(0), spec.clone()).expect("room");
        if shielded {
            let workers: Vec<Workers> =
                [2, 3].map(|time| Workers { count: 1, batch: 1, profile: profile(&[time]) }).into();
            let shield = scheduler.pipeline().shield(&workers, [&spec]);
            assert!(shield.is_some() && !scheduler.is_shielded());
            scheduler.set_shield(shield);
            assert!(scheduler.is_shielded() && scheduler.has_shield());
        }
        run(&mut scheduler, stream, 1, &[3, 10, 20])[0]
    };
    assert_eq!(chosen(false), (2, 0));
    assert_eq!(chosen(true), (2, 2));
}
