//! Demotion: a service whose batches ran over by more than the others on its device can take is promised nothing until it has
//! kept its time again.
//!
//! What would be mandatory of it is demoted meanwhile, so nothing that the others are promised counts it. Its batches run where
//! nothing mandatory waits, and each is reckoned to take as much more than `P(b)` as the worst of them did, and no less than the longest.
//! What a stall as declared explains is no matter of its own, as long as such stalls are no more than declared.
//! It is promised again at an instant at which nothing mandatory waits on the device, once its own safe mode has lasted as long
//! as it would for any other breach; whoever harms the others again soon after waits twice as long, and so on.

use super::Scheduler;
use super::queue::{DEMOTED, MANDATORY, OPTIONAL};
use crate::safe_mode::{Cause, Evidence};
use crate::stalls::StallMonitor;
use crate::stream::Stream;
use crate::time::{Instant, Span};

/// A service that comes back and harms others at once waits up to so many times as long.
const MOST: u64 = 64;

/// What a service has done to the others on its workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demotion {
    on: bool,
    /// Its safe mode has lasted long enough.
    over: bool,
    /// Of the batches whose overrun is not forgotten, or since it was demoted, the one that ran over by the largest share: what it was to
    /// take, and what it took; and the longest.
    worst: Option<(Span, Span)>,
    longest: Span,
    /// The longest time by the profile that a batch may be begun with.
    most: Span,
    /// How long it is to keep its time before it is promised again, and when it last was.
    term: Span,
    since: Instant,
}

impl Demotion {
    /// A batch took `seen` instead of `bound`.
    fn note(&mut self, bound: Span, seen: Span) {
        let share = |(bound, seen): (Span, Span)| (u128::from(seen.as_nanos()), u128::from(bound.as_nanos()));
        let ((seen_now, bound_now), worst) = (share((bound, seen)), self.worst.map(share));
        if worst.is_none_or(|(seen, bound)| seen_now * bound > seen * bound_now) {
            self.worst = Some((bound, seen));
        }
        self.longest = self.longest.max(seen);
    }

    /// What a batch is reckoned to take that should take `time`.
    fn reckon(&self, time: Span) -> Span {
        let (bound, seen) = self.worst.unwrap_or((Span::from_nanos(1), Span::from_nanos(1)));
        let wide = u128::from(time.as_nanos()) * u128::from(seen.as_nanos());
        let scaled = wide.div_ceil(u128::from(bound.as_nanos().max(1)));
        Span::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX)).min(crate::MAX_SPAN).max(self.longest)
    }

    /// What a batch should take at most to be reckoned to take no longer than `length`.
    fn fits(&self, length: Span) -> Span {
        let Some((bound, seen)) = self.worst.filter(|_| self.longest <= length) else { return Span::ZERO };
        let wide = u128::from(length.as_nanos()) * u128::from(bound.as_nanos());
        Span::from_nanos(u64::try_from(wide / u128::from(seen.as_nanos().max(1))).unwrap_or(u64::MAX))
    }
}

impl Scheduler {
    /// Whether it is promised nothing for what its batches did to other services on the same workers.
    #[must_use]
    pub fn is_demoted(&self) -> bool {
        self.demotion().is_some_and(|demotion| demotion.on)
    }

    fn demotion(&self) -> Option<&Demotion> {
        self.guest.as_ref().map(|guest| &guest.demotion)
    }

    fn demotion_mut(&mut self) -> Option<&mut Demotion> {
        self.guest.as_mut().map(|guest| &mut guest.demotion)
    }

    /// A batch that should have taken `bound` took `seen`, and its engine is the reason.
    pub(super) fn note_slow(&mut self, now: Instant, bound: Span, seen: Span) {
        let Some(demotion) = self.demotion_mut() else { return };
        demotion.note(bound, seen);
        let (on, until) = (demotion.on, now + demotion.term);
        if on {
            self.safe_mode.put_off_until(until);
        }
    }

    /// Its batches have harmed other services, whose number on the device is another than `own`: the one that runs on took `running`
    /// of what it should so far. False if none is known that took too long, or it is demoted already.
    pub(crate) fn demote(&mut self, now: Instant, own: usize, running: Option<(Span, Span)>) -> bool {
        let clean = self.config.safe_mode.clean;
        // What still runs has been told of by nobody else.
        let untold = running.is_some() && self.report_overdue(now).is_some();
        let Some(demotion) = self.demotion_mut().filter(|demotion| !demotion.on) else { return false };
        if let Some((bound, seen)) = running {
            demotion.note(bound, seen);
        }
        let Some((bound, seen)) = demotion.worst else { return false };
        let again = demotion.term > Span::ZERO && now.since(demotion.since) < demotion.term;
        let most = Span::from_nanos(clean.as_nanos().saturating_mul(MOST)).min(crate::MAX_SPAN);
        demotion.term = if again { (demotion.term + demotion.term).min(most) } else { clean };
        (demotion.on, demotion.over) = (true, false);
        let until = now + demotion.term;
        self.stalls = self.config.stalls.map(StallMonitor::new);
        self.note_excused();
        let (limit, seen, window) = (bound.as_nanos(), seen.as_nanos(), own as u64 + 1);
        let evidence = Evidence { limit, seen, window, stream: None };
        if untold {
            // That it is demoted is news, whatever was told of it before.
            self.safe_mode.forget(Cause::ServiceOverrun);
            self.raise(now, Cause::ServiceOverrun, evidence, now);
        } else {
            let told = self.safe_mode.tell_anew(now, Cause::ServiceOverrun, evidence);
            self.tell(told);
        }
        self.safe_mode.put_off_until(until);
        self.move_all(MANDATORY, DEMOTED);
        true
    }

