//! What the scheduler keeps about a stream.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{StreamCounts, StreamId, StreamSpec, StreamState};
use crate::absorb::Struck;
use crate::ladder::Ladder;
use crate::ledger::digest;
use crate::outcome::{OutcomeLog, OutcomeMonitor};
use crate::police::{Excess, Policer};
use crate::safe_mode::Alarm;
use crate::time::{Instant, Span};
use crate::word::{Class, Density, Marks};

/// Why the promise to a stream is suspended, and until when at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    pub(crate) alarm: Alarm,
    pub(crate) until: Instant,
    /// Until when nothing that the stream sends has to be served where misses are spread, for it sent too much.
    pub(crate) free: Instant,
}

/// The scheduler's record of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) spec: Arc<StreamSpec>,
    /// Of what it demands; see [`crate::ledger`].
    pub(crate) digest: u64,
    pub(crate) marks: Marks,
    pub(crate) police: Option<Policer>,
    pub(crate) outcomes: OutcomeLog,
    pub(crate) counts: StreamCounts,
    /// When its last request was sent.
    pub(crate) latest: Instant,
    /// When its client was last warned.
    pub(crate) warned: Option<Instant>,
    /// When a violation of its constraints was last announced.
    pub(crate) violated: Option<Instant>,
    /// What it broke itself, while that suspends its promise.
    pub(crate) suspended: Option<Suspended>,
    /// The weaker promises behind its first, if there are such, and which is in force.
    pub(crate) ladder: Option<Box<Ladder>>,
    /// How its promise stands as far as that was announced.
    pub(crate) told: StreamState,
    /// How often it broke it.
    pub(crate) breaches: u64,
    /// Requests that came before its promise was last resumed: a window that holds one of them it has to answer for itself.
    pub(crate) excused: u64,
    /// Requests that came before its service was last promised again: a window that holds one of them is promised nothing.
    pub(crate) aside: u64,
    /// What was missed of it where stalls are absorbed.
    pub(crate) struck: Struck,
}

impl Stream {
    /// Of whose requests the share `density` must be served; `places` of them may await their outcome, or the outcome of an
    /// earlier one. It has no number yet.
    pub(crate) fn new(spec: StreamSpec, density: Density, places: usize) -> Self {
        let monitor = OutcomeMonitor::new(spec.constraints.clone());
        let behind = spec.levels.iter().map(|level| level.constraints.clone());
        let ladder = spec.arrivals.as_ref().and_then(|arrivals| Ladder::new(arrivals, &spec.levels));
        Self {
            id: StreamId { slot: 0, generation: 0 },
            digest: digest(&spec, density),
            marks: Marks::new(density),
            police: spec.arrivals.as_ref().map(Policer::new),
            outcomes: OutcomeLog::new(monitor, places).beside(behind),
            counts: StreamCounts::default(),
            latest: Instant::ZERO,
            warned: None,
            violated: None,
            suspended: None,
            ladder,
            told: StreamState::Normal,
            breaches: 0,
            excused: 0,
            aside: 0,
            struck: Struck::default(),
            spec: Arc::new(spec),
        }
    }

    /// Starts anew for another client of the same declaration: a new number, requests from 0, a clean record. The arrival
    /// monitor, the word and a suspension go on. Nothing is allocated.
    pub(crate) fn restart(&mut self, id: StreamId) {
        self.id = id;
        self.outcomes.clear();
        self.counts = StreamCounts::default();
        (self.warned, self.violated, self.breaches) = (None, None, 0);
        (self.excused, self.aside) = (0, 0);
        self.ladder.iter_mut().for_each(|ladder| ladder.restart());
        self.struck = Struck::default();
    }

    /// Goes on with another declaration and other constraints, while none of its requests waits or runs: the same number and
    /// counts, its word and what is known of its outcomes where they are, a suspension too. Its arrivals are held against
    /// another declaration from now on. At a weaker level less had to be served: there its word begins anew, as where it climbs.
    /// What it had before is put in `self`'s place. Allocates.
    pub(crate) fn redeclare(&mut self, spec: StreamSpec, density: Density, places: usize) -> Self {
        let mut next = Self::new(spec, density, places);
        if self.level() > 0 {
            next.marks = Marks::first(density);
            self.excused = self.counts.arrived;
        } else {
            next.marks = self.marks.clone();
            next.marks.change(density);
        }
        next.outcomes.continue_from(&self.outcomes);
        if next.spec.arrivals == self.spec.arrivals && self.level() == 0 {
            core::mem::swap(&mut next.police, &mut self.police);
        }
        let before = core::mem::replace(self, next);
        (self.id, self.counts, self.latest) = (before.id, before.counts, before.latest);
        (self.warned, self.violated, self.told) = (before.warned, before.violated, before.told);
        (self.suspended, self.breaches, self.excused) = (before.suspended, before.breaches, before.excused);
        (self.struck, self.aside) = (before.struck, before.aside);
        before
    }

    /// The level in force, 0 for the first promise.
    pub(crate) fn level(&self) -> usize {
        self.ladder.as_ref().map_or(0, |ladder| ladder.level())
    }

    /// The first request for which that level is in force.
    pub(crate) fn level_from(&self) -> u64 {
        self.ladder.as_ref().map_or(0, |ladder| ladder.from())
    }

    /// Whether it sent too much before `at`, with effects until then.
    pub(crate) fn is_free(&self, at: Instant) -> bool {
        self.suspended.is_some_and(|suspended| at < suspended.free)
    }

