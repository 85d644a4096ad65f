//! Services whose engine is lost on the one worker that they share: the others have it meanwhile, but for the time that loading
//! takes.
//!
//! A worker serves nobody while it loads: a process that loads has the core and the priority of its worker. So it is taken from all
//! services once a pause is over, for one attempt. Whose engine cannot be loaded has it tried again after a longer pause, and costs
//! the others one attempt a pause.

use std::sync::Arc;
use std::time::Duration;

use rt_core::{Instant, Span, WorkerId};
use tracing::error;

use super::absence::Absence;
use super::executor::Executor;
use super::{Effects, Service, lock};
use weir_engine::Files;
use weir_os::clock;

/// The services of a worker, and which of them have no engine there.
pub(super) struct Away<'a> {
    services: &'a [Arc<Service>],
    worker: WorkerId,
    /// When it is tried again, of those that are away.
    due: Vec<Option<Instant>>,
    absences: Vec<Absence>,
}

impl<'a> Away<'a> {
    /// All have their engine.
    pub(super) fn new(services: &'a [Arc<Service>], worker: WorkerId, now: Instant) -> Self {
        let absences = services.iter().map(|_| Absence::new(now)).collect();
        Self { services, worker, due: vec![None; services.len()], absences }
    }

    /// How long until it is tried again to load an engine.
    pub(super) fn until_next(&self, now: Instant) -> Duration {
        let next = self.due.iter().flatten().min();
        next.map_or(Duration::MAX, |next| clock::duration(next.since(now)))
    }

    /// Whether the worker is to be taken from all, to load an engine.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.iter().flatten().any(|&due| due <= now)
    }

    /// The engines of these, a bit each, are lost, and the worker is lost to all: gives it back to the others.
    pub(super) fn leave(&mut self, broken: u64, effects: &mut Effects) {
        for (index, service) in self.services.iter().enumerate().filter(|(index, _)| broken >> index & 1 == 1)
        {
            // Ends its process, if it has one, before there is another.
            lock(&service.executors[self.worker]).clear();
            self.due[index] = Some(later(&mut self.absences[index]));
        }
        self.give_back(effects);
    }

    /// The worker is lost to all: loads what is due, and gives it back to those that have an engine then.
    pub(super) fn bring_back(&mut self, effects: &mut Effects) {
        for (index, service) in self.services.iter().enumerate() {
            if self.due[index].is_none_or(|due| due > clock::now()) {
                continue;
            }
            // It ends, and the device may yet go on.
            if service.is_stopped() {
                self.due[index] = Some(later(&mut self.absences[index]));
                continue;
            }
            let fresh =
                Executor::new(&service.plan, self.worker, &service.place(self.worker), &mut Files::default());
            let fresh = fresh
                .and_then(|mut executor| executor.warm_up(&service.plan, self.worker).map(|()| executor));
            match fresh {
                Ok(executor) => {
                    *lock(&service.executors[self.worker]) = executor;
                    self.absences[index].serving(clock::now());
                    self.due[index] = None;
                }
                Err(error) => {
                    error!("service {}: worker {}: {error}", service.name(), self.worker);
                    self.due[index] = Some(later(&mut self.absences[index]));
                }
            }
        }
        self.give_back(effects);
    }

    /// Everybody but those that are away has the worker again.
    fn give_back(&self, effects: &mut Effects) {
        let away = self.due.iter().enumerate().filter(|(_, due)| due.is_some()).map(|(index, _)| index);
        self.services[0].with_scheduler(effects, |scheduler, now| {
            scheduler.handle_worker_ready(now, self.worker);
            away.for_each(|index| scheduler.handle_engine_lost(now, index, self.worker));
        });
        self.services.iter().for_each(|service| service.audience.refresh());
    }
}

/// After the next pause.
fn later(absence: &mut Absence) -> Instant {
    let now = clock::now();
    now + Span::from_nanos(u64::try_from(absence.pause(now).as_nanos()).unwrap_or(u64::MAX))
}
