//! What may be placed where: classes of equal devices, and of each service the models among which `weir place` chooses.

use std::collections::HashSet;

use rt_core::{MAX_VARIANTS, MAX_WORKERS, Span};
use weir_engine::{Backend, EngineKind, Isolation};

use super::check::{Check, Refused, all, shown};
use super::model::{ModelChoice, Select, SimulatedModel};
use super::service::Beside;
use super::{ControllerConfig, DaemonConfig, DeviceConfig, ServiceConfig, ShareConfig, raw};

/// Classes of devices at most.
const MAX_CLASSES: u64 = 8;
/// Demands and values at most.
const MOST: f64 = 1e9;

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
    /// The core of each; empty where they are GPUs, or the kernel chooses.
    pub cores: Vec<usize>,
    /// The GPU of each.
    pub gpus: Vec<u32>,
    /// Bytes of model files that each may hold.
    pub memory: Option<u64>,
    /// Whether the services that are placed here share all of them; else each has devices of its own.
    pub shared: bool,
    backends: Vec<Backend>,
}

/// Among what is chosen for a service.
#[derive(Clone, Debug)]
pub struct Candidates {
    pub models: Models,
    /// Mean requests a second.
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
    isolation: Option<Isolation>,
    weight: f64,
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

impl ClassConfig {
    /// The same with so many devices, wherever they are.
    #[must_use]
    pub fn with_devices(&self, devices: usize) -> Self {
        Self { devices, ..self.clone() }
    }

    /// Its devices as services that share it have them, with what the file says of them besides.
    #[must_use]
    pub fn as_device(&self, devices: &[DeviceConfig]) -> DeviceConfig {
        let said = devices.iter().find(|device| device.name == self.name);
        DeviceConfig::of_class((&self.name, self.devices, self.memory), self.cores.clone(), said)
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
                let same = |one: &SimulatedModel, other: &SimulatedModel| {
                    one.accuracy == other.accuracy && one.times == other.times
                };
                let of = |one: &SimulatedModel| {
                    models.iter().position(|(_, on)| on.iter().any(|(of, it)| *of == class && same(it, one)))
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
            isolation: candidates.isolation.unwrap_or(class.engine.isolation()),
            backends: class.backends.clone(),
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

    /// The same, promised nothing.
    #[must_use]
    pub fn unpromised(&self) -> Self {
        let stream = |stream: &super::ReservedStream| super::ReservedStream {
            name: stream.name.clone(),
            spec: rt_core::StreamSpec::best_effort(),
        };
        let reserved = self.reserved.iter().map(stream).collect();
        Self { constraints: Vec::new(), reserved, ..self.clone() }
    }
}

impl Check<'_> {
    pub(super) fn placement(
        &self,
        raw: raw::Placement,
        daemon: Option<&DaemonConfig>,
    ) -> Result<PlacementConfig, Refused> {
        let least = Span::from_millis(10);
        let period = self.span("placement.period", &raw.period, Span::from_millis(100));
        let limit = self.span("placement.limit", &raw.limit, least);
        let budget = self.number("placement.budget", raw.budget, 1, 16);
        let controller = self.controller(&raw, daemon);
        let headroom = self.real("placement.headroom", raw.headroom, (1.0, 100.0));
        let count = self.number("placement.class (how many)", raw.class.len() as u64, 1, MAX_CLASSES);
        let (mut names, mut taken) = (HashSet::new(), HashSet::new());
        let class = |(i, raw): (usize, raw::Class)| {
            self.class(&format!("placement.class[{i}]"), raw, (&mut names, &mut taken), daemon)
        };
        let classes = all(raw.class.into_iter().enumerate().map(class));
        count?;
        let (period, limit, budget) = (period?, limit?, budget? as usize);
        Ok(PlacementConfig {
            mode: raw.mode,
            period,
            budget,
            limit,
            headroom: headroom?,
            controller: controller?,
            classes: classes?,
        })
    }

    fn class(
        &self,
        at: &str,
        raw: raw::Class,
        (names, taken): (&mut HashSet<String>, &mut HashSet<(bool, u64)>),
        daemon: Option<&DaemonConfig>,
    ) -> Result<ClassConfig, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let name = self.name(&field("name"), raw.name, names);
        let built = match raw.engine.how_to_build() {
            Some(remedy) => {
                let reason = format!("this weir was built without it: {remedy}");
                Err(self.refuse(&field("engine"), &raw.engine.to_string(), reason))
            }
            None => Ok(()),
        };
        let memory = raw.memory.map(|bytes| self.number(&field("memory"), bytes, 1, 1 << 44)).transpose();
        let gpus = match &raw.gpu {
            None => Vec::new(),
            Some(raw::Gpu::One(gpu)) => vec![*gpu],
            Some(raw::Gpu::Each(gpus)) => gpus.clone(),
        };
        let said = [raw.gpu.is_some(), !raw.cores.is_empty(), raw.count.is_some()];
        if said.into_iter().filter(|&said| said).count() != 1 {
            let reason = "says which devices there are by exactly one of gpu, cores and count";
            return Err(self.refuse(&field("name"), &format!("{:?}", name?), reason));
        }
        for (list, what) in [(&gpus, "gpu"), (&raw.cores, "cores")] {
            for (i, &one) in list.iter().enumerate() {
                if !taken.insert((what == "gpu", one)) {
                    let reason = "is there already: a device is of one class, and listed once";
                    return Err(self.refuse(&format!("{at}.{what}[{i}]"), &one.to_string(), reason));
                }
            }
        }
        if raw.gpu.is_some() && !raw.engine.has_devices() {
            let reason = format!("engine \"{}\" has none: say cores or count", raw.engine);
            return Err(self.refuse(&field("gpu"), &format!("{gpus:?}"), reason));
        }
        let (what, devices) = match (&raw.gpu, raw.count) {
            (Some(_), _) => ("gpu (how many)", gpus.len() as u64),
            (None, Some(count)) => ("count", count),
            (None, None) => ("cores (how many)", raw.cores.len() as u64),
        };
        let devices = self.number(&field(what), devices, 1, MAX_WORKERS as u64);
        let core =
            |(i, &core): (usize, &u64)| Ok(self.number(&format!("{at}.cores[{i}]"), core, 0, 1023)? as usize);
        let cores = all(raw.cores.iter().enumerate().map(core));
        let runs = (raw.engine, raw.engine.isolation());
        let backends = self.backends(&field("gpu"), runs, raw.gpu, daemon);
        built?;
        Ok(ClassConfig {
            name: name?,
            engine: raw.engine,
            devices: devices? as usize,
            cores: cores?,
            gpus: gpus.into_iter().map(|gpu| gpu as u32).collect(),
            memory: memory?,
            shared: raw.shared,
            backends: backends?,
        })
    }

