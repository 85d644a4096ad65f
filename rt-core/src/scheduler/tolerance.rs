//! Tolerance: by how much requests may come before their stream's declaration allows them, so that it harms nobody.
//!
//! How much admission leaves is worked out by [`System::tolerance`](crate::System::tolerance), which says why it is enough: with
//! a tolerance of `τ` what is promised holds for all curves `α(Δ + τ)`, and what conforms within `τ` satisfies these. Here it is
//! kept what may be counted on while streams and shields come and go. It is the least of
//!
//! - what the admission of each stream left that is there, or has departed and still counts. Whoever of them came last was
//!   tested beside all others, so the load was tested with that;
//! - what the shield was made for, with the curves `α(Δ + τ)` in its (2). Its lulls end by as much sooner.
//!
//! *When it may shrink.* A stream whose admission leaves less than some request was early since nothing mandatory waited last
//! waits until nothing does. From such an instant on all that came keeps to the lesser tolerance, and the proof needs nothing
//! of what came before. *When it may grow.* The load is less once those that departed count no longer; the shield stays as
//! it is. What long batches have left was safe for as much as the shield that is set was made for, or is no longer in the way.

use alloc::vec::Vec;

use super::Scheduler;
use super::carry_in::CarryIn;
use crate::fallback::Fallbacks;
use crate::time::Span;

/// What the admission of a stream left, for it and for all that were there then: by how much requests may come early, and what their
/// promises fall back on when something is wrong.
pub(super) type Left = (Span, Fallbacks);

/// See the module. Nothing is tolerated before anything is promised.
#[derive(Clone, Debug)]
pub(super) struct Tolerance {
    /// By the place of each stream that demands something.
    left: Vec<Option<Left>>,
    /// What admission leaves.
    admitted: Span,
    /// What the shield was made for; anything if there is none.
    reserve: Option<Span>,
    /// By how much a request was early at most since nothing mandatory waited last.
    strained: Span,
    /// A stream has departed that may have been what admission left least for.
    stale: bool,
}

impl Tolerance {
    /// Of so many streams at most. Allocates.
    pub(super) fn new(streams: usize) -> Self {
        let left = alloc::vec![None; streams];
        Self { left, admitted: Span::ZERO, reserve: None, strained: Span::ZERO, stale: false }
    }

    /// For so many streams, or more. Allocates.
    pub(super) fn resize(&mut self, streams: usize) {
        self.left.resize(streams.max(self.left.len()), None);
    }

    /// What the admission of the stream in a place left, or that there is none that demands anything.
    pub(super) fn set(&mut self, place: u16, left: Option<Left>) {
        self.left[usize::from(place)] = left;
    }

    /// The streams of another one go on here, in the same places: how much room there is was tested for other workers.
    pub(super) fn continue_from(&mut self, other: &Self) {
        let same = other.left.iter().map(|left| left.map(|_| Left::default()));
        self.left.iter_mut().zip(same).for_each(|(left, from)| *left = from);
    }

    fn present(&self) -> Span {
        self.reserve.map_or(self.admitted, |reserve| reserve.min(self.admitted))
    }

    /// What the shield was made for: no request comes earlier by more.
    pub(super) fn reserve(&self) -> Span {
        self.reserve.unwrap_or(Span::ZERO)
    }

    /// A request came early by so much.
    pub(super) fn strain(&mut self, early: Span) {
        self.strained = self.strained.max(early);
    }

    /// Whether the proof holds with no more than `tolerance` from now on.
    pub(super) fn may_be(&self, tolerance: Span) -> bool {
        self.strained <= tolerance
    }

    /// A stream comes whose admission leaves so much, as the `first` that counts or beside others.
    pub(super) fn join(&mut self, tolerance: Span, first: bool) {
        self.admitted = if first { tolerance } else { self.admitted.min(tolerance) };
    }
}

impl Scheduler {
    /// By how much a request may come before its stream's declaration allows it now, and counts as if it came when that does:
    /// the promise to its stream is not suspended, and no outcome of others can change.
    #[inline]
    #[must_use]
    pub fn tolerance(&self) -> Span {
        let present = self.tolerance.present();
        self.fallen.as_ref().map_or(present, |fallen| fallen.tolerance.min(present))
    }

    /// All promised streams that are there were admitted together with so much room for early requests, as
    /// [`Newcomer::tolerant`](crate::Newcomer::tolerant): for those that came without, before any request did or with a takeover.
    pub fn set_tolerance(&mut self, tolerance: Span) {
        let tolerance = tolerance.min(self.config.most_early());
        self.tolerance.left.iter_mut().flatten().for_each(|left| left.0 = tolerance);
        self.recount_left();
    }

    /// Another shield is set, or none; whether it is `right` for what another one has granted, which was safe for what that
    /// one was made for.
    pub(super) fn note_shield(&mut self, right: bool) {
        let offered = self.shield.as_ref().map(|shield| shield.tolerance());
        let left = self.tolerance.reserve.filter(|_| !right && self.carry_in != CarryIn::None);
        self.tolerance.reserve = offered.into_iter().chain(left).min();
    }

    /// All promised streams that are there were admitted together, with what their promises fall back on.
    pub(super) fn note_fallbacks(&mut self) {
        let fallbacks = self.fallbacks;
        self.tolerance.left.iter_mut().flatten().for_each(|left| left.1 = fallbacks);
    }

    /// A stream has departed, and counts until no mandatory request waits, or no longer.
    pub(super) fn note_departure(&mut self) {
        self.tolerance.stale = true;
        if self.ledger.departed() == 0 {
            self.recount_left();
        }
    }

    /// No mandatory request waits.
    #[inline]
    pub(super) fn relax_tolerance(&mut self) {
        self.tolerance.strained = Span::ZERO;
        if self.tolerance.stale {
            self.recount_left();
        }
    }

    /// What those who are there leave at least: the last of them to come was tested beside all others. What was known beside more of them
    /// holds as well. Linear in the streams.
    #[inline(never)]
    pub(super) fn recount_left(&mut self) {
        let all = || self.tolerance.left.iter().flatten();
        let fallbacks = all().map(|&(_, fallbacks)| fallbacks).reduce(Fallbacks::and);
        self.tolerance.admitted = all().map(|&(tolerance, _)| tolerance).min().unwrap_or(Span::ZERO);
        self.fallbacks = self.fallbacks.or(fallbacks.unwrap_or_default());
        self.tolerance.stale = false;
    }
}
