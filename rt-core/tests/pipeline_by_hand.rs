//! The scheduler of a pipeline in cases that are reckoned by hand: what a source is, what ends it, what is told of it.

use rt_core::pipeline::PipelineConfig;
use rt_core::{BatchTime, Cause, LatencyProfile, LoadMonitor, MissReason, Outcome, Ran, Stalls, StreamSpec};

use crate::stages::draw::{one_in, two_stages, two_ways};
use crate::stages::{Line, at, ns};

#[test]
fn dispatch_later_than_the_guard_is_announced() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.late = 2;
    line.arrive(stream);
    line.drain();
    assert_eq!(line.causes, [(5, Cause::LateDispatch)], "the first batch ended at 3");
}

#[test]
fn a_source_that_is_taken_in_later_than_the_guard_is_announced_though_no_worker_is_idle() {
    for (late, told) in [(0, None), (1, Some((1, Cause::LateDispatch)))] {
        let mut line = two_stages(30, 1);
        let (stream, stranger) = (line.add(&one_in(10)), line.add(&StreamSpec::best_effort()));
        line.arrive(stranger);
        line.advance_to(late);
        line.take_in(stranger, 0);
        assert_eq!(line.causes, []);
        line.take_in(stream, 0);
        line.drain();
        assert_eq!(line.causes.first().copied(), told);
    }
}

#[test]
fn a_source_is_answered_when_all_that_it_became_is() {
    let mut line = two_stages(20, 1);
    let stream = line.add(&one_in(10));
    line.arrive(stream);
    line.drain();
    assert_eq!(line.sources[0].ended, Some((7, Outcome::Served)));
    // None at all is an answer too.
    line.became = Box::new(|_, _| 0);
    line.advance_to(10);
    line.arrive(stream);
    line.drain();
    assert_eq!(line.sources[1].ended, Some((13, Outcome::Served)));
}

#[test]
fn sources_of_one_instant_go_in_their_order_at_every_stage() {
    let mut line = two_stages(30, 2);
    let streams = [0; 2].map(|_| line.add(&one_in(20)));
    let mut quicker = [3, 1].into_iter();
    line.time = Box::new(move |stage, bound| if stage == 0 { quicker.next().expect("two") } else { bound });
    streams.into_iter().for_each(|stream| _ = line.arrive(stream));
    line.drain();
    // At 3 one of what the second became at 1 still waits, and both of what the first became go before it.
    let ends = [7, 9].map(|end| Some((end, Outcome::Served)));
    assert_eq!([line.sources[0].ended, line.sources[1].ended], ends);
}

#[test]
fn a_source_that_can_no_longer_be_answered_ends_at_once_with_all_that_waits_of_it() {
    let mut line = two_stages(9, 2);
    let other = line.add(&StreamSpec::best_effort());
    line.lenient = true;
    (0..2).for_each(|_| _ = line.arrive(other));
    line.drain();
    // Both have passed the first stage at 3. The first takes the second from 3 to 7; then one half of the other would be
    // answered by 9, and from 8 on it is plain that the other half would not.
    assert_eq!(line.sources[0].ended, Some((7, Outcome::Served)));
    assert_eq!(line.sources[1].ended, Some((8, Outcome::Missed(MissReason::Expired))));
}

#[test]
fn what_is_beyond_the_fan_out_is_dropped_and_suspends_the_promise_to_its_stream_alone() {
    let mut line = two_stages(30, 1);
    let [busy, calm] = [0; 2].map(|_| line.add(&one_in(20)));
    line.became = Box::new(|_, most| most + 3);
    line.arrive(busy);
    line.advance_to(3);
    assert_eq!(line.causes, [(3, Cause::FanOutExcess)]);
    assert_eq!(line.scheduler.waiting(1), 1, "two of five, of which one runs");
    let first = line.scheduler.first();
    let alarm = first.suspension(busy).expect("suspended");
    assert_eq!((alarm.evidence.limit, alarm.evidence.seen, alarm.evidence.window), (2, 5, 1));
    assert_eq!(first.suspension(calm), None);
    assert!(!first.safe_mode().state().is_suspended());
    line.became = Box::new(|_, most| most);
    line.arrive(calm);
    line.drain();
    assert!(line.sources.iter().all(|s| s.ended.is_some_and(|(_, o)| o == Outcome::Served)));
    line.advance_to(60);
    assert_eq!(line.scheduler.first().suspension(busy), None, "and it ends");
}

