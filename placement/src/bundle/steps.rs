//! What hosting one more device gains and loses, event by event, and what whatever is left loses at least.

use super::service::{Branch, EPSILON, Hosting, Multipliers};

/// What losses of parts may come back below zero by rounding.
pub(super) const SLACK: f64 = 1e-9;

/// An event among these prices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) item: usize,
    pub(super) first: bool,
    pub(super) class: usize,
    pub(super) capacity: f64,
    /// `u − slope`.
    pub(super) loss: f64,
    /// A device, less what it counts for the promise and gains by its second segment.
    pub(super) cost: f64,
    /// What its second segment gains beyond `u`, a device.
    pub(super) gain: f64,
    /// Of the second segment, where this is the first.
    pub(super) more: f64,
    pub(super) quota: f64,
}

/// What is chosen so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) demand: f64,
    /// Capacity of second segments that are still to come.
    pub(super) pending: f64,
    pub(super) quota: f64,
    pub(super) loss: f64,
}

/// The events of a branch, in the order in which a filled bundle uses them.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) all: Vec<Step>,
    pub(super) by: Multipliers,
    promised: bool,
    least: f64,
    /// From each event on, what a request is worth at most.
    request_from: Vec<f64>,
    /// The events that count for the promise, the one that loses least for it first, and what a device of each loses at least.
    promise: Vec<(usize, f64)>,
    /// From each event on, of each class, what a device serves at most.
    most_from: Vec<Vec<f64>>,
}

impl Steps {
    /// Of `branch` at these prices.
    pub(super) fn new(hosting: &Hosting<'_>, branch: &Branch, prices: &[f64], by: Multipliers) -> Self {
        let items = &hosting.items;
        let mut events: Vec<((usize, f64), usize)> = Vec::new();
        for &item in &branch.items {
            events.extend(
                (0..2).filter(|&s| s == 0 || items[item.0].segments[s].capacity > 0.0).map(|s| (item, s)),
            );
        }
        let slope = |&((i, _), s): &((usize, f64), usize)| items[i].segments[s].slope;
        events.sort_by(|a, b| slope(b).total_cmp(&slope(a)).then(a.1.cmp(&b.1)));
        let all: Vec<Step> = events.into_iter().map(|(item, s)| hosting.step(prices, by, item, s)).collect();
        let mut request_from = vec![f64::NEG_INFINITY; all.len() + 1];
        let mut promise = Vec::new();
        let mut most_from = vec![vec![0.0; prices.len()]; all.len() + 1];
        for (i, step) in all.iter().enumerate().rev() {
            let mut request = request_from[i + 1];
            if step.first {
                let item = &items[step.item];
                let first = item.segments[0].slope - (step.cost + step.gain) / item.segments[0].capacity;
                let second = hosting.second_loss(step, by);
                let both = by.request - (step.capacity * step.loss + step.cost + second) / item.capacity();
                request = request.max(first).max(both);
                if step.quota > 0.0 {
                    let least = step.cost + (step.capacity * step.loss).min(0.0);
                    promise.push((i, least.max(0.0)));
                }
            }
            request_from[i] = request;
            most_from[i] = most_from[i + 1].clone();
            if step.first {
                let serves: &mut f64 = &mut most_from[i][step.class];
                *serves = serves.max(items[step.item].capacity());
            }
        }
        promise.sort_by(|a: &(usize, f64), b| (a.1 / all[a.0].quota).total_cmp(&(b.1 / all[b.0].quota)));
        Self { all, by, promised: hosting.promised, least: hosting.least(), request_from, promise, most_from }
    }

    /// What any bundle loses at least that begins so.
    pub(super) fn least_loss(&self, at: usize, chosen: &Chosen, devices: &[u32]) -> f64 {
        let left = (chosen.demand - chosen.pending).max(0.0);
        let request =
            if left > self.least { (self.by.request - self.request_from[at]).max(0.0) * left } else { 0.0 };
        let capacity = self.most_from[at].iter().zip(devices).map(|(serves, &left)| serves * f64::from(left));
        if left > capacity.sum::<f64>() + self.least {
            return f64::INFINITY;
        }
        let promise = if !self.promised {
            0.0
        } else if chosen.quota < 1.0 - EPSILON {
            self.least_for(at, 1.0 - chosen.quota, chosen.demand, devices)
        } else {
            self.by.promise * (chosen.quota - 1.0)
        };
        chosen.loss + request.max(promise) - SLACK
    }

    /// What devices lose at least that count for so much of the promise, of those that are left, where so much demand is.
    fn least_for(&self, at: usize, missing: f64, demand: f64, left: &[u32]) -> f64 {
        let counted = || {
            self.promise
                .iter()
                .filter(|(event, _)| *event >= at)
                .map(|&(event, least)| (&self.all[event], least))
        };
        // Of the least for one another: each device serves all that it can.
        let (mut busy, mut rest) = (0.0, missing);
        for (step, least) in counted() {
            let devices = (rest / step.quota).min(f64::from(left[step.class]));
            busy += devices * least;
            rest -= devices * step.quota;
            if rest <= EPSILON {
                break;
            }
        }
        if rest > EPSILON {
            return f64::INFINITY;
        }
        // Together they serve no more than what is left, before what else is chosen may turn to it.
        let gain = counted().map(|(step, _)| -step.loss).fold(0.0, f64::max);
        let dearest = counted().map(|(step, _)| step.cost / step.quota).fold(f64::INFINITY, f64::min);
        busy.max(dearest.max(0.0) * missing - gain * demand)
    }
}

impl Hosting<'_> {
    fn step(&self, prices: &[f64], by: Multipliers, (item, quota): (usize, f64), s: usize) -> Step {
        let of = &self.items[item];
        let second = of.segments[1];
        let gain = second.capacity * (second.slope - by.request).max(0.0);
        let whole = prices[of.class] - by.promise * quota;
        Step {
            item,
            first: s == 0,
            class: of.class,
            capacity: of.segments[s].capacity,
            loss: by.request - of.segments[s].slope,
            cost: whole - gain,
            gain,
            more: if s == 0 { second.capacity } else { 0.0 },
            quota,
        }
    }

    /// What the second segment of a device loses if it is used wholly, beyond its gain.
    fn second_loss(&self, step: &Step, by: Multipliers) -> f64 {
        let second = self.items[step.item].segments[1];
        second.capacity * (by.request - second.slope) + step.gain
    }
}
