//! What is behind the lock of a scheduler, and what of it is published for those without the lock.

use std::sync::Arc;

use rt_core::{Instant, StreamId, WorkerId};

use super::margins::Margins;
use crate::service::dispatcher::Dispatcher;
use crate::service::names::Names;
use crate::service::view::{ServiceView, WorkerView, WorkerViews};

pub(super) struct Core {
    pub(super) dispatcher: Dispatcher,
    pub(super) services: Vec<Member>,
    pub(super) workers: Arc<WorkerViews>,
    pub(super) margins: Margins,
}

/// What is known of a service beside its scheduler.
pub(super) struct Member {
    /// Of its streams; for an instant also those of who takes over.
    pub(super) names: Arc<Names>,
    /// Requests taken in and not resolved.
    pub(super) open: usize,
    /// How often suspensions had begun or ended when that was published last.
    pub(super) suspensions: u64,
    pub(super) view: Arc<ServiceView>,
}

impl Core {
    pub(super) fn arrived(&mut self, service: usize, now: Instant, id: StreamId) {
        if let Some(rate) = self.dispatcher.rate_seen_per_s(service, now) {
            self.services[service].view.publish_rate(rate, now);
        }
        self.publish_stream(service, id);
    }

    pub(super) fn publish_stream(&self, service: usize, id: StreamId) {
        let scheduler = self.dispatcher.service(service);
        if let Some((counts, left)) = scheduler.stream_counts(id)
            && let Some(state) = scheduler.stream_state(id)
            && let Some(view) = self.services[service].names.present(id)
        {
            view.publish(&counts, left, state);
        }
    }

    /// The services of which suspensions have begun or ended since that was published, a bit each.
    pub(super) fn unseen(&self) -> u64 {
        let changed = |(index, own): &(usize, &Member)| {
            own.suspensions != self.dispatcher.service(*index).suspension_changes()
        };
        self.services.iter().enumerate().filter(changed).fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// A bit for each service.
    pub(super) fn all(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - self.services.len())
    }

    pub(super) fn publish_worker(&self, worker: WorkerId) {
        // A service whose engine is lost there has not the worker that the others have.
        let alive = (0..self.services.len()).any(|service| self.dispatcher.is_alive(service, worker));
        let does = match (alive, self.dispatcher.is_at_work(worker)) {
            (false, _) => WorkerView::Lost,
            (true, false) => WorkerView::Free,
            (true, true) => WorkerView::AtWork,
        };
        self.workers.publish(worker, does);
    }

    /// Publishes what is so of a service as a whole, and of the streams whose suspension began or ended unannounced.
    pub(super) fn publish(&mut self, service: usize) {
        let (scheduler, own) = (self.dispatcher.service(service), &mut self.services[service]);
        let changes = scheduler.suspension_changes();
        if std::mem::replace(&mut own.suspensions, changes) != changes {
            scheduler.untold_suspensions().for_each(|id| self.publish_stream(service, id));
        }
        let (scheduler, Member { names, open, view, .. }) =
            (self.dispatcher.service(service), &self.services[service]);
        view.publish_load(*open, self.dispatcher.waiting(service));
        if let Some(staged) = self.dispatcher.staged() {
            view.publish_stages(staged.waiting_at());
        }
        // Each stage of a pipeline has workers of its own, which tell of themselves.
        view.publish_served(self.dispatcher.staged().is_some() || scheduler.workers_alive() > 0);
        let evidence = scheduler.safe_mode().state().alarm.and_then(|alarm| alarm.evidence.stream);
        let stream = evidence.and_then(|id| names.get(id)).map_or("", |view| view.name.as_str());
        let staged = self.dispatcher.staged().map(|staged| staged.scheduler.has_shield());
        let (shared, ahead) = match self.dispatcher.shared() {
            Some(device) => (Some(device.has_shield()), device.gone_ahead_of(service)),
            None => (None, 0),
        };
        let shielded = staged.or(shared).unwrap_or_else(|| scheduler.shield().is_some());
        view.publish_standing(scheduler, (shielded, ahead), stream);
    }
}
