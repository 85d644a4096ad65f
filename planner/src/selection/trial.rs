//! What becomes of a table is tried out on the daemon's scheduler, in virtual time; tables are made from prices, or have them.

use rt_core::{
    Alarm, Dispatch, Instant, LoadMonitor, MAX_PRICE, Manner, Outcome, SafeModeConfig, Scheduler,
    SchedulerConfig, SelectError, SelectTable, Selector, Shield, Span, StreamSpec, StreamState, Transition,
    Workers,
};
use virtual_time::{Batch, Observer, Order, Poisson, Request, Scheduled, drive};

use super::{BINS, Class, Expected, Inputs, Kinds, SelectionError};

/// Prices of worker time are tried from that at which a full batch of the base costs all that it can be worth, each
/// this part of the one before.
const STEP: f64 = 0.6;
const STEPS: i32 = 14;
/// By how much of itself the price rises for each request that waits for a worker.
const RISES: [f64; 6] = [0.0, 0.1, 0.3, 1.0, 3.0, 10.0];
/// What is left of the price for each other worker that is free, where a table has prices.
const FREES: [f64; 3] = [1.0, 0.6, 0.2];
/// More requests, and more workers that are free, are not told apart by prices.
const MAX_ROWS: usize = 4096;
const MAX_FREE: usize = 16;
/// What a request missed beyond what may be costs in the search, in right answers.
const MISS: f64 = 20.0;

/// The seed of which class a request is of.
const CLASSES: u64 = 0xc1a55;
/// Requests that can wait: more than are in time at any load that the base carries.
const QUEUE: usize = 1 << 14;

/// Up to how many requests a batch may hold, if that is less than all that wait: more take less time for each, fewer have more
/// accurate variants in time.
const SIZES: [usize; 7] = [1, 2, 3, 4, 8, 16, 32];

/// In how many batches each worker answers what waits, at most, before they are of more requests.
const WAVES: usize = 2;

/// How batches are formed for tables of wishes.
const MANNERS: [Manner; 2] = [Manner::Plain, Manner::Forming];

/// How many requests the tables are tried on, round by round, and how many tables stay after each but the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Of tables that limit batches, which are many, before the others.
    pub(super) glance: (usize, usize),
    pub(super) rounds: [(usize, usize); 2],
    pub(super) last: usize,
}

#[cfg(test)]
impl Effort {
    /// Of tests: where one table is clearly better.
    pub(super) const QUICK: Self =
        Self { glance: (1_000, 24), rounds: [(2_000, 12), (6_000, 4)], last: 20_000 };
}

impl Default for Effort {
    fn default() -> Self {
        Self { glance: (1_500, 96), rounds: [(4_000, 24), (16_000, 8)], last: 100_000 }
    }
}

/// Arrivals to try tables on.
pub(super) struct Trial<'a> {
    inputs: &'a Inputs,
    load: f64,
    arrivals: Vec<Instant>,
    effort: Effort,
}

impl<'a> Trial<'a> {
    /// Poisson arrivals of `load` requests a second.
    pub(super) fn new(inputs: &'a Inputs, load: f64, effort: Effort) -> Self {
        let arrivals = Poisson::new(load, 1).take(effort.last).collect();
        Self { inputs, load, arrivals, effort }
    }

    /// The best of tables of such kinds, and of the base alone, with what became of it.
    pub(super) fn best(&self, kinds: Kinds) -> Result<(SelectTable, Expected), SelectionError> {
        let most = self.inputs.max_miss;
        let base = SelectTable::constant(0);
        let first = (self.run(&base, self.effort.last)?, base);
        let better = |best: (Expected, SelectTable), other: (Expected, SelectTable)| {
            if other.0.betters(best.0, most) { other } else { best }
        };
        let best = self.finalists(kinds)?.into_iter().fold(first, better);
        Ok((best.1, best.0))
    }

