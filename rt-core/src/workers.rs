//! Workers: how many of a kind there are, and how long their batches take.

use crate::profile::LatencyProfile;
use crate::time::Span;

/// Identical workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// `n`, at least 1.
    pub count: usize,
    /// `B`, in `1..=profile.max_batch()`: the largest batch they run, and the one the promise is computed for.
    pub batch: usize,
    /// Bounds on batch times; a full batch is `batch` requests in `P = P(batch)`.
    pub profile: LatencyProfile,
}

impl Workers {
    /// `P`, the time of a full batch.
    #[must_use]
    pub fn batch_time(&self) -> Span {
        self.profile.bound(self.batch)
    }

    /// `n·B`, the requests served in one round of full batches.
    #[must_use]
    pub const fn round(&self) -> u64 {
        self.count as u64 * self.batch as u64
    }

    /// Requests a second in full batches, `n·B/P`; for people and estimates.
    #[must_use]
    pub fn capacity_per_s(&self) -> f64 {
        self.round() as f64 / self.batch_time().as_secs_f64()
    }

    /// Whether `count` and `batch` are in their ranges.
    pub(crate) fn is_valid(&self) -> bool {
        self.count > 0 && (1..=self.profile.max_batch()).contains(&self.batch)
    }
}
