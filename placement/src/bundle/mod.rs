//! Services that share nothing but the number of devices: an exact decomposition into one bundle of devices for each.
//!
//! A *bundle* is a set of devices that serves all demand of its service and keeps its promise. [`prices`] finds prices of devices at
//! which bundles chosen by themselves bound every plan; at these prices a plan loses what its bundles lose and what its unused devices
//! cost. So the best plan is among the combinations of bundles none of which loses more than it: [`search`] lists them up to
//! a limit, [`combine`] chooses, and the limit is raised until it is above the loss of the best. Whatever the limit, no plan loses less
//! unless it has been listed, which is the bound that is told. Where devices may turn from one variant to another, [`uses`] lists them
//! instead, and [`fits`] tells where there is no plan at all.

mod branches;
mod combine;
mod cover;
mod fill;
mod fits;
mod prices;
mod search;
mod service;
mod steps;
mod tangent;
mod uses;

use std::time::Duration;

use crate::configuration::Configuration;
use crate::promise::Keeping;
use crate::until::Until;
use prices::{Prices, UNSERVED};
use search::{Bundle, Effort, Found, devices, of_class};
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
    /// The promise, if pools of several kinds are to be looked at too: of few devices they are soon all seen.
    pub(crate) pooled: Option<Keeping<'a>>,
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
    /// What a device of each class costs, where that was found.
    pub(crate) prices: Vec<f64>,
}

/// The gap at which a plan counts as best, in points.
pub(crate) const GAP: f64 = 1e-6;
/// Nodes of a search for all bundles of a service, at first and at most.
const NODES: (u64, u64) = (20_000, 1_000_000_000);
/// The same where any plan will do.
const HURRIED: u64 = 200_000;
/// What may be lost beyond the least before it is asked whether there is any plan, in points.
const SOON: f64 = 0.1;
/// The part of their price that devices cost where nobody else wants them.
const CHEAP: f64 = 0.02;
/// The part of the time in which a plan without variants beside others is looked for.
const PLAIN: u32 = 4;
/// Bundles of a service, and uses of all so far, of which the first plans are made.
const FEW: (usize, usize) = (400, 4_000);

/// The best plan that is found within `time`, or the `first`; no worse than that of `start`, if one is known.
pub(crate) fn solve(
    demands: &[Demand<'_>],
    counts: &[u32],
    first: bool,
    start: Option<&Solved>,
    time: Duration,
) -> Solved {
    let end = Until::after(time);
    let hostings: Vec<Hosting<'_>> = demands.iter().map(|demand| Hosting::new(demand, counts)).collect();
    // No plan is worth less than if all were answered by the least accurate.
    let least = |d: &Demand<'_>| {
        let accuracy = d.configurations.iter().map(|c| c.base.accuracy).fold(f64::INFINITY, f64::min);
        if accuracy.is_finite() { d.rate * d.worth * accuracy } else { 0.0 }
    };
    let floor = demands.iter().map(least).sum::<f64>() - GAP;
    let plain = if start.is_none() { plain(demands, counts, end) } else { None };
    let start = start.or(plain.as_ref());
    let known = start.and_then(|start| start.plan.as_ref());
    let near = start.filter(|_| known.is_some()).map(|start| start.prices.as_slice());
    let prices = prices::find(&hostings, counts, near, floor, end);
    let mut solved = Solved { plan: None, bound: prices.bound, prices: prices.of.clone() };
    if prices.bound >= floor && prices.least.iter().all(|loss| loss.is_finite()) {
        let round = Round { hostings: &hostings, counts, prices: &prices, floor, first, end };
        solved.plan = known.and_then(|plan| round.better(demands, plan));
        round.improve(&mut solved);
    }
    if solved.plan.is_none() && (solved.bound < floor || prices.least.iter().any(|loss| loss.is_infinite())) {
        solved.bound = f64::NEG_INFINITY;
    }
    solved
}

