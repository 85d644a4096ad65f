//! The variants of a service: what each takes and is worth, and what may choose among them.

use std::iter::empty;

use planner::selection::{DEFAULT_MAX_MISS, Inputs};
use rt_core::{
    BatchTime, Instant, LatencyProfile, LoadMonitor, Selector, Shield, ShieldError, Span, StreamSpec, Variant,
};

use super::{PlanError, ServicePlan, select};
use crate::config::{Config, ModelChoice, Select, ServiceConfig, SimulatedModel};
use crate::engine::{
    DataType, EngineError, Equipment, ModelSpec, RunMode, Side, TensorSpec, has_batches, sha256_hex,
};
use crate::manifest::Manifest;
use crate::profile::{Entry, Profile};

/// One variant, measured.
#[derive(Clone, Debug)]
pub(crate) struct VariantPlan {
    pub(crate) spec: ModelSpec,
    /// How each batch size was run when it was measured.
    pub(crate) modes: Vec<RunMode>,
    /// What its batches take, up to the largest that is served, with the handover.
    pub(crate) times: LatencyProfile,
    /// The median time of the largest batch that is served.
    pub(crate) typical: Span,
    /// The SHA-256 of the profile's entry, in hexadecimal.
    pub(crate) profile_sha256: String,
    /// What the engine was when it was measured.
    pub(crate) equipment: Equipment,
}

/// The variants of each service, in order: the base first.
///
/// # Errors
/// A model that the manifest does not have, and a variant that cannot stand in for the one before it.
pub(crate) fn resolve_models(config: &Config) -> Result<Vec<Vec<ModelSpec>>, PlanError> {
    let manifest = config.daemon.models.as_deref().map(Manifest::load).transpose()?;
    let resolve = |(index, service): (usize, &ServiceConfig)| {
        let specs = match (&service.model, &manifest) {
            (ModelChoice::Simulated { models, input, output }, _) => {
                models.iter().map(|model| simulated(model, *input, *output)).collect()
            }
            (ModelChoice::Named(names), Some(manifest)) => names
                .iter()
                .map(|name| Ok(manifest.model(name)?.clone()))
                .collect::<Result<_, PlanError>>()?,
            (ModelChoice::Named(names), None) => {
                let model = names[0].clone();
                return Err(PlanError::NoManifest { path: config.path.clone(), index, model });
            }
        };
        check(index, &service.model, specs)
    };
    config.services.iter().enumerate().map(resolve).collect()
}

/// The models of a service whose files are fixed to one request at a time, one line each.
///
/// # Errors
/// What the files lack or say otherwise than the manifest.
pub(crate) fn run_singly<'a>(
    config: &ServiceConfig,
    specs: impl IntoIterator<Item = &'a ModelSpec>,
) -> Result<Vec<String>, EngineError> {
    let mut lines = Vec::new();
    if matches!(config.model, ModelChoice::Named(_)) {
        for spec in specs {
            if !has_batches(config.backend(0), spec)? {
                let line =
                    "its file is fixed to batch 1, so that a batch takes as long as its requests one by one";
                lines.push(format!("{}: {line}", spec.name));
            }
        }
    }
    Ok(lines)
}

/// Every variant must answer the same requests, better than the one before.
fn check(index: usize, model: &ModelChoice, specs: Vec<ModelSpec>) -> Result<Vec<ModelSpec>, PlanError> {
    let list = match model {
        ModelChoice::Named(_) => format!("service[{index}].variants"),
        ModelChoice::Simulated { .. } => format!("service[{index}].simulated.variants"),
    };
    for (i, pair) in specs.windows(2).enumerate() {
        let (before, spec) = (&pair[0], &pair[1]);
        let refuse = |what: &str, value: String, reason: String| {
            let field = format!("{list}[{i}]");
            let value = format!("{} with {what} {value}", spec.name);
            Err(PlanError::Variant { field, value, reason })
        };
        for side in [Side::Input, Side::Output] {
            let (here, there) = (shapes(spec.tensors(side)), shapes(specs[0].tensors(side)));
            if here != there {
                let reason = format!("must be {there}, as of {}", specs[0].name);
                return refuse(&format!("{side} shape"), here, reason);
            }
        }
        if spec.accuracy <= before.accuracy {
            let reason = format!("must be above {}, that of {} before it", before.accuracy, before.name);
            return refuse("accuracy", spec.accuracy.to_string(), reason);
        }
    }
    Ok(specs)
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
    let tensor = |name: &str, values| {
        vec![TensorSpec { name: name.into(), data_type: DataType::F32, shape: vec![values] }]
    };
    ModelSpec {
        name: format!("simulated-{}", &sha256[..8]),
        path: std::path::PathBuf::new(),
        sha256,
        inputs: tensor("input", input),
        outputs: tensor("output", output),
        accuracy: model.accuracy.unwrap_or(f64::NAN),
        parameters: 0,
        macs: 0,
    }
}

