//! A pipeline whose workers are lost and come back and whose batches take longer than the margin leaves, through stalls, late reading, a
//! stream that sends too much, streams that leave, come back, change hands and are declared anew, and takeovers, also by one that lacks a
//! worker. What must be answered is missed by what was announced alone; and once nothing is wrong all is well again, as if nothing had
//! been. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use rt_core::pipeline::{PipelineConfig, PipelineError};
use rt_core::{Cause, Event, MAX_SPAN, SafeModeConfig, Severity, Stalls, StreamId, StreamSpec, Transition};

use crate::harness::{Dice, instances};
use crate::oracle::pipeline::Pipeline;
use crate::oracle::{Bound, Stream};
use crate::shared::spec;
use crate::stages::draw::{Bursts, bound, drawn_by, harshly, tree_or_graph};
use crate::stages::{Line, at, config, ns};

/// What there was of it in all runs.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    missed: usize,
    losses: usize,
    stalled: usize,
    overran: usize,
    takeovers: usize,
    incomplete: usize,
    redeclared: usize,
    excesses: usize,
    longs: usize,
    came: usize,
}

/// What is declared, in one of two ways, and the configuration that keeps both.
struct System {
    small: Pipeline,
    streams: [Stream; 2],
    config: PipelineConfig,
    /// How rare stalls must be.
    stalls: Option<Stalls>,
}

impl System {
    /// Nothing if the stream may come so often that no busy period ends.
    fn draw(seed: u64, dice: &mut Dice) -> Option<Self> {
        let late = u8::from(seed.is_multiple_of(3));
        let (small, first, _) = drawn_by(tree_or_graph(seed), dice, late);
        let mut wider = small.stream.clone();
        let Bound::Window { count, .. } = &mut wider.bounds[0] else { panic!("a window") };
        *count += dice.within(0, 1) as u8;
        for (m, k) in &mut wider.constraints {
            (*m, *k) = (*m + 1, *k + dice.within(1, 2) as u8);
        }
        if bound(&small, &[spec(&wider)]).is_none() {
            wider = small.stream.clone();
        }
        let specs = [first, spec(&wider)];
        let least = specs.iter().filter_map(|spec| bound(&small, std::slice::from_ref(spec))).max()?;
        let (count, length) = (dice.within(1, 2) as u32, dice.within(1, 6));
        let lost = if seed.is_multiple_of(2) { u64::from(count) * length } else { 0 };
        let clean = dice.within(0, 2) * 15;
        let safe_mode = SafeModeConfig { hold: ns(clean), clean: ns(clean), latch: false };
        let base = PipelineConfig { safe_mode, ..config(&small, least + lost + dice.within(0, 6), 0) };
        let with = |window| {
            let stalls = (lost > 0).then(|| Stalls::new(count, window, ns(length)).expect("valid"));
            PipelineConfig { stalls, ..base.clone() }
        };
        let mut window = ns(lost + 1);
        for spec in &specs {
            match with(window).pipeline().admit([spec]) {
                Ok(_) => {}
                Err(PipelineError::Stalls { needed, .. }) if needed < MAX_SPAN => window = needed,
                Err(_) => return None,
            }
        }
        let config = with(window);
        specs.iter().for_each(|spec| assert!(config.pipeline().admit([spec]).is_ok()));
        Some(Self { streams: [small.stream.clone(), wider], stalls: config.stalls, small, config })
    }
}

struct Play {
    system: System,
    line: Line,
    dice: Dice,
    /// Which of the declarations is in force, and who sends by it, if anybody.
    now: usize,
    client: Option<StreamId>,
    bursts: Bursts,
    unread: VecDeque<(u64, u64)>,
    stranger: StreamId,
    quiet: bool,
}

impl Play {
    fn new(system: System, seed: u64) -> Self {
        let mut line = Line::new(system.config.clone());
        line.lenient = true;
        let stranger = line.add(&StreamSpec::best_effort());
        let bursts = Bursts::of(&system.streams[0]);
        let (dice, unread) = (Dice(seed ^ 3), VecDeque::new());
        Self { system, line, dice, now: 0, client: None, bursts, unread, stranger, quiet: false }
    }

    /// What the present declaration leaves for overruns, or for longer batches.
    fn make_room(&mut self, shielded: bool) {
        let pipeline = self.line.scheduler.pipeline();
        let spec = spec(&self.system.streams[self.now]);
        let left = pipeline.latency().saturating_sub(pipeline.admit([&spec]).expect("admitted").bound);
        assert!(self.line.scheduler.set_overrun_margin(at(self.line.now), left), "nothing has run over");
        if shielded {
            self.line.raise_shield();
        }
    }

