//! Latency profiles: how long a batch takes at most, the ground every promise stands on, and how long it is expected
//! to take, which decides what nothing was promised for.

use crate::time::{MAX_SPAN, Span};

/// The largest batch that a profile may hold.
pub const MAX_BATCH: usize = 64;

/// What is known of the time of a batch of one size, from its dispatch until its results exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTime {
    /// `P(b)`: it takes no longer. Promises rest on it.
    pub bound: Span,
    /// It takes no longer with the probability that the profile was made for (0.9, say).
    pub likely: Span,
    /// What it takes on average.
    pub mean: Span,
}

impl BatchTime {
    /// A batch of which only the bound is known: it is expected to take all of it.
    #[must_use]
    pub const fn at_most(bound: Span) -> Self {
        Self { bound, likely: bound, mean: bound }
    }
}

/// Times of batches of 1, 2, … requests, none of them less than that of a smaller batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyProfile(heapless::Vec<BatchTime, MAX_BATCH>);

/// Why a list of times is no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No batch size at all, or more than [`MAX_BATCH`].
    #[error("profile of {len} batch sizes, must be 1..={MAX_BATCH}")]
    Length {
        /// How many were given.
        len: usize,
    },
    /// A time is zero or longer than [`MAX_SPAN`].
    #[error("P({batch}) = {time} is outside 1 ns..={MAX_SPAN}")]
    Time {
        /// The batch size.
        batch: usize,
        /// Its time.
        time: Span,
    },
    /// A larger batch takes less time than a smaller one.
    #[error("P({batch}) = {time} is below P({}) = {before}: a profile must not decrease", batch - 1)]
    Decreasing {
        /// The larger batch.
        batch: usize,
        /// Its time.
        time: Span,
        /// The time of the next smaller batch.
        before: Span,
    },
    /// A batch is expected to take longer than it takes at most.
    #[error("a batch of {batch} is expected to take {time}, and takes {bound} at most")]
    Expected {
        /// The batch size.
        batch: usize,
        /// The likely or mean time.
        time: Span,
        /// `P(batch)`.
        bound: Span,
    },
}

impl LatencyProfile {
    /// The profile with `bounds[b-1] = P(b)` and nothing else known.
    ///
    /// # Errors
    /// If there are no times or more than [`MAX_BATCH`], one is zero or above [`MAX_SPAN`], or they decrease.
    pub fn new(bounds: &[Span]) -> Result<Self, ProfileError> {
        Self::of(bounds.iter().map(|&bound| BatchTime::at_most(bound)))
    }

    /// The profile with `times[b-1]` for batches of `b`.
    ///
    /// # Errors
    /// As [`LatencyProfile::new`], for bounds, likely and mean times alike; or if a likely or mean time is above the bound.
    pub fn expected(times: &[BatchTime]) -> Result<Self, ProfileError> {
        Self::of(times.iter().copied())
    }

    /// By batch size what takes longer of the two, up to the largest that both have.
    pub(crate) fn slower_of(&self, other: &Self) -> Self {
        let slower = |(a, b): (&BatchTime, &BatchTime)| BatchTime {
            bound: a.bound.max(b.bound),
            likely: a.likely.max(b.likely),
            mean: a.mean.max(b.mean),
        };
        Self(self.0.iter().zip(&other.0).map(slower).collect())
    }

    fn of(times: impl ExactSizeIterator<Item = BatchTime>) -> Result<Self, ProfileError> {
        let length = ProfileError::Length { len: times.len() };
        if !(1..=MAX_BATCH).contains(&times.len()) {
            return Err(length);
        }
        let mut profile = heapless::Vec::new();
        let mut last = BatchTime::at_most(Span::ZERO);
        for (batch, entry) in (1..).zip(times) {
            let BatchTime { bound, likely, mean } = entry;
            for (time, before) in [(bound, last.bound), (likely, last.likely), (mean, last.mean)] {
                if time == Span::ZERO || time > MAX_SPAN {
                    return Err(ProfileError::Time { batch, time });
                }
                if time < before {
                    return Err(ProfileError::Decreasing { batch, time, before });
                }
                if time > bound {
                    return Err(ProfileError::Expected { batch, time, bound });
                }
            }
            last = entry;
            profile.push(entry).map_err(|_| length)?;
        }
        Ok(Self(profile))
    }

