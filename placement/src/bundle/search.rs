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

use std::collections::{BTreeMap, HashMap};

use super::service::{Branch, EPSILON, Hosting, Multipliers};
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
enum Wanted {
    Best,
    All,
}

/// The search in one branch.
struct Search<'a> {
    hosting: &'a Hosting,
    wanted: Wanted,
    /// What a device of each class is worth beyond its price, and loses where it is not used.
    beyond: Vec<f64>,
    /// What losses are counted from.
    linear: f64,
    /// What a bundle here loses beyond its loss by the formula.
    offset: f64,
    limit: f64,
    nodes: u64,
    end: Until,
    steps: Steps,
    left: Vec<u32>,
    counts: Vec<u32>,
    used: Use,
    /// In order, so that of equally good ones the same is taken always.
    found: BTreeMap<Use, Bundle>,
    /// What was chosen before an event with the same devices, a few of each.
    seen: HashMap<(usize, Use), Vec<Chosen>>,
}

impl Hosting {
    /// The bundle that loses least; not the least for sure if the search was cut off.
    pub(super) fn best(&self, prices: &[f64], counts: &[u32], effort: Effort) -> Found {
        self.search(prices, counts, Wanted::Best, f64::INFINITY, effort)
    }

    /// All that lose at most `limit`, one for each use, those that lose least first.
    pub(super) fn all(&self, prices: &[f64], counts: &[u32], limit: f64, effort: Effort) -> Found {
        let mut found = self.search(prices, counts, Wanted::All, limit, effort);
        found.bundles.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        found
    }

    fn search(&self, prices: &[f64], counts: &[u32], wanted: Wanted, limit: f64, effort: Effort) -> Found {
        let (beyond, linear) = self.bound_within(prices, counts);
        let prices: &[f64] =
            &prices.iter().zip(&beyond).map(|(price, beyond)| price + beyond).collect::<Vec<_>>();
        let (by, bound) = self.bound(&self.whole(), prices);
        let mut search = Search {
            hosting: self,
            wanted,
            beyond,
            linear,
            offset: 0.0,
            limit,
            nodes: effort.nodes,
            end: effort.end,
            steps: Steps::default(),
            left: counts.to_vec(),
            counts: vec![0; self.items.len()],
            used: 0,
            found: BTreeMap::new(),
            seen: HashMap::new(),
        };
        if !self.promised {
            search.run(&self.branch(&[]), prices, by, bound);
            return search.found();
        }
        // What each kind loses at least if one device of it counts; most promising first.
        let cost = |kind: &usize| {
            let of = self.kinds[*kind].iter().map(|&i| self.reduced_cost(i, prices, by));
            of.fold(f64::INFINITY, f64::min).max(0.0)
        };
        let mut kinds: Vec<(f64, usize)> = (0..self.kinds.len()).map(|kind| (cost(&kind), kind)).collect();
        kinds.sort_by(|a, b| a.0.total_cmp(&b.0));
        for &(cost, kind) in &kinds {
            if cost <= search.limit {
                search.run(&self.branch(&[kind]), prices, by, bound);
            }
        }
        for (i, &(cost, kind)) in kinds.iter().enumerate() {
            for &(other_cost, other) in &kinds[i + 1..] {
                if cost + other_cost > search.limit || search.nodes == 0 {
                    break;
                }
                search.run(&self.branch(&[kind, other]), prices, by, bound);
            }
        }
        search.found()
    }
}

impl Search<'_> {
    fn found(self) -> Found {
        let complete = self.nodes > 0;
        Found { linear: self.linear, bundles: self.found.into_values().collect(), complete }
    }

    /// Looks through one branch, whose bundles lose what they do below `bound`.
    fn run(&mut self, branch: &Branch, prices: &[f64], whole: Multipliers, bound: f64) {
        let (by, of_branch) =
            if self.hosting.promised { self.hosting.bound(branch, prices) } else { (whole, bound) };
        self.offset = bound - of_branch;
        if self.offset - SLACK > self.limit {
            return;
        }
        self.seen.clear();
        self.steps = Steps::new(self.hosting, branch, prices, by);
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
        if self.is_dominated(at, &chosen) {
            return;
        }
        let done = chosen.demand <= self.hosting.least();
        let enough = !self.hosting.promised || chosen.quota >= 1.0 - EPSILON;
        if done && enough {
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

    /// Goes on with every number of devices that hold the item of `step`.
    fn host(&mut self, at: usize, step: Step, chosen: &Chosen, done: bool) {
        let for_demand = if done { 0.0 } else { (chosen.demand / step.capacity - EPSILON).ceil().max(1.0) };
        let for_promise = if step.quota > 0.0 { (1.0 / step.quota - EPSILON).ceil() } else { 0.0 };
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
        let idle = self.beyond.iter().zip(&self.left).map(|(beyond, &left)| beyond * f64::from(left));
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
