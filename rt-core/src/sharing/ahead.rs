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
        let full = self.full(next);
        let least = self.candidates().map(|(.., time)| time).chain(full.map(|(_, time)| time)).min()?;
        let longest = self.longest_ahead(now, least);
        if longest < least {
            return None;
        }
        let fits = |&(.., time): &(Instant, usize, Span)| time <= longest;
        let late = self.candidates().filter(fits).min().and_then(|(_, service, _)| {
            self.touched |= 1 << service;
            Some((service, self.schedulers[service].take_ahead(now, worker, longest)?))
        });
        let (service, time) = late.or_else(|| {
            let (service, _) = full.filter(|&(_, time)| time <= longest)?;
            self.touched |= 1 << service;
            Some((service, self.schedulers[service].take_turn(now, worker, (false, self.crew.most_over()))?))
        })?;
        self.ahead = true;
        self.crew.await_calm();
        self.gone_ahead[service] += 1;
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

    /// How long a batch may take that goes before what is mandatory and waits; 0 if that is below `least`.
    fn longest_ahead(&mut self, now: Instant, least: Span) -> Span {
        // What stalls have taken of it is not known.
        if self.crew.count() > 1 && self.crew.runs_a_longer(self.longest) {
            return Span::ZERO;
        }
        let (Some(spare), Some(shield)) = (self.asked(now), &mut self.shield) else { return Span::ZERO };
        shield.longest(now, &self.schedulers, spare, least)
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
