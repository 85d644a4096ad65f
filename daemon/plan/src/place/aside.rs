//! Where a service may stand aside while others move: on as few devices of its own as keep its promise.

use super::offers::Offers;
use super::{Part, PlaceError, Site, Spot, text};
use crate::config::Placed;

/// Such a place.
#[derive(Clone, Debug)]
pub struct Aside {
    pub placed: Placed,
    /// The file with the service there, on the first devices of the class.
    pub text: String,
}

impl Site {
    /// Of each class that a service of the file may have devices of to itself, the fewest that keep its promise, with the most accurate
    /// model that does; none where all of them do not, nor of a service that shares devices, which it does not leave, nor of a pipeline.
    ///
    /// # Errors
    /// If the profile lacks a model, or the file cannot be completed.
    pub fn asides(&self, service: usize) -> Result<Vec<Aside>, PlaceError> {
        let (placement, profile, running) = (&self.placement, &self.profile, &self.running[service][0][..]);
        let of = &self.config.services[service];
        if !of.stages.is_empty() {
            return Ok(Vec::new());
        }
        let offers = Offers { placement, profile, service: of, running, demand: 0.0, partial: false };
        let there = of.candidates.as_ref().and_then(|of| of.placed.as_ref());
        let shares = there.is_some_and(|placed| placed.devices == 0);
        let own = running.iter().filter(|running| !shares && !placement.classes[running.class].shared);
        let mut asides = Vec::new();
        for running in own {
            let Some(placed) = offers.fewest(running)? else { continue };
            let class = &placement.classes[placed.class];
            let gpus = class.gpus.iter().map(|&gpu| gpu as usize);
            let units = class.cores.iter().copied().chain(gpus).take(placed.devices).collect();
            let (shares, busy) = (Vec::new(), Vec::new());
            let mut spots: Vec<Option<Spot>> = vec![None; self.config.services.len()];
            let part = Part { placed: placed.clone(), units, shares, busy };
            spots[service] = Some(Spot { accuracy: 0.0, parts: vec![part] });
            let text = text::completed(&self.config, placement, &spots)?;
            asides.push(Aside { placed, text });
        }
        Ok(asides)
    }
}
