//! The places where a pipeline may run: for each stage a model and devices of a class, so that the promise holds as all stages together
//! are planned; or for all of them the devices of a class that is shared, where each batch runs all stages.
//!
//! Of the ways to run all stages the most accurate come first; of each, devices are added one by one until the plan of the pipeline
//! holds. What has as many devices of every class as something more accurate, or more, is left out: nothing better is lost by it.

mod shared;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use rt_core::{Instant, MAX_WORKERS};
use weir_engine::ModelSpec;
use weir_os::clock;

use super::offers::Offer;
use super::{Part, Site, Spot};
use crate::config::{Placed, ServiceConfig};
use crate::plan::{PlanError, ServicePlan, stage_entries, stage_sizes};

/// Rates are compared with so much more than there is by rounding.
const EQUAL: f64 = 1e-9;

/// Of pipelines, by their places in the file, that were placed so: how many sources a second each stage carries, if the promise holds.
pub(super) type Planned = HashMap<(usize, Vec<Placed>), Option<Vec<f64>>>;

/// What offers of a pipeline are made of.
pub(super) struct Staged<'a> {
    pub(super) site: &'a Site,
    /// By its place in the file.
    pub(super) pipeline: usize,
    /// Mean sources a second that are planned for.
    pub(super) demand: f64,
    /// When it is looked no further.
    pub(super) end: Instant,
}

/// What was found.
pub(super) struct Looked {
    pub(super) offers: Vec<Offer>,
    /// What was not looked at is no more accurate than that, in points; none if all was.
    pub(super) unseen: Option<f64>,
}

impl Looked {
    /// Both of them.
    pub(super) fn and(self, other: Self) -> Self {
        let unseen = [self.unseen, other.unseen].into_iter().flatten().reduce(f64::max);
        Self { offers: [self.offers, other.offers].concat(), unseen }
    }
}

/// A way to run a stage.
struct Way<'a> {
    class: usize,
    model: usize,
    spec: &'a ModelSpec,
    /// Fewer devices cannot keep up in the long run.
    least: usize,
}

impl<'a> Staged<'a> {
    /// All on devices of its own that are worth a look: of those with as many devices of each class the most accurate, and where the file
    /// has it.
    ///
    /// # Errors
    /// If the profile lacks a model.
    pub(super) fn all(&self) -> Result<Looked, PlanError> {
        let rooms: Vec<usize> = self.site.placement.classes.iter().map(|class| class.devices).collect();
        let mut looked = self.within(&rooms)?;
        let there = self.config().places().filter(|_| !self.config().is_fused()).filter(|there| {
            let same = |offer: &Offer| offer.spot.parts.iter().map(|part| &part.placed).eq(there);
            used(there, rooms.len()).iter().zip(&rooms).all(|(used, room)| used <= room)
                && !looked.offers.iter().any(same)
        });
        looked.offers.extend(there.map(|there| self.offer(&there)).transpose()?.flatten());
        Ok(looked)
    }

    /// The same of which each keeps a part of the promise, by as many devices as there are and fewer than needed.
    ///
    /// # Errors
    /// If the profile lacks a model.
    pub(super) fn partial(&self) -> Result<Looked, PlanError> {
        let rooms: Vec<usize> = self.site.placement.classes.iter().map(|class| class.devices).collect();
        let more: Vec<usize> = rooms.iter().map(|devices| 2 * devices + 8).collect();
        let mut looked = self.within(&more)?;
        let whole = std::mem::take(&mut looked.offers);
        for offer in whole {
            let mut parts = offer.spot.parts.clone();
            let all: usize = parts.iter().map(|part| part.placed.devices).sum();
            // One device after the other is taken away, of the class that has too few first, and never the first stage's last.
            while parts[0].placed.devices > 0 {
                let placed: Vec<Placed> = parts.iter().map(|part| part.placed.clone()).collect();
                let used = used(&placed, rooms.len());
                let left: usize = used.iter().sum();
                let over = (0..rooms.len()).find(|&class| used[class] > rooms[class]);
                if over.is_none() {
                    let spot = Spot { parts: parts.clone(), ..offer.spot.clone() };
                    looked.offers.push(Offer {
                        spot,
                        missing: 1.0 - left as f64 / all as f64,
                        ..offer.clone()
                    });
                }
                let from = parts.iter().rposition(|part| {
                    part.placed.devices > 0 && over.is_none_or(|class| part.placed.class == class)
                });
                let Some(from) = from else { break };
                parts[from].placed.devices -= 1;
            }
        }
        Ok(looked)
    }

