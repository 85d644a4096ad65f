//! Stalls that constraints absorb: around a stall requests that must be served are missed, and a denser word makes up for it.
//!
//! Let all that batches take beyond `P(b)`, and dispatch and reading beyond `δ`, lie in stalls, at most `k` of up to `ℓ` in any
//! `T`, and let `R` be a *recovery* with
//!
//! ```text
//! R ≥ β ,  β the longest busy period after a delay of k·ℓ + 2·δ ,   T ≥ R + max( ℓ , D + τ ) .
//! ```
//!
//! *Who is missed.* Let a stall begin at `b`. What came `D` or more before `b` was answered by `b`. Behind the stall the
//! workers catch up by `b + R` at the latest, and what comes from then on counts from an instant behind the stall, as in the
//! proof of Theorem A. So only requests that come in an interval of `Λ = D + R - 1 ns` can be missed, and of a stream no
//! more than `μ = ⌈ρ·α(Λ)⌉` that must be served.
//!
//! *What is served.* With `ρ ≥ (K - m + k·μ)/K` for each of its `(m, K)` any `K` requests in a row hold `K - m + k·μ` that must
//! be served. If they come within `T - Λ` at most `k` stalls cost some of them, so `(m, K)` is kept. Of more stalls each costs
//! up to `μ` more. A stream that sends as fast as it may sends `K` within `τ ≤ T - Λ`; one that is slower may be met by more
//! stalls.
//!
//! That the workers catch up takes that each batch, while more than it holds must be served, is full: [`crate::Scheduler`] does not
//! make it smaller for a request that is nearly late, as it does otherwise.

use crate::admission::AdmissionError;
use crate::arrival::ArrivalBound;
use crate::curve::ArrivalCurve;
use crate::stalls::{MAX_STALLS, Stalls};
use crate::stream::StreamSpec;
use crate::time::{Instant, Span};
use crate::word::Density;

impl Stalls {
    /// `Λ`: requests that one stall can make miss come within so long; `None` if it can make none miss.
    #[must_use]
    pub fn damage(&self, deadline: Span) -> Option<Span> {
        Some((deadline + self.recovery()?).saturating_sub(Span::from_nanos(1)))
    }

    /// `T - Λ`: of requests that come within so long at most as many stalls as may be in a window make some miss.
    #[must_use]
    pub fn spans(&self, deadline: Span) -> Option<Span> {
        Some(self.window().saturating_sub(self.damage(deadline)?))
    }

    /// `μ` and `ρ`: how many requests of `spec` that must be served one stall can make miss, and the share of them that must
    /// be for its constraints to be kept.
    ///
    /// # Errors
    /// If a constraint leaves no room for what stalls can make miss.
    pub fn absorb(&self, spec: &StreamSpec, deadline: Span) -> Result<(u64, Density), AdmissionError> {
        let base = spec.constraints().density();
        let Some((damage, arrivals)) = self.damage(deadline).zip(spec.arrivals()) else {
            return Ok((0, base));
        };
        if base.numerator() == 0 {
            return Ok((0, base));
        }
        let (come, many) = (arrivals.count(damage), u64::from(self.count()));
        let (mut misses, mut density) = (0, base);
        loop {
            let more = density.ceil_of(come);
            if more <= misses {
                return Ok((misses, density));
            }
            misses = more;
            for &constraint in spec.constraints().as_slice() {
                let room = u64::from(constraint.misses()).checked_sub(many.saturating_mul(misses));
                let share = room.and_then(|left| {
                    Density::new(constraint.window() - u32::try_from(left).ok()?, constraint.window())
                });
                let no = AdmissionError::Absorbed { constraint, misses };
                density = density.max(share.ok_or(no)?);
            }
        }
    }

    /// How large a window of stalls must be for `streams`, if it is at least the one that is declared.
    pub(crate) fn needed_window(&self, deadline: Span, streams: impl Iterator<Item = Span>) -> Option<Span> {
        let longest = streams.max().unwrap_or(Span::ZERO);
        Some(self.recovery()? + self.length().max(deadline + longest))
    }
}

/// Within what time a stream that sends as fast as it may for long has sent as many as its longest constraint counts.
pub(crate) fn regular_span(spec: &StreamSpec) -> Span {
    let longest = spec.constraints().as_slice().iter().map(|c| c.window()).max().unwrap_or(0);
    spec.arrivals().filter(|_| longest > 0).map_or(Span::ZERO, |arrivals| time_of(arrivals, longest))
}

