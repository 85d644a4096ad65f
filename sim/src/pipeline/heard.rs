//! What is heard of a run of a pipeline: nothing, when declared sources went on from stage to stage, or where each waited.

use std::collections::HashMap;

use rt_core::{Instant, Span, WorkerId};

use crate::policy::End;

/// Who listens to a run.
#[derive(Debug, Default)]
pub(crate) enum Heard {
    /// Nobody.
    #[default]
    Nothing,
    /// When batches of each stage ended with something of these sources, the first streams.
    Ends {
        /// How many streams.
        streams: usize,
        /// The stream of each source.
        of: Vec<usize>,
        /// Batches that run with something of them.
        running: Vec<(usize, WorkerId)>,
        /// Of each stage, in order.
        ends: Vec<Vec<Instant>>,
    },
    /// How long each source waited at each stage.
    Waits(Waits),
}

/// How long each source waited.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Of each source at each stage: since when each of its requests waits, in order; none of one that was begun.
    waiting: HashMap<(u64, usize), Vec<Option<Instant>>>,
    /// The longest wait of a request, of each source at each stage that it came to.
    longest: HashMap<(u64, usize), Span>,
    sources: u64,
}

impl Heard {
    /// Listens to when batches with sources of the first `streams` streams end.
    pub(crate) fn ends_of(streams: usize, stages: usize) -> Self {
        Self::Ends { streams, of: Vec::new(), running: Vec::new(), ends: vec![Vec::new(); stages] }
    }

    pub(super) fn comes(&mut self, now: Instant, stream: usize) {
        match self {
            Self::Nothing => {}
            Self::Ends { of, .. } => of.push(stream),
            Self::Waits(waits) => {
                waits.come((waits.sources, 0), now, 1);
                waits.sources += 1;
            }
        }
    }

    /// A batch begins, with these requests: of which source, and its number among those of the source there.
    pub(super) fn begins(
        &mut self,
        now: Instant,
        at: (usize, WorkerId),
        _length: Span,
        parts: &[(u64, u32)],
    ) {
        match self {
            Self::Nothing => {}
            Self::Ends { streams, of, running, .. } => {
                if parts.iter().any(|&(token, _)| of[token as usize] < *streams) {
                    running.push(at);
                }
            }
            Self::Waits(waits) => {
                parts.iter().for_each(|&(token, index)| waits.begin((token, at.0), now, index as usize));
            }
        }
    }

    /// A batch ends; what its results become is said next.
    pub(super) fn ends(&mut self, now: Instant, at: (usize, WorkerId)) {
        if let Self::Ends { running, ends, .. } = self
            && let Some(place) = running.iter().position(|&other| other == at)
        {
            running.swap_remove(place);
            ends[at.0].push(now);
        }
    }

    /// A result became so many requests of a stage.
    pub(super) fn becomes(&mut self, now: Instant, source: u64, stage: usize, count: u32) {
        match self {
            Self::Nothing | Self::Ends { .. } => {}
            Self::Waits(waits) => waits.come((source, stage), now, count as usize),
        }
    }

    pub(super) fn over(&mut self, now: Instant, end: &End) {
        match self {
            Self::Nothing | Self::Ends { .. } => {}
            Self::Waits(waits) => waits.over(now, end.token),
        }
    }
}

impl Waits {
    fn come(&mut self, at: (u64, usize), now: Instant, count: usize) {
        let all = self.waiting.entry(at).or_default();
        all.resize(all.len() + count, Some(now));
    }

    fn begin(&mut self, at: (u64, usize), now: Instant, index: usize) {
        let since = self.waiting.get_mut(&at).and_then(|all| all.get_mut(index)).and_then(Option::take);
        self.waited(at, since, now);
    }

    fn waited(&mut self, at: (u64, usize), since: Option<Instant>, now: Instant) {
        if let Some(since) = since {
            let longest = self.longest.entry(at).or_default();
            *longest = now.since(since).max(*longest);
        }
    }

    /// What still waits of a source waits no longer.
    fn over(&mut self, now: Instant, source: u64) {
        let left: Vec<_> = self.waiting.keys().copied().filter(|&(of, _)| of == source).collect();
        for at in left {
            let waits = self.waiting.remove(&at).unwrap_or_default();
            waits.into_iter().for_each(|since| self.waited(at, since, now));
        }
    }

    /// In which stage a request of `source` waited longest, and how long; the first of such stages.
    pub(crate) fn longest(&self, source: u64) -> Option<(usize, Span)> {
        let of = self.longest.iter().filter(|((token, _), _)| *token == source);
        of.map(|(&(_, stage), &wait)| (stage, wait)).max_by_key(|&(stage, wait)| (wait, std::cmp::Reverse(stage)))
    }
}
