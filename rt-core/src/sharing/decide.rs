//! What a device does next: which service is polled, and which of them has a batch started on a free worker.

use super::Rule;
use super::device::{Device, Expected, NEVER};
use super::types::DeviceAction;
use crate::scheduler::{Action, WorkerId};
use crate::time::{Instant, Span};

impl Device {
    /// The next thing to do where there may be something.
    #[inline(never)]
    pub(super) fn decide(&mut self, now: Instant) -> DeviceAction {
        if self.armed < now {
            self.dispatched_late(now);
        }
        self.report(now);
        let mut empty = false;
        loop {
            while let Some(service) = self.next_to_poll(now) {
                match self.schedulers[service].poll(now) {
                    Action::Resolve(resolution) => return DeviceAction::Resolve(service, resolution),
                    Action::Event(event) => return DeviceAction::Event(service, event),
                    // It starts nothing by itself.
                    Action::Start { .. } => {}
                    Action::WakeAt(at) => self.look_at(service, at.unwrap_or(NEVER)),
                }
            }
            if (self.unclear != 0 || self.ahead || self.crew.is_strained()) && self.clear(now) {
                continue;
            }
            match self.start(now) {
                Some(Ok(action)) => return action,
                // Whose batch it was gives up what waits. If nothing of that is too late it is not asked again, for ever.
                Some(Err(())) if !empty => empty = true,
                none => {
                    debug_assert!(none.is_none(), "a batch is due and empty, and nothing is too late for it");
                    self.armed = NEVER;
                    return self.wait(now);
                }
            }
        }
    }

    /// A free worker should have been given what waits before `now`.
    #[cold]
    fn dispatched_late(&mut self, now: Instant) {
        let delay = now.since(core::mem::replace(&mut self.armed, NEVER));
        let guard = self.schedulers[0].most_late();
        let stalled = delay > guard && self.crew.has_stalled(now - delay, now - delay + guard, now);
        if stalled {
            self.count_stalls();
        }
        self.others(usize::MAX, |scheduler| scheduler.was_late(now, delay, stalled));
    }

    /// A service that something has happened to, or that time brings something about for.
    fn next_to_poll(&mut self, now: Instant) -> Option<usize> {
        if self.touched != 0 {
            return Some(self.touched.trailing_zeros() as usize);
        }
        if self.expected.instant().wake > now {
            return None;
        }
        let (_, service) = self.expected.earliest_of(|of| of.wake)?;
        self.touched |= 1 << service;
        Some(service)
    }

    /// A service has nothing to do before `wake` if nothing happens to it: what waits there now.
    #[inline(always)]
    pub(super) fn look_at(&mut self, service: usize, wake: Instant) {
        let (scheduler, bit) = (&self.schedulers[service], 1 << service);
        let first = scheduler.first_mandatory();
        if self.rule == Rule::Turns {
            self.line.set(service, first < NEVER);
        }
        self.touched &= !bit;
        // Of all services the one that must answer first goes first, dispatch as late as each allows for, and stalls as long.
        let due = if first < NEVER { first - scheduler.reserve() } else { NEVER };
        self.expected.set(service, Expected { due, wake });
        let waits = scheduler.waiting() > 0;
        if waits && self.waiting & bit == 0 {
            // Who had nothing to be served has no claim on what others got meanwhile.
            let others = (0..self.used.len()).filter(|s| self.waiting >> s & 1 == 1).map(|s| self.used[s]);
            self.used[service] =
                others.min().map_or(self.used[service], |least| least.max(self.used[service]));
        }
        self.waiting = if waits { self.waiting | bit } else { self.waiting & !bit };
        self.unclear = if scheduler.awaits_clear() { self.unclear | bit } else { self.unclear & !bit };
    }

    /// Whether all is as when this was looked at last.
    pub(super) fn is_known(&self, service: usize, wake: Instant) -> bool {
        let scheduler = &self.schedulers[service];
        let bits = [(self.waiting, scheduler.waiting() > 0), (self.unclear, scheduler.awaits_clear())];
        self.expected.at(service) == Expected { due: scheduler.nth_due(0), wake }
            && bits.iter().all(|&(of, is)| (of >> service & 1 == 1) == is)
    }

