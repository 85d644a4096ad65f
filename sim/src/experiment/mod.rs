//! Experiments as files: systems, arrivals, rates and policies, each with each; tables and figures of what comes out.

mod beside;
mod cluster;
mod contender;
mod fleet;
mod heard;
mod pipeline;
mod plot;
mod profile;
mod quantity;
mod raw;
mod results;
mod routed;
mod scheduled;
mod selecting;
mod service;
mod sharing;
mod sweep;
mod system;
mod table;
mod value;
mod view;

use std::fmt::Display;

use planner::{ProblemError, Tables, in_words};
use serde::Deserialize;

use crate::cluster::Cluster;
use crate::policy::PlayError;
use crate::process::{Process, ProcessError, Recording};

use system::System;

pub use beside::Beside;
pub use contender::Contender;
pub use fleet::ServingKind;
pub use profile::Data;
pub use quantity::Quantity;
pub use results::{Cell, Results};
pub use routed::RouterKind;

/// The most cells times runs of an experiment.
const MAX_RUNS: usize = 1_000_000;

/// An experiment whose every value is in its range.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it shows, in one line.
    pub title: String,
    /// What it is about.
    pub about: String,
    /// Runs of each cell.
    pub runs: u32,
    /// Requests of a run.
    pub requests: u64,
    seed: u32,
    systems: Vec<System>,
    arrivals: Vec<Arrivals>,
    x: X,
    policies: Vec<Contender>,
    tables: Vec<raw::Table>,
    figures: Vec<raw::Figure>,
}

/// How requests come.
#[derive(Clone, Debug)]
struct Arrivals {
    name: String,
    /// `None` for the worst that is declared.
    process: Option<Process>,
    declare: raw::Declare,
    /// In periods.
    jitter: f64,
    mean: f64,
    /// Of several services, instead of the process.
    recorded: Option<cluster::Recorded>,
    /// Of classes that are routed, instead of the process.
    redrawn: Option<routed::Redrawn>,
}

/// How many requests come.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "raw::RawX")]
struct X {
    of: Of,
    values: Vec<f64>,
}

/// What the values are parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// One request a second.
    Second,
    /// The certified rate.
    Certified,
    /// What the workers serve in full batches.
    Capacity,
    /// What was recorded.
    Recorded,
}

/// Why something is no experiment, or cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Not TOML, or not the fields of an experiment.
    #[error("no experiment: {0}")]
    Toml(String),
    /// A value outside its range.
    #[error("{field} = {value}: {reason}")]
    Value {
        /// Which field, such as `system[0].deadline`.
        field: String,
        /// Its value.
        value: String,
        /// What it must be.
        reason: String,
    },
    /// A system that is none.
    #[error("system {name}: {error}")]
    System {
        /// Its name.
        name: String,
        /// What is wrong.
        error: ProblemError,
    },
    /// No rate of these arrivals can be certified, however low.
    #[error("system {system}: nothing can be certified for arrivals {arrivals}")]
    Uncertified {
        /// The system's name.
        system: String,
        /// The name of the arrivals.
        arrivals: String,
    },
    /// Arrivals that cannot come at such a rate.
    #[error("arrivals {arrivals}: {error}")]
    Process {
        /// Their name.
        arrivals: String,
        /// What is wrong.
        error: ProcessError,
    },
    /// A pipeline that a policy cannot serve.
    #[error("system {system}, policy {policy}: {error}")]
    Pipeline {
        /// The system's name.
        system: String,
        /// The policy.
        policy: Contender,
        /// What is wrong.
        error: crate::pipeline::PipelineError,
    },
    /// A run that is none.
    #[error("system {system}, policy {policy}: {error}")]
    Play {
        /// The system's name.
        system: String,
        /// The policy.
        policy: Contender,
        /// What is wrong.
        error: PlayError,
    },
}

