//! The daemon's own scheduler on a fleet: no request is promised anything, so the shield only keeps deadlines.

use planner::problem::raw as written;
use planner::selection::{DEFAULT_MAX_MISS, Inputs, MAX_BATCH, choose_all, plan};
use planner::{Number, Problem};
use std::ops::ControlFlow;

use research::learned::{AllLoads, Schooling, school};
use rt_core::{LoadMonitor, MAX_WORKERS, Selector, Span};

use super::fleet::Fleet;
use crate::policy::{WeirError, selecting};

/// Requests that can wait.
const QUEUE: usize = 4096;
/// So many loads, evenly up to what the base carries.
const LOADS: u32 = 10;

/// A scheduler before its first request, and who selects.
#[derive(Clone, Debug)]
pub(super) struct Scheduled {
    problem: Problem,
    selector: Selector,
}

impl Scheduled {
    /// With the tables that `weir plan` makes for a service without a promise; the load picks one.
    ///
    /// # Errors
    /// What the planner or the scheduler finds wrong with the models, as text.
    pub(super) fn by_tables(fleet: &Fleet) -> Result<Self, String> {
        let inputs = inputs(fleet)?;
        let capacity = inputs.capacity_per_s(0);
        // The last one would be for more than the base carries.
        let loads: Vec<_> = (1..LOADS).map(|i| f64::from(i) / f64::from(LOADS) * capacity).collect();
        let planned = plan(&inputs, &loads).map_err(|error| error.to_string())?;
        let tables: Vec<_> = planned.into_iter().map(|planned| planned.table).collect();
        let selector = Selector::new(inputs.variants.clone(), tables, LoadMonitor::default());
        Self::new(&inputs, selector.map_err(|error| error.to_string())?)
    }

    /// With the most accurate variant after which the base still answers what waits.
    ///
    /// # Errors
    /// What the scheduler finds wrong with the models, as text.
    pub(super) fn accurate(fleet: &Fleet) -> Result<Self, String> {
        let inputs = inputs(fleet)?;
        Self::new(&inputs, inputs.accurate().map_err(|error| error.to_string())?)
    }

    /// With whoever is worth most at the rate that comes: the base, tables, or the most accurate variant.
    ///
    /// # Errors
    /// What the planner or the scheduler finds wrong with the models, as text.
    pub(super) fn auto(fleet: &Fleet) -> Result<Self, String> {
        let inputs = inputs(fleet)?;
        let chosen = choose_all(&inputs, None).map_err(|error| error.to_string())?;
        Self::new(&inputs, inputs.auto(&chosen, None).map_err(|error| error.to_string())?)
    }

    /// With a network that is trained on Poisson arrivals at all loads that the base carries.
    ///
    /// # Errors
    /// What the scheduler finds wrong with the models, as text.
    pub(super) fn learned(fleet: &Fleet, schooling: &Schooling) -> Result<Self, String> {
        let inputs = inputs(fleet)?;
        let plain = Selector::greedy(inputs.variants.clone()).map_err(|error| error.to_string())?;
        let Self { problem, .. } = Self::new(&inputs, plain)?;
        let build = |selector| Self { problem: problem.clone(), selector }.build();
        let course = AllLoads { capacity_per_s: inputs.capacity_per_s(0) };
        let schooled = school(&inputs, schooling, &course, build, &mut |_| ControlFlow::Continue(()));
        let net = schooled.map_err(|error| error.to_string())?.net;
        Self::new(&inputs, inputs.learned(net).map_err(|error| error.to_string())?)
    }

    /// A scheduler to which nothing has come yet.
    pub(super) fn policy(self) -> virtual_time::Scheduled {
        match self.build() {
            Ok(weir) => weir,
            Err(error) => unreachable!("it was built once: {error}"),
        }
    }

    fn build(self) -> Result<virtual_time::Scheduled, WeirError> {
        let Self { problem, selector } = self;
        selecting(&problem, QUEUE, 1, selector, false)
    }

    fn new(inputs: &Inputs, selector: Selector) -> Result<Self, String> {
        let number = |span: Span| Number::whole(span.as_nanos());
        let base = &inputs.variants[0].profile;
        let times = (1..=base.max_batch()).map(|batch| number(base.bound(batch)));
        let (count, batch) = (inputs.workers, inputs.batch);
        let workers = vec![written::Workers { count, batch, time: None, times: Some(times.collect()) }];
        let stream = written::Stream { name: "s0".to_owned(), ..written::Stream::default() };
        let problem = Problem::from_raw(written::Problem {
            unit: written::Unit::Ns,
            deadline: number(inputs.latency),
            guard: Number::default(),
            stalls: None,
            dispatch: written::Dispatch::Eager,
            background: true,
            workers,
            streams: vec![stream],
        });
        let made = Self { problem: problem.map_err(|error| error.to_string())?, selector };
        made.clone().build().map_err(|error| error.to_string())?;
        Ok(made)
    }
}

