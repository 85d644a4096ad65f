//! A slow judge of small instances, written from the definitions alone: can a mandatory request ever miss?
//!
//! Time goes in ticks. Within a tick an adversary lets requests arrive, as many as the bounds allow, and
//! lets free workers take batches, in whatever order it likes; a tick ends only when no batch has to be
//! taken. Every state that it can reach is visited once. Nothing of the crate under test is used here.
//!
//! # The rule
//! A batch takes waiting mandatory requests first, in order, up to its worker's `B`, and is then filled with
//! optional ones; an optional request that the batch could no longer serve is given up. Eager: while a
//! request waits and a worker is free, time does not go on. Full-or-latest: a batch *may* be taken once as
//! many requests wait as the smallest `B` of the free workers, or once the earliest deadline leaves just the
//! largest `P(B)` of all workers; time does not go on while as many wait as the *largest* `B` of the free
//! workers, or at that latest start. With identical workers the two are one. Which free worker takes the
//! batch is the adversary's choice, so that a yes of the judge holds for every sensible choice of a worker.
//!
//! # Background
//! With `Mode::background` there are also optional requests that no bound limits and that may be withdrawn
//! at any time. They need no state: whatever such requests could do while they wait, ones that come at the
//! instant of a start do too. So a free worker may be started at any instant, on the mandatory requests that
//! the rule gives it and any number of others up to `B`. The optional requests of the streams are such ones.

pub(crate) mod ahead;
pub(crate) mod pipeline;
pub(crate) mod sample;
mod search;
mod seen;
pub(crate) mod sharing;
mod state;
pub(crate) mod theory;

pub(crate) use search::{Judge, Slow, View};

/// At most so many requests in any half-open interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// `count` in any interval of `length`.
    Window { count: u8, length: u8 },
    /// `ceil((Δ + jitter) / period)` in any interval of any length `Δ`.
    Periodic { period: u8, jitter: u8 },
    /// At least so long from a request to the next, the one after that, and so on; never decreasing.
    Distances(Vec<u8>),
}

/// Requests that keep to all of `bounds`; of any `K` in a row at most `m` may be missed, for each `(m, K)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) bounds: Vec<Bound>,
    pub(crate) constraints: Vec<(u8, u8)>,
}

impl Stream {
    /// That has `count` requests in any interval of `length`, and must not miss any.
    pub(crate) fn hard(count: u8, length: u8) -> Self {
        Self { bounds: vec![Bound::Window { count, length }], constraints: vec![(0, 1)] }
    }
}

/// `count` identical workers that take batches of up to `batch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) count: usize,
    pub(crate) batch: usize,
    /// `P(1), P(2), …`, at least as far as `batch`.
    pub(crate) times: Vec<u8>,
}

impl Group {
    /// `P(B)`.
    pub(crate) fn full(&self) -> u8 {
        self.times[self.batch - 1]
    }
}

/// A small system and its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) streams: Vec<Stream>,
    pub(crate) groups: Vec<Group>,
    pub(crate) latency: u8,
}

/// How the rule dispatches, how long batches take, and who else sends requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// A batch is due when full or at the latest start of a waiting request; else whenever one waits.
    pub(crate) full_or_latest: bool,
    /// A batch of `b` takes exactly `P(b)`; else any time up to it.
    pub(crate) exact: bool,
    /// Optional requests come that no bound limits.
    pub(crate) background: bool,
    /// A batch is made smaller where that brings its first mandatory request in in time; else it misses.
    pub(crate) shrink: bool,
}

/// One choice of the adversary. Streams of equal declarations, and workers of a group, are interchangeable:
/// a step names one that is in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request of this stream arrives.
    Arrive(usize),
    /// A free worker of this group takes so many mandatory requests; the batch takes so long.
    Start { group: usize, mandatory: usize, time: u8 },
    /// Time goes on by one.
    Tick,
    /// The same, and nothing else does.
    Stall,
}

/// What an exhaustive search says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No mandatory request can ever miss its deadline; so many states were seen.
    Safe(usize),
    /// These steps make one miss.
    Miss(Vec<Step>),
    /// More states than the limit.
    TooLarge,
}
