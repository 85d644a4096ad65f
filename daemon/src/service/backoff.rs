//! How long a lost worker stays away: one that is lost again and again waits longer each time.

use rt_core::{Instant, Span};

/// The pause before the first attempt to load the model anew.
const FIRST: Span = Span::from_millis(100);
/// The longest pause.
const LONGEST: Span = Span::from_millis(10_000);
/// A worker that has served for so long starts again with the first pause.
const HEALTHY: Span = Span::from_millis(10_000);

/// Doubles the pause from attempt to attempt, 100 ms to 10 s.
pub(super) struct Backoff {
    next: Span,
    /// When the worker began to serve; `None` while it does not.
    serving: Option<Instant>,
}

impl Backoff {
    /// Of a worker that serves since `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { next: FIRST, serving: Some(now) }
    }

    /// The pause before the next attempt.
    pub(super) fn pause(&mut self, now: Instant) -> Span {
        if self.serving.take().is_some_and(|since| now.since(since) >= HEALTHY) {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause + pause).min(LONGEST);
        pause
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
        let mut backoff = Backoff::new(at(0));
        let pauses = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
        for ms in pauses {
            assert_eq!(backoff.pause(at(0)), Span::from_millis(ms));
        }
        // A worker that serves for a moment only is no better for it.
        backoff.serving(at(20_000));
        assert_eq!(backoff.pause(at(29_999)), LONGEST);
        backoff.serving(at(40_000));
        assert_eq!(backoff.pause(at(50_000)), FIRST);
        // Time that passes while it does not serve is not healthy.
        assert_eq!(backoff.pause(at(90_000)), Span::from_millis(200));
    }
}
