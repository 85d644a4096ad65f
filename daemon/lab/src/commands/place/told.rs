//! What is told of a box that was placed: as JSON, or as a table.

mod served;

use anyhow::Result;
use rt_core::{Instant, Span};
use serde::Serialize;
use tracing::warn;
use weir_os::clock;
use weir_os::pipe::say;
use weir_plan::config::{Placed, ServiceConfig};
use weir_plan::place::{PROVEN, Placement, Reason, Site, Spot, Violated};
use weir_plan::plan::ServicePlan;
use weir_plan::text::warn_of;

use super::trial::Trial;
use served::{Keeps, Served, Whole};

/// All of it.
#[derive(Serialize)]
pub(super) struct Told {
    pub(super) feasible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    accuracy: Option<f64>,
    bound: Option<f64>,
    gap: Option<f64>,
    seconds: f64,
    services: Vec<Served>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pipelines: Vec<Whole>,
    changes: Vec<String>,
    prices: Vec<Price>,
    more: Vec<More>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violated: Vec<Violated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor_bound: Option<f64>,
    /// Why what fits could not be served so.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// Servers that nothing was placed on, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unfit: Vec<String>,
    /// In what this machine and its engines differ from those that were profiled.
    machine_differs: Vec<String>,
    /// Whether the time was over before the part of the demand that fits was known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut_off: bool,
    configuration: Option<String>,
    /// Where what changes may stand aside while others move, as the daemon asks, and whether there was no time to find all such places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    asides: Vec<StandsAside>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more_asides: bool,
    /// What became of the demand in virtual time, where that was asked and there was time for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trial: Option<Trial>,
}

/// Where a service or a pipeline may stand aside: on the fewest devices that keep its promise, its own or those of each stage.
#[derive(Serialize)]
struct StandsAside {
    service: String,
    on: Vec<OnClass>,
    configuration: String,
}

/// So many devices of a class.
#[derive(Serialize)]
struct OnClass {
    class: String,
    devices: usize,
}

/// What a promise costs.
#[derive(Serialize)]
struct Price {
    service: String,
    /// By how many points the mean answer would be better without it; none where there was no time to find out.
    points: Option<f64>,
}

/// What one more device of a class would bring.
#[derive(Serialize)]
struct More {
    class: String,
    /// By how many points the mean answer would be better; where not all fits, how good it would be; none where there was no time to
    /// find out, or not all would fit.
    points: Option<f64>,
}

impl Told {
    pub(super) fn new(site: &Site, placement: &Placement, took: Span, limit: Span) -> Result<Self> {
        let plans = placement.complete.iter().flat_map(|complete| &complete.plan.services);
        let plans = plans.zip(&placement.spots).zip(site.demand());
        let placed: Vec<(&ServicePlan, &Spot, f64)> =
            plans.filter_map(|((plan, spot), &demand)| Some((plan, spot.as_ref()?, demand))).collect();
        let services = placed.iter().flat_map(|&(plan, spot, demand)| {
            let is_pipeline = !plan.stages().is_empty();
            let means = if is_pipeline { plan.config.means() } else { vec![1.0] };
            let parts = plan.running().zip(&spot.parts).zip(means);
            parts.map(move |((runs, part), mean)| {
                let class = &site.placement().classes[part.placed.class];
                let served = Served::new(runs, (class, demand * mean), part);
                match is_pipeline {
                    false => Served { accuracy: spot.accuracy, keeps: Keeps::of(plan), ..served },
                    true => Served { name: plan.config.name.clone(), stage: Some(served.name), ..served },
                }
            })
        });
        let services: Vec<Served> = services.collect();
        let pipelines = placed.iter().filter(|(plan, ..)| !plan.stages().is_empty());
        let pipelines = pipelines.map(|&(plan, spot, demand)| Whole {
            name: plan.config.name.clone(),
            demand,
            accuracy: spot.accuracy,
            keeps: Keeps::of(plan),
        });
        let pipelines: Vec<Whole> = pipelines.collect();
        let end = clock::now() + limit;
        let (prices, more) = (prices(site, placement, end)?, more(site, placement, end)?);
        Ok(Self {
            prices,
            more,
            feasible: placement.feasible,
            reason: placement.reason,
            accuracy: placement.accuracy,
            bound: placement.bound,
            gap: placement.accuracy.zip(placement.bound).map(|(accuracy, bound)| (bound - accuracy).max(0.0)),
            seconds: took.as_secs_f64(),
            services,
            pipelines,
            changes: placement.changes.clone(),
            violated: placement.violated.clone(),
            factor: placement.factor.map(|(fits, _)| fits),
            factor_bound: placement.factor.map(|(_, fails)| fails),
            refused: placement.refused.clone(),
            unfit: Vec::new(),
            machine_differs: placement
                .complete
                .as_ref()
                .map_or_else(Vec::new, |complete| complete.plan.mismatches()),
            cut_off: placement.is_cut_off(),
            configuration: placement.complete.as_ref().map(|complete| complete.text.clone()),
            asides: Vec::new(),
            more_asides: false,
            trial: None,
        })
    }

