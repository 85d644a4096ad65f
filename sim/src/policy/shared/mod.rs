//! Policies for several services on the same workers: the daemon's device, and its rivals.

mod bins;
mod cycle;
mod deeprt;
mod first;
mod lanes;
mod partition;
mod parts;
mod rival;
mod split;

#[cfg(test)]
mod tests;

use planner::SharedProblem;
use planner::certify::decide;
use planner::problem::shared::Service;
use rt_core::{Instant, Span, StreamSpec, WorkerId};
use virtual_time::{Observer, Order, drive};

use super::{PlayError, on_device};
use cycle::Cycle;
use deeprt::DeepRt;
use first::{Clockwork, EdgeServing, FixedPriority, Symphony};
use partition::partition;
use rival::{Rivals, Rule};
use split::split;

/// A policy for several services by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SharedKind {
    /// The daemon's device, with the batches, the rule and the turns that are promised most with.
    Device,
    /// The same, or one for each of several groups of the services on its part of the workers, where only so all is promised.
    Split,
    /// Each service on its share of the workers.
    Partition,
    /// Nexus: squishy bin packing, and early drop in each turn.
    NexusCycle,
    /// Spread-drop within a duty cycle.
    SpreadCycle,
    /// DeepRT: jobs of what comes in half of a deadline, by earliest deadline.
    DeepRt,
    /// Clockwork: of all models' batches the one that must start first.
    ClockworkModels,
    /// Symphony: batches that are deferred while one request more is in time.
    Symphony,
    /// EdgeServing: the batch after which the queues are in the best state.
    EdgeServing,
    /// The service with the shortest deadline.
    FixedPriority,
}

