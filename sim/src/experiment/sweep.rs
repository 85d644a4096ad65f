//! Each system with all arrivals, rates and policies: every run by itself, on all cores.

use std::collections::HashMap;
use std::sync::Arc;

use planner::Problem;
use rayon::prelude::*;
use rt_core::{Alarm, Cause, Instant, Outcome, Selector, Transition};

use super::contender::Contender;
use super::fleet::{Planned, ServingKind};
use super::quantity::Quantity;
use super::results::{Cell, Results};
use super::system::{Certified, System};
use super::{Arrivals, Experiment, ExperimentError, Of, refuse};
use crate::dice::Dice;
use crate::measure::{Measures, Misses, Quantiles, StreamMeasure};
use crate::policy::{PlayError, PolicyKind, selecting};
use crate::process::{Merged, Process, Source, stream_seed};
use crate::statistics::Estimate;
use virtual_time::{Batch, Observer, Order, Request, drive};

/// One cell, with what it needs.
struct Point<'a> {
    system: &'a System,
    arrivals: &'a Arrivals,
    certified: Arc<Certified>,
    x: f64,
    policy: Contender,
    /// Of one that picks models.
    planned: Option<Arc<Planned>>,
}

impl Experiment {
    /// Runs it, on as many threads as the current pool of `rayon` has; `tick` is called after each of
    /// [`Experiment::size`] runs. The results are the same each time, and on every machine.
    ///
    /// # Errors
    /// [`ExperimentError`]: nothing can be certified, or a system cannot be run.
    pub fn run(&self, tick: &(impl Fn() + Sync)) -> Result<Results, ExperimentError> {
        let points = self.points()?;
        let runs = self.runs as usize;
        let quantities = self.quantities();
        let run = |index: usize| -> Result<Vec<f64>, ExperimentError> {
            let point = &points[index / runs];
            let seed = u64::from(self.seed) + (index % runs) as u64;
            let heard = self.play(point, seed)?;
            tick();
            Ok(quantities.iter().map(|&quantity| heard.quantity(quantity)).collect())
        };
        let all: Vec<Vec<f64>> =
            (0..self.size()).into_par_iter().map(run).collect::<Result<_, ExperimentError>>()?;
        let cell = |(point, runs): (&Point<'_>, &[Vec<f64>])| {
            let estimate = |i: usize| Estimate::of(&runs.iter().map(|run| run[i]).collect::<Vec<_>>());
            Cell {
                system: point.system.name.clone(),
                arrivals: point.arrivals.name.clone(),
                x: point.x,
                policy: point.policy,
                certified: point.certified.rate,
                rate: self.rate(point),
                estimates: (0..quantities.len()).map(estimate).collect(),
            }
        };
        let cells = points.iter().zip(all.chunks(runs)).map(cell).collect();
        Ok(Results { quantities, cells })
    }

