//! The batch size of the promise: the best one for what the service wants of it.

use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Instant, Span, StreamSpec, System};

use super::{PlanError, ServicePlan};
use crate::config::{Optimise, ReservedStream, ServiceConfig};
use weir_engine::ModelSpec;

impl ServicePlan {
    /// The batch size that is best for what is wanted, of those of `systems` with which everything holds; of equals, the
    /// smallest. Its variants are still missing.
    ///
    /// # Errors
    /// Why nothing holds with the first of them.
    pub(super) fn best(
        config: &ServiceConfig,
        spec: &ModelSpec,
        profile_sha256: &str,
        systems: impl IntoIterator<Item = System>,
    ) -> Result<Self, PlanError> {
        let mut best: Option<(f64, Self)> = None;
        let mut first_error = None;
        for system in systems {
            match Self::with_system(config, spec, profile_sha256, system) {
                Ok(plan) => {
                    let merit = plan.merit();
                    if best.as_ref().is_none_or(|(most, _)| merit > *most) {
                        best = Some((merit, plan));
                    }
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match (best, first_error) {
            (Some((_, plan)), _) => Ok(plan),
            (None, Some(error)) => Err(error),
            (None, None) => unreachable!("there is a batch size"),
        }
    }

    /// How good this batch size is for what the service wants of it; the larger the better.
    pub(super) fn merit(&self) -> f64 {
        match self.config.optimise {
            Optimise::Rate => match &self.rate {
                Some(rate) => rate.per_second().unwrap_or(0.0),
                None => self.spare_capacity(),
            },
            Optimise::Burst => self.largest_burst() as f64,
            Optimise::Headroom => self.headroom().as_secs_f64(),
        }
    }

    /// The share of the workers that the reserved streams leave.
    fn spare_capacity(&self) -> f64 {
        let demand = |s: &ReservedStream| s.spec.demand().map_or(0.0, |(d, a)| d.as_f64() * a.rate_per_s());
        1.0 - self.config.reserved.iter().map(demand).sum::<f64>() / self.capacity()
    }

    /// The most requests at once that are promised beside the reserved streams, to one that must not miss and
    /// then is silent for a second.
    fn largest_burst(&self) -> u64 {
        let admits = |count: u64| {
            let window = ArrivalBound::window(count, Span::from_millis(1_000)).ok()?;
            let strict = ConstraintSet::new(&[Constraint::any_miss(0, 1).ok()?]).ok()?;
            let one = StreamSpec::promised(strict, ArrivalCurve::new(&[window]).ok()?);
            let all = self.config.reserved.iter().map(|s| &s.spec).chain([&one]);
            self.system.admit(all).ok().filter(|a| a.waiting <= self.config.queue as u64)
        };
        let (mut yes, mut no) = (0, self.config.queue as u64 + 1);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            if admits(middle).is_some() { yes = middle } else { no = middle }
        }
        yes
    }

    /// The longest batch that the shield allows while nothing waits: the time that a slower, more accurate model
    /// may take in a lull.
    pub fn headroom(&self) -> Span {
        if self.is_absorbed() {
            return Span::ZERO;
        }
        let shield = self.shield_alone(self.config.reserved.iter().map(|s| &s.spec));
        shield.map_or(Span::ZERO, |s| {
            s.longest(Instant::ZERO, std::iter::empty(), std::iter::empty::<Instant>(), Span::ZERO)
        })
    }
}
