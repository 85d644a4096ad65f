//! New streams beside long batches: when what is promised to them no longer depends on what was started before.
//!
//! A batch longer than `P` was safe for the streams that its shield counted. A stream that comes later and bursts at
//! once may find all workers busy for longer than Theorem A reckons with. It may be promised something from an
//! instant `s` on at which no worker still takes more than `P` and no mandatory request waits: those that come from
//! `s` on find every worker free by `s + P`, as after any start that leaves none waiting. It may earlier, if the
//! shield of the new load would let the state at `s` come about: its (1) and (2), with what runs as the long batch.

use super::{MAX_WORKERS, Scheduler, WorkerState};
use crate::shield::Shield;
use crate::stream::StreamSpec;
use crate::time::{Instant, Span};

/// What is known of batches that were granted more than `P`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Long {
    /// Nothing that is to come depends on one.
    #[default]
    None,
    /// One was granted.
    Granted,
    /// None runs for more than `P` any more; the idle epoch when that was seen.
    Over(u64),
}

impl Scheduler {
    /// Whether one more stream like `spec` can be added at any time, for the shield that is set counts it already.
    #[must_use]
    pub fn counts_another(&self, spec: &StreamSpec) -> bool {
        let alike = self.streams.iter().flatten().filter(|s| s.spec.demand() == spec.demand()).count();
        spec.demand().is_none() || self.shield.as_ref().is_some_and(|shield| alike < shield.counts(spec))
    }

    /// Whether streams may be added at `now` whose load `shield` counts beside that of those that are there:
    /// nothing promised to them is put at risk by batches longer than `P` that were started before. Always so if
    /// there were none. If not, take the shield away ([`Scheduler::set_shield`]), so that there will be no more,
    /// and ask again: it is so within a deadline and the busy period that follows.
    pub fn is_ready_for(&mut self, now: Instant, shield: Option<&Shield>) -> bool {
        if matches!(self.selection.long, Long::None) {
            return true;
        }
        let mut left: heapless::Vec<Span, MAX_WORKERS> = self.workers.iter().map(|w| w.left(now)).collect();
        left.sort_unstable();
        let longest = left.pop().unwrap_or(Span::ZERO);
        let time = self.kind(0).batch_time();
        let (idle, epoch) = self.idle_epoch();
        let settled = match self.selection.long {
            Long::None => true,
            // A batch that is overdue may still take any time.
            _ if self
                .workers
                .iter()
                .any(|w| matches!(w.state, WorkerState::Busy { due, .. } if due < now)) =>
            {
                false
            }
            _ if longest > time => false,
            Long::Granted => {
                self.selection.long = Long::Over(epoch);
                idle
            }
            Long::Over(before) => idle || epoch != before,
        };
        if settled {
            self.selection.long = Long::None;
            return true;
        }
        // Beyond `P`, for up to `P` the shield is not asked.
        let length = longest.max(time + Span::from_nanos(1));
        shield.is_some_and(|shield| shield.allows(now, length, &left, self.mandatory_due()))
    }
}
