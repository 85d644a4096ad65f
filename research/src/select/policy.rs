//! The decision: what a free worker does now, from a few table look-ups, without allocation.
//!
//! Worker time has a price, that of the fluid bound. A batch is worth its accuracy less its worker time at that price
//! and less what its requests are worth on average; at the optimum of the fluid bound the batches in use are worth
//! nothing more, so among them the *stock* decides: requests that wait, less those that the workers free now or soon
//! will take. A quadratic cost keeps it near its target, as one controls an inventory with orders on their way. A
//! stock above zero keeps workers busy; one below the deadline's slack keeps long batches possible.

use rt_core::{Instant, Span};

use super::decision::{Decision, Demand, DemandError, Order, State, Take, Tuning};
use super::fluid::{Choice, Fluid, fluid};
use super::profile::Profile;
use super::prospect::Prospect;

/// A policy for one profile, load, and number of workers.
#[derive(Clone, Debug)]
pub struct Policy {
    slo: u64,
    order: Order,
    tuning: Tuning,
    fluid: Fluid,
    /// Distinct latencies within the objective, rising: a slack is of class `i` if `i` of them fit in it.
    latencies: Vec<u64>,
    /// The class of a slack at the lower end of each `1 << shift` nanoseconds.
    coarse: Vec<u32>,
    shift: u32,
    /// `width` for each class: the batch of `b` requests that is worth most, at `b`.
    best: Vec<Best>,
    /// `width` for each class: the batch that takes least time per request, of at most `b` requests, at `b`.
    drain: Vec<Choice>,
    width: usize,
    prospects: Vec<Prospect>,
    /// The oldest request is this old: the queue is drained as fast as it can be.
    drain_age: u64,
    /// Older requests cannot be served at the rate at which they come.
    lost_age: u64,
    recheck: Span,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    value: f64,
    model: usize,
}

impl Policy {
    /// The tables for `demand`, from `tuning`. A load beyond what the workers can carry is priced as the largest that
    /// they can.
    ///
    /// # Errors
    /// [`DemandError`] for the first value that is outside its range.
    pub fn new(profile: &Profile, demand: Demand, tuning: Tuning) -> Result<Self, DemandError> {
        demand.check()?;
        tuning.check(profile)?;
        Ok(Self::build(profile, demand, tuning))
    }

    /// As [`Policy::new`], of values in their ranges.
    pub(super) fn build(profile: &Profile, demand: Demand, tuning: Tuning) -> Self {
        let slo = profile.slo();
        let Demand { load, order, .. } = demand;
        let per_request = demand.per_request();
        let fluid = price(profile, per_request, &tuning);
        let Tables { latencies, best, drain, width } = Tables::new(profile, &fluid);
        let lost_age = profile
            .within(slo)
            .filter(|&(_, batch, latency)| latency.as_secs_f64() / batch as f64 <= per_request)
            .map(|(_, _, latency)| slo.saturating_sub(latency).as_nanos())
            .max()
            .unwrap_or(0);
        let shift = (slo.as_nanos() >> 10).max(1).ilog2();
        let class_of = |slack: u64| latencies.partition_point(|&l| l <= slack) as u32;
        let coarse = (0..=slo.as_nanos() >> shift).map(|i| class_of(i << shift)).collect();
        Self {
            slo: slo.as_nanos(),
            order,
            tuning,
            fluid,
            coarse,
            shift,
            best,
            drain,
            width,
            prospects: Prospect::all(profile, &fluid, load),
            drain_age: lost_age / 8 * 5,
            lost_age,
            recheck: Span::from_nanos((slo.as_nanos() >> 8).max(1)),
            latencies,
        }
    }

    /// How far ahead the ends of batches count for [`State::soon`].
    #[must_use]
    pub fn horizon(&self) -> Span {
        self.tuning.horizon
    }

    /// What the policy was built from.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The prices that it uses.
    #[must_use]
    pub fn fluid(&self) -> &Fluid {
        &self.fluid
    }

    /// What a free worker does now. A batch that is started takes at most the slack of its oldest request,
    /// and at most [`State::longest`].
    #[must_use]
    pub fn decide(&self, state: &State<'_>) -> Decision {
        let (old, new) = state.waiting;
        let waiting = old.len() + new.len();
        let Some(&oldest) = old.first().or(new.first()) else {
            return Decision::Wait { until: None };
        };
        let age = state.now.since(oldest).as_nanos();
        let Some(slack) = self.slo.checked_sub(age).filter(|&slack| slack >= self.latencies[0]) else {
            return Decision::Refuse;
        };
        let class = self.class(slack.min(state.longest.as_nanos()));
        if state.free == 0 || class == 0 {
            return Decision::Wait { until: None };
        }
        let most = waiting.min(self.width - 1);
        let row = class * self.width;
        if age >= self.drain_age {
            let Choice { model, batch } = self.drain[row + most];
            if age > self.lost_age && waiting > batch * state.free {
                return Decision::Refuse;
            }
            return Decision::Start { model, batch, take: Take::Oldest };
        }
        let Tuning { stiffness, target, share, hold, .. } = self.tuning;
        let stock = waiting as f64 - share * (state.free + state.soon) as f64 - target;
        // By how much a batch of `b` lowers the cost `stiffness / 2 * stock^2`.
        let relief = |b: usize| stiffness * b as f64 * (stock - 0.5 * b as f64);
        let mut found = (f64::NEG_INFINITY, 0, 0, Take::Oldest);
        for (b, best) in self.best[row..row + most + 1].iter().enumerate().skip(1) {
            let value = best.value + relief(b);
            if value > found.0 {
                found = (value, best.model, b, Take::Oldest);
            }
        }
        let patient = age <= self.tuning.patience.as_nanos();
        if patient && self.order == Order::NewestToo {
            for prospect in &self.prospects {
                let Choice { model, batch } = prospect.choice;
                if batch < waiting
                    && prospect.latency <= state.longest
                    && self.newest(state, batch) <= prospect.window
                {
                    let value = prospect.value + relief(batch);
                    if value > found.0 {
                        found = (value, model, batch, Take::Newest);
                    }
                }
            }
        }
        let (value, model, batch, take) = found;
        if patient
            && state.free == 1
            && let Some(until) = self.anticipate(state, waiting, value)
        {
            return Decision::Wait { until: Some(until) };
        }
        if !patient || value > hold[usize::from(state.free > 1)] {
            return Decision::Start { model, batch, take };
        }
        Decision::Wait { until: Some(state.now + self.recheck) }
    }

