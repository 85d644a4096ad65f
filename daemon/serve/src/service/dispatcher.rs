//! What decides when a worker starts which batch: the scheduler of one service or of a pipeline, or those of all services that
//! share a device.

use rt_core::sharing::{Device, DeviceAction, Heir};
use rt_core::{
    Action, Arrival, HandOverError, Instant, Joined, Newcomer, Ran, Resolution, Retired, Scheduler, Span,
    StreamError, StreamId, StreamSpec, WorkerId,
};

use super::staged::{Found, Staged};
use super::worker::Part;

/// What decides when a worker starts which batch.
pub(super) enum Dispatcher {
    /// The scheduler of a service that has its workers to itself.
    Alone(Box<Scheduler>),
    /// Those of services that share them.
    Shared(Box<Device>),
    /// That of a pipeline, whose stages have workers of their own.
    Staged(Box<Staged>),
}

impl Dispatcher {
    /// The scheduler of one of the services; of a pipeline that of its first stage, where sources come in.
    pub(super) fn service(&self, service: usize) -> &Scheduler {
        match self {
            Self::Alone(scheduler) => scheduler,
            Self::Shared(device) => device.service(service),
            Self::Staged(staged) => staged.scheduler.first(),
        }
    }

    pub(super) fn service_mut(&mut self, service: usize) -> &mut Scheduler {
        match self {
            Self::Alone(scheduler) => scheduler,
            Self::Shared(device) => device.service_mut(service),
            Self::Staged(staged) => staged.scheduler.first_mut(),
        }
    }

    /// What is staged, if it is a pipeline.
    pub(super) fn staged(&self) -> Option<&Staged> {
        match self {
            Self::Staged(staged) => Some(staged),
            _ => None,
        }
    }

    pub(super) fn staged_mut(&mut self) -> Option<&mut Staged> {
        match self {
            Self::Staged(staged) => Some(staged),
            _ => None,
        }
    }

    /// The device that services share, if they do.
    pub(super) fn shared(&self) -> Option<&Device> {
        match self {
            Self::Shared(device) => Some(device),
            _ => None,
        }
    }

    pub(super) fn shared_mut(&mut self) -> Option<&mut Device> {
        match self {
            Self::Shared(device) => Some(device),
            _ => None,
        }
    }

    /// As [`Scheduler::rate_seen_per_s`], of one of the services.
    pub(super) fn rate_seen_per_s(&mut self, service: usize, now: Instant) -> Option<f64> {
        match self {
            Self::Shared(device) => device.rate_seen_per_s(service, now),
            _ => self.service_mut(service).rate_seen_per_s(now),
        }
    }

    /// How many workers there are.
    pub(super) fn worker_count(&self) -> usize {
        self.staged().map_or_else(|| self.service(0).config().worker_count(), Staged::worker_count)
    }

    /// Whether a worker is there for a service.
    pub(super) fn is_alive(&self, service: usize, worker: WorkerId) -> bool {
        match self {
            Self::Staged(staged) => {
                let (stage, worker) = staged.place_of(worker);
                staged.scheduler.is_alive(stage, worker)
            }
            _ => self.service(service).is_alive(worker),
        }
    }

    /// Requests of a service that wait.
    pub(super) fn waiting(&self, service: usize) -> usize {
        self.staged().map_or_else(|| self.service(service).waiting(), Staged::waiting)
    }

    /// As [`Scheduler::try_add_stream`], to one of the services.
    pub(super) fn try_add_stream(
        &mut self,
        now: Instant,
        service: usize,
        newcomer: Newcomer,
    ) -> Result<Joined, StreamError> {
        match self {
            Self::Staged(staged) => staged.scheduler.try_add_stream(now, newcomer),
            _ => self.service_mut(service).try_add_stream(now, newcomer),
        }
    }

    /// As [`Scheduler::add_stream`], to one of the services.
    pub(super) fn add_stream(
        &mut self,
        now: Instant,
        service: usize,
        spec: StreamSpec,
    ) -> Result<StreamId, StreamError> {
        match self {
            Self::Staged(staged) => staged.scheduler.add_stream(now, spec),
            _ => self.service_mut(service).add_stream(now, spec),
        }
    }

    /// As [`Scheduler::restart_stream`], of one of the services.
    pub(super) fn restart_stream(&mut self, now: Instant, service: usize, id: StreamId) -> Option<StreamId> {
        match self {
            Self::Staged(staged) => staged.scheduler.restart_stream(now, id),
            _ => self.service_mut(service).restart_stream(id),
        }
    }

    /// As [`Scheduler::redeclare`], of one of the services.
    pub(super) fn redeclare(&mut self, service: usize, id: StreamId, spec: StreamSpec) -> Option<Retired> {
        match self {
            Self::Staged(staged) => staged.scheduler.redeclare(id, spec),
            _ => self.service_mut(service).redeclare(id, spec),
        }
    }

    /// As [`Scheduler::expect_streams`], of one of the services.
    pub(super) fn expect_streams(&mut self, service: usize, places: usize, streams: &[&StreamSpec]) {
        let streams = streams.iter().copied();
        match self {
            Self::Staged(staged) => staged.scheduler.expect_streams(places, streams),
            _ => self.service_mut(service).expect_streams(places, streams),
        }
    }

