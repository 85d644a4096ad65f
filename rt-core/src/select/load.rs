//! How much comes: arrivals counted over a sliding window, in constant time and memory.

use super::{SelectError, range};
use crate::time::{Instant, MAX_SPAN, Span};

/// Parts that arrivals are counted in; all but the newest are whole.
const PARTS: usize = 64;
const WHOLE: u64 = PARTS as u64 - 1;
/// The newest of them, which are held against the others: an eighth of the window.
const RECENT: u64 = PARTS as u64 / 8;
/// The others.
const OLDER: u64 = PARTS as u64 - RECENT;
/// What comes has changed if what came last is off by more than so many standard deviations, squared: by chance once in some hundred
/// times.
const DEVIATIONS: u64 = 9;

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
    /// Of the older parts: what came in them, and its squares part by part.
    older: u64,
    squares: u64,
    /// The parts before the newest one over which the present load is measured: all, or fewer if another load has come since.
    present: u64,
    /// The number of the part that now is in.
    newest: u64,
    now: u64,
    /// When a window has passed since the first came.
    settled: u64,
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
        let counts = [0; PARTS];
        let (total, older, squares, present, newest, now, settled) = (0, 0, 0, WHOLE, 0, 0, u64::MAX);
        Self { window, part, counts, total, older, squares, present, newest, now, settled }
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
        if self.settled == u64::MAX {
            self.settled = self.now.saturating_add(self.window.as_nanos());
        }
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
        per_s(self.total, length)
    }

    /// Requests a second as they come now: over the window, or over its newest eighth where these are more or fewer than chance explains by
    /// what came before, and by how unevenly that came; where nothing did, since it began to come.
    #[must_use]
    pub fn present_per_s(&mut self, now: Instant) -> f64 {
        let over = self.advance(now);
        let count = if self.present < WHOLE { self.total - self.older } else { self.total };
        per_s(count, self.present * self.part + over)
    }

    /// Requests a second to be prepared for: as they come now, but no fewer than over the window, as a lull may be chance and what is slow
    /// is not interrupted when it ends. Until a window has passed since the first came, three standard deviations more than
    /// came in that time: what has only begun to come may be anything, at the instant of the first infinitely many.
    #[must_use]
    #[inline(always)]
    pub fn prudent_per_s(&mut self, now: Instant) -> f64 {
        let length = WHOLE * self.part + self.advance(now);
        // Most often as much has come for a while.
        if self.now >= self.settled && self.present == WHOLE {
            return per_s(self.total, length);
        }
        self.unsettled_per_s(now)
    }

    /// The same, also where another load has come or a window has not passed.
    #[inline(never)]
    fn unsettled_per_s(&mut self, now: Instant) -> f64 {
        if self.now >= self.settled {
            return self.rate_per_s(now).max(self.present_per_s(now));
        }
        let since = self.now.saturating_add(self.window.as_nanos()).saturating_sub(self.settled);
        let count = self.total.max(1);
        per_s(count + (DEVIATIONS * count).isqrt(), since)
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
        if newest - self.newest >= PARTS as u64 {
            self.counts.fill(0);
            (self.total, self.older, self.squares) = (0, 0, 0);
        } else {
            for part in self.newest + 1..=newest {
                // The oldest part goes, and the last of the recent ones becomes one of the older.
                let gone = u64::from(core::mem::take(&mut self.counts[part as usize % PARTS]));
                let aged = u64::from(self.counts[(part + OLDER) as usize % PARTS]);
                self.total -= gone;
                self.older = self.older + aged - gone;
                self.squares = self.squares + aged * aged - gone * gone;
            }
        }
        self.newest = newest;
        self.present = self.parts_of_present();
    }

    /// Whether more or less came in the newest parts, but for the one that has just begun, than the others let expect; and since when.
    fn parts_of_present(&self) -> u64 {
        let mean = self.older as f64 / OLDER as f64;
        let variance = (self.squares as f64 / OLDER as f64 - mean * mean).max(mean);
        let expected = mean * (RECENT - 1) as f64;
        let off = (self.total - self.older) as f64 - expected;
        if off * off <= DEVIATIONS as f64 * ((RECENT - 1) as f64 * variance).max(1.0) {
            return WHOLE;
        }
        let is_empty = |back: &u64| self.counts[(self.newest + PARTS as u64 - back) as usize % PARTS] == 0;
        let quiet = (1..RECENT).rev().take_while(|back| self.older == 0 && is_empty(back)).count() as u64;
        RECENT - 1 - quiet
    }
}

impl Default for LoadMonitor {
    /// Over [`LoadMonitor::DEFAULT_WINDOW`].
    fn default() -> Self {
        Self::of(Self::DEFAULT_WINDOW)
    }
}

