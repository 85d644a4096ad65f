//! Whether what may be placed on is there at all, and is what was measured, so that what is not is not taken for a lack of devices.

use std::time::Duration;

use rt_core::Span;
use serde::{Deserialize, Serialize};
use weir_engine::{Backend, EngineError, EngineKind, ModelSpec, meet, prepare};
use weir_os::clock;

use super::judge::had;
use super::{PlaceError, Site, measured, origins};
use crate::config::{ClassConfig, Config, Placed, ServiceConfig};
use crate::models::Timed;
use crate::profile::Entry;

/// A device that is no longer there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The name of its class.
    pub class: String,
    /// Its core or GPU, or its place among the servers of the class; none where the class only counts.
    pub number: Option<usize>,
}

/// A server that nothing is to be placed on.
#[derive(Debug)]
pub struct Unfit {
    pub device: Gone,
    pub why: Why,
}

/// Why nothing is.
#[derive(Debug)]
pub enum Why {
    /// It is not there, or lacks a model that may be placed there.
    Reach(EngineError),
    /// It is not what the profile was measured on.
    Other { url: String, here: String },
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let class = &self.device.class;
        match &self.why {
            Why::Reach(error) => write!(to, "class {class}: {error}"),
            Why::Other { url, here } => {
                write!(
                    to,
                    "class {class}: {url}: is not what was measured, but {here}; run `weir profile` again"
                )
            }
        }
    }
}

/// A model that a server is asked for.
struct Asked<'a> {
    backend: Backend,
    spec: &'a ModelSpec,
    /// What the profile has of it.
    entry: Option<&'a Entry>,
}

/// Loads what the engines need that compute here for all that may be chosen.
///
/// # Errors
/// What is not there, and of which class that is.
pub fn reach(config: &Config) -> Result<(), PlaceError> {
    let Some(placement) = &config.placement else { return Ok(()) };
    for (service, origin) in measured(config).services.iter().zip(origins(config)) {
        for (runs, (class, _)) in
            service.running().zip(origin.on).filter(|(runs, _)| runs.engine != EngineKind::Oip)
        {
            prepare(runs.backend(0)).map_err(|source| {
                let class = placement.classes[class].name.clone();
                PlaceError::Reach { class, source: Box::new(source) }
            })?;
        }
    }
    Ok(())
}

impl Site {
    /// The same box without these devices. On a class of which none is left nothing can run.
    #[must_use]
    pub fn without(mut self, gone: &[Gone]) -> Self {
        for (place, class) in self.placement.classes.iter_mut().enumerate() {
            let numbers = gone.iter().filter(|one| one.class == class.name).map(|one| one.number);
            let numbers: Vec<Option<usize>> = numbers.collect();
            for service in &mut self.config.services {
                let parts = match service.stages.is_empty() {
                    true => vec![service],
                    false => service.stages.iter_mut().map(|stage| &mut stage.runs).collect(),
                };
                for runs in parts {
                    // Whoever has one of them is to run elsewhere.
                    let moves = had(runs, (place, class)).iter().any(|&unit| numbers.contains(&Some(unit)));
                    if let Some(candidates) = runs.candidates.as_mut().filter(|_| moves) {
                        candidates.placed = None;
                    }
                }
            }
            *class = class.without(&numbers);
        }
        let classes = &self.placement.classes;
        for part in self.running.iter_mut().flatten() {
            part.retain(|running| classes[running.class].devices > 0);
        }
        self.planned.get_mut().clear();
        self
    }

    /// The servers of classes that nothing is to be placed on. All are asked at once, each for every model that may be placed there. While
    /// it is served, which `patience` says, those that nothing runs on are asked, for so long at most: of the others the daemon knows.
    #[must_use]
    pub fn unfit(&self, patience: Option<Span>) -> Vec<Unfit> {
        let end = patience.map(|patience| clock::now() + patience);
        let mut all = Vec::new();
        for (place, class) in
            self.placement.classes.iter().enumerate().filter(|(_, class)| class.servers.is_some())
        {
            let running = self.config.services.iter().flat_map(ServiceConfig::running);
            let busy = running.filter(|_| patience.is_some()).flat_map(|runs| had(runs, (place, class)));
            let busy: Vec<usize> = busy.collect();
            let asked = self.asked((place, class), patience.map(clock::duration));
            let of = |unit: usize| {
                let why = asked.iter().find_map(|asked| match end.is_some_and(|end| clock::now() > end) {
                    true => Some(Why::Reach(EngineError::Remote {
                        url: class.unit(unit).to_string(),
                        reason: "there was no time to ask it for all models".to_owned(),
                    })),
                    false => asked.at(unit),
                })?;
                Some(Unfit { device: Gone { class: class.name.clone(), number: Some(unit) }, why })
            };
            let idle = class.units().into_iter().filter(|unit| !busy.contains(unit));
            std::thread::scope(|scope| {
                let told: Vec<_> = idle.map(|unit| scope.spawn(move || of(unit))).collect();
                all.extend(told.into_iter().filter_map(|told| told.join().ok()?));
            });
        }
        all
    }

    /// What the servers of a class are asked for.
    fn asked(&self, (place, class): (usize, &ClassConfig), patience: Option<Duration>) -> Vec<Asked<'_>> {
        let parts =
            self.config.services.iter().zip(&self.running).flat_map(|(of, parts)| of.running().zip(parts));
        let mut all: Vec<Asked<'_>> = Vec::new();
        for (runs, running) in parts {
            let there =
                running.iter().filter(|running| running.class == place).flat_map(|running| &running.models);
            for (model, spec) in there {
                let Some(on) = runs.on(class, &Placed { class: place, devices: 1, models: vec![*model] })
                else {
                    continue;
                };
                let mut backend = on.backend(0).clone();
                if let (Some(remote), Some(patience)) = (&mut backend.remote, patience) {
                    remote.timeout = remote.timeout.min(patience);
                }
                // Services have models in common.
                if all.iter().all(|asked| asked.backend != backend || asked.spec != spec) {
                    let entry = self.profile.timed(&Timed::by(&on, spec), on.engine).ok();
                    all.push(Asked { backend, spec, entry });
                }
            }
        }
        all
    }
}

impl Asked<'_> {
    /// What is wrong with it on that server.
    fn at(&self, server: usize) -> Option<Why> {
        let backend = self.backend.of_worker(server);
        match meet(&backend, self.spec) {
            Err(error) => Some(Why::Reach(error)),
            Ok(here) if self.entry.is_none_or(|entry| entry.equipment.has(&here)) => None,
            Ok(here) => {
                let (url, here) = here.split_once(' ').unwrap_or_default();
                Some(Why::Other { url: url.to_owned(), here: here.to_owned() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
