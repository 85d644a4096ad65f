//! Harm: what batches that run over do to a device; who is told, who is demoted for it, and when its batches may begin.

use super::crew::Running;
use super::device::Device;
use crate::scheduler::Scheduler;
use crate::time::Instant;

impl Device {
    /// Tells of batches that run on for longer than harms nobody.
    pub(super) fn report(&mut self, now: Instant) {
        while let Some(late) = self.crew.report(now) {
            self.runs_on(now, late);
        }
    }

    #[cold]
    fn runs_on(&mut self, now: Instant, late: Running) {
        self.look_for_harm(now);
        self.tell_others(now, late);
        self.demote(now, late, true);
        self.schedulers[late.service].runs_on(now);
        self.touched |= 1 << late.service;
    }

    /// A batch has ended that was reported, or later than it was due.
    #[cold]
    pub(super) fn ended_late(&mut self, now: Instant, ended: Running) {
        if ended.reported {
            self.others(ended.service, |scheduler| scheduler.is_relieved(now));
        } else if self.crew.has_harmed() {
            self.tell_others(now, ended);
            self.demote(now, ended, false);
        }
    }

    /// Tells all services whether batches may run over, if that has changed, and of what ran over that it is forgotten.
    #[inline]
    pub(super) fn look_for_harm(&mut self, now: Instant) {
        if self.crew.take_forgotten() {
            self.schedulers.iter_mut().for_each(Scheduler::forget_overruns);
        }
        let excused = !self.crew.has_harmed();
        if excused != self.excused {
            self.excused = excused;
            self.others(usize::MAX, |scheduler| scheduler.set_excused(now, excused));
        }
    }

    /// Tells all services how many stalls there were.
    pub(super) fn count_stalls(&mut self) {
        let count = self.crew.stalls();
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.set_stalls(count));
    }

    /// Tells all others of a batch of a service that may have harmed them.
    pub(super) fn tell_others(&mut self, now: Instant, late: Running) {
        let times = (late.due.since(late.started), now.since(late.started));
        self.others(late.service, |scheduler| scheduler.was_harmed(now, late.service, times));
    }

    /// Demotes the service whose batches have run over most, the last of which did `late`, and may still be `running`.
    pub(super) fn demote(&mut self, now: Instant, late: Running, running: bool) {
        let culprit = self.crew.worst(now, late.service);
        let times = (late.due.since(late.started), now.since(late.started));
        let seen = (running && culprit == late.service).then_some(times);
        if self.schedulers.len() > 1 && self.schedulers[culprit].demote(now, culprit, seen) {
            self.demoted |= 1 << culprit;
            self.touched |= 1 << culprit;
            // It stands in no line any more.
            self.note_mandatory(culprit);
        }
    }

    /// Those that are demoted, a bit each.
    pub(super) fn still_demoted(&self) -> u64 {
        let all = self.schedulers.iter().enumerate();
        all.fold(0, |bits, (service, scheduler)| bits | u64::from(scheduler.is_demoted()) << service)
    }

    /// Whether a batch of a service that is demoted may begin where nothing mandatory waits: no longer than any, or as long as
    /// the shield allows, or the others are promised nothing.
    pub(super) fn allow(&mut self, now: Instant, service: usize) -> bool {
        let (least, most) = self.schedulers[service].reckoned();
        let promised = |(other, scheduler): (usize, &Scheduler)| {
            self.demoted >> other & 1 == 0 && scheduler.promised_slots().next().is_some()
        };
        let length = match most <= self.longest {
            true => most,
            false if !self.schedulers.iter().enumerate().any(promised) => most,
            false => self.longest.max(self.longest_alone(now, service, (least, most))),
        };
        self.schedulers[service].allow(length)
    }

    /// A batch of a service that is demoted has begun that is longer than any.
    #[cold]
    pub(super) fn began_a_longer(&mut self, service: usize) {
        // Who comes now is in no line of a batch that long.
        self.ahead = true;
        if let Some(margin) = self.shield.as_ref().and_then(|shield| shield.margin_on_fewer(service)) {
            self.crew.keep_to(margin);
        }
    }
}