    /// All that is known of batches of `batch`. A batch outside `1..=max_batch()` is read as the nearest one inside.
    #[must_use]
    #[inline]
    pub fn time(&self, batch: usize) -> BatchTime {
        match self.0.get(batch.wrapping_sub(1)) {
            Some(&time) => time,
            None => self.0[batch.clamp(1, self.0.len()) - 1],
        }
    }

    /// `P(batch)`; see [`LatencyProfile::time`].
    #[must_use]
    pub fn bound(&self, batch: usize) -> Span {
        self.time(batch).bound
    }

    /// The time that a batch most likely takes no longer than; see [`BatchTime::likely`].
    #[must_use]
    pub fn likely(&self, batch: usize) -> Span {
        self.time(batch).likely
    }

    /// The mean time of a batch; see [`BatchTime::mean`].
    #[must_use]
    pub fn mean(&self, batch: usize) -> Span {
        self.time(batch).mean
    }

    /// `P(1), P(2), …`: what a promise is computed from.
    #[must_use]
    pub fn bounds(&self) -> impl ExactSizeIterator<Item = Span> + '_ {
        self.0.iter().map(|time| time.bound)
    }

    /// The largest batch of the profile, at least 1.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.0.len()
    }

    /// The largest `b ≤ limit` with `P(b) ≤ within`; 0 if not even one request fits.
    #[must_use]
    pub fn largest_within(&self, within: Span, limit: usize) -> usize {
        self.0[..limit.min(self.0.len())].partition_point(|time| time.bound <= within)
    }

    /// The largest `b ≤ limit` that most likely takes no longer than `within`; 0 if not even one request does.
    #[must_use]
    pub fn largest_likely_within(&self, within: Span, limit: usize) -> usize {
        self.0[..limit.min(self.0.len())].partition_point(|time| time.likely <= within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_positive_and_never_decreases() {
        let span = Span::from_nanos;
        assert_eq!(LatencyProfile::new(&[]), Err(ProfileError::Length { len: 0 }));
        assert_eq!(
            LatencyProfile::new(&[span(3), span(2)]),
            Err(ProfileError::Decreasing { batch: 2, time: span(2), before: span(3) })
        );
        assert!(matches!(LatencyProfile::new(&[span(0)]), Err(ProfileError::Time { batch: 1, .. })));
        assert!(matches!(LatencyProfile::new(&[span(1); 65]), Err(ProfileError::Length { len: 65 })));
    }

    #[test]
    fn what_is_expected_is_never_above_the_bound_and_never_decreases() {
        let span = Span::from_nanos;
        let time =
            |bound, likely, mean| BatchTime { bound: span(bound), likely: span(likely), mean: span(mean) };
        let profile = LatencyProfile::expected(&[time(18, 13, 12), time(33, 14, 13)]).expect("valid");
        assert_eq!((profile.bound(2), profile.likely(2), profile.mean(9)), (span(33), span(14), span(13)));
        assert_eq!((profile.largest_within(span(20), 2), profile.largest_likely_within(span(20), 2)), (1, 2));
        let above = LatencyProfile::expected(&[time(18, 19, 12)]);
        assert_eq!(above, Err(ProfileError::Expected { batch: 1, time: span(19), bound: span(18) }));
        let falls = LatencyProfile::expected(&[time(18, 13, 12), time(18, 13, 11)]);
        assert_eq!(falls, Err(ProfileError::Decreasing { batch: 2, time: span(11), before: span(12) }));
    }

    #[test]
    fn the_largest_batch_within_a_time_is_found() {
        let profile = LatencyProfile::new(&[2, 3, 5, 5].map(Span::from_nanos)).expect("valid");
        let largest = |t, limit| profile.largest_within(Span::from_nanos(t), limit);
        assert_eq!(
            (largest(1, 4), largest(2, 4), largest(4, 4), largest(5, 4), largest(5, 3)),
            (0, 1, 2, 4, 3)
        );
    }
}