    /// The same with where those that change may stand aside, if there are several, as far as that is found until `end`.
    pub(super) fn with_asides(mut self, site: &Site, end: Instant) -> Result<Self> {
        let (changes, classes) = (&self.changes, &site.placement().classes);
        for (place, service) in site.config().services.iter().enumerate() {
            if changes.len() < 2 || !changes.contains(&service.name) {
                continue;
            }
            let (asides, complete) = site.asides(place, end)?;
            self.more_asides |= !complete;
            let on = |placed: &Placed| OnClass {
                class: classes[placed.class].name.clone(),
                devices: placed.devices,
            };
            self.asides.extend(asides.into_iter().map(|aside| StandsAside {
                service: service.name.clone(),
                on: aside.placed.iter().map(on).collect(),
                configuration: aside.text,
            }));
        }
        Ok(self)
    }

    /// Warns of what is not as it was measured.
    pub(super) fn warn(&self) {
        for unfit in &self.unfit {
            warn!("nothing is placed on a server of {unfit}");
        }
        warn_of(&self.machine_differs);
    }

    pub(super) fn print(&self) {
        match self.reason {
            None => say!("all demand is served, every promise is kept"),
            Some(Reason::Promises) => {
                say!("the promises do not fit; if as little as possible is missing, it is of");
                for Violated { service, missing } in &self.violated {
                    say!("  {service}: {:.1} % of what keeps it", missing * 100.0);
                }
            }
            Some(Reason::Demand) => {
                let (fits, fails) = (self.factor.unwrap_or(0.0), self.factor_bound.unwrap_or(1.0));
                say!("the promises fit, the demand does not: {fits:.4} of it does, {fails:.4} is too much");
                if self.cut_off {
                    say!(
                        "the time was over before it was known how much of what is between them fits: a longer --limit may tell"
                    );
                }
            }
            Some(Reason::Refused) => {
                say!("what would fit is refused: {}", self.refused.as_deref().unwrap_or_default());
            }
            Some(Reason::Time) => {
                say!("no plan was found in time, and none was ruled out: a longer --limit may tell");
                if let Some(refused) = &self.refused {
                    say!("what was tried last is refused: {refused}");
                }
            }
        }
        let Some(accuracy) = self.accuracy else { return self.print_promises() };
        match self.gap {
            Some(gap) if gap <= PROVEN => say!("effective accuracy {accuracy:.3}, and no plan is better"),
            Some(gap) => {
                say!("effective accuracy {accuracy:.3}; no plan has more than {:.3}", accuracy + gap);
            }
            None => say!("effective accuracy {accuracy:.3}"),
        }
        let units: Vec<String> = self.services.iter().map(Served::units).collect();
        let width = units.iter().map(|units| units.chars().count()).fold(14, usize::max);
        say!(
            "\n{:<12} {:<width$} {:>8} {:>10}  {:<24} {:>5} {:>9}",
            "service",
            "on",
            "demand/s",
            "accuracy",
            "model",
            "batch",
            "of load"
        );
        for (served, units) in self.services.iter().zip(units) {
            for (i, share) in served.share.iter().enumerate() {
                let first = |text: String| if i == 0 { text } else { String::new() };
                say!(
                    "{:<12} {:<width$} {:>8} {:>10}  {:<24} {:>5} {:>8.1}%",
                    first(served.full_name()),
                    first(units.clone()),
                    first(format!("{:.1}", served.demand)),
                    first(format!("{:.3}", served.accuracy)),
                    share.model,
                    first(served.batch.to_string()),
                    100.0 * share.share
                );
            }
        }
        self.print_promises();
        if !self.changes.is_empty() {
            say!("runs otherwise than the file says: {}", self.changes.join(", "));
        }
    }
}

