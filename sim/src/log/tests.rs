//! Runs of the daemon's scheduler are runs of the proved model; what the model does not do is refused.

use planner::Problem;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rt_core::{
    Dispatch, Instant, LatencyProfile, LoadMonitor, SelectTable, Selector, Span, Variant, Workers,
};

use super::{AcceptError, Entry, Log, Member};
use crate::dice::Dice;
use crate::policy::scheduled_by;
use crate::record::MAX_WAITING;
use crate::samples::{admitted_problem, problem, stream};
use crate::simulate::{logged, run_logged};
use crate::tests::conforming;
use crate::time::ns;
use crate::{Arrivals, Run};
use virtual_time::Order;

#[path = "../../../tests/e2e/harness/prover.rs"]
pub(super) mod prover;
use prover::prover;

/// A run of `problem` under arrivals that keep to the curves, some of them of strangers.
fn played(
    problem: &Problem,
    selector: Option<Selector>,
    order: Order,
    dice: &mut Dice,
    count: usize,
) -> (Run, Log) {
    let mut arrivals = Arrivals::of(problem);
    arrivals.list = conforming(problem, dice, count);
    arrivals.streams.extend(problem.background.then(|| "stranger".to_owned()));
    let slow = dice.within(0, 1) == 0;
    let time = |_, _, bound: Span| if slow { bound } else { ns(dice.within(1, bound.as_nanos())) };
    run_logged(problem, &arrivals, selector, order, time).expect("a run")
}

/// Variants that take up to four times as long, and a table that wishes for the slowest.
fn slower(problem: &Problem) -> Selector {
    let base = &problem.workers[0].profile;
    let variant = |factor: u64| {
        let times: Vec<_> = (1..=base.max_batch()).map(|b| ns(base.bound(b).as_nanos() * factor)).collect();
        let profile = LatencyProfile::new(&times).expect("valid");
        Variant { profile, accuracy: factor as f64 / 10.0 }
    };
    let table = SelectTable::new(f64::INFINITY, ns(2), 4, vec![3; 4]).expect("valid");
    Selector::new([1, 2, 3, 4].map(variant), [table], LoadMonitor::default()).expect("valid")
}

/// With a profile that goes on beyond the full batch of the promise, to up to three times as many requests.
fn larger(problem: Problem, dice: &mut Dice) -> Problem {
    let workers = problem.workers.iter().map(|kind| {
        let mut times: Vec<_> = (1..=kind.batch).map(|b| kind.profile.bound(b)).collect();
        for _ in 0..dice.within(1, 2 * kind.batch as u64) {
            times.push(times[times.len() - 1] + ns(dice.within(0, 2)));
        }
        let profile = LatencyProfile::new(&times).expect("valid");
        Workers { profile, ..kind.clone() }
    });
    Problem { workers: workers.collect(), ..problem }
}

/// How many requests of a batch are mandatory.
fn mandatory(problem: &Problem, batch: &[Member]) -> usize {
    let marked = |member: &&Member| {
        let spec = problem.streams.get(member.stream).and_then(|(_, spec)| spec.demand());
        spec.is_some_and(|(density, _)| {
            let (p, q) = (u64::from(density.numerator()), u64::from(density.denominator()));
            (member.seq + 1) * p / q > member.seq * p / q
        })
    };
    batch.iter().filter(marked).count()
}

/// With time kept back for dispatch, of which a simulation needs none.
fn guarded(problem: Problem, guard: u64) -> Problem {
    Problem { deadline: problem.deadline + ns(guard), guard: ns(guard), ..problem }
}

#[test]
fn hundreds_of_simulated_loads_are_runs_of_the_model() {
    let Some(prover) = prover() else { return };
    let mut runner = TestRunner::deterministic();
    let mut batches = 0;
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let problem = admitted_problem().new_tree(&mut runner).expect("a problem").current();
        let problem = guarded(problem, dice.within(0, 3));
        for order in Order::ALL {
            let (run, log) = played(&problem, None, order, &mut dice, 100);
            log.accept(&problem, &prover).unwrap_or_else(|e| panic!("{e}: {problem:?} {log:?}"));
            batches += run.batches.len();
        }
    }
    println!("300 runs, {batches} batches");
    assert!(batches > 5_000, "{batches}");
}

