//! The checker of pipelines: Theorems P1 and P2 at every rise of the mandatory curve.

mod terms;

use super::problem::{MANY, Stream, span, streams, time, times};
use super::{
    MAX_STEPS, UNCONFIRMED, Verified, VerifyError, answered, explained, is_of, keeps_to_curves, levels, same,
    same_time, wrong,
};
use crate::certificate::{PipelineClaim, PipelineReason};
use crate::problem::pipeline::raw::Count;
use crate::problem::raw::Unit;
use terms::{End, Terms};

/// Of a nanosecond.
const PARTS: i128 = 1 << 30;

pub(super) fn check(claim: &PipelineClaim, verified: &mut Verified) -> Result<(), VerifyError> {
    let (pipeline, unit) = (Pipeline::read(claim)?, claim.problem.unit);
    same("streams", &claim.streams.len(), &pipeline.streams.len())?;
    for (i, (answer, stream)) in claim.streams.iter().zip(&pipeline.streams).enumerate() {
        let (told, asked) = (&answer.constraints, &claim.problem.streams[i].constraints);
        answered(&format!("streams[{i}]"), (&answer.name, answer.density, told), asked, stream)?;
    }
    let names: Vec<_> = claim.stages.iter().map(|stage| &stage.name).collect();
    same("stages", &names, &claim.problem.pipeline.iter().map(|stage| &stage.name).collect())?;
    explained(claim.admissible, claim.reason.as_deref(), claim.refutation.as_ref())?;
    if !claim.admissible {
        verified.refused += 1;
        let Some(refutation) = &claim.refutation else { return Ok(()) };
        let streams = pipeline.streams.iter().map(|stream| (stream.name.clone(), stream));
        return keeps_to_curves(refutation, streams, unit, |name: &str| {
            let parts = claim.problem.pipeline.iter().map(|stage| &stage.name);
            claim.problem.background && is_of(parts, name)
        });
    }
    verified.promised += 1;
    let nothing = pipeline.streams.iter().all(|s| s.p == 0);
    if nothing {
        same("rule", &claim.rule, &PipelineReason::NothingPromised)?;
        return same("bound", &claim.bound, &None);
    }
    let derived = pipeline.derive().map_err(|no| wrong("admissible", true, no))?;
    let bound = derived.bound();
    if bound > pipeline.latency {
        return Err(wrong(
            "admissible",
            true,
            format!("{bound} ns, where {} ns are asked for", pipeline.latency),
        ));
    }
    same_time("bound", claim.bound, unit, bound)?;
    let together = derived.lhs - derived.delta == bound;
    same("rule", &claim.rule, &if together { PipelineReason::TheoremP2 } else { PipelineReason::TheoremP1 })?;
    let no_binding = || wrong("binding", "absent", "where a source is answered latest");
    let binding = claim.binding.as_ref().ok_or_else(no_binding)?;
    same_time("binding.delta", Some(binding.delta), unit, derived.delta)?;
    same("binding.sources", &i128::from(binding.sources), &derived.sources)?;
    same_time("binding.lhs", Some(binding.lhs), unit, derived.lhs)?;
    same_time("binding.rhs", Some(binding.rhs), unit, derived.delta + pipeline.latency)?;
    for (i, answer) in claim.stages.iter().enumerate() {
        let response = answer.response.and_then(|response| time(response, unit));
        same(format!("stages[{i}].response"), &response, &Some(derived.responses[i]))?;
    }
    pipeline.shares(claim, &derived)?;
    if let Some(scale) = claim.max_load_scale {
        let mut changed = pipeline.clone();
        // Its thousandths are the nanoseconds of as many microseconds.
        let thousandths = time(scale, Unit::Us).unwrap_or(0);
        let mut bounds = changed.streams.iter_mut().flat_map(|stream| &mut stream.bounds);
        let tested = match bounds.try_for_each(|bound| bound.hasten(thousandths)) {
            Some(()) => changed.derive().map(|derived| derived.bound()),
            None => Err("no value".to_owned()),
        };
        match tested {
            Ok(bound) if bound <= pipeline.latency => verified.limits += 1,
            Ok(bound) => return Err(wrong("max_load_scale", scale, format!("a bound of {bound} ns"))),
            Err(no) if no.starts_with(UNCONFIRMED) => {}
            Err(no) => return Err(wrong("max_load_scale", scale, no)),
        }
    }
    Ok(())
}

#[derive(Clone)]
pub(super) struct Pipeline {
    pub(super) deadline: i128,
    /// The deadline less what stalls may take; and the window of these, and the length of one.
    latency: i128,
    stalls: Option<(i128, i128)>,
    pub(super) guard: i128,
    pub(super) stages: Vec<Stage>,
    pub(super) streams: Vec<Stream>,
}

#[derive(Clone)]
pub(super) struct Stage {
    /// The stages whose results it takes, none of the first alone; and whether it takes a source once, when they are done with it.
    pub(super) parents: Vec<usize>,
    join: bool,
    /// The most that a result of a parent becomes, or a source at a join.
    pub(super) fan_out: i128,
    /// How many requests a source becomes here at most.
    descendants: i128,
    pub(super) workers: i128,
    pub(super) batch: i128,
    pub(super) time: i128,
}

