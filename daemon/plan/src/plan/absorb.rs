//! What holds a promise through stalls: a part of the deadline, or the constraints, whichever promises more.

use rt_core::{Density, Span, Stalls, StreamSpec, System, Workers};

use super::{PlanError, RatePlan, ServicePlan};
use crate::config::{HeldBy, ServiceConfig};
use weir_engine::ModelSpec;

/// Recoveries that are tried, in quarters of what the stalls of a window and one batch take: the longer one is the more may
/// come, and the more requests a stall can make miss. Of equals the first: where clients bring their constraints, half of what the
/// workers can do is left for what comes behind a stall.
const QUARTERS: [u64; 10] = [8, 4, 5, 6, 7, 10, 12, 16, 24, 40];

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::models::resolve_models;
    use rt_core::LatencyProfile;

    /// One worker with batches of one in 5 ms, of five of any ten of which may be missed; the machine stands still for 30 ms once in
    /// 10 s.
    fn plan(deadline: &str, by: &str) -> Result<ServicePlan, PlanError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        let text = format!(
            "[[service]]\nname = \"s\"\nengine = \"simulated\"\nguard = \"1ms\"\njitter = \"0ms\"\ndeadline = \"{deadline}\"\n\
             simulated = {{ times = [\"5ms\"], input = 1, output = 1 }}\nconstraints = [{{ any-miss = {{ m = 5, k = 10 }} }}]\n\
             stalls = {{ at-most = 1, in = \"10s\", of = \"30ms\"{by} }}\n"
        );
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap();
        let spec = resolve_models(&config).unwrap().remove(0).remove(0);
        let profile = LatencyProfile::new(&[Span::from_millis(5)]).unwrap();
        ServicePlan::of(&config.services[0], &spec, "", &[Workers { count: 1, batch: 1, profile }])
    }

    fn rate(plan: &ServicePlan) -> f64 {
        plan.rate.as_ref().and_then(RatePlan::per_second).unwrap()
    }

    /// A deadline of 20 ms leaves nothing for a stall of 30, and the constraints do; one of 100 ms leaves enough, and then a word that
    /// need be no denser promises more. What is asked for is taken, whatever it promises.
    #[test]
    fn what_promises_more_holds_through_stalls() {
        let tight = plan("20ms", "").unwrap();
        assert!(tight.is_absorbed() && rate(&tight) > 30.0, "{}", rate(&tight));
        assert!(
            tight.otherwise.as_ref().unwrap().starts_with("the deadline cannot hold them: service s: P(1)")
        );
        let (_, one) = tight.promised_stream().unwrap();
        assert!(tight.density(&one) > one.constraints().density());
        assert!(tight.lull().is_err() && tight.headroom() == Span::ZERO, "no batch is longer");
        assert!(plan("20ms", ", by = \"deadline\"").is_err());
        let loose = plan("100ms", "").unwrap();
        assert!(!loose.is_absorbed());
        let asked = plan("100ms", ", by = \"constraints\"").unwrap();
        assert!(asked.is_absorbed() && asked.otherwise.is_none());
        assert!(rate(&loose) > rate(&asked), "{} {}", rate(&loose), rate(&asked));
        let less = format!("absorbed by constraints they would leave {:.1} requests/s", rate(&asked));
        assert_eq!(loose.otherwise, Some(less));
        assert_eq!(plan("100ms", ", by = \"deadline\"").map(|plan| rate(&plan)).ok(), Some(rate(&loose)));
    }
}
