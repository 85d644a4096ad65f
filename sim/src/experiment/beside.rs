//! One policy beside the best of all others, cell by cell.

use super::contender::Contender;
use super::quantity::Quantity;
use super::results::{Cell, Results};
use crate::statistics::Estimate;

/// How a policy fares in one cell, and who of the others fares best.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The policy's cell.
    pub cell: &'a Cell,
    /// The best of the others.
    pub rival: &'a Cell,
    /// The means of both.
    pub means: (f64, f64),
    /// By how much the policy is better, in percent of the rival; of a quantity that is itself a share, in
    /// percentage points. Below 0 if it is worse.
    pub better_by: f64,
    /// The same in the unit of `better_by`, run by run, where the quantity is a share: in each run both saw the same arrivals,
    /// so that what differs between runs, but not between policies, is no part of its interval.
    pub in_runs: Estimate,
}

impl Results {
    /// How `policy` fares in `quantity` in each of its cells where another policy has a value.
    #[must_use]
    pub fn beside(&self, policy: Contender, quantity: Quantity) -> Vec<Beside<'_>> {
        let own = self.cells.iter().filter(|cell| cell.policy == policy);
        own.filter_map(|cell| self.beside_best(cell, quantity, &[])).collect()
    }

    /// How the policy of `cell` fares there beside all others `without` these; `None` if it, or all of them, have no value.
    pub(super) fn beside_best<'a>(
        &'a self,
        cell: &'a Cell,
        quantity: Quantity,
        without: &[Contender],
    ) -> Option<Beside<'a>> {
        let sign = if quantity.is_more_better() { 1.0 } else { -1.0 };
        let mean = |cell: &Cell| self.estimate(cell, quantity).filter(|e| e.n > 0).map(|e| e.mean);
        let own = mean(cell)?;
        let others =
            self.cells.iter().filter(|other| other.is_beside(cell) && !without.contains(&other.policy));
        let valued = others.filter_map(|other| Some((other, mean(other)?)));
        let (rival, best) = valued.max_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)))?;
        let whole = if quantity.scale() == 1.0 { best / 100.0 } else { 0.01 };
        let better_by = if own == best { 0.0 } else { sign * (own - best) / whole };
        let index = self.quantities.iter().position(|&q| q == quantity)?;
        let pairs = cell.runs.iter().zip(&rival.runs).map(|(own, other)| (own[index], other[index]));
        let in_runs: Vec<f64> = pairs.map(|(own, other)| sign * (own - other) / whole).collect();
        Some(Beside { cell, rival, means: (own, best), better_by, in_runs: Estimate::of(&in_runs) })
    }
}

impl Cell {
    /// Whether this is another policy in the same place.
    fn is_beside(&self, other: &Self) -> bool {
        let place = |cell: &Self| (cell.system.clone(), cell.arrivals.clone(), cell.x.to_bits());
        self.policy != other.policy && place(self) == place(other)
    }
}