    fn take_over(&mut self, trouble: bool, shielded: bool, tally: &mut Tally) {
        let stage = self.dice.within(0, self.system.small.stages.len() as u64 - 1) as usize;
        let worker = self.dice.within(0, self.system.small.stages[stage].workers as u64 - 1) as usize;
        let lost = (trouble && self.dice.within(0, 3) == 0).then_some((stage, worker));
        if self.line.hand_over_without(self.system.config.clone(), &[], lost).is_err() {
            return;
        }
        tally.takeovers += 1;
        tally.incomplete += usize::from(lost.is_some());
        self.quiet = false;
        let departed =
            self.line.scheduler.first().load().specs().count() > usize::from(self.client.is_some());
        if let Some(id) = self.client.filter(|_| !departed && self.dice.within(0, 1) == 0) {
            self.now = 1 - self.now;
            let fresh = spec(&self.system.streams[self.now]);
            if self.unread.is_empty() && self.line.scheduler.redeclare(id, fresh.clone()).is_some() {
                let same = fresh.arrivals() == spec(&self.system.streams[1 - self.now]).arrivals();
                if !same {
                    self.bursts = Bursts::of(&self.system.streams[self.now]);
                }
                // What is stricter says nothing of windows across the change.
                if self.now == 0 {
                    self.client = Some(self.line.restart(id));
                }
                tally.redeclared += 1;
            } else {
                self.now = 1 - self.now;
            }
        }
        self.make_room(shielded);
        self.line.settle();
    }

    fn read(&mut self) {
        while let (Some(id), Some(&(sent, read))) = (self.client, self.unread.front())
            && read <= self.line.now
        {
            self.unread.pop_front();
            let came = if self.dice.within(0, 1) == 0 { sent } else { self.line.now };
            self.line.read(id, (sent, came));
        }
    }

    fn go(&mut self, ticks: u64, trouble: bool, shielded: bool, tally: &mut Tally) {
        let late = u64::from(self.system.small.late);
        let (flood, eager, rate) = (self.dice.within(0, 3), self.dice.within(2, 9), self.dice.within(10, 60));
        let wild = trouble && self.dice.within(0, 1) == 0;
        let from = self.line.now;
        for tick in from..from + ticks {
            self.line.advance_to(tick);
            let stage = self.dice.within(0, self.system.small.stages.len() as u64 - 1) as usize;
            let worker = self.dice.within(0, self.system.small.stages[stage].workers as u64 - 1) as usize;
            match self.dice.within(0, rate) {
                0 if trouble && self.line.scheduler.is_alive(stage, worker) => {
                    tally.losses += 1;
                    self.line.lose(stage, worker);
                }
                1..=6 => self.line.ready(stage, worker),
                _ => {}
            }
            if self.quiet || self.dice.within(0, 40) == 0 {
                self.quiet = true;
                self.line.scheduler.set_quiet(true);
                self.line.settle();
                self.take_over(trouble, shielded, tally);
            }
            (0..self.dice.within(0, flood)).for_each(|_| _ = self.line.arrive(self.stranger));
            match (self.client, self.dice.within(0, 60)) {
                (Some(id), 0) => {
                    self.line.remove(id);
                    self.client = None;
                }
                (Some(id), 1) => self.client = Some(self.line.restart(id)),
                (Some(id), 2) if wild && self.unread.is_empty() => {
                    tally.excesses += 1;
                    (0..self.dice.within(1, 3)).for_each(|_| _ = self.line.arrive(id));
                }
                // What is to run over already is more than may be left beside it.
                (None, ..=20) if trouble || self.line.planned() == 0 => {
                    self.unread.clear();
                    self.client = self.line.try_add(&spec(&self.system.streams[self.now]));
                    if self.client.is_some() {
                        tally.came += 1;
                        self.bursts = Bursts::of(&self.system.streams[self.now]);
                        if shielded {
                            self.line.raise_shield();
                        }
                    }
                }
                _ => {}
            }
            if self.client.is_some() {
                for _ in 0..self.bursts.next(tick, &mut self.dice, eager) {
                    let last = self.unread.back().map_or(0, |&(_, read)| read);
                    self.unread.push_back((tick, last.max(tick + self.dice.within(0, late))));
                }
            }
            self.read();
        }
    }
}

/// When safe mode was told of in such words.
fn told(line: &Line, which: impl Fn(&Transition) -> bool) -> Vec<u64> {
    let of = |(at, event): &(u64, Event)| match event {
        Event::SafeMode(told) if which(told) => Some(*at),
        _ => None,
    };
    line.events.iter().filter_map(of).collect()
}

