//! Services that share nothing but the number of devices: an exact decomposition into one bundle of devices for each.
//!
//! A *bundle* is a set of devices that serves all demand of its service and keeps its promise. [`prices`] finds prices of devices at
//! which bundles chosen by themselves bound every plan; at these prices a plan loses what its bundles lose and what its unused devices
//! cost. So the best plan is among the combinations of bundles none of which loses more than it: [`search`] lists them up to
//! a limit, [`combine`] chooses, and the limit is raised until it is above the loss of the best. Whatever the limit, no plan loses less
//! unless it has been listed, which is the bound that is told.

mod combine;
mod prices;
mod search;
mod service;
mod steps;

use std::time::Duration;

use crate::configuration::Configuration;
use crate::until::Until;
use prices::{Prices, UNSERVED};
use search::{Bundle, Effort, Found, of_class};
use service::Hosting;

pub(crate) use service::segments;

/// A service to host.
#[derive(Debug)]
pub(crate) struct Demand<'a> {
    /// Mean requests a second.
    pub(crate) rate: f64,
    /// What a point of accuracy of one request a second is worth.
    pub(crate) worth: f64,
    pub(crate) promised: bool,
    pub(crate) configurations: &'a [Configuration],
}

/// Of each service, how many devices have each of its configurations, and what the plan is worth.
#[derive(Clone, Debug)]
pub(crate) struct Hosted {
    pub(crate) counts: Vec<Vec<u32>>,
    pub(crate) value: f64,
}

/// A plan, and what no plan exceeds.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    /// `None`: none was found.
    pub(crate) plan: Option<Hosted>,
    /// No plan is worth more; below zero if there is none for sure.
    pub(crate) bound: f64,
}

/// The gap at which a plan counts as best, in points.
pub(crate) const GAP: f64 = 1e-6;
/// Nodes of a search for all bundles of a service, at first and at most.
const NODES: (u64, u64) = (20_000, 3_000_000);
/// The part of their price that devices cost where nobody else wants them.
const CHEAP: f64 = 0.02;
/// By how much of what all plans lose the limit is raised before it is looked longer instead.
const LONG: f64 = 4.0;
/// Bundles of a service, and uses of all so far, of which the first plans are made.
const FEW: (usize, usize) = (400, 4_000);

/// The best plan that is found within `time`, or the `first`.
pub(crate) fn solve(demands: &[Demand<'_>], counts: &[u32], first: bool, time: Duration) -> Solved {
    let end = Until::after(time);
    let hostings: Vec<Hosting> =
        demands.iter().map(|d| Hosting::new(d.rate, d.worth, d.promised, d.configurations)).collect();
    // No plan is worth less than if all were answered by the least accurate.
    let least = |d: &Demand<'_>| {
        let accuracy = d.configurations.iter().map(|c| c.base.accuracy).fold(f64::INFINITY, f64::min);
        if accuracy.is_finite() { d.rate * d.worth * accuracy } else { 0.0 }
    };
    let floor = demands.iter().map(least).sum::<f64>() - GAP;
    let prices = prices::find(&hostings, counts, floor, end);
    let mut solved = Solved { plan: None, bound: prices.bound };
    if prices.bound >= floor && prices.least.iter().all(|loss| loss.is_finite()) {
        Round { hostings: &hostings, counts, prices: &prices, floor, first, end }.improve(&mut solved);
    }
    if solved.plan.is_none() && (solved.bound < floor || prices.least.iter().any(|loss| loss.is_infinite())) {
        solved.bound = f64::NEG_INFINITY;
    }
    solved
}

/// The search at given prices.
struct Round<'a> {
    hostings: &'a [Hosting],
    counts: &'a [u32],
    prices: &'a Prices,
    floor: f64,
    first: bool,
    end: Until,
}

