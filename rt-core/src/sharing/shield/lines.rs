//! The lines that a batch must leave to those that wait and those that come, request by request.

use super::super::SharedService;
use super::super::device::NEVER;
use super::super::pace::WHOLE;
use super::{Service, SharedShield, Spare};
use crate::scheduler::Scheduler;
use crate::time::{Instant, Span};

/// The most requests that are looked at before the answer is no.
const LOOKS: usize = 512;
/// After so many of them it is asked whether that is enough.
const EACH: usize = 4;

impl SharedShield {
    /// Rule E: between these limits; the lines of all that may come, or of those from the first that waits on.
    pub(super) fn by_deadline(
        &mut self,
        now: Instant,
        schedulers: &[Scheduler],
        spare: Spare,
        (least, most): (Span, Span),
        all: bool,
    ) -> Span {
        // What stands for lines counts from when the request is there, behind no longer batch than any.
        if all && self.relieved != 0 {
            return Span::ZERO;
        }
        let (mut first, mut waiting) = (NEVER, 0);
        for (s, (of, scheduler)) in self.services.iter_mut().zip(schedulers).enumerate() {
            of.coming.begin(now, scheduler);
            waiting += of.waiting;
            first = first.min(scheduler.nth_due(of.inside));
            self.due.set(s, of.next_due(scheduler));
        }
        let first = if all { now } else { first };
        let mut longest = most.as_nanos();
        let mut work = spare.taken.as_nanos().saturating_add(self.apart);
        // If each batch of what comes holds one.
        let mut apart = work;
        let late = spare.over + self.early;
        let until = now + if self.relieved != 0 { self.until } else { Span::ZERO };
        for look in 0..LOOKS {
            let Some((due, s)) = self.due.earliest() else { return Span::from_nanos(longest) };
            if waiting == 0 && look % EACH == 0 && due > until {
                let work = if self.singly != 0 { apart } else { work };
                if self.holds_beyond(now + late, longest.saturating_add(work)) {
                    return Span::from_nanos(longest);
                }
            }
            let of = &mut self.services[s];
            let time = of.of.time.as_nanos();
            if of.looked.is_multiple_of(of.of.batch as u64) {
                work = work.saturating_add(time);
            }
            if of.taken == of.waiting || of.taken.is_multiple_of(of.of.batch) {
                apart = apart.saturating_add(time);
            }
            waiting -= usize::from(of.taken < of.waiting);
            of.look(now, &schedulers[s]);
            self.due.set(s, of.next_due(&schedulers[s]));
            let before = match (self.relieved >> s & 1 == 1, self.singly >> s & 1 == 1) {
                (false, _) => Some(work),
                (true, singly) => (singly || due <= until).then_some(apart),
            };
            if let Some(work) = before.filter(|_| due >= first) {
                longest = longest.min(self.done(due.since(now + late)).saturating_sub(work));
                if longest < least.as_nanos() {
                    break;
                }
            }
        }
        Span::ZERO
    }

    /// What the workers do in so long.
    fn done(&self, length: Span) -> u64 {
        length.as_nanos().saturating_mul(self.workers)
    }

    /// Whether all lines hold that are not looked at, if the workers begin `now` and what was looked at takes so much `work` and nothing else waits: at each distance
    /// at which the next of a service is due, and beyond, as less comes than the workers do.
    fn holds_beyond(&self, now: Instant, work: u64) -> bool {
        let next = |of: &Service| of.coming.next + of.of.latency;
        let comes = || self.services.iter().filter(|of| of.coming.next < NEVER);
        let holds = |at: Instant| {
            let before = comes().filter(|&of| next(of) <= at);
            let more = before.map(|of| of.pace.within(at.since(next(of)).as_nanos()));
            more.fold(work, u64::saturating_add) <= self.done(at.since(now))
        };
        comes().map(|of| u128::from(of.pace.slope)).sum::<u128>() <= WHOLE * u128::from(self.workers)
            && comes().all(|of| holds(next(of)))
    }

    /// Rule T: of all services, or of those of which some wait.
    pub(super) fn by_turns(
        &mut self,
        now: Instant,
        schedulers: &[Scheduler],
        spare: Spare,
        (least, most): (Span, Span),
        all: bool,
    ) -> Span {
        let mut longest = most;
        for s in 0..self.services.len() {
            if all || self.services[s].waiting > 0 {
                longest = self.in_turn(now, schedulers, s, spare, longest);
                if longest < least {
                    return Span::ZERO;
                }
            }
        }
        longest
    }

    /// Of one service, at most `longest`.
    fn in_turn(
        &mut self,
        now: Instant,
        schedulers: &[Scheduler],
        s: usize,
        spare: Spare,
        longest: Span,
    ) -> Span {
        for (of, scheduler) in self.services.iter_mut().zip(schedulers) {
            of.coming.begin(now, scheduler);
            (of.looked, of.taken) = (0, 0);
        }
        let mut longest = longest.as_nanos();
        // When the batch of those that were looked at begins at the latest.
        let mut begun = 0;
        for place in 0..LOOKS {
            let own = &mut self.services[s];
            if place >= own.waiting {
                let all = (longest + spare.taken.as_nanos()).saturating_add(begun).div_ceil(self.workers);
                // What is late of that the line of Theorem T has on its left, from the one that comes on.
                if own.coming.next > now + Span::from_nanos(all) {
                    return Span::from_nanos(longest);
                }
            }
            let due = own.next_due(&schedulers[s]);
            own.look(now, &schedulers[s]);
            let SharedService { batch, time, turn, .. } = own.of;
            if place % batch == 0 {
                let rounds = (place / batch) as u64;
                let turns = rounds / u64::from(turn) + 1;
                begun = time.as_nanos().saturating_mul(rounds);
                for (i, of) in self.services.iter_mut().enumerate().filter(|&(i, _)| i != s) {
                    let work = of.work_within(now, &schedulers[i], due + self.guard, turns);
                    begun = begun.saturating_add(work);
                }
                let left = self.done(due.since(now + spare.over + time));
                longest = longest.min(left.saturating_sub(begun.saturating_add(spare.taken.as_nanos())));
                if longest == 0 {
                    return Span::ZERO;
                }
            }
        }
        Span::ZERO
    }
}