    fn is_shared(&self, class: usize) -> bool {
        self.site.placement.classes[class].shared
    }

    fn config(&self) -> &ServiceConfig {
        &self.site.config.services[self.pipeline]
    }

    /// Those that fit so many devices of each class.
    fn within(&self, rooms: &[usize]) -> Result<Looked, PlanError> {
        let ways = self.own_ways()?;
        let mut offers = Vec::new();
        let unseen = self.best_first(&ways, |chosen| self.add(chosen, rooms, &mut offers))?;
        Ok(Looked { offers, unseen })
    }

    /// Looks at all choices of a way for each stage, the most accurate first, until there is no time to look at one: how accurate that one
    /// is, if there is one.
    fn best_first(
        &self,
        ways: &[Vec<Way<'_>>],
        mut look_at: impl FnMut(&[&Way<'_>]) -> Result<bool, PlanError>,
    ) -> Result<Option<f64>, PlanError> {
        if ways.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        // Each next one has one stage with the next of its models.
        let first = vec![0; ways.len()];
        let key = |picks: &[usize]| {
            self.accuracy(ways.iter().zip(picks).map(|(ways, &pick)| ways[pick].spec)).to_bits()
        };
        let mut open = BinaryHeap::from([(key(&first), Reverse(first.clone()))]);
        let mut known = BTreeSet::from([first]);
        while let Some((accuracy, Reverse(picks))) = open.pop() {
            let chosen: Vec<&Way<'_>> = ways.iter().zip(&picks).map(|(ways, &pick)| &ways[pick]).collect();
            if !look_at(&chosen)? {
                return Ok(Some(f64::from_bits(accuracy)));
            }
            for stage in (0..ways.len()).filter(|&stage| picks[stage] + 1 < ways[stage].len()) {
                let mut next = picks.clone();
                next[stage] += 1;
                if known.insert(next.clone()) {
                    open.push((key(&next), Reverse(next)));
                }
            }
        }
        Ok(None)
    }

    /// Adds those with the fewest devices that run the stages so; whether there was time to look at all.
    fn add(&self, chosen: &[&Way<'_>], rooms: &[usize], offers: &mut Vec<Offer>) -> Result<bool, PlanError> {
        let mut level = BTreeSet::from([chosen.iter().map(|way| way.least).collect::<Vec<_>>()]);
        while !level.is_empty() {
            let mut next = BTreeSet::new();
            for counts in level {
                let placed = |(way, &devices): (&&Way<'_>, &usize)| Placed {
                    class: way.class,
                    devices,
                    models: vec![way.model],
                };
                let placed: Vec<Placed> = chosen.iter().zip(&counts).map(placed).collect();
                let needs = used(&placed, rooms.len());
                let beaten = |offer: &Offer| {
                    let parts: Vec<Placed> =
                        offer.spot.parts.iter().map(|part| part.placed.clone()).collect();
                    used(&parts, rooms.len()).iter().zip(&needs).all(|(theirs, ours)| theirs <= ours)
                };
                // With more devices it is no better.
                if needs.iter().zip(rooms).any(|(needs, room)| needs > room) || offers.iter().any(beaten) {
                    continue;
                }
                if clock::now() > self.end {
                    return Ok(false);
                }
                match self.offer(&placed)? {
                    Some(offer) => offers.push(offer),
                    None => {
                        for stage in (0..counts.len()).filter(|&stage| counts[stage] < MAX_WORKERS) {
                            let mut more = counts.clone();
                            more[stage] += 1;
                            next.insert(more);
                        }
                    }
                }
            }
            level = next;
        }
        Ok(true)
    }

    /// The ways to run each stage on some of the classes, by falling accuracy.
    fn ways(&self, on: impl Fn(usize) -> bool) -> Vec<Vec<Way<'a>>> {
        let fits = |class: usize, spec: &ModelSpec| {
            spec.file_bytes() <= self.site.placement.classes[class].memory.unwrap_or(u64::MAX)
        };
        let ways = |running: &'a Vec<super::offers::Running>| {
            let of = running.iter().filter(|of| on(of.class));
            let of = of.flat_map(|of| of.models.iter().map(|(model, spec)| (of.class, *model, spec)));
            let of = of.filter(|(class, _, spec)| fits(*class, spec));
            let mut ways: Vec<_> =
                of.map(|(class, model, spec)| Way { class, model, spec, least: 1 }).collect();
            ways.sort_by(|a, b| b.spec.accuracy.total_cmp(&a.spec.accuracy));
            ways
        };
        self.site.running[self.pipeline].iter().map(ways).collect()
    }

    /// The ways to run each stage on devices of its own, with how many it needs at least.
    fn own_ways(&self) -> Result<Vec<Vec<Way<'a>>>, PlanError> {
        let (config, classes) = (self.config(), &self.site.placement.classes);
        let mut all = self.ways(|class| !self.is_shared(class));
        if all.iter().any(Vec::is_empty) {
            return Ok(all);
        }
        let demand = config.reserved.iter().filter_map(|stream| stream.spec.demand());
        let mandatory: f64 = demand.map(|(density, arrivals)| density.as_f64() * arrivals.rate_per_s()).sum();
        let needs = config.means().into_iter().zip(config.most());
        let needs: Vec<f64> =
            needs.map(|(mean, most)| (self.demand * mean).max(mandatory * most as f64)).collect();
        for i in 0..all.iter().map(Vec::len).max().unwrap_or(0) {
            let picks: Vec<usize> = all.iter().map(|ways| i % ways.len()).collect();
            let chosen = || all.iter().zip(&picks).map(|(ways, &pick)| &ways[pick]);
            let placed = chosen().map(|way| Placed { class: way.class, devices: 1, models: vec![way.model] });
            let Some(config) = config.staged_on(classes, &placed.collect::<Vec<_>>()) else { continue };
            let specs: Vec<ModelSpec> = chosen().map(|way| way.spec.clone()).collect();
            let sizes = stage_sizes(&config, &stage_entries(&config, &specs, &self.site.profile)?)?;
            let peaks =
                sizes.iter().map(|all| all.iter().map(|one| one.capacity_per_s()).fold(0.0, f64::max));
            let least: Vec<f64> =
                needs.iter().zip(peaks).map(|(need, peak)| (need / peak - EQUAL).ceil()).collect();
            for ((ways, &pick), least) in all.iter_mut().zip(&picks).zip(least) {
                ways[pick].least = (least as usize).max(1);
            }
        }
        Ok(all)
    }

    /// In points.
    fn accuracy<'b>(&self, specs: impl Iterator<Item = &'b ModelSpec>) -> f64 {
        100.0 * self.config().accuracy_of(&specs.map(|spec| spec.accuracy).collect::<Vec<_>>())
    }

