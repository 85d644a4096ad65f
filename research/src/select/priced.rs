//! Models and batches by the price of worker time.
//!
//! Worker time has a price, that of the fluid bound. A batch is worth its accuracy less its worker time at that price
//! and less what its requests are worth on average; at the optimum of the fluid bound the batches in use are worth
//! nothing more, so among them the *stock* decides: requests that wait, less those that the workers free now or soon
//! will take. A quadratic cost keeps it near its target, as one controls an inventory with orders on their way. A
//! batch lowers the stock by its requests and raises it by those that come meanwhile and fall to its worker, so that a
//! low stock is for accurate models and a high one for fast ones, also where batches are of one. A stock above zero
//! keeps workers busy; one below the deadline's slack keeps long batches possible.

use rt_core::{Instant, Span};

use super::decision::{Decision, Demand, Order, State, Take, Tuning};
use super::fluid::{Choice, Fluid, fluid};
use super::profile::Profile;
use super::prospect::Prospect;

/// Prices for one profile, load, and number of workers.
#[derive(Clone, Debug)]
pub(super) struct Priced {
    order: Order,
    tuning: Tuning,
    /// Of each size of batch, from 1, the models that are more accurate than all that are faster; fastest first.
    sizes: Vec<Vec<Batch>>,
    prospects: Vec<Prospect>,
    /// The oldest request is this old: the queue is drained as fast as it can be.
    drain_age: u64,
    /// Older requests are given up, if more wait than are about to be taken.
    lost_age: u64,
    recheck: Span,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    model: usize,
    latency: Span,
    /// What it is worth beyond its worker time.
    value: f64,
    /// By how much it lowers the stock: its requests, less its share of those that come meanwhile.
    relief: f64,
}

impl Priced {
    pub(super) fn new(profile: &Profile, demand: Demand, tuning: Tuning) -> Self {
        let per_request = demand.per_request();
        let fluid = price(profile, tuning.reserve, per_request / tuning.pressure);
        let slo = profile.slo();
        let comes = tuning.drift / per_request;
        let mut sizes: Vec<Vec<Batch>> = vec![Vec::new(); profile.largest_batch()];
        for (model, batch, latency) in profile.within(slo) {
            let size = batch as f64;
            let value =
                size * (profile.models()[model].accuracy - fluid.worth) - fluid.price * latency.as_secs_f64();
            let relief = size - comes * latency.as_secs_f64();
            sizes[batch - 1].push(Batch { model, latency, value, relief });
        }
        let accuracy = |batch: &Batch| profile.models()[batch.model].accuracy;
        for size in &mut sizes {
            size.sort_by(|a, b| a.latency.cmp(&b.latency).then(accuracy(b).total_cmp(&accuracy(a))));
            let mut most = f64::NEG_INFINITY;
            size.retain(|batch| {
                let better = accuracy(batch) > most;
                most = most.max(accuracy(batch));
                better
            });
        }
        let lost_age = (tuning.lost * (slo.as_nanos() - profile.fastest().as_nanos()) as f64) as u64;
        Self {
            order: demand.order,
            sizes,
            prospects: Prospect::all(profile, &fluid, demand.load, comes),
            drain_age: (tuning.drain * lost_age as f64) as u64,
            lost_age,
            recheck: Span::from_nanos((slo.as_nanos() >> 6).max(1)),
            tuning,
        }
    }

    pub(super) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// As [`super::Policy::decide`], with the age of the oldest request and the longest that a batch of it may take; some
    /// batch is that short.
    pub(super) fn decide(&self, state: &State<'_>, age: u64, limit: Span) -> Decision {
        let waiting = state.count();
        let batches = self.sizes.iter().take(waiting).zip(1..);
        if age >= self.drain_age {
            let quickest = batches.filter_map(|(size, b)| size.first().map(|fastest| (b, fastest)));
            let quickest = quickest.take_while(|(_, fastest)| fastest.latency <= limit);
            // Of two that take as long for each request the larger.
            let per_request = |&(b, fastest): &(usize, &Batch)| fastest.latency.as_secs_f64() / b as f64;
            let quickest = quickest.reduce(|a, b| if per_request(&b) <= per_request(&a) { b } else { a });
            return match quickest {
                Some((batch, _)) if age > self.lost_age && waiting > batch * state.free => Decision::Refuse,
                Some((batch, &Batch { model, .. })) => Decision::Start { model, batch, take: Take::Oldest },
                None => Decision::Wait { until: None },
            };
        }
        let Tuning { stiffness, target, share, hold, .. } = self.tuning;
        let stock = waiting as f64 - share * (state.free + state.soon) as f64 - target;
        // By how much a batch lowers the cost `stiffness / 2 * stock^2`.
        let worth = |value: f64, relief: f64| value + stiffness * relief * (stock - 0.5 * relief);
        let mut found = (f64::NEG_INFINITY, 0, 0, Take::Oldest);
        for (size, b) in batches {
            for batch in size.iter().take_while(|batch| batch.latency <= limit) {
                let value = worth(batch.value, batch.relief);
                if value > found.0 {
                    found = (value, batch.model, b, Take::Oldest);
                }
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
                    let value = worth(prospect.value, prospect.relief);
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
        // Less and less can be in time, so nothing is worth more before the patience is over or something happens.
        let over = (self.tuning.patience.as_nanos() + 1).min(self.drain_age);
        Decision::Wait { until: Some(state.now + Span::from_nanos(over - age)) }
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
}

/// The price of worker time: the fluid bound's, with a part of the objective, `reserve`, kept for waiting, of as much time per
/// request as the workers have, or the least that batches take.
pub(super) fn price(profile: &Profile, reserve: f64, per_request: f64) -> Fluid {
    let slo = profile.slo().as_nanos();
    let limit = Span::from_nanos((slo as f64 * (1.0 - reserve)) as u64);
    let least = |limit: Span| {
        profile.within(limit).map(|(_, b, l)| l.as_secs_f64() / b as f64).min_by(f64::total_cmp)
    };
    let limit = if least(limit).is_some() { limit } else { profile.slo() };
    let time = per_request.max(least(limit).unwrap_or(0.0));
    fluid(profile, limit, time).unwrap_or(Fluid {
        accuracy: 0.0,
        price: 0.0,
        worth: 0.0,
        mix: [(Choice { model: 0, batch: 1 }, 1.0), (Choice { model: 0, batch: 1 }, 0.0)],
    })
}
