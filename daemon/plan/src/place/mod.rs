//! Which of its models serves each service, and on which devices, so that every promise is kept and the mean answer is as accurate as
//! can be: a box's file in, a file that can be served out, which was certified as it will be when it is served.

mod aside;
mod judge;
mod offers;
mod reach;
mod search;
mod solve;
mod staged;
mod text;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::Serialize;
use weir_engine::{EngineError, ModelSpec};

use crate::config::{Config, ConfigError, Placed, PlacementConfig, ServiceConfig, ShareConfig};
use crate::models::ModelsError;
use crate::plan::{Plan, PlanError};
use crate::profile::Profile;
pub use aside::Aside;
pub use reach::{Gone, Unfit, Why, reach};
pub use solve::{PROVEN, Reason};
pub(crate) use text::listed;

/// Why nothing can be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{0}: lists no [[placement.class]]: nothing is placed by it")]
    Nothing(String),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Models(#[from] ModelsError),
    #[error("what was placed is refused: {0}")]
    Config(#[from] ConfigError),
    #[error("the file cannot be completed: {0}")]
    Text(String),
    #[error("class {class}: {source}")]
    Reach { class: String, source: Box<EngineError> },
    #[error("demand of {name} = {value}: {reason}")]
    Demand { name: String, value: String, reason: String },
}

/// A box: devices, the services among which they are divided, and how long everything takes there.
#[derive(Clone, Debug)]
pub struct Site {
    config: Config,
    placement: PlacementConfig,
    profile: Profile,
    /// Of each service its mean demand, a second.
    demand: Vec<f64>,
    /// Of each service what runs models: itself, or each stage.
    running: Vec<Vec<Vec<offers::Running>>>,
    /// What was planned for pipelines so far.
    planned: RefCell<staged::Planned>,
    /// Whether services stay on devices of their own, or on those that they share.
    without_restart: bool,
}

/// Where a service is put.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    /// The accuracy of its mean answer, in points.
    pub accuracy: f64,
    /// What runs models: itself, or each stage of a pipeline.
    pub parts: Vec<Part>,
}

/// Where what runs models is put.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub placed: Placed,
    /// The devices that it has to itself, by their [numbers](crate::config::ClassConfig::units).
    pub units: Vec<usize>,
    /// The part of its mean load that each of its models answers.
    pub shares: Vec<f64>,
    /// The part of its devices' time that each of its models takes for that, headroom included.
    pub busy: Vec<f64>,
}

/// What was found for a box.
#[derive(Debug)]
pub struct Placement {
    /// Whether all demand is served and every promise kept.
    pub feasible: bool,
    /// Why not.
    pub reason: Option<Reason>,
    /// Of the mean answer, by demand and value, in points.
    pub accuracy: Option<f64>,
    /// No plan has more.
    pub bound: Option<f64>,
    /// Of each service of the file where it is put; none of those that are not placed.
    pub spots: Vec<Option<Spot>>,
    /// The services that run otherwise than the file says.
    pub changes: Vec<String>,
    /// What can be served, and what it promises.
    pub complete: Option<Complete>,
    /// Of whose promises something is missing, and what part.
    pub violated: Vec<Violated>,
    /// The largest part of all demand that fits, and one that does not.
    pub factor: Option<(f64, f64)>,
    /// Why what fits could not be served so, if nothing else was found.
    pub refused: Option<String>,
}

/// A service whose promise does not fit.
#[derive(Clone, Debug, Serialize)]
pub struct Violated {
    pub service: String,
    /// The part of what keeps it that is missing, 0 to 1.
    pub missing: f64,
}

/// A configuration that can be served.
#[derive(Debug)]
pub struct Complete {
    pub text: String,
    pub config: Config,
    pub plan: Plan,
}

/// What a service of [`measured`] stands for.
pub(super) struct Origin {
    /// The service of the file.
    pub(super) service: usize,
    /// The class, and which of the models, of itself or of each stage; nothing of a service that is not placed.
    pub(super) on: Vec<(usize, Vec<usize>)>,
}