    /// As [`Scheduler::remove_stream`], of one of the services.
    pub(super) fn remove_stream(&mut self, now: Instant, service: usize, id: StreamId) -> Retired {
        match self {
            Self::Staged(staged) => staged.scheduler.remove_stream(now, id),
            _ => self.service_mut(service).remove_stream(id),
        }
    }

    /// How many there are.
    pub(super) fn services(&self) -> usize {
        match self {
            Self::Alone(_) | Self::Staged(_) => 1,
            Self::Shared(device) => device.services(),
        }
    }

    /// As [`Scheduler::poll`]: what is to be done for which of the services.
    pub(super) fn poll(&mut self, now: Instant) -> (usize, Action) {
        match self {
            Self::Alone(scheduler) => (0, scheduler.poll(now)),
            Self::Staged(staged) => (0, staged.poll(now)),
            Self::Shared(device) => match device.poll(now) {
                DeviceAction::Start { service, worker } => (service, Action::Start { worker }),
                DeviceAction::Resolve(service, resolution) => (service, Action::Resolve(resolution)),
                DeviceAction::Event(service, event) => (service, Action::Event(event)),
                DeviceAction::WakeAt(at) => (0, Action::WakeAt(at)),
            },
        }
    }

    /// As [`Scheduler::handle_wanted`], of a request for one of the services.
    pub(super) fn handle_wanted(
        &mut self,
        now: Instant,
        (service, arrival): (usize, Arrival),
        wanted: (Instant, Span),
        room: bool,
    ) -> Option<Resolution> {
        match self {
            Self::Alone(scheduler) => scheduler.handle_wanted(now, arrival, wanted, room),
            Self::Shared(device) => device.handle_wanted(now, service, arrival, wanted, room),
            Self::Staged(staged) => staged.scheduler.handle_wanted(now, arrival, wanted, room),
        }
    }

    /// As [`Scheduler::handle_completion`]; of a pipeline with the requests of the batch and what was found in their results.
    pub(super) fn handle_completion(
        &mut self,
        now: Instant,
        worker: WorkerId,
        ran: Ran,
        batch: (&[Part], &Found),
    ) {
        match self {
            Self::Alone(scheduler) => scheduler.handle_completion(now, worker, ran),
            Self::Shared(device) => device.handle_completion(now, worker, ran),
            Self::Staged(staged) => staged.handle_completion(now, worker, ran, batch),
        }
    }

    /// As [`Scheduler::handle_worker_lost`], for all services.
    pub(super) fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        match self {
            Self::Alone(scheduler) => scheduler.handle_worker_lost(now, worker),
            Self::Shared(device) => device.handle_worker_lost(now, worker),
            Self::Staged(staged) => staged.handle_worker_lost(now, worker),
        }
    }

    /// As [`Scheduler::handle_worker_ready`], for all services.
    pub(super) fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        match self {
            Self::Alone(scheduler) => scheduler.handle_worker_ready(now, worker),
            Self::Shared(device) => device.handle_worker_ready(now, worker),
            Self::Staged(staged) => staged.handle_worker_ready(now, worker),
        }
    }

    /// As [`Device::set_overrun_margin`] or [`rt_core::pipeline::PipelineScheduler::set_overrun_margin`].
    pub(super) fn set_overrun_margin(&mut self, now: Instant, margin: Span) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::Shared(device) => device.set_overrun_margin(now, margin),
            Self::Staged(staged) => staged.scheduler.set_overrun_margin(now, margin),
        }
    }

    /// What that has set last; nothing where there is no margin.
    pub(super) fn overrun_margin(&self) -> Span {
        match self {
            Self::Alone(_) => Span::ZERO,
            Self::Shared(device) => device.overrun_margin(),
            Self::Staged(staged) => staged.scheduler.overrun_margin(),
        }
    }

    /// As [`Scheduler::set_quiet`], for all services.
    pub(super) fn set_quiet(&mut self, quiet: bool) {
        match self {
            Self::Alone(scheduler) => scheduler.set_quiet(quiet),
            Self::Shared(device) => device.set_quiet(quiet),
            Self::Staged(staged) => staged.scheduler.set_quiet(quiet),
        }
    }

    /// As [`Scheduler::hand_over`] or [`Device::hand_over`], to one of the same form.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        next: &mut Self,
        heirs: &[Heir<'_>],
    ) -> Result<(), HandOverError> {
        match (self, next, heirs) {
            (Self::Alone(scheduler), Self::Alone(next), [Heir { service: Some(_), ended }]) => {
                scheduler.hand_over(now, next, ended)
            }
            (Self::Staged(staged), Self::Staged(next), [Heir { service: Some(_), ended }]) => {
                staged.scheduler.hand_over(now, &mut next.scheduler, ended)
            }
            (Self::Shared(device), Self::Shared(next), _) => device.hand_over(now, next, heirs),
            _ => Err(HandOverError::NotNew),
        }
    }

    /// Whether a worker runs a batch of any of the services.
    pub(super) fn is_at_work(&self, worker: WorkerId) -> bool {
        match self {
            Self::Alone(scheduler) => !scheduler.batch(worker).is_empty(),
            Self::Shared(device) => device.owner(worker).is_some(),
            Self::Staged(staged) => staged.is_at_work(worker),
        }
    }
}