/// With misses of what nothing is promised for spread, long batches among them where a profile goes beyond the full batch.
#[test]
fn hundreds_of_loads_beside_spread_misses_are_runs_of_the_model() {
    let Some(prover) = prover() else { return };
    let mut runner = TestRunner::deterministic();
    let with_others = admitted_problem().prop_filter("background", |p| p.background);
    let mut batches = 0;
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let problem = with_others.new_tree(&mut runner).expect("a problem").current();
        let problem = guarded(larger(problem, &mut dice), dice.within(0, 3));
        for order in Order::ALL {
            let mut arrivals = Arrivals::of(&problem);
            arrivals.list = conforming(&problem, &mut dice, 100);
            arrivals.streams.push("stranger".to_owned());
            let weir =
                scheduled_by(&problem, MAX_WAITING, arrivals.streams.len(), true).expect("a scheduler");
            let (run, log) = logged(weir, &arrivals, order, |_, _, bound| bound).expect("a run");
            log.accept(&problem, &prover).unwrap_or_else(|e| panic!("{e}: {problem:?} {log:?}"));
            batches += run.batches.len();
        }
    }
    assert!(batches > 5_000, "{batches}");
}

/// What the daemon's shield allows, the model's does: it was worked out by another program from the same problem.
#[test]
fn hundreds_of_loads_with_long_batches_are_runs_of_the_model() {
    let Some(prover) = prover() else { return };
    let mut runner = TestRunner::deterministic();
    let one_kind = admitted_problem().prop_filter("one kind", |p| p.workers.len() == 1 && p.background);
    let (mut longer, mut batches) = (0, 0);
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let problem = one_kind.new_tree(&mut runner).expect("a problem").current();
        // So that there is room for them.
        let more = ns(dice.within(0, 2) * problem.system().longest_batch().as_nanos());
        let problem = guarded(Problem { deadline: problem.deadline + more, ..problem }, dice.within(0, 3));
        let full = problem.workers[0].batch_time();
        for order in Order::ALL {
            let (run, log) = played(&problem, Some(slower(&problem)), order, &mut dice, 100);
            log.accept(&problem, &prover).unwrap_or_else(|e| panic!("{e}: {problem:?} {log:?}"));
            batches += run.batches.len();
            let long =
                |(_, e): &(Instant, Entry)| matches!(e, Entry::Starts { length, .. } if *length > full);
            longer += log.entries.iter().filter(|&e| long(e)).count();
        }
    }
    println!("300 runs, {longer} of {batches} batches granted more than a full one takes");
    assert!(longer * 20 > batches, "{longer} of {batches}");
}

/// The same of batches of more requests than the promise is computed for, by the base alone and with slower variants.
#[test]
fn hundreds_of_loads_with_batches_beyond_the_full_one_are_runs_of_the_model() {
    let Some(prover) = prover() else { return };
    let mut runner = TestRunner::deterministic();
    let one_kind = admitted_problem().prop_filter("one kind", |p| p.workers.len() == 1 && p.background);
    let (mut batches, mut beyond, mut longer, mut crowded, mut unpromised) = (0, 0, 0, 0, 0);
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let mut problem = one_kind.new_tree(&mut runner).expect("a problem").current();
        if seed % 10 == 0 {
            problem.streams.clear();
        }
        let more = ns(dice.within(0, 3) * problem.system().longest_batch().as_nanos());
        let problem = guarded(Problem { deadline: problem.deadline + more, ..problem }, dice.within(0, 3));
        let problem = larger(problem, &mut dice);
        let (full, time) = (problem.workers[0].batch, problem.workers[0].batch_time());
        for order in Order::ALL {
            let selector = (seed % 3 == 0).then(|| slower(&problem));
            let (run, log) = played(&problem, selector, order, &mut dice, 100);
            log.accept(&problem, &prover).unwrap_or_else(|e| panic!("{e}: {problem:?} {log:?}"));
            batches += run.batches.len();
            for (_, entry) in &log.entries {
                let Entry::Starts { length, batch, .. } = entry else { continue };
                if batch.len() > full {
                    beyond += 1;
                    longer += usize::from(*length > time);
                    crowded += usize::from(mandatory(&problem, batch) > full);
                    unpromised += usize::from(problem.streams.is_empty());
                }
            }
        }
    }
    println!(
        "450 runs, {beyond} of {batches} batches beyond the full one, {longer} of them longer, {crowded} with more \
         mandatory requests than a full one takes, {unpromised} where nothing is promised"
    );
    assert!(beyond * 10 > batches && longer * 10 > batches, "{beyond} and {longer} of {batches}");
    assert!(crowded > 100 && unpromised > 100, "{crowded} and {unpromised}");
}

