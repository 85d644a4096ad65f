//! Arrival bounds: what a stream declares about when its requests come.

use core::fmt;

use crate::distances::{Distances, MAX_DISTANCES};
use crate::time::{Instant, MAX_SPAN, Span};

/// The most requests that a window or bucket may hold.
pub const MAX_COUNT: u64 = 1 << 16;
/// The most bounds on one stream; the least of them counts.
pub const MAX_BOUNDS: usize = 4;

/// One bound on a stream's arrivals. Intervals are half-open, `[t, t+Δ)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArrivalBound {
    /// At most `count` requests in any interval of length `length`: `α(Δ) = count · ceil(Δ/length)`.
    Window {
        /// Requests, in `1..=MAX_COUNT`.
        count: u64,
        /// Length, in `1 ns..=MAX_SPAN`.
        length: Span,
    },
    /// One request a `period`, each up to `jitter` late: `α(Δ) = ceil((Δ+jitter)/period)`.
    Periodic {
        /// Period, in `1 ns..=MAX_SPAN`.
        period: Span,
        /// Jitter, in `0..=MAX_SPAN`, at most `MAX_COUNT` periods.
        jitter: Span,
    },
    /// At least `d(i)` from a request to the `i`-th after it: `α(Δ) = 1 + max { i : d(i) < Δ }`.
    Distances(Distances),
}

/// Why something is no arrival curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrivalError {
    /// A count outside `1..=MAX_COUNT`.
    #[error("{count} requests are outside 1..={MAX_COUNT}")]
    Count {
        /// The count given.
        count: u64,
    },
    /// A window or period outside `1 ns..=MAX_SPAN`.
    #[error("length {length} is outside 1 ns..={MAX_SPAN}")]
    Length {
        /// The length given.
        length: Span,
    },
    /// More jitter than [`MAX_SPAN`], or than [`MAX_COUNT`] periods.
    #[error("jitter {jitter} is above {MAX_SPAN} or above {MAX_COUNT} periods of {period}")]
    Jitter {
        /// The jitter given.
        jitter: Span,
        /// The period it belongs to.
        period: Span,
    },
    /// No distance, or more than [`MAX_DISTANCES`].
    #[error("{count} distances, must be 1..={MAX_DISTANCES}")]
    Distances {
        /// How many were given.
        count: usize,
    },
    /// A distance above [`MAX_SPAN`].
    #[error("distance {index} is {distance}, above {MAX_SPAN}")]
    Distance {
        /// Which one, from 1.
        index: usize,
        /// The distance.
        distance: Span,
    },
    /// A request that is nearer than one before it.
    #[error("distance {index} is {distance}, below the {before} before it: distances must not decrease")]
    Decreasing {
        /// Which one, from 1.
        index: usize,
        /// The distance.
        distance: Span,
        /// The one before it.
        before: Span,
    },
    /// Nothing but zeros, which any number of requests at once would keep.
    #[error("all of {count} distances are zero, so any number of requests may come at once")]
    Unbounded {
        /// How many distances there are.
        count: usize,
    },
    /// A least distance of zero, or above the period.
    #[error("least distance {distance} is outside 1 ns..={period}, the period")]
    LeastDistance {
        /// The least distance.
        distance: Span,
        /// The period it belongs to.
        period: Span,
    },
    /// Fewer than two requests in a trace.
    #[error("a trace of {len} requests has no distances, it needs at least 2")]
    TraceLength {
        /// How many there are.
        len: usize,
    },
    /// A request of a trace that is earlier than the one before it.
    #[error(
        "request {position} of the trace, counted from 0, came at {} ns, before the last one at {} ns",
        .instant.as_nanos(), .before.as_nanos()
    )]
    TraceOrder {
        /// Which one, from 0.
        position: usize,
        /// When it came.
        instant: Instant,
        /// When the one before it came.
        before: Instant,
    },
    /// No bound, or more than [`MAX_BOUNDS`].
    #[error("{count} arrival bounds on one stream, must be 1..={MAX_BOUNDS}")]
    Bounds {
        /// How many were given.
        count: usize,
    },
}

