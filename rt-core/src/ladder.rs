//! Which level of a stream's ladder is in force, by what came: the arrivals are held against the declarations of all of them.

use alloc::boxed::Box;

use crate::curve::ArrivalCurve;
use crate::level::{Level, MAX_LEVELS};
use crate::police::Policer;
use crate::safe_mode::Alarm;
use crate::time::{Instant, Span};

/// A level that is not in force.
#[derive(Clone, Debug)]
struct Rung {
    police: Policer,
    /// Until when what exceeded its declaration counts against it.
    quiet: Instant,
}

/// The levels of a stream, and which one is in force. The arrivals are held against all of them all the time.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    level: usize,
    /// The level whose constraints stand in, with the declaration of the first, while its service has fallen back, and why. Then
    /// `level` is 0.
    held: Option<(usize, Alarm)>,
    /// Since when, and since which request of the stream.
    since: Instant,
    from: u64,
    /// Since when its stream stands as it does.
    entered: Instant,
    /// Until when what exceeded the declaration of the level in force counts against it.
    quiet: Instant,
    /// What made it leave the first level itself; none there.
    pub(crate) alarm: Option<Alarm>,
    /// By level; in place of the one in force, which the stream has, is one that is not used.
    rungs: Box<[Rung]>,
    /// Of the last request, whether it kept to each level.
    kept: heapless::Vec<bool, { MAX_LEVELS + 1 }>,
}

impl Ladder {
    /// At the first level, of `levels` behind it; none if there are none. Allocates.
    pub(crate) fn new(first: &ArrivalCurve, levels: &[Level]) -> Option<Box<Self>> {
        if levels.is_empty() {
            return None;
        }
        let behind = levels.iter().map(|level| &level.arrivals);
        let rung = |arrivals| Rung { police: Policer::new(arrivals), quiet: Instant::ZERO };
        let rungs: Box<[Rung]> = core::iter::once(first).chain(behind).map(rung).collect();
        let mut kept = heapless::Vec::new();
        let _ = kept.resize(rungs.len(), true);
        let (level, since, from, quiet) = (0, Instant::ZERO, 0, Instant::ZERO);
        Some(Box::new(Self {
            level,
            held: None,
            since,
            from,
            entered: since,
            quiet,
            alarm: None,
            rungs,
            kept,
        }))
    }

    /// The level in force, from 0.
    pub(crate) fn level(&self) -> usize {
        self.held.map_or(self.level, |(level, _)| level)
    }

    /// Whether it is held to a level as its service has fallen back.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// What made it leave the first level, and since when the present one is in force.
    pub(crate) fn cause(&self) -> Option<Alarm> {
        let alarm = self.held.map(|(_, alarm)| alarm).or(self.alarm)?;
        Some(Alarm { entered: self.entered, ..alarm })
    }

    /// From `now` on the level is in force, after none was.
    pub(crate) fn enter(&mut self, now: Instant) {
        self.entered = now;
    }

    /// Holds it to a level from `now` and request number `from` on, or no longer; until when what exceeded the first declaration
    /// counts against it, if it was at a weaker level for that.
    pub(crate) fn hold_to(
        &mut self,
        now: Instant,
        held: Option<(usize, Alarm)>,
        from: u64,
        police: &mut Policer,
    ) -> Option<Instant> {
        let climbs = self.level > 0;
        if climbs {
            self.change(now, 0, from, police);
        }
        (self.held, self.since, self.from) = (held, now, from);
        self.enter(now);
        climbs.then_some(self.quiet)
    }

    /// A request at `at`, which may come early by `tolerance`: holds it against all levels but that in force. What exceeds one
    /// counts against it for `clean` after its effects.
    pub(crate) fn observe(&mut self, at: Instant, tolerance: Span, clean: Span) {
        for (index, rung) in self.rungs.iter_mut().enumerate().filter(|&(index, _)| index != self.level) {
            let police = &mut rung.police;
            let mut kept = police.observe_conforming(at) || police.observe_early(at, tolerance).is_some();
            if !kept {
                let (conforms, excess) = police.observe_excess(at, false);
                if excess.is_some() {
                    rung.quiet = police.spaced_until().unwrap_or(at) + clean;
                }
                kept = conforms && excess.is_none();
            }
            self.kept[index] = kept;
        }
    }

    /// The declaration of the level in force was exceeded, with effects until `quiet`.
    pub(crate) fn exceeded(&mut self, quiet: Instant) {
        self.quiet = quiet;
    }

    /// The level that ought to be in force at `now` instead of the present one: the highest whose declaration has been kept for
    /// long enough. From a level behind the first none is left upwards within `hold`.
    pub(crate) fn wanted(&self, now: Instant, hold: Span) -> Option<usize> {
        if self.is_held() {
            return None;
        }
        let rested = now >= self.since + hold;
        let is_kept = |&index: &usize| match index {
            _ if index == self.level => self.quiet <= now,
            _ => self.rungs[index].quiet <= now && (index > self.level || rested),
        };
        (0..self.rungs.len()).find(is_kept).filter(|&index| index != self.level)
    }

    /// The level that is to be in force at `now` in place of none for a stream that exceeded the present one: that again if that is `over`,
    /// or else the first behind it whose declaration has been kept for long enough.
    pub(crate) fn instead(&self, now: Instant, over: bool) -> Option<usize> {
        let is_kept =
            |&index: &usize| if index == self.level { over } else { self.rungs[index].quiet <= now };
        (self.level..self.rungs.len()).find(is_kept).filter(|_| !self.is_held())
    }

    /// When [`Ladder::wanted`] may become another at the soonest; none at the first level while it is kept.
    pub(crate) fn next(&self, now: Instant, hold: Span) -> Option<Instant> {
        if self.is_held() || self.level == 0 && self.quiet <= now {
            return None;
        }
        let at = |(index, rung): (usize, &Rung)| match index {
            _ if index == self.level => None,
            _ if index < self.level => Some(rung.quiet.max(self.since + hold)),
            _ => Some(rung.quiet),
        };
        self.rungs.iter().enumerate().filter_map(at).filter(|&at| at > now).min()
    }

    /// Whether the last request kept to a level that is not in force.
    pub(crate) fn kept(&self, level: usize) -> bool {
        self.kept[level]
    }

    /// The first request for which it is in force.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// The requests are counted anew.
    pub(crate) fn restart(&mut self) {
        self.from = 0;
    }

    /// Puts a level in force at `now`, from request number `from` on. If it is another, its arrival monitor takes the place of the present
    /// one's.
    pub(crate) fn change(&mut self, now: Instant, level: usize, from: u64, police: &mut Policer) {
        if level != self.level {
            core::mem::swap(police, &mut self.rungs[level].police);
            core::mem::swap(&mut self.quiet, &mut self.rungs[level].quiet);
            self.rungs.swap(self.level, level);
        }
        (self.level, self.since, self.from) = (level, now, from);
        self.enter(now);
    }

    /// What exceeded a declaration no longer counts.
    pub(crate) fn forget_excess(&mut self, now: Instant) {
        self.quiet = now;
        self.since = Instant::ZERO;
        for rung in &mut self.rungs {
            rung.police.forget_excess();
            rung.quiet = now;
        }
    }
}
