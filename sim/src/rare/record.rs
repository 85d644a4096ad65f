//! What became of the latest requests of a stream, and how close they are to violating a constraint.

use std::collections::VecDeque;

use rt_core::{Alarm, Constraint, Instant, Outcome, StreamState, Transition};
use virtual_time::{Batch, Observer, Request};

/// The latest requests of one stream of a run. A copy goes on by itself.
#[derive(Clone, Debug)]
pub(super) struct Record {
    stream: usize,
    /// Whether each was missed, the latest last; as many as the longest window.
    latest: VecDeque<bool>,
    longest: usize,
    watches: Vec<Watch>,
    /// Some window that ends here has more misses than allowed.
    violated: bool,
    /// Violations that began since this was asked last.
    begun: u64,
}

/// The window of a constraint that ends with the latest request.
#[derive(Clone, Debug)]
struct Watch {
    allowed: usize,
    window: usize,
    misses: usize,
}

impl Record {
    /// Before the first request, where hits are imagined.
    pub(super) fn new(stream: usize, constraints: &[Constraint]) -> Self {
        let watch = |of: &Constraint| Watch {
            allowed: of.misses() as usize,
            window: of.window() as usize,
            misses: 0,
        };
        let watches: Vec<_> = constraints.iter().map(watch).collect();
        let longest = watches.iter().map(|watch| watch.window).max().unwrap_or(1);
        Self {
            stream,
            latest: VecDeque::with_capacity(longest + 1),
            longest,
            watches,
            violated: false,
            begun: 0,
        }
    }

    /// Whether it is the record of that stream.
    pub(super) const fn is_of(&self, stream: usize) -> bool {
        self.stream == stream
    }

    /// How many violations have begun since this was asked last.
    pub(super) fn begun(&mut self) -> u64 {
        std::mem::take(&mut self.begun)
    }

    /// How close it is to a violation, from 0, below 1: of each constraint the misses that its next window begins with, of one more
    /// than it allows. `known` of the requests that are not told yet are missed for sure, and what waits counts as `part` of a miss,
    /// below 1.
    pub(super) fn nearness(&self, known: usize, part: f64) -> f64 {
        let near = |watch: &Watch| {
            // What leaves the window with the next request counts no more.
            let leaves = self.latest.len() >= watch.window && self.latest[self.latest.len() - watch.window];
            let misses = (watch.misses - usize::from(leaves) + known).min(watch.allowed);
            (misses as f64 + part) / (watch.allowed + 1) as f64
        };
        self.watches.iter().map(near).fold(0.0, f64::max)
    }

    /// The next request of the stream, in the order in which they came.
    fn told(&mut self, missed: bool) {
        self.latest.push_back(missed);
        let mut violated = false;
        for watch in &mut self.watches {
            let gone = self.latest.len() > watch.window && self.latest[self.latest.len() - 1 - watch.window];
            watch.misses = watch.misses + usize::from(missed) - usize::from(gone);
            violated |= watch.misses > watch.allowed;
        }
        if self.latest.len() > self.longest {
            self.latest.pop_front();
        }
        self.begun += u64::from(violated && !self.violated);
        self.violated = violated;
    }
}

impl Observer for Record {
    fn request(&mut self, request: &Request) {
        if request.stream == self.stream {
            self.told(request.outcome != Outcome::Served);
        }
    }

    fn batch(&mut self, _: &Batch) {}
    fn safe_mode(&mut self, _: Instant, _: Transition) {}
    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: how often a window of all that came begins to hold too many misses.
    fn by_hand(misses: &[bool], (m, k): (usize, usize)) -> u64 {
        let violated =
            |n: usize| misses[(n + 1).saturating_sub(k)..=n].iter().filter(|missed| **missed).count() > m;
        (0..misses.len()).filter(|&n| violated(n) && (n == 0 || !violated(n - 1))).count() as u64
    }

    #[test]
    fn violations_begin_where_a_window_first_holds_too_many_misses() {
        for (m, k) in [(0, 1), (1, 2), (1, 3), (2, 5)] {
            for bits in 0..1u32 << 14 {
                let misses: Vec<_> = (0..14).map(|i| bits >> i & 1 == 1).collect();
                let constraint = Constraint::any_miss(m, k).expect("valid");
                let mut record = Record::new(0, &[constraint]);
                for &missed in &misses {
                    let (near, before) = (record.nearness(0, 0.0), record.violated);
                    record.told(missed);
                    // One miss away, and no further, is as near as it can be.
                    let allowed = f64::from(m) / f64::from(m + 1);
                    assert!(!missed || before || record.violated == (near >= allowed), "{misses:?}");
                }
                assert_eq!(record.begun(), by_hand(&misses, (m as usize, k as usize)), "{misses:?}");
            }
        }
    }
}
