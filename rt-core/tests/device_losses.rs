//! A device whose workers are lost and come back and whose batches run over by more than harms nobody, through stalls, late reading, a
//! stream that sends too much, streams that come, go, change hands and are declared anew, and takeovers, also by a device that lacks a
//! worker. What must be served is missed by what was announced alone; and once nothing is wrong all is well again, as if nothing had
//! been: overruns within the margin are told to nobody. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use std::cell::Cell;
use std::rc::Rc;

use rt_core::sharing::Device;
use rt_core::{SafeModeConfig, Severity, Span, StreamId};

use crate::harness::{Dice, earliest, instances};
use crate::oracle::sharing::{Service, Shared};
use crate::oracle::{Bound, Stream};
use crate::shared::clients::{Client, margin, read, roomy, senders, stalling};
use crate::shared::{Run, spec};

/// What there was of it in all runs.
#[derive(Debug, Default)]
struct Tally {
    served: usize,
    missed: usize,
    losses: usize,
    stalled: usize,
    demoted: usize,
    takeovers: usize,
    incomplete: usize,
    redeclared: usize,
    ahead: usize,
    told: usize,
}

/// A system as it is now, and who is there.
struct Play {
    shared: Shared,
    margin: u64,
    run: Run,
    clients: Vec<Client>,
    strangers: Vec<StreamId>,
    dice: Dice,
    late: u64,
}

impl Play {
    fn normal(&self) -> bool {
        let stands = |s: usize| {
            let scheduler = self.run.device.service(s);
            (scheduler.safe_mode().severity(), scheduler.suspensions().1) == (Severity::Normal, 0)
        };
        (0..self.shared.services.len()).all(stands)
    }

    /// Whether nobody counts but those who are there, and all are.
    fn complete(&self) -> bool {
        let count = |of: &Device, s: usize| of.service(s).load().specs().count();
        let declared = |s: &Service| s.streams.len();
        let mut services = self.shared.services.iter().enumerate();
        self.clients.iter().all(|client| client.id.is_some())
            && services.all(|(s, service)| count(&self.run.device, s) == declared(service))
    }

    /// Another device takes over, perhaps with a stream that is declared anew, or without a worker.
    fn take_over(&mut self, trouble: bool, tally: &mut Tally) {
        let (mut turned, mut kept) = (self.shared.clone(), self.margin);
        turned.services.rotate_right(1);
        let count = turned.services.len();
        let which = self.dice.within(0, self.clients.len() as u64 - 1) as usize;
        let client = &self.clients[which];
        let place = self.clients[..which].iter().filter(|other| other.service == client.service).count();
        let to = (client.service + 1) % count;
        let mut anew = None;
        if self.dice.within(0, 1) == 0 && client.unread.is_empty() && self.complete() {
            let mut wider = turned.clone();
            let stream = &mut wider.services[to].streams[place];
            let Bound::Window { count, .. } = &mut stream.bounds[0] else { panic!("a window") };
            *count += self.dice.within(0, 1) as u8;
            // No stricter than before: of windows across the change nothing else is said.
            for (m, k) in &mut stream.constraints {
                let more = self.dice.within(0, 1) as u8;
                let longer = more * u8::from(*m + 1 == *k || self.dice.within(0, 1) == 0);
                (*m, *k) = (*m + more, *k + longer);
            }
            let fresh = spec(stream);
            if let Some(left) = margin(&wider) {
                (turned, kept, anew) = (wider, left, Some(fresh));
            }
        }
        let workers = self.shared.workers as u64;
        let lost =
            (trouble && self.dice.within(0, 3) == 0).then(|| self.dice.within(0, workers - 1) as usize);
        let counted = self.run.device.service(0).stalls();
        if self.run.hand_over_without(&turned, kept, None, lost).is_err() {
            return;
        }
        assert_eq!(self.run.device.service(0).stalls(), counted, "all of them are told, whoever was there");
        (self.shared, self.margin) = (turned, kept);
        self.run.margin = self.run.margin.map(|_| kept);
        self.run.allowed = self.run.allowed.map(|_| kept);
        self.strangers.rotate_right(1);
        self.clients.iter_mut().for_each(|client| client.service = (client.service + 1) % count);
        self.clients.sort_by_key(|client| client.service);
        tally.takeovers += 1;
        tally.incomplete += usize::from(lost.is_some());
        if let Some(fresh) = anew {
            let first = self.clients.iter().position(|client| client.service == to).expect("its own");
            let client = &mut self.clients[first + place];
            let id = client.id.expect("all are there");
            assert!(
                self.run.device.service_mut(to).redeclare(id, fresh.clone()).is_some(),
                "nothing is open"
            );
            if fresh.arrivals() != client.spec.arrivals() {
                client.history.clear();
            }
            client.spec = fresh;
            tally.redeclared += 1;
        }
        self.run.settle();
    }

