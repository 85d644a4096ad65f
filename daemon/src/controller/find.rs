//! Finds a plan: for all, or for as many as fit, and puts it in an order in which it can be carried out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use rt_core::Span;
use weir_plan::config::{ClassConfig, Config, PlacementConfig, ServiceConfig, Unit};
use weir_plan::place::Gone;
use weir_plan::placed;

use super::circle::{Circle, Step, Way};
use super::solver::{Answer, OnClass, Question, StandsAside, ask};
use super::steps::{Hold, Move, order};
use super::{Controller, patience, seen};

/// For so long of virtual time a plan is tried at least.
const TRIED: Span = Span::from_millis(30_000);

/// A plan beside what is served.
pub(super) struct Plan {
    pub(super) answer: Answer,
    pub(super) next: Config,
    /// Services and pipelines that it has otherwise, in the order in which they move; then those that wait for each other in a circle.
    pub(super) moves: Vec<Stop>,
    pub(super) stuck: Vec<String>,
    /// Why those do not move.
    pub(super) because: &'static str,
    /// Those that have lost a worker and whose promises fit no more: they stay where they are.
    pub(super) unkept: Vec<String>,
}

/// A service or a pipeline that moves.
pub(super) struct Stop {
    pub(super) service: String,
    /// A file in which it stands aside until others have moved; where there is none it goes where it is to be.
    pub(super) aside: Option<String>,
}

impl Controller<'_> {
    /// For how long a plan for this demand is to be tried in virtual time first: not at all where the like was seen, nor where a lost
    /// worker leaves no choice and no time.
    pub(super) fn to_try(
        &self,
        (config, placement): (&Config, &PlacementConfig),
        demand: &BTreeMap<String, f64>,
    ) -> Option<Span> {
        let load = || self.seen.load(config, demand);
        let is_known = self.seen.has_lost_any() || self.known.has(&load(), placement.controller.window);
        (!is_known).then(|| placement.period.max(TRIED))
    }

    /// Asks for a plan of some of what there is: without these services and devices.
    fn ask(
        &self,
        (config, placement): (&Config, &PlacementConfig),
        demand: &BTreeMap<String, f64>,
        leave: &BTreeSet<String>,
        devices: &[Gone],
    ) -> Result<Answer> {
        let text = placed::without_services(config.text(), leave)?;
        let of =
            |name: &str| name.split_once('/').map_or(name.to_owned(), |(pipeline, _)| pipeline.to_owned());
        let asked = demand.clone().into_iter().chain(self.seen.factors(config));
        let question = Question {
            program: std::env::current_exe().context("this program's own path")?,
            file: &config.path,
            text: &text,
            gone: devices,
            demand: &asked.filter(|(name, _)| !leave.contains(&of(name))).collect(),
            limit: placement.limit,
            patience: patience(placement.limit),
            simulate: self.to_try((config, placement), demand),
            folder: &placed::folder(config),
        };
        ask(&question, || self.overview.served.is_draining())
    }

    /// The plan for all; where not every promise fits, for all but as few as may be of those that have lost a worker. Who has lost none
    /// is never left out for one that has.
    fn answer(
        &self,
        both: (&Config, &PlacementConfig),
        demand: &BTreeMap<String, f64>,
    ) -> Result<(Answer, Vec<String>)> {
        let mut unkept: BTreeSet<String> = BTreeSet::new();
        let mut devices = self.seen.gone().to_vec();
        if demand.is_empty() {
            return Ok((Answer { feasible: true, ..Answer::default() }, Vec::new()));
        }
        loop {
            let answer = self.ask(both, demand, &unkept, &devices)?;
            let lost = |name: &str| self.seen.has_lost(name) && !unkept.contains(name);
            let missing = |name: &str| {
                answer.violated.iter().find(|of| of.service == name).map_or(0.0, |of| of.missing)
            };
            let next =
                demand.keys().filter(|name| lost(name)).max_by(|a, b| missing(a).total_cmp(&missing(b)));
            let fits = answer.feasible || answer.reason.as_deref() != Some("promises");
            match next.filter(|_| !fits).cloned() {
                Some(next) if unkept.len() + 1 < demand.len() => {
                    devices.extend(self.seen.held(both.0, &next));
                    unkept.insert(next);
                }
                // Nobody is left to be placed.
                Some(next) => {
                    unkept.insert(next);
                    return Ok((Answer::default(), unkept.into_iter().collect()));
                }
                None => return Ok((answer, unkept.into_iter().collect())),
            }
        }
    }

    /// Asks for a plan, and puts it in order.
    pub(super) fn find(
        &self,
        config: &Config,
        placement: &PlacementConfig,
        demand: &BTreeMap<String, f64>,
    ) -> Result<Plan> {
        let (answer, unkept) = self.answer((config, placement), demand)?;
        let text = answer.configuration.as_deref().unwrap_or(config.text());
        let next = Config::parse(&config.path, text).context("the plan is no configuration")?;
        let (before, after) = (seen::holds(config), seen::holds(&next));
        let candidates: Vec<_> = seen::placed(config).collect();
        let holds: Vec<Vec<Hold>> = candidates.iter().map(|service| before[&*service.name].clone()).collect();
        let mut moves = Vec::new();
        for (i, service) in candidates.iter().enumerate() {
            let name = &*service.name;
            let then = next.services.iter().find(|then| then.name == name);
            let (Some(to), Some(then)) = (after.get(name).cloned(), then) else { continue };
            let models = |of: &ServiceConfig| of.running().map(|runs| runs.model.clone()).collect::<Vec<_>>();
            if holds[i] != to || models(service) != models(then) {
                moves.push(Move { service: i, to, urgent: self.seen.is_urgent(name) });
            }
        }
        let devices: Vec<_> = placement.classes.iter().map(|class| class.devices).collect();
        let first = order(&holds, &moves, &devices);
        let name = |one: usize| candidates[moves[one].service].name.clone();
        let mut stuck: Vec<String> = (0..moves.len()).filter(|one| !first.contains(one)).map(name).collect();
        let stops = first.iter().map(|&one| Stop { service: name(one), aside: None });
        let (mut stops, mut because): (Vec<Stop>, _) = (stops.collect(), "");
        if !stuck.is_empty() {
            let asides: Vec<Vec<Aside<'_>>> =
                moves.iter().map(|of| asides(placement, &answer, &candidates[of.service].name)).collect();
            let least: Vec<Vec<Vec<(usize, usize)>>> =
                asides.iter().map(|all| all.iter().map(|(needs, _)| needs.clone()).collect()).collect();
            let numbers: Vec<Vec<usize>> =
                placement.classes.iter().map(|class| self.numbers(class)).collect();
            let circle =
                Circle { holds: &holds, moves: &moves, least: &least, devices: &devices, numbers: &numbers };
            match circle.way() {
                Way::Found(steps) => {
                    let stop = |step: Step| {
                        let service = name(step.one);
                        let aside = step.aside.map(|(way, holds)| {
                            let (_, of) = &asides[step.one][way];
                            let units = units(placement, of, &holds);
                            placed::on_units(&of.configuration, &service, &units)
                        });
                        Ok(Stop { aside: aside.transpose()?, service })
                    };
                    stops = steps.into_iter().map(stop).collect::<Result<_>>()?;
                    stuck.clear();
                }
                Way::None if !answer.more_asides => {
                    because = "and whoever stepped aside would not keep its promise";
                }
                Way::None | Way::Unknown => {
                    because = "and no way to step aside was found among those that were looked at";
                }
            }
        }
        Ok(Plan { moves: stops, stuck, because, unkept, answer, next })
    }

    /// The numbers of the devices of a class that are there still; none where it only counts.
    fn numbers(&self, class: &ClassConfig) -> Vec<usize> {
        let is_gone = |number: usize| {
            let mut gone = self.seen.gone().iter();
            gone.any(|gone| gone.class == class.name && gone.number == Some(number))
        };
        class.units().into_iter().filter(|&number| !is_gone(number)).collect()
    }
}

