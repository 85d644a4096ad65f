//! What runs a worker's batches: its variants, loaded on its own thread or in a process of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rt_core::{MAX_BATCH, Ran, Span, Stalls, WorkerId};

use super::{Effects, REQUEST, Service};
use tracing::{error, trace, trace_span};
use weir_engine::{
    Backend, Buffers, Engine, EngineError, Files, Isolation, Place, Runner, SimulatedTime, Task, isolate,
    load_from, longest_silence,
};
use weir_os::clock;
use weir_plan::plan::{ServicePlan, VariantPlan};

/// The variants of one worker, used by whichever thread runs its batch.
pub(crate) struct Executor {
    runners: Vec<Box<dyn Runner>>,
    tokens: Vec<u64>,
}

impl Executor {
    /// Loads the service's model, in all variants that may run, for that worker; what is among `files` is not read again. A
    /// process of theirs reads its own, and ends with the calling thread at the latest.
    ///
    /// # Errors
    /// What the engine finds wrong with it.
    pub(crate) fn new(
        plan: &ServicePlan,
        worker: WorkerId,
        place: &Place,
        files: &mut Files,
    ) -> Result<Self, EngineError> {
        let variants = plan.running_variants();
        let backend = plan.config.backend(worker);
        let times = |v| plan.config.model.simulated_times(v);
        let stalls = plan.config.stalls;
        let tasks: Vec<_> = variants
            .iter()
            .enumerate()
            .map(|(v, variant)| task(variant, backend, times(v), stalls))
            .collect();
        let runners = match plan.config.isolation {
            Isolation::Thread => {
                tasks.iter().map(|t| load_from(files, t.engine, t.spec, t.max_batch)).collect()
            }
            Isolation::Process => isolate(&tasks, place),
        };
        Ok(Self { runners: runners?, tokens: Vec::with_capacity(MAX_BATCH) })
    }

    /// Runs each batch size of each variant a few times on zeros, so that the first request finds pages and
    /// caches in place.
    ///
    /// # Errors
    /// [`EngineError::Lost`]. An engine that fails or panics now will do so on the first batch, where it is
    /// told and counted.
    pub(super) fn warm_up(&mut self, plan: &ServicePlan) -> Result<(), EngineError> {
        for (runner, variant) in self.runners.iter_mut().zip(&plan.variants) {
            let largest = variant.times.max_batch();
            for size in (1..=largest).chain(1..=largest) {
                let result = catch_unwind(AssertUnwindSafe(|| runner.run(size)));
                if let Ok(Err(error @ EngineError::Lost { .. })) = result {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Runs the batch in the mailbox of worker `id`, if there is one, and tells the scheduler. If the worker is to `leave`, it is
    /// lost to all from the end of the batch on; true if so.
    pub(crate) fn run_batch(
        &mut self,
        service: &Service,
        id: WorkerId,
        effects: &mut Effects,
        leave: bool,
    ) -> bool {
        let Self { runners, tokens } = self;
        let Some(variant) = service.device.mailboxes[id].take(tokens) else { return false };
        let _batch = trace_span!(target: REQUEST, "batch", service = service.name(), worker = id).entered();
        let runner = &mut runners[variant];
        for (index, token) in tokens.iter().enumerate() {
            let slot = service.slots.get(*token);
            runner.buffers().put(index, &slot.input);
            if let Some(memory) = &slot.memory {
                memory.recall(&service.plan.variants[variant].spec, runner.buffers(), index);
            }
        }
        trace!(target: REQUEST, variant, ?tokens, "start");
        let started = clock::now();
        let result = catch_unwind(AssertUnwindSafe(|| runner.run(tokens.len())));
        let took = clock::now().since(started);
        trace!(target: REQUEST, took_us = took.as_nanos() / 1_000, "end");
        if let Ok(Err(error)) = &result {
            error!("service {}: worker {id}: {error}", service.name());
        }
        let ran = match result {
            Ok(Ok(())) => {
                service.meters.ran(tokens.len());
                write_results(service, (tokens, variant), runner.buffers(), started.as_nanos(), took);
                Ran::Done(took)
            }
            // A panic has told its message already, and leaves the runner in any state.
            Ok(Err(EngineError::Lost { .. })) | Err(_) => {
                service.lose_worker(effects, id);
                return false;
            }
            Ok(Err(_)) => Ran::Failed,
        };
        service.with_scheduler(effects, |s, now| {
            service.record_end(now, id);
            s.handle_completion(now, id, ran);
            if leave {
                s.handle_worker_lost(now, id);
            }
        });
        leave
    }

    /// Whether a process of its own has gone.
    pub(super) fn is_lost(&mut self) -> bool {
        self.runners.iter_mut().any(|runner| runner.is_lost())
    }

    /// Lets go of everything loaded.
    pub(super) fn clear(&mut self) {
        self.runners.clear();
    }
}

fn task<'a>(
    variant: &'a VariantPlan,
    backend: &'a Backend,
    simulated: Option<&'a [SimulatedTime]>,
    stalls: Option<Stalls>,
) -> Task<'a> {
    let sizes = 1..=variant.times.max_batch();
    // Who stands still as declared is not lost.
    let stalled = stalls.map_or(Span::ZERO, |stalls| stalls.lost());
    Task {
        engine: match simulated {
            Some(times) => Engine::Simulated { times },
            None => Engine::Real { backend, modes: Some(&variant.modes) },
        },
        spec: &variant.spec,
        max_batch: variant.times.max_batch(),
        silence: sizes.map(|b| longest_silence(variant.times.bound(b)) + stalled).collect(),
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
        let kept = slot.memory.as_ref().map(|memory| memory.keep(slot.sequence, buffers, index));
        slot.skipped = kept.unwrap_or(0);
        slot.started_ns = started_ns;
        slot.run_ns = took.as_nanos();
        slot.batch = tokens.len() as u16;
        slot.variant = variant as u16;
    }
}
