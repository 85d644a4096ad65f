//! Answers a problem of several services on the same workers: by which rule, with which turns, and how far each input
//! is from its limit.

use rt_core::sharing::{Reference as CoreReference, Rule, SharedBinding as Line, SharingError};
use rt_core::{MAX_SPAN, Span, StreamSpec};

use super::decide::{Decision, decide, lists};
use super::scale::{ONE, faster};
use super::{MAX_SCALE, standings};
use crate::certificate::{
    Reference, SharedBinding, SharedClaim, SharedReason, SharedServiceAnswer, SharedStreamAnswer,
};
use crate::number::Number;
use crate::problem::SharedProblem;

/// So many distances a test looks at for a limit of all, or those for the limits of each service together: a value that
/// takes more counts as not admitted.
pub(super) const MAX_POINTS: u64 = 1 << 18;
/// So many times the deadline of a service are tried where a problem is refused.
const MAX_LONGER: u64 = 64;

/// The answer of the admission tests to `problem`, and its limits.
///
/// Each limit is a value that the test of the rule that decided admits, with the same turns, and the next step is one
/// that it does not; a load that it would have to look at for too long counts as not admitted.
#[must_use]
pub fn certify_shared(problem: &SharedProblem) -> SharedClaim {
    let Decision { rule, turns, answer, reason } = decide(problem);
    let tightest = match &answer {
        Ok(admission) => admission.binding,
        Err(SharingError::Late(line)) => Some(*line),
        Err(_) => None,
    };
    let promised = problem.specs().flatten().any(|spec| spec.demand().is_some());
    let decided = match &answer {
        Ok(_) if !promised => SharedReason::NothingPromised,
        Err(SharingError::Rate { .. }) => SharedReason::Rate,
        Err(SharingError::Latency { .. }) => SharedReason::Latency,
        Err(SharingError::Horizon) => SharedReason::Horizon,
        Err(SharingError::Stalls { .. }) => SharedReason::Stalls,
        // No problem has other numbers.
        Ok(_) | Err(SharingError::Late(_) | SharingError::Range { .. }) if rule == Rule::Turns => {
            SharedReason::Turns
        }
        Ok(_) | Err(SharingError::Late(_) | SharingError::Range { .. }) => SharedReason::Edf,
    };
    let search = Search { problem, rule, turns: &turns, admitted: answer.is_ok() };
    let admission = answer.ok();
    let service = |(s, of): (usize, &crate::problem::shared::Service)| SharedServiceAnswer {
        name: of.name.clone(),
        start_within: admission
            .as_ref()
            .filter(|_| search.demands(s))
            .map(|a| problem.number(a.start_within[s])),
        turn: (rule == Rule::Turns && promised).then_some(turns[s]),
        max_rate_scale: search.demands(s).then(|| Number::thousandths(search.scale(Some(s)))),
        min_deadline: if search.demands(s) { search.min_deadline(s) } else { None },
        streams: streams(problem, s),
    };
    SharedClaim {
        device: None,
        problem: problem.raw.clone(),
        admissible: admission.is_some(),
        rule: decided,
        overrun_margin: tightest
            .filter(|line| line.margin() >= 0)
            .map(|line| Number::of_nanos(line.margin(), problem.raw.unit)),
        binding: tightest.map(|line| written(problem, line)),
        max_load_scale: promised.then(|| Number::thousandths(search.scale(None))),
        services: problem.services.iter().enumerate().map(service).collect(),
        reason,
        refutation: None,
    }
}

/// A refusal in words, with the services by `name`.
#[must_use]
pub fn told<'a>(no: &SharingError, name: impl Fn(usize) -> &'a str) -> String {
    match no {
        SharingError::Late(line) => {
            let late = Span::from_nanos(u64::try_from(-line.margin()).unwrap_or(0));
            format!(
                "a request of {} may begin {late} too late: up to {} go by before",
                name(line.service),
                line.lhs
            )
        }
        SharingError::Latency { service, time, latency } => {
            format!(
                "a batch of {} takes {time}, but its deadline less its guard is {latency}",
                name(*service)
            )
        }
        other => other.to_string(),
    }
}

fn written(problem: &SharedProblem, line: Line) -> SharedBinding {
    let name = |service: usize| problem.services[service].name.clone();
    SharedBinding {
        reference: match line.reference {
            CoreReference::Clear => Reference::Clear,
            CoreReference::Short(service) => Reference::Short(name(service)),
            CoreReference::Turn => Reference::Turn,
            CoreReference::Singly => Reference::Singly,
            CoreReference::Arrival => Reference::Arrival,
            CoreReference::After => Reference::After,
        },
        service: name(line.service),
        distance: problem.number(line.distance),
        lhs: problem.number(line.lhs),
        rhs: Number::of_nanos(line.rhs, problem.raw.unit),
    }
}

