//! Background that is in the way of a burst at each stage of a pipeline: just as the burst gets there, a batch begins.

use rt_core::Instant;
use rt_core::pipeline::Pipeline;

use crate::dice::Dice;
use crate::time::at;

/// Instants at which what a stage waits for may come, as many as are tried.
const MAX_TRIED: usize = 16;
/// Background sources at most for one stage.
const MAX_SOURCES: u64 = 2_000;

/// All workers of a stage run batches of background, one behind the other, from `lead` before a burst on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) stage: usize,
    pub(super) lead: u64,
    pub(super) rounds: u64,
}

/// The tree as those see it who are in the way. Times are in nanoseconds.
pub(super) struct Tree<'a> {
    pipeline: &'a Pipeline,
    /// Of each stage how many requests a source becomes there, and the least time of what follows it.
    most: Vec<u64>,
    rest: Vec<u64>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(pipeline: &'a Pipeline) -> Self {
        let most = pipeline.descendants().unwrap_or_else(|_| vec![1; pipeline.stages.len()]);
        let mut rest = vec![0; pipeline.stages.len()];
        for (i, stage) in pipeline.stages.iter().enumerate().rev() {
            if let Some(parent) = stage.parents.first() {
                rest[parent] = rest[parent].max(stage.time.as_nanos() + rest[i]);
            }
        }
        Self { pipeline, most, rest }
    }

    /// The ways from the first stage to a leaf.
    pub(super) fn ways(&self) -> Vec<Vec<usize>> {
        let stages = &self.pipeline.stages;
        let leaves = (0..stages.len()).filter(|&i| stages.iter().all(|stage| !stage.parents.has(i)));
        leaves.map(|leaf| self.way(leaf)).collect()
    }

    /// From the first stage to this one.
    fn way(&self, stage: usize) -> Vec<usize> {
        let mut way: Vec<_> =
            std::iter::successors(Some(stage), |&i| self.pipeline.stages[i].parents.first()).collect();
        way.reverse();
        way
    }

    /// How many nanoseconds so many sources take to pass the stages before this one, if nothing else is there.
    fn hurry(&self, stage: usize, sources: u64) -> u64 {
        let before = self.way(stage).into_iter().filter(|&i| i != stage);
        before.map(|i| (sources * self.most[i]).div_ceil(self.round(i))).sum()
    }

    fn round(&self, stage: usize) -> u64 {
        let stage = &self.pipeline.stages[stage];
        (stage.workers * stage.batch) as u64
    }

    fn time(&self, stage: usize) -> u64 {
        self.pipeline.stages[stage].time.as_nanos()
    }

    /// Ways to be in the way of what comes to `stage` at one of `instants` behind the burst, of which each is tried that finds the
    /// batches at another place: the first batch begins as late as may be, but at least `least` before the burst, which is not 0.
    pub(super) fn blocks(&self, stage: usize, least: u64, instants: &[u64]) -> Vec<Block> {
        let time = self.time(stage);
        let mut blocks: Vec<Block> = Vec::new();
        for &instant in instants {
            // A batch begins just before.
            let lead = least + (time - (least + instant - 1) % time) % time;
            let block = Block { stage, lead, rounds: (lead + instant - 1) / time + 1 };
            if let Some(other) = blocks.iter_mut().find(|other| other.lead == lead) {
                // Until the later of both.
                other.rounds = other.rounds.max(block.rounds);
            } else if blocks.len() < MAX_TRIED {
                blocks.push(block);
            }
        }
        blocks
    }

    /// From how long before the burst on the stages behind one with this block can be occupied: what is for them must have passed.
    pub(super) fn least_behind(&self, block: Block) -> u64 {
        block.lead + 1
    }

    /// The sources of `block` around a burst at `start`: each comes before all else, unless its deadline would be over too soon.
    pub(super) fn sources(&self, block: Block, start: u64) -> Vec<(u64, usize)> {
        let Block { stage, lead, rounds } = block;
        let (round, most) = (self.round(stage), self.most[stage]);
        let all = (rounds * round).div_ceil(most).min(MAX_SOURCES);
        let hurry = self.hurry(stage, all);
        let begin = start.saturating_sub(lead);
        let life =
            self.pipeline.deadline.as_nanos().saturating_sub(self.rest[stage] + self.time(stage) + hurry);
        let source = |number: u64| {
            // It is needed when all before it have been begun.
            let needed = begin + number * most / round * self.time(stage);
            (begin.saturating_sub(hurry).max(needed.saturating_sub(life)), stage)
        };
        (0..all).map(source).collect()
    }

    /// Somewhere in the way, at random.
    pub(super) fn any_block(&self, dice: &mut Dice) -> Block {
        let stage = dice.within(0, self.pipeline.stages.len() as u64 - 1) as usize;
        let lead = dice.within(0, 2 * self.time(stage));
        Block { stage, lead, rounds: dice.within(1, 4) }
    }

    /// Sources for the first stage that leave nothing to anyone else, from `from` to `until`.
    pub(super) fn starving(&self, from: u64, until: u64) -> Vec<(u64, usize)> {
        let (time, round) = (self.time(0), self.round(0));
        let rounds = (until.saturating_sub(from) / time + 1).min(MAX_SOURCES / round + 1);
        (0..rounds).flat_map(|i| (0..2 * round).map(move |_| (from + i * time, 0))).collect()
    }
}

/// Sources of the streams with background, numbered behind them by stage, in order; of one instant background comes first.
pub(super) fn with_background(
    arrivals: &[(Instant, usize)],
    streams: usize,
    background: impl IntoIterator<Item = (u64, usize)>,
) -> Vec<(Instant, usize)> {
    let mut all: Vec<_> =
        background.into_iter().map(|(instant, stage)| (at(instant), streams + stage)).collect();
    all.extend(arrivals);
    all.sort_by_key(|&(instant, _)| instant);
    all
}

/// With background in the way at random instants.
pub(super) fn strewn(
    tree: &Tree<'_>,
    arrivals: &[(Instant, usize)],
    streams: usize,
    dice: &mut Dice,
) -> Vec<(Instant, usize)> {
    let mut background = Vec::new();
    for _ in 0..dice.within(0, 5) {
        let (start, _) = arrivals[dice.within(0, arrivals.len() as u64 - 1) as usize];
        background.extend(tree.sources(tree.any_block(dice), start.as_nanos()));
    }
    with_background(arrivals, streams, background)
}
