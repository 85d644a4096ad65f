//! Runs of a device are runs of the proved model of services that share workers; what that model does not do is refused.

mod caller;

use planner::certify::{Decision, decide};
use planner::{Question, SharedProblem};
use rt_core::{Cause, Instant, Span};
use virtual_time::{Order, Run};

use super::tests::prover::prover;
use super::{AcceptError, Entry, Log, Member};
use crate::Arrivals;
use crate::curves::{Merged, Pacer};
use crate::dice::Dice;
use crate::simulate::run_shared;
use crate::time::ns;
use caller::{Trouble, played};

fn parsed(text: &str) -> SharedProblem {
    match Question::parse(text) {
        Ok(Question::Shared(problem)) => problem,
        other => panic!("{text}: {other:?}"),
    }
}

/// Services on one or two workers that are admitted by `rule`, in nanoseconds; some know batches beyond the promised one.
fn admitted(dice: &mut Dice, rule: &str) -> (SharedProblem, Decision) {
    loop {
        let services: Vec<_> = (0..dice.within(2, 3)).map(|s| service(dice, s)).collect();
        let text = format!(
            r#"{{"unit": "ns", "background": true, "workers": {{"count": {}}}, "rule": "{rule}", "services": [{}]}}"#,
            dice.within(1, 2),
            services.join(",")
        );
        let problem = parsed(&text);
        let decision = decide(&problem);
        if decision.answer.as_ref().is_ok_and(|admission| admission.binding.is_some()) {
            return (problem, decision);
        }
    }
}

fn service(dice: &mut Dice, number: u64) -> String {
    let (batch, time, guard) = (dice.within(1, 3), dice.within(1, 4), dice.within(0, 2));
    let times: Vec<_> = (1..=batch + dice.within(0, 2)).map(|b| (b * time).div_ceil(batch)).collect();
    let stream = |k: u64, dice: &mut Dice| {
        let (m, n) = (dice.within(0, 1), dice.within(1, 3));
        let arrivals = match dice.within(0, 1) {
            0 => format!(r#""windows": [[{n}, {}]]"#, dice.within(3, 16)),
            _ => format!(
                r#""periodic": {{"period": {}, "jitter": {}}}"#,
                dice.within(3, 12),
                dice.within(0, 12)
            ),
        };
        let constraint = format!("any_miss({m},{})", m + dice.within(1, 2));
        format!(r#"{{"name": "s{k}", "constraints": ["{constraint}"], "arrivals": {{{arrivals}}}}}"#)
    };
    let streams: Vec<_> = (0..dice.within(1, 2)).map(|k| stream(k, dice)).collect();
    format!(
        r#"{{"name": "v{number}", "deadline": {}, "guard": {guard}, "batch": {batch}, "times": {times:?}, "turn": {},
            "streams": [{}]}}"#,
        time + guard + dice.within(2, 24),
        dice.within(1, 2),
        streams.join(",")
    )
}

/// Of so many runs by each rule: the batches, the overruns, the nanoseconds of lateness, the streams that came where nothing
/// mandatory waited and those that came elsewhere. `None` where there is no program to ask.
fn hundreds(trouble: Trouble, runs: u64) -> Option<[usize; 5]> {
    let prover = prover()?;
    let (mut sums, mut proved) = ([0; 5], 0);
    for rule in ["edf", "turns"] {
        for seed in 0..runs {
            let mut dice = Dice(seed);
            let (problem, decision) = admitted(&mut dice, rule);
            let run = played(&problem, &decision, trouble, &mut dice);
            let said = run.log.accept_decided(&run.problem, &decision, &prover);
            said.unwrap_or_else(|e| panic!("{rule} {seed}: {e}: {:?} {:?}", run.problem.services, run.log));
            let batch = |(_, entry): &&(Instant, Entry)| matches!(entry, Entry::Starts { .. });
            let batches = run.log.entries.iter().filter(batch).count();
            let counts = [batches, run.overruns, run.delays, run.anew, run.beside];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            // What is promised is confirmed, the arrivals keep to the curves, and so all of it is in time by what is proved.
            proved +=
                usize::from(!trouble.churn && run.log.is_in_time(&problem, &prover).expect("an answer"));
        }
    }
    println!("{} runs, {proved} proved to be in time, {sums:?}", 2 * runs);
    assert!(trouble.churn || proved * 10 > 18 * runs as usize, "{proved}");
    Some(sums)
}

