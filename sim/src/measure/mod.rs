//! What a run is measured by, gathered while it runs, in bounded memory.

mod misses;
mod stream;

use rt_core::{Constraint, Instant, MAX_BATCH, Span};
use serde::Serialize;

pub use misses::{Misses, Violations, Window};
pub use stream::{ConstraintSummary, Quantiles, StreamMeasure, StreamSummary, Tally, TallySummary};

/// The measures of one run.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Of each stream; to be fed in the order of its requests.
    pub streams: Vec<StreamMeasure>,
    /// How many batches ran, by size, from 1 on.
    batches: [u64; MAX_BATCH],
    /// The first and the last instant.
    times: Option<(Instant, Instant)>,
}

/// [`Measures`] to be written out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// From the first instant to the last.
    pub seconds: f64,
    /// Requests served a second; `None` if no time passed.
    pub goodput: Option<f64>,
    /// All streams together.
    pub total: TallySummary,
    /// How many batches ran, by size, from 1 on, up to the largest that ran.
    pub batches: Vec<u64>,
    /// Requests in a batch, mean over batches; `None` without.
    pub batch_mean: Option<f64>,
    /// Every stream, in the order given.
    pub streams: Vec<StreamSummary>,
}

impl Measures {
    /// Before the first request of streams that are promised `constraints`. The most misses are followed for windows
    /// of 1 to `longest` requests.
    ///
    /// # Panics
    /// As [`Misses::new`].
    #[must_use]
    pub fn new<'a>(longest: u32, constraints: impl IntoIterator<Item = &'a [Constraint]>) -> Self {
        let streams = constraints.into_iter().map(|constraints| StreamMeasure::new(longest, constraints));
        Self { streams: streams.collect(), batches: [0; MAX_BATCH], times: None }
    }

    /// A batch of `size` requests ran.
    ///
    /// # Panics
    /// If `size` is not in 1..=[`MAX_BATCH`].
    pub fn batch(&mut self, size: usize) {
        self.batches[size - 1] += 1;
    }

    /// Something happened `at` this instant, in whatever order.
    #[inline]
    pub fn seen(&mut self, at: Instant) {
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
    }

    /// From the first instant to the last.
    #[must_use]
    pub fn duration(&self) -> Span {
        self.times.map_or(Span::ZERO, |(first, last)| last.since(first))
    }

    /// How many batches ran of each size from 1 on.
    #[must_use]
    pub const fn batches(&self) -> &[u64; MAX_BATCH] {
        &self.batches
    }

    /// Requests in a batch, mean over batches; `None` without.
    #[must_use]
    pub fn batch_mean(&self) -> Option<f64> {
        let batches: u64 = self.batches.iter().sum();
        let requests: u64 = self.batches.iter().zip(1..).map(|(count, size)| count * size).sum();
        (batches > 0).then(|| requests as f64 / batches as f64)
    }

    /// All streams together.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.streams.iter().fold(Tally::default(), |mut total, stream| {
            total.add(stream.tally());
            total
        })
    }

    /// Requests served a second; `None` if no time passed.
    #[must_use]
    pub fn goodput(&self) -> Option<f64> {
        let served: u64 = self.streams.iter().map(|stream| stream.tally().served_total()).sum();
        let seconds = self.duration().as_secs_f64();
        (seconds > 0.0).then(|| served as f64 / seconds)
    }

    /// To be written out.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let sizes = self.batches.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        Summary {
            seconds: self.duration().as_secs_f64(),
            goodput: self.goodput(),
            total: self.total().summary(),
            batches: self.batches[..sizes].to_vec(),
            batch_mean: self.batch_mean(),
            streams: self.streams.iter().map(StreamMeasure::summary).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_core::MissReason;

    #[test]
    fn a_small_run_is_summed_up() {
        let constraint = Constraint::any_miss(1, 3).expect("valid");
        let mut measures = Measures::new(4, [&[constraint][..], &[]]);
        for millis in [3_000u64, 1_000, 5_000] {
            measures.seen(Instant::from_nanos(millis * 1_000_000));
        }
        for size in [1, 3, 3] {
            measures.batch(size);
        }
        let [first, second] = &mut measures.streams[..] else { panic!("two") };
        first.served(Span::from_millis(1), Some(0.5));
        first.missed(MissReason::Late);
        first.missed(MissReason::Shed);
        second.served(Span::from_millis(3), Some(1.0));
        let summary = measures.summary();
        assert_eq!((summary.seconds, summary.goodput), (4.0, Some(0.5)));
        assert_eq!((summary.batches.as_slice(), summary.batch_mean), (&[1, 0, 2][..], Some(7.0 / 3.0)));
        let total = &summary.total;
        assert_eq!((total.arrived, total.served, total.missed, total.miss_ratio), (4, 2, 2, Some(0.5)));
        assert_eq!((total.missed_by["late"], total.missed_by["expired"]), (1, 0));
        assert_eq!((total.accuracy_of_served, total.accuracy_of_all), (Some(0.75), Some(0.375)));
        assert_eq!(summary.streams[0].longest_miss_run, 2);
        assert_eq!(summary.streams[0].most_misses, [1, 2, 2, 2]);
        let violated =
            ConstraintSummary { constraint: constraint.to_string(), violations: 1, first: Some(2) };
        assert_eq!(summary.streams[0].constraints, [violated]);
        assert_eq!(summary.streams[1].most_misses, [0; 4]);
        let text = serde_json::to_string(&summary.streams[1]).expect("written");
        assert!(
            text.starts_with(r#"{"arrived":1,"served":1,"missed":0,"missed_by":{"cancelled":0,"#),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_summed_up_too() {
        let summary = Measures::new(2, []).summary();
        assert_eq!((summary.seconds, summary.goodput, summary.batch_mean), (0.0, None, None));
        assert_eq!((summary.total.arrived, summary.total.latency_ns), (0, None));
    }
}
