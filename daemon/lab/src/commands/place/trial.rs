//! What a plan makes of the demand that it is for, and what is served of the same: the daemon's scheduler in virtual time, each batch
//! as long as its bound.

mod staged;

use anyhow::Result;
use rt_core::sharing::Device;
use rt_core::{
    Alarm, Instant, Outcome, SafeModeConfig, Scheduler, SchedulerConfig, Span, StreamSpec, StreamState,
    Transition,
};
use serde::Serialize;
use sim::measure::Misses;
use sim::{Batch, Observer, Order, Request, drive, paced};
use virtual_time::{OnDevice, Poisson, Scheduled};
use weir_os::clock;
use weir_plan::config::ServiceConfig;
use weir_plan::place::{Placement, Site};
use weir_plan::plan::{Plan, ServicePlan};

use staged::Staged;

/// Requests that are simulated at most; of more demand that much less time is.
const MOST: f64 = 20_000.0;

/// What became of the same requests in both.
#[derive(Debug, Serialize)]
pub(super) struct Trial {
    /// Of virtual time.
    seconds: f64,
    requests: u64,
    /// Right answers among all requests, in points, by demand and value: as it is served, if that can be planned still, and as planned.
    present: Option<f64>,
    planned: f64,
    /// Services of which the plan broke a constraint of a reserved stream.
    broken: Vec<String>,
}

/// When the requests of a service come, and to which of its streams: the reserved ones, then one of no promise.
type Came = Vec<(Instant, usize)>;

/// What became of the requests of a service.
struct Fate {
    all: u64,
    right: f64,
    /// Of each reserved stream.
    misses: Vec<Misses>,
}

impl Trial {
    /// Both of them on the same arrivals, for `length` at most; none where there is nothing to compare, or no time left before `end`.
    ///
    /// # Errors
    /// If there is no scheduler for what was planned.
    pub(super) fn new(
        site: &Site,
        placement: &Placement,
        length: Span,
        end: Instant,
    ) -> Result<Option<Self>> {
        let planned = placement.complete.as_ref().filter(|_| !placement.changes.is_empty());
        let Some(planned) = planned.map(|complete| &complete.plan) else { return Ok(None) };
        let services = || site.config().services.iter().zip(site.demand());
        // A source is as much work as the requests that it becomes.
        let requests = |config: &ServiceConfig| config.means().iter().sum::<f64>().max(1.0);
        let whole: f64 = services().map(|(config, demand)| demand * requests(config)).sum();
        let seconds = length.as_secs_f64().min(MOST / whole.max(1e-9));
        let until = Instant::from_nanos((seconds * 1e9) as u64);
        let came = services().enumerate();
        let came = came.map(|(place, (config, &demand))| arrivals(config, demand, until, place as u64));
        let came: Vec<Came> = came.collect();
        let points = |fates: &[Fate]| points(site, fates);
        let Some(fates) = fates(planned, &came, end)? else { return Ok(None) };
        // What is served is no longer what it was planned as where a worker is lost, or the profile another one.
        let served = site.served().ok().flatten();
        let present = match served.and_then(|plan| self::fates(&plan, &came, end).ok()) {
            Some(None) => return Ok(None),
            present => present.flatten().map(|fates| points(&fates)),
        };
        let names = site.config().services.iter().map(|service| &service.name);
        let broken = names.zip(&fates).filter(|(_, fate)| fate.is_broken()).map(|(name, _)| name.clone());
        Ok(Some(Self {
            seconds,
            requests: came.iter().map(|came| came.len() as u64).sum(),
            present,
            planned: points(&fates),
            broken: broken.collect(),
        }))
    }
}

