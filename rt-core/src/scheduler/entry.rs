//! Entry: a request comes in, is judged by what its stream declares and takes its place, or is refused at once.

use super::queue::{MANDATORY, OPTIONAL};
use super::types::Note;
use super::{Arrival, Outcome, Request, Resolution, Scheduler};
use crate::safe_mode::{Alarm, Cause, Evidence};
use crate::stalls::StallMonitor;
use crate::stream::{MissReason, StreamId};
use crate::time::{Instant, Span};
use crate::word::Class;

impl Scheduler {
    /// As [`Scheduler::handle_arrival`], or without `room` as [`Scheduler::handle_refused`], for a request that its client
    /// says it sent at `sent`: from then its deadline counts, and its stream is held to its declaration by these instants. One
    /// after `arrival.at`, or before the stream's last one, counts as that.
    ///
    /// Without background it is not asked: all counts from `arrival.at`.
    ///
    /// Whoever sends may say what it likes. What was sent more than the guard before `now` is never mandatory, so the others'
    /// promises stand, and suspends the promise to its own stream as late dispatch (`docs/guarantee.md`).
    pub fn handle_sent(
        &mut self,
        now: Instant,
        arrival: Arrival,
        sent: Instant,
        room: bool,
    ) -> Option<Resolution> {
        self.handle_wanted(now, arrival, (sent, self.config.deadline), room)
    }

    /// As [`Scheduler::handle_sent`], for a request whose answer its client wants `within` less than the deadline.
    ///
    /// What is promised stays as it is, with the deadline: a mandatory request keeps its place and is executed, one that is not
    /// counts as if its deadline were that. Either is missed if it is not answered within that time. A violation over a window that holds a
    /// mandatory request which was in time by the deadline, and missed for this alone, concerns the stream alone.
    pub fn handle_wanted(
        &mut self,
        now: Instant,
        arrival: Arrival,
        (sent, within): (Instant, Span),
        room: bool,
    ) -> Option<Resolution> {
        self.take_in(now, arrival, (sent.min(arrival.at), within), room)
    }

    /// Whether a request of `id` that was sent at `sent` would be refused at `now` whatever it brings, as nothing is promised
    /// for it and it can no longer be answered in time: then what it brings need not be taken in, and
    /// [`Scheduler::handle_sent`] without room says why. Records nothing.
    #[must_use]
    pub fn is_ruled_out(&self, now: Instant, id: StreamId, sent: Instant) -> bool {
        let Some(stream) = self.streams.get(id) else { return true };
        // At a calm instant it may be the first request of a weaker promise.
        let stands = stream.suspended.is_none() || stream.ladder.is_some() && self.is_calm(now);
        if stream.police.is_some() && stands {
            return false;
        }
        let sent = if self.config.background { sent.max(stream.latest) } else { now };
        let rest = self.rest_behind();
        let deadline = sent + (self.config.deadline + rest.most.saturating_sub(rest.likely));
        let free = self.planner.spreads() && stream.is_free(sent);
        let shed = || (free || !stream.marks.may_be_marked()) && self.is_hopeless(now, deadline);
        let stays = || match self.planner.spreads() {
            true => self.is_candidate(now, (id, stream.counts.arrived), deadline),
            false => self.planner.displaced(&self.waiting, id).is_some(),
        };
        deadline <= now || shed() && !stays()
    }

