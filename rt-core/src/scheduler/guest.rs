//! A scheduler on workers that it shares with others: when it may start a batch is decided for all of them together
//! ([`crate::sharing::Device`]), and what others run is none of its business.
//!
//! What it decides by itself stays as it is: which requests conform and are mandatory, which of those that wait make a batch,
//! what is refused, what is announced. What it may conclude from its own queue and its own batches alone it may no longer: a
//! busy period ends where no mandatory request of *any* service waits, and the longest batch is that of all.

use super::Scheduler;
use super::carry_in::CarryIn;
use super::demotion::Demotion;
use super::first::{Behind, Rest};
use super::queue::{DEMOTED, MANDATORY, OPTIONAL};
use super::types::{NEVER, Resolution, WorkerId};
use crate::counted::Counted;
use crate::safe_mode::Severity;
use crate::time::{Instant, Span};

/// What a scheduler knows of the workers that it shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    /// `P̂`: the longest batch that anyone may start.
    pub(super) longest: Span,
    /// By how much requests may be read and started late: the smallest guard of all, for lateness meets all of them.
    pub(super) guard: Span,
    /// Whether the batch to be formed may be as long as that: nothing mandatory waits for any of the services.
    pub(super) background: bool,
    /// By how much it may run over.
    pub(super) margin: Span,
    /// How often something happened that has to be waited out until [`Scheduler::all_clear`].
    pub(super) breaks: u64,
    /// Workers that its requests go on to.
    pub(super) behind: Behind,
    /// And how long they take.
    pub(super) rest: Rest,
    /// What it has done to the others.
    pub(super) demotion: Demotion,
    /// Whether batches may run over and it is not to tell: all together keep to a margin, which is watched for all who share the
    /// workers, or for all stages of a pipeline.
    pub(super) excused: bool,
    /// Stalls so far that all of them went through.
    pub(super) stalls: u64,
}

impl Scheduler {
    /// From now on it shares its workers, on which no batch takes longer than `longest`, with services of which the smallest
    /// guard is `guard`. Whose batch is due when is known where the workers are ([`crate::sharing::Device`]): it asks that only
    /// while batches have done harm, or when it has all workers itself.
    pub(crate) fn share(&mut self, longest: Span, guard: Span) {
        self.pool.forget_due();
        self.be_guest(longest, guard);
        // They meet all services at once, so it is the device that keeps account of them.
        self.stalls = None;
    }

    /// From now on when it may start a batch is decided elsewhere.
    pub(super) fn be_guest(&mut self, longest: Span, guard: Span) {
        let (behind, demotion) = (Behind::default(), Demotion::default());
        self.guest = Some(Guest {
            longest,
            guard,
            background: false,
            margin: Span::ZERO,
            breaks: 0,
            behind,
            rest: Rest::default(),
            demotion,
            excused: true,
            stalls: 0,
        });
        self.note_excused();
        // What the tests of shared workers leave is for batches that overrun.
        self.config.tolerance = Span::ZERO;
    }

    /// By how much a request may be read and started late.
    pub(crate) fn most_late(&self) -> Span {
        self.guest.map_or(self.config.guard, |guest| guest.guard)
    }

    /// What is kept back of each deadline; see [`crate::SchedulerConfig::reserve`].
    #[inline]
    pub(crate) fn reserve(&self) -> Span {
        self.reserve
    }

    /// The earliest deadline of the mandatory requests that wait; the end of time if none does.
    pub(crate) fn first_mandatory(&self) -> Instant {
        self.waiting.first_deadline(MANDATORY).unwrap_or(NEVER)
    }

    /// Whether a mandatory request waits.
    pub(crate) fn has_mandatory(&self) -> bool {
        !self.waiting.is_clear()
    }

    /// Whether the request that has just come, before which so many mandatory ones waited, is mandatory.
    pub(crate) fn has_taken_in(&self, before: usize, refused: Option<&Resolution>) -> bool {
        refused.map_or(self.waiting_mandatory() > before, |refused| refused.request.mandatory)
    }

    /// Requests waiting that the promises count on.
    #[must_use]
    pub fn waiting_mandatory(&self) -> usize {
        self.waiting.class(MANDATORY).len()
    }

    /// Whether a request waits that would be mandatory if its stream kept to its declaration.
    pub(crate) fn has_demoted(&self) -> bool {
        !self.waiting.class(DEMOTED).is_empty()
    }

