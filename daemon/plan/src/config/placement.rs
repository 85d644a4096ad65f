//! What may be placed where: classes of equal devices, and of each service the models among which `weir place` chooses.

mod candidates;
mod classes;
mod staged;
#[cfg(test)]
mod tests;

use rt_core::Span;
use weir_engine::{Address, Backend, EngineKind, Isolation, Remote};

use super::model::{ModelChoice, Select, SimulatedModel};
use super::pipeline::on_one_worker;
use super::remote::model_there;
use super::{ControllerConfig, DeviceConfig, ServiceConfig, ShareConfig, StageConfig};

/// The devices among which services are placed, and what is done about it while they are served.
#[derive(Clone, Debug)]
pub struct PlacementConfig {
    pub mode: Mode,
    /// How often demand is looked at.
    pub period: Span,
    /// Services that are changed in a period at most.
    pub budget: usize,
    /// How long a plan is looked for.
    pub limit: Span,
    /// Demand is planned for so many times what it is.
    pub headroom: f64,
    pub controller: ControllerConfig,
    pub classes: Vec<ClassConfig>,
}

/// What becomes of a better plan than the one that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// None is looked for.
    #[default]
    Off,
    /// It is told.
    Advise,
    /// It is carried out.
    Follow,
}

/// Devices that are equal. Each has one worker.
#[derive(Clone, Debug)]
pub struct ClassConfig {
    pub name: String,
    pub engine: EngineKind,
    pub devices: usize,
    /// The core of each; empty where they are GPUs or servers, or the kernel chooses.
    pub cores: Vec<usize>,
    /// The GPU of each.
    pub gpus: Vec<u32>,
    /// The server of each, where they are elsewhere.
    pub servers: Option<Servers>,
    /// Bytes of model files that each may hold.
    pub memory: Option<u64>,
    /// Whether the services that are placed here share all of them; else each has devices of its own.
    pub shared: bool,
    /// Whether another class has the same engine and other devices: then models have times of their own here.
    is_one_of_several: bool,
    backends: Vec<Backend>,
}

/// Servers elsewhere, each of which is a device.
#[derive(Clone, Debug)]
pub struct Servers {
    pub(super) said: super::raw::Remote,
    pub(crate) remote: Remote,
}

/// Which of a class's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A core, or a GPU.
    Number(usize),
    /// The URL of a server.
    Server(String),
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Server(url) => f.write_str(url),
        }
    }
}

/// Among what is chosen for a service.
#[derive(Clone, Debug)]
pub struct Candidates {
    pub models: Models,
    /// Mean requests a second; at a stage, sources of its pipeline.
    pub demand: f64,
    /// What one of its requests counts in the mean accuracy.
    pub value: f64,
    /// The classes where it may run, by their places.
    pub classes: Vec<usize>,
    /// What keeps it from sharing devices, by the field's name.
    pub alone: Option<&'static str>,
    /// Whether more accurate models may stand beside the one that keeps the promise.
    pub switches: bool,
    /// Where the file says that it runs, if it says so and that is such a place.
    pub placed: Option<Placed>,
    /// Whether the file leaves open what serves it.
    pub open: bool,
    pub(super) isolation: Option<Isolation>,
    pub(super) weight: f64,
}

/// Models that may serve a service, by rising accuracy.
#[derive(Clone, Debug)]
pub enum Models {
    /// Of the manifest, by name.
    Named(Vec<String>),
    /// Simulated ones: the accuracy of each, and the times on each class that runs it.
    Simulated { models: Vec<(f64, Vec<(usize, SimulatedModel)>)>, input: usize, output: usize },
}

/// Where a service runs, with which of its models.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placed {
    /// By its place among the classes.
    pub class: usize,
    /// How many devices it has to itself; 0 where it shares all.
    pub devices: usize,
    /// The base first, by their places among its models.
    pub models: Vec<usize>,
}

impl Placed {
    /// Whether a service may come here from there while it is served: from devices of its own to others, or where it shares the same.
    #[must_use]
    pub fn is_reached_from(&self, there: &Self) -> bool {
        match (self.devices, there.devices) {
            (0, 0) => self.class == there.class,
            (here, there) => here > 0 && there > 0,
        }
    }
}

impl ClassConfig {
    /// The same with so many devices, wherever they are.
    #[must_use]
    pub fn with_devices(&self, devices: usize) -> Self {
        Self { devices, ..self.clone() }
    }

