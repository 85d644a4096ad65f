//! Refutations: for a load that is refused, arrivals that it allows and that break the promise.
//!
//! Every candidate is verified by running it in the scheduler. First all streams send as early as they may, which
//! must break a load above capacity in the end. Then bursts come just as all workers have become busy, with every
//! word in the phase in which it asks for most. Then such bursts with random changes, within a budget.

mod case;
mod shorten;
mod stages;
mod traces;

use planner::certificate::{Refutation, Shows};
use planner::certify::decide;
use planner::{PipelineProblem, Problem, SharedProblem};
use rt_core::pipeline::PipelineError;
use rt_core::sharing::SharingError;
use rt_core::{AdmissionError, Instant, Outcome};

use crate::curves::check_curves;
use crate::dice::Dice;
use crate::pipeline::heard::Heard;
use crate::replay::{Found, examine};
pub(crate) use case::Case;
use shorten::shorten;
use stages::{Block, Tree, with_background};
use virtual_time::Order;

/// Requests that may be simulated in the search, and to shorten what it finds.
const BUDGET: u64 = 500_000;
/// The same of a pipeline, whose sources are many requests.
const SOURCES: u64 = 100_000;
/// The most requests of a trace of a load above capacity.
const MAX_TRACE: u64 = 2_000_000;

/// Arrivals that keep to every declaration of `problem`, have background only where it is allowed, and break a
/// promise that admission refuses: they violate a constraint, or else make the scheduler miss a mandatory request.
/// `None` if the load is admitted, or none were found: the refusal may be pessimistic.
///
/// Deterministic. What it shows is shown again by [`crate::replay`].
#[must_use]
pub fn refute(problem: &Problem) -> Option<Refutation> {
    let refused = problem.system().admit(problem.streams.iter().map(|(_, spec)| spec)).err()?;
    // Above capacity, a longer trace is certain to show more, and one of `needed` to show a violation.
    let needed = traces::overload(problem).unwrap_or(0);
    refuted(&Case::one(problem), binding_instant(&refused), needed)
}

/// The same of services that share workers, by the rule and the turns that decided: streams are named as
/// `service/stream`. What it shows is shown again by [`crate::replay_shared`].
#[must_use]
pub fn refute_shared(problem: &SharedProblem) -> Option<Refutation> {
    // A batch that is too long for its deadline is refused though nothing is promised.
    problem.specs().flatten().find(|spec| spec.demand().is_some())?;
    let decision = decide(problem);
    let hint = match decision.answer.as_ref().err()? {
        SharingError::Late(line) => line.distance.as_nanos(),
        _ => 0,
    };
    let needed = traces::overload_shared(problem).unwrap_or(0);
    refuted(&Case::several(problem, &decision), hint, needed)
}

/// The same of a pipeline, with the batches and workers that are chosen: each result becomes as many requests as it may, and batches
/// take their bounds. A stream that is named as `stage/background` is background that is meant for that stage alone: it becomes
/// nothing elsewhere, and a batch of nothing but such sources takes a nanosecond on the way there. What it shows is shown again by
/// [`crate::replay_pipeline`].
#[must_use]
pub fn refute_pipeline(problem: &PipelineProblem) -> Option<Refutation> {
    let case = Case::staged(problem);
    // Where there are merges and joins no way is the only one.
    let pipeline = case.pipeline().filter(|pipeline| pipeline.is_tree())?;
    let hint = match pipeline.admit(problem.specs()).err()? {
        PipelineError::Late { admission, .. } => admission.tightest.map_or(0, |at| at.delta.as_nanos()),
        _ => 0,
    };
    let needed = traces::overload_pipeline(&case.problem, pipeline).unwrap_or(0);
    refuted(&case, hint, needed)
}

/// See [`refute`]: what is tightest `hint` nanoseconds after a burst, and so many requests are sure to break it.
fn refuted(case: &Case<'_>, hint: u64, needed: u64) -> Option<Refutation> {
    // Nothing can be shown where nothing can be run.
    case.play(&[], Order::Together).ok()?;
    let budget = if case.pipeline().is_some() { SOURCES } else { BUDGET };
    let mut search = Search { case, budget, best: None };
    search.run(hint, needed);
    let (arrivals, order, shows) = search.best?;
    let budget = budget.max(4 * arrivals.len() as u64);
    let arrivals = shorten(arrivals, budget, |fewer| {
        let run = case.play(fewer, order).ok();
        run.and_then(|run| examine(&case.problem, &run)).is_some_and(|found| found.shows == shows)
    });
    check_curves(&case.problem, &arrivals).ok()?;
    // Orders are tried as the replay will try them.
    let (_, _, found) = case.find(&arrivals, shows, None).ok()??;
    let unit = case.problem.raw.unit;
    let named = |&(instant, stream): &(Instant, usize)| {
        (crate::Time { instant, unit }.number(), case.name_of(stream))
    };
    Some(Refutation {
        shows,
        stream: case.problem.streams[found.stream].0.clone(),
        arrivals: arrivals.iter().map(named).collect(),
    })
}

/// The search for a refutation: what it may still spend, and the best so far.
struct Search<'a> {
    case: &'a Case<'a>,
    budget: u64,
    best: Option<Best>,
}

/// Arrivals, the order in which they show it, and what they show.
type Best = (Vec<(Instant, usize)>, Order, Shows);

