//! Bundles of one service by the devices they use: what so many of each class are worth at most, and then what they may hold.
//!
//! With a multiplier `u` of a request, each device of given ones is worth most by itself, but for those that keep the promise: what
//! these lose is least for one or two kinds of them, or for a pool, which [`Cover`](super::cover) knows for whole numbers of devices. The least of
//! that over `u` is close to what can be reached, as devices that may turn to their base serve any demand between two sizes. So few
//! numbers of devices are left to be searched, each for what they hold, and what is known of them holds at all prices.

use super::cover::Kind;
use super::fill::Filling;
use super::search::{Bundle, Effort, Found, Use, Wanted, devices};
use super::service::{EPSILON, Hosting};
use super::steps::SLACK;
use super::tangent::{Tangent, lowest};
use crate::problem::MAX_CLASSES;

/// What is lost at first at most by bundles that are looked for, in points, and behind what limit there are none.
const LIMITS: (f64, f64) = (1e-3, 1e6);
/// Points that all demand counts for which there is no device.
const UNSERVED: f64 = 1e9;
/// The part of a demand that may be missing for rounding.
const ROUNDING: f64 = 1e-6;

/// What is known of so many devices of each class: that they are worth so much at most, or how much they are worth.
#[derive(Clone, Debug)]
pub(super) struct Known {
    most: f64,
    /// What the best that was found is worth.
    worth: f64,
    bundle: Option<Bundle>,
}

/// The devices of a class: so many at most, each of which costs so much if it is used.
#[derive(Clone, Copy)]
struct Slots {
    most: u32,
    price: f64,
}

/// Numbers of devices that are to be looked at.
struct Leaf {
    used: Use,
    counts: Vec<u32>,
    /// They are worth no more, less their price.
    most: f64,
    request: f64,
}

