//! The same for several services on the same workers: every batch may take any time up to the `P` of its service, whenever
//! no mandatory request waits a free worker may be busy with anything, and ties fall as the adversary likes.

use super::seen::Seen;
use super::state::{List, Queue, Record};
use super::theory::{arrivals_within, density};
use super::{Bound, Stream};
use crate::harness::Dice;

/// Batches of up to `batch` in at most `time`, at most `turn` of them in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) streams: Vec<Stream>,
    pub(crate) batch: usize,
    pub(crate) time: u8,
    /// From arrival to answer.
    pub(crate) deadline: u8,
    pub(crate) turn: u8,
}

impl Service {
    /// That is served one by one.
    pub(crate) fn of(streams: Vec<Stream>, time: u8, deadline: u8) -> Self {
        Self { streams, batch: 1, time, deadline, turn: 1 }
    }
}

/// A small system of one to three services on one or two workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) services: Vec<Service>,
    pub(crate) workers: usize,
    /// The longest of what comes when nothing mandatory waits.
    pub(crate) longest: u8,
    /// By turns, or by the earliest deadline.
    pub(crate) turns: bool,
    /// For so many ticks in all, while something waits, nothing need be started.
    pub(crate) late: u8,
    /// By so much one batch may take longer, between two instants at which nothing waits.
    pub(crate) overrun: u8,
    /// For so many ticks, from an instant at which no mandatory request waits to the next, no worker need get on, and nothing be started.
    pub(crate) stall: u8,
    /// How rare stalls are said to be.
    pub(crate) window: u64,
}

impl Shared {
    /// In which nothing is late, runs over or stands still.
    pub(crate) fn of(services: Vec<Service>, workers: usize, longest: u8, turns: bool) -> Self {
        Self { services, workers, longest, turns, late: 0, overrun: 0, stall: 0, window: 0 }
    }
}

/// One choice of the adversary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// A request of this stream of this service arrives.
    Arrive(usize, usize),
    /// A free worker takes a batch of this service; it takes so long.
    Start(usize, u8),
    /// A free worker is busy with something else.
    Background(u8),
    /// Time goes on by one.
    Tick,
    /// The same, although something should have been started.
    Late,
    /// The same, and these workers, a bit each, stand still.
    Stall(u8),
    /// A free worker takes a batch before those that wait, with so many of this service; it takes so long.
    Ahead(usize, usize, u8),
}

/// Streams of one service at most.
const STREAMS: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) streams: [[Record; STREAMS]; 3],
    /// Time left to the deadlines of the mandatory requests that wait.
    pub(super) waiting: [Queue; 3],
    pub(super) busy: [u8; 2],
    line: List<3>,
    /// Batches that the first of the line has had in this turn.
    used: u8,
    late: u8,
    pub(super) overrun: bool,
    lost: u8,
}

impl Shared {
    /// One to three services near what the workers can do, so that neither answer is a foregone conclusion.
    pub(crate) fn draw(dice: &mut Dice, turns: bool, late: u8) -> Self {
        loop {
            let workers = dice.within(1, 2) as usize;
            let stream = |dice: &mut Dice| {
                let k = 1 + small(dice, 0, 3) / 3;
                let bounds = vec![Bound::Window { count: small(dice, 1, 3), length: small(dice, 2, 10) }];
                Stream { bounds, constraints: vec![(small(dice, 0, u64::from(k) - 1), k)] }
            };
            let service = |dice: &mut Dice| {
                let time = small(dice, 1, 3);
                Service {
                    streams: (0..1 + dice.within(0, 7) / 7).map(|_| stream(dice)).collect(),
                    batch: dice.within(1, 3) as usize,
                    time,
                    deadline: time + late + small(dice, 2, 10),
                    turn: small(dice, 1, 2),
                }
            };
            let services: Vec<_> = (0..2 + dice.within(0, 4) / 4).map(|_| service(dice)).collect();
            let load = |s: &Service| mandatory(s, 240) * u64::from(s.time) * 100 / s.batch as u64;
            let load = services.iter().map(load).sum::<u64>() / (240 * workers as u64);
            let crowd = services.iter().map(|s| mandatory(s, u64::from(s.deadline))).max().unwrap_or(0);
            let longest = services.iter().map(|s| s.time).max().unwrap_or(1);
            if (35..=95).contains(&load)
                && crowd <= 6
                && services.iter().all(|s| s.deadline >= longest + s.time)
            {
                return Self {
                    services,
                    workers,
                    longest,
                    turns,
                    late,
                    overrun: 0,
                    stall: 0,
                    window: rt_core::MAX_SPAN.as_nanos(),
                };
            }
        }
    }

