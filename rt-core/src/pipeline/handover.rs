//! The scheduler of one pipeline takes over from that of another: with other stages, workers, times or limits.
//!
//! *Why it is safe.* As of a scheduler by itself ([`crate::Scheduler::hand_over`]), at an instant `s` at which no worker of any stage
//! runs anything and no mandatory request waits at any. From then on the new scheduler is one that starts at `s` with free
//! workers at each stage, and what its admission counts comes at `s` or later; `s` is `c_i` of every stage (see `calm.rs`).

use super::scheduler::PipelineScheduler;
use crate::stream::{MissReason, StreamId, StreamSpec};
use crate::time::Instant;
use crate::{HandOverError, Retired};

impl PipelineScheduler {
    /// While on, batches are started at each stage for mandatory requests alone, which others fill up as ever; see
    /// [`crate::Scheduler::set_quiet`].
    pub fn set_quiet(&mut self, quiet: bool) {
        self.first.set_quiet(quiet);
    }

    /// [`crate::Scheduler::expect_streams`].
    pub fn expect_streams<'a>(&mut self, places: usize, streams: impl IntoIterator<Item = &'a StreamSpec>) {
        self.first.expect_streams(places, streams);
        self.resize();
    }

    /// [`crate::Scheduler::leftovers`].
    pub fn leftovers(&mut self) -> Retired {
        self.first.leftovers()
    }

    /// [`crate::Scheduler::hand_over`], which need not be to one of the same stages: what has begun and nothing was promised for is
    /// cancelled too, and the shield of `next` is to be set anew.
    ///
    /// # Errors
    /// As there; nothing has changed then.
    pub fn hand_over(
        &mut self,
        now: Instant,
        next: &mut Self,
        ended: &[StreamId],
    ) -> Result<(), HandOverError> {
        self.first.check_heir(&next.first, ended)?;
        if next.running() > 0 {
            return Err(HandOverError::NotNew);
        }
        let promised = (0..=self.later.len()).map(|stage| self.waiting_mandatory(stage));
        let (running, waiting) = (self.running(), promised.sum());
        if running + waiting > 0 {
            return Err(HandOverError::Busy { running, waiting });
        }
        self.close_all(now, MissReason::Cancelled, |_| true);
        self.first.end_streams(now, ended);
        self.first.pass_on(now, &mut next.first);
        next.resize();
        next.longer.recount = true;
        Ok(())
    }

    /// [`crate::Scheduler::redeclare`], which asks that nothing waits or runs at any stage.
    pub fn redeclare(&mut self, id: StreamId, spec: StreamSpec) -> Option<Retired> {
        if self.open() + self.running() > 0 {
            return None;
        }
        let before = self.first.redeclare(id, spec)?;
        self.forget_turns(id);
        self.longer.recount = true;
        Some(before)
    }

    /// Has every stage know as many streams as the first. Allocates if they are more.
    fn resize(&mut self) {
        let places = self.first.places();
        for later in &mut self.later {
            later.waiting.resize(places);
            later.planner.resize(places);
        }
    }
}
