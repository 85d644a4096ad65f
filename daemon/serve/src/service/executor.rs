//! What runs a worker's batches: its variants, loaded on its own thread or in a process of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rt_core::{Instant, MAX_BATCH, Ran, Span, WorkerId};

use super::failures::Failures;
use super::guarded::Held;
use super::stage::Scratch;
use super::staged::Found;
use super::worker::Part;
use super::{Effects, REQUEST, Service};
use tracing::{trace, trace_span};
use weir_engine::{
    Buffers, Engine, EngineError, Files, Isolation, Place, Runner, Task, isolate, load_from, longest_silence,
};
use weir_os::clock;
use weir_plan::config::ServiceConfig;
use weir_plan::plan::{ServicePlan, VariantPlan};

/// Who has run for so long is warm.
const LONG_WARM_UP: Span = Span::from_millis(500);

/// The variants of one worker, used by whichever thread runs its batch.
pub(crate) struct Executor {
    /// One for each variant, or for each stage if each batch runs all of them.
    pub(super) runners: Vec<Box<dyn Runner>>,
    parts: Vec<Part>,
    pub(super) scratch: Scratch,
    /// Of each stage, the requests of the batch there, if each batch runs all stages.
    pub(super) at_stages: Vec<Vec<Part>>,
    /// Why there is nothing to run, if nothing could be loaded.
    absent: Option<EngineError>,
}