/// What follows of a pipeline: where a source is answered latest, and what each stage adds at most by itself.
struct Derived {
    delta: i128,
    sources: i128,
    lhs: i128,
    responses: Vec<i128>,
    /// The longest path of them.
    apart: i128,
}

impl Derived {
    fn bound(&self) -> i128 {
        self.apart.min(self.lhs - self.delta)
    }
}

impl Pipeline {
    /// With the batches and workers that were chosen, where they were to be.
    pub(super) fn read(claim: &PipelineClaim) -> Result<Self, VerifyError> {
        let problem = &claim.problem;
        same("stages", &claim.stages.len(), &problem.pipeline.len())?;
        let (unit, mut stages) = (problem.unit, Vec::<Stage>::new());
        for (i, raw) in problem.pipeline.iter().enumerate() {
            let field = format!("pipeline[{i}]");
            let number = |name: &str, asked, chosen: Option<usize>| match (asked, chosen) {
                (Count::Is(number), None) => Ok(number),
                (Count::Auto, Some(number)) => Ok(number),
                (asked, chosen) => {
                    let chosen = chosen.map_or("absent".to_owned(), |number| number.to_string());
                    Err(wrong(format!("stages[{i}].{name}"), chosen, format!("a number for {asked}")))
                }
            };
            let batch = number("batch", raw.batch, claim.stages[i].batch)?;
            let workers = number("workers", raw.workers, claim.stages[i].workers)?;
            let time = times(&field, batch, (raw.time, raw.times.as_deref()), unit)?.last().copied();
            let before = &problem.pipeline[..i];
            let named: Vec<&str> = raw.before().collect();
            let place = |name: &&str| before.iter().position(|s| s.name == *name);
            let parents: Vec<usize> = named.iter().filter_map(place).collect();
            let twice = parents.iter().enumerate().any(|(at, parent)| parents[..at].contains(parent));
            let both = raw.parent.is_some() && raw.parents.is_some();
            let known = (parents.len(), !parents.is_empty(), twice || both, i == 0 && raw.join);
            same(format!("problem.{field}.parent"), &known, &(named.len(), i > 0, false, false))?;
            let taken = before.iter().any(|other| other.name == raw.name);
            same(format!("problem.{field}.name, taken already,"), &taken, &false)?;
            let few = |n: i128| (1..=MANY).contains(&n);
            // Whoever is not what it is said of says nothing of it.
            let idle = if raw.join { raw.fan_out == 1 } else { raw.requests.is_none() };
            same(format!("problem.{field}, fan_out or requests,"), &idle, &true)?;
            let fan_out = i128::from(if raw.join { raw.requests.unwrap_or(1) } else { raw.fan_out });
            let above = parents.iter().map(|&p| stages[p].descendants).sum();
            let above = if i == 0 || raw.join { 1 } else { above };
            let descendants = fan_out.saturating_mul(above);
            let inside = few(descendants) && few(workers as i128) && few(batch as i128);
            same(format!("problem.{field}, its numbers,"), &(inside && (i > 0 || fan_out == 1)), &true)?;
            let (workers, batch) = (workers as i128, batch as i128);
            let (join, time) = (raw.join, time.unwrap_or(0));
            stages.push(Stage { parents, join, fan_out, descendants, workers, batch, time });
        }
        same("problem.pipeline", &stages.is_empty(), &false)?;
        levels::absent(&problem.streams)?;
        let all: i128 = stages.iter().map(|stage| stage.workers).sum();
        let most = problem.workers.map_or(all, |workers| workers as i128);
        same("stages, their workers together,", &all.min(most), &all)?;
        let deadline = span("deadline", problem.deadline, 1, unit)?;
        let (mut latency, mut stalls) = (deadline, None);
        if let Some(s) = &problem.stalls {
            same("problem.stalls.recovery", &s.recovery, &None)?;
            let window = span("stalls.window", s.window, 1, unit)?;
            let length = span("stalls.length", s.length, 1, unit)?;
            (latency, stalls) = (latency - i128::from(s.count) * length, Some((window, length)));
        }
        Ok(Self {
            deadline,
            latency,
            stalls,
            guard: span("guard", problem.guard, 0, unit)?,
            stages,
            streams: streams("streams", &problem.streams, unit)?,
        })
    }