impl VariantPlan {
    fn new(config: &ServiceConfig, spec: ModelSpec, entry: &Entry) -> Result<Self, PlanError> {
        let times = times_of(config, entry)?;
        let typical = Span::from_nanos(entry.batches[times.max_batch() - 1].p50_ns);
        let (modes, equipment, profile_sha256) = (entry.modes(), entry.equipment.clone(), entry.digest());
        Ok(Self { spec, modes, times, typical, profile_sha256, equipment })
    }
}

/// What batches of 1, 2, … take, up to the largest that is served, with the handover.
///
/// # Errors
/// If a time is outside what a plan can count with.
pub(super) fn times_of(config: &ServiceConfig, entry: &Entry) -> Result<LatencyProfile, PlanError> {
    let whole = |time: BatchTime| BatchTime {
        bound: time.bound + config.handover,
        likely: time.likely + config.handover,
        mean: time.mean + config.handover,
    };
    let times: Vec<_> =
        entry.times(config.probability).into_iter().map(whole).take(config.max_batch).collect();
    LatencyProfile::expected(&times).map_err(|source| {
        let (service, model) = (config.name.clone(), entry.model.clone());
        PlanError::Times { service, model, source }
    })
}

impl ServicePlan {
    /// Adds the variants and who selects among them.
    ///
    /// # Errors
    /// If one is not profiled, is faster than the one before at every batch size, or the file of tables is wrong.
    pub(super) fn with_variants(
        mut self,
        specs: Vec<ModelSpec>,
        profile: &Profile,
    ) -> Result<Self, PlanError> {
        let here = Equipment::current(self.config.backend(0));
        for spec in specs {
            let entry = profile.entry(&spec.name, &spec.sha256, self.config.engine)?;
            self.mismatches.extend(entry.differences(&here));
            self.variants.push(VariantPlan::new(&self.config, spec, entry)?);
        }
        for (i, pair) in self.variants.windows(2).enumerate() {
            let (before, variant) = (&pair[0], &pair[1]);
            let sizes = 1..=variant.times.max_batch().min(before.times.max_batch());
            let last = *sizes.end();
            if sizes.into_iter().all(|b| variant.times.bound(b) < before.times.bound(b)) {
                let time = variant.times.bound(last);
                return Err(PlanError::Variant {
                    field: format!("service {}: variants[{i}]", self.config.name),
                    value: format!("{} with P({last}) = {time}", variant.spec.name),
                    reason: format!(
                        "must not be faster than {} before it, which is less accurate and takes {}: leave that out",
                        before.spec.name,
                        before.times.bound(last)
                    ),
                });
            }
        }
        self.selecting()
    }

    /// The plan as if each batch took its bound: that of an abstract problem, which says nothing else of times.
    ///
    /// # Errors
    /// If the file of tables is wrong.
    pub(crate) fn by_bounds(mut self) -> Result<Self, PlanError> {
        let workers = self.system.workers.iter_mut().map(|workers| &mut workers.profile);
        for times in workers.chain(self.variants.iter_mut().map(|variant| &mut variant.times)) {
            let bounds: Vec<Span> = times.bounds().collect();
            // Bounds of a profile are a profile.
            *times = LatencyProfile::new(&bounds).unwrap_or_else(|_| times.clone());
        }
        self.selecting()
    }

