//! All that a service stands within its assumptions, while workers are lost and come back and batches take longer: early requests, late
//! reading, stalls as declared, long batches, a stream that sends too much, streams that come, go, change hands and are declared anew,
//! takeovers. What has to be served is missed by what was announced before alone, each promise is kept over all that came while it was in
//! force, and all is well again once nothing is wrong. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::test_runner::TestRunner;
use rt_core::{
    Action, Cause, Event, Instant, Joined, Newcomer, SafeModeConfig, Scheduler, SchedulerConfig, Severity,
    Shield, Span, StreamId, StreamSpec, longer,
};

use crate::harness::load::{Setup, ns, weaker, widen};
use crate::harness::mixed::{shield, some, tolerance};
use crate::harness::{Dice, Harness, earliest, end_of, fallbacks, instances, system};
use crate::verdict::{Taken, Tally, judge};

/// A stream with its client.
struct Client {
    spec: StreamSpec,
    id: Option<StreamId>,
    conformed: Vec<u64>,
    /// What it sent and when that is read.
    unread: VecDeque<(u64, u64)>,
    /// When it sent something last.
    latest: u64,
}

struct Run {
    config: SchedulerConfig,
    harness: Harness,
    clients: Vec<Client>,
    dice: Dice,
    taken: Vec<Option<Taken>>,
    /// So many takeovers have begun what was promised anew.
    eras: usize,
    slow: Rc<Cell<u64>>,
    /// By when each batch was to end, and when it did or would have; and when workers were lost, or a takeover lacked one.
    ran: Rc<RefCell<Vec<(u64, u64)>>>,
    lost: Vec<u64>,
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
        let newcomer = newcomer.falling_back(fallbacks(&self.config, &all));
        let now = Instant::from_nanos(self.harness.now);
        match self.harness.scheduler.try_add_stream(now, newcomer).expect("room for a stream") {
            Joined::Added(id, _) => {
                let client = &mut self.clients[client];
                (client.id, client.conformed) = (Some(id), Vec::new());
                client.unread.clear();
                self.harness.settle();
                true
            }
            Joined::Wait(_) => false,
            Joined::Stale(_) => panic!("nobody came meanwhile"),
        }
    }

    /// What all leave room for, where nobody sends yet or a takeover has just been.
    fn make_room(&mut self) {
        let specs = self.specs();
        let (shield, tolerance) = (self.shield(&specs), self.tolerance(&specs));
        let now = Instant::from_nanos(self.harness.now);
        let scheduler = &mut self.harness.scheduler;
        scheduler.set_tolerance(tolerance);
        scheduler.set_fallbacks(now, fallbacks(&self.config, &specs));
        scheduler.set_shield(shield).expect("made for it");
    }

    /// A request of a client that was sent then is taken in now.
    fn take_in(&mut self, client: usize, id: StreamId, sent: u64) {
        let token = self.harness.arrive_sent_unpolled(id, sent) as usize;
        let scheduler = &self.harness.scheduler;
        let (state, _) = scheduler.stream_state(id).expect("there");
        let mode = scheduler.safe_mode();
        let stood = (!mode.severity().is_suspended()).then(|| (state, mode.breaches(), self.eras));
        let told = self.harness.events.len();
        self.clients[client].latest = self.harness.now;
        self.taken.resize_with(token + 1, || None);
        let spec = self.clients[client].spec.clone();
        self.taken[token] = Some(Taken { at: self.harness.now, spec, stood, told });
        self.harness.settle();
    }

    fn send(&mut self, client: usize, late: u64, greedy: u64, tally: &mut Tally) {
        for _ in 0..4 {
            let tolerance = self.harness.scheduler.tolerance().as_nanos();
            let (now, dice, one) = (self.harness.now, &mut self.dice, &mut self.clients[client]);
            let Some(id) = one.id else { return };
            let due = earliest(&one.conformed, one.spec.arrivals().expect("declared").bounds(), now);
            let last = one.unread.back().map(|&(_, read)| read);
            let may = if last.is_none() { due <= now + tolerance } else { due <= now };
            if !may || dice.within(0, 9) >= greedy {
                return;
            }
            one.conformed.push(due);
            tally.early += usize::from(due > now);
            let delay = if due > now { 0 } else { dice.within(0, late) };
            tally.read_late += usize::from(delay > 0);
            if delay == 0 && last.is_none() {
                self.take_in(client, id, now);
            } else {
                one.unread.push_back((now, last.unwrap_or(0).max(now + delay)));
            }
        }
    }

    fn read(&mut self) {
        for client in 0..self.clients.len() {
            while let one = &mut self.clients[client]
                && let (Some(id), Some(&(sent, _))) =
                    (one.id, one.unread.front().filter(|(_, read)| *read <= self.harness.now))
            {
                one.unread.pop_front();
                self.take_in(client, id, sent);
            }
        }
    }

    /// Another scheduler takes over, if that is possible now, perhaps without one of its workers and with a stream that is declared anew.
    fn take_over(&mut self, tally: &mut Tally) -> bool {
        let now = Instant::from_nanos(self.harness.now);
        let mut next = Scheduler::new(self.config.clone()).expect("a configuration");
        let workers = self.config.worker_count() as u64;
        let lost = (self.dice.within(0, 3) == 0).then(|| self.dice.within(0, workers - 1) as usize);
        let fell = self.harness.scheduler.fallen().is_some();
        lost.into_iter().for_each(|worker| next.handle_worker_lost(now, worker));
        while !matches!(next.poll(now), Action::WakeAt(_)) {}
        if self.harness.hand_over_to(next, &[]).is_err() {
            return false;
        }
        self.eras += usize::from(fell);
        tally.fallen += usize::from(fell);
        tally.incomplete += usize::from(lost.is_some());
        self.lost.extend(lost.map(|_| self.harness.now));
        let client = self.dice.within(0, self.clients.len() as u64 - 1) as usize;
        let by = (self.dice.within(0, 1), self.dice.within(0, 3), self.dice.within(0, 1) as u32);
        let one = &self.clients[client];
        if let Some(id) = one.id.filter(|_| one.unread.is_empty() && self.dice.within(0, 1) == 0) {
            let (spec, before) = (weaker(&widen(&one.spec, by)), one.spec.clone());
            let mut all = self.specs();
            let place = all.iter().position(|spec| spec.demand() == before.demand());
            if let Some(place) = place {
                all[place] = spec.clone();
            }
            if system(&self.config).admit(&all).is_ok() {
                let redeclared = self.harness.scheduler.redeclare(id, spec.clone());
                assert!(redeclared.is_some(), "nothing is open");
                // The same declaration goes on.
                if spec.arrivals() != before.arrivals() {
                    self.clients[client].conformed.clear();
                }
                self.clients[client].spec = spec;
                tally.redeclared += 1;
            }
        }
        self.make_room();
        self.harness.settle();
        true
    }

    /// Loses a worker, has one back, or has batches take longer, perhaps.
    fn trouble(&mut self, rate: u64, tally: &mut Tally) {
        let worker = self.dice.within(0, self.config.worker_count() as u64 - 1) as usize;
        match self.dice.within(0, rate) {
            0 if self.harness.scheduler.is_alive(worker) => {
                tally.losses += 1;
                self.lost.push(self.harness.now);
                self.harness.lose(worker);
            }
            1..=3 => self.harness.ready(worker),
            4 => self.slow.set(2 + u64::from(self.dice.within(0, 9) == 0)),
            5..=7 => self.slow.set(1),
            _ => {}
        }
    }
}