#[test]
fn a_batch_that_runs_over_at_any_stage_is_told_with_its_stage() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.time = Box::new(|stage, bound| if stage == 1 { bound + 4 } else { bound });
    line.arrive(stream);
    line.advance_to(9);
    assert_eq!(line.causes, [(6, Cause::ServiceOverrun)], "one after it was due, before it ends");
    let alarm = line.scheduler.first().safe_mode().state().alarm.expect("safe mode");
    assert_eq!((alarm.evidence.limit, alarm.evidence.window), (2, 1));
    line.drain();
    assert_eq!(line.sources[0].ended, Some((15, Outcome::Served)));
}

/// How long a batch spends outside its engine is known of all stages, as it is of a scheduler by itself.
#[test]
fn the_worst_delays_are_those_of_all_stages() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.arrive(stream);
    line.advance_to(4);
    line.running[1][0] = None;
    line.scheduler.handle_completion(at(5), (1, 0), Ran::Done(ns(1)), |_, _| 0);
    assert_eq!(line.scheduler.first().worst_delays(), (ns(0), ns(1)));
}

#[test]
fn a_worker_that_fails_or_is_lost_costs_the_sources_that_it_ran() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.arrive(stream);
    line.advance_to(4);
    line.end(1, 0, true);
    line.settle();
    assert_eq!(line.sources[0].ended, Some((4, Outcome::Missed(MissReason::EngineFailed))));
    assert_eq!(line.causes, [(4, Cause::WorkerLost), (4, Cause::ConstraintViolated)]);
    line.advance_to(10);
    line.arrive(stream);
    line.advance_to(14);
    line.lenient = true;
    assert!(
        line.scheduler.is_served() && line.scheduler.is_alive(1, 0) && line.scheduler.workers_alive() == 2
    );
    line.lose(1, 0);
    assert!(
        !line.scheduler.is_served() && !line.scheduler.is_alive(1, 0) && line.scheduler.workers_alive() == 1
    );
    assert_eq!(line.sources[1].ended, Some((14, Outcome::Missed(MissReason::WorkerLost))));
    // While a stage has no worker nothing can be answered.
    line.advance_to(20);
    line.arrive(stream);
    assert_eq!(line.sources[2].ended, Some((20, Outcome::Missed(MissReason::WorkerLost))));
    line.ready(1, 0);
    line.lenient = false;
    line.advance_to(60);
    line.arrive(stream);
    line.drain();
    assert_eq!(line.sources[3].ended, Some((67, Outcome::Served)));
    assert!(!line.scheduler.first().safe_mode().state().is_suspended() || line.now < 80);
}

/// That a worker is lost is told before what is missed for it, at whatever stage.
#[test]
fn a_lost_worker_is_told_before_what_it_costs() {
    for (stage, when) in [(0, 2), (1, 4)] {
        let mut line = two_stages(30, 2);
        let stream = line.add(&one_in(10));
        line.lenient = true;
        line.arrive(stream);
        line.advance_to(when);
        line.lose(stage, 0);
        assert_eq!(line.causes, [(when, Cause::WorkerLost), (when, Cause::ConstraintViolated)]);
    }
}

/// What waits at any stage and has begun is cancelled, what runs ends unheard; the counts begin anew, and the promise goes on.
#[test]
fn a_stream_that_begins_anew_leaves_nothing_behind() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    let other = line.add(&StreamSpec::best_effort());
    line.arrive(stream);
    line.arrive(other);
    line.advance_to(4);
    // One half runs at the second stage, one waits there, and the other stream's source runs at the first.
    assert_eq!((line.scheduler.waiting(0), line.scheduler.waiting(1)), (0, 1));
    assert_eq!((line.scheduler.waiting_in_all(), line.scheduler.open()), (1, 2));
    let fresh = line.restart(stream);
    assert_eq!(line.sources[0].ended, Some((4, Outcome::Missed(MissReason::Cancelled))));
    assert_eq!((line.scheduler.waiting_in_all(), line.scheduler.open()), (0, 1));
    assert!(line.scheduler.is_at_work(1, 0), "what runs goes on");
    assert_eq!(line.scheduler.first().stream_counts(stream), None);
    let (counts, left) = line.scheduler.first().stream_counts(fresh).expect("the fresh one");
    assert_eq!((counts.arrived, counts.missed_total(), left), (0, 0, Some(0)));
    line.advance_to(10);
    line.arrive(fresh);
    line.drain();
    assert_eq!(line.sources[2].ended, Some((17, Outcome::Served)));
    // The curve goes on: what the client before has sent counts.
    line.advance_to(21);
    line.arrive(fresh);
    let again = line.restart(fresh);
    line.arrive(again);
    assert_eq!(line.causes, [(21, Cause::ArrivalExcess)]);
}

