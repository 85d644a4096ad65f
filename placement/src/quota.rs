//! What a device gives to a promise: its quota, and how long what it begins late takes.

use rt_core::Span;

use crate::problem::Promise;

/// The most rises of an arrival curve that are looked at. A quota that would need more is taken lower than it may be.
const MAX_RISES: usize = 20_000;

/// When the batches of a device that keeps a promise end at the latest, after a start that clears.
///
/// Devices of the same shape count as equal, whatever class they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Requests of a full batch.
    pub batch: u32,
    /// How long a full batch takes.
    pub time: Span,
    /// How long the device may be busy with something else before the first.
    pub blocked: Span,
    /// Batches of this service in a round.
    pub turn: u32,
    /// How long the batches of the other service take in a round; zero where there is none.
    pub others: Span,
}

impl Shape {
    /// Of a device with one service: batches of `time`, and now and then one of `longest`.
    #[must_use]
    pub fn alone(batch: u32, time: Span, longest: Span) -> Self {
        Self { batch, time, blocked: longest.max(time), turn: 1, others: Span::ZERO }
    }

    /// Of one that takes turns: `turn` batches of `time`, and `others` of a service whose batches take so long. A batch that began
    /// while nothing else waited counts to no turn, so that a whole turn may follow it, whoever's it is (Theorem T).
    #[must_use]
    pub fn shared(batch: u32, time: Span, turn: u32, (others, each): (u32, Span)) -> Self {
        let others = Span::from_nanos(each.as_nanos() * u64::from(others));
        Self { batch, time, blocked: each.max(time), turn, others }
    }

    /// Whether the device does nothing else.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.others == Span::ZERO && self.blocked == self.time
    }

    /// The most batches that are over by `span`, whatever happens.
    #[must_use]
    pub fn batches_by(&self, span: Span) -> u64 {
        let (turn, round) = (u64::from(self.turn), self.round().as_nanos());
        let Some(left) = span.as_nanos().checked_sub(self.blocked.as_nanos()) else {
            return 0;
        };
        // The i-th ends at ⌈i/turn⌉·others + i·time: whole rounds, and then what is left of one.
        let rest = (left % round).saturating_sub(self.others.as_nanos()) / self.time.as_nanos();
        (left / round).saturating_mul(turn) + rest.min(turn)
    }

    /// Requests a second where all batches are full.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.turn * self.batch) / self.round().as_secs_f64()
    }

    /// How far it may be behind its rate: by `span` as many requests are answered as at that rate in what is longer than this, at least. It
    /// is behind most just before the first batch of a round ends.
    fn lag(&self) -> Span {
        self.blocked + self.others + self.time
    }

    /// How long a round takes.
    #[must_use]
    pub fn round(&self) -> Span {
        self.others + Span::from_nanos(self.time.as_nanos() * u64::from(self.turn))
    }
}

/// A length that requests may come within, and the most mandatory ones of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rise {
    /// From the first of them to the last.
    pub length: Span,
    /// How many.
    pub requests: u64,
}

impl Promise {
    /// The rises of the mandatory requests, from the shortest length on; without end.
    pub fn rises(&self) -> impl Iterator<Item = Rise> + '_ {
        let after = |length: Span| {
            let next = self.windows.iter().map(|(_, window)| {
                Span::from_nanos((length.as_nanos() / window.as_nanos() + 1) * window.as_nanos())
            });
            next.min().unwrap_or(Span::ZERO)
        };
        let lengths = std::iter::successors(Some(Span::ZERO), move |&length| Some(after(length)));
        let mut before = 0;
        lengths.filter_map(move |length| {
            let requests = self.density.ceil_of(self.curve.count(length + Span::from_nanos(1)));
            (requests > before).then(|| {
                before = requests;
                Rise { length, requests }
            })
        })
    }

    /// The long-run rate of mandatory requests, a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.density.as_f64() * self.curve.rate_per_s()
    }

    /// The most by which the mandatory requests within a length can exceed those of the long-run rate.
    pub(crate) fn excess(&self) -> f64 {
        // Whichever window bounds the rate does so from its first rise on.
        let rates = self.windows.iter().map(|&(count, window)| (count as f64 / window.as_secs_f64(), count));
        let least = rates.min_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let (part, whole) = (u64::from(self.density.numerator()), u64::from(self.density.denominator()));
        // What is rounded up: of one window whole counts come, of several any number.
        let step = match (self.windows.as_slice(), least) {
            ([_], Some((_, count))) => part.saturating_mul(count % whole),
            _ => part,
        };
        let rounded = (whole - gcd(step, whole)) as f64 / whole as f64;
        least.map_or(0.0, |(_, count)| self.density.as_f64() * count as f64) + rounded
    }

    /// The length after which the mandatory requests, and batches of these times one after another, grow by the same again: known for
    /// one window alone, and if it is short enough to be looked at.
    pub(crate) fn repetition(&self, times: impl IntoIterator<Item = Span>) -> Option<Span> {
        let [(_, window)] = self.windows.as_slice() else { return None };
        let longest = window.as_nanos().checked_mul(MAX_RISES as u64)?;
        let mut length = window.as_nanos().checked_mul(u64::from(self.density.denominator()))?;
        for time in times {
            length = length.checked_mul(time.as_nanos() / gcd(length, time.as_nanos()))?;
        }
        (length < longest).then_some(Span::from_nanos(length))
    }

    /// The share of this promise that a device of `shape` keeps within `deadline` (Theorem Q): with `n` of them it is kept if
    /// `n` times it is 1 or more. At most 1, never more than it is.
    #[must_use]
    pub fn quota(&self, shape: &Shape, deadline: Span) -> f64 {
        let rate = self.rate();
        if rate <= 0.0 {
            return 1.0;
        }
        let mut quota = (shape.rate() / rate).min(1.0);
        let excess = self.excess();
        let repetition = self.repetition([shape.round()]);
        let lag = shape.lag().as_secs_f64();
        let from_here = |length: Span| {
            let by = (length.as_secs_f64() + deadline.as_secs_f64() - lag) * shape.rate();
            by / (rate * length.as_secs_f64() + excess)
        };
        for (i, rise) in self.rises().enumerate() {
            // From here on what comes and what is done grow as before: where it was below its limit, it rises.
            if repetition.is_some_and(|repetition| rise.length > repetition) {
                return quota;
            }
            let done = u64::from(shape.batch) * shape.batches_by(rise.length + deadline);
            quota = quota.min(done as f64 / rise.requests as f64);
            if quota <= 0.0 {
                return 0.0;
            }
            // It rises with the length if it is below its limit, and what has been seen is below it from here on.
            let least = from_here(rise.length);
            if least >= quota {
                return quota;
            }
            if i >= MAX_RISES {
                return least.max(0.0);
            }
        }
        quota
    }
}

