//! What answers a service's requests: one model or several variants of it, and who chooses among them.

use std::path::{Path, PathBuf};

use rt_core::{MAX_BATCH, MAX_VARIANTS, MAX_WORKERS, Span};

use super::check::{ABSENT, Check, Refused, all, is_name};
use super::{DaemonConfig, raw};
use weir_engine::{Backend, EngineKind, Isolation, SimulatedTime};

/// What answers a service's requests: the base variant first, which the promise is computed for, then more accurate
/// ones.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelChoice {
    /// Models of the manifest, by name.
    Named(Vec<String>),
    /// No model at all: a simulated engine.
    Simulated { models: Vec<SimulatedModel>, input: usize, output: usize },
}

/// What a simulated engine pretends to be.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedModel {
    /// The times that it waits out, `times[b-1]` for a batch of `b`.
    pub times: Vec<SimulatedTime>,
    /// What it is called; by its times if absent.
    pub name: Option<String>,
    /// The share of right answers that is told for it, 0..=1; `None` if nothing is.
    pub accuracy: Option<f64>,
}

/// Which variant answers where the shield leaves a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// The base, always.
    Base,
    /// The most accurate.
    Accurate,
    /// What tables say that the daemon plans itself, for the load that comes.
    Planned,
    /// What the tables of this file say.
    Table(PathBuf),
    /// What the network of this file holds to be worth most.
    Learned(PathBuf),
    /// Whoever simulation says is worth most at the rate that comes, the network of this file among them if there is one.
    Auto(Option<PathBuf>),
}

impl Select {
    /// As it is configured.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Accurate => "accurate",
            Self::Planned => "planned",
            Self::Table(_) => "table",
            Self::Learned(_) => "learned",
            Self::Auto(_) => "auto",
        }
    }

    /// The file that it is read from, if it is read from one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Table(path) | Self::Learned(path) => Some(path),
            Self::Auto(path) => path.as_deref(),
            Self::Base | Self::Accurate | Self::Planned => None,
        }
    }
}

impl ModelChoice {
    /// Whether the base answers everything.
    pub(crate) fn is_single(&self) -> bool {
        self.variants() == 1
    }

    /// The times that a simulated engine waits out for a variant; `None` for a real model.
    pub fn simulated_times(&self, variant: usize) -> Option<&[SimulatedTime]> {
        match self {
            Self::Named(_) => None,
            Self::Simulated { models, .. } => models.get(variant).map(|model| &model.times[..]),
        }
    }

    /// How many there are, the base among them.
    pub(crate) fn variants(&self) -> usize {
        match self {
            Self::Named(models) => models.len(),
            Self::Simulated { models, .. } => models.len(),
        }
    }
}

