//! What can be served as it was chosen: the plan of those that share devices, and the plan of the whole file as it would be served.

use std::collections::HashMap;

use rt_core::{Instant, Span};
use weir_os::clock;

use super::offers::Offer;
use super::search::Judge;
use super::{Complete, PlaceError, Site, Spot, text};
use crate::config::{ClassConfig, Config, Placed, ServiceConfig};
use crate::plan::Plan;

/// Answers are compared with so many more than there are by rounding.
const EQUAL: f64 = 1e-9;

/// Judges choices among `offers`, those of each placed service in turn.
pub(super) struct Certifier<'a> {
    site: &'a Site,
    offers: &'a [Vec<Offer>],
    /// The services that are placed, by their places in the file.
    services: &'a [usize],
    /// Demand is so many times what the box says.
    factor: f64,
    known: HashMap<(usize, Vec<(usize, usize)>), bool>,
    /// Whether what is accepted must be certified as a whole file; else nothing is asked of it.
    whole: bool,
    pub(super) complete: Option<Complete>,
    /// Why the last whole file was not accepted.
    pub(super) refused: Option<PlaceError>,
    end: Instant,
}

impl<'a> Certifier<'a> {
    pub(super) fn new(
        site: &'a Site,
        (services, offers): (&'a [usize], &'a [Vec<Offer>]),
        (factor, whole): (f64, bool),
        end: Instant,
    ) -> Self {
        let (known, complete, refused) = (HashMap::new(), None, None);
        Self { site, offers, services, factor, known, whole, complete, refused, end }
    }

    fn plan_of(&self, class: usize, members: &[(usize, usize)]) -> Option<bool> {
        let of = &self.site.placement.classes[class];
        let mut config = self.site.config.clone();
        config.devices = vec![of.as_device(&self.site.config.devices)];
        config.services.clear();
        let mut specs = Vec::new();
        for &(service, pick) in members {
            let parts = &self.offers[service][pick].spot.parts;
            let placed: Vec<Placed> = parts.iter().map(|part| part.placed.clone()).collect();
            let place = self.services[service];
            let service = &self.site.config.services[place];
            config.services.push(match service.stages.is_empty() {
                true => service.on(of, &placed[0])?,
                false => service.staged_on(&self.site.placement.classes, &placed)?,
            });
            specs.push(self.site.specs(place, &placed)?);
        }
        let plan = Plan::tried(&config, specs, &self.site.profile).ok()?;
        let busy = plan.services.iter().zip(members).map(|(plan, &(service, _))| {
            let demand =
                self.site.demand[self.services[service]] * self.site.placement.headroom * self.factor;
            demand * plan.least_load()
        });
        Some(busy.sum::<f64>() <= of.devices as f64 * (1.0 + EQUAL))
    }
}

impl Judge for Certifier<'_> {
    fn share(&mut self, class: usize, members: &[(usize, usize)]) -> bool {
        let key = (class, members.to_vec());
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let holds = self.plan_of(class, members).unwrap_or(false);
        self.known.insert(key, holds);
        holds
    }

    fn accept(&mut self, picks: &[usize]) -> bool {
        if !self.whole {
            return true;
        }
        let offers = picks.iter().enumerate().map(|(service, &pick)| &self.offers[service][pick]);
        let spots = self.site.spots(self.services, offers);
        match self.site.complete(&spots) {
            Ok(complete) => self.complete = Some(complete),
            Err(error) => {
                self.refused = Some(error);
                return false;
            }
        }
        true
    }

    fn is_over(&mut self) -> bool {
        clock::now() > self.end
    }
}

/// So long from now.
pub(super) fn after(span: Span) -> Instant {
    clock::now() + span
}

impl Site {
    /// Where each service of the file is put by these offers, those of `services` in turn; who stays where it is keeps its devices, as
    /// far as it may have so many.
    pub(super) fn spots<'a>(
        &self,
        services: &[usize],
        offers: impl Iterator<Item = &'a Offer>,
    ) -> Vec<Option<Spot>> {
        let mut spots: Vec<Option<Spot>> = vec![None; self.config.services.len()];
        for (&service, offer) in services.iter().zip(offers) {
            spots[service] = Some(offer.spot.clone());
        }
        for (place, class) in self.placement.classes.iter().enumerate() {
            let mut free = class.units();
            let all = self.config.services.iter().zip(&mut spots);
            let all =
                all.filter_map(|(service, spot)| Some(service.running().zip(&mut spot.as_mut()?.parts)));
            let mut here: Vec<_> = all.flatten().filter(|(_, part)| part.placed.class == place).collect();
            for (runs, part) in &mut here {
                let kept = had(runs, (place, class)).into_iter().filter(|one| free.contains(one));
                part.units = kept.take(part.placed.devices).collect();
                free.retain(|one| !part.units.contains(one));
            }
            for (_, part) in here {
                let count = (part.placed.devices - part.units.len()).min(free.len());
                part.units.extend(free.drain(..count));
            }
        }
        spots
    }

    /// The file with each service where it is put, checked and planned as it will be when it is served.
    ///
    /// # Errors
    /// Why it cannot be served so.
    pub(super) fn complete(&self, spots: &[Option<Spot>]) -> Result<Complete, PlaceError> {
        let text = text::completed(&self.config, &self.placement, spots)?;
        let mut config = Config::parse(&self.config.path, &text)?;
        // What results become may be known better than the file says.
        let said = self.config.services.iter().flat_map(|service| &service.stages);
        let stages = config.services.iter_mut().flat_map(|service| &mut service.stages);
        stages.zip(said).for_each(|(stage, said)| stage.mean = said.mean);
        let models = crate::models::resolve_models(&config)?;
        let plan = Plan::tried(&config, models, &self.profile)?;
        Ok(Complete { text, config, plan })
    }
}

/// The devices of a class that the file gives to what runs models.
pub(super) fn had(runs: &ServiceConfig, (place, class): (usize, &ClassConfig)) -> Vec<usize> {
    let placed = runs.candidates.as_ref().and_then(|candidates| candidates.placed.as_ref());
    let Some(Placed { devices, .. }) = placed.filter(|placed| placed.class == place) else {
        return Vec::new();
    };
    class.units_of(runs, *devices)
}