    /// Until when to keep the last free worker for a batch that is still forming, if that beats a batch of `value`.
    fn anticipate(&self, state: &State<'_>, waiting: usize, value: f64) -> Option<Instant> {
        let mut top = self.tuning.anticipation + 0.1 * value.max(0.0);
        let mut until = None;
        for prospect in self.prospects.iter().filter(|p| p.latency <= state.longest) {
            let batch = prospect.choice.batch;
            let fewest = if self.order == Order::Fifo { waiting } else { 0 };
            for count in fewest..batch.min(waiting + 1) {
                let (gain, left) = if count == 0 {
                    (prospect.afresh, self.recheck.as_nanos())
                } else {
                    let age = self.newest(state, count);
                    if age >= prospect.window {
                        break;
                    }
                    let left = prospect.window - age;
                    (prospect.gain(batch - count, left), left + 1)
                };
                if gain > top {
                    top = gain;
                    until = Some(state.now + Span::from_nanos(left.min(self.recheck.as_nanos())));
                }
            }
        }
        until
    }

    /// The age of the oldest of the `count` newest requests that wait; there are as many.
    fn newest(&self, state: &State<'_>, count: usize) -> u64 {
        let (old, new) = state.waiting;
        let arrival = match new.len().checked_sub(count) {
            Some(index) => new[index],
            None => old[old.len() + new.len() - count],
        };
        state.now.since(arrival).as_nanos()
    }

    /// How many of the latencies fit in a slack, which is within the objective.
    fn class(&self, slack: u64) -> usize {
        let mut class = self.coarse[(slack >> self.shift) as usize] as usize;
        while self.latencies.get(class).is_some_and(|&latency| latency <= slack) {
            class += 1;
        }
        class
    }
}

/// The batch to take for each class of slack and number of requests, as [`Policy`] keeps it.
struct Tables {
    latencies: Vec<u64>,
    best: Vec<Best>,
    drain: Vec<Choice>,
    width: usize,
}

impl Tables {
    /// Each class has what the class before it has, and the batches of just its latency.
    fn new(profile: &Profile, fluid: &Fluid) -> Self {
        let mut batches: Vec<_> = profile.within(profile.slo()).collect();
        batches.sort_by_key(|&(_, _, latency)| latency);
        let width = profile.largest_batch() + 1;
        let mut row = vec![Best { value: f64::NEG_INFINITY, model: 0 }; width];
        let mut drain_row = vec![Choice { model: 0, batch: 0 }; width];
        let mut quickest = vec![f64::INFINITY; width];
        let mut tables = Self { latencies: Vec::new(), best: row.clone(), drain: drain_row.clone(), width };
        for same in batches.chunk_by(|a, b| a.2 == b.2) {
            for &(model, batch, latency) in same {
                let seconds = latency.as_secs_f64();
                let gain = profile.models()[model].accuracy - fluid.worth;
                let value = batch as f64 * gain - fluid.price * seconds;
                if value > row[batch].value {
                    row[batch] = Best { value, model };
                }
                for limit in batch..width {
                    if seconds / (batch as f64) < quickest[limit] {
                        quickest[limit] = seconds / batch as f64;
                        drain_row[limit] = Choice { model, batch };
                    }
                }
            }
            tables.latencies.push(same[0].2.as_nanos());
            tables.best.extend_from_slice(&row);
            tables.drain.extend_from_slice(&drain_row);
        }
        tables
    }
}

/// The price of worker time: the fluid bound's, with some of the objective kept for waiting.
fn price(profile: &Profile, per_request: f64, tuning: &Tuning) -> Fluid {
    let slo = profile.slo().as_nanos();
    let limit = Span::from_nanos((slo as f64 * (1.0 - tuning.reserve)) as u64);
    let least = |limit: Span| {
        profile.within(limit).map(|(_, b, l)| l.as_secs_f64() / b as f64).min_by(f64::total_cmp)
    };
    let limit = if least(limit).is_some() { limit } else { profile.slo() };
    let time = (per_request / tuning.pressure).max(least(limit).unwrap_or(0.0));
    fluid(profile, limit, time).unwrap_or(Fluid {
        accuracy: 0.0,
        price: 0.0,
        worth: 0.0,
        mix: [(Choice { model: 0, batch: 1 }, 1.0), (Choice { model: 0, batch: 1 }, 0.0)],
    })
}
