//! A service's scheduler behind its lock: whoever holds it publishes what others may see, and is measured.

mod margins;
mod published;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rt_core::pipeline::PipelineShield;
use rt_core::sharing::{Heir, SharedShield};
use rt_core::{
    Action, Arrival, Event, HandOverError, Instant, Joined, Newcomer, Ran, Resolution, Retired, Scheduler,
    Span, StreamError, StreamId, StreamSpec, WorkerId,
};

use super::Meant;
use super::dispatcher::Dispatcher;
use super::names::Names;
use super::staged::{Found, Staged};
use super::view::{ServiceView, StreamView, WorkerView, WorkerViews};
use super::worker::Part;
pub(super) use margins::Margins;
use published::{Core, Member};
use tracing::warn;
use weir_os::clock;
use weir_os::pi_mutex::{PiGuard, PiMutex};

/// What schedules workers, its lock, and what is seen of each service on them without the lock.
pub(super) struct Guarded {
    core: PiMutex<Core>,
    views: Vec<Arc<ServiceView>>,
}

/// The scheduler of one service, until dropped. What changes a stream's counts or a worker goes through the methods here,
/// which publish it; all else is the scheduler's own.
pub struct Held<'a> {
    core: PiGuard<'a, Core>,
    service: usize,
    /// The services that something may have changed of, a bit each.
    changed: u64,
    /// Read under the lock, so that the scheduler's time never goes back.
    pub(super) now: Instant,
}

/// An event, and the stream that it is about.
pub(super) type Named = (Event, Option<Arc<StreamView>>);

impl Guarded {
    /// Of schedulers that have just been made.
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        let workers = Arc::new(WorkerViews::new(dispatcher.worker_count()));
        let stages = dispatcher.staged().map_or(0, |staged| staged.waiting_at().count());
        let member = |service| Member {
            names: Arc::new(Names::with_capacity(dispatcher.service(service).config().streams)),
            open: 0,
            suspensions: 0,
            view: Arc::new(ServiceView::new(Arc::clone(&workers), stages)),
        };
        let services: Vec<Member> = (0..dispatcher.services()).map(member).collect();
        let views = services.iter().map(|service| Arc::clone(&service.view)).collect();
        let margins = Margins::new(dispatcher.overrun_margin());
        Self { core: PiMutex::new(Core { dispatcher, services, workers, margins }), views }
    }

    /// Locks the scheduler of one of the services, and with it those of all.
    pub(super) fn lock(&self, service: usize) -> Held<'_> {
        let core = self.core.lock();
        Held { core, service, changed: 1 << service, now: clock::now() }
    }

    /// What is seen of a service without the lock.
    pub(super) fn view(&self, service: usize) -> &ServiceView {
        &self.views[service]
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.changed |= self.core.unseen();
        while self.changed != 0 {
            self.core.publish(self.changed.trailing_zeros() as usize);
            self.changed &= self.changed - 1;
        }
        self.core.services[self.service].view.publish_hold(clock::now().since(self.now));
    }
}

impl Deref for Held<'_> {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        self.core.dispatcher.service(self.service)
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Scheduler {
        self.core.dispatcher.service_mut(self.service)
    }
}

