//! InferLine's planner (Crankshaw et al., SoCC 2020, section 4): the cheapest plan that keeps the deadline for 99 % of the
//! sources in a simulated trial, with the variants that are given.

use rt_core::{Instant, Outcome};
use virtual_time::{PipelineObserver, SourceEnd, StageBatch, drive_pipeline};

use super::central::{Central, Line};
use super::cluster::{Cluster, Plan};
use crate::process::{Process, stream_seed};

/// Sources of a trial.
const TRIAL: usize = 4000;

/// The share of them that may be missed.
const MISSED: f64 = 0.01;

/// By how much more demand each further plan is made for.
const STEP: f64 = 1.03;

impl Cluster {
    /// The fewest workers that keep the deadline for Poisson arrivals of `demand` sources a second; `None` if all do not.
    pub(super) fn inferline(&self, demand: f64) -> Option<Plan> {
        let variants = self.most_accurate();
        let mut asked = demand;
        loop {
            let plan = self.fewest(&variants, asked, 1.0).filter(|plan| plan.workers() <= self.workers)?;
            if self.missed(&plan, demand)? <= MISSED {
                return Some(plan);
            }
            asked *= STEP;
        }
    }

    /// The share of sources that a plan misses in a trial; `None` if there are no such arrivals.
    fn missed(&self, plan: &Plan, demand: f64) -> Option<f64> {
        let source = Process::Poisson.arrivals(demand, stream_seed(0, 0)).ok()?;
        let arrivals = source.take(TRIAL).map(|at| (at, 0));
        let mut central = Central::new(self, plan, Line::Fifo);
        let mut count = Count::default();
        drive_pipeline(&mut central, &self.tree, 0, arrivals, |_, _, bound| bound, &mut count).ok()?;
        Some(count.missed as f64 / count.all.max(1) as f64)
    }
}

#[derive(Default)]
struct Count {
    all: u64,
    missed: u64,
}

impl PipelineObserver for Count {
    fn source(&mut self, end: &SourceEnd) {
        self.all += 1;
        self.missed += u64::from(end.outcome != Outcome::Served);
    }

    fn batch(&mut self, _: &StageBatch) {}

    fn in_use(&mut self, _: Instant, _: usize) {}
}