fn time_of(arrivals: &ArrivalCurve, requests: u32) -> Span {
    let one = |bound: &ArrivalBound| {
        let (count, step) = bound.rate();
        let shift = if let ArrivalBound::Periodic { jitter, .. } = bound { *jitter } else { Span::ZERO };
        let time = (u128::from(requests) * u128::from(step.as_nanos())).div_ceil(u128::from(count));
        Span::from_nanos(u64::try_from(time).unwrap_or(u64::MAX)) + shift
    };
    arrivals.bounds().iter().map(one).max().unwrap_or(Span::ZERO)
}

/// The last requests of a stream that had to be served and were missed where stalls are absorbed: of those of each stall the
/// last, so many stalls back as are looked for in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Struck {
    /// The first that came of the latest; then of each its last: number and instant.
    first: Option<Instant>,
    last: [Option<(u64, Instant)>; MAX_STALLS + 1],
}

impl Struck {
    /// Request number `seq`, which came at `at`, is missed; those that one stall makes miss come within `damage`.
    pub(crate) fn note(&mut self, seq: u64, at: Instant, damage: Span) {
        if self.first.is_none_or(|first| at > first + damage) {
            self.first = Some(at);
            self.last.rotate_right(1);
            self.last[0] = Some((seq, at));
        } else if self.last[0].is_none_or(|(latest, _)| latest < seq) {
            self.last[0] = Some((seq, at));
        }
    }

    /// Whether of the requests from number `from` on, up to the last one that is known of, two came more than `within` apart.
    pub(crate) fn spans_more(&self, from: u64, within: Span) -> bool {
        let [Some((_, latest)), before @ ..] = self.last else { return false };
        before.iter().flatten().any(|&(seq, at)| seq >= from && latest > at + within)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::constraint::{Constraint, ConstraintSet};
    use std::vec::Vec;

    fn ms(t: u64) -> Span {
        Span::from_millis(t)
    }

    fn every(period: u64, constraints: &[(u32, u32)]) -> StreamSpec {
        let list: Vec<_> =
            constraints.iter().map(|&(m, k)| Constraint::any_miss(m, k).expect("m < k")).collect();
        let bound = ArrivalBound::periodic(ms(period), Span::ZERO).expect("valid");
        StreamSpec::promised(
            ConstraintSet::new(&list).expect("few"),
            ArrivalCurve::new(&[bound]).expect("one"),
        )
    }

    /// One request in 33 ms, a deadline of 20 ms, a stall of 30 ms: 79 ms hold at most three.
    #[test]
    fn the_word_is_as_dense_as_the_misses_of_a_stall_ask_for() {
        let stalls = Stalls::new(1, ms(10_000), ms(30)).expect("valid").absorbed(ms(60));
        let absorb = |spec| stalls.absorb(&spec, ms(20));
        assert_eq!(absorb(every(33, &[(5, 10)])), Ok((3, Density::new(8, 10).expect("a share"))));
        // Half of four are two; a word that leaves room for two is denser, but no more than three of them are ever in it.
        assert_eq!(absorb(every(25, &[(9, 18)])), Ok((3, Density::new(12, 18).expect("a share"))));
        let constraint = Constraint::any_miss(2, 10).expect("valid");
        assert_eq!(absorb(every(33, &[(2, 10)])), Err(AdmissionError::Absorbed { constraint, misses: 3 }));
        assert!(absorb(every(33, &[(5, 10), (0, 1)])).is_err(), "what allows no miss absorbs none");
        let twice = Stalls::new(2, ms(10_000), ms(30)).expect("valid").absorbed(ms(60));
        assert!(twice.absorb(&every(33, &[(5, 10)]), ms(20)).is_err());
        assert_eq!(regular_span(&every(33, &[(5, 10)])), ms(330));
    }

    #[test]
    fn requests_that_stalls_made_miss_are_told_apart_by_when_they_came() {
        let mut struck = Struck::default();
        let at = |t: u64| Instant::from_nanos(t);
        let span = Span::from_nanos;
        for (seq, t) in [(7, 100), (9, 120), (8, 110)] {
            struck.note(seq, at(t), span(50));
        }
        assert!(!struck.spans_more(0, span(500)), "one stall");
        struck.note(11, at(1_000), span(50));
        assert!(struck.spans_more(9, span(500)) && !struck.spans_more(10, span(500)));
        assert!(!struck.spans_more(9, span(880)), "120 to 1000");
    }
}