    /// Whether a batch of it may begin where nothing mandatory waits and one may take up to `length`; it will be no longer.
    pub(crate) fn allow(&mut self, length: Span) -> bool {
        let least = self.config.workers[0].profile.bound(1);
        let Some(demotion) = self.demotion_mut() else { return true };
        demotion.most = demotion.fits(length);
        demotion.most >= least
    }

    /// What its batches are reckoned to take: the shortest and the longest that it would begin.
    pub(crate) fn reckoned(&self) -> (Span, Span) {
        let profile = &self.config.workers[0].profile;
        let of = |size: usize| self.reckon(profile.bound(size));
        (of(1), of(profile.max_batch().min(self.waiting.len()).max(1)))
    }

    /// What a batch is reckoned to take that should take `time`.
    pub(crate) fn reckon(&self, time: Span) -> Span {
        self.demotion().filter(|demotion| demotion.on).map_or(time, |demotion| demotion.reckon(time))
    }

    /// The longest time by its profile that a batch of it may be begun with, while it is demoted.
    pub(super) fn most_demoted(&self) -> Option<Span> {
        self.demotion().filter(|demotion| demotion.on).map(|demotion| demotion.most)
    }

    /// When its safe mode has lasted long enough, if that is to come; notes whether it has.
    pub(super) fn look_for_end(&mut self, now: Instant) {
        let over = self.safe_mode.over_at().is_some_and(|at| at <= now);
        if let Some(demotion) = self.demotion_mut() {
            demotion.over = over;
        }
    }

    /// Whether it waits for an instant at which nothing mandatory waits, to be promised again.
    pub(super) fn awaits_promotion(&self) -> bool {
        self.demotion().is_some_and(|demotion| demotion.on && demotion.over)
    }

    /// No request that is to be answered has met a batch that ran over.
    pub(crate) fn forget_overruns(&mut self) {
        if let Some(demotion) = self.demotion_mut().filter(|demotion| !demotion.on) {
            (demotion.worst, demotion.longest) = (None, Span::ZERO);
        }
    }

    /// Nothing mandatory waits for any of the services: it is promised again, if it is time.
    pub(crate) fn promote(&mut self, now: Instant) {
        let ready = self.awaits_promotion();
        let Some(demotion) = self.demotion_mut() else { return };
        if ready {
            (demotion.on, demotion.since) = (false, now);
            (demotion.worst, demotion.longest) = (None, Span::ZERO);
            self.stalls = None;
            self.note_excused();
            // What came until now is promised nothing, and is in the way of nothing that is.
            self.move_all(DEMOTED, OPTIONAL);
            self.streams.iter_mut().for_each(Stream::set_aside);
        }
    }

    /// Goes on as demoted where another was that it takes over from, if its batches take as long by its profile; else it is to show anew
    /// what they take. Its streams have come along.
    pub(super) fn stay_demoted(&mut self, from: &Self) {
        let alike = from.config.workers == self.config.workers;
        if let (Some(before), Some(demotion)) = (from.demotion().filter(|_| alike), self.demotion_mut()) {
            *demotion = *before;
            if before.on {
                self.stalls = self.config.stalls.map(StallMonitor::new);
            }
            self.note_excused();
        }
        if from.is_demoted() && !self.is_demoted() {
            self.streams.iter_mut().for_each(Stream::set_aside);
        }
    }

    /// What waits of one class is of another from now on. Linear in what waits.
    fn move_all(&mut self, from: usize, to: usize) {
        self.changed = true;
        let mut left = self.waiting.class(from).len();
        let mut place = 0;
        while left > 0 {
            left -= 1;
            let request = self.waiting.class(from).get(place).copied();
            let Some(request) = request else { break };
            // Of a stream that is suspended itself what is demoted stays so.
            let stays = to == OPTIONAL
                && self.streams.get(request.stream).is_some_and(|stream| stream.suspended.is_some());
            if stays {
                place += 1;
            } else if let Some(request) = self.waiting.remove(from, place) {
                self.waiting.put(to, super::Request { mandatory: false, ..request });
            }
        }
    }
}
