//! Each system with all arrivals, rates and policies: every run by itself, on all cores.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use super::cluster::{self, Moments};
use super::contender::Contender;
use super::fleet::{Planned, ServingKind};
use super::heard::Heard;
use super::quantity::Quantity;
use super::results::{Cell, Results};
use super::sharing::{self, Told};
use super::system::{Certified, System};
use super::{Arrivals, Experiment, ExperimentError, Of, refuse};
use crate::dice::Dice;
use crate::policy::{PlayError, PolicyKind, selecting};
use crate::process::{Merged, Process, Source, stream_seed};
use crate::statistics::Estimate;
use virtual_time::{Order, drive};

/// One cell, with what it needs.
struct Point<'a> {
    system: &'a System,
    arrivals: &'a Arrivals,
    certified: Arc<Certified>,
    x: f64,
    policy: Contender,
    /// Of one that picks models.
    planned: Option<Arc<Planned>>,
    /// Of services that share workers: what comes, and what the policy is told.
    shared: Option<Arc<Told>>,
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
        let (prepared, selectors) = (self.prepare(), self.selectors()?);
        let run = |index: usize| -> Result<(Vec<f64>, Moments), ExperimentError> {
            let point = &points[index / runs];
            let seed = u64::from(self.seed) + (index % runs) as u64;
            if let Some(routed) = &point.system.router {
                let told = self.route(routed, (point.arrivals, point.x), point.policy, &prepared, seed);
                tick();
                return Ok((told, Moments::new()));
            }
            if let Some(selecting) = &point.system.selecting {
                let here = (point.system, point.arrivals, self.rate(point));
                let told = self.select(selecting, here, point.policy, &selectors, seed)?;
                tick();
                return Ok((told, Moments::new()));
            }
            if let Some(cluster) = &point.system.cluster {
                let told = self.play_cluster(
                    cluster,
                    (&point.system.name, point.arrivals),
                    point.policy,
                    point.x,
                    seed,
                )?;
                tick();
                return Ok(cluster::told(&told, &quantities));
            }
            let heard = self.play(point, seed)?;
            tick();
            let number = |&quantity: &Quantity| match quantity {
                Quantity::Certified => point.shared.as_ref().map_or(f64::NAN, |told| told.admitted),
                other => heard.quantity(other),
            };
            let all = quantities.iter().map(number).collect();
            let over_time = self.figures.iter().any(|figure| figure.over_time);
            Ok((all, if over_time { heard.moments(&quantities) } else { Moments::new() }))
        };
        let all: Vec<(Vec<f64>, Moments)> =
            (0..self.size()).into_par_iter().map(run).collect::<Result<_, ExperimentError>>()?;
        let cell = |(point, runs): (&Point<'_>, &[(Vec<f64>, Moments)])| {
            let estimate = |i: usize| Estimate::of(&runs.iter().map(|(run, _)| run[i]).collect::<Vec<_>>());
            let moment = |at: usize| {
                let of = |i| {
                    Estimate::of(
                        &runs.iter().filter_map(|(_, of)| Some(of.get(at)?.1[i])).collect::<Vec<_>>(),
                    )
                };
                (runs[0].1[at].0, (0..quantities.len()).map(of).collect())
            };
            Cell {
                system: point.system.name.clone(),
                arrivals: point.arrivals.name.clone(),
                x: point.x,
                policy: point.policy,
                certified: point.certified_rate(),
                rate: self.rate(point),
                estimates: (0..quantities.len()).map(estimate).collect(),
                runs: runs.iter().map(|(run, _)| run.clone()).collect(),
                moments: (0..runs[0].1.len()).map(moment).collect(),
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
                    points.push(Point {
                        system,
                        arrivals,
                        certified,
                        x,
                        policy,
                        planned: None,
                        shared: None,
                    });
                }
            }
        }
        self.plan(&mut points)?;
        self.tell(&mut points);
        Ok(points)
    }

    /// Tells those that share workers among services what comes, each as much as it promises.
    fn tell(&self, points: &mut [Point<'_>]) {
        let shared = |point: &Point<'_>| point.system.sharing.is_some();
        let keys = points.iter().filter(|point| shared(point));
        let mut todo: Vec<(&System, Contender)> = keys.map(|point| (point.system, point.policy)).collect();
        let name = |&(system, policy): &(&System, Contender)| (system.name.clone(), policy);
        let mut seen = HashSet::new();
        todo.retain(|key| seen.insert(name(key)));
        let certify = |key: &(&System, Contender)| {
            let own = key.0.sharing.as_ref().zip(key.1.sharing()).and_then(|(of, kind)| of.certify(kind));
            (name(key), own)
        };
        let certified: HashMap<_, _> = todo.par_iter().map(certify).collect();
        let rates: Vec<f64> = points.iter().map(|point| self.rate(point)).collect();
        points.par_iter_mut().zip(rates).for_each(|(point, rate)| {
            if let (Some(of), Some(kind)) = (&point.system.sharing, point.policy.sharing()) {
                let own = certified[&name(&(point.system, point.policy))];
                point.shared = Some(Arc::new(of.tell(kind, own, rate)));
            }
        });
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
    pub(super) fn quantities(&self) -> Vec<Quantity> {
        let mut all = Quantity::ALL.to_vec();
        let asked = self.tables.iter().map(|t| t.measure).chain(self.figures.iter().map(|f| f.measure));
        let offered = self.figures.iter().any(|figure| figure.over_time).then_some(Quantity::Offered);
        let asked = asked.chain(offered);
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
            Of::Recorded => point.arrivals.recorded.as_ref().map_or(f64::NAN, cluster::Recorded::rate),
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
        if let (Some(pipeline), &Contender::Pipeline(kind)) = (&system.pipeline, policy) {
            let service = |_, _, bound| system.service.draw(&mut dice, bound);
            let seeds = (stream_seed(seed, streams + 1), stream_seed(seed, streams + 2));
            let played = kind.play(pipeline, self.rate(point), seeds, arrivals, service, &mut heard);
            let name = || system.name.clone();
            let wrong = |error| ExperimentError::Pipeline { system: name(), policy: *policy, error };
            return played.map(|()| heard).map_err(wrong);
        }
        if let (Some(told), Some(kind)) = (&point.shared, policy.sharing()) {
            let streams = sharing::streams_of(&told.problem);
            let queue = (system.queue, &streams[..]);
            let played = kind.play(&told.problem, queue, arrivals, order, service, &mut heard);
            let name = || system.name.clone();
            let wrong = |error| ExperimentError::Play { system: name(), policy: *policy, error };
            return played.map(|()| heard).map_err(wrong);
        }
        let played = match (policy, system.fleet.as_ref().zip(planned.as_deref()), selector) {
            (Contender::Serving(_), Some((fleet, planned)), _) => {
                fleet.play(planned, arrivals, service, &mut heard).map_err(PlayError::from)
            }
            (Contender::Policy(PolicyKind::Weir), _, Some(selector)) => {
                selecting(problem, system.queue, streams, selector, false)
                    .map_err(PlayError::from)
                    .and_then(|mut weir| Ok(drive(&mut weir, arrivals, order, service, &mut heard)?))
            }
            (Contender::Policy(kind), ..) => kind.play(problem, queue, arrivals, order, service, &mut heard),
            (Contender::Serving(_) | Contender::Sharing(_), ..)
            | (Contender::Pipeline(_) | Contender::Allocation(_) | Contender::Routing(_), ..) => {
                unreachable!("checked when the experiment was read")
            }
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
        if let Some(told) = &point.shared {
            let sources = told.sources(arrivals.process.as_ref(), seed);
            return sources
                .map_err(|error| ExperimentError::Process { arrivals: arrivals.name.clone(), error });
        }
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

impl Point<'_> {
    /// What the policy's own test of admission lets in, of services that share workers; of others what ours does.
    fn certified_rate(&self) -> f64 {
        let own = self.shared.as_ref().zip(self.system.sharing.as_ref());
        own.map_or(self.certified.rate, |(told, of)| of.rate(told.admitted))
    }
}