/// What stalls have taken of a long batch until now nobody knows: so who comes waits until no more is left of it than they leave of a full
/// one.
#[test]
fn who_comes_waits_for_what_a_stall_may_have_taken_of_a_long_batch() {
    let config = two_stages(40, 1).config;
    let stalls = Stalls::new(1, ns(200), ns(1)).expect("valid");
    let mut line = Line::new(PipelineConfig { stalls: Some(stalls), ..config });
    let stranger = line.add(&StreamSpec::best_effort());
    line.longer = Some(Box::new(|stage, longest| if stage == 1 { longest.min(20) } else { 0 }));
    line.arrive(stranger);
    line.advance_to(3);
    assert_eq!(line.busy(), [(1, 0)]);
    let came = (4..30).find_map(|now| {
        line.advance_to(now);
        line.try_add(&one_in(10))
    });
    assert!(came.is_some());
    assert_eq!(line.now, 22, "one is left of 20");
}

/// A larger margin is one for what comes when what is there is over, and there is no smaller one than has been run over.
#[test]
fn the_margin_for_overruns_grows_at_an_end_alone_and_shrinks_to_no_less_than_was_run_over() {
    let mut line = two_stages(30, 1);
    let stranger = line.add(&StreamSpec::best_effort());
    line.time = Box::new(|stage, bound| if stage == 0 { bound + 3 } else { bound });
    let set = |line: &mut Line, margin| line.scheduler.set_overrun_margin(at(line.now), ns(margin));
    assert!(set(&mut line, 4));
    line.arrive(stranger);
    line.advance_to(5);
    assert!(!set(&mut line, 1), "it was due at 3");
    assert!(set(&mut line, 9));
    assert_eq!(line.scheduler.overruns_left(), ns(4));
    line.drain();
    assert_eq!((line.scheduler.overruns_left(), line.causes.len()), (ns(9), 0));
}

/// What is left of the margin is shared by all that run: two are told of when they have run over by that together.
#[test]
fn two_batches_that_run_over_at_once_are_told_of_when_they_have_by_the_margin_together() {
    let mut line = two_stages(30, 2);
    assert!(line.scheduler.set_overrun_margin(at(0), ns(4)));
    line.time = Box::new(|_, _| 20);
    let stranger = line.add(&StreamSpec::best_effort());
    (0..2).for_each(|_| _ = line.arrive(stranger));
    line.drain();
    assert_eq!(line.causes.first(), Some(&(3 + 4 / 2 + 1, Cause::ServiceOverrun)));
}

/// A long batch has what else would be the margin, also where there is no shield and nothing is promised when it begins.
#[test]
fn beside_a_long_batch_none_may_run_over() {
    let mut line = two_stages(40, 1);
    assert!(line.scheduler.set_overrun_margin(at(0), ns(4)));
    let stranger = line.add(&StreamSpec::best_effort());
    line.longer = Some(Box::new(|stage, longest| if stage == 1 { longest.min(20) } else { 0 }));
    line.arrive(stranger);
    assert_eq!(line.scheduler.overruns_left(), ns(4));
    line.advance_to(3);
    assert_eq!(line.scheduler.overruns_left(), ns(0));
}

/// While it is quiet, batches are started for mandatory requests alone, at every stage.
#[test]
fn a_quiet_pipeline_begins_nothing_that_is_not_promised() {
    let mut line = two_stages(30, 1);
    let (stream, other) = (line.add(&one_in(20)), line.add(&StreamSpec::best_effort()));
    line.lenient = true;
    line.arrive(other);
    line.advance_to(2);
    line.scheduler.set_quiet(true);
    line.arrive(other);
    line.advance_to(10);
    assert!(line.busy().is_empty(), "the first stage has ended at 3, and what it became waits");
    assert_eq!((line.scheduler.waiting(0), line.scheduler.waiting(1)), (1, 2));
    line.arrive(stream);
    line.advance_to(14);
    assert_eq!(line.busy(), [(1, 0)]);
    line.advance_to(17);
    assert_eq!(line.sources[2].ended, Some((17, Outcome::Served)));
    line.scheduler.set_quiet(false);
    line.settle();
    line.drain();
    assert!(line.sources.iter().all(|s| s.ended.is_some_and(|(_, o)| o == Outcome::Served)));
}

