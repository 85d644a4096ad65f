//! A scheduler whose workers are the first stage of a pipeline ([`crate::pipeline::PipelineScheduler`]): what a batch answers
//! goes on from there, and the request ends where all that it became has ended.
//!
//! It is a guest as on shared workers: when a batch starts, and when nothing that was begun before is in the way of what is to
//! come, is decided for all stages together.

use super::pool::Pool;
use super::types::{Outcome, Request};
use super::{Scheduler, queue};
use crate::safe_mode::{Cause, Evidence};
use crate::stream::{MissReason, StreamId};
use crate::time::{Instant, Span};

/// Workers of the stages behind the first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Behind {
    pub(crate) alive: usize,
    pub(crate) all: usize,
    /// A stage has none left: nothing can be answered.
    pub(crate) cut: bool,
}

/// The least time that the stages behind the first take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// At most: the deadline of what must be served leaves that.
    pub(crate) most: Span,
    /// Most likely: the rest leaves that before its answer is wanted.
    pub(crate) likely: Span,
}

impl Scheduler {
    /// From now on its batches, none of which takes longer than a full one, are those of the first stage: `behind` it are other
    /// workers, which take `rest`; so many requests may be beyond it, and one may be unanswered for as long as `life`. Allocates.
    pub(crate) fn lead(&mut self, behind: Behind, beyond: usize, life: Span, rest: Rest) {
        self.life = life;
        self.be_guest(self.pool.kind(0).time, self.config.guard);
        self.told.resolved.reserve(self.told.resolved.capacity() + beyond);
        if let Some(guest) = &mut self.guest {
            (guest.behind, guest.rest) = (behind, rest);
        }
    }

    /// What its answers still take on other workers: nothing if they go to none.
    #[inline]
    pub(super) fn rest_behind(&self) -> Rest {
        self.guest.map_or(Rest::default(), |guest| guest.rest)
    }

    /// Whether what it answers goes on to other workers.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        self.guest.is_some_and(|guest| guest.behind.all > 0)
    }

    /// Its workers.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The same, to be changed.
    pub(crate) fn pool_mut(&mut self) -> &mut Pool {
        self.changed = true;
        &mut self.pool
    }

    /// Whether batches are started for mandatory requests alone.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Places for streams, free ones among them.
    pub(crate) fn places(&self) -> usize {
        self.streams.places()
    }

    /// Gives up what waits, is promised nothing, and would be answered as a whole too late if that took until `end`.
    pub(crate) fn shed_before(&mut self, now: Instant, end: Instant) {
        let rest = self.rest_behind();
        for (class, reach) in [(queue::DEMOTED, end - rest.most), (queue::OPTIONAL, end - rest.likely)] {
            while let Some(request) = self.waiting.pop_before(class, reach) {
                self.changed = true;
                self.give_up(now, request, MissReason::Shed);
            }
        }
    }

    /// Whether anything is promised to anyone, or was to one that has departed and still counts.
    pub(crate) fn promises(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// Requests of a class that wait, in order.
    pub(crate) fn waiting_of(&self, class: usize) -> impl Iterator<Item = &Request> {
        self.waiting.class(class).from(0)
    }

    /// Ends a request that has gone on. It is counted if its stream is still there.
    pub(crate) fn close(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        self.changed = true;
        if let Outcome::Missed(reason) = outcome {
            self.note_missed(now, request, reason);
        }
        self.end(now, request, outcome);
    }

    /// A batch of a stage has ended whose engine took `time` where it may take `bound`, within the margin or not.
    pub(crate) fn count_overrun(&mut self, time: Span, bound: Span) {
        self.overruns += u64::from(time > bound);
    }

    /// A batch of stage `stage` that began and was due at these instants has ended, after its engine ran for `time`. Its requests
    /// go on: each is ended by [`Scheduler::close`].
    pub(crate) fn stage_ended(
        &mut self,
        now: Instant,
        stage: usize,
        ran: (Instant, Instant, bool),
        time: Span,
    ) {
        let (started, due, _) = ran;
        self.worst_handover = self.worst_handover.max(now.since(started).saturating_sub(time));
        if now > due {
            self.stage_ran_over(now, stage, ran, Some(time));
        }
    }

    /// A batch of stage `stage` that began and was due at these instants ended `now`, or has not ended (`None`),
    /// after its engine ran for `time`.
    pub(crate) fn stage_ran_over(
        &mut self,
        now: Instant,
        stage: usize,
        (started, due, reported): (Instant, Instant, bool),
        time: Option<Span>,
    ) {
        let (bound, held) = (due.since(started), now.since(started));
        match time {
            _ if reported => self.is_relieved(now),
            Some(time) if time <= bound => self.raise_late(now, bound, held),
            _ => self.overrun(now, (bound, time.unwrap_or(held)), stage.checked_sub(1)),
        }
    }

    /// A result of a request of `stream` became `seen` requests of stage `stage`, of at most `limit`: those beyond are dropped, so
    /// nobody else is harmed. To be told of a service whose batches run all stages of a pipeline; a
    /// [`crate::pipeline::PipelineScheduler`] sees it by itself.
    pub fn fanned_out(&mut self, now: Instant, stream: StreamId, stage: usize, (limit, seen): (u64, u64)) {
        let evidence = Evidence { limit, seen, window: stage as u64, stream: Some(stream) };
        self.suspend(now, stream, Cause::FanOutExcess, evidence, now);
    }

    /// Workers behind were lost, or are back.
    pub(crate) fn set_behind(&mut self, now: Instant, behind: Behind) {
        let Some(guest) = &mut self.guest else { return };
        let lost = behind.alive < guest.behind.alive;
        let cut = behind.cut && !guest.behind.cut;
        guest.behind = behind;
        self.count_workers(now);
        if lost {
            self.raise_worker_lost(now, 0);
        }
        if cut {
            self.give_up_all(now, MissReason::WorkerLost);
        }
    }

    /// How often something happened that has to be waited out; see [`Scheduler::awaits_clear`].
    pub(crate) fn breaks(&self) -> u64 {
        self.guest.map_or(0, |guest| guest.breaks)
    }
}
