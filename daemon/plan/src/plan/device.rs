//! The plan of services that share a device: batches of which size, by which rule, and what that leaves to promise.

use std::sync::Arc;

use planner::certify::{Decision, decide};
use planner::{ProblemError, SharedProblem};
use rt_core::sharing::{Rule, SharedAdmission, Sharing};
use rt_core::{ArrivalBound, ArrivalCurve, ConstraintSet, MAX_SPAN, Span, StreamSpec, System, Workers};

use super::rate::{densest, shortest_period};
use super::{PlanError, RatePlan, ServicePlan, workers_of};
use crate::config::{Config, DeviceConfig, ServiceConfig};
use crate::problem::problem_of_device;
use crate::profile::Profile;
use weir_engine::ModelSpec;

/// Up to so many services of a device the batches are chosen for the largest promised rates, beyond for the most capacity
/// that the reserved streams leave: a rate takes a score of tests.
const FEW: usize = 6;
/// How often each service's batch is looked at again, after those of the others.
const PASSES: usize = 3;
/// For batches that serve most requests a second, of what is promised nothing too, up to this share of the rest of the merit
/// is given up.
const FOR_CAPACITY: f64 = 0.02;

/// What services that share workers can promise together.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    pub config: DeviceConfig,
    /// By name, in the order of all that follows.
    pub services: Vec<String>,
    /// With the rule, the turns and the batches that were chosen.
    pub sharing: Sharing,
    /// The reserved streams together.
    pub admission: SharedAdmission,
    /// What keeps services from larger batches, one line each.
    pub limits: Vec<String>,
}

/// The part that a service has in such a plan.
#[derive(Clone, Debug)]
pub struct Share {
    pub device: Arc<DevicePlan>,
    /// Its number there.
    pub index: usize,
}

/// What is decided of one service of a device.
pub(super) struct Part {
    share: Share,
    workers: Workers,
    rate: Option<RatePlan>,
}

impl DevicePlan {
    /// By how much batches may exceed their times, in all between two instants at which nothing mandatory waits and every
    /// worker is free within the longest batch: as long as no more is promised than the plan promises.
    pub fn overrun_margin(&self) -> Span {
        margin(&self.admission)
    }

    /// Whether everything of `streams`, a list for each service, can be promised together; each with its queue.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn admit(
        &self,
        streams: &[Vec<StreamSpec>],
        queue_of: impl Fn(usize) -> usize,
    ) -> Result<SharedAdmission, String> {
        let lists: Vec<&[StreamSpec]> = streams.iter().map(Vec::as_slice).collect();
        let admission = self.sharing.admit(&lists).map_err(|error| self.in_words(&error.to_string()))?;
        for (service, list) in streams.iter().enumerate() {
            let (waiting, queue) = (waiting(list, admission.start_within[service]), queue_of(service));
            if waiting > queue as u64 {
                let name = &self.services[service];
                return Err(format!(
                    "up to {waiting} requests of service {name} that must be served can wait, queue = {queue}"
                ));
            }
        }
        Ok(admission)
    }

    /// A refusal of the core, which knows services by number.
    fn in_words(&self, text: &str) -> String {
        let numbered = self.services.iter().enumerate().rev();
        numbered.fold(text.to_owned(), |text, (i, name)| {
            text.replace(&format!("service {i}"), &format!("service {name}"))
        })
    }
}

/// See [`DevicePlan::overrun_margin`].
pub fn margin(admission: &SharedAdmission) -> Span {
    let tightest = admission.binding.map_or(i128::MAX, |line| line.margin());
    Span::from_nanos(u64::try_from(tightest).unwrap_or(0).min(MAX_SPAN.as_nanos()))
}

/// How many requests of a service can wait that must be served: those that came within the time in which they begin.
fn waiting(streams: &[StreamSpec], start_within: Span) -> u64 {
    let within = start_within + Span::from_nanos(1);
    let of = |spec: &StreamSpec| {
        let (density, arrivals) = spec.demand()?;
        Some(density.ceil_of(arrivals.count(within)))
    };
    streams.iter().filter_map(of).fold(0, u64::saturating_add)
}

