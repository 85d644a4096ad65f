//! What becomes of a table is tried out on the daemon's scheduler, in virtual time; tables are made from prices.

use rt_core::{
    Alarm, Dispatch, Instant, LoadMonitor, Outcome, SafeModeConfig, Scheduler, SchedulerConfig, SelectError,
    SelectTable, Selector, Shield, Span, StreamSpec, StreamState, Transition, Workers,
};
use virtual_time::{Batch, Observer, Order, Poisson, Request, Scheduled, drive};

use super::{BINS, Expected, Inputs, SelectionError};

/// Prices of worker time are tried from that at which a full batch of the base costs all that it can be worth, each
/// this part of the one before.
const STEP: f64 = 0.6;
const STEPS: i32 = 14;
/// By how much of itself the price rises for each request that waits for a worker.
const RISES: [f64; 6] = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0];
/// What a request missed beyond what may be costs in the search, in right answers.
const MISS: f64 = 20.0;

/// Requests that can wait: more than are in time at any load that the base carries.
const QUEUE: usize = 1 << 14;

/// Wishes by what waits and by slack, as [`super::Planned`] has them.
type Wishes = Vec<Vec<u8>>;

/// How many requests the tables are tried on, round by round, and how many tables stay after each but the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) rounds: [(usize, usize); 2],
    pub(super) last: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { rounds: [(4_000, 24), (16_000, 8)], last: 100_000 }
    }
}

/// Arrivals to try tables on.
pub(super) struct Trial<'a> {
    inputs: &'a Inputs,
    arrivals: Vec<Instant>,
    effort: Effort,
}

impl<'a> Trial<'a> {
    /// Poisson arrivals of `load` requests a second.
    pub(super) fn new(inputs: &'a Inputs, load: f64, effort: Effort) -> Self {
        let arrivals = Poisson::new(load, 1).take(effort.last).collect();
        Self { inputs, arrivals, effort }
    }

    /// The best of tables by price, and of `others`, with what became of it.
    pub(super) fn best(
        &self,
        others: impl IntoIterator<Item = Wishes>,
    ) -> Result<(Wishes, Expected), SelectionError> {
        let most = self.inputs.max_miss;
        let scale = 1.0 / self.inputs.variants[0].profile.bound(self.inputs.batch).as_secs_f64();
        let prices = (0..STEPS).map(|step| scale * STEP.powi(step));
        let tables = prices.flat_map(|price| RISES.map(|rise| self.inputs.priced(price, rise)));
        // Many prices make the same table.
        let mut tables: Vec<Wishes> = tables.collect();
        tables.sort_unstable();
        tables.dedup();
        for (requests, stay) in self.effort.rounds {
            let worth = |wishes: Wishes| {
                let found = self.run(&wishes, requests)?;
                Ok((found.right() - MISS * (found.missed - most).max(0.0), wishes))
            };
            let mut tried: Vec<_> = tables.into_iter().map(worth).collect::<Result<_, SelectionError>>()?;
            tried.sort_by(|a, b| b.0.total_cmp(&a.0));
            tried.truncate(stay);
            tables = tried.into_iter().map(|(_, wishes)| wishes).collect();
        }
        let base = vec![vec![0; BINS]];
        let mut best = (self.run(&base, self.effort.last)?, base);
        for wishes in tables.into_iter().chain(others) {
            let found = self.run(&wishes, self.effort.last)?;
            if found.betters(best.0, most) {
                best = (found, wishes);
            }
        }
        Ok((best.1, best.0))
    }

    /// What becomes of them if `variant` is the only one.
    pub(super) fn alone(&self, variant: usize) -> Result<Expected, SelectionError> {
        let inputs = self.inputs.alone(variant);
        Trial { inputs: &inputs, arrivals: self.arrivals.clone(), effort: self.effort }
            .run(&[vec![0]], self.effort.last)
    }

    /// What becomes of the first `count` requests at the scheduler, where nothing is promised.
    fn run(&self, wishes: &[Vec<u8>], count: usize) -> Result<Expected, SelectionError> {
        self.inputs.tried(self.inputs.by_wishes(wishes)?, self.arrivals.iter().take(count).copied())
    }
}

