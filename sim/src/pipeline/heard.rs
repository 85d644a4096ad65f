//! What is heard of a run of a pipeline: nothing, when declared sources went on from stage to stage, or where each waited.

use std::collections::HashMap;

use rt_core::{Instant, MissReason, Outcome, Span, WorkerId};

use crate::log::{Became, Entry, Log, Member};
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
    /// All that happens, to be written down.
    All(Written),
}

/// A log that is being written, with what its entries need.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) log: Log,
    /// The sources as they came.
    sources: Vec<Member>,
    /// Of each stream, how many have come.
    sent: Vec<u64>,
    /// What the batch that is ending became so far.
    became: Vec<Became>,
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
            Self::All(all) => all.comes(now, stream),
        }
    }

    /// A batch begins, with these requests: of which source, and its number among those of the source there.
    pub(super) fn begins(&mut self, now: Instant, at: (usize, WorkerId), length: Span, parts: &[(u64, u32)]) {
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
            Self::All(all) => all.begins(now, at, length, parts),
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
            Self::All(all) => all.becomes(source, stage, count),
        }
    }

    /// What the results of a batch that ends became has been said.
    pub(super) fn ended(&mut self, now: Instant, (stage, worker): (usize, WorkerId)) {
        if let Self::All(Written { log, became, .. }) = self {
            let became = std::mem::take(became);
            log.entries.push((now, Entry::StageEnds { stage, worker, became }));
        }
    }

    pub(super) fn over(&mut self, now: Instant, end: &End) {
        match self {
            Self::Nothing | Self::Ends { .. } => {}
            Self::Waits(waits) => waits.over(now, end.token),
            Self::All(all) => all.over(now, end),
        }
    }
}

impl Written {
    /// Nothing has happened yet.
    pub(super) fn new(streams: Vec<String>) -> Self {
        let (sources, sent, became) = (Vec::new(), vec![0; streams.len()], Vec::new());
        Self { log: Log { streams, entries: Vec::new() }, sources, sent, became }
    }

    fn comes(&mut self, now: Instant, stream: usize) {
        self.sources.push(Member { stream, seq: self.sent[stream] });
        self.sent[stream] += 1;
        self.log.entries.push((now, Entry::Arrives(stream)));
    }

    fn begins(
        &mut self,
        now: Instant,
        (stage, worker): (usize, WorkerId),
        length: Span,
        parts: &[(u64, u32)],
    ) {
        let batch = parts.iter().map(|&(token, _)| self.sources[token as usize]).collect();
        self.log.entries.push((now, Entry::StageStarts { stage, worker, length, batch }));
    }

    fn becomes(&mut self, source: u64, stage: usize, count: u32) {
        let source = self.sources[source as usize];
        match self.became.iter_mut().find(|all| (all.source, all.stage) == (source, stage)) {
            Some(all) => all.count += count,
            None if count > 0 => self.became.push(Became { source, stage, count }),
            None => {}
        }
    }

    /// A mandatory source may have been given up.
    fn over(&mut self, now: Instant, end: &End) {
        let given_up = matches!(end.outcome, Outcome::Missed(reason) if reason != MissReason::Late);
        if end.mandatory && given_up {
            self.log.entries.push((now, Entry::Refuses(self.sources[end.token as usize])));
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
        of.map(|(&(_, stage), &wait)| (stage, wait))
            .max_by_key(|&(stage, wait)| (wait, std::cmp::Reverse(stage)))
    }
}