    /// Its turn on a worker that is free: what the batch that it starts takes at most; `None` if nothing that waits could be
    /// served. As `background`, where nothing mandatory waits for anyone, a batch may be as long as any; it may run over by `margin`.
    pub(crate) fn take_turn(
        &mut self,
        now: Instant,
        worker: WorkerId,
        (background, margin): (bool, Span),
    ) -> Option<Span> {
        if let Some(guest) = &mut self.guest {
            (guest.background, guest.margin) = (background, margin);
        }
        // What could not be served is to be told of.
        self.changed = true;
        self.form_batch(now, worker)
    }

    /// Has the variant selected for the batch that `worker` starts: what that takes at most, which is no more than `longest` where
    /// nothing had to be served of it, and leaves `kept` for batches to run over where something had to.
    pub(crate) fn vary(&mut self, now: Instant, worker: WorkerId, (longest, kept): (Span, Span)) -> Span {
        let slack = self.slack(now, worker);
        let promised = self.pool.batch(worker).iter().any(|request| request.mandatory);
        let left = if promised { slack.saturating_sub(kept) } else { slack };
        self.select_within(now, worker, slack, longest.min(left));
        self.pool.left(now, worker)
    }

    /// By when the first of those that wait must be answered, and what full batches of all of them take; `None` if none does.
    pub(crate) fn backlog(&self) -> Option<(Instant, Span)> {
        let first = (0..3).filter_map(|class| self.waiting.first_deadline(class)).min()?;
        let kind = &self.config.workers[0];
        let batches = self.waiting.len().div_ceil(kind.batch) as u64;
        let work = self.pool.kind(0).time.as_nanos().saturating_mul(batches);
        Some((first - self.reserve, Span::from_nanos(work)))
    }

    /// The earliest deadline of those that wait and nothing is promised for, and what a batch of one takes at most; `None` if none
    /// does, or if one would be begun after a later one of its stream.
    pub(crate) fn first_ahead(&self) -> Option<(Instant, Span)> {
        let first =
            [DEMOTED, OPTIONAL].iter().filter_map(|&class| self.waiting.first_deadline(class)).min()?;
        let may = !self.in_order || self.waiting.is_clear();
        may.then_some((first, self.config.workers[0].profile.bound(1)))
    }

    /// Whether as many wait as make a full batch that pays; what that takes at most.
    pub(crate) fn full_batch(&self) -> (bool, Span) {
        let kind = self.pool.kind(0);
        (self.waiting.len() >= usize::from(kind.paying[kind.workers.batch - 1]), kind.time)
    }

    /// A batch on a worker that is free, of at most `longest`, that goes before what is mandatory: what it takes at most; `None` if
    /// nothing that waits and nothing is promised for could be served.
    pub(crate) fn take_ahead(&mut self, now: Instant, worker: WorkerId, longest: Span) -> Option<Span> {
        self.changed = true;
        self.form_batch_ahead(now, worker, longest)
    }

    /// By when the `nth` mandatory request that waits must be answered, less the guard; the end of time if fewer do.
    pub(crate) fn nth_due(&self, nth: usize) -> Instant {
        self.waiting.class(MANDATORY).get(nth).map_or(NEVER, |request| self.due(request))
    }

