//! Clusters of an experiment: what is told of a run, and that they are served by those who can.

mod devices;
mod recorded;

use rt_core::Span;

use super::contender::Contender;
use super::quantity::Quantity;
use super::system::System;
use super::{Arrivals, Experiment, ExperimentError, Of, refuse};
use crate::cluster::{BUCKET, Bucket, Cluster, Told};
use crate::process::{Merged, Process, stream_seed};
pub(super) use devices::Raw;
pub(super) use recorded::{Counts, Recorded};

/// The quantities of what came from some seconds on.
pub(super) type Moments = Vec<(f64, Vec<f64>)>;

/// What is told of what came within some `seconds`.
pub(super) fn at(bucket: &Bucket, quantity: Quantity, seconds: f64) -> f64 {
    match quantity {
        Quantity::Misses => bucket.misses(),
        Quantity::Goodput => bucket.served as f64 / seconds,
        Quantity::Offered => bucket.arrived as f64 / seconds,
        Quantity::Accuracy if bucket.served > 0 => bucket.accuracy_of_served(),
        Quantity::AccuracyOfAll => bucket.accuracy_of_all(),
        _ => f64::NAN,
    }
}

/// What a run is told by.
pub(super) fn told(run: &Told, quantities: &[Quantity]) -> (Vec<f64>, Moments) {
    let seconds = run.seconds();
    let all = |&quantity: &Quantity| match quantity {
        Quantity::Batch => run.batch(),
        Quantity::AccuracyDrop => run.largest_drop(),
        Quantity::InUse => run.in_use(),
        other => at(&run.total(), other, seconds),
    };
    let moments = run.buckets().map(|(from, bucket)| {
        let length = (BUCKET as f64).min(seconds - from).max(1.0);
        (from, quantities.iter().map(|&quantity| at(bucket, quantity, length)).collect())
    });
    (quantities.iter().map(all).collect(), moments.collect())
}

impl Experiment {
    /// Whether clusters are served by those who can and what was recorded of services comes to them, and to nobody else.
    pub(super) fn check_clusters(&self) -> Result<(), ExperimentError> {
        let clusters = self.systems.iter().filter(|system| system.cluster.is_some()).count();
        if clusters == 0 {
            if let Some(arrivals) = self.arrivals.iter().find(|arrivals| arrivals.recorded.is_some()) {
                return Err(refuse("arrivals", &arrivals.name, "needs a cluster"));
            }
            if let Some(policy) =
                self.policies.iter().find(|policy| matches!(policy, Contender::Allocation(_)))
            {
                return Err(refuse("policies", policy, "needs a cluster"));
            }
            return if self.x.of == Of::Recorded {
                Err(refuse("x.recorded", "", "needs a cluster"))
            } else {
                Ok(())
            };
        }
        if clusters < self.systems.len() {
            return Err(refuse("system", clusters, "must all be clusters, or none"));
        }
        if self.x.of != Of::Recorded {
            return Err(refuse("x", self.x.label(), "must be `recorded` of a cluster"));
        }
        if let Some(policy) = self.policies.iter().find(|policy| policy.allocation().is_none()) {
            return Err(refuse("policies", policy, "cannot serve a cluster"));
        }
        for arrivals in &self.arrivals {
            let Some(recorded) = &arrivals.recorded else {
                return Err(refuse("arrivals", &arrivals.name, "must be `services` of a cluster"));
            };
            let of = |system: &System| {
                system.cluster.as_ref().map(|cluster| &cluster.problem).map_or(0, |problem| {
                    problem
                        .services
                        .iter()
                        .filter(|service| recorded.services.contains_key(&service.name))
                        .count()
                })
            };
            if let Some(system) = self.systems.iter().find(|system| of(system) < recorded.services.len()) {
                return Err(refuse(
                    "arrivals",
                    &arrivals.name,
                    format!("holds services that are none of system {}", system.name),
                ));
            }
        }
        Ok(())
    }

    /// One run on a cluster: what was recorded, from one second to the next at random.
    pub(super) fn play_cluster(
        &self,
        cluster: &Cluster,
        (system, arrivals): (&str, &Arrivals),
        policy: Contender,
        x: f64,
        seed: u64,
    ) -> Result<Told, ExperimentError> {
        let (Some(recorded), Some(kind)) = (&arrivals.recorded, policy.allocation()) else {
            unreachable!("checked when the experiment was read")
        };
        let factor = x * arrivals.mean;
        let (mut demand, mut sources, mut whose) = (Vec::new(), Vec::new(), Vec::new());
        for (s, service) in cluster.problem.services.iter().enumerate() {
            let rates = recorded.services.get(&service.name).map_or(&[][..], Vec::as_slice);
            let mean = rates.iter().sum::<f64>() / recorded.seconds as f64 * factor;
            demand.push(mean);
            if mean > 0.0 {
                let process = Process::Rates { rates: rates.into(), interval: Span::from_millis(1000) };
                let source = process.arrivals(mean, stream_seed(seed, s));
                let wrong = |error| ExperimentError::Process { arrivals: arrivals.name.clone(), error };
                sources.push(source.map_err(wrong)?);
                whose.push(s);
            }
        }
        let end = rt_core::Instant::ZERO + Span::from_millis(recorded.seconds as u64 * 1000);
        let most = usize::try_from(self.requests).unwrap_or(usize::MAX);
        let coming = Merged::new(sources).take_while(|&(at, _)| at < end).take(most);
        let coming = coming.map(|(at, source)| (at, whose[source]));
        let played = cluster.play(kind, &demand, coming, |_, _, bound| bound);
        played.map_err(|error| ExperimentError::Play {
            system: system.to_owned(),
            policy,
            error: error.into(),
        })
    }
}

#[cfg(test)]
mod tests;
