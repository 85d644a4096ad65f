//! Fallback: what can still be promised when a worker is lost, whichever, or when batches take half as long again.
//!
//! Let that happen, and let every stream be held to the constraints of level `ℓ` from then on, but to the arrivals that its
//! first promise declares. Where Theorem A says yes to `⌈ρ_ℓ·α(Δ)⌉` mandatory requests of each for the workers as they are then,
//! these promises hold from the first instant on at which no mandatory request waits and every worker that is there is free again
//! within its `P` (`scheduler/fallback.rs`): whatever came before is in nobody's way any more.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::admission::System;
use crate::level::MAX_LEVELS;
use crate::profile::{BatchTime, LatencyProfile};
use crate::stream::StreamSpec;
use crate::time::Span;
use crate::workers::Workers;

/// How many times as long batches may take that a service falls back for: so much of so much.
const LONGER: (u64, u64) = (3, 2);

/// What holds for all streams when something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The level of the promises, 0 for those that were made first; a stream that has fewer levels is at its last one.
    pub level: usize,
    /// By how much requests may come early then ([`System::tolerance`]).
    pub tolerance: Span,
}

/// What holds in each case that a service can fall back for; nothing where it is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// One worker is lost, whichever.
    pub worker_lost: Option<Fallback>,
    /// Batches take up to [`longer`] than they should.
    pub longer_batches: Option<Fallback>,
}

impl Fallbacks {
    /// What holds of both: no stronger than either.
    pub(crate) fn and(self, other: Self) -> Self {
        let of = |one: Option<Fallback>, other: Option<Fallback>| {
            let (one, other) = one.zip(other)?;
            let tolerance = one.tolerance.min(other.tolerance);
            Some(Fallback { level: one.level.max(other.level), tolerance })
        };
        Self {
            worker_lost: of(self.worker_lost, other.worker_lost),
            longer_batches: of(self.longer_batches, other.longer_batches),
        }
    }

    /// Both hold: the stronger of them, case by case.
    pub(crate) fn or(self, other: Self) -> Self {
        let of = |one: Option<Fallback>, other: Option<Fallback>| {
            one.into_iter().chain(other).min_by_key(|of| (of.level, Reverse(of.tolerance)))
        };
        Self {
            worker_lost: of(self.worker_lost, other.worker_lost),
            longer_batches: of(self.longer_batches, other.longer_batches),
        }
    }
}

/// `time`, and half of it again.
#[must_use]
pub fn longer(time: Span) -> Span {
    Span::from_nanos(time.as_nanos().saturating_mul(LONGER.0).div_ceil(LONGER.1))
}

impl Workers {
    /// Those whose batches may take [`longer`]; what they are expected to take stays. None if that is longer than anything may.
    pub(crate) fn slower(&self) -> Option<Self> {
        let times: Vec<_> = (1..=self.profile.max_batch()).map(|batch| self.profile.time(batch)).collect();
        let times: Vec<_> =
            times.iter().map(|time| BatchTime { bound: longer(time.bound), ..*time }).collect();
        Some(Self { profile: LatencyProfile::expected(&times).ok()?, ..self.clone() })
    }
}

impl System {
    /// What is left if a worker of one of the kinds is lost, kind by kind; nothing if that is the only worker. By Theorem A alone:
    /// promises fall back only where there is background.
    #[must_use]
    pub fn with_a_worker_less(&self) -> Vec<Self> {
        let less = |lost: usize| {
            let still = |(kind, workers): (usize, &Workers)| {
                let count = workers.count - usize::from(kind == lost);
                (count > 0).then(|| Workers { count, ..workers.clone() })
            };
            let workers: Vec<_> = self.workers.iter().enumerate().filter_map(still).collect();
            (!workers.is_empty()).then(|| self.with(workers))
        };
        let all: Option<Vec<_>> = (0..self.workers.len()).map(less).collect();
        all.unwrap_or_default()
    }

    /// The same workers, each of whose batches may take [`longer`]; none if that is longer than anything may.
    #[must_use]
    pub fn with_longer_batches(&self) -> Option<Self> {
        let workers: Option<Vec<_>> = self.workers.iter().map(Workers::slower).collect();
        Some(self.with(workers?))
    }

    fn with(&self, workers: Vec<Workers>) -> Self {
        Self { workers, background: true, ..self.clone() }
    }

    /// The strongest levels of what `streams` are promised that still hold, with no more than `queue` requests that must be served
    /// waiting and requests early by `most` at most. None if there is no such level, where no background is served, or where
    /// constraints absorb stalls.
    #[must_use]
    pub fn fallbacks<'a, I>(&self, streams: I, most: Span, queue: u64) -> Fallbacks
    where
        I: IntoIterator<Item = &'a StreamSpec>,
    {
        let streams: Vec<_> = streams.into_iter().collect();
        let absorbs = self.stalls.is_some_and(|stalls| stalls.recovery().is_some());
        if !self.background || absorbs {
            return Fallbacks::default();
        }
        Fallbacks {
            worker_lost: fallback(&self.with_a_worker_less(), &streams, most, queue),
            longer_batches: fallback(self.with_longer_batches().as_slice(), &streams, most, queue),
        }
    }
}

/// The strongest level that all of `systems` admit, of which there must be one.
fn fallback(systems: &[System], streams: &[&StreamSpec], most: Span, queue: u64) -> Option<Fallback> {
    let levels = streams.iter().map(|spec| spec.levels().len()).max().unwrap_or(0);
    (0..=levels.min(MAX_LEVELS)).find_map(|level| {
        let specs: Vec<_> = streams.iter().map(|spec| spec.at_level(level)).collect();
        let admits = |system: &System| system.admit(&specs).is_ok_and(|a| a.waiting <= queue);
        if !systems.iter().all(admits) {
            return None;
        }
        let tolerance = systems.iter().map(|system| system.tolerance(&specs, most, queue)).min()?;
        Some(Fallback { level, tolerance })
    })
}