impl Executor {
    /// Loads the model of the service, or of the pipeline's stage, in all variants that may run, or of all stages that a batch runs, for that worker; what is among `files` is not read again. A
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
        let (plan, worker) = plan.on_worker(worker);
        let tasks: Vec<_> = loaded(plan).map(|of| task(of, worker)).collect();
        let runners = match plan.config.isolation {
            Isolation::Thread => {
                tasks.iter().map(|t| load_from(files, t.engine, t.spec, t.max_batch)).collect()
            }
            Isolation::Process => isolate(&tasks, place),
        };
        let runners: Vec<_> = runners?;
        for (runner, (_, _, variant)) in runners.iter().zip(loaded(plan)) {
            check_endpoint(&**runner, variant)?;
        }
        Ok(Self::of(runners))
    }

    /// That of a worker which is lost from the start, for this reason.
    pub(super) fn absent(error: EngineError) -> Self {
        Self { absent: Some(error), ..Self::of(Vec::new()) }
    }

    /// Why no worker at all is there, if none is.
    pub(super) fn none_is_there(all: &mut [Self]) -> Option<EngineError> {
        all.iter().all(|one| one.absent.is_some()).then(|| all.first_mut()?.absent.take()).flatten()
    }

    fn of(runners: Vec<Box<dyn Runner>>) -> Self {
        let at_stages = runners.iter().map(|_| Vec::new()).collect();
        let parts = Vec::with_capacity(MAX_BATCH);
        Self { runners, parts, scratch: Scratch::default(), at_stages, absent: None }
    }

    /// Runs each batch size of each variant on zeros, twice unless that takes long, so that the first request finds pages and caches in
    /// place.
    ///
    /// # Errors
    /// [`EngineError::Lost`], and why nothing was loaded. An engine that fails or panics now will do so on the first batch, where it is
    /// told and counted.
    pub(super) fn warm_up(&mut self, plan: &ServicePlan, worker: WorkerId) -> Result<(), EngineError> {
        if let Some(error) = self.absent.take() {
            return Err(error);
        }
        let (plan, _) = plan.on_worker(worker);
        for (runner, (_, _, variant)) in self.runners.iter_mut().zip(loaded(plan)) {
            let (largest, started) = (variant.times.max_batch(), clock::now());
            for size in (1..=largest).chain(1..=largest) {
                if size == 1 && clock::now().since(started) > LONG_WARM_UP {
                    break;
                }
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
        let mut parts = std::mem::take(&mut self.parts);
        let left = match service.device.mailboxes[id].take(&mut parts) {
            None => false,
            Some(variant) => self.run(service, (id, variant), &parts, effects, leave),
        };
        self.parts = parts;
        left
    }

    /// Runs these requests with that variant.
    fn run(
        &mut self,
        service: &Service,
        (id, variant): (WorkerId, usize),
        parts: &[Part],
        effects: &mut Effects,
        leave: bool,
    ) -> bool {
        let _batch = trace_span!(target: REQUEST, "batch", service = service.name(), worker = id).entered();
        let tokens = || parts.iter().map(|part| part.token);
        trace!(target: REQUEST, variant, tokens = ?tokens().collect::<Vec<_>>(), "start");
        let started = clock::now();
        if let Some(pipeline) = &service.plan.pipeline {
            return self.run_stage(service, (pipeline, variant), (id, started), parts, effects);
        }
        if let Some(fused) = &service.plan.fused {
            return self.run_all_stages(service, fused, (id, started), parts, (effects, leave));
        }
        let runner = &mut self.runners[variant];
        let mut state = None;
        for (index, token) in tokens().enumerate() {
            // What has been missed meanwhile is run with the others, and nobody waits for it.
            let Some(slot) = service.slots.get_if_taken(token) else { continue };
            runner.buffers().put(index, &slot.input);
            if let Some(memory) = &slot.memory {
                memory.recall(&service.plan.variants[variant].spec, runner.buffers(), index);
                state = Some((Arc::clone(memory), slot.sequence));
            }
        }
        let whose = service.worker(id);
        let told = (format_args!("{whose}"), &mut self.scratch.failures);
        let (ended, took) = run_caught(&mut **runner, parts.len(), told, started);
        let ran = match ended {
            Ended::Done => {
                service.meters.ran(parts.len());
                // A batch is of one request where there is state, and has its part in that also if it was missed meanwhile.
                let skipped =
                    state.map_or(0, |(memory, sequence)| memory.keep(sequence, runner.buffers(), 0));
                let times = (started.as_nanos(), took);
                write_results(service, (parts, variant), runner.buffers(), times, skipped);
                // As it is profiled, with the copies of requests and answers.
                let took = clock::now().since(started);
                trace!(target: REQUEST, took_us = took.as_nanos() / 1_000, "end");
                Ran::Done(took)
            }
            Ended::Lost => {
                service.lose_worker(effects, id);
                return false;
            }
            Ended::Failed => Ran::Failed(took),
        };
        end(service, (id, ran), parts, (effects, leave), |_, _| {})
    }

    /// Why it is lost, if what computes elsewhere has gone.
    pub(super) fn lost(&mut self) -> Option<String> {
        self.runners.iter_mut().find_map(|runner| runner.lost())
    }

    /// Lets go of everything loaded.
    pub(super) fn clear(&mut self) {
        self.runners.clear();
    }
}

/// How a batch ended.
pub(super) enum Ended {
    Done,
    /// Without results; the runner goes on.
    Failed,
    /// With its runner.
    Lost,
}

/// Runs so many requests from the runner's buffers, and says for `whose` why if it fails, beside its other `failures`; how it ended, and
/// how long after `started`.
pub(super) fn run_caught(
    runner: &mut dyn Runner,
    batch: usize,
    (whose, failures): (std::fmt::Arguments<'_>, &mut Failures),
    started: Instant,
) -> (Ended, Span) {
    let result = catch_unwind(AssertUnwindSafe(|| runner.run(batch)));
    let now = clock::now();
    let took = now.since(started);
    let ended = match result {
        Ok(Ok(())) => {
            failures.note_end(now, whose);
            Ended::Done
        }
        // A panic has told its message already, and leaves the runner in any state.
        Err(_) => Ended::Lost,
        Ok(Err(error)) => {
            failures.note(now, whose, &error);
            if matches!(error, EngineError::Lost { .. }) { Ended::Lost } else { Ended::Failed }
        }
    };
    (ended, took)
}

/// Tells the scheduler how a batch has ended of which nothing goes on to another stage, behind what else `tell` tells. If the worker is to
/// `leave`, it is lost to all from then on; true if so.
pub(super) fn end(
    service: &Service,
    (id, ran): (WorkerId, Ran),
    parts: &[Part],
    (effects, leave): (&mut Effects, bool),
    tell: impl FnOnce(&mut Held<'_>, Instant),
) -> bool {
    service.with_scheduler(effects, |scheduler, now| {
        service.record_end(now, id);
        tell(scheduler, now);
        scheduler.handle_completion(now, id, ran, (parts, &Found::default()));
        if leave {
            scheduler.handle_worker_lost(now, id);
        }
    });
    leave
}

/// A server that has changed since it was planned for is another one, of which nothing was measured.
fn check_endpoint(runner: &dyn Runner, variant: &VariantPlan) -> Result<(), EngineError> {
    match runner.endpoint() {
        Some(found) if !variant.here.has(found) => {
            let (model, planned) = (variant.spec.name.clone(), variant.here.line());
            Err(EngineError::Changed { model, planned, found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

/// What a worker of a service, or of a pipeline's stage, loads: its variants that may run, or the base of each stage if each batch runs
/// all of them. With what is configured of it, and its number among the variants of that.
fn loaded(plan: &ServicePlan) -> impl Iterator<Item = (&ServiceConfig, usize, &VariantPlan)> {
    let stages = plan.fused.iter().flat_map(|fused| &fused.stages).map(|stage| &stage.runs);
    let stages = stages.map(|runs| (&runs.config, 0, &runs.variants[0]));
    let variants = if plan.fused.is_some() { &[][..] } else { plan.running_variants() };
    let variants = variants.iter().enumerate();
    stages.chain(variants.map(|(number, variant)| (&plan.config, number, variant)))
}

fn task<'a>(
    (config, number, variant): (&'a ServiceConfig, usize, &'a VariantPlan),
    worker: WorkerId,
) -> Task<'a> {
    let sizes = 1..=variant.times.max_batch();
    // Who stands still as declared is not lost.
    let stalled = config.stalls.map_or(Span::ZERO, |stalls| stalls.lost());
    Task {
        engine: match config.model.simulated_times(number) {
            Some(times) => Engine::Simulated { times },
            None => Engine::Real { backend: config.backend(worker), modes: Some(&variant.modes) },
        },
        spec: &variant.spec,
        max_batch: variant.times.max_batch(),
        silence: sizes.map(|b| longest_silence(variant.times.bound(b)) + stalled).collect(),
    }
}

fn write_results(
    service: &Service,
    (parts, variant): (&[Part], usize),
    buffers: &Buffers,
    (started_ns, took): (u64, Span),
    skipped: u32,
) {
    for (index, part) in parts.iter().enumerate() {
        let Some(mut slot) = service.slots.get_if_taken(part.token) else { continue };
        buffers.get(index, &mut slot.output);
        slot.skipped = skipped;
        slot.started_ns = started_ns;
        slot.run_ns = took.as_nanos();
        slot.batch = parts.len() as u16;
        slot.variant = variant as u16;
    }
}
