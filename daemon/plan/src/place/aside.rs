//! Where a service or a pipeline may stand aside while others move: on as few devices of its own as keep its promise.

use rt_core::Instant;

use super::offers::{Offer, Offers};
use super::staged::Staged;
use super::{Part, PlaceError, Site, Spot, text};
use crate::config::Placed;
use crate::plan::PlanError;

/// Such a place.
#[derive(Clone, Debug)]
pub struct Aside {
    /// Itself, or each stage.
    pub placed: Vec<Placed>,
    /// The file with it there, on devices of these classes.
    pub text: String,
}

impl Site {
    /// Of each class that a service of the file may have devices of to itself, the fewest that keep its promise, with the most accurate
    /// model that does; of a pipeline all choices of classes and numbers of which no device can be left out. None where all devices do
    /// not keep it, nor of a service that shares devices, which it does not leave. And whether there was time until `end` to find all.
    ///
    /// # Errors
    /// If the profile lacks a model, or the file cannot be completed.
    pub fn asides(&self, service: usize, end: Instant) -> Result<(Vec<Aside>, bool), PlaceError> {
        let (all, complete) = match self.config.services[service].stages.is_empty() {
            true => (self.asides_alone(service)?, true),
            false if self.config.services[service].is_fused() => (Vec::new(), true),
            false => self.asides_of_stages(service, end)?,
        };
        let aside = |placed: Vec<Placed>| {
            let part = |placed: &Placed| Part {
                placed: placed.clone(),
                units: Vec::new(),
                shares: Vec::new(),
                busy: Vec::new(),
            };
            let spot = Spot { accuracy: 0.0, parts: placed.iter().map(part).collect() };
            let offer = Offer { spot, load: 0.0, bytes: 0, missing: 0.0 };
            let spots = self.spots(&[service], std::iter::once(&offer));
            Ok(Aside { text: text::completed(&self.config, &self.placement, &spots)?, placed })
        };
        Ok((all.into_iter().map(aside).collect::<Result<_, PlaceError>>()?, complete))
    }

    fn asides_alone(&self, service: usize) -> Result<Vec<Vec<Placed>>, PlanError> {
        let (placement, profile, running) = (&self.placement, &self.profile, &self.running[service][0][..]);
        let of = &self.config.services[service];
        let offers = Offers { placement, profile, service: of, running, demand: 0.0, partial: false };
        let there = of.candidates.as_ref().and_then(|of| of.placed.as_ref());
        let shares = there.is_some_and(|placed| placed.devices == 0);
        let own = running.iter().filter(|running| !shares && !placement.classes[running.class].shared);
        let fewest = own.map(|running| offers.fewest(running));
        Ok(fewest.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().map(|placed| vec![placed]).collect())
    }

    fn asides_of_stages(&self, pipeline: usize, end: Instant) -> Result<(Vec<Vec<Placed>>, bool), PlanError> {
        let looked = Staged { site: self, pipeline, demand: 0.0, end }.all()?;
        let placed = |offer: &Offer| offer.spot.parts.iter().map(|part| part.placed.clone()).collect();
        let all: Vec<Vec<Placed>> = looked.offers.iter().map(placed).collect();
        let used: Vec<Vec<usize>> =
            all.iter().map(|placed| super::staged::used(placed, self.placement.classes.len())).collect();
        // Of those that need the same the first is the most accurate.
        let is_least = |one: usize| {
            let no_more =
                |other: &usize| used[*other].iter().zip(&used[one]).all(|(theirs, ours)| theirs <= ours);
            let mut others = (0..used.len()).filter(no_more);
            others.all(|other| used[other] == used[one] && other >= one)
        };
        let least =
            all.iter().enumerate().filter(|(one, _)| is_least(*one)).map(|(_, placed)| placed.clone());
        Ok((least.collect(), looked.unseen.is_none()))
    }
}

#[cfg(test)]
mod tests;
