//! The best plan of a box; and where not all fits, what is least missing, or the largest part of the demand that does.

use rt_core::Span;
use weir_os::clock;

use super::judge::{Certifier, after};
use super::offers::{Offer, Offers};
use super::search::{Item, Room, search};
use super::{PlaceError, Placement, Site, Violated};
use crate::config::ServiceConfig;

/// A plan is the best if no other is better by more points.
pub const PROVEN: f64 = 0.001;
/// The part of the demand that fits is known as closely.
const EXACT: f64 = 0.0005;
/// Where not all fits, each further question has that part of the time at least.
const LITTLE: u64 = 16;
/// What is missing counts so much more than accuracy.
const FIRST: f64 = 1e6;

/// Why not all fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// Not every promise can be kept.
    Promises,
    /// They can, but not all demand be served.
    Demand,
    /// Nothing was found, and nothing ruled out.
    Time,
}

/// What is chosen among, of each service that is placed.
struct Question<'a> {
    site: &'a Site,
    services: Vec<usize>,
    /// What each counts, all together 1.
    weights: Vec<f64>,
    offers: Vec<Vec<Offer>>,
    factor: f64,
}

impl Site {
    /// The best plan that is found in `limit`, certified as it will be served; of those that are hardly worse one that changes least of
    /// what the file says already.
    ///
    /// # Errors
    /// If the profile lacks a model, or the file cannot be completed.
    pub fn solve(&self, limit: Span) -> Result<Placement, PlaceError> {
        let end = after(limit);
        // All of it together ends about then; each part has a little at least.
        let left = || end.since(clock::now()).max(Span::from_nanos(limit.as_nanos() / LITTLE));
        let question = Question::new(self, 1.0, false)?;
        let mut placement = question.best(limit, true)?;
        if placement.feasible || placement.reason == Some(Reason::Time) {
            return Ok(placement);
        }
        let resting = Question::new(self, 0.0, false)?;
        match resting.fits(left()) {
            Some(true) => {}
            Some(false) => {
                placement.reason = Some(Reason::Promises);
                placement.violated = Question::new(self, 0.0, true)?.least_violated(left());
                return Ok(placement);
            }
            None => return Ok(Placement { reason: Some(Reason::Time), ..placement }),
        }
        let (mut fits, mut fails) = (0.0, 1.0);
        while fails - fits > EXACT {
            let middle = f64::midpoint(fits, fails);
            match Question::new(self, middle, false)?.fits(left()) {
                Some(true) => fits = middle,
                Some(false) => fails = middle,
                None => break,
            }
        }
        let best = Question::new(self, fits, false)?.best(left(), true)?;
        Ok(Placement { feasible: false, reason: Some(Reason::Demand), factor: Some((fits, fails)), ..best })
    }

    /// How accurate the best plan's mean answer is, without a file of it; none if not all fits, or nothing was found in `limit`.
    ///
    /// # Errors
    /// As [`Site::solve`].
    pub fn accuracy(&self, limit: Span) -> Result<Option<f64>, PlaceError> {
        Ok(Question::new(self, 1.0, false)?.best(limit, false)?.accuracy)
    }
}

