//! The branches in which bundles of a service are looked for: by which kinds or which pool its promise is kept.

use std::cmp::Ordering;

use super::search::{Effort, Found, Search, Wanted};
use super::service::{Branch, Hosting, Multipliers};
use super::steps::SLACK;

/// The nodes in which a good bundle is looked for.
const FIRST: u64 = 2_000;
/// Behind a limit of so much comes none.
const MOST: f64 = 1e6;

/// A branch with the multipliers that bound it best, and the bound.
pub(super) type Bounded = (Branch, Multipliers, f64);

/// What losses are counted from at given prices.
pub(super) struct Terms {
    /// Devices of each class.
    pub(super) counts: Vec<u32>,
    /// What a device of each class is worth beyond its price, and loses where it is not used.
    pub(super) beyond: Vec<f64>,
    /// The prices with that.
    pub(super) prices: Vec<f64>,
    /// No bundle is worth more.
    pub(super) linear: f64,
    /// The same at these prices; no branch is worth more.
    pub(super) bound: f64,
    /// Of all that keeps a promise by quotas, and how far below all that is.
    by: Multipliers,
    beneath: f64,
    pools: Vec<Bounded>,
}

impl Hosting<'_> {
    /// The bundle that loses least; not the least for sure if the search was cut off.
    pub(super) fn best(&self, prices: &[f64], counts: &[u32], effort: Effort) -> Found {
        if self.switches {
            return self.best_use(prices, counts, effort);
        }
        self.best_within(&self.terms(prices, counts), FIRST, effort)
    }

    /// The same, if it is not found within the `first` nodes by limits that rise.
    pub(super) fn best_within(&self, terms: &Terms, first: u64, effort: Effort) -> Found {
        let of = |limit: f64, nodes: u64| self.search(terms, Wanted::Best, limit, Effort { nodes, ..effort });
        let nodes = effort.nodes.min(first);
        let mut first = of(f64::INFINITY, nodes);
        if first.complete || effort.nodes <= nodes {
            return first;
        }
        // What is good is soon found, that nothing is better is not: where nothing loses less than a limit that rises, little is looked at.
        let known = first.bundles.first().map_or(f64::INFINITY, |bundle| bundle.loss);
        let mut limit = if known.is_finite() { known / 256.0 } else { 1e-3 };
        loop {
            let found = of(limit.min(known), effort.nodes);
            if !found.complete {
                first.bundles = if found.bundles.is_empty() { first.bundles } else { found.bundles };
                return first;
            }
            first.least = found.least;
            if !found.bundles.is_empty() {
                return found;
            }
            if limit >= known {
                return Found { complete: true, ..first };
            }
            limit = if limit < MOST { 2.0 * limit } else { f64::INFINITY };
        }
    }

    /// All that lose at most `limit`, one for each use, those that lose least first.
    pub(super) fn all(&self, prices: &[f64], counts: &[u32], limit: f64, effort: Effort) -> Found {
        if self.switches {
            return self.uses(prices, counts, Wanted::All, limit, effort);
        }
        self.search_all(&self.terms(prices, counts), limit, effort)
    }

    /// The same by what is chosen item by item.
    pub(super) fn search_all(&self, terms: &Terms, limit: f64, effort: Effort) -> Found {
        let mut found = self.search(terms, Wanted::All, limit, effort);
        found.bundles.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        found
    }

    pub(super) fn terms(&self, prices: &[f64], counts: &[u32]) -> Terms {
        let (beyond, within) = self.bound_within(prices, counts);
        let prices: Vec<f64> = prices.iter().zip(&beyond).map(|(price, beyond)| price + beyond).collect();
        let (by, by_quotas) = self.bound(&self.whole(), &prices);
        let pools: Vec<Bounded> =
            (0..self.pools.len()).map(|pool| self.bounded(self.pool(pool), &prices)).collect();
        // A pool may be worth more than whatever is kept by quotas.
        let bound = pools.iter().map(|(.., bound)| *bound).fold(by_quotas, f64::max);
        let beneath = bound - by_quotas;
        Terms { counts: counts.to_vec(), beyond, prices, linear: within + beneath, bound, by, beneath, pools }
    }

    fn bounded(&self, branch: Branch, prices: &[f64]) -> Bounded {
        let (by, bound) = self.bound(&branch, prices);
        (branch, by, bound)
    }

    fn search(&self, terms: &Terms, wanted: Wanted, limit: f64, effort: Effort) -> Found {
        let mut search = Search::new(self, terms, wanted, limit, effort);
        if !self.promised {
            search.run(&(self.branch(&[]), terms.by, terms.bound));
            return search.found();
        }
        // What each kind loses at least if one device of it counts, and if it keeps the whole promise; most promising first.
        let losses = |kind: usize| {
            let (mut one, mut whole) = (f64::INFINITY, f64::INFINITY);
            for &i in &self.kinds[kind] {
                let quota = self.items[i].quota;
                let loss = self.reduced_cost(i, quota, &terms.prices, terms.by).max(0.0);
                (one, whole) = (one.min(loss), whole.min(loss / quota));
            }
            (terms.beneath + whole, one, kind)
        };
        let mut kinds: Vec<(f64, f64, usize)> = (0..self.kinds.len()).map(losses).collect();
        kinds.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        for &(whole, _, kind) in &kinds {
            if whole - SLACK <= search.limit {
                search.run(&self.bounded(self.branch(&[kind]), &terms.prices));
            }
        }
        // Of two, one keeps the promise for less than both: the first, as they are in order.
        for (i, &(whole, one, kind)) in kinds.iter().enumerate() {
            for &(_, other_one, other) in &kinds[i + 1..] {
                if whole - SLACK > search.limit || search.nodes == 0 {
                    break;
                }
                if terms.beneath + one + other_one - SLACK <= search.limit {
                    search.run(&self.bounded(self.branch(&[kind, other]), &terms.prices));
                }
            }
        }
        search.pooled = true;
        terms.pools.iter().for_each(|pool| search.run(pool));
        search.found()
    }
}
