//! Answers a problem: whether it can be promised, why, and how far each input is from its limit.

mod contingency;
mod decide;
mod limits;
mod pipeline;
mod region;
mod scale;
mod shared;
mod split;

use rt_core::{Admission, AdmissionError, ConstraintSet, Standing, StreamSpec, largest_count, seed_count};

use crate::certificate::{Binding, Claim, LargestCount, Limits, Rule, StreamAnswer};
use crate::problem::Problem;
pub use contingency::contingencies;
pub use decide::{Decision, by_neither, decide, decide_by};
pub use pipeline::{certify_pipeline, chosen};
pub use region::{promised_per_s, region};
pub use shared::{bisect, certify_shared, told};
pub use split::{groupings, load_scale};

/// The largest factor that is tried: a scale of 1000 means so many times or more.
pub const MAX_SCALE: u64 = 1000;

/// The answer of the admission test to `problem`, and its limits; nothing about services, no refutation.
///
/// Every limit is a value that the test admits, and the next step is one that it does not; a load that it would
/// have to look at for too long counts as not admitted.
#[must_use]
pub fn certify(problem: &Problem) -> Claim {
    let answer = problem.system().admit(problem.specs());
    let (rule, binding) = match &answer {
        Ok(Admission { binding: None, .. }) => (Rule::NothingPromised, None),
        Ok(admission) if admission.plain => (Rule::TheoremA, admission.binding),
        Ok(admission) => (Rule::Refined, admission.binding),
        Err(AdmissionError::Rate { .. }) => (Rule::Rate, None),
        Err(AdmissionError::Horizon) => (Rule::Horizon, None),
        Err(
            AdmissionError::Stalls { .. }
            | AdmissionError::Absorbed { .. }
            | AdmissionError::Recovery { .. }
            | AdmissionError::Kinds,
        ) => (Rule::Stalls, None),
        Err(AdmissionError::Burst(binding)) if is_closed(problem) => (Rule::Refined, Some(*binding)),
        Err(AdmissionError::Burst(binding)) => (Rule::TheoremA, Some(*binding)),
        // No problem has such workers.
        Err(AdmissionError::System { .. }) => (Rule::TheoremA, None),
    };
    let reason = answer.as_ref().err().map(ToString::to_string);
    let admission = answer.ok();
    let (load, limits, rates) = if rule == Rule::NothingPromised {
        (None, Limits::default(), vec![None; problem.streams.len()])
    } else {
        limits::all(problem, admission)
    };
    let streams = problem.raw.streams.iter().zip(problem.specs()).zip(rates);
    let density = |spec| problem.density(spec);
    let streams = streams.map(|((raw, spec), max_rate_scale)| StreamAnswer {
        name: raw.name.clone(),
        density: (density(spec).numerator(), density(spec).denominator()),
        constraints: raw.constraints.iter().cloned().zip(standings(spec.constraints())).collect(),
        max_rate_scale,
        largest_count: theorem_b(problem, spec),
    });
    Claim {
        service: None,
        problem: problem.raw.clone(),
        admissible: admission.is_some(),
        rule,
        binding: binding.map(|b| written(problem, b)),
        busy: admission.map(|a| problem.number(a.busy)),
        waiting: admission.map(|a| a.waiting),
        max_load_scale: load,
        limits,
        contingencies: contingencies(problem),
        streams: streams.collect(),
        reason,
        refutation: None,
    }
}

/// Whether the refinement has a say: one kind of workers without stalls, and every request under a declared curve.
fn is_closed(problem: &Problem) -> bool {
    let plain = !problem.background && problem.stalls.is_none() && problem.workers.len() == 1;
    plain && problem.specs().all(|s| s.arrivals().is_some())
}

fn written(problem: &Problem, binding: rt_core::Binding) -> Binding {
    let rt_core::Binding { delta, backlog, lhs, rhs } = binding;
    Binding { delta: problem.number(delta), backlog, lhs: problem.number(lhs), rhs: problem.number(rhs) }
}

/// The standing of each constraint of `set`.
fn standings(set: &ConstraintSet) -> Vec<String> {
    let word = |(_, standing)| match standing {
        Standing::Binds => "binds".to_owned(),
        Standing::ImpliedBy(other) => format!("implied by {other}"),
        Standing::Covered => "kept".to_owned(),
    };
    set.standings().map(word).collect()
}

/// Theorem B for a stream alone on all workers, if they are of one kind; the paper's for its densest constraint.
fn theorem_b(problem: &Problem, spec: &StreamSpec) -> Option<LargestCount> {
    let [kind] = problem.workers.as_slice() else { return None };
    let binding = spec.constraints().densest()?;
    let n_star = largest_count(kind.count, kind.batch, binding.density())?;
    let spread_drop = seed_count(kind.batch, binding);
    Some(LargestCount { n_star, spread_drop })
}

#[cfg(test)]
mod tests;