    /// How its promise stands, and why if not as it was made.
    pub(crate) fn state(&self) -> (StreamState, Option<Alarm>) {
        let ladder = self.ladder.as_ref().filter(|ladder| ladder.level() > 0);
        match (self.suspended, ladder) {
            (Some(suspended), _) => (StreamState::Suspended, Some(suspended.alarm)),
            (None, Some(ladder)) => (StreamState::Degraded(ladder.level() as u8), ladder.cause()),
            (None, None) => (StreamState::Normal, None),
        }
    }

    /// Puts a level in force at `now`, another or the same anew: its monitors, which know all that came, and its word, from its first letter that may be
    /// mandatory. For what came before request number `from` it answers itself.
    pub(crate) fn change_level(&mut self, now: Instant, level: usize, from: u64) {
        let (Some(ladder), Some(police)) = (&mut self.ladder, &mut self.police) else { return };
        self.outcomes.exchange(ladder.level(), level);
        ladder.change(now, level, from, police);
        // A ladder that a new declaration brought knows nothing of what suspended the promise before.
        ladder.alarm = if level == 0 { None } else { ladder.alarm.or(self.suspended.map(|s| s.alarm)) };
        self.marks = Marks::first(self.spec.constraints_at(level).density());
        self.excused = self.excused.max(from);
        self.suspended = None;
    }

    /// Is held to the constraints of a level, or of its last one, and to the arrivals of its first promise, from `now` on, as its
    /// service has fallen back; or no longer. Its word begins anew. If it was at a weaker level for what it sent itself, nothing is promised to it
    /// until it has kept to the first declaration for long enough. Whether that changes anything.
    pub(crate) fn hold_to(&mut self, now: Instant, held: Option<(usize, Alarm)>) -> bool {
        let (Some(ladder), Some(police)) = (&mut self.ladder, &mut self.police) else { return false };
        if held.is_none() && !ladder.is_held() {
            return false;
        }
        let held = held.map(|(level, alarm)| (level.min(self.spec.levels().len()), alarm));
        let (before, own) = (ladder.level(), ladder.alarm);
        let until = ladder.hold_to(now, held, self.counts.arrived, police).filter(|&until| until > now);
        if let Some((alarm, until)) = own.zip(until) {
            // Whatever else suspends it may be over sooner.
            let alarm = Alarm { entered: now, ..alarm };
            let suspended = self.suspended.get_or_insert(Suspended { alarm, until, free: until });
            suspended.until = suspended.until.max(until);
            suspended.free = suspended.free.max(until);
        }
        let level = ladder.level();
        if before != level {
            self.outcomes.exchange(before, level);
        }
        self.marks = Marks::first(self.spec.constraints_at(level).density());
        self.set_aside();
        true
    }

    /// Nothing is promised over a window that holds a request that has come by now.
    pub(crate) fn set_aside(&mut self) {
        self.aside = self.counts.arrived;
    }

    /// Before when no request of it conforms: none can be mandatory. One that has sent nothing yet may send all that its curve
    /// allows at any instant: as long as it is silent there is no lull. One that begins anew goes on where it was.
    pub(crate) fn earliest(&self) -> Instant {
        self.police.as_ref().map_or(Instant::ZERO, Policer::earliest)
    }

    /// The earliest instant at which the `nth` mandatory request to come can come, counted from 0, if none comes before `from`.
    pub(crate) fn nth_mandatory(&self, from: Instant, nth: u64) -> Instant {
        self.police.as_ref().map_or(from, |police| police.nth(from, self.marks.before_mandatory(nth)))
    }

    /// Records its next request, at `now`, if it conforms and no excess is remembered: how much it counts.
    #[inline]
    pub(crate) fn observe(&mut self, now: Instant) -> Option<Class> {
        let conforms = self.police.as_mut().is_none_or(|police| police.observe_conforming(now));
        conforms.then(|| self.marks.next(true, false))
    }

    /// Records its next request, at `now`, if it does not conform yet and is early by no more than `tolerance`: how much it
    /// counts, and by how much it is early.
    pub(crate) fn observe_early(&mut self, now: Instant, tolerance: Span) -> Option<(Class, Span)> {
        let early = self.police.as_mut()?.observe_early(now, tolerance)?;
        self.counts.early += 1;
        self.counts.earliest = self.counts.earliest.max(early);
        Some((self.marks.next(true, false), early))
    }

    /// Otherwise records it so: whether it conforms, how much it counts, and the breach with the end of
    /// its effects. What does not conform is never served unless `background` is, and has no part in the word then.
    pub(crate) fn observe_excess(
        &mut self,
        now: Instant,
        background: bool,
    ) -> (bool, Class, Option<(Excess, Instant)>) {
        let Some(police) = &mut self.police else { return (true, self.marks.next(true, false), None) };
        let keep = background && police.is_spacing(now) && self.marks.is_early();
        let (conforms, excess) = police.observe_excess(now, keep);
        let until = police.spaced_until().unwrap_or(now);
        let counts = conforms || background;
        let class = if counts { self.marks.next(conforms, now < until) } else { Class::Optional };
        (conforms, class, excess.map(|excess| (excess, until)))
    }

    /// The same of a request that was read too late to be promised anything: whether it conforms is not asked, and it takes
    /// nothing of what those may do that come in time.
    pub(crate) fn observe_late(&mut self, background: bool) -> (bool, Class) {
        let conforms = self.police.is_none();
        let counts = conforms || background;
        (conforms, if counts { self.marks.next(conforms, true) } else { Class::Optional })
    }
}
