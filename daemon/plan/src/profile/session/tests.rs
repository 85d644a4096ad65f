//! Tests of measurements: how long they go on, what they keep, what they say.

use super::*;
use crate::profile::group::WorkerSlot;
use crate::profile::group::tests::subject;
use crate::profile::tail::tests::draws;

/// Two simulated models, the second with two batch sizes, one after the other.
fn work() -> Work {
    let subjects = vec![subject("quick", &[10_000]), subject("slow", &[20_000, 30_000])];
    let group = |subject, batch| {
        let (service, core) = ("s".to_owned(), None);
        MeasurementGroup {
            slots: vec![WorkerSlot { service, worker: 0, core, jobs: vec![(subject, batch)] }],
        }
    };
    Work { subjects, groups: vec![group(0, 1), group(1, 2)], realtime: false }
}

fn until(samples: usize) -> Until {
    Until { samples, stable: None, most: 1000, limit: Duration::MAX }
}

fn rule() -> Rule {
    Rule::new(1e-4, 0.1, false).unwrap()
}

fn run(session: &mut Session<'_>, samples: usize) -> Result<Measured> {
    session.run(&until(samples), &rule(), &AtomicBool::new(false), &mut |_| {})
}

#[test]
fn every_party_is_measured_and_tells_its_progress() {
    let work = work();
    let mut told = Vec::new();
    let mut session = Session::new(&work, None).unwrap();
    let measured = session.run(&until(5), &rule(), &AtomicBool::new(false), &mut |p| told.push(p.clone()));
    let measured = measured.unwrap();
    let counts: Vec<Vec<usize>> =
        measured.runs.iter().map(|runs| runs.iter().map(|runs| runs.times.len()).collect()).collect();
    assert_eq!(counts, [vec![5], vec![5, 5]]);
    assert_eq!(measured.stable, [vec![false], vec![false; 2]]);
    assert_eq!(measured.modes[1], [RunMode::Simulated; 2]);
    let mut steps: Vec<_> = told.iter().map(|p| (p.what.as_str(), p.done, p.of)).collect();
    steps.dedup();
    assert_eq!(steps, [("quick", 0, 5), ("quick", 5, 5), ("slow", 0, 5), ("slow", 5, 5)]);
    assert!(told.iter().all(|p| p.unstable.is_none()), "that is not waited for");
}

#[test]
fn what_is_kept_is_gone_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.part");
    let work = work();
    let mut session = Session::new(&work, None).unwrap();
    session.keep(Part::create(&path, "k", session.modes()).unwrap());
    let first = run(&mut session, 3).unwrap();
    // As if ended here by a signal: nothing is finished.
    drop(session);
    let (part, kept) = Part::resume(&path, "k").unwrap().unwrap();
    let mut session = Session::resume(&work, kept).unwrap();
    session.keep(part);
    assert_eq!(session.runs(), 9);
    let second = run(&mut session, 7).unwrap();
    for (before, after) in first.runs.iter().flatten().zip(second.runs.iter().flatten()) {
        assert_eq!((before.times.len(), after.times.len()), (3, 7));
        assert_eq!(before.times[..], after.times[..3]);
        assert!(after.disturbed.starts_with(&before.disturbed));
    }
    // Nothing more is asked for: nothing is measured again.
    assert_eq!(run(&mut session, 7).unwrap(), second);
    session.finish().unwrap();
    assert!(!path.exists());
}

#[test]
fn what_was_kept_of_other_models_is_refused() {
    let work = work();
    let strand =
        |subject, batch| vec![Strand { subject, batch, runs: Runs { times: vec![1], ..Runs::default() } }];
    let modes = vec![vec![RunMode::Simulated; 1], vec![RunMode::Simulated; 2]];
    for block in [strand(2, 1), strand(0, 2), strand(1, 0)] {
        let kept = Kept { modes: modes.clone(), blocks: vec![block] };
        assert!(Session::resume(&work, kept).is_err());
    }
    let kept = Kept { modes: modes[..1].to_vec(), blocks: Vec::new() };
    assert!(Session::resume(&work, kept).is_err());
}

#[test]
fn it_stops_where_it_is_told_to() {
    let work = work();
    let mut session = Session::new(&work, None).unwrap();
    let error = session.run(&until(5), &rule(), &AtomicBool::new(true), &mut |_| {}).unwrap_err();
    assert_eq!((error.to_string().as_str(), session.runs()), ("interrupted", 0));
}

#[test]
fn bounds_are_stable_once_the_last_quarter_changes_little() {
    let times = draws(1, 8000, |u| (1e6 - 50_000.0 * u.ln()) as u64);
    assert!(is_stable(&times, &rule(), 0.05));
    // Three quarters at one speed, then another.
    let slower: Vec<u64> = (0..).zip(&times).map(|(i, &t)| if i < 6000 { t } else { 2 * t }).collect();
    assert!(!is_stable(&slower, &rule(), 0.05));
    assert!(is_stable(&slower, &rule(), 0.9));
    // Too heavy to be followed so far: that no quarter changes the longest is chance.
    let heavy = draws(2, 1400, |u| 1_000_000 + (20_000.0 * u.powf(-0.8)) as u64);
    assert_eq!(rule().bound(&heavy).basis, Basis::Unsure);
    assert!(!is_stable(&heavy, &rule(), 1.0));
    assert!(is_stable(&[5; 4], &rule(), 0.01) && !is_stable(&[5, 5, 5, 9], &rule(), 0.01));
}

