//! The models that a configuration names: what their manifest says of them, and whether each variant can stand in for the
//! one before it.

mod reply;
mod stages;
mod staging;

use std::path::PathBuf;

use weir_engine::manifest::{Manifest, ManifestError};
use weir_engine::{
    Backend, DataType, Engine, EngineError, EngineKind, Isolation, ModelSpec, PATIENCE, Place, RunMode,
    Runner, Side, Task, TensorSpec, has_batches, isolate_one, load, mixed_output, prepare, prepare_each,
    sha256_hex,
};

use crate::config::{Config, ModelChoice, Models, ServiceConfig, SimulatedModel};
pub use reply::{Descent, Reply, Results};
pub use stages::{Way, adapters, reply};
pub use staging::{Staging, Timed};

/// The most bytes of state that the streams of a service may have together.
const MAX_STATE: u64 = 1 << 30;

/// Why the models of a configuration cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{field} = {value}: {reason}")]
    Field { field: String, value: String, reason: String },
    /// What is wrong with a field, and where that stands.
    #[error("{}:{line}: {wrong}", path.display())]
    At { path: PathBuf, line: usize, wrong: Box<Self> },
}

impl ModelsError {
    /// The same with the line of the file, if it is about a field of it.
    fn in_file(self, config: &Config) -> Self {
        let Self::Field { field, .. } = &self else { return self };
        Self::At { path: config.path.clone(), line: config.line_of(field), wrong: Box::new(self) }
    }
}

/// The variants of each service, in order: the base first. Of a pipeline those of each stage, one after the other; of workers of
/// several kinds the model for each of them.
///
/// # Errors
/// A model that the manifest does not have, a variant that cannot stand in for the one before it, and results of a stage that
/// do not become requests of the next.
pub fn resolve_models(config: &Config) -> Result<Vec<Vec<ModelSpec>>, ModelsError> {
    let manifest = config.daemon.models.as_deref().map(Manifest::load).transpose();
    let manifest = manifest.map_err(|error| match error {
        ManifestError::Read { path, source } => {
            let (field, value) = ("daemon.models".to_owned(), path.display().to_string());
            ModelsError::Field { field, value, reason: format!("cannot be read: {source}") }.in_file(config)
        }
        other => other.into(),
    })?;
    let variants = |service: &ServiceConfig| {
        let specs = match (&service.model, &manifest) {
            (ModelChoice::Simulated { models, input, output }, _) => {
                models.iter().map(|model| simulated(model, *input, *output)).collect()
            }
            (ModelChoice::Named(names), Some(manifest)) => {
                let model = |(i, name): (usize, &String)| {
                    let field = match (i, &service.candidates) {
                        (_, Some(_)) => "models".to_owned(),
                        (0, None) => "model".to_owned(),
                        (i, None) => format!("variants[{}]", i - 1),
                    };
                    let (field, value) = (format!("{}.{field}", service.at), format!("{name:?}"));
                    let none =
                        |error: ManifestError| ModelsError::Field { field, value, reason: error.to_string() };
                    manifest.model(name).cloned().map_err(none)
                };
                names.iter().enumerate().map(model).collect::<Result<_, _>>()?
            }
            (ModelChoice::Named(names), None) => {
                let (field, value) = (format!("{}.model", service.at), format!("{:?}", names[0]));
                let reason = "daemon.models names no manifest".to_owned();
                return Err(ModelsError::Field { field, value, reason });
            }
        };
        let specs = check(service, specs)?;
        check_state(service, &specs)?;
        Ok(specs)
    };
    let resolve = |service: &ServiceConfig| {
        if !service.kinds.is_empty() {
            let specs = service.kinds.iter().map(variants).collect::<Result<Vec<_>, _>>()?.concat();
            check_state(service, &specs[..1])?;
            check_classes(service, &specs)?;
            return Ok(specs);
        }
        if service.stages.is_empty() {
            let specs = variants(service)?;
            check_classes(service, &specs)?;
            return Ok(specs);
        }
        let each = service.stages.iter().map(|stage| variants(&stage.runs));
        let specs = each.collect::<Result<Vec<_>, _>>()?.concat();
        stages::check(service, &specs)?;
        Ok(specs)
    };
    let resolved: Result<_, ModelsError> = config.services.iter().map(resolve).collect();
    resolved.map_err(|error| error.in_file(config))
}

