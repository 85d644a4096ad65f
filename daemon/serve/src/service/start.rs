//! Services come to life: models loaded, threads started and warm; if any of it fails, nothing of it is left.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result};
use rt_core::sharing::Device as CoreDevice;
use rt_core::{Instant, SafeModeConfig, Scheduler, Span, WorkerId, Workers};

use super::Service;
use super::classes::ByClass;
use super::device::{Device, keep_time};
use super::dispatcher::Dispatcher;
use super::executor::Executor;
use super::meters::Meters;
use super::planning::Planning;
use super::registry::Registry;
use super::shield::raise_together;
use super::slots::Slots;
use super::staged::Staged;
use super::worker;
use crate::out::Audience;
use weir_engine::{EngineError, EngineKind, Files, Isolation, Place};
use weir_os::pi_mutex::PiMutex;
use weir_plan::plan::{ServicePlan, StagePlan};

/// What waking another thread costs on a slow day: shorter batches are run at once.
const INLINE_LIMIT: Span = Span::from_micros(50);

/// Services that were started together, in the order of their plans, and the threads of their device.
pub(super) type Started = (Vec<Arc<Service>>, Vec<JoinHandle<()>>);

impl Service {
    /// Starts a service by itself, or all that share a device: loads the variants for every worker and starts the threads,
    /// which end after [`Service::stop`] of all of them. Who takes over from one of `before`, the one of its name, has no
    /// streams until [`Service::hand_over`], and announces nothing.
    ///
    /// # Errors
    /// If a model cannot be loaded, a thread not be started, or the file of arrivals not be created.
    pub fn start(
        plans: Vec<ServicePlan>,
        safe_mode: SafeModeConfig,
        audience: &Arc<dyn Audience>,
        realtime: bool,
        before: &[Arc<Self>],
    ) -> Result<Started> {
        let mut dispatcher = dispatcher(&plans, safe_mode)?;
        for (index, plan) in plans.iter().enumerate() {
            let scheduler = dispatcher.service_mut(index);
            scheduler.set_selector(plan.selector.clone())?;
            scheduler.set_rate_warning(plan.rate_warning());
            // What a model remembers goes from each request to the next.
            scheduler.set_in_order(plan.spec.has_state());
            if !before.is_empty() {
                // Nobody is served by it yet: what becomes of its workers meanwhile is nobody's safe mode.
                scheduler.inhibit_safe_mode(Instant::from_nanos(u64::MAX));
            }
        }
        let device = Arc::new(Device::new(dispatcher));
        let load = |(index, plan): (usize, ServicePlan)| {
            let name = plan.config.name.clone();
            let loaded = Self::load(plan, (&device, index), Arc::clone(audience), realtime);
            let mut loaded = loaded.with_context(|| format!("service {name}"))?;
            if let Some(before) = Self::named(before, &name) {
                loaded.totals = Arc::clone(&before.totals);
                loaded.by_class.continue_from(&before.by_class);
            }
            anyhow::Ok(Arc::new(loaded))
        };
        let services: Vec<_> = plans.into_iter().enumerate().map(load).collect::<Result<_>>()?;
        device.carry(&services);
        let mut threads = Vec::new();
        match bring_up(&services, before, &mut threads) {
            Ok(()) => Ok((services, threads)),
            Err(error) => {
                services.iter().for_each(|service| service.stop());
                for thread in threads {
                    // A panic there has told its message.
                    let _ = thread.join();
                }
                Err(error)
            }
        }
    }

    /// A service with its models and without threads, number `index` on its device.
    fn load(
        plan: ServicePlan,
        (device, index): (&Arc<Device>, usize),
        audience: Arc<dyn Audience>,
        realtime: bool,
    ) -> Result<Self> {
        let stopped = Arc::default();
        let mut files = Files::default();
        let executor = |id| match Executor::new(&plan, id, &place(&plan, id, realtime, &stopped), &mut files)
        {
            // Where there are others a server may be out of reach: its worker is lost from the start.
            Err(error @ EngineError::Remote { .. }) if !plan.kinds.is_empty() => Ok(Executor::absent(error)),
            loaded => loaded,
        };
        let executors: Result<Vec<_>, EngineError> = (0..plan.worker_count()).map(executor).collect();
        drop(files);
        let mut executors = executors?;
        if let Some(error) = Executor::none_is_there(&mut executors) {
            return Err(error.into());
        }
        let inline = (0..plan.worker_count()).map(|id| runs_inline(&plan, id)).collect();
        Ok(Self {
            slots: Slots::new(slots_of(&plan)),
            registry: PiMutex::default(),
            moving: RwLock::default(),
            device: Arc::clone(device),
            index,
            executors: executors.into_iter().map(Mutex::new).collect(),
            inline,
            answered: (0..plan.variants.len().max(1)).map(|_| AtomicU64::new(0)).collect(),
            results: results(&plan),
            factors: plan.stages().iter().map(|_| Default::default()).collect(),
            meters: Meters::new(),
            totals: Arc::default(),
            by_class: ByClass::new(&plan),
            rate_window: plan.rate_warning().map(|(monitor, _)| monitor.window()),
            planning: plan.meanwhile().map(Planning::new),
            audience,
            realtime,
            closed: AtomicBool::new(false),
            stopped,
            heir: OnceLock::new(),
            plan,
        })
    }
}