impl Held<'_> {
    /// The scheduler of any of the services.
    pub(super) fn of(&self, service: usize) -> &Scheduler {
        self.core.dispatcher.service(service)
    }

    /// As [`Scheduler::handle_wanted`]; if it does not say, it was sent when it came.
    pub(super) fn handle_arrival(
        &mut self,
        now: Instant,
        arrival: Arrival,
        meant: Meant,
        room: bool,
    ) -> Option<Resolution> {
        let sent = meant.sent.unwrap_or(arrival.at).min(arrival.at);
        let request = (self.service, arrival.of_class(meant.class));
        let refused = self.core.dispatcher.handle_wanted(now, request, (sent, meant.within), room);
        if let Some(view) = self.core.services[self.service].names.present(arrival.stream) {
            view.pace.came(sent);
        }
        let own = &mut self.core.services[self.service];
        own.open += usize::from(refused.is_none());
        self.core.arrived(self.service, now, arrival.stream);
        refused
    }

    /// As [`Dispatcher::handle_completion`].
    pub(super) fn handle_completion(
        &mut self,
        now: Instant,
        worker: WorkerId,
        ran: Ran,
        batch: (&[Part], &Found),
    ) {
        self.core.dispatcher.handle_completion(now, worker, ran, batch);
        self.core.publish_worker(worker);
    }

    /// As [`rt_core::pipeline::PipelineScheduler::set_shield`], if it is a pipeline.
    pub(super) fn set_staged_shield(&mut self, shield: Option<PipelineShield>) -> Option<PipelineShield> {
        self.core.dispatcher.staged_mut().and_then(|staged| staged.scheduler.set_shield(shield))
    }

    /// As [`rt_core::sharing::Device::set_shield`], where services share the workers.
    pub(super) fn set_shared_shield(&mut self, shield: Option<SharedShield>) -> Option<SharedShield> {
        self.changed = self.core.all();
        let set = self.core.dispatcher.shared_mut().map(|device| device.set_shield(shield));
        set?.inspect_err(|error| warn!("what must be answered goes first: {error}")).ok().flatten()
    }

    /// What is staged, if it is a pipeline.
    pub(super) fn staged(&self) -> Option<&Staged> {
        self.core.dispatcher.staged()
    }

    /// As [`Scheduler::handle_worker_lost`], for all services.
    pub(super) fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        self.core.dispatcher.handle_worker_lost(now, worker);
        self.core.publish_worker(worker);
        self.changed |= self.core.all();
    }

    /// The engine of one of the services is lost on a worker that the others have: as [`Scheduler::handle_worker_lost`] for it
    /// alone, until the worker is ready for all.
    pub(super) fn handle_engine_lost(&mut self, now: Instant, service: usize, worker: WorkerId) {
        self.core.dispatcher.service_mut(service).handle_worker_lost(now, worker);
        self.changed |= 1 << service;
    }

    /// Whether a worker runs a batch of any of the services.
    pub(super) fn is_at_work(&self, worker: WorkerId) -> bool {
        self.core.dispatcher.is_at_work(worker)
    }

    /// As [`Scheduler::handle_worker_ready`], for all services.
    pub(super) fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        self.core.dispatcher.handle_worker_ready(now, worker);
        self.core.publish_worker(worker);
        self.changed |= self.core.all();
    }

    /// As [`Scheduler::poll`]: what is to be done for which of the services.
    pub(super) fn poll(&mut self, now: Instant) -> (usize, Action) {
        let (service, action) = self.core.dispatcher.poll(now);
        match &action {
            Action::Resolve(resolution) => {
                self.changed |= 1 << service;
                self.core.services[service].open -= 1;
                self.core.publish_stream(service, resolution.request.stream);
            }
            Action::Start { worker } => {
                self.changed |= 1 << service;
                self.core.workers.publish(*worker, WorkerView::AtWork);
            }
            Action::Event(event) => {
                self.changed |= 1 << service;
                if let Event::Suspension(suspension) = event {
                    self.core.publish_stream(service, suspension.stream);
                }
            }
            Action::WakeAt(_) => {}
        }
        (service, action)
    }

    /// The event of a service with the stream that it is about.
    pub(super) fn named(&self, service: usize, event: Event) -> Named {
        let stream = match &event {
            Event::SafeMode(transition) => transition.state.alarm.and_then(|alarm| alarm.evidence.stream),
            Event::Suspension(suspension) => Some(suspension.stream),
            Event::MissesLeft { stream, .. } => Some(*stream),
        };
        let names = &self.core.services[service].names;
        (event, stream.and_then(|id| names.get(id)).cloned())
    }

    /// As [`Dispatcher::set_overrun_margin`], before anything runs: what those leave who are there, or are to come with a takeover.
    pub(super) fn set_overrun_margins(&mut self, now: Instant, margins: Margins) {
        // Nothing has run over.
        let _ = self.core.dispatcher.set_overrun_margin(now, margins.least());
        self.core.margins = margins;
    }

    /// As [`Scheduler::try_add_stream`]; it is seen as `view`. Where batches may run over in all, its admission leaves so much for it,
    /// unless it is promised nothing.
    pub(super) fn try_add_stream(
        &mut self,
        now: Instant,
        (newcomer, margin): (Newcomer, Option<Span>),
        view: &Arc<StreamView>,
    ) -> Result<Joined, StreamError> {
        let Core { dispatcher, margins, .. } = &mut *self.core;
        if margin.is_some_and(|margin| !dispatcher.set_overrun_margin(now, margin)) {
            return Ok(Joined::Wait(newcomer));
        }
        let joined = dispatcher.try_add_stream(now, self.service, newcomer)?;
        if let Joined::Added(id, _) = joined {
            margin.into_iter().for_each(|margin| margins.came(self.service, id, margin));
            self.enter(id, view);
        }
        Ok(joined)
    }

    /// What [`Dispatcher::set_overrun_margin`] has set last.
    pub(super) fn overrun_margin(&self) -> Span {
        self.core.dispatcher.overrun_margin()
    }

    /// Whoever waited to be added does not come: batches may run over by as much as `before`, or more if somebody has gone.
    pub(super) fn withdraw_newcomer(&mut self, now: Instant, before: Span) {
        self.withdraw();
        let Core { dispatcher, margins, .. } = &mut *self.core;
        // No more has run over than left room for it, which was less.
        let _ = dispatcher.set_overrun_margin(now, before.max(margins.least()));
    }

    /// As [`Scheduler::add_stream`], where nobody waits for what that allocates.
    pub(super) fn add_stream(
        &mut self,
        now: Instant,
        spec: StreamSpec,
        view: &Arc<StreamView>,
    ) -> Result<StreamId, StreamError> {
        let id = self.core.dispatcher.add_stream(now, self.service, spec)?;
        self.enter(id, view);
        Ok(id)
    }

    /// As [`Scheduler::redeclare`]; it is seen as `view` from now on.
    pub(super) fn redeclare(
        &mut self,
        id: StreamId,
        spec: StreamSpec,
        view: &Arc<StreamView>,
    ) -> Option<Retired> {
        let retired = self.core.dispatcher.redeclare(self.service, id, spec)?;
        self.enter(id, view);
        Some(retired)
    }

    /// As [`Scheduler::expect_streams`].
    pub(super) fn expect_streams(&mut self, places: usize, streams: &[&StreamSpec]) {
        self.core.dispatcher.expect_streams(self.service, places, streams);
    }

    /// A stream that has been added is seen as `view` from now on.
    fn enter(&mut self, id: StreamId, view: &Arc<StreamView>) {
        self.names().insert(id, Arc::clone(view));
        self.core.publish_stream(self.service, id);
    }

    /// As [`Scheduler::restart_stream`]; it is seen as before.
    pub(super) fn restart_stream(&mut self, id: StreamId) -> Option<StreamId> {
        let fresh = self.core.dispatcher.restart_stream(self.now, self.service, id)?;
        if let Some(view) = self.names().present(id).cloned() {
            view.pace.begin_anew();
            self.names().insert(fresh, view);
        }
        self.forget(id);
        self.core.publish_stream(self.service, fresh);
        Some(fresh)
    }

    /// As [`Scheduler::remove_stream`].
    pub(super) fn remove_stream(&mut self, id: StreamId) -> Retired {
        // That its suspension has ended is still to be told, by its name.
        let named = self.suspension(id).is_some();
        let Core { dispatcher, margins, .. } = &mut *self.core;
        let retired = dispatcher.remove_stream(self.now, self.service, id);
        if margins.gone(self.service, id) && margins.least() > dispatcher.overrun_margin() {
            // If it cannot be now, it can once somebody else goes or comes.
            let _ = dispatcher.set_overrun_margin(self.now, margins.least());
        }
        let mut evidence: Vec<_> = self.safe_mode().streams().collect();
        evidence.extend(named.then_some(id));
        self.names().remove(id, &evidence);
        retired
    }

    /// As [`Scheduler::set_quiet`], for all services.
    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.core.dispatcher.set_quiet(quiet);
    }

    /// As [`Dispatcher::hand_over`]; of `successor`, a service of it is held. What its streams have come to is to be shown
    /// behind it: [`Held::publish_streams`].
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        successor: &mut Held<'_>,
        heirs: &[Heir<'_>],
    ) -> Result<(), HandOverError> {
        let Core { dispatcher, margins, .. } = &mut *successor.core;
        self.core.dispatcher.hand_over(now, dispatcher, heirs)?;
        // Who has gone since it was admitted there leaves as much as there was.
        margins.keep(|service, id| dispatcher.service(service).stream_state(id).is_some());
        let _ = dispatcher.set_overrun_margin(now, margins.least());
        for (service, Heir { service: to, ended }) in heirs.iter().enumerate() {
            self.changed |= 1 << service;
            let Some(to) = *to else { continue };
            successor.turn_to(to);
            // Until now nobody waited for it.
            successor.core.services[to].view.forget_hold();
            // What is still to be told of what was cancelled is told by these names, until they are let go of.
            successor.core.services[to].names = Arc::clone(&self.core.services[service].names);
            ended.iter().for_each(|&id| successor.forget(id));
        }
        Ok(())
    }

    /// Lets go of the names of streams that have gone on elsewhere, unless safe mode is about them. As long as two have them, a
    /// change by one is a copy of all.
    pub(super) fn let_names_go(&mut self) {
        let evidence: Vec<_> = self.safe_mode().streams().collect();
        let names = &mut self.core.services[self.service].names;
        *names = Arc::new(names.only(&evidence));
    }

    /// Shows what has become of these streams.
    pub(super) fn publish_streams(&self, ids: &[StreamId]) {
        ids.iter().for_each(|&id| self.core.publish_stream(self.service, id));
    }

    /// Holds the scheduler of another of the services from now on.
    pub(super) fn turn_to(&mut self, service: usize) {
        self.service = service;
        self.changed |= 1 << service;
    }

    fn names(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.core.services[self.service].names)
    }

    /// Lets go of the name of a stream that has gone, unless safe mode is about it.
    fn forget(&mut self, id: StreamId) {
        let evidence: Vec<_> = self.safe_mode().streams().collect();
        self.names().remove(id, &evidence);
    }
}

