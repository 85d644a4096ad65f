//! Stalls of a pipeline: rare losses of time at whatever stages, for which a part of the deadline is kept back.
//!
//! Let all that batches of any stage take beyond their bounds, and dispatch beyond the guard, lie in intervals of at most `ℓ`, of which
//! at most `k` end in any half-open interval of `T` ([`crate::Stalls`]). Then each mandatory source is answered as a whole within
//! the bound of Theorems P1 and P2 and `k·ℓ`, provided that
//!
//! ```text
//! β + D + ℓ  ≤  T ,   β = min { x > 0 : D + f_0(α_m(x)) ≤ x } .
//! ```
//!
//! The proof is in `docs/guarantee.md`: both theorems go back from stage to stage to one instant; read on a clock that stands still in each
//! stall behind it, every batch keeps its bound. By `β` behind that instant all that can have come by then is answered, what runs over
//! within the margin and longer batches counted in the `D`; so the source that is looked at came before.

use super::path::Tables;
use super::{Pipeline, PipelineError};
use crate::admission::{LONGEST_BUSY, Load};
use crate::busy::{MAX_RISES, MandatoryCurve};
use crate::stalls::Stalls;
use crate::time::{MAX_SPAN, Span};

impl Pipeline {
    /// The deadline less what stalls may take: within it each mandatory source is answered as a whole where none comes.
    #[must_use]
    pub fn latency(&self) -> Span {
        self.deadline.saturating_sub(Stalls::reserve_of(self.stalls))
    }

    /// Whether no more stalls can meet one source than one window has.
    pub(super) fn check_stalls(
        &self,
        tables: &mut Tables,
        load: &Load,
        catches_up: bool,
    ) -> Result<(), PipelineError> {
        let Some(stalls) = self.stalls else { return Ok(()) };
        let window = stalls.window();
        let busy = catches_up.then(|| self.busy(tables, load, window.max(LONGEST_BUSY)));
        match busy.flatten() {
            Some(busy) if busy + self.deadline + stalls.length() <= window => Ok(()),
            busy => {
                let needed = busy.map_or(MAX_SPAN, |busy| busy + self.deadline + stalls.length());
                Err(PipelineError::Stalls { needed, window })
            }
        }
    }

    /// `β`; `None` if that is not seen by `limit`, or there is too much to look at.
    fn busy(&self, tables: &mut Tables, load: &Load, limit: Span) -> Option<Span> {
        let mut curve = MandatoryCurve::new(load);
        for _ in 0..MAX_RISES {
            let busy = self.deadline + Span::from_nanos(tables.end(curve.requests())?);
            if busy < curve.next_rise() {
                return Some(busy);
            }
            if busy > limit {
                return None;
            }
            curve.rise();
        }
        None
    }
}
