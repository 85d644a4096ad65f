//! A pipeline on a device: each of its batches runs all stages there, one behind the other, on one worker.
//!
//! So it is a service to the device, whose batch of `b` sources takes no longer than all that they can become: at stage `i`, of
//! which one source becomes `M_i` requests at most, `b·M_i` requests in as many batches as together take least.

use rt_core::{BatchTime, LatencyProfile, Span, System, Workers};

use super::device::Part;
use super::{PlanError, ServicePlan, StagePlan, VariantPlan, sizes_of, stage_entries, stage_sizes};
use crate::config::ServiceConfig;
use crate::models::{Reply, adapters, reply};
use crate::profile::{Entry, Profile};
use weir_engine::ModelSpec;

/// What such a pipeline has that a service with one model has not.
#[derive(Clone, Debug)]
pub struct FusedPlan {
    /// Every parent before its children. The batch of the first is that of the promise, that of each other the largest that runs then.
    pub stages: Vec<StagePlan>,
    /// How the results of the stages become the answer.
    pub reply: Reply,
    cuts: Vec<Cuts>,
    /// How many requests a source becomes at each stage on average.
    means: Vec<f64>,
}

/// In which batches the requests of one stage are run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cuts {
    /// Of 0, 1, … requests the first batch.
    first: Vec<usize>,
    /// And what all of theirs take.
    times: Vec<BatchTime>,
}

/// What is known of such a pipeline before its batches are chosen.
struct Times<'a> {
    entries: Vec<&'a Entry>,
    stages: Vec<LatencyProfile>,
    cuts: Vec<Cuts>,
    /// What batches of 1, 2, … sources take.
    whole: LatencyProfile,
}

impl FusedPlan {
    /// The first batch of so many requests that are there at a stage.
    pub fn batch(&self, stage: usize, requests: usize) -> usize {
        let first = &self.cuts[stage].first;
        // There are never more: fan-out is cut to its limit.
        first[requests.min(first.len() - 1)]
    }

    /// What so many requests at a stage take at most.
    pub fn bound(&self, stage: usize, requests: usize) -> Span {
        self.cuts[stage].times[requests].bound
    }

    /// What a batch of so many sources takes at most if they become as many requests as on average.
    pub fn usual_bound(&self, sources: usize) -> Span {
        let of = |(cuts, &mean): (&Cuts, &f64)| cuts.usual(mean, sources).bound;
        self.cuts.iter().zip(&self.means).map(of).fold(Span::ZERO, |sum, time| sum + time)
    }
}

impl Cuts {
    /// All requests are one batch: the sources at the first stage.
    fn undivided(times: &LatencyProfile) -> Self {
        let nothing = BatchTime::at_most(Span::ZERO);
        let sizes = 1..=times.max_batch();
        let all = sizes.map(|batch| times.time(batch));
        Self { first: (0..=times.max_batch()).collect(), times: [nothing].into_iter().chain(all).collect() }
    }

    /// For up to `most` requests, in batches of up to `largest` that take so long.
    fn new(times: &LatencyProfile, largest: usize, most: usize) -> Self {
        let nothing = BatchTime::at_most(Span::ZERO);
        let mut cuts = Self { first: vec![0], times: vec![nothing] };
        for requests in 1..=most {
            let whole = |batch: usize| times.bound(batch) + cuts.times[requests - batch].bound;
            // Of those that take as long, the fewest batches.
            let first = (1..=largest.min(requests)).rev().min_by_key(|&batch| whole(batch)).unwrap_or(1);
            let (own, rest, fewer) =
                (times.time(first), cuts.times[requests - first], cuts.times[requests - 1]);
            cuts.times.push(BatchTime {
                bound: own.bound + rest.bound,
                // Fewer may be in batches that are expected to take longer.
                likely: (own.likely + rest.likely).max(fewer.likely),
                mean: (own.mean + rest.mean).max(fewer.mean),
            });
            cuts.first.push(first);
        }
        cuts
    }

    /// For so many sources that become `mean` requests each here.
    fn usual(&self, mean: f64, sources: usize) -> BatchTime {
        let requests = (sources as f64 * mean).ceil() as usize;
        self.times[requests.min(self.times.len() - 1)]
    }
}

