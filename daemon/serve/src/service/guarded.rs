//! A service's scheduler behind its lock: whoever holds it publishes what others may see, and is measured.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rt_core::{
    Action, Arrival, Event, HandOverError, Instant, Joined, Newcomer, Ran, Resolution, Retired, Scheduler,
    StreamError, StreamId, StreamSpec, WorkerId,
};

use super::names::Names;
use super::view::{ServiceView, StreamView, WorkerView};
use weir_os::clock;
use weir_os::pi_mutex::{PiGuard, PiMutex};

/// A scheduler, its lock, and what is seen of it without the lock.
pub(super) struct Guarded {
    core: PiMutex<Core>,
    view: Arc<ServiceView>,
}

/// The scheduler, until dropped.
pub(super) struct Held<'a> {
    core: PiGuard<'a, Core>,
    /// Read under the lock, so that the scheduler's time never goes back.
    pub(super) now: Instant,
}

/// The scheduler and the streams' names. What changes a stream's counts or a worker goes through the methods here, which
/// publish it; all else is the scheduler's own.
pub struct Core {
    scheduler: Scheduler,
    names: Names,
    /// Requests taken in and not resolved.
    open: usize,
    view: Arc<ServiceView>,
}

/// An event, and the stream that it is about.
pub(super) type Named = (Event, Option<Arc<StreamView>>);

impl Guarded {
    /// Of a scheduler that has just been made.
    pub(super) fn new(scheduler: Scheduler) -> Self {
        let config = scheduler.config();
        let view = Arc::new(ServiceView::new(config.worker_count()));
        let names = Names::with_capacity(config.streams);
        let core = Core { scheduler, names, open: 0, view: Arc::clone(&view) };
        Self { core: PiMutex::new(core), view }
    }

    /// Locks the scheduler.
    pub(super) fn lock(&self) -> Held<'_> {
        let core = self.core.lock();
        Held { core, now: clock::now() }
    }

    /// What is seen of it without the lock.
    pub(super) fn view(&self) -> &ServiceView {
        &self.view
    }
}

impl Deref for Held<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.core.publish();
        self.core.view.publish_hold(clock::now().since(self.now));
    }
}

impl Deref for Core {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl DerefMut for Core {
    fn deref_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }
}

impl Core {
    /// As [`Scheduler::handle_sent`]; without `sent` it was when it came.
    pub(super) fn handle_arrival(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sent: Option<Instant>,
        room: bool,
    ) -> Option<Resolution> {
        let sent = sent.unwrap_or(arrival.at).min(arrival.at);
        let refused = self.scheduler.handle_sent(now, arrival, sent, room);
        if let Some(view) = self.names.present(arrival.stream) {
            view.pace.came(sent);
        }
        self.open += usize::from(refused.is_none());
        self.arrived(now, arrival.stream);
        refused
    }

    /// As [`Scheduler::handle_completion`].
    pub(super) fn handle_completion(&mut self, now: Instant, worker: WorkerId, ran: Ran) {
        self.scheduler.handle_completion(now, worker, ran);
        self.publish_worker(worker);
    }