/// Whether the thread that brings a request may run the batch of that worker. A process of its own is a wake-up away, and must not make
/// a client's thread wait if it hangs, nor must a server; nor must the batch of another service.
fn runs_inline(plan: &ServicePlan, worker: WorkerId) -> bool {
    let (runs, _) = plan.on_worker(worker);
    runs.config.isolation == Isolation::Thread
        && runs.config.engine != EngineKind::Oip
        && plan.shared.is_none()
        && plan.pipeline.is_none()
        && runs.running_variants().iter().all(|variant| variant.typical <= INLINE_LIMIT)
}

/// Counters of the results of each stage of a pipeline, by variant.
fn results(plan: &ServicePlan) -> Vec<Box<[AtomicU64]>> {
    let counters = |stage: &StagePlan| stage.runs.variants.iter().map(|_| AtomicU64::new(0)).collect();
    plan.stages().iter().map(counters).collect()
}

/// Requests that a service holds at once: twice what its scheduler does, for answers being written still occupy theirs. As many
/// sources of a pipeline as wait may have begun.
fn slots_of(plan: &ServicePlan) -> usize {
    let queues = if plan.pipeline.is_some() { 2 } else { 1 };
    let runs = |kind: &Workers| kind.count * kind.profile.max_batch();
    2 * (queues * plan.config.queue + plan.all_workers().iter().map(runs).sum::<usize>())
}

/// What decides for services of these plans when a worker starts which batch.
fn dispatcher(plans: &[ServicePlan], safe_mode: SafeModeConfig) -> Result<Dispatcher> {
    let configs = plans.iter().map(|plan| plan.scheduler_config(safe_mode));
    let first = plans.first().context("no service to start")?;
    if let Some(pipeline) = &first.pipeline {
        let staged = Staged::new((first, pipeline), safe_mode, slots_of(first))?;
        return Ok(Dispatcher::Staged(Box::new(staged)));
    }
    let Some(shared) = &first.shared else {
        return Ok(Dispatcher::Alone(Box::new(Scheduler::new(first.scheduler_config(safe_mode))?)));
    };
    let device = CoreDevice::new(shared.device.core_config(configs.collect()))?;
    Ok(Dispatcher::Shared(Box::new(device)))
}

/// Starts the threads of a device with these services, which go into `threads`, and returns once every worker is warm.
fn bring_up(
    services: &[Arc<Service>],
    before: &[Arc<Service>],
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    let (any, all): (_, Arc<[_]>) = (&services[0], services.into());
    threads.extend(any.start_recorder(before.first().map(|before| &**before))?);
    for service in services {
        let named = || format!("service {}", service.name());
        if Service::named(before, service.name()).is_none() {
            Registry::reserve(service).with_context(named)?;
            service.raise_shield();
        }
    }
    // What takes over brings one of its own.
    if before.is_empty() {
        raise_together(services);
    }
    let name = any.plan.device_name();
    let (warm, warmed) = channel();
    for id in 0..any.plan.worker_count() {
        let (all, warm) = (Arc::clone(&all), warm.clone());
        let run = move || worker::run(&all, id, warm);
        threads.push(Builder::new().name(format!("{name}/{id}")).spawn(run)?);
    }
    let sleeper = Arc::clone(any);
    threads.push(Builder::new().name(format!("{name}/timer")).spawn(move || keep_time(&sleeper))?);
    drop(warm);
    // Nothing is ever sent: it ends once every worker has let go of its end.
    let _ = warmed.recv();
    for service in services {
        if service.planning.is_some() {
            Planning::start(service)?;
        }
        // Nobody waited for what was set up until now.
        service.view().forget_hold();
    }
    Ok(())
}

/// Where worker `id` of a service of `plan` runs.
pub(super) fn place(plan: &ServicePlan, id: WorkerId, realtime: bool, stop: &Arc<AtomicBool>) -> Place {
    let (runs, own) = plan.on_worker(id);
    let cores = &runs.config.cores;
    let core = (!cores.is_empty()).then(|| cores[own % cores.len()]);
    Place { name: format!("{}/{id}", plan.config.name), core, realtime, quiet: false, stop: Arc::clone(stop) }
}
