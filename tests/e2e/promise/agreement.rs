//! The same requests twice, on the daemon's way and in virtual time: what became of each must agree.
//!
//! A daemon with the simulated engine serves a client and records when its requests came. The simulator then runs
//! the recorded arrivals of the problem that `weir plan --problem` prints. Compared are, request by request, whether
//! it was served, why not, with how many others it ran, and when it started.
//!
//! **Tolerance.** Both drive the same scheduler, and the recorded instants are those that it was given. The rest of
//! the daemon takes time where the simulator takes none, in two places: a batch of `b` ends up to `slow` after
//! `P(b)`, for a worker wakes, its engine sleeps and the scheduler's lock is taken a little later than they should;
//! and the timer of `full-or-latest` rings up to `late` after the latest start. The daemon measures both:
//!
//! - `slow` is at most the longest part of a batch's time outside its engine (`handover_seen_ns`) and the most by
//!   which an engine overslept (the answers tell `run`);
//! - `late` is at most `guard_seen_ns`, and by how much more one request was read late than another: what is due counts from
//!   the sending, what is recorded is the reading. A timer that rings `x` late is a guard that is `x` shorter.
//!
//! So what the daemon did is one of the runs in which each batch takes between `P(b)` and `P(b) + slow`, and the
//! guard is up to `late` shorter (by the same in a whole run: its bursts do not touch each other). Where all of
//! them say the same of a request, the daemon must have said it too. Where they do not, a decision was closer than
//! the measured delays, either answer is right, and the request is left out. The runs are infinitely many; looked at
//! are the corners and many at random. Most of the requests must be left for the comparison. To have it so on slow
//! machines as well, the load is made of bursts that are worked off before the next, and such that nothing in them
//! depends on a few milliseconds.

mod simulated;

use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

use crate::harness::{DAEMON, Deployment, alone, answers, best_effort, now, pause};
use planner::Problem;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rt_core::{Dispatch, Instant, Span};
use rustix::process::Signal;
use sim::Arrivals;
use simulated::{Fate, Load, is_clear, simulated};
use weir_client::Outcome;

/// Bursts of one run of the daemon.
const BURSTS: usize = 20;
/// The share of the requests that must be compared, in percent; of half of these also the batch.
const SHARE: usize = 90;
/// The machine may be busy otherwise: so often is it asked.
const ATTEMPTS: u64 = 4;
/// Runs of the simulator that must agree on a request before it is compared.
const RUNS: usize = 200;

/// A service, and the bursts that it is sent.
struct Case {
    /// Fields of the service that differ.
    fields: &'static str,
    /// Times of batches, in milliseconds.
    times: &'static [u64],
    /// Names of the streams, and how many requests of each a burst may hold.
    streams: [(&'static str, usize); 2],
    /// Requests of a burst come at so many instants, so far apart, and the next burst after so long.
    instants: u64,
    step: Span,
    distance: Span,
    overloaded: bool,
}

/// Batches of up to 4, and all is served: `front` is promised half of its requests, `rear` all.
const GUARANTEED: Case = Case {
    fields: r#"
        deadline = "300ms"
        guard = "60ms"
        [[service.stream]]
        name = "front"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 8, length = "200ms" } }]
        [[service.stream]]
        name = "rear"
        constraints = [{ any-miss = { m = 0, k = 1 } }]
        arrivals = [{ window = { count = 4, length = "200ms" } }]
        "#,
    times: &[30, 36, 42, 48],
    streams: [("front", 8), ("rear", 4)],
    instants: 12,
    step: Span::from_millis(10),
    distance: Span::from_millis(340),
    overloaded: false,
};

/// Batches of up to 2, about half as many as come: half of `front` is promised, nothing to `extra`, which is not even
/// in the configuration. All of a burst come at once: four batches are in time for them, each up to 7 ms slower or not,
/// and a fifth is not.
const OVERLOADED: Case = Case {
    fields: r#"
        deadline = "236ms"
        guard = "40ms"
        [[service.stream]]
        name = "front"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 6, length = "300ms" } }]
        "#,
    times: &[48, 50],
    streams: [("front", 6), ("extra", 10)],
    instants: 1,
    step: Span::ZERO,
    distance: Span::from_millis(400),
    overloaded: true,
};

/// A run of the daemon.
struct Real {
    arrivals: Arrivals,
    /// By stream and number: the fate, and how long a request that was served had waited.
    fates: HashMap<(usize, u64), (Fate, Option<Span>)>,
    /// `slow` and `late`.
    delays: (Span, Span),
    /// By how much more one request may have been read late than another.
    read_late: Span,
}

