//! Stalls: rare losses of time that are declared, so that the promise is computed with them and holds through them.
//!
//! A machine *stalls* when it stands still, or some of it does: batches that run then end later than their bound, and
//! dispatch comes later than the guard allows. Let all that is lost so lie in intervals of at most `ℓ`, of which at most `k`
//! end in any half-open interval of `T`. Then every promise is kept that Theorem A gives with `L = D - δ - k·ℓ`, provided
//! that
//!
//! ```text
//! β + D + ℓ  ≤  T ,   β the longest busy period of the load after a delay of D .
//! ```
//!
//! *Why.* Take a mandatory request that comes at `a`, and let `s ≤ a` be the instant that the proof of Theorem A looks back
//! to, or the last long batch that the shield allowed. Read all times of the workers behind `s` on a clock that stands
//! still in each stall. On it every batch keeps its bound, whether it began before `s` or later, and dispatch is late by at
//! most `δ`: so the proof of Theorem A, or of the shield, holds as it stands, with the requests counted by the instants at which they
//! really came. The request is answered by `a + L` and what the clock stood still since `s`. It comes within a busy period,
//! `a ≤ s + β`, for a delay of `D` covers `δ`, `k·ℓ` and the longest batch that the shield allows. A stall that began by
//! `a + D` ends by `a + D + ℓ`, within `T` of `s`: so there were at most `k`, and `k·ℓ` was kept back for them.
//!
//! Or nothing is kept back, and constraints absorb what is missed around a stall: `crate::absorb`.
//!
//! When a batch ends `x` late it can have lost `x` at any time while it ran, and it is enough that *some* intervals explain all that
//! is seen: the monitor lets a stall cover whatever it can, and keeps how soon it may have ended, however long after it a batch
//! ended. It is strict with what goes on: what no stall that ended now could explain is told now, before it makes a request miss.
//! So stalls `T` apart are explained if the second is seen when it is over, as where the machine stands still; one that is
//! seen while it lasts must not show before `T` is over. It looks for one stall behind each batch: one that lost more than `ℓ`,
//! perhaps in two of them, is told of. And it takes the latest stall that explains a batch for the one that did: where batches on
//! several workers ran through two stalls within two deadlines, that may be the wrong one of them, which then ended later than it
//! had to, and one that follows a window after it may be told of without need. It errs by telling, never by silence.

use crate::time::{Instant, MAX_SPAN, Span};

/// The most stalls that can be declared in a window.
pub const MAX_STALLS: usize = 8;

/// At most so many stalls of at most such a length in any half-open interval of `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    count: u32,
    window: Span,
    length: Span,
    recovery: Option<Span>,
}

/// Why a declaration of stalls is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StallsError {
    /// None, or too many to keep account of.
    #[error("{count} stalls are outside 1..={MAX_STALLS}")]
    Count {
        /// Stalls given.
        count: u32,
    },
    /// Nothing, or longer than any span may be.
    #[error("stalls of {length} in {window}: each must be above 0, and the window at most {MAX_SPAN}")]
    Span {
        /// The length given.
        length: Span,
        /// The window given.
        window: Span,
    },
    /// They may fill the whole window.
    #[error("{count} stalls of {length} fill the window of {window}")]
    Full {
        /// Stalls given.
        count: u32,
        /// The length given.
        length: Span,
        /// The window given.
        window: Span,
    },
}

impl Stalls {
    /// At most `count` stalls in any half-open interval of `window`, each of at most `length`.
    ///
    /// # Errors
    /// If a number is outside its range, or the stalls may fill the window.
    pub fn new(count: u32, window: Span, length: Span) -> Result<Self, StallsError> {
        if !(1..=MAX_STALLS as u32).contains(&count) {
            return Err(StallsError::Count { count });
        }
        if length == Span::ZERO || window > MAX_SPAN || length > MAX_SPAN {
            return Err(StallsError::Span { length, window });
        }
        let stalls = Self { count, window, length, recovery: None };
        if stalls.lost() >= window { Err(StallsError::Full { count, length, window }) } else { Ok(stalls) }
    }

