//! What is told of a cluster: requests, answers and their accuracy, in all and by when requests came.

use rt_core::{Alarm, Instant, Outcome, StreamState, Transition};
use virtual_time::{Batch, Observer, Request};

use super::Cluster;

/// Seconds that are told together.
pub const BUCKET: u64 = 10;

/// A run on a cluster.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Of each variant of each service, in `0..=1`.
    accuracies: Vec<f64>,
    buckets: Vec<Bucket>,
    batches: (u64, u64),
    end: Instant,
    in_use: f64,
}

/// What came within some seconds, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// Requests that came.
    pub arrived: u64,
    /// How many of them were answered in time.
    pub served: u64,
    /// The sum of the accuracies of those answers.
    pub accuracy: f64,
}

impl Told {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let variants = cluster.problem.services.iter().flat_map(|service| &service.variants);
        Self { accuracies: variants.map(|variant| variant.accuracy / 100.0).collect(), ..Self::default() }
    }

    pub(super) fn held(&mut self, in_use: f64) {
        self.in_use = in_use;
    }

    /// By when requests came: from which second, and what.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, &Bucket)> {
        self.buckets.iter().enumerate().map(|(i, bucket)| ((i as u64 * BUCKET) as f64, bucket))
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> Bucket {
        self.buckets.iter().fold(Bucket::default(), |sum, bucket| Bucket {
            arrived: sum.arrived + bucket.arrived,
            served: sum.served + bucket.served,
            accuracy: sum.accuracy + bucket.accuracy,
        })
    }

    /// What the answers of the worst seconds are less accurate than they could be, in `0..=1`.
    #[must_use]
    pub fn largest_drop(&self) -> f64 {
        let drops = self.buckets.iter().filter(|bucket| bucket.served > 0);
        drops.map(|bucket| 1.0 - bucket.accuracy_of_served()).fold(0.0, f64::max)
    }

    /// Requests of a batch, on average.
    #[must_use]
    pub fn batch(&self) -> f64 {
        self.batches.1 as f64 / self.batches.0 as f64
    }

    /// When the last request came.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end.since(Instant::ZERO).as_secs_f64()
    }

    /// The share of the devices that hold something, on average over the times when that was decided.
    #[must_use]
    pub const fn in_use(&self) -> f64 {
        self.in_use
    }
}

impl Bucket {
    /// The share that was not answered in time.
    #[must_use]
    pub fn misses(&self) -> f64 {
        1.0 - self.served as f64 / self.arrived as f64
    }

    /// Mean accuracy of what was answered in time.
    #[must_use]
    pub fn accuracy_of_served(&self) -> f64 {
        self.accuracy / self.served as f64
    }

    /// The same with misses as 0.
    #[must_use]
    pub fn accuracy_of_all(&self) -> f64 {
        self.accuracy / self.arrived as f64
    }
}

impl Observer for Told {
    fn request(&mut self, request: &Request) {
        let bucket = (request.arrival.as_nanos() / 1_000_000_000 / BUCKET) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, Bucket::default());
        }
        self.end = self.end.max(request.arrival);
        let bucket = &mut self.buckets[bucket];
        bucket.arrived += 1;
        if request.outcome == Outcome::Served {
            bucket.served += 1;
            bucket.accuracy += self.accuracies.get(request.variant).copied().unwrap_or(0.0);
        }
    }

    fn batch(&mut self, batch: &Batch) {
        self.batches = (self.batches.0 + 1, self.batches.1 + batch.size as u64);
    }

    fn safe_mode(&mut self, _: Instant, _: Transition) {}

    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}