impl Check<'_> {
    /// What computes, for each of the GPUs that the field `at` names.
    pub(super) fn backends(
        &self,
        field: &str,
        (kind, isolation): (EngineKind, Isolation),
        gpu: Option<raw::Gpu>,
        daemon: Option<&DaemonConfig>,
    ) -> Result<Vec<Backend>, Refused> {
        let gpus = match gpu {
            None => vec![0],
            Some(raw::Gpu::One(gpu)) => vec![gpu],
            Some(raw::Gpu::Each(gpus)) => gpus,
        };
        if let Some(gpu) = gpus.iter().find(|gpu| **gpu != 0 && !kind.has_devices()) {
            return Err(self.refuse(field, &gpu.to_string(), format!("engine \"{kind}\" has only one, 0")));
        }
        let fixed = kind == EngineKind::TractCuda && isolation == Isolation::Thread;
        if let Some(gpu) = gpus.iter().find(|gpu| **gpu != 0 && fixed) {
            let reason = format!("engine \"{kind}\" computes on 0 with isolation = \"thread\"");
            return Err(self.refuse(field, &gpu.to_string(), reason));
        }
        self.number(&format!("{field} (how many)"), gpus.len() as u64, 1, MAX_WORKERS as u64)?;
        let backend = |gpu: u64| {
            let device = self.number(field, gpu, 0, 63)? as u32;
            let daemon = daemon.ok_or(Refused)?;
            let (library, max_model) = (daemon.onnxruntime.clone(), daemon.max_model);
            Ok(Backend { kind, device, library, max_model, remote: None })
        };
        all(gpus.into_iter().map(backend))
    }

    /// What answers, and who chooses.
    pub(super) fn model(
        &self,
        at: &str,
        (engine, model, variants): (EngineKind, Option<String>, Vec<String>),
        simulated: Option<raw::Simulated>,
        (select, weights): (Option<raw::Select>, Option<raw::FilePath>),
    ) -> Result<(ModelChoice, Select), Refused> {
        let refuse =
            |name: &str, value: &str, reason: &str| self.refuse(&format!("{at}.{name}"), value, reason);
        let model = match (engine, model, simulated) {
            (EngineKind::Simulated, None, Some(s)) => {
                if let Some(first) = variants.first() {
                    return Err(refuse("variants", first, "engine \"simulated\" has simulated.variants"));
                }
                self.simulated(&format!("{at}.simulated"), s)?
            }
            (EngineKind::Simulated, None, None) => {
                return Err(refuse("simulated", ABSENT, "engine \"simulated\" needs a table with its times"));
            }
            (EngineKind::Simulated, Some(m), _) => {
                return Err(refuse("model", &m, "engine \"simulated\" runs no model; remove it"));
            }
            (_, Some(m), None) => {
                let names: Vec<_> = [m].into_iter().chain(variants).collect();
                for (i, name) in names.iter().enumerate().skip(1) {
                    if names[..i].contains(name) {
                        let reason = "is there already: name each variant once, and the base as model";
                        return Err(refuse(&format!("variants[{}]", i - 1), &format!("{name:?}"), reason));
                    }
                }
                ModelChoice::Named(names)
            }
            (_, None, None) => return Err(refuse("model", ABSENT, "must name a model of daemon.models")),
            (_, _, Some(_)) => {
                return Err(refuse("simulated", "(table)", "only for engine = \"simulated\"; remove it"));
            }
        };
        let count = model.variants() as u64;
        self.number(&format!("{at}.variants (how many, with the base)"), count, 1, MAX_VARIANTS as u64)?;
        let select = match select {
            Some(_) if count == 1 => {
                return Err(refuse("select", "(present)", "only with variants to select among; remove it"));
            }
            Some(raw::Select::Base) => Select::Base,
            Some(raw::Select::Accurate) | None => Select::Accurate,
            Some(raw::Select::Planned) => Select::Planned,
            Some(raw::Select::Table(path)) => Select::Table(self.resolve(&path)),
            Some(raw::Select::Learned) => match &weights {
                Some(path) => Select::Learned(self.resolve(path)),
                None => {
                    let reason = "must name the file that `weir train` writes";
                    return Err(refuse("weights", ABSENT, reason));
                }
            },
            Some(raw::Select::Auto) => Select::Auto(weights.as_deref().map(|path| self.resolve(path))),
        };
        if let Some(path) = weights.filter(|_| !matches!(select, Select::Learned(_) | Select::Auto(_))) {
            let reason = "only with select = \"learned\" or \"auto\"; remove it";
            return Err(refuse("weights", &format!("{:?}", path.display()), reason));
        }
        Ok((model, select))
    }

    fn simulated(&self, at: &str, raw: raw::Simulated) -> Result<ModelChoice, Refused> {
        let base = self.simulated_model(at, raw.name.clone(), &raw.times, raw.accuracy);
        if !raw.variants.is_empty() && raw.accuracy.is_none() {
            let reason = "must be given where there are variants";
            return Err(self.refuse(&format!("{at}.accuracy"), ABSENT, reason));
        }
        let variants = raw.variants.iter().enumerate().map(|(i, variant)| {
            let (name, accuracy) = (variant.name.clone(), Some(variant.accuracy));
            self.simulated_model(&format!("{at}.variants[{i}]"), name, &variant.times, accuracy)
        });
        let models = all([base].into_iter().chain(variants));
        let size = |name: &str, size| self.number(&format!("{at}.{name}"), size, 1, 1 << 20);
        let (input, output) = (size("input", raw.input), size("output", raw.output));
        Ok(ModelChoice::Simulated { models: models?, input: input? as usize, output: output? as usize })
    }

    pub(super) fn simulated_model(
        &self,
        at: &str,
        name: Option<String>,
        times: &[raw::SimulatedTime],
        accuracy: Option<f64>,
    ) -> Result<SimulatedModel, Refused> {
        let field = format!("{at}.times");
        self.number(&format!("{field} (how many)"), times.len() as u64, 1, MAX_BATCH as u64)?;
        if let Some(accuracy) = accuracy.filter(|accuracy| !(0.0..=1.0).contains(accuracy)) {
            let reason = "must be in 0..=1";
            return Err(self.refuse(&format!("{at}.accuracy"), &accuracy.to_string(), reason));
        }
        let times =
            times.iter().enumerate().map(|(i, time)| self.simulated_time(&format!("{field}[{i}]"), time));
        if let Some(wrong) = name.as_ref().filter(|name| !is_name(name)) {
            let reason = "must be 1..=64 letters, digits or any of - _ . /";
            return Err(self.refuse(&format!("{at}.name"), &format!("{wrong:?}"), reason));
        }
        Ok(SimulatedModel { times: all(times)?, name, accuracy })
    }

    fn simulated_time(&self, field: &str, raw: &raw::SimulatedTime) -> Result<SimulatedTime, Refused> {
        let (bound, likely, mean) = match raw {
            raw::SimulatedTime::Always(time) => {
                return Ok(SimulatedTime::always(self.span(field, time, Span::ZERO)?.as_nanos()));
            }
            raw::SimulatedTime::Spread(raw::Spread { bound, likely, mean }) => (bound, likely, mean),
        };
        let span = |name: &str, text: &str| self.span(&format!("{field}.{name}"), text, Span::ZERO);
        let [longest, within, mean_time] =
            [("bound", bound), ("likely", likely), ("mean", mean)].map(|(name, text)| span(name, text));
        let (longest, within, mean_time) = (longest?, within?, mean_time?);
        if within > longest {
            return Err(self.refuse(
                &format!("{field}.likely"),
                likely,
                format!("must be at most the bound, {longest}"),
            ));
        }
        SimulatedTime::spread(longest.as_nanos(), within.as_nanos(), mean_time.as_nanos()).map_err(
            |(least, most)| {
                let [least, most] = [least, most].map(Span::from_nanos);
                let reason = format!(
                    "must be {least}..={most}: one batch in 100 takes the bound, 11 take the likely time"
                );
                self.refuse(&format!("{field}.mean"), mean, reason)
            },
        )
    }
}