impl Experiment {
    /// Reads an experiment from TOML; files that it names are looked for in `data`.
    ///
    /// # Errors
    /// [`ExperimentError`], with the field, its value and what it must be.
    pub fn parse(text: &str, data: &Data) -> Result<Self, ExperimentError> {
        let told = |error: toml::de::Error| {
            let message = error.message();
            ExperimentError::Toml(error.to_string().replace(message, &in_words(message, "a table")))
        };
        let from = toml::Deserializer::parse(text).map(Tables);
        let raw: raw::Experiment = from.and_then(Deserialize::deserialize).map_err(told)?;
        let system = |(index, system)| System::new(index, system, &raw.service, data);
        let systems = raw.system.iter().enumerate().map(system);
        let arrivals = raw.arrivals.iter().enumerate().map(|(i, arrivals)| Arrivals::new(i, arrivals, data));
        let experiment = Self {
            title: raw.title,
            about: raw.about,
            runs: raw.runs.get(),
            requests: raw.requests.get(),
            seed: raw.seed,
            systems: systems.collect::<Result<_, _>>()?,
            arrivals: arrivals.collect::<Result<_, _>>()?,
            x: raw.x,
            policies: raw.policies,
            tables: raw.table,
            figures: raw.figure,
        };
        experiment.check()?;
        Ok(experiment)
    }

    /// The clusters among its systems, by name, and what comes to each service a second on average in each recording.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, &Cluster, Vec<Vec<f64>>)> {
        self.systems.iter().filter_map(|system| {
            let cluster = system.cluster.as_deref()?;
            let recorded = self.arrivals.iter().filter_map(|arrivals| arrivals.recorded.as_ref());
            let means = recorded.map(|recorded| recorded.means(cluster)).collect();
            Some((system.name.as_str(), cluster, means))
        })
    }

    /// Cells times runs.
    #[must_use]
    pub fn size(&self) -> usize {
        let cells = [self.systems.len(), self.arrivals.len(), self.x.values.len(), self.policies.len()];
        cells.into_iter().fold(self.runs as usize, usize::saturating_mul)
    }

    fn check(&self) -> Result<(), ExperimentError> {
        unique("system", self.systems.iter().map(|system| &system.name))?;
        unique("arrivals", self.arrivals.iter().map(|arrivals| &arrivals.name))?;
        unique("policies", self.policies.iter())?;
        unique("x", self.x.values.iter())?;
        let other = |system: &System| {
            system.cluster.is_some() || system.router.is_some() || system.selecting.is_some()
        };
        let is_other = self.systems.iter().any(other);
        for policy in self.policies.iter().filter(|_| !is_other) {
            let picks = matches!(policy, Contender::Serving(_));
            if let Some(other) = self.systems.iter().find(|system| system.fleet.is_some() != picks) {
                let reason = if picks { "needs a fleet" } else { "cannot serve a fleet" };
                return Err(refuse("policies", policy, format!("{reason}; system {}", other.name)));
            }
            let fits = |system: &System| match &system.sharing {
                Some(_) => policy.sharing().is_some(),
                None => !matches!(policy, Contender::Sharing(_)),
            };
            if let Some(other) = self.systems.iter().find(|system| !fits(system)) {
                let reason = match &other.sharing {
                    Some(_) => "cannot serve several services",
                    None => "needs several services",
                };
                return Err(refuse("policies", policy, format!("{reason}; system {}", other.name)));
            }
        }
        self.check_pipelines()?;
        self.check_clusters()?;
        self.check_routers()?;
        self.check_selecting()?;
        match self.size() {
            size if size > MAX_RUNS => {
                Err(refuse("runs", self.runs, format!("makes {size} runs in all, at most {MAX_RUNS}")))
            }
            _ => self.check_views(),
        }
    }
}

impl Arrivals {
    fn new(index: usize, raw: &raw::Arrivals, data: &Data) -> Result<Self, ExperimentError> {
        let field = |name: &str| format!("arrivals[{index}].{name}");
        let wrong = |error: ProcessError| ExperimentError::Process { arrivals: raw.name.clone(), error };
        let open = |file: &str, recording: Recording| {
            let path = data.path(&field("process.file"), file)?;
            Process::open(recording, &path)
                .map_err(|error| refuse(field("process.file"), path.display(), error))
        };
        let (mut recorded, mut redrawn) = (None, None);
        let process = match &raw.process {
            raw::Process::Services(counts) => {
                recorded = Some(cluster::Recorded::new(&field("process"), counts, data)?);
                None
            }
            raw::Process::Redrawn(raw) => {
                redrawn = Some(raw.clone());
                None
            }
            raw::Process::Adversarial => None,
            raw::Process::Constant => Some(Process::Constant),
            &raw::Process::Periodic { jitter } => Some(Process::Periodic { jitter }),
            raw::Process::Poisson => Some(Process::Poisson),
            &raw::Process::Gamma { shape } => Some(Process::Gamma { shape }),
            raw::Process::MarkovModulated { states } => {
                let state = |&(rate, dwell_s): &(f64, f64)| crate::process::ModulatedState { rate, dwell_s };
                Some(Process::MarkovModulated { states: states.iter().map(state).collect() })
            }
            &raw::Process::Bursts { size } => Some(Process::Bursts { size }),
            &raw::Process::Trace { ref file, unit } => Some(open(file, Recording::Instants { unit })?),
            &raw::Process::Counts { ref file, unit } => Some(open(file, Recording::Counts { unit })?),
        };
        let jitter = match (raw.declare, &raw.process) {
            (raw::Declare::Periodic, &raw::Process::Periodic { jitter }) => jitter,
            _ => 0.0,
        };
        if let Some(process) = &process {
            // Whatever is wrong with its shape is wrong at every rate.
            process.arrivals(1.0, 0).map_err(wrong)?;
        }
        let (name, mean) = (raw.name.clone(), raw.mean.0);
        Ok(Self { name, process, declare: raw.declare, jitter, mean, recorded, redrawn })
    }
}