    /// Every cell: systems, arrivals, rates, policies, the last one fastest.
    fn points(&self) -> Result<Vec<Point<'_>>, ExperimentError> {
        let pairs = self.systems.iter().flat_map(|s| self.arrivals.iter().map(move |a| (s, a)));
        let pairs: Vec<_> = pairs.collect();
        let certify = |&(system, arrivals): &(&System, &Arrivals)| {
            let certified = system.certify(arrivals.declare, arrivals.jitter);
            let usable = |c: &Certified| self.x.of != Of::Certified || c.rate.is_finite();
            certified.filter(usable).map(Arc::new).ok_or_else(|| ExperimentError::Uncertified {
                system: system.name.clone(),
                arrivals: arrivals.name.clone(),
            })
        };
        let certified = pairs.par_iter().map(certify).collect::<Result<Vec<_>, _>>()?;
        let mut points = Vec::new();
        for (&(system, arrivals), certified) in pairs.iter().zip(certified) {
            for &x in &self.x.values {
                for &policy in &self.policies {
                    let certified = Arc::clone(&certified);
                    points.push(Point { system, arrivals, certified, x, policy, planned: None });
                }
            }
        }
        self.plan(&mut points)?;
        Ok(points)
    }

    /// Plans those that pick models: the shared queue for the load itself where it does not change, and else for all
    /// that it may be; others once for all loads of a system.
    fn plan(&self, points: &mut [Point<'_>]) -> Result<(), ExperimentError> {
        let knows = |point: &Point<'_>| {
            let is_steady = point.arrivals.extremes() == (1.0, 1.0);
            is_steady && point.policy == Contender::Serving(ServingKind::SharedQueue)
        };
        let key = |point: &Point<'_>| {
            let load = knows(point).then(|| self.rate(point).to_bits());
            (point.system.name.clone(), point.arrivals.name.clone(), point.policy, load)
        };
        // Of each key the loads, and a point that has it.
        let mut todo: HashMap<_, (&Point<'_>, (f64, f64))> = HashMap::new();
        for point in points.iter().filter(|point| matches!(point.policy, Contender::Serving(_))) {
            let rate = self.rate(point);
            // What is observed over half a second strays from the mean.
            let (low, high) = if knows(point) { (1.0, 1.0) } else { (0.8, 1.2) };
            let (least, most) = point.arrivals.extremes();
            let (_, all) = todo.entry(key(point)).or_insert((point, (f64::INFINITY, 0.0)));
            *all = (all.0.min(rate * least * low), all.1.max(rate * most * high));
        }
        let plan = |(key, (point, loads)): (_, (&Point<'_>, (f64, f64)))| {
            let (Contender::Serving(kind), Some(fleet)) = (point.policy, &point.system.fleet) else {
                return Ok(None);
            };
            let refused = |reason| refuse(format!("system {}", point.system.name), kind, reason);
            let planned = fleet.plan(kind, loads).map_err(refused)?;
            Ok(Some((key, Arc::new(planned))))
        };
        let planned = todo.into_par_iter().map(plan).collect::<Result<Vec<_>, ExperimentError>>()?;
        let planned: HashMap<_, _> = planned.into_iter().flatten().collect();
        if !planned.is_empty() {
            points.iter_mut().for_each(|point| point.planned = planned.get(&key(point)).cloned());
        }
        Ok(())
    }

    /// The quantities that are told, and those that tables and figures ask for.
    fn quantities(&self) -> Vec<Quantity> {
        let mut all = Quantity::ALL.to_vec();
        let asked = self.tables.iter().map(|t| t.measure).chain(self.figures.iter().map(|f| f.measure));
        for quantity in asked {
            if !all.contains(&quantity) {
                all.push(quantity);
            }
        }
        all
    }

    /// Requests a second on average.
    fn rate(&self, point: &Point<'_>) -> f64 {
        let whole = match self.x.of {
            Of::Second => 1.0,
            Of::Certified => point.certified.rate,
            Of::Capacity => point.system.capacity(),
        };
        whole * point.x * point.arrivals.mean
    }

    /// One run.
    fn play(&self, point: &Point<'_>, seed: u64) -> Result<Heard, ExperimentError> {
        let Point { system, certified, policy, planned, .. } = point;
        let problem = &certified.problem;
        let streams = problem.streams.len();
        let sources = self.sources(point, seed, streams)?;
        let arrivals = Merged::new(sources).take(usize::try_from(self.requests).unwrap_or(usize::MAX));
        let largest = self.quantities().into_iter().filter_map(|q| match q {
            Quantity::Strictest(k) => Some(k),
            _ => None,
        });
        let mut heard = Heard::new(problem, largest.max().unwrap_or(1), system);
        let mut dice = Dice(stream_seed(seed, streams));
        let service = |_, _, bound| system.service.draw(&mut dice, bound);
        let queue = (system.queue, streams);
        let order = Order::Together;
        let selector = system.selector.clone();
        let played = match (policy, system.fleet.as_ref().zip(planned.as_deref()), selector) {
            (Contender::Serving(_), Some((fleet, planned)), _) => {
                fleet.play(planned, arrivals, service, &mut heard).map_err(PlayError::from)
            }
            (Contender::Policy(PolicyKind::Weir), _, Some(selector)) => {
                selecting(problem, system.queue, streams, selector)
                    .map_err(PlayError::from)
                    .and_then(|mut weir| Ok(drive(&mut weir, arrivals, order, service, &mut heard)?))
            }
            (Contender::Policy(kind), ..) => kind.play(problem, queue, arrivals, order, service, &mut heard),
            (Contender::Serving(_), None, _) => unreachable!("checked when the experiment was read"),
        };
        played.map_err(|error| ExperimentError::Play {
            system: system.name.clone(),
            policy: *policy,
            error,
        })?;
        Ok(heard)
    }

    /// The arrivals of each stream; an adversary bursts in all streams at once.
    fn sources(&self, point: &Point<'_>, seed: u64, streams: usize) -> Result<Vec<Source>, ExperimentError> {
        let rate = self.rate(point);
        let (arrivals, periods) = (point.arrivals, &point.system.periods);
        let fixed: f64 = periods.iter().flatten().map(|period| 1.0 / period.as_secs_f64()).sum();
        let share = (rate - fixed) / periods.iter().filter(|period| period.is_none()).count() as f64;
        let source = |stream: usize| match (periods[stream], &arrivals.process) {
            (Some(period), _) => {
                Process::Constant.arrivals(1.0 / period.as_secs_f64(), stream_seed(seed, stream))
            }
            (None, Some(process)) => process.arrivals(share, stream_seed(seed, stream)),
            (None, None) => {
                let curve = point.certified.faster(rate / point.certified.rate);
                // Without a declaration anything is allowed; a constant rate is what is asked for.
                let process = curve.map_or(Process::Constant, Process::Adversarial);
                process.arrivals(share, stream_seed(seed, 0))
            }
        };
        let sources = (0..streams).map(source).collect::<Result<_, _>>();
        sources.map_err(|error| ExperimentError::Process { arrivals: arrivals.name.clone(), error })
    }
}

/// What is heard of a run.
struct Heard {
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
}

impl Heard {
    fn new(problem: &Problem, longest: u32, system: &System) -> Self {
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
        }
    }

    /// NaN if the run has none.
    fn quantity(&self, quantity: Quantity) -> f64 {
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
        };
        number.unwrap_or(f64::NAN)
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

    fn suspension(&mut self, now: Instant, stream: usize, alarm: Option<Alarm>) {
        if alarm.is_some_and(|alarm| alarm.cause != Cause::ConstraintViolated) {
            self.suspended[stream].get_or_insert(now);
        }
    }
}
