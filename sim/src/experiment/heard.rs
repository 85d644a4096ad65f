//! What a run is measured by, heard as it happens.

use planner::Problem;
use rt_core::{Alarm, Cause, Instant, Outcome, Selector, StreamState, Transition};

use super::cluster::{Moments, at};
use super::quantity::Quantity;
use super::system::System;
use crate::cluster::{BUCKET, Bucket};
use crate::measure::{Measures, Misses, Quantiles, StreamMeasure};
use virtual_time::{Batch, Observer, PipelineObserver, Request, SourceEnd, StageBatch};

/// What is heard of a run.
pub(super) struct Heard {
    measures: Measures,
    /// Of the answers of each worker, and of each variant where there are several.
    accuracy: Vec<Option<f64>>,
    variants: Vec<f64>,
    /// When the first cause for safe mode was announced that is not itself a violation.
    announced: Option<Instant>,
    /// When the promise to each stream was first suspended for such a cause.
    suspended: Vec<Option<Instant>>,
    /// Of each stream, the latest instant at which a miss was known.
    missed: Vec<Instant>,
    /// Misses that violated a constraint before anything was announced.
    unannounced: u64,
    /// Of a pipeline, requests at all stages, and how many of them were lost.
    requests: (u64, u64),
    /// Of a pipeline, how many workers are kept in use since when, and worker-seconds before.
    in_use: Option<(Instant, usize, f64)>,
    /// The same, and what came, by ten seconds.
    buckets: Vec<(Bucket, f64)>,
    /// How many there are.
    workers: usize,
    latest: Instant,
}

impl Heard {
    pub(super) fn new(problem: &Problem, longest: u32, system: &System) -> Self {
        let variants = system.selector.iter().flat_map(Selector::variants).map(|variant| variant.accuracy);
        let models = system.fleet.iter().flat_map(|fleet| &fleet.models).map(|model| model.accuracy);
        Self {
            measures: Measures::new(longest, problem.specs().map(|spec| spec.constraints().as_slice())),
            accuracy: system.accuracy.clone(),
            variants: variants.chain(models).collect(),
            announced: None,
            suspended: vec![None; problem.streams.len()],
            missed: vec![Instant::ZERO; problem.streams.len()],
            unannounced: 0,
            requests: (0, 0),
            in_use: None,
            buckets: Vec::new(),
            workers: system.pipeline.as_ref().map_or(0, |of| of.workers()),
            latest: Instant::ZERO,
        }
    }

    /// NaN if the run has none.
    pub(super) fn quantity(&self, quantity: Quantity) -> f64 {
        let total = self.measures.total();
        let arrived = total.arrived() as f64;
        let streams = || self.measures.streams.iter().map(StreamMeasure::misses);
        let latency = |pick: fn(&Quantiles) -> u64| total.latency().map(|l| pick(&l) as f64 / 1e6);
        let number = match quantity {
            Quantity::Misses => Some(total.missed_total() as f64 / arrived),
            Quantity::Mcd => streams().map(|misses| misses.longest_row() as f64).reduce(f64::max),
            Quantity::Strictest(k) => {
                let worst = |misses: &Misses| misses.worst(k).map(|window| f64::from(window.misses));
                streams().filter_map(worst).reduce(f64::max)
            }
            Quantity::Violations => {
                // Of several constraints the one that is violated most often.
                let most = |misses: &Misses| misses.violations().map(|(_, v)| v.count).max().unwrap_or(0);
                Some(streams().map(most).sum::<u64>() as f64 / arrived)
            }
            Quantity::Unannounced => Some(self.unannounced as f64 / arrived),
            Quantity::Announced => {
                let any = self.announced.is_some() || self.suspended.iter().any(Option::is_some);
                Some(f64::from(u8::from(any)))
            }
            Quantity::Goodput => self.measures.goodput(),
            Quantity::Batch => self.measures.batch_mean(),
            Quantity::Latency(500) => latency(|l| l.p50),
            Quantity::Latency(900) => latency(|l| l.p90),
            Quantity::Latency(990) => latency(|l| l.p99),
            Quantity::Latency(_) => latency(|l| l.max),
            Quantity::Accuracy => total.accuracy_of_served(),
            Quantity::AccuracyOfAll => total.accuracy_of_all(),
            Quantity::Lost => Some(self.requests.1 as f64 / self.requests.0 as f64),
            Quantity::InUse => self.in_use_on_average(),
            // That is of the cell, or of clusters.
            Quantity::Certified | Quantity::AccuracyDrop | Quantity::Offered => None,
            // Nor do requests of classes come by here.
            Quantity::Worth | Quantity::Windows(_) | Quantity::Routed(..) | Quantity::Unavailable(_) => None,
        };
        number.unwrap_or(f64::NAN)
    }