impl<'a> Times<'a> {
    fn new(config: &ServiceConfig, specs: &[ModelSpec], profile: &'a Profile) -> Result<Self, PlanError> {
        let entries = stage_entries(config, specs, profile)?;
        let sizes = stage_sizes(config, &entries)?;
        let (most, means) = (config.most(), config.means());
        let stages: Vec<_> = sizes.iter().map(|sizes| sizes[0].profile.clone()).collect();
        let cut = |(i, sizes): (usize, &Vec<Workers>)| match i {
            0 => Cuts::undivided(&stages[0]),
            _ => Cuts::new(&stages[i], sizes[sizes.len() - 1].batch, most[i] * stages[0].max_batch()),
        };
        let cuts: Vec<_> = sizes.iter().enumerate().map(cut).collect();
        let whole = |sources: usize| {
            let all = || cuts.iter().zip(&most).zip(&means);
            let none = BatchTime::at_most(Span::ZERO);
            all().fold(none, |sum, ((cuts, most), mean)| {
                let usual = cuts.usual(*mean, sources);
                BatchTime {
                    bound: sum.bound + cuts.times[sources * most].bound,
                    likely: sum.likely + usual.likely,
                    mean: sum.mean + usual.mean,
                }
            })
        };
        let times: Vec<_> = (1..=stages[0].max_batch()).map(whole).collect();
        let whole = LatencyProfile::expected(&times).map_err(|source| PlanError::Times {
            service: config.name.clone(),
            model: "all stages".to_owned(),
            source,
        })?;
        Ok(Self { entries: entries.into_iter().map(|variants| variants[0]).collect(), stages, cuts, whole })
    }
}

/// The workers of a pipeline on a device, for each batch size that it may promise by.
///
/// # Errors
/// If the profile lacks a stage, or does not go as far as a batch size that is configured.
pub(super) fn workers(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    profile: &Profile,
) -> Result<Vec<Workers>, PlanError> {
    sizes_of(config, Times::new(config, specs, profile)?.whole)
}

/// Of each stage of a pipeline on a device how much of a worker's time a source takes on average, in seconds: in batches of so many
/// sources as take least of it and can be answered in time; none if not even one source can.
///
/// # Errors
/// As [`workers`].
pub(crate) fn least_loads(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    profile: &Profile,
) -> Result<Option<Vec<f64>>, PlanError> {
    let Times { cuts, whole, .. } = Times::new(config, specs, profile)?;
    let (means, latency) = (config.means(), config.deadline.saturating_sub(config.guard));
    let of = |sources: usize| {
        let each = cuts.iter().zip(&means).map(move |(cuts, &mean)| cuts.usual(mean, sources).bound);
        each.map(move |time| time.as_secs_f64() / sources as f64).collect::<Vec<_>>()
    };
    let sizes = 1..=whole.largest_within(latency, whole.max_batch());
    Ok(sizes.map(of).min_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum())))
}

impl ServicePlan {
    /// The plan of a pipeline on a device, whose models are `specs`.
    ///
    /// # Errors
    /// As [`super::Plan::compute`].
    pub(super) fn fused(
        config: &ServiceConfig,
        specs: &[ModelSpec],
        profile: &Profile,
        Part { share, workers, rate }: Part,
    ) -> Result<Self, PlanError> {
        let Times { entries, stages: times, cuts, whole } = Times::new(config, specs, profile)?;
        let most = config.most();
        let mut stages = Vec::new();
        for (i, ways) in adapters(config, specs)?.into_iter().enumerate() {
            let stage = config.stages[i].clone();
            let batch = cuts[i].first[..=most[i] * workers.batch].iter().copied().max().unwrap_or(1);
            let own = Workers { count: workers.count, batch, profile: times[i].clone() };
            let runs = Self::unpromised(&stage.runs, vec![(specs[i].clone(), entries[i])], own)?;
            stages.push(StagePlan { config: stage, runs, ways, most: most[i] });
        }
        let reply = reply(config, specs);
        let plan = Self::whole(config, specs, &stages, &reply);
        let typical = stages.iter().map(|stage| stage.runs.variants[0].typical);
        let variant = VariantPlan {
            spec: plan.spec.clone(),
            times: whole,
            typical: typical.fold(Span::ZERO, |all, time| all + time),
            profile_sha256: plan.profile_sha256.clone(),
            ..plan.variants[0].clone()
        };
        let latency = config.deadline.saturating_sub(config.guard);
        Ok(Self {
            variants: vec![variant],
            system: System { guard: config.guard, ..System::identical(workers, latency) },
            shared: Some(share),
            rate,
            fused: Some(Box::new(FusedPlan { stages, reply, cuts, means: config.means() })),
            ..plan
        })
    }
}

#[cfg(test)]
mod tests;