impl Told {
    /// What keeps each promise, what it costs, and what limits the mean answer.
    fn print_promises(&self) {
        say!("");
        for Whole { name, demand, accuracy, .. } in &self.pipelines {
            say!(
                "pipeline {name}: {demand:.1} sources/s, of which {accuracy:.3} % become what is right to the end"
            );
        }
        let services = self.services.iter().map(|served| (&served.name, &served.keeps));
        for (name, keeps) in services.chain(self.pipelines.iter().map(|whole| (&whole.name, &whole.keeps))) {
            let Some(Keeps { needs_per_s, gets_per_s, margin_ms }) = keeps else { continue };
            let margin = margin_ms
                .map_or_else(String::new, |margin| format!(", {margin:.1} ms to spare where it is tightest"));
            let price = self.prices.iter().find(|price| price.service == *name);
            let price = match price.map(|price| price.points) {
                Some(Some(points)) if points > PROVEN => format!("; it costs {points:.3} points"),
                Some(Some(_)) => "; it costs nothing".to_owned(),
                _ => String::new(),
            };
            say!(
                "promise of {name}: {needs_per_s:.1} requests/s must be served, {gets_per_s:.1} can be{margin}{price}"
            );
        }
        for More { class, points } in &self.more {
            match points {
                Some(points) if !self.feasible => say!("with one more {class} all fits, with {points:.3}"),
                Some(points) if *points > PROVEN => say!("one more {class} brings {points:.3} points"),
                Some(_) => say!("one more {class} brings nothing"),
                None => {}
            }
        }
    }
}

/// What each promise costs, as far as there is time to find out.
fn prices(site: &Site, placement: &Placement, end: Instant) -> Result<Vec<Price>> {
    let Some(best) = best(placement) else { return Ok(Vec::new()) };
    let services = site.config().services.iter().enumerate();
    let promised = services.filter(|(_, service)| service.is_placed() && is_promised(service));
    let price = |(place, service): (usize, &ServiceConfig)| {
        let without = accuracy(&site.unpromised(place), end)?;
        let points = without.map(|without| (without - best).max(0.0));
        Ok(Price { service: service.name.clone(), points })
    };
    promised.map(price).collect()
}

/// What one more device of each class would bring, as far as there is time to find out.
fn more(site: &Site, placement: &Placement, end: Instant) -> Result<Vec<More>> {
    // More devices change nothing about that.
    if placement.refused.is_some() {
        return Ok(Vec::new());
    }
    let best = best(placement).unwrap_or(0.0);
    let classes = site.placement().classes.iter().enumerate();
    let more = classes.map(|(place, class)| {
        let with = accuracy(&site.with_one_more(place), end)?;
        Ok(More { class: class.name.clone(), points: with.map(|with| (with - best).max(0.0)) })
    });
    more.collect()
}

/// What the best plan has, if that is known; it may be a hair above that of the plan with fewest changes.
fn best(placement: &Placement) -> Option<f64> {
    let accuracy = placement.accuracy.filter(|_| placement.feasible)?;
    Some(placement.bound.filter(|bound| bound - accuracy <= 2.0 * PROVEN).unwrap_or(accuracy))
}

fn accuracy(site: &Site, end: Instant) -> Result<Option<f64>> {
    let now = clock::now();
    if now >= end { Ok(None) } else { Ok(site.accuracy(end.since(now))?) }
}

fn is_promised(service: &ServiceConfig) -> bool {
    !service.constraints.is_empty() || service.reserved.iter().any(|stream| stream.spec.demand().is_some())
}
