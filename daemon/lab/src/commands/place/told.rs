//! What is told of a box that was placed: as JSON, or as a table.

use anyhow::Result;
use rt_core::Span;
use serde::Serialize;
use weir_os::pipe::say;
use weir_plan::place::{PROVEN, Placement, Reason, Site, Violated};
use weir_plan::plan::ServicePlan;

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
    changes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violated: Vec<Violated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor_bound: Option<f64>,
    configuration: Option<String>,
}

/// A service where it was put.
#[derive(Serialize)]
struct Served {
    name: String,
    class: String,
    workers: usize,
    shared: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cores: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gpus: Vec<usize>,
    demand: f64,
    model: String,
    variants: Vec<String>,
    batch: usize,
    batch_ms: f64,
    accuracy: f64,
    share: Vec<Share>,
}

/// The part of a service's mean load that a model answers.
#[derive(Serialize)]
struct Share {
    model: String,
    accuracy: f64,
    share: f64,
}

impl Told {
    pub(super) fn new(site: &Site, placement: &Placement, took: Span, _limit: Span) -> Result<Self> {
        let plans = placement.complete.iter().flat_map(|complete| &complete.plan.services);
        let services = plans.zip(&placement.spots).zip(site.demand());
        let services = services.filter_map(|((plan, spot), &demand)| {
            let spot = spot.as_ref()?;
            let class = &site.placement().classes[spot.placed.class];
            let (cores, gpus) = match class.gpus.is_empty() {
                true => (spot.units.clone(), Vec::new()),
                false => (Vec::new(), spot.units.clone()),
            };
            Some(Served {
                cores,
                gpus,
                ..Served::new(plan, (&class.name, demand), &spot.shares, spot.accuracy)
            })
        });
        Ok(Self {
            feasible: placement.feasible,
            reason: placement.reason,
            accuracy: placement.accuracy,
            bound: placement.bound,
            gap: placement.accuracy.zip(placement.bound).map(|(accuracy, bound)| (bound - accuracy).max(0.0)),
            seconds: took.as_secs_f64(),
            services: services.collect(),
            changes: placement.changes.clone(),
            violated: placement.violated.clone(),
            factor: placement.factor.map(|(fits, _)| fits),
            factor_bound: placement.factor.map(|(_, fails)| fails),
            configuration: placement.complete.as_ref().map(|complete| complete.text.clone()),
        })
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
            }
            Some(Reason::Time) => {
                say!("no plan was found in time, and none was ruled out: a longer --limit may tell");
            }
        }
        let (Some(accuracy), Some(gap)) = (self.accuracy, self.gap) else { return };
        match gap <= PROVEN {
            true => say!("effective accuracy {accuracy:.3}, and no plan is better"),
            false => say!("effective accuracy {accuracy:.3}; no plan has more than {:.3}", accuracy + gap),
        }
        say!(
            "\n{:<12} {:<14} {:>8} {:>10}  {:<24} {:>5} {:>9}",
            "service",
            "on",
            "demand/s",
            "accuracy",
            "model",
            "batch",
            "of load"
        );
        for served in &self.services {
            let units = match (&served.cores[..], &served.gpus[..]) {
                ([], []) => format!("{} × {}", served.workers, served.class),
                (list, []) | (_, list) => format!("{} {list:?}", served.class),
            };
            for (i, share) in served.share.iter().enumerate() {
                let first = |text: String| if i == 0 { text } else { String::new() };
                say!(
                    "{:<12} {:<14} {:>8} {:>10}  {:<24} {:>5} {:>8.1}%",
                    first(served.name.clone()),
                    first(units.clone()),
                    first(format!("{:.1}", served.demand)),
                    first(format!("{:.3}", served.accuracy)),
                    share.model,
                    first(served.batch.to_string()),
                    100.0 * share.share
                );
            }
        }
        if !self.changes.is_empty() {
            say!("runs otherwise than the file says: {}", self.changes.join(", "));
        }
    }
}

impl Served {
    fn new(plan: &ServicePlan, (class, demand): (&str, f64), shares: &[f64], accuracy: f64) -> Self {
        let share = |(variant, &share): (&weir_plan::plan::VariantPlan, &f64)| Share {
            model: variant.spec.name.clone(),
            accuracy: 100.0 * variant.spec.accuracy,
            share,
        };
        let names = plan.variants.iter().map(|variant| variant.spec.name.clone());
        Self {
            name: plan.config.name.clone(),
            class: class.to_owned(),
            workers: plan.worker_count(),
            shared: plan.shared.is_some(),
            cores: Vec::new(),
            gpus: Vec::new(),
            demand,
            model: plan.spec.name.clone(),
            variants: names.skip(1).collect(),
            batch: plan.workers().batch,
            batch_ms: plan.workers().batch_time().as_secs_f64() * 1e3,
            accuracy,
            share: plan.variants.iter().zip(shares).map(share).collect(),
        }
    }
}
