//! What is seen of the services that are placed: how much is asked of them, how right they answer, and whom a worker has left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use rt_core::{Instant, Span};
use weir_client::status;
use weir_os::clock;
use weir_plan::config::{Config, PlacementConfig, ServiceConfig, StageConfig};
use weir_plan::place::Gone;
use weir_serve::service::{Service, WorkerView};
use weir_serve::status::of;

use super::demand::{Demand, Factor};
use super::steps::Hold;

/// Of all services that are placed, since the configuration was taken over.
#[derive(Default)]
pub(super) struct Seen {
    services: BTreeMap<String, One>,
    /// When the present windows began.
    since: Option<Instant>,
    /// Workers of a service that are lost, since when, and whether they are given up, which they are until it is served otherwise.
    lost: BTreeMap<(String, usize), (Instant, bool)>,
    /// Workers of devices that are shared and that are given up.
    given_up: BTreeSet<(String, usize)>,
    gone: Vec<Gone>,
    /// Who has lost a worker for good since the last look.
    newly: Option<String>,
}

/// Of one service.
struct One {
    demand: Demand,
    /// Which of those that took over from each other it was.
    instance: Weak<Service>,
    served: u64,
    missed: u64,
    answered: Vec<u64>,
    /// Of each stage of a pipeline what results become there, and how many did so far of this instance.
    factors: Vec<(Factor, [u64; 2])>,
    /// Since the last look: requests that were served and missed, answers of a known accuracy, and how many of these are right.
    since: (u64, u64, u64, f64),
    /// Requests a second that were planned for last.
    planned: Option<f64>,
    /// Whether its workers can do what is expected.
    carries: bool,
}

impl Seen {
    /// Looks at everything: a window has ended.
    pub(super) fn look(
        &mut self,
        now: Instant,
        config: &Config,
        placement: &PlacementConfig,
        services: &[Arc<Service>],
    ) {
        let length = self.since.replace(now).map_or(Span::ZERO, |since| now.since(since));
        let names: BTreeSet<&str> = placed(config).map(|service| &*service.name).collect();
        self.services.retain(|name, _| names.contains(&**name));
        for service in services.iter().filter(|service| names.contains(service.name())) {
            self.count(length, placement, service);
            self.watch(now, placement, service);
        }
    }

    fn count(&mut self, length: Span, placement: &PlacementConfig, service: &Arc<Service>) {
        let told = of(service);
        let instance = Arc::downgrade(service);
        let missed: u64 = told.missed.values().sum();
        // A pipeline is as right as its stages together are; each of them has one model.
        let stages: Vec<f64> = service.plan.stages().iter().map(|stage| stage.runs.spec.accuracy).collect();
        let whole = (!stages.is_empty()).then(|| service.plan.config.accuracy_of(&stages));
        let answers = match whole {
            Some(accuracy) => vec![(told.served, Some(accuracy))],
            None => told.variants.iter().map(|variant| (variant.answered, variant.accuracy)).collect(),
        };
        let answered: Vec<u64> = answers.iter().map(|(answered, _)| *answered).collect();
        let (estimator, period) = (placement.controller.estimator, clock::duration(placement.period));
        let of = |stage: &StageConfig| (Factor::new(estimator, period, stage.mean), [0; 2]);
        let one = self.services.entry(told.name.clone()).or_insert_with(|| One {
            demand: Demand::new(estimator, period),
            factors: service.plan.config.stages.iter().map(of).collect(),
            instance: instance.clone(),
            served: told.served,
            missed,
            answered: answered.clone(),
            since: (0, 0, 0, 0.0),
            planned: None,
            carries: true,
        });
        if !one.instance.ptr_eq(&instance) {
            // Its answers are counted anew, its requests are not.
            let before = if whole.is_some() { one.served } else { 0 };
            (one.instance, one.answered) = (instance, vec![before; answered.len()]);
            one.factors.iter_mut().for_each(|(_, before)| *before = [0; 2]);
            self.lost.retain(|(of, _), _| *of != told.name);
        }
        let (served, missed_since) =
            (told.served.saturating_sub(one.served), missed.saturating_sub(one.missed));
        one.demand.add(served + missed_since, clock::duration(length));
        for ((factor, before), stage) in one.factors.iter_mut().zip(&told.stages) {
            let now = [stage.parent_results, stage.requests];
            let [results, requests] = [0, 1].map(|i| now[i].saturating_sub(before[i]));
            factor.add((results, requests), clock::duration(length));
            *before = now;
        }
        one.since.0 += served;
        one.since.1 += missed_since;
        for ((now, accuracy), before) in answers.into_iter().zip(&one.answered) {
            let answers = now.saturating_sub(*before);
            if let Some(accuracy) = accuracy {
                one.since.2 += answers;
                one.since.3 += accuracy * answers as f64;
            }
        }
        (one.served, one.missed, one.answered) = (told.served, missed, answered);
        let expected =
            one.demand.burst(one.planned.unwrap_or(f64::MAX)).or(one.demand.expected()).unwrap_or(0.0);
        let factors: Vec<f64> = one.factors.iter().map(|(factor, _)| factor.expected()).collect();
        one.carries = service.plan.shared.is_some() || expected <= left(service, &factors);
    }

