//! A partition: each service has a part of the workers for itself, and the daemon's scheduler on it.

use planner::SharedProblem;
use planner::problem::shared::Service;
use rt_core::{Dispatch, LatencyProfile, Span, StreamSpec, System, Workers};
use virtual_time::Scheduled;

use super::super::weir::{WeirError, by_itself};
use super::parts::Parts;
use super::work_per_s;

/// Parts of a worker that are told apart.
const WHOLE: u64 = 1000;

/// A share of a worker in thousandths, and the largest batch.
type Share = (u64, usize);

/// Each service on a worker that is slower by its share of the time.
///
/// This is what a service of its own with a part of a GPU (MIG, MPS) or a quota of a core would be if dividing cost nothing:
/// on the share `φ` a batch takes `P/φ`, beside those of the others. It interrupts batches at will, which nobody else here
/// may; in truth parts disturb each other. Shares are the smallest that Theorem A admits, with the batch that asks for
/// least, and what is left goes to all in proportion; no share is above one worker.
pub(super) fn partition(
    problem: &SharedProblem,
    queue: usize,
    streams: &[(usize, StreamSpec)],
) -> Result<Parts<Scheduled>, WeirError> {
    let shares = plan(problem).unwrap_or_else(|| by_work(problem));
    let used: u64 = shares.iter().map(|&(share, _)| share).sum();
    let each: Vec<_> = (0..shares.len()).map(|service| vec![service]).collect();
    Parts::new(&each, streams, |s, specs| {
        let (share, batch) = shares[s];
        let more = share * WHOLE * problem.workers as u64 / used.max(1);
        let specs: Vec<_> = specs.into_iter().map(|(_, spec)| spec).collect();
        by_itself(&problem.services[s], slowed(&problem.services[s], batch, more.min(WHOLE)), queue, &specs)
    })
}

/// A share for each service with which all promises hold.
pub(super) fn plan(problem: &SharedProblem) -> Option<Vec<Share>> {
    let shares = problem.services.iter().map(least).collect::<Option<Vec<_>>>()?;
    let used: u64 = shares.iter().map(|&(share, _)| share).sum();
    (used <= WHOLE * problem.workers as u64).then_some(shares)
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
