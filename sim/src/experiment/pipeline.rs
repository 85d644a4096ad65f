//! Pipelines of an experiment: stages that feed one another, with the models of each, on identical workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use planner::problem::raw::Unit;
use rt_core::{MAX_BATCH, MAX_WORKERS, Span, Variant};
use serde::Deserialize;
use virtual_time::{Tree, TreeStage};

use super::contender::Contender;
use super::profile::{Data, numbers, times_of};
use super::service::Service;
use super::value::{Share, Time};
use super::{Experiment, ExperimentError, raw, refuse};
use crate::pipeline::{Cluster, Planned};

/// The most stages of a pipeline, and the most that a result may become.
const MOST: usize = 32;
const MOST_CHILDREN: u32 = 1024;

/// The most choices of batches along a path, of one variant of each stage: planners try them all.
const MOST_CHOICES: usize = 1 << 18;

/// Identical workers, and the stages that they serve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Raw {
    /// How many.
    workers: usize,
    /// The sizes of batches there are, rising from 1; one between two is filled up to the larger. All sizes if empty.
    #[serde(default)]
    batches: Vec<usize>,
    /// Each behind the one that it takes results of.
    stages: Vec<Stage>,
}

/// A stage.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Stage {
    /// Unique.
    name: String,
    /// Whose results it takes; none of the first.
    after: Option<String>,
    /// The most requests that a result becomes here.
    fan_out: Option<u32>,
    /// How many it becomes on average; as many as there may be if absent.
    mean: Option<Means>,
    /// What can run here, one at least.
    variants: Vec<RawVariant>,
    /// Where the times and accuracies of those are that have a name alone.
    table: Option<Table>,
}

/// A model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawVariant {
    /// In the table.
    name: Option<String>,
    /// Or the times of batches of 1, 2, ….
    times: Option<Vec<Time>>,
    /// How good its answers are, in `0..=1`.
    accuracy: Option<Share>,
}

/// Where variants were measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    /// A CSV with a header, within the folder of data.
    file: String,
    /// Columns and what they must say.
    #[serde(default)]
    rows: BTreeMap<String, String>,
    /// The column of the names of variants.
    variant: String,
    /// The column of batch sizes.
    batch: String,
    /// The column of times, and their unit.
    time: String,
    unit: Unit,
    /// The column of accuracies, in percent.
    accuracy_percent: String,
}

/// How many requests a result becomes on average.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a number, a list of them, or { file = \"…\", variant = \"…\", product = [\"…\"] }"
)]
enum Means {
    /// Whatever the variant.
    Same(f64),
    /// Of each variant of the stage before.
    Each(Vec<f64>),
    /// The product of columns, in the row of each.
    Table(#[serde(deserialize_with = "planner::table")] Product),
}

/// Numbers of variants from a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Product {
    /// A CSV with a header, within the folder of data.
    file: String,
    /// The column of the names of variants.
    variant: String,
    /// The columns to be multiplied.
    product: Vec<String>,
}

/// The pipeline of a system, if it has one.
///
/// # Errors
/// If a value is outside its range, or something is given that pipelines do not have.
pub(super) fn planned(
    field: &impl Fn(&str) -> String,
    system: &raw::System,
    deadline: Span,
    service: &Service,
    data: &Data,
) -> Result<Option<Arc<Planned>>, ExperimentError> {
    let Some(raw) = &system.pipeline else { return Ok(None) };
    let wrong = [
        ("workers", !system.workers.is_empty()),
        ("variants", !system.variants.is_empty()),
        ("fleet", system.fleet.is_some()),
        ("service", service.stall() > Span::ZERO),
        ("streams", system.streams.iter().any(|kind| kind.period.is_some())),
    ];
    if let Some(&(name, _)) = wrong.iter().find(|(_, wrong)| *wrong) {
        let reason = if name == "streams" { "must have no period" } else { "must be none" };
        return Err(refuse(field(name), "", format!("{reason} of a pipeline")));
    }
    let field = |name: &str| field(&format!("pipeline.{name}"));
    let within = |name: &str, value: usize, most: usize| {
        let range = || refuse(field(name), value, format!("must be in 1..={most}"));
        if (1..=most).contains(&value) { Ok(()) } else { Err(range()) }
    };
    within("workers", raw.workers, MAX_WORKERS)?;
    within("stages", raw.stages.len(), MOST)?;
    let is_rising = raw.batches.windows(2).all(|pair| pair[0] < pair[1]);
    if !raw.batches.is_empty() && (!is_rising || raw.batches[0] != 1 || raw.batches.last() > Some(&MAX_BATCH))
    {
        let reason = format!("must rise from 1 to at most {MAX_BATCH}");
        return Err(refuse(field("batches"), format!("{:?}", raw.batches), reason));
    }
    let mut stages: Vec<TreeStage> = Vec::new();
    for (i, stage) in raw.stages.iter().enumerate() {
        let of = |name: &str| field(&format!("stages[{i}].{name}"));
        if raw.stages[..i].iter().any(|other| other.name == stage.name) {
            return Err(refuse(of("name"), &stage.name, "is there twice"));
        }
        let before = |after: &String| {
            let found = raw.stages[..i].iter().position(|other| other.name == *after);
            found.ok_or_else(|| refuse(of("after"), after, "must be a stage that stands before it"))
        };
        let parent = stage.after.as_ref().map(before).transpose()?;
        if parent.is_some() != (i > 0) {
            let reason = "must be given, but for the first stage";
            return Err(refuse(of("after"), stage.after.as_deref().unwrap_or(""), reason));
        }
        let fan_out = stage.fan_out.unwrap_or(1);
        if !(1..=MOST_CHILDREN).contains(&fan_out) {
            return Err(refuse(of("fan-out"), fan_out, format!("must be in 1..={MOST_CHILDREN}")));
        }
        let means = match parent {
            Some(parent) => means(&of("mean"), stage, fan_out, &raw.stages[parent], data)?,
            None if stage.mean.is_some() || stage.fan_out.is_some() => {
                return Err(refuse(of("fan-out"), fan_out, "must be none of the first stage"));
            }
            None => Vec::new(),
        };
        let variants = variants(&of("variants"), stage, &raw.batches, service, data)?;
        stages.push(TreeStage { parent, fan_out, means, variants });
    }
    let batches = if raw.batches.is_empty() { (1..=MAX_BATCH).collect() } else { raw.batches.clone() };
    let mut choices: Vec<usize> = Vec::new();
    for (i, stage) in stages.iter().enumerate() {
        let largest = stage.variants.iter().map(|variant| variant.profile.max_batch()).max().unwrap_or(1);
        let sizes = batches.iter().filter(|&&batch| batch <= largest).count();
        choices.push(stage.parent.map_or(1, |parent| choices[parent]).saturating_mul(sizes));
        if choices[i] > MOST_CHOICES {
            let reason = format!("at most {MOST_CHOICES} choices of batches along a path");
            return Err(refuse(field("batches"), choices[i], reason));
        }
    }
    let planned = Planned::new(Cluster { tree: Tree { deadline, stages }, workers: raw.workers, batches });
    match planned.capacity() {
        Some(capacity) if capacity > 0.0 => Ok(Some(Arc::new(planned))),
        _ => {
            let reason = "the most accurate variants must be carried by the workers, in half of the deadline";
            Err(refuse(field("workers"), raw.workers, reason))
        }
    }
}