/// What `demand` requests a second may look like until then: each reserved stream sends at random, and no sooner than it declares, its
/// part by what it declares to send at most; what is left comes at random without any declaration.
fn arrivals(config: &ServiceConfig, demand: f64, until: Instant, service: u64) -> Came {
    let mut all: Came = Vec::new();
    if demand <= 0.0 {
        return all;
    }
    let curves = config.reserved.iter().map(|stream| stream.spec.arrivals());
    let declared: f64 = curves.clone().flatten().map(|curve| curve.rate_per_s()).sum();
    let part = (demand / declared).min(1.0);
    let seed = |stream: usize| service << 32 | stream as u64;
    for (stream, curve) in curves.enumerate() {
        let Some(curve) = curve.filter(|curve| curve.rate_per_s() > 0.0) else { continue };
        let wishes = Poisson::new(part * curve.rate_per_s(), seed(stream));
        all.extend(paced(curve, wishes).take_while(|&at| at < until).map(|at| (at, stream)));
    }
    let rest = demand - declared;
    if rest > 0.0 && config.background {
        let last = config.reserved.len();
        let come = Poisson::new(rest, seed(last)).take_while(|&at| at < until);
        all.extend(come.map(|at| (at, last)));
    }
    all.sort();
    all
}

/// What becomes of what came to each service, by its place in the file; none if time is up before.
fn fates(plan: &Plan, came: &[Came], end: Instant) -> Result<Option<Vec<Fate>>> {
    let mut fates: Vec<Fate> = plan.services.iter().map(Fate::new).collect();
    let mut places: Vec<Vec<usize>> = Vec::new();
    for (place, service) in plan.services.iter().enumerate() {
        // Those of a device together.
        let device = service.shared_device();
        let same =
            |all: &&mut Vec<usize>| device.is_some() && plan.services[all[0]].shared_device() == device;
        match places.iter_mut().find(same) {
            Some(all) => all.push(place),
            None => places.push(vec![place]),
        }
    }
    for places in places {
        let services: Vec<&ServicePlan> = places.iter().map(|&place| &plan.services[place]).collect();
        let owners: Vec<(usize, usize)> = places
            .iter()
            .flat_map(|&place| {
                (0..streams_of(&plan.services[place]).len()).map(move |stream| (place, stream))
            })
            .collect();
        let mut merged: Came = Vec::new();
        for (index, &(place, stream)) in owners.iter().enumerate() {
            let own = came[place].iter().filter(|(_, of)| *of == stream);
            merged.extend(own.map(|&(at, _)| (at, index)));
        }
        merged.sort();
        let merged = merged.into_iter().take_while(|_| clock::now() < end);
        run(&services, merged, &mut Count { plan, owners: &owners, fates: &mut fates })?;
        if clock::now() >= end {
            return Ok(None);
        }
    }
    Ok(Some(fates))
}

