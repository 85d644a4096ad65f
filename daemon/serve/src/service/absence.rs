//! How long a lost worker stays away: one that is lost again and again waits longer each time.

use std::time::Duration;

use rt_core::{Instant, Span};

use weir_os::backoff::Backoff;

/// The pause before the first attempt to load the model anew.
const FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(10);
/// A worker that has served for so long starts again with the first pause.
const HEALTHY: Span = Span::from_millis(10_000);

/// The pauses of one worker, which start over after a healthy time.
pub(super) struct Absence {
    pauses: Backoff,
    /// When the worker began to serve; `None` while it does not.
    serving: Option<Instant>,
}

impl Absence {
    /// Of a worker that serves since `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { pauses: Backoff::new(FIRST, LONGEST), serving: Some(now) }
    }

    /// The pause before the next attempt.
    pub(super) fn pause(&mut self, now: Instant) -> Duration {
        if self.serving.take().is_some_and(|since| now.since(since) >= HEALTHY) {
            self.pauses.reset();
        }
        self.pauses.pause()
    }

    /// The worker serves again.
    pub(super) fn serving(&mut self, now: Instant) {
        self.serving = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_start_over_after_a_healthy_time() {
        let mut absence = Absence::new(at(0));
        let pauses: Vec<_> = (0..9).map(|_| absence.pause(at(0)).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        // A worker that serves for a moment only is no better for it.
        absence.serving(at(20_000));
        assert_eq!(absence.pause(at(29_999)), LONGEST);
        absence.serving(at(40_000));
        assert_eq!(absence.pause(at(50_000)), FIRST);
        // Time that passes while it does not serve is not healthy.
        assert_eq!(absence.pause(at(90_000)), Duration::from_millis(200));
    }
}
