//! The same for a pipeline: how long can a mandatory source take until all that it became is answered?
//!
//! Every batch may take any time up to the `P` of its stage and every result become anything up to `F` requests of each
//! child, and whenever no mandatory request waits at a stage a free worker of it may be busy with anything for up to `P`.

use std::collections::HashSet;

use super::theory::{arrivals_within, density};
use super::{Bound, Stream};
use crate::harness::Dice;

/// A stage with workers of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Those whose results it takes; of a join, when all are done with a source.
    pub(crate) parents: Vec<usize>,
    pub(crate) join: bool,
    /// Of a result of a parent; of a source, if it is a join.
    pub(crate) fan_out: u8,
    pub(crate) workers: usize,
    pub(crate) batch: usize,
    pub(crate) time: u8,
}

/// A small pipeline and its only stream, which has one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pipeline {
    pub(crate) stages: Vec<Stage>,
    pub(crate) stream: Stream,
    /// For so many ticks in all, while something waits at a stage, nothing need be started there.
    pub(crate) late: u8,
}

/// Ticks in which nothing need go on, on whatever workers, and nothing need be started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stalls {
    /// So many in a row at most, or, without a `window`, from one instant at which no mandatory source is unanswered to the next.
    pub(crate) length: u8,
    /// From the end of one row of them to that of the next it is at least as long.
    pub(crate) window: Option<u8>,
}

/// A request is the rank of its source, oldest first; more than one request of a source may be at a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Since when each request of the stream that its window still counts came.
    recent: Vec<u8>,
    /// Requests so far, modulo the word.
    phase: u8,
    /// The age of each mandatory source that is not answered.
    sources: Vec<u8>,
    /// The joins that have taken it, one bit for each stage.
    joined: Vec<u8>,
    waiting: Vec<Vec<u8>>,
    /// What each busy worker has left, and of whom.
    running: Vec<Vec<(u8, Vec<u8>)>>,
    /// The lateness used at each stage since something has waited there.
    used: Vec<u8>,
    /// Ticks lost in this stall, or since no mandatory source was unanswered; and how long ago the last stall ended, up to a window.
    lost: u8,
    ended: u8,
}

impl Pipeline {
    /// Two or three stages near what their workers can do.
    pub(crate) fn draw(dice: &mut Dice, late: u8) -> Self {
        loop {
            let mut small = |low: u64, high: u64| dice.within(low, high) as u8;
            let count = 2 + small(0, 4) / 4;
            let stages: Vec<_> = (0..count)
                .map(|i| Stage {
                    parents: i
                        .checked_sub(1)
                        .map(|last| usize::from(if last == 0 { 0 } else { small(0, 1) }))
                        .into_iter()
                        .collect(),
                    join: false,
                    fan_out: if i == 0 { 1 } else { small(1, 2) },
                    workers: usize::from(1 + small(0, 3) / 3),
                    batch: usize::from(small(1, 2)),
                    time: 1 + small(0, 5) * 2 / 5,
                })
                .collect();
            if let Some(small) = (Self { stages, stream: stream(dice), late }).of_load(30..=100) {
                return small;
            }
        }
    }

    /// Three or four stages, the last of which takes what two others have, or a source when they are done with it.
    pub(crate) fn draw_graph(dice: &mut Dice, late: u8) -> Self {
        loop {
            let mut small = |low: u64, high: u64| dice.within(low, high) as u8;
            let parents: Vec<Vec<usize>> = match small(0, 6) {
                0..3 => vec![vec![], vec![0], vec![0], vec![1, 2]],
                3..6 => vec![vec![], vec![0], vec![0, 1]],
                _ => vec![vec![], vec![0], vec![1]],
            };
            let (last, of) = (parents.len() - 1, parents[parents.len() - 1].len());
            let join = of == 1 || small(0, 1) == 1;
            let stage = |(i, parents)| Stage {
                parents,
                join: join && i == last,
                fan_out: if i == 0 { 1 } else { 1 + small(0, 6) / 6 },
                workers: usize::from(1 + small(0, 5) / 5),
                batch: usize::from(small(1, 2)),
                time: 1 + small(0, 4) / 4,
            };
            let stages = parents.into_iter().enumerate().map(stage).collect();
            let bounds = vec![Bound::Window { count: 1 + small(0, 5) / 5, length: small(3, 9) }];
            let constraints = vec![(0, 1 + small(0, 3) / 3)];
            let stream = Stream { bounds, constraints };
            if let Some(small) = (Self { stages, stream, late }).of_load(20..=100) {
                return small;
            }
        }
    }

    /// How many requests a source becomes at each stage at most.
    pub(crate) fn descendants(&self) -> Vec<u64> {
        let mut each: Vec<u64> = Vec::new();
        for stage in &self.stages {
            let above: u64 = stage.parents.iter().map(|&p| each[p]).sum();
            let above = if stage.join || stage.parents.is_empty() { 1 } else { above };
            each.push(above * u64::from(stage.fan_out));
        }
        each
    }