/// Runs what came to services on the same workers as the daemon would; their streams are numbered one service after the other.
fn run(
    services: &[&ServicePlan],
    came: impl Iterator<Item = (Instant, usize)>,
    count: &mut Count<'_>,
) -> Result<()> {
    let second = Span::from_millis(1_000);
    let safe_mode = SafeModeConfig { hold: second, clean: second, latch: false };
    let config = |plan: &&ServicePlan| {
        let config = plan.scheduler_config(safe_mode);
        SchedulerConfig { streams: config.streams.max(streams_of(plan).len()), ..config }
    };
    let took = |_, _, bound| bound;
    if let Some(share) = &services[0].shared {
        let mut device = Device::new(share.device.core_config(services.iter().map(config).collect()))?;
        let mut streams = Vec::new();
        for (index, plan) in services.iter().enumerate() {
            for spec in streams_of(plan) {
                streams.push((index, device.service_mut(index).add_stream(Instant::ZERO, spec)?));
            }
        }
        let all = services.iter().map(|plan| reserved(plan).cloned().collect());
        let all: Vec<Vec<StreamSpec>> = all.collect();
        device.set_shield(share.device.shield(&all, &share.device.admission))?;
        // A batch of a pipeline takes what its sources become on average.
        let usual = services.iter().map(|plan| {
            let fused = plan.fused.as_ref()?;
            let sizes = 1..=plan.workers().profile.max_batch();
            Some(sizes.map(|sources| fused.usual_bound(sources)).collect())
        });
        let mut policy = OnDevice::new(device, streams).taking(usual.collect());
        drive(&mut policy, came, Order::Together, took, count)?;
        return Ok(());
    }
    let plan = services[0];
    if let Some(pipeline) = &plan.pipeline {
        let mut staged = Staged::new((plan, pipeline), streams_of(plan), safe_mode)?;
        drive(&mut staged, came, Order::Together, took, count)?;
        return Ok(());
    }
    let mut scheduler = Scheduler::new(config(&plan))?;
    let streams = streams_of(plan).into_iter().map(|spec| scheduler.add_stream(Instant::ZERO, spec));
    let streams = streams.collect::<Result<_, _>>()?;
    let specs: Vec<&StreamSpec> = reserved(plan).collect();
    if let Ok(shield) = plan.shield(&specs) {
        scheduler.set_shield(Some(shield))?;
        // Where tables are planned while it runs, the most accurate variant that a lull allows stands in for them.
        let selector = match plan.meanwhile() {
            Some(meanwhile) => Some(meanwhile.inputs.accurate()?),
            None => plan.selector.clone(),
        };
        scheduler.set_selector(selector)?;
    }
    drive(&mut Scheduled::new(scheduler, streams), came, Order::Together, took, count)?;
    Ok(())
}

fn reserved(plan: &ServicePlan) -> impl Iterator<Item = &StreamSpec> {
    plan.config.reserved.iter().map(|stream| &stream.spec)
}

/// The reserved streams, and one of no promise where there may be one.
fn streams_of(plan: &ServicePlan) -> Vec<StreamSpec> {
    let other = plan.config.background.then(StreamSpec::best_effort);
    reserved(plan).cloned().chain(other).collect()
}

/// Right answers among all requests, in points, by demand and value of the services.
fn points(site: &Site, fates: &[Fate]) -> f64 {
    let services = site.config().services.iter().zip(site.demand()).zip(fates);
    let placed = services.filter_map(|((config, &demand), fate)| {
        let weight = demand * config.worth()?.1;
        (fate.all > 0).then(|| (weight, weight * 100.0 * fate.right / fate.all as f64))
    });
    let (weight, right) = placed.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if weight > 0.0 { right / weight } else { 0.0 }
}

impl Fate {
    fn new(plan: &ServicePlan) -> Self {
        let misses = reserved(plan).map(|spec| Misses::new(1, spec.constraints().as_slice()));
        Self { all: 0, right: 0.0, misses: misses.collect() }
    }

    fn is_broken(&self) -> bool {
        self.misses.iter().any(|misses| misses.violations().any(|(_, violations)| violations.count > 0))
    }
}

/// Counts what becomes of the requests of services on the same workers.
struct Count<'a> {
    plan: &'a Plan,
    /// Of each stream its service, and its number there.
    owners: &'a [(usize, usize)],
    fates: &'a mut [Fate],
}

impl Observer for Count<'_> {
    fn request(&mut self, request: &Request) {
        let (place, stream) = self.owners[request.stream];
        let (fate, served) = (&mut self.fates[place], request.outcome == Outcome::Served);
        fate.all += 1;
        if served {
            let plan = &self.plan.services[place];
            fate.right += match plan.stages() {
                [] => plan.variants[request.variant].spec.accuracy,
                // Right to the end; a stage that is placed has one model.
                stages => {
                    let stages = stages.iter().map(|stage| stage.runs.spec.accuracy);
                    plan.config.accuracy_of(&stages.collect::<Vec<_>>())
                }
            };
        }
        if let Some(misses) = fate.misses.get_mut(stream) {
            misses.record(served);
        }
    }

    fn batch(&mut self, _: &Batch) {}

    fn safe_mode(&mut self, _: Instant, _: Transition) {}

    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}

#[cfg(test)]
mod tests;