    /// It, placed so; none if the promise does not hold there, or not all can be answered.
    fn offer(&self, placed: &[Placed]) -> Result<Option<Offer>, PlanError> {
        let Some(specs) = self.site.specs(self.pipeline, placed) else { return Ok(None) };
        let Some(rates) = self.planned(placed, &specs)? else { return Ok(None) };
        if rates.iter().any(|rate| self.demand > rate * (1.0 + EQUAL)) {
            return Ok(None);
        }
        let part = |(placed, rate): (&Placed, &f64)| Part {
            placed: placed.clone(),
            units: Vec::new(),
            shares: vec![1.0],
            busy: vec![self.demand / rate],
        };
        let spot = Spot {
            accuracy: self.accuracy(specs.iter()),
            parts: placed.iter().zip(&rates).map(part).collect(),
        };
        Ok(Some(Offer { spot, load: 0.0, bytes: 0, missing: 0.0 }))
    }

    /// How many sources a second each stage carries, if the promise holds there.
    fn planned(&self, placed: &[Placed], specs: &[ModelSpec]) -> Result<Option<Vec<f64>>, PlanError> {
        let key = (self.pipeline, placed.to_vec());
        if let Some(known) = self.site.planned.borrow().get(&key) {
            return Ok(known.clone());
        }
        let config = self.config().staged_on(&self.site.placement.classes, placed);
        let plan = config.map(|config| ServicePlan::of_pipeline(&config, specs, &self.site.profile));
        let rates = match plan {
            Some(Ok(plan)) => {
                let stages = plan.pipeline.iter().flat_map(|pipeline| &pipeline.stages);
                Some(
                    stages
                        .zip(plan.config.means())
                        .map(|(stage, mean)| stage.runs.capacity() / mean)
                        .collect(),
                )
            }
            Some(Err(PlanError::Profile(error))) => return Err(error.into()),
            _ => None,
        };
        self.site.planned.borrow_mut().insert(key, Option::clone(&rates));
        Ok(rates)
    }
}

/// Of each class how many devices they have.
pub(super) fn used(placed: &[Placed], classes: usize) -> Vec<usize> {
    let mut used = vec![0; classes];
    placed.iter().for_each(|placed| used[placed.class] += placed.devices);
    used
}

#[cfg(test)]
mod tests;