#[test]
fn hundreds_of_runs_of_a_device_are_runs_of_the_model() {
    let Some([batches, ..]) = hundreds(Trouble::default(), 100) else { return };
    assert!(batches > 10_000, "{batches}");
}

#[test]
fn runs_of_a_device_with_overruns_within_the_margin_are_runs_of_the_model() {
    let Some([_, overruns, ..]) = hundreds(Trouble { overruns: true, ..Trouble::default() }, 60) else {
        return;
    };
    assert!(overruns > 1_000, "{overruns}");
}

#[test]
fn runs_of_a_device_whose_dispatch_is_late_within_the_guard_are_runs_of_the_model() {
    let trouble = Trouble { overruns: true, late: true, churn: false };
    let Some([_, overruns, delays, ..]) = hundreds(trouble, 60) else { return };
    assert!(overruns > 1_000 && delays > 100, "{overruns} and {delays}");
}

#[test]
fn runs_of_a_device_whose_streams_come_and_go_are_runs_of_the_model() {
    let Some([_, _, _, anew, beside]) = hundreds(Trouble { churn: true, overruns: true, late: true }, 60)
    else {
        return;
    };
    assert!(anew > 500 && beside > 20, "{anew} and {beside}");
}

/// In virtual time, in every order in which things of one instant may come; a log that is written is read.
#[test]
fn simulated_runs_of_a_device_are_runs_of_the_model() {
    let Some(prover) = prover() else { return };
    for seed in 0..60 {
        let mut dice = Dice(1000 + seed);
        let (problem, decision) = admitted(&mut dice, ["edf", "turns"][seed as usize % 2]);
        let specs: Vec<_> = problem.specs().flatten().collect();
        let mut all = Merged::default();
        for (stream, spec) in specs.iter().enumerate() {
            let (mut pacer, mut next) = (Pacer::new(spec.arrivals().expect("declared")), 0);
            while next < 150 {
                pacer.send(next);
                all.add(next, stream);
                next = pacer.earliest(next + dice.within(0, 40).saturating_sub(30));
            }
        }
        let mut arrivals = Arrivals::of_shared(&problem);
        arrivals.streams.extend(problem.services.iter().map(|service| format!("{}/other", service.name)));
        (0..100).for_each(|k| all.add(dice.within(0, 150), specs.len() + k % problem.services.len()));
        arrivals.list = all.into_arrivals();
        for order in Order::ALL {
            let time = |_, _, bound: Span| ns(dice.within(bound.as_nanos().div_ceil(2), bound.as_nanos()));
            let (_, log) = run_shared(&problem, &arrivals, (false, false), order, time).expect("a run");
            log.accept_shared(&problem, &prover)
                .unwrap_or_else(|e| panic!("{e}: {decision:?} {problem:?} {log:?}"));
            // Strangers are numbered as they are first named.
            let text = |log: &Log| {
                let mut written = Vec::new();
                log.write_shared(&problem, &mut written).expect("written");
                written
            };
            let written = text(&log);
            let read = Log::read_shared(&problem, &written[..]).expect("a log");
            assert_eq!(text(&read), written);
            read.accept_shared(&problem, &prover).expect("accepted as it was written");
        }
    }
}