/// One worker, 3 a request; two in 8, within 9.
fn pedal(dispatch: Dispatch) -> Problem {
    let problem = problem(&[3], 1, 9, &[stream(0, 1, 2, 8)]);
    Problem { dispatch, background: true, ..problem }
}

fn log(entries: &[(u64, Entry)]) -> Log {
    let entries = entries.iter().map(|(at, entry)| (Instant::from_nanos(*at), entry.clone())).collect();
    Log { streams: vec!["s0".to_owned(), "stranger".to_owned()], entries }
}

fn starts(worker: usize, length: u64, batch: &[(usize, u64)]) -> Entry {
    let batch = batch.iter().map(|&(stream, seq)| Member { stream, seq }).collect();
    Entry::Starts { worker, length: ns(length), batch }
}

#[test]
fn what_the_model_does_not_do_is_refused_where_it_happens() {
    let Some(prover) = prover() else { return };
    let refused = |problem: &Problem, entries: &[(u64, Entry)]| match log(entries).accept(problem, &prover) {
        Ok(()) => None,
        Err(AcceptError::Refused { index, .. }) => Some(index),
        Err(other) => panic!("{other}"),
    };
    let (eager, latest) = (pedal(Dispatch::Eager), pedal(Dispatch::FullOrLatest));
    let came = |at| (at, Entry::Arrives(0));
    let fine =
        [came(0), (0, starts(0, 3, &[(0, 0)])), came(1), (3, Entry::Ends(0)), (3, starts(0, 3, &[(0, 1)]))];
    assert_eq!(refused(&eager, &fine), None);
    let changed = |index: usize, entry| {
        let mut entries = fine.to_vec();
        entries[index] = entry;
        entries
    };
    // An idle worker lets a request wait, also by 1 ns at the end of a batch; a guard allows for that.
    assert_eq!(refused(&eager, &changed(1, (1, starts(0, 3, &[(0, 0)])))), Some(1));
    assert_eq!(refused(&eager, &changed(4, (4, starts(0, 3, &[(0, 1)])))), Some(4));
    assert_eq!(refused(&guarded(eager.clone(), 1), &changed(4, (4, starts(0, 3, &[(0, 1)])))), None);
    // A batch of one cannot fill a worker that waits for two.
    let two = Problem { workers: problem(&[3, 3], 1, 9, &[]).workers, ..latest };
    assert_eq!(refused(&two, &[came(0), (6, starts(0, 3, &[(0, 0)]))]), None);
    assert_eq!(refused(&two, &[came(0), (7, starts(0, 3, &[(0, 0)]))]), Some(1));
    // It takes longer than it may, runs what runs, takes the second first, a stranger's first, or what is not there.
    assert_eq!(refused(&eager, &changed(3, (4, Entry::Ends(0)))), Some(3));
    assert_eq!(refused(&eager, &changed(3, (2, starts(0, 3, &[(0, 1)])))), Some(3));
    assert_eq!(refused(&eager, &[came(0), came(0), (0, starts(0, 3, &[(0, 1)]))]), Some(2));
    let stranger = (0, Entry::Arrives(1));
    assert_eq!(refused(&eager, &[stranger.clone(), came(0), (0, starts(0, 3, &[(1, 0)]))]), Some(2));
    assert_eq!(refused(&eager, &[stranger, (0, starts(0, 3, &[(1, 0)]))]), None);
    let early = log(&[(0, starts(0, 3, &[(0, 0)]))]).accept(&eager, &prover);
    assert!(matches!(early, Err(AcceptError::Unknown { index: 0, stream: 0, seq: 0 })), "{early:?}");
    // A mandatory request may be given up when nothing could answer it, not before.
    let given_up = |at| {
        [came(0), (0, starts(0, 3, &[(0, 0)])), came(1), (at, Entry::Refuses(Member { stream: 0, seq: 1 }))]
    };
    assert_eq!(refused(&eager, &given_up(1)), Some(3));
    // The first must be answered by 9, and while it runs no other may be late that comes at once: 2 · 3 + 3.
    let long = |length| [(0, Entry::Arrives(1)), (0, starts(0, length, &[(1, 0)]))];
    assert_eq!(refused(&eager, &long(3)), None);
    assert_eq!(refused(&eager, &long(4)), Some(1));
    let patient = Problem { deadline: ns(11), ..eager.clone() };
    assert_eq!(refused(&patient, &long(5)), None);
    assert_eq!(refused(&patient, &long(6)), Some(1));
    // A batch of two where one is full: the same holds, and in no more than the time of one it needs no leave.
    let (stranger, member) = ((0, Entry::Arrives(1)), |length| starts(0, length, &[(0, 0), (1, 0)]));
    let beyond = |length| [came(0), stranger.clone(), (0, member(length))];
    assert_eq!(refused(&eager, &beyond(3)), None);
    assert_eq!(refused(&eager, &beyond(4)), Some(2));
    assert_eq!(refused(&patient, &beyond(5)), None);
    assert_eq!(refused(&patient, &beyond(6)), Some(2));
    // Not where a mandatory request waits for the place of the stranger's; with both, none can come before 8.
    assert_eq!(refused(&patient, &[came(0), came(0), stranger.clone(), (0, member(5))]), Some(3));
    let both = |length| [came(0), came(0), (0, starts(0, length, &[(0, 0), (0, 1)]))];
    assert_eq!(refused(&patient, &both(11)), None);
    assert_eq!(refused(&patient, &both(12)), Some(2));
    // Where nothing is promised a batch may be as large and as long as one likes.
    let unpromised = Problem { streams: Vec::new(), ..patient };
    assert_eq!(refused(&unpromised, &beyond(50)), None);
}

