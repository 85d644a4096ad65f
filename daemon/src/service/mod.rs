//! One service at work: its scheduler behind a lock, its workers, its timer, and the way back to clients.

mod absence;
mod executor;
mod meters;
mod operate;
mod planning;
mod recorder;
mod registry;
mod shield;
mod slots;
mod takeover;
mod tell;
mod timer;
mod worker;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;

use rt_core::{
    Action, Event, Instant, Resolution, SafeModeConfig, Scheduler, SchedulerConfig, Span, StreamId,
    StreamSpec, WorkerId,
};

use crate::certificate;
use crate::clock;
use crate::doors::Doors;
use crate::engine::{EngineError, Isolation, Place};
use crate::plan::ServicePlan;
use crate::realtime::{self, Role};
use executor::Executor;
use meters::Meters;
use planning::Planning;
use recorder::Recorder;
use takeover::{Retired, Takeover};
use timer::Timer;
use worker::Mailbox;

pub(crate) use registry::{Lease, Refusal, Registry};
pub(crate) use slots::{Origin, Slots, lock};

/// What waking another thread costs on a slow day: shorter batches are run at once.
const INLINE_LIMIT: Span = Span::from_micros(50);

/// A service while it runs.
pub(crate) struct Service {
    pub(crate) plan: ServicePlan,
    pub(crate) slots: Slots,
    pub(crate) registry: Mutex<Registry>,
    /// Held by the one new stream that is being admitted.
    admission: Mutex<()>,
    /// The streams' names, for events: never held while anything is computed.
    pub(crate) names: Mutex<HashMap<StreamId, String>>,
    scheduler: Mutex<Scheduler>,
    mailboxes: Vec<Mailbox>,
    executors: Vec<Mutex<Executor>>,
    /// Batches are usually shorter than a wake-up: the thread that brings a request runs it.
    inline: bool,
    pub(crate) timer: Timer,
    /// Answers by variant.
    answered: Box<[AtomicU64]>,
    meters: Meters,
    recorder: Option<Arc<Recorder>>,
    /// Plans tables for the load that comes, if it is so configured.
    planning: Option<Planning>,
    doors: Arc<Doors>,
    realtime: bool,
    stopped: Arc<AtomicBool>,
    /// Passed once every worker is warm.
    ready: Barrier,
    /// Who takes over, and who has.
    takeover: Takeover,
}

/// What is to be told once the scheduler's lock is released; reused by its thread.
#[derive(Default)]
pub(crate) struct Effects {
    resolutions: Vec<Resolution>,
    events: Vec<Event>,
    started: Vec<WorkerId>,
    frame: Vec<u8>,
}

