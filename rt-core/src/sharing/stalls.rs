//! Stalls of shared workers: rare losses of time, for which each service keeps back as much of its deadline.
//!
//! Let all that batches take beyond their bounds, and dispatch beyond the guard, lie in intervals of at most `ℓ`, of which at most `k` end
//! in any half-open interval of `T` ([`crate::Stalls`]). To the tests this is lateness like that of dispatch: `k·ℓ` more of it
//! ([`Sharing::guard`]), and as much less of each `L`. They hold with that if
//!
//! ```text
//! β + D + ℓ  ≤  T ,   β = min { x > 0 : 2·n·D + W(x) ≤ n·x } ,   D the largest  L + guard  of those that are promised something,
//! W(x) = Σ P_j·⌈α_j(x)/B_j⌉  by deadlines, or by turns the largest
//! W(x) = P_s·J + Σ_{i≠s} P_i·min( ⌈J/k_s⌉·k_i , α_i(x) ) ,   J = ⌈α_s(x)/B_s⌉ .
//! ```
//!
//! The proof is in `docs/guarantee.md`: by `β` behind the arrival of whatever is counted the workers have begun all that came, so the
//! request that is looked at came before.

use alloc::vec::Vec;

use super::{Demands, Rule, SharedService, Sharing, SharingError};
use crate::admission::LONGEST_BUSY;
use crate::busy::{MAX_RISES, MandatoryCurve};
use crate::growth::Envelope;
use crate::time::{MAX_SPAN, Span};

/// What needs so much of the workers does not catch up in a time that anybody waits for.
const NEARLY_ALL: f64 = 1.0 - 1e-7;

impl Sharing {
    /// Whether no more stalls can meet one request than one window has.
    pub(super) fn check_stalls(&self, demands: &[Demands]) -> Result<(), SharingError> {
        let Some(stalls) = self.stalls else { return Ok(()) };
        let promised: Vec<usize> = (0..demands.len()).filter(|&s| !demands[s].is_empty()).collect();
        let deadline = promised.iter().map(|&s| self.services[s].latency + self.guard).max();
        let deadline = deadline.unwrap_or(Span::ZERO);
        let (window, more) = (stalls.window(), deadline + stalls.length());
        let busy = |first: Option<usize>| self.busy(demands, first, (deadline, window.max(LONGEST_BUSY)));
        let busy = match self.rule {
            Rule::Earliest => busy(None),
            Rule::Turns => {
                promised.iter().try_fold(Span::ZERO, |longest, &s| busy(Some(s)).map(|b| b.max(longest)))
            }
        };
        match busy {
            Some(busy) if busy + more <= window => Ok(()),
            busy => {
                let needed = busy.map_or(MAX_SPAN, |busy| busy + more);
                Err(SharingError::Stalls { needed, window })
            }
        }
    }

    /// `β` by deadlines, or by turns as the service `first` is looked at; `None` if that is not seen by `limit`.
    fn busy(
        &self,
        demands: &[Demands],
        first: Option<usize>,
        (deadline, limit): (Span, Span),
    ) -> Option<Span> {
        let needs = |(of, service): (&Demands, &SharedService)| Envelope::of(of).utilisation(service);
        let needed: f64 = demands.iter().zip(&self.services).map(needs).sum();
        if needed >= self.workers as f64 * NEARLY_ALL {
            return None;
        }
        let mut curves: Vec<_> = demands.iter().map(|of| MandatoryCurve::new(of)).collect();
        let n = self.workers as u128;
        for _ in 0..MAX_RISES {
            let busy = 2 * u128::from(deadline.as_nanos()) + self.to_begin(&curves, first).div_ceil(n);
            let busy = Span::from_nanos(u64::try_from(busy).ok()?);
            let next = curves.iter().map(MandatoryCurve::next_rise).min().unwrap_or(MAX_SPAN);
            if busy < next {
                return Some(busy);
            }
            if busy > limit {
                return None;
            }
            curves.iter_mut().filter(|curve| curve.next_rise() == next).for_each(MandatoryCurve::rise);
        }
        None
    }

    /// `W` of what can have come.
    fn to_begin(&self, curves: &[MandatoryCurve], first: Option<usize>) -> u128 {
        let batches = |s: usize| curves[s].requests().div_ceil(self.services[s].batch as u64);
        let count = |s: usize| match first {
            Some(first) if first != s => {
                let turns = batches(first).div_ceil(self.services[first].turn.into());
                turns.saturating_mul(self.services[s].turn.into()).min(curves[s].requests())
            }
            _ => batches(s),
        };
        self.work(&(0..curves.len()).map(count).collect::<Vec<_>>())
    }
}