impl ArrivalBound {
    /// At most `count` requests in any half-open interval of `length`.
    ///
    /// # Errors
    /// If `count` is not in `1..=MAX_COUNT` or `length` not in `1 ns..=MAX_SPAN`.
    pub fn window(count: u64, length: Span) -> Result<Self, ArrivalError> {
        check_count(count)?;
        check_length(length)?;
        Ok(Self::Window { count, length })
    }

    /// One request a `period`, each up to `jitter` late.
    ///
    /// # Errors
    /// If `period` is not in `1 ns..=MAX_SPAN`, or `jitter` above `MAX_SPAN` or `MAX_COUNT` periods.
    pub fn periodic(period: Span, jitter: Span) -> Result<Self, ArrivalError> {
        check_length(period)?;
        if jitter > MAX_SPAN || jitter.as_nanos() / period.as_nanos() >= MAX_COUNT {
            return Err(ArrivalError::Jitter { jitter, period });
        }
        Ok(Self::Periodic { period, jitter })
    }

    /// A token bucket of `burst` tokens, refilled by one every `period`: the same curve as requests of
    /// that period with a jitter of `burst - 1` periods.
    ///
    /// # Errors
    /// As [`ArrivalBound::window`] and [`ArrivalBound::periodic`].
    pub fn token_bucket(burst: u64, period: Span) -> Result<Self, ArrivalError> {
        check_count(burst)?;
        check_length(period)?;
        // At most MAX_SPAN · MAX_COUNT, far inside 64 bits.
        Self::periodic(period, Span::from_nanos(period.as_nanos() * (burst - 1)))
    }

    /// At least `distances[i - 1]` from a request to the `i`-th after it, for every list of [`Distances`].
    ///
    /// # Errors
    /// As [`Distances::new`].
    pub fn distances(distances: &[Span]) -> Result<Self, ArrivalError> {
        Distances::new(distances).map(Self::Distances)
    }

    /// `α(length)`: the most requests in any half-open interval of that length; none in an empty one.
    #[must_use]
    pub fn count(&self, length: Span) -> u64 {
        let delta = length.as_nanos();
        if delta == 0 {
            return 0;
        }
        match self {
            Self::Window { count, length } => count.saturating_mul(delta.div_ceil(length.as_nanos())),
            Self::Periodic { period, jitter } => {
                delta.saturating_add(jitter.as_nanos()).div_ceil(period.as_nanos())
            }
            Self::Distances(distances) => distances.count(length),
        }
    }

    /// Whether `other` is found to allow whatever this allows, in intervals of any length. Bounds of different forms are compared
    /// where that takes one look at each; of others it is never said.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            // The n-th request after the first comes n periods less the jitter later, or at once: with periods that are no shorter none comes
            // sooner than the other bound allows, if the first that this one has wait does not.
            (Self::Periodic { period, jitter }, Self::Periodic { period: least, jitter: most }) => {
                let [period, jitter, least, most] =
                    [period, jitter, least, most].map(|of| u128::from(of.as_nanos()));
                least <= period && (most / least + 1) * (period - least) + most >= jitter
            }
            // What `count` in `length` come to at most: as many at once, and that rate.
            (Self::Window { count, length }, Self::Periodic { period, jitter }) => {
                let (count, period) = (u128::from(*count), u128::from(period.as_nanos()));
                count * period <= length.as_nanos().into() && (count - 1) * period <= jitter.as_nanos().into()
            }
            (_, Self::Periodic { .. }) => self == other,
            // No more comes in two intervals that follow each other than in one and in the other: it is enough to look where
            // the other bound counts, for it adds up from there. (A list of distances that is not closed may count more.)
            (_, Self::Window { count, length }) => self.count(*length) <= *count,
            (_, Self::Distances(distances)) => {
                let mut counted = (1..).zip(distances.as_slice());
                counted.all(|(count, &least)| self.count(least) <= count)
            }
        }
    }

    /// The least length that can hold more than `count` requests, at least 1 ns.
    pub(crate) fn length_above(&self, count: u64) -> Span {
        let nanos = match self {
            Self::Window { count: n, length } => (count / n).saturating_mul(length.as_nanos()),
            Self::Periodic { period, jitter } => {
                count.saturating_mul(period.as_nanos()).saturating_sub(jitter.as_nanos())
            }
            Self::Distances(distances) => distances.distance(count),
        };
        Span::from_nanos(nanos.saturating_add(1))
    }

    /// The long-run rate as requests per span.
    pub(crate) fn rate(&self) -> (u64, Span) {
        match self {
            Self::Window { count, length } => (*count, *length),
            Self::Periodic { period, .. } => (1, *period),
            Self::Distances(distances) => distances.rate(),
        }
    }

    /// An upper bound on `α(Δ) - rate·Δ` for all `Δ`, in requests.
    pub(crate) fn excess_over_rate(&self) -> u64 {
        match self {
            Self::Window { count, .. } => *count,
            Self::Periodic { period, jitter } => jitter.as_nanos() / period.as_nanos() + 2,
            Self::Distances(distances) => distances.excess_over_rate(),
        }
    }

    /// An upper bound on `rate·Δ - α(Δ)` for all `Δ`, in requests.
    pub(crate) fn shortfall_under_rate(&self) -> u64 {
        match self {
            Self::Window { .. } | Self::Periodic { .. } => 0,
            Self::Distances(distances) => distances.shortfall_under_rate(),
        }
    }
}