    /// So many ticks, with `trouble` or within the assumptions.
    fn go(&mut self, ticks: u64, trouble: bool, tally: &mut Tally) {
        let (greedy, busy) = (self.dice.within(0, 2), self.dice.within(0, 4));
        let (rate, wild) = (self.dice.within(10, 60), self.dice.within(0, 1) == 0);
        if trouble && wild {
            // Which of its own a stream has worked off in place of which is not followed, nor so when all is calm.
            self.run.allowed = None;
        }
        let from = self.run.now;
        for now in from..from + ticks {
            self.run.advance(now, self.dice.within(0, 1) == 0);
            let worker = self.dice.within(0, self.shared.workers as u64 - 1) as usize;
            match self.dice.within(0, rate) {
                0 if trouble && self.run.device.service(0).is_alive(worker) => {
                    tally.losses += 1;
                    self.run.lose(worker);
                }
                1..=3 => self.run.ready(worker),
                _ => {}
            }
            if self.run.is_quiet() || self.dice.within(0, 40) == 0 {
                self.run.set_quiet(true);
                self.take_over(trouble, tally);
                if self.run.is_quiet() && self.dice.within(0, 30) == 0 {
                    self.run.set_quiet(false);
                }
            }
            for _ in 0..self.dice.within(0, busy) {
                let s = self.dice.within(0, self.strangers.len() as u64 - 1) as usize;
                self.run.arrive(s, self.strangers[s]);
                self.run.settle();
            }
            for _ in 0..4 * self.clients.len() {
                let k = self.dice.within(0, self.clients.len() as u64 - 1) as usize;
                let (run, client, dice) = (&mut self.run, &mut self.clients[k], &mut self.dice);
                let Some(id) = client.id else {
                    client.come_back(run, &self.shared);
                    continue;
                };
                let bounds = client.spec.arrivals().expect("declared").bounds();
                match dice.within(0, 50) {
                    0 => {
                        run.remove(client.service, id);
                        client.id = None;
                    }
                    1 => client.id = Some(run.restart(client.service, id)),
                    _ if dice.within(0, 3) >= greedy && earliest(&client.history, bounds, now) == now
                        || trouble && wild && k == 0 && dice.within(0, 9) == 0 =>
                    {
                        client.send(now, self.late, dice);
                    }
                    _ => {}
                }
                read(run, client, dice);
            }
            for client in &mut self.clients {
                read(&mut self.run, client, &mut self.dice);
            }
            self.run.advance(now, true);
        }
    }
}

