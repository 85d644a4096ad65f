//! One service among prices: what it may host, and the linear bound on what that is worth.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::Demand;
use super::cover::{Cover, undominated};
use super::search::{Bundle, Use};
use super::uses::Known;
use crate::configuration::{Configuration, serves_no_worse};
use crate::promise::Keeping;
use crate::quota::Shape;

/// The least share of a demand or promise that counts.
pub(super) const EPSILON: f64 = 1e-9;
/// The most tangents by which the multiplier of a promise is looked for: any proves a bound.
const TANGENTS: usize = 40;

/// What a device of a configuration serves: so many requests a second, for so many points each. The first is what it serves
/// at its most accurate; the second, what more it serves if it turns to its base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) capacity: f64,
    pub(super) slope: f64,
}

/// A configuration as a column of the program.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) class: usize,
    pub(super) segments: [Segment; 2],
    /// What it counts for the promise.
    pub(super) quota: f64,
}

impl Item {
    pub(super) fn capacity(&self) -> f64 {
        self.segments[0].capacity + self.segments[1].capacity
    }

    /// What a device is worth where a request is worth `request`, and how much it serves for that.
    pub(super) fn gains(&self, request: f64) -> (f64, f64) {
        let [first, second] = &self.segments;
        let of = |segment: &Segment| {
            let gain = segment.slope - request;
            if gain > 0.0 { (gain * segment.capacity, segment.capacity) } else { (0.0, 0.0) }
        };
        let (first, second) = (of(first), of(second));
        (first.0 + second.0, first.1 + second.1)
    }

    fn reward(&self) -> f64 {
        self.segments.iter().map(|segment| segment.capacity * segment.slope).sum()
    }
}

/// A service and all it may host.
#[derive(Debug)]
pub(super) struct Hosting<'a> {
    pub(super) demand: f64,
    pub(super) promised: bool,
    /// What is promised, where one queue may keep it for several kinds too.
    pub(super) pooled: Option<&'a Keeping<'a>>,
    /// Of each configuration.
    pub(super) items: Vec<Item>,
    /// What is worth hosting though it counts for no promise.
    pub(super) helpers: Vec<usize>,
    /// What counts for the promise, by kind.
    pub(super) kinds: Vec<Vec<usize>>,
    /// The items that may be of one queue with others.
    pub(super) in_pools: Vec<usize>,
    /// Which of them may be of the same, and what each counts there at most.
    pub(super) pools: Vec<Vec<(usize, f64)>>,
    /// What a request is worth at least and at most.
    pub(super) slopes: (f64, f64),
    /// What keeps the promise by quotas.
    pub(super) cover: Cover,
    /// Whether a device may turn from one variant to another.
    pub(super) switches: bool,
    pub(super) seen: RefCell<FxHashMap<Use, Known>>,
}

/// What may be hosted together: helpers, and at most two kinds that count for the promise, or a pool.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// Items, and what each counts for the promise here.
    pub(super) items: Vec<(usize, f64)>,
}

/// Multipliers of one service: of its demand and its promise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Multipliers {
    pub(super) request: f64,
    pub(super) promise: f64,
}

/// The bound at one multiplier of the promise, and by how much it grows with that.
#[derive(Clone, Copy)]
struct Tangent {
    by: Multipliers,
    value: f64,
    rise: f64,
}

/// The segments of a configuration, of which each point of accuracy counts `worth`.
pub(crate) fn segments(configuration: &Configuration, worth: f64) -> [(f64, f64); 2] {
    let base = configuration.base;
    match configuration.better {
        None => [(base.peak, base.accuracy * worth), (0.0, 0.0)],
        Some(better) if better.peak >= base.peak => [(better.peak, better.accuracy * worth), (0.0, 0.0)],
        Some(better) => {
            let more = base.peak - better.peak;
            let slope = (base.accuracy * base.peak - better.accuracy * better.peak) / more;
            [(better.peak, better.accuracy * worth), (more, slope * worth)]
        }
    }
}

