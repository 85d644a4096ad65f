//! Safe mode: the state that says a promise no longer stands, with cause, evidence and hysteresis.

use core::fmt;

use crate::stream::StreamId;
use crate::time::{Instant, Span};

/// Why safe mode was raised. The numbers are stable; 0 is never raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// More requests than a stream declared. Evidence: allowed, seen, window.
    ArrivalExcess = 1,
    /// A batch took longer than its profile. Evidence: `P(b)` and the time seen, in nanoseconds.
    ServiceOverrun = 2,
    /// Dispatch came later than the guard allows, or the way to and from the engine made a batch longer than
    /// `P(b)`. Evidence: time allowed and seen, in nanoseconds.
    LateDispatch = 3,
    /// A worker was lost or its engine failed. Evidence: workers configured and left.
    WorkerLost = 4,
    /// A stream's constraint was violated, whatever the reason. Evidence: `m`, `m + 1`, `K`.
    ConstraintViolated = 5,
    /// The hardware is not as profiled. Evidence: in `window` what about it, a number of the caller's, and of that
    /// the value profiled and seen.
    ProfileStale = 6,
    /// An operator asked for it.
    Operator = 7,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ArrivalExcess => "arrival-excess",
            Self::ServiceOverrun => "service-overrun",
            Self::LateDispatch => "late-dispatch",
            Self::WorkerLost => "worker-lost",
            Self::ConstraintViolated => "constraint-violated",
            Self::ProfileStale => "profile-stale",
            Self::Operator => "operator",
        })
    }
}

/// What was seen when an assumption broke; [`Cause`] gives the units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What was assumed.
    pub limit: u64,
    /// What was seen instead.
    pub seen: u64,
    /// Over which window, if the cause has one.
    pub window: u64,
    /// At which stream, if at one.
    pub stream: Option<StreamId>,
}

/// When safe mode ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeModeConfig {
    /// It lasts at least this long.
    pub hold: Span,
    /// It ends only after this long without a breach.
    pub clean: Span,
    /// It lasts until cleared by an operator, however clean things look.
    pub latch: bool,
}

/// Present state of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SafeModeState {
    /// Every assumption holds as far as can be seen.
    Normal,
    /// An assumption broke.
    Safe {
        /// The cause announced last.
        cause: Cause,
        /// Its evidence.
        evidence: Evidence,
        /// When it was raised.
        entered: Instant,
    },
}

/// A change of state or a further cause, to be announced on every door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Rises by one at each change, so that a listener sees what it missed.
    pub sequence: u64,
    /// The state entered.
    pub state: SafeModeState,
}

/// The state machine: raised by monitors, left by hysteresis.
#[derive(Clone, Debug)]
pub struct SafeMode {
    config: SafeModeConfig,
    state: SafeModeState,
    sequence: u64,
    /// The earliest instant at which it may be left.
    leave: Instant,
    breaches: u64,
    /// The causes seen in the present stay, a bit each.
    causes: u8,
}

impl SafeMode {
    /// The normal state.
    #[must_use]
    pub const fn new(config: SafeModeConfig) -> Self {
        Self {
            config,
            state: SafeModeState::Normal,
            sequence: 0,
            leave: Instant::ZERO,
            breaches: 0,
            causes: 0,
        }
    }

    /// Records a breach at `now` whose effects last until `until`. The first one enters safe mode; each cause
    /// that is new to this stay is announced as well; all put off its end and are counted.
    pub fn raise(
        &mut self,
        now: Instant,
        cause: Cause,
        evidence: Evidence,
        until: Instant,
    ) -> Option<Transition> {
        self.breaches += 1;
        self.leave = self.leave.max(now + self.config.clean).max(until + self.config.clean);
        let known = self.causes & (1 << cause as u8) != 0;
        self.causes |= 1 << cause as u8;
        match self.state {
            SafeModeState::Safe { .. } if known => None,
            SafeModeState::Safe { entered, .. } => {
                Some(self.enter(SafeModeState::Safe { cause, evidence, entered }))
            }
            SafeModeState::Normal => {
                self.leave = self.leave.max(now + self.config.hold);
                Some(self.enter(SafeModeState::Safe { cause, evidence, entered: now }))
            }
        }
    }

