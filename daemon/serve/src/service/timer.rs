//! Wakes the scheduler at the instant it asked for: one real-time thread a service, no timer wheel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use rt_core::{Instant, Span};

use super::lock;
use weir_os::clock;

/// How long an alarm clock without alarm stays half awake, so that busy services need not wake it each time.
const LINGER: Span = Span::from_millis(20);

/// An alarm clock for one thread, set by others. Its lock needs no priority inheritance, for whoever feeds a scheduler has
/// real-time priority meanwhile.
pub(super) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
    /// The scheduler's time at the sleeper's last poll, in nanoseconds.
    polled: AtomicU64,
}

struct State {
    /// When the scheduler wants to be woken.
    alarm: Option<Instant>,
    /// Until when the thread sleeps at most; `None` while it is not asleep or sleeps for good.
    asleep_until: Option<Instant>,
    sleeping: bool,
    /// Someone wants to see the sleeper move.
    nudged: bool,
    stopped: bool,
}

impl Timer {
    /// A clock without alarm.
    pub(super) fn new() -> Self {
        let state = State { alarm: None, asleep_until: None, sleeping: false, nudged: false, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), polled: AtomicU64::new(0) }
    }

    /// Sets the alarm, replacing the last one. Only an alarm earlier than the sleeper expects wakes it.
    pub(super) fn set(&self, alarm: Option<Instant>) {
        let mut state = lock(&self.state);
        state.alarm = alarm;
        let too_late = |alarm| state.asleep_until.is_none_or(|until| alarm < until);
        if state.sleeping && alarm.is_some_and(too_late) {
            self.changed.notify_one();
        }
    }

    /// Wakes the sleeper once, whatever the alarm.
    pub(super) fn nudge(&self) {
        lock(&self.state).nudged = true;
        self.changed.notify_one();
    }

    /// Sleeps until the alarm or a nudge; false once stopped.
    pub(super) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        let mut idle_since: Option<Instant> = None;
        loop {
            if state.stopped {
                return false;
            }
            if std::mem::take(&mut state.nudged) {
                return true;
            }
            let now = clock::now();
            if state.alarm.is_some_and(|alarm| alarm <= now) {
                state.alarm = None;
                return true;
            }
            let until = match state.alarm {
                Some(alarm) => {
                    idle_since = None;
                    Some(alarm)
                }
                None => {
                    let linger = *idle_since.get_or_insert(now) + LINGER;
                    (linger > now).then_some(linger)
                }
            };
            (state.asleep_until, state.sleeping) = (until, true);
            state = match until {
                Some(until) => {
                    let timeout = clock::duration(until.since(now));
                    let woken = self.changed.wait_timeout(state, timeout);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.sleeping = false;
        }
    }

    /// Notes when the sleeper polled the scheduler.
    pub(super) fn note_poll(&self, at: Option<Instant>) {
        self.polled.store(at.map_or(0, Instant::as_nanos), Ordering::Relaxed);
    }

    /// The scheduler's time when the sleeper last polled it.
    pub(super) fn polled(&self) -> Instant {
        Instant::from_nanos(self.polled.load(Ordering::Relaxed))
    }

    /// Ends the sleeper.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_earlier_alarm_wakes_the_sleeper_and_never_before_its_time() {
        let timer = Arc::new(Timer::new());
        let late = clock::now() + Span::from_millis(60_000);
        timer.set(Some(late));
        let sleeper = {
            let timer = Arc::clone(&timer);
            std::thread::spawn(move || (timer.wait(), clock::now(), timer.wait()))
        };
        while !lock(&timer.state).sleeping {
            std::thread::yield_now();
        }
        let alarm = clock::now() + Span::from_millis(5);
        timer.set(Some(alarm));
        while !sleeper.is_finished() {
            timer.stop_after_first(alarm);
        }
        let (first, woken, second) = sleeper.join().expect("no panic");
        assert!(first && !second);
        assert!(woken >= alarm && woken < late, "{woken:?}: not by the alarm at {alarm:?}");
    }

    #[test]
    fn a_nudge_wakes_once_and_leaves_the_alarm() {
        let timer = Timer::new();
        let alarm = clock::now() + Span::from_millis(20);
        timer.set(Some(alarm));
        timer.nudge();
        assert!(timer.wait());
        assert_eq!(lock(&timer.state).alarm, Some(alarm));
        assert!(timer.wait() && clock::now() >= alarm);
    }

    impl Timer {
        fn stop_after_first(&self, alarm: Instant) {
            std::thread::yield_now();
            if clock::now() > alarm && lock(&self.state).alarm.is_none() {
                self.stop();
            }
        }
    }
}
