//! The tables that a stage and all below it can have: of each only those that no other one beats everywhere.
//!
//! `f` of Theorem P2 is non-decreasing in the tables of the children, so whatever the stages above are, a table that another is
//! below or equal to everywhere is needed for nothing; nor is one that would make a source late even with all else at its
//! best. Theorem P1 is the same with a single number in place of a table: what the longest way from here on takes.

use rt_core::Span;

use super::{Choices, StageChoices};

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
    /// By P2 `f(F·z)` for `z` results of the parent, 1 and up; by P1 the longest way.
    ends: Vec<u64>,
    /// All of these added up: what is beaten everywhere has no less.
    sum: u128,
}

/// What a stage and those below it may take, entry by entry as their tables.
#[derive(Clone, Debug)]
struct Limits {
    /// Above this a source is late even with the stages above at their best.
    most: Vec<u64>,
    /// Up to this none is, even with them at their worst.
    harmless: Vec<u64>,
}

/// A search, in a tree, for a choice that answers each of some rises in time.
pub(super) struct Search<'a> {
    choices: &'a Choices,
    descendants: &'a [u64],
    children: Vec<Vec<usize>>,
    /// How late a source comes, and how many by then.
    rises: &'a [(u64, u64)],
    deadline: u64,
    left: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        choices: &'a Choices,
        descendants: &'a [u64],
        rises: &'a [(u64, u64)],
        deadline: Span,
        left: u64,
    ) -> Self {
        let stages = &choices.stages;
        let of = |i: usize| (i + 1..stages.len()).filter(|&c| stages[c].parents.has(i)).collect();
        let children = (0..stages.len()).map(of).collect();
        Self { choices, descendants, children, rises, deadline: deadline.as_nanos(), left }
    }

    /// How much more may be looked at; 0 if it was not enough.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Of the `open` options of each stage those that pass together with the fewest workers, where these are limited, and then
    /// with the most time to spare. If no more than `kept` tables are kept of a stage, it may be that others would pass, or be
    /// better.
    pub(super) fn run(&mut self, theorem: Theorem, open: &[Vec<usize>], kept: usize) -> Option<Vec<usize>> {
        let (open, limits) = self.sifted(theorem, open.to_vec())?;
        let elsewhere = self.workers_elsewhere(&open);
        let mut found: Vec<Vec<Table>> = open.iter().map(|_| Vec::new()).collect();
        for i in (0..open.len()).rev() {
            let children: Vec<_> = self.children[i].iter().map(|&c| core::mem::take(&mut found[c])).collect();
            let below = self.merged(children, kept)?;
            let mut front = Front::new(self.choices.workers.is_some(), kept);
            for under in &below {
                for &o in &open[i] {
                    let workers = under.workers + self.choices.stages[i].options[o].workers;
                    if self.choices.workers.is_some_and(|most| workers + elsewhere[i] > most) {
                        continue;
                    }
                    let mut ends = self.ends(i, o, theorem, &under.ends)?;
                    if above(&ends, &limits[i].most) {
                        continue;
                    }
                    // What never makes a source late makes no difference.
                    ends.iter_mut().zip(&limits[i].harmless).for_each(|(end, &least)| *end = least.max(*end));
                    let options = || {
                        let mut options = under.options.clone();
                        options[i] = o as u16;
                        options
                    };
                    if i == 0 {
                        front.best(self.latest(theorem, &ends), ends, workers, options);
                    } else {
                        self.spend(front.add(ends, workers, options))?;
                    }
                }
            }
            found[i] = front.tables;
        }
        found[0].pop().map(|best| best.options.into_iter().map(usize::from).collect())
    }

    /// Without the options that would make a source late even with the best of all other stages, and the limits of each stage.
    /// `None` if a stage has no option left.
    fn sifted(
        &mut self,
        theorem: Theorem,
        mut open: Vec<Vec<usize>>,
    ) -> Option<(Vec<Vec<usize>>, Vec<Limits>)> {
        loop {
            let mut least: Vec<Vec<u64>> = vec![Vec::new(); open.len()];
            let mut of_options: Vec<Vec<Vec<u64>>> = vec![Vec::new(); open.len()];
            for i in (0..open.len()).rev() {
                let below =
                    self.children[i].iter().map(|&c| least[c].clone()).reduce(|a, b| each(&a, &b, u64::max));
                let below = below.unwrap_or_default();
                let ends = open[i].iter().map(|&o| self.ends(i, o, theorem, &below));
                of_options[i] = ends.collect::<Option<_>>()?;
                least[i] = of_options[i].iter().cloned().reduce(|a, b| each(&a, &b, u64::min))?;
            }
            let first = self.limits(theorem);
            let mut limits = vec![Limits { most: first.clone(), harmless: first }; open.len()];
            let mut changed = false;
            for i in 0..open.len() {
                let mut ends = of_options[i].iter();
                let before = open[i].len();
                open[i].retain(|_| ends.next().is_some_and(|ends| !above(ends, &limits[i].most)));
                changed |= open[i].len() < before;
                if open[i].is_empty() {
                    return None;
                }
                if self.children[i].is_empty() {
                    continue;
                }
                let under = |o: &usize| {
                    let [most, harmless] = [&limits[i].most, &limits[i].harmless]
                        .map(|limit| self.left_below(i, *o, theorem, limit));
                    Limits { most, harmless }
                };
                let both = |a: Limits, b: Limits| Limits {
                    most: each(&a.most, &b.most, u64::max),
                    harmless: each(&a.harmless, &b.harmless, u64::min),
                };
                let below = open[i].iter().map(under).reduce(both)?;
                self.spend((2 * below.most.len() * open[i].len()) as u64)?;
                for &c in &self.children[i] {
                    limits[c].clone_from(&below);
                }
            }
            if !changed {
                return Some((open, limits));
            }
        }
    }

    /// Of each stage the fewest workers that all stages which are not it or below it need.
    fn workers_elsewhere(&self, open: &[Vec<usize>]) -> Vec<usize> {
        let fewest = |(stage, open): (&StageChoices, &Vec<usize>)| {
            open.iter().map(|&o| stage.options[o].workers).min().unwrap_or(0)
        };
        let mut below: Vec<usize> = self.choices.stages.iter().zip(open).map(fewest).collect();
        let all: usize = below.iter().sum();
        for (i, children) in self.children.iter().enumerate().rev() {
            below[i] += children.iter().map(|&c| below[c]).sum::<usize>();
        }
        below.into_iter().map(|below| all - below).collect()
    }

    /// What the first stage may take: for so many sources no longer than the last of them may.
    fn limits(&self, theorem: Theorem) -> Vec<u64> {
        if theorem == Theorem::P1 {
            return vec![self.deadline];
        }
        let mut limits = Vec::new();
        for &(delta, sources) in self.rises {
            limits.resize(limits.len().max(sources as usize), self.deadline.saturating_add(delta));
        }
        limits
    }

    /// What the children of a stage may take where the stage has this option and may take no more than `limits`.
    fn left_below(&self, i: usize, o: usize, theorem: Theorem, limits: &[u64]) -> Vec<u64> {
        if theorem == Theorem::P1 {
            return vec![limits[0].saturating_sub(self.response(i, o))];
        }
        let (first, round, time) = self.rhythm(i, o);
        let fan_out = self.choices.stages[i].fan_out as usize;
        // What it may take for requests that are no multiple of `F` is what it may take for the next one.
        let mut left: Vec<u64> = limits
            .iter()
            .flat_map(|limit| core::iter::repeat_n(limit.saturating_sub(first), fan_out))
            .collect();
        for y in (0..left.len().saturating_sub(round)).rev() {
            left[y] = left[y].min(left[y + round].saturating_sub(time));
        }
        left
    }

    /// By P2 `f(F·z)` for the `z` results of the parent that are looked at, by P1 the longest way, above what is `below`. `None`
    /// if there is too much to look at.
    ///
    /// Of all `X` of a round of `n·B` requests the first says most, so `f(Y) = max( A(1) + h(Y) , P + f(Y - n·B) )`, as in
    /// `rt_core::pipeline`; above nothing it is `A`.
    fn ends(&mut self, i: usize, o: usize, theorem: Theorem, below: &[u64]) -> Option<Vec<u64>> {
        if theorem == Theorem::P1 {
            return Some(vec![self.response(i, o).saturating_add(below.first().copied().unwrap_or(0))]);
        }
        let fan_out = self.choices.stages[i].fan_out as usize;
        let (first, round, time) = self.rhythm(i, o);
        if below.is_empty() {
            let sources = self.rises.last().map_or(0, |&(_, sources)| sources);
            let length = self.descendants[i] / fan_out as u64 * sources;
            self.spend(length)?;
            return Some((1..=length).map(|z| self.served(i, o, fan_out as u64 * z)).collect());
        }
        self.spend(below.len() as u64)?;
        let mut all: Vec<u64> = below.iter().map(|&h| first.saturating_add(h)).collect();
        for y in round..all.len() {
            all[y] = all[y].max(all[y - round].saturating_add(time));
        }
        Some(if fan_out == 1 { all } else { all.into_iter().skip(fan_out - 1).step_by(fan_out).collect() })
    }

    /// `A(1)`, `n·B` and `P`.
    fn rhythm(&self, i: usize, o: usize) -> (u64, usize, u64) {
        let option = self.choices.stages[i].options[o];
        (self.served(i, o, 1), option.workers * option.batch, option.time.as_nanos())
    }

    /// `A(requests)`.
    fn served(&self, i: usize, o: usize, requests: u64) -> u64 {
        let option = self.choices.stages[i].options[o];
        let rounds = requests.div_ceil((option.workers * option.batch) as u64);
        option.time.as_nanos().saturating_mul(1 + rounds).saturating_add(self.choices.guard.as_nanos())
    }

    /// `R` of Theorem P1, as far as the rises that are looked at say.
    fn response(&self, i: usize, o: usize) -> u64 {
        let late = |&(delta, sources): &(u64, u64)| {
            self.served(i, o, self.descendants[i] * sources).saturating_sub(delta)
        };
        self.rises.iter().map(late).max().unwrap_or(0)
    }

    /// How long after its arrival a source is answered at the latest, by what the first stage comes to.
    fn latest(&self, theorem: Theorem, ends: &[u64]) -> u64 {
        if theorem == Theorem::P1 {
            return ends[0];
        }
        let late = |&(delta, sources): &(u64, u64)| {
            sources.checked_sub(1).map_or(0, |last| ends[last as usize].saturating_sub(delta))
        };
        self.rises.iter().map(late).max().unwrap_or(0)
    }

    /// What the children together can come to; one of nothing if there are none.
    fn merged(&mut self, children: Vec<Vec<Table>>, kept: usize) -> Option<Vec<Table>> {
        let nothing =
            Table { options: vec![0; self.choices.stages.len()], workers: 0, ends: Vec::new(), sum: 0 };
        let mut children = children.into_iter();
        let mut merged = children.next().unwrap_or_else(|| vec![nothing]);
        for child in children {
            let mut front = Front::new(self.choices.workers.is_some(), kept);
            for a in &merged {
                for b in &child {
                    let ends = each(&a.ends, &b.ends, u64::max);
                    self.spend(ends.len() as u64)?;
                    // No stage is below both.
                    let options = || a.options.iter().zip(&b.options).map(|(a, b)| a + b).collect();
                    self.spend(front.add(ends, a.workers + b.workers, options))?;
                }
            }
            merged = front.tables;
        }
        Some(merged)
    }

    fn spend(&mut self, work: u64) -> Option<()> {
        self.left = self.left.saturating_sub(work);
        (self.left > 0).then_some(())
    }
}