/// A source is ruled out as soon as it could not pass the first stage in what the least time behind leaves of the deadline.
#[test]
fn a_source_is_ruled_out_by_the_deadline_of_the_whole() {
    let mut line = two_stages(30, 1);
    let (stream, other) = (line.add(&one_in(20)), line.add(&StreamSpec::best_effort()));
    line.advance_to(100);
    let ruled_out = |line: &Line, id, sent| line.scheduler.is_ruled_out(at(line.now), id, at(sent));
    // Behind the first stage lie 2 at least.
    assert_eq!([71, 72, 73].map(|sent| ruled_out(&line, other, sent)), [true, true, false]);
    assert!(!ruled_out(&line, stream, 71), "what is promised is always taken in");
    // Eight before it take 24 of the 28.
    (0..9).for_each(|_| _ = line.arrive(other));
    let last = line.add(&StreamSpec::best_effort());
    assert!(ruled_out(&line, other, 100));
    assert!(!ruled_out(&line, last, 100), "another one gives way to who had none");
    line.restart(other);
    assert!(!ruled_out(&line, last, 98));
    assert!(ruled_out(&line, other, 100), "nobody has it");
}

#[test]
fn more_sources_than_are_warned_of_are_told() {
    let mut line = two_stages(30, 2);
    let stream = line.add(&one_in(4));
    let monitor = LoadMonitor::new(ns(64)).expect("a window");
    line.scheduler.set_rate_warning(Some((monitor, 3)));
    for tick in 0..5 {
        line.advance_to(4 * tick);
        line.arrive(stream);
        let alarm = line.scheduler.first().safe_mode().state().alarm.map(|alarm| alarm.cause);
        assert_eq!(alarm, (tick >= 3).then_some(Cause::RateHigh));
    }
    assert!(line.scheduler.rate_seen_per_s(at(line.now)).is_some_and(|rate| rate > 0.0));
}

#[test]
fn a_stream_that_leaves_takes_its_sources_with_it() {
    let mut line = two_stages(30, 1);
    let [gone, stays] = [0; 2].map(|_| line.add(&one_in(20)));
    line.arrive(gone);
    line.arrive(stays);
    line.advance_to(4);
    line.remove(gone);
    line.drain();
    assert_eq!(line.sources[0].ended, Some((4, Outcome::Missed(MissReason::Cancelled))));
    assert_eq!(line.sources[1].ended.map(|(_, o)| o), Some(Outcome::Served));
}

/// More mandatory sources have begun than there are places for: one that finds none is refused, and the first stage goes on.
#[test]
fn a_source_that_finds_no_place_is_refused_and_its_worker_is_free() {
    let mut line = two_stages(60, 1);
    line.config.queue = 1;
    let mut line = Line::new(line.config);
    let streams = [0; 2].map(|_| line.add(&one_in(20)));
    line.arrive(streams[0]);
    line.advance_to(3);
    line.arrive(streams[1]);
    assert_eq!(line.sources[1].ended, Some((3, Outcome::Missed(MissReason::QueueFull))));
    assert_eq!(line.busy(), [(1, 0)], "nothing was begun for it");
    line.advance_to(23);
    line.arrive(streams[1]);
    line.drain();
    assert_eq!(line.sources[2].ended, Some((30, Outcome::Served)));
}

/// A source that comes alone passes the first stage by 1 and the others by 3 and 4.
#[test]
fn a_merge_takes_each_result_and_a_join_a_source_once() {
    for (join, requests, ends) in [(false, 1, 5), (true, 1, 5), (true, 3, 7), (false, 2, 7)] {
        let mut line = two_ways(20, join, requests);
        let stream = line.add(&one_in(10));
        line.arrive(stream);
        line.advance_to(3);
        assert_eq!(line.busy().contains(&(3, 0)), !join, "the quick way has ended, the slow one has not");
        line.drain();
        assert_eq!(line.sources[0].ended, Some((ends, Outcome::Served)), "{join} {requests}");
    }
}