/// Counts what is answered in time, and right.
struct Count {
    accuracies: Vec<f64>,
    answered: u64,
    all: u64,
    right: f64,
}

impl Observer for Count {
    fn request(&mut self, request: &Request) {
        self.all += 1;
        if request.outcome == Outcome::Served {
            self.answered += 1;
            self.right += self.accuracies[request.variant];
        }
    }

    fn batch(&mut self, _: &Batch) {}

    fn safe_mode(&mut self, _: Instant, _: Transition) {}

    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}

impl Inputs {
    /// What becomes of requests that come at `arrivals`, in order, on the daemon's scheduler, if `selector` selects, nothing is
    /// promised and every batch takes its bound: in virtual time.
    ///
    /// # Errors
    /// As [`Inputs::scheduled`].
    pub fn tried(
        &self,
        selector: Selector,
        arrivals: impl IntoIterator<Item = Instant>,
    ) -> Result<Expected, SelectionError> {
        let accuracies = self.variants.iter().map(|variant| variant.accuracy).collect();
        let mut count = Count { accuracies, answered: 0, all: 0, right: 0.0 };
        let arrivals = arrivals.into_iter().map(|at| (at, 0));
        // They come in order.
        let _ =
            drive(&mut self.scheduled(selector)?, arrivals, Order::Together, |_, _, bound| bound, &mut count);
        let Count { answered, all, right, .. } = count;
        let accuracy = if answered > 0 { right / answered as f64 } else { 0.0 };
        Ok(Expected { accuracy, missed: 1.0 - answered as f64 / all.max(1) as f64 })
    }

    /// The same with `variant` alone, which forms its own batches.
    ///
    /// # Panics
    /// If there is no such variant.
    #[must_use]
    pub fn alone(&self, variant: usize) -> Self {
        let variants = vec![self.variants[variant].clone()];
        // A batch that is late by itself is none.
        let batch = variants[0].profile.largest_within(self.latency, self.batch).max(1);
        Self { variants, batch, ..self.clone() }
    }

    /// Who reads a table of `wishes` at any load.
    pub(super) fn by_wishes(&self, wishes: &[Vec<u8>]) -> Result<Selector, SelectError> {
        let bins = wishes.first().map_or(0, Vec::len);
        let table = SelectTable::new(f64::INFINITY, self.bin(), bins, wishes.concat())?;
        Selector::new(self.variants.clone(), vec![table], LoadMonitor::default())
    }

    /// The scheduler that `selector` selects for, before its first request, and one stream that is promised nothing.
    ///
    /// # Errors
    /// What the scheduler finds wrong with variants, workers or latency.
    pub fn scheduled(&self, selector: Selector) -> Result<Scheduled, SelectionError> {
        let Self { ref variants, latency, workers: count, batch, .. } = *self;
        let workers = Workers { count, batch, profile: variants[0].profile.clone() };
        let shield = Shield::new(&workers, latency, None)?;
        let second = Span::from_millis(1_000);
        let mut scheduler = Scheduler::new(SchedulerConfig {
            deadline: latency,
            guard: Span::ZERO,
            tolerance: Span::ZERO,
            stalls: None,
            workers: vec![workers],
            dispatch: Dispatch::Eager,
            background: true,
            spread: false,
            queue: QUEUE,
            streams: 1,
            safe_mode: SafeModeConfig { hold: second, clean: second, latch: false },
        })?;
        let stream = scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort())?;
        scheduler.set_shield(Some(shield))?;
        scheduler.set_selector(Some(selector))?;
        Ok(Scheduled::new(scheduler, vec![stream]))
    }

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
        let last = self.batch * (1 + 2 * self.workers);
        let row = |n| (0..BINS as u64).map(|bin| wish(n, bin)).collect();
        let mut rows: Wishes = (1..=last).map(row).collect();
        // The last row is also for more.
        while let [.., before, last] = &rows[..]
            && before == last
        {
            rows.pop();
        }
        rows
    }

    /// Whether a batch of `size` runs with a variant in time.
    fn fits(&self, variant: usize, size: usize, slack: Span) -> bool {
        let profile = &self.variants[variant].profile;
        size <= profile.max_batch() && profile.bound(size) <= slack
    }
}
