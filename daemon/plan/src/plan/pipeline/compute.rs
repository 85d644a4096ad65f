//! What a pipeline can promise: which batches its stages run, and the largest rate of sources that is answered as a whole in time.

use planner::certify;
use planner::choice::{Choices, StageChoices, StageOption};
use planner::problem::PipelineProblem;
use rt_core::pipeline::{Pipeline, PipelineAdmission, PipelineError};
use rt_core::{ArrivalBound, ArrivalCurve, ConstraintSet, MAX_SPAN, Span, StreamSpec, System, Workers};

use super::super::rate::densest;
use super::super::{PlanError, RatePlan, ServicePlan, workers_of};
use super::{PipelinePlan, StagePlan, most_within};
use crate::config::{ReservedStream, ServiceConfig};
use crate::models::{Reply, Staging, Timed, adapters, reply};
use crate::problem::{problem_of_pipeline, reserved};
use crate::profile::{Entry, Profile};
use weir_engine::{ModelSpec, sha256_hex};

/// Rates are looked at in so many steps, up to that which keeps the busiest stage just busy.
pub(super) const STEPS: u64 = 1 << 16;

/// Of so many parts of the busiest stage's workers 16 and one for each request of a source there stay free: nearer to capacity a
/// bound may rest on more than the checker of certificates looks at.
const PARTS: f64 = 16384.0;

/// A pipeline whose batches are open, and one more stream that it is to carry beside the reserved ones.
pub(super) struct Question<'a> {
    config: &'a ServiceConfig,
    problem: PipelineProblem,
    reserved: Vec<StreamSpec>,
}

/// What the profile says of the variants of each stage of a pipeline, the base first.
///
/// # Errors
/// If it lacks one.
pub fn stage_entries<'a>(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    profile: &'a Profile,
) -> Result<Vec<Vec<&'a Entry>>, PlanError> {
    let stagings = Staging::all(config, specs)?;
    let stages = config.stages.iter().zip(config.by_stage(specs)).zip(&stagings);
    let entries = stages.map(|((stage, variants), staging)| {
        let timed = |spec| match staging {
            None => Timed::by(&stage.runs, spec),
            Some(staging) => Timed::of(spec, Some(staging)),
        };
        let entry = |spec| profile.timed(&timed(spec), stage.runs.engine);
        Ok(variants.iter().map(entry).collect::<Result<_, _>>()?)
    });
    entries.collect()
}

/// The workers of each stage of a pipeline of these entries, by the base, for each batch size that it may promise by.
///
/// # Errors
/// As [`workers_of`].
pub fn stage_sizes(config: &ServiceConfig, entries: &[Vec<&Entry>]) -> Result<Vec<Vec<Workers>>, PlanError> {
    let sizes = config.stages.iter().zip(entries).map(|(stage, entry)| {
        let name = format!("{}/{}", config.name, stage.runs.name);
        workers_of(&ServiceConfig { name, ..stage.runs.clone() }, entry[0])
    });
    sizes.collect()
}

/// The same with the workers that were chosen.
fn with_workers(config: &ServiceConfig, pipeline: &Pipeline) -> ServiceConfig {
    let mut config = config.clone();
    for (stage, chosen) in config.stages.iter_mut().zip(&pipeline.stages) {
        (stage.runs.workers, stage.open) = (chosen.workers, false);
    }
    config.workers = pipeline.stages[0].workers;
    config
}

impl ServicePlan {
    /// What the pipeline `config` can promise with the best batches of its stages, whose models are `specs`.
    ///
    /// # Errors
    /// As [`super::super::Plan::compute`].
    pub fn of_pipeline(
        config: &ServiceConfig,
        specs: &[ModelSpec],
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        let entries = stage_entries(config, specs, profile)?;
        let sizes = stage_sizes(config, &entries)?;
        let question = Question::new(config, &sizes)?;
        let (chosen, rate) = question.answer()?;
        let queue = config.queue as u64;
        let waiting = question.open(&question.reserved);
        if waiting > queue {
            return Err(PlanError::Queue { service: config.name.clone(), queue: config.queue, waiting });
        }
        let admission = question.reserved.iter().any(|spec| spec.demand().is_some());
        let admission = admission.then(|| chosen.admit(&question.reserved)).transpose();
        let admission = admission.map_err(|error| question.refused(config.reserved.len() - 1, &error))?;
        Self::staged(config, (specs, &entries), sizes, (chosen, admission, rate))
    }

