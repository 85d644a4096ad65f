//! Checks what a file says of the models among which is chosen for a service, and of where it runs.

use rt_core::MAX_VARIANTS;
use weir_engine::{Backend, EngineKind};

use super::{Candidates, ClassConfig, Models, Placed, PlacementConfig, Servers};
use crate::config::check::{Check, Refused, all};
use crate::config::model::ModelChoice;
use crate::config::remote::model_there;
use crate::config::service::Beside;
use crate::config::{DeviceConfig, ServiceConfig, raw};

/// Demands and values at most.
const MOST: f64 = 1e9;

impl Check<'_> {
    /// A service with that among which is chosen for it, if there is anything.
    pub(in crate::config) fn placed_service(
        &self,
        at: &str,
        mut raw: raw::Service,
        beside: Beside<'_>,
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Result<ServiceConfig, Refused> {
        let candidates = self.choosable(at, &mut raw, placement)?;
        let service = self.service(at, raw, beside)?;
        Ok(service.chosen_for(candidates.zip(placement.ok().and_then(Option::as_ref)), beside.0))
    }

    /// Among what is chosen for a service or a stage, if for that is chosen at all; what it leaves open is filled in meanwhile.
    pub(in crate::config) fn choosable(
        &self,
        at: &str,
        raw: &mut raw::Service,
        placement: Result<&Option<PlacementConfig>, &Refused>,
    ) -> Result<Option<Candidates>, Refused> {
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
            return Ok(None);
        }
        if matches!(raw.workers, Some(raw::Staff::Kinds(_))) {
            let reason = "what `weir place` chooses for has workers of one kind: name one model, or say workers as a number";
            return Err(self.refuse(&format!("{at}.workers"), "(present)", reason));
        }
        let placement = placement.map_err(|_| Refused)?;
        let Some(placement) = placement else {
            let reason = "is placed on classes of devices: list them as [[placement.class]]";
            return Err(self.refuse(&format!("{at}.models"), "(present)", reason));
        };
        let (candidates, class) = self.candidates(at, raw, placement)?;
        if candidates.open {
            if !self.open {
                let reason = "must say what serves it: run `weir place` to have it chosen among its models";
                return Err(self.refuse(&format!("{at}.model"), "(absent)", reason));
            }
            raw.engine = class.engine;
            raw.remote = class.servers.as_ref().map(Servers::first);
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
        Ok(Some(candidates))
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
        let fixed = match raw.select {
            Some(raw::Select::Table(_)) => Some("(a table)"),
            Some(raw::Select::Learned) => Some("\"learned\""),
            Some(raw::Select::Auto) if raw.weights.is_some() => Some("\"auto\" with weights"),
            _ => None,
        };
        if let Some(fixed) = fixed {
            let reason = "is for one choice of variants, which `weir place` may change: say \"accurate\", \"planned\" or \"base\"";
            return Err(self.refuse(&field("select"), fixed, reason));
        }
        let open = raw.is_open();
        let there = [
            ("workers", raw.workers.is_some()),
            ("cores", raw.cores.is_some()),
            ("gpu", raw.gpu.is_some()),
            ("device", raw.device.is_some()),
            ("variants", !raw.variants.is_empty()),
            ("remote", raw.remote.is_some()),
        ];
        if let Some((name, _)) = there.into_iter().find(|&(_, there)| open && there) {
            let reason = "is chosen by `weir place`: remove it, or say the model as well";
            return Err(self.refuse(&field(name), "(present)", reason));
        }
        let steps_down =
            |stream: &raw::Stream| stream.degraded.as_ref().is_some_and(|levels| !levels.is_empty());
        let alone = [
            ("stalls", raw.stalls.is_some()),
            ("degraded", !raw.degraded.is_empty() || raw.stream.iter().any(steps_down)),
            ("optimise", raw.optimise.is_some()),
            ("dispatch", raw.dispatch != raw::Dispatch::Eager),
            ("background", !raw.background),
            ("record", raw.record.is_some()),
            ("tolerance", raw.tolerance.as_deref().is_some_and(|text| !["auto", "0s"].contains(&text))),
        ];
        let alone = alone.into_iter().find(|&(_, there)| there).map(|(name, _)| name);
        if let Some(name) = alone.filter(|_| classes.iter().all(|&class| placement.classes[class].shared)) {
            let reason = "has no place on devices that services share, and it may run on no others: remove it, or name a class in classes that is not shared";
            let stream = raw
                .stream
                .iter()
                .position(steps_down)
                .filter(|_| name == "degraded" && raw.degraded.is_empty());
            let name = stream.map_or(name.to_owned(), |stream| format!("stream[{stream}].{name}"));
            return Err(self.refuse(&field(&name), "(present)", reason));
        }
        // What declares its requests comes as often as it declares, unless it is said how often.
        let declared =
            raw.stream.iter().filter_map(|stream| self.declared(stream)).fold(0.0, |all, one| all + one);
        let candidates = Candidates {
            models: models?,
            demand: demand?.unwrap_or(declared),
            value: value?,
            alone,
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
        if classes.iter().any(|&class| placement.classes[class].servers.is_some()) {
            let part = |(i, name): (usize, &String)| self.part(&format!("{field}[{i}]"), model_there(name));
            all(names.iter().enumerate().map(part))?;
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
                Ok((
                    class,
                    self.simulated_model(&format!("{at}.times.{name}"), None, times, Some(model.accuracy))?,
                ))
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
    pub(in crate::config) fn declared(&self, stream: &raw::Stream) -> Option<f64> {
        let span = |text: &str| text.parse::<humantime::Duration>().ok().map(|span| span.as_secs_f64());
        let rate = |arrival: &raw::Arrival| match arrival {
            raw::Arrival::Window { count, length } => Some(*count as f64 / span(length)?),
            raw::Arrival::Periodic { period, .. } | raw::Arrival::TokenBucket { period, .. } => {
                Some(1.0 / span(period)?)
            }
        };
        stream.arrivals.iter().filter_map(rate).filter(|rate| rate.is_finite()).reduce(f64::min)
    }
}

impl ServiceConfig {
    /// The same with among what is chosen for it, if for it is chosen, and where the file says that it runs.
    pub(in crate::config) fn chosen_for(
        self,
        choice: Option<(Candidates, &PlacementConfig)>,
        devices: Option<&[DeviceConfig]>,
    ) -> Self {
        let Some((candidates, placement)) = choice else { return self };
        let placed = if candidates.open { None } else { placed(&self, &candidates, placement, devices) };
        let class = placed.as_ref().and_then(|placed| placement.classes[placed.class].timed_as());
        Self { class, candidates: Some(Candidates { placed, ..candidates }), ..self }
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
        let ClassConfig { name, engine, cores, gpus, servers, shared, .. } = &placement.classes[class];
        let server = |backend: &Backend| {
            let remote = backend.remote.as_ref().zip(servers.as_ref());
            remote.is_some_and(|(remote, servers)| servers.have(remote))
        };
        let gpu = |backend: &Backend| gpus.contains(&backend.device);
        match service.share {
            _ if service.engine != *engine => false,
            Some(share) => *shared && devices.is_some_and(|all| all[share.device].name == *name),
            None if *shared => false,
            None if servers.is_some() => service.backends.iter().all(server),
            None if !gpus.is_empty() => service.backends.iter().all(gpu),
            None => {
                service.cores.iter().all(|core| cores.contains(core))
                    && cores.is_empty() == service.cores.is_empty()
            }
        }
    };
    // Simulated models may tell apart what nothing else does.
    let known = |&class: &usize| Some((class, candidates.models.places(class, &service.model)?));
    let (class, models) = candidates.classes.iter().filter(is_there).find_map(known)?;
    let devices = if service.share.is_some() { 0 } else { service.workers };
    models.is_sorted().then_some(Placed { class, devices, models })
}
