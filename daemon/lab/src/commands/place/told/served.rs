//! What is told of each service, pipeline and stage that was placed, and of what keeps its promise.

use rt_core::Span;
use serde::Serialize;
use weir_plan::config::{ClassConfig, Unit};
use weir_plan::place::Part;
use weir_plan::plan::{ServicePlan, VariantPlan};

/// What keeps a promise, and what there is of it.
#[derive(Serialize)]
pub(super) struct Keeps {
    /// Requests a second that must be served.
    pub(super) needs_per_s: f64,
    /// Requests a second that the workers serve in batches of the promise.
    pub(super) gets_per_s: f64,
    /// At the tightest instant, how much earlier than need be all is answered.
    pub(super) margin_ms: Option<f64>,
}

/// A pipeline as a whole; its stages are among the services.
#[derive(Serialize)]
pub(super) struct Whole {
    pub(super) name: String,
    /// Sources a second.
    pub(super) demand: f64,
    /// Of what becomes of a source on the way to each last stage all is right; the mean over these.
    pub(super) accuracy: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keeps: Option<Keeps>,
}

/// A service where it was put, or a stage of a pipeline.
#[derive(Serialize)]
pub(super) struct Served {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<String>,
    pub(super) class: String,
    pub(super) workers: usize,
    pub(super) shared: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cores: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gpus: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) servers: Vec<String>,
    pub(super) demand: f64,
    pub(super) model: String,
    pub(super) variants: Vec<String>,
    pub(super) batch: usize,
    pub(super) batch_ms: f64,
    pub(super) accuracy: f64,
    pub(super) share: Vec<Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keeps: Option<Keeps>,
}

/// The part of a service's mean load that a model answers.
#[derive(Serialize)]
pub(super) struct Share {
    pub(super) model: String,
    pub(super) accuracy: f64,
    pub(super) share: f64,
}

impl Keeps {
    pub(super) fn of(plan: &ServicePlan) -> Option<Self> {
        let demands = plan.config.reserved.iter().filter_map(|stream| stream.spec.demand());
        let needs = demands.map(|(density, arrivals)| density.as_f64() * arrivals.rate_per_s());
        let needs: Vec<f64> = needs.collect();
        let ms = |span: Span| span.as_secs_f64() * 1e3;
        let margin = match (&plan.shared, &plan.admission) {
            (Some(share), _) => {
                let admission = &share.device.admission;
                admission.binding.map(|_| ms(admission.overrun_margin()))
            }
            (None, Some(admission)) => admission.binding.map(|at| ms(at.rhs.saturating_sub(at.lhs))),
            (None, None) => None,
        };
        let whole = plan.pipeline.as_ref();
        let own = whole.and_then(|whole| {
            Some(ms(whole.pipeline.deadline.saturating_sub(whole.admission.as_ref()?.bound)))
        });
        (!needs.is_empty()).then(|| Self {
            needs_per_s: needs.iter().sum(),
            gets_per_s: if whole.is_some() { plan.capacity() } else { plan.workers().capacity_per_s() },
            margin_ms: own.or(margin),
        })
    }
}

impl Served {
    /// Where it is put, for people.
    pub(super) fn units(&self) -> String {
        match (&self.cores[..], &self.gpus[..], &self.servers[..]) {
            ([], [], []) => format!("{} × {}", self.workers, self.class),
            ([], [], servers) => format!("{} {}", self.class, servers.join(", ")),
            (list, [], _) | (_, list, _) => format!("{} {list:?}", self.class),
        }
    }

    pub(super) fn new(runs: &ServicePlan, (class, demand): (&ClassConfig, f64), part: &Part) -> Self {
        let share = |(variant, &share): (&VariantPlan, &f64)| Share {
            model: variant.spec.name.clone(),
            accuracy: 100.0 * variant.spec.accuracy,
            share,
        };
        let names = runs.variants.iter().map(|variant| variant.spec.name.clone());
        let on = |there: bool| if there { part.units.clone() } else { Vec::new() };
        let server = |&unit: &usize| match class.unit(unit) {
            Unit::Server(url) => Some(url),
            Unit::Number(_) => None,
        };
        Self {
            name: runs.config.name.clone(),
            stage: None,
            class: class.name.clone(),
            workers: runs.worker_count(),
            shared: part.placed.devices == 0,
            cores: on(!class.cores.is_empty()),
            gpus: on(!class.gpus.is_empty()),
            servers: part.units.iter().filter_map(server).collect(),
            demand,
            model: runs.spec.name.clone(),
            variants: names.skip(1).collect(),
            batch: runs.workers().batch,
            batch_ms: runs.workers().batch_time().as_secs_f64() * 1e3,
            accuracy: 100.0 * runs.spec.accuracy,
            share: runs.variants.iter().zip(&part.shares).map(share).collect(),
            keeps: None,
        }
    }

    /// With its stage, if it is one.
    pub(super) fn full_name(&self) -> String {
        let stage = self.stage.as_ref().map(|stage| format!("/{stage}")).unwrap_or_default();
        format!("{}{stage}", self.name)
    }
}