    /// Takes over the state and counts of another, under its own configuration.
    pub(crate) fn continue_from(&mut self, other: &Self) {
        *self = Self { config: self.config, ..other.clone() };
    }

    /// The next breach of `cause` is announced though it was before.
    pub(crate) fn forget(&mut self, cause: Cause) {
        self.causes &= !(1 << cause as u8);
    }

    /// Leaves safe mode if its time has come.
    pub fn tick(&mut self, now: Instant) -> Option<Transition> {
        let due = self.leaves_at().is_some_and(|leave| now >= leave);
        due.then(|| self.enter(SafeModeState::Normal))
    }

    /// Leaves safe mode by order of an operator.
    pub fn clear(&mut self) -> Option<Transition> {
        (self.state != SafeModeState::Normal).then(|| self.enter(SafeModeState::Normal))
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> SafeModeState {
        self.state
    }

    /// The number of the last transition; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// How many breaches there have been since the start, those during safe mode included.
    #[must_use]
    pub fn breaches(&self) -> u64 {
        self.breaches
    }

    /// When it will be left if nothing else breaks; `None` in the normal state or when latched.
    #[must_use]
    pub fn leaves_at(&self) -> Option<Instant> {
        (self.state != SafeModeState::Normal && !self.config.latch).then_some(self.leave)
    }

    fn enter(&mut self, state: SafeModeState) -> Transition {
        if state == SafeModeState::Normal {
            self.causes = 0;
        }
        self.state = state;
        self.sequence += 1;
        Transition { sequence: self.sequence, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: SafeModeConfig =
        SafeModeConfig { hold: Span::from_nanos(100), clean: Span::from_nanos(30), latch: false };

    fn at(n: u64) -> Instant {
        Instant::from_nanos(n)
    }

    #[test]
    fn it_is_left_after_hold_and_a_clean_window_and_not_before() {
        let mut mode = SafeMode::new(CONFIG);
        let entered = mode.raise(at(10), Cause::ArrivalExcess, Evidence::default(), at(10)).expect("entered");
        assert_eq!(entered.sequence, 1);
        assert_eq!(mode.tick(at(109)), None);
        // Breaches at 95 put the end off to 125; a further cause is announced, a known one is only counted.
        assert_eq!(mode.raise(at(95), Cause::ArrivalExcess, Evidence::default(), at(95)), None);
        let further = mode.raise(at(95), Cause::WorkerLost, Evidence::default(), at(95)).expect("announced");
        assert!(
            matches!(further.state, SafeModeState::Safe { cause: Cause::WorkerLost, entered, .. } if entered == at(10))
        );
        assert_eq!(mode.tick(at(124)), None);
        let left = mode.tick(at(125)).expect("left");
        assert_eq!((left.sequence, left.state, mode.breaches()), (3, SafeModeState::Normal, 3));
        assert_eq!(mode.tick(at(126)), None);
    }

    #[test]
    fn lasting_effects_put_the_end_off() {
        let mut mode = SafeMode::new(CONFIG);
        mode.raise(at(0), Cause::ArrivalExcess, Evidence::default(), at(500));
        assert_eq!(mode.leaves_at(), Some(at(530)));
    }

    #[test]
    fn a_latched_state_waits_for_the_operator() {
        let mut mode = SafeMode::new(SafeModeConfig { latch: true, ..CONFIG });
        mode.raise(at(0), Cause::ServiceOverrun, Evidence::default(), at(0));
        assert_eq!((mode.tick(at(1_000_000)), mode.leaves_at()), (None, None));
        assert!(mode.clear().is_some() && mode.clear().is_none());
    }
}
