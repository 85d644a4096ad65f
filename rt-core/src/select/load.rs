//! How much comes: arrivals counted over a sliding window, in constant time and memory.

use super::{SelectError, range};
use crate::time::{Instant, MAX_SPAN, Span};

/// Parts that arrivals are counted in; all but the newest are whole.
const PARTS: usize = 64;
const WHOLE: u64 = PARTS as u64 - 1;

/// Counts arrivals over a sliding window.
///
/// The count is exact over an interval that ends now and is at least the window long, and longer by at most one part,
/// 1/63 of it and 63 ns: all that came within the window is counted, nothing that came before the interval. The rate
/// is the count over the interval's length, so it is the true mean rate of an interval that differs by less than
/// 1.6 %.
#[derive(Clone, Debug)]
pub struct LoadMonitor {
    window: Span,
    /// Length of a part, so that 63 are at least the window.
    part: u64,
    counts: [u32; PARTS],
    total: u64,
    /// The number of the part that now is in.
    newest: u64,
    now: u64,
}

impl LoadMonitor {
    /// The window of the RAMSIS paper, section 6.
    pub const DEFAULT_WINDOW: Span = Span::from_millis(500);

    /// Nothing has come yet.
    ///
    /// # Errors
    /// A window outside 1 ns..=[`MAX_SPAN`].
    pub fn new(window: Span) -> Result<Self, SelectError> {
        range("window in nanoseconds", window.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        Ok(Self::of(window))
    }

    const fn of(window: Span) -> Self {
        let part = window.as_nanos().div_ceil(WHOLE);
        Self { window, part, counts: [0; PARTS], total: 0, newest: 0, now: 0 }
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.window
    }

    /// A request came: how many did within the window, this one included; see [`LoadMonitor`]. An instant before the
    /// last one counts as that one.
    pub fn observe(&mut self, now: Instant) -> u64 {
        self.advance(now);
        let count = &mut self.counts[self.newest as usize % PARTS];
        if let Some(more) = count.checked_add(1) {
            *count = more;
            self.total += 1;
        }
        self.total
    }

    /// How many came within the window, and at most a part before; see [`LoadMonitor`].
    #[must_use]
    pub fn count(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.total
    }

    /// Requests a second over the window. Until time is as old as the window, what came before time began is 0.
    #[must_use]
    pub fn rate_per_s(&mut self, now: Instant) -> f64 {
        let length = WHOLE * self.part + self.advance(now);
        self.total as f64 * 1e9 / length as f64
    }

    /// Forgets what is too old: how much of the newest part is over.
    #[inline]
    fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now.as_nanos());
        // Mostly the part is still the same, and no division needed.
        if self.now - self.newest * self.part >= self.part {
            self.turn_over();
        }
        self.now - self.newest * self.part
    }

    /// Begins another part: at most 64 are forgotten.
    #[inline(never)]
    fn turn_over(&mut self) {
        let newest = self.now / self.part;
        let steps = (newest - self.newest).min(PARTS as u64);
        for part in newest + 1 - steps..=newest {
            let count = &mut self.counts[part as usize % PARTS];
            self.total -= u64::from(core::mem::take(count));
        }
        self.newest = newest;
    }
}

impl Default for LoadMonitor {
    /// Over [`LoadMonitor::DEFAULT_WINDOW`].
    fn default() -> Self {
        Self::of(Self::DEFAULT_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn counts_as_one_who_remembers_everything(
            window in 1u64..2_000,
            pauses in proptest::collection::vec((0u64..40, 0u64..30), 1..300),
        ) {
            let mut monitor = LoadMonitor::new(Span::from_nanos(window)).expect("valid");
            let (mut all, mut now) = (Vec::new(), 0);
            for (pause, rare) in pauses {
                // Now and then nothing comes for longer than the window.
                now += if rare == 0 { pause * 100 } else { pause };
                if rare % 3 > 0 {
                    monitor.observe(Instant::from_nanos(now));
                    all.push(now);
                }
                let within = |length: u64| all.iter().filter(|&&at| at + length > now).count() as u64;
                let count = monitor.count(Instant::from_nanos(now));
                let longest = window + window / 63 + 63;
                prop_assert!((within(window)..=within(longest)).contains(&count), "{count} at {now}");
                let rate = monitor.rate_per_s(Instant::from_nanos(now)) / 1e9;
                let [most, least] = [window, longest].map(|length| count as f64 / length as f64);
                prop_assert!(rate <= most * (1.0 + 1e-12) && rate >= least * (1.0 - 1e-12));
            }
        }
    }

    #[test]
    fn a_steady_rate_is_told_and_forgotten() {
        let mut monitor = LoadMonitor::default();
        let at = |ms: u64| Instant::ZERO + Span::from_millis(ms);
        (0..2_000).for_each(|ms| _ = monitor.observe(at(ms)));
        let rate = monitor.rate_per_s(at(2_000));
        assert!((990.0..=1_010.0).contains(&rate), "{rate}");
        // Time that goes back is taken as the latest seen.
        assert_eq!(monitor.count(at(0)), monitor.count(at(2_000)));
        assert_eq!(monitor.count(at(2_509)), 0);
        assert!(LoadMonitor::new(Span::ZERO).is_err());
    }
}