fn each(a: &[u64], b: &[u64], of: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    a.iter().zip(b).map(|(&a, &b)| of(a, b)).collect()
}

/// Whether any of `ends` is above its limit.
fn above(ends: &[u64], limits: &[u64]) -> bool {
    ends.iter().zip(limits).any(|(end, limit)| end > limit)
}

/// Tables of which none is as good as another everywhere, with as few workers.
struct Front {
    tables: Vec<Table>,
    count_workers: bool,
    /// The most tables.
    most: usize,
    /// Of the best, if only that is kept: its workers, and when it ends.
    rank: (usize, u64),
}

impl Front {
    fn new(count_workers: bool, most: usize) -> Self {
        Self { tables: Vec::new(), count_workers, most, rank: (usize::MAX, u64::MAX) }
    }

    /// Keeps it if it is the best.
    fn best(&mut self, latest: u64, ends: Vec<u64>, workers: usize, options: impl FnOnce() -> Vec<u16>) {
        let rank = (if self.count_workers { workers } else { 0 }, latest);
        if rank < self.rank {
            self.rank = rank;
            self.tables = vec![Table { options: options(), workers, ends, sum: 0 }];
        }
    }

    /// Keeps it if none that is kept is as good; how much was looked at for that.
    fn add(&mut self, ends: Vec<u64>, workers: usize, options: impl FnOnce() -> Vec<u16>) -> u64 {
        let (mut work, count) = (ends.len() as u64, self.count_workers);
        let mut new =
            Table { sum: ends.iter().map(|&end| u128::from(end)).sum(), options: Vec::new(), workers, ends };
        let mut beats = |a: &Table, b: &Table| {
            work += 1;
            if a.sum > b.sum || (count && a.workers > b.workers) {
                return false;
            }
            let worse = a.ends.iter().zip(&b.ends).rposition(|(a, b)| a > b);
            work += (a.ends.len() - worse.unwrap_or(0)) as u64;
            worse.is_none()
        };
        if let Some(at) = self.tables.iter().position(|kept| beats(kept, &new)) {
            // Perhaps it is better than the next one as well.
            self.tables.swap(at, at / 2);
            return work;
        }
        self.tables.retain(|kept| !beats(&new, kept));
        new.options = options();
        self.tables.push(new);
        if self.tables.len() > self.most
            && let Some(worst) = (0..self.tables.len()).max_by_key(|&i| self.tables[i].sum)
        {
            self.tables.swap_remove(worst);
        }
        work
    }
}