impl fmt::Display for ArrivalBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { count, length } => write!(f, "{count} per {length}"),
            Self::Periodic { period, jitter } => write!(f, "every {period}, jitter {jitter}"),
            Self::Distances(distances) => distances.fmt(f),
        }
    }
}

fn check_count(count: u64) -> Result<(), ArrivalError> {
    if (1..=MAX_COUNT).contains(&count) { Ok(()) } else { Err(ArrivalError::Count { count }) }
}

fn check_length(length: Span) -> Result<(), ArrivalError> {
    if length == Span::ZERO || length > MAX_SPAN { Err(ArrivalError::Length { length }) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Small bounds of every kind.
    pub(crate) fn bound() -> impl Strategy<Value = ArrivalBound> {
        prop_oneof![
            (1u64..6, 1u64..12)
                .prop_map(|(n, w)| ArrivalBound::window(n, Span::from_nanos(w)).expect("valid")),
            (1u64..9, 0u64..20).prop_map(|(t, j)| {
                ArrivalBound::periodic(Span::from_nanos(t), Span::from_nanos(j)).expect("valid")
            }),
            (proptest::collection::vec(0u64..9, 0..5), 1u64..9).prop_map(|(mut gaps, last)| {
                gaps.push(last);
                let sums = gaps.iter().scan(0, |sum, gap| {
                    *sum += gap;
                    Some(Span::from_nanos(*sum))
                });
                ArrivalBound::distances(&sums.collect::<Vec<_>>()).expect("valid")
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_least_length_that_holds_more_is_found_exactly(b in bound(), count in 0u64..60) {
            let at = |d: u64| b.count(Span::from_nanos(d));
            let least = (1..).find(|&d| at(d) > count).expect("every bound rises");
            prop_assert_eq!(b.length_above(count).as_nanos(), least);
        }
    }

    #[test]
    fn a_token_bucket_allows_its_burst_at_once_and_one_more_a_period() {
        let bucket = ArrivalBound::token_bucket(3, Span::from_nanos(10)).expect("valid");
        let at = |d| bucket.count(Span::from_nanos(d));
        assert_eq!((at(0), at(1), at(10), at(11), at(20), at(21)), (0, 3, 3, 4, 4, 5));
    }

    #[test]
    fn half_open_windows_have_no_fence_post_error() {
        // Requests exactly 10/2 apart: a half-open window of 10 holds two of them, not three.
        let two = ArrivalBound::window(2, Span::from_nanos(10)).expect("valid");
        assert_eq!(two.count(Span::from_nanos(10)), 2);
        assert_eq!(two.count(Span::from_nanos(11)), 4);
    }

    #[test]
    fn nonsense_is_refused() {
        let ns = Span::from_nanos;
        assert_eq!(ArrivalBound::window(0, ns(1)), Err(ArrivalError::Count { count: 0 }));
        assert_eq!(ArrivalBound::periodic(ns(0), ns(1)), Err(ArrivalError::Length { length: ns(0) }));
        assert!(matches!(ArrivalBound::periodic(ns(1), ns(1 << 17)), Err(ArrivalError::Jitter { .. })));
        let eternity = ns(u64::MAX);
        assert_eq!(ArrivalBound::token_bucket(3, eternity), Err(ArrivalError::Length { length: eternity }));
    }
}