    /// Notes whose workers are lost, and gives up those that have been for long.
    fn watch(&mut self, now: Instant, placement: &PlacementConfig, service: &Arc<Service>) {
        let states: Vec<WorkerView> = service.view().workers().collect();
        let name = service.name();
        // Who is given up and answers again is not relied on: its service is still to move off it.
        let is_lost = |worker: usize| states.get(worker) == Some(&WorkerView::Lost);
        self.lost.retain(|(of, worker), (_, given_up)| of != name || *given_up || is_lost(*worker));
        for worker in (0..states.len()).filter(|&worker| is_lost(worker)) {
            let (since, given_up) = self.lost.entry((name.to_owned(), worker)).or_insert((now, false));
            if *given_up || now.since(*since) < placement.controller.lost_after {
                continue;
            }
            *given_up = true;
            self.newly = Some(name.to_owned());
            // All services of a device have lost the same one.
            let device = service.plan.shared_device().map(|device| (device.to_owned(), worker));
            if device.is_some_and(|device| !self.given_up.insert(device)) {
                continue;
            }
            let (runs, worker) = service.plan.on_worker(worker);
            let config = &runs.config;
            // A pipeline on a device has it in the places of its stages.
            let placed = config.running().find_map(|runs| runs.candidates.as_ref()?.placed.as_ref());
            let class = placed.and_then(|placed| placement.classes.get(placed.class));
            let Some(class) = class else { continue };
            self.gone.push(Gone { class: class.name.clone(), number: class.unit_of(config, worker) });
        }
    }

    /// A service that has lost a worker for good since the last look.
    pub(super) fn newly_lost(&self) -> Option<String> {
        self.newly.clone()
    }

    /// A service of which much more is asked than was planned.
    pub(super) fn burst(&self) -> Option<String> {
        let is_beyond = |one: &One| one.planned.is_some_and(|planned| one.demand.burst(planned).is_some());
        self.services.iter().find(|(_, one)| is_beyond(one)).map(|(name, _)| name.clone())
    }

    /// Devices that are lost for good.
    pub(super) fn gone(&self) -> &[Gone] {
        &self.gone
    }

    /// Whether a service cannot do where it is what is expected of it.
    pub(super) fn is_urgent(&self, name: &str) -> bool {
        self.has_lost(name) || self.services.get(name).is_some_and(|one| !one.carries)
    }

    /// Whether a plan that changes these helps one that is urgent. Who is left out is helped by no plan: others move for what they gain then.
    pub(super) fn is_needed(&self, changed: &[&String], unkept: &[String]) -> bool {
        changed.iter().any(|name| !unkept.contains(name) && self.is_urgent(name))
    }

