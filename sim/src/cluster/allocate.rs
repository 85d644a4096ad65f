//! Who holds what: plans of the `placement` room for a demand, some of them of only a part of what there is.

use std::time::Duration;

use placement::plan::{Held, Of, Plan};
use placement::problem::Runs;
use placement::{Outcome, Problem, place};
use rt_core::Span;

use super::{Allocation, Cluster, batches, greedy};

/// A plan may take so long. What is found by then depends on the machine; plans for what was recorded take some milliseconds.
const LIMIT: Duration = Duration::from_secs(2);
/// A service that nobody asks is kept ready for so many requests a second.
const LEAST: f64 = 0.01;

/// What a device holds, and which part of the requests of its service it is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seat {
    pub(super) class: usize,
    pub(super) service: usize,
    pub(super) variant: usize,
    pub(super) batch: u32,
    /// Requests a second that it can serve.
    pub(super) peak: f64,
    /// Requests a second that it is meant to serve.
    pub(super) rate: f64,
}

/// Decides who holds what.
pub(super) struct Allocator {
    allocation: Allocation,
    /// Of which variants and batches plans are made.
    problem: Problem,
    /// Services that some device answers in time.
    possible: Vec<bool>,
    /// What the devices hold now.
    pub(super) seats: Vec<Seat>,
}

impl Allocator {
    /// It begins with what is allocated for `demand`.
    pub(super) fn new(cluster: &Cluster, allocation: Allocation, demand: &[f64]) -> Self {
        let mut problem = cluster.problem.clone();
        let fast = |problem: &Problem, s: usize, v: usize, class: usize| {
            let deadline = problem.services[s].deadline;
            let within = |&&(_, time): &&(u32, Span)| time + time <= deadline;
            problem.classes[class].1 > 0 && batches(problem, s, v, class).iter().any(|batch| within(&batch))
        };
        let classes = problem.classes.len();
        let can =
            |problem: &Problem, s: usize, v: usize| (0..classes).any(|class| fast(problem, s, v, class));
        for s in 0..problem.services.len() {
            let variants = 0..problem.services[s].variants.len();
            let accuracy = |&v: &usize| cluster.problem.services[s].variants[v].accuracy;
            let by = |a: &usize, b: &usize| accuracy(a).total_cmp(&accuracy(b));
            let in_time = variants.clone().filter(|&v| can(&cluster.problem, s, v));
            let only = match allocation {
                Allocation::NoSelection | Allocation::ClipperHa => in_time.max_by(by),
                Allocation::ClipperHt => in_time.min_by(by),
                _ => None,
            };
            for v in variants {
                for runs in &mut problem.services[s].variants[v].runs {
                    let Runs::Batches(batches) = runs else { continue };
                    match allocation {
                        Allocation::NoBatching => batches.retain(|&(size, _)| size == 1),
                        _ if only.is_some_and(|only| only != v) => batches.clear(),
                        _ => {}
                    }
                }
            }
        }
        let of = |s: usize| (0..problem.services[s].variants.len()).any(|v| can(&problem, s, v));
        let possible = (0..problem.services.len()).map(of).collect();
        let mut new = Self { allocation, problem, possible, seats: Vec::new() };
        let first = match allocation {
            // As much of it as fits, whatever comes: they plan once, and for throughput.
            Allocation::ClipperHt | Allocation::ClipperHa => {
                let total: f64 = demand.iter().sum();
                demand.iter().map(|rate| rate * 1e6 / total.max(LEAST)).collect()
            }
            _ => demand.to_vec(),
        };
        new.seats = match allocation {
            Allocation::Infaas => greedy::adapt(&new.problem, &new.possible, Vec::new(), &first),
            _ => new.best(&new.problem, &first).unwrap_or_default(),
        };
        new
    }

    /// Decides anew for `demand`. Whether anything may have changed.
    pub(super) fn decide(&mut self, demand: &[f64]) -> bool {
        let found = match self.allocation {
            Allocation::ClipperHt | Allocation::ClipperHa => None,
            Allocation::Infaas => {
                Some(greedy::adapt(&self.problem, &self.possible, self.seats.clone(), demand))
            }
            Allocation::NoPlacement => Some(self.in_place(demand)),
            _ => self.best(&self.problem, demand),
        };
        // Where the solver says nothing in its time, what is there stays.
        found.map(|seats| self.seats = seats).is_some()
    }

    /// Whether the devices of a service are all sent as much.
    pub(super) fn is_even(&self) -> bool {
        self.allocation == Allocation::NoAssignment
    }

    /// Whether it decides by itself, at once, when more comes.
    pub(super) fn is_quick(&self) -> bool {
        self.allocation == Allocation::Infaas
    }

    /// The most accurate plan of `problem` for `demand`, or for as much of it as fits.
    fn best(&self, problem: &Problem, demand: &[f64]) -> Option<Vec<Seat>> {
        let mut problem = problem.clone();
        for (s, service) in problem.services.iter_mut().enumerate() {
            service.demand = if self.possible[s] { demand[s].max(LEAST) } else { 0.0 };
        }
        match place(&problem, LIMIT).ok()?.outcome {
            Outcome::Fits { plan, .. } | Outcome::Demand { plan: Some((plan, _)), .. } => Some(seats(&plan)),
            _ => None,
        }
    }

    /// The same, but each device stays with its service.
    fn in_place(&self, demand: &[f64]) -> Vec<Seat> {
        let of = |s: usize| {
            let own: Vec<Seat> = self.seats.iter().copied().filter(|seat| seat.service == s).collect();
            let mut problem = self.problem.clone();
            for (class, (_, count)) in problem.classes.iter_mut().enumerate() {
                *count = own.iter().filter(|seat| seat.class == class).count() as u32;
            }
            problem.services = vec![problem.services[s].clone()];
            problem.services[0].demand = demand[s].max(LEAST);
            let plan = match place(&problem, LIMIT).map(|placed| placed.outcome) {
                Ok(Outcome::Fits { plan, .. } | Outcome::Demand { plan: Some((plan, _)), .. }) => plan,
                _ => return own,
            };
            let mut found: Vec<Seat> =
                seats(&plan).into_iter().map(|seat| Seat { service: s, ..seat }).collect();
            // A device that is not needed now stays as it is.
            for (class, &(_, count)) in problem.classes.iter().enumerate() {
                let used = found.iter().filter(|seat| seat.class == class).count();
                let idle = own.iter().filter(|seat| seat.class == class).take(count as usize - used);
                found.extend(idle.map(|&seat| Seat { rate: 0.0, ..seat }));
            }
            found
        };
        (0..self.problem.services.len()).flat_map(of).collect()
    }
}

/// Device by device.
fn seats(plan: &Plan) -> Vec<Seat> {
    let mut all = Vec::new();
    for (i, devices) in plan.devices.iter().enumerate() {
        let Held::Alone(service, configuration) = &devices.held else { continue };
        let post = configuration.base;
        let flows = plan.flows.iter().filter(|flow| flow.devices == i && flow.of == Of::Service(*service));
        let rate = flows.map(|flow| flow.rate).sum::<f64>() / f64::from(devices.count);
        let (class, batch) = (devices.class, post.batch.unwrap_or(1));
        let seat = Seat { class, service: *service, variant: post.variant, batch, peak: post.peak, rate };
        all.extend(std::iter::repeat_n(seat, devices.count as usize));
    }
    all
}