/// On one worker: one of `brake` in 1, within 4 and 1 of guard; two of `map` in 2, within 8 and 1. Dispatch may be late by 1, and
/// batches run over by 1.
fn pedals(rule: &str) -> SharedProblem {
    parsed(&format!(
        r#"{{"unit": "ns", "background": true, "workers": {{"count": 1}}, "rule": "{rule}", "services": [
        {{"name": "map", "deadline": 9, "guard": 1, "batch": 2, "time": 2, "turn": 1, "streams": [
            {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 20]]}}}}]}},
        {{"name": "brake", "deadline": 5, "guard": 1, "batch": 1, "time": 1, "turn": 1, "streams": [
            {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[1, 20]]}}}}]}}]}}"#
    ))
}

fn came(at: u64, stream: usize) -> (u64, Entry) {
    (at, Entry::Arrives(stream))
}

fn starts(at: u64, length: u64, batch: &[(usize, u64)]) -> (u64, Entry) {
    let batch = batch.iter().map(|&(stream, seq)| Member { stream, seq }).collect();
    (at, Entry::Starts { worker: 0, length: ns(length), batch })
}

fn ends(at: u64) -> (u64, Entry) {
    (at, Entry::Ends(0))
}

fn logged(entries: &[(u64, Entry)]) -> Log {
    let entries = entries.iter().map(|(at, entry)| (Instant::from_nanos(*at), entry.clone())).collect();
    Log { streams: ["map/s", "brake/s", "map/other"].map(str::to_owned).to_vec(), entries }
}

