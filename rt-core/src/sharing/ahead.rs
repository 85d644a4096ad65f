//! Out of turn: what nothing is promised for goes before mandatory requests where the shield allows it.

use super::device::{Device, NEVER};
use super::shield::{SharedShield, Spare};
use crate::scheduler::WorkerId;
use crate::shield::ShieldError;
use crate::time::{Instant, Span};

impl Device {
    /// Sets the shield that is asked whether something may go before mandatory requests, or takes it away; returns the old one, to
    /// be dropped where nobody waits. It must count every promised stream that is there, and may count streams that are yet to
    /// come. Once one is added that it does not count it is asked no more: set the one of the admission that counts it.
    ///
    /// # Errors
    /// If it is for other services, or leaves out a stream; there is none then.
    pub fn set_shield(&mut self, shield: Option<SharedShield>) -> Result<Option<SharedShield>, ShieldError> {
        let old = self.shield.take();
        if let Some(mut shield) = shield {
            let all = || self.schedulers.iter().enumerate();
            if shield.rule() != self.rule
                || shield.services() != self.schedulers.len()
                || !all().all(|(service, scheduler)| shield.fits(service, scheduler))
            {
                return Err(ShieldError::Foreign);
            }
            match all().map(|(service, scheduler)| shield.note_streams(service, scheduler)).sum() {
                0 => {}
                count => return Err(ShieldError::Stream { count }),
            }
            (self.shield, self.unknown) = (Some(shield), 0);
        }
        Ok(old)
    }

    /// Whether anything may go before mandatory requests.
    #[must_use]
    pub fn has_shield(&self) -> bool {
        self.shield.is_some()
    }

    /// How often something went before mandatory requests.
    #[must_use]
    pub fn gone_ahead(&self) -> u64 {
        self.gone_ahead.iter().sum()
    }

    /// How many of these batches were of this service.
    #[must_use]
    pub fn gone_ahead_of(&self, service: usize) -> u64 {
        self.gone_ahead[service]
    }

    /// Takes a batch before what `next` has waiting, of which service and how long at most, if one may: of what nothing is promised for and would else be late, or a full
    /// one where that of `next` would not be.
    #[inline(never)]
    pub(super) fn start_ahead(
        &mut self,
        now: Instant,
        worker: WorkerId,
        next: usize,
    ) -> Option<(usize, Span)> {
        let (service, time) = self.late_ahead(now, worker).or_else(|| self.full_ahead(now, worker, next))?;
        self.ahead = true;
        self.crew.await_calm();
        self.gone_ahead[service] += 1;
        Some((service, time))
    }

    /// Takes a batch of what nothing is promised for and would else be late, if there is time for it.
    fn late_ahead(&mut self, now: Instant, worker: WorkerId) -> Option<(usize, Span)> {
        let least = self.candidates().map(|(.., time)| time).min()?;
        let longest = self.longest_ahead(now, least, None);
        let fits = |&(.., time): &(Instant, usize, Span)| time <= longest;
        let (_, service, _) = self.candidates().filter(fits).min()?;
        self.touched |= 1 << service;
        Some((service, self.schedulers[service].take_ahead(now, worker, longest)?))
    }

    /// Takes a full batch, if that of `next` is not full and there is time for it.
    fn full_ahead(&mut self, now: Instant, worker: WorkerId, next: usize) -> Option<(usize, Span)> {
        let (service, time) = self.full(next)?;
        let scheduler = &self.schedulers[service];
        let (waited, batch) = (scheduler.waiting_mandatory(), scheduler.config().workers[0].batch);
        let taken = waited.min(batch);
        if self.longest_ahead(now, time, Some((service, taken))) < time {
            return None;
        }
        self.touched |= 1 << service;
        let scheduler = &mut self.schedulers[service];
        let time = scheduler.take_turn(now, worker, (false, self.crew.most_over()))?;
        debug_assert_eq!(scheduler.waiting_mandatory(), waited - taken, "the lines count what it leaves");
        Some((service, time))
    }

    /// The service with the earliest deadline of those that fill a batch, if `next` does not, and what that takes.
    fn full(&self, next: usize) -> Option<(usize, Span)> {
        if self.quiet || self.schedulers[next].full_batch().0 {
            return None;
        }
        let waits = |service: &usize| (self.waiting & !self.demoted) >> service & 1 == 1;
        let of = |service: usize| {
            let scheduler = &self.schedulers[service];
            let (full, time) = scheduler.full_batch();
            let first = scheduler.first_ahead().map_or(NEVER, |(first, _)| first);
            full.then_some((first.min(scheduler.first_mandatory()), service, time))
        };
        let (_, service, time) = (0..self.schedulers.len()).filter(waits).filter_map(of).min()?;
        Some((service, time))
    }

    /// What nothing is promised for and must be answered before all that is mandatory: by when, of which service, and what a batch
    /// of one of it takes.
    fn candidates(&self) -> impl Iterator<Item = (Instant, usize, Span)> + '_ {
        let waits = |service: &usize| (self.waiting & !self.demoted) >> service & 1 == 1;
        let of = |service: usize| {
            let scheduler = &self.schedulers[service];
            let (first, time) = scheduler.first_ahead()?;
            Some((first - scheduler.reserve(), service, time))
        };
        let all = 0..if self.quiet { 0 } else { self.schedulers.len() };
        all.filter(waits).filter_map(of).filter(|&(first, ..)| first < self.expected.instant().due)
    }

    /// How long a batch may take that goes before what is mandatory and waits, of which it takes the first so many of a service itself; 0
    /// if that is below `least`.
    fn longest_ahead(&mut self, now: Instant, least: Span, taken: Option<(usize, usize)>) -> Span {
        // What stalls have taken of it is not known.
        if self.crew.count() > 1 && self.crew.runs_a_longer(self.longest) {
            return Span::ZERO;
        }
        let (Some(spare), Some(shield)) = (self.asked(now), &mut self.shield) else { return Span::ZERO };
        shield.longest(now, &self.schedulers, spare, least, taken)
    }

    /// How long a batch of `service`, which is demoted, may take where nothing mandatory waits, longer than any: at most the last of
    /// these, and 0 if that is below the first. Of several workers one may have such a batch, if the others can do without.
    pub(super) fn longest_alone(&mut self, now: Instant, service: usize, limits: (Span, Span)) -> Span {
        let (Some(spare), Some(shield)) = (self.asked(now), &mut self.shield) else { return Span::ZERO };
        if self.crew.count() == 1 {
            return shield.longest_alone(now, &self.schedulers, spare, limits);
        }
        let kept = shield.margin_on_fewer(service).is_some_and(|margin| spare.excess <= margin);
        if kept && !self.crew.runs_a_longer(self.longest) { limits.1 } else { Span::ZERO }
    }

    /// What is to be left to the workers, where the shield may be asked at all.
    fn asked(&mut self, now: Instant) -> Option<Spare> {
        let spare = self.crew.spare(now)?;
        // Who waits to be added waits for nothing to go before others any more.
        if self.schedulers.iter().any(crate::scheduler::Scheduler::is_awaited) {
            return None;
        }
        let shield = self.shield.as_mut()?;
        while self.unknown != 0 {
            let service = self.unknown.trailing_zeros() as usize;
            if shield.note_streams(service, &self.schedulers[service]) > 0 {
                return None;
            }
            self.unknown &= self.unknown - 1;
        }
        Some(spare)
    }
}