    /// The same without these devices, by their numbers; where it only counts, with one less for each.
    #[must_use]
    pub fn without(&self, gone: &[Option<usize>]) -> Self {
        let units = self.units();
        if units.is_empty() {
            return self.with_devices(self.devices.saturating_sub(gone.len()));
        }
        let is_left = |number: &usize| !gone.contains(&Some(*number));
        let mut left = self.with_devices(units.iter().filter(|unit| is_left(unit)).count());
        left.cores.retain(is_left);
        left.gpus.retain(|&gpu| is_left(&(gpu as usize)));
        left.backends.retain(|backend| self.gpus.is_empty() || is_left(&(backend.device as usize)));
        if let Some(Servers { said, remote }) = &mut left.servers {
            let there = || units.iter().filter(|unit| is_left(unit));
            said.url = super::raw::Urls::Each(there().map(|&unit| said.url.all()[unit].clone()).collect());
            remote.addresses = there().map(|&unit| remote.addresses[unit].clone()).collect();
        }
        left
    }

    /// Finds out of each whether models have times of their own there. Simulated models say themselves what they take, and where classes of
    /// one engine only count their devices, nothing says which of these are whose: they are alike.
    fn tell_apart(all: &mut [Self]) {
        let counts = |class: &Self| class.units().is_empty();
        let of: Vec<(EngineKind, bool)> = all.iter().map(|class| (class.engine, counts(class))).collect();
        for class in all.iter_mut().filter(|class| class.engine != EngineKind::Simulated) {
            let same = of.iter().filter(|(engine, _)| *engine == class.engine);
            let alike = same.clone().filter(|(_, counts)| *counts).count();
            class.is_one_of_several = same.count() > 1 && (alike < 2 || !counts(class));
        }
    }

    /// The numbers of its devices: of their cores or GPUs, or the places of servers among those that are named; none where it only counts.
    #[must_use]
    pub fn units(&self) -> Vec<usize> {
        match &self.servers {
            Some(servers) => (0..servers.remote.addresses.len()).collect(),
            None => self.cores.iter().copied().chain(self.gpus.iter().map(|&gpu| gpu as usize)).collect(),
        }
    }

    /// The number of the device that a worker has of it.
    #[must_use]
    pub fn unit_of(&self, runs: &ServiceConfig, worker: usize) -> Option<usize> {
        if let Some(servers) = &self.servers {
            let Backend { device, remote, .. } = runs.backend(worker);
            let there = remote.as_ref()?.addresses.get(*device as usize)?;
            return servers.remote.addresses.iter().position(|address| address == there);
        }
        match (runs.cores.is_empty(), self.gpus.is_empty()) {
            (false, _) => Some(runs.cores[worker % runs.cores.len()]),
            (true, false) => Some(runs.backend(worker).device as usize),
            (true, true) => None,
        }
    }

    /// The numbers of the devices that so many workers have of it, each once.
    #[must_use]
    pub fn units_of(&self, runs: &ServiceConfig, workers: usize) -> Vec<usize> {
        let mut units = Vec::new();
        for unit in (0..workers).filter_map(|worker| self.unit_of(runs, worker)) {
            if !units.contains(&unit) {
                units.push(unit);
            }
        }
        units
    }

    /// What a file says of the device of this number.
    #[must_use]
    pub fn unit(&self, number: usize) -> Unit {
        match self.servers.as_ref().and_then(|servers| servers.said.url.all().get(number)) {
            Some(url) => Unit::Server(url.clone()),
            None => Unit::Number(number),
        }
    }

    /// Its servers, where they are elsewhere.
    pub(super) fn addresses(&self) -> &[Address] {
        self.servers.as_ref().map_or(&[], |servers| &servers.remote.addresses)
    }

    /// What computes for a model here, worker by worker.
    fn backends(&self, model: &ModelChoice) -> Vec<Backend> {
        let (Some(servers), ModelChoice::Named(names)) = (&self.servers, model) else {
            return self.backends.clone();
        };
        let model = model_there(&names[0]).to_owned();
        let first =
            Backend { remote: Some(Remote { model, ..servers.remote.clone() }), ..self.backends[0].clone() };
        (0..self.devices).map(|server| first.of_worker(server)).collect()
    }

    /// What times of models here are told apart by, if by anything.
    pub(super) fn timed_as(&self) -> Option<String> {
        self.is_one_of_several.then(|| self.name.clone())
    }

    /// Its devices as services that share it have them, with what the file says of them besides.
    #[must_use]
    pub fn as_device(&self, devices: &[DeviceConfig]) -> DeviceConfig {
        let said = devices.iter().find(|device| device.name == self.name);
        DeviceConfig::of_class((&self.name, self.devices, self.memory), self.cores.clone(), said)
    }
}

impl Servers {
    /// As a file says them of a service that has the first.
    fn first(&self) -> super::raw::Remote {
        let first = self.said.url.all()[0].clone();
        super::raw::Remote { url: super::raw::Urls::One(first), ..self.said.clone() }
    }

    /// Whether those of a service are among them, called in the same way.
    fn have(&self, service: &Remote) -> bool {
        let of_class = Remote {
            addresses: service.addresses.clone(),
            model: service.model.clone(),
            ..self.remote.clone()
        };
        of_class == *service && service.addresses.iter().all(|one| self.remote.addresses.contains(one))
    }
}

