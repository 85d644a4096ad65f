//! A pipeline as a policy in virtual time: the daemon's scheduler, each batch as long as its bound, and as many results in each source as
//! there are on average.

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rt_core::pipeline::{PipelineAction, PipelineConfig, PipelineScheduler};
use rt_core::{Arrival, Instant, Ran, Resolution, SafeModeConfig, Span, StreamId, StreamSpec, WorkerId};
use virtual_time::{End, Policy, Step};
use weir_plan::config::StageConfig as Stage;
use weir_plan::plan::{PipelinePlan, ServicePlan};

/// Workers are numbered stage by stage, and a source is the same request at all of them.
pub(super) struct Staged<'a> {
    pipeline: &'a PipelinePlan,
    scheduler: PipelineScheduler,
    streams: Vec<StreamId>,
    /// Of each stage the number of its first worker among all.
    first: Vec<WorkerId>,
}

impl<'a> Staged<'a> {
    /// Nothing has come to it yet.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub(super) fn new(
        (plan, pipeline): (&ServicePlan, &'a PipelinePlan),
        streams: Vec<StreamSpec>,
        safe_mode: SafeModeConfig,
    ) -> Result<Self> {
        let config = pipeline.scheduler_config(&plan.config, safe_mode);
        let most = config.streams.max(streams.len());
        let mut scheduler = PipelineScheduler::new(&PipelineConfig { streams: most, ..config })?;
        let streams = streams.into_iter().map(|spec| scheduler.add_stream(Instant::ZERO, spec));
        let streams = streams.collect::<Result<_, _>>()?;
        let workers = pipeline.stages.iter().map(|stage| stage.runs.workers().count);
        let before = |all: &mut usize, count: usize| Some(std::mem::replace(all, *all + count));
        Ok(Self { pipeline, scheduler, streams, first: workers.scan(0, before).collect() })
    }
}

fn end(resolution: &Resolution) -> End {
    let (token, mandatory) = (resolution.request.token, resolution.request.mandatory);
    End { token, mandatory, outcome: resolution.outcome }
}

/// How many requests of a stage the result number `index` of a source becomes: the same in every plan, and on average as many as the
/// file says.
fn found(stage: &Stage, number: usize, source: u64, index: u32) -> u32 {
    if stage.after.is_join() {
        return 1;
    }
    let mut dice = StdRng::seed_from_u64(source << 20 | (number as u64) << 12 | u64::from(index));
    let share = (stage.mean / f64::from(stage.fan_out.max(1))).clamp(0.0, 1.0);
    (0..stage.fan_out).filter(|_| dice.random_bool(share)).count() as u32
}

impl Policy for Staged<'_> {
    fn workers(&self) -> usize {
        self.pipeline.workers()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let arrival = Arrival::new(self.streams[stream], token, now);
        self.scheduler.handle_arrival(now, arrival).map(|refused| end(&refused))
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        let at = self.pipeline.place_of(worker);
        let parts: Vec<_> =
            self.scheduler.batch(at.0, at.1).map(|part| (part.token.unwrap_or(0), part.index)).collect();
        let stages = &self.pipeline.stages;
        self.scheduler.handle_completion(now, at, Ran::Done(time), |of, child| {
            let (source, index) = parts[of];
            found(&stages[child].config, child, source, index)
        });
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            return match self.scheduler.poll(now) {
                PipelineAction::Start { stage, worker } => Step::Start { worker: self.first[stage] + worker },
                PipelineAction::Resolve(resolution) => Step::End(end(&resolution)),
                PipelineAction::Event(_) => continue,
                PipelineAction::WakeAt(until) => Step::Wait { until },
            };
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        let (stage, place) = self.pipeline.place_of(worker);
        self.scheduler.batch(stage, place).filter_map(|part| part.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let (stage, place) = self.pipeline.place_of(worker);
        let size = self.scheduler.batch(stage, place).len();
        self.pipeline.stages[stage].runs.workers().profile.bound(size)
    }
}