    pub(super) fn real(&self, field: &str, value: f64, (least, most): (f64, f64)) -> Result<f64, Refused> {
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), format!("must be in {least}..={most}")))
    }

    /// A service with that among which is chosen for it, if there is anything.
    pub(super) fn placed_service(
        &self,
        at: &str,
        mut raw: raw::Service,
        beside: Beside<'_>,
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Result<ServiceConfig, Refused> {
        if !raw.has_candidates() {
            let only = "only for a service that says among which models to choose; remove it, or list models";
            let said = [
                ("demand", raw.demand.map(|demand| demand.to_string())),
                ("value", raw.value.map(|value| value.to_string())),
                ("classes", raw.classes.as_ref().map(|classes| format!("{classes:?}"))),
            ];
            for (name, value) in said {
                if let Some(value) = value {
                    return Err(self.refuse(&format!("{at}.{name}"), &value, only));
                }
            }
            return self.service(at, raw, beside);
        }
        let placement = placement.map_err(|_| Refused)?;
        let Some(placement) = placement else {
            let reason = "is placed on classes of devices: list them as [[placement.class]]";
            return Err(self.refuse(&format!("{at}.models"), "(present)", reason));
        };
        let (candidates, class) = self.candidates(at, &raw, placement)?;
        if candidates.open {
            if !self.open {
                let reason = "must say what serves it: run `weir place` to have it chosen among its models";
                return Err(self.refuse(&format!("{at}.model"), "(absent)", reason));
            }
            raw.engine = class.engine;
            match candidates.models.choice(candidates.classes[0], &[0]) {
                Some(ModelChoice::Named(names)) => raw.model = names.into_iter().next(),
                _ => {
                    // The first model may not run on the first class: what stands here meanwhile has any times.
                    if let Some(simulated) = &mut raw.simulated
                        && let Some(model) = simulated.models.first_mut()
                    {
                        let times = model.times.values_mut().next();
                        simulated.times = times.map(std::mem::take).unwrap_or_default();
                        simulated.accuracy = Some(model.accuracy);
                    }
                }
            }
        }
        let service = self.service(at, raw, beside)?;
        let placed = if candidates.open { None } else { placed(&service, &candidates, placement, beside.0) };
        Ok(ServiceConfig { candidates: Some(Candidates { placed, ..candidates }), ..service })
    }

    /// What may serve it, and the first class where it may run.
    fn candidates<'a>(
        &self,
        at: &str,
        raw: &raw::Service,
        placement: &'a PlacementConfig,
    ) -> Result<(Candidates, &'a ClassConfig), Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let demand = raw.demand.map(|demand| self.real(&field("demand"), demand, (0.0, MOST))).transpose();
        let value = self.real(&field("value"), raw.value.unwrap_or(1.0), (0.0, MOST));
        let weight = self.real(&field("weight"), raw.weight.unwrap_or(1.0), (1e-6, 1e6));
        let classes = self.classes(&field("classes"), raw, placement)?;
        let models = match (&raw.models, &raw.simulated) {
            (Some(_), Some(_)) => {
                let reason = "is for engines that run models: give one of models and simulated.models";
                return Err(self.refuse(&field("models"), "(present)", reason));
            }
            (Some(names), None) => self.named(&field("models"), names, &classes, placement),
            (None, simulated) => match simulated {
                Some(simulated) => {
                    self.simulated_candidates(&field("simulated"), simulated, &classes, placement)
                }
                None => Err(Refused),
            },
        };
        if matches!(raw.select, Some(raw::Select::Table(_))) {
            let reason = "is for one choice of variants, which `weir place` may change: say \"accurate\", \"planned\" or \"base\"";
            return Err(self.refuse(&field("select"), "(a table)", reason));
        }
        let open = raw.is_open();
        let there = [
            ("workers", raw.workers.is_some()),
            ("cores", raw.cores.is_some()),
            ("gpu", raw.gpu.is_some()),
            ("device", raw.device.is_some()),
            ("variants", !raw.variants.is_empty()),
        ];
        if let Some((name, _)) = there.into_iter().find(|&(_, there)| open && there) {
            let reason = "is chosen by `weir place`: remove it, or say the model as well";
            return Err(self.refuse(&field(name), "(present)", reason));
        }
        let alone = [
            ("stalls", raw.stalls.is_some()),
            ("optimise", raw.optimise.is_some()),
            ("dispatch", raw.dispatch != raw::Dispatch::Eager),
            ("background", !raw.background),
            ("record", raw.record.is_some()),
            ("tolerance", raw.tolerance.as_deref().is_some_and(|text| !["auto", "0s"].contains(&text))),
        ];
        // What declares its requests comes as often as it declares, unless it is said how often.
        let declared = raw.stream.iter().filter_map(|stream| self.declared(stream)).sum();
        let candidates = Candidates {
            models: models?,
            demand: demand?.unwrap_or(declared),
            value: value?,
            alone: alone.into_iter().find(|&(_, there)| there).map(|(name, _)| name),
            switches: raw.background && !matches!(raw.select, Some(raw::Select::Base)),
            placed: None,
            open,
            isolation: raw.isolation,
            weight: weight?,
            classes,
        };
        let class = &placement.classes[candidates.classes[0]];
        Ok((candidates, class))
    }

    fn classes(
        &self,
        field: &str,
        raw: &raw::Service,
        placement: &PlacementConfig,
    ) -> Result<Vec<usize>, Refused> {
        let known = || placement.classes.iter().map(|class| &*class.name).collect::<Vec<_>>().join(", ");
        let find = |(i, name): (usize, &String)| {
            placement.classes.iter().position(|class| class.name == *name).ok_or_else(|| {
                let reason = format!("no [[placement.class]] has this name ({})", known());
                self.refuse(&format!("{field}[{i}]"), &format!("{name:?}"), reason)
            })
        };
        let Some(names) = &raw.classes else { return Ok((0..placement.classes.len()).collect()) };
        let mut classes = all(names.iter().enumerate().map(find))?;
        classes.sort_unstable();
        classes.dedup();
        if classes.is_empty() {
            return Err(self.refuse(field, "[]", format!("must name one of {} at least", known())));
        }
        Ok(classes)
    }

    fn named(
        &self,
        field: &str,
        names: &[String],
        classes: &[usize],
        placement: &PlacementConfig,
    ) -> Result<Models, Refused> {
        self.number(&format!("{field} (how many)"), names.len() as u64, 1, MAX_VARIANTS as u64)?;
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                let reason = "is there already: name each model once, by rising accuracy";
                return Err(self.refuse(&format!("{field}[{i}]"), &format!("{name:?}"), reason));
            }
        }
        let simulated = |&&class: &&usize| placement.classes[class].engine == EngineKind::Simulated;
        if let Some(&class) = classes.iter().find(simulated) {
            let name = &placement.classes[class].name;
            let reason = format!(
                "class {name} has engine \"simulated\", which runs no model: list simulated.models, or other classes"
            );
            return Err(self.refuse(field, "(present)", reason));
        }
        Ok(Models::Named(names.to_vec()))
    }

    fn simulated_candidates(
        &self,
        at: &str,
        raw: &raw::Simulated,
        classes: &[usize],
        placement: &PlacementConfig,
    ) -> Result<Models, Refused> {
        let field = format!("{at}.models");
        self.number(&format!("{field} (how many)"), raw.models.len() as u64, 1, MAX_VARIANTS as u64)?;
        if let Some(&class) =
            classes.iter().find(|&&class| placement.classes[class].engine != EngineKind::Simulated)
        {
            let ClassConfig { name, engine, .. } = &placement.classes[class];
            let reason = format!("class {name} has engine \"{engine}\": list models, or other classes");
            return Err(self.refuse(&field, "(present)", reason));
        }
        let model = |(i, model): (usize, &raw::SimulatedCandidate)| {
            let at = format!("{field}[{i}]");
            let on = model.times.iter().map(|(name, times)| {
                let found = placement.classes.iter().position(|class| class.name == *name);
                let Some(class) = found else {
                    let reason = "no [[placement.class]] has this name";
                    return Err(self.refuse(&format!("{at}.times"), &format!("{name:?}"), reason));
                };
                Ok((class, self.simulated_model(&format!("{at}.times.{name}"), times, Some(model.accuracy))?))
            });
            Ok((model.accuracy, all(on)?))
        };
        let models = all(raw.models.iter().enumerate().map(model))?;
        for (i, pair) in models.windows(2).enumerate() {
            if pair[1].0 <= pair[0].0 {
                let (value, reason) =
                    (pair[1].0.to_string(), format!("must be above {}, that before it", pair[0].0));
                return Err(self.refuse(&format!("{field}[{}].accuracy", i + 1), &value, reason));
            }
        }
        let size = |name: &str, size| self.number(&format!("{at}.{name}"), size, 1, 1 << 20);
        let (input, output) = (size("input", raw.input), size("output", raw.output));
        Ok(Models::Simulated { models, input: input? as usize, output: output? as usize })
    }

    /// How often a stream sends in the long run by what it declares; nothing is noted where that is wrong.
    fn declared(&self, stream: &raw::Stream) -> Option<f64> {
        let span = |text: &str| text.parse::<humantime::Duration>().ok().map(|span| span.as_secs_f64());
        let rate = |arrival: &raw::Arrival| match arrival {
            raw::Arrival::Window { count, length } => Some(*count as f64 / span(length)?),
            raw::Arrival::Periodic { period, .. } | raw::Arrival::TokenBucket { period, .. } => {
                Some(1.0 / span(period)?)
            }
        };
        stream.arrivals.iter().filter_map(rate).filter(|rate| rate.is_finite()).reduce(f64::min)
    }

    /// No other service runs where services are placed.
    pub(super) fn nobody_else(
        &self,
        placement: Option<&PlacementConfig>,
        devices: &[DeviceConfig],
        services: &[ServiceConfig],
    ) -> Result<(), Refused> {
        let Some(placement) = placement else { return Ok(()) };
        if services.iter().all(|service| service.candidates.is_none()) {
            let reason = "no service says among which models to choose: list models, or remove this";
            return Err(self.refuse("placement", "(present)", reason));
        }
        let fixed = services.iter().filter(|service| service.candidates.is_none());
        for runs in fixed.flat_map(ServiceConfig::running) {
            let at = match runs.share {
                Some(share) => format!("device[{}]", share.device),
                None => runs.at.clone(),
            };
            for class in &placement.classes {
                if let Some(core) = runs.cores.iter().find(|core| class.cores.contains(core)) {
                    let reason = format!("is of class {}, where services are placed", class.name);
                    return Err(self.refuse(&format!("{at}.cores"), &core.to_string(), reason));
                }
                let name = runs.share.map(|share| &devices[share.device].name);
                if name == Some(&class.name) {
                    let reason = "is a class, where services are placed: list models, or name another device";
                    return Err(self.refuse(
                        &format!("{}.device", runs.at),
                        &shown(name.unwrap_or(&class.name)),
                        reason,
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Where the file says that a service runs, if that is one of the places where it may.
fn placed(
    service: &ServiceConfig,
    candidates: &Candidates,
    placement: &PlacementConfig,
    devices: Option<&[DeviceConfig]>,
) -> Option<Placed> {
    let is_there = |&&class: &&usize| {
        let ClassConfig { name, engine, cores, gpus, shared, .. } = &placement.classes[class];
        let gpu = |backend: &Backend| gpus.contains(&backend.device);
        match service.share {
            _ if service.engine != *engine => false,
            Some(share) => *shared && devices.is_some_and(|all| all[share.device].name == *name),
            None if *shared => false,
            None if !gpus.is_empty() => service.backends.iter().all(gpu),
            None => {
                service.cores.iter().all(|core| cores.contains(core))
                    && cores.is_empty() == service.cores.is_empty()
            }
        }
    };
    let class = candidates.classes.iter().find(is_there).copied()?;
    let models = candidates.models.places(class, &service.model)?;
    let devices = if service.share.is_some() { 0 } else { service.workers };
    models.is_sorted().then_some(Placed { class, devices, models })
}

#[cfg(test)]
mod tests;
