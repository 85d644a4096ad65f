//! Ever longer pauses between attempts, wherever something is tried until it succeeds.

use std::time::Duration;

/// Doubles the pause from attempt to attempt, up to a longest one.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Begins with `first`, and never exceeds `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let longer = self.next.saturating_mul(2).min(self.longest);
        std::mem::replace(&mut self.next, longer)
    }

    /// The next pause is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut pauses = || (0..8).map(|_| backoff.pause().as_millis()).collect::<Vec<_>>();
        assert_eq!(pauses(), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_millis(100));
    }
}
