//! A worker: one thread that runs one batch at a time on its own copy of the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rt_core::{Ran, Span, WorkerId};

use super::slots::lock;
use super::{Effects, Service};
use crate::clock;
use crate::engine::{Buffers, Engine, EngineError, Runner};
use crate::plan::{ServicePlan, VariantPlan};
use crate::realtime;

/// Pause before a model whose run panicked is loaded again.
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

/// Where a worker finds its next batch: the tokens of its requests.
pub(crate) struct Mailbox {
    next: Mutex<Letter>,
    arrived: Condvar,
}

#[derive(Default)]
struct Letter {
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
        let letter = Letter { tokens: Vec::with_capacity(batch), ..Letter::default() };
        Self { next: Mutex::new(letter), arrived: Condvar::new() }
    }

    /// Puts a batch in. The scheduler starts a worker only when it is free, so the box is empty.
    pub(crate) fn put(&self, variant: usize, tokens: impl Iterator<Item = u64>) {
        let mut letter = lock(&self.next);
        letter.variant = variant;
        letter.tokens.clear();
        letter.tokens.extend(tokens);
        letter.full = true;
    }

    /// Wakes the worker, to be called when the caller holds no lock that it will want.
    pub(crate) fn ring(&self) {
        self.arrived.notify_one();
    }

    pub(crate) fn stop(&self) {
        lock(&self.next).stopped = true;
        self.ring();
    }

    /// Takes the batch out, and tells its variant; `None` if there is none.
    fn take(&self, tokens: &mut Vec<u64>) -> Option<usize> {
        let mut letter = lock(&self.next);
        std::mem::swap(&mut letter.tokens, tokens);
        std::mem::take(&mut letter.full).then_some(letter.variant)
    }

    /// Waits until something is to be done.
    fn wait(&self) -> Errand {
        let idle = |letter: &mut Letter| !letter.full && !letter.broken && !letter.stopped;
        let guard = self.arrived.wait_while(lock(&self.next), idle);
        let mut letter = guard.unwrap_or_else(PoisonError::into_inner);
        match (letter.stopped, std::mem::take(&mut letter.broken)) {
            (true, _) => Errand::Stop,
            (false, true) => Errand::Reload,
            (false, false) => Errand::Batch,
        }
    }
}

enum Errand {
    Batch,
    Reload,
    Stop,
}

/// The variants of one worker, used by whichever thread runs its batch.
pub(crate) struct Executor {
    runners: Vec<Box<dyn Runner>>,
    tokens: Vec<u64>,
}

impl Executor {
    /// Loads the service's model, in all variants that may run, for that worker.
    ///
    /// # Errors
    /// What the engine finds wrong with it.
    pub(crate) fn new(plan: &ServicePlan, worker: WorkerId) -> Result<Self, EngineError> {
        Ok(Self { runners: load(plan, worker)?, tokens: Vec::with_capacity(plan.workers().batch) })
    }

    /// Runs each batch size of each variant a few times on zeros, so that the first request finds pages and caches in place.
    fn warm_up(&mut self, plan: &ServicePlan) {
        for (runner, variant) in self.runners.iter_mut().zip(&plan.variants) {
            let largest = plan.workers().batch.min(variant.times.max_batch());
            for size in (1..=largest).chain(1..=largest) {
                // An engine that fails or panics now will do so on the first batch, where it is told and counted.
                let _ = catch_unwind(AssertUnwindSafe(|| runner.run(size)));
            }
        }
    }

    /// Runs the batch in the mailbox of worker `id`, if there is one, and tells the scheduler.
    pub(crate) fn run_batch(&mut self, service: &Service, id: WorkerId, effects: &mut Effects) {
        let Self { runners, tokens } = self;
        let mailbox = &service.mailboxes[id];
        let Some(variant) = mailbox.take(tokens) else { return };
        let runner = &mut runners[variant];
        for (index, token) in tokens.iter().enumerate() {
            runner.buffers().put(index, &service.slots.get(*token).input);
        }
        let started = clock::now();
        let result = catch_unwind(AssertUnwindSafe(|| runner.run(tokens.len())));
        let took = clock::now().since(started);
        let ran = match result {
            Ok(Ok(())) => {
                write_results(service, (tokens, variant), runner.buffers(), started.as_nanos(), took);
                Ran::Done(took)
            }
            Ok(Err(error)) => {
                eprintln!("weir: service {}: worker {id}: {error}", service.name());
                Ran::Failed
            }
            Err(_) => {
                // The panic has told its message already. The runner may be in any state: load it anew.
                service.with_scheduler(effects, |s, now| s.handle_worker_lost(now, id));
                lock(&mailbox.next).broken = true;
                return mailbox.ring();
            }
        };
        service.with_scheduler(effects, |s, now| s.handle_completion(now, id, ran));
    }
}

fn load(plan: &ServicePlan, worker: WorkerId) -> Result<Vec<Box<dyn Runner>>, EngineError> {
    let load = |(index, variant): (usize, &VariantPlan)| {
        let times = plan.config.model.simulated_times(index);
        let engine = match &times {
            Some(times_ns) => Engine::Simulated { times_ns },
            None => Engine::Real { backend: plan.config.backend(worker), modes: Some(&variant.modes) },
        };
        crate::engine::load(engine, &variant.spec, variant.times.max_batch())
    };
    plan.running_variants().iter().enumerate().map(load).collect()
}

/// The life of worker `id`.
pub(crate) fn run(service: &Service, id: WorkerId) {
    let cores = &service.plan.config.cores;
    let core = (!cores.is_empty()).then(|| cores[id % cores.len()]);
    realtime::enter(realtime::Role::Worker, core, service.realtime);
    let mut effects = Effects::default();
    lock(&service.executors[id]).warm_up(&service.plan);
    service.ready.wait();
    loop {
        match service.mailboxes[id].wait() {
            Errand::Stop => return,
            Errand::Batch => lock(&service.executors[id]).run_batch(service, id, &mut effects),
            Errand::Reload => {
                let Some(runners) = reload(service, id) else { return };
                lock(&service.executors[id]).runners = runners;
                service.with_scheduler(&mut effects, |s, _| s.handle_worker_ready(id));
            }
        }
    }
}

fn write_results(
    service: &Service,
    (tokens, variant): (&[u64], usize),
    buffers: &Buffers,
    started_ns: u64,
    took: Span,
) {
    for (index, token) in tokens.iter().enumerate() {
        let mut slot = service.slots.get(*token);
        buffers.get(index, &mut slot.output);
        slot.started_ns = started_ns;
        slot.run_ns = took.as_nanos();
        slot.batch = tokens.len() as u16;
        slot.variant = variant as u16;
    }
}

/// Loads the variants until they can be loaded; `None` once the service stops.
fn reload(service: &Service, id: WorkerId) -> Option<Vec<Box<dyn Runner>>> {
    loop {
        std::thread::park_timeout(RELOAD_PAUSE);
        if service.is_stopped() {
            return None;
        }
        match load(&service.plan, id) {
            Ok(runners) => return Some(runners),
            Err(error) => eprintln!("weir: service {}: worker {id}: {error}", service.name()),
        }
    }
}
