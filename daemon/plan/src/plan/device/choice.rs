//! The batches of services that share a device: which of them hold, and which of those leave most to promise.

use std::sync::Arc;

use planner::certify::{Decision, decide};
use planner::{ProblemError, SharedProblem};
use rt_core::sharing::{SharedAdmission, Sharing};
use rt_core::{ArrivalBound, ArrivalCurve, ConstraintSet, Span, StreamSpec, Workers};

use super::super::rate::{densest, shortest_period};
use super::super::{PlanError, RatePlan, workers_of};
use super::{DevicePlan, Part, Share, members, overfull, waiting};
use crate::config::{Config, DeviceConfig, ServiceConfig};
use crate::problem::problem_of_device;
use crate::profile::Profile;
use weir_engine::ModelSpec;

/// Up to so many services of a device the batches are chosen for the largest promised rates, beyond for the most capacity
/// that the reserved streams leave: a rate takes a score of tests.
const FEW: usize = 6;
/// Choices are compared by periods that are exact to one of so many parts, and the plan states them to one of so many: the
/// closer to capacity, the longer a test takes.
const COARSE: u64 = 16;
/// See [`COARSE`].
const FINE: u64 = 128;
/// How often each service's batch is looked at again, after those of the others.
const PASSES: usize = 3;
/// For batches that serve most requests a second, of what is promised nothing too, up to this share of the rest of the merit
/// is given up.
const FOR_CAPACITY: f64 = 0.02;

/// Batch sizes to choose among, of the services of one device.
pub(super) struct Choice<'a> {
    device: &'a DeviceConfig,
    services: Vec<&'a ServiceConfig>,
    /// Of each service: its reserved streams.
    reserved: Vec<Vec<StreamSpec>>,
    /// Of each service: its workers with each batch size that it may have.
    pub(super) sizes: Vec<Vec<Workers>>,
    /// Bytes of model files that all workers load together.
    model_bytes: u64,
}

/// A choice that holds, and how good it is.
pub(super) struct Chosen {
    pub(super) picks: Vec<usize>,
    sharing: Sharing,
    admission: SharedAdmission,
    merit: f64,
}

impl<'a> Choice<'a> {
    pub(super) fn new(
        config: &'a Config,
        device: usize,
        models: &[Vec<ModelSpec>],
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        let (mut services, mut sizes) = (Vec::new(), Vec::new());
        let DeviceConfig { name, workers, max_memory, .. } = &config.devices[device];
        let of_each = members(config, device).into_iter().flat_map(|place| &models[place]);
        let model_bytes = *workers as u64 * of_each.map(ModelSpec::file_bytes).sum::<u64>();
        if model_bytes > *max_memory {
            return Err(PlanError::Memory { device: name.clone(), bytes: model_bytes, limit: *max_memory });
        }
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
        let specs = |service: &&ServiceConfig| service.reserved.iter().map(|s| s.spec.clone()).collect();
        let reserved = services.iter().map(specs).collect();
        Ok(Self { device: &config.devices[device], services, reserved, sizes, model_bytes })
    }

    /// The best choice that holds. It is looked for among those whose batches take no longer than each of the times that
    /// there are, and from the best of them by changing one service's batch after the other.
    ///
    /// # Errors
    /// Why none holds: what is wrong with the one that serves most.
    pub(super) fn best(&self) -> Result<Chosen, String> {
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
        let mut chosen = self.admitted(picks)?;
        let rated = self.services.len() <= FEW && self.services.iter().any(|s| !s.constraints.is_empty());
        chosen.merit = if rated {
            let worth = |(rate, config): (Option<RatePlan>, &&ServiceConfig)| {
                let weight = config.share.map_or(1.0, |share| share.weight);
                weight * rate.and_then(|rate| rate.per_second()).unwrap_or(0.0)
            };
            self.rates(&chosen, COARSE).into_iter().zip(&self.services).map(worth).sum()
        } else {
            self.device.workers as f64 - self.busy(picks)
        };
        chosen.merit *= 1.0 + FOR_CAPACITY * self.efficiency(picks);
        Ok(chosen)
    }