/// The greatest number that divides both, of which one is not 0.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rt_core::{ArrivalBound, ArrivalCurve, Constraint};

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    pub(crate) fn promise(windows: &[(u64, Span)], m: u32, k: u32) -> Promise {
        let bounds: Vec<_> =
            windows.iter().map(|&(count, window)| ArrivalBound::window(count, window).unwrap()).collect();
        let density = Constraint::any_miss(m, k).unwrap().density();
        Promise { curve: ArrivalCurve::new(&bounds).unwrap(), density, windows: windows.to_vec(), m, k }
    }

    /// The ends of batches one after another, by definition.
    fn ends(shape: &Shape) -> impl Iterator<Item = u64> + '_ {
        let (time, others) = (shape.time.as_nanos(), shape.others.as_nanos());
        (1u64..)
            .map(move |i| shape.blocked.as_nanos() + i.div_ceil(u64::from(shape.turn)) * others + i * time)
    }

    proptest! {
        #[test]
        fn batches_are_counted_as_by_definition(
            batch in 1u32..5, time in 1u64..20, longest in 1u64..40, turn in 1u32..4, others in 0u32..4, by in 0u64..300,
        ) {
            let [time, longest] = [time, longest].map(Span::from_nanos);
            for shape in [Shape::alone(batch, time, longest), Shape::shared(batch, time, turn, (others, longest))] {
                let counted = ends(&shape).take_while(|&end| end <= by).count() as u64;
                prop_assert_eq!(shape.batches_by(Span::from_nanos(by)), counted);
            }
        }

        #[test]
        fn a_quota_is_the_least_of_all_rises(
            batch in 1u32..6, time in 1u64..30, turn in 1u32..3, others in 0u32..3, each in 1u64..10,
            count in 1u64..40, window in 1u64..60, m in 0u32..4, deadline in 1u64..150,
        ) {
            let promise = promise(&[(count, ms(window))], m, 5);
            let shape = Shape::shared(batch, ms(time), turn, (others, ms(each)));
            let quota = promise.quota(&shape, ms(deadline));
            let mut least = (shape.rate() / promise.rate()).min(1.0);
            for rise in promise.rises().take(3_000) {
                let done = u64::from(batch) * shape.batches_by(rise.length + ms(deadline));
                least = least.min(done as f64 / rise.requests as f64);
            }
            prop_assert!(quota <= least + 1e-12, "{quota} above {least}");
            prop_assert!(quota >= least * 0.99 - 1e-9, "{quota} far below {least}");
        }
    }

    proptest! {
        /// What is looked at ends early only where both are as close as they can be.
        #[test]
        fn a_device_is_behind_its_rate_and_requests_are_ahead_of_theirs_by_no_more_than_is_said(
            batch in 1u32..6, time in 1u64..30, turn in 1u32..4, others in 0u32..3, each in 1u64..10,
            windows in prop::collection::vec((1u64..40, 1u64..60), 1..3), m in 0u32..5, k in 5u32..13,
        ) {
            let shape = Shape::shared(batch, ms(time), turn, (others, ms(each)));
            let behind = |span: Span| {
                let done = u64::from(batch) * shape.batches_by(span);
                span.as_secs_f64() - done as f64 / shape.rate()
            };
            let lag = shape.lag().as_secs_f64();
            let spans = (0..600).map(|i| behind(Span::from_nanos(ms(i).as_nanos().saturating_sub(1))));
            prop_assert!((spans.fold(0.0, f64::max) - lag).abs() < 1e-6);
            let windows: Vec<(u64, Span)> = windows.into_iter().map(|(count, window)| (count, ms(window))).collect();
            let promise = promise(&windows, m, k);
            let ahead = |rise: Rise| rise.requests as f64 - promise.rate() * rise.length.as_secs_f64();
            let most = promise.rises().take(400).map(ahead).fold(0.0, f64::max);
            prop_assert!(most <= promise.excess() + 1e-9, "{most} above {}", promise.excess());
            prop_assert!(windows.len() > 1 || most >= promise.excess() - 1e-9, "{most} below {}", promise.excess());
        }
    }

    #[test]
    fn rises_are_those_of_both_windows() {
        let promise = promise(&[(2, ms(10)), (3, ms(25))], 0, 1);
        let seen: Vec<_> = promise.rises().take(4).map(|rise| (rise.length, rise.requests)).collect();
        assert_eq!(seen, [(ms(0), 2), (ms(10), 3), (ms(25), 6), (ms(50), 9)]);
    }
}