#[test]
fn what_is_written_is_read() {
    let problem = pedal(Dispatch::Eager);
    let mut dice = Dice(1);
    for count in [0, 1, 50] {
        let (_, mut log) = played(&problem, None, Order::Together, &mut dice, count);
        log.streams = vec!["s0".to_owned(), "a \"b\", c".to_owned()];
        log.entries.push((
            log.entries.last().map_or(Instant::ZERO, |e| e.0),
            Entry::Refuses(Member { stream: 0, seq: 3 }),
        ));
        let mut written = Vec::new();
        log.write(&problem, &mut written).expect("written");
        let text = String::from_utf8(written.clone()).expect("UTF-8");
        let read = Log::read(&problem, &written[..]).unwrap_or_else(|e| panic!("{e}: {text}"));
        // A stranger that sends nothing is not named.
        assert_eq!(read.entries, log.entries, "{text}");
        // The arrivals are a recording.
        let arrivals = Arrivals::read(&problem, &written[..]).expect("arrivals");
        let came = |(at, entry): &(Instant, Entry)| match entry {
            Entry::Arrives(stream) => Some((*at, *stream)),
            _ => None,
        };
        assert_eq!(arrivals.list, log.entries.iter().filter_map(came).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_no_log_is_refused_with_its_line() {
    let refusal = |text: &str| {
        Log::read(&pedal(Dispatch::Eager), text.as_bytes()).map(drop).expect_err("refused").to_string()
    };
    assert_eq!(refusal("0,s0\n# start,0,0"), "line 2: # start,0,0: has not the fields that it must have");
    assert_eq!(refusal("0,s0\n# end,1,x"), "line 2: # end,1,x: x is no whole number");
    assert_eq!(
        refusal("# weir\n5,s0\n# end,4,0"),
        "line 3: # end,4,0: must not be before the time of the line above"
    );
    let missing = "line 1: # 3 arrivals not recorded: what is missing cannot be held against the model";
    assert_eq!(refusal("# 3 arrivals not recorded"), missing);
    assert_eq!(refusal("1,2,3,4"), "line 1: 1,2,3,4: must be time,stream or time,stream,class");
}

#[test]
fn names_are_read_as_they_are_written_blanks_and_all() {
    let problem = problem(&[1], 1, 4, &[stream(0, 1, 1, 4)]);
    let names = ["s0", "cam", "cam ", " cam", "a \"b\", c", "#", "5 not recorded"];
    let mut entries: Vec<_> =
        (0..names.len()).map(|stream| (Instant::ZERO, Entry::Arrives(stream))).collect();
    let batch = (0..names.len()).map(|stream| Member { stream, seq: 0 }).collect();
    entries.push((Instant::ZERO, Entry::Starts { worker: 0, length: ns(1), batch }));
    entries.push((Instant::ZERO, Entry::Counts(vec![2, 3, 1])));
    let log = Log { streams: names.map(str::to_owned).to_vec(), entries };
    let mut text = Vec::new();
    log.write(&problem, &mut text).expect("written");
    assert_eq!(Log::read(&problem, &*text).expect("a log"), log, "{}", String::from_utf8_lossy(&text));
    let spaced = "time,stream\n 0 , s0 \n# take, s0 , 0\n# start, 0, 0, 2\n";
    assert_eq!(Log::read(&problem, spaced.as_bytes()).expect("a log").streams, ["s0"]);
}