fn streams(problem: &SharedProblem, s: usize) -> Vec<SharedStreamAnswer> {
    let pairs = problem.raw.services[s].streams.iter().zip(&problem.services[s].streams);
    let answer = |(raw, (name, spec)): (&crate::problem::raw::Stream, &(String, StreamSpec))| {
        let density = spec.constraints().density();
        SharedStreamAnswer {
            name: name.clone(),
            density: (density.numerator(), density.denominator()),
            constraints: raw.constraints.iter().cloned().zip(standings(spec.constraints())).collect(),
        }
    };
    pairs.map(answer).collect()
}

/// Tries other values of one input, with the rule and the turns of the answer.
pub(super) struct Search<'a> {
    pub(super) problem: &'a SharedProblem,
    pub(super) rule: Rule,
    pub(super) turns: &'a [u32],
    /// The answer to the problem itself.
    pub(super) admitted: bool,
}

impl Search<'_> {
    /// Whether anything is promised of service `s`.
    fn demands(&self, s: usize) -> bool {
        self.problem.services[s].streams.iter().any(|(_, spec)| spec.demand().is_some())
    }

    /// How many times as fast all streams may send, or those of `one` service alone, in thousandths.
    pub(super) fn scale(&self, one: Option<usize>) -> u64 {
        let passes = |scale: u64| self.passes_at(scale, one);
        match self.admitted {
            true => largest_scale(passes),
            false if passes(1) => bisect(1, ONE, passes),
            false => 0,
        }
    }

    /// Whether that scale is admitted.
    pub(super) fn passes_at(&self, scale: u64, one: Option<usize>) -> bool {
        let points = one.map_or(MAX_POINTS, |_| self.points_of_each());
        sent_faster(self.problem, scale, one).is_some_and(|specs| self.passes(self.problem, &specs, points))
    }

    /// The smallest deadline of service `s`.
    fn min_deadline(&self, s: usize) -> Option<Number> {
        let own = &self.problem.services[s];
        let specs: Vec<_> = self.problem.specs().collect();
        let passes = |deadline: u64| {
            let mut problem = self.problem.clone();
            problem.services[s].deadline = Span::from_nanos(deadline);
            self.passes(&problem, &specs, self.points_of_each())
        };
        let stated = own.deadline.as_nanos();
        let too_short = (own.guard + own.time + self.problem.lost()).as_nanos() - 1;
        if self.admitted {
            return Some(bisect(stated, too_short, passes))
                .map(|ns| self.problem.number(Span::from_nanos(ns)));
        }
        let most = stated.saturating_mul(MAX_LONGER).min(MAX_SPAN.as_nanos());
        let longer = std::iter::successors(Some(2 * stated), |d| Some(2 * d));
        let enough = longer.take_while(|&d| d <= most).find(|&d| passes(d))?;
        Some(self.problem.number(Span::from_nanos(bisect(enough, stated, passes))))
    }

    fn points_of_each(&self) -> u64 {
        MAX_POINTS / self.problem.services.len() as u64
    }

    /// Whether the test admits it, and looks at so many distances at most.
    fn passes(&self, problem: &SharedProblem, specs: &[Vec<StreamSpec>], points: u64) -> bool {
        problem.sharing(self.rule, self.turns).admits(&lists(specs), points).is_ok()
    }
}

/// The streams of each service if all send `scale` thousandths times as fast, or those of `one` service alone; `None` if that
/// is beyond the range of a declaration.
pub(super) fn sent_faster(
    problem: &SharedProblem,
    scale: u64,
    one: Option<usize>,
) -> Option<Vec<Vec<StreamSpec>>> {
    let scaled = |(s, specs): (usize, Vec<StreamSpec>)| {
        let of = |spec| if one.is_none_or(|one| one == s) { faster(&spec, scale) } else { Some(spec) };
        specs.into_iter().map(of).collect()
    };
    problem.specs().enumerate().map(scaled).collect()
}

/// The largest scale from [`ONE`], which passes, up to [`MAX_SCALE`].
pub(super) fn largest_scale(passes: impl Fn(u64) -> bool) -> u64 {
    let most = MAX_SCALE * ONE;
    if passes(most) { most } else { bisect(ONE, most, passes) }
}

/// Between `yes`, which passes, and `no`, which does not: a value that passes next to one that does not. Neither is tried.
pub fn bisect(mut yes: u64, mut no: u64, passes: impl Fn(u64) -> bool) -> u64 {
    while yes.abs_diff(no) > 1 {
        let middle = yes.min(no) + yes.abs_diff(no) / 2;
        if passes(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    yes
}
