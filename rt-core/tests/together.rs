//! All that a service must stand within its assumptions, at once: early requests, late reading or late timers, stalls as declared, batches as
//! long as the shield allows, a stream that sends too much and falls to weaker promises, streams that leave, come back, and change hands,
//! takeovers, answers that are wanted sooner. Nothing that has to be served is missed. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::test_runner::TestRunner;
use rt_core::{
    Cause, Constraint, ConstraintSet, Event, Instant, Joined, MissReason, Newcomer, Outcome, SchedulerConfig,
    Shield, Span, StreamId, StreamSpec, StreamState,
};

use crate::harness::load::{Setup, absorbing, ns, weaker};
use crate::harness::mixed::{shield, some, tolerance};
use crate::harness::{Dice, Harness, earliest, end_of, instances, system, violates_any};

/// What there was of it in all runs.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    served: usize,
    early: u64,
    read_late: usize,
    stalls: u64,
    longer: usize,
    excesses: u64,
    falls: u64,
    came: usize,
    waited: usize,
    anew: usize,
    takeovers: usize,
    /// Requests missed for stalls that constraints absorb.
    struck: usize,
    /// Requests in time by the deadline, and not by when their answer was wanted.
    unwanted: usize,
    /// Runs in which something was told of that no promise was harmed by.
    told: usize,
}

/// A stream with its client: what it sent and when that conformed, as far as its registration goes back, and what is still to be read of it.
struct Client {
    spec: StreamSpec,
    id: Option<StreamId>,
    conformed: Vec<u64>,
    unread: VecDeque<(u64, u64)>,
}

struct Run {
    config: SchedulerConfig,
    harness: Harness,
    clients: Vec<Client>,
    dice: Dice,
    /// From when to when time is lost.
    stalls: Vec<(u64, u64)>,
    /// Some answers are wanted before the deadline, and missed if they come later.
    impatient: bool,
}

impl Run {
    fn specs(&self) -> Vec<StreamSpec> {
        self.harness.scheduler.load().specs().cloned().collect()
    }

    fn tolerance(&self, specs: &[StreamSpec]) -> Span {
        tolerance(&self.config, specs)
    }

    fn shield(&self, specs: &[StreamSpec]) -> Option<Shield> {
        shield(&self.config, specs)
    }

    /// Has the stream come, if it is admitted beside all that count and nothing is in its way.
    fn join(&mut self, client: usize) -> bool {
        let spec = self.clients[client].spec.clone();
        let load = self.harness.scheduler.load();
        let all: Vec<_> = load.specs().cloned().chain([spec.clone()]).collect();
        if system(&self.config).admit(&all).is_err() {
            return false;
        }
        let shield = if load.is_shielded(&spec) { None } else { self.shield(&all) };
        let newcomer = Newcomer::new(&self.config, spec).beside(&load).shielded(shield);
        let newcomer = newcomer.tolerant(&self.config, self.tolerance(&all));
        let now = Instant::from_nanos(self.harness.now);
        match self.harness.scheduler.try_add_stream(now, newcomer).expect("room for a stream") {
            Joined::Added(id, _) => {
                let client = &mut self.clients[client];
                (client.id, client.conformed) = (Some(id), Vec::new());
                client.unread.clear();
                true
            }
            Joined::Wait(_) => false,
            Joined::Stale(_) => panic!("nobody came meanwhile"),
        }
    }

    /// Sends what may be sent now, perhaps, and perhaps before its declaration allows it; that is read at once, or up to `late` later.
    fn send(&mut self, client: usize, late: u64, greedy: u64, tally: &mut Tally) {
        let tolerance = self.harness.scheduler.tolerance().as_nanos();
        let (now, dice) = (self.harness.now, &mut self.dice);
        let one = &mut self.clients[client];
        let Some(id) = one.id else { return };
        let bounds = one.spec.arrivals().expect("declared").bounds();
        for _ in 0..4 {
            let due = earliest(&one.conformed, bounds, now);
            let last = one.unread.back().map(|&(_, read)| read);
            let may = if last.is_none() { due <= now + tolerance } else { due <= now };
            if !may || dice.within(0, 9) >= greedy {
                break;
            }
            one.conformed.push(due);
            tally.early += u64::from(due > now);
            let delay = if due > now { 0 } else { dice.within(0, late) };
            tally.read_late += usize::from(delay > 0);
            one.unread.push_back((now, last.unwrap_or(0).max(now + delay)));
            if delay == 0 && last.is_none() {
                one.unread.pop_back();
                self.harness.arrive(id);
            }
        }
    }