#[cfg(test)]
mod tests {
    use rt_core::{ArrivalBound, ArrivalCurve, ConstraintSet, Span};

    use super::*;
    use crate::service::tests::small_config;

    #[test]
    fn a_suspension_that_ends_while_nothing_is_announced_is_seen_to_be_over() {
        let scheduler = Scheduler::new(small_config()).expect("valid");
        let guarded = Guarded::new(Dispatcher::Alone(Box::new(scheduler)));
        let window = ArrivalBound::window(1, Span::from_millis(1)).expect("valid");
        let curve = ArrivalCurve::new(&[window]).expect("one");
        let view = Arc::new(StreamView::new("hasty", &StreamSpec::best_effort()));
        let mut held = guarded.lock(0);
        let now = held.now;
        let spec = StreamSpec::promised(ConstraintSet::default(), curve);
        let stream = held.add_stream(now, spec, &view).expect("room");
        for token in 0..2 {
            let within = held.config().deadline;
            let meant = Meant { sent: None, class: 0, due: within, within };
            held.handle_arrival(now, Arrival::new(stream, token, now), meant, true);
        }
        held.inhibit_safe_mode(now + Span::from_millis(60_000));
        drop(held);
        assert!(view.fared().suspended.is_some());
        let mut held = guarded.lock(0);
        while !matches!(held.poll(now + Span::from_millis(1_000)), (_, Action::WakeAt(_))) {}
        drop(held);
        assert_eq!(view.fared().suspended, None);
    }
}
