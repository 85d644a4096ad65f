//! Several workers that share a queue: what becomes of a table there is tried out, and one is made from a price.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rt_core::Span;

use super::{BINS, Expected, Inputs, rows};
use crate::select::Poisson;

/// Prices of worker time are tried from that at which a full batch of the base costs all that it can be worth, each
/// this part of the one before.
const STEP: f64 = 0.6;
const STEPS: i32 = 14;
/// By how much of itself the price rises for each request that waits for a worker.
const RISES: [f64; 6] = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0];
/// Requests to try a table on, and the best tables.
const SHORT: usize = 16_000;
const LONG: usize = 100_000;
/// So many tables are tried at length.
const BEST: usize = 8;
/// What a request missed beyond what may be costs in the search, in right answers.
const MISS: f64 = 20.0;

/// Wishes by what waits and by slack, as [`super::Planned`] has them.
type Wishes = Vec<Vec<u8>>;

/// Arrivals to try tables on.
pub(super) struct Trial<'a> {
    inputs: &'a Inputs,
    arrivals: Vec<u64>,
}

impl<'a> Trial<'a> {
    /// Poisson arrivals of `load` requests a second.
    pub(super) fn new(inputs: &'a Inputs, load: f64) -> Self {
        let arrivals = Poisson::new(load, 1).take(LONG).map(|at| at.as_nanos()).collect();
        Self { inputs, arrivals }
    }

    /// The best of tables by price, and of `others`, with what became of it.
    pub(super) fn best(&self, others: impl IntoIterator<Item = Wishes>) -> (Wishes, Expected) {
        let most = self.inputs.max_miss;
        let scale = 1.0 / self.inputs.variants[0].profile.bound(self.inputs.batch).as_secs_f64();
        let prices = (0..STEPS).map(|step| scale * STEP.powi(step));
        let tables = prices.flat_map(|price| RISES.map(|rise| self.inputs.priced(price, rise)));
        let mut tried: Vec<(f64, Wishes)> = tables
            .map(|wishes| {
                let found = self.run(&wishes, SHORT);
                (found.right() - MISS * (found.missed - most).max(0.0), wishes)
            })
            .collect();
        tried.sort_by(|a, b| b.0.total_cmp(&a.0));
        tried.truncate(BEST);
        let base = vec![vec![0; BINS]];
        let first = (self.run(&base, LONG), base);
        let all = tried.into_iter().map(|(_, wishes)| wishes).chain(others);
        let (expected, wishes) = all.fold(first, |best, wishes| {
            let found = self.run(&wishes, LONG);
            if found.betters(best.0, most) { (found, wishes) } else { best }
        });
        (wishes, expected)
    }

    /// What becomes of them if `variant` is the only one.
    pub(super) fn alone(&self, variant: usize) -> Expected {
        let variants = vec![self.inputs.variants[variant].clone()];
        let batch = self.inputs.batch.min(variants[0].profile.max_batch());
        let inputs = Inputs { variants, batch, ..self.inputs.clone() };
        Trial { inputs: &inputs, arrivals: self.arrivals.clone() }.run(&[vec![0]], LONG)
    }

    /// What becomes of the first `count` requests: a free worker takes at once as many of those that wait longest as
    /// go into a batch and the base has time for, by the variant wished for or the next best that has time; what not
    /// even the base has time for alone is dropped.
    fn run(&self, wishes: &[Vec<u8>], count: usize) -> Expected {
        let Inputs { variants, latency, workers, batch, .. } = self.inputs;
        let arrivals = &self.arrivals[..count.min(self.arrivals.len())];
        let bin = self.inputs.bin().as_nanos();
        let mut free: BinaryHeap<Reverse<u64>> = (0..*workers).map(|_| Reverse(0)).collect();
        let (mut next, mut answered, mut right) = (0, 0.0, 0.0);
        // As many wait as `seen` says less those taken: it only goes forward.
        let mut seen = 0;
        while next < arrivals.len() {
            let Some(mut first) = free.peek_mut() else { break };
            let now = arrivals[next].max(first.0);
            while seen < arrivals.len() && arrivals[seen] <= now {
                seen += 1;
            }
            let slack = Span::from_nanos((arrivals[next] + latency.as_nanos()).saturating_sub(now));
            let waiting = seen - next;
            let size = variants[0].profile.largest_within(slack, waiting.min(*batch));
            if size == 0 {
                next += 1;
                continue;
            }
            let row = &wishes[waiting.min(wishes.len()) - 1];
            let wish = usize::from(row[((slack.as_nanos() / bin) as usize).min(row.len() - 1)]);
            let fits = |&v: &usize| self.inputs.fits(v, size, slack);
            let chosen = (1..=wish).rev().find(fits).unwrap_or(0);
            *first = Reverse(now + variants[chosen].profile.bound(size).as_nanos());
            next += size;
            answered += size as f64;
            right += size as f64 * variants[chosen].accuracy;
        }
        let accuracy = if answered > 0.0 { right / answered } else { 0.0 };
        Expected { accuracy, missed: 1.0 - answered / arrivals.len().max(1) as f64 }
    }
}

impl Inputs {
    /// Wishes for the variant whose right answers are worth most beyond its time, at `price` right answers for a
    /// second; the price rises by `rise` of itself for each request that waits for a worker behind the batch.
    fn priced(&self, price: f64, rise: f64) -> Wishes {
        let wish = |n: usize, bin: u64| {
            let slack = Span::from_nanos(self.bin().as_nanos() * bin);
            let size = self.variants[0].profile.largest_within(slack, n.min(self.batch)).max(1);
            let behind = n.saturating_sub(size) as f64 / self.workers as f64;
            let price = price * (1.0 + rise * behind);
            let worth = |v: usize| {
                let Some(variant) = self.variants.get(v) else { return f64::NEG_INFINITY };
                size as f64 * variant.accuracy - price * variant.profile.bound(size).as_secs_f64()
            };
            let able = (1..self.variants.len()).filter(|&v| self.fits(v, size, slack));
            able.fold(0, |best, v| if worth(v) > worth(best) { v } else { best }) as u8
        };
        let last = self.batch * (1 + 2 * self.workers.min(rt_core::MAX_WORKERS));
        let row = |n| (0..BINS as u64).map(|bin| wish(n, bin)).collect();
        rows::shortened((1..=last).map(row).collect())
    }

    /// Whether a batch of `size` runs with a variant in time.
    fn fits(&self, variant: usize, size: usize, slack: Span) -> bool {
        let profile = &self.variants[variant].profile;
        size <= profile.max_batch() && profile.bound(size) <= slack
    }
}