    /// The plan with what was chosen.
    fn staged(
        config: &ServiceConfig,
        (specs, entries): (&[ModelSpec], &[Vec<&Entry>]),
        sizes: Vec<Vec<Workers>>,
        (pipeline, admission, rate): (Pipeline, Option<PipelineAdmission>, Option<RatePlan>),
    ) -> Result<Self, PlanError> {
        let config = &with_workers(config, &pipeline);
        let (variants, most): (Vec<_>, _) = (config.by_stage(specs).collect(), config.most());
        let mut stages = Vec::new();
        for (i, (ways, sizes)) in adapters(config, specs)?.into_iter().zip(sizes).enumerate() {
            let stage = config.stages[i].clone();
            let batch = pipeline.stages[i].batch;
            let workers = sizes.into_iter().find(|workers| workers.batch == batch);
            let workers = workers.unwrap_or_else(|| unreachable!("it was one of them"));
            let workers = Workers { count: pipeline.stages[i].workers, ..workers };
            let variants = variants[i].iter().cloned().zip(entries[i].iter().copied()).collect();
            let runs = Self::unpromised(&stage.runs, variants, workers)?;
            stages.push(StagePlan { config: stage, runs, ways, most: most[i] });
        }
        let reply = reply(config, specs);
        let plan = Self { rate, ..Self::whole(config, specs, &stages, &reply) };
        Ok(Self { pipeline: Some(Box::new(PipelinePlan { stages, pipeline, admission, reply })), ..plan })
    }

    /// What follows for a pipeline as a whole from its stages: with the workers and the times of the first.
    pub(in crate::plan) fn whole(
        config: &ServiceConfig,
        specs: &[ModelSpec],
        stages: &[StagePlan],
        reply: &Reply,
    ) -> Self {
        let first = &stages[0].runs;
        let profiles = stages.iter().map(|stage| stage.runs.profile_sha256.clone());
        let (spec, profile_sha256) = whole(config, specs, reply, profiles);
        Self {
            config: config.clone(),
            spec,
            profile_sha256,
            variants: first.variants[..1].to_vec(),
            selector: None,
            entry: None,
            mismatches: stages.iter().flat_map(|stage| stage.runs.mismatches.clone()).collect(),
            ..first.clone()
        }
    }

    /// A plan that promises nothing by itself.
    pub(in crate::plan) fn unpromised(
        config: &ServiceConfig,
        specs: Vec<(ModelSpec, &Entry)>,
        workers: Workers,
    ) -> Result<Self, PlanError> {
        let (spec, entry) = specs[0].clone();
        let latency = config.deadline.saturating_sub(config.guard);
        let plan = Self {
            config: config.clone(),
            spec,
            variants: Vec::new(),
            selector: None,
            network: None,
            profile_sha256: entry.digest(),
            entry: Some(entry.clone()),
            mismatches: Vec::new(),
            system: System { guard: config.guard, ..System::identical(workers, latency) },
            otherwise: None,
            admission: None,
            shared: None,
            rate: None,
            kinds: Vec::new(),
            pipeline: None,
            fused: None,
        };
        plan.with_variants(specs)
    }
}

/// What stands for the model of a pipeline, which takes the first stage's request and gives the answer of all, and the hash of what was
/// measured of the stages.
fn whole(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    reply: &Reply,
    profiles: impl Iterator<Item = String>,
) -> (ModelSpec, String) {
    let identities: Vec<_> = specs.iter().map(ModelSpec::identity).collect();
    let spec = ModelSpec {
        name: config.name.clone(),
        sha256: sha256_hex(identities.join(" ").as_bytes()),
        outputs: reply.outputs().to_vec(),
        accuracy: f64::NAN,
        accuracy_by_class: Vec::new(),
        ..specs[0].clone()
    };
    (spec, sha256_hex(format!("{:?}", profiles.collect::<Vec<_>>()).as_bytes()))
}

/// The same of one that has not been planned.
///
/// # Errors
/// If the profile lacks a stage.
pub fn identity(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    profile: &Profile,
) -> Result<(ModelSpec, String), PlanError> {
    let entries = stage_entries(config, specs, profile)?;
    Ok(whole(config, specs, &reply(config, specs), entries.iter().map(|variants| variants[0].digest())))
}