    /// Reads what is to be read by now.
    fn read(&mut self) {
        for client in &mut self.clients {
            while let (Some(id), Some(&(sent, _))) =
                (client.id, client.unread.front().filter(|(_, read)| *read <= self.harness.now))
            {
                client.unread.pop_front();
                self.harness.arrive_sent(id, sent);
            }
        }
    }

    /// Whether a request that came then may be missed for a stall that constraints absorb.
    fn may_be_struck(&self, came: u64) -> bool {
        let recovery = self.config.stalls.and_then(|stalls| stalls.recovery()).map(Span::as_nanos);
        let (deadline, stalls) = (self.config.deadline.as_nanos(), &self.stalls);
        recovery.is_some_and(|recovery| {
            stalls.iter().any(|&(from, _)| from < came + deadline && came < from + recovery)
        })
    }

    /// Within what time requests must come for their constraints to be kept, where they absorb stalls.
    fn absorbed(&self) -> Option<u64> {
        let stalls = self.config.stalls?;
        let span = self.config.deadline + stalls.recovery()?;
        Some((stalls.window().as_nanos() + 1).saturating_sub(span.as_nanos()))
    }

    /// Another scheduler of the same configuration takes over, if that is possible now.
    fn take_over(&mut self) -> bool {
        // What has been sent and is yet to be read is read by the next.
        if self.harness.hand_over(self.config.clone()).is_err() {
            return false;
        }
        let specs = self.specs();
        let shield = self.shield(&specs);
        let tolerance = self.tolerance(&specs);
        self.harness.scheduler.set_tolerance(tolerance);
        self.harness.scheduler.set_shield(shield).expect("made for it");
        true
    }
}