/// Both are far below 2^63; signed numbers become floats in one step.
fn per_s(count: u64, nanos: u64) -> f64 {
    count as i64 as f64 * 1e9 / nanos as i64 as f64
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

    /// Poisson arrivals, one rate after the other, each for so many milliseconds; the rate that is seen every millisecond.
    fn seen(rates: &[(f64, u64)], burst: u32) -> Vec<f64> {
        let mut monitor = LoadMonitor::default();
        let (mut state, mut seen, mut ms) = (7_u64, Vec::new(), 0);
        for &(per_s, length) in rates {
            for _ in 0..length {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let drawn = (state >> 11) as f64 / (1_u64 << 53) as f64;
                let at = Instant::ZERO + Span::from_millis(ms);
                if drawn < per_s / 1e3 / f64::from(burst) {
                    (0..burst).for_each(|_| _ = monitor.observe(at));
                }
                seen.push(monitor.present_per_s(at));
                ms += 1;
            }
        }
        seen
    }

    #[test]
    fn another_load_is_seen_within_a_small_part_of_the_window_and_chance_is_none() {
        let seen_of = |burst| seen(&[(100.0, 3_000), (600.0, 1_000), (100.0, 3_000)], burst);
        for burst in [1, 4] {
            let seen = seen_of(burst);
            let soon = |from: usize, holds: &dyn Fn(f64) -> bool| {
                seen[from..].iter().position(|&rate| holds(rate)).expect("seen") as u64
            };
            assert!(soon(3_000, &|rate| rate > 350.0) < 90, "{} ms", soon(3_000, &|rate| rate > 350.0));
            assert!(soon(4_000, &|rate| rate < 250.0) < 150, "{} ms", soon(4_000, &|rate| rate < 250.0));
            // The window alone takes half of itself.
            let steady: Vec<_> = seen[1_000..3_000].iter().chain(&seen[5_000..]).collect();
            let off = steady.iter().filter(|rate| !(50.0..200.0).contains(**rate)).count();
            assert!(off * 20 < steady.len(), "{off} of {}", steady.len());
        }
    }

    #[test]
    fn what_comes_behind_silence_is_measured_from_when_it_began() {
        let mut monitor = LoadMonitor::default();
        let at = |us: u64| Instant::ZERO + Span::from_micros(us);
        // A thousand a second, from 10 s on; a lone one is no load.
        let _ = monitor.observe(at(9_000_000));
        assert!(monitor.present_per_s(at(9_030_000)) < 3.0);
        for ms in 10_000..10_040 {
            let _ = monitor.observe(at(ms * 1_000));
            let seen = monitor.present_per_s(at(ms * 1_000));
            assert!(ms < 10_020 || (700.0..1_400.0).contains(&seen), "{seen} at {ms}");
        }
    }

    #[test]
    fn what_has_only_begun_to_come_is_taken_for_as_much_as_chance_may_hide() {
        let at = |us: u64| Instant::ZERO + Span::from_micros(us);
        let (mut monitor, mut state, mut now) = (LoadMonitor::default(), 5_u64, 9_000_000);
        let first = now;
        // A thousand a second at random.
        while now < first + 700_000 {
            let _ = monitor.observe(at(now));
            let (prudent, present) = (monitor.prudent_per_s(at(now)), monitor.present_per_s(at(now)));
            match now - first {
                0 => assert_eq!(prudent, f64::INFINITY),
                500_000.. => assert_eq!(prudent, present.max(monitor.rate_per_s(at(now)))),
                since => assert!(prudent > 1_000.0 && (since < 100_000 || prudent < 1_700.0), "{prudent}"),
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += (state >> 54) * 2;
        }
    }

    #[test]
    fn a_lull_is_believed_when_the_window_is_over_and_a_rise_at_once() {
        let (mut monitor, at) = (LoadMonitor::default(), |ms: u64| Instant::ZERO + Span::from_millis(ms));
        // A thousand a second, a hundred from 1 s on, and again a thousand from 2 s on.
        let comes = |ms: &u64| !(1_000..2_000).contains(ms) || ms.is_multiple_of(10);
        let mut seen = [(0.0, 0.0); 2_200];
        for ms in (0..2_200).filter(comes) {
            let _ = monitor.observe(at(ms));
            seen[ms as usize] = (monitor.present_per_s(at(ms)), monitor.prudent_per_s(at(ms)));
        }
        assert!(seen[1_100].0 < 300.0 && (700.0..1_000.0).contains(&seen[1_100].1), "{:?}", seen[1_100]);
        assert!(seen[1_520].1 < 200.0, "{:?}", seen[1_520]);
        assert!(seen[2_090].1 > 700.0, "{:?}", seen[2_090]);
    }

    #[test]
    fn what_is_seen_anew_is_counted_as_by_one_who_counts_all_parts() {
        let mut monitor = LoadMonitor::new(Span::from_nanos(63)).expect("valid");
        let mut state = 3_u64;
        let mut now = 0;
        for _ in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += match state >> 58 {
                0 => 200,
                1..4 => 30,
                pause => pause % 3,
            };
            monitor.observe(Instant::from_nanos(now));
            let part = |back: u64| {
                now.checked_sub(back).map_or(0, |at| u64::from(monitor.counts[at as usize % PARTS]))
            };
            let older = (RECENT..PARTS as u64).map(part);
            assert_eq!(monitor.older, older.clone().sum::<u64>());
            assert_eq!(monitor.squares, older.map(|count| count * count).sum::<u64>());
            assert_eq!(monitor.total, (0..PARTS as u64).map(part).sum::<u64>());
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
