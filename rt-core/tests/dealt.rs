//! A stream that is dealt to several fronts, checked against counting and against every course of small systems: docs/cluster.md,
//! "Several fronts".
//!
//! Whoever deals runs the balanced word over the whole stream and gives the mandatory requests to the fronts in turn. Each front must
//! answer all that it gets of these; what is optional it may miss.

use rt_core::{BalancedWord, Constraint, Density, largest_count};

/// For each request of the whole stream, the front that must answer it, if one must.
fn dealt(density: Density, fronts: usize, count: usize) -> Vec<Option<usize>> {
    let (mut word, mut next) = (BalancedWord::new(density), (0..fronts).cycle());
    (0..count).map(|_| if word.next_is_mandatory() { next.next() } else { None }).collect()
}

fn constraints() -> impl Iterator<Item = Constraint> {
    (1..=9).flat_map(|k| (0..k).filter_map(move |m| Constraint::any_miss(m, k).ok()))
}

#[test]
fn each_front_has_a_balanced_share_and_together_they_keep_the_constraint() {
    for constraint in constraints() {
        let (m, k) = (constraint.misses() as usize, constraint.window() as usize);
        let density = constraint.density();
        let (p, q) = (density.numerator() as usize, density.denominator() as usize);
        for fronts in 1..=5 {
            let dealt = dealt(density, fronts, 4 * q * fronts + k);
            for begin in 0..dealt.len() {
                for end in begin..=dealt.len() {
                    let (window, count) = (&dealt[begin..end], end - begin);
                    for front in 0..fronts {
                        let own = window.iter().filter(|one| **one == Some(front)).count();
                        let (low, high) = (count * p / (q * fronts), (count * p).div_ceil(q * fronts));
                        assert!((low..=high).contains(&own), "{constraint:?} {fronts} {begin}..{end}: {own}");
                    }
                    // Even if every front misses all that it may.
                    let missed = window.iter().filter(|one| one.is_none()).count();
                    assert!(count != k || missed <= m, "{constraint:?} at {begin}: {missed} of {k}");
                }
            }
        }
    }
}

/// A small system: of the whole stream at most `count` requests in any `window`, at fronts alike with `workers` each, whose batches of up
/// to `batch` take `time`.
#[derive(Clone, Copy, Debug)]
struct Small {
    density: Density,
    count: usize,
    window: usize,
    fronts: usize,
    workers: usize,
    batch: usize,
    time: usize,
}

impl Small {
    /// Theorem A of one front, with its share of what comes: within so long all that it must answer is answered.
    fn bound(&self) -> Option<usize> {
        let share = |length: usize| {
            let whole = self.count * length.div_ceil(self.window);
            self.density.ceil_of(whole as u64).div_ceil(self.fronts as u64) as usize
        };
        let ends = |begin: usize| self.time * (1 + share(begin + 1).div_ceil(self.workers * self.batch));
        // More comes than is computed: nothing bounds it.
        let (many, capacity) = (self.window * self.time * 20, self.workers * self.batch);
        (share(many) * self.time <= many * capacity)
            .then(|| (0..many).map(|begin| ends(begin).saturating_sub(begin)).max())?
    }

    /// The longest that a request waits that must be answered, with arrivals at these instants, and workers that are busy from the start on
    /// for up to a batch. Whoever is idle begins another batch, of what is optional, just before anything comes.
    fn longest(&self, arrivals: &[bool], busy: &[usize]) -> usize {
        let count = arrivals.iter().filter(|comes| **comes).count();
        let mut whose = dealt(self.density, self.fronts, count).into_iter();
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.fronts];
        let mut free: Vec<Vec<usize>> = vec![busy.to_vec(); self.fronts];
        let mut longest = 0;
        for now in 0.. {
            if now >= arrivals.len() && waiting.iter().all(Vec::is_empty) {
                break;
            }
            for (waiting, free) in waiting.iter_mut().zip(&mut free) {
                for worker in free.iter_mut().filter(|worker| **worker <= now) {
                    let batch = waiting.len().min(self.batch);
                    let oldest = waiting.drain(..batch).next();
                    longest = longest.max(oldest.map_or(0, |came| now + self.time - came));
                    *worker = now + self.time;
                }
            }
            if arrivals.get(now) == Some(&true)
                && let Some(front) = whose.next().flatten()
            {
                waiting[front].push(now);
            }
        }
        longest
    }

    /// Whether no window has more.
    fn allows(&self, arrivals: &[bool]) -> bool {
        arrivals
            .windows(self.window)
            .all(|window| window.iter().filter(|comes| **comes).count() <= self.count)
    }
}

#[test]
fn whatever_comes_each_front_answers_in_time_what_it_must() {
    const LENGTH: usize = 11;
    let mut reached = 0;
    for density in [(1, 1), (1, 2), (2, 3), (7, 10)].map(|(p, q)| Density::new(p, q).expect("a share")) {
        for (fronts, workers, batch, time) in
            [(1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 1, 3), (2, 1, 2, 3), (3, 1, 1, 3), (2, 2, 1, 3), (1, 2, 1, 3)]
        {
            for (count, window) in [(1, 1), (1, 2), (2, 3), (2, 4), (3, 4)] {
                let small = Small { density, count, window, fronts, workers, batch, time };
                let Some(bound) = small.bound() else { continue };
                let mut longest = 0;
                for word in 0u32..1 << LENGTH {
                    let arrivals: Vec<_> = (0..LENGTH).map(|tick| word >> tick & 1 == 1).collect();
                    if !small.allows(&arrivals) {
                        continue;
                    }
                    for busy in 0..time.pow(workers as u32) {
                        let busy: Vec<_> = (0..workers as u32).map(|w| busy / time.pow(w) % time).collect();
                        longest = longest.max(small.longest(&arrivals, &busy));
                    }
                }
                assert!(longest <= bound, "{small:?}: {longest} above {bound}");
                reached += usize::from(longest == bound);
            }
        }
    }
    // It is no bound that could be far less.
    assert!(reached > 20, "reached in {reached} systems");
}

#[test]
fn dealing_one_stream_costs_no_rate() {
    for density in (1..=12).flat_map(|q| (1..=q).filter_map(move |p| Density::new(p, q))) {
        for (fronts, workers, batch) in [(2, 1, 1), (3, 2, 4), (5, 3, 2), (7, 1, 8)] {
            let whole = largest_count(fronts * workers, batch, density).expect("a promise");
            // The most for which each share fits the workers of a front.
            let fits =
                |count: u64| density.ceil_of(count).div_ceil(fronts as u64) <= (workers * batch) as u64;
            assert!(fits(whole) && !fits(whole + 1), "{density} {fronts} fronts");
        }
    }
}
