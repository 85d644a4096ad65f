//! Misses in windows of consecutive requests, counted as the requests come.

use rt_core::Constraint;

/// Misses that are looked through together.
const CHUNK: usize = 32;

/// Follows which requests of a stream were missed, in their order.
///
/// Before the first request hits are imagined, as everywhere: until `K` requests have come, a window of `K` holds
/// all of them. A hit costs an addition. A miss costs time in proportion to the misses among the latest requests,
/// as many as the longest window asked for, some tenths of a nanosecond each. Memory: some 20 bytes for each
/// request of the longest window.
#[derive(Clone, Debug)]
pub struct Misses {
    arrived: u64,
    missed: u64,
    /// The number of the last miss, if there is one.
    last: Option<u64>,
    row: u64,
    longest_row: u64,
    /// The numbers of the latest misses modulo 2³², the newest first, from `newest` on; everything is written
    /// twice, half the array apart, so that they lie side by side.
    recent: Box<[u32]>,
    newest: usize,
    /// How many of them a window may yet hold together with the next: no two neighbours are as far apart as half
    /// the array is long, so that differences are exact.
    held: usize,
    /// At `j`: the least distance from a miss to the `j`-th before it, below the longest window; else that window.
    least: Box<[u32]>,
    /// At `K - 1`: the most misses in a window of `K`.
    worst: Box<[Worst]>,
    watches: Vec<Watch>,
}

/// A window of consecutive requests of a stream, by their numbers within it, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Window {
    /// The first request.
    pub from: u64,
    /// One after the last.
    pub to: u64,
    /// Misses among them.
    pub misses: u32,
}

/// How a constraint fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violations {
    /// Requests at which the window that ends there held more misses than allowed.
    pub count: u64,
    /// The first of them.
    pub first: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    misses: u32,
    /// The last request of the first window with so many.
    at: u64,
}

/// A constraint, and where windows end that violate it.
#[derive(Clone, Debug)]
struct Watch {
    constraint: Constraint,
    first: Option<u64>,
    /// Of all stretches of such ends before the present one.
    before: u64,
    /// The present stretch. It may end after the requests that have come.
    from: u64,
    to: u64,
}

impl Misses {
    /// Before the first request. The most misses are followed for windows of 1 to `longest`, any length up to
    /// [`MAX_WINDOW`](rt_core::MAX_WINDOW); `constraints` may have longer ones.
    ///
    /// # Panics
    /// If `longest` is above [`MAX_WINDOW`](rt_core::MAX_WINDOW).
    #[must_use]
    pub fn new(longest: u32, constraints: &[Constraint]) -> Self {
        assert!(longest <= rt_core::MAX_WINDOW, "windows of {longest}, at most {}", rt_core::MAX_WINDOW);
        let windows = constraints.iter().map(|constraint| constraint.window());
        let reach = windows.chain([longest, 1]).max().unwrap_or(1) as usize;
        let watch = |&constraint| Watch { constraint, first: None, before: 0, from: 0, to: 0 };
        Self {
            arrived: 0,
            missed: 0,
            last: None,
            row: 0,
            longest_row: 0,
            recent: vec![0; 2 * reach].into(),
            newest: 0,
            held: 0,
            least: vec![longest; longest as usize].into(),
            worst: vec![Worst::default(); longest as usize].into(),
            watches: constraints.iter().map(watch).collect(),
        }
    }

    /// After requests that were served or not, in their order; else as [`Misses::new`].
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn of(longest: u32, constraints: &[Constraint], hits: impl IntoIterator<Item = bool>) -> Self {
        let mut misses = Self::new(longest, constraints);
        hits.into_iter().for_each(|hit| misses.record(hit));
        misses
    }

    /// The next request was served, or missed.
    pub fn record(&mut self, hit: bool) {
        if hit {
            self.hit();
        } else {
            self.miss();
        }
    }

    /// The next request was served.
    #[inline]
    pub fn hit(&mut self) {
        self.arrived += 1;
    }

