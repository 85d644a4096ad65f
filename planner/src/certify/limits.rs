//! How far each input of a problem can go, with everything else as it is.

use rt_core::{Admission, ArrivalBound, MAX_SPAN, MAX_WORKERS, Span, StreamSpec, System};

use super::scale::{ONE, burstier, faster};
use super::{MAX_SCALE, is_closed, written};
use crate::certificate::{Limit, Limits};
use crate::number::Number;
use crate::problem::Problem;

/// The most streams for which the refinement is tried again and again.
const MAX_REFINED: usize = 8;
/// The most streams, equal ones counted once, whose own rates are scaled.
const MAX_RATES: usize = 256;
/// The effort of trying a scale once on all streams, or on each that differs: enough to look at everything for up
/// to 5 streams. `docs/problems.md` says how near to capacity others come.
const MAX_EFFORT: f64 = (1u64 << 25) as f64;
/// The effort up to which the refinement, which takes far longer, is asked too.
const MAX_REFINED_EFFORT: f64 = (1u64 << 14) as f64;
/// The most rises that an admission test looks at.
const MAX_RISES: f64 = (1u64 << 20) as f64;

/// A value that is admitted, and the answer there.
pub(super) type Found = (u64, Admission);

/// `max_load_scale`, the limits of the whole, and those of the streams, for a problem that promises something;
/// `admission` is its own answer.
pub(super) fn all(
    problem: &Problem,
    admission: Option<Admission>,
) -> (Option<Number>, Limits, Vec<Option<Limit<Number>>>) {
    let search = Search::new(problem, admission);
    let load = search.scale(|scale| search.admit_all(|spec| faster(spec, scale)));
    let burst = search.scale(|scale| search.admit_all(|spec| burstier(spec, scale)));
    let factor = |(value, admission): Found| search.limit(Number::thousandths(value), &admission);
    let limits = Limits {
        min_deadline: search.min_deadline(),
        min_workers: search.min_workers(),
        max_burst_scale: burst.map(factor),
        max_load_binding: load.and_then(|(_, a)| a.binding).map(|b| written(problem, b)),
    };
    let load = Number::thousandths(load.map_or(0, |(value, _)| value));
    let rates = search.rates().into_iter().map(|found| found.map(factor)).collect();
    (Some(load), limits, rates)
}

