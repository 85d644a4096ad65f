//! Batches of services that share a device: whether they hold, and how much they leave to promise.

mod limits;

use std::cell::Cell;
use std::sync::Arc;

use planner::certify::{Decision, by_neither, decide, decide_by};
use planner::{ProblemError, SharedProblem};
use rt_core::sharing::{Rule, SharedAdmission, Sharing};
use rt_core::{ArrivalBound, ArrivalCurve, ConstraintSet, Span, Stalls, StreamSpec, Workers};

use super::super::rate::{busy_period, densest, shortest_period};
use super::super::{PlanError, RatePlan, fused, workers_of};
use super::{DevicePlan, Part, Share, members, overfull, waiting};
use crate::config::{Config, DeviceConfig, ServiceConfig};
use crate::models::Timed;
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
/// For batches that serve most requests a second, of what is promised nothing too, up to this share of the rest of the merit
/// is given up.
const FOR_CAPACITY: f64 = 0.02;
/// Rates are compared in order by levels, so many of which double the rate; and there are so many in all, from one request in 64 s on. Those
/// of six services are exact in a number together.
const EACH_DOUBLE: f64 = 8.0;
const LEVELS: f64 = 256.0;

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
    /// Admission tests that were made.
    tests: Cell<u64>,
}

/// The level of a rate, so many a second.
fn level(per_s: f64) -> f64 {
    ((per_s * 64.0).max(f64::MIN_POSITIVE).log2() * EACH_DOUBLE).floor().clamp(0.0, LEVELS - 1.0)
}