/// What runs models.
pub struct Running<'a> {
    /// A service, a kind of its workers, or a stage of a pipeline.
    pub config: &'a ServiceConfig,
    /// Its variants.
    pub specs: &'a [ModelSpec],
    /// What it does beside that, if it is a stage.
    pub staging: Option<Staging>,
}

impl Running<'_> {
    /// The service, and the kind of its workers if that has a name; or the pipeline and its stage.
    pub fn name(&self) -> String {
        let (staging, config) = (self.staging.as_ref(), self.config);
        staging.map_or_else(
            || config.named_place().unwrap_or_else(|| config.name.clone()),
            |staging| staging.place.clone(),
        )
    }

    /// What the profile has an entry of for one of its models.
    pub fn timed(&self, spec: &ModelSpec) -> Timed {
        match self.staging {
            None => Timed::by(self.config, spec),
            Some(_) => Timed::of(spec, self.staging.as_ref()),
        }
    }
}

/// All that runs the `models` of `config`: every service, every kind of workers where they are of several, and every stage of a
/// pipeline.
pub fn running<'a>(config: &'a Config, models: &'a [Vec<ModelSpec>]) -> impl Iterator<Item = Running<'a>> {
    config.services.iter().zip(models).flat_map(|(service, specs)| {
        if service.stages.is_empty() {
            let each = specs.len() / service.running().count();
            let runs = service.running().zip(specs.chunks(each.max(1)));
            return runs.map(|(config, specs)| Running { config, specs, staging: None }).collect::<Vec<_>>();
        }
        let stagings = Staging::all(service, specs);
        let stagings = stagings.unwrap_or_else(|_| unreachable!("models are resolved only if they can be"));
        let stages = service.running().zip(service.by_stage(specs)).zip(stagings);
        stages.map(|((config, specs), staging)| Running { config, specs, staging }).collect()
    })
}

/// The models of a service that take one request at a time, by their files or the manifest, one line each, where it could have larger batches.
///
/// # Errors
/// What the files lack or say otherwise than the manifest.
pub fn run_singly<'a>(
    config: &ServiceConfig,
    specs: impl IntoIterator<Item = &'a ModelSpec>,
) -> Result<Vec<String>, EngineError> {
    let mut lines = Vec::new();
    // What a server leaves open is asked of it when its model is tried, not while a file is looked at.
    if matches!(config.model, ModelChoice::Named(_)) && config.engine != EngineKind::Oip {
        for spec in specs {
            if !has_batches(config.backend(0), spec)? && config.max_batch > 1 {
                let mut tensors = spec.inputs.iter().chain(&spec.outputs);
                let why = match tensors.any(|tensor| tensor.batch.place().is_none()) {
                    true => "the manifest has tensors of it without a batch (batch = false)",
                    false => "its file is fixed to batch 1",
                };
                let line = "so that a batch takes as long as its requests one by one";
                lines.push(format!("{}: {why}, {line}", spec.name));
            }
        }
    }
    Ok(lines)
}

/// Loads every model of a service as its workers would, and lets go of it; a line for each whose requests are not answered each by
/// itself when they are one batch.
///
/// # Errors
/// What a file lacks or says otherwise than the manifest, and an engine, library or device that is not there.
pub fn try_models(config: &ServiceConfig, specs: &[ModelSpec]) -> Result<Vec<String>, EngineError> {
    let mut lines = Vec::new();
    if matches!(config.model, ModelChoice::Simulated { .. }) {
        return Ok(lines);
    }
    let modes = [RunMode::Batched; 3];
    // Several requests at once tell whether the outputs have the batch where the manifest says.
    let max_batch = config.max_batch.min(modes.len());
    let mut tried: Vec<&Backend> = Vec::new();
    for backend in (0..config.workers).map(|worker| config.backend(worker)) {
        if tried.contains(&backend) {
            continue;
        }
        tried.push(backend);
        for spec in specs {
            let engine = Engine::Real { backend, modes: Some(&modes) };
            let mut runner = match config.isolation {
                Isolation::Thread => load(engine, spec, max_batch)?,
                Isolation::Process => {
                    let task = Task { engine, spec, max_batch, silence: vec![PATIENCE] };
                    let place = Place { name: format!("{}/check", config.name), ..Place::default() };
                    isolate_one(task, &place)?
                }
            };
            lines.extend(mixing(backend.kind, spec, &mut *runner));
        }
    }
    Ok(lines)
}

