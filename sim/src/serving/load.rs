//! How many requests come a second, as seen over the last half second.

use std::collections::VecDeque;

use rt_core::{Instant, Span};

/// Counts arrivals in a sliding window of 500 ms (RAMSIS, section 6).
///
/// Until a window has passed the count is taken over what has: the authors' program divides by all of it, and so
/// begins with a load of 0.
#[derive(Clone, Debug, Default)]
pub struct Load {
    first: Option<Instant>,
    recent: VecDeque<Instant>,
}

impl Load {
    const WINDOW: Span = Span::from_millis(500);
    /// The least time that is divided by.
    const LEAST: Span = Span::from_millis(20);

    /// A request comes.
    pub fn observe(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.recent.push_back(now);
        self.forget(now);
    }

    /// Requests a second.
    pub fn per_s(&mut self, now: Instant) -> f64 {
        self.forget(now);
        let since = self.first.map_or(Span::ZERO, |first| now.since(first));
        self.recent.len() as f64 / since.clamp(Self::LEAST, Self::WINDOW).as_secs_f64()
    }

    fn forget(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|&first| now.since(first) > Self::WINDOW) {
            self.recent.pop_front();
        }
    }
}