impl<'a> Question<'a> {
    fn new(site: &'a Site, factor: f64, partial: bool) -> Result<Self, PlaceError> {
        let all = &site.config.services;
        let services: Vec<usize> = (0..all.len()).filter(|&place| all[place].candidates.is_some()).collect();
        let value = |place: usize| all[place].candidates.as_ref().map_or(0.0, |of| of.value);
        let mut weights: Vec<f64> = services.iter().map(|&place| value(place) * site.demand[place]).collect();
        if weights.iter().sum::<f64>() <= 0.0 {
            weights = services.iter().map(|&place| value(place).max(1e-9)).collect();
        }
        let whole: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= whole);
        let offers = services.iter().map(|&place| {
            let demand = site.demand[place] * site.placement.headroom * factor;
            let (placement, profile) = (&site.placement, &site.profile);
            let (service, running) = (&all[place], &site.running[place][..]);
            let mut offers = Offers { placement, profile, service, running, demand, partial }.all()?;
            if let Some(there) =
                service.candidates.as_ref().and_then(|of| of.placed.as_ref()).filter(|_| site.without_restart)
            {
                offers.retain(|offer| offer.placed.is_reached_from(there));
            }
            Ok::<_, PlaceError>(offers)
        });
        let offers = offers.collect::<Result<_, _>>()?;
        Ok(Self { site, services, weights, offers, factor })
    }

    fn rooms(&self) -> Vec<Room> {
        let room = |class: &crate::config::ClassConfig| Room {
            devices: class.devices,
            shared: class.shared,
            memory: class.memory,
        };
        self.site.placement.classes.iter().map(room).collect()
    }

    fn items(&self) -> Vec<Vec<Item>> {
        let of = |(i, offers): (usize, &Vec<Offer>)| {
            let service: &ServiceConfig = &self.site.config.services[self.services[i]];
            let there = service.candidates.as_ref().and_then(|candidates| candidates.placed.as_ref());
            offers.iter().map(|offer| offer.item(self.weights[i], there)).collect()
        };
        self.offers.iter().enumerate().map(of).collect()
    }

    fn judge(&self, whole: bool, limit: Span) -> Certifier<'_> {
        Certifier::new(self.site, (&self.services, &self.offers), (self.factor, whole), after(limit))
    }

    /// Whether all fits; `None` if there was no time to find out.
    fn fits(&self, limit: Span) -> Option<bool> {
        let mut items = self.items();
        items.iter_mut().flatten().for_each(|item| item.value = 0.0);
        let mut judge = self.judge(false, limit);
        let found = search(&items, &self.rooms(), (None, f64::NEG_INFINITY), &mut judge);
        (found.best.is_some() || found.complete).then_some(found.best.is_some())
    }

    /// The best plan, certified as a `whole` file if that is asked.
    fn best(&self, limit: Span, whole: bool) -> Result<Placement, PlaceError> {
        let (items, rooms) = (self.items(), self.rooms());
        let mut judge = self.judge(whole, limit);
        let found = search(&items, &rooms, (None, f64::NEG_INFINITY), &mut judge);
        let mut placement = Placement {
            feasible: false,
            reason: Some(if found.complete { Reason::Demand } else { Reason::Time }),
            accuracy: None,
            bound: found.bound.is_finite().then_some(found.bound),
            spots: vec![None; self.site.config.services.len()],
            changes: Vec::new(),
            complete: None,
            violated: Vec::new(),
            factor: None,
        };
        let Some((mut sum, mut picks)) = found.best else { return Ok(placement) };
        let mut complete = judge.complete.take();
        // Of those that are hardly worse, what changes least; where nothing is placed yet, everything changes.
        let changed = |picks: &[usize]| {
            picks.iter().enumerate().filter(|&(service, &pick)| items[service][pick].changed).count()
        };
        let any = items.iter().flatten().any(|item| !item.changed);
        let fewer = (0..changed(&picks)).take_while(|_| whole && any).find_map(|changed| {
            let room = (Some(changed), sum - PROVEN);
            search(&items, &rooms, room, &mut judge).best
        });
        if let Some(fewer) = fewer {
            (sum, picks) = fewer;
            complete = judge.complete.take();
        }
        let offers = picks.iter().enumerate().map(|(service, &pick)| &self.offers[service][pick]);
        placement.spots = self.site.spots(&self.services, offers);
        let names = picks.iter().enumerate().filter(|&(service, &pick)| items[service][pick].changed);
        placement.changes = names
            .map(|(service, _)| self.site.config.services[self.services[service]].name.clone())
            .collect();
        Ok(Placement { feasible: true, reason: None, accuracy: Some(sum), complete, ..placement })
    }

    /// Of whose promises something is missing if as little as possible is.
    fn least_violated(&self, limit: Span) -> Vec<Violated> {
        let mut items = self.items();
        for (service, list) in items.iter_mut().enumerate() {
            for (item, offer) in list.iter_mut().zip(&self.offers[service]) {
                item.value = item.value / 100.0 - FIRST * offer.missing;
            }
            // It may be left out.
            list.push(Item { value: -FIRST, class: 0, devices: 0, load: 0.0, bytes: 0, changed: true });
        }
        let rooms: Vec<Room> = self.rooms();
        let mut judge = Leaving { judge: self.judge(false, limit), offers: &self.offers };
        let found = search(&items, &rooms, (None, f64::NEG_INFINITY), &mut judge);
        let Some((_, picks)) = found.best else { return Vec::new() };
        let of = |(service, &pick): (usize, &usize)| {
            let missing = self.offers[service].get(pick).map_or(1.0, |offer| offer.missing);
            let name = self.site.config.services[self.services[service]].name.clone();
            (missing > 0.0).then_some(Violated { service: name, missing })
        };
        picks.iter().enumerate().filter_map(of).collect()
    }
}

/// Judges those that are not left out.
struct Leaving<'a> {
    judge: Certifier<'a>,
    offers: &'a [Vec<Offer>],
}

impl super::search::Judge for Leaving<'_> {
    fn share(&mut self, class: usize, members: &[(usize, usize)]) -> bool {
        let there = members.iter().copied().filter(|&(service, pick)| pick < self.offers[service].len());
        let there: Vec<_> = there.collect();
        there.is_empty() || self.judge.share(class, &there)
    }

    fn accept(&mut self, _: &[usize]) -> bool {
        true
    }

    fn is_over(&mut self) -> bool {
        self.judge.is_over()
    }
}
