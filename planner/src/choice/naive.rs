//! What others do: each stage is given a part of the deadline, and chooses for itself.
//!
//! Where requests are served as they come to it, a stage knows only that each comes within what the stages above take at most
//! behind its source, so it has to reckon with the sources of that much more time at once: with jitter, in the words of the
//! field. All splits are sound; they are here to be compared with, nothing is promised by them.

use rt_core::pipeline::rises;
use rt_core::{Span, StreamSpec};

use super::{Choices, StageOption};

/// The most rises that are looked at; what takes more is refused, which is a matter of the last thousandths of capacity.
const MAX_RISES: usize = 1 << 13;

/// How the deadline is split, and in which order requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// In proportion to what a batch takes at least, along the longest way through the stage; as they come to the stage.
    Proportional,
    /// At best: each stage gets what it needs; as they come to the stage.
    Free,
    /// At best, and in the order of their sources: Theorem P1.
    BySource,
}

impl Split {
    /// The options by which every stage is in time, each stage by itself taking the one that answers soonest, and how long the
    /// longest way takes; `None` if they do not keep the deadline.
    #[must_use]
    pub fn choose(self, choices: &Choices, streams: &[StreamSpec]) -> Option<(Vec<usize>, Span)> {
        let descendants = choices.pipeline(&vec![0; choices.stages.len()]).descendants().ok()?;
        let parts = parts(choices);
        let (mut options, mut ends) = (Vec::new(), Vec::<u64>::new());
        for (i, stage) in choices.stages.iter().enumerate() {
            let before = stage.parents.most(&ends);
            let jitter = if self == Self::BySource { 0 } else { before };
            let most = if self == Self::Proportional { parts[i] } else { choices.latency().as_nanos() };
            let responses = stage.options.iter().enumerate().filter_map(|(o, option)| {
                let rises =
                    rises(streams).map(|(at, sources)| (at.as_nanos().saturating_sub(jitter), sources));
                Some((response(option, choices.guard, descendants[i], rises, most)?, o))
            });
            let (response, option) = responses.min()?;
            ends.push(before.checked_add(response)?);
            options.push(option);
        }
        let longest = Span::from_nanos(ends.into_iter().max()?);
        (longest <= choices.latency()).then_some((options, longest))
    }
}

/// The part of the deadline of each stage: the guard, and of what is left beside all guards in proportion to the shortest batch.
fn parts(choices: &Choices) -> Vec<u64> {
    let stages = &choices.stages;
    let least = |i: usize| {
        let times = stages[i].options.iter().map(|o| o.time.as_nanos());
        times.min().unwrap_or(0)
    };
    // Of the longest way to each stage, with it, and of that down from it: stages, and their shortest batches.
    let longer = |a: (u64, u64), b: (u64, u64)| (a.0.max(b.0), a.1.max(b.1));
    let (mut to, mut from) = (Vec::<(u64, u64)>::new(), vec![(0, 0); stages.len()]);
    for (i, stage) in stages.iter().enumerate() {
        let before = stage.parents.iter().map(|parent| to[parent]).fold((0, 0), longer);
        to.push((before.0 + 1, before.1 + least(i)));
    }
    for i in (1..stages.len()).rev() {
        let own = (from[i].0 + 1, from[i].1 + least(i));
        for parent in stages[i].parents.iter() {
            from[parent] = longer(from[parent], own);
        }
    }
    let guard = choices.guard.as_nanos();
    let part = |i: usize| {
        let (depth, time) = (to[i].0 + from[i].0, to[i].1 + from[i].1);
        let left = choices.latency().as_nanos().saturating_sub(guard * depth);
        let share = u128::from(left) * u128::from(least(i)) / u128::from(time.max(1));
        guard + u64::try_from(share).unwrap_or(u64::MAX)
    };
    (0..stages.len()).map(part).collect()
}

/// How long a request waits and is served at most where so many sources may come up to `rises` behind the first; `None` if that is
/// longer than `most`.
fn response(
    option: &StageOption,
    guard: Span,
    descendants: u64,
    rises: impl Iterator<Item = (u64, u64)>,
    most: u64,
) -> Option<u64> {
    let (round, time) = ((option.workers * option.batch) as u64, option.time.as_nanos());
    let (mut rises, mut response) = (rises.peekable(), 0);
    for _ in 0..MAX_RISES {
        let (delta, sources) = rises.next()?;
        let rounds = (descendants * sources).div_ceil(round);
        let begun = time.saturating_mul(rounds).saturating_add(guard.as_nanos());
        response = response.max(begun.saturating_add(time).saturating_sub(delta));
        if response > most {
            return None;
        }
        // Before the next one can come all have begun.
        if rises.peek().is_none_or(|&(next, _)| begun < next) {
            return Some(response);
        }
    }
    None
}