impl<'a> Hosting<'a> {
    /// Of a service that may have `counts` devices of each class.
    pub(super) fn new(of: &'a Demand<'a>, counts: &[u32]) -> Self {
        let Demand { rate: demand, worth, configurations, .. } = *of;
        let item = |configuration: &Configuration| Item {
            class: configuration.class,
            segments: segments(configuration, worth).map(|(capacity, slope)| Segment { capacity, slope }),
            quota: configuration.quota,
        };
        let mut kinds: Vec<(Shape, Vec<usize>)> = Vec::new();
        for (i, configuration) in configurations.iter().enumerate() {
            let Some(shape) = configuration.shape else { continue };
            match kinds.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, of)) => of.push(i),
                None => kinds.push((shape, vec![i])),
            }
        }
        // Of those that serve each other's requests as well the first.
        let beaten = |i: usize, by: usize| {
            let (a, b) = (&configurations[i], &configurations[by]);
            by != i && serves_no_worse(b, a) && (by < i || !serves_no_worse(a, b))
        };
        let all = 0..configurations.len();
        let stands_for = |a: usize, b: usize| serves_no_worse(&configurations[a], &configurations[b]);
        let mut pools = of.pooled.as_ref().map_or_else(Vec::new, |keeping| keeping.pools(stands_for));
        let mut in_pools: Vec<usize> = pools.iter().flatten().map(|(i, _)| *i).collect();
        in_pools.sort_unstable();
        in_pools.dedup();
        for pool in &mut pools {
            pool.retain(|(_, most)| *most > 0.0);
            pool.iter_mut().for_each(|of| of.0 = in_pools.partition_point(|&i| i < of.0));
        }
        let items: Vec<Item> = configurations.iter().map(item).collect();
        let kinds = undominated(kinds.into_iter().map(|(_, of)| of).collect(), configurations);
        let of_kind = |of: &Vec<usize>| {
            let mut classes: Vec<usize> = of.iter().map(|&i| items[i].class).collect();
            classes.dedup();
            (items[of[0]].quota, classes.iter().map(|&class| counts[class]).sum())
        };
        let slopes =
            || items.iter().flat_map(|item| item.segments).filter(|of| of.capacity > 0.0).map(|of| of.slope);
        Self {
            slopes: (slopes().fold(0.0, f64::min), slopes().fold(0.0, f64::max)),
            cover: Cover::new(kinds.iter().map(of_kind)),
            switches: configurations.iter().any(|of| of.better.is_some()),
            seen: RefCell::default(),
            demand,
            promised: of.promised,
            pooled: of.pooled.as_ref(),
            helpers: all.clone().filter(|&i| !all.clone().any(|by| beaten(i, by))).collect(),
            kinds,
            items,
            in_pools,
            pools,
        }
    }

    /// Every item, each counted for the promise: what bounds all branches.
    pub(super) fn whole(&self) -> Branch {
        Branch { items: self.items.iter().enumerate().map(|(i, item)| (i, item.quota)).collect() }
    }

    /// The helpers, and `kinds` that count.
    pub(super) fn branch(&self, kinds: &[usize]) -> Branch {
        let counted = kinds.iter().flat_map(|&kind| self.kinds[kind].iter().copied());
        self.beside_helpers(counted.map(|i| (i, self.items[i].quota)).collect())
    }

    /// The helpers, and what counts in a pool.
    pub(super) fn pool(&self, pool: usize) -> Branch {
        self.beside_helpers(self.pools[pool].iter().map(|&(at, most)| (self.in_pools[at], most)).collect())
    }

    fn beside_helpers(&self, counted: Vec<(usize, f64)>) -> Branch {
        let helps = |i: &&usize| !counted.iter().any(|(other, _)| other == *i);
        let helpers: Vec<(usize, f64)> = self.helpers.iter().filter(helps).map(|&i| (i, 0.0)).collect();
        Branch { items: [counted, helpers].concat() }
    }

    /// The multipliers that bound best what hosting in `branch` can be worth at these prices of a device, and the bound.
    pub(super) fn bound(&self, branch: &Branch, prices: &[f64]) -> (Multipliers, f64) {
        if !self.promised {
            let tangent = self.tangent(branch, prices, 0.0);
            return (tangent.by, tangent.value);
        }
        let counted = branch.items.iter().filter(|(_, quota)| *quota > 0.0);
        let most =
            counted.map(|&(i, quota)| prices[self.items[i].class] / quota).fold(f64::INFINITY, f64::min);
        // Convex in the multiplier of the promise: the next is where the tangents on both sides meet, until they meet on it.
        let mut low = self.tangent(branch, prices, 0.0);
        let mut high = self.tangent(branch, prices, if most.is_finite() { most } else { 0.0 });
        let mut best = if low.value <= high.value { low } else { high };
        for _ in 0..TANGENTS {
            if low.rise >= 0.0 || high.rise <= 0.0 {
                break;
            }
            let at = |tangent: &Tangent| tangent.value - tangent.rise * tangent.by.promise;
            let promise = (at(&low) - at(&high)) / (high.rise - low.rise);
            if promise <= low.by.promise || promise >= high.by.promise {
                break;
            }
            let next = self.tangent(branch, prices, promise);
            if next.value < best.value {
                best = next;
            }
            if next.value <= at(&low) + low.rise * promise + EPSILON * next.value.abs() {
                break;
            }
            *(if next.rise < 0.0 { &mut low } else { &mut high }) = next;
        }
        (best.by, best.value)
    }

    /// What bounds hosting in `branch` with this multiplier of the promise, and how it grows with that.
    fn tangent(&self, branch: &Branch, prices: &[f64], promise: f64) -> Tangent {
        // Where nothing is demanded any multiplier bounds, and there may be nothing that serves it.
        let mut request = if self.demand > 0.0 { f64::NEG_INFINITY } else { 0.0 };
        let mut per_promise = 0.0;
        for &(i, quota) in &branch.items {
            let item = &self.items[i];
            let cost = prices[item.class] - promise * quota;
            let first = item.segments[0].slope - cost / item.segments[0].capacity;
            let both = (item.reward() - cost) / item.capacity();
            if first > request {
                (request, per_promise) = (first, quota / item.segments[0].capacity);
            }
            if both > request {
                (request, per_promise) = (both, quota / item.capacity());
            }
        }
        Tangent {
            by: Multipliers { request, promise },
            value: request * self.demand - promise,
            rise: per_promise * self.demand - 1.0,
        }
    }

    /// The same of all that may be hosted, if there are `counts` devices of each class: what a further device of each is worth beyond its
    /// price, and the bound. Where a service may have all devices of a class, its price alone says too little.
    pub(super) fn bound_within(&self, prices: &[f64], counts: &[u32]) -> (Vec<f64>, f64) {
        let whole = self.whole();
        let mut beyond = vec![0.0; prices.len()];
        let value = |beyond: &[f64]| {
            let all: Vec<f64> = prices.iter().zip(beyond).map(|(price, beyond)| price + beyond).collect();
            let paid: f64 = beyond.iter().zip(counts).map(|(beyond, &count)| beyond * f64::from(count)).sum();
            self.bound(&whole, &all).1 + paid
        };
        let mut best = value(&beyond);
        for _ in 0..4 {
            let before = best;
            for class in 0..prices.len() {
                let at = |price: f64| {
                    let mut tried = beyond.clone();
                    tried[class] = price;
                    value(&tried)
                };
                let (mut low, mut high) = (0.0, (beyond[class] * 2.0).max(prices[class]).max(1e-3));
                if beyond[class] == 0.0 && at(high * 1e-3) >= best {
                    continue;
                }
                while at(high) < at(high * 0.9) && high < 1e6 {
                    high *= 2.0;
                }
                for _ in 0..30 {
                    let third = (high - low) / 3.0;
                    if at(low + third) <= at(high - third) { high -= third } else { low += third }
                }
                let found = f64::midpoint(low, high);
                let reached = at(found);
                if reached < best {
                    (best, beyond[class]) = (reached, found);
                }
            }
            if before - best <= 1e-6 * best.abs() {
                break;
            }
        }
        (beyond, best)
    }

    /// What one device of item `i` loses at least that counts for so much, at these prices and multipliers.
    pub(super) fn reduced_cost(&self, i: usize, quota: f64, prices: &[f64], by: Multipliers) -> f64 {
        let item = &self.items[i];
        let gains =
            item.segments.iter().map(|segment| segment.capacity * (segment.slope - by.request).max(0.0));
        prices[item.class] - by.promise * quota - gains.sum::<f64>()
    }

    /// So little demand counts as none.
    pub(super) fn least(&self) -> f64 {
        EPSILON * self.demand.max(1.0)
    }

    /// How many devices of each item there are in `bundle`.
    pub(super) fn counts(&self, bundle: &Bundle) -> Vec<u32> {
        let mut counts = vec![0; self.items.len()];
        bundle.counts.iter().for_each(|&(item, count)| counts[usize::from(item)] = u32::from(count));
        counts
    }

    /// What `counts` devices of each item serve at best, in points; `None` if not all.
    pub(super) fn value(&self, counts: &[u32]) -> Option<f64> {
        let mut left = self.demand;
        let mut segments: Vec<(f64, f64)> = Vec::new();
        for (item, &count) in self.items.iter().zip(counts).filter(|(_, count)| **count > 0) {
            segments.extend(
                item.segments.iter().map(|segment| (segment.slope, f64::from(count) * segment.capacity)),
            );
        }
        segments.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut value = 0.0;
        for (slope, capacity) in segments {
            let served = left.min(capacity);
            value += served * slope;
            left -= served;
        }
        (left <= self.least()).then_some(value)
    }
}