    /// Looks at every rise up to where later ones say nothing new.
    fn derive(&self) -> Result<Derived, String> {
        let promised: Vec<_> = self.streams.iter().filter(|s| s.p > 0).collect();
        self.keeps_up(&promised)?;
        let end = End::new(self, &promised);
        let (mut length, mut terms) = (1, Terms::new(self)?);
        self.stalls_are_rare(&promised, &mut terms)?;
        let mut found =
            Derived { delta: 0, sources: 0, lhs: -1, responses: vec![0; self.stages.len()], apart: 0 };
        for _ in 0..MAX_STEPS {
            let sources: i128 = promised.iter().map(|s| s.mandatory(length)).sum();
            let delta = length - 1;
            let lhs = terms.latest(sources)?;
            if lhs - delta > found.lhs - found.delta {
                (found.delta, found.sources, found.lhs) = (delta, sources, lhs);
            }
            for (stage, response) in self.stages.iter().zip(&mut found.responses) {
                *response = (*response).max(self.served(stage, stage.descendants * sources) - delta);
            }
            let next = promised.iter().map(|s| s.rise(length)).min().unwrap_or(i128::MAX);
            if end.is_at(length, next, sources) {
                let mut by = Vec::new();
                for (stage, response) in self.stages.iter().zip(&found.responses) {
                    by.push(above(stage, &by) + response);
                }
                found.apart = by.into_iter().max().unwrap_or(0);
                return Ok(found);
            }
            length = next;
        }
        Err(format!("{UNCONFIRMED}: more than {MAX_STEPS} rises"))
    }

    /// No more stalls meet one source than one window has: behind a delay of a deadline `D` all that has come is answered after `busy`,
    /// the least length with `D + f_0(α_m(busy)) ≤ busy`, and a stall that begins by another `D` ends a stall later.
    fn stalls_are_rare(&self, promised: &[&Stream], terms: &mut Terms) -> Result<(), String> {
        let Some((window, length)) = self.stalls else { return Ok(()) };
        let mut busy = self.deadline;
        for _ in 0..MAX_STEPS {
            let needed = busy + self.deadline + length;
            if needed > window {
                return Err(format!("stalls must be {needed} ns apart, not {window}"));
            }
            let longer = self.deadline + terms.latest(promised.iter().map(|s| s.mandatory(busy)).sum())?;
            if longer <= busy {
                return Ok(());
            }
            busy = longer;
        }
        Err(format!("{UNCONFIRMED}: behind a delay there are more than {MAX_STEPS} rises"))
    }

    /// No stage gets clearly more than it can do.
    fn keeps_up(&self, promised: &[&Stream]) -> Result<(), String> {
        for (i, stage) in self.stages.iter().enumerate() {
            let cost = stage.time * stage.descendants * PARTS / (stage.workers * stage.batch);
            let of =
                |s: &&Stream| s.slowest().map_or(0, |slow| cost * s.p * slow.count() / (s.q * slow.step));
            let comes: i128 = promised.iter().map(of).sum();
            if comes > PARTS {
                return Err(format!("stage {i} needs {} thousandths of its workers", comes * 1000 / PARTS));
            }
        }
        Ok(())
    }

    /// `A(requests)`.
    fn served(&self, stage: &Stage, requests: i128) -> i128 {
        let batches = (requests + stage.batch - 1) / stage.batch;
        self.guard + stage.time * (1 + (batches + stage.workers - 1) / stage.workers)
    }

    /// Whether requests are counted: each stage takes the results of one other, each by itself.
    pub(super) fn is_tree(&self) -> bool {
        self.stages.iter().all(|stage| !stage.join && stage.parents.len() <= 1)
    }

    fn children(&self, i: usize) -> impl Iterator<Item = usize> {
        (i + 1..self.stages.len()).filter(move |&c| self.stages[c].parents.contains(&i))
    }

    /// The shares that are claimed lie on one path, are what so many requests take, and make up what is claimed of it.
    fn shares(&self, claim: &PipelineClaim, derived: &Derived) -> Result<(), VerifyError> {
        let (mut left, mut sum, mut last) = (derived.sources, 0, None);
        for (i, (answer, stage)) in claim.stages.iter().zip(&self.stages).enumerate() {
            let field = |name| format!("stages[{i}].{name}");
            let Some(requests) = answer.requests.map(i128::from) else {
                same(field("share"), &answer.share, &None)?;
                continue;
            };
            let follows = last.map_or(stage.parents.is_empty(), |last| stage.parents.contains(&last));
            same(field("requests, after that of the stage before it on the path,"), &follows, &true)?;
            // In a tree requests are shared out along the path, else sources, each of which is as many as it can be.
            let each = if self.is_tree() { 1 } else { stage.descendants };
            if last.is_some() && self.is_tree() {
                left *= stage.fan_out;
            }
            let (items, leaf) = (requests / each, self.children(i).next().is_none());
            let fits = if leaf { items == left } else { (1..=left).contains(&items) };
            same(field("requests"), &(requests, fits), &(items * each, true))?;
            let share = answer.share.and_then(|share| time(share, claim.problem.unit));
            same(field("share"), &share, &Some(self.served(stage, requests)))?;
            (left, sum, last) = (left - items + 1, sum + self.served(stage, requests), Some(i));
        }
        let ends = last.is_some_and(|i| self.children(i).next().is_none());
        same("stages, the shares of a path to a leaf together,", &(ends, sum), &(true, derived.lhs))
    }
}

/// The largest of what is known of its parents.
fn above(stage: &Stage, known: &[i128]) -> i128 {
    stage.parents.iter().map(|&parent| known[parent]).max().unwrap_or(0)
}
