//! Bundles of one service: which sets of devices are worth nearly the most at given prices, depth first.
//!
//! With multipliers `u` of a request and `π` of the promise, a bundle of `n` devices that serves all demand is worth `u·λ − π` less
//! its *loss*,
//!
//! ```text
//! Σ (price − π·φ)·n + Σ (u − slope)·served + π·(Σ φ·n − 1) ,
//! ```
//!
//! of which each part is zero or more. Configurations are taken in the order in which a filled bundle uses them, so the loss of
//! what is chosen is known, and what is left loses at least what the best of the rest does.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::branches::{Bounded, Terms};
use super::service::{Branch, EPSILON, Hosting};
use super::steps::{Chosen, SLACK, Step, Steps};
use crate::until::Until;

/// How many choices of the same devices are remembered.
const SEEN: usize = 8;

/// Devices of each class, 16 bits each.
pub(super) type Use = u128;

/// A set of devices for one service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bundle {
    /// Of each class.
    pub(super) used: Use,
    /// Below the bound at the prices it was looked for with.
    pub(super) loss: f64,
    /// Item and number, where that is not 0.
    pub(super) counts: Vec<(u16, u16)>,
}

/// The devices of `class` in `used`.
pub(super) fn of_class(used: Use, class: usize) -> u32 {
    (used >> (16 * class)) as u32 & 0xffff
}

/// `count` devices of `class`.
pub(super) fn devices(class: usize, count: u32) -> Use {
    Use::from(count) << (16 * class)
}

/// What a search found.
#[derive(Debug)]
pub(super) struct Found {
    /// No bundle is worth more: what losses are counted from.
    pub(super) linear: f64,
    /// Of each use the bundle that loses least.
    pub(super) bundles: Vec<Bundle>,
    /// None loses less.
    pub(super) least: f64,
    /// Whether no bundle that loses at most the limit is missing, but for others of the same use.
    pub(super) complete: bool,
}

/// How long it may be looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) nodes: u64,
    pub(super) end: Until,
}

/// What is to be found.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Wanted {
    Best,
    All,
}

/// The search in one branch after another.
pub(super) struct Search<'a> {
    hosting: &'a Hosting<'a>,
    terms: &'a Terms,
    wanted: Wanted,
    /// What a bundle here loses beyond its loss by the formula.
    offset: f64,
    /// What was asked for, and what is still looked for.
    within: f64,
    pub(super) limit: f64,
    pub(super) nodes: u64,
    end: Until,
    steps: Steps,
    left: Vec<u32>,
    counts: Vec<u32>,
    used: Use,
    /// In order, so that of equally good ones the same is taken always.
    found: BTreeMap<Use, Bundle>,
    /// What was chosen before an event with the same devices, a few of each.
    seen: FxHashMap<(usize, Use), Vec<Chosen>>,
    /// Whether what counts is a pool: what its devices count for at most is not all that it takes to keep the promise.
    pub(super) pooled: bool,
}

impl<'a> Search<'a> {
    /// For bundles that lose at most `limit`.
    pub(super) fn new(
        hosting: &'a Hosting<'a>,
        terms: &'a Terms,
        wanted: Wanted,
        limit: f64,
        effort: Effort,
    ) -> Self {
        Self {
            hosting,
            terms,
            wanted,
            offset: 0.0,
            within: limit,
            limit,
            nodes: effort.nodes,
            end: effort.end,
            steps: Steps::default(),
            left: terms.counts.clone(),
            counts: vec![0; hosting.items.len()],
            used: 0,
            found: BTreeMap::new(),
            seen: FxHashMap::default(),
            pooled: false,
        }
    }

    pub(super) fn found(self) -> Found {
        let complete = self.nodes > 0;
        let best = self.found.values().map(|bundle| bundle.loss).fold(self.within, f64::min);
        let least = if complete { best.max(0.0) } else { 0.0 };
        Found { linear: self.terms.linear, bundles: self.found.into_values().collect(), least, complete }
    }

    /// Looks through one branch.
    pub(super) fn run(&mut self, (branch, by, bound): &Bounded) {
        let (by, prices) = (*by, &self.terms.prices);
        self.offset = self.terms.bound - bound;
        if self.offset - SLACK > self.limit {
            return;
        }
        self.seen.clear();
        // What loses too much with one device is not looked at.
        let left = self.limit - self.offset + SLACK;
        let worth = |&&(i, quota): &&(usize, f64)| self.hosting.reduced_cost(i, quota, prices, by) <= left;
        let branch = Branch { items: branch.items.iter().filter(worth).copied().collect() };
        self.steps = Steps::new(self.hosting, &branch, prices, by);
        let demand = self.hosting.demand;
        self.descend(0, Chosen { demand, pending: 0.0, quota: 0.0, loss: self.offset });
    }

