//! Contingencies: which level of the promises would still hold with a worker less, or if batches took half as long again.

use rt_core::{Admission, LatencyProfile, MAX_LEVELS, Span, StreamSpec, System, Workers};

use super::limits::Search;
use super::scale::{ONE, faster};
use crate::certificate::{Case, Contingency};
use crate::number::Number;
use crate::problem::Problem;

/// How many times as long batches take in [`Case::LongerBatches`]: so much of so much.
const LONGER: (u64, u64) = (3, 2);

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
    [(Case::WorkerLost, with_a_worker_less(problem)), (Case::LongerBatches, with_longer_batches(problem))]
        .map(of)
        .into()
}

/// The largest scale that each of `systems` admits with all streams at that level; 0 without systems.
fn scale(problem: &Problem, systems: &[System], level: usize) -> Number {
    let at = |spec: &StreamSpec| match spec.arrivals() {
        Some(curve) => {
            StreamSpec::promised(spec.constraints_at(level.min(spec.levels().len())).clone(), curve.clone())
        }
        None => spec.clone(),
    };
    let specs: Vec<_> = problem.specs().map(at).collect();
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

/// What is left if a worker of one of the kinds is lost, kind by kind; none if it is the only one.
fn with_a_worker_less(problem: &Problem) -> Vec<System> {
    let less = |lost: usize| {
        let still = |(kind, workers): (usize, &Workers)| {
            let count = workers.count - usize::from(kind == lost);
            (count > 0).then(|| Workers { count, ..workers.clone() })
        };
        let workers: Vec<_> = problem.workers.iter().enumerate().filter_map(still).collect();
        (!workers.is_empty()).then(|| left(problem, workers))
    };
    let all: Option<Vec<_>> = (0..problem.workers.len()).map(less).collect();
    all.unwrap_or_default()
}

/// The workers, each of whose batches takes [`LONGER`]; none if that is longer than anything may take.
fn with_longer_batches(problem: &Problem) -> Vec<System> {
    let longer = |time: Span| Span::from_nanos((time.as_nanos() * LONGER.0).div_ceil(LONGER.1));
    let slower = |workers: &Workers| {
        let times: Vec<_> = (1..=workers.batch).map(|batch| longer(workers.profile.bound(batch))).collect();
        Some(Workers { profile: LatencyProfile::new(&times).ok()?, ..workers.clone() })
    };
    let workers: Option<Vec<_>> = problem.workers.iter().map(slower).collect();
    workers.map(|workers| left(problem, workers)).into_iter().collect()
}

/// With other workers, by Theorem A alone: levels are changed only where there is background.
fn left(problem: &Problem, workers: Vec<Workers>) -> System {
    System { workers, background: true, ..problem.system() }
}
