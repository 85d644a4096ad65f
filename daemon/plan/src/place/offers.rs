//! The places where a service may run: on which devices, with which of its models, and how accurate its answers are there.

use std::collections::BTreeMap;

use rt_core::{LatencyProfile, Span};
use weir_engine::ModelSpec;

use super::search::Item;
use super::{Part, Spot};
use crate::config::{Config, Placed, PlacementConfig, ServiceConfig};
use crate::models::{ModelsError, Timed, resolve_models};
use crate::plan::{PlanError, ServicePlan, times_of};
use crate::profile::Profile;

/// Accuracies in points that differ by less are equal.
const EQUAL: f64 = 1e-9;

/// The models of a service that a class runs.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) class: usize,
    /// By their places among those of the service, and what they are.
    pub(super) models: Vec<(usize, ModelSpec)>,
}

/// A place where a service may run.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    /// Without which devices it has.
    pub(super) spot: Spot,
    /// How many of the shared devices its mean load keeps busy at least.
    pub(super) load: f64,
    /// Bytes of its model files.
    pub(super) bytes: u64,
    /// What part of what keeps its promise is missing: 0 but where that is looked for.
    pub(super) missing: f64,
}

/// How many requests a second a worker answers with a model.
#[derive(Clone, Copy)]
struct Pace {
    model: usize,
    accuracy: f64,
    per_s: f64,
}

/// The models of each service, of a pipeline of each stage, on each class that may run it; none of a service that is not placed.
///
/// # Errors
/// A model that the manifest does not have, and models that cannot stand in for one another.
pub(super) fn running(config: &Config) -> Result<Vec<Vec<Vec<Running>>>, PlanError> {
    let measured = super::measured(config);
    let specs = resolve_models(&measured)?;
    let parts = |service: &ServiceConfig| vec![Vec::new(); service.running().count()];
    let mut all: Vec<Vec<Vec<Running>>> = config.services.iter().map(parts).collect();
    for (super::Origin { service, on }, specs) in super::origins(config).into_iter().zip(specs) {
        let mut specs = specs.into_iter();
        for (part, (class, picks)) in all[service].iter_mut().zip(on) {
            let models = picks.into_iter().map(|pick| Some((pick, specs.next()?)));
            let models: Vec<(usize, ModelSpec)> =
                models.collect::<Option<_>>().unwrap_or_else(|| unreachable!("each has one"));
            if let Some((_, spec)) = models.iter().find(|(_, spec)| spec.accuracy.is_nan()) {
                return Err(unknown(&config.services[service], spec).into());
            }
            let there = part.iter_mut().find(|there: &&mut Running| there.class == class);
            match there {
                None => part.push(Running { class, models }),
                Some(there) => {
                    let new = |model: &(usize, ModelSpec)| there.models.iter().all(|(of, _)| *of != model.0);
                    let new: Vec<_> = models.into_iter().filter(new).collect();
                    there.models.extend(new);
                }
            }
        }
    }
    Ok(all)
}

/// That nothing can be placed by the accuracy of a model.
fn unknown(service: &ServiceConfig, spec: &ModelSpec) -> ModelsError {
    let field = format!("{}.models", service.at);
    let reason = "its accuracy must be known to place by it, and the manifest tells none".to_owned();
    ModelsError::Field { field, value: spec.name.clone(), reason }
}

/// What offers are made of.
pub(super) struct Offers<'a> {
    pub(super) placement: &'a PlacementConfig,
    pub(super) profile: &'a Profile,
    /// What a plan is computed for in place of each service of the file.
    pub(super) service: &'a ServiceConfig,
    pub(super) running: &'a [Running],
    /// Mean requests a second that are planned for.
    pub(super) demand: f64,
    /// Whether offers that keep only a part of the promise are made too.
    pub(super) partial: bool,
}