    fn descend(&mut self, at: usize, chosen: Chosen) {
        // Among those that lose the same the first is as good as any.
        let better = if self.wanted == Wanted::Best { 10.0 * SLACK } else { 0.0 };
        if self.nodes == 0 || self.steps.least_loss(at, &chosen, &self.left) + better > self.limit {
            return;
        }
        self.nodes -= 1;
        if self.nodes.is_multiple_of(4096) && self.end.is_over() {
            self.nodes = 0;
        }
        if !self.pooled && self.is_dominated(at, &chosen) {
            return;
        }
        let done = chosen.demand <= self.hosting.least();
        let enough = !self.hosting.promised || chosen.quota >= 1.0 - EPSILON;
        if done && enough && self.is_kept() {
            self.keep(at, &chosen);
            return;
        }
        let Some(&step) = self.steps.all.get(at) else { return };
        if step.first {
            self.host(at, step, &chosen, done);
        } else {
            let count = f64::from(self.counts[step.item]);
            let served = chosen.demand.min(count * step.capacity);
            let demand = chosen.demand - served;
            let pending = (chosen.pending - count * step.capacity).max(0.0);
            let loss = chosen.loss + step.loss * served + count * step.gain;
            self.descend(at + 1, Chosen { demand, pending, quota: chosen.quota, loss });
        }
    }

    /// Whether the same devices have been chosen before `at` so that whatever is added loses no more; noted if not.
    fn is_dominated(&mut self, at: usize, chosen: &Chosen) -> bool {
        let Some(next) = self.steps.all.get(at) else { return false };
        let promise = self.steps.by.promise;
        let seen = self.seen.entry((at, self.used)).or_default();
        let dominated = seen.iter().any(|before| {
            // What is served here and not there gains at most what the next event does; where nothing is pending, whatever serves is to come.
            let gain = (chosen.demand - before.demand) * next.loss;
            before.demand <= chosen.demand
                && before.quota >= chosen.quota
                && before.pending.max(chosen.pending) == 0.0
                && before.loss + promise * before.quota <= chosen.loss + promise * chosen.quota + gain
        });
        if !dominated && seen.len() < SEEN {
            seen.push(*chosen);
        }
        dominated
    }

    /// Whether what is hosted keeps the promise, if it counts for enough.
    fn is_kept(&self) -> bool {
        match self.hosting.pooled.filter(|_| self.pooled) {
            Some(keeping) => keeping.rule(&self.counts).is_some(),
            None => true,
        }
    }

    /// Goes on with every number of devices that hold the item of `step`.
    fn host(&mut self, at: usize, step: Step, chosen: &Chosen, done: bool) {
        let for_demand = if done { 0.0 } else { (chosen.demand / step.capacity - EPSILON).ceil().max(1.0) };
        let for_promise = match step.quota {
            0.0 => 0.0,
            _ if self.pooled => f64::INFINITY,
            quota => (1.0 / quota - EPSILON).ceil(),
        };
        let most = for_demand.max(for_promise).min(f64::from(self.left[step.class])) as u32;
        // What loses next to nothing is tried first with many, so that a good bundle is found early.
        let many_first = step.capacity * step.loss + step.cost <= 1e-6;
        for i in 0..=most {
            let count = if many_first { most - i } else { i };
            let n = f64::from(count);
            let served = chosen.demand.min(n * step.capacity);
            let next = Chosen {
                demand: chosen.demand - served,
                pending: chosen.pending + n * step.more,
                quota: chosen.quota + n * step.quota,
                loss: chosen.loss + step.loss * served + n * step.cost,
            };
            if next.loss - SLACK > self.limit {
                // Each further device loses at least as much as the one before.
                if many_first {
                    continue;
                }
                break;
            }
            self.left[step.class] -= count;
            self.used += devices(step.class, count);
            self.counts[step.item] = count;
            self.descend(at + 1, next);
            self.counts[step.item] = 0;
            self.used -= devices(step.class, count);
            self.left[step.class] += count;
        }
    }

    /// Notes what is chosen, unless another bundle of the same use loses less.
    fn keep(&mut self, at: usize, chosen: &Chosen) {
        // Second segments that are still to come serve nothing more.
        let to_come = self.steps.all[at..].iter().filter(|step| !step.first && step.gain > 0.0);
        let gains: f64 = to_come.map(|step| f64::from(self.counts[step.item]) * step.gain).sum();
        let beyond = if self.hosting.promised { self.steps.by.promise * (chosen.quota - 1.0) } else { 0.0 };
        let idle = self.terms.beyond.iter().zip(&self.left).map(|(beyond, &left)| beyond * f64::from(left));
        let loss = chosen.loss + gains + beyond + idle.sum::<f64>();
        if loss > self.limit || self.found.get(&self.used).is_some_and(|known| known.loss <= loss) {
            return;
        }
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let counts = counts.map(|(item, &count)| (item as u16, count as u16)).collect();
        if self.wanted == Wanted::Best {
            self.limit = loss;
            self.found.clear();
        }
        self.found.insert(self.used, Bundle { used: self.used, loss, counts });
    }
}
