//! A limit to what is told again and again: so many lines in a time, and how many there should have been.

use rt_core::{Instant, Span};

/// Keeps a flood of one kind of line out of the log.
#[derive(Debug)]
pub struct Limit {
    lines: usize,
    window: Span,
    began: Instant,
    told: usize,
    untold: u64,
}

impl Limit {
    /// At most so many lines in each `window`.
    #[must_use]
    pub const fn new(lines: usize, window: Span) -> Self {
        Self { lines, window, began: Instant::ZERO, told: 0, untold: 0 }
    }

    /// Whether there may be a line at `now`, and if so, how many more there should have been since the last one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.since(self.began) >= self.window {
            (self.began, self.told) = (now, 0);
        }
        if self.told == self.lines {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(self.take_untold())
    }

    /// How many there should have been that nobody has been told of, who is told now.
    pub fn take_untold(&mut self) -> u64 {
        std::mem::take(&mut self.untold)
    }

    /// The same, if there are any and there may be a line at `now`.
    pub fn rest(&mut self, now: Instant) -> Option<u64> {
        (self.untold > 0 && now.since(self.began) >= self.window).then(|| self.admit(now)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let mut limit = Limit::new(20, Span::from_millis(1_000));
        let at = |ms: u64| Instant::from_nanos(5_000_000_000 + ms * 1_000_000);
        assert_eq!(limit.rest(at(0)), None);
        assert_eq!((0..100).filter(|&ms| limit.admit(at(ms)).is_some()).count(), 20);
        assert_eq!(limit.rest(at(999)), None, "there is no room for it");
        assert_eq!(limit.admit(at(1_000)), Some(80));
        assert_eq!((limit.admit(at(1_001)), limit.rest(at(3_000))), (Some(0), None));
        (0..30).for_each(|_| _ = limit.admit(at(4_000)));
        assert_eq!(limit.rest(at(5_000)), Some(10), "of a flood that is over");
        assert_eq!((limit.rest(at(6_000)), limit.take_untold()), (None, 0));
    }
}