    /// The places of the streams that something is promised to.
    pub(crate) fn promised_slots(&self) -> impl Iterator<Item = u16> + '_ {
        self.streams.iter().filter(|stream| stream.spec.demand().is_some()).map(|stream| stream.id.slot)
    }

    /// The earliest instant at which the `nth` mandatory request to come of the stream in this place can come, from 0, if none comes
    /// before `from`; the end of time if nothing is promised there.
    pub(crate) fn nth_mandatory(&self, slot: u16, from: Instant, nth: u64) -> Instant {
        let stream = self.streams.at(slot).filter(|stream| stream.marks.may_ever_be() && !self.is_demoted());
        stream.map_or(NEVER, |stream| stream.nth_mandatory(from, nth))
    }

    /// How many of the streams that demand something, or have gone and still count, are not among those.
    pub(crate) fn left_out(&self, counted: &Counted) -> usize {
        self.ledger.left_out(counted)
    }

    /// Whether a stream waits to be added.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Something was begun that counts nobody who comes now: who comes waits to hear that nothing mandatory waits.
    pub(crate) fn await_clear(&mut self) {
        self.carry_in = CarryIn::Open;
        self.note_break();
    }

    /// Something happened that has to be waited out.
    pub(super) fn note_break(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.breaks += 1;
        }
    }

    /// When it has something to do if nothing happens before, if it need not be polled to tell.
    #[inline]
    pub(crate) fn waits_until(&self, now: Instant) -> Option<Instant> {
        let rests = !self.changed && now < self.next && self.told.is_empty();
        rests.then_some(self.next)
    }

    /// Whether a request that came has become the first of its class since this was asked last: else by when what waits must be
    /// answered is as it was.
    #[inline]
    pub(crate) fn has_new_first(&mut self) -> bool {
        core::mem::take(&mut self.leads)
    }

    /// The same after it has taken its turn: mostly there is nothing more to be done.
    pub(crate) fn rest_after_turn(&mut self, now: Instant) -> Option<Instant> {
        if self.is_normal() {
            self.rest(now);
        }
        self.waits_until(now)
    }

    /// The same where a batch has ended, and what became of its requests is told by [`Scheduler::tell_end`]: whether it has something
    /// to do at another instant than before, [`Scheduler::next_wake`]; `None` if it must be polled.
    #[inline]
    pub(crate) fn rest_after_end(&mut self, now: Instant) -> Option<bool> {
        if !self.is_normal() || !self.told.events.is_empty() {
            return None;
        }
        let moved = self.changed;
        if moved {
            self.rest(now);
        }
        debug_assert!(self.next <= self.next_wake(now), "what runs has no part in it");
        (now < self.next).then_some(moved)
    }

    /// Whether the end of a batch is of no matter but to its requests: it starts none itself, and is not to tell of those that run over.
    #[inline]
    pub(super) fn is_indifferent(&self) -> bool {
        self.is_excused() && self.is_normal()
    }

    /// How many ends of requests are yet to be told.
    #[inline]
    pub(crate) fn untold_ends(&self) -> usize {
        self.told.resolved.len()
    }

    /// The first of them, which then is told.
    #[inline]
    pub(crate) fn tell_end(&mut self) -> Option<Resolution> {
        self.told.resolved.pop_front()
    }

    /// The batch of another service, number `of`, took longer than it may, which harms this one: `seen` instead of `bound`.
    pub(crate) fn was_harmed(&mut self, now: Instant, of: usize, (bound, seen): (Span, Span)) {
        self.overrun(now, (bound, seen), Some(of));
    }

    /// Services have other numbers, of which its evidence names some.
    pub(crate) fn renumber(&mut self, number: impl Fn(u64) -> u64) {
        self.safe_mode.renumber(number);
    }

    /// The batch of another service that harmed this one has ended.
    pub(crate) fn is_relieved(&mut self, now: Instant) {
        self.safe_mode.put_off(now);
        self.changed = true;
    }

    /// From now on its batches may run over and it is not to tell, or no longer.
    pub(crate) fn set_excused(&mut self, now: Instant, excused: bool) {
        self.changed = true;
        self.look_at(now);
        if let Some(guest) = &mut self.guest {
            guest.excused = excused;
        }
        self.note_excused();
    }

    /// Whether they may. How long batches take of a service that is demoted is its own matter too.
    #[inline]
    pub(super) fn is_excused(&self) -> bool {
        debug_assert_eq!(self.excused, self.may_run_over());
        self.excused
    }

    /// What [`Scheduler::is_excused`] says has changed, perhaps.
    pub(super) fn note_excused(&mut self) {
        self.excused = self.may_run_over();
    }

    fn may_run_over(&self) -> bool {
        self.guest.is_some_and(|guest| guest.excused) && !self.is_demoted()
    }

    /// So many stalls that were declared have met its workers.
    pub(crate) fn set_stalls(&mut self, count: u64) {
        if let Some(guest) = &mut self.guest {
            guest.stalls = count;
        }
    }

    /// Dispatch came `delay` late, on workers that others share; as stalls that were declared explain, or not.
    pub(crate) fn was_late(&mut self, now: Instant, delay: Span, stalled: bool) {
        self.worst_delay = self.worst_delay.max(delay);
        if delay > self.most_late() && !stalled {
            self.raise_late(now, self.most_late(), delay);
        }
    }

    /// Whether it waits to hear that nothing mandatory waits for any of the services.
    pub(crate) fn awaits_clear(&self) -> bool {
        self.ledger.departed() > 0
            || self.carry_in != CarryIn::None
            || self.aftermath != CarryIn::None && self.safe_mode.severity() >= Severity::Safe
            || self.awaits_promotion()
    }

    /// No mandatory request waits for any of the services, and every worker is free within the longest batch: what was before
    /// is in the way of nothing that is to come.
    pub(crate) fn all_clear(&mut self) {
        self.clears += 1;
        self.ledger.clear();
        self.changed = true;
        (self.carry_in, self.aftermath) = (CarryIn::None, CarryIn::None);
    }
}
