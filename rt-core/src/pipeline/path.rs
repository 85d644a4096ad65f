//! When the last of so many sources is answered as a whole, at the latest: `f` of Theorem P2, a table a stage.

use alloc::vec::Vec;

use super::{Leg, Pipeline, Stage};
use crate::time::Span;

/// The most entries of all tables together.
const MAX_ENTRIES: u64 = 1 << 22;

/// `f_i(Y)` of every stage, for as many requests as have been asked for.
///
/// `A_i` rises once in a round of `n·B` requests, so of all `X` of a round the first says most, and
///
/// ```text
/// f(Y) = max( A(1) + h(Y) ,  P + f(Y - n·B) if Y > n·B ) ,     h(Y) = max over children of f_c(F_c·Y) .
/// ```
pub(super) struct Tables<'a> {
    pipeline: &'a Pipeline,
    descendants: &'a [u64],
    children: Vec<Vec<usize>>,
    /// Of each stage `f(1)`, `f(2)`, …
    ends: Vec<Vec<u64>>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(pipeline: &'a Pipeline, descendants: &'a [u64]) -> Self {
        let stages = pipeline.stages.len();
        let of = |i: usize| (0..stages).filter(|&c| pipeline.stages[c].parent == Some(i)).collect();
        let children = (0..stages).map(of).collect();
        Self { pipeline, descendants, children, ends: alloc::vec![Vec::new(); stages] }
    }

    /// `f_0(sources)`; `None` if that would take too many entries.
    pub(super) fn end(&mut self, sources: u64) -> Option<u64> {
        let entries =
            self.descendants.iter().try_fold(0, |all: u64, m| all.checked_add(m.checked_mul(sources)?));
        entries.filter(|&entries| entries <= MAX_ENTRIES)?;
        for i in (0..self.ends.len()).rev() {
            let (most, stage) = (self.descendants[i] * sources, &self.pipeline.stages[i]);
            for requests in self.ends[i].len() as u64 + 1..=most {
                let first = self.served(stage, 1).saturating_add(self.below(i, requests));
                let later = requests.checked_sub(round(stage)).filter(|&before| before > 0);
                let later =
                    later.map_or(0, |before| self.at(i, before).saturating_add(stage.time.as_nanos()));
                self.ends[i].push(first.max(later));
            }
        }
        Some(if sources == 0 { 0 } else { self.at(0, sources) })
    }

    /// `A_i(M_i·sources)`.
    pub(super) fn alone(&self, i: usize, sources: u64) -> u64 {
        if sources == 0 { 0 } else { self.served(&self.pipeline.stages[i], self.descendants[i] * sources) }
    }

    /// How `f_0(sources)`, which has been asked for, comes about.
    pub(super) fn path(&self, sources: u64) -> Vec<Leg> {
        let (mut path, mut here, mut left) = (Vec::new(), 0, sources);
        loop {
            let stage = &self.pipeline.stages[here];
            let mut waited = 1;
            // Later rounds, as long as they say as much.
            while left > round(stage)
                && self.at(here, left) == self.at(here, left - round(stage)) + stage.time.as_nanos()
            {
                (waited, left) = (waited + round(stage), left - round(stage));
            }
            let next = self.children[here].iter().copied().max_by_key(|&c| self.child(c, left));
            let requests = if next.is_none() { waited + left - 1 } else { waited };
            path.push(Leg { stage: here, requests, time: Span::from_nanos(self.served(stage, requests)) });
            let Some(child) = next else { return path };
            (here, left) = (child, left * u64::from(self.pipeline.stages[child].fan_out));
        }
    }

    /// `A(requests)`.
    fn served(&self, stage: &Stage, requests: u64) -> u64 {
        let rounds = requests.div_ceil(round(stage));
        let guard = self.pipeline.guard.as_nanos();
        stage.time.as_nanos().saturating_mul(1 + rounds).saturating_add(guard)
    }

    /// `h_i(requests)`.
    fn below(&self, i: usize, requests: u64) -> u64 {
        self.children[i].iter().map(|&c| self.child(c, requests)).max().unwrap_or(0)
    }

    /// `f_c` of what so many results of its parent become.
    fn child(&self, c: usize, results: u64) -> u64 {
        self.at(c, results * u64::from(self.pipeline.stages[c].fan_out))
    }

    fn at(&self, i: usize, requests: u64) -> u64 {
        self.ends[i][requests as usize - 1]
    }
}

/// `n·B`.
pub(super) fn round(stage: &Stage) -> u64 {
    (stage.workers * stage.batch) as u64
}
