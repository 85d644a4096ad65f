//! When the last of so many sources is answered as a whole, at the latest: `f` of Theorem P2, a table a stage.

use alloc::vec::Vec;

use super::{Leg, Pipeline, Stage};
use crate::growth::lcm;
use crate::time::Span;

/// The most entries of all tables together, each counted as often as something is looked at for it. The checker of certificates
/// looks at four times as many, for it goes further where it rounds up what comes.
const MAX_ENTRIES: u64 = 1 << 22;

/// `f_i(Y)` of every stage, for as many as have been asked for.
///
/// In a tree requests are counted. `A_i` rises once in a round of `n·B` requests, so of all `X` of a round the first says most, and
///
/// ```text
/// f(Y) = max( A(1) + h(Y) ,  P + f(Y - n·B) if Y > n·B ) ,     h(Y) = max over children of f_c(F_c·Y) .
/// ```
///
/// With merges or joins sources are counted, each of which is `M_i` requests. `q` of them, as few as can be, are whole rounds,
/// and of the first `q` those `X` say most at which `A_i` rises:
///
/// ```text
/// f(N) = max( A(M·X) + h(N - X + 1) for those X ,  A(M·q) - A(0) + f(N - q) if N > q ) ,     h(N) = max of f_c(N) .
/// ```
pub(super) struct Tables<'a> {
    pipeline: &'a Pipeline,
    descendants: &'a [u64],
    kinds: Vec<Kind>,
    /// Of each stage `f(1)`, `f(2)`, …
    ends: Vec<Vec<u64>>,
}

/// What is counted at a stage.
struct Kind {
    children: Vec<usize>,
    /// How many requests each is, and how many a source is, at most.
    requests: u64,
    of_source: u64,
    /// How many of these one at a parent becomes.
    fan_out: u64,
    /// So many take a whole number of rounds, and how long.
    round: u64,
    time: u64,
    /// The first of those at which one round more begins.
    steps: Vec<u64>,
}

impl Kind {
    fn new(pipeline: &Pipeline, i: usize, descendants: u64) -> Self {
        let stage = &pipeline.stages[i];
        let (requests, of_source, fan_out) =
            if pipeline.is_tree() { (1, descendants, stage.fan_out.into()) } else { (descendants, 1, 1) };
        let rounds = |items: u64| (requests * items).div_ceil(round(stage));
        // Of numbers this small there is one.
        let whole = lcm(requests, round(stage)).unwrap_or(requests) / requests;
        Self {
            children: (0..pipeline.stages.len()).filter(|&c| pipeline.stages[c].parents.has(i)).collect(),
            requests,
            of_source,
            fan_out,
            round: whole,
            time: stage.time.as_nanos().saturating_mul(rounds(whole)),
            steps: (1..=whole).filter(|&items| rounds(items) > rounds(items - 1)).collect(),
        }
    }
}

impl<'a> Tables<'a> {
    pub(super) fn new(pipeline: &'a Pipeline, descendants: &'a [u64]) -> Self {
        let kinds = descendants.iter().enumerate().map(|(i, &most)| Kind::new(pipeline, i, most)).collect();
        Self { pipeline, descendants, kinds, ends: alloc::vec![Vec::new(); descendants.len()] }
    }

    /// Whether so many sources take no more entries than there may be.
    pub(super) fn have_room(&self, sources: u64) -> bool {
        let of = |kind: &Kind| kind.of_source * kind.steps.len() as u64;
        let entries =
            self.kinds.iter().try_fold(0, |all: u64, kind| all.checked_add(of(kind).checked_mul(sources)?));
        entries.is_some_and(|entries| entries <= MAX_ENTRIES)
    }

    /// `f_0(sources)`; `None` if that would take too many entries.
    pub(super) fn end(&mut self, sources: u64) -> Option<u64> {
        if !self.have_room(sources) {
            return None;
        }
        for i in (0..self.ends.len()).rev() {
            for items in self.ends[i].len() as u64 + 1..=self.kinds[i].of_source * sources {
                let kind = &self.kinds[i];
                let first = kind.steps.iter().take_while(|&&x| x <= items);
                let first = first.map(|&x| self.served(i, x).saturating_add(self.below(i, items - x + 1)));
                let later = items.checked_sub(kind.round).filter(|&before| before > 0);
                let later = later.map(|before| self.at(i, before).saturating_add(kind.time));
                let end = first.chain(later).max().unwrap_or(0);
                self.ends[i].push(end);
            }
        }
        Some(if sources == 0 { 0 } else { self.at(0, sources) })
    }

    /// `A_i(M_i·sources)`.
    pub(super) fn alone(&self, i: usize, sources: u64) -> u64 {
        if sources == 0 { 0 } else { self.time(i, self.descendants[i] * sources) }
    }

    /// How `f_0(sources)`, which has been asked for, comes about.
    pub(super) fn path(&self, sources: u64) -> Vec<Leg> {
        let (mut path, mut here, mut left) = (Vec::new(), 0, sources);
        loop {
            let kind = &self.kinds[here];
            let mut waited = 0;
            // Later rounds, as long as they say as much.
            while left > kind.round && self.at(here, left) == self.at(here, left - kind.round) + kind.time {
                (waited, left) = (waited + kind.round, left - kind.round);
            }
            let end = |&x: &u64| self.served(here, x).saturating_add(self.below(here, left - x + 1));
            let first =
                kind.steps.iter().copied().filter(|&x| x <= left).find(|x| end(x) == self.at(here, left));
            let first = first.unwrap_or(left);
            let next = kind.children.iter().copied().max_by_key(|&c| self.child(c, left - first + 1));
            let items = waited + if next.is_none() { left } else { first };
            let time = Span::from_nanos(self.served(here, items));
            path.push(Leg { stage: here, requests: kind.requests * items, time });
            let Some(child) = next else { return path };
            (here, left) = (child, (left - first + 1) * self.kinds[child].fan_out);
        }
    }

    /// `A` of so many of what is counted.
    fn served(&self, i: usize, items: u64) -> u64 {
        self.time(i, self.kinds[i].requests * items)
    }

    /// `A(requests)`.
    fn time(&self, i: usize, requests: u64) -> u64 {
        let stage = &self.pipeline.stages[i];
        let rounds = requests.div_ceil(round(stage));
        let guard = self.pipeline.guard.as_nanos();
        stage.time.as_nanos().saturating_mul(1 + rounds).saturating_add(guard)
    }

    /// `h_i`.
    fn below(&self, i: usize, items: u64) -> u64 {
        self.kinds[i].children.iter().map(|&c| self.child(c, items)).max().unwrap_or(0)
    }

    /// `f_c` of what so many at its parent become.
    fn child(&self, c: usize, items: u64) -> u64 {
        self.at(c, items * self.kinds[c].fan_out)
    }

    fn at(&self, i: usize, items: u64) -> u64 {
        self.ends[i][items as usize - 1]
    }
}

/// `n·B`.
pub(super) fn round(stage: &Stage) -> u64 {
    (stage.workers * stage.batch) as u64
}
