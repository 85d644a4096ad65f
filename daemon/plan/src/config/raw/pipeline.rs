//! A pipeline and its stages as they are written.

use serde::Deserialize;
use toml::Value;
use weir_engine::adapter::AdapterConfig;
use weir_engine::{EngineKind, Isolation};

use super::{Constraint, FilePath, Gpu, Service, Simulated, Stalls, Stream};

/// Stages that feed one another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in crate::config) struct Pipeline {
    pub(in crate::config) name: String,
    pub(in crate::config) deadline: Option<String>,
    pub(in crate::config) guard: String,
    pub(in crate::config) tolerance: Option<String>,
    pub(in crate::config) stalls: Option<Stalls>,
    pub(in crate::config) queue: u64,
    pub(in crate::config) streams: u64,
    pub(in crate::config) constraints: Vec<Constraint>,
    pub(in crate::config) jitter: String,
    /// The stages whose results are in the answer; those that nothing comes after if absent.
    pub(in crate::config) answer: Option<Vec<String>>,
    pub(in crate::config) stream: Vec<Stream>,
    pub(in crate::config) stage: Vec<Stage>,
    /// Mean sources a second, and what one counts, where its stages say among which models to choose.
    pub(in crate::config) demand: Option<f64>,
    pub(in crate::config) value: Option<f64>,
    /// Of all stages together.
    #[serde(deserialize_with = "super::kinds::alike")]
    pub(in crate::config) workers: Option<u64>,
    /// The device on whose workers each batch runs all stages.
    pub(in crate::config) device: Option<Value>,
    turn: Option<u64>,
    pub(in crate::config) weight: Option<f64>,
    pub(in crate::config) record: Option<FilePath>,
    pub(in crate::config) record_limit: Option<u64>,
    // What services have, to be told what becomes of it here.
    background: Option<Value>,
    best_effort: Option<Value>,
    batch: Option<Value>,
    class: Option<Value>,
    cores: Option<Value>,
    dispatch: Option<Value>,
    engine: Option<Value>,
    gpu: Option<Value>,
    handover: Option<Value>,
    isolation: Option<Value>,
    max_batch: Option<Value>,
    model: Option<Value>,
    optimise: Option<Value>,
    probability: Option<Value>,
    select: Option<Value>,
    simulated: Option<Value>,
    variants: Option<Value>,
    weights: Option<Value>,
}

/// One of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in crate::config) struct Stage {
    pub(in crate::config) name: String,
    engine: EngineKind,
    isolation: Option<Isolation>,
    gpu: Option<Gpu>,
    pub(super) model: Option<String>,
    variants: Vec<String>,
    pub(super) simulated: Option<Simulated>,
    pub(super) models: Option<Vec<String>>,
    pub(in crate::config) classes: Option<Vec<String>>,
    /// The stage whose results become its requests, or several.
    pub(in crate::config) after: Option<Value>,
    /// Whether it waits until these are done with a source, and then makes one request of it.
    pub(in crate::config) join: bool,
    /// The most requests that one of them becomes; 1 if absent.
    pub(in crate::config) fan_out: Option<u64>,
    /// How many it becomes on average; as many if absent.
    pub(in crate::config) mean: Option<f64>,
    handover: String,
    #[serde(deserialize_with = "super::kinds::alike")]
    pub(in crate::config) workers: Option<u64>,
    cores: Option<Vec<u64>>,
    max_batch: Option<u64>,
    batch: Option<u64>,
    probability: f64,
    pub(in crate::config) adapter: Option<AdapterConfig>,
    // What services or pipelines have, to be told what becomes of it here.
    answer: Option<Value>,
    background: Option<Value>,
    best_effort: Option<Value>,
    class: Option<Value>,
    constraints: Option<Value>,
    deadline: Option<Value>,
    device: Option<Value>,
    dispatch: Option<Value>,
    guard: Option<Value>,
    jitter: Option<Value>,
    optimise: Option<Value>,
    queue: Option<Value>,
    record: Option<Value>,
    record_limit: Option<Value>,
    select: Option<Value>,
    stalls: Option<Value>,
    stream: Option<Value>,
    streams: Option<Value>,
    tolerance: Option<Value>,
    turn: Option<Value>,
    weight: Option<Value>,
    weights: Option<Value>,
}

impl Default for Pipeline {
    fn default() -> Self {
        let Service { guard, queue, streams, jitter, .. } = Service::default();
        Self {
            name: String::new(),
            deadline: None,
            guard,
            tolerance: None,
            stalls: None,
            queue,
            streams,
            constraints: Vec::new(),
            jitter,
            answer: None,
            stream: Vec::new(),
            stage: Vec::new(),
            demand: None,
            value: None,
            workers: None,
            device: None,
            turn: None,
            weight: None,
            record: None,
            record_limit: None,
            background: None,
            best_effort: None,
            batch: None,
            class: None,
            cores: None,
            dispatch: None,
            engine: None,
            gpu: None,
            handover: None,
            isolation: None,
            max_batch: None,
            model: None,
            optimise: None,
            probability: None,
            select: None,
            simulated: None,
            variants: None,
            weights: None,
        }
    }
}

