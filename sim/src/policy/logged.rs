//! A policy that is written down: what came, what was begun and what ended, in the order in which it happened.

use rt_core::{Instant, MissReason, Outcome, Span, WorkerId};

use super::{End, Policy, Step};
use crate::log::{Entry, Member};

/// A policy and what it did so far.
#[derive(Debug)]
pub struct Logged<P> {
    policy: P,
    /// Everything so far, for a [`crate::Log`].
    pub entries: Vec<(Instant, Entry)>,
    /// Each request by its token, and whether it was begun.
    requests: Vec<(Member, bool)>,
    /// Of each stream, how many have come.
    sent: Vec<u64>,
}

impl<P: Policy> Logged<P> {
    /// Writes down what `policy` does.
    pub fn new(policy: P) -> Self {
        Self { policy, entries: Vec::new(), requests: Vec::new(), sent: Vec::new() }
    }

    /// A mandatory request that was given up without having been begun.
    fn note(&mut self, now: Instant, end: &End) {
        let given_up =
            end.mandatory && matches!(end.outcome, Outcome::Missed(reason) if reason != MissReason::Late);
        if let Some(&(member, false)) = self.requests.get(end.token as usize).filter(|_| given_up) {
            self.entries.push((now, Entry::Refuses(member)));
        }
    }
}

impl<P: Policy> Policy for Logged<P> {
    fn workers(&self) -> usize {
        self.policy.workers()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        if stream >= self.sent.len() {
            self.sent.resize(stream + 1, 0);
        }
        self.requests.push((Member { stream, seq: self.sent[stream] }, false));
        self.sent[stream] += 1;
        self.entries.push((now, Entry::Arrives(stream)));
        let end = self.policy.arrive(now, stream, token)?;
        self.note(now, &end);
        Some(end)
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.entries.push((now, Entry::Ends(worker)));
        self.policy.complete(now, worker, time);
    }

    fn poll(&mut self, now: Instant) -> Step {
        let step = self.policy.poll(now);
        match step {
            Step::Start { worker } => {
                let tokens: Vec<_> = self.policy.batch(worker).collect();
                tokens.iter().for_each(|&token| self.requests[token as usize].1 = true);
                let batch = tokens.iter().map(|&token| self.requests[token as usize].0).collect();
                self.entries.push((now, Entry::Starts { worker, length: self.policy.bound(worker), batch }));
            }
            Step::End(end) => self.note(now, &end),
            Step::SafeMode(_) | Step::Suspension { .. } | Step::Wait { .. } => {}
        }
        step
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.policy.batch(worker)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        self.policy.bound(worker)
    }

    fn variant(&self, worker: WorkerId) -> usize {
        self.policy.variant(worker)
    }
}