impl Hosting<'_> {
    /// The bundle that loses least; not the least for sure if the search was cut off.
    pub(super) fn best_use(&self, prices: &[f64], counts: &[u32], effort: Effort) -> Found {
        let mut limit = LIMITS.0;
        loop {
            let found = self.uses(prices, counts, Wanted::Best, limit, effort);
            if !found.bundles.is_empty() || !found.complete || limit > LIMITS.1 {
                return found;
            }
            limit *= 8.0;
        }
    }

    /// The bundles that lose at most `limit`, one for each use; or the best of them.
    pub(super) fn uses(
        &self,
        prices: &[f64],
        counts: &[u32],
        wanted: Wanted,
        limit: f64,
        effort: Effort,
    ) -> Found {
        let slots = prices.iter().zip(counts).map(|(&price, &most)| Slots { most, price });
        let mut slots: Vec<Slots> = slots.collect();
        let top = self.lowest(&slots, None, f64::NEG_INFINITY);
        let linear = top.map_or(f64::NEG_INFINITY, |top| top.value);
        let none = Found { linear, bundles: Vec::new(), least: f64::INFINITY, complete: true };
        let Some(top) = top else { return Found { linear: -LIMITS.1, ..none } };
        let mut uses =
            Uses { hosting: self, prices, counts, least: linear - limit, effort, leaves: Vec::new() };
        uses.descend(0, &mut slots, 0.0, top.request);
        if uses.effort.nodes == 0 {
            return Found { least: 0.0, complete: false, ..none };
        }
        let mut leaves = uses.leaves;
        leaves.sort_by(|a, b| b.most.total_cmp(&a.most));
        let (mut bundles, mut complete, mut least, mut within): (Vec<Bundle>, _, _, _) =
            (Vec::new(), true, limit, limit);
        for leaf in leaves {
            if linear - leaf.most > within {
                break;
            }
            let paid: f64 = prices.iter().zip(&leaf.counts).map(|(price, &n)| price * f64::from(n)).sum();
            let enough = linear - within + paid;
            let known = self.known(&leaf, enough, effort);
            complete &= known.most <= enough.max(known.worth);
            least = least.min(linear - (known.most - paid));
            let Some(bundle) = known.bundle else { continue };
            let classes = 0..prices.len();
            let paid: f64 = classes.map(|c| prices[c] * f64::from(super::of_class(bundle.used, c))).sum();
            let loss = linear - (known.worth - paid);
            least = least.min(loss);
            if loss <= within {
                if wanted == Wanted::Best {
                    within = loss;
                    bundles.clear();
                }
                bundles.push(Bundle { loss, ..bundle });
            }
        }
        bundles.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        bundles.dedup_by(|a, b| a.used == b.used);
        let none = bundles.is_empty() && limit > LIMITS.1 && complete;
        Found { linear, bundles, least: if none { f64::INFINITY } else { least.max(0.0) }, complete }
    }

    /// What the devices of `leaf` are worth, if that is `least` or more.
    fn known(&self, leaf: &Leaf, least: f64, effort: Effort) -> Known {
        if let Some(known) = self.seen.borrow().get(&leaf.used)
            && (known.most <= least || known.bundle.is_some() && known.most <= known.worth)
        {
            return known.clone();
        }
        let known = self.search_use(&leaf.counts, leaf.request, least, effort);
        self.seen.borrow_mut().insert(leaf.used, known.clone());
        known
    }

    /// Looks for what `counts` devices hold so that they are worth `least` or more.
    fn search_use(&self, counts: &[u32], request: f64, least: f64, effort: Effort) -> Known {
        let slots: Vec<Slots> = counts.iter().map(|&most| Slots { most, price: 0.0 }).collect();
        let helping = self.helping(&slots, request);
        let worth: f64 = helping.iter().zip(counts).map(|((gain, _), &count)| gain * f64::from(count)).sum();
        let linear = request * self.demand + worth;
        let mut filling = Filling::new(self, counts, least, effort.nodes, effort.end);
        if !self.promised {
            filling.beside(&[], request);
        } else {
            let kinds = self.counting(&slots, &helping, request);
            for (cost, kinds) in self.cover.within(&kinds, linear - least + SLACK) {
                if cost <= linear - filling.enough + SLACK {
                    filling.beside(&kinds, request);
                }
            }
        }
        for pool in &self.pools {
            let items = self.pooling(pool, &helping, request);
            filling.pool(&items, 1.0, linear, request);
        }
        let worth = filling.enough;
        let most = if filling.complete() { worth } else { linear };
        Known { worth, bundle: filling.best, most }
    }

    /// The devices of a pool, what each counts for at most and costs beyond the worth of what it stands for, the cheapest for that first.
    fn pooling(
        &self,
        pool: &[(usize, f64)],
        helping: &[(f64, f64); MAX_CLASSES],
        request: f64,
    ) -> Vec<(usize, f64, f64)> {
        let cost = |&(at, most): &(usize, f64)| {
            let (i, item) = (self.in_pools[at], &self.items[self.in_pools[at]]);
            (i, most, (helping[item.class].0 - item.gains(request).0).max(0.0))
        };
        let mut items: Vec<(usize, f64, f64)> = pool.iter().map(cost).collect();
        items.sort_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)));
        items
    }

    /// The least multiplier of a request: there devices are worth what they serve.
    fn least_request(&self) -> f64 {
        self.slopes.0 - UNSERVED / self.demand.max(1.0)
    }

    /// Between which multipliers of a request the bound is least.
    pub(super) fn requests(&self) -> (f64, f64) {
        (self.least_request(), self.slopes.1)
    }

    /// Whether `counts` devices of each class are enough, but for what is not looked at: false only if they are not.
    pub(super) fn may_do(&self, counts: &[u32]) -> bool {
        let slots: Vec<Slots> = counts.iter().map(|&most| Slots { most, price: 0.0 }).collect();
        let most = self.bound_at(&slots, self.least_request(), f64::NEG_INFINITY);
        most.is_some_and(|most| most.rise <= ROUNDING * self.demand)
    }

    /// What a device of each class is worth that counts for no promise, or costs if it is not used; and what it serves.
    fn helping(&self, slots: &[Slots], request: f64) -> [(f64, f64); MAX_CLASSES] {
        let mut best = [(0.0, 0.0); MAX_CLASSES];
        best.iter_mut().zip(slots).for_each(|(best, slots)| best.0 = slots.price);
        for &i in &self.helpers {
            let (gain, serves) = self.items[i].gains(request);
            let best = &mut best[self.items[i].class];
            if gain > best.0 {
                *best = (gain, serves);
            }
        }
        best
    }

    /// What a device of each kind costs beyond the worth of what it stands for.
    fn counting(&self, slots: &[Slots], helping: &[(f64, f64); MAX_CLASSES], request: f64) -> Vec<Kind> {
        let of = |items: &Vec<usize>| {
            let mut kind = Kind { cost: f64::INFINITY, serves: 0.0, most: 0 };
            let mut classes = 0u32;
            for &i in items {
                let class = self.items[i].class;
                if classes & (1 << class) == 0 {
                    (classes, kind.most) = (classes | 1 << class, kind.most + slots[class].most);
                }
                let (gain, serves) = self.items[i].gains(request);
                let (other, other_serves) = helping[class];
                if slots[class].most > 0 && other - gain < kind.cost {
                    (kind.cost, kind.serves) = (other - gain, serves - other_serves);
                }
            }
            kind
        };
        self.kinds.iter().map(of).collect()
    }

    /// What bounds so many devices with this multiplier, or more if that is below `least`; `None` if they are too few to keep the promise.
    fn bound_at(&self, slots: &[Slots], request: f64, least: f64) -> Option<Tangent> {
        let helping = self.helping(slots, request);
        let (mut value, mut rise) = (request * self.demand, self.demand);
        for (slots, (gain, serves)) in slots.iter().zip(&helping) {
            value += f64::from(slots.most) * (gain - slots.price);
            rise -= f64::from(slots.most) * serves;
        }
        if self.promised && value >= least {
            let by_quotas = self.cover.least(&self.counting(slots, &helping, request));
            let within = by_quotas.map_or(f64::INFINITY, |(cost, _)| cost);
            let (cost, serves) = self.pool_within(slots, &helping, request, within).or(by_quotas)?;
            (value, rise) = (value - cost, rise - serves);
        }
        Some(Tangent { request, value, rise })
    }

    /// What the cheapest pool costs at least that costs less than `within`, and how much more it serves.
    fn pool_within(
        &self,
        slots: &[Slots],
        helping: &[(f64, f64); MAX_CLASSES],
        request: f64,
        mut within: f64,
    ) -> Option<(f64, f64)> {
        let mut found = None;
        let cost = |i: usize| (helping[self.items[i].class].0 - self.items[i].gains(request).0).max(0.0);
        let costs: Vec<f64> = self.in_pools.iter().map(|&i| cost(i)).collect();
        for pool in &self.pools {
            let ratio = |&(at, most): &(usize, f64)| costs[at] / most;
            if !pool.iter().any(|of| ratio(of) < within) {
                continue;
            }
            // Of the cheapest for what they count for as many as there are, whatever else is of their class.
            let mut order: Vec<(f64, usize)> =
                pool.iter().map(ratio).enumerate().map(|(i, ratio)| (ratio, i)).collect();
            order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let (mut missing, mut all, mut serving) = (1.0, 0.0, 0.0);
            for (_, i) in order {
                let (at, most) = pool[i];
                let item = &self.items[self.in_pools[at]];
                let n = f64::from(slots[item.class].most).min(missing / most);
                (missing, all) = (missing - n * most, all + n * costs[at]);
                serving += n * (item.gains(request).1 - helping[item.class].1);
                if missing <= EPSILON || all >= within {
                    break;
                }
            }
            if missing <= EPSILON && all < within {
                (within, found) = (all, Some((all, serving)));
            }
        }
        found
    }

    /// The multiplier that bounds best what so many devices are worth less their price, or one that shows that it is below `least`;
    /// `None` if they cannot keep the promise.
    fn lowest(&self, slots: &[Slots], near: Option<f64>, least: f64) -> Option<Tangent> {
        lowest(self.requests(), near, least, |request| self.bound_at(slots, request, least))
            .map(|lowest| lowest.best)
    }
}

