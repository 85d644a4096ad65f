//! How early requests may come without harm: what an admission test leaves.
//!
//! Let every request conform at an instant `e` of its own, so that these instants satisfy the declared curves, and come up to `τ`
//! before that: at `a`, `e - τ ≤ a ≤ e`. Those that come in `[t, t + Δ)` conform in `[t, t + Δ + τ)`, so what comes satisfies the
//! curves `α(Δ + τ)`. Those are arrival curves like any other, and Theorem A holds for them: every mandatory request is answered
//! within `L` of its *arrival* if for every `δ' ≥ 0`
//!
//! ```text
//! min{ u : σ(u) ≥ α_m(δ' + τ + 1 ns) } + P_max  ≤  δ' + L .
//! ```
//!
//! The left side is that of the declared curves at `δ = δ' + τ`, and constant between their rises. So a rise at `δ` asks for
//! `lhs ≤ max(0, δ - τ) + L`: nothing, where `lhs ≤ L`, and else that `τ` is at most its margin, `δ + L - lhs`. The smallest of these is
//! all that requests may come early by, all of them at once. It need be looked for until the workers have begun all that can have
//! come, counted from `δ'`: until a busy period behind a delay of `τ` is over.
//!
//! What can wait is counted from arrivals, of which there are as many as if dispatch were later by `τ`; and a busy period after a
//! delay of `D` is over no later than one after `D + τ`.

use alloc::vec::Vec;

use crate::admission::System;
use crate::busy::{BusyPeriod, Rise};
use crate::stream::StreamSpec;
use crate::time::Span;

impl System {
    /// By how much all requests of `streams` may come before their declarations allow them, so that every promise that this
    /// system admits is kept and no more than `queue` requests that must be served wait at once: at most `most`.
    ///
    /// Nothing where the load is not admitted, where it is too close to capacity to see the end of a busy period behind a delay,
    /// where no background is served: the refinement counts what keeps workers busy by when it comes; or where constraints absorb
    /// stalls: what these cost is counted by the declared curves.
    #[must_use]
    pub fn tolerance<'a, I>(&self, streams: I, most: Span, queue: u64) -> Span
    where
        I: IntoIterator<Item = &'a StreamSpec>,
    {
        let absorbs = self.stalls.is_some_and(|stalls| stalls.recovery().is_some());
        if most == Span::ZERO || !self.background || absorbs {
            return Span::ZERO;
        }
        let streams: Vec<_> = streams.into_iter().collect();
        let left = self.left(&streams, most);
        let fits = |tolerance: Span| {
            let later = Self { guard: self.guard + tolerance, ..self.clone() };
            later.admit(streams.iter().copied()).is_ok_and(|admission| admission.waiting <= queue)
        };
        if fits(left) { left } else { Span::ZERO }
    }

    /// The same as far as Theorem A goes, which holds for `streams`.
    fn left(&self, streams: &[&StreamSpec], most: Span) -> Span {
        let load: Vec<_> = streams.iter().filter_map(|stream| stream.demand()).collect();
        if load.is_empty() {
            return most;
        }
        let (latency, mut left) = (self.unstalled_latency(), most);
        let mut rises = BusyPeriod::after(self, &load, most);
        for Rise { length, begun, .. } in &mut rises {
            let delta = length.saturating_sub(Span::from_nanos(1));
            let lhs = begun.saturating_sub(most) + self.longest_batch();
            if lhs > latency {
                left = left.min((delta + latency).saturating_sub(lhs));
            }
        }
        if rises.ended { left } else { Span::ZERO }
    }
}
