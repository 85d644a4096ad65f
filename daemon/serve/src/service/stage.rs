//! A batch of a stage of a pipeline: its requests are made of what came before, and its results are kept for what comes after.

use std::sync::atomic::Ordering;

use heapless::Vec as Few;
use rt_core::pipeline::MAX_STAGES;
use rt_core::{Instant, Ran, WorkerId};
use tracing::trace;

use super::executor::{Ended, Executor, run_caught};
use super::failures::Failures;
use super::slots::{Slot, StageResults};
use super::staged::Found;
use super::worker::Part;
use super::{Effects, REQUEST, Service};
use weir_engine::adapter::{Given, Results as All, Step};
use weir_engine::{Buffers, packed_len};
use weir_os::clock;
use weir_plan::models::{Descent, Reply, Results, Way};
use weir_plan::plan::{PipelinePlan, StagePlan};

/// What a worker of a pipeline reuses from batch to batch.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) result: Vec<u8>,
    pub(super) rows: Vec<u32>,
    pub(super) failures: Failures,
    found: Found,
    /// Of each stage which of its results is first, second, …, and what place each has.
    order: Vec<Vec<u16>>,
    places: Vec<Vec<u16>>,
}

impl Executor {
    /// Runs a batch of a pipeline's worker, of these requests, from `started` on with that variant, and tells the scheduler what became of them. What is of
    /// sources that have ended meanwhile is run with the others, and nobody waits for it.
    pub(super) fn run_stage(
        &mut self,
        service: &Service,
        (pipeline, variant): (&PipelinePlan, usize),
        (id, started): (WorkerId, Instant),
        parts: &[Part],
        effects: &mut Effects,
    ) -> bool {
        let stage = pipeline.place_of(id).0;
        let (runner, scratch) = (&mut self.runners[variant], &mut self.scratch);
        for (place, part) in parts.iter().enumerate() {
            if let Some(mut slot) = service.slots.get_if_taken(part.token) {
                lay(&pipeline.stages, stage, (part, &mut slot), scratch, (runner.buffers(), place));
            }
        }
        let name = &pipeline.stages[stage].config.runs.name;
        let whose = format_args!("service {}: stage {name}: worker {id}", service.name());
        scratch.found.begin(StagePlan::children(&pipeline.stages, stage).map(|(child, _)| child));
        let (ended, failed_after) =
            run_caught(&mut **runner, parts.len(), (whose, &mut scratch.failures), started);
        let ran = match ended {
            Ended::Done => {
                service.meters.ran(parts.len());
                service.results[stage][variant].fetch_add(parts.len() as u64, Ordering::Relaxed);
                for (place, part) in parts.iter().enumerate() {
                    runner.buffers().get(place, &mut scratch.result);
                    keep(service, (pipeline, stage), (part, parts.len(), started), scratch);
                }
                let took = clock::now().since(started);
                trace!(target: REQUEST, stage, variant, took_us = took.as_nanos() / 1_000, "end");
                Ran::Done(took)
            }
            Ended::Lost => {
                service.lose_worker(effects, id);
                return false;
            }
            Ended::Failed => Ran::Failed(failed_after),
        };
        service.with_scheduler(effects, |scheduler, now| {
            if let Some(staged) = scheduler.staged() {
                service.record_results(staged, id, &scratch.found);
            }
            scheduler.handle_completion(now, id, ran, (parts, &scratch.found));
            if let Some(staged) = scheduler.staged() {
                service.record_end_of_stage(now, staged, id);
            }
        });
        false
    }
}

