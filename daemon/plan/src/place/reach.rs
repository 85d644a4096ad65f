//! Whether what may be placed on is there at all, so that what is out of reach is not taken for a lack of devices.

use std::time::Duration;

use weir_engine::{Backend, EngineError, prepare, unreached};

use super::{PlaceError, measured, origins};
use crate::config::{Config, ServiceConfig};
use crate::models::reach_engine;
use crate::placed::Gone;
use crate::plan::PlanError;

/// Meets the engines of all that may be chosen, and of what is not placed: servers must have the models ready that may be placed there.
///
/// # Errors
/// What is not there, and of which class that is.
pub fn reach(config: &Config) -> Result<(), PlaceError> {
    let Some(placement) = &config.placement else { return Ok(()) };
    let mut met: Vec<Backend> = Vec::new();
    for (service, origin) in measured(config).services.iter().zip(origins(config)) {
        if origin.on.is_empty() {
            reach_engine(service).map_err(PlanError::from)?;
        }
        for (runs, (class, _)) in service.running().zip(origin.on) {
            let backend = runs.backend(0);
            // Services have models in common.
            if !met.contains(backend) {
                prepare(backend).map_err(|source| {
                    let class = placement.classes[class].name.clone();
                    PlaceError::Reach { class, source: Box::new(source) }
                })?;
                met.push(backend.clone());
            }
        }
    }
    Ok(())
}

/// The servers of classes that nothing runs on and that are not reached within `patience`, each with the reason. Whoever serves
/// knows by itself of the others.
#[must_use]
pub fn idle_out_of_reach(config: &Config, patience: Duration) -> Vec<(Gone, EngineError)> {
    let classes = config.placement.iter().flat_map(|placement| &placement.classes);
    let mut gone = Vec::new();
    for (place, class) in classes.enumerate() {
        let Some(servers) = &class.servers else { continue };
        let running = config.services.iter().flat_map(ServiceConfig::running);
        let busy: Vec<usize> = running.flat_map(|runs| super::judge::had(runs, (place, class))).collect();
        let idle: Vec<usize> = class.units().into_iter().filter(|unit| !busy.contains(unit)).collect();
        let mut asked = servers.remote.clone();
        asked.addresses = idle.iter().map(|&unit| servers.remote.addresses[unit].clone()).collect();
        asked.timeout = asked.timeout.min(patience);
        let of = |(at, reason): (usize, EngineError)| {
            (Gone { class: class.name.clone(), number: Some(idle[at]) }, reason)
        };
        gone.extend(unreached(&asked).into_iter().map(of));
    }
    gone
}
