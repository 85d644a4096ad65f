//! One pipeline takes over from another: no promise is broken by it, before or after, and streams go on where they were.

use rt_core::pipeline::PipelineScheduler;
use rt_core::{Cause, HandOverError, MissReason, Outcome, StreamSpec};

use crate::harness::{Dice, instances};
use crate::oracle::pipeline::Pipeline;
use crate::stages::draw::{Bursts, bound, drawn, harshly, one_in, two_stages};
use crate::stages::{Line, at, config};

/// Another pipeline for sources of the same stream, and the least deadline that is admitted.
fn another(dice: &mut Dice, of: &Pipeline, spec: &StreamSpec) -> (Pipeline, u64) {
    loop {
        let other = Pipeline { stream: of.stream.clone(), ..Pipeline::draw(dice, 0) };
        if let Some(bound) = bound(&other, std::slice::from_ref(spec)) {
            return (other, bound);
        }
    }
}

#[test]
fn pipelines_that_take_over_miss_nothing() {
    let mut dice = Dice(91);
    let (mut taken, mut waited, mut cancelled, mut served) = (0, 0, 0, 0);
    for seed in 0..instances(300) as u64 {
        let (small, spec, deadline) = drawn(&mut dice, 0);
        let mut line = Line::new(config(&small, deadline, 1_000));
        // While it is quiet a worker may idle beside what nothing is promised for.
        line.lenient = true;
        let mut promised = line.add(&spec);
        let other = line.add(&StreamSpec::best_effort());
        harshly(&mut line, seed);
        let (mut bursts, flood, eager) = (Bursts::of(&small.stream), dice.within(0, 3), dice.within(0, 9));
        let mut next = None;
        for tick in 0..400 {
            line.advance_to(tick);
            if next.is_none() && dice.within(0, 24) == 0 {
                let (heir, deadline) = another(&mut dice, &small, &spec);
                line.scheduler.set_quiet(true);
                line.settle();
                next = Some(config(&heir, deadline, 1_000));
            }
            if let Some(to) = &next {
                match line.hand_over(to.clone(), &[]) {
                    Ok(()) => (taken, next) = (taken + 1, None),
                    Err(HandOverError::Busy { .. }) => waited += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            if dice.within(0, 19) == 0 {
                promised = line.restart(promised);
            }
            (0..dice.within(0, flood)).for_each(|_| _ = line.arrive(other));
            (0..bursts.next(tick, &mut dice, eager)).for_each(|_| _ = line.arrive(promised));
        }
        line.scheduler.set_quiet(false);
        line.settle();
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}");
        [promised, other].into_iter().for_each(|stream| line.account(stream));
        let so = |outcome| line.sources.iter().filter(|s| s.ended.is_some_and(|(_, o)| o == outcome)).count();
        cancelled += so(Outcome::Missed(MissReason::Cancelled));
        served += so(Outcome::Served);
    }
    println!(
        "{taken} takeovers, {waited} ticks waited for them, {cancelled} sources cancelled, {served} served"
    );
    assert!(taken > 2_000 && waited > 2_000 && cancelled > 1_000 && served > 20_000);
}

#[test]
fn what_runs_or_is_promised_is_waited_for_and_all_else_is_cancelled() {
    let mut line = two_stages(30, 1);
    line.lenient = true;
    let (stream, other) = (line.add(&one_in(10)), line.add(&StreamSpec::best_effort()));
    let next = || two_stages(30, 2).config;
    line.arrive(stream);
    line.arrive(other);
    assert_eq!(line.hand_over(next(), &[]), Err(HandOverError::Busy { running: 1, waiting: 0 }));
    line.scheduler.set_quiet(true);
    line.advance_to(3);
    // One half of the source runs at the second stage, the other waits there.
    assert_eq!(line.hand_over(next(), &[]), Err(HandOverError::Busy { running: 1, waiting: 1 }));
    line.advance_to(7);
    assert_eq!(line.sources[0].ended, Some((7, Outcome::Served)));
    assert_eq!(line.hand_over(next(), &[]), Ok(()));
    assert_eq!(line.sources[1].ended, Some((7, Outcome::Missed(MissReason::Cancelled))));
    let (counts, _) = line.scheduler.first().stream_counts(stream).expect("it goes on");
    assert_eq!((counts.arrived, counts.served), (1, 1));
    // The curve goes on, and the next one has two workers at the first stage.
    line.arrive(other);
    line.arrive(other);
    assert_eq!(line.busy(), [(0, 0), (0, 1)]);
    line.arrive(stream);
    assert_eq!(line.causes, [(7, Cause::ArrivalExcess)]);
    line.drain();
    // Of what is begun at a later stage and nothing is promised for, only what runs is waited for.
    line.arrive(other);
    line.advance_to(line.now + 3);
    assert_eq!(line.hand_over(next(), &[]), Err(HandOverError::Busy { running: 1, waiting: 0 }));
    line.scheduler.set_quiet(true);
    line.advance_to(line.now + 2);
    assert_eq!((line.scheduler.running(), line.scheduler.waiting(1)), (0, 1));
    assert_eq!(line.hand_over(next(), &[stream]), Ok(()));
    assert_eq!(line.sources[5].ended, Some((line.now, Outcome::Missed(MissReason::Cancelled))));
    assert_eq!(line.scheduler.first().stream_counts(stream), None, "it has ended");
}

#[test]
fn a_worker_of_a_later_stage_that_is_lost_already_is_missed() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    let mut next = PipelineScheduler::new(&line.config).expect("a configuration");
    next.handle_worker_lost(at(0), (1, 0));
    assert_eq!(line.scheduler.hand_over(at(0), &mut next, &[]), Ok(()));
    let alarm = next.first().safe_mode().state().alarm.map(|alarm| alarm.cause);
    assert_eq!((alarm, next.is_served()), (Some(Cause::WorkerLost), false));
    assert_eq!(line.scheduler.hand_over(at(0), &mut next, &[]), Err(HandOverError::NotNew));
    assert!(next.first().stream_counts(stream).is_some());
}

/// A stream goes on with another declaration where a pipeline has just taken over, and nowhere else.
#[test]
fn a_stream_is_redeclared_where_a_pipeline_takes_over() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(20));
    line.arrive(stream);
    assert!(line.scheduler.redeclare(stream, one_in(10)).is_none(), "it runs");
    line.advance_to(5);
    assert!(line.scheduler.redeclare(stream, one_in(10)).is_none(), "at the second stage");
    line.drain();
    let next = two_stages(30, 1).config;
    assert_eq!(line.hand_over(next, &[]), Ok(()));
    assert!(line.scheduler.redeclare(stream, one_in(10)).is_some());
    for tick in [10, 20, 30] {
        line.advance_to(tick);
        line.arrive(stream);
    }
    line.drain();
    assert_eq!(line.causes, []);
    assert!(line.sources.iter().all(|s| s.mandatory && s.ended.is_some_and(|(_, o)| o == Outcome::Served)));
}