    /// The next request was missed. Whether the window that ends with it violates a constraint.
    pub fn miss(&mut self) -> bool {
        let at = self.arrived;
        self.arrived += 1;
        self.missed += 1;
        let gap = self.last.replace(at).map_or(u64::MAX, |last| at - last);
        self.row = if gap == 1 { self.row + 1 } else { 1 };
        self.longest_row = self.longest_row.max(self.row);
        let reach = self.recent.len() / 2;
        if gap >= reach as u64 {
            self.held = 0;
        }
        self.newest = if self.newest == 0 { reach } else { self.newest } - 1;
        self.recent[self.newest] = at as u32;
        self.recent[self.newest + reach] = at as u32;
        self.held = (self.held + 1).min(reach);
        let mut violated = false;
        for watch in &mut self.watches {
            let (m, k) = (watch.constraint.misses() as usize, watch.constraint.window());
            if m < self.held {
                let age = (at as u32).wrapping_sub(self.recent[self.newest + m]);
                if age < k {
                    watch.violated(at, at + u64::from(k - 1 - age));
                    violated = true;
                }
            }
        }
        // A miss alone in every window shortens nothing but the first time.
        if self.held.min(self.least.len()) > 1 || self.missed == 1 {
            self.shorten(at);
        }
        violated
    }

    /// Requests so far.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Misses so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The most misses in a row.
    #[must_use]
    pub fn longest_row(&self) -> u64 {
        self.longest_row
    }

    /// The most misses in any window of `K` requests, for each `K` from 1 to the longest: the strictest
    /// `any_miss(m,K)` that held.
    pub fn most(&self) -> impl ExactSizeIterator<Item = u32> {
        self.worst.iter().map(|worst| worst.misses)
    }

    /// The first window of `k` that holds the most misses of all, shorter than `k` at the start; `None` unless `k`
    /// is in 1..=the longest window.
    #[must_use]
    pub fn worst(&self, k: u32) -> Option<Window> {
        let Worst { misses, at } = *self.worst.get((k as usize).checked_sub(1)?)?;
        let to = if misses == 0 { self.arrived.min(u64::from(k)) } else { at + 1 };
        Some(Window { from: to.saturating_sub(u64::from(k)), to, misses })
    }

    /// How each constraint fared, in the order given.
    pub fn violations(&self) -> impl ExactSizeIterator<Item = (Constraint, Violations)> {
        self.watches.iter().map(|watch| {
            let to = watch.to.min(self.arrived);
            let count = watch.before + to.saturating_sub(watch.from);
            (watch.constraint, Violations { count, first: watch.first })
        })
    }

    /// Takes the windows into account that end with the miss `at`, the newest.
    fn shorten(&mut self, at: u64) {
        let longest = self.least.len();
        let recent = &self.recent[self.newest..self.newest + self.held.min(longest)];
        let age = |miss: u32| (at as u32).wrapping_sub(miss);
        for (chunk, (recent, least)) in recent.chunks(CHUNK).zip(self.least.chunks_mut(CHUNK)).enumerate() {
            if age(recent[0]) as usize >= longest {
                break;
            }
            // Hardly ever true after a while, and without branches up to here.
            let shorter =
                recent.iter().zip(&*least).fold(0, |any, (&miss, &least)| any | u32::from(age(miss) < least));
            if shorter == 0 {
                continue;
            }
            for (index, (&miss, least)) in recent.iter().zip(least).enumerate() {
                let misses = (chunk * CHUNK + index + 1) as u32;
                let age = age(miss);
                // The windows of age + 1 to `least` held fewer until now.
                for worst in self.worst.iter_mut().take(*least as usize).skip(age as usize) {
                    if worst.misses < misses {
                        *worst = Worst { misses, at };
                    }
                }
                *least = age.min(*least);
            }
        }
    }
}