/// A line for a model whose requests are not answered each by itself when `runner` has them in one batch. What a server makes of its
/// batches is its own business, and what a model refuses shows when it is profiled.
pub(crate) fn mixing(engine: EngineKind, spec: &ModelSpec, runner: &mut dyn Runner) -> Option<String> {
    if matches!(engine, EngineKind::Oip | EngineKind::Simulated) || spec.has_state() {
        return None;
    }
    let output = mixed_output(runner, spec).ok()??;
    Some(format!(
        "{}: what it answers to a request on {engine} depends on what else is in the batch (output `{output}`): say batch = false of \
         its tensors in the manifest, or max-batch = 1 of the service",
        spec.name
    ))
}

/// Every variant must answer the same requests, better than the one before.
fn check(service: &ServiceConfig, specs: Vec<ModelSpec>) -> Result<Vec<ModelSpec>, ModelsError> {
    let list = match service.model {
        ModelChoice::Named(_) => format!("{}.variants", service.at),
        ModelChoice::Simulated { .. } => format!("{}.simulated.variants", service.at),
    };
    for (i, pair) in specs.windows(2).enumerate() {
        let (before, spec) = (&pair[0], &pair[1]);
        let refuse = |what: &str, value: String, reason: String| {
            let field = format!("{list}[{i}]");
            let value = format!("{} with {what} {value}", spec.name);
            Err(ModelsError::Field { field, value, reason })
        };
        for side in [Side::Input, Side::Output] {
            let (here, there) = (shapes(spec.tensors(side)), shapes(specs[0].tensors(side)));
            if here != there {
                let reason = format!("must be {there}, as of {}", specs[0].name);
                return refuse(&format!("{side} shape"), here, reason);
            }
        }
        if let Some(unknown) = pair.iter().find(|model| model.accuracy.is_nan()) {
            let reason =
                format!("must be known to choose by it: the manifest tells none of {}", unknown.name);
            return refuse("accuracy", shown(spec.accuracy), reason);
        }
        if spec.accuracy <= before.accuracy {
            let reason = format!("must be above {}, that of {} before it", before.accuracy, before.name);
            return refuse("accuracy", shown(spec.accuracy), reason);
        }
    }
    Ok(specs)
}

/// What classes say of models they say of those that serve the service, or may.
fn check_classes(service: &ServiceConfig, specs: &[ModelSpec]) -> Result<(), ModelsError> {
    let candidates = match service.candidates.as_ref().map(|candidates| &candidates.models) {
        Some(Models::Named(names)) => &names[..],
        _ => &[],
    };
    let mut known: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
    known.extend(candidates.iter().map(|name| &**name).filter(|name| specs.iter().all(|s| s.name != *name)));
    for (i, class) in service.classes.iter().enumerate() {
        if let Some((model, accuracy)) = class.accuracy.iter().find(|(name, _)| !known.contains(&&**name)) {
            let field = format!("{}.class[{i}].accuracy.{model}", service.at);
            let reason = format!("is no model of the service: {}", known.join(", "));
            return Err(ModelsError::Field { field, value: accuracy.to_string(), reason });
        }
    }
    Ok(())
}