impl Service {
    /// Loads the variants for every worker and starts the threads, which end after [`Service::stop`]. What takes over
    /// from `before` has no streams until [`Service::hand_over`].
    ///
    /// # Errors
    /// If the model cannot be loaded, or the file of its arrivals not be created.
    pub(crate) fn start(
        plan: ServicePlan,
        safe_mode: SafeModeConfig,
        doors: Arc<Doors>,
        realtime: bool,
        before: Option<&Self>,
    ) -> anyhow::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let (workers, config) = (plan.workers(), &plan.config);
        let mut scheduler = Scheduler::new(SchedulerConfig {
            deadline: config.deadline,
            guard: config.guard,
            workers: vec![workers.clone()],
            dispatch: config.dispatch,
            background: true,
            queue: config.queue,
            streams: config.streams,
            safe_mode,
        })?;
        scheduler.set_selector(plan.selector.clone())?;
        let stopped = Arc::default();
        let place = |id| place_of(&plan, id, realtime, &stopped);
        scheduler.set_rate_warning(plan.rate_warning());
        let executors: Result<Vec<_>, EngineError> =
            (0..workers.count).map(|id| Executor::new(&plan, id, &place(id)).map(Mutex::new)).collect();
        let executors = executors?;
        let (recorder, writer) = match (&config.record, before.and_then(|before| before.recorder.clone())) {
            (None, _) => (None, None),
            // The file goes on.
            (Some(_), Some(recorder)) => (Some(recorder), None),
            (Some(record), None) => {
                let (recorder, writer) = Recorder::start(&config.name, record)?;
                (Some(Arc::new(recorder)), Some(writer))
            }
        };
        let service = Arc::new(Self {
            // Twice what the scheduler holds: answers being written still occupy theirs.
            slots: Slots::new(2 * (config.queue + workers.count * workers.batch)),
            registry: Mutex::default(),
            admission: Mutex::default(),
            names: Mutex::default(),
            scheduler: Mutex::new(scheduler),
            mailboxes: (0..workers.count).map(|_| Mailbox::new(workers.batch)).collect(),
            executors,
            // A process of its own is a wake-up away, and must not make a client's thread wait if it hangs.
            inline: config.isolation == Isolation::Thread
                && plan.running_variants().iter().all(|variant| variant.typical <= INLINE_LIMIT),
            timer: Timer::new(),
            answered: plan.variants.iter().map(|_| AtomicU64::new(0)).collect(),
            meters: Meters::new(),
            recorder,
            planning: plan.planned_inputs().map(Planning::new),
            doors,
            realtime,
            stopped,
            ready: Barrier::new(workers.count + 1),
            takeover: Takeover::default(),
            plan,
        });
        if before.is_none() {
            Registry::reserve(&service)?;
            service.raise_shield();
        }
        let mut threads = Vec::from_iter(writer);
        for id in 0..service.plan.workers().count {
            let name = format!("{}/{id}", service.name());
            let service = Arc::clone(&service);
            let run = move || worker::run(&service, id);
            threads.push(std::thread::Builder::new().name(name).spawn(run)?);
        }
        let sleeper = Arc::clone(&service);
        let name = format!("{}/timer", service.name());
        threads.push(std::thread::Builder::new().name(name).spawn(move || sleeper.keep_time())?);
        service.ready.wait();
        if service.planning.is_some() {
            Planning::start(&service)?;
        }
        Ok((service, threads))
    }

    /// The service's name in the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.plan.config.name
    }

    /// Takes in a request whose tensor lies in the slot `token`; answers it at once if it is refused.
    ///
    /// # Errors
    /// If another service has taken over: nothing has happened then, and the lease must follow.
    pub(crate) fn submit(&self, effects: &mut Effects, lease: &Lease, token: u64) -> Result<(), Retired> {
        let mut retired = false;
        self.drive(effects, |scheduler, now| {
            retired = self.successor().is_some();
            if retired {
                return None;
            }
            self.record(now, lease);
            scheduler.handle_arrival(now, lease.id, token)
        });
        let inline = if self.inline { effects.started.pop() } else { None };
        self.ring_and_tell(effects);
        if let Some(worker) = inline {
            lock(&self.executors[worker]).run_batch(self, worker, effects);
        }
        if retired { Err(Retired) } else { Ok(()) }
    }

    /// Counts a request for which there is no slot. Returns the misses left and the request's number.
    pub(crate) fn refuse(&self, effects: &mut Effects, lease: &Lease) -> Option<(Option<u32>, u64)> {
        let mut refused = None;
        let mut retired = None;
        self.with_scheduler(effects, |scheduler, now| {
            retired = self.successor();
            if retired.is_none() {
                self.record(now, lease);
                refused = scheduler.handle_refused(now, lease.id);
            }
        });
        if let Some(next) = retired {
            return next.refuse(effects, lease);
        }
        refused.map(|r| (r.misses_left, r.request.seq))
    }

    /// Feeds the scheduler and carries out what it decides.
    pub(crate) fn with_scheduler(&self, effects: &mut Effects, feed: impl FnOnce(&mut Scheduler, Instant)) {
        self.drive(effects, |scheduler, now| {
            feed(scheduler, now);
            None
        });
        self.ring_and_tell(effects);
    }

    /// Looks at the scheduler, changing nothing.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Scheduler) -> T) -> T {
        look(&lock(&self.scheduler))
    }

    /// Nothing waits and nothing runs.
    pub(crate) fn is_drained(&self) -> bool {
        self.look(|s| s.waiting() == 0 && s.running() == 0)
    }

    /// Ends all threads; what still runs is finished first.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.timer.stop();
        self.mailboxes.iter().for_each(Mailbox::stop);
        // A recorder goes on with whoever has taken over.
        if self.successor().is_none_or(|next| next.recorder.is_none()) {
            self.recorder.iter().for_each(|recorder| recorder.stop());
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Where worker `id` runs.
    fn place(&self, id: WorkerId) -> Place {
        place_of(&self.plan, id, self.realtime, &self.stopped)
    }

    /// Tells that worker `id` is lost with its batch, and has it loaded anew.
    fn lose_worker(&self, effects: &mut Effects, id: WorkerId) {
        self.with_scheduler(effects, |scheduler, now| scheduler.handle_worker_lost(now, id));
        self.mailboxes[id].break_down();
    }

    /// Notes what a client declared of a stream, if it did: no configuration tells.
    fn record_declared(&self, name: &str, spec: &StreamSpec) {
        if let Some(recorder) = self.recorder.as_ref().filter(|_| spec.arrivals().is_some()) {
            let written = serde_json::to_string(&certificate::stream(name, spec));
            recorder.declared(name, written.unwrap_or_default());
        }
    }

    fn record(&self, now: Instant, lease: &Lease) {
        if let Some(recorder) = &self.recorder {
            recorder.arrival(now, &lease.name);
        }
    }

    fn keep_time(&self) {
        realtime::enter(Role::Dispatch, None, self.realtime);
        let mut effects = Effects::default();
        while self.timer.wait() {
            let mut at = None;
            self.with_scheduler(&mut effects, |_, now| at = Some(now));
            // Only now: what the scheduler decided has been carried out too.
            self.timer.note_poll(at);
        }
    }

    /// Feeds the scheduler and takes down what it decides; `ring_and_tell` must follow.
    fn drive(&self, effects: &mut Effects, feed: impl FnOnce(&mut Scheduler, Instant) -> Option<Resolution>) {
        effects.resolutions.clear();
        effects.events.clear();
        effects.started.clear();
        let mut scheduler = lock(&self.scheduler);
        // Read under the lock, so that the scheduler's time never goes back.
        let now = clock::now();
        effects.resolutions.extend(feed(&mut scheduler, now));
        if let Some(planning) = &self.planning {
            planning.meet(&mut scheduler, now);
        }
        loop {
            match scheduler.poll(now) {
                Action::Start { worker } => {
                    let tokens = scheduler.batch(worker).iter().map(|r| r.token);
                    self.mailboxes[worker].put(scheduler.variant(worker), tokens);
                    effects.started.push(worker);
                }
                Action::Resolve(resolution) => effects.resolutions.push(resolution),
                Action::Event(event) => effects.events.push(event),
                // What was cancelled by it is still to be told.
                Action::WakeAt(_) if self.try_hand_over(&mut scheduler, now) => {}
                Action::WakeAt(alarm) => return self.timer.set(alarm),
            }
        }
    }
}

fn place_of(plan: &ServicePlan, id: WorkerId, realtime: bool, stop: &Arc<AtomicBool>) -> Place {
    let cores = &plan.config.cores;
    let core = (!cores.is_empty()).then(|| cores[id % cores.len()]);
    Place { name: format!("{}/{id}", plan.config.name), core, realtime, stop: Arc::clone(stop) }
}