    /// Whether a worker of it is lost for good.
    pub(super) fn has_lost(&self, name: &str) -> bool {
        self.lost.iter().any(|((of, _), (_, given_up))| of == name && *given_up)
    }

    /// Whether a worker of anybody is lost for good.
    pub(super) fn has_lost_any(&self) -> bool {
        self.lost.values().any(|(_, given_up)| *given_up)
    }

    /// Devices that nobody else may have while a service or a pipeline stays where it is: those that it has left.
    pub(super) fn held(&self, config: &Config, name: &str) -> Vec<Gone> {
        let (Some(placement), Some(holds)) = (&config.placement, holds(config).remove(name)) else {
            return Vec::new();
        };
        let (mut all, mut first) = (Vec::new(), 0);
        for hold in holds {
            // The workers of a pipeline are numbered stage by stage, one for each device.
            let own = first..first + hold.devices;
            first = own.end;
            let is_lost =
                |worker: &usize| self.lost.get(&(name.to_owned(), *worker)).is_some_and(|lost| lost.1);
            let left = hold.devices - own.filter(is_lost).count();
            let numbers: Vec<Option<usize>> = match hold.numbers.is_empty() {
                true => vec![None; left],
                false => hold.numbers.into_iter().map(Some).collect(),
            };
            let class = &placement.classes[hold.class].name;
            all.extend(numbers.into_iter().map(|number| Gone { class: class.clone(), number }));
        }
        all.retain(|one| one.number.is_none() || !self.gone.contains(one));
        all
    }

    /// Requests a second to plan for, without headroom: what is expected, and of a burst what came.
    pub(super) fn expected(&self, config: &Config) -> BTreeMap<String, f64> {
        let expected = placed(config).map(|service| {
            let one = self.services.get(&service.name);
            let burst = one.and_then(|one| one.demand.burst(one.planned?));
            let expected = burst.or_else(|| one?.demand.expected());
            (
                service.name.clone(),
                expected.unwrap_or_else(|| service.worth().map_or(0.0, |(demand, _)| demand)),
            )
        });
        expected.collect()
    }

    /// Of each stage of a pipeline that is placed, behind the first and no join, how many requests a result becomes there: by
    /// `pipeline/stage`.
    pub(super) fn factors(&self, config: &Config) -> BTreeMap<String, f64> {
        let all = placed(config).flat_map(|pipeline| {
            let seen = self.services.get(&pipeline.name);
            let behind =
                pipeline.stages.iter().enumerate().skip(1).filter(|(_, stage)| !stage.after.is_join());
            behind.map(move |(i, stage)| {
                let seen = seen.and_then(|one| one.factors.get(i));
                let mean = seen.map_or(stage.mean, |(factor, _)| factor.expected());
                (format!("{}/{}", pipeline.name, stage.runs.name), mean.min(f64::from(stage.fan_out)))
            })
        });
        all.collect()
    }

    /// The requests a second of all services, and of all stages of pipelines, where so much comes: what tells one demand from another.
    pub(super) fn load(&self, config: &Config, demand: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        let mut all = demand.clone();
        for pipeline in placed(config).filter(|service| !service.stages.is_empty()) {
            let Some(sources) = demand.get(&pipeline.name) else { continue };
            let factors = self.services.get(&pipeline.name).map(|one| &one.factors);
            let each = pipeline.stages.iter().enumerate().map(|(i, stage)| {
                factors.and_then(|all| all.get(i)).map_or(stage.mean, |(factor, _)| factor.expected())
            });
            let means = pipeline.means_of(&each.collect::<Vec<_>>());
            let names = pipeline.stages.iter().map(|stage| format!("{}/{}", pipeline.name, stage.runs.name));
            all.extend(names.zip(means.into_iter().map(|mean| sources * mean)));
        }
        all
    }

    /// Plans are made for so much from now on.
    pub(super) fn plan_for(&mut self, demand: &BTreeMap<String, f64>) {
        for (name, one) in &mut self.services {
            one.planned = demand.get(name).copied();
        }
    }

