//! What rare long times cost a plan: the promise that there could be if no batch took longer than most of them do.

use rt_core::{LatencyProfile, Span, System, Workers};

use super::{PlanError, RatePlan, ServicePlan};
use crate::config::ServiceConfig;
use weir_engine::ModelSpec;

/// A larger batch that could be promised, but for the times that few batches take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stalls {
    /// The batch size that the plan would choose.
    pub batch: usize,
    /// What such a batch takes with the service's probability, with the handover.
    pub likely: Span,
    /// What it may take.
    pub bound: Span,
    /// Requests a second in full batches, by likely times.
    pub capacity_per_s: f64,
    /// The rate of one more stream by likely times, beside the reserved ones; absent without constraints or room.
    pub promised_per_s: Option<f64>,
}

impl ServicePlan {
    /// What the plan would be with likely times for bounds, if its batch size were larger then. Nothing of it is promised.
    pub fn stalls(&self) -> Option<Stalls> {
        let (config, workers) = (&self.config, self.workers());
        if config.batch.is_some()
            || self.shared.is_some()
            || self.pipeline.is_some()
            || !self.kinds.is_empty()
        {
            return None;
        }
        let profile = without_stalls(workers)?;
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

impl PlanError {
    /// The same, and that it is for rare long times, if with likely times for bounds there were a plan.
    pub(super) fn or_stalls(self, config: &ServiceConfig, spec: &ModelSpec, all: &[Workers]) -> Self {
        if !matches!(self, Self::Deadline { .. } | Self::Stream { .. } | Self::Never { .. }) {
            return self;
        }
        let likely =
            |workers: &Workers| Some(Workers { profile: without_stalls(workers)?, ..workers.clone() });
        let plan = all.iter().map(likely).collect::<Option<Vec<_>>>();
        let plan = plan.and_then(|likely| ServicePlan::of(config, spec, "", &likely).ok());
        let Some((plan, actual)) = plan.zip(all.first()) else { return self };
        let batch = plan.workers().batch;
        Self::Stalls {
            source: Box::new(self),
            share: 100.0 * config.probability,
            batch,
            likely: plan.workers().profile.bound(batch),
            bound: actual.profile.bound(batch),
        }
    }
}

/// The likely times of `workers`, as if they were the bounds.
fn without_stalls(workers: &Workers) -> Option<LatencyProfile> {
    let sizes = 1..=workers.profile.max_batch();
    LatencyProfile::new(&sizes.map(|batch| workers.profile.likely(batch)).collect::<Vec<_>>()).ok()
}