/// One run of a system, of which the first stream may be `wild`.
fn play(setup: &Setup, wild: bool, tally: &mut Tally) {
    let mut dice = Dice(setup.seed);
    let mut config = setup.config.clone();
    let lasting = |dice: &mut Dice| ns([0, 0, 20, 100][dice.within(0, 3) as usize]);
    config.safe_mode = SafeModeConfig { hold: lasting(&mut dice), clean: lasting(&mut dice), latch: false };
    let (timers, guard) = (dice.within(0, 1) == 0, config.guard.as_nanos());
    let stalls = config.stalls.map_or(Vec::new(), |stalls| {
        let (length, window) = (stalls.length().as_nanos(), stalls.window().as_nanos());
        let apart = (window + length).max(2 * (length + config.deadline.as_nanos()));
        let mut ends = vec![length + dice.within(0, 200)];
        while ends.last().is_some_and(|&end| end < 4_000) {
            let last = ends.last().copied().unwrap_or(0);
            let step = if dice.within(0, 1) == 0 { window } else { apart + dice.within(0, 99) };
            ends.push(last + step);
        }
        ends.into_iter().map(|end| (end - length, end)).collect()
    });
    let (started, granted) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (slow, ran) = (Rc::new(Cell::new(1)), Rc::new(RefCell::new(Vec::new())));
    let service = {
        let (started, stalls, slow, full) = (Rc::clone(&started), stalls, Rc::clone(&slow), setup.slow);
        let (mut dice, ran, granted) = (Dice(!setup.seed), Rc::clone(&ran), Rc::clone(&granted));
        move |_, bound| {
            let now = started.get();
            let time = match slow.get() {
                1 if full => bound,
                1 => dice.within(1, bound),
                2 => longer(ns(bound)).as_nanos(),
                more => bound * more,
            };
            let time = if dice.within(0, 3) == 0 { time } else { end_of(now, time, &stalls) - now };
            ran.borrow_mut().push((now + granted.get(), now + time));
            time
        }
    };
    let mut harness = Harness::new(config.clone(), service);
    harness.timer_delay = if timers { guard } else { 0 };
    harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        started.set(now);
        let at = Instant::from_nanos(now);
        let longest = scheduler.longest(at, worker);
        // Where nothing longer may begin it is what it has.
        granted.set(longest.as_nanos());
        match scheduler.prolong(at, worker, longest) {
            Ok(()) => longest.as_nanos(),
            Err(_) => bound,
        }
    }));
    let client = |spec: &StreamSpec| Client {
        spec: spec.clone(),
        id: None,
        conformed: Vec::new(),
        unread: VecDeque::new(),
        latest: 0,
    };
    let clients: Vec<_> = setup.streams.iter().map(client).collect();
    let taken = Vec::new();
    let mut run = Run { config, harness, clients, dice, taken, eras: 0, slow, ran, lost: Vec::new() };
    for client in 0..run.clients.len() {
        assert!(run.join(client), "nothing is in its way");
    }
    let stranger = run.harness.add(StreamSpec::best_effort());
    let (greedy, busy, rate) =
        (run.dice.within(2, 10), run.dice.within(0, 3), [30, 100, 400][run.dice.within(0, 2) as usize]);
    let (restless, tardy) = (run.dice.within(0, 1) == 0, run.dice.within(0, 1) == 0);
    let mut quiet = false;
    for tick in 0..1_200 {
        let through = run.dice.within(0, 1) == 0;
        run.harness.advance(tick, through);
        run.trouble(rate, tally);
        run.read();
        if run.dice.within(0, 8) < busy {
            (0..run.dice.within(1, 4)).for_each(|_| _ = run.harness.arrive(stranger));
        }
        for client in 0..run.clients.len() {
            run.send(client, if timers { 0 } else { guard }, greedy, tally);
            let change = run.dice.within(0, 200);
            let excess = wild && client == 0 && run.dice.within(0, 60) == 0;
            let one = &run.clients[client];
            match one.id {
                Some(id) if excess && one.unread.is_empty() => {
                    (0..run.dice.within(1, 3)).for_each(|_| run.take_in(client, id, tick));
                }
                // Read later than it may be, and sent after all before it.
                Some(id)
                    if tardy && change == 2 && one.unread.is_empty() && one.latest + guard + 1 < tick =>
                {
                    tally.too_late += 1;
                    run.take_in(client, id, tick - guard - 1);
                }
                Some(id) if restless && change == 0 => {
                    run.harness.scheduler.remove_stream(id);
                    run.harness.settle();
                    run.clients[client].id = None;
                }
                Some(id) if restless && change == 1 && one.unread.is_empty() => {
                    run.clients[client].id = run.harness.scheduler.restart_stream(id);
                    run.harness.settle();
                }
                None if change < 40 => match run.join(client) {
                    true => tally.came += 1,
                    false => tally.waited += 1,
                },
                _ => {}
            }
        }
        run.harness.advance(tick, true);
        if run.dice.within(0, 200) == 0 {
            quiet = !quiet;
            run.harness.scheduler.set_quiet(quiet);
            run.harness.settle();
        }
        if quiet && run.take_over(tally) {
            (quiet, tally.takeovers) = (false, tally.takeovers + 1);
        }
    }
    run.harness.scheduler.set_quiet(false);
    mend(setup, &mut run);
    judge(setup, (&run.harness, &run.taken), wild, tally);
    if setup.config.stalls.is_none() {
        look_for_false_alarms(setup, &run);
    }
}

