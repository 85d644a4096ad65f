//! How a network that selects is compared, on loads that it was not trained on, with all else that may select.

mod traffic;

use anyhow::Result;
use planner::selection::{Expected, Inputs};
use rt_core::{Net, Selector};

pub(crate) use traffic::Traffic;

/// What becomes of one load by who selects: SIMULATED, with nothing promised.
pub(crate) struct Compared {
    /// Requests a second.
    pub(crate) rate_per_s: f64,
    pub(crate) learned: Expected,
    /// The tables that `weir plan --select` makes.
    pub(crate) tables: Expected,
    pub(crate) accurate: Expected,
    /// The variant that is best alone at this load.
    pub(crate) alone: (usize, Expected),
}

impl Compared {
    /// Of each load that was held out of `traffic`.
    ///
    /// # Errors
    /// What the scheduler finds wrong with what is served.
    pub(crate) fn all(
        inputs: &Inputs,
        (net, tables): (&Net, &Selector),
        traffic: &Traffic,
    ) -> Result<Vec<Self>> {
        let of = |(rate_per_s, arrivals): (f64, Vec<_>)| {
            let tried = |selector: Selector| inputs.tried(selector, arrivals.iter().copied());
            let able = |&variant: &usize| {
                variant == 0 || inputs.variants[variant].profile.bound(1) <= inputs.latency
            };
            let alone = |variant| {
                let own = inputs.alone(variant);
                anyhow::Ok((variant, own.tried(own.accurate()?, arrivals.iter().copied())?))
            };
            let mut best = alone(0)?;
            for other in (1..inputs.variants.len()).filter(able).map(alone) {
                let other = other?;
                if other.1.right() > best.1.right() {
                    best = other;
                }
            }
            anyhow::Ok(Self {
                rate_per_s,
                learned: tried(inputs.learned(net.clone())?)?,
                tables: tried(tables.clone())?,
                accurate: tried(inputs.accurate()?)?,
                alone: best,
            })
        };
        traffic.held_out().into_iter().map(of).collect()
    }
}

/// The means over all loads of what was answered in time and right.
pub(crate) struct Means {
    pub(crate) learned: f64,
    pub(crate) tables: f64,
    pub(crate) accurate: f64,
    /// Of the variant that is best at each load.
    pub(crate) alone: f64,
}

impl Means {
    pub(crate) fn of(all: &[Compared]) -> Self {
        let mean = |of: &dyn Fn(&Compared) -> Expected| {
            all.iter().map(|one| of(one).right()).sum::<f64>() / all.len().max(1) as f64
        };
        Self {
            learned: mean(&|one| one.learned),
            tables: mean(&|one| one.tables),
            accurate: mean(&|one| one.accurate),
            alone: mean(&|one| one.alone.1),
        }
    }

    /// Who is best beside the network, and what that reached.
    pub(crate) fn best_other(&self) -> (&'static str, f64) {
        let others =
            [("planned tables", self.tables), ("accurate", self.accurate), ("one model alone", self.alone)];
        others.into_iter().fold(others[0], |best, other| if other.1 > best.1 { other } else { best })
    }
}
