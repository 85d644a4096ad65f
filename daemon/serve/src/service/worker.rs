//! A worker: one thread that runs one batch at a time on its own copies of the models.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rt_core::{MAX_BATCH, WorkerId};

use super::absence::Absence;
use super::away::Away;
use super::executor::Executor;
use super::lock;
use super::{Effects, Service};
use tracing::error;
use weir_engine::{EngineKind, Files, Isolation};
use weir_os::clock;
use weir_os::realtime;
use weir_plan::models::Descent;

/// How often an idle worker looks whether its process or server is still there: one that died idle need not cost a batch.
const LOOK: Duration = Duration::from_millis(100);

/// A request of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of the request, or of the source that it is of.
    pub(super) token: u64,
    /// Of a pipeline: its number among what the source became at the stage, and what it was made of.
    pub(super) index: u32,
    pub(super) of: Descent,
}

/// Where a worker finds its next batch. Its lock needs no priority inheritance, for whoever
/// puts a batch in has real-time priority meanwhile.
pub(crate) struct Mailbox {
    next: Mutex<Job>,
    arrived: Condvar,
}

#[derive(Default)]
struct Job {
    parts: Vec<Part>,
    /// Whose they are.
    service: usize,
    /// What they are to be run with.
    variant: usize,
    full: bool,
    /// The services whose models must be loaded anew, a bit each.
    broken: u64,
    stopped: bool,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        let job = Job { parts: Vec::with_capacity(MAX_BATCH), ..Job::default() };
        Self { next: Mutex::new(job), arrived: Condvar::new() }
    }

    /// Puts a batch of a service in, for one of its variants. The scheduler starts a worker only when it is free, so the box
    /// is empty.
    pub(crate) fn put(&self, (service, variant): (usize, usize), parts: impl Iterator<Item = Part>) {
        let mut job = lock(&self.next);
        (job.service, job.variant) = (service, variant);
        job.parts.clear();
        job.parts.extend(parts);
        job.full = true;
    }

    /// Wakes the worker, to be called when the caller holds no lock that it will want.
    pub(crate) fn ring(&self) {
        self.arrived.notify_one();
    }

    pub(crate) fn stop(&self) {
        lock(&self.next).stopped = true;
        self.ring();
    }

    /// The models of a service are lost, and are to be loaded anew by the worker, which is lost to the scheduler. What that has given it
    /// since it looked whether they are there has been missed, and is run no more: its slots may be others' by now.
    pub(super) fn break_down(&self, service: usize) {
        let mut job = lock(&self.next);
        (job.full, job.broken) = (false, job.broken | 1 << service);
        drop(job);
        self.ring();
    }

    /// Takes the batch out, and tells its variant; `None` if there is none.
    pub(super) fn take(&self, parts: &mut Vec<Part>) -> Option<usize> {
        let mut job = lock(&self.next);
        std::mem::swap(&mut job.parts, parts);
        std::mem::take(&mut job.full).then_some(job.variant)
    }

    /// Waits until something is to be done, or it is time to look after the process.
    fn wait(&self, look: Duration) -> Errand {
        let idle = |job: &mut Job| !job.full && job.broken == 0 && !job.stopped;
        let waited = self.arrived.wait_timeout_while(lock(&self.next), look, idle);
        let (mut job, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let broken = if job.full || job.stopped { 0 } else { std::mem::take(&mut job.broken) };
        match (job.full, job.stopped, broken) {
            // What was begun is answered, whatever comes after.
            (true, ..) => Errand::Batch(job.service),
            (_, true, _) => Errand::Stop,
            (_, _, 0) => Errand::Look,
            (_, _, broken) => Errand::Reload(broken),
        }
    }

    /// Lets `pause` pass, but no longer than the service lasts; false once that is over.
    fn rest(&self, pause: Duration) -> bool {
        let on = |job: &mut Job| !job.stopped;
        let waited = self.arrived.wait_timeout_while(lock(&self.next), pause, on);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

enum Errand {
    /// Of this service.
    Batch(usize),
    /// Of these services, a bit each.
    Reload(u64),
    Look,
    Stop,
}

/// The life of worker `id` of a device with these services, which lets go of `warm` once it is.
pub(crate) fn run(services: &[Arc<Service>], id: WorkerId, warm: Sender<()>) {
    // The cores and the priority are the device's: those of any.
    let (any, device) = (&services[0], &services[0].device);
    realtime::enter(realtime::Role::Worker, any.place(id).core, any.realtime);
    let (mut effects, mut absence) = (Effects::default(), Absence::new(clock::now()));
    let mut away = Away::new(services, id, clock::now());
    // Of several workers one is lost to all until it has all its engines again: the others go on.
    let is_shared = services.len() > 1 && device.mailboxes.len() == 1;
    for service in services {
        if let Err(error) = lock(&service.executors[id]).warm_up(&service.plan, id) {
            error!("{}: {error}", service.worker(id));
            service.lose_worker(&mut effects, id);
        }
    }
    drop(warm);
    // A process of its own may end, and a server hang up.
    let elsewhere = |service: &Arc<Service>| {
        let config = &service.plan.on_worker(id).0.config;
        config.isolation == Isolation::Process || config.engine == EngineKind::Oip
    };
    let looks = services.iter().any(elsewhere);
    let mut looked = clock::now();
    loop {
        // From the last look on, and not from the last batch: of several services one may run batches all the time.
        let look = match looks {
            true => LOOK.saturating_sub(Duration::from_nanos(clock::now().since(looked).as_nanos())),
            false => Duration::MAX,
        };
        match device.mailboxes[id].wait(look.min(away.until_next(clock::now()))) {
            Errand::Stop => return,
            Errand::Batch(index) => {
                let (service, leave) = (&services[index], away.is_due(clock::now()));
                if lock(&service.executors[id]).run_batch(service, id, &mut effects, leave) {
                    away.bring_back(&mut effects);
                }
            }
            Errand::Look => {
                looked = clock::now();
                for service in services.iter() {
                    let lost = lock(&service.executors[id]).lost();
                    if let Some(reason) = lost {
                        error!("{}: {reason}", service.worker(id));
                        service.lose_worker(&mut effects, id);
                    }
                }
                if away.is_due(clock::now()) && any.take_idle(&mut effects, id) {
                    away.bring_back(&mut effects);
                }
            }
            Errand::Reload(broken) if is_shared => away.leave(broken, &mut effects),
            Errand::Reload(broken) => {
                let broken = services.iter().filter(|service| broken >> service.index & 1 == 1);
                if !broken.into_iter().all(|service| reload(service, id, &mut absence)) {
                    return;
                }
                absence.serving(clock::now());
                any.with_scheduler(&mut effects, |scheduler, now| scheduler.handle_worker_ready(now, id));
                services.iter().for_each(|service| service.audience.refresh());
            }
        }
    }
}

/// Loads the variants of a service until they can be loaded and run; false once it stops.
fn reload(service: &Service, id: WorkerId, absence: &mut Absence) -> bool {
    // Ends its process, if it has one, before there is another.
    lock(&service.executors[id]).clear();
    loop {
        if !service.device.mailboxes[id].rest(absence.pause(clock::now())) {
            return false;
        }
        let fresh = Executor::new(&service.plan, id, &service.place(id), &mut Files::default());
        let fresh = fresh.and_then(|mut executor| executor.warm_up(&service.plan, id).map(|()| executor));
        if service.is_stopped() {
            return false;
        }
        match fresh {
            Ok(executor) => {
                *lock(&service.executors[id]) = executor;
                return true;
            }
            Err(error) => error!("{}: {error}", service.worker(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_is_given_just_before_it_is_seen_to_be_lost_is_not_run() {
        let mailbox = Mailbox::new();
        mailbox.put((0, 0), [Part::default()].into_iter());
        mailbox.break_down(0);
        assert_eq!(mailbox.take(&mut Vec::new()), None);
        assert!(matches!(mailbox.wait(Duration::ZERO), Errand::Reload(1)));
    }
}