fn play(shared: &Shared, margin: u64, late: u64, seed: u64, tally: &mut Tally) {
    let mut dice = Dice(seed);
    let more: Vec<u8> = shared.services.iter().map(|_| dice.within(0, 3) as u8).collect();
    let clean = Span::from_nanos(dice.within(0, 2) * 15);
    let safe_mode = SafeModeConfig { hold: clean, clean, latch: false };
    let stalls = shared.stall > 0;
    // By how much batches run over: any, while there is trouble; then what is left of the margin, which without stalls is all.
    let worst = Rc::new(Cell::new(margin + dice.within(1, 30)));
    let (mut times, most, full) = (Dice(dice.next()), Rc::clone(&worst), dice.within(0, 3));
    let every = dice.within(3, 40);
    let mut run = Run::lasting(shared, (&more, safe_mode), margin, move |_, bound| {
        if most.get() > 0 && times.within(1, every) == 1 {
            return bound + times.within(1, most.get());
        }
        if times.within(0, 3) < full { bound } else { times.within(1, bound) }
    });
    run.wild = true;
    run.allowed = (!stalls).then_some(margin);
    let (length, step) = (u64::from(shared.stall), shared.window.saturating_add(shared.stall.into()));
    let mut end = length + dice.within(0, 30);
    while stalls && end < 12_000 + 2 * shared.window {
        run.stalls.push((end - length, end));
        end += step + dice.within(0, 9);
    }
    let mut own = Dice(dice.next());
    run.spared = Box::new(move || own.within(0, 3) == 0);
    let (clients, strangers) = senders(shared, &mut run);
    let mut play = Play { shared: shared.clone(), margin, run, clients, strangers, dice, late };
    play.go(200, true, tally);
    tally.demoted += play.run.demoted.iter().filter(|&&demoted| demoted).count();
    worst.set(0);
    (0..shared.workers).for_each(|worker| play.run.ready(worker));
    play.run.set_quiet(false);
    for client in &mut play.clients {
        client.unread.clear();
    }
    while !play.normal() || play.run.next_event().is_some() {
        let next = play.run.next_event().unwrap_or_else(|| panic!("it never ends: {shared:?}"));
        assert!(next < 10_000, "it does not end: {shared:?}");
        play.run.advance(next, true);
    }
    for client in &mut play.clients {
        client.history.clear();
        // Of a window that holds something from before the misses count.
        client.id = client.id.map(|id| play.run.restart(client.service, id));
    }
    let unwarned = play.run.missed.iter().find(|&&(_, _, warned)| !warned);
    assert_eq!(unwarned, None, "seed {seed}, margin {margin}: {shared:?}");
    let (missed, told) = (play.run.missed.len(), play.run.causes.len());
    tally.told += told;
    tally.missed += missed;
    // What ran over may have been taken for a stall.
    play.run.advance(play.run.now + 200 + if stalls { 2 * shared.window } else { 0 }, true);
    // What runs over and stands still as well may be told of without need.
    worst.set(if stalls { 0 } else { u64::MAX >> 1 });
    play.run.margin = Some(play.margin);
    play.go(200, false, tally);
    play.run.drain();
    let wrong = || format!("seed {seed}, margin {margin}, {:?}: {:?}", play.run.stalls, play.shared);
    assert_eq!(play.run.missed[missed..], [], "{}", wrong());
    assert_eq!(play.run.causes[told..], [], "{}", wrong());
    tally.served += play.run.served.iter().sum::<usize>();
    tally.stalled += play.run.stalled;
    tally.ahead += play.run.gone_ahead;
}

#[test]
fn what_is_lost_is_announced_and_then_all_is_as_if_nothing_had_been() {
    for turns in [false, true] {
        let (mut dice, mut tally, count) = (Dice(11), Tally::default(), instances(200));
        for nth in 0..count {
            let late = dice.within(0, 2) as u8;
            let system = if nth % 3 == 0 { stalling } else { roomy };
            let (shared, margin) = system(&mut dice, turns, late);
            play(&shared, margin, late.into(), dice.next(), &mut tally);
        }
        println!("turns {turns}: {tally:?}");
        let Tally {
            served,
            missed,
            losses,
            stalled,
            demoted,
            takeovers,
            incomplete,
            redeclared,
            ahead,
            told,
        } = tally;
        assert!(
            [served, missed, losses, takeovers, redeclared, ahead, told].iter().all(|&some| some > count)
        );
        assert!([stalled, demoted, incomplete].iter().all(|&some| some > count / 3));
    }
}

/// A batch that never ends is told of, and then its worker is lost. When that is back and all is well, batches may run over by the margin
/// as before.
#[test]
fn what_a_lost_worker_ran_over_is_forgotten() {
    let stream = || Stream::hard(1, 50);
    let service = || Service::of(vec![stream()], 2, 10);
    for turns in [false, true] {
        let services = vec![service(), service()];
        let shared = Shared::of(services, 2, 2, turns);
        let margin = margin(&shared).expect("admitted");
        let mut first = true;
        let mut run = Run::new(&shared, margin, move |_, bound| match std::mem::take(&mut first) {
            true => 1_000,
            false => bound + margin,
        });
        let (_, strangers) = senders(&shared, &mut run);
        run.arrive(0, strangers[0]);
        run.settle();
        run.advance(30, true);
        run.lose(0);
        run.ready(0);
        run.advance(60, true);
        let told = run.causes.len();
        assert!(told > 0, "it was told of");
        let stands = |s: usize| run.device.service(s).safe_mode().severity() == Severity::Normal;
        assert!(stands(0) && stands(1), "all is well");
        run.arrive(0, strangers[0]);
        run.settle();
        run.drain();
        assert_eq!(run.causes[told..], []);
    }
}