/// What a comparison found.
#[derive(Debug, Default)]
struct Verdict {
    missed: usize,
    /// Requests compared, and those of them whose batch was, too.
    compared: usize,
    batches: usize,
    differences: Vec<String>,
}

#[test]
fn within_the_guarantee_eager_dispatch_agrees() {
    agree(&GUARANTEED, Dispatch::Eager);
}

#[test]
fn within_the_guarantee_full_or_latest_dispatch_agrees() {
    agree(&GUARANTEED, Dispatch::FullOrLatest);
}

#[test]
fn in_overload_eager_dispatch_agrees() {
    agree(&OVERLOADED, Dispatch::Eager);
}

#[test]
fn in_overload_full_or_latest_dispatch_agrees() {
    agree(&OVERLOADED, Dispatch::FullOrLatest);
}

fn agree(case: &Case, dispatch: Dispatch) {
    alone();
    let (word, other) = match dispatch {
        Dispatch::Eager => ("eager", Dispatch::FullOrLatest),
        Dispatch::FullOrLatest => ("full-or-latest", Dispatch::Eager),
    };
    let times: Vec<_> = case.times.iter().map(|ms| format!("\"{ms}ms\"")).collect();
    let place = Deployment::new(format!(
        // No batch ends within its bound where nothing is kept for the way to the worker: promises shall not fall back for it.
        "{DAEMON}[safe-mode]\nlatch = true\n\
         [[service]]\nname = \"lanes\"\nengine = \"simulated\"\nhandover = \"0ms\"\nqueue = 512\n\
         record = \"arrivals.csv\"\ndispatch = \"{word}\"\nmax-batch = {count}\nbatch = {count}\n\
         simulated = {{ times = [{}], input = 1, output = 1 }}{}",
        times.join(", "),
        case.fields,
        count = times.len(),
    ))
    .profiled(case.times);
    let text = place.succeed(&["plan", "--problem", "lanes"]);
    let problem = Problem::parse(&text).expect("a problem");
    for attempt in 1..=ATTEMPTS {
        let real = serve(case, &place, &problem, &load(case, &problem, attempt));
        let verdict = compare(&real, &problem);
        println!("attempt {attempt}: slow and late by {:?}: {verdict:?}", real.delays);
        // Nobody is told how slow a batch was from which all answers came late.
        if real.fates.values().any(|(fate, _)| *fate == Fate::Missed("late".into())) {
            continue;
        }
        assert!(verdict.differences.is_empty(), "the simulator differs: {:#?}", verdict.differences);
        if verdict.compared * 100 >= real.fates.len() * SHARE && verdict.batches * 2 >= verdict.compared {
            assert_eq!(verdict.missed * 5 > real.fates.len(), case.overloaded, "{verdict:?}");
            // What is found where the simulator is wrong.
            let wrong = compare(&real, &Problem { dispatch: other, ..problem });
            assert!(!wrong.differences.is_empty(), "it makes no difference when batches start");
            return;
        }
    }
    panic!(
        "{ATTEMPTS} attempts, and each time the daemon's delays left less than {SHARE} % of the requests to be \
         compared, or answers came late: the machine is too busy for this test"
    );
}

/// Bursts of which nothing is decided by a few milliseconds.
fn load(case: &Case, problem: &Problem, seed: u64) -> Load {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut load = Load::new();
    for burst in 0..BURSTS as u64 {
        let start = Instant::ZERO + Span::from_nanos(burst * case.distance.as_nanos());
        load = (0..10_000)
            .map(|_| {
                let mut next = Load::new();
                for (stream, &(_, most)) in case.streams.iter().enumerate() {
                    for _ in 0..dice.random_range(most * 2 / 3..=most) {
                        let steps = dice.random_range(0..case.instants) * case.step.as_nanos();
                        next.push((start + Span::from_nanos(steps), stream));
                    }
                }
                next.sort_unstable();
                load.iter().copied().chain(next).collect()
            })
            .find(|longer: &Load| is_clear(problem, longer, load.len()))
            .expect("there are bursts of which nothing is decided by a few milliseconds");
    }
    load
}

