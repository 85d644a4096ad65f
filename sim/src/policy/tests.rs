//! What must hold of every policy, over random problems and arrivals; and short ways to run the examples of each.

use std::collections::BTreeSet;

use planner::Problem;
use proptest::prelude::*;
use rt_core::{Constraint, Instant, MissReason, Outcome, Span, WorkerId};

use super::{End, Policy, PolicyKind, Rival, Step, scheduled_by};
use crate::dice::Dice;
use crate::measure::Misses;
use crate::record::record;
use crate::samples::{any_problem, problem};
use crate::time::{at, ns};
use virtual_time::{Order, Run, drive};

/// Policies that never let a worker idle while something waits that it could serve.
const WORK_CONSERVING: [PolicyKind; 8] = [
    PolicyKind::Fifo,
    PolicyKind::Edf,
    PolicyKind::Nexus,
    PolicyKind::LazyDrop,
    PolicyKind::Clipper,
    PolicyKind::Clockwork,
    PolicyKind::Distance,
    PolicyKind::StaticPattern,
];

/// A run in which batches take just their time, with requests that come at `arrivals`, each with its stream.
pub(super) fn play(kind: PolicyKind, problem: &Problem, arrivals: &[(u64, usize)]) -> Run {
    let arrivals: Vec<_> = arrivals.iter().map(|&(time, stream)| (at(time), stream)).collect();
    record(kind, problem, &arrivals, Order::Together, |_, _, bound| bound).expect("a run")
}

/// The batches of [`play`] with one stream: when each starts, and with which requests, by their numbers from 0.
pub(super) fn batches(kind: PolicyKind, problem: &Problem, times: &[u64]) -> Vec<(u64, Vec<usize>)> {
    batches_of(&play(kind, problem, &times.iter().map(|&time| (time, 0)).collect::<Vec<_>>()))
}

/// The batches of a run: when each starts, and with which requests, by their numbers from 0.
pub(super) fn batches_of(run: &Run) -> Vec<(u64, Vec<usize>)> {
    let members = |batch| (0..run.requests.len()).filter(move |&i| run.requests[i].batch == Some(batch));
    run.batches.iter().enumerate().map(|(i, batch)| (batch.start.as_nanos(), members(i).collect())).collect()
}

/// Whether each request of [`play`] with one stream was served.
pub(super) fn hits(kind: PolicyKind, problem: &Problem, times: &[u64]) -> Vec<bool> {
    let run = play(kind, problem, &times.iter().map(|&time| (time, 0)).collect::<Vec<_>>());
    run.requests.iter().map(|request| request.outcome == Outcome::Served).collect()
}

/// Whether the hits keep `(m,k)`.
pub(super) fn keeps(hits: &[bool], (m, k): (u32, u32)) -> bool {
    let constraint = Constraint::any_miss(m, k).expect("valid");
    Misses::of(1, &[constraint], hits.iter().copied()).violations().all(|(_, found)| found.count == 0)
}

/// A policy whose every step is held against the contract.
struct Watched<P> {
    policy: P,
    open: BTreeSet<u64>,
    running: Vec<Vec<u64>>,
}

impl<P: Policy> Watched<P> {
    fn new(policy: P) -> Self {
        let running = vec![Vec::new(); policy.workers()];
        Self { policy, open: BTreeSet::new(), running }
    }

    fn end(&mut self, end: &End) {
        assert!(self.open.remove(&end.token), "{} ends twice", end.token);
        let runs = self.running.iter().flatten().any(|&token| token == end.token);
        assert!(!runs || end.outcome == Outcome::Missed(MissReason::Late), "{} runs", end.token);
    }
}

impl<P: Policy> Policy for Watched<P> {
    fn workers(&self) -> usize {
        self.policy.workers()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        assert!(self.open.insert(token));
        let end = self.policy.arrive(now, stream, token);
        end.iter().for_each(|end| self.end(end));
        end
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.running[worker].clear();
        self.policy.complete(now, worker, time);
    }

    fn poll(&mut self, now: Instant) -> Step {
        let step = self.policy.poll(now);
        match &step {
            Step::Start { worker } => {
                assert!(self.running[*worker].is_empty(), "worker {worker} is busy");
                let batch: Vec<_> = self.policy.batch(*worker).collect();
                assert!(!batch.is_empty());
                for token in batch {
                    assert!(self.open.contains(&token), "{token} runs after its end");
                    assert!(
                        !self.running.iter().flatten().any(|&other| other == token),
                        "{token} runs twice"
                    );
                    self.running[*worker].push(token);
                }
            }
            Step::End(end) => self.end(end),
            Step::Wait { until } => assert!(until.is_none_or(|until| until > now)),
            Step::SafeMode(_) | Step::Suspension { .. } => {}
        }
        step
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.policy.batch(worker)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        self.policy.bound(worker)
    }
}

/// Requests in bursts and pauses, of the problem's streams and, where it has background, of one more.
fn random(problem: &Problem, dice: &mut Dice, requests: usize) -> Vec<(Instant, usize)> {
    let last = problem.streams.len() as u64 - u64::from(!problem.background);
    let (mut now, pause) = (0, dice.within(1, 12));
    let arrive = |_| {
        now += dice.within(0, 2 * pause).saturating_sub(pause);
        (at(now), dice.within(0, last) as usize)
    };
    (0..requests).map(arrive).collect()
}