impl<'a> Question<'a> {
    pub(super) fn new(config: &'a ServiceConfig, sizes: &[Vec<Workers>]) -> Result<Self, PlanError> {
        let name = || config.name.clone();
        let time = |i: usize| sizes[i][0].profile.bound(1);
        let long =
            config.stage_by_stage(|i, stage, long: &[Span]| stage.after.most(long) + config.guard + time(i));
        if long.into_iter().max().is_some_and(|least| least > config.deadline) {
            let stages = config.stages.iter().enumerate();
            let times: Vec<_> = stages.map(|(i, s)| format!("{} {}", s.runs.name, time(i))).collect();
            let (deadline, guard) = (config.deadline, config.guard);
            return Err(PlanError::Path { service: name(), times: times.join(", "), deadline, guard });
        }
        let profiles = sizes.iter().map(|sizes| &sizes[0].profile);
        let streams: Vec<_> = reserved(config).collect();
        let problem = problem_of_pipeline(config, profiles.zip(std::iter::repeat(None)), &streams);
        let problem = problem.map_err(|source| PlanError::Problem { service: name(), source })?;
        let reserved = config.reserved.iter().map(|stream| stream.spec.clone()).collect();
        Ok(Self { config, problem, reserved })
    }

    pub(super) fn choices(&self) -> &Choices {
        &self.problem.choices
    }

    /// The best choice, and the largest rate of one more stream with the pipeline's own constraints, if it has any.
    fn answer(&self) -> Result<(Pipeline, Option<RatePlan>), PlanError> {
        for n in 1..=self.reserved.len() {
            let demanding = self.reserved[n - 1].demand().is_some();
            if demanding && let Err(error) = self.carried(&self.reserved[..n]) {
                return Err(self.refused(n - 1, &error));
            }
        }
        let set = ConstraintSet::new(&self.config.constraints).unwrap_or_default();
        if set.as_slice().is_empty() && self.reserved.iter().all(|spec| spec.demand().is_none()) {
            return Ok((self.as_stated(), None));
        }
        if set.as_slice().is_empty() {
            return Ok((certify::chosen(&self.problem), None));
        }
        let (binding, density) = (densest(&set), set.density());
        let load = |step: u64| self.load(&set, step);
        let held = |streams: &Vec<StreamSpec>| self.open(streams) <= self.config.queue as u64;
        let fastest =
            self.choices().largest(STEPS, |step| load(step).filter(held)).map_err(|e| self.range(&e))?;
        let Some((step, chosen)) = fastest else {
            if !self.reserved.is_empty() {
                let rate = RatePlan { binding, density, alone: None, spare: None, queue_limits: false };
                return Ok((certify::chosen(&self.problem), Some(rate)));
            }
            let seldom = load(1).unwrap_or_default();
            let (waiting, queue) = (self.open(&seldom), self.config.queue);
            let (service, constraint) = (self.config.name.clone(), binding);
            return Err(match self.carried(&seldom) {
                Ok(_) => PlanError::Queue { service, queue, waiting },
                Err(error) => PlanError::Unkept { service, constraint, reason: self.told(&error) },
            });
        };
        let found = self.with_room(&chosen.pipeline, density.as_f64(), step);
        let more = load(step + 1).filter(|more| found == Some(step) && !held(more));
        let queue_limits = more.is_some_and(|more| self.carried(&more).is_ok());
        let spare = found.map(|step| (self.period(step), None));
        Ok((chosen.pipeline, Some(RatePlan { binding, density, alone: None, spare, queue_limits })))
    }

    /// The largest step up to `step` that leaves some room at every stage; `None` if not even the first does.
    pub(super) fn with_room(&self, pipeline: &Pipeline, density: f64, step: u64) -> Option<u64> {
        let reserved = mandatory_per_s(&self.reserved);
        let most = self.config.most();
        let fits = |step: u64| {
            let busy = busy(self.config, pipeline, reserved + density / self.period(step).as_secs_f64());
            busy.zip(&most).all(|(busy, &most)| busy <= 1.0 - (16.0 + most as f64) / PARTS)
        };
        Some(certify::bisect(0, step + 1, fits)).filter(|&step| step > 0)
    }

    /// What is configured, and the smallest batches where that leaves a choice: nothing is to be chosen for.
    fn as_stated(&self) -> Pipeline {
        let mut pipeline = self.choices().pipeline(&vec![0; self.config.stages.len()]);
        for (stage, stated) in pipeline.stages.iter_mut().zip(&self.config.stages) {
            stage.workers = stated.runs.workers;
        }
        pipeline
    }

