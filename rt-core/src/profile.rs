//! Latency profiles `P(b)`: how long a batch of `b` takes at most, the ground every promise stands on.

use crate::time::{MAX_SPAN, Span};

/// The largest batch that a profile may hold.
pub const MAX_BATCH: usize = 64;

/// `P(1) ≤ P(2) ≤ … ≤ P(max)`: the bound on the time of a batch of `b` requests, from its dispatch until
/// its results exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyProfile(heapless::Vec<Span, MAX_BATCH>);

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
}

impl LatencyProfile {
    /// The profile with `times[b-1] = P(b)`.
    ///
    /// # Errors
    /// If there are no times or more than [`MAX_BATCH`], one is zero or above [`MAX_SPAN`], or they decrease.
    pub fn new(times: &[Span]) -> Result<Self, ProfileError> {
        let length = ProfileError::Length { len: times.len() };
        if times.is_empty() {
            return Err(length);
        }
        let mut before = Span::ZERO;
        for (i, &time) in times.iter().enumerate() {
            let batch = i + 1;
            if time == Span::ZERO || time > MAX_SPAN {
                return Err(ProfileError::Time { batch, time });
            }
            if time < before {
                return Err(ProfileError::Decreasing { batch, time, before });
            }
            before = time;
        }
        heapless::Vec::from_slice(times).map(Self).map_err(|_| length)
    }

    /// `P(batch)`. A batch outside `1..=max_batch()` is read as the nearest one inside.
    #[must_use]
    pub fn bound(&self, batch: usize) -> Span {
        let index = batch.clamp(1, self.0.len()) - 1;
        self.0[index]
    }

    /// The largest batch of the profile, at least 1.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.0.len()
    }

    /// The largest `b ≤ limit` with `P(b) ≤ within`; 0 if not even one request fits.
    #[must_use]
    pub fn largest_within(&self, within: Span, limit: usize) -> usize {
        self.0[..limit.min(self.0.len())].partition_point(|&time| time <= within)
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
    fn the_largest_batch_within_a_time_is_found() {
        let profile = LatencyProfile::new(&[2, 3, 5, 5].map(Span::from_nanos)).expect("valid");
        let largest = |t, limit| profile.largest_within(Span::from_nanos(t), limit);
        assert_eq!(
            (largest(1, 4), largest(2, 4), largest(4, 4), largest(5, 4), largest(5, 3)),
            (0, 1, 2, 4, 3)
        );
    }
}