/// Who yields nothing to a parent has that parent done with it; who yields nothing to any is joined at once.
#[test]
fn a_join_waits_for_nothing_that_does_not_come() {
    for (nothing, ends) in [(vec![2], 4), (vec![1], 5), (vec![1, 2], 2), (vec![3], 4), (vec![1, 2, 3], 1)] {
        let mut line = two_ways(20, true, 1);
        let stream = line.add(&one_in(10));
        line.became = Box::new(move |stage, most| if nothing.contains(&stage) { 0 } else { most });
        line.arrive(stream);
        line.drain();
        assert_eq!(line.sources[0].ended, Some((ends, Outcome::Served)));
        // The next one is joined anew.
        line.became = Box::new(|_, most| most);
        line.advance_to(10);
        line.arrive(stream);
        line.drain();
        assert_eq!(line.sources[1].ended, Some((15, Outcome::Served)));
    }
}

/// The longest way from the first stage on takes 4, by the slower of both: with less than 5 in all no source is even taken in.
#[test]
fn what_can_no_longer_be_answered_the_longest_way_on_ends_with_all_that_waits() {
    let mut line = two_ways(9, true, 1);
    let other = line.add(&StreamSpec::best_effort());
    line.lenient = true;
    line.time = Box::new(|stage, bound| if stage == 2 { 6 } else { bound });
    (0..2).for_each(|_| _ = line.arrive(other));
    line.drain();
    assert_eq!(line.sources[0].ended, Some((8, Outcome::Served)));
    // The slower way is busy until 7, three times longer than it should be; from 6 on the other would be joined by 9 at the earliest.
    assert_eq!(line.sources[1].ended, Some((6, Outcome::Missed(MissReason::Expired))));
    assert!(!line.sources[1].mandatory);
}

/// What is more than a join declares is dropped, and told of its stage.
#[test]
fn a_join_of_more_than_it_declares_suspends_the_promise_to_its_stream() {
    let mut line = two_ways(20, true, 1);
    let stream = line.add(&one_in(10));
    line.became = Box::new(|stage, most| if stage == 3 { most + 1 } else { most });
    line.arrive(stream);
    line.drain();
    assert_eq!(line.causes, [(4, Cause::FanOutExcess)]);
    assert_eq!(line.sources[0].ended, Some((5, Outcome::Served)));
}

/// A source that is answered in time, but later than its client wanted, is a miss of that client's own making, also where it wanted that
/// sooner than the later stages take at most.
#[test]
fn what_is_wanted_sooner_than_the_later_stages_take_is_late_by_that() {
    for within in [2, 4, 5, 7] {
        let mut line = two_stages(30, 1);
        line.wishes = Box::new(move |_| within);
        let stream = line.add(&one_in(10));
        line.hasty = vec![stream];
        line.arrive(stream);
        line.drain();
        let outcome = if within < 7 { Outcome::Missed(MissReason::Late) } else { Outcome::Served };
        assert_eq!(line.sources[0].ended, Some((7, outcome)), "wanted within {within}");
        let told: &[_] = if within < 7 { &[(7, Cause::ConstraintViolated)] } else { &[] };
        assert_eq!((&line.causes[..], line.scheduler.first().safe_mode().breaches()), (told, 0));
    }
}

/// One that nothing is promised for is given up when it would most likely be answered later than wanted, and not before.
#[test]
fn what_nothing_is_promised_for_counts_on_what_later_stages_most_likely_take() {
    for (within, served) in [(2, false), (3, false), (4, true), (8, true)] {
        let mut line = two_stages(30, 1);
        let quick = BatchTime { bound: ns(8), likely: ns(2), mean: ns(2) };
        for stage in &mut line.config.stages {
            stage.workers.profile = LatencyProfile::expected(&[quick]).expect("a profile");
        }
        let mut line = Line::new(line.config);
        line.time = Box::new(|_, _| 2);
        line.became = Box::new(|_, _| 1);
        line.wishes = Box::new(move |_| within);
        let stranger = line.add(&StreamSpec::best_effort());
        line.hasty = vec![stranger];
        line.arrive(stranger);
        line.drain();
        let ended = line.sources[0].ended.expect("ended");
        assert_eq!(ended.1 == Outcome::Served, served, "wanted within {within}: {ended:?}");
    }
}