    /// Of a pipeline the same of what came within each ten seconds.
    pub(super) fn moments(mut self, quantities: &[Quantity]) -> Moments {
        if let Some((since, count, _)) = self.in_use {
            self.kept(since, self.latest, count);
        }
        // What ends after the last source has come is no moment of its own.
        let buckets = self.buckets.iter().take_while(|(bucket, _)| bucket.arrived > 0).enumerate();
        let whole = (BUCKET as usize * self.workers) as f64;
        let moment = |(i, (bucket, in_use)): (usize, &(Bucket, f64))| {
            let of = |&quantity: &Quantity| match quantity {
                Quantity::InUse => in_use / whole,
                other => at(bucket, other, BUCKET as f64),
            };
            ((i as u64 * BUCKET) as f64, quantities.iter().map(of).collect())
        };
        let mut moments: Moments = buckets.map(moment).collect();
        // Nor are the last seconds, if they are no ten.
        moments.pop();
        moments
    }

    fn bucket(&mut self, of: Instant) -> &mut (Bucket, f64) {
        let i = (of.as_nanos() / 1_000_000_000 / BUCKET) as usize;
        if i >= self.buckets.len() {
            self.buckets.resize(i + 1, (Bucket::default(), 0.0));
        }
        &mut self.buckets[i]
    }

    /// So many workers were kept in use from one instant to another.
    fn kept(&mut self, mut from: Instant, to: Instant, workers: usize) {
        while from < to {
            let next = (from.as_nanos() / 1_000_000_000 / BUCKET + 1) * BUCKET * 1_000_000_000;
            let end = Instant::from_nanos(next).min(to);
            self.bucket(from).1 += workers as f64 * end.since(from).as_secs_f64();
            from = end;
        }
    }

    fn in_use_on_average(&self) -> Option<f64> {
        let (since, count, before) = self.in_use?;
        let seconds = self.latest.as_nanos() as f64 / 1e9;
        let last = count as f64 * self.latest.since(since).as_secs_f64();
        (seconds > 0.0).then(|| (before + last) / seconds / self.workers as f64)
    }
}

impl PipelineObserver for Heard {
    fn source(&mut self, end: &SourceEnd) {
        let SourceEnd { stream, arrival, ended, .. } = *end;
        self.measures.seen(arrival);
        self.measures.seen(ended);
        self.latest = self.latest.max(ended);
        self.requests.0 += end.requests;
        self.requests.1 += end.lost;
        let bucket = &mut self.bucket(arrival).0;
        bucket.arrived += 1;
        if end.outcome == Outcome::Served {
            (bucket.served, bucket.accuracy) = (bucket.served + 1, bucket.accuracy + end.accuracy);
        }
        match end.outcome {
            Outcome::Served => {
                self.measures.streams[stream].served(ended.since(arrival), Some(end.accuracy));
            }
            // Nobody announces anything yet.
            Outcome::Missed(reason) => {
                self.unannounced += u64::from(self.measures.streams[stream].missed(reason));
            }
        }
    }

    fn batch(&mut self, batch: &StageBatch) {
        self.measures.batch(batch.size);
        self.latest = self.latest.max(batch.finish);
    }

    fn in_use(&mut self, now: Instant, workers: usize) {
        let (since, count, before) = self.in_use.unwrap_or_default();
        self.kept(since, now, count);
        self.in_use = Some((now, workers, before + count as f64 * now.since(since).as_secs_f64()));
        self.latest = self.latest.max(now);
    }
}

impl Observer for Heard {
    fn request(&mut self, request: &Request) {
        let Request { stream, arrival, ended, .. } = *request;
        self.measures.seen(arrival);
        self.measures.seen(ended);
        match request.outcome {
            Outcome::Served => {
                let of_worker = || request.worker.and_then(|worker| self.accuracy[worker]);
                let accuracy = self.variants.get(request.variant).copied().or_else(of_worker);
                self.measures.streams[stream].served(ended.since(arrival), accuracy);
            }
            Outcome::Missed(reason) => {
                let missed = &mut self.missed[stream];
                *missed = ended.max(*missed);
                let first = self.announced.into_iter().chain(self.suspended[stream]).min();
                let announced = first.is_some_and(|announced| announced <= *missed);
                if self.measures.streams[stream].missed(reason) && !announced {
                    self.unannounced += 1;
                }
            }
        }
    }

    fn batch(&mut self, batch: &Batch) {
        self.measures.batch(batch.size);
    }

    fn safe_mode(&mut self, now: Instant, transition: Transition) {
        if transition.breach().is_some_and(|cause| cause != Cause::ConstraintViolated) {
            self.announced.get_or_insert(now);
        }
    }

    fn suspension(&mut self, now: Instant, stream: usize, _: StreamState, alarm: Option<Alarm>) {
        if alarm.is_some_and(|alarm| alarm.cause != Cause::ConstraintViolated) {
            self.suspended[stream].get_or_insert(now);
        }
    }
}