    /// How many there may be in a window.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.window
    }

    /// How long one may be.
    #[must_use]
    pub const fn length(&self) -> Span {
        self.length
    }

    /// The same, but that nothing is kept back of the deadline: requests that must be served may be missed, if they come less
    /// than a deadline before a stall begins and less than `recovery` after (`crate::absorb`).
    #[must_use]
    pub const fn absorbed(self, recovery: Span) -> Self {
        Self { recovery: Some(recovery), ..self }
    }

    /// How long after a stall began requests may be missed for it; `None` if none ever is.
    #[must_use]
    pub const fn recovery(&self) -> Option<Span> {
        self.recovery
    }

    /// `k·ℓ`: what may be lost in a window.
    #[must_use]
    pub const fn lost(&self) -> Span {
        Span::from_nanos(self.length.as_nanos() * self.count as u64)
    }

    /// What a promise keeps back of the deadline for them: what may be lost, unless it is absorbed.
    #[must_use]
    pub const fn reserve(&self) -> Span {
        match self.recovery {
            None => self.lost(),
            Some(_) => Span::ZERO,
        }
    }

    /// The same where none may be declared.
    #[must_use]
    pub fn reserve_of(stalls: Option<Self>) -> Span {
        stalls.map_or(Span::ZERO, |stalls| stalls.reserve())
    }
}

/// Keeps account of what is lost, and tells whether stalls as declared explain it.
#[derive(Clone, Debug)]
pub(crate) struct StallMonitor {
    declared: Stalls,
    /// The last stalls; `oldest` is the place of the first of them.
    recent: [Option<Stall>; MAX_STALLS],
    oldest: usize,
    /// How many there were.
    pub(crate) count: u64,
}

/// An interval in which time was lost, at the latest. One as long that ends sooner, but not before `soonest`, explains as much:
/// of what began at `s` and lost `x`, as much lies in it from `s + x` on, if not less is in it later.
#[derive(Clone, Copy, Debug)]
struct Stall {
    from: Instant,
    to: Instant,
    /// Nor is it within a window of those before it, if these ended as soon as they may.
    soonest: Instant,
}

impl StallMonitor {
    pub(crate) fn new(declared: Stalls) -> Self {
        Self { declared, recent: [None; MAX_STALLS], oldest: 0, count: 0 }
    }

    /// Has those of another account on its own, the latest of as many as it keeps: a window does not begin anew.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        let kept = |of: &Self| of.declared.count as usize;
        let all = (0..kept(before)).filter_map(|place| before.recent[(before.oldest + place) % kept(before)]);
        let left_out = all.clone().count().saturating_sub(kept(self));
        self.count = before.count;
        for stall in all.skip(left_out) {
            self.recent[self.oldest] = Some(stall);
            self.oldest = (self.oldest + 1) % kept(self);
        }
    }

    /// Whether a batch that began at `started`, was due at `due` and ends `now` may be late by a stall, which is then on the
    /// account; or dispatch that could have come at `started` and should have by `due`. Instants `now` do not go back from one
    /// call to the next.
    pub(crate) fn explains(&mut self, started: Instant, due: Instant, now: Instant) -> bool {
        let Stalls { window, length, .. } = self.declared;
        let count = self.declared.count as usize;
        let lost = now.since(due);
        let ends = started + lost;
        let fits = |stall: &Stall| stall.to.since(stall.from) <= length;
        // As much of the stall as is wanted lies in the batch: its beginning is moved back first, then its end on.
        let cover = |stall: Stall| {
            let (from, to) = match ends <= stall.to {
                true => (stall.to - lost, stall.to),
                false => (started, ends),
            };
            Stall { from: stall.from.min(from), to, soonest: stall.soonest.max(ends) }
        };
        // The latest is the likeliest; only that one may end later, for the account is in order.
        let last = (self.oldest + count - 1) % count;
        if let Some(wider) = self.recent[last].map(cover).filter(fits) {
            self.recent[last] = Some(wider);
            return true;
        }
        let free = self.recent[self.oldest].map_or(Instant::ZERO, |stall| stall.soonest + window);
        let alone = Stall { from: due, to: now, soonest: ends.max(free) };
        if !fits(&alone) || free > now {
            return false;
        }
        self.recent[self.oldest] = Some(alone);
        self.oldest = (self.oldest + 1) % count;
        self.count += 1;
        true
    }
}

#[cfg(test)]
mod tests;