    /// A request that came at `arrival.at`, was sent at `sent` and whose answer is wanted `within` that time; `welcome` if the
    /// caller has room for it.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        arrival: Arrival,
        (sent, within): (Instant, Span),
        welcome: bool,
    ) -> Option<Resolution> {
        self.selection.arrived(now);
        let Arrival { stream: id, token, at, class: of } = arrival;
        // Without background the refinement counts what keeps workers busy by when it is read.
        let stated = sent < at && self.config.background;
        let sent = if stated { sent } else { at };
        let most_late = stated.then(|| self.most_late());
        // Of a pipeline `wanted` is the answer as a whole.
        let rest = self.rest_behind();
        let whole = self.config.deadline + rest.most;
        let Some(stream) = self.streams.get_mut(id) else {
            return Some(unknown(arrival, sent, sent + whole));
        };
        let sent = sent.max(stream.latest);
        let wanted = sent + within.min(whole);
        stream.latest = sent;
        let seq = stream.counts.arrived;
        stream.counts.arrived += 1;
        let mut stalled = false;
        let (conforms, class) = if most_late.is_some_and(|most| now.since(sent) > most) {
            stalled = self.stood_still(now, id, sent, seq);
            if stalled { self.observe_levels(now, id, sent, seq) } else { self.observe_late(now, id, sent) }
        } else if stream.ladder.is_some() {
            self.observe_levels(now, id, sent, seq)
        } else if let Some(class) = stream.observe(sent) {
            (true, class)
        } else {
            self.observe_excess(now, id, sent, seq)
        };
        if self.rate_warning.is_some() {
            self.watch_rate(now, id);
        }
        // Of a stream that sent too much nothing has to be served where misses are spread; what would keeps its share of the places.
        let (class, entitled) = match self.planner.spreads() && self.is_free(id, sent) {
            true => (Class::Optional, class == Class::Mandatory),
            false => (class, false),
        };
        let class = if class == Class::Mandatory && self.is_demoted() { Class::Demoted } else { class };
        let note = match (stalled, class) {
            (true, Class::Mandatory) => Note::Stalled,
            _ if entitled => Note::Entitled,
            _ => Note::None,
        };
        let class = if stalled { OPTIONAL } else { class as usize };
        let mandatory = class == MANDATORY;
        if mandatory && now.since(at) > self.most_late() {
            self.taken_in_late(now, at);
        }
        // Promises are kept in the order of arrival: nobody comes before others by what it wants.
        let deadline = if class == OPTIONAL { wanted - rest.likely } else { sent + self.config.deadline };
        let place = 0;
        let mut request = Request {
            token,
            stream: id,
            seq,
            arrival: sent,
            deadline,
            wanted,
            mandatory,
            class: of,
            note,
            place,
        };
        if let Some(reason) = self.refused_for(now, (id, seq), deadline, conforms, class) {
            return Some(self.refuse(now, request, reason));
        }
        // In a full queue the oldest of the lowest class gives way, as long as that is none above the new one's.
        let room = !self.waiting.is_full();
        let place = match welcome && (room || self.waiting.gives_way(class)) {
            true => self.streams.get_mut(id).and_then(|stream| stream.outcomes.open(deadline)),
            false => None,
        };
        let Some(place) = place else {
            let reason = if deadline <= now { MissReason::Expired } else { MissReason::QueueFull };
            return Some(self.refuse(now, request, reason));
        };
        request.place = place;
        if !room && let Some(other) = self.waiting.give_way(class) {
            self.give_up(now, other, MissReason::QueueFull);
        }
        // Of those behind the first none expires before it does.
        if self.waiting.push(class, request) {
            self.leads = true;
            if let Some((bound, likely)) = self.pool.quickest() {
                let time = if class == MANDATORY { bound } else { likely };
                self.look_at(deadline - time + Span::from_nanos(1));
            }
        }
        // Mostly all workers are busy, and nothing is wrong.
        if self.may_start() || !self.is_normal() {
            self.note_arrival(now, at);
        }
        None
    }

    /// A request that came at `at` waits: whether anything is to be done about it.
    #[inline(never)]
    fn note_arrival(&mut self, now: Instant, at: Instant) {
        if self.may_start() || !self.is_at_rest(now) {
            self.changed = true;
            self.arm(now, at);
        }
    }

    /// Why a request is refused whether or not there is room for it.
    #[inline(always)]
    fn refused_for(
        &mut self,
        now: Instant,
        (id, seq): (StreamId, u64),
        deadline: Instant,
        conforms: bool,
        class: usize,
    ) -> Option<MissReason> {
        if self.pool.alive() == 0 || self.guest.is_some_and(|guest| guest.behind.cut) {
            return Some(MissReason::WorkerLost);
        }
        let shed = !self.config.background && (!conforms || class == OPTIONAL && self.quiet)
            || class == OPTIONAL && self.is_hopeless(now, deadline) && !self.stays(now, (id, seq), deadline);
        shed.then_some(MissReason::Shed)
    }

    /// Records a request of `id` that comes early, or where there is or was an excess: whether it conforms, and how much it counts.
    #[inline(never)]
    pub(super) fn observe_excess(
        &mut self,
        now: Instant,
        id: StreamId,
        at: Instant,
        seq: u64,
    ) -> (bool, Class) {
        let tolerance = self.tolerance();
        let Some(stream) = self.streams.get_mut(id) else { return (false, Class::Optional) };
        if let Some((class, early)) = stream.observe_early(at, tolerance) {
            self.tolerance.strain(early);
            return (true, class);
        }
        let (conforms, class, excess) = stream.observe_excess(at, self.config.background);
        if let Some((e, until)) = excess {
            let window = e.window.as_nanos();
            let evidence = Evidence { limit: e.allowed, seen: e.seen, window, stream: Some(id) };
            let alarm = Alarm { cause: Cause::ArrivalExcess, evidence, entered: now };
            if let Some(class) = self.fall(now, id, alarm, until, seq) {
                return (true, class);
            }
            self.suspend(now, id, Cause::ArrivalExcess, evidence, until);
        }
        (conforms, class)
    }

    /// A request that must be served and came at `at` is taken in later than it may be: what came later may have been begun before it, be
    /// no worker idle. Who shares workers asks for all who do.
    #[cold]
    fn taken_in_late(&mut self, now: Instant, at: Instant) {
        let (guard, delay) = (self.most_late(), now.since(at));
        self.worst_delay = self.worst_delay.max(delay);
        if self.guest.is_none() && !self.has_stalled(at, at + guard, now) {
            self.raise_late(now, guard, delay);
        }
    }

    /// Whether the daemon perhaps stood still before request number `seq` of `id` was read, which was sent at `sent`. It harms nobody
    /// then, whatever its client says, and itself alone.
    #[cold]
    fn stood_still(&mut self, now: Instant, id: StreamId, sent: Instant, seq: u64) -> bool {
        let due = sent + self.most_late();
        let stood_still = |mut stalls: StallMonitor| stalls.explains(sent, due, now);
        let stalled = self.absorbs && self.stalls.clone().is_some_and(stood_still);
        if stalled && let Some(stream) = self.streams.get_mut(id) {
            stream.excused = stream.excused.max(seq + 1);
        }
        stalled
    }

    /// Records a request of `id`, sent at `sent`, that was read too late to be promised anything.
    #[cold]
    fn observe_late(&mut self, now: Instant, id: StreamId, sent: Instant) -> (bool, Class) {
        let Some(stream) = self.streams.get_mut(id) else { return (false, Class::Optional) };
        let declared = stream.spec.arrivals().is_some();
        let judged = stream.observe_late(self.config.background);
        if declared {
            let (limit, seen) = (self.most_late().as_nanos(), now.since(sent).as_nanos());
            let evidence = Evidence { limit, seen, window: 0, stream: Some(id) };
            self.suspend(now, id, Cause::LateDispatch, evidence, now);
        }
        judged
    }

    /// Whether `id` sent too much of late, so that nothing it sends at `sent` has to be served where misses are spread.
    #[inline(never)]
    fn is_free(&self, id: StreamId, sent: Instant) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.is_free(sent))
    }

    /// Whether a request that nothing is promised for would most likely be answered too late, with all that waits begun
    /// before it.
    #[inline]
    fn is_hopeless(&self, now: Instant, deadline: Instant) -> bool {
        let ahead = self.waiting.len();
        ahead > 0 && !self.is_likely(now, deadline, ahead)
    }

    /// Whether a request would most likely be answered by `deadline`, with so many begun before it.
    #[inline(never)]
    fn is_likely(&self, now: Instant, deadline: Instant, ahead: usize) -> bool {
        self.pool.is_likely_by(deadline, now, ahead, self.may_be_long())
    }

    /// Whether request number `seq` of `id`, which all that waits makes too late, is taken in nonetheless.
    #[inline(never)]
    fn stays(&mut self, now: Instant, (id, seq): (StreamId, u64), deadline: Instant) -> bool {
        match self.planner.spreads() {
            true => self.is_candidate(now, (id, seq), deadline),
            false => self.displace(now, id),
        }
    }

    /// Whether it is one of those from which it is chosen later who runs, where misses are spread: it could be answered with none
    /// begun before it.
    fn is_candidate(&self, now: Instant, (id, seq): (StreamId, u64), deadline: Instant) -> bool {
        self.planner.is_candidate(id, seq, &self.waiting) && self.is_likely(now, deadline, 0)
    }

    /// Gives up a request of a stream that had its turn after `stream` had, in favour of one of the latter; false if there is
    /// none.
    fn displace(&mut self, now: Instant, stream: StreamId) -> bool {
        let index = self.planner.displaced(&self.waiting, stream);
        match index.and_then(|index| self.waiting.remove(OPTIONAL, index)) {
            Some(other) => {
                self.give_up(now, other, MissReason::Shed);
                true
            }
            None => false,
        }
    }
}

/// A request of a stream that is not there is cancelled.
#[cold]
fn unknown(came: Arrival, arrival: Instant, deadline: Instant) -> Resolution {
    let Arrival { stream, token, class, .. } = came;
    let (wanted, mandatory, note) = (deadline, false, Note::None);
    let (seq, place) = (0, 0);
    let request = Request { token, stream, seq, arrival, deadline, wanted, mandatory, class, note, place };
    Resolution { request, outcome: Outcome::Missed(MissReason::Cancelled), misses_left: None }
}