/// For each service of `config` with the variants `models`: its part of the plan of its device, if it shares one.
///
/// # Errors
/// If the profile lacks a model, or not every promise of a device can be kept.
pub(super) fn compute_all(
    config: &Config,
    models: &[Vec<ModelSpec>],
    profile: &Profile,
) -> Result<Vec<Option<Part>>, PlanError> {
    let mut parts: Vec<Option<Part>> = models.iter().map(|_| None).collect();
    for index in 0..config.devices.len() {
        let members = members(config, index);
        let choice = Choice::new(config, index, models, profile)?;
        let chosen = choice
            .best()
            .map_err(|reason| PlanError::Device { device: config.devices[index].name.clone(), reason })?;
        for (place, part) in members.into_iter().zip(choice.parts(chosen)) {
            parts[place] = Some(part);
        }
    }
    Ok(parts)
}

/// The services on a device, by their places in the configuration.
fn members(config: &Config, device: usize) -> Vec<usize> {
    let on = |service: &ServiceConfig| service.share.is_some_and(|share| share.device == device);
    (0..config.services.len()).filter(|&place| on(&config.services[place])).collect()
}

/// The problem of the services of a device with the batches that are best for them.
///
/// # Errors
/// If the profile lacks a model, or not every promise can be kept.
pub fn planned_problem(
    config: &Config,
    device: usize,
    models: &[Vec<ModelSpec>],
    profile: &Profile,
) -> Result<SharedProblem, PlanError> {
    let choice = Choice::new(config, device, models, profile)?;
    let refused = |reason| PlanError::Device { device: config.devices[device].name.clone(), reason };
    let chosen = choice.best().map_err(refused)?;
    choice.problem(&chosen.picks).map_err(|error| refused(error.to_string()))
}

/// The problem by which the services of a device are refused: of the batches that serve most, unless they are configured.
///
/// # Errors
/// If the profile lacks a model, or a declaration has no form as a problem.
pub fn refused_problem(
    config: &Config,
    device: usize,
    models: &[Vec<ModelSpec>],
    profile: &Profile,
) -> anyhow::Result<SharedProblem> {
    let choice = Choice::new(config, device, models, profile)?;
    let fastest = |sizes: &Vec<Workers>| {
        let of = |pick: &usize| sizes[*pick].capacity_per_s();
        (0..sizes.len()).max_by(|a, b| of(a).total_cmp(&of(b))).unwrap_or(0)
    };
    Ok(choice.problem(&choice.sizes.iter().map(fastest).collect::<Vec<_>>())?)
}

/// Batch sizes to choose among, of the services of one device.
struct Choice<'a> {
    device: &'a DeviceConfig,
    services: Vec<&'a ServiceConfig>,
    /// Of each service: its workers with each batch size that it may have.
    sizes: Vec<Vec<Workers>>,
}

/// A choice that holds, and how good it is.
struct Chosen {
    picks: Vec<usize>,
    sharing: Sharing,
    admission: SharedAdmission,
    rates: Vec<Option<RatePlan>>,
    merit: f64,
}

impl<'a> Choice<'a> {
    fn new(
        config: &'a Config,
        device: usize,
        models: &[Vec<ModelSpec>],
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        let (mut services, mut sizes) = (Vec::new(), Vec::new());
        for place in members(config, device) {
            let (service, spec) = (&config.services[place], &models[place][0]);
            let entry = profile.entry(&spec.name, &spec.identity(), service.engine)?;
            let latency = service.deadline.saturating_sub(service.guard);
            let all = workers_of(service, entry)?;
            let shortest = all.first().map_or(Span::ZERO, |workers| workers.profile.bound(1));
            // A batch that is late by itself is good for nothing.
            let fits: Vec<_> = all.into_iter().filter(|workers| workers.batch_time() <= latency).collect();
            if fits.is_empty() {
                let (service, deadline, guard) = (service.name.clone(), service.deadline, service.guard);
                return Err(PlanError::Deadline { service, time: shortest, deadline, guard });
            }
            services.push(service);
            sizes.push(fits);
        }
        Ok(Self { device: &config.devices[device], services, sizes })
    }