impl Offers<'_> {
    /// All that are worth a look: of those with as many devices and as many changes the most accurate.
    ///
    /// # Errors
    /// If the profile lacks a model.
    pub(super) fn all(&self) -> Result<Vec<Offer>, PlanError> {
        let mut all = Vec::new();
        for running in self.running {
            let class = &self.placement.classes[running.class];
            // Of equals the first is taken: the most accurate base.
            for base in (0..running.models.len()).rev() {
                match class.shared {
                    true => all.extend(self.shared(running, base)?),
                    false => all.append(&mut self.dedicated(running, base)?),
                }
            }
        }
        Ok(all)
    }

    /// On the devices of a class that services share.
    fn shared(&self, running: &Running, base: usize) -> Result<Option<Offer>, PlanError> {
        let class = &self.placement.classes[running.class];
        let candidates = self.service.candidates.as_ref().filter(|candidates| candidates.alone.is_none());
        let (model, spec) = &running.models[base];
        let placed = Placed { class: running.class, devices: 0, models: vec![*model] };
        let Some(config) = candidates.and_then(|_| self.service.on(class, &placed)) else { return Ok(None) };
        let times = self.times(&config, spec)?;
        let latency = config.deadline.saturating_sub(config.guard);
        let Some((per_s, _)) = quickest(&times, |time| time <= latency) else { return Ok(None) };
        let busy = vec![self.demand / per_s / class.devices as f64];
        Ok(Some(Offer {
            spot: Spot::alone(placed, 100.0 * spec.accuracy, vec![1.0], busy),
            load: self.demand / per_s,
            bytes: spec.file_bytes(),
            missing: 0.0,
        }))
    }

    /// On devices of its own, from one on until more do no good.
    fn dedicated(&self, running: &Running, base: usize) -> Result<Vec<Offer>, PlanError> {
        let class = &self.placement.classes[running.class];
        let best = running.models.last().map_or(0.0, |(_, spec)| 100.0 * spec.accuracy);
        let there = self.there().is_some_and(|placed| placed.class == running.class);
        let mut offers: Vec<Offer> = Vec::new();
        let mut last = (f64::NEG_INFINITY, f64::INFINITY);
        for devices in 1..=class.devices {
            for offer in self.on(running, base, devices)? {
                let accuracy = offer.spot.accuracy;
                let better = accuracy > last.0 + EQUAL || offer.missing < last.1;
                if better {
                    last = (accuracy.max(last.0), offer.missing.min(last.1));
                }
                if better || self.there() == Some(offer.placed()) {
                    offers.push(offer);
                }
            }
            if last.0 >= best - EQUAL && last.1 == 0.0 && !there {
                break;
            }
        }
        Ok(offers)
    }

    /// As few devices of a class to itself as keep the promise, with the most accurate model that does on so many.
    ///
    /// # Errors
    /// If the profile lacks a model.
    pub(super) fn fewest(&self, running: &Running) -> Result<Option<Placed>, PlanError> {
        let class = &self.placement.classes[running.class];
        for devices in 1..=class.devices {
            for (model, spec) in running.models.iter().rev() {
                let placed = Placed { class: running.class, devices, models: vec![*model] };
                let Some(config) = self.service.on(class, &placed) else { continue };
                match ServicePlan::compute(&config, vec![spec.clone()], self.profile) {
                    Ok(_) if spec.file_bytes() <= class.memory.unwrap_or(u64::MAX) => {
                        return Ok(Some(placed));
                    }
                    Err(PlanError::Profile(error)) => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// Where the file has the service.
    fn there(&self) -> Option<&Placed> {
        self.service.candidates.as_ref()?.placed.as_ref()
    }

    /// On so many devices: with the models beside the base that are worth most, and as the file says; none if the promise or the load
    /// is too much.
    fn on(&self, running: &Running, base: usize, devices: usize) -> Result<Vec<Offer>, PlanError> {
        let class = &self.placement.classes[running.class];
        let (model, spec) = &running.models[base];
        let placed = |models: Vec<usize>| Placed { class: running.class, devices, models };
        let Some(config) = self.service.on(class, &placed(vec![*model])) else { return Ok(Vec::new()) };
        let plan = match ServicePlan::compute(&config, vec![spec.clone()], self.profile) {
            Ok(plan) => plan,
            Err(PlanError::Profile(error)) => return Err(error.into()),
            Err(_) if self.partial => return self.part(running, base, devices, &config),
            Err(_) => return Ok(Vec::new()),
        };
        let paces = self.paces(running, base, &plan, &config)?;
        let memory = class.memory.unwrap_or(u64::MAX);
        let (mut best, mut there): (Option<Offer>, Option<Offer>) = (None, None);
        for models in self.beside(running, base, &config)? {
            let bytes = models.iter().map(|&at| running.models[at].1.file_bytes()).sum();
            let of = |&at: &usize| paces.iter().find(|pace| pace.model == at).copied();
            let Some(paces) = models.iter().map(of).collect::<Option<Vec<_>>>() else { continue };
            let filled = filled(&paces, devices as f64, self.demand).filter(|_| bytes <= memory);
            let Some((accuracy, shares, busy)) = filled else { continue };
            let places: Vec<usize> = models.iter().map(|&at| running.models[at].0).collect();
            let spot = Spot::alone(placed(places), accuracy, shares, busy);
            let offer = Offer { spot, load: 0.0, bytes, missing: 0.0 };
            if self.there() == Some(offer.placed()) {
                there = Some(offer.clone());
            }
            // Of equals the one with fewest models, which comes first.
            if best.as_ref().is_none_or(|best: &Offer| accuracy > best.spot.accuracy + EQUAL) {
                best = Some(offer);
            }
        }
        let there = there.filter(|there| best.as_ref().is_none_or(|best| best.placed() != there.placed()));
        Ok(best.into_iter().chain(there).collect())
    }

    /// What part of what keeps the promise so many devices are.
    fn part(
        &self,
        running: &Running,
        base: usize,
        devices: usize,
        config: &ServiceConfig,
    ) -> Result<Vec<Offer>, PlanError> {
        let (model, spec) = &running.models[base];
        let class = &self.placement.classes[running.class];
        let keeps = |workers: usize| {
            let config = ServiceConfig { workers, ..config.clone() };
            ServicePlan::compute(&config, vec![spec.clone()], self.profile).is_ok()
        };
        let most = rt_core::MAX_WORKERS;
        // Of many more the number does not matter.
        let near = (devices + 1).min(most)..=(2 * class.devices + 8).min(most);
        let enough = near.chain([most]).find(|&workers| keeps(workers));
        let placed = Placed { class: running.class, devices, models: vec![*model] };
        let offer = |enough| Offer {
            spot: Spot::alone(placed, 100.0 * spec.accuracy, vec![1.0], vec![0.0]),
            load: 0.0,
            bytes: spec.file_bytes(),
            missing: 1.0 - devices as f64 / enough as f64,
        };
        Ok(enough.map(offer).into_iter().collect())
    }

    fn times(&self, config: &ServiceConfig, spec: &ModelSpec) -> Result<LatencyProfile, PlanError> {
        let entry = self.profile.timed(&Timed::by(config, spec), config.engine)?;
        times_of(config, entry)
    }

    /// What a worker answers with the base and with each model that may stand beside it.
    fn paces(
        &self,
        running: &Running,
        base: usize,
        plan: &ServicePlan,
        config: &ServiceConfig,
    ) -> Result<Vec<Pace>, PlanError> {
        let latency = config.deadline.saturating_sub(config.guard);
        let promised = plan.certified_per_s().is_some();
        let lull = match promised {
            true => plan.lull().unwrap_or(Span::ZERO),
            false => latency,
        };
        // A request may come just after a batch has begun.
        let fits = |time: Span| time <= lull && time + time <= latency;
        let workers = plan.workers();
        let own = (workers.batch as f64 / workers.batch_time().as_secs_f64(), workers.batch);
        let mut paces = Vec::new();
        for (at, (_, spec)) in running.models.iter().enumerate().skip(base) {
            let times = self.times(config, spec)?;
            let own = Some(own).filter(|_| at == base && promised);
            let per_s = [quickest(&times, fits), own].into_iter().flatten().map(|(per_s, _)| per_s);
            if let Some(per_s) = per_s.reduce(f64::max) {
                paces.push(Pace { model: at, accuracy: 100.0 * spec.accuracy, per_s });
            }
        }
        Ok(paces)
    }

    /// What may be loaded together: the base alone, and up to two more accurate ones beside it, which is all that a mean load has a
    /// use for. None may be faster than the one before at every batch size. A server elsewhere is called for one.
    fn beside(
        &self,
        running: &Running,
        base: usize,
        config: &ServiceConfig,
    ) -> Result<Vec<Vec<usize>>, PlanError> {
        let mut all = vec![vec![base]];
        let elsewhere = self.placement.classes[running.class].servers.is_some();
        if elsewhere || !self.service.candidates.as_ref().is_some_and(|candidates| candidates.switches) {
            return Ok(all);
        }
        let times: Vec<LatencyProfile> =
            running.models.iter().map(|(_, spec)| self.times(config, spec)).collect::<Result<_, _>>()?;
        let slower = |before: usize, after: usize| {
            let (before, after) = (&times[before], &times[after]);
            (1..=before.max_batch().min(after.max_batch())).any(|b| after.bound(b) >= before.bound(b))
        };
        let more = base + 1..running.models.len();
        for one in more.clone().filter(|&one| slower(base, one)) {
            all.push(vec![base, one]);
        }
        for one in more.clone().filter(|&one| slower(base, one)) {
            all.extend(
                more.clone().filter(|&two| two > one && slower(one, two)).map(|two| vec![base, one, two]),
            );
        }
        Ok(all)
    }
}

/// The most requests a second in batches whose time `fits`, and of what size they are.
fn quickest(times: &LatencyProfile, fits: impl Fn(Span) -> bool) -> Option<(f64, usize)> {
    let sizes = (1..=times.max_batch()).filter(|&batch| fits(times.bound(batch)));
    let rates = sizes.map(|batch| (batch as f64 / times.bound(batch).as_secs_f64(), batch));
    rates.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The accuracy of the mean answer if `demand` is answered as accurately as so many workers can, what part each model answers, and what
/// part of the workers' time that takes; none if they cannot answer all. The workers' time is one limit, so that two models are enough.
fn filled(paces: &[Pace], workers: f64, demand: f64) -> Option<(f64, Vec<f64>, Vec<f64>)> {
    let busy: Vec<f64> = paces.iter().map(|pace| demand / (workers * pace.per_s)).collect();
    let mut best: Option<(f64, Vec<f64>)> = None;
    let mut offer = |accuracy: f64, shares: &[(usize, f64)]| {
        if best.as_ref().is_none_or(|(most, _)| accuracy > most + EQUAL) {
            let mut all = vec![0.0; paces.len()];
            shares.iter().for_each(|&(at, share)| all[at] += share);
            best = Some((accuracy, all));
        }
    };
    for (i, slow) in paces.iter().enumerate() {
        if busy[i] <= 1.0 + EQUAL {
            offer(slow.accuracy, &[(i, 1.0)]);
            continue;
        }
        for (j, fast) in paces.iter().enumerate().filter(|&(j, _)| busy[j] <= 1.0) {
            let share = (1.0 - busy[j]) / (busy[i] - busy[j]);
            offer(share * slow.accuracy + (1.0 - share) * fast.accuracy, &[(i, share), (j, 1.0 - share)]);
        }
    }
    let (accuracy, shares) = best?;
    let busy = shares.iter().zip(&busy).map(|(share, busy)| share * busy).collect();
    Some((accuracy, shares, busy))
}

impl Spot {
    /// Of a service that is no pipeline.
    fn alone(placed: Placed, accuracy: f64, shares: Vec<f64>, busy: Vec<f64>) -> Self {
        Self { accuracy, parts: vec![Part { placed, units: Vec::new(), shares, busy }] }
    }
}

impl Offer {
    /// Where it runs itself, or its first stage.
    pub(super) fn placed(&self) -> &Placed {
        &self.spot.parts[0].placed
    }

    /// As what is chosen among, worth `weight` for each point; `there` says where the file has it.
    pub(super) fn item(&self, weight: f64, there: Option<&[Placed]>) -> Item {
        let mut own: BTreeMap<usize, usize> = BTreeMap::new();
        for placed in self.spot.parts.iter().map(|part| &part.placed).filter(|placed| placed.devices > 0) {
            *own.entry(placed.class).or_default() += placed.devices;
        }
        let shared = (self.placed().devices == 0).then_some(self.placed().class);
        let same = |there: &[Placed]| self.spot.parts.iter().map(|part| &part.placed).eq(there);
        Item {
            value: weight * self.spot.accuracy,
            own: own.into_iter().collect(),
            shared,
            load: self.load,
            bytes: self.bytes,
            changed: !there.is_some_and(same),
        }
    }
}
