//! Workers of several kinds: the batch size of each kind, and which of them the promise would rather be without.

use rt_core::{Span, System, Workers};

use super::{PlanError, RatePlan, ServicePlan, workers_of};
use crate::config::ServiceConfig;
use crate::models::Timed;
use crate::profile::{Entry, Profile};
use weir_engine::ModelSpec;

/// So many choices of batch sizes are all tried; of more, those that [`climb`] meets.
const ALL_TRIED: usize = 512;

/// A kind of workers of a service, and what is planned for it.
#[derive(Clone, Debug)]
pub struct KindPlan {
    /// What it runs, and in which batches; nothing is promised by it alone.
    pub runs: ServicePlan,
    /// Requests a second that could be promised beside the reserved streams without it, if that is more.
    pub without_per_s: Option<f64>,
}

/// The batch sizes that each kind may promise by.
type Sizes = Vec<Vec<Workers>>;

impl ServicePlan {
    /// What a service with workers of several kinds can promise, with a model for each of them.
    ///
    /// # Errors
    /// As [`super::Plan::compute`].
    pub(super) fn of_kinds(
        config: &ServiceConfig,
        specs: &[ModelSpec],
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        let (entries, sizes) = sizes(config, specs, profile)?;
        let profile_sha256 = entries[0].digest();
        let base = (config, &specs[0], &*profile_sha256);
        let plan = best_of(base, &sizes).map_err(|error| or_without(error, base, &sizes))?;
        let mut kinds = Vec::new();
        for (i, ((kind, spec), entry)) in config.kinds.iter().zip(specs).zip(entries).enumerate() {
            let chosen = plan.system.workers[i].clone();
            let runs = Self::unpromised(kind, vec![(spec.clone(), entry)], chosen)?;
            kinds.push(KindPlan { runs, without_per_s: without(base, &sizes, i, &plan) });
        }
        let mismatches = kinds.iter().flat_map(|kind| kind.runs.mismatches.clone()).collect();
        let variants = kinds[0].runs.variants.clone();
        Ok(Self { variants, mismatches, kinds, ..plan })
    }

    /// The workers of each kind; of a pipeline those of its first stage.
    pub fn all_workers(&self) -> &[Workers] {
        &self.system.workers
    }

    /// The kind that runs longest: a request can wait for a batch of it. `None` if all workers are alike.
    pub fn slowest_kind(&self) -> Option<&KindPlan> {
        self.kinds.iter().max_by_key(|kind| kind.runs.workers().batch_time())
    }

    /// What a worker is called beside its number, where there are several kinds.
    pub fn kind_of(&self, worker: usize) -> Option<String> {
        (!self.kinds.is_empty()).then(|| self.on_worker(worker).0.config.kind_name())
    }
}

/// What each kind was measured with, and the batch sizes that it may promise by.
///
/// # Errors
/// If the profile lacks one, or does not go as far as its configured batch size.
pub fn sizes<'a>(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    profile: &'a Profile,
) -> Result<(Vec<&'a Entry>, Sizes), PlanError> {
    let entry =
        |(kind, spec): (&ServiceConfig, &ModelSpec)| Ok(profile.timed(&Timed::by(kind, spec), kind.engine)?);
    let entries = config.kinds.iter().zip(specs).map(entry).collect::<Result<Vec<_>, PlanError>>()?;
    let sizes = config.kinds.iter().zip(&entries).map(|(kind, entry)| workers_of(kind, entry));
    let sizes = sizes.collect::<Result<_, _>>()?;
    Ok((entries, sizes))
}

/// The same error, and the kind without which all could be promised, if there is one.
fn or_without(error: PlanError, base: (&ServiceConfig, &ModelSpec, &str), sizes: &Sizes) -> PlanError {
    let holds = |kind: &usize| best_of(base, &all_but(sizes, *kind)).is_ok();
    match (0..sizes.len()).find(holds) {
        Some(kind) => PlanError::Kind { source: Box::new(error), kind: base.0.kinds[kind].kind_name() },
        None => error,
    }
}

fn all_but(sizes: &Sizes, kind: usize) -> Sizes {
    sizes.iter().enumerate().filter(|(i, _)| *i != kind).map(|(_, of)| of.clone()).collect()
}

