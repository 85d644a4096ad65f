//! Safe mode: the state that says whether a promise stands, with severity, cause, evidence and hysteresis.

mod cause;
mod state;

use crate::stream::StreamId;
use crate::time::Instant;

pub use cause::{Cause, Severity};
pub use state::{Alarm, Evidence, SafeModeConfig, SafeModeState, Suspension, Transition};

/// A severity above normal, and until when.
#[derive(Clone, Copy, Debug)]
struct Level {
    alarm: Option<Alarm>,
    /// The earliest instant at which it may be left.
    leave: Instant,
}

const WARNING: usize = 0;
const SAFE: usize = 1;
const LOST: usize = 2;
/// The causes of a warning, a bit each.
const WARNINGS: u16 = 1 << Cause::MissesLow as u16 | 1 << Cause::RateHigh as u16;

/// The state machine: raised by monitors, left by hysteresis.
///
/// Each severity stands and ends for itself; the present state is the highest that stands.
#[derive(Clone, Debug)]
pub struct SafeMode {
    config: SafeModeConfig,
    levels: [Level; 3],
    /// The highest severity that stands.
    severity: Severity,
    sequence: u64,
    breaches: u64,
    /// The causes seen in the present stay, a bit each.
    causes: u16,
    /// What was announced last.
    told: Severity,
    /// Nothing is announced before.
    inhibited: Instant,
    /// Workers are missing: safe mode is not left.
    missing: bool,
    /// What the promises have fallen back for on what holds nevertheless: of that a warning stands.
    fallen: Option<Alarm>,
    /// What piled up until the last breach may still make requests late.
    aftermath: bool,
    /// An operator has cleared it since the last breach.
    cleared: bool,
    /// Something has not been announced, as announcements were inhibited.
    untold: bool,
    /// When something ends by itself or is to be announced; the end of time if nothing does.
    next: Instant,
}