fn play(seed: u64, tally: &mut Tally) {
    let mut dice = Dice(seed);
    let Some(system) = System::draw(seed, &mut dice) else { return };
    tally.runs += 1;
    let (stalls, wrong) = (system.stalls, format!("seed {seed}, {:?}", system.config));
    let mut play = Play::new(system, seed);
    harshly(&mut play.line, seed);
    let shielded = seed.is_multiple_of(5);
    if shielded {
        play.line.longer = Some(Box::new(|_, longest| longest));
    }
    // What runs over while there is trouble, and then within the margin, unless that may be taken for a stall or longer batches take it.
    let (trouble, mut own, often) = (Rc::new(Cell::new(true)), Dice(seed ^ 5), dice.within(1, 20));
    let (mut base, troubled, mut worst) = (
        std::mem::replace(&mut play.line.time, Box::new(|_, bound| bound)),
        Rc::clone(&trouble),
        Dice(seed ^ 8),
    );
    play.line.time = Box::new(move |stage, bound| match troubled.get() && worst.within(0, 12) == 0 {
        true => bound + worst.within(1, 25),
        false => base(stage, bound),
    });
    let (troubled, none) = (Rc::clone(&trouble), stalls.is_some() || shielded);
    play.line.over = Some(Box::new(move |left| match troubled.get() || none {
        true => 0,
        false if own.within(0, often) == 0 => own.within(0, left),
        false => 0,
    }));
    let mut window = 0;
    if let Some(stalls) = stalls {
        window = stalls.window().as_nanos();
        let (length, count) = (stalls.length().as_nanos(), stalls.count() as usize);
        // So far apart that no batch can have lost its time in either.
        let apart = 2 * (length + play.system.config.deadline.as_nanos());
        let mut ends: Vec<u64> = vec![apart + dice.within(0, 50)];
        while ends.last().is_some_and(|&last| last < 4_000 + 2 * window) {
            let soonest = ends.len().checked_sub(count).map_or(0, |i| ends[i] + window + length);
            let next = ends.last().map_or(0, |last| last + length + apart).max(soonest);
            ends.push(next + dice.within(0, 9));
        }
        play.line.stalls = ends.iter().map(|&end| (end - length, end)).collect();
        let mut own = Dice(seed ^ 21);
        play.line.spared = Box::new(move |_| own.within(0, 3) == 0);
    }
    play.make_room(false);
    play.client = play.line.try_add(&spec(&play.system.streams[0]));
    assert!(play.client.is_some(), "nothing is in its way");
    if shielded {
        play.line.raise_shield();
    }
    play.go(300, true, shielded, tally);
    trouble.set(false);
    for stage in 0..play.system.small.stages.len() {
        (0..play.system.small.stages[stage].workers).for_each(|worker| play.line.ready(stage, worker));
    }
    play.line.scheduler.set_quiet(false);
    play.line.settle();
    play.unread.clear();
    play.line.drain();
    while let Some(next) = play.line.next_event() {
        assert!(next < 2_000, "it does not end: {wrong}");
        play.line.advance_to(next);
    }
    let first = play.line.scheduler.first();
    assert_eq!((first.safe_mode().severity(), first.suspensions().1), (Severity::Normal, 0), "{wrong}");
    // A cause that is more than an outcome, and the end of safe mode.
    let broken = |cause| cause != Cause::ConstraintViolated;
    let safe = told(&play.line, |told| told.breach().is_some_and(broken));
    let over = told(&play.line, |told| !told.state.is_suspended());
    for source in play.line.missed() {
        let (at, _) = source.ended.expect("ended");
        let began = safe.iter().filter(|&&began| began <= at).max();
        let ended = over.iter().filter(|&&ended| ended < source.came).max();
        assert!(began.is_some() && began >= ended, "{source:?} {safe:?} {over:?} {wrong}");
        tally.missed += 1;
    }
    // What ran over may have been taken for a stall.
    play.line.advance_to(play.line.now + 200 + 2 * window);
    let (missed, causes) = (play.line.missed().len(), play.line.causes.len());
    play.client = play.client.map(|id| play.line.restart(id));
    play.bursts = Bursts::of(&play.system.streams[play.now]);
    play.go(300, false, shielded, tally);
    play.line.drain();
    assert!(play.line.missed().len() == missed, "{:?} {wrong}", play.line.missed().last());
    assert_eq!(play.line.causes[causes..], [], "{wrong} {:?}", play.line.stalls);
    tally.stalled += play.line.stalled;
    tally.overran += play.line.overran;
    tally.longs += play.line.longs;
}

#[test]
fn what_is_lost_is_announced_and_then_all_is_as_if_nothing_had_been() {
    let mut tally = Tally::default();
    for seed in 0..instances(200) as u64 {
        play(seed, &mut tally);
    }
    println!("{tally:?}");
    let Tally {
        runs,
        missed,
        losses,
        stalled,
        overran,
        takeovers,
        incomplete,
        redeclared,
        excesses,
        longs,
        came,
    } = tally;
    let many = [missed, losses, stalled, overran, takeovers, redeclared, longs, came];
    assert!(many.iter().all(|&count| count > 2 * runs) && incomplete > runs / 2 && excesses > runs / 2);
}
