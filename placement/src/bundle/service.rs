//! One service among prices: what it may host, and the linear bound on what that is worth.

use super::search::Bundle;
use crate::configuration::{Configuration, serves_no_worse};
use crate::quota::Shape;

/// The least share of a demand or promise that counts.
pub(super) const EPSILON: f64 = 1e-9;

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

    fn reward(&self) -> f64 {
        self.segments.iter().map(|segment| segment.capacity * segment.slope).sum()
    }
}

/// A service and all it may host.
#[derive(Debug)]
pub(super) struct Hosting {
    pub(super) demand: f64,
    pub(super) promised: bool,
    /// Of each configuration.
    pub(super) items: Vec<Item>,
    /// What is worth hosting though it counts for no promise.
    pub(super) helpers: Vec<usize>,
    /// What counts for the promise, by kind.
    pub(super) kinds: Vec<Vec<usize>>,
}

/// What may be hosted together: helpers, and at most two kinds that count for the promise.
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

impl Hosting {
    /// Of a service with `demand`, of which a request a second is worth `worth` for each point.
    pub(super) fn new(demand: f64, worth: f64, promised: bool, configurations: &[Configuration]) -> Self {
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
        Self {
            demand,
            promised,
            items: configurations.iter().map(item).collect(),
            helpers: all.clone().filter(|&i| !all.clone().any(|by| beaten(i, by))).collect(),
            kinds: kinds.into_iter().map(|(_, of)| of).collect(),
        }
    }

    /// Every item, each counted for the promise: what bounds all branches.
    pub(super) fn whole(&self) -> Branch {
        Branch { items: self.items.iter().enumerate().map(|(i, item)| (i, item.quota)).collect() }
    }

    /// The helpers, and `kinds` that count.
    pub(super) fn branch(&self, kinds: &[usize]) -> Branch {
        let counted = || kinds.iter().flat_map(|&kind| self.kinds[kind].iter().copied());
        let mut items: Vec<(usize, f64)> = counted().map(|i| (i, self.items[i].quota)).collect();
        items.extend(self.helpers.iter().filter(|&&i| !counted().any(|other| other == i)).map(|&i| (i, 0.0)));
        Branch { items }
    }

    /// The multipliers that bound best what hosting in `branch` can be worth at these prices of a device, and the bound.
    pub(super) fn bound(&self, branch: &Branch, prices: &[f64]) -> (Multipliers, f64) {
        let request = |promise: f64| {
            let net = |&(i, quota): &(usize, f64)| {
                let item = &self.items[i];
                let cost = prices[item.class] - promise * quota;
                let first = item.segments[0].slope - cost / item.segments[0].capacity;
                first.max((item.reward() - cost) / item.capacity())
            };
            branch.items.iter().map(net).fold(f64::NEG_INFINITY, f64::max)
        };
        let value = |promise: f64| request(promise) * self.demand - promise;
        if !self.promised {
            return (Multipliers { request: request(0.0), promise: 0.0 }, value(0.0));
        }
        let counted = branch.items.iter().filter(|(_, quota)| *quota > 0.0);
        let most =
            counted.map(|&(i, quota)| prices[self.items[i].class] / quota).fold(f64::INFINITY, f64::min);
        let most = if most.is_finite() { most } else { 0.0 };
        // Convex in the multiplier of the promise.
        let (mut low, mut high) = (0.0, most);
        for _ in 0..40 {
            let third = (high - low) / 3.0;
            if value(low + third) <= value(high - third) { high -= third } else { low += third }
        }
        let candidates = [0.0, most, f64::midpoint(low, high)];
        let best = candidates.into_iter().min_by(|&a, &b| value(a).total_cmp(&value(b))).unwrap_or(0.0);
        (Multipliers { request: request(best), promise: best }, value(best))
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

    /// What one device of item `i` loses at least, at these prices and multipliers.
    pub(super) fn reduced_cost(&self, i: usize, prices: &[f64], by: Multipliers) -> f64 {
        let item = &self.items[i];
        let gains =
            item.segments.iter().map(|segment| segment.capacity * (segment.slope - by.request).max(0.0));
        prices[item.class] - by.promise * item.quota - gains.sum::<f64>()
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