    /// The best choice that holds. It is looked for among those whose batches take no longer than each of the times that
    /// there are, and from the best of them by changing one service's batch after the other.
    ///
    /// # Errors
    /// Why none holds: what is wrong with the one that serves most.
    fn best(&self) -> Result<Chosen, String> {
        let mut caps: Vec<Span> = self.sizes.iter().flatten().map(Workers::batch_time).collect();
        caps.sort();
        caps.dedup();
        let (mut best, mut reason): (Option<Chosen>, _) = (None, None);
        let mut seen = Vec::new();
        for cap in caps {
            let within = |sizes: &Vec<Workers>| {
                sizes.iter().rposition(|workers| workers.batch_time() <= cap).unwrap_or(0)
            };
            let picks: Vec<_> = self.sizes.iter().map(within).collect();
            if seen.last() == Some(&picks) {
                continue;
            }
            match self.look_at(&picks) {
                Ok(chosen) => drop(better(&mut best, chosen)),
                Err(no) => reason = Some(no),
            }
            seen.push(picks);
        }
        let Some(mut best) = best.map(Some) else { return Err(reason.unwrap_or_default()) };
        for _ in 0..PASSES {
            let mut changed = false;
            for service in 0..self.sizes.len() {
                for pick in 0..self.sizes[service].len() {
                    let mut picks = best.as_ref().map_or_else(Vec::new, |best| best.picks.clone());
                    if std::mem::replace(&mut picks[service], pick) != pick && !seen.contains(&picks) {
                        changed |= self.look_at(&picks).is_ok_and(|chosen| better(&mut best, chosen));
                        seen.push(picks);
                    }
                }
            }
            if !changed {
                break;
            }
        }
        best.ok_or_else(String::new)
    }

    /// Whether all that is reserved holds with these batches, and what more could be promised.
    fn look_at(&self, picks: &[usize]) -> Result<Chosen, String> {
        let problem = self.problem(picks).map_err(|error| error.to_string())?;
        let Decision { rule, turns, answer, reason } = decide(&problem);
        let Ok(admission) = answer else { return Err(reason.unwrap_or_default()) };
        let sharing = problem.sharing(rule, &turns);
        for (service, config) in self.services.iter().enumerate() {
            let waiting = waiting(&reserved(config), admission.start_within[service]);
            if waiting > config.queue as u64 {
                let (name, queue) = (&config.name, config.queue);
                return Err(format!(
                    "service {name}: queue = {queue}, but up to {waiting} requests that must be served can wait"
                ));
            }
        }
        let mut chosen = Chosen { picks: picks.to_vec(), sharing, admission, rates: Vec::new(), merit: 0.0 };
        let rated = self.services.len() <= FEW && self.services.iter().any(|s| !s.constraints.is_empty());
        if rated {
            chosen.rates = self.rates(&chosen);
            let worth = |(rate, config): (&Option<RatePlan>, &&ServiceConfig)| {
                let weight = config.share.map_or(1.0, |share| share.weight);
                weight * rate.as_ref().and_then(RatePlan::per_second).unwrap_or(0.0)
            };
            chosen.merit = chosen.rates.iter().zip(&self.services).map(worth).sum();
        } else {
            chosen.merit = self.device.workers as f64 - self.busy(picks);
        }
        chosen.merit *= 1.0 + FOR_CAPACITY * self.efficiency(picks);
        Ok(chosen)
    }

    /// The capacities with these batches, of the largest that there are with any; 0 to 1.
    fn efficiency(&self, picks: &[usize]) -> f64 {
        let of = |(sizes, &pick): (&Vec<Workers>, &usize)| {
            let most = sizes.iter().map(Workers::capacity_per_s).fold(0.0, f64::max);
            sizes[pick].capacity_per_s() / most
        };
        self.sizes.iter().zip(picks).map(of).sum::<f64>() / picks.len() as f64
    }

    /// How many workers the reserved streams keep busy on average.
    fn busy(&self, picks: &[usize]) -> f64 {
        let of = |((config, sizes), &pick): ((&&ServiceConfig, &Vec<Workers>), &usize)| {
            let workers = &sizes[pick];
            let each = workers.batch_time().as_secs_f64() / workers.batch as f64;
            let demand = config.reserved.iter().filter_map(|s| s.spec.demand());
            demand.map(|(density, arrivals)| density.as_f64() * arrivals.rate_per_s()).sum::<f64>() * each
        };
        self.services.iter().zip(&self.sizes).zip(picks).map(of).sum()
    }

