//! How often one client may ask for what is not inference.

use rt_core::{Instant, Span};

/// A second's worth of questions at once, and one more for each part of a second that passes (the generic cell rate
/// algorithm, ITU-T I.371).
#[derive(Debug)]
pub(super) struct Quota {
    /// Between two questions.
    interval: Span,
    /// When all that was asked would be paid for.
    paid: Instant,
}

const SECOND: Span = Span::from_millis(1_000);

impl Quota {
    /// `per_s` questions a second, at least one.
    pub(super) fn new(per_s: usize) -> Self {
        let interval = Span::from_nanos(SECOND.as_nanos() / per_s.max(1) as u64);
        Self { interval, paid: Instant::ZERO }
    }

    /// Whether one more may be asked at `now`; if so, it has been.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let next = self.paid.max(now) + self.interval;
        let room = next <= now + SECOND;
        if room {
            self.paid = next;
        }
        room
    }

    /// When all that was asked is paid for; past if it is.
    pub(super) fn spent(&self) -> Instant {
        self.paid
    }

    /// When one more may be asked; past if it may.
    pub(super) fn has_room_at(&self) -> Instant {
        let spent = (self.paid + self.interval).as_nanos();
        Instant::from_nanos(spent.saturating_sub(SECOND.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_at_once_and_then_at_that_rate() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut quota = Quota::new(4);
        let burst = [10_000; 6].map(|ms| quota.take(at(ms)));
        assert_eq!(burst, [true, true, true, true, false, false]);
        assert_eq!(quota.has_room_at(), at(10_250));
        assert!(!quota.take(at(10_249)) && quota.take(at(10_250)) && !quota.take(at(10_250)));
        // What was not asked is not kept for longer than a second.
        let later = [60_000; 5].map(|ms| quota.take(at(ms)));
        assert_eq!(later, [true, true, true, true, false]);
    }
}