/// Nothing is said to have gone wrong but what did.
fn look_for_false_alarms(setup: &Setup, run: &Run) {
    let ran = run.ran.borrow();
    for (at, event) in &run.harness.events {
        let Event::SafeMode(told) = event else { continue };
        // What stands on is told again where it was lost before.
        let now = told.state.alarm.is_some_and(|alarm| alarm.entered.as_nanos() == *at);
        let wrong = match told.breach().filter(|_| now) {
            Some(Cause::ServiceOverrun) => ran.iter().any(|&(due, end)| due < *at && *at <= end),
            Some(Cause::WorkerLost) => run.lost.contains(at),
            Some(Cause::LateDispatch) => false,
            _ => true,
        };
        assert!(wrong, "false alarm at {at}: {told:?} {setup:?} {:?}", run.harness.events);
    }
}

/// Nothing is wrong any more: some time all is well, and that is told.
fn mend(setup: &Setup, run: &mut Run) {
    run.slow.set(1);
    (0..run.config.worker_count()).for_each(|worker| run.harness.ready(worker));
    run.harness.scheduler.withdraw();
    run.harness.settle();
    let end = run.harness.now + 3_000;
    for tick in run.harness.now..=end {
        run.harness.advance(tick, true);
        run.read();
    }
    run.harness.drain();
    let scheduler = &run.harness.scheduler;
    let stands = (scheduler.safe_mode().severity(), scheduler.suspensions().1, scheduler.fallen());
    assert_eq!(stands, (Severity::Normal, 0, None), "{setup:?} {:?}", run.harness.events);
    let of = |(_, event): &(u64, Event)| match event {
        Event::SafeMode(told) => Some(told.state.severity),
        _ => None,
    };
    let told = run.harness.events.iter().rev().find_map(of).unwrap_or(Severity::Normal);
    assert_eq!(told, Severity::Normal, "{setup:?} {:?}", run.harness.events);
}