/// Makes the request of a source at `stage`, at a place of the batch.
pub(super) fn lay(
    stages: &[StagePlan],
    stage: usize,
    (part, slot): (&Part, &mut Slot),
    scratch: &mut Scratch,
    (buffers, place): (&mut Buffers, usize),
) {
    let Slot { input, results, .. } = slot;
    if stage == 0 {
        results.resize_with(stages.len(), StageResults::default);
        for of in results.iter_mut() {
            of.origins.clear();
            of.packed.clear();
        }
        return buffers.put(place, input);
    }
    let own = &mut results[stage].origins;
    if own.len() <= part.index as usize {
        own.resize(part.index as usize + 1, Descent::default());
    }
    own[part.index as usize] = part.of;
    let (mut path, mut steps): (Few<usize, MAX_STAGES>, Few<Step<'_>, MAX_STAGES>) = (Few::new(), Few::new());
    // From the parent up to the first, or to a join.
    let (mut here, mut origin) = (stage, part.of);
    while let Some(parent) = stages[here].parent_of(origin) {
        let (number, row) = (origin.parent as usize, origin.row);
        let each = packed_len(stages[parent].runs.spec.answer());
        let Some(answer) = results[parent].packed.get(number * each..(number + 1) * each) else { return };
        if path.push(parent).and(steps.push(Step { answer, row }).map_err(|_| parent)).is_err() {
            return;
        }
        let Some(&next) = results[parent].origins.get(number).or((parent == 0).then_some(&part.of)) else {
            return;
        };
        (here, origin) = (parent, next);
    }
    path.reverse();
    steps.reverse();
    let Some(way) = stages[stage].ways.iter().find(|way| way.path == *path) else { return };
    scratch.put_in_order(way, results);
    let all =
        way.above.iter().map(|&above| All { packed: &results[above].packed, order: &scratch.order[above] });
    let all: Few<All<'_>, MAX_STAGES> = all.collect();
    way.adapter.lay(Given { source: input, all: &all, path: &steps }, buffers, place);
}

impl Scratch {
    /// Says in which order the results of the stages above a join are: those of one result behind one another, as it has them, and of
    /// several stages the first one's first; when they came does not matter.
    fn put_in_order(&mut self, way: &Way, results: &[StageResults]) {
        let Self { order, places, .. } = self;
        order.resize_with(results.len(), Vec::new);
        places.resize_with(results.len(), Vec::new);
        for &stage in &way.above {
            let origins = &results[stage].origins;
            let count = if stage == 0 { 1 } else { origins.len() };
            order[stage].clear();
            order[stage].extend(0..count as u16);
            order[stage].sort_unstable_by_key(|&number| {
                let of = origins.get(usize::from(number)).copied().unwrap_or_default();
                (of.stage, places[of.stage as usize].get(of.parent as usize).copied(), number)
            });
            let mut of_each = std::mem::take(&mut places[stage]);
            of_each.clear();
            of_each.resize(count, 0);
            for (place, &number) in order[stage].iter().enumerate() {
                of_each[usize::from(number)] = place as u16;
            }
            places[stage] = of_each;
        }
    }
}

/// Keeps the result that lies in `scratch` with its source, and finds what it becomes at each child of `stage`.
fn keep(
    service: &Service,
    (pipeline, stage): (&PipelinePlan, usize),
    (part, batch, started): (&Part, usize, Instant),
    scratch: &mut Scratch,
) {
    let Scratch { result, found, .. } = scratch;
    let Some(mut slot) = service.slots.get_if_taken(part.token) else {
        return StagePlan::children(&pipeline.stages, stage).for_each(|_| {
            found.add(|_| 0);
        });
    };
    for (child, way) in StagePlan::children(&pipeline.stages, stage) {
        service.note_factor(child, found.add(|rows| way.adapter.select(result, rows)));
    }
    if stage == 0 {
        (slot.started_ns, slot.batch, slot.variant) = (started.as_nanos(), batch as u16, 0);
    }
    // What comes last says how long all of it took.
    slot.run_ns = clock::now().as_nanos().saturating_sub(slot.started_ns);
    if let Some(of) = slot.results.get_mut(stage) {
        of.put(part.index as usize, result);
    }
}

/// Writes the answer of a source that has ended over what the slot has for it.
pub(super) fn assemble(reply: &Reply, slot: &mut Slot) {
    let Slot { results, output, .. } = slot;
    let of = |stage: usize| {
        results
            .get(stage)
            .map_or_else(Results::default, |of| Results { origins: &of.origins, packed: &of.packed })
    };
    reply.write(of, output);
}