impl Round<'_> {
    /// Raises the limit until the best plan is below it, or time is up.
    fn improve(&mut self, solved: &mut Solved) {
        let least: f64 = self.prices.least.iter().sum();
        let mut beyond = 1e-3;
        let (mut best, mut nodes) = (f64::INFINITY, NODES.0);
        loop {
            let limit = (least + beyond).min(best);
            let found: Vec<Found> =
                (0..self.hostings.len()).map(|s| self.list(s, limit - least, nodes)).collect();
            let listed = found.iter().all(|found| found.complete);
            let states = if listed { usize::MAX } else { FEW.1 };
            let of = |found: &Found| found.bundles.len().min(if listed { usize::MAX } else { FEW.0 });
            let bundles: Vec<&[Bundle]> = found.iter().map(|found| &found.bundles[..of(found)]).collect();
            let combined = combine::combine(&bundles, self.counts, &self.prices.of, limit, states);
            let complete = listed && combined.complete;
            if let Some((_, chosen)) = combined.best.filter(|(loss, _)| *loss < best - GAP) {
                let chosen: Vec<Bundle> =
                    chosen.iter().enumerate().map(|(s, &i)| bundles[s][i].clone()).collect();
                let chosen = if complete { chosen } else { self.polished(chosen) };
                if let Some(plan) = self.worth(&chosen) {
                    best = self.prices.total - plan.value;
                    solved.plan = Some(plan);
                }
            }
            if complete {
                let proven = if best <= limit { best } else { limit };
                solved.bound = solved.bound.min(self.prices.total - proven);
            }
            let value = solved.plan.as_ref().map_or(f64::NEG_INFINITY, |plan| plan.value);
            let done =
                solved.bound - value <= GAP || (self.first && best.is_finite()) || solved.bound < self.floor;
            let exhausted = !complete && nodes >= NODES.1;
            if done || exhausted || self.end.is_over() || beyond > UNSERVED {
                return;
            }
            // What was cut off is looked at longer once there is a plan that limits it, or the limit is low.
            if !complete && (best.is_finite() || beyond >= LONG * least.max(GAP)) {
                nodes *= 8;
            } else {
                beyond *= 2.0;
            }
        }
    }

    /// The bundles of service `s` that a plan may use that loses at most `beyond` more than all lose at least.
    fn list(&self, s: usize, beyond: f64, nodes: u64) -> Found {
        let limit = self.prices.least[s] + beyond;
        self.hostings[s].all(&self.prices.of, self.counts, limit, Effort { nodes, end: self.end })
    }

    /// Gives one service after another all that the others leave, as long as a plan gets better by it.
    fn polished(&self, mut chosen: Vec<Bundle>) -> Vec<Bundle> {
        let cheap: Vec<f64> = self.prices.of.iter().map(|price| price * CHEAP).collect();
        let value = |s: usize, bundle: &Bundle| {
            self.hostings[s].value(&self.hostings[s].counts(bundle)).unwrap_or(f64::NEG_INFINITY)
        };
        loop {
            let mut better = false;
            for s in 0..chosen.len() {
                let others = |class: usize| {
                    (0..chosen.len())
                        .filter(|&o| o != s)
                        .map(|o| of_class(chosen[o].used, class))
                        .sum::<u32>()
                };
                let left: Vec<u32> = (0..self.counts.len())
                    .map(|class| self.counts[class].saturating_sub(others(class)))
                    .collect();
                let found = self.hostings[s].best(&cheap, &left, Effort { nodes: NODES.0, end: self.end });
                let Some(bundle) = found.bundles.into_iter().next() else { continue };
                if value(s, &bundle) > value(s, &chosen[s]) + GAP {
                    (chosen[s], better) = (bundle, true);
                }
            }
            if !better || self.end.is_over() {
                return chosen;
            }
        }
    }

    /// The plan of these bundles with what it is worth; `None` if some demand is not served, which no bundle is.
    fn worth(&self, chosen: &[Bundle]) -> Option<Hosted> {
        let counts: Vec<Vec<u32>> =
            self.hostings.iter().zip(chosen).map(|(hosting, bundle)| hosting.counts(bundle)).collect();
        let value = self
            .hostings
            .iter()
            .zip(&counts)
            .map(|(hosting, counts)| hosting.value(counts))
            .sum::<Option<f64>>()?;
        Some(Hosted { counts, value })
    }
}
