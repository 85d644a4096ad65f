//! Until when something may be looked for.

use std::time::{Duration, Instant};

/// An instant that ends a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    start: Instant,
    end: Instant,
}

#[allow(
    clippy::disallowed_methods,
    reason = "only how long a search takes depends on it, and where it is cut off"
)]
impl Until {
    /// After `time` from now.
    pub(crate) fn after(time: Duration) -> Self {
        let start = Instant::now();
        Self { start, end: start + time }
    }

    /// Whether it is over.
    pub(crate) fn is_over(self) -> bool {
        Instant::now() > self.end
    }

    /// What is left of it; a little, if it is over.
    pub(crate) fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now()).max(Duration::from_millis(10))
    }

    /// How long ago it was set.
    pub(crate) fn took(self) -> Duration {
        self.start.elapsed()
    }
}