/// A choice that holds, and how good it is.
pub(super) struct Chosen {
    pub(super) picks: Vec<usize>,
    sharing: Sharing,
    admission: SharedAdmission,
    pub(super) merit: f64,
    /// Of each service: the shortest period of one more stream, to within [`COARSE`], if it was looked for and there is one.
    periods: Vec<Option<Span>>,
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
            let (service, specs) = (&config.services[place], &models[place]);
            let reserve = service.guard + Stalls::reserve_of(service.stalls);
            let latency = service.deadline.saturating_sub(reserve);
            let all = match service.is_fused() {
                true => fused::workers(service, specs, profile)?,
                false => workers_of(service, profile.timed(&Timed::by(service, &specs[0]), service.engine)?)?,
            };
            let shortest = all.first().map_or(Span::ZERO, |workers| workers.profile.bound(1));
            // A batch that is late by itself is good for nothing.
            let fits: Vec<_> = all.into_iter().filter(|workers| workers.batch_time() <= latency).collect();
            if fits.is_empty() {
                let (service, deadline, guard) = (service.name.clone(), service.deadline, reserve);
                return Err(PlanError::Deadline { service, time: shortest, deadline, guard });
            }
            services.push(service);
            sizes.push(fits);
        }
        let specs = |service: &&ServiceConfig| service.reserved.iter().map(|s| s.spec.clone()).collect();
        let reserved = services.iter().map(specs).collect();
        let (device, tests) = (&config.devices[device], Cell::new(0));
        Ok(Self { device, services, reserved, sizes, model_bytes, tests })
    }

    /// Some of the services, on another device.
    pub(super) fn of(&self, device: &'a DeviceConfig, services: &[usize]) -> Self {
        let sizes = services.iter().map(|&service| self.sizes[service].clone()).collect();
        let reserved = services.iter().map(|&service| self.reserved[service].clone()).collect();
        let services = services.iter().map(|&service| self.services[service]).collect();
        Self { device, services, reserved, sizes, model_bytes: 0, tests: Cell::new(0) }
    }

    pub(super) const fn device(&self) -> &DeviceConfig {
        self.device
    }

    pub(super) fn service_name(&self, service: usize) -> String {
        self.services[service].name.clone()
    }

    /// Admission tests that were made until now.
    pub(super) fn tests(&self) -> u64 {
        self.tests.get()
    }

    /// Whether choices are compared by rates; else by the capacity that is left.
    fn is_rated(&self) -> bool {
        self.services.len() <= FEW && self.services.iter().any(|s| !s.constraints.is_empty())
    }

    /// No choice of these batches has more merit: what the workers have left after the reserved streams does no more for anybody.
    pub(super) fn merit_at_most(&self, picks: &[usize]) -> f64 {
        let left = (self.device.workers as f64 - self.busy(picks)).max(0.0);
        if !self.is_rated() {
            return left * self.for_capacity(picks);
        }
        let most: Vec<f64> =
            (0..self.services.len()).map(|service| self.worth_at_most(service, picks, left)).collect();
        self.total(&most, picks)
    }

    /// The merit of these batches by what each service is worth then: all together; or in order, as a number that grows with the
    /// level of the first service whose level does.
    fn total(&self, worth: &[f64], picks: &[usize]) -> f64 {
        if !self.device.in_order {
            return worth.iter().sum::<f64>() * self.for_capacity(picks);
        }
        let mut order: Vec<usize> = (0..worth.len()).collect();
        order.sort_by(|&a, &b| self.weight(b).total_cmp(&self.weight(a)));
        let level = |service: &usize| level(worth[*service] / self.weight(*service));
        let levels = order.iter().map(level).fold(0.0, |all, level| all * LEVELS + level);
        levels + self.efficiency(picks) / 2.0
    }

    /// The same of the rate of one service, of which `left` workers are left.
    fn worth_at_most(&self, service: usize, picks: &[usize], left: f64) -> f64 {
        let workers = &self.sizes[service][picks[service]];
        let each = workers.batch_time().as_secs_f64() / workers.batch as f64;
        let set = ConstraintSet::new(&self.services[service].constraints).unwrap_or_default();
        match set.as_slice() {
            [] => 0.0,
            _ => self.weight(service) * left / (each * set.density().as_f64()).max(f64::MIN_POSITIVE),
        }
    }

    /// About how good these batches are, to look at the best first: the rate of each service by what is left of the workers, less
    /// the part of its time that the longest batch and its own take from it.
    pub(super) fn promising(&self, picks: &[usize]) -> f64 {
        let left = (self.device.workers as f64 - self.busy(picks)).max(0.0);
        let times: Vec<f64> = self
            .sizes
            .iter()
            .zip(picks)
            .map(|(sizes, &pick)| sizes[pick].batch_time().as_secs_f64())
            .collect();
        let longest = times.iter().copied().fold(0.0, f64::max);
        let of = |(service, config): (usize, &&ServiceConfig)| {
            let reserve = config.guard + Stalls::reserve_of(config.stalls);
            let latency = config.deadline.saturating_sub(reserve).as_secs_f64();
            let room = (1.0 - (longest + times[service]) / latency).max(0.0);
            room * if self.is_rated() { self.worth_at_most(service, picks, left) } else { left }
        };
        self.services.iter().enumerate().map(of).sum()
    }

    fn weight(&self, service: usize) -> f64 {
        self.services[service].share.map_or(1.0, |share| share.weight)
    }

    fn for_capacity(&self, picks: &[usize]) -> f64 {
        1.0 + FOR_CAPACITY * self.efficiency(picks)
    }

    /// Whether all that is reserved holds with these batches, and what more could be promised by the rule with which it is most: as
    /// long as it may be more than with the `best` until now.
    pub(super) fn look_at(&self, picks: &[usize], best: Option<&Chosen>) -> Result<Chosen, String> {
        let mut found: Option<Chosen> = None;
        for chosen in self.admitted(picks)? {
            let chosen = self.judged(chosen, found.as_ref().or(best));
            if found.as_ref().is_none_or(|found| chosen.merit > found.merit) {
                found = Some(chosen);
            }
        }
        found.ok_or_else(String::new)
    }

    /// The same batches by the rule and with the turns by which all that is reserved could be sent fastest, if more can be promised
    /// then.
    pub(super) fn settled(&self, chosen: Chosen) -> Chosen {
        let faster = self.problem(&chosen.picks).ok().and_then(|problem| {
            let faster = self.decided(&chosen.picks, &problem, decide(&problem)).ok()?;
            (faster.sharing != chosen.sharing).then(|| self.judged(faster, None))
        });
        match faster {
            Some(faster) if faster.merit > chosen.merit || !self.is_rated() => faster,
            _ => chosen,
        }
    }

    /// How much more could be promised, as long as it may be more than with the `best` until now.
    fn judged(&self, mut chosen: Chosen, best: Option<&Chosen>) -> Chosen {
        let picks = chosen.picks.clone();
        let left = (self.device.workers as f64 - self.busy(&picks)).max(0.0);
        if !self.is_rated() {
            chosen.merit = left * self.for_capacity(&picks);
            return chosen;
        }
        let near = |service: usize| best.and_then(|best| best.periods[service]);
        let worth = |service: usize, period: Option<Span>| {
            period.map_or(0.0, |period| self.weight(service) / period.as_secs_f64())
        };
        // At most: by what is left, and no more than with the best until now where not even that is carried.
        let at_most = |service: usize| {
            let most = self.worth_at_most(service, &picks, left);
            match near(service).filter(|_| most > 0.0) {
                Some(period) if self.carries(&chosen, service, period).is_none() => {
                    most.min(worth(service, Some(period)))
                }
                _ => most,
            }
        };
        let mut most: Vec<f64> = (0..picks.len()).map(at_most).collect();
        for service in 0..picks.len() {
            chosen.merit = self.total(&most, &picks);
            if best.is_some_and(|best| chosen.merit <= best.merit) {
                return chosen;
            }
            let period = self.shortest(&chosen, service, COARSE, near(service));
            most[service] = worth(service, period);
            chosen.periods[service] = period;
        }
        chosen.merit = self.total(&most, &picks);
        chosen
    }

    /// By each rule by which all that is reserved holds with these batches: that; none is an error.
    fn admitted(&self, picks: &[usize]) -> Result<Vec<Chosen>, String> {
        let problem = self.problem(picks).map_err(|error| error.to_string())?;
        let by = |rule| self.decided(picks, &problem, decide_by(&problem, rule));
        let (held, refused): (Vec<_>, Vec<_>) = self.rules().map(by).partition(Result::is_ok);
        let mut reasons = refused.into_iter().filter_map(Result::err);
        if !held.is_empty() {
            return Ok(held.into_iter().flatten().collect());
        }
        Err(match (reasons.next().unwrap_or_default(), reasons.next()) {
            (edf, Some(turns)) if edf != turns => by_neither(&edf, &turns),
            (only, _) => only,
        })
    }

    /// The rule of the device, or each that it may have.
    fn rules(&self) -> impl Iterator<Item = Rule> {
        let rules = [Rule::Earliest, Rule::Turns];
        rules.into_iter().filter(|&rule| self.device.rule.is_none_or(|asked| asked == rule))
    }

    /// What is `decided` of these batches, if all that is reserved holds so, and each queue holds what can wait.
    fn decided(
        &self,
        picks: &[usize],
        problem: &SharedProblem,
        Decision { rule, turns, answer, reason }: Decision,
    ) -> Result<Chosen, String> {
        self.tests.set(self.tests.get() + 1);
        let Ok(admission) = answer else { return Err(reason.unwrap_or_default()) };
        let sharing = problem.sharing(rule, &turns);
        let lists: Vec<&[StreamSpec]> = self.reserved.iter().map(Vec::as_slice).collect();
        if let Some((service, text)) = overfull(&admission, &lists, |service| self.services[service].queue) {
            return Err(format!("service {}: {text}", self.services[service].name));
        }
        let periods = vec![None; picks.len()];
        Ok(Chosen { picks: picks.to_vec(), sharing, admission, merit: 0.0, periods })
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
        let rate = |(service, config): (usize, &&ServiceConfig)| {
            let set =
                ConstraintSet::new(&config.constraints).ok().filter(|set| !set.as_slice().is_empty())?;
            let (binding, density) = (densest(&set), set.density());
            let spare = self.shortest(chosen, service, FINE, chosen.periods[service]);
            // Faster by more than the period is exact to.
            let faster = |period: Span| period.saturating_sub(Span::from_nanos(period.as_nanos() / FINE + 1));
            let queue_limits =
                spare.is_some_and(|period| self.waiting(chosen, service, faster(period)).is_some());
            let spare = spare.map(|period| (period, None));
            Some(RatePlan { binding, density, alone: None, spare, queue_limits })
        };
        self.services.iter().enumerate().map(rate).collect()
    }

    /// The shortest period of one more stream of a service that holds, to within one of so many parts; it may be `near` that.
    fn shortest(&self, chosen: &Chosen, service: usize, parts: u64, near: Option<Span>) -> Option<Span> {
        let config = self.services[service];
        let set = ConstraintSet::new(&config.constraints).ok().filter(|set| !set.as_slice().is_empty())?;
        let workers = &self.sizes[service][chosen.picks[service]];
        let carries = |period| self.carries(chosen, service, period);
        shortest_period(
            busy_period(std::slice::from_ref(workers), set.density()),
            (config.jitter, parts),
            near,
            carries,
        )
        .map(|(period, ())| period)
    }

    /// Whether one more stream of a service with this period holds beside the reserved ones, and its queue holds what waits.
    fn carries(&self, chosen: &Chosen, service: usize, period: Span) -> Option<()> {
        let queue = self.services[service].queue as u64;
        self.waiting(chosen, service, period).filter(|&waiting| waiting <= queue).map(drop)
    }

    /// How many requests of the service can wait then; `None` if it does not hold.
    fn waiting(&self, chosen: &Chosen, service: usize, period: Span) -> Option<u64> {
        let config = self.services[service];
        let set = ConstraintSet::new(&config.constraints).ok()?;
        let curve = ArrivalCurve::new(&[ArrivalBound::periodic(period, config.jitter).ok()?]).ok()?;
        let own = [&self.reserved[service][..], &[StreamSpec::promised(set, curve)]].concat();
        let mut lists: Vec<&[StreamSpec]> = self.reserved.iter().map(Vec::as_slice).collect();
        lists[service] = &own;
        self.tests.set(self.tests.get() + 1);
        let admission = chosen.sharing.admit(&lists).ok()?;
        Some(waiting(&own, admission.start_within[service]))
    }

    pub(super) fn problem(&self, picks: &[usize]) -> Result<SharedProblem, ProblemError> {
        problem_of_device(self.device, None, self.with(picks))
    }

    /// The problem of what was chosen, by its rule and with its turns.
    pub(super) fn problem_of(&self, chosen: &Chosen) -> Result<SharedProblem, ProblemError> {
        problem_of_device(self.device, Some(&chosen.sharing), self.with(&chosen.picks))
    }

    fn with(&self, picks: &[usize]) -> impl Iterator<Item = (&'a ServiceConfig, &Workers)> {
        let workers = self.sizes.iter().zip(picks).map(|(sizes, &pick)| &sizes[pick]);
        self.services.iter().copied().zip(workers)
    }

    /// What was chosen, service by service.
    pub(super) fn parts(self, chosen: Chosen, untried: usize) -> Vec<Part> {
        let (rates, limits) = (self.rates(&chosen), self.limits(&chosen));
        let Chosen { picks, sharing, admission, .. } = chosen;
        let services = self.services.iter().map(|config| config.name.clone()).collect();
        let (config, model_bytes) = (self.device.clone(), self.model_bytes);
        let device =
            Arc::new(DevicePlan { config, services, sharing, admission, limits, untried, model_bytes });
        let all = self.sizes.into_iter().zip(picks).zip(rates).enumerate();
        all.map(|(index, ((mut sizes, pick), rate))| Part {
            share: Share { device: Arc::clone(&device), index },
            workers: sizes.swap_remove(pick),
            rate,
        })
        .collect()
    }
}
