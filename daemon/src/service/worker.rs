//! A worker: one thread that runs one batch at a time on its own copy of the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rt_core::{Ran, Span, WorkerId};

use super::slots::lock;
use super::{Effects, Service};
use crate::clock;
use crate::engine::{Engine, EngineError, Runner};
use crate::plan::ServicePlan;
use crate::realtime;

/// Pause before a model whose run panicked is loaded again.
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

/// Where a worker finds its next batch: the tokens of its requests.
pub(crate) struct Mailbox {
    next: Mutex<Letter>,
    arrived: Condvar,
}

struct Letter {
    tokens: Vec<u64>,
    full: bool,
    stopped: bool,
}

impl Mailbox {
    pub(crate) fn new(batch: usize) -> Self {
        let letter = Letter { tokens: Vec::with_capacity(batch), full: false, stopped: false };
        Self { next: Mutex::new(letter), arrived: Condvar::new() }
    }

    /// Puts a batch in. The scheduler starts a worker only when it is free, so the box is empty.
    pub(crate) fn put(&self, tokens: impl Iterator<Item = u64>) {
        let mut letter = lock(&self.next);
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
        self.arrived.notify_one();
    }

    /// Waits for a batch; false once stopped.
    fn take(&self, tokens: &mut Vec<u64>) -> bool {
        let waiting = |letter: &mut Letter| !letter.full && !letter.stopped;
        let guard = self.arrived.wait_while(lock(&self.next), waiting);
        let mut letter = guard.unwrap_or_else(PoisonError::into_inner);
        letter.full = false;
        std::mem::swap(&mut letter.tokens, tokens);
        !letter.stopped
    }
}

/// Loads the service's model for one worker.
///
/// # Errors
/// What the engine finds wrong with it.
pub(crate) fn load(plan: &ServicePlan) -> Result<Box<dyn Runner>, EngineError> {
    let max_batch = plan.system.profile.max_batch();
    let times: Vec<u64> = match &plan.config.model {
        crate::config::ModelChoice::Simulated { times, .. } => times.iter().map(|t| t.as_nanos()).collect(),
        crate::config::ModelChoice::Named(_) => Vec::new(),
    };
    let engine = if plan.is_simulated() {
        Engine::Simulated { times_ns: &times }
    } else {
        Engine::Tract { modes: Some(&plan.modes) }
    };
    crate::engine::load(engine, &plan.spec, max_batch)
}

/// The life of worker `id`.
pub(crate) fn run(service: &Arc<Service>, id: WorkerId, mut runner: Box<dyn Runner>) {
    let cores = &service.plan.config.cores;
    let core = (!cores.is_empty()).then(|| cores[id % cores.len()]);
    realtime::enter(realtime::Role::Worker, core, service.realtime);
    let batch = service.plan.system.batch;
    let (input_len, output_len) = (service.plan.spec.input.elements(), service.plan.spec.output.elements());
    let mut input = vec![0.0; batch * input_len];
    let mut output = vec![0.0; batch * output_len];
    let mut tokens = Vec::with_capacity(batch);
    let mut effects = Effects::default();
    warm_up(runner.as_mut(), &input, &mut output, batch, input_len, output_len);
    service.ready.wait();
    let mailbox = &service.mailboxes[id];
    while mailbox.take(&mut tokens) {
        let size = tokens.len();
        for (token, values) in tokens.iter().zip(input.chunks_exact_mut(input_len)) {
            values.copy_from_slice(&service.slots.get(*token).input);
        }
        let started = clock::now();
        let (inputs, outputs) = (&input[..size * input_len], &mut output[..size * output_len]);
        let result = catch_unwind(AssertUnwindSafe(|| runner.run(size, inputs, outputs)));
        let took = clock::now().since(started);
        let ran = match result {
            Ok(Ok(())) => {
                write_results(service, &tokens, &output, output_len, started.as_nanos(), took);
                Ran::Done(took)
            }
            Ok(Err(error)) => {
                eprintln!("weir: service {}: worker {id}: {error}", service.name());
                Ran::Failed
            }
            Err(_) => {
                // The panic has told its message already. The runner may be in any state: load it anew.
                service.with_scheduler(&mut effects, |s, now| s.handle_worker_lost(now, id));
                match reload(service, id) {
                    Some(fresh) => runner = fresh,
                    None => return,
                }
                service.with_scheduler(&mut effects, |s, _| s.handle_worker_ready(id));
                continue;
            }
        };
        service.with_scheduler(&mut effects, |s, now| s.handle_completion(now, id, ran));
    }
}

/// Runs each batch size a few times on zeros, so that the first request finds pages and caches in place.
fn warm_up(
    runner: &mut dyn Runner,
    input: &[f32],
    output: &mut [f32],
    batch: usize,
    input_len: usize,
    output_len: usize,
) {
    for size in (1..=batch).chain(1..=batch) {
        // An engine that fails or panics now will do so on the first batch, where it is told and counted.
        let run = || runner.run(size, &input[..size * input_len], &mut output[..size * output_len]);
        let _ = catch_unwind(AssertUnwindSafe(run));
    }
}

fn write_results(
    service: &Service,
    tokens: &[u64],
    output: &[f32],
    output_len: usize,
    started_ns: u64,
    took: Span,
) {
    for (token, values) in tokens.iter().zip(output.chunks_exact(output_len)) {
        let mut slot = service.slots.get(*token);
        slot.output.clear();
        slot.output.extend_from_slice(values);
        slot.started_ns = started_ns;
        slot.run_ns = took.as_nanos();
        slot.batch = tokens.len() as u16;
    }
}

/// Loads the model until it can be loaded; `None` once the service stops.
fn reload(service: &Service, id: WorkerId) -> Option<Box<dyn Runner>> {
    loop {
        std::thread::park_timeout(RELOAD_PAUSE);
        if service.is_stopped() {
            return None;
        }
        match load(&service.plan) {
            Ok(runner) => return Some(runner),
            Err(error) => eprintln!("weir: service {}: worker {id}: {error}", service.name()),
        }
    }
}