#[test]
fn what_is_lost_is_announced_and_all_else_is_kept() {
    let mut runner = TestRunner::deterministic();
    let mut tally = Tally::default();
    for nth in 0..instances(400) {
        let Some((mut setup, mut dice)) = some(nth, &mut runner) else { continue };
        setup.config.tolerance = ns(dice.within(0, 20));
        // What holds with a worker less has some to spare.
        setup.config.deadline = setup.config.deadline + ns(dice.within(0, 2) * dice.within(0, 30));
        if nth % 3 > 0 {
            setup.streams = setup.streams.iter().map(weaker).collect();
        }
        if system(&setup.config).admit(&setup.streams).is_ok() {
            play(&setup, nth % 2 == 0, &mut tally);
        }
    }
    println!("{tally:?}");
    let Tally { runs, served, losses, in_force, early, read_late, too_late, longer, .. } = tally;
    let many =
        [served, losses, in_force, early, read_late, longer, tally.came, tally.waited, tally.takeovers];
    assert!(many.iter().all(|&count| count > runs), "{tally:?}");
    let some = [too_late, tally.excesses, tally.falls, tally.fallen, tally.incomplete, tally.redeclared];
    assert!(some.iter().all(|&count| count > runs / 4) && tally.stalls as usize > runs / 8, "{tally:?}");
    assert!(tally.weaker > runs && tally.missed > runs, "{tally:?}");
}