    /// The largest rate of one more stream of each service that has constraints, the others as they are reserved.
    fn rates(&self, chosen: &Chosen) -> Vec<Option<RatePlan>> {
        let streams: Vec<Vec<StreamSpec>> = self.services.iter().map(|config| reserved(config)).collect();
        let rate = |(service, config): (usize, &&ServiceConfig)| {
            let set =
                ConstraintSet::new(&config.constraints).ok().filter(|set| !set.as_slice().is_empty())?;
            let (binding, density) = (densest(&set), set.density());
            let workers = &self.sizes[service][chosen.picks[service]];
            let carries = |period: Span| {
                let curve = ArrivalCurve::new(&[ArrivalBound::periodic(period, config.jitter).ok()?]).ok()?;
                let mut own = streams[service].clone();
                own.push(StreamSpec::promised(set.clone(), curve));
                let lists: Vec<&[StreamSpec]> = streams
                    .iter()
                    .enumerate()
                    .map(|(s, list)| if s == service { own.as_slice() } else { list.as_slice() })
                    .collect();
                let admission = chosen.sharing.admit(&lists).ok()?;
                Some(waiting(&own, admission.start_within[service]))
            };
            let fits = |period| carries(period).filter(|&waiting| waiting <= config.queue as u64);
            let spare =
                shortest_period(workers, density, config.jitter, fits).map(|(period, _)| (period, None));
            // Faster by more than the period is exact to.
            let faster = |period: Span| period.saturating_sub(Span::from_nanos(period.as_nanos() / 1024 + 1));
            let queue_limits = spare.is_some_and(|(period, _)| carries(faster(period)).is_some());
            Some(RatePlan { binding, density, alone: None, spare, queue_limits })
        };
        self.services.iter().enumerate().map(rate).collect()
    }

    fn problem(&self, picks: &[usize]) -> Result<SharedProblem, ProblemError> {
        let workers = self.sizes.iter().zip(picks).map(|(sizes, &pick)| &sizes[pick]);
        problem_of_device(self.device, self.services.iter().copied().zip(workers))
    }

    /// What keeps each service from the next larger batch.
    fn limits(&self, chosen: &Chosen) -> Vec<String> {
        let limit = |(service, sizes): (usize, &Vec<Workers>)| {
            let mut picks = chosen.picks.clone();
            picks[service] += 1;
            let next = sizes.get(picks[service])?;
            let reason = self.look_at(&picks).err()?;
            let name = &self.services[service].name;
            Some(format!("batches of {} of {name} would take {}: {reason}", next.batch, next.batch_time()))
        };
        self.sizes.iter().enumerate().filter_map(limit).collect()
    }

    /// What was chosen, service by service.
    fn parts(self, mut chosen: Chosen) -> Vec<Part> {
        if chosen.rates.is_empty() {
            chosen.rates = self.rates(&chosen);
        }
        let limits = self.limits(&chosen);
        let Chosen { picks, sharing, admission, rates, .. } = chosen;
        let services = self.services.iter().map(|config| config.name.clone()).collect();
        let device =
            Arc::new(DevicePlan { config: self.device.clone(), services, sharing, admission, limits });
        let all = self.sizes.into_iter().zip(picks).zip(rates).enumerate();
        all.map(|(index, ((mut sizes, pick), rate))| Part {
            share: Share { device: Arc::clone(&device), index },
            workers: sizes.swap_remove(pick),
            rate,
        })
        .collect()
    }
}

/// Takes `one` in place of a choice that is no better.
fn better(best: &mut Option<Chosen>, one: Chosen) -> bool {
    let is_better = best.as_ref().is_none_or(|best| one.merit > best.merit + 1e-9);
    if is_better {
        *best = Some(one);
    }
    is_better
}

fn reserved(config: &ServiceConfig) -> Vec<StreamSpec> {
    config.reserved.iter().map(|stream| stream.spec.clone()).collect()
}

impl ServicePlan {
    /// The plan of a service that shares its workers.
    ///
    /// # Errors
    /// As [`super::Plan::compute`].
    pub(super) fn on_device(
        config: &ServiceConfig,
        specs: Vec<ModelSpec>,
        profile: &Profile,
        Part { share, workers, rate }: Part,
    ) -> Result<Self, PlanError> {
        let spec = specs[0].clone();
        let entry = profile.entry(&spec.name, &spec.identity(), config.engine)?;
        let latency = config.deadline.saturating_sub(config.guard);
        let system = System { guard: config.guard, ..System::identical(workers, latency) };
        let plan = Self {
            config: config.clone(),
            spec,
            variants: Vec::new(),
            selector: None,
            profile_sha256: entry.digest(),
            entry: Some(entry.clone()),
            mismatches: Vec::new(),
            system,
            admission: None,
            shared: Some(share),
            rate,
        };
        plan.with_variants(specs, profile)
    }

    /// Batches in a turn, where the services of its device take turns.
    pub fn turn(&self) -> Option<u32> {
        let share = self.shared.as_ref()?;
        let sharing = &share.device.sharing;
        (sharing.rule == Rule::Turns).then(|| sharing.services[share.index].turn)
    }
}