impl Models {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Named(names) => names.len(),
            Self::Simulated { models, .. } => models.len(),
        }
    }

    /// Some of them on a class; none where it does not run one of them.
    #[must_use]
    pub fn choice(&self, class: usize, picks: &[usize]) -> Option<ModelChoice> {
        match self {
            Self::Named(names) => {
                Some(ModelChoice::Named(picks.iter().map(|&pick| names[pick].clone()).collect()))
            }
            Self::Simulated { models, input, output } => {
                let on = |&pick: &usize| models[pick].1.iter().find(|(of, _)| *of == class);
                let models = picks.iter().map(|pick| Some(on(pick)?.1.clone())).collect::<Option<_>>()?;
                Some(ModelChoice::Simulated { models, input: *input, output: *output })
            }
        }
    }

    /// The places of these models among them, if they are.
    fn places(&self, class: usize, chosen: &ModelChoice) -> Option<Vec<usize>> {
        match (self, chosen) {
            (Self::Named(names), ModelChoice::Named(chosen)) => {
                chosen.iter().map(|one| names.iter().position(|name| name == one)).collect()
            }
            (Self::Simulated { models, .. }, ModelChoice::Simulated { models: chosen, .. }) => {
                let of = |one: &SimulatedModel| {
                    models.iter().position(|(_, on)| on.iter().any(|(of, it)| *of == class && it == one))
                };
                chosen.iter().map(of).collect()
            }
            _ => None,
        }
    }
}

impl ServiceConfig {
    /// It, placed so; none where that class does not run such a model. Which cores or GPUs it has is left open.
    #[must_use]
    pub fn on(&self, class: &ClassConfig, placed: &Placed) -> Option<Self> {
        let candidates = self.candidates.as_ref()?;
        let model = candidates.models.choice(placed.class, &placed.models)?;
        // A server is called for one model.
        if class.servers.is_some() && !model.is_single() {
            return None;
        }
        let share = (placed.devices == 0).then_some(ShareConfig {
            device: 0,
            turn: self.share.and_then(|share| share.turn),
            weight: candidates.weight,
        });
        let select = match &self.select {
            Select::Accurate if !candidates.switches => Select::Base,
            select => select.clone(),
        };
        Some(Self {
            engine: class.engine,
            class: class.timed_as(),
            isolation: class.engine.isolation_of(candidates.isolation),
            backends: class.backends(&model),
            model,
            select,
            workers: if share.is_some() { class.devices } else { placed.devices },
            cores: if share.is_some() { class.cores.clone() } else { Vec::new() },
            tolerance: match share {
                Some(_) => super::Tolerance { most: Span::ZERO, ..self.tolerance },
                None => self.tolerance,
            },
            share,
            ..self.clone()
        })
    }

    /// Whether it is placed on servers of a class, all of which were measured together.
    #[must_use]
    pub fn is_on_some_servers(&self) -> bool {
        let placed = self.candidates.as_ref().is_some_and(|candidates| candidates.placed.is_some());
        placed && self.engine == EngineKind::Oip
    }

    /// A pipeline whose stages are placed so, all of them on devices of a class that it shares or each on its own; none where a class does
    /// not run such a model.
    #[must_use]
    pub fn staged_on(&self, classes: &[ClassConfig], placed: &[Placed]) -> Option<Self> {
        let on = |(stage, placed): (&StageConfig, &Placed)| {
            Some(StageConfig { runs: stage.runs.on(&classes[placed.class], placed)?, ..stage.clone() })
        };
        let mut stages: Vec<StageConfig> = self.stages.iter().zip(placed).map(on).collect::<Option<_>>()?;
        let first = &stages.first()?.runs;
        let turn = self.share.and_then(|share| share.turn);
        let share = first.share.filter(|_| classes[placed[0].class].shared);
        let share = share.map(|share| ShareConfig { turn, ..share });
        if share.is_some() {
            on_one_worker(&mut stages);
        }
        let ServiceConfig { engine, class, isolation, backends, model, workers, cores, .. } =
            stages.first()?.runs.clone();
        Some(Self {
            engine,
            class,
            isolation,
            backends,
            model,
            workers,
            cores,
            share,
            stages,
            ..self.clone()
        })
    }

    /// The same, promised nothing.
    #[must_use]
    pub fn unpromised(&self) -> Self {
        let stream = |stream: &super::ReservedStream| super::ReservedStream {
            name: stream.name.clone(),
            spec: rt_core::StreamSpec::best_effort(),
            class: stream.class,
        };
        let reserved = self.reserved.iter().map(stream).collect();
        let stage = |stage: &StageConfig| StageConfig { runs: stage.runs.unpromised(), ..stage.clone() };
        let stages = self.stages.iter().map(stage).collect();
        Self { constraints: Vec::new(), reserved, stages, ..self.clone() }
    }
}
