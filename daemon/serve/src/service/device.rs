//! The workers that a service runs on, alone or with others: the lock of what schedules them, their mailboxes, their timer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::dispatcher::Dispatcher;
use super::guarded::{Guarded, Held};
use super::recorder::Recorder;
use super::takeover::Takeover;
use super::timer::Timer;
use super::worker::Mailbox;
use super::{Effects, Service};
use weir_os::realtime::{self, Role};

/// What services have in common that run on the same workers; a service by itself has one of its own.
pub(super) struct Device {
    core: Guarded,
    /// One a worker.
    pub(super) mailboxes: Vec<Mailbox>,
    pub(super) timer: Timer,
    /// Held by the one new stream that is being admitted.
    pub(super) admission: Mutex<()>,
    /// Threads between what was decided and the last answer of it, see [`super::tell::Decided`].
    pub(super) telling: AtomicUsize,
    /// Who takes over from all that run on it.
    pub(super) takeover: Takeover,
    /// Set before the first request comes; who takes over goes on with that of the device before.
    pub(super) recorder: OnceLock<Arc<Recorder>>,
    /// Who runs on it, by the numbers that the dispatcher knows them by; set before anything runs.
    services: OnceLock<Box<[Weak<Service>]>>,
}

impl Device {
    /// Of workers that nothing runs on yet.
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        let workers = dispatcher.worker_count();
        Self {
            core: Guarded::new(dispatcher),
            mailboxes: (0..workers).map(|_| Mailbox::new()).collect(),
            timer: Timer::new(),
            admission: Mutex::default(),
            telling: AtomicUsize::new(0),
            takeover: Takeover::default(),
            recorder: OnceLock::new(),
            services: OnceLock::new(),
        }
    }

    /// These run on it from now on.
    pub(super) fn carry(&self, services: &[Arc<Service>]) {
        let _ = self.services.set(services.iter().map(Arc::downgrade).collect());
    }

    /// Everybody who runs on it and has not gone.
    pub(super) fn services(&self) -> impl Iterator<Item = Arc<Service>> + '_ {
        self.services.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// One of them.
    pub(super) fn service(&self, index: usize) -> Option<Arc<Service>> {
        self.services.get()?.get(index)?.upgrade()
    }

    /// Locks what schedules the workers, on behalf of the service `index`.
    pub(super) fn lock(&self, index: usize) -> Held<'_> {
        self.core.lock(index)
    }

    /// What is seen without the lock of the service `index`.
    pub(super) fn view(&self, index: usize) -> &super::ServiceView {
        self.core.view(index)
    }

    /// Nobody tells anybody anything.
    pub(super) fn is_silent(&self) -> bool {
        self.telling.load(Ordering::Acquire) == 0
    }

    /// Ends the threads; what still runs is finished first.
    pub(super) fn stop(&self) {
        self.timer.stop();
        self.mailboxes.iter().for_each(Mailbox::stop);
    }
}

/// Wakes the scheduler of the device that `service` runs on, until it is stopped.
pub(super) fn keep_time(service: &Service) {
    realtime::enter(Role::Dispatch, None, service.realtime);
    let (mut effects, timer) = (Effects::default(), &service.device.timer);
    while timer.wait() {
        let mut at = None;
        service.with_scheduler(&mut effects, |_, now| at = Some(now));
        // Only now: what the scheduler decided has been carried out too.
        timer.note_poll(at);
    }
}
