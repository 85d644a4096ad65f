//! What a certificate costs: `cargo test --release -p planner --bench certify -- --nocapture` prints the table.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use planner::certify::{Decision, decide};
use planner::verify::verify;
use planner::{Certificate, Problem, Question, SharedProblem, certify, certify_shared};
use rt_core::StreamSpec;

/// Streams of all kinds of curves, no two alike or all as the first two, on four workers with batches of eight.
fn problem(streams: usize, alike: bool, background: bool, load: f64) -> Problem {
    let stream = |i: usize| {
        let kind = if alike { i % 2 } else { i };
        let (period, burst) = ([20, 25, 40, 50, 100][kind % 5], 2 + kind % 4);
        let (k, jitter) = (2 + kind % 9, 1 + kind % 7);
        let trace = (0..40).map(|n| (n * period + n * n * (7 + kind) % (period / 2)).to_string());
        let arrivals = match kind % 6 {
            0 => format!(r#""windows": [[{burst}, {}]]"#, period * burst + kind),
            1 => format!(r#""periodic": {{"period": {period}, "jitter": {jitter}}}"#),
            2 => format!(r#""token_bucket": {{"burst": {burst}, "period": {period}}}"#),
            3 => format!(r#""token_bucket": {{"burst": {burst}, "period": {period}}}, "windows": [[1, 3]]"#),
            4 => format!(r#""periodic": {{"period": {period}, "jitter": {}, "distance": 2}}"#, 3 * period),
            _ => format!(r#""trace": [{}]"#, trace.collect::<Vec<_>>().join(",")),
        };
        format!(
            r#"{{"name": "s{i}", "constraints": ["any_miss({},{k})"], "arrivals": {{{arrivals}}}}}"#,
            kind % k
        )
    };
    let all: Vec<_> = (0..streams).map(stream).collect();
    let text = |time: u64| {
        format!(
            r#"{{"unit": "ms", "deadline": 1000, "background": {background}, "streams": [{}],
            "workers": [{{"count": 4, "batch": 8, "time": {}}}]}}"#,
            all.join(","),
            time as f64 / 1e6
        )
    };
    let read = |time: u64| Problem::parse(&text(time)).expect("a problem");
    // As long a batch as makes the load so large a share of the capacity.
    let demand =
        read(1).specs().filter_map(StreamSpec::demand).map(|(d, a)| d.as_f64() * a.rate_per_s()).sum::<f64>();
    read((load * 32e9 / demand) as u64)
}

/// The shortest of several runs, the median and the longest.
fn times<T>(mut run: impl FnMut() -> T) -> [Duration; 3] {
    let mut all = Vec::new();
    let begin = Instant::now();
    while all.len() < 5 || (all.len() < 50 && begin.elapsed() < Duration::from_secs(2)) {
        let start = Instant::now();
        std::hint::black_box(run());
        all.push(start.elapsed());
    }
    all.sort_unstable();
    [all[0], all[all.len() / 2], all[all.len() - 1]]
}

#[test]
fn certificates() {
    println!(
        "| streams | that differ | background | load | admit | certify, median | longest | verify | checked |"
    );
    println!("|---:|---:|---|---:|---:|---:|---:|---:|---|");
    for (streams, alike, background, load) in [
        (8, false, true, 0.7),
        (8, false, false, 0.7),
        (64, true, true, 0.7),
        (64, false, true, 0.7),
        (64, false, false, 0.7),
        (64, false, true, 0.99),
    ] {
        let problem = problem(streams, alike, background, load);
        let different = if alike { 2 } else { streams };
        let [_, admit, _] = times(|| problem.system().admit(problem.specs()));
        let [_, certified, longest] = times(|| certify(&problem));
        let claim = certify(&problem);
        assert!(claim.admissible, "{:?}", claim.reason);
        let certificate = Certificate::new("bench", std::collections::BTreeMap::new(), vec![claim]);
        let [_, verified, _] = times(|| verify(&certificate));
        let said = verify(&certificate).map_or_else(|e| e.derived, |v| format!("{} limits", v.limits));
        let ms = |t: Duration| format!("{:.3} ms", t.as_secs_f64() * 1e3);
        let load = format!("{:.0} %", load * 100.0);
        println!(
            "| {streams} | {different} | {} | {load} | {} | {} | {} | {} | {said} |",
            if background { "yes" } else { "no" },
            ms(admit),
            ms(certified),
            ms(longest),
            ms(verified)
        );
    }
}

/// Services with four streams each on one worker, no two streams of a service alike, in batches of four; deadlines of so many
/// milliseconds, and of each service 0.4 times as many more.
fn shared_problem(services: usize, load: f64, shortest: usize) -> SharedProblem {
    let stream = |s: usize, i: usize| {
        let period = [40, 50, 80, 100, 200][(s + i) % 5];
        let arrivals = match (s + i) % 3 {
            0 => format!(r#""periodic": {{"period": {period}, "jitter": {}}}"#, 5 + i),
            1 => format!(r#""token_bucket": {{"burst": 2, "period": {period}}}"#),
            _ => format!(r#""windows": [[2, {}]]"#, 2 * period),
        };
        format!(r#"{{"name": "{i}", "constraints": ["any_miss({},4)"], "arrivals": {{{arrivals}}}}}"#, i % 3)
    };
    let text = |time: u64| {
        let service = |s: usize| {
            let streams: Vec<_> = (0..4).map(|i| stream(s, i)).collect();
            let time = (time * (1 + s as u64 % 4)) as f64 / 1e6;
            let (deadline, streams) = (shortest + shortest * 2 * s / 5, streams.join(","));
            format!(
                r#"{{"name": "v{s}", "deadline": {deadline}, "guard": 1, "batch": 4, "time": {time}, "streams": [{streams}]}}"#
            )
        };
        let all: Vec<_> = (0..services).map(service).collect();
        format!(
            r#"{{"unit": "ms", "background": true, "workers": {{"count": 1}}, "rule": "edf", "services": [{}]}}"#,
            all.join(",")
        )
    };
    let read = |time: u64| match Question::parse(&text(time)) {
        Ok(Question::Shared(problem)) => problem,
        other => panic!("{other:?}"),
    };
    // As long a batch as makes the load so large a share of the worker's time.
    let unit = read(1_000_000);
    let busy = |service: &planner::problem::shared::Service| {
        let demand = service.streams.iter().filter_map(|(_, spec)| spec.demand());
        let rate: f64 = demand.map(|(d, a)| d.as_f64() * a.rate_per_s()).sum();
        rate * service.time.as_secs_f64() / service.batch as f64
    };
    read((1e6 * load / unit.services.iter().map(busy).sum::<f64>()) as u64)
}

#[test]
fn certificates_of_devices() {
    println!(
        "| services | streams | load | shortest deadline | admit | certify, median | verify | checked |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---|");
    for (services, load, shortest) in [
        (2, 0.5, 1000),
        (2, 0.95, 1000),
        (4, 0.95, 1000),
        (16, 0.5, 1000),
        (16, 0.9, 1000),
        (16, 0.95, 1000),
        (16, 0.95, 2000),
    ] {
        let problem = shared_problem(services, load, shortest);
        let Decision { rule, turns, .. } = decide(&problem);
        let (sharing, specs) = (problem.sharing(rule, &turns), problem.specs().collect::<Vec<_>>());
        let lists: Vec<&[StreamSpec]> = specs.iter().map(Vec::as_slice).collect();
        let [_, admit, _] = times(|| sharing.admit(&lists));
        let ms = |t: Duration| format!("{:.3} ms", t.as_secs_f64() * 1e3);
        let [_, certified, _] = times(|| certify_shared(&problem));
        let certificate = Certificate::of_shared("bench", certify_shared(&problem));
        let [_, verified, _] = times(|| verify(&certificate));
        let said = match verify(&certificate) {
            Ok(verified) if verified.refused > 0 => "refused".to_owned(),
            Ok(verified) => format!("{} limits", verified.limits),
            Err(no) => no.derived,
        };
        let (streams, load) = (4 * services, format!("{:.0} %", load * 100.0));
        println!(
            "| {services} | {streams} | {load} | {shortest} ms | {} | {} | {} | {said} |",
            ms(admit),
            ms(certified),
            ms(verified)
        );
    }
}