/// What would be promised without that kind, if it is more than the `plan` promises.
fn without(
    base: (&ServiceConfig, &ModelSpec, &str),
    sizes: &Sizes,
    kind: usize,
    plan: &ServicePlan,
) -> Option<f64> {
    let per_second = |plan: &ServicePlan| plan.rate.as_ref().and_then(RatePlan::per_second);
    plan.rate.as_ref()?;
    let without = per_second(&best_of(base, &all_but(sizes, kind)).ok()?)?;
    (without > per_second(plan).unwrap_or(0.0)).then_some(without)
}

/// The plan with the best batch size of each kind.
fn best_of(
    (config, spec, profile_sha256): (&ServiceConfig, &ModelSpec, &str),
    sizes: &Sizes,
) -> Result<ServicePlan, PlanError> {
    let latency = config.deadline.saturating_sub(config.guard);
    let reserve = rt_core::Stalls::reserve_of(config.stalls);
    let slowest = sizes.iter().map(|sizes| sizes[0].profile.bound(1)).max().unwrap_or(Span::ZERO);
    if slowest + reserve > latency {
        let (service, deadline, guard) = (config.name.clone(), config.deadline, config.guard + reserve);
        return Err(PlanError::Deadline { service, time: slowest, deadline, guard });
    }
    let system = |picks: &[usize]| {
        let workers = picks.iter().zip(sizes).map(|(&pick, sizes)| sizes[pick].clone()).collect();
        System { workers, ..ServicePlan::system_of(config, &sizes[0][0], config.stalls) }
    };
    let all = sizes.iter().map(Vec::len).fold(1usize, usize::saturating_mul);
    if all <= ALL_TRIED {
        return ServicePlan::best(config, spec, profile_sha256, choices(sizes).map(|picks| system(&picks)));
    }
    let merit = |picks: &[usize]| {
        let plan = ServicePlan::with_system(config, spec, profile_sha256, system(picks));
        plan.ok().map(|plan| plan.merit())
    };
    let picks = climb(sizes, merit);
    ServicePlan::best(config, spec, profile_sha256, [system(&picks)])
}

/// Every choice of a size for each kind, the smallest sizes first, those of the last kind changing quickest.
fn choices(sizes: &Sizes) -> impl Iterator<Item = Vec<usize>> {
    let all = sizes.iter().map(Vec::len).product::<usize>();
    (0..all).map(|number| {
        let mut rest = number;
        let mut picks: Vec<usize> = sizes
            .iter()
            .rev()
            .map(|sizes| {
                let pick = rest % sizes.len();
                rest /= sizes.len();
                pick
            })
            .collect();
        picks.reverse();
        picks
    })
}

/// A choice that no change for one kind alone betters. It begins with the best of these: for each time that some batch takes, of
/// each kind the size that serves most in no longer than that, for what limits the promise is how much all serve together, and
/// the longest batch.
fn climb(sizes: &Sizes, merit: impl Fn(&[usize]) -> Option<f64>) -> Vec<usize> {
    let better = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => one > other,
        (one, None) => one.is_some(),
        (None, _) => false,
    };
    let mut limits: Vec<Span> = sizes.iter().flatten().map(Workers::batch_time).collect();
    limits.sort_unstable();
    limits.dedup();
    let within = |limit: Span| -> Vec<usize> {
        let pick = |sizes: &Vec<Workers>| {
            let fits = (0..sizes.len()).filter(|&pick| sizes[pick].batch_time() <= limit);
            fits.max_by(|a, b| sizes[*a].capacity_per_s().total_cmp(&sizes[*b].capacity_per_s())).unwrap_or(0)
        };
        sizes.iter().map(pick).collect()
    };
    let mut best = (vec![0; sizes.len()], None);
    for start in limits.into_iter().map(within) {
        let merit = merit(&start);
        if better(merit, best.1) {
            best = (start, merit);
        }
    }
    loop {
        let mut changed = false;
        for kind in 0..sizes.len() {
            for pick in 0..sizes[kind].len() {
                let mut other = best.0.clone();
                other[kind] = pick;
                let merit = merit(&other);
                if better(merit, best.1) {
                    (best, changed) = ((other, merit), true);
                }
            }
        }
        if !changed {
            return best.0;
        }
    }
}

#[cfg(test)]
mod tests;
