//! What decides when a worker starts which batch: the scheduler of one service, or those of all that share a device.

use rt_core::sharing::{Device, DeviceAction, Heir};
use rt_core::{Action, Arrival, HandOverError, Instant, Ran, Resolution, Scheduler, Span, WorkerId};

/// What decides when a worker starts which batch.
pub(super) enum Dispatcher {
    /// The scheduler of a service that has its workers to itself.
    Alone(Box<Scheduler>),
    /// Those of services that share them.
    Shared(Box<Device>),
}

impl Dispatcher {
    /// The scheduler of one of the services.
    pub(super) fn service(&self, service: usize) -> &Scheduler {
        match self {
            Self::Alone(scheduler) => scheduler,
            Self::Shared(device) => device.service(service),
        }
    }

    pub(super) fn service_mut(&mut self, service: usize) -> &mut Scheduler {
        match self {
            Self::Alone(scheduler) => scheduler,
            Self::Shared(device) => device.service_mut(service),
        }
    }

    /// How many there are.
    pub(super) fn services(&self) -> usize {
        match self {
            Self::Alone(_) => 1,
            Self::Shared(device) => device.services(),
        }
    }

    /// As [`Scheduler::poll`]: what is to be done for which of the services.
    pub(super) fn poll(&mut self, now: Instant) -> (usize, Action) {
        match self {
            Self::Alone(scheduler) => (0, scheduler.poll(now)),
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
        }
    }

    /// As [`Scheduler::handle_completion`].
    pub(super) fn handle_completion(&mut self, now: Instant, worker: WorkerId, ran: Ran) {
        match self {
            Self::Alone(scheduler) => scheduler.handle_completion(now, worker, ran),
            Self::Shared(device) => device.handle_completion(now, worker, ran),
        }
    }

    /// As [`Scheduler::handle_worker_lost`], for all services.
    pub(super) fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        match self {
            Self::Alone(scheduler) => scheduler.handle_worker_lost(now, worker),
            Self::Shared(device) => device.handle_worker_lost(now, worker),
        }
    }

    /// As [`Scheduler::handle_worker_ready`], for all services.
    pub(super) fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        match self {
            Self::Alone(scheduler) => scheduler.handle_worker_ready(now, worker),
            Self::Shared(device) => device.handle_worker_ready(now, worker),
        }
    }

    /// As [`Device::set_overrun_margin`], where services share the workers.
    pub(super) fn set_overrun_margin(&mut self, now: Instant, margin: Span) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::Shared(device) => device.set_overrun_margin(now, margin),
        }
    }

    /// As [`Scheduler::set_quiet`], for all services.
    pub(super) fn set_quiet(&mut self, quiet: bool) {
        match self {
            Self::Alone(scheduler) => scheduler.set_quiet(quiet),
            Self::Shared(device) => device.set_quiet(quiet),
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
            (Self::Shared(device), Self::Shared(next), _) => device.hand_over(now, next, heirs),
            _ => Err(HandOverError::NotNew),
        }
    }

    /// Whether a worker runs a batch of any of the services.
    pub(super) fn is_at_work(&self, worker: WorkerId) -> bool {
        match self {
            Self::Alone(scheduler) => !scheduler.batch(worker).is_empty(),
            Self::Shared(device) => device.owner(worker).is_some(),
        }
    }
}
