//! The plan of services that share a device: batches of which size, by which rule, and what that leaves to promise.

mod choice;
mod search;
mod split;

use std::sync::Arc;

use planner::SharedProblem;
use planner::certify::told;
use rt_core::sharing::{SharedAdmission, SharedShield, Sharing};
use rt_core::{Span, StreamSpec, Workers};

use super::{PlanError, RatePlan, ServicePlan};
use crate::config::{Config, DeviceConfig, ServiceConfig};
use crate::profile::Profile;
use choice::Choice;
pub use search::Searching;
use search::search;
pub use split::Split;
use weir_engine::ModelSpec;

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
    /// Combinations of batches that might leave more to promise and were not looked at, as the search had gone on long enough.
    pub untried: usize,
    /// Bytes of model files that all workers load together: each loads those of all services.
    pub model_bytes: u64,
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
    pub(super) share: Share,
    pub(super) workers: Workers,
    pub(super) rate: Option<RatePlan>,
}

impl DevicePlan {
    /// Whether everything of `streams`, a list for each service, can be promised together; each with its queue.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn admit(
        &self,
        streams: &[Vec<StreamSpec>],
        queue_of: impl Fn(usize) -> usize,
    ) -> Result<SharedAdmission, String> {
        let name = |service: usize| self.services[service].as_str();
        let lists: Vec<&[StreamSpec]> = streams.iter().map(Vec::as_slice).collect();
        let admission = self.sharing.admit(&lists).map_err(|no| told(&no, name))?;
        match overfull(&admission, &lists, queue_of) {
            None => Ok(admission),
            Some((service, text)) => Err(format!("service {}: {text}", name(service))),
        }
    }

    /// What may go before these, a list for each service, which were admitted so; none where nothing may.
    #[must_use]
    pub fn shield(&self, streams: &[Vec<StreamSpec>], admission: &SharedAdmission) -> Option<SharedShield> {
        let lists: Vec<&[StreamSpec]> = streams.iter().map(Vec::as_slice).collect();
        self.config.ahead.then(|| self.sharing.shield(&lists, admission))
    }
}

/// The first service whose queue does not hold what can wait of these streams, and by what.
fn overfull(
    admission: &SharedAdmission,
    streams: &[&[StreamSpec]],
    queue_of: impl Fn(usize) -> usize,
) -> Option<(usize, String)> {
    streams.iter().zip(&admission.start_within).enumerate().find_map(|(service, (list, &within))| {
        let (waiting, queue) = (waiting(list, within), queue_of(service));
        let text = || format!("queue = {queue}, but up to {waiting} requests that must be served can wait");
        (waiting > queue as u64).then(|| (service, text()))
    })
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

/// For each service of `config` with the variants `models`: its part of the plan of its device, if it shares one; and of each device
/// that has no plan why: the profile lacks a model, or not every promise can be kept; to `explain` that it is looked for a split that
/// would hold.
pub(super) fn compute_all(
    config: &Config,
    models: &[Vec<ModelSpec>],
    profile: &Profile,
    observe: &mut dyn FnMut(Searching<'_>),
    explain: bool,
) -> (Vec<Option<Part>>, Vec<PlanError>) {
    let mut refused = Vec::new();
    let mut parts: Vec<Option<Part>> = models.iter().map(|_| None).collect();
    for index in 0..config.devices.len() {
        let chosen = Choice::new(config, index, models, profile).and_then(|choice| {
            let found = search(&choice, observe);
            let device = || config.devices[index].name.clone();
            let (chosen, untried) = found.map_err(|reason| {
                let hint = explain.then(|| split::split(&choice)).flatten();
                let hint = hint.map_or_else(String::new, |split| format!("; {split}, it could"));
                PlanError::Device { device: device(), reason: reason + &hint }
            })?;
            Ok(choice.parts(chosen, untried))
        });
        match chosen {
            Ok(all) => {
                for (place, part) in members(config, index).into_iter().zip(all) {
                    parts[place] = Some(part);
                }
            }
            Err(error) => refused.push(error),
        }
    }
    (parts, refused)
}

/// For each device whose services would carry more of what is reserved in groups that have some of its workers each: its name, and how.
///
/// # Errors
/// If the profile lacks a model.
pub fn splits(
    config: &Config,
    models: &[Vec<ModelSpec>],
    profile: &Profile,
) -> Result<Vec<(String, Split)>, PlanError> {
    let of = |index: usize| {
        let choice = Choice::new(config, index, models, profile)?;
        Ok(split::split(&choice).map(|split| (config.devices[index].name.clone(), split)))
    };
    (0..config.devices.len()).filter_map(|index| of(index).transpose()).collect()
}

/// The services on a device, by their places in the configuration.
fn members(config: &Config, device: usize) -> Vec<usize> {
    (0..config.services.len()).filter(|&place| config.services[place].is_on(device)).collect()
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
    let (chosen, _) = search(&choice, &mut |_| {}).map_err(refused)?;
    choice.problem_of(&chosen).map_err(|error| refused(error.to_string()))
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
        let plan = Self::unpromised(config, profile.with_entries(specs, config)?, workers)?;
        Ok(Self { shared: Some(share), rate, ..plan })
    }
}
