//! A batch of a pipeline on a device: all stages, one behind the other, on one worker.

use std::sync::atomic::Ordering;

use heapless::Vec as Few;
use rt_core::{Instant, MAX_BATCH, Ran, Span, WorkerId};
use tracing::trace;

use super::executor::{Ended, Executor, end, run_caught};
use super::stage::{Scratch, lay};
use super::worker::Part;
use super::{Effects, REQUEST, Service};
use weir_engine::Runner;
use weir_os::clock;
use weir_plan::models::Descent;
use weir_plan::plan::{FusedPlan, StagePlan};

/// Sources of a batch of which a result became more than its limit: their places in the batch, at which stage, and how many there were.
type Excesses = Few<(usize, usize, u32), MAX_BATCH>;

impl Executor {
    /// Runs these sources from `started` on as far as anything comes of them, and tells the scheduler. If the worker is to `leave`, it is
    /// lost to all from the end of the batch on; true if so.
    pub(super) fn run_all_stages(
        &mut self,
        service: &Service,
        fused: &FusedPlan,
        (id, started): (WorkerId, Instant),
        parts: &[Part],
        (effects, leave): (&mut Effects, bool),
    ) -> bool {
        let Self { runners, scratch, at_stages, .. } = self;
        let mut batch = Batch { service, fused, parts, scratch, at_stages, excesses: Excesses::new() };
        let (mut ended, mut took) = (Ended::Done, Span::ZERO);
        batch.at_stages.iter_mut().for_each(Vec::clear);
        for (stage, runner) in runners.iter_mut().enumerate() {
            (ended, took) = batch.run(stage, &mut **runner, (id, started));
            if !matches!(ended, Ended::Done) {
                break;
            }
        }
        let excesses = batch.excesses;
        let ran = match ended {
            Ended::Done => {
                service.meters.ran(parts.len());
                for mut slot in parts.iter().filter_map(|part| service.slots.get_if_taken(part.token)) {
                    (slot.started_ns, slot.run_ns) = (started.as_nanos(), took.as_nanos());
                    (slot.batch, slot.variant, slot.skipped) = (parts.len() as u16, 0, 0);
                }
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
        end(service, (id, ran), parts, (effects, leave), |scheduler, now| {
            for &(place, stage, seen) in &excesses {
                let limit = fused.stages[stage].config.fan_out;
                if let Some(stream) = scheduler.batch(id).get(place).map(|source| source.stream) {
                    scheduler.fanned_out(now, stream, stage, (limit.into(), seen.into()));
                }
            }
        })
    }
}

/// What a batch has come to.
struct Batch<'a> {
    service: &'a Service,
    fused: &'a FusedPlan,
    /// Its sources.
    parts: &'a [Part],
    scratch: &'a mut Scratch,
    /// Of each stage, the requests there.
    at_stages: &'a mut [Vec<Part>],
    excesses: Excesses,
}

impl Batch<'_> {
    /// Runs all that is there at a stage, in batches that together take least.
    fn run(
        &mut self,
        stage: usize,
        runner: &mut dyn Runner,
        (id, started): (WorkerId, Instant),
    ) -> (Ended, Span) {
        let stages = &self.fused.stages;
        if stage == 0 || stages[stage].config.after.is_join() {
            let once = self.parts.iter().map(|source| Part { index: 0, of: Descent::default(), ..*source });
            self.at_stages[stage].extend(once);
        }
        let (mut ended, mut took) = (Ended::Done, clock::now().since(started));
        let mut from = 0;
        while from < self.at_stages[stage].len() && matches!(ended, Ended::Done) {
            let size = self.fused.batch(stage, self.at_stages[stage].len() - from);
            let batch = from..from + size;
            for (place, part) in self.at_stages[stage][batch.clone()].iter().enumerate() {
                if let Some(mut slot) = self.service.slots.get_if_taken(part.token) {
                    lay(stages, stage, (part, &mut slot), self.scratch, (runner.buffers(), place));
                }
            }
            let name = &stages[stage].config.runs.name;
            let whose = format_args!("service {}: stage {name}: worker {id}", self.service.name());
            (ended, took) = run_caught(runner, size, (whose, &mut self.scratch.failures), started);
            if matches!(ended, Ended::Done) {
                self.service.results[stage][0].fetch_add(size as u64, Ordering::Relaxed);
                for (place, number) in batch.enumerate() {
                    runner.buffers().get(place, &mut self.scratch.result);
                    self.keep(stage, self.at_stages[stage][number]);
                }
            }
            from += size;
        }
        (ended, took)
    }

    /// Keeps the result of that request at `stage`, which lies in `scratch`, and makes of it the requests of the stages behind.
    fn keep(&mut self, stage: usize, part: Part) {
        let result = &self.scratch.result;
        // What has been missed meanwhile becomes nothing more.
        let Some(mut slot) = self.service.slots.get_if_taken(part.token) else { return };
        slot.results[stage].put(part.index as usize, result);
        for (child, way) in StagePlan::children(&self.fused.stages, stage) {
            self.scratch.rows.clear();
            let seen = way.adapter.select(result, &mut self.scratch.rows);
            self.service.note_factor(child, self.scratch.rows.len());
            for &row in &self.scratch.rows {
                let of = Descent { stage: stage as u32, parent: part.index, row };
                let origins = &mut slot.results[child].origins;
                self.at_stages[child].push(Part { token: part.token, index: origins.len() as u32, of });
                origins.push(of);
            }
            if seen > self.fused.stages[child].config.fan_out
                && let Some(place) = self.parts.iter().position(|source| source.token == part.token)
            {
                // One tells enough.
                let _ = self.excesses.push((place, child, seen));
            }
        }
    }
}