    pub(crate) fn is_tree(&self) -> bool {
        self.stages.iter().all(|stage| !stage.join && stage.parents.len() < 2)
    }

    /// This one, if its busiest stage has such a load, in hundredths of what it can do.
    fn of_load(self, wanted: std::ops::RangeInclusive<u64>) -> Option<Self> {
        let (served, of) = density(&self.stream.constraints);
        let come = (arrivals_within(&self.stream, 720) * u64::from(served)).div_ceil(u64::from(of));
        let load = self.stages.iter().zip(self.descendants()).map(|(stage, each)| {
            come * each * u64::from(stage.time) * 100 / (720 * (stage.batch * stage.workers) as u64)
        });
        wanted.contains(&load.max().unwrap_or(0)).then_some(self)
    }

    /// The longest that any source can take; `None` beyond `limit` states.
    pub(crate) fn judge(&self, limit: usize) -> Option<u8> {
        self.judge_with(Stalls::default(), limit)
    }

    /// The same where time is lost.
    pub(crate) fn judge_with(&self, stalls: Stalls, limit: usize) -> Option<u8> {
        let stages = self.stages.len();
        let first = State {
            waiting: vec![Vec::new(); stages],
            running: vec![Vec::new(); stages],
            used: vec![0; stages],
            ended: stalls.window.unwrap_or(0),
            ..State::default()
        };
        let (mut open, mut seen, mut longest, mut next) =
            (vec![first.clone()], HashSet::from([first]), 0, Vec::new());
        while let Some(state) = open.pop() {
            self.moves(&state, stalls, &mut next);
            for mut state in next.drain(..) {
                longest = longest.max(state.forget_answered());
                if stalls.window.is_none() && state.sources.is_empty() {
                    state.lost = 0;
                }
                if !seen.contains(&state) {
                    seen.insert(state.clone());
                    open.push(state);
                }
            }
            if seen.len() > limit {
                return None;
            }
        }
        Some(longest)
    }

    fn moves(&self, state: &State, stalls: Stalls, next: &mut Vec<State>) {
        self.arrive(state, next);
        let (mut ended, mut idle) = (false, None);
        for (i, stage) in self.stages.iter().enumerate() {
            for (worker, (left, batch)) in state.running[i].iter().enumerate() {
                if *left == 0 {
                    ended = true;
                    let mut state = state.clone();
                    state.running[i].remove(worker);
                    self.results(i, batch, state, next);
                }
            }
            if state.running[i].len() < stage.workers {
                if !state.waiting[i].is_empty() {
                    idle =
                        Some(i).filter(|_| state.used[i] < self.late && idle.is_none()).or(Some(usize::MAX));
                }
                for time in 1..=stage.time {
                    let mut state = state.clone();
                    let taken = state.waiting[i].len().min(stage.batch);
                    let batch: Vec<u8> = state.waiting[i].drain(..taken).collect();
                    if state.waiting[i].is_empty() {
                        state.used[i] = 0;
                    }
                    state.running[i].push((time, batch));
                    state.running[i].sort_unstable();
                    next.push(state);
                }
            }
        }
        if ended {
            return;
        }
        self.stall(state, stalls, next);
        // A stall that has begun goes on until it may end.
        let Some(before) = state.resumed(stalls) else { return };
        match idle {
            None => next.push(self.tick(&before, stalls)),
            // One stage at a time is late, which is enough to see whether each may be.
            Some(stage) if stage < usize::MAX => {
                let mut late = self.tick(&before, stalls);
                late.used[stage] += 1;
                next.push(late);
            }
            Some(_) => {}
        }
    }

    /// A tick of a stall, if there may be one: every way in which batches get on in it, or do not.
    fn stall(&self, state: &State, stalls: Stalls, next: &mut Vec<State>) {
        let soon =
            stalls.window.is_some_and(|window| state.lost == 0 && state.ended + stalls.length < window);
        if state.lost == stalls.length || soon {
            return;
        }
        let mut ticked = self.tick(state, stalls);
        ticked.lost += 1;
        let busy: Vec<(usize, usize)> = (0..self.stages.len())
            .flat_map(|i| (0..state.running[i].len()).map(move |worker| (i, worker)))
            .collect();
        for still in 0..1 << busy.len() {
            let mut state = ticked.clone();
            for (place, &(i, worker)) in busy.iter().enumerate() {
                state.running[i][worker].0 += (still >> place) & 1;
            }
            state.running.iter_mut().for_each(|running| running.sort_unstable());
            next.push(state);
        }
    }