    /// The same with as much longer deadlines as a stall may take.
    pub(crate) fn draw_stalling(dice: &mut Dice, turns: bool, (late, stall): (u8, u8)) -> Self {
        loop {
            let mut shared = Self { stall, ..Self::draw(dice, turns, late) };
            shared.services.iter_mut().for_each(|service| service.deadline += stall);
            // What can wait must fit into a state.
            if shared.services.iter().all(|service| mandatory(service, service.deadline.into()) <= 8) {
                return shared;
            }
        }
    }

    /// Visits every state that can be reached, `limit` at most.
    pub(crate) fn judge(&self, limit: usize) -> Result<usize, Option<Vec<Move>>> {
        self.search(limit, |_| 0)
    }

    /// The same, where batches may go before those that wait as far as `shield` allows, given what they leave waiting.
    pub(super) fn search(
        &self,
        limit: usize,
        mut shield: impl FnMut(&State) -> u8,
    ) -> Result<usize, Option<Vec<Move>>> {
        let mut seen = Seen::<State, Move>::new(Move::Tick);
        let (mut open, mut next) = (vec![0u32], Vec::new());
        while let Some(at) = open.pop() {
            let state = seen.states[at as usize].0;
            self.moves(&state, &mut next);
            self.go_ahead(&state, &mut shield, &mut next);
            for (made, state) in next.drain(..) {
                match state {
                    None => return Err(Some(seen.trace(at, made))),
                    Some(state) => open.extend(seen.insert(state, at, made)),
                }
            }
            if seen.states.len() > limit {
                return Err(None);
            }
        }
        Ok(seen.states.len())
    }

    /// Where each choice leads: nowhere, if a mandatory request misses.
    fn moves(&self, state: &State, next: &mut Vec<(Move, Option<State>)>) {
        let any = state.waiting.iter().any(|queue| queue.len() > 0);
        let free = state.busy[0] == 0;
        if !(any && free) {
            next.push((Move::Tick, self.tick(state)));
        } else if state.late < self.late {
            next.push((Move::Late, self.tick(state).map(|other| State { late: state.late + 1, ..other })));
        }
        if state.lost < self.stall {
            let busy =
                state.busy.iter().enumerate().fold(0, |bits, (w, left)| bits | u8::from(*left > 0) << w);
            for still in (0..4).filter(|still| still & !busy == 0) {
                next.push((Move::Stall(still), self.stalled(state, still)));
            }
        }
        if free && !any {
            for time in 1..=self.longest {
                next.push((Move::Background(time), Some(self.occupied(state, time))));
            }
        }
        if free {
            for s in self.may_be_next(state) {
                self.start(state, s, next);
            }
        }
        for (s, service) in self.services.iter().enumerate() {
            for (k, stream) in service.streams.iter().enumerate() {
                if state.streams[s][k].allows(stream) {
                    next.push((Move::Arrive(s, k), Some(self.arrive(state, s, k))));
                }
            }
        }
    }

    /// Batches that go before others that wait, with any number of the oldest of one service; the shield is asked of what is left.
    fn go_ahead(
        &self,
        state: &State,
        shield: &mut impl FnMut(&State) -> u8,
        next: &mut Vec<(Move, Option<State>)>,
    ) {
        if state.busy[0] > 0 {
            return;
        }
        for (s, service) in self.services.iter().enumerate() {
            let most = state.waiting[s].len().min(service.batch);
            for taken in usize::from(s > 0)..=most {
                let mut left = *state;
                left.waiting[s].drop_front(taken);
                if left.waiting.iter().all(|queue| queue.len() == 0) {
                    continue;
                }
                let longest = shield(&left);
                if longest == 0 {
                    continue;
                }
                let most = longest + if state.overrun { 0 } else { self.overrun };
                let due = if taken > 0 { state.waiting[s].as_slice()[0] } else { most };
                for time in 1..=most.min(due) {
                    let mut other = self.occupied(&left, time);
                    other.overrun |= time > longest;
                    if self.turns && taken > 0 && other.waiting[s].len() == 0 {
                        leave(&mut other, s as u8);
                    }
                    self.look_back(&mut other);
                    next.push((Move::Ahead(s, taken, time), Some(other)));
                }
            }
        }
    }