const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl SafeMode {
    /// The normal state.
    #[must_use]
    pub const fn new(config: SafeModeConfig) -> Self {
        Self {
            config,
            levels: [Level { alarm: None, leave: Instant::ZERO }; 3],
            severity: Severity::Normal,
            sequence: 0,
            breaches: 0,
            causes: 0,
            told: Severity::Normal,
            inhibited: Instant::ZERO,
            missing: false,
            fallen: None,
            aftermath: false,
            cleared: false,
            untold: false,
            next: NEVER,
        }
    }

    /// Records at `now` what its cause makes a warning, or a breach, whose effects last until `until`. The first one
    /// enters its severity; each cause that is new to this stay is announced as well; all put off its end, and all
    /// breaches are counted. A warning in safe mode is only remembered.
    pub fn raise(
        &mut self,
        now: Instant,
        cause: Cause,
        evidence: Evidence,
        until: Instant,
    ) -> Option<Transition> {
        let rest = (now + self.config.clean).max(until + self.config.clean);
        let stands = self.levels[level(cause.severity())?].alarm.is_some();
        let leave = if stands { rest } else { rest.max(now + self.config.hold) };
        self.enter(now, cause, evidence, leave)
    }

    /// The same of a breach behind which promises hold again as soon as what piled up has been worked off.
    pub(crate) fn raise_briefly(
        &mut self,
        now: Instant,
        cause: Cause,
        evidence: Evidence,
    ) -> Option<Transition> {
        self.enter(now, cause, evidence, now)
    }

    fn enter(
        &mut self,
        now: Instant,
        cause: Cause,
        evidence: Evidence,
        until: Instant,
    ) -> Option<Transition> {
        let severity = cause.severity();
        let Level { alarm, leave } = &mut self.levels[level(severity)?];
        *leave = (*leave).max(until);
        if severity.is_suspended() {
            (self.aftermath, self.cleared) = (true, false);
            self.breaches += 1;
        }
        let known = self.causes & (1 << cause as u16) != 0;
        self.causes |= 1 << cause as u16;
        if known && alarm.is_some() {
            self.assess();
            return None;
        }
        // Of a further cause: when that broke, and not when the stay began.
        *alarm = Some(Alarm { cause, evidence, entered: now });
        self.assess();
        if severity >= self.severity { self.tell(now) } else { None }
    }

    /// Records at `now` how many workers are there, and whether some are `missing` on which promises rest. As long as some are, safe
    /// mode is not left; while none is there, nothing is answered.
    pub fn set_workers(
        &mut self,
        now: Instant,
        alive: usize,
        all: usize,
        missing: bool,
    ) -> Option<Transition> {
        let lost = alive == 0;
        // What is back is still to prove itself, and to work off what piled up without it.
        if self.missing && !missing {
            self.put_off(now);
            self.aftermath = true;
        }
        self.missing = missing;
        let Level { alarm, .. } = &mut self.levels[LOST];
        if lost == alarm.is_some() {
            self.assess();
            return None;
        }
        if lost {
            let evidence = Evidence { limit: all as u64, seen: 0, ..Evidence::default() };
            *alarm = Some(Alarm { cause: Cause::WorkerLost, evidence, entered: now });
        } else {
            let before = alarm.take();
            self.levels[SAFE].alarm = self.levels[SAFE].alarm.or(before);
            self.put_off(now);
        }
        self.assess();
        self.tell(now)
    }

    /// The promises fall back on what holds though `alarm` is so, from the end of safe mode on: a warning stands until
    /// [`SafeMode::rise`].
    pub(crate) fn fall_back(&mut self, alarm: Alarm) {
        self.fallen = Some(alarm);
        let warning = &mut self.levels[WARNING];
        // A further one that lasts is told in its place until it is over.
        let further = warning.alarm.filter(|alarm| alarm.cause.severity() == Severity::Warning);
        warning.alarm = further.or(Some(alarm));
        warning.leave = warning.leave.max(alarm.entered);
        self.assess();
    }

    /// The promises stand again as they were made.
    pub(crate) fn rise(&mut self, now: Instant) -> Option<Transition> {
        self.fallen = None;
        self.assess();
        self.tick(now)
    }

    /// At `now` what was announced is seen to have lasted until then.
    pub(crate) fn put_off(&mut self, now: Instant) {
        let safe = &mut self.levels[SAFE];
        safe.leave = safe.leave.max(now + self.config.clean);
        self.assess();
    }

    /// It is left no sooner than at `until`, unless an operator clears it.
    pub(crate) fn put_off_until(&mut self, until: Instant) {
        let safe = &mut self.levels[SAFE];
        safe.leave = safe.leave.max(until);
        self.assess();
    }

    /// What stands is told anew, with another cause or evidence, and counts no second time.
    pub(crate) fn tell_anew(&mut self, now: Instant, cause: Cause, evidence: Evidence) -> Option<Transition> {
        self.levels[SAFE].alarm = Some(Alarm { cause, evidence, entered: now });
        self.causes |= 1 << cause as u16;
        self.assess();
        self.tell(now)
    }

    /// When it has lasted long enough, whatever piled up meanwhile; none as long as it does not end by itself.
    pub(crate) fn over_at(&self) -> Option<Instant> {
        let stays = self.config.latch && !self.cleared || self.missing;
        (!stays).then_some(self.levels[SAFE].leave)
    }

    /// Says whether what piled up until the last breach may still make requests late; every breach says that it may.
    /// As long as it may, safe mode is not left.
    pub(crate) fn set_aftermath(&mut self, aftermath: bool) {
        if core::mem::replace(&mut self.aftermath, aftermath) != aftermath {
            self.assess();
        }
    }

    /// The next breach of `cause` is announced though it was before.
    pub(crate) fn forget(&mut self, cause: Cause) {
        self.causes &= !(1 << cause as u16);
    }

    /// Takes over the state and counts of another at `now`, under its own configuration and with all workers there.
    pub(crate) fn continue_from(&mut self, now: Instant, other: &Self) {
        *self = Self { config: self.config, missing: false, ..other.clone() };
        let lost = self.levels[LOST].alarm.take();
        self.levels[SAFE].alarm = self.levels[SAFE].alarm.or(lost);
        self.assess();
        if other.missing {
            self.put_off(now);
        }
    }

    /// Services of a device have other numbers from now on: those that evidence names as well.
    pub(crate) fn renumber(&mut self, number: impl Fn(u64) -> u64) {
        let alarms = self.levels.iter_mut().filter_map(|level| level.alarm.as_mut());
        for alarm in alarms.filter(|alarm| alarm.cause == Cause::ServiceOverrun) {
            alarm.evidence.window = number(alarm.evidence.window);
        }
    }

    /// Whether [`SafeMode::tick`] has nothing to do at `now`, whatever piled up has been worked off by then.
    #[inline]
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        !self.severity.is_suspended() && now < self.next
    }

    /// Leaves what has lasted long enough, and announces what was kept back while announcements were inhibited.
    #[inline]
    pub fn tick(&mut self, now: Instant) -> Option<Transition> {
        if now < self.next { None } else { self.end_what_is_over(now) }
    }

    fn end_what_is_over(&mut self, now: Instant) -> Option<Transition> {
        for index in [WARNING, SAFE] {
            if now >= self.levels[index].leave && self.ends_at(index).is_some() {
                self.leave(now, index);
            }
        }
        if self.has_news() { self.tell(now) } else { None }
    }

    /// By order of an operator leaves safe mode at once, or as soon as no worker is missing and what piled up has been
    /// worked off.
    pub fn clear(&mut self, now: Instant) -> Option<Transition> {
        self.leave(now, WARNING);
        self.cleared = true;
        self.levels[SAFE].leave = now;
        self.assess();
        self.tick(now)
    }

    /// Announces nothing before `until`, for maintenance; then what there is by then. The state, its counts and
    /// its effects go on.
    pub fn inhibit(&mut self, until: Instant) {
        self.inhibited = until;
        self.assess();
    }

    /// Until when nothing is announced; past if all is.
    #[must_use]
    pub fn inhibited_until(&self) -> Instant {
        self.inhibited
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> SafeModeState {
        let severity = self.severity;
        SafeModeState { severity, alarm: level(severity).and_then(|index| self.levels[index].alarm) }
    }

    /// How bad it is: the highest severity that stands.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The streams that stand in the evidence of each severity that stands, the present one and those below it: three
    /// at most.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.levels.iter().filter_map(|level| level.alarm?.evidence.stream)
    }

    /// The number of the last transition; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// How many breaches there have been since the start, those during safe mode included, warnings not.
    #[must_use]
    pub fn breaches(&self) -> u64 {
        self.breaches
    }

    /// When [`SafeMode::tick`] has something to do if nothing else breaks; `None` if nothing ends by itself.
    #[must_use]
    #[inline]
    pub fn leaves_at(&self) -> Option<Instant> {
        Some(self.next).filter(|&next| next < NEVER)
    }

    /// Reads the severity off the alarms, and when one ends, to be called after each change.
    fn assess(&mut self) {
        let severities = [Severity::Lost, Severity::Safe, Severity::Warning];
        let stands = |&severity: &Severity| level(severity).is_some_and(|i| self.levels[i].alarm.is_some());
        self.severity = severities.into_iter().find(stands).unwrap_or(Severity::Normal);
        let news = self.has_news().then_some(self.inhibited);
        let ends = [self.ends_at(WARNING), self.ends_at(SAFE), news];
        self.next = ends.into_iter().flatten().min().unwrap_or(NEVER);
    }

    /// When a severity is left if nothing else breaks.
    #[inline]
    fn ends_at(&self, index: usize) -> Option<Instant> {
        let alarm = self.levels[index].alarm.as_ref()?;
        let latched = self.config.latch && !self.cleared;
        let stays = match index {
            SAFE => latched || self.missing || self.aftermath,
            _ => self.fallen.is_some_and(|fallen| fallen.cause == alarm.cause),
        };
        (!stays).then_some(self.levels[index].leave)
    }

    fn leave(&mut self, now: Instant, index: usize) {
        let before = self.levels[index].alarm;
        // What a further warning was told in place of stands on.
        let alarm = match (self.fallen.filter(|_| index == WARNING), before) {
            (Some(fallen), Some(before)) if before == (Alarm { entered: before.entered, ..fallen }) => {
                Some(before)
            }
            (fallen, _) => fallen.map(|fallen| Alarm { entered: now, ..fallen }),
        };
        self.levels[index] = Level { alarm, leave: Instant::ZERO };
        self.causes &= if index == WARNING { !WARNINGS } else { WARNINGS };
        self.untold |= self.severity == Severity::Warning && alarm.is_some() && alarm != before;
        if index == SAFE {
            // It is the state from now on, however long it has stood.
            self.levels[WARNING].alarm.iter_mut().for_each(|warning| warning.entered = now);
        }
        self.assess();
    }

    /// Whether what was announced last is not what there is.
    fn has_news(&self) -> bool {
        self.severity != self.told || self.untold && self.severity != Severity::Normal
    }

    fn tell(&mut self, now: Instant) -> Option<Transition> {
        self.untold = now < self.inhibited;
        if self.untold {
            self.assess();
            return None;
        }
        let state = self.state();
        self.told = state.severity;
        self.sequence += 1;
        self.assess();
        Some(Transition { sequence: self.sequence, state, breaches: self.breaches })
    }
}

fn level(severity: Severity) -> Option<usize> {
    match severity {
        Severity::Normal => None,
        Severity::Warning => Some(WARNING),
        Severity::Safe => Some(SAFE),
        Severity::Lost => Some(LOST),
    }
}

#[cfg(test)]
mod tests;
