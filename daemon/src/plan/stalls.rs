//! What rare long times cost a plan: the promise that there could be if no batch took longer than most of them do.

use rt_core::{LatencyProfile, Span, System, Workers};

use super::{RatePlan, ServicePlan};

/// A larger batch that could be promised, but for the times that few batches take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stalls {
    /// The batch size that the plan would choose.
    pub(crate) batch: usize,
    /// What such a batch takes with the service's probability, with the handover.
    pub(crate) likely: Span,
    /// What it may take.
    pub(crate) bound: Span,
    /// Requests a second in full batches, by likely times.
    pub(crate) capacity_per_s: f64,
    /// The rate of one more stream by likely times, beside the reserved ones; absent without constraints or room.
    pub(crate) promised_per_s: Option<f64>,
}

impl ServicePlan {
    /// What the plan would be with likely times for bounds, if its batch size were larger then. Nothing of it is promised.
    pub(crate) fn stalls(&self) -> Option<Stalls> {
        let (config, workers) = (&self.config, self.workers());
        if config.batch.is_some() {
            return None;
        }
        let likely: Vec<Span> = (1..=self.max_batch()).map(|b| workers.profile.likely(b)).collect();
        let profile = LatencyProfile::new(&likely).ok()?;
        let systems = (1..=self.max_batch()).map(|batch| System {
            workers: vec![Workers { batch, profile: profile.clone(), ..workers.clone() }],
            ..self.system.clone()
        });
        let plan = Self::best(config, &self.spec, &self.profile_sha256, systems).ok()?;
        let batch = plan.workers().batch;
        (batch > workers.batch).then(|| Stalls {
            batch,
            likely: profile.bound(batch),
            bound: workers.profile.bound(batch),
            capacity_per_s: plan.capacity(),
            promised_per_s: plan.rate.as_ref().and_then(RatePlan::per_second),
        })
    }
}