pub(super) struct Search<'a> {
    problem: &'a Problem,
    /// What the search counts with; perhaps without the refinement, which takes long.
    system: System,
    /// The answer to the problem itself.
    admission: Option<Admission>,
    /// Streams that differ.
    different: usize,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, admission: Option<Admission>) -> Self {
        Self::of(problem, problem.system(), admission)
    }

    /// The same on other workers, which answer `admission`.
    pub(super) fn of(problem: &'a Problem, mut system: System, admission: Option<Admission>) -> Self {
        system.background |= problem.streams.len() > MAX_REFINED;
        let specs: Vec<_> = problem.specs().collect();
        let new = |&i: &usize| !specs[..i].contains(&specs[i]);
        Self { problem, system, admission, different: (0..specs.len()).filter(new).count().max(1) }
    }

    /// The largest scale that is admitted.
    pub(super) fn scale(&self, admit: impl Fn(u64) -> Option<Admission>) -> Option<Found> {
        let most = MAX_SCALE * ONE;
        match self.admission {
            Some(admission) => match admit(most) {
                Some(at_most) => Some((most, at_most)),
                None => Some(bisect((ONE, admission), most, admit)),
            },
            None => Some(bisect((1, admit(1)?), ONE, admit)),
        }
    }

    /// Stream by stream, the largest scale of its rate alone. Streams that declare and want the same have the
    /// same.
    fn rates(&self) -> Vec<Option<Found>> {
        let mut known: Vec<(&StreamSpec, Option<Found>)> = Vec::new();
        let few = self.different <= MAX_RATES;
        let counts = |spec: &StreamSpec| few && (spec.demand().is_some() || is_closed(self.problem));
        let rate = |(i, spec)| {
            if !counts(spec) {
                return None;
            }
            if let Some((_, found)) = known.iter().find(|(other, _)| *other == spec) {
                return *found;
            }
            let found = self.scale(|scale| {
                let fast = faster(spec, scale)?;
                let others = self.problem.specs().enumerate();
                let changed = others.map(|(j, other)| if i == j { &fast } else { other });
                self.admit(changed, MAX_EFFORT / self.different as f64)
            });
            known.push((spec, found));
            found
        };
        self.problem.specs().enumerate().map(rate).collect()
    }

    fn min_deadline(&self) -> Option<Limit<Number>> {
        let guard = self.problem.guard;
        let admit = |system: &System, deadline: u64| {
            let latency = Span::from_nanos(deadline).saturating_sub(guard);
            System { latency, ..system.clone() }.admit(self.problem.specs()).ok()
        };
        let known = self.admission.map(|admission| (self.problem.deadline.as_nanos(), admission));
        // How many requests must be served where constraints absorb stalls depends on the deadline: from the present one on down.
        if self.problem.stalls.is_some_and(|stalls| stalls.recovery().is_some()) {
            let system = self.within(self.effort(self.problem.specs()));
            let least = guard.as_nanos();
            let (value, admission) = known.map(|known| bisect(known, least, |d| admit(&system, d)))?;
            return Some(self.limit(self.problem.number(Span::from_nanos(value)), &admission));
        }
        // The left side of Theorem A does not depend on the deadline, so its smallest margin gives the limit.
        let plain = System { background: true, ..self.system.clone() };
        let unstalled = System { stalls: None, ..plain.clone() };
        let by_theorem_a =
            admit(&unstalled, MAX_SPAN.as_nanos()).and_then(|a| a.binding).and_then(|tightest| {
                let margin = tightest.rhs.saturating_sub(tightest.lhs);
                let lost = self.problem.reserve().saturating_sub(guard);
                let deadline = (MAX_SPAN.saturating_sub(margin) + lost).as_nanos();
                Some((deadline, admit(&plain, deadline)?))
            });
        let mut best = by_theorem_a.into_iter().chain(known).min_by_key(|found| found.0);
        let system = self.within(self.effort(self.problem.specs()));
        if !system.background && system.stalls.is_none() {
            let most = || Some((MAX_SPAN.as_nanos(), admit(&system, MAX_SPAN.as_nanos())?));
            let start = best.or_else(most)?;
            best = Some(bisect(start, guard.as_nanos(), |deadline| admit(&system, deadline)));
        }
        let (value, admission) = best?;
        Some(self.limit(self.problem.number(Span::from_nanos(value)), &admission))
    }

    fn min_workers(&self) -> Option<Limit<u64>> {
        let [kind] = self.problem.workers.as_slice() else { return None };
        let system = self.within(self.effort(self.problem.specs()));
        (1..=MAX_WORKERS).find_map(|count| {
            let workers = vec![rt_core::Workers { count, ..kind.clone() }];
            let known = self.admission.filter(|_| count == kind.count);
            let admit = || System { workers, ..system.clone() }.admit(self.problem.specs()).ok();
            let admission = known.or_else(admit)?;
            Some(self.limit(count as u64, &admission))
        })
    }

    fn admit_all(&self, change: impl Fn(&StreamSpec) -> Option<StreamSpec>) -> Option<Admission> {
        let specs: Option<Vec<_>> = self.problem.specs().map(change).collect();
        self.admit_each(&specs?)
    }

    /// The answer to other streams, if it does not take too long.
    pub(super) fn admit_each(&self, specs: &[StreamSpec]) -> Option<Admission> {
        self.admit(specs.iter(), MAX_EFFORT)
    }

    /// The answer to other streams, if it takes at most about `effort`.
    fn admit<'b>(
        &self,
        specs: impl Iterator<Item = &'b StreamSpec> + Clone,
        effort: f64,
    ) -> Option<Admission> {
        let needed = self.effort(specs.clone());
        if needed > effort { None } else { self.within(needed).admit(specs).ok() }
    }

    /// The system to count with where a test takes `effort`: with the refinement only if that is quick.
    fn within(&self, effort: f64) -> System {
        let background = self.system.background || effort > MAX_REFINED_EFFORT;
        System { background, ..self.system.clone() }
    }

    /// About how many rises of all bounds lie in the longest busy period, times the streams that are asked at each.
    fn effort<'b>(&self, specs: impl Iterator<Item = &'b StreamSpec>) -> f64 {
        let capacity: f64 = self.system.workers.iter().map(rt_core::Workers::capacity_per_s).sum();
        let (mut streams, mut rises, mut demand, mut burst) = (0.0, 0.0, 0.0, 1.0);
        for (density, arrivals) in specs.filter_map(StreamSpec::demand) {
            streams += 1.0;
            rises += arrivals.bounds().iter().map(rises_per_s).sum::<f64>();
            demand += arrivals.rate_per_s() * density.as_f64();
            burst += density.ceil_of(arrivals.count(Span::from_nanos(1))) as f64;
        }
        // At capacity it goes on until the load repeats, and nobody knows; above, the answer is quick.
        let busy = if demand > capacity * (1.0 + 1e-9) { 0.0 } else { burst / (capacity - demand).max(0.0) };
        (busy * rises).min(MAX_RISES) * streams
    }

    fn limit<T>(&self, value: T, admission: &Admission) -> Limit<T> {
        Limit { value, binding: admission.binding.map(|b| written(self.problem, b)) }
    }
}

fn rises_per_s(bound: &ArrivalBound) -> f64 {
    match bound {
        ArrivalBound::Window { length, .. } => 1.0 / length.as_secs_f64(),
        ArrivalBound::Periodic { period, .. } => 1.0 / period.as_secs_f64(),
        ArrivalBound::Distances(list) => {
            let all = list.as_slice();
            all.len() as f64 / all[all.len() - 1].as_secs_f64()
        }
    }
}

/// Between `yes`, which is admitted, and `no`, which is not: a value that is admitted next to one that is not,
/// whether or not there are several.
fn bisect(mut yes: Found, mut no: u64, admit: impl Fn(u64) -> Option<Admission>) -> Found {
    while yes.0.abs_diff(no) > 1 {
        let middle = yes.0.min(no) + yes.0.abs_diff(no) / 2;
        match admit(middle) {
            Some(admission) => yes = (middle, admission),
            None => no = middle,
        }
    }
    yes
}