/// A place to stand aside: how many devices it takes of which classes, and what was found.
type Aside<'a> = (Vec<(usize, usize)>, &'a StandsAside);

/// Where a service or a pipeline may stand aside.
fn asides<'a>(placement: &PlacementConfig, answer: &'a Answer, name: &str) -> Vec<Aside<'a>> {
    let needs = |of: &StandsAside| {
        let mut needs = BTreeMap::new();
        for OnClass { class, devices } in &of.on {
            let class = placement.classes.iter().position(|one| one.name == *class)?;
            *needs.entry(class).or_insert(0) += devices;
        }
        Some(needs.into_iter().collect())
    };
    let own = answer.asides.iter().filter(|of| of.service == name);
    own.filter_map(|of| Some((needs(of)?, of))).collect()
}

/// The devices of what runs models there, of a pipeline of each stage: those that are held of its class, one after the other.
fn units(placement: &PlacementConfig, of: &StandsAside, holds: &[Hold]) -> Vec<Vec<Unit>> {
    let mut left = holds.to_vec();
    let units = of.on.iter().map(|OnClass { class, devices }| {
        let hold = left.iter_mut().find(|hold| placement.classes[hold.class].name == *class);
        hold.map_or_else(Vec::new, |hold| {
            let count = hold.numbers.len().min(*devices);
            let class = &placement.classes[hold.class];
            hold.numbers.drain(..count).map(|number| class.unit(number)).collect()
        })
    });
    units.collect()
}