fn means(
    field: &str,
    stage: &Stage,
    fan_out: u32,
    parent: &Stage,
    data: &Data,
) -> Result<Vec<f64>, ExperimentError> {
    let count = parent.variants.len();
    let means = match &stage.mean {
        None => vec![f64::from(fan_out); count],
        Some(Means::Same(mean)) => vec![*mean; count],
        Some(Means::Each(means)) => means.clone(),
        Some(Means::Table(of)) => {
            let product = |variant: &RawVariant| {
                let name = variant.name.clone().unwrap_or_default();
                let rows = BTreeMap::from([(of.variant.clone(), name)]);
                Ok(numbers(field, &of.file, &rows, &of.product, data)?.iter().product())
            };
            parent.variants.iter().map(product).collect::<Result<_, ExperimentError>>()?
        }
    };
    if means.len() != count {
        return Err(refuse(
            field,
            means.len(),
            format!("must be {count}, one of each variant of {}", parent.name),
        ));
    }
    match means.iter().find(|mean| !(0.0..=f64::from(fan_out)).contains(*mean)) {
        Some(mean) => Err(refuse(field, mean, format!("must be in 0..={fan_out}, the fan-out"))),
        None => Ok(means),
    }
}

fn variants(
    field: &str,
    stage: &Stage,
    batches: &[usize],
    service: &Service,
    data: &Data,
) -> Result<Vec<Variant>, ExperimentError> {
    if !(1..=MOST).contains(&stage.variants.len()) {
        return Err(refuse(field, stage.variants.len(), format!("must be 1..={MOST}")));
    }
    let variant = |(i, raw): (usize, &RawVariant)| {
        let field = format!("{field}[{i}]");
        let (times, accuracy) = match (&raw.name, &raw.times, &stage.table) {
            (_, Some(times), _) => (times.iter().map(|time| time.0).collect(), None),
            (Some(name), None, Some(table)) => {
                let mut rows = table.rows.clone();
                rows.insert(table.variant.clone(), name.clone());
                let column = std::slice::from_ref(&table.accuracy_percent);
                let percent = numbers(&field, &table.file, &rows, column, data)?[0];
                let (file, batch, time) = (table.file.clone(), table.batch.clone(), table.time.clone());
                let profile = raw::Profile { file, rows, batch, time, unit: table.unit };
                let at = |size| batches.is_empty() || batches.contains(&size);
                (times_of(&field, &profile, at, data)?, Some(percent / 100.0))
            }
            _ => return Err(refuse(field, "", "must have times, or a name in a table")),
        };
        let accuracy = raw.accuracy.map(|share| share.0).or(accuracy).unwrap_or(1.0);
        if !(0.0..=1.0).contains(&accuracy) {
            return Err(refuse(format!("{field}.accuracy"), accuracy, "must be in 0..=1"));
        }
        let profile = service.profile(times).map_err(|error| refuse(&field, "its times", error))?;
        Ok(Variant { profile, accuracy })
    };
    stage.variants.iter().enumerate().map(variant).collect()
}

impl Experiment {
    /// Whether pipelines are served by those who can, and nobody else is asked to.
    pub(super) fn check_pipelines(&self) -> Result<(), ExperimentError> {
        for policy in &self.policies {
            let serves = matches!(policy, Contender::Pipeline(_));
            if let Some(other) = self.systems.iter().find(|system| system.pipeline.is_some() != serves) {
                let reason = if serves { "needs a pipeline" } else { "cannot serve a pipeline" };
                return Err(refuse("policies", policy, format!("{reason}; system {}", other.name)));
            }
        }
        Ok(())
    }

    /// The cluster of the system of that name.
    #[cfg(test)]
    pub(crate) fn cluster(&self, name: &str) -> Option<&Cluster> {
        let system = self.systems.iter().find(|system| system.name == name)?;
        system.pipeline.as_ref().map(|of| of.cluster())
    }
}

#[cfg(test)]
mod tests;
