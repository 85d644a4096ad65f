//! Runs of a pipeline's scheduler are runs of the proved model of pipelines; what that model does not do is refused.

mod caller;
mod faults;

use planner::certify::chosen;
use planner::{PipelineProblem, Question};
use rt_core::Instant;

use super::tests::prover::prover;
use super::{AcceptError, Became, Entry, Log, Member};
use crate::dice::Dice;
use crate::time::ns;
use caller::played;
use faults::Fault;

fn parsed(text: &str) -> PipelineProblem {
    match Question::parse(text) {
        Ok(Question::Pipeline(problem)) => problem,
        other => panic!("{text}: {other:?}"),
    }
}

/// One to four stages, one or two streams, that are admitted; in nanoseconds.
fn admitted(dice: &mut Dice) -> PipelineProblem {
    loop {
        let count = dice.within(1, 4);
        let stages: Vec<_> = (0..count).map(|i| stage(dice, i)).collect();
        let stream = |k: u64, dice: &mut Dice| {
            let (m, n) = (dice.within(0, 1), dice.within(1, 3));
            let arrivals = match dice.within(0, 1) {
                0 => format!(r#""windows": [[{n}, {}]]"#, dice.within(4, 24)),
                _ => format!(
                    r#""periodic": {{"period": {}, "jitter": {}}}"#,
                    dice.within(4, 16),
                    dice.within(0, 12)
                ),
            };
            let constraint = format!("any_miss({m},{})", m + dice.within(1, 2));
            format!(r#"{{"name": "s{k}", "constraints": ["{constraint}"], "arrivals": {{{arrivals}}}}}"#)
        };
        let streams: Vec<_> = (0..dice.within(1, 2)).map(|k| stream(k, dice)).collect();
        let problem = parsed(&format!(
            r#"{{"unit": "ns", "background": true, "deadline": {}, "guard": {}, "pipeline": [{}], "streams": [{}]}}"#,
            dice.within(4, 16) * count,
            dice.within(0, 2),
            stages.join(","),
            streams.join(",")
        ));
        if chosen(&problem).admit(problem.specs()).is_ok_and(|admission| admission.tightest.is_some()) {
            return problem;
        }
    }
}

fn stage(dice: &mut Dice, number: u64) -> String {
    let (batch, time, workers) = (dice.within(1, 3), dice.within(1, 4), dice.within(1, 2));
    let times: Vec<_> = (1..=batch).map(|b| (b * time).div_ceil(batch)).collect();
    let behind = match number.checked_sub(1) {
        None => String::new(),
        Some(last) => format!(r#""parent": "v{}", "fan_out": {}, "#, dice.within(0, last), dice.within(1, 3)),
    };
    format!(r#"{{"name": "v{number}", {behind}"workers": {workers}, "batch": {batch}, "times": {times:?}}}"#)
}

/// So many runs: the batches, and the nanoseconds of lateness. `None` where there is no program to ask.
fn hundreds(late: bool, runs: u64) -> Option<(usize, usize)> {
    let prover = prover()?;
    let (mut batches, mut delays, mut proved) = (0, 0, 0);
    for seed in 0..runs {
        let mut dice = Dice(seed);
        let problem = admitted(&mut dice);
        let run = played(&problem, late, &mut dice);
        run.log
            .accept_pipeline(&problem, &prover)
            .unwrap_or_else(|e| panic!("{seed}: {e}: {:?} {:?}", problem.raw, run.log));
        let batch = |(_, entry): &&(Instant, Entry)| matches!(entry, Entry::StageStarts { .. });
        batches += run.log.entries.iter().filter(batch).count();
        delays += run.delays;
        proved += usize::from(run.log.is_pipeline_in_time(&problem, &prover).expect("an answer"));
    }
    println!("{runs} runs, {batches} batches, {delays} ns late, {proved} proved to be in time");
    assert!(proved * 10 > 9 * runs as usize, "{proved}");
    Some((batches, delays))
}

#[test]
fn hundreds_of_runs_of_a_pipeline_are_runs_of_the_model() {
    let Some((batches, _)) = hundreds(false, 150) else { return };
    assert!(batches > 5_000, "{batches}");
}

#[test]
fn runs_of_a_pipeline_whose_dispatch_is_late_within_the_guard_are_runs_of_the_model() {
    let Some((batches, delays)) = hundreds(true, 150) else { return };
    assert!(batches > 5_000 && delays > 500, "{batches} and {delays}");
}

/// In each run each fault is planted once, where it can be, and refused there and not before.
#[test]
fn a_fault_in_a_run_of_a_pipeline_is_refused_where_it_happens() {
    let Some(prover) = prover() else { return };
    let mut planted = [0; Fault::ALL.len()];
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let problem = admitted(&mut dice);
        let log = played(&problem, seed % 2 == 0, &mut dice).log;
        for (fault, count) in Fault::ALL.into_iter().zip(&mut planted) {
            let Some((wrong, index)) = fault.plant(&problem, &log, &mut dice) else { continue };
            match wrong.accept_pipeline(&problem, &prover) {
                Err(AcceptError::Refused { index: at, .. }) if at == index => *count += 1,
                other => panic!("{seed}: {fault:?} at {index}: {other:?}: {:?} {wrong:?}", problem.raw),
            }
        }
    }
    println!("{:?}: {planted:?}", Fault::ALL);
    assert!(planted.iter().all(|&count| count >= 40), "{planted:?}");
}

/// Written and read, it is the same log, and its strangers are numbered as they are first named.
#[test]
fn a_log_of_a_pipeline_that_is_written_is_read() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let problem = admitted(&mut dice);
        let log = played(&problem, false, &mut dice).log;
        let mut written = Vec::new();
        log.write_pipeline(&problem, &mut written).expect("written");
        let read = Log::read_pipeline(&problem, &written[..]).expect("a log");
        assert_eq!(read.entries, log.entries);
        prover()
            .inspect(|prover| read.accept_pipeline(&problem, prover).expect("accepted as it was written"));
    }
}