    /// The reserved streams and one more of these constraints, the faster the higher the step; `None` if it would be too fast to be
    /// declared.
    pub(super) fn load(&self, set: &ConstraintSet, step: u64) -> Option<Vec<StreamSpec>> {
        let curve = ArrivalBound::periodic(self.period(step), self.config.jitter).ok();
        let curve = ArrivalCurve::new(&[curve?]).ok()?;
        let one = StreamSpec::promised(set.clone(), curve);
        Some(self.reserved.iter().cloned().chain([one]).collect())
    }

    /// At the last step no choice of batches could keep up with less than one mandatory source a period.
    pub(super) fn period(&self, step: u64) -> Span {
        let density = ConstraintSet::new(&self.config.constraints).unwrap_or_default().density();
        let busy = |(stage, most): (&StageChoices, usize)| {
            stage.options.iter().map(work).fold(f64::INFINITY, f64::min) * most as f64
        };
        let least = self.choices().stages.iter().zip(self.config.most()).map(busy).fold(0.0, f64::max);
        let period = least * density.as_f64() * 1e9 * STEPS as f64 / step as f64;
        Span::from_nanos((period as u64).max(1)).min(MAX_SPAN)
    }

    /// How many sources that must be served can be open at once.
    pub(super) fn open(&self, streams: &[StreamSpec]) -> u64 {
        most_within(streams, self.config.deadline)
    }

    /// A choice with which all of `streams` are answered in time.
    fn carried(&self, streams: &[StreamSpec]) -> Result<Pipeline, PipelineError> {
        let choices = self.choices();
        if let Some((_, chosen)) = choices.largest(1, |_| Some(streams.to_vec()))? {
            return Ok(chosen.pipeline);
        }
        let fastest = choices.stages.iter().map(|stage| {
            let work = |option: usize| work(&stage.options[option]);
            (0..stage.options.len()).min_by(|&a, &b| work(a).total_cmp(&work(b))).unwrap_or(0)
        });
        let soonest = choices.least(streams)?.map(|chosen| chosen.pipeline);
        let pipeline = soonest.unwrap_or_else(|| choices.pipeline(&fastest.collect::<Vec<_>>()));
        // What one of them was refused for by a hair is no less refused.
        Err(pipeline.admit(streams).err().unwrap_or(PipelineError::Horizon))
    }

    /// That the promise to a reserved stream cannot be kept.
    fn refused(&self, stream: usize, error: &PipelineError) -> PlanError {
        let ReservedStream { name, spec, .. } = &self.config.reserved[stream];
        PlanError::Reserved {
            service: self.config.name.clone(),
            stream: name.clone(),
            constraint: densest(spec.constraints()),
            reason: self.told(error),
        }
    }

    fn range(&self, error: &PipelineError) -> PlanError {
        PlanError::Reason { service: self.config.name.clone(), reason: self.told(error) }
    }

    /// Why it is refused, with the stages by their names.
    fn told(&self, error: &PipelineError) -> String {
        told(error, |stage| &self.config.stages[stage].runs.name)
    }
}

/// The workers' time that a request takes, in seconds, in full batches.
fn work(option: &StageOption) -> f64 {
    option.time.as_secs_f64() / (option.workers * option.batch) as f64
}

/// How many sources of these streams must be served in a second, in the long run.
pub(super) fn mandatory_per_s(streams: &[StreamSpec]) -> f64 {
    let demand = streams.iter().filter_map(StreamSpec::demand);
    demand.map(|(density, arrivals)| density.as_f64() * arrivals.rate_per_s()).sum()
}

/// The share of each stage's workers that so many sources a second keep busy at most.
pub(super) fn busy(
    config: &ServiceConfig,
    pipeline: &Pipeline,
    sources_per_s: f64,
) -> impl Iterator<Item = f64> {
    pipeline.stages.iter().zip(config.most()).map(move |(stage, most)| {
        let option = StageOption { workers: stage.workers, batch: stage.batch, time: stage.time };
        sources_per_s * most as f64 * work(&option)
    })
}

/// Why a pipeline refuses streams, in words.
fn told<'a>(error: &PipelineError, name: impl Fn(usize) -> &'a str) -> String {
    match error {
        PipelineError::Rate { stage, thousandths, workers } => {
            let percent = *thousandths as f64 / 10.0;
            format!("{} would be busy to {percent:.1} % of its {workers} worker(s)", name(*stage))
        }
        PipelineError::Late { deadline, admission } => {
            let path = admission.tightest.iter().flat_map(|at| &at.path);
            let path: Vec<_> = path
                .map(|leg| format!("{} request(s) at {} take {}", leg.requests, name(leg.stage), leg.time))
                .collect();
            format!("a source may take {}, the deadline is {deadline}: {}", admission.bound, path.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
