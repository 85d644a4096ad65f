//! The best plan of a box; and where not all fits, what is least missing, or the largest part of the demand that does.

use rt_core::{Instant, Span};
use weir_os::clock;

use super::judge::{Certifier, after};
use super::offers::{Offer, Offers};
use super::search::{Item, Room, search};
use super::staged::{Looked, Staged};
use super::{Part, PlaceError, Placement, Site, Violated};
use crate::config::{Placed, ServiceConfig};

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
    /// What fits by all that is counted is refused as a whole file.
    Refused,
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
    /// Of each, what of its offers was not looked at is no more accurate; none if all was.
    unseen: Vec<Option<f64>>,
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
        let question = Question::new(self, 1.0, false, end)?;
        let mut placement = question.best(left(), true)?;
        if placement.feasible || matches!(placement.reason, Some(Reason::Time | Reason::Refused)) {
            return Ok(placement);
        }
        let resting = Question::new(self, 0.0, false, after(left()))?;
        match resting.fits(left()) {
            Some(true) => {}
            Some(false) => {
                placement.reason = Some(Reason::Promises);
                placement.violated = Question::new(self, 0.0, true, after(left()))?.least_violated(left());
                return Ok(placement);
            }
            None => return Ok(Placement { reason: Some(Reason::Time), ..placement }),
        }
        let (mut fits, mut fails) = (0.0, 1.0);
        while fails - fits > EXACT {
            let middle = f64::midpoint(fits, fails);
            match Question::new(self, middle, false, after(left()))?.fits(left()) {
                Some(true) => fits = middle,
                Some(false) => fails = middle,
                None => break,
            }
        }
        let best = Question::new(self, fits, false, after(left()))?.best(left(), true)?;
        if best.refused.is_some() {
            return Ok(best);
        }
        let mut best =
            Placement { feasible: false, reason: Some(Reason::Demand), factor: Some((fits, fails)), ..best };
        if best.is_cut_off() {
            // The plan is for a part that was looked at by chance, or for no demand at all, and nothing is said of those for more.
            best.bound = None;
            best.accuracy = best.accuracy.filter(|_| fits > 0.0);
        }
        Ok(best)
    }

    /// How accurate the best plan's mean answer is, without a file of it; none if not all fits, or nothing was found in `limit`.
    ///
    /// # Errors
    /// As [`Site::solve`].
    pub fn accuracy(&self, limit: Span) -> Result<Option<f64>, PlaceError> {
        let end = after(limit);
        let question = Question::new(self, 1.0, false, end)?;
        let placement = question.best(end.since(clock::now()), false)?;
        Ok(placement.accuracy.filter(|_| question.unseen.iter().all(Option::is_none)))
    }
}

impl Placement {
    /// Whether the time was over before it was known which part of the demand fits.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.factor.is_some_and(|(fits, fails)| fails - fits > EXACT)
    }
}

impl<'a> Question<'a> {
    /// For `factor` times the demand; offers of pipelines are looked for until `end`.
    fn new(site: &'a Site, factor: f64, partial: bool, end: Instant) -> Result<Self, PlaceError> {
        let all = &site.config.services;
        let services: Vec<usize> = (0..all.len()).filter(|&place| all[place].is_placed()).collect();
        let value = |place: usize| all[place].worth().map_or(0.0, |(_, value)| value);
        let mut weights: Vec<f64> = services.iter().map(|&place| value(place) * site.demand[place]).collect();
        if weights.iter().sum::<f64>() <= 0.0 {
            weights = services.iter().map(|&place| value(place).max(1e-9)).collect();
        }
        let whole: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= whole);
        let offers = services.iter().map(|&place| {
            let demand = site.demand[place] * site.placement.headroom * factor;
            let (placement, profile, service) = (&site.placement, &site.profile, &all[place]);
            let mut looked = match service.stages.is_empty() {
                true => {
                    let running = &site.running[place][0][..];
                    let offers = Offers { placement, profile, service, running, demand, partial }.all()?;
                    Looked { offers, unseen: None }
                }
                false => {
                    let staged = Staged { site, pipeline: place, demand, end };
                    let own = if partial { staged.partial()? } else { staged.all()? };
                    own.and(staged.shared()?)
                }
            };
            if let Some(there) = service.places().filter(|_| site.without_restart) {
                let reached = |(part, there): (&Part, &Placed)| part.placed.is_reached_from(there);
                looked.offers.retain(|offer| offer.spot.parts.iter().zip(&there).all(reached));
            }
            Ok(looked)
        });
        let looked = offers.collect::<Result<Vec<Looked>, PlaceError>>()?;
        let (offers, unseen) = looked.into_iter().map(|looked| (looked.offers, looked.unseen)).unzip();
        Ok(Self { site, services, weights, offers, unseen, factor })
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
            let there = service.places();
            offers.iter().map(|offer| offer.item(self.weights[i], there.as_deref())).collect()
        };
        self.offers.iter().enumerate().map(of).collect()
    }

    fn judge(&self, whole: bool, limit: Span) -> Certifier<'_> {
        Certifier::new(self.site, (&self.services, &self.offers), (self.factor, whole), after(limit))
    }

    /// Whether no offer was left out for want of time.
    fn is_whole(&self) -> bool {
        self.unseen.iter().all(Option::is_none)
    }

    /// No choice has more, also of what was not looked at.
    fn bound(&self, found: f64) -> f64 {
        let most = |((offers, unseen), weight): ((&Vec<Offer>, &Option<f64>), &f64)| {
            let all = offers.iter().map(|offer| offer.spot.accuracy).chain(*unseen);
            weight * all.fold(f64::NEG_INFINITY, f64::max)
        };
        let all = || self.offers.iter().zip(&self.unseen).zip(&self.weights).map(most).sum::<f64>();
        if self.is_whole() { found } else { found.max(all()) }
    }

    /// Whether all fits; `None` if there was no time to find out.
    fn fits(&self, limit: Span) -> Option<bool> {
        let mut items = self.items();
        items.iter_mut().flatten().for_each(|item| item.value = 0.0);
        let mut judge = self.judge(false, limit);
        let found = search(&items, &self.rooms(), (None, f64::NEG_INFINITY), &mut judge);
        (found.best.is_some() || found.complete && self.is_whole()).then_some(found.best.is_some())
    }

    /// The best plan, certified as a `whole` file if that is asked.
    fn best(&self, limit: Span, whole: bool) -> Result<Placement, PlaceError> {
        let (items, rooms) = (self.items(), self.rooms());
        let mut judge = self.judge(whole, limit);
        let found = search(&items, &rooms, (None, f64::NEG_INFINITY), &mut judge);
        let bound = self.bound(found.bound);
        let refused = judge.refused.take().filter(|_| found.best.is_none()).map(|error| error.to_string());
        let mut placement = Placement {
            feasible: false,
            reason: Some(match found.complete && self.is_whole() {
                true if refused.is_some() => Reason::Refused,
                true => Reason::Demand,
                false => Reason::Time,
            }),
            accuracy: None,
            bound: bound.is_finite().then_some(bound),
            spots: vec![None; self.site.config.services.len()],
            changes: Vec::new(),
            complete: None,
            violated: Vec::new(),
            factor: None,
            refused,
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
            let (own, shared) = (Vec::new(), None);
            list.push(Item { value: -FIRST, own, shared, load: 0.0, bytes: 0, changed: true });
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
