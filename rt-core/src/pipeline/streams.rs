//! Streams of a pipeline come, go, and begin anew.
//!
//! *Why a stream may begin anew at once.* What a promise rests on is how many mandatory sources may come in any stretch of time, and
//! how many may wait and run. Arrivals are held against one declaration before and after, and the word goes on, so the sources
//! of both clients together are no more than admission counts of one stream; no test and no shield has to be asked again. What is
//! cancelled of those before no longer waits: whatever comes behind it begins no later. What runs of them at any stage goes on to its end, as
//! Theorems P1 and P2 count it: at each stage they go back to the last instant at which nothing waits that goes before a request
//! or is it, and from then on count all that is *begun* before it, in full batches, of sources that came within the time looked
//! at, whoever they are of; what is begun and then ends unheard has been counted, and becomes nothing at the stages behind. So nothing has
//! to be waited out, as it has where a stream leaves: behind that a newcomer may begin its curve afresh, on top of what
//! runs and waits of the one that left.

use super::scheduler::PipelineScheduler;
use crate::stream::{MissReason, StreamId, StreamSpec};
use crate::time::Instant;
use crate::{Joined, Newcomer, Retired, StreamError};

impl PipelineScheduler {
    /// A stream to be added: all that is to be allocated for it.
    #[must_use]
    pub fn newcomer(&self, spec: StreamSpec) -> Newcomer {
        self.first.newcomer(spec)
    }

    /// [`crate::Scheduler::try_add_stream`] of one that was admitted beside [`crate::Scheduler::load`] of the first stage.
    ///
    /// # Errors
    /// As there.
    pub fn try_add_stream(&mut self, now: Instant, newcomer: Newcomer) -> Result<Joined, StreamError> {
        // What was granted more than a full batch was safe for those that were there. Said once: each time begins the wait anew.
        if core::mem::take(&mut self.longer.since_calm) {
            self.first.await_clear();
        }
        // Who is idle is not polled.
        self.settle(now);
        let joined = self.first.try_add_stream(now, newcomer);
        self.longer.recount = true;
        if let Ok(Joined::Added(id, _)) = &joined {
            self.forget_turns(*id);
        }
        joined
    }

    /// [`crate::Scheduler::add_stream`].
    ///
    /// # Errors
    /// As there.
    pub fn add_stream(&mut self, now: Instant, spec: StreamSpec) -> Result<StreamId, StreamError> {
        match self.try_add_stream(now, self.newcomer(spec))? {
            Joined::Added(id, _) => Ok(id),
            Joined::Wait(_) | Joined::Stale(_) => {
                self.first.withdraw();
                Err(StreamError::Wait)
            }
        }
    }

    /// [`crate::Scheduler::remove_stream`]: what has begun of it is cancelled too. It counts for newcomers until nothing is in their way at
    /// any stage. Linear in the sources that have begun.
    pub fn remove_stream(&mut self, now: Instant, id: StreamId) -> Retired {
        let retired = self.first.remove_stream(id);
        self.close_all(now, MissReason::Cancelled, |request| request.stream == id);
        retired
    }

    /// [`crate::Scheduler::restart_stream`]: what waits and what has begun of it is cancelled, what runs ends unheard. Nobody's promise is
    /// touched. Linear in the sources that have begun, and in what of it waits.
    pub fn restart_stream(&mut self, now: Instant, id: StreamId) -> Option<StreamId> {
        let fresh = self.first.restart_stream(id)?;
        self.close_all(now, MissReason::Cancelled, |request| request.stream == id);
        Some(fresh)
    }

    /// A stream is new in its place.
    pub(super) fn forget_turns(&mut self, id: StreamId) {
        self.later.iter_mut().for_each(|stage| stage.planner.forget(usize::from(id.slot)));
    }
}
