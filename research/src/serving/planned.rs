//! Choosers that were planned ahead: RAMSIS, worker by worker, and ours, for one shared queue.

use std::sync::Arc;

use rt_core::Span;

use super::{Choice, Chooser, View};
use crate::ramsis::{Action, PolicySet};
use crate::select::{Decision, Policy, State, Take};

/// RAMSIS (Mendoza et al., EuroSys 2024): each worker has its own queue, which requests join in turn, and a policy for
/// the load of the last half second: that of the lowest load for which there is one, and that is at least as high.
#[derive(Clone, Debug)]
pub struct Ramsis(pub Arc<PolicySet>);

impl Chooser for Ramsis {
    fn has_own_queues(&self) -> bool {
        true
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        let set = self.0.at(view.load).or(self.0.all().last());
        let slack = view.queue[0].deadline.since(view.now);
        match set.map(|loaded| loaded.policy.action(view.queue.len(), slack)) {
            Some(Action { model: Action::DROP, .. }) => Choice::Drop,
            Some(Action { model, batch }) => {
                Choice::Start { model: usize::from(model), batch: usize::from(batch), newest: false }
            }
            None => Choice::Wait { until: None },
        }
    }
}

/// Ours: one queue for all workers, batches chosen by the price of worker time ([`crate::select`]), by the policy of
/// the lowest load that is at least that of the last half second, of one or several by rising load.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<[(f64, Policy)]>);

impl Chooser for Shared {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let at = self.0.partition_point(|(load, _)| *load < view.load).min(self.0.len() - 1);
        (&self.0[at].1).choose(view)
    }
}

impl Chooser for &Policy {
    fn choose(&mut self, view: &View<'_>) -> Choice {
        let end = view.now + self.horizon();
        let state = State {
            now: view.now,
            waiting: view.arrivals,
            free: view.free,
            soon: view.busy.iter().filter(|&&free| free <= end).count(),
            longest: Span::from_nanos(u64::MAX),
        };
        match self.decide(&state) {
            Decision::Start { model, batch, take } => {
                Choice::Start { model, batch, newest: take == Take::Newest }
            }
            Decision::Wait { until } => Choice::Wait { until },
            Decision::Refuse => Choice::Drop,
        }
    }
}
