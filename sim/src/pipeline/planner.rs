//! Loki's resource manager: hardware scaling while it suffices, then accuracy scaling; plans are kept, for they take long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::cluster::{Cluster, Plan};

/// A plan is made for the demand rounded up to a power of this.
const STEP: f64 = 1.02;

/// Requests for further stages count so many times, as in the configurations of the released program (`beta`).
pub(super) const MARGIN: f64 = 1.05;

/// Plans for one cluster at any demand, each worked out once.
#[derive(Debug, Default)]
pub(super) struct Planner {
    known: Mutex<BTreeMap<i32, Option<Arc<Plan>>>>,
}

impl Planner {
    /// The plan for `demand` sources a second; for the largest demand that there is a plan for if that is less.
    ///
    /// # Errors
    /// If no batches are fast enough for any demand, or the solver gives up.
    pub(super) fn plan(&self, cluster: &Cluster, demand: f64) -> Result<Arc<Plan>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = |step: i32| match known.get(&step) {
            Some(plan) => Ok(plan.clone()),
            None => {
                let plan = cluster.plan(libm::pow(STEP, f64::from(step)), MARGIN)?.map(Arc::new);
                known.insert(step, plan.clone());
                Ok::<_, String>(plan)
            }
        };
        let step = (libm::log(demand.max(1.0)) / libm::log(STEP)).ceil() as i32;
        if let Some(plan) = at(step)? {
            return Ok(plan);
        }
        let (mut yes, mut no) = (0, step);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            *(if at(middle)?.is_some() { &mut yes } else { &mut no }) = middle;
        }
        at(yes)?.ok_or_else(|| "no batches are fast enough for half of the deadline".to_owned())
    }
}

impl Cluster {
    /// Hardware scaling if the most accurate variants carry the demand, else accuracy scaling; `None` if neither does.
    pub(super) fn plan(&self, demand: f64, margin: f64) -> Result<Option<Plan>, String> {
        let fewest = self.fewest(&self.most_accurate(), demand, margin);
        match fewest.filter(|plan| plan.workers() <= self.workers) {
            Some(plan) => Ok(Some(plan)),
            None => self.most_worth(demand, margin),
        }
    }
}
