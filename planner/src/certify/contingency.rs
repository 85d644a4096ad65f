//! Contingencies: which level of the promises would still hold with a worker less, or if batches took half as long again.

use rt_core::{Admission, MAX_LEVELS, System};

use super::limits::Search;
use super::scale::{ONE, faster};
use crate::certificate::{Case, Contingency};
use crate::number::Number;
use crate::problem::Problem;

/// How fast the streams of `problem` may send, in either case, for every level of what they are promised: none where no stream
/// has levels. They keep to the declarations of their first promises, scaled; a stream with fewer levels is at its last one.
///
/// Each scale is admitted and one step more is not, as [`super::certify`] has it.
#[must_use]
pub fn contingencies(problem: &Problem) -> Vec<Contingency> {
    let levels = problem.specs().map(|spec| spec.levels().len()).max().unwrap_or(0);
    // Where constraints absorb stalls there are no levels to change to.
    if levels == 0 || problem.stalls.is_some_and(|stalls| stalls.recovery().is_some()) {
        return Vec::new();
    }
    let of = |(case, systems): (Case, Vec<System>)| Contingency {
        case,
        max_load_scales: (0..=levels.min(MAX_LEVELS)).map(|level| scale(problem, &systems, level)).collect(),
    };
    [
        (Case::WorkerLost, problem.system().with_a_worker_less()),
        (Case::LongerBatches, problem.system().with_longer_batches().into_iter().collect()),
    ]
    .map(of)
    .into()
}

/// The largest scale that each of `systems` admits with all streams at that level; 0 without systems.
fn scale(problem: &Problem, systems: &[System], level: usize) -> Number {
    let specs: Vec<_> = problem.specs().map(|spec| spec.at_level(level)).collect();
    let admits = |search: &Search<'_>, scale| {
        let scaled: Option<Vec<_>> = specs.iter().map(|spec| faster(spec, scale)).collect();
        search.admit_each(&scaled?)
    };
    let of = |system: &System| {
        let with = |admission| Search::of(problem, system.clone(), admission);
        let as_it_is: Option<Admission> = admits(&with(None), ONE);
        let search = with(as_it_is);
        search.scale(|scale| admits(&search, scale)).map_or(0, |(scale, _)| scale)
    };
    Number::thousandths(systems.iter().map(of).min().unwrap_or(0))
}