impl Arrivals {
    /// The least and the largest rate over the mean, where the rate is one that changes.
    fn extremes(&self) -> (f64, f64) {
        let states = |rates: &mut dyn Iterator<Item = f64>, mean: f64| {
            let (least, most) =
                rates.fold((f64::INFINITY, 0.0f64), |(a, b), rate| (a.min(rate), b.max(rate)));
            ((least / mean).max(0.1), most / mean)
        };
        match &self.process {
            Some(Process::Rates { rates, .. }) => {
                states(&mut rates.iter().copied(), rates.iter().sum::<f64>() / rates.len() as f64)
            }
            Some(Process::MarkovModulated { states: all }) => {
                let time: f64 = all.iter().map(|state| state.dwell_s).sum();
                let mean = all.iter().map(|state| state.rate * state.dwell_s).sum::<f64>() / time;
                states(&mut all.iter().map(|state| state.rate), mean)
            }
            _ => (1.0, 1.0),
        }
    }
}

impl TryFrom<raw::RawX> for X {
    type Error = String;

    fn try_from(raw: raw::RawX) -> Result<Self, String> {
        let all = [
            (Of::Second, raw.rate),
            (Of::Certified, raw.load),
            (Of::Capacity, raw.capacity),
            (Of::Recorded, raw.recorded),
        ];
        let mut given = all.into_iter().filter_map(|(of, values)| Some((of, values?)));
        let (Some((of, values)), None) = (given.next(), given.next()) else {
            return Err("must have one of rate, load, capacity, recorded".to_owned());
        };
        let values: Vec<f64> = match values {
            raw::Values::List(list) => list,
            raw::Values::Range(raw::Range { from, to, step }) => {
                let steps = ((to - from) / step + 1e-9).floor();
                if !(step > 0.0 && (0.0..10_000.0).contains(&steps)) {
                    return Err(format!("{from} to {to} by {step}: must be 1 to 10000 steps up"));
                }
                // As decimals, so that 0.1 steps meet 0.3.
                let decimal = |i: u32| ((from + f64::from(i) * step) * 1e9).round() / 1e9;
                (0..=steps as u32).map(decimal).collect()
            }
        };
        if let Some(wrong) = values.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
            return Err(format!("{wrong}: must be above 0"));
        }
        Ok(Self { of, values })
    }
}

impl X {
    /// What the axis shows.
    fn label(&self) -> &'static str {
        match self.of {
            Of::Second => "requests a second",
            Of::Certified => "load (1: the certified rate)",
            Of::Capacity => "load (1: all workers, full batches)",
            Of::Recorded => "requests (1: as many as recorded)",
        }
    }
}

fn unique<T: PartialEq + Display>(field: &str, list: impl Iterator<Item = T>) -> Result<(), ExperimentError> {
    let mut seen: Vec<T> = Vec::new();
    for item in list {
        if seen.contains(&item) {
            return Err(refuse(field, item, "is there twice"));
        }
        seen.push(item);
    }
    if seen.is_empty() { Err(refuse(field, "[]", "must not be empty")) } else { Ok(()) }
}

fn refuse(field: impl Into<String>, value: impl Display, reason: impl Display) -> ExperimentError {
    ExperimentError::Value { field: field.into(), value: value.to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