    /// Whether all that is reserved holds with these batches.
    fn admitted(&self, picks: &[usize]) -> Result<Chosen, String> {
        let problem = self.problem(picks).map_err(|error| error.to_string())?;
        let Decision { rule, turns, answer, reason } = decide(&problem);
        let Ok(admission) = answer else { return Err(reason.unwrap_or_default()) };
        let sharing = problem.sharing(rule, &turns);
        let lists: Vec<&[StreamSpec]> = self.reserved.iter().map(Vec::as_slice).collect();
        if let Some((service, text)) = overfull(&admission, &lists, |service| self.services[service].queue) {
            return Err(format!("service {}: {text}", self.services[service].name));
        }
        Ok(Chosen { picks: picks.to_vec(), sharing, admission, merit: 0.0 })
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
    fn rates(&self, chosen: &Chosen, parts: u64) -> Vec<Option<RatePlan>> {
        let streams: Vec<&[StreamSpec]> = self.reserved.iter().map(Vec::as_slice).collect();
        let rate = |(service, config): (usize, &&ServiceConfig)| {
            let set =
                ConstraintSet::new(&config.constraints).ok().filter(|set| !set.as_slice().is_empty())?;
            let (binding, density) = (densest(&set), set.density());
            let workers = &self.sizes[service][chosen.picks[service]];
            let carries = |period: Span| {
                let curve = ArrivalCurve::new(&[ArrivalBound::periodic(period, config.jitter).ok()?]).ok()?;
                let own = [streams[service], &[StreamSpec::promised(set.clone(), curve)]].concat();
                let mut lists = streams.clone();
                lists[service] = &own;
                let admission = chosen.sharing.admit(&lists).ok()?;
                Some(waiting(&own, admission.start_within[service]))
            };
            let fits = |period| carries(period).filter(|&waiting| waiting <= config.queue as u64);
            let spare = shortest_period(workers, density, (config.jitter, parts), fits)
                .map(|(period, _)| (period, None));
            // Faster by more than the period is exact to.
            let faster =
                |period: Span| period.saturating_sub(Span::from_nanos(period.as_nanos() / parts + 1));
            let queue_limits = spare.is_some_and(|(period, _)| carries(faster(period)).is_some());
            Some(RatePlan { binding, density, alone: None, spare, queue_limits })
        };
        self.services.iter().enumerate().map(rate).collect()
    }

    pub(super) fn problem(&self, picks: &[usize]) -> Result<SharedProblem, ProblemError> {
        let workers = self.sizes.iter().zip(picks).map(|(sizes, &pick)| &sizes[pick]);
        problem_of_device(self.device, self.services.iter().copied().zip(workers))
    }

    /// What keeps each service from the next larger batch.
    fn limits(&self, chosen: &Chosen) -> Vec<String> {
        let limit = |(service, sizes): (usize, &Vec<Workers>)| {
            let mut picks = chosen.picks.clone();
            picks[service] += 1;
            let next = sizes.get(picks[service])?;
            let reason = self.admitted(&picks).err()?;
            let name = &self.services[service].name;
            Some(format!("batches of {} of {name} would take {}: {reason}", next.batch, next.batch_time()))
        };
        self.sizes.iter().enumerate().filter_map(limit).collect()
    }

    /// What was chosen, service by service.
    pub(super) fn parts(self, chosen: Chosen) -> Vec<Part> {
        let (rates, limits) = (self.rates(&chosen, FINE), self.limits(&chosen));
        let Chosen { picks, sharing, admission, .. } = chosen;
        let services = self.services.iter().map(|config| config.name.clone()).collect();
        let (config, model_bytes) = (self.device.clone(), self.model_bytes);
        let device = Arc::new(DevicePlan { config, services, sharing, admission, limits, model_bytes });
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
