//! What is to be placed: devices, services with their variants and promises, pipelines.

mod check;
mod raw;

use std::collections::BTreeMap;

use rt_core::{ArrivalCurve, Density, Span};

/// The most classes of devices.
pub const MAX_CLASSES: usize = 8;
/// The most devices of a class.
pub const MAX_DEVICES: u32 = 10_000;
/// The most services, and the most pipelines.
pub const MAX_SERVICES: usize = 1_000;
/// The most variants of a service or stage.
pub const MAX_VARIANTS: usize = 64;
/// The most stages of a pipeline.
pub const MAX_STAGES: usize = 16;
/// The largest batch.
pub const MAX_BATCH: u32 = 4_096;
/// The most rounds that two services may share a device by.
pub const MAX_ROUNDS: usize = 16;

/// Why a text is no problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemError {
    /// Not JSON, or not with these fields.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// A value that cannot be.
    #[error("{field} = {value}: {reason}")]
    Value {
        /// Where it stands.
        field: String,
        /// As given.
        value: String,
        /// What it must be.
        reason: String,
    },
}

/// All that is to be placed, checked.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Name and number of each class of devices.
    pub classes: Vec<(String, u32)>,
    /// In the order given.
    pub services: Vec<Service>,
    /// In the order given.
    pub pipelines: Vec<Pipeline>,
    /// The turns by which two services may share a device; none: they may not.
    pub rounds: Vec<(u32, u32)>,
    /// Whether a device may hold a more accurate variant beside the one that keeps a promise.
    pub switch: bool,
}

/// Requests that any of its variants may answer.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Mean requests a second.
    pub demand: f64,
    /// From arrival to answer, without what is kept back for late dispatch.
    pub deadline: Span,
    /// What a request of it counts in the mean accuracy.
    pub weight: f64,
    /// The models.
    pub variants: Vec<Variant>,
    /// What is promised, if anything is.
    pub promise: Option<Promise>,
}

/// A model that answers requests of a service or stage.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// In points.
    pub accuracy: f64,
    /// How it runs, by class.
    pub runs: Vec<Runs>,
}

/// How a variant runs on the devices of a class.
#[derive(Clone, Debug)]
pub enum Runs {
    /// Sizes of batches, rising, and how long each takes; none: it does not run there.
    Batches(Vec<(u32, Span)>),
    /// So many requests a second, nothing known of its batches.
    Peak(f64),
}

/// A weakly-hard constraint for arrivals that a curve bounds.
#[derive(Clone, Debug)]
pub struct Promise {
    /// The most that can come.
    pub curve: ArrivalCurve,
    /// The share that is mandatory.
    pub density: Density,
    /// The windows of the curve: requests, length.
    pub windows: Vec<(u64, Span)>,
    /// At most so many misses …
    pub m: u32,
    /// … in any so many consecutive requests.
    pub k: u32,
}

/// A tree of stages, answered within one time.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// From the arrival of a source to the last answer.
    pub deadline: Span,
    /// Mean sources a second.
    pub demand: f64,
    /// What a source of it counts in the mean accuracy.
    pub weight: f64,
    /// A parent before its children; the first is the root.
    pub stages: Vec<Stage>,
    /// Of a path from the root to a leaf, by variants; `None`: the product.
    pub accuracy: Option<BTreeMap<Vec<(usize, usize)>, f64>>,
}

/// A stage of a pipeline.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// The stage whose results become its requests.
    pub parent: Option<usize>,
    /// The models.
    pub variants: Vec<Variant>,
    /// By variant of the parent: requests of one of the parent's.
    pub requests: Vec<f64>,
}

impl Problem {
    /// Reads a problem from JSON; the fields are in `docs/placement.md`.
    ///
    /// # Errors
    /// If it is no JSON with these fields, or a value cannot be: the field, the value and what it must be.
    pub fn parse(text: &str) -> Result<Self, ProblemError> {
        check::problem(planner::from_json(text)?)
    }

    /// How many devices there are of a class.
    #[must_use]
    pub fn count(&self, class: usize) -> u32 {
        self.classes[class].1
    }

    /// What all demand counts: the sum of weight times requests a second; 1 where nothing is demanded, so that every plan is worth 0.
    #[must_use]
    pub fn worth(&self) -> f64 {
        let services = self.services.iter().map(|service| service.weight * service.demand);
        let pipelines = self.pipelines.iter().map(|pipeline| pipeline.weight * pipeline.demand);
        let all: f64 = services.chain(pipelines).sum();
        if all > 0.0 { all } else { 1.0 }
    }

    /// The share of all demand that is a service's, as it counts in the mean accuracy.
    pub(crate) fn share(&self, service: &Service) -> f64 {
        service.weight * service.demand / self.worth()
    }

    /// The same with `factor` times the demand.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        scaled.services.iter_mut().for_each(|service| service.demand *= factor);
        scaled.pipelines.iter_mut().for_each(|pipeline| pipeline.demand *= factor);
        scaled
    }
}

impl Pipeline {
    /// The stages that take results of `stage`.
    pub fn children(&self, stage: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.stages.len()).filter(move |&child| self.stages[child].parent == Some(stage))
    }

    /// Whether nothing follows `stage`.
    #[must_use]
    pub fn is_leaf(&self, stage: usize) -> bool {
        self.children(stage).next().is_none()
    }
}