impl Watch {
    /// The windows violate that end at the requests `at..=last`. Both ends only grow from call to call.
    fn violated(&mut self, at: u64, last: u64) {
        self.first.get_or_insert(at);
        if at > self.to {
            self.before += self.to - self.from;
            self.from = at;
        }
        self.to = last + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The misses of the window of `k` that ends at each request.
    fn naive(hits: &[bool], k: u32) -> Vec<u32> {
        let start = |end: usize| (end + 1).saturating_sub(k as usize);
        (0..hits.len()).map(|end| hits[start(end)..=end].iter().filter(|&&hit| !hit).count() as u32).collect()
    }

    fn check(misses: &Misses, offset: u64, hits: &[bool], longest: u32) -> Result<(), TestCaseError> {
        prop_assert_eq!(misses.arrived(), offset + hits.len() as u64);
        let row = hits.split(|&hit| hit).map(<[bool]>::len).max().unwrap_or(0);
        prop_assert_eq!(misses.longest_row(), row as u64);
        for (k, found) in (1..=longest).zip(misses.most()) {
            let counts = naive(hits, k);
            let most = counts.iter().copied().max().unwrap_or(0);
            prop_assert_eq!(found, most, "K = {}", k);
            let end = if most == 0 {
                hits.len().min(k as usize)
            } else {
                1 + counts.iter().position(|&n| n == most).expect("the most")
            };
            if offset == 0 {
                let from = end.saturating_sub(k as usize) as u64;
                prop_assert_eq!(misses.worst(k), Some(Window { from, to: end as u64, misses: most }));
            }
        }
        for (constraint, found) in misses.violations() {
            let counts = naive(hits, constraint.window());
            let violates = |&n: &u32| n > constraint.misses();
            prop_assert_eq!(found.count, counts.iter().filter(|&n| violates(n)).count() as u64);
            prop_assert_eq!(found.first, counts.iter().position(violates).map(|at| offset + at as u64));
        }
        Ok(())
    }

    #[test]
    fn a_miss_tells_whether_it_violates_a_constraint() {
        let constraints =
            [Constraint::any_miss(1, 3).expect("valid"), Constraint::row_miss(2).expect("valid")];
        let mut misses = Misses::new(4, &constraints);
        assert!(!misses.miss());
        misses.hit();
        assert!(misses.miss(), "two of three");
        misses.hit();
        misses.hit();
        assert!(!misses.miss());
        assert!(misses.miss() && misses.miss());
    }

    /// Stretches of hits and of misses, some longer than every window, some not.
    fn sequences() -> impl Strategy<Value = Vec<bool>> {
        let stretch = (any::<bool>(), prop_oneof![4 => 1usize..4, 1 => 1usize..80]);
        proptest::collection::vec(stretch, 0..60)
            .prop_map(|all| all.into_iter().flat_map(|(hit, count)| vec![hit; count]).collect())
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_a_naive_recount(
            hits in sequences(),
            longest in 0u32..90,
            windows in proptest::collection::vec((1u32..60).prop_flat_map(|k| (0..k, Just(k))), 0..4),
            offset in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 20)],
        ) {
            let constraints: Vec<_> =
                windows.iter().map(|&(m, k)| Constraint::any_miss(m, k).expect("m < k")).collect();
            let mut misses = Misses::new(longest, &constraints);
            misses.arrived = offset;
            hits.iter().for_each(|&hit| misses.record(hit));
            check(&misses, offset, &hits, longest)?;
        }
    }

    #[test]
    fn the_first_of_equal_windows_is_named() {
        let misses = Misses::of(3, &[], [true, false, false, true, false, false, false]);
        assert_eq!(misses.most().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(misses.worst(2), Some(Window { from: 1, to: 3, misses: 2 }));
        assert_eq!(misses.worst(3), Some(Window { from: 4, to: 7, misses: 3 }));
        assert_eq!((misses.worst(0), misses.worst(4)), (None, None));
        assert_eq!(Misses::of(2, &[], [true; 5]).worst(2), Some(Window { from: 0, to: 2, misses: 0 }));
    }

    #[test]
    fn windows_that_end_with_hits_violate_too() {
        let constraint = Constraint::any_miss(1, 4).expect("valid");
        let misses = Misses::of(0, &[constraint], [false, true, false, true, true, true, false, true]);
        // Those that end at 2 and 3 hold two misses.
        assert_eq!(
            misses.violations().collect::<Vec<_>>(),
            [(constraint, Violations { count: 2, first: Some(2) })]
        );
    }
}