/// All numbers of devices that are worth enough, class by class.
struct Uses<'a> {
    hosting: &'a Hosting<'a>,
    prices: &'a [f64],
    counts: &'a [u32],
    least: f64,
    effort: Effort,
    leaves: Vec<Leaf>,
}

impl Uses<'_> {
    /// Goes on with every number of devices of `class`, where `paid` is the price of those before it.
    fn descend(&mut self, class: usize, slots: &mut Vec<Slots>, paid: f64, near: f64) {
        let Some(&count) = self.counts.get(class) else { return };
        let (before, mut near) = (slots[class], near);
        for most in 0..=count {
            self.effort.nodes = self.effort.nodes.saturating_sub(1);
            if self.effort.nodes.is_multiple_of(256) && self.effort.end.is_over() {
                self.effort.nodes = 0;
            }
            if self.effort.nodes == 0 {
                break;
            }
            slots[class] = Slots { most, price: 0.0 };
            let paid = paid + self.prices[class] * f64::from(most);
            let Some(bound) = self.hosting.lowest(slots, Some(near), self.least + paid) else { continue };
            near = bound.request;
            if bound.value - paid < self.least {
                continue;
            }
            if class + 1 < self.counts.len() {
                self.descend(class + 1, slots, paid, near);
            } else {
                let counts: Vec<u32> = slots.iter().map(|slots| slots.most).collect();
                let used = counts.iter().enumerate().map(|(class, &count)| devices(class, count)).sum();
                self.leaves.push(Leaf { used, counts, most: bound.value - paid, request: bound.request });
            }
        }
        slots[class] = before;
    }
}