/// A plan in which no variant stands beside another, which is soon found; none where none may.
fn plain(demands: &[Demand<'_>], counts: &[u32], end: Until) -> Option<Solved> {
    let places = |demand: &Demand<'_>| -> Vec<usize> {
        let all = demand.configurations.iter().enumerate();
        all.filter(|(_, configuration)| configuration.better.is_none()).map(|(i, _)| i).collect()
    };
    let places: Vec<Vec<usize>> = demands.iter().map(places).collect();
    if demands.iter().zip(&places).all(|(demand, places)| demand.configurations.len() == places.len()) {
        return None;
    }
    let configurations = |(demand, places): (&Demand<'_>, &Vec<usize>)| -> Vec<Configuration> {
        places.iter().map(|&i| demand.configurations[i].clone()).collect()
    };
    let configurations: Vec<Vec<Configuration>> = demands.iter().zip(&places).map(configurations).collect();
    let without = demands.iter().zip(&configurations).map(|(demand, configurations)| Demand {
        rate: demand.rate,
        worth: demand.worth,
        promised: demand.promised,
        pooled: None,
        configurations,
    });
    let without: Vec<Demand<'_>> = without.collect();
    let solved = solve(&without, counts, false, None, end.left() / PLAIN);
    let plan = solved.plan?;
    let all = |((demand, places), counts): ((&Demand<'_>, &Vec<usize>), &Vec<u32>)| {
        let mut all = vec![0; demand.configurations.len()];
        places.iter().zip(counts).for_each(|(&place, &count)| all[place] = count);
        all
    };
    let counts = demands.iter().zip(&places).zip(&plan.counts).map(all).collect();
    Some(Solved { plan: Some(Hosted { counts, ..plan }), ..solved })
}

/// The search at given prices.
struct Round<'a> {
    hostings: &'a [Hosting<'a>],
    counts: &'a [u32],
    prices: &'a Prices,
    floor: f64,
    first: bool,
    end: Until,
}

impl Round<'_> {
    /// Raises the limit until the best plan is below it, or time is up.
    fn improve(&self, solved: &mut Solved) {
        let mut least = self.prices.least.clone();
        let mut lists: Vec<Option<(f64, Found)>> = least.iter().map(|_| None).collect();
        let (mut beyond, mut nodes, mut hurried, mut asked) = (1e-3, NODES.0, false, false);
        let mut best = solved.plan.as_ref().map_or(f64::INFINITY, |plan| self.prices.total - plan.value);
        loop {
            let sum: f64 = least.iter().sum();
            let limit = (sum + beyond).min(best);
            for (s, list) in lists.iter_mut().enumerate() {
                let own = limit - sum + least[s];
                if list.as_ref().is_none_or(|(within, found)| !found.complete || *within < own) {
                    let found = self.list(s, own, nodes);
                    *list = Some((own, found));
                }
            }
            let found: Vec<&Found> = lists.iter().flatten().map(|(_, found)| found).collect();
            for (least, found) in least.iter_mut().zip(&found) {
                *least = least.max(found.least);
            }
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
            let now: f64 = least.iter().sum();
            let proven = if complete { best.min(limit.max(now)) } else { now.min(best) };
            solved.bound = solved.bound.min(self.prices.total - proven);
            let value = solved.plan.as_ref().map_or(f64::NEG_INFINITY, |plan| plan.value);
            let done =
                solved.bound - value <= GAP || (self.first && best.is_finite()) || solved.bound < self.floor;
            // What is cut off is looked at longer, for all that is below a low limit is less than some of what is below a high one; where
            // that takes too long, any plan will do.
            let late = best.is_infinite() && self.end.left() < self.end.took();
            hurried |= !complete && (nodes >= NODES.1 || late);
            if done || self.end.is_over() || beyond > UNSERVED || (hurried && best.is_finite()) {
                return;
            }
            // Where no plan is soon found there may be none.
            if best.is_infinite() && !asked && (!complete || beyond > SOON) {
                asked = true;
                if !fits::may_fit(self.hostings, self.counts, self.end) {
                    solved.bound = f64::NEG_INFINITY;
                    return;
                }
            }
            if complete || hurried {
                (beyond, nodes) = (2.0 * beyond.max(limit - now), if hurried { HURRIED } else { nodes });
            } else {
                nodes *= 8;
            }
        }
    }

    /// The bundles of service `s` that lose at most `limit`.
    fn list(&self, s: usize, limit: f64, nodes: u64) -> Found {
        self.hostings[s].all(&self.prices.of, self.counts, limit, Effort { nodes, end: self.end })
    }

    /// A plan that is known, and what comes of it by what it leaves.
    fn better(&self, demands: &[Demand<'_>], plan: &Hosted) -> Option<Hosted> {
        let bundle = |(demand, counts): (&Demand<'_>, &Vec<u32>)| {
            let held = || (0..counts.len()).filter(|&i| counts[i] > 0);
            Bundle {
                used: held().map(|i| devices(demand.configurations[i].class, counts[i])).sum(),
                loss: 0.0,
                counts: held().map(|i| (i as u16, counts[i] as u16)).collect(),
            }
        };
        self.worth(&self.polished(demands.iter().zip(&plan.counts).map(bundle).collect()))
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

#[cfg(test)]
mod tests;