/// What is to be measured for a file of which `weir place` may choose: every model on each class that may run it, all devices at once.
/// Of a file of which nothing is chosen, itself.
#[must_use]
pub fn measured(config: &Config) -> Config {
    let Some(placement) = &config.placement else { return config.clone() };
    let mut all = config.clone();
    let first = all.devices.len();
    all.devices.extend(placement.classes.iter().map(|class| class.as_device(&config.devices)));
    let of = |origin: Origin| {
        let service = &config.services[origin.service];
        let placed = origin.on.into_iter().map(|(class, models)| Placed { class, devices: 0, models });
        let placed: Vec<Placed> = placed.collect();
        let shared = |runs: &mut ServiceConfig, placed: &Placed| {
            runs.share = runs.share.map(|share| ShareConfig { device: first + placed.class, ..share });
        };
        match &placed[..] {
            [] => Some(service.clone()),
            all if !service.stages.is_empty() => {
                let mut on = service.staged_on(&placement.classes, all)?;
                shared(&mut on, &all[0]);
                on.stages.iter_mut().zip(all).for_each(|(stage, placed)| shared(&mut stage.runs, placed));
                Some(on)
            }
            [placed, ..] => {
                let mut on = service.on(&placement.classes[placed.class], placed)?;
                shared(&mut on, placed);
                Some(on)
            }
        }
    };
    all.services = origins(config).into_iter().filter_map(of).collect();
    all
}

/// What each service of [`measured`] stands for. A pipeline is there as often as a stage may run on classes, so that each stage was on all;
/// on a class whose devices it shares it is as a whole.
pub(super) fn origins(config: &Config) -> Vec<Origin> {
    let mut all = Vec::new();
    let classes = config.placement.iter().flat_map(|placement| &placement.classes);
    let (shared, elsewhere): (Vec<bool>, Vec<bool>) =
        classes.map(|class| (class.shared, class.servers.is_some())).unzip();
    for (service, of) in config.services.iter().enumerate() {
        if !of.is_placed() {
            all.push(Origin { service, on: Vec::new() });
            continue;
        }
        let parts: Vec<Vec<(usize, Vec<usize>)>> =
            of.running().map(|runs| on_classes(runs, &elsewhere)).collect();
        let own = |part: &Vec<(usize, Vec<usize>)>| {
            part.iter().filter(|(class, _)| !shared[*class]).cloned().collect::<Vec<_>>()
        };
        let own: Vec<_> = parts.iter().map(own).collect();
        if own.iter().all(|part| !part.is_empty()) {
            let most = own.iter().map(Vec::len).max().unwrap_or(0);
            let on = |i: usize| own.iter().map(|part| part[i % part.len()].clone()).collect();
            all.extend((0..most).map(|i| Origin { service, on: on(i) }));
        }
        for class in (0..shared.len()).filter(|&class| shared[class]) {
            let on = |part: &Vec<(usize, Vec<usize>)>| part.iter().find(|(of, _)| *of == class).cloned();
            all.extend(parts.iter().map(on).collect::<Option<_>>().map(|on| Origin { service, on }));
        }
    }
    all
}

/// The classes that may run it, each with the models that run there; those on which one model runs at a time are there for each.
fn on_classes(runs: &ServiceConfig, elsewhere: &[bool]) -> Vec<(usize, Vec<usize>)> {
    let Some(candidates) = &runs.candidates else { return Vec::new() };
    let on = |&class: &usize| {
        let runs = |&model: &usize| candidates.models.choice(class, &[model]).is_some();
        let models: Vec<usize> = (0..candidates.models.count()).filter(runs).collect();
        let each = if elsewhere[class] { 1 } else { models.len().max(1) };
        models.chunks(each).map(|models| (class, models.to_vec())).collect::<Vec<_>>()
    };
    candidates.classes.iter().flat_map(on).collect()
}

impl Site {
    /// The box of a file that was read by [`Config::load_box`], with the times of its profile.
    ///
    /// # Errors
    /// If nothing is placed by it, the profile cannot be read, or a model cannot stand in for another.
    pub fn new(config: Config) -> Result<Self, PlaceError> {
        let profile = Profile::load(&config.daemon.profile).map_err(PlanError::from)?;
        Self::of(config, profile)
    }