    /// As [`Scheduler::handle_worker_lost`].
    pub(super) fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        self.scheduler.handle_worker_lost(now, worker);
        self.publish_worker(worker);
    }

    /// As [`Scheduler::handle_worker_ready`].
    pub(super) fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        self.scheduler.handle_worker_ready(now, worker);
        self.publish_worker(worker);
    }

    /// As [`Scheduler::poll`].
    pub(super) fn poll(&mut self, now: Instant) -> Action {
        let action = self.scheduler.poll(now);
        match &action {
            Action::Resolve(resolution) => {
                self.open -= 1;
                self.publish_stream(resolution.request.stream);
            }
            Action::Start { worker } => self.view.publish_worker(*worker, WorkerView::AtWork),
            Action::Event(Event::Suspension(suspension)) => self.publish_stream(suspension.stream),
            Action::Event(_) | Action::WakeAt(_) => {}
        }
        action
    }

    /// The event with the stream that it is about.
    pub(super) fn named(&self, event: Event) -> Named {
        let stream = match &event {
            Event::SafeMode(transition) => transition.state.alarm.and_then(|alarm| alarm.evidence.stream),
            Event::Suspension(suspension) => Some(suspension.stream),
            Event::MissesLeft { stream, .. } => Some(*stream),
        };
        (event, stream.and_then(|id| self.names.get(id)).cloned())
    }

    /// As [`Scheduler::try_add_stream`]; it is seen as `view`.
    pub(super) fn try_add_stream(
        &mut self,
        now: Instant,
        newcomer: Newcomer,
        view: &Arc<StreamView>,
    ) -> Result<Joined, StreamError> {
        let joined = self.scheduler.try_add_stream(now, newcomer)?;
        if let Joined::Added(id, _) = joined {
            self.enter(id, view);
        }
        Ok(joined)
    }

    /// As [`Scheduler::add_stream`], where nobody waits for what that allocates.
    pub(super) fn add_stream(
        &mut self,
        now: Instant,
        spec: StreamSpec,
        view: &Arc<StreamView>,
    ) -> Result<StreamId, StreamError> {
        let id = self.scheduler.add_stream(now, spec)?;
        self.enter(id, view);
        Ok(id)
    }

    /// A stream that has been added is seen as `view` from now on.
    fn enter(&mut self, id: StreamId, view: &Arc<StreamView>) {
        self.names.insert(id, Arc::clone(view));
        self.publish_stream(id);
    }

    /// As [`Scheduler::restart_stream`]; it is seen as before.
    pub(super) fn restart_stream(&mut self, id: StreamId) -> Option<StreamId> {
        let fresh = self.scheduler.restart_stream(id)?;
        if let Some(view) = self.names.present(id).cloned() {
            view.pace.begin_anew();
            self.names.insert(fresh, view);
        }
        self.forget(id);
        self.publish_stream(fresh);
        Some(fresh)
    }

    /// As [`Scheduler::remove_stream`].
    pub(super) fn remove_stream(&mut self, id: StreamId) -> Retired {
        // That its suspension has ended is still to be told, by its name.
        let named = self.scheduler.suspension(id).is_some();
        let retired = self.scheduler.remove_stream(id);
        let mut evidence: Vec<_> = self.scheduler.safe_mode().streams().collect();
        evidence.extend(named.then_some(id));
        self.names.remove(id, &evidence);
        retired
    }

    /// As [`Scheduler::hand_over`].
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        successor: &mut Self,
        ended: &[StreamId],
    ) -> Result<(), HandOverError> {
        self.scheduler.hand_over(now, &mut successor.scheduler, ended)?;
        successor.names.clone_from(&self.names);
        ended.iter().for_each(|&id| successor.forget(id));
        successor.names.ids().for_each(|id| successor.publish_stream(id));
        Ok(())
    }

    fn arrived(&mut self, now: Instant, id: StreamId) {
        if let Some(rate) = self.scheduler.rate_seen_per_s(now) {
            self.view.publish_rate(rate, now);
        }
        self.publish_stream(id);
    }

    /// Lets go of the name of a stream that has gone, unless safe mode is about it.
    fn forget(&mut self, id: StreamId) {
        let evidence: Vec<_> = self.scheduler.safe_mode().streams().collect();
        self.names.remove(id, &evidence);
    }

    fn publish_stream(&self, id: StreamId) {
        if let Some((counts, left)) = self.scheduler.stream_counts(id)
            && let Some(view) = self.names.present(id)
        {
            view.publish(&counts, left, self.scheduler.suspension(id));
        }
    }

    fn publish_worker(&self, worker: WorkerId) {
        let does = match (self.scheduler.is_alive(worker), self.scheduler.batch(worker)) {
            (false, _) => WorkerView::Lost,
            (true, []) => WorkerView::Free,
            (true, _) => WorkerView::AtWork,
        };
        self.view.publish_worker(worker, does);
    }

    /// Publishes what is so of the service as a whole.
    fn publish(&self) {
        self.view.publish_load(self.open, self.scheduler.waiting());
        let evidence = self.scheduler.safe_mode().state().alarm.and_then(|alarm| alarm.evidence.stream);
        let stream = evidence.and_then(|id| self.names.get(id)).map_or("", |view| view.name.as_str());
        self.view.publish_standing(&self.scheduler, stream);
    }
}
