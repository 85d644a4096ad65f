//! The tables that a stage and all below it can have: of each only those that no other one beats everywhere.
//!
//! `f` of Theorem P2 is non-decreasing in the tables of the children, so whatever the stages above are, a table that another is
//! below or equal to everywhere is needed for nothing; nor is one that is too late by itself. Theorem P1 is the same
//! with a single number in place of a table: what the longest way below takes.

use rt_core::Span;

use super::Choices;

/// By which theorem a choice is to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theorem {
    P1,
    P2,
}

/// What a choice for a stage and all below it comes to.
#[derive(Clone, Debug)]
struct Table {
    /// Of all stages; 0 of those that are not below.
    options: Vec<u16>,
    /// Of these stages together.
    workers: usize,
    /// By P2 `f(F·z)` for `z` results of the parent, 1 and up; by P1 the response of the longest way.
    ends: Vec<u64>,
}

/// A search for a choice that answers each of some rises in time.
pub(super) struct Search<'a> {
    choices: &'a Choices,
    descendants: &'a [u64],
    open: &'a [Vec<usize>],
    /// How late a source comes, and how many by then.
    rises: &'a [(u64, u64)],
    deadline: u64,
    /// The fewest workers of all stages that are not below or at this one.
    elsewhere: Vec<usize>,
    left: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        choices: &'a Choices,
        descendants: &'a [u64],
        open: &'a [Vec<usize>],
        rises: &'a [(u64, u64)],
        deadline: Span,
        left: u64,
    ) -> Self {
        let fewest = |(stage, open): (&super::StageChoices, &Vec<usize>)| {
            open.iter().map(|&o| stage.options[o].workers).min().unwrap_or(0)
        };
        let mut below: Vec<usize> = choices.stages.iter().zip(open).map(fewest).collect();
        let all: usize = below.iter().sum();
        for i in (1..below.len()).rev() {
            if let Some(parent) = choices.stages[i].parent {
                below[parent] += below[i];
            }
        }
        let elsewhere = below.into_iter().map(|below| all - below).collect();
        Self { choices, descendants, open, rises, deadline: deadline.as_nanos(), elsewhere, left }
    }

    /// How much more may be looked at; 0 if it was not enough.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The choice that passes with the fewest workers, where these are limited, and then with the most time to spare.
    pub(super) fn run(&mut self, theorem: Theorem) -> Option<Vec<usize>> {
        let stages = &self.choices.stages;
        let costs: Vec<Vec<Vec<u64>>> = (0..stages.len()).map(|i| self.costs(i, theorem)).collect();
        // What the stages above add at least.
        let mut above: Vec<u64> = vec![0; stages.len()];
        for (i, stage) in stages.iter().enumerate().skip(1) {
            let parent = stage.parent.unwrap_or(0);
            let least = costs[parent].iter().map(|cost| cost[0]).min().unwrap_or(0);
            above[i] = above[parent].saturating_add(least);
        }
        let mut found: Vec<Vec<Table>> = stages.iter().map(|_| Vec::new()).collect();
        for i in (0..stages.len()).rev() {
            let children: Vec<_> = (i + 1..stages.len())
                .filter(|&c| stages[c].parent == Some(i))
                .map(|c| core::mem::take(&mut found[c]))
                .collect();
            let below = self.merged(children)?;
            found[i] = self.of_stage(i, theorem, &costs[i], below.as_deref(), above[i])?;
            if found[i].is_empty() {
                return None;
            }
        }
        found[0].pop().map(|best| best.options.into_iter().map(usize::from).collect())
    }

    /// How many results of the parent are looked at.
    fn length(&self, i: usize, theorem: Theorem) -> usize {
        let sources = self.rises.last().map_or(1, |&(_, sources)| sources.max(1));
        let fan_out = u64::from(self.choices.stages[i].fan_out);
        if theorem == Theorem::P1 { 1 } else { (self.descendants[i] / fan_out * sources) as usize }
    }

    /// Of each open option what the stage itself takes: by P2 `A(1)`, by P1 its response.
    fn costs(&self, i: usize, theorem: Theorem) -> Vec<Vec<u64>> {
        let cost = |&o: &usize| {
            let served = |requests| self.served(i, o, requests);
            match theorem {
                Theorem::P2 => vec![served(1)],
                Theorem::P1 => {
                    let response = |&(delta, sources): &(u64, u64)| {
                        served(self.descendants[i] * sources).saturating_sub(delta)
                    };
                    vec![self.rises.iter().map(response).max().unwrap_or(0)]
                }
            }
        };
        self.open[i].iter().map(cost).collect()
    }

    /// `A(requests)`.
    fn served(&self, i: usize, o: usize, requests: u64) -> u64 {
        let option = self.choices.stages[i].options[o];
        let rounds = requests.div_ceil((option.workers * option.batch) as u64);
        option.time.as_nanos().saturating_mul(1 + rounds).saturating_add(self.choices.guard.as_nanos())
    }

    /// How long after its arrival a source is answered at the latest, as far as this stage and those below it say.
    fn latest(&self, i: usize, theorem: Theorem, ends: &[u64]) -> u64 {
        if theorem == Theorem::P1 {
            return ends[0];
        }
        let each = self.descendants[i] / u64::from(self.choices.stages[i].fan_out);
        let late = |&(delta, sources): &(u64, u64)| match sources {
            0 => 0,
            sources => ends[(each * sources) as usize - 1].saturating_sub(delta),
        };
        self.rises.iter().map(late).max().unwrap_or(0)
    }

    /// What the children together can come to; `None` of no children. The outer `None`: too much to look at.
    #[allow(clippy::option_option, reason = "two reasons for there being nothing")]
    fn merged(&mut self, children: Vec<Vec<Table>>) -> Option<Option<Vec<Table>>> {
        let mut merged = None::<Vec<Table>>;
        for child in children {
            let Some(before) = merged.take() else {
                merged = Some(child);
                continue;
            };
            let mut kept = Front::new(self.choices.workers.is_some());
            for a in &before {
                for b in &child {
                    let ends: Vec<u64> = a.ends.iter().zip(&b.ends).map(|(&a, &b)| a.max(b)).collect();
                    self.spend(ends.len() as u64)?;
                    let workers = a.workers + b.workers;
                    let options = || a.options.iter().zip(&b.options).map(|(a, b)| a + b).collect();
                    self.spend(kept.add(ends, workers, options))?;
                }
            }
            merged = Some(kept.tables);
        }
        Some(merged)
    }

    /// What the stage can come to above each of what its children can, of the first stage the best alone; `None` if there is too
    /// much to look at.
    fn of_stage(
        &mut self,
        i: usize,
        theorem: Theorem,
        costs: &[Vec<u64>],
        below: Option<&[Table]>,
        above: u64,
    ) -> Option<Vec<Table>> {
        let nothing = [Table { options: vec![0; self.choices.stages.len()], workers: 0, ends: Vec::new() }];
        let mut kept = Front::new(self.choices.workers.is_some());
        let mut best = (usize::MAX, u64::MAX);
        let length = self.length(i, theorem);
        for under in below.unwrap_or(&nothing) {
            for (cost, &o) in costs.iter().zip(&self.open[i]) {
                let workers = under.workers + self.choices.stages[i].options[o].workers;
                if self.choices.workers.is_some_and(|most| workers + self.elsewhere[i] > most) {
                    continue;
                }
                let ends = match theorem {
                    Theorem::P1 => vec![cost[0].saturating_add(under.ends.first().copied().unwrap_or(0))],
                    Theorem::P2 => self.ends(i, o, &under.ends, length),
                };
                self.spend(under.ends.len().max(length) as u64)?;
                let latest = self.latest(i, theorem, &ends).saturating_add(above);
                if latest > self.deadline {
                    continue;
                }
                let options = || {
                    let mut options = under.options.clone();
                    options[i] = o as u16;
                    options
                };
                if i > 0 {
                    self.spend(kept.add(ends, workers, options))?;
                    continue;
                }
                let rank = (if self.choices.workers.is_some() { workers } else { 0 }, latest);
                if rank < best {
                    best = rank;
                    kept.tables = vec![Table { options: options(), workers, ends }];
                }
            }
        }
        Some(kept.tables)
    }

    /// `f(F·z)` for `z` results of the parent up to `length`. Of all `X` of a round of `n·B` requests the first says most, so
    /// `f(Y) = max( A(1) + h(Y) , P + f(Y - n·B) )`, as in `rt_core::pipeline`; above nothing it is `A`.
    fn ends(&self, i: usize, o: usize, below: &[u64], length: usize) -> Vec<u64> {
        let fan_out = self.choices.stages[i].fan_out as usize;
        if below.is_empty() {
            return (1..=length).map(|z| self.served(i, o, (fan_out * z) as u64)).collect();
        }
        let option = self.choices.stages[i].options[o];
        let (round, time, first) =
            (option.workers * option.batch, option.time.as_nanos(), self.served(i, o, 1));
        let mut all: Vec<u64> = below.iter().map(|&h| first.saturating_add(h)).collect();
        for y in round..all.len() {
            all[y] = all[y].max(all[y - round].saturating_add(time));
        }
        if fan_out == 1 { all } else { all.into_iter().skip(fan_out - 1).step_by(fan_out).collect() }
    }

    fn spend(&mut self, work: u64) -> Option<()> {
        self.left = self.left.saturating_sub(work);
        (self.left > 0).then_some(())
    }
}

/// Tables of which none is as good as another everywhere, with as few workers.
struct Front {
    tables: Vec<Table>,
    count_workers: bool,
}

impl Front {
    fn new(count_workers: bool) -> Self {
        Self { tables: Vec::new(), count_workers }
    }

    /// Keeps it if none that is kept is as good; how much was looked at for that.
    fn add(&mut self, ends: Vec<u64>, workers: usize, options: impl FnOnce() -> Vec<u16>) -> u64 {
        let mut work = 0;
        let mut beats = |a: &[u64], b: &[u64]| match a.iter().zip(b).position(|(a, b)| a > b) {
            Some(at) => {
                work += at as u64 + 1;
                false
            }
            None => {
                work += a.len() as u64;
                true
            }
        };
        let fewer = |a: usize, b: usize| !self.count_workers || a <= b;
        if self.tables.iter().any(|kept| fewer(kept.workers, workers) && beats(&kept.ends, &ends)) {
            return work;
        }
        self.tables.retain(|kept| !(fewer(workers, kept.workers) && beats(&ends, &kept.ends)));
        self.tables.push(Table { options: options(), workers, ends });
        work
    }
}