#[test]
fn a_real_model_is_waited_for_as_long_as_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let text = format!(
        "[daemon]\nmodels = {models:?}\nrealtime = false\n[[service]]\nname = \"a\"\nmodel = \"digits-xs\"\n\
         deadline = \"1s\"\nworkers = 2\nmax-batch = 2\n"
    );
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let config = crate::config::Config::load(&path).unwrap();
    let work = Work::new(&config, &crate::models::resolve_models(&config).unwrap(), false);
    let mut session = Session::new(&work, None).unwrap();
    let mut last = None;
    // A share that nothing keeps to, and no time: the least is measured, and that is all.
    let until = Until { samples: 1_000_000, stable: Some(0.0), most: 1000, limit: Duration::ZERO };
    let none = &AtomicBool::new(false);
    let measured = session.run(&until, &rule(), none, &mut |p| last = Some(p.clone())).unwrap();
    assert!(measured.runs[0].iter().all(|runs| (1..900_000).contains(&runs.times.len())));
    assert_eq!(measured.stable, [[false; 2]]);
    let last = last.unwrap();
    assert_eq!((last.what.as_str(), last.unstable), ("digits-xs on 2 workers at once", Some((2, 2))));
    // With a share that anything keeps to, it ends by itself, at the fewest runs that can show it.
    let until = Until { samples: 8, stable: Some(2.0), most: 100_000, limit: Duration::from_secs(60) };
    let rule = Rule::new(1e-2, 0.1, false).unwrap();
    let measured = session.run(&until, &rule, none, &mut |p| assert!(p.done <= p.of, "{p:?}")).unwrap();
    assert_eq!(measured.stable, [[true; 2]]);
    // It may take as many as are asked for at most.
    let until = Until { samples: 8, stable: Some(0.0), most: 40, limit: Duration::from_secs(60) };
    let measured = session.run(&until, &rule, none, &mut |_| {}).unwrap();
    assert_eq!(measured.stable, [[false; 2]]);
}

/// Two workers on one core: one waits while the other computes, and the runs say so.
#[test]
fn runs_that_wait_for_a_core_are_told_from_those_that_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let text = format!(
        "[daemon]\nmodels = {models:?}\nrealtime = false\n[[service]]\nname = \"a\"\nmodel = \"digits-m\"\n\
         deadline = \"1s\"\nworkers = 2\ncores = [0]\nmax-batch = 1\n"
    );
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let config = crate::config::Config::load(&path).unwrap();
    let work = Work::new(&config, &crate::models::resolve_models(&config).unwrap(), false);
    // Long enough for the kernel to take turns many times, however busy the machine is.
    let measured = run(&mut Session::new(&work, None).unwrap(), 3000).unwrap();
    let runs = &measured.runs[0][0];
    let machine = crate::profile::Machine::of(runs);
    assert!(machine.waited > 0, "{machine:?}");
    assert!(machine.longest_calm_ns <= *runs.times.iter().max().unwrap());
    // What the processor is shared for is not what the model takes: on average they are longer.
    let mean = |disturbed: bool| {
        let waited = |run: &usize| runs.disturbed.iter().any(|d| d.run == *run) == disturbed;
        let times: Vec<u64> = (0..runs.times.len()).filter(waited).map(|run| runs.times[run]).collect();
        times.iter().sum::<u64>() as f64 / times.len().max(1) as f64
    };
    assert!(machine.disturbed == runs.times.len() || mean(true) > mean(false), "{machine:?}");
}

/// However many rounds are asked for, no more time is spent than is allowed, but for a round.
#[test]
fn a_limit_ends_it_before_all_rounds_are_done() {
    let subjects = vec![subject("slow", &[20_000_000]), subject("slower", &[40_000_000])];
    let group = |subject| {
        let (service, core) = ("s".to_owned(), None);
        MeasurementGroup { slots: vec![WorkerSlot { service, worker: 0, core, jobs: vec![(subject, 1)] }] }
    };
    let work = Work { subjects, groups: vec![group(0), group(1)], realtime: false };
    let until = Until { limit: Duration::from_secs(2), ..until(1_000) };
    let started = clock::now();
    let mut session = Session::new(&work, None).unwrap();
    let measured = session.run(&until, &rule(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    let took = clock::now().since(started);
    let counts: Vec<usize> = measured.runs.iter().map(|runs| runs[0].times.len()).collect();
    assert!(counts.iter().all(|&count| (1..400).contains(&count)), "{counts:?}");
    // Alone 60 s; a busy machine may take a while for a block.
    assert!(took < rt_core::Span::from_millis(20_000), "{took}");
}