/// What remembers something from each request of a stream to the next runs one request after the other, and in one place.
fn check_state(service: &ServiceConfig, specs: &[ModelSpec]) -> Result<(), ModelsError> {
    let Some(spec) = specs.iter().find(|spec| spec.has_state()) else { return Ok(()) };
    let name = &spec.name;
    let refuse = |field: &str, value: String, reason: String| {
        Err(ModelsError::Field { field: format!("{}.{field}", service.at), value, reason })
    };
    if specs.len() > 1 {
        let reason = "has state, which one variant cannot take over from another".to_owned();
        return refuse("variants", name.clone(), reason);
    }
    if service.max_batch != 1 {
        let reason = format!(
            "must be 1: {name} has state, and each request of a stream needs what the one before has left"
        );
        return refuse("max-batch", service.max_batch.to_string(), reason);
    }
    if service.workers != 1 {
        let reason =
            format!("must be 1: {name} has state, and two requests of a stream must not run at once");
        return refuse("workers", service.workers.to_string(), reason);
    }
    let bytes = (spec.state_len() as u64).saturating_mul(service.streams as u64);
    if bytes > MAX_STATE {
        let reason = format!(
            "each may have {} bytes of state of {name}, {bytes} in all: at most {MAX_STATE}",
            spec.state_len()
        );
        return refuse("streams", service.streams.to_string(), reason);
    }
    Ok(())
}

/// An accuracy as a value.
fn shown(accuracy: f64) -> String {
    if accuracy.is_nan() { "unknown".to_owned() } else { accuracy.to_string() }
}

/// Types and shapes, such as `f32[3, 224, 224], i64[1]`.
fn shapes(tensors: &[TensorSpec]) -> String {
    let shape = |tensor: &TensorSpec| format!("{}{:?}", tensor.data_type, tensor.shape);
    tensors.iter().map(shape).collect::<Vec<_>>().join(", ")
}

/// Stands for a model that does not exist; its hash is that of the times it waits out.
fn simulated(model: &SimulatedModel, input: usize, output: usize) -> ModelSpec {
    let numbers = model.times.iter().flat_map(|time| [time.usual, time.likely, time.bound]);
    let times: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    let sha256 = sha256_hex(&times);
    let tensor = |name: &str, values| vec![TensorSpec::new(name, DataType::F32, &[values])];
    ModelSpec {
        name: model.name.clone().unwrap_or_else(|| format!("simulated-{}", &sha256[..8])),
        path: PathBuf::new(),
        sha256,
        inputs: tensor("input", input),
        outputs: tensor("output", output),
        accuracy: model.accuracy.unwrap_or(f64::NAN),
        accuracy_by_class: Vec::new(),
        constants: Vec::new(),
        states: Vec::new(),
        external: Vec::new(),
    }
}

/// Loads what the engines need beside their models.
///
/// # Errors
/// What is missing, and how to get it.
pub fn prepare_engines(config: &Config) -> Result<(), EngineError> {
    config.services.iter().flat_map(ServiceConfig::running).try_for_each(|runs| prepare(runs.backend(0)))
}

/// The same of what computes here, and no server is met.
///
/// # Errors
/// As [`prepare_engines`].
pub(crate) fn prepare_engines_here(config: &Config) -> Result<(), EngineError> {
    let all = config.services.iter().flat_map(ServiceConfig::running);
    all.filter(|runs| runs.engine != EngineKind::Oip).try_for_each(|runs| prepare(runs.backend(0)))
}

/// As [`prepare_engines`], but that servers may be out of reach where other workers of the service are there: these, with the reason.
///
/// # Errors
/// As [`prepare_engines`].
pub fn reach_engines(config: &Config) -> Result<Vec<EngineError>, EngineError> {
    let all: Result<Vec<_>, _> = config.services.iter().map(reach_engine).collect();
    Ok(all?.into_iter().flatten().collect())
}

/// The same for one service.
///
/// # Errors
/// As [`prepare_engines`].
fn reach_engine(service: &ServiceConfig) -> Result<Vec<EngineError>, EngineError> {
    if service.kinds.is_empty() {
        service.running().try_for_each(|runs| prepare(runs.backend(0)))?;
        return Ok(Vec::new());
    }
    let (mut unreached, mut workers) = (Vec::new(), 0);
    for kind in &service.kinds {
        let missing = prepare_each(kind.backend(0))?;
        workers += kind.workers * usize::from(missing.len() < kind.backend(0).servers());
        unreached.extend(missing);
    }
    match unreached.pop() {
        Some(last) if workers == 0 => Err(last),
        last => Ok(unreached.into_iter().chain(last).collect()),
    }
}