    /// The best tables of such kinds, with what became of each; each variant that can carry the load among them.
    pub(super) fn finalists(&self, kinds: Kinds) -> Result<Vec<(Expected, SelectTable)>, SelectionError> {
        let all = self.inputs.limits().into_iter().map(|sizes| self.inputs.of_kinds(kinds, &sizes));
        let mut all = all.collect::<Result<Vec<_>, SelectError>>()?;
        // Those without a limit are not to be crowded out by so many with one.
        let limited = all.split_off(1).concat();
        let Effort { glance, rounds, .. } = self.effort;
        let mut tables = self.sifted(all.concat(), rounds)?;
        tables.extend(self.sifted(self.sifted(limited, [glance])?, rounds)?);
        let able = (1..self.inputs.variants.len()).filter(|&v| !self.inputs.is_hopeless(v, self.load));
        let constant = able.map(|variant| SelectTable::constant(variant as u8));
        let all = tables.into_iter().chain(constant.flat_map(in_manners));
        all.map(|table| Ok((self.run(&table, self.effort.last)?, table))).collect()
    }

    /// Those that are worth most, round by round.
    fn sifted(
        &self,
        mut tables: Vec<SelectTable>,
        rounds: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<Vec<SelectTable>, SelectionError> {
        let most = self.inputs.max_miss;
        for (requests, stay) in rounds {
            let worth = |table: SelectTable| {
                let found = self.run(&table, requests)?;
                Ok((found.right() - MISS * (found.missed - most).max(0.0), table))
            };
            let mut tried: Vec<_> = tables.into_iter().map(worth).collect::<Result<_, SelectionError>>()?;
            tried.sort_by(|a, b| b.0.total_cmp(&a.0));
            tried.truncate(stay);
            tables = tried.into_iter().map(|(_, table)| table).collect();
        }
        Ok(tables)
    }

    /// What becomes of them if `variant` is the only one.
    pub(super) fn alone(&self, variant: usize) -> Result<Expected, SelectionError> {
        let inputs = self.inputs.alone(variant);
        Trial { inputs: &inputs, load: self.load, arrivals: self.arrivals.clone(), effort: self.effort }
            .run(&SelectTable::constant(0), self.effort.last)
    }

    /// What becomes of the first `count` requests at the scheduler, where nothing is promised.
    fn run(&self, table: &SelectTable, count: usize) -> Result<Expected, SelectionError> {
        let table = table.clone().up_to(f64::INFINITY)?;
        let selector = Selector::new(self.inputs.variants.clone(), [table], LoadMonitor::default())?;
        self.inputs.tried(selector, self.arrivals.iter().take(count).copied())
    }
}

fn in_manners(table: SelectTable) -> [SelectTable; 2] {
    MANNERS.map(|manner| table.clone().in_manner(manner))
}

/// Counts what is answered in time, and right.
struct Count<'a> {
    inputs: &'a Inputs,
    answered: u64,
    all: u64,
    right: f64,
}