    fn arrive(&self, state: &State, next: &mut Vec<State>) {
        let Bound::Window { count, .. } = self.stream.bounds[0] else { panic!("a window") };
        if state.recent.len() >= usize::from(count) {
            return;
        }
        let (served, of) = density(&self.stream.constraints);
        let mut state = state.clone();
        let mandatory = (state.phase + 1) * served / of > state.phase * served / of;
        state.phase = (state.phase + 1) % of;
        state.recent.push(0);
        if mandatory {
            state.waiting[0].push(state.sources.len() as u8);
            state.sources.push(0);
            state.joined.push(0);
        }
        next.push(state);
    }

    /// A batch of stage `i` has ended: every way in which its results may become requests of the children.
    fn results(&self, i: usize, batch: &[u8], state: State, next: &mut Vec<State>) {
        let takes = |&c: &usize| self.stages[c].parents.contains(&i) && !self.stages[c].join;
        let children: Vec<_> = (0..self.stages.len()).filter(takes).collect();
        let mut all = vec![state];
        for &rank in batch {
            for &child in &children {
                let more = |state: State| {
                    (0..=self.stages[child].fan_out).map(move |count| {
                        let mut state = state.clone();
                        state.waiting[child].extend(std::iter::repeat_n(rank, usize::from(count)));
                        state.waiting[child].sort_unstable();
                        state
                    })
                };
                all = all.into_iter().flat_map(more).collect();
            }
        }
        while let Some(state) = all.pop() {
            let Some((rank, join)) = self.joins(&state, batch) else {
                next.push(state);
                continue;
            };
            for count in 0..=self.stages[join].fan_out {
                let mut state = state.clone();
                state.joined[usize::from(rank)] |= 1 << join;
                state.waiting[join].extend(std::iter::repeat_n(rank, usize::from(count)));
                state.waiting[join].sort_unstable();
                all.push(state);
            }
        }
    }

    /// One of these sources, and a join that is to take it: everything of it at all its parents is done.
    fn joins(&self, state: &State, batch: &[u8]) -> Option<(u8, usize)> {
        let joins = || (0..self.stages.len()).filter(|&i| self.stages[i].join);
        let all = batch.iter().flat_map(|&rank| joins().map(move |join| (rank, join)));
        all.filter(|&(rank, join)| state.joined[usize::from(rank)] & (1 << join) == 0)
            .find(|&(rank, join)| self.stages[join].parents.iter().all(|&p| self.is_done(state, rank, p)))
    }

    fn is_done(&self, state: &State, rank: u8, i: usize) -> bool {
        let (stage, here) = (&self.stages[i], state.waiting[i].contains(&rank));
        let here = here || state.running[i].iter().any(|(_, batch)| batch.contains(&rank));
        let comes = match stage.join {
            true => state.joined[usize::from(rank)] & (1 << i) == 0,
            false => stage.parents.iter().any(|&p| !self.is_done(state, rank, p)),
        };
        !here && !comes
    }

    fn tick(&self, state: &State, stalls: Stalls) -> State {
        let Bound::Window { length, .. } = self.stream.bounds[0] else { panic!("a window") };
        let mut state = state.clone();
        state.recent.iter_mut().for_each(|age| *age += 1);
        state.recent.retain(|&age| age < length);
        state.sources.iter_mut().for_each(|age| *age = age.checked_add(1).expect("no source waits for ever"));
        state.running.iter_mut().flatten().for_each(|(left, _)| *left -= 1);
        state.ended = (state.ended + 1).min(stalls.window.unwrap_or(0));
        state
    }
}

/// One window, one constraint.
fn stream(dice: &mut Dice) -> Stream {
    let mut small = |low: u64, high: u64| dice.within(low, high) as u8;
    let k = 1 + small(0, 3) / 3;
    let bounds = vec![Bound::Window { count: 1 + small(0, 5) * 2 / 5, length: small(2, 8) }];
    Stream { bounds, constraints: vec![(small(0, u64::from(k) - 1), k)] }
}

impl State {
    /// Where no stall goes on, if that may have ended by now.
    fn resumed(&self, stalls: Stalls) -> Option<Self> {
        match stalls.window {
            Some(window) if self.lost > 0 => {
                (self.ended >= window).then(|| Self { lost: 0, ended: 0, ..self.clone() })
            }
            _ => Some(self.clone()),
        }
    }

    /// Takes out the sources of which nothing is left; how old the oldest of them was.
    fn forget_answered(&mut self) -> u8 {
        let mut oldest = 0;
        for rank in (0..self.sources.len() as u8).rev() {
            let running = self.running.iter().flatten().flat_map(|(_, batch)| batch);
            if self.waiting.iter().flatten().chain(running).any(|&r| r == rank) {
                continue;
            }
            oldest = oldest.max(self.sources.remove(usize::from(rank)));
            self.joined.remove(usize::from(rank));
            let running = self.running.iter_mut().flatten().flat_map(|(_, batch)| batch);
            self.waiting.iter_mut().flatten().chain(running).filter(|r| **r > rank).for_each(|r| *r -= 1);
        }
        oldest
    }
}