    /// How the services do that a plan places, as it is judged: the share of right answers of all that came since the last look, by demand
    /// and value, in points; none where that is not known. Of those that it leaves out it says nothing.
    pub(super) fn present(
        &self,
        config: &Config,
        expected: &BTreeMap<String, f64>,
        unkept: &[String],
    ) -> Option<f64> {
        let (mut all, mut right, mut known) = (0.0, 0.0, true);
        for (name, one) in self.services.iter().filter(|(name, _)| !unkept.contains(name)) {
            let worth = config.services.iter().find(|s| s.name == *name).and_then(ServiceConfig::worth);
            let weight = expected[name] * worth.map_or(0.0, |(_, value)| value);
            let (served, missed, answers, of_them) = one.since;
            if weight <= 0.0 || served + missed == 0 {
                continue;
            }
            known &= answers > 0 || served == 0;
            let share = served as f64 / (served + missed) as f64;
            all += weight;
            right += weight * share * of_them / answers.max(1) as f64;
        }
        (known && all > 0.0).then(|| 100.0 * right / all)
    }

    /// A look is over: what comes next is judged by itself.
    pub(super) fn begin(&mut self) {
        self.newly = None;
        self.services.values_mut().for_each(|one| one.since = (0, 0, 0, 0.0));
    }

    /// For STATUS.
    pub(super) fn demand(&self, config: &Config) -> Vec<status::PlacementDemand> {
        let (expected, factors) = (self.expected(config), self.factors(config));
        let one = |(name, expected_per_s): (String, f64)| {
            let planned_per_s = self.services.get(&name).and_then(|one| one.planned);
            let of = |(of, &mean): (&String, &f64)| {
                let stage = of.strip_prefix(&*name)?.strip_prefix('/')?.to_owned();
                Some(status::PlacementStage { stage, mean })
            };
            let stages = factors.iter().filter_map(of).collect();
            status::PlacementDemand { service: name, expected_per_s, planned_per_s, stages }
        };
        expected.into_iter().map(one).collect()
    }
}

/// The services and pipelines that are placed.
pub(super) fn placed(config: &Config) -> impl Iterator<Item = &ServiceConfig> {
    config.services.iter().filter(|service| service.is_placed())
}

/// What each of them holds, by name; of a pipeline each stage.
pub(super) fn holds(config: &Config) -> BTreeMap<&str, Vec<Hold>> {
    let Some(placement) = &config.placement else { return BTreeMap::new() };
    let holds =
        |service: &ServiceConfig| service.running().filter_map(|runs| hold(runs, placement)).collect();
    placed(config).map(|service| (&*service.name, holds(service))).collect()
}

/// How many requests a second the workers that are left answer in full batches; of a pipeline sources, where that is least, by what results
/// become at its stages.
fn left(service: &Service, factors: &[f64]) -> f64 {
    let (plan, view) = (&service.plan, service.view());
    let Some(pipeline) = &plan.pipeline else {
        return plan.mean_capacity() * view.workers_alive() as f64 / plan.worker_count().max(1) as f64;
    };
    let mut alive = vec![0_usize; pipeline.stages.len()];
    for (worker, _) in view.workers().enumerate().filter(|(_, does)| *does != WorkerView::Lost) {
        alive[pipeline.place_of(worker).0] += 1;
    }
    let stages = pipeline.stages.iter().zip(plan.config.means_of(factors)).zip(alive);
    let each = stages.map(|((stage, mean), alive)| {
        stage.runs.capacity() / mean * alive as f64 / stage.runs.workers().count.max(1) as f64
    });
    each.fold(f64::INFINITY, f64::min)
}

/// What a service or a stage holds where it is placed.
fn hold(runs: &ServiceConfig, placement: &PlacementConfig) -> Option<Hold> {
    let placed = runs.candidates.as_ref()?.placed.as_ref()?;
    let class = &placement.classes[placed.class];
    let numbers = class.units_of(runs, placed.devices);
    Some(Hold { class: placed.class, devices: placed.devices, numbers })
}

#[cfg(test)]
mod tests;