impl Observer for Count<'_> {
    fn request(&mut self, request: &Request) {
        self.all += 1;
        if request.outcome == Outcome::Served {
            self.answered += 1;
            self.right += self.inputs.worth_of(request);
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
        let mut count = Count { inputs: self, answered: 0, all: 0, right: 0.0 };
        let arrivals = self.of_classes(arrivals);
        // They come in order.
        let _ =
            drive(&mut self.scheduled(selector)?, arrivals, Order::Together, |_, _, bound| bound, &mut count);
        let Count { answered, all, right, .. } = count;
        let accuracy = if answered > 0 { right / answered as f64 } else { 0.0 };
        Ok(Expected { accuracy, missed: 1.0 - answered as f64 / all.max(1) as f64 })
    }

    /// The same arrivals, each of a class that is drawn by the shares, the same each time.
    pub fn of_classes(
        &self,
        arrivals: impl IntoIterator<Item = Instant>,
    ) -> impl Iterator<Item = (Instant, usize)> {
        let mut dice = Poisson::new(1.0, CLASSES);
        let all: f64 = self.classes.iter().map(|class| class.share).sum();
        arrivals.into_iter().map(move |at| {
            let mut left = if self.classes.len() > 1 { all * dice.unit() } else { 0.0 };
            let drawn = self.classes.iter().position(|class| {
                left -= class.share;
                left <= 0.0
            });
            (at, drawn.unwrap_or(self.classes.len().saturating_sub(1)))
        })
    }

    /// What an answered request was worth; its stream is its class.
    #[must_use]
    pub fn worth_of(&self, request: &Request) -> f64 {
        let Some(Class { worth, .. }) = self.classes.get(request.stream) else {
            return self.variants[request.variant].accuracy;
        };
        let took = request.ended.since(request.arrival);
        worth.worth[request.variant] * worth.decay.part_of(took, worth.deadline)
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
        let mut classes = self.classes.clone();
        classes.iter_mut().for_each(|Class { worth, .. }| worth.worth = [worth.worth[variant]].into());
        Self { variants, batch, classes, ..self.clone() }
    }

    /// The scheduler that `selector` selects for, before its first request, and one stream that is promised nothing; one for each
    /// class where there are some.
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
            streams: self.classes.len().max(1),
            safe_mode: SafeModeConfig { hold: second, clean: second, latch: false },
        })?;
        let add = |_| scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort());
        let streams = (0..self.classes.len().max(1)).map(add).collect::<Result<Vec<_>, _>>()?;
        scheduler.set_shield(Some(shield))?;
        scheduler.set_selector(Some(self.for_classes(selector)?))?;
        // As in the daemon: what is worth nothing any more is given up, and what is wanted soon goes first.
        let within = |class: &Class| class.worth.decay.reach(class.worth.deadline).min(latency);
        let by_stream = (0..).zip(self.classes.iter().map(within)).collect();
        Ok(Scheduled::new(scheduler, streams).of_class_by_stream(by_stream))
    }

    /// The same selector, for these classes.
    ///
    /// # Errors
    /// Classes that none can have.
    pub fn for_classes(&self, selector: Selector) -> Result<Selector, SelectError> {
        let classes: Vec<_> = self.classes.iter().map(|class| class.worth.clone()).collect();
        if classes.is_empty() { Ok(selector) } else { selector.for_classes(classes) }
    }

    /// Tables of such kinds for batches of at most `sizes`.
    fn of_kinds(&self, kinds: Kinds, sizes: &[u8]) -> Result<Vec<SelectTable>, SelectError> {
        let mut tables = if kinds == Kinds::Prices { Vec::new() } else { self.wishing(sizes)? };
        if kinds != Kinds::Wishes && !self.classes.is_empty() {
            tables.extend(self.weighing()?);
        }
        tables.into_iter().map(|table| table.in_batches(sizes)).collect()
    }

    /// The most requests of a batch by how many wait: no limit, and, where requests are all alike, some. Where more wait than each
    /// worker answers in [`WAVES`] batches of so many, a batch has as many as that takes.
    fn limits(&self) -> Vec<Vec<u8>> {
        let wave = WAVES * self.workers;
        let limit = |size: usize| (1..=self.batch * wave).map(|n| size.max(n.div_ceil(wave)) as u8).collect();
        let sizes = SIZES.into_iter().filter(|&size| size <= self.batch && self.classes.is_empty());
        std::iter::once(Vec::new()).chain(sizes.map(limit)).collect()
    }

    /// How many requests a batch of `n` that wait has at most, by such a limit.
    fn taken(&self, n: usize, sizes: &[u8]) -> usize {
        let limit =
            sizes.get(n.min(sizes.len()).wrapping_sub(1)).map_or(self.batch, |&size| usize::from(size));
        n.min(self.batch).min(limit)
    }

    /// Tables of wishes by price, each formed for in each manner.
    fn wishing(&self, sizes: &[u8]) -> Result<Vec<SelectTable>, SelectError> {
        let scale = 1.0 / self.variants[0].profile.bound(self.batch).as_secs_f64();
        let prices = (0..STEPS).map(|step| scale * STEP.powi(step));
        let tables = prices.flat_map(|price| RISES.map(|rise| self.priced(price, rise, sizes)));
        // Many prices make the same table.
        let mut tables: Vec<Vec<u8>> = tables.collect();
        tables.sort_unstable();
        tables.dedup();
        let table = |wishes| SelectTable::new(f64::INFINITY, self.bin(), BINS, wishes);
        Ok(tables
            .into_iter()
            .map(table)
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flat_map(in_manners)
            .collect())
    }

    /// Tables of prices: each rises with what waits for a worker behind the batch, and falls with each worker that is free.
    fn weighing(&self) -> Result<Vec<SelectTable>, SelectError> {
        let most =
            self.classes.iter().flat_map(|class| class.worth.worth.iter().copied()).fold(0.0, f64::max);
        let scale = self.batch as f64 * most / self.variants[0].profile.bound(self.batch).as_secs_f64();
        let (rows, columns) =
            ((self.batch * (1 + 2 * self.workers)).min(MAX_ROWS), self.workers.min(MAX_FREE));
        let table = |step: i32, rise: f64, left: f64| {
            let price = |n: usize, free: usize| {
                let behind = n.saturating_sub(self.batch) as f64 / self.workers as f64;
                let price = scale * STEP.powi(step) * left.powi(free as i32);
                ((price * (1.0 + rise * behind)) as f32).min(MAX_PRICE)
            };
            // Without a rise all rows are alike.
            let rows = if rise > 0.0 { rows } else { 1 };
            let row = |n| (0..columns).map(move |free| price(n, free));
            SelectTable::of_prices(f64::INFINITY, columns, (1..=rows).flat_map(row).collect::<Vec<_>>())
        };
        // Of one worker no other is free.
        let frees = if columns == 1 { &FREES[..1] } else { &FREES[..] };
        let shapes = RISES.iter().flat_map(|&rise| frees.iter().map(move |&left| (rise, left)));
        let all = (0..STEPS).flat_map(|step| shapes.clone().map(move |(rise, left)| (step, rise, left)));
        all.map(|(step, rise, left)| table(step, rise, left)).collect()
    }

    /// Wishes for the variant whose right answers are worth most beyond its time, at `price` right answers for a
    /// second, row by row; the price rises by `rise` of itself for each request that waits for a worker behind the batch.
    fn priced(&self, price: f64, rise: f64, sizes: &[u8]) -> Vec<u8> {
        let wish = |n: usize, bin: u64| {
            let slack = Span::from_nanos(self.bin().as_nanos() * bin);
            let size = self.variants[0].profile.largest_within(slack, self.taken(n, sizes)).max(1);
            let behind = n.saturating_sub(size) as f64 / self.workers as f64;
            let price = price * (1.0 + rise * behind);
            let worth = |v: usize| {
                let Some(variant) = self.variants.get(v) else { return f64::NEG_INFINITY };
                size as f64 * self.worth(v) - price * variant.profile.bound(size).as_secs_f64()
            };
            let able = (1..self.variants.len()).filter(|&v| self.fits(v, size, slack));
            able.fold(0, |best, v| if worth(v) > worth(best) { v } else { best }) as u8
        };
        let last = self.batch * (1 + 2 * self.workers);
        let row = |n| (0..BINS as u64).map(|bin| wish(n, bin)).collect();
        let mut rows: Vec<Vec<u8>> = (1..=last).map(row).collect();
        // The last row is also for more.
        while let [.., before, last] = &rows[..]
            && before == last
        {
            rows.pop();
        }
        rows.concat()
    }

    /// Whether a batch of `size` runs with a variant in time.
    fn fits(&self, variant: usize, size: usize, slack: Span) -> bool {
        let profile = &self.variants[variant].profile;
        size <= profile.max_batch() && profile.bound(size) <= slack
    }
}