/// One run of a system, of which the first stream may be `wild`.
fn play(setup: &Setup, wild: bool, tally: &mut Tally) {
    let mut dice = Dice(setup.seed);
    let config = &setup.config;
    let timers = dice.within(0, 1) == 0;
    let guard = config.guard.as_nanos();
    let started = Rc::new(Cell::new(0));
    let stalls = config.stalls.map_or(Vec::new(), |stalls| {
        let (length, window) = (stalls.length().as_nanos(), stalls.window().as_nanos());
        let apart = (window + length).max(2 * (length + config.deadline.as_nanos()));
        let mut ends = vec![length + dice.within(0, 200)];
        while ends.last().is_some_and(|&end| end < 4_000) {
            let last = ends.last().copied().unwrap_or(0);
            // As near as they may be, or so far apart that it is clear which of them a batch met.
            let step = if dice.within(0, 1) == 0 { window } else { apart + dice.within(0, 99) };
            ends.push(last + step);
        }
        ends.into_iter().map(|end| (end - length, end)).collect()
    });
    let service = {
        let (started, stalls, slow) = (Rc::clone(&started), stalls.clone(), setup.slow);
        let mut dice = Dice(!setup.seed);
        move |_, bound| {
            let (now, time) = (started.get(), if slow { bound } else { dice.within(1, bound) });
            if dice.within(0, 3) == 0 { time } else { end_of(now, time, &stalls) - now }
        }
    };
    let mut harness = Harness::new(config.clone(), service);
    harness.timer_delay = if timers { guard } else { 0 };
    harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        started.set(now);
        let at = Instant::from_nanos(now);
        let longest = scheduler.longest(at, worker);
        match scheduler.prolong(at, worker, longest) {
            Ok(()) => longest.as_nanos(),
            Err(_) => bound,
        }
    }));
    let impatient = setup.seed.is_multiple_of(7);
    if impatient {
        // By class some are wanted sooner.
        let deadline = config.deadline.as_nanos();
        harness.wanted = vec![deadline, deadline - deadline / 4, deadline / 2];
    }
    let client = |spec: &StreamSpec| Client {
        spec: spec.clone(),
        id: None,
        conformed: Vec::new(),
        unread: VecDeque::new(),
    };
    let clients: Vec<_> = setup.streams.iter().map(client).collect();
    let mut run = Run { config: config.clone(), harness, clients, dice, stalls, impatient };
    for client in 0..run.clients.len() {
        assert!(run.join(client), "nothing is in its way");
    }
    let stranger = run.harness.add(StreamSpec::best_effort());
    let (greedy, busy, restless) = (run.dice.within(2, 10), run.dice.within(0, 3), run.dice.within(0, 2) > 0);
    let mut outcomes: Vec<(StreamId, usize)> = Vec::new();
    let mut quiet = false;
    for tick in 0..1_500 {
        let through = run.dice.within(0, 1) == 0;
        run.harness.advance(tick, through);
        run.read();
        if run.dice.within(0, 8) < busy {
            (0..run.dice.within(1, 4)).for_each(|_| _ = run.harness.arrive(stranger));
        }
        for client in 0..run.clients.len() {
            run.send(client, if timers { 0 } else { guard }, greedy, tally);
            let one = &run.clients[client];
            let (excess, change) =
                (wild && client == 0 && run.dice.within(0, 60) == 0, run.dice.within(0, 200));
            match one.id {
                Some(id) if excess && one.unread.is_empty() => {
                    (0..run.dice.within(1, 2)).for_each(|_| _ = run.harness.arrive(id));
                }
                Some(id) if restless && change == 0 => {
                    outcomes.push((id, client));
                    run.harness.scheduler.remove_stream(id);
                    run.harness.settle();
                    run.clients[client].id = None;
                }
                Some(id) if restless && change == 1 && one.unread.is_empty() => {
                    outcomes.push((id, client));
                    run.clients[client].id = run.harness.scheduler.restart_stream(id);
                    run.harness.settle();
                    tally.anew += 1;
                }
                None if change < 40 => match run.join(client) {
                    true => tally.came += 1,
                    false => tally.waited += 1,
                },
                _ => {}
            }
        }
        run.harness.advance(tick, true);
        if run.dice.within(0, 300) == 0 {
            quiet = !quiet;
            run.harness.scheduler.set_quiet(quiet);
            run.harness.settle();
        }
        if quiet && run.take_over() {
            (quiet, tally.takeovers) = (false, tally.takeovers + 1);
        }
    }
    run.harness.scheduler.set_quiet(false);
    for tick in 1_500..=1_500 + guard {
        run.harness.advance(tick, true);
        run.read();
    }
    run.harness.scheduler.withdraw();
    run.harness.settle();
    run.harness.drain();
    judge(setup, &run, wild, tally, outcomes);
}

