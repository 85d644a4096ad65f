//! What holds a promise through stalls: a part of the deadline, or the constraints, whichever promises more.

use rt_core::{Density, Span, Stalls, StreamSpec, System, Workers};

use super::{PlanError, RatePlan, ServicePlan};
use crate::config::{HeldBy, ServiceConfig};
use weir_engine::ModelSpec;

/// Recoveries that are tried, in quarters of what the stalls of a window and one batch take: the longer one is the more may
/// come, and the more requests a stall can make miss.
const QUARTERS: [u64; 10] = [4, 5, 6, 7, 8, 10, 12, 16, 24, 40];

impl ServicePlan {
    /// Whether constraints absorb the stalls that are declared; then no batch is longer than promises are computed for.
    pub fn is_absorbed(&self) -> bool {
        self.system.stalls.is_some_and(|stalls| stalls.recovery().is_some())
    }

    /// The share of the requests of a stream that must be served.
    pub fn density(&self, spec: &StreamSpec) -> Density {
        let asked = spec.constraints().density();
        let denser = |stalls: Stalls| stalls.absorb(spec, self.config.deadline).ok();
        self.system.stalls.and_then(denser).map_or(asked, |(_, density)| density)
    }

    /// The best of `all` where stalls are declared, and what holds the promise through them: what the configuration says, or
    /// what promises more. A service of several models is held by its deadline if that will do, for otherwise only the first of them
    /// would ever answer.
    pub(super) fn through_stalls(
        config: &ServiceConfig,
        spec: &ModelSpec,
        profile_sha256: &str,
        all: &[Workers],
    ) -> Result<Self, PlanError> {
        let by_deadline = || Self::held_by_deadline(config, spec, profile_sha256, all);
        let by_constraints = || Self::held_by_constraints(config, spec, profile_sha256, all);
        match config.stalls_held_by {
            HeldBy::Deadline => return by_deadline(),
            HeldBy::Constraints => return by_constraints(),
            HeldBy::Auto => {}
        }
        match (by_deadline(), by_constraints()) {
            (Err(error), Err(_)) => Err(error),
            (Ok(plan), Err(error)) => Ok(plan.rather(format!("constraints cannot absorb them: {error}"))),
            (Err(error), Ok(plan)) => Ok(plan.rather(format!("the deadline cannot hold them: {error}"))),
            (Ok(kept), Ok(absorbed)) if absorbed.merit() > kept.merit() && config.model.is_single() => {
                let less = format!("kept back of the deadline they would leave {}", kept.promises());
                Ok(absorbed.rather(less))
            }
            (Ok(kept), Ok(absorbed)) => {
                let less = format!("absorbed by constraints they would leave {}", absorbed.promises());
                Ok(kept.rather(less))
            }
        }
    }

    /// The same, where constraints absorb the stalls.
    fn held_by_constraints(
        config: &ServiceConfig,
        spec: &ModelSpec,
        profile_sha256: &str,
        all: &[Workers],
    ) -> Result<Self, PlanError> {
        let stalls = config.stalls.into_iter();
        let latency = config.deadline.saturating_sub(config.guard);
        if let Some(time) = all.first().map(|w| w.profile.bound(1)).filter(|&time| time > latency) {
            let (service, deadline, guard) = (config.name.clone(), config.deadline, config.guard);
            return Err(PlanError::Deadline { service, time, deadline, guard });
        }
        let systems = stalls.flat_map(|stalls| {
            all.iter().flat_map(move |workers| {
                recoveries(config, stalls, workers)
                    .map(move |recovery| Self::system_of(config, workers, Some(stalls.absorbed(recovery))))
            })
        });
        Self::best(config, spec, profile_sha256, systems.collect::<Vec<System>>())
    }

    fn rather(self, otherwise: String) -> Self {
        Self { otherwise: Some(otherwise), ..self }
    }

    /// What it promises, in words.
    fn promises(&self) -> String {
        match self.rate.as_ref().and_then(RatePlan::per_second) {
            Some(rate) => format!("{rate:.1} requests/s"),
            None => format!("batches of {} at most", self.workers().batch),
        }
    }
}

fn recoveries(
    config: &ServiceConfig,
    stalls: Stalls,
    workers: &Workers,
) -> impl Iterator<Item = Span> + use<> {
    let least = (stalls.lost() + config.guard + config.guard + workers.batch_time()).as_nanos();
    QUARTERS.into_iter().map(move |quarters| Span::from_nanos(least.saturating_mul(quarters) / 4))
}
