//! A partition: each service has a part of the workers for itself, and the daemon's scheduler on it.

use planner::SharedProblem;
use planner::problem::shared::Service;
use rt_core::{Dispatch, Instant, LatencyProfile, Span, StreamSpec, System, WorkerId, Workers};
use virtual_time::Scheduled;

use super::super::weir::{WeirError, by_itself};
use super::super::{End, Policy, Step};
use super::work_per_s;

/// Parts of a worker that are told apart.
const WHOLE: u64 = 1000;

/// Each service on a worker that is slower by its share of the time.
///
/// This is what a service of its own with a part of a GPU (MIG, MPS) or a quota of a core would be if dividing cost nothing:
/// on the share `φ` a batch takes `P/φ`, beside those of the others. It interrupts batches at will, which nobody else here
/// may; in truth parts disturb each other. Shares are the smallest that Theorem A admits, with the batch that asks for
/// least, and what is left goes to all in proportion; no share is above one worker.
pub(super) struct Partition {
    parts: Vec<Scheduled>,
    /// Of each stream, its service and its number there.
    streams: Vec<(usize, usize)>,
    /// Of each service, the streams in order.
    members: Vec<Vec<usize>>,
}

/// A share of a worker in thousandths, and the largest batch.
type Share = (u64, usize);

impl Partition {
    pub(super) fn new(
        problem: &SharedProblem,
        queue: usize,
        streams: &[(usize, StreamSpec)],
    ) -> Result<Self, WeirError> {
        let mut members = vec![Vec::new(); problem.services.len()];
        let mut places = Vec::new();
        for (index, &(service, _)) in streams.iter().enumerate() {
            places.push((service, members[service].len()));
            members[service].push(index);
        }
        let shares = Self::plan(problem).unwrap_or_else(|| by_work(problem));
        let used: u64 = shares.iter().map(|&(share, _)| share).sum();
        let part = |(s, (share, batch)): (usize, Share)| {
            let more = share * WHOLE * problem.workers as u64 / used.max(1);
            let specs: Vec<_> = members[s].iter().map(|&index| streams[index].1.clone()).collect();
            let of = &problem.services[s];
            by_itself(of, slowed(of, batch, more.min(WHOLE)), queue, &specs)
        };
        let parts = shares.into_iter().enumerate().map(part).collect::<Result<_, _>>()?;
        Ok(Self { parts, streams: places, members })
    }

    /// A share for each service with which all promises hold.
    pub(super) fn plan(problem: &SharedProblem) -> Option<Vec<Share>> {
        let shares = problem.services.iter().map(least).collect::<Option<Vec<_>>>()?;
        let used: u64 = shares.iter().map(|&(share, _)| share).sum();
        (used <= WHOLE * problem.workers as u64).then_some(shares)
    }
}

/// The smallest share with which the promises of a service hold, and its batch.
fn least(service: &Service) -> Option<Share> {
    let passes = |batch: usize, share: u64| {
        let system = System {
            workers: vec![slowed(service, batch, share)],
            latency: service.deadline.saturating_sub(service.guard),
            guard: service.guard,
            stalls: None,
            dispatch: Dispatch::Eager,
            background: true,
        };
        system.admit(service.streams.iter().map(|(_, spec)| spec)).is_ok()
    };
    let of = |batch: usize| {
        let (mut no, mut yes) = (0, Some(WHOLE).filter(|&whole| passes(batch, whole))?);
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            *(if passes(batch, middle) { &mut yes } else { &mut no }) = middle;
        }
        Some((yes, batch))
    };
    (1..=service.batch).filter_map(of).min_by_key(|&(share, batch)| (share, std::cmp::Reverse(batch)))
}

/// Where nothing holds: what a batch of one needs to be in time, and the rest by how much work comes.
fn by_work(problem: &SharedProblem) -> Vec<Share> {
    let one = |s: &Service| {
        let latency = s.deadline.saturating_sub(s.guard).as_nanos();
        (s.profile.bound(1).as_nanos() * WHOLE).div_ceil(latency) + 1
    };
    let all = (WHOLE * problem.workers as u64) as f64;
    let rest = (all - problem.services.iter().map(|s| one(s) as f64).sum::<f64>()).max(0.0);
    let work: f64 = problem.services.iter().map(|s| work_per_s(s, true)).sum();
    let share = |s: &Service| one(s) + (rest * work_per_s(s, true) / work.max(1e-12)) as u64;
    problem.services.iter().map(|s| (share(s), s.batch)).collect()
}

/// A worker that has so many thousandths of the time, rounded to longer times.
fn slowed(service: &Service, batch: usize, share: u64) -> Workers {
    let slower = |size: usize| {
        let nanos = u128::from(service.profile.bound(size).as_nanos()) * u128::from(WHOLE);
        Span::from_nanos(u64::try_from(nanos.div_ceil(u128::from(share.max(1)))).unwrap_or(u64::MAX))
    };
    let times: Vec<_> = (1..=batch).map(slower).collect();
    let profile = LatencyProfile::new(&times).unwrap_or_else(|_| service.profile.clone());
    Workers { count: 1, batch, profile }
}

impl Policy for Partition {
    fn workers(&self) -> usize {
        self.parts.len()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let (service, stream) = self.streams[stream];
        self.parts[service].arrive(now, stream, token)
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.parts[worker].complete(now, 0, time);
    }

    fn poll(&mut self, now: Instant) -> Step {
        let mut next = None::<Instant>;
        for (worker, part) in self.parts.iter_mut().enumerate() {
            match part.poll(now) {
                Step::Start { .. } => return Step::Start { worker },
                Step::Suspension { stream, state, alarm } => {
                    return Step::Suspension { stream: self.members[worker][stream], state, alarm };
                }
                Step::Wait { until } => next = next.into_iter().chain(until).min(),
                other => return other,
            }
        }
        Step::Wait { until: next }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.parts[worker].batch(0)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        self.parts[worker].bound(0)
    }
}