/// Nothing that had to be served was missed, and all promises were kept but to the stream that broke its own.
fn judge(setup: &Setup, run: &Run, wild: bool, tally: &mut Tally, mut outcomes: Vec<(StreamId, usize)>) {
    let harness = &run.harness;
    let of = |(at, event): &(u64, Event)| match event {
        Event::SafeMode(told) => told.breach().map(|cause| (*at, cause)),
        _ => None,
    };
    let breaches: Vec<_> = harness.events.iter().filter_map(of).collect();
    let told = || format!("{setup:?} {breaches:?}");
    for (at, resolution) in &harness.resolutions {
        let (request, outcome) = (&resolution.request, resolution.outcome);
        tally.served += usize::from(request.mandatory && outcome == Outcome::Served);
        // In time by the deadline, and not by when it was wanted.
        let unwanted = outcome == Outcome::Missed(MissReason::Late) && *at <= request.deadline.as_nanos();
        let kept = unwanted || [Outcome::Served, Outcome::Missed(MissReason::Cancelled)].contains(&outcome);
        tally.unwanted += usize::from(request.mandatory && unwanted);
        let struck = run.may_be_struck(request.arrival.as_nanos());
        tally.struck += usize::from(request.mandatory && !kept);
        assert!(kept || !request.mandatory || struck, "at {at}: {resolution:?} {}", told());
    }
    // Which of two stalls a batch met may be told wrongly, which is told of without need.
    let doubtful = |cause| {
        setup.config.stalls.is_some() && [Cause::ServiceOverrun, Cause::LateDispatch].contains(&cause)
    };
    assert!(breaches.iter().all(|&(_, cause)| doubtful(cause)), "{}", told());
    tally.told += usize::from(!breaches.is_empty());
    outcomes.extend(run.clients.iter().enumerate().filter_map(|(client, one)| Some((one.id?, client))));
    let broken: Vec<_> =
        outcomes.iter().filter(|&&(_, client)| wild && client == 0).map(|&(id, _)| id).collect();
    let cancelled = Outcome::Missed(MissReason::Cancelled);
    let own = |client: usize| wild && client == 0 || run.impatient;
    for (id, client) in outcomes.into_iter().filter(|&(_, client)| !own(client)) {
        let mut ended: Vec<_> =
            harness.resolutions.iter().map(|(_, r)| r).filter(|r| r.request.stream == id).collect();
        ended.sort_by_key(|r| r.request.seq);
        let whole = ended.iter().take_while(|r| r.outcome != cancelled);
        let (came, hits): (Vec<_>, Vec<_>) =
            whole.map(|r| (r.request.arrival.as_nanos(), r.outcome == Outcome::Served)).unzip();
        let set = run.clients[client].spec.constraints();
        match run.absorbed() {
            None => assert!(!violates_any(&hits, set), "{hits:?} {}", told()),
            Some(span) => {
                let near =
                    |from: usize| came[from..].iter().take_while(|&&at| at - came[from] <= span).count();
                let kept = |from: usize| !violates_any(&hits[from..from + near(from)], set);
                assert!((0..came.len()).all(kept), "{hits:?} of {came:?} within {span} {}", told());
            }
        }
    }
    for (_, event) in &harness.events {
        let Event::Suspension(suspension) = event else { continue };
        assert!(run.impatient || broken.contains(&suspension.stream), "{suspension:?} {}", told());
        tally.excesses +=
            u64::from(suspension.alarm.is_some_and(|alarm| alarm.cause == Cause::ArrivalExcess));
        tally.falls += u64::from(matches!(suspension.state, StreamState::Degraded(_)));
    }
    tally.runs += 1;
    tally.stalls += harness.scheduler.stalls();
    tally.longer += harness.longer_than(setup.config.workers[0].batch_time().as_nanos());
}

/// The same system where constraints that leave room for it absorb a stall, if they do.
fn absorbed(mut setup: Setup, dice: &mut Dice) -> Setup {
    let k = dice.within(10, 60) as u32;
    let loose = Constraint::any_miss(k - 2 - dice.within(0, u64::from(k) / 3) as u32, k).expect("valid");
    for spec in &mut setup.streams {
        let arrivals = spec.arrivals().expect("declared").clone();
        *spec = StreamSpec::promised(ConstraintSet::new(&[loose]).expect("one"), arrivals);
    }
    setup.config.stalls = absorbing(&setup.config, &setup.streams, (1, dice.within(1, 30)));
    setup
}

#[test]
fn all_of_it_at_once_makes_nobody_miss() {
    let mut runner = TestRunner::deterministic();
    let mut tally = Tally::default();
    for nth in 0..instances(600) {
        let Some((mut setup, mut dice)) = some(nth, &mut runner) else { continue };
        if nth % 5 == 4 && setup.config.workers.len() == 1 {
            setup = absorbed(setup, &mut dice);
        }
        setup.config.tolerance = ns(dice.within(0, 20));
        let wild = nth % 3 > 0;
        if nth % 3 == 2 && nth % 5 < 4 {
            setup.streams[0] = weaker(&setup.streams[0]);
        }
        if system(&setup.config).admit(&setup.streams).is_ok() {
            play(&setup, wild, &mut tally);
        }
    }
    println!("{tally:?}");
    let runs = tally.runs;
    let many =
        [tally.read_late, tally.longer, tally.came, tally.waited, tally.anew, tally.takeovers, tally.served];
    assert!(many.iter().all(|&count| count > runs), "{tally:?}");
    assert!(
        [tally.early, tally.excesses, tally.stalls].iter().all(|&count| count as usize > runs / 2),
        "{tally:?}"
    );
    assert!(tally.falls as usize * 8 > runs && tally.struck * 20 > runs, "{tally:?}");
    assert!(tally.told * 5 < runs, "{tally:?}");
}