    /// The same with a `profile`.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn of(config: Config, profile: Profile) -> Result<Self, PlaceError> {
        let Some(placement) = config.placement.clone() else {
            return Err(PlaceError::Nothing(config.path.display().to_string()));
        };
        let running = offers::running(&config)?;
        let demand = |service: &ServiceConfig| service.worth().map_or(0.0, |(demand, _)| demand);
        let demand = config.services.iter().map(demand).collect();
        let planned = RefCell::default();
        Ok(Self { config, placement, profile, demand, running, planned, without_restart: false })
    }

    /// The file.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The devices.
    #[must_use]
    pub fn placement(&self) -> &PlacementConfig {
        &self.placement
    }

    /// Of each service of the file its mean demand, a second.
    #[must_use]
    pub fn demand(&self) -> &[f64] {
        &self.demand
    }

    /// The same box for another demand: of those services that are named; and where a name is `pipeline/stage`, with another number of
    /// requests that a result becomes there on average.
    ///
    /// # Errors
    /// If there is no such service or stage, or that is no demand of it.
    pub fn demanding(mut self, demand: &BTreeMap<String, f64>) -> Result<Self, PlaceError> {
        for (name, &value) in demand {
            let wrong =
                |reason: String| PlaceError::Demand { name: name.clone(), value: value.to_string(), reason };
            let (service, stage) =
                name.split_once('/').map_or((&**name, None), |(of, stage)| (of, Some(stage)));
            let at = self.config.services.iter().position(|of| of.name == service && of.is_placed());
            let Some(at) = at else {
                let all = self.config.services.iter().filter(|of| of.is_placed()).map(|of| &*of.name);
                return Err(wrong(format!(
                    "no such service is placed ({})",
                    all.collect::<Vec<_>>().join(", ")
                )));
            };
            let Some(stage) = stage else {
                if !(0.0..=1e9).contains(&value) {
                    return Err(wrong("must be in 0..=1000000000".to_owned()));
                }
                self.demand[at] = value;
                continue;
            };
            let mut behind = self.config.services[at].stages.iter_mut().skip(1);
            let Some(stage) = behind.find(|of| of.runs.name == stage && !of.after.is_join()) else {
                return Err(wrong("no such stage is behind another one, and no join".to_owned()));
            };
            if !(0.0..=f64::from(stage.fan_out)).contains(&value) {
                return Err(wrong(format!("must be in 0..={}, as fan-out says", stage.fan_out)));
            }
            stage.mean = value;
        }
        self.planned.get_mut().clear();
        Ok(self)
    }

    /// The plan of what the file says already; none if it leaves open what serves something.
    ///
    /// # Errors
    /// If that cannot be planned any more.
    pub fn served(&self) -> Result<Option<Plan>, PlaceError> {
        if self.config.services.iter().any(ServiceConfig::is_open) {
            return Ok(None);
        }
        let models = crate::models::resolve_models(&self.config)?;
        Ok(Some(Plan::tried(&self.config, models, &self.profile)?))
    }

    /// The models of what runs there, of a pipeline of each stage; none if one of them is not what runs alone there.
    fn specs(&self, service: usize, placed: &[Placed]) -> Option<Vec<ModelSpec>> {
        let spec = |(running, placed): (&Vec<offers::Running>, &Placed)| {
            let [model] = placed.models[..] else { return None };
            let on = running.iter().find(|on| on.class == placed.class)?;
            Some(on.models.iter().find(|(of, _)| *of == model)?.1.clone())
        };
        self.running[service].iter().zip(placed).map(spec).collect()
    }

    /// The same box while it is served: no service that has devices of its own is put on shared ones, nor the other way, which takes
    /// a restart.
    #[must_use]
    pub fn without_restart(self) -> Self {
        Self { without_restart: true, ..self }
    }

    /// The same box with one device more of a class, wherever that may be.
    #[must_use]
    pub fn with_one_more(&self, class: usize) -> Self {
        let mut more = self.clone();
        let of = &mut more.placement.classes[class];
        *of = of.with_devices(of.devices + 1);
        more
    }

    /// The same box where a service is promised nothing.
    #[must_use]
    pub fn unpromised(&self, service: usize) -> Self {
        let mut less = self.clone();
        less.config.services[service] = less.config.services[service].unpromised();
        less.planned.get_mut().retain(|(of, _), _| *of != service);
        less
    }
}

#[cfg(test)]
mod tests;
