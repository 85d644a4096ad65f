//! A worker: one thread that runs one batch at a time on its own copy of the model.

use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rt_core::WorkerId;

use super::absence::Absence;
use super::executor::Executor;
use super::lock;
use super::{Effects, Service};
use tracing::error;
use weir_engine::{Files, Isolation};
use weir_os::clock;
use weir_os::realtime;

/// How often an idle worker looks whether its process is still there: one that died idle need not cost a batch.
const LOOK: Duration = Duration::from_millis(100);

/// Where a worker finds its next batch: the tokens of its requests. Its lock needs no priority inheritance, for whoever
/// puts a batch in has real-time priority meanwhile.
pub(crate) struct Mailbox {
    next: Mutex<Job>,
    arrived: Condvar,
}

#[derive(Default)]
struct Job {
    tokens: Vec<u64>,
    /// What they are to be run with.
    variant: usize,
    full: bool,
    /// The model must be loaded anew.
    broken: bool,
    stopped: bool,
}

impl Mailbox {
    pub(crate) fn new(batch: usize) -> Self {
        let job = Job { tokens: Vec::with_capacity(batch), ..Job::default() };
        Self { next: Mutex::new(job), arrived: Condvar::new() }
    }

    /// Puts a batch in. The scheduler starts a worker only when it is free, so the box is empty.
    pub(crate) fn put(&self, variant: usize, tokens: impl Iterator<Item = u64>) {
        let mut job = lock(&self.next);
        job.variant = variant;
        job.tokens.clear();
        job.tokens.extend(tokens);
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

    /// The model is lost, and is to be loaded anew by the worker.
    pub(super) fn break_down(&self) {
        lock(&self.next).broken = true;
        self.ring();
    }

    /// Takes the batch out, and tells its variant; `None` if there is none.
    pub(super) fn take(&self, tokens: &mut Vec<u64>) -> Option<usize> {
        let mut job = lock(&self.next);
        std::mem::swap(&mut job.tokens, tokens);
        std::mem::take(&mut job.full).then_some(job.variant)
    }

    /// Waits until something is to be done, or it is time to look after the process.
    fn wait(&self, look: Duration) -> Errand {
        let idle = |job: &mut Job| !job.full && !job.broken && !job.stopped;
        let waited = self.arrived.wait_timeout_while(lock(&self.next), look, idle);
        let (mut job, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (job.full, job.stopped, std::mem::take(&mut job.broken)) {
            // What was begun is answered, whatever comes after.
            (true, ..) => Errand::Batch,
            (_, true, _) => Errand::Stop,
            (_, _, true) => Errand::Reload,
            _ => Errand::Look,
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
    Batch,
    Reload,
    Look,
    Stop,
}

/// The life of worker `id`, which lets go of `warm` once it is.
pub(crate) fn run(service: &Service, id: WorkerId, warm: Sender<()>) {
    let place = service.place(id);
    realtime::enter(realtime::Role::Worker, place.core, service.realtime);
    let (mut effects, mut absence) = (Effects::default(), Absence::new(clock::now()));
    let warmed = lock(&service.executors[id]).warm_up(&service.plan);
    drop(warm);
    if let Err(error) = warmed {
        error!("service {}: worker {id}: {error}", service.name());
        service.lose_worker(&mut effects, id);
    }
    let look = match service.plan.config.isolation {
        Isolation::Thread => Duration::MAX,
        Isolation::Process => LOOK,
    };
    loop {
        match service.mailboxes[id].wait(look) {
            Errand::Stop => return,
            Errand::Batch => lock(&service.executors[id]).run_batch(service, id, &mut effects),
            Errand::Look if lock(&service.executors[id]).is_lost() => {
                error!("service {}: worker {id}: its process ended while idle", service.name());
                service.lose_worker(&mut effects, id);
            }
            Errand::Look => {}
            Errand::Reload if !reload(service, id, &mut absence) => return,
            Errand::Reload => service.regain_worker(&mut effects, id),
        }
    }
}

/// Loads the variants until they can be loaded and run; false once the service stops.
fn reload(service: &Service, id: WorkerId, absence: &mut Absence) -> bool {
    // Ends its process, if it has one, before there is another.
    lock(&service.executors[id]).clear();
    loop {
        if !service.mailboxes[id].rest(absence.pause(clock::now())) {
            return false;
        }
        let fresh = Executor::new(&service.plan, id, &service.place(id), &mut Files::default());
        let fresh = fresh.and_then(|mut executor| executor.warm_up(&service.plan).map(|()| executor));
        if service.is_stopped() {
            return false;
        }
        match fresh {
            Ok(executor) => {
                *lock(&service.executors[id]) = executor;
                absence.serving(clock::now());
                return true;
            }
            Err(error) => error!("service {}: worker {id}: {error}", service.name()),
        }
    }
}