    /// Who selects among the variants that are there.
    fn selecting(mut self) -> Result<Self, PlanError> {
        self.selector = match &self.config.select {
            _ if self.variants.len() == 1 => None,
            Select::Base => None,
            Select::Accurate => {
                let failed = |source| PlanError::Select { service: self.config.name.clone(), source };
                Some(Selector::greedy(self.core_variants()).map_err(failed)?.sparing(self.capacity()))
            }
            Select::Planned => {
                let service = || self.config.name.clone();
                let checked = self.selection_inputs(DEFAULT_MAX_MISS).check();
                checked.map_err(|source| PlanError::Planned { service: service(), source })?;
                let none = Selector::new(self.core_variants(), [], LoadMonitor::default());
                Some(none.map_err(|source| PlanError::Select { service: service(), source })?)
            }
            Select::Table(path) => Some(select::load(path, &self)?),
        };
        Ok(self)
    }

    /// The variants as the scheduler sees them.
    pub(super) fn core_variants(&self) -> Vec<Variant> {
        let variant = |v: &VariantPlan| Variant { profile: v.times.clone(), accuracy: v.spec.accuracy };
        self.variants.iter().map(variant).collect()
    }

    /// What tables are planned for, if at most a share `max_miss` of the requests may be missed for them.
    pub(super) fn selection_inputs(&self, max_miss: f64) -> Inputs {
        let (workers, latency) = (self.workers(), self.system.latency);
        let (count, batch) = (workers.count, workers.batch);
        Inputs { variants: self.core_variants(), latency, workers: count, batch, max_miss }
    }

    /// The same for tables that are planned while serving; none if they are not.
    pub(crate) fn planned_inputs(&self) -> Option<Inputs> {
        let planned = self.selector.is_some() && self.config.select == Select::Planned;
        planned.then(|| self.selection_inputs(DEFAULT_MAX_MISS))
    }

    /// The variants that are ever run: the base alone if nobody selects.
    pub(crate) fn running_variants(&self) -> &[VariantPlan] {
        if self.selector.is_some() { &self.variants } else { &self.variants[..1] }
    }

    /// The shield for `load`, and beside it for one more stream at the promised rate, if there is room, none like it
    /// among `load` yet, and a shield for both: so that it can come at any time.
    ///
    /// # Errors
    /// If there is none for `load` alone; no batch may take longer then.
    pub(crate) fn shield(&self, load: &[&StreamSpec]) -> Result<Shield, ShieldError> {
        let both = self.anticipated(load).map(|promised| {
            let all: Vec<_> = load.iter().copied().chain([&promised]).collect();
            self.shield_for(&all)
        });
        match both {
            Some(Ok(shield)) => Ok(shield),
            _ => self.shield_for(load),
        }
    }

    /// The stream at the promised rate that may come beside `load`.
    fn anticipated(&self, load: &[&StreamSpec]) -> Option<StreamSpec> {
        let promised = self.promised_stream().map(|(_, spec)| spec);
        let missing = |spec: &StreamSpec| {
            let reserved = self.config.reserved.iter().filter(|s| s.spec == *spec).count();
            load.iter().filter(|s| **s == spec).count() <= reserved
        };
        promised.filter(missing).filter(|spec| {
            let all = load.iter().copied().chain([spec]);
            self.system.admit(all).is_ok_and(|a| a.waiting <= self.config.queue as u64)
        })
    }

    fn shield_for(&self, load: &[&StreamSpec]) -> Result<Shield, ShieldError> {
        let demand = load.iter().filter_map(|spec| spec.demand());
        let shield = Shield::new(self.workers(), self.system.latency, demand)?;
        let waiting = shield.most_waiting(self.config.deadline);
        if waiting > self.config.queue as u64 {
            return Err(ShieldError::Queue { waiting, limit: self.config.queue });
        }
        Ok(shield)
    }

    /// The longest that a batch may take while nothing waits and nothing else runs, beside the reserved streams and,
    /// if there is room, one at the promised rate.
    ///
    /// # Errors
    /// If there is no shield for them.
    pub(crate) fn lull(&self) -> Result<Span, ShieldError> {
        let reserved = self.config.reserved.iter().map(|s| &s.spec);
        let all: Vec<_> = reserved.clone().collect();
        let promised = self.anticipated(&all);
        let all: Vec<_> = reserved.chain(&promised).collect();
        Ok(self.shield_for(&all)?.longest(Instant::ZERO, empty(), empty::<Instant>(), Span::ZERO))
    }
}