    /// The services that the rule may serve next.
    fn may_be_next(&self, state: &State) -> Vec<usize> {
        if self.turns {
            return state.line.as_slice().iter().take(1).map(|&s| usize::from(s)).collect();
        }
        let first = |s: &usize| state.waiting[*s].as_slice().first().copied();
        let all = 0..self.services.len();
        let earliest = all.clone().filter_map(|s| first(&s)).min();
        all.filter(|s| first(s).is_some() && first(s) == earliest).collect()
    }

    fn start(&self, state: &State, s: usize, next: &mut Vec<(Move, Option<State>)>) {
        let service = &self.services[s];
        let taken = service.batch.min(state.waiting[s].len());
        let mut other = *state;
        other.waiting[s].drop_front(taken);
        if self.turns {
            other.used += 1;
            let left = other.waiting[s].len() > 0;
            if !left || other.used == service.turn {
                other.used = 0;
                other.line.drop_front(1);
                if left {
                    other.line.push(s as u8);
                }
            }
        }
        let more = if state.overrun { 0 } else { self.overrun };
        for time in 1..=service.time + more {
            // The batch itself may lose all that may yet be lost.
            let late = state.waiting[s].as_slice()[0] < time + self.stall - state.lost;
            let mut other =
                State { overrun: state.overrun || time > service.time, ..self.occupied(&other, time) };
            self.look_back(&mut other);
            next.push((Move::Start(s, time), (!late).then_some(other)));
        }
    }

    fn arrive(&self, state: &State, s: usize, k: usize) -> State {
        let mut other = *state;
        if other.streams[s][k].arrive(&self.services[s].streams[k]) {
            if self.turns && other.waiting[s].len() == 0 {
                other.line.push(s as u8);
            }
            other.waiting[s].push(self.services[s].deadline);
        }
        // Streams of equal declarations are interchangeable.
        if self.services[s].streams.iter().all(|stream| *stream == self.services[s].streams[0]) {
            other.streams[s][..self.services[s].streams.len()].sort_unstable();
        }
        other
    }

    /// Nothing if a request can no longer be answered in time.
    fn tick(&self, state: &State) -> Option<State> {
        let mut other = *state;
        for (s, service) in self.services.iter().enumerate() {
            for (record, stream) in other.streams[s].iter_mut().zip(&service.streams) {
                record.tick(stream);
            }
            other.waiting[s].each(|left| left - 1);
            if other.waiting[s].as_slice().first().is_some_and(|&left| left < service.time) {
                return None;
            }
        }
        other.busy.iter_mut().for_each(|left| *left = left.saturating_sub(1));
        self.look_back(&mut other);
        Some(other)
    }

    /// A tick in which these workers stand still; nothing as for [`Shared::tick`].
    fn stalled(&self, state: &State, still: u8) -> Option<State> {
        let mut other = self.tick(&State { lost: state.lost + 1, ..*state })?;
        for (w, left) in other.busy.iter_mut().enumerate() {
            *left += still >> w & 1;
        }
        other.busy[..self.workers].sort_unstable();
        Some(other)
    }

    /// Where nothing waits and none runs for longer than it should, what was late before counts no more.
    fn look_back(&self, state: &mut State) {
        if state.waiting.iter().all(|queue| queue.len() == 0) {
            (state.late, state.lost) = (0, 0);
            state.overrun &= state.busy.iter().any(|&left| left > self.longest);
        }
    }

    /// The first worker is free, and then busy for `time`.
    fn occupied(&self, state: &State, time: u8) -> State {
        let mut other = *state;
        other.busy[0] = time;
        other.busy[..self.workers].sort_unstable();
        other
    }
}

/// Nothing of this service waits any more: it stands in the line no longer.
fn leave(state: &mut State, service: u8) {
    if state.line.as_slice()[0] == service {
        state.used = 0;
    }
    let line: Vec<u8> = state.line.as_slice().iter().copied().filter(|&s| s != service).collect();
    state.line.drop_front(state.line.len());
    line.into_iter().for_each(|s| state.line.push(s));
}

/// How many mandatory requests of a service may come in such a length.
fn mandatory(service: &Service, length: u64) -> u64 {
    let of = |stream: &Stream| {
        let (served, of) = density(&stream.constraints);
        (arrivals_within(stream, length) * u64::from(served)).div_ceil(u64::from(of))
    };
    service.streams.iter().map(of).sum()
}

fn small(dice: &mut Dice, low: u64, high: u64) -> u8 {
    dice.within(low, high) as u8
}