impl SharedKind {
    /// All but the daemon's device on all workers, which has the name of the daemon's scheduler of one service.
    pub const OTHERS: [Self; 9] = [
        Self::Split,
        Self::Partition,
        Self::NexusCycle,
        Self::SpreadCycle,
        Self::DeepRt,
        Self::ClockworkModels,
        Self::Symphony,
        Self::EdgeServing,
        Self::FixedPriority,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "weir",
            Self::Split => "weir-split",
            Self::Partition => "partition",
            Self::NexusCycle => "nexus-cycle",
            Self::SpreadCycle => "spread-drop-cycle",
            Self::DeepRt => "deeprt",
            Self::ClockworkModels => "clockwork-models",
            Self::Symphony => "symphony",
            Self::EdgeServing => "edgeserving",
            Self::FixedPriority => "fixed-priority",
        }
    }

    /// Whether it has a test of admission.
    #[must_use]
    pub const fn has_test(self) -> bool {
        let cycle = matches!(self, Self::NexusCycle | Self::SpreadCycle);
        cycle || matches!(self, Self::Device | Self::Split | Self::Partition | Self::DeepRt)
    }

    /// Whether it is the daemon's device, or several of them.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Device | Self::Split)
    }

    /// The problem with the largest batches with which its own test of admission says yes: all those that take no longer than
    /// some time; of a split those of each group. `None` if it says no; without a test all are admitted.
    #[must_use]
    pub fn planned(self, problem: &SharedProblem) -> Option<SharedProblem> {
        if self == Self::Split {
            return split::planned(problem);
        }
        // These two choose the batches themselves.
        let all = !matches!(self, Self::Partition | Self::NexusCycle);
        let times = problem.services.iter().flat_map(|s| (1..=s.batch).map(|size| s.profile.bound(size)));
        let mut times: Vec<Span> = times.filter(|_| all).collect();
        times.sort_unstable();
        times.dedup();
        let cuts = times.into_iter().rev().map(|longest| cut(problem, longest));
        let mut tried: Vec<SharedProblem> = Vec::new();
        for one in std::iter::once(problem.clone()).chain(cuts) {
            if tried.last() != Some(&one) {
                if self.admits(&one) {
                    return Some(one);
                }
                tried.push(one);
            }
        }
        None
    }

    /// Whether its own test of admission says yes to these batches.
    fn admits(self, problem: &SharedProblem) -> bool {
        match self {
            Self::Device => decide(problem).answer.is_ok(),
            Self::Split => split::planned(problem).is_some(),
            Self::Partition => partition::plan(problem).is_some(),
            Self::NexusCycle => bins::pack(problem).is_some_and(|bins| bins.len() <= problem.workers),
            Self::SpreadCycle => Cycle::plan_spread(problem).is_some(),
            Self::DeepRt => DeepRt::plan(problem).is_some(),
            Self::ClockworkModels | Self::Symphony | Self::EdgeServing | Self::FixedPriority => true,
        }
    }

    /// Plays `arrivals` of `streams` on the workers of `problem`, as [`drive`]: the streams of the problem, then those of no
    /// promise, each with its service. `queue` requests of each service may wait where the daemon's scheduler decides. Batches
    /// are up to those of the problem.
    ///
    /// # Errors
    /// [`PlayError`].
    pub fn play(
        self,
        problem: &SharedProblem,
        (queue, streams): (usize, &[(usize, StreamSpec)]),
        arrivals: impl IntoIterator<Item = (Instant, usize)>,
        order: Order,
        service: impl FnMut(WorkerId, usize, Span) -> Span,
        observer: &mut impl Observer,
    ) -> Result<(), PlayError> {
        let deadlines = || problem.services.iter().map(|s| s.deadline).collect::<Vec<_>>();
        let rule: Box<dyn Rule> = match self {
            Self::Device => {
                let mut device = on_device(problem, queue, streams, false)?;
                return Ok(drive(&mut device, arrivals, order, service, observer)?);
            }
            Self::Partition => {
                let mut parts = partition(problem, queue, streams)?;
                return Ok(drive(&mut parts, arrivals, order, service, observer)?);
            }
            Self::Split => {
                let mut parts = split(problem, queue, streams)?;
                return Ok(drive(&mut parts, arrivals, order, service, observer)?);
            }
            Self::NexusCycle => Box::new(Cycle::nexus(problem)),
            Self::SpreadCycle => Box::new(Cycle::spread(problem)),
            Self::DeepRt => Box::new(DeepRt::new(problem)),
            Self::ClockworkModels => Box::new(Clockwork),
            Self::Symphony => Box::new(Symphony),
            Self::EdgeServing => Box::new(EdgeServing),
            Self::FixedPriority => Box::new(FixedPriority::new(&deadlines())),
        };
        Ok(drive(&mut Rivals::new(problem, streams, rule), arrivals, order, service, observer)?)
    }
}

/// The problem without batches that take longer than `longest`, but for those of one.
fn cut(problem: &SharedProblem, longest: Span) -> SharedProblem {
    let mut problem = problem.clone();
    for service in &mut problem.services {
        service.batch = service.profile.largest_within(longest, service.batch).max(1);
        service.time = service.profile.bound(service.batch);
    }
    problem
}

/// The most requests that may come to a service in any half-open interval of that length; those of no declaration do not count.
fn requests_in(service: &Service, length: Span) -> u64 {
    let curves = service.streams.iter().filter_map(|(_, spec)| spec.arrivals());
    curves.fold(0, |sum, curve| sum.saturating_add(curve.count(length)))
}

/// How many seconds of a worker the requests of a service take in a second, in the batches that take least for each; of those
/// that must be served alone if `mandatory`.
pub(crate) fn work_per_s(service: &Service, mandatory: bool) -> f64 {
    let each = (1..=service.batch).map(|size| service.profile.bound(size).as_secs_f64() / size as f64);
    let rate = |spec: &StreamSpec| match spec.demand() {
        Some((density, arrivals)) if mandatory => density.as_f64() * arrivals.rate_per_s(),
        _ => spec.arrivals().map_or(0.0, rt_core::ArrivalCurve::rate_per_s),
    };
    each.fold(f64::INFINITY, f64::min) * service.streams.iter().map(|(_, spec)| rate(spec)).sum::<f64>()
}
