//! Faults planted in the log of a pipeline: each such that the model does not allow the entry at which it is.

use std::collections::HashMap;

use planner::PipelineProblem;
use planner::certify::chosen;
use rt_core::Span;
use rt_core::pipeline::Pipeline;

use super::{Became, Entry, Log, Member, ns};
use crate::dice::Dice;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A batch leaves out a request that must be served, and has room for it.
    NotFull,
    /// A request goes before one of an earlier source.
    OutOfOrder,
    /// A worker idles for longer than the guard beside what must be served.
    Idle,
    /// A batch ends after its bound.
    Late,
    /// More comes of a source than may.
    TooMany,
    /// A source that must be answered is given up.
    GivenUp,
}

/// What makes it wrong.
enum Change {
    To(Entry),
    Before(Entry),
    /// This entry and all after it.
    Later(Span),
}

impl Fault {
    pub(super) const ALL: [Self; 6] =
        [Self::NotFull, Self::OutOfOrder, Self::Idle, Self::Late, Self::TooMany, Self::GivenUp];

    /// The log with such a fault somewhere, and at which entry; `None` if there is no place for it.
    pub(super) fn plant(self, problem: &PipelineProblem, log: &Log, dice: &mut Dice) -> Option<(Log, usize)> {
        let mut all = self.places(problem, log);
        if all.is_empty() {
            return None;
        }
        let (index, change) = all.swap_remove(dice.within(0, all.len() as u64 - 1) as usize);
        let mut wrong = log.clone();
        match change {
            Change::To(entry) => wrong.entries[index].1 = entry,
            Change::Before(entry) => wrong.entries.insert(index, (log.entries[index].0, entry)),
            Change::Later(by) => wrong.entries[index..].iter_mut().for_each(|(at, _)| *at = *at + by),
        }
        Some((wrong, index))
    }

    /// Where it can be planted.
    fn places(self, problem: &PipelineProblem, log: &Log) -> Vec<(usize, Change)> {
        let pipeline = chosen(problem);
        let mut seen =
            Seen { problem, numbers: HashMap::new(), waiting: vec![Vec::new(); pipeline.stages.len()] };
        let (mut running, mut places) = (HashMap::new(), Vec::new());
        let mut sent = vec![0; log.streams.len()];
        for (index, (at, entry)) in log.entries.iter().enumerate() {
            let mut can = |change| places.push((index, change));
            if self == Self::GivenUp
                && let Some(&first) = seen.waiting[0].first()
            {
                can(Change::Before(Entry::Refuses(first)));
            }
            match entry {
                Entry::Arrives(stream) => {
                    let source = Member { stream: *stream, seq: sent[*stream] };
                    sent[*stream] += 1;
                    seen.numbers.insert((source.stream, source.seq), seen.numbers.len());
                    seen.come(0, source);
                }
                Entry::StageStarts { stage, worker, length, batch } => {
                    let (stage, worker, length) = (*stage, *worker, *length);
                    batch.iter().for_each(|&source| seen.take(stage, source));
                    let with = |batch| Change::To(Entry::StageStarts { stage, worker, length, batch });
                    if let Some(place) = batch.iter().position(|&source| seen.is_mandatory(source)) {
                        let instead =
                            |other: &[Member]| with([&batch[..place], other, &batch[place + 1..]].concat());
                        let later = |&&other: &&Member| seen.number(other) > seen.number(batch[place]);
                        match self {
                            Self::NotFull => can(instead(&[])),
                            Self::OutOfOrder => {
                                let other = seen.waiting[stage].iter().find(later).copied();
                                other.into_iter().for_each(|other| can(instead(&[other])));
                            }
                            Self::Idle => can(Change::Later(pipeline.guard + ns(1))),
                            _ => {}
                        }
                    }
                    running.insert((stage, worker), (*at, batch));
                }
                Entry::StageEnds { stage, worker, became } => {
                    let (started, batch) = running.remove(&(*stage, *worker)).expect("it ran");
                    if self == Self::Late {
                        can(Change::Later((started + pipeline.stages[*stage].time).since(*at) + ns(1)));
                    }
                    if self == Self::TooMany
                        && let Some(became) = too_many(&pipeline, *stage, batch, became)
                    {
                        can(Change::To(Entry::StageEnds { stage: *stage, worker: *worker, became }));
                    }
                    for one in became {
                        (0..one.count).for_each(|_| seen.come(one.stage, one.source));
                    }
                }
                other => panic!("{other}"),
            }
        }
        places
    }
}

/// Of the first source of a batch one more than a child allows; `None` at a leaf.
fn too_many(pipeline: &Pipeline, stage: usize, batch: &[Member], became: &[Became]) -> Option<Vec<Became>> {
    let child = pipeline.stages.iter().position(|child| child.parents.has(stage))?;
    let source = *batch.first()?;
    let most = batch.iter().filter(|&&other| other == source).count() as u32 * pipeline.stages[child].fan_out;
    let others = became.iter().filter(|one| (one.source, one.stage) != (source, child)).copied();
    Some(others.chain([Became { source, stage: child, count: most + 1 }]).collect())
}

/// What a log shows: which of all sources each is, and at each stage the requests that wait and must be served.
struct Seen<'a> {
    problem: &'a PipelineProblem,
    numbers: HashMap<(usize, u64), usize>,
    waiting: Vec<Vec<Member>>,
}

impl Seen<'_> {
    fn number(&self, source: Member) -> usize {
        self.numbers[&(source.stream, source.seq)]
    }

    fn is_mandatory(&self, Member { stream, seq }: Member) -> bool {
        let spec = self.problem.streams.get(stream).and_then(|(_, spec)| spec.demand());
        spec.is_some_and(|(density, _)| {
            let (p, q) = (u64::from(density.numerator()), u64::from(density.denominator()));
            (seq + 1) * p / q > seq * p / q
        })
    }

    fn come(&mut self, stage: usize, source: Member) {
        if self.is_mandatory(source) {
            self.waiting[stage].push(source);
        }
    }

    fn take(&mut self, stage: usize, source: Member) {
        if let Some(place) = self.waiting[stage].iter().position(|&other| other == source) {
            self.waiting[stage].remove(place);
        }
    }
}