/// The fastest model is the base; its largest batch in half of the deadline is that of all.
fn inputs(fleet: &Fleet) -> Result<Inputs, String> {
    if fleet.workers > MAX_WORKERS {
        return Err(format!("fleet.workers = {}: must be at most {MAX_WORKERS}", fleet.workers));
    }
    let half = Span::from_nanos(fleet.deadline.as_nanos() / 2);
    let base = &fleet.models[0].profile;
    let batch = base.largest_within(half, base.max_batch()).clamp(1, MAX_BATCH);
    let (variants, latency) = (fleet.models.clone(), fleet.deadline);
    Ok(Inputs {
        variants,
        latency,
        workers: fleet.workers,
        batch,
        max_miss: DEFAULT_MAX_MISS,
        classes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use rt_core::{LatencyProfile, Outcome, Variant};

    use super::*;
    use crate::process::Process;
    use virtual_time::{Order, Run, drive};

    /// What the planner tries out is what the daemon's scheduler does.
    #[test]
    fn what_is_expected_of_a_table_happens_in_the_scheduler() {
        let model = |accuracy, first: u64, more: u64| {
            let times: Vec<_> = (0..8).map(|b| Span::from_millis(first + more * b)).collect();
            Variant { accuracy, profile: LatencyProfile::new(&times).expect("a profile") }
        };
        let variants = vec![model(0.6, 8, 4), model(0.75, 20, 9), model(0.85, 60, 30)];
        for (workers, load) in [(2, 100.0), (2, 250.0), (4, 500.0), (8, 1000.0)] {
            let (variants, latency) = (variants.clone(), Span::from_millis(100));
            let inputs = Inputs {
                variants,
                latency,
                workers,
                batch: 8,
                max_miss: DEFAULT_MAX_MISS,
                classes: Vec::new(),
            };
            let planned = &plan(&inputs, &[load]).expect("a table")[0];
            let table = planned.table.clone().up_to(f64::INFINITY);
            let tables = [table.expect("its rows are whole")];
            let selector = Selector::new(inputs.variants.clone(), tables, LoadMonitor::default());
            let scheduled = Scheduled::new(&inputs, selector.expect("valid")).expect("a scheduler");
            let arrivals = Process::Poisson.arrivals(load, 9).expect("a source").take(60_000);
            let mut run = Run { streams: 1, ..Run::default() };
            let arrivals = arrivals.map(|instant| (instant, 0));
            drive(&mut scheduled.policy(), arrivals, Order::Together, |_, _, bound| bound, &mut run)
                .expect("a run");
            let served = run.requests.iter().filter(|request| request.outcome == Outcome::Served);
            let right: f64 = served.clone().map(|request| inputs.variants[request.variant].accuracy).sum();
            let (served, all) = (served.count() as f64, run.requests.len() as f64);
            let (accuracy, missed, expected) = (right / served, 1.0 - served / all, planned.expected);
            assert!(
                (accuracy - expected.accuracy).abs() < 0.005,
                "{workers}, {load}: {accuracy}, {expected:?}"
            );
            assert!((missed - expected.missed).abs() < 1e-3, "{workers}, {load}: {missed}, {expected:?}");
            assert!(accuracy > 0.62, "{workers}, {load}: there is something to select: {accuracy}");
        }
    }

    /// Between the base and more than the base can: who was trained is more accurate where there is time, and gives up little
    /// where there is none.
    #[test]
    fn a_network_that_was_trained_selects_by_what_comes_and_is_the_same_each_time() {
        let model = |accuracy, first: u64, more: u64| {
            let times: Vec<_> = (0..8).map(|b| Span::from_millis(first + more * b)).collect();
            Variant { accuracy, profile: LatencyProfile::new(&times).expect("a profile") }
        };
        let models = vec![model(0.6, 8, 4), model(0.75, 20, 9), model(0.85, 60, 30)];
        let fleet = Fleet { workers: 2, models, deadline: Span::from_millis(100) };
        let schooling = Schooling { hidden: vec![16], episodes: 30, steps: 100, ..Schooling::default() };
        let played = |load: f64| {
            let learned = Scheduled::learned(&fleet, &schooling).expect("a scheduler");
            let arrivals = Process::Poisson.arrivals(load, 9).expect("a source").take(20_000);
            let mut run = Run { streams: 1, ..Run::default() };
            let arrivals = arrivals.map(|instant| (instant, 0));
            drive(&mut learned.policy(), arrivals, Order::Together, |_, _, bound| bound, &mut run)
                .expect("a run");
            let served = run.requests.iter().filter(|request| request.outcome == Outcome::Served);
            let right: f64 = served.map(|request| fleet.models[request.variant].accuracy).sum();
            right / run.requests.len() as f64
        };
        // The base alone is worth 0.6 as long as it misses nothing, which at 300 a second it does not.
        let (calm, busy) = (played(10.0), played(300.0));
        assert!(calm > 0.8, "{calm}");
        assert!(busy > 0.58, "{busy}");
        assert_eq!(calm, played(10.0));
    }

    #[test]
    fn a_fleet_larger_than_the_scheduler_is_refused() {
        let profile = LatencyProfile::new(&[Span::from_millis(1)]).expect("a profile");
        let models = vec![Variant { accuracy: 0.5, profile }];
        let fleet = Fleet { workers: 257, models, deadline: Span::from_millis(10) };
        let refused = Scheduled::accurate(&fleet).expect_err("too many workers");
        assert_eq!(refused, "fleet.workers = 257: must be at most 256");
    }
}
