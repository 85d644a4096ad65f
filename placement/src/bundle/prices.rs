//! Prices of devices: the Lagrangian dual over the number of each class, by cutting planes.
//!
//! For any prices `μ ≥ 0`, `μ·N + Σ max(V − μ·k)` over the bundles of each service bounds every plan. Where a bundle is not
//! searched for to the end, the linear bound of the service stands for it, so the bound holds whatever the solver of linear
//! programs says.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::search::{Bundle, Effort, Use, of_class};
use super::service::Hosting;
use crate::until::Until;

/// What a service loses that is served nothing: more than all points there are.
pub(super) const UNSERVED: f64 = 1e5;
/// The most rounds of cutting planes.
const ROUNDS: usize = 150;
/// The gap of the relaxation that is small enough.
const ENOUGH: f64 = 1e-6;
/// The part of the first price below which a class may as well cost nothing.
const LEAST: f64 = 1e-3;
/// The nodes of a search for one bundle.
const NODES: u64 = 100_000;

/// Prices, and what they prove.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    /// Of a device of each class, in points.
    pub(super) of: Vec<f64>,
    /// `μ·N` and the linear bounds of all services: what a plan is worth is this less its losses.
    pub(super) total: f64,
    /// No plan is worth more.
    pub(super) bound: f64,
    /// Of each service, what it loses at least.
    pub(super) least: Vec<f64>,
}

/// The best prices that are found by `end`, or any that prove that no plan is worth `floor`; `near` may be close to them.
pub(super) fn find(
    hostings: &[Hosting<'_>],
    counts: &[u32],
    near: Option<&[f64]>,
    floor: f64,
    end: Until,
) -> Prices {
    // Where devices cost nothing, a search has nothing to go by: first a price that all points there are pay together.
    let free = hostings.iter().map(|hosting| hosting.bound(&hosting.whole(), &vec![0.0; counts.len()]).1);
    let dear = free.sum::<f64>().abs() / counts.iter().map(|&count| f64::from(count)).sum::<f64>().max(1.0);
    let first = near.map_or_else(|| vec![dear; counts.len()], <[f64]>::to_vec);
    let (mut best, bundles) = at(hostings, counts, first, end);
    let mut planes = Planes { counts, services: hostings.len(), known: Vec::new() };
    planes.add(hostings, bundles);
    let mut factor = 2.0;
    for _ in 0..ROUNDS {
        // Planes far from where they touch say little, and where a class costs next to nothing searches are long: the next prices are
        // looked for within a factor of the best.
        let within = |&price: &f64| {
            let least = if price > LEAST * dear { price / factor } else { 0.0 };
            (least, (price.max(LEAST * dear) * factor).min(2.0 * UNSERVED))
        };
        let Some((value, query)) = planes.lowest(&best.of.iter().map(within).collect::<Vec<_>>()) else {
            break;
        };
        if best.bound - value <= ENOUGH || best.bound < floor || end.is_over() {
            break;
        }
        let (prices, bundles) = at(hostings, counts, query, end);
        let learnt = planes.add(hostings, bundles);
        if prices.bound < best.bound {
            best = prices;
            factor = f64::min(factor * factor, 64.0);
        } else if learnt {
            factor = factor.sqrt();
        } else {
            // Searches that are cut off find the same again.
            break;
        }
    }
    best
}

/// What prices prove, and of each service the bundle that is worth most at them.
fn at(
    hostings: &[Hosting<'_>],
    counts: &[u32],
    prices: Vec<f64>,
    end: Until,
) -> (Prices, Vec<Option<Bundle>>) {
    let mut bundles = Vec::new();
    let mut least = Vec::new();
    let mut total: f64 = prices.iter().zip(counts).map(|(price, &count)| price * f64::from(count)).sum();
    let mut bound = total;
    for hosting in hostings {
        let found = hosting.best(&prices, counts, Effort { nodes: NODES, end });
        let (linear, bundle) = (found.linear, found.bundles.into_iter().next());
        let loss = if bundle.is_none() && found.complete { f64::INFINITY } else { found.least };
        least.push(loss);
        total += linear;
        bound += (linear - loss).max(-UNSERVED);
        bundles.push(bundle);
    }
    (Prices { of: prices, total, bound, least }, bundles)
}

/// `z_s ≥ V − μ·k` for each bundle known.
struct Planes<'a> {
    counts: &'a [u32],
    services: usize,
    known: Vec<(usize, Use, f64)>,
}

impl Planes<'_> {
    /// Adds what the bundle of each service says; whether any of that is new.
    fn add(&mut self, hostings: &[Hosting<'_>], bundles: Vec<Option<Bundle>>) -> bool {
        let before = self.known.len();
        for (s, bundle) in bundles.into_iter().enumerate() {
            let Some(bundle) = bundle else { continue };
            let value = hostings[s].value(&hostings[s].counts(&bundle));
            let plane = value.map(|value| (s, bundle.used, value));
            self.known.extend(plane.filter(|plane| !self.known.contains(plane)));
        }
        self.known.len() > before
    }

    /// The least `μ·N + Σ z_s` of prices within bounds, and where.
    fn lowest(&self, bounds: &[(f64, f64)]) -> Option<(f64, Vec<f64>)> {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let mut price = |(&count, &bounds): (&u32, &(f64, f64))| problem.add_var(f64::from(count), bounds);
        let prices: Vec<Variable> = self.counts.iter().zip(bounds).map(&mut price).collect();
        let services: Vec<Variable> =
            (0..self.services).map(|_| problem.add_var(1.0, (-UNSERVED, f64::INFINITY))).collect();
        for &(service, used, value) in &self.known {
            let mut row: Vec<(Variable, f64)> = vec![(services[service], 1.0)];
            let classes = (0..prices.len()).map(|class| (prices[class], f64::from(of_class(used, class))));
            row.extend(classes.filter(|(_, count)| *count > 0.0));
            problem.add_constraint(row.as_slice(), ComparisonOp::Ge, value);
        }
        let solution = problem.solve().ok()?.into_solution().ok()?;
        Some((solution.objective(), prices.iter().map(|&price| solution.var_value(price).max(0.0)).collect()))
    }
}