/// Runs `kind` in a random order, with batches that take their time, in half of the cases any up to twice that.
fn watched(kind: PolicyKind, problem: &Problem, dice: &mut Dice) -> Option<(Vec<(Instant, usize)>, Run)> {
    let (arrivals, order) = (random(problem, dice, 120), dice.pick(&Order::ALL));
    let exact = dice.within(0, 1) == 0;
    let time = |_, _, bound: Span| if exact { bound } else { ns(dice.within(1, 2 * bound.as_nanos())) };
    let mut run = Run { streams: problem.streams.len() + 1, ..Run::default() };
    let given = arrivals.iter().copied();
    match kind.rule(problem) {
        Some(rule) => {
            let mut rival = Watched::new(Rival::new(problem, rule));
            drive(&mut rival, given, order, time, &mut run).expect("in order");
        }
        None => {
            let streams = problem.streams.len() + usize::from(problem.background);
            let mut weir = Watched::new(scheduled_by(problem, arrivals.len(), streams, kind.spreads()).ok()?);
            drive(&mut weir, given, order, time, &mut run).expect("in order");
            assert!(weir.open.is_empty(), "the daemon's own lets nothing wait for ever");
        }
    }
    Some((arrivals, run))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_keeps_to_the_rules_of_the_game(problem in any_problem(), seed: u64) {
        let kinds: Vec<_> = problem.workers.iter().flat_map(|kind| vec![kind; kind.count]).collect();
        for kind in PolicyKind::ALL {
            let Some((arrivals, run)) = watched(kind, &problem, &mut Dice(seed)) else { continue };
            let came: Vec<_> = run.requests.iter().map(|r| (r.arrival, r.stream)).collect();
            prop_assert_eq!(&came, &arrivals, "{}", kind);
            for request in &run.requests {
                let batch = request.batch.map(|batch| run.batches[batch]);
                let in_time = batch.is_some_and(|batch| batch.finish <= request.arrival + problem.deadline);
                prop_assert_eq!(request.outcome == Outcome::Served, in_time, "{}", kind);
                prop_assert!(batch.is_none_or(|batch| batch.start >= request.arrival), "{}", kind);
                prop_assert!(request.ended >= request.arrival, "{}", kind);
                let early = batch.is_some_and(|batch| request.ended < batch.finish);
                prop_assert!(!early || request.ended > request.arrival + problem.deadline, "{}", kind);
            }
            for (index, batch) in run.batches.iter().enumerate() {
                let members = run.requests.iter().filter(|r| r.batch == Some(index)).count();
                prop_assert_eq!(batch.size, members, "{}", kind);
                prop_assert!((1..=kinds[batch.worker].profile.max_batch()).contains(&batch.size), "{}", kind);
                let next = run.batches[index + 1..].iter().find(|other| other.worker == batch.worker);
                prop_assert!(next.is_none_or(|next| next.start >= batch.finish), "{}", kind);
            }
        }
    }

    #[test]
    fn no_worker_of_a_work_conserving_policy_idles_while_it_could_serve(problem in any_problem(), seed: u64) {
        let kinds: Vec<_> = problem.workers.iter().flat_map(|kind| vec![kind; kind.count]).collect();
        for kind in WORK_CONSERVING {
            let Some((_, run)) = watched(kind, &problem, &mut Dice(seed)) else { continue };
            for (worker, workers) in kinds.iter().enumerate() {
                let own: Vec<_> = run.batches.iter().filter(|batch| batch.worker == worker).collect();
                let from = [Instant::ZERO].into_iter().chain(own.iter().map(|batch| batch.finish));
                let until = own.iter().map(|batch| batch.start).chain([at(u64::MAX)]);
                for (from, until) in from.zip(until) {
                    for request in &run.requests {
                        let from = from.max(request.arrival);
                        let left = request.batch.map_or(request.ended, |batch| run.batches[batch].start);
                        let could = from + workers.profile.bound(1) <= request.arrival + problem.deadline;
                        prop_assert!(!could || from >= until.min(left), "{kind}: {request:?} for {worker}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_a_free_worker_lets_wait_slower_ones_leave_to_it() {
    let (quick, slow) = (problem(&[2], 1, 12, &[]), problem(&[10], 1, 12, &[]));
    let both = Problem { workers: [slow.workers, quick.workers.clone()].concat(), ..quick };
    let run = play(PolicyKind::EarlyDrop, &both, &[(0, 0), (9, 0), (9, 0)]);
    // The slow one would have to start at 2 for the first, and is too slow for what waits at 10 and 12.
    let told: Vec<_> = run.batches.iter().map(|batch| (batch.worker, batch.start.as_nanos())).collect();
    assert_eq!(told, [(1, 10), (0, 11), (1, 19)]);
}

#[test]
fn names_are_read_as_they_are_written_and_differ() {
    for kind in PolicyKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!(
        PolicyKind::ALL.map(PolicyKind::name).iter().collect::<BTreeSet<_>>().len(),
        PolicyKind::ALL.len()
    );
    assert_eq!(PolicyKind::ALL[0], PolicyKind::default());
}
