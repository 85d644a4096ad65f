//! After an engine has failed on a batch: what nothing is promised for keeps out of the batches of what is.
//!
//! An engine that returns an error, as for an input that asks for what its model does not have, misses the whole batch. Whose
//! request it was cannot be told. A batch in which nothing had to be served breaks no promise; one that held both kinds may have
//! been spoilt by what nothing was promised for. So for a while these run by themselves, which no promise counts on their not
//! doing: mandatory requests go first as ever, and a batch of others is one that the blocking term allows for. The while doubles
//! each time that a promise was harmed, so that one client can do so ever more rarely.

use super::Scheduler;
use super::types::Request;
use crate::time::{Instant, Span};

/// The longest while.
const LONGEST: Span = Span::from_millis(3_600_000);

/// Until when they keep apart, and for how long they did after the last batch that harmed a promise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Apart {
    until: Instant,
    span: Span,
}

impl Scheduler {
    /// The engine failed on a batch: whether it held a request that had to be served, which breaks the promise, and one that did not.
    pub(crate) fn batch_failed(&mut self, now: Instant, (promised, others): (bool, bool)) {
        if promised {
            self.raise_worker_lost(now, 1);
        }
        if others {
            let apart = &mut self.apart;
            let doubled = if promised { apart.span + apart.span } else { apart.span };
            apart.span = doubled.clamp(self.config.safe_mode.clean.min(LONGEST), LONGEST);
            apart.until = now + apart.span;
            self.changed = true;
        }
    }

    /// Whether these requests hold some that have to be served, and some that do not.
    pub(crate) fn kinds_of(batch: &[Request]) -> (bool, bool) {
        (batch.iter().any(|request| request.mandatory), batch.iter().any(|request| !request.mandatory))
    }

    /// Whether what nothing is promised for keeps out of the batches of what is. Without background all that comes is declared, and
    /// the refinement counts on full batches.
    #[inline]
    pub(crate) fn keeps_apart(&self, now: Instant) -> bool {
        now < self.apart.until && self.config.background
    }
}