    /// Where nothing mandatory waits for anyone, and every worker is free within the longest batch, tells those that wait for
    /// it; whether there are such.
    #[inline(never)]
    fn clear(&mut self, now: Instant) -> bool {
        if self.expected.instant().due < NEVER || !self.crew.is_prompt(now, self.longest) {
            return false;
        }
        self.crew.calm();
        self.look_for_harm(now);
        self.ahead = false;
        let any = self.unclear != 0;
        for service in (0..self.schedulers.len()).filter(|s| self.unclear >> s & 1 == 1) {
            self.schedulers[service].promote(now);
            self.schedulers[service].all_clear();
        }
        if self.demoted != 0 {
            self.demoted = self.still_demoted();
        }
        (self.touched, self.unclear) = (self.touched | self.unclear, 0);
        any
    }

    /// Starts a batch, if a worker is free and something waits; an error if nothing of what was to start could be served.
    fn start(&mut self, now: Instant) -> Option<Result<DeviceAction, ()>> {
        let worker = self.crew.first_free()?;
        let next = match self.rule {
            Rule::Earliest => self.expected.earliest_of(|of| of.due).map(|(_, service)| service),
            Rule::Turns => self.line.first(),
        };
        if let Some(next) = next
            && self.shield.is_some()
            && let Some((service, time)) = self.start_ahead(now, worker, next)
        {
            return Some(Ok(self.started(now, worker, service, time)));
        }
        let background = next.is_none();
        let service = next.or_else(|| if self.quiet { None } else { self.next_background(now) })?;
        let scheduler = &mut self.schedulers[service];
        let Some(time) = scheduler.take_turn(now, worker, (background, self.crew.most_over())) else {
            self.touched |= 1 << service;
            return Some(Err(()));
        };
        if !background && self.rule == Rule::Turns {
            self.line.served(self.turns[service], scheduler.has_mandatory());
        }
        let varies = scheduler.selector().is_some();
        let time = if varies { self.vary(now, worker, service, time) } else { time };
        match self.schedulers[service].rest_after_turn(now) {
            Some(wake) => self.look_at(service, wake),
            None => self.touched |= 1 << service,
        }
        let time = if background { self.began_background(service, time) } else { time };
        Some(Ok(self.started(now, worker, service, time)))
    }

    /// A batch of `service` has begun that takes `time` where nothing mandatory waits: what it is reckoned to take.
    #[inline(never)]
    fn began_background(&mut self, service: usize, time: Span) -> Span {
        let reckoned = self.schedulers[service].reckon(time);
        self.used[service] = self.used[service] + reckoned;
        if reckoned > self.longest {
            self.began_a_longer(service);
        }
        reckoned
    }

    #[inline(always)]
    fn started(&mut self, now: Instant, worker: WorkerId, service: usize, time: Span) -> DeviceAction {
        self.crew.start(now, worker, service, time);
        self.armed = NEVER;
        DeviceAction::Start { service, worker }
    }

    /// The service that goes next where nothing mandatory waits: with demoted requests before those without, each time the one
    /// that had least; one that is demoted itself if its batches, as long as they are reckoned to be, harm nobody.
    #[inline(never)]
    fn next_background(&mut self, now: Instant) -> Option<usize> {
        let mut left = self.waiting;
        loop {
            let wanted =
                |service: usize| self.demoted >> service & 1 == 0 && self.schedulers[service].has_demoted();
            let turn = |&service: &usize| (!wanted(service), self.used[service], service);
            let service =
                (0..self.schedulers.len()).filter(|service| left >> service & 1 == 1).min_by_key(turn)?;
            if self.demoted >> service & 1 == 0 || self.allow(now, service) {
                return Some(service);
            }
            left &= !(1 << service);
        }
    }
}