/// The first entry that is refused.
fn refused(problem: &SharedProblem, entries: &[(u64, Entry)]) -> Option<usize> {
    match logged(entries).accept_shared(problem, &prover().expect("it was there")) {
        Ok(()) => None,
        Err(AcceptError::Refused { index, .. }) => Some(index),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_no_device_does_is_refused_where_it_happens() {
    if prover().is_none() {
        return;
    }
    let (edf, turns) = (pedals("edf"), pedals("turns"));
    assert_eq!(decide(&edf).answer.expect("admitted").overrun_margin(), ns(1));
    // By deadline the brake goes first, though it came last; in turns the map does.
    let first = [came(0, 0), came(0, 0), came(0, 1)];
    let with = |rest: &[(u64, Entry)]| [&first[..], rest].concat();
    let (brake, map) = (&[(1, 0)][..], &[(0, 0), (0, 1)][..]);
    let brake_first = with(&[starts(0, 1, brake), ends(1), starts(1, 2, map), ends(3)]);
    let map_first = with(&[starts(0, 2, map), ends(2), starts(2, 1, brake), ends(3)]);
    assert_eq!((refused(&edf, &brake_first), refused(&turns, &brake_first)), (None, Some(3)));
    assert_eq!((refused(&edf, &map_first), refused(&turns, &map_first)), (Some(3), None));
    // A worker idles beside what must be served: by 1 it may, in all.
    let idles = |before: u64, between: u64| {
        let (end, second) = (before + 1, before + 1 + between);
        refused(&edf, &with(&[starts(before, 1, brake), ends(end), starts(second, 2, map), ends(second + 2)]))
    };
    assert_eq!(
        [idles(0, 0), idles(1, 0), idles(0, 1), idles(1, 1), idles(2, 0)],
        [None, None, None, Some(5), Some(3)]
    );
    // A batch takes longer than it may: by 1 it may, in all.
    let over = |first: u64, second: u64| {
        let end = 1 + first;
        refused(&edf, &with(&[starts(0, 1, brake), ends(end), starts(end, 2, map), ends(end + 2 + second)]))
    };
    assert_eq!([over(1, 0), over(0, 1), over(1, 1), over(2, 0)], [None, None, Some(5), Some(3)]);
    // The second before the first, one where two wait, a stranger's before both, a busy worker.
    assert_eq!(refused(&turns, &with(&[starts(0, 2, &[(0, 1), (0, 0)])])), Some(3));
    assert_eq!(refused(&turns, &with(&[starts(0, 2, &[(0, 0)])])), Some(3));
    let other = |rest: &[(u64, Entry)]| [&[came(0, 2)][..], rest].concat();
    assert_eq!(refused(&edf, &other(&[came(0, 1), starts(0, 2, &[(2, 0)])])), Some(2));
    assert_eq!(refused(&edf, &other(&[starts(0, 2, &[(2, 0)]), came(0, 1), starts(0, 1, brake)])), Some(3));
    // A stranger's alone may be as long as any, and no longer but for the margin.
    let alone = |took| refused(&edf, &other(&[starts(0, 2, &[(2, 0)]), ends(took)]));
    assert_eq!([alone(2), alone(3), alone(4)], [None, None, Some(1)]);
    // Nothing is given up that a batch could answer, and a stream that is not counted is not promised anything.
    let gives_up = (0, Entry::Refuses(Member { stream: 1, seq: 0 }));
    assert_eq!(refused(&edf, &[came(0, 1), gives_up]), Some(1));
    let counts = |streams: &[usize]| (0, Entry::Counts(streams.to_vec()));
    assert_eq!(refused(&edf, &[counts(&[0]), came(0, 1)]), Some(1));
    assert_eq!(refused(&edf, &[counts(&[0]), came(0, 0), counts(&[0, 1]), came(0, 1)]), None);
    assert_eq!(refused(&edf, &[counts(&[0, 1]), came(0, 0), counts(&[1])]), Some(2));
    // All is in time by what is proved, also if who has been served leaves; not if more comes than is declared.
    let in_time = |rest: &[(u64, Entry)]| {
        let log = logged(&[&brake_first[..], rest].concat());
        log.is_in_time(&edf, &prover().expect("it was there")).expect("an answer")
    };
    assert!(in_time(&[]) && in_time(&[(3, Entry::Counts(vec![1]))]));
    assert!(!in_time(&[came(3, 1), starts(3, 1, &[(1, 1)])]));
    assert!(!logged(&map_first).is_in_time(&edf, &prover().expect("it was there")).expect("an answer"));
}

/// The smallest run of a device that the model does not allow: both batches run over by the margin, and nothing waits after the
/// second has begun. The device waits for the end of that to forget the first, and puts all services into safe mode.
#[test]
fn what_the_model_does_not_allow_a_batch_to_run_over_by_is_announced_to_all() {
    let Some(prover) = prover() else { return };
    let service = |name: &str| {
        format!(
            r#"{{"name": "{name}", "deadline": 5, "batch": 1, "time": 1, "turn": 1, "streams": [
            {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[1, 20]]}}}}]}}"#
        )
    };
    let services = ["a", "b", "c"].map(service).join(",");
    for rule in ["edf", "turns"] {
        let problem = parsed(&format!(
            r#"{{"unit": "ns", "background": true, "workers": {{"count": 1}}, "rule": "{rule}", "services": [{services}]}}"#
        ));
        assert_eq!(decide(&problem).answer.expect("admitted").overrun_margin(), ns(1));
        let mut arrivals = Arrivals::of_shared(&problem);
        arrivals.list = [0, 1].map(|stream| (Instant::ZERO, stream)).to_vec();
        let (run, log) =
            run_shared(&problem, &arrivals, (false, false), Order::Together, |_, _, bound| bound + ns(1))
                .expect("a run");
        let second = log.accept_shared(&problem, &prover).expect_err("refused");
        assert!(matches!(second, AcceptError::Refused { index: 4, .. }), "{second}: {log:?}");
        // That it is demoted is told of the culprit as well.
        assert_eq!(alarms(&run), [Cause::ServiceOverrun; 4]);
    }
}

/// Why services were put into safe mode.
fn alarms(run: &Run) -> Vec<Cause> {
    let suspended = run.safe_mode.iter().filter_map(|(_, transition)| transition.state.alarm);
    suspended.map(|alarm| alarm.cause).filter(|cause| cause.severity().is_suspended()).collect()
}