/// Sends `load` to a daemon; what it answered, measured and recorded.
fn serve(case: &Case, place: &Deployment, problem: &Problem, load: &Load) -> Real {
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let streams =
        case.streams.map(|(name, _)| client.register(&best_effort("lanes", name)).expect("a stream"));
    let start = now();
    let span = |duration: Duration| Span::from_nanos(duration.as_nanos() as u64);
    let mut sent = Vec::new();
    let submit = |&(at, stream): &(Instant, usize)| {
        let due = Duration::from_nanos(at.since(Instant::ZERO).as_nanos());
        pause(due.saturating_sub(start.elapsed()));
        sent.push(span(start.elapsed()));
        client.submit(&streams[stream], &[0.0]).expect("submitted")
    };
    let ids: Vec<_> = load.iter().map(submit).collect();
    let answers = answers(&mut client, &ids);
    let status = daemon.status()["services"][0].clone();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.stderr());

    let file = File::open(place.path("arrivals.csv")).expect("a recording");
    let arrivals = Arrivals::read(problem, file).expect("arrivals");
    assert_eq!(arrivals.list.len(), load.len(), "every request is recorded");
    let index = |id: u32| {
        let name = streams.iter().position(|s| s.id == id).map(|i| case.streams[i].0);
        arrivals.streams.iter().position(|stream| Some(stream.as_str()) == name).expect("a stream")
    };
    let measured = |field: &str| Span::from_nanos(status[field].as_u64().expect("a delay"));
    // The recording says when requests were read, and answers how long it is since they were sent.
    let lag = |(&(read, _), &sent): (&(Instant, usize), &Span)| {
        i128::from(read.as_nanos()) - i128::from(sent.as_nanos())
    };
    let lags: Vec<i128> = arrivals.list.iter().zip(&sent).map(lag).collect();
    let (least, most) = (lags.iter().min().expect("some"), lags.iter().max().expect("some"));
    let read_late = Span::from_nanos((most - least) as u64);
    let (mut fates, mut overslept) = (HashMap::new(), Span::ZERO);
    for answer in &answers {
        let (stream, seq, fate, waited) = match answer {
            Outcome::Result(result) => {
                let batch = usize::from(result.batch);
                let time = problem.workers[0].profile.bound(batch);
                overslept = overslept.max(span(result.run).saturating_sub(time));
                (result.stream, result.sequence, Fate::Served { batch }, Some(span(result.queued)))
            }
            Outcome::Miss(miss) => (miss.stream, miss.sequence, Fate::Missed(miss.reason.to_string()), None),
        };
        let twice = fates.insert((index(stream), seq), (fate, waited));
        assert!(twice.is_none(), "two answers to request {seq} of stream {stream}");
    }
    let delays = (measured("handover_seen_ns") + overslept, measured("guard_seen_ns") + read_late);
    Real { arrivals, fates, delays, read_late }
}

/// Compares what the daemon did with what the simulator says of `problem`.
fn compare(real: &Real, problem: &Problem) -> Verdict {
    let mut dice = StdRng::seed_from_u64(0);
    let mut run = |index| simulated(problem, &real.arrivals.list, index, real.delays, &mut dice);
    let runs: Vec<_> = (0..RUNS).map(&mut run).collect();
    let missed = real.fates.values().filter(|(fate, _)| matches!(fate, Fate::Missed(_))).count();
    let mut verdict = Verdict { missed, ..Verdict::default() };
    for (index, said) in runs[0].iter().enumerate() {
        let all = || runs.iter().map(|run| &run[index]);
        if !all().all(|other| other.fate.is_like(&said.fate)) {
            continue;
        }
        verdict.compared += 1;
        let (fate, waited) = &real.fates[&(said.stream, said.seq)];
        let same_batch = all().all(|other| other.fate == said.fate);
        verdict.batches += usize::from(same_batch);
        let mut agrees = if same_batch { *fate == said.fate } else { fate.is_like(&said.fate) };
        if let (Some(waited), true) = (*waited, same_batch) {
            // Until its worker was awake.
            let waits = || all().filter_map(|other| other.waited);
            // A batch may have been due sooner: deadlines count from the sending, and what is recorded is the reading.
            agrees &= waits().min().is_some_and(|least| waited + real.read_late >= least);
            agrees &= waits().max().is_some_and(|most| waited <= most + real.delays.0 + real.delays.1);
        }
        if !agrees {
            let (stream, seq) = (&real.arrivals.streams[said.stream], said.seq);
            let told = format!("{:?} after {:?}", said.fate, said.waited);
            verdict
                .differences
                .push(format!("{stream} {seq}: {told}, the daemon: {fate:?} after {waited:?}"));
        }
    }
    verdict
}