impl Default for Stage {
    fn default() -> Self {
        let Service { engine, handover, probability, .. } = Service::default();
        Self {
            name: String::new(),
            engine,
            isolation: None,
            gpu: None,
            model: None,
            variants: Vec::new(),
            simulated: None,
            models: None,
            classes: None,
            after: None,
            join: false,
            fan_out: None,
            mean: None,
            handover,
            workers: None,
            cores: None,
            max_batch: None,
            batch: None,
            probability,
            adapter: None,
            answer: None,
            background: None,
            best_effort: None,
            class: None,
            constraints: None,
            deadline: None,
            device: None,
            dispatch: None,
            guard: None,
            jitter: None,
            optimise: None,
            queue: None,
            record: None,
            record_limit: None,
            select: None,
            stalls: None,
            stream: None,
            streams: None,
            tolerance: None,
            turn: None,
            weight: None,
            weights: None,
        }
    }
}

/// What nobody can have here, unless it says what is so anyway.
const NEVER: &str = "is not possible in a pipeline: remove it";
const OF_STAGES: &str = "is said of each stage: move it to a [[pipeline.stage]]";
const OF_ALL: &str = "is said of the pipeline as a whole: move it to its [[pipeline]]";

/// A field, what it says, and why it may not.
pub(in crate::config) type Refusal<'a> = (&'static str, &'a Value, &'static str);

impl Pipeline {
    /// What is said that no pipeline has.
    pub(in crate::config) fn refused(&self) -> impl Iterator<Item = Refusal<'_>> {
        let Self { background, best_effort, class, dispatch, optimise, select, weights, .. } = self;
        let never = never([background, best_effort, class, dispatch, optimise, select, weights]);
        let of_stages = [
            ("batch", &self.batch),
            ("cores", &self.cores),
            ("engine", &self.engine),
            ("gpu", &self.gpu),
            ("handover", &self.handover),
            ("isolation", &self.isolation),
            ("max-batch", &self.max_batch),
            ("model", &self.model),
            ("probability", &self.probability),
            ("simulated", &self.simulated),
            ("variants", &self.variants),
        ];
        never.chain(said(of_stages, OF_STAGES))
    }

    /// What it says of what it runs on, as a service would; without a device each stage says how many workers it has.
    pub(in crate::config) fn on_device(&self) -> Service {
        Service {
            device: self.device.clone(),
            turn: self.turn,
            weight: self.weight,
            workers: self.workers.filter(|_| self.device.is_some()).map(super::Staff::Count),
            // What is placed may say what it is worth where it shares.
            models: self.stage.iter().any(Stage::has_candidates).then(Vec::new),
            stalls: self.stalls.clone(),
            record: self.record.clone(),
            record_limit: self.record_limit,
            ..Service::default()
        }
    }

    /// What it says of requests, as a service would.
    pub(in crate::config) fn promise(&mut self) -> Service {
        Service {
            name: std::mem::take(&mut self.name),
            deadline: self.deadline.take(),
            guard: std::mem::take(&mut self.guard),
            tolerance: self.tolerance.take(),
            stalls: self.stalls.take(),
            queue: self.queue,
            streams: self.streams,
            constraints: std::mem::take(&mut self.constraints),
            jitter: std::mem::take(&mut self.jitter),
            stream: std::mem::take(&mut self.stream),
            ..Service::default()
        }
    }
}

impl Stage {
    /// What is said that no stage has.
    pub(in crate::config) fn refused(&self) -> impl Iterator<Item = Refusal<'_>> {
        let Self { background, best_effort, class, dispatch, optimise, select, weights, .. } = self;
        let never = never([background, best_effort, class, dispatch, optimise, select, weights]);
        let of_all = [
            ("answer", &self.answer),
            ("constraints", &self.constraints),
            ("deadline", &self.deadline),
            ("device", &self.device),
            ("guard", &self.guard),
            ("jitter", &self.jitter),
            ("queue", &self.queue),
            ("record", &self.record),
            ("record-limit", &self.record_limit),
            ("stalls", &self.stalls),
            ("stream", &self.stream),
            ("streams", &self.streams),
            ("tolerance", &self.tolerance),
            ("turn", &self.turn),
            ("weight", &self.weight),
        ];
        never.chain(said(of_all, OF_ALL))
    }

    /// What runs its batches, as that of a service: on workers of its own, or on the device of its pipeline.
    pub(in crate::config) fn runs(self, device: Option<Value>) -> Service {
        Service {
            name: self.name,
            device,
            engine: self.engine,
            isolation: self.isolation,
            gpu: self.gpu,
            model: self.model,
            variants: self.variants,
            simulated: self.simulated,
            models: self.models,
            classes: self.classes,
            handover: self.handover,
            workers: self.workers.map(super::Staff::Count),
            cores: self.cores,
            max_batch: self.max_batch,
            batch: self.batch,
            probability: self.probability,
            ..Service::default()
        }
    }
}

/// What neither a pipeline nor a stage has, unless it says what is so anyway, in the order of the names.
fn never(fields: [&Option<Value>; 7]) -> impl Iterator<Item = Refusal<'_>> {
    let names = ["background", "best-effort", "class", "dispatch", "optimise", "select", "weights"];
    let so_anyway = |name: &str, value: &Value| match name {
        "background" => *value == Value::Boolean(true),
        "best-effort" => value.as_str() == Some("refuse-early"),
        "dispatch" => value.as_str() == Some("eager"),
        _ => false,
    };
    let said = names.into_iter().zip(fields).filter_map(|(name, value)| Some((name, value.as_ref()?, NEVER)));
    said.filter(move |(name, value, _)| !so_anyway(name, value))
}

fn said<'a, const N: usize>(
    fields: [(&'static str, &'a Option<Value>); N],
    reason: &'static str,
) -> impl Iterator<Item = Refusal<'a>> {
    fields.into_iter().filter_map(move |(name, value)| Some((name, value.as_ref()?, reason)))
}
