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
    pub(crate) parent: Option<usize>,
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

/// A request is the rank of its source, oldest first; more than one request of a source may be at a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Since when each request of the stream that its window still counts came.
    recent: Vec<u8>,
    /// Requests so far, modulo the word.
    phase: u8,
    /// The age of each mandatory source that is not answered.
    sources: Vec<u8>,
    waiting: Vec<Vec<u8>>,
    /// What each busy worker has left, and of whom.
    running: Vec<Vec<(u8, Vec<u8>)>>,
    /// The lateness used at each stage since something has waited there.
    used: Vec<u8>,
}

impl Pipeline {
    /// Two or three stages near what their workers can do.
    pub(crate) fn draw(dice: &mut Dice, late: u8) -> Self {
        let mut small = |low: u64, high: u64| dice.within(low, high) as u8;
        loop {
            let count = 2 + small(0, 4) / 4;
            let stages: Vec<_> = (0..count)
                .map(|i| Stage {
                    parent: i.checked_sub(1).map(|last| usize::from(if last == 0 { 0 } else { small(0, 1) })),
                    fan_out: if i == 0 { 1 } else { small(1, 2) },
                    workers: usize::from(1 + small(0, 3) / 3),
                    batch: usize::from(small(1, 2)),
                    time: 1 + small(0, 5) * 2 / 5,
                })
                .collect();
            let k = 1 + small(0, 3) / 3;
            let bounds = vec![Bound::Window { count: 1 + small(0, 5) * 2 / 5, length: small(2, 8) }];
            let stream = Stream { bounds, constraints: vec![(small(0, u64::from(k) - 1), k)] };
            let (served, of) = density(&stream.constraints);
            let come = (arrivals_within(&stream, 720) * u64::from(served)).div_ceil(u64::from(of));
            let mut each: Vec<u64> = Vec::new();
            for stage in &stages {
                each.push(stage.parent.map_or(1, |p| each[p]) * u64::from(stage.fan_out));
            }
            let load = stages.iter().zip(&each).map(|(stage, each)| {
                come * each * u64::from(stage.time) * 100 / (720 * (stage.batch * stage.workers) as u64)
            });
            if (30..=100).contains(&load.max().unwrap_or(0)) {
                return Self { stages, stream, late };
            }
        }
    }

    /// The longest that any source can take; `None` beyond `limit` states.
    pub(crate) fn judge(&self, limit: usize) -> Option<u8> {
        let stages = self.stages.len();
        let first = State {
            waiting: vec![Vec::new(); stages],
            running: vec![Vec::new(); stages],
            used: vec![0; stages],
            ..State::default()
        };
        let (mut open, mut seen, mut longest, mut next) =
            (vec![first.clone()], HashSet::from([first]), 0, Vec::new());
        while let Some(state) = open.pop() {
            self.moves(&state, &mut next);
            for mut state in next.drain(..) {
                longest = longest.max(state.forget_answered());
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

    fn moves(&self, state: &State, next: &mut Vec<State>) {
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
        match idle {
            _ if ended => {}
            None => next.push(self.tick(state)),
            // One stage at a time is late, which is enough to see whether each may be.
            Some(stage) if stage < usize::MAX => {
                let mut late = self.tick(state);
                late.used[stage] += 1;
                next.push(late);
            }
            Some(_) => {}
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
        }
        next.push(state);
    }

    /// A batch of stage `i` has ended: every way in which its results may become requests of the children.
    fn results(&self, i: usize, batch: &[u8], state: State, next: &mut Vec<State>) {
        let children: Vec<_> = (0..self.stages.len()).filter(|&c| self.stages[c].parent == Some(i)).collect();
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
        next.append(&mut all);
    }

    fn tick(&self, state: &State) -> State {
        let Bound::Window { length, .. } = self.stream.bounds[0] else { panic!("a window") };
        let mut state = state.clone();
        state.recent.iter_mut().for_each(|age| *age += 1);
        state.recent.retain(|&age| age < length);
        state.sources.iter_mut().for_each(|age| *age = age.checked_add(1).expect("no source waits for ever"));
        state.running.iter_mut().flatten().for_each(|(left, _)| *left -= 1);
        state
    }
}

impl State {
    /// Takes out the sources of which nothing is left; how old the oldest of them was.
    fn forget_answered(&mut self) -> u8 {
        let mut oldest = 0;
        for rank in (0..self.sources.len() as u8).rev() {
            let running = self.running.iter().flatten().flat_map(|(_, batch)| batch);
            if self.waiting.iter().flatten().chain(running).any(|&r| r == rank) {
                continue;
            }
            oldest = oldest.max(self.sources.remove(usize::from(rank)));
            let running = self.running.iter_mut().flatten().flat_map(|(_, batch)| batch);
            self.waiting.iter_mut().flatten().chain(running).filter(|r| **r > rank).for_each(|r| *r -= 1);
        }
        oldest
    }
}
