//! A service comes to life: models loaded, threads started and warm; if any of it fails, nothing of it is left.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::{Builder, JoinHandle};

use anyhow::Result;
use rt_core::{SafeModeConfig, Scheduler, SchedulerConfig, Span, WorkerId};

use super::Service;
use super::executor::Executor;
use super::guarded::Guarded;
use super::meters::Meters;
use super::planning::Planning;
use super::registry::Registry;
use super::slots::Slots;
use super::takeover::Takeover;
use super::timer::Timer;
use super::worker::{self, Mailbox};
use crate::out::Audience;
use weir_engine::{EngineError, Files, Isolation, Place};
use weir_os::pi_mutex::PiMutex;
use weir_plan::plan::ServicePlan;

/// What waking another thread costs on a slow day: shorter batches are run at once.
const INLINE_LIMIT: Span = Span::from_micros(50);

impl Service {
    /// Loads the variants for every worker and starts the threads, which end after [`Service::stop`]. What takes over
    /// from `before` has no streams until [`Service::hand_over`].
    ///
    /// # Errors
    /// If the model cannot be loaded, a thread not be started, or the file of its arrivals not be created.
    pub fn start(
        plan: ServicePlan,
        safe_mode: SafeModeConfig,
        audience: Arc<dyn Audience>,
        realtime: bool,
        before: Option<&Self>,
    ) -> Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let mut service = Self::load(plan, safe_mode, audience, realtime)?;
        if let Some(before) = before {
            service.totals = Arc::clone(&before.totals);
        }
        let service = Arc::new(service);
        let mut threads = Vec::new();
        match service.bring_up(before, &mut threads) {
            Ok(()) => Ok((service, threads)),
            Err(error) => {
                service.stop();
                for thread in threads {
                    // A panic there has told its message.
                    let _ = thread.join();
                }
                Err(error)
            }
        }
    }

    /// A service with its models and without threads.
    fn load(
        plan: ServicePlan,
        safe_mode: SafeModeConfig,
        audience: Arc<dyn Audience>,
        realtime: bool,
    ) -> Result<Self> {
        let (workers, config) = (plan.workers(), &plan.config);
        let mut scheduler = Scheduler::new(SchedulerConfig {
            deadline: config.deadline,
            guard: config.guard,
            stalls: config.stalls,
            workers: vec![workers.clone()],
            dispatch: config.dispatch,
            background: config.background,
            queue: config.queue,
            streams: config.streams,
            safe_mode,
        })?;
        // What a model remembers goes from each request to the next.
        scheduler.set_in_order(plan.spec.has_state());
        scheduler.set_selector(plan.selector.clone())?;
        let rate_warning = plan.rate_warning();
        scheduler.set_rate_warning(rate_warning.clone());
        let stopped = Arc::default();
        let mut files = Files::default();
        let executor =
            |id| Executor::new(&plan, id, &place(&plan, id, realtime, &stopped), &mut files).map(Mutex::new);
        let executors: Result<Vec<_>, EngineError> = (0..workers.count).map(executor).collect();
        drop(files);
        Ok(Self {
            // Twice what the scheduler holds: answers being written still occupy theirs.
            slots: Slots::new(2 * (config.queue + workers.count * plan.max_batch())),
            registry: PiMutex::default(),
            moving: RwLock::default(),
            admission: Mutex::default(),
            scheduler: Guarded::new(scheduler),
            mailboxes: (0..workers.count).map(|_| Mailbox::new(plan.max_batch())).collect(),
            executors: executors?,
            // A process of its own is a wake-up away, and must not make a client's thread wait if it hangs.
            inline: config.isolation == Isolation::Thread
                && plan.running_variants().iter().all(|variant| variant.typical <= INLINE_LIMIT),
            timer: Timer::new(),
            answered: plan.variants.iter().map(|_| AtomicU64::new(0)).collect(),
            meters: Meters::new(),
            totals: Arc::default(),
            rate_window: rate_warning.map(|(monitor, _)| monitor.window()),
            recorder: OnceLock::new(),
            planning: plan.planned_inputs().map(Planning::new),
            audience,
            realtime,
            closed: AtomicBool::new(false),
            telling: AtomicUsize::new(0),
            stopped,
            takeover: Takeover::default(),
            plan,
        })
    }

    /// Starts the threads, which go into `threads`, and returns once every worker is warm.
    fn bring_up(self: &Arc<Self>, before: Option<&Self>, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
        threads.extend(self.start_recorder(before)?);
        if before.is_none() {
            Registry::reserve(self)?;
            self.raise_shield();
        }
        let (warm, warmed) = channel();
        for id in 0..self.plan.workers().count {
            let (service, warm) = (Arc::clone(self), warm.clone());
            let run = move || worker::run(&service, id, warm);
            threads.push(Builder::new().name(format!("{}/{id}", self.name())).spawn(run)?);
        }
        let sleeper = Arc::clone(self);
        let name = format!("{}/timer", self.name());
        threads.push(Builder::new().name(name).spawn(move || sleeper.keep_time())?);
        drop(warm);
        // Nothing is ever sent: it ends once every worker has let go of its end.
        let _ = warmed.recv();
        if self.planning.is_some() {
            Planning::start(self)?;
        }
        // Nobody waited for what was set up until now.
        self.view().forget_hold();
        Ok(())
    }
}

/// Where worker `id` of a service of `plan` runs.
pub(super) fn place(plan: &ServicePlan, id: WorkerId, realtime: bool, stop: &Arc<AtomicBool>) -> Place {
    let cores = &plan.config.cores;
    let core = (!cores.is_empty()).then(|| cores[id % cores.len()]);
    Place { name: format!("{}/{id}", plan.config.name), core, realtime, stop: Arc::clone(stop) }
}
