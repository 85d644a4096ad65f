//! Streams: what each declares and is promised, and how its requests ended.

mod record;

use alloc::vec::Vec;
use core::fmt;

use crate::constraint::ConstraintSet;
use crate::curve::ArrivalCurve;
use crate::level::{Level, LevelError, MAX_LEVELS};
use crate::time::Span;
use crate::word::Density;

pub(crate) use record::{Stream, Suspended};

/// Names a stream of one scheduler; an old name never means a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub(crate) slot: u16,
    pub(crate) generation: u32,
}

/// What a stream declares: how its requests come, and the constraints it wants kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    constraints: ConstraintSet,
    arrivals: Option<ArrivalCurve>,
    levels: Vec<Level>,
}

impl StreamSpec {
    /// A stream that is promised `constraints` as long as it keeps to `arrivals`.
    #[must_use]
    pub const fn promised(constraints: ConstraintSet, arrivals: ArrivalCurve) -> Self {
        Self { constraints, arrivals: Some(arrivals), levels: Vec::new() }
    }

    /// A stream that is promised nothing and declares nothing.
    #[must_use]
    pub fn best_effort() -> Self {
        Self { constraints: ConstraintSet::default(), arrivals: None, levels: Vec::new() }
    }

    /// With weaker promises behind the first, from the strongest to the weakest: what stands in for it while more comes than it
    /// allows, in place of none. Admission need not know of them.
    ///
    /// # Errors
    /// If they are no ladder.
    pub fn with_levels(self, levels: Vec<Level>) -> Result<Self, LevelError> {
        if levels.len() > MAX_LEVELS {
            return Err(LevelError::Count { count: levels.len() });
        }
        let mut before = None;
        for (level, behind) in (1..).zip(&levels) {
            let first = self.demand().ok_or(LevelError::NoFirst)?;
            behind.check(level, before.unwrap_or(first.0), first)?;
            before = Some(behind.constraints.density());
        }
        Ok(Self { levels, ..self })
    }

    /// The weaker promises behind the first.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The constraints of a level, 0 for the first promise.
    #[must_use]
    pub fn constraints_at(&self, level: usize) -> &ConstraintSet {
        match level.checked_sub(1).and_then(|behind| self.levels.get(behind)) {
            Some(level) => &level.constraints,
            None => &self.constraints,
        }
    }

    /// With the constraints of a level, or of the last there is, in place of the first, and the arrivals of the first.
    #[must_use]
    pub fn at_level(&self, level: usize) -> Self {
        let constraints = self.constraints_at(level.min(self.levels.len())).clone();
        Self { constraints, arrivals: self.arrivals.clone(), levels: Vec::new() }
    }

    /// The constraints to keep; empty for best effort.
    #[must_use]
    pub const fn constraints(&self) -> &ConstraintSet {
        &self.constraints
    }

    /// How the requests come, if declared.
    #[must_use]
    pub const fn arrivals(&self) -> Option<&ArrivalCurve> {
        self.arrivals.as_ref()
    }

    /// The share of requests that must be served, and how they come; `None` if none must be.
    #[must_use]
    pub fn demand(&self) -> Option<(Density, &ArrivalCurve)> {
        let density = self.constraints.density();
        self.arrivals.as_ref().filter(|_| density.numerator() > 0).map(|arrivals| (density, arrivals))
    }
}

/// Why a request got no result in time. The numbers are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MissReason {
    /// It waited until no batch could meet its deadline any more; never executed.
    Expired = 2,
    /// In overload, it was given up to keep the misses apart or for others that can still be answered, at once where what
    /// waits before it already rules an answer out; or where no background is served it was beyond its stream's declaration, or
    /// need not be served while a takeover is waited for; never executed.
    Shed = 3,
    /// The queue was full when it came.
    QueueFull = 4,
    /// It was executed, and had not ended by its deadline.
    Late = 5,
    /// The engine failed on its batch.
    EngineFailed = 6,
    /// Its worker was lost, or none was left when it came.
    WorkerLost = 7,
    /// Its stream was closed, or another scheduler took over, before it was served.
    Cancelled = 8,
}

impl MissReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Expired,
        Self::Shed,
        Self::QueueFull,
        Self::Late,
        Self::EngineFailed,
        Self::WorkerLost,
        Self::Cancelled,
    ];
}

impl MissReason {
    /// Whether there was no time or no room, and nothing else was wrong.
    pub(crate) const fn is_of_time(self) -> bool {
        matches!(self, Self::Expired | Self::Shed | Self::QueueFull | Self::Late)
    }
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "expired",
            Self::Shed => "shed",
            Self::QueueFull => "queue-full",
            Self::Late => "late",
            Self::EngineFailed => "engine-failed",
            Self::WorkerLost => "worker-lost",
            Self::Cancelled => "cancelled",
        })
    }
}

/// How a stream's requests ended so far: every one that came is here, or still waiting or running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Requests that came.
    pub arrived: u64,
    /// Requests answered in time.
    pub served: u64,
    /// Requests that came before its declaration allows them, but within the tolerance, and by how much at most: breaches
    /// that could not have changed any outcome.
    pub early: u64,
    /// See [`StreamCounts::early`].
    pub earliest: Span,
    missed: [u64; 9],
}

impl StreamCounts {
    /// Requests missed for `reason`.
    #[must_use]
    pub const fn missed(&self, reason: MissReason) -> u64 {
        self.missed[reason as usize]
    }

    /// Requests missed for whatever reason.
    #[must_use]
    pub fn missed_total(&self) -> u64 {
        self.missed.iter().sum()
    }

    pub(crate) fn count(&mut self, miss: Option<MissReason>) {
        match miss {
            None => self.served += 1,
            Some(reason) => self.missed[reason as usize] += 1,
        }
    }
}

/// How the promise to a stream stands, as far as the stream itself is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamState {
    /// As it was made.
    #[default]
    Normal,
    /// A weaker one stands in for it, the so many-th behind the first, from 1.
    Degraded(u8),
    /// Nothing is promised.
    Suspended,
}