impl Search<'_> {
    fn run(&mut self, hint: u64, needed: u64) {
        let problem: &Problem = &self.case.problem;
        let mut lengths = [64, 1_000, 8_000, 60_000].map(|length| length.min(needed.max(1_000))).to_vec();
        lengths.dedup();
        for length in lengths {
            if self.sustained(length) {
                return;
            }
        }
        if self.case.pipeline().is_some() && problem.background && self.in_the_way(hint) {
            return;
        }
        // Of each service's background.
        let strangers = 0..self.case.strangers();
        let ours = |stream: usize, s: usize| if stream < problem.streams.len() { stream } else { stream + s };
        for trace in traces::floods(problem, hint) {
            let of = |s: usize| trace.iter().map(|&(at, stream)| (at, ours(stream, s))).collect::<Vec<_>>();
            if strangers.clone().any(|s| self.shown(&of(s), &Order::ALL)) {
                return;
            }
        }
        let mut dice = Dice(1);
        while self.budget > 0 {
            let mut trace = traces::adversary(problem, &mut dice, hint);
            if let Some(pipeline) = self.case.pipeline().filter(|_| problem.background && !trace.is_empty()) {
                trace = stages::strewn(&Tree::new(pipeline), &trace, problem.streams.len(), &mut dice);
            }
            if self.shown(&trace, &Order::ALL) {
                return;
            }
        }
        if needed > 60_000 {
            self.sustained(needed.min(MAX_TRACE));
        }
    }

    /// Whether a constraint is violated where background begins at each stage just as a burst gets there. Stage by stage, along each
    /// way, it begins where a source is answered latest with what is in its way before.
    fn in_the_way(&mut self, hint: u64) -> bool {
        let problem: &Problem = &self.case.problem;
        let Some(pipeline) = self.case.pipeline() else { return false };
        let (tree, streams) = (Tree::new(pipeline), problem.streams.len());
        let life = pipeline.stages.iter().map(|stage| stage.time.as_nanos()).sum::<u64>();
        let (start, until, burst) = traces::burst(problem, 2 * life + problem.deadline.as_nanos(), hint);
        let last = start + hint + problem.deadline.as_nanos();
        for way in tree.ways() {
            let mut blocks: Vec<Block> = Vec::new();
            let made = |blocks: &[Block]| {
                with_background(&burst, streams, blocks.iter().flat_map(|&block| tree.sources(block, start)))
            };
            for &stage in &way {
                let Some((mut latest, ends)) = self.answered(&made(&blocks)) else { return false };
                let come = match pipeline.stages[stage].parents.first() {
                    None => vec![0],
                    Some(parent) => {
                        let within = ends[parent].iter().map(|end| end.as_nanos());
                        within.filter(|end| (start..=last).contains(end)).map(|end| end - start).collect()
                    }
                };
                let least = blocks.last().map_or(1, |&block| tree.least_behind(block));
                let mut best = None;
                for block in tree.blocks(stage, least, &come) {
                    blocks.push(block);
                    let found = self.answered(&made(&blocks)).map_or(0, |(latest, _)| latest);
                    blocks.pop();
                    if found > latest {
                        (latest, best) = (found, Some(block));
                    }
                }
                blocks.extend(best);
                if latest == u64::MAX {
                    break;
                }
            }
            let all = made(&blocks);
            let starving =
                |lead: u64| with_background(&all, streams, tree.starving(start.saturating_sub(lead), until));
            if self.shown(&all, &Order::ALL)
                || [1, 0].iter().any(|&lead| self.shown(&starving(lead), &Order::ALL))
            {
                return true;
            }
        }
        false
    }

    /// How long the mandatory source takes that takes longest, without end if one is missed, and when batches with sources of the
    /// streams end at each stage. `None` if it cannot be run, or too much has been already.
    fn answered(&mut self, arrivals: &[(Instant, usize)]) -> Option<(u64, Vec<Vec<Instant>>)> {
        self.budget = self.budget.checked_sub(arrivals.len().max(16) as u64)?;
        let streams = self.case.problem.streams.len();
        let (run, heard) =
            self.case.hear(arrivals, Order::Together, Heard::ends_of(streams, self.case.strangers())).ok()?;
        let Heard::Ends { ends, .. } = heard else { return None };
        let took =
            run.requests.iter().filter(|request| request.mandatory).map(|request| match request.outcome {
                Outcome::Served => request.ended.since(request.arrival).as_nanos(),
                Outcome::Missed(_) => u64::MAX,
            });
        Some((took.max().unwrap_or(0), ends))
    }

    /// Whether so many requests, as early as they may come, violate a constraint.
    fn sustained(&mut self, requests: u64) -> bool {
        [true, false].into_iter().any(|phased| {
            // Not at the expense of the rest of the search.
            self.budget += requests;
            self.shown(&traces::sustained(&self.case.problem, requests as usize, phased), &[Order::Together])
        })
    }

    /// Whether a constraint is violated by `arrivals` under one of `orders`. Remembers what they show.
    fn shown(&mut self, arrivals: &[(Instant, usize)], orders: &[Order]) -> bool {
        for &order in orders {
            self.budget = self.budget.saturating_sub(arrivals.len().max(16) as u64);
            let run = self.case.play(arrivals, order).ok();
            let found = run.and_then(|run| examine(&self.case.problem, &run));
            let Some(Found { shows, .. }) = found else { continue };
            if shows == Shows::Violation || self.best.is_none() {
                self.best = Some((arrivals.to_vec(), order, shows));
            }
            if shows == Shows::Violation {
                return true;
            }
        }
        false
    }
}

/// How long after the start of its burst the load asks for too much; zero if the burst is not to blame.
fn binding_instant(refused: &AdmissionError) -> u64 {
    match refused {
        AdmissionError::Burst(binding) => binding.delta.as_nanos(),
        _ => 0,
    }
}

#[cfg(test)]
mod stages_tests;
#[cfg(test)]
mod tests;
