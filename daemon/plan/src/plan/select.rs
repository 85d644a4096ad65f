//! The file of selection tables: read and checked when a service is planned, against the inputs it was made for.

use std::path::{Path, PathBuf};

use rt_core::{ClassWorth, LoadMonitor, Manner, SelectError, SelectTable, SelectTables, Selector, Span};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PlanError, ServicePlan};
use crate::config::RequestClass;
use weir_engine::sha256_hex;

/// The version of the file format, its field `weir_select`.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "weir_select")]
    _version: u32,
    inputs_sha256: String,
    /// The arrival rate is that of a window of this length.
    #[serde(default = "default_window")]
    window_ns: u64,
    tables: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rate_per_s: f64,
    bin_ns: Option<u64>,
    #[serde(default)]
    manner: TableManner,
    /// `wishes[n-1][j]`: the variant for `n` requests in the batch and waiting, and a slack from `j` bins on.
    #[serde(default)]
    wishes: Vec<Vec<u8>>,
    /// Or `prices[n-1][j]`: what a second of a worker's time costs then if `j` other workers are free.
    #[serde(default)]
    prices: Vec<Vec<f32>>,
    /// `sizes[n-1]`: the most requests of a batch where `n` wait; none if there is no such limit.
    #[serde(default)]
    sizes: Vec<u8>,
}

/// How batches are formed for a table.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TableManner {
    #[default]
    Plain,
    Forming,
}

fn default_window() -> u64 {
    LoadMonitor::DEFAULT_WINDOW.as_nanos()
}

/// Why a file of tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("cannot be read: {0}; `weir plan --select` makes such a file")]
    Read(#[from] std::io::Error),
    #[error("no selection tables: {0}")]
    Parse(#[from] serde_json::Error),
    #[error("weir_select is {found}, this weir reads {VERSION}")]
    Version { found: u32 },
    #[error("inputs_sha256 is {found}, here it is {here}: make the tables anew with `weir plan --select`")]
    Inputs { found: String, here: String },
    #[error("tables[{table}].wishes[{row}] has {found} bins, the first row has {bins}")]
    Row { table: usize, row: usize, found: usize, bins: usize },
    #[error("tables[{table}].prices[{row}] has {found} prices, the first row has {frees}")]
    PriceRow { table: usize, row: usize, found: usize, frees: usize },
    #[error("tables[{table}]: must have bin_ns and wishes, or prices alone")]
    Cells { table: usize },
    #[error("tables[{table}].{source}")]
    Table { table: usize, source: SelectError },
    #[error(transparent)]
    Select(#[from] SelectError),
}

/// The selector of `plan` by the tables of `path`.
///
/// # Errors
/// [`PlanError::Table`].
pub(super) fn load(path: &Path, plan: &ServicePlan) -> Result<Selector, PlanError> {
    let failed = |source| PlanError::Table { path: PathBuf::from(path), source };
    let text = planner::read_text(path).map_err(|error| failed(error.into()))?;
    parse(&text, plan).map_err(failed)
}

/// Whether the file at `path` holds tables for so many variants, whatever machine they were made for.
///
/// # Errors
/// [`PlanError::Table`], also if there is no such file.
pub fn check_tables(path: &Path, variants: usize) -> Result<(), PlanError> {
    let failed = |source| PlanError::Table { path: PathBuf::from(path), source };
    let text = planner::read_text(path).map_err(|error| failed(error.into()))?;
    let (_, tables, _) = read(&text).map_err(failed)?;
    SelectTables::new(tables, variants).map(drop).map_err(|source| failed(source.into()))
}

fn parse(text: &str, plan: &ServicePlan) -> Result<Selector, TableError> {
    let (found, tables, load) = read(text)?;
    let here = inputs_sha256(plan);
    if found != here {
        return Err(TableError::Inputs { found, here });
    }
    Ok(Selector::new(plan.core_variants(), tables, load)?)
}

/// What the tables were made for, the tables, and what measures the rate.
fn read(text: &str) -> Result<(String, Vec<SelectTable>, LoadMonitor), TableError> {
    /// Only the version, so that a file of another version is refused for being that.
    #[derive(Deserialize)]
    struct Version {
        weir_select: u32,
    }
    let Version { weir_select: found } = planner::from_json(text)?;
    if found != VERSION {
        return Err(TableError::Version { found });
    }
    let file: File = planner::from_json(text)?;
    let mut tables = Vec::with_capacity(file.tables.len());
    for (table, raw) in file.tables.iter().enumerate() {
        tables.push(raw.made(table)?);
    }
    let load = LoadMonitor::new(Span::from_nanos(file.window_ns))?;
    Ok((file.inputs_sha256, tables, load))
}

impl Table {
    /// As the scheduler reads it; the file has `table` before it.
    fn made(&self, table: usize) -> Result<SelectTable, TableError> {
        let made = match (self.bin_ns, self.wishes.is_empty(), &self.prices[..]) {
            (Some(bin_ns), _, []) => {
                let odd = |(row, found, bins)| TableError::Row { table, row, found, bins };
                let bins = columns(&self.wishes).map_err(odd)?;
                let bin = Span::from_nanos(bin_ns);
                let made = SelectTable::new(self.rate_per_s, bin, bins, self.wishes.concat());
                made.map(|made| made.in_manner(self.manner.into()))
            }
            (None, true, [_, ..]) => {
                let odd = |(row, found, frees)| TableError::PriceRow { table, row, found, frees };
                let frees = columns(&self.prices).map_err(odd)?;
                SelectTable::of_prices(self.rate_per_s, frees, self.prices.concat())
            }
            _ => return Err(TableError::Cells { table }),
        };
        let made = made.and_then(|made| made.in_batches(&self.sizes[..]));
        made.map_err(|source| TableError::Table { table, source })
    }
}

/// How long each row is; or the number of one that is not as long as the first, how long it is, and how long that.
fn columns<T>(rows: &[Vec<T>]) -> Result<usize, (usize, usize, usize)> {
    let first = rows.first().map_or(0, Vec::len);
    match rows.iter().position(|row| row.len() != first) {
        Some(row) => Err((row, rows[row].len(), first)),
        None => Ok(first),
    }
}

impl From<TableManner> for Manner {
    fn from(manner: TableManner) -> Self {
        match manner {
            TableManner::Plain => Self::Plain,
            TableManner::Forming => Self::Forming,
        }
    }
}

/// What tables are made for: workers, latency, variants, and classes if there are any.
pub fn inputs(plan: &ServicePlan) -> Value {
    let workers = plan.workers();
    let variant = |v: &super::VariantPlan| {
        let times = (1..=v.times.max_batch()).map(|b| v.times.bound(b).as_nanos());
        json!({
            "model": v.spec.name,
            "sha256": v.spec.identity(),
            "accuracy": v.spec.accuracy,
            "times_ns": times.collect::<Vec<_>>(),
        })
    };
    let mut inputs = json!({
        "latency_ns": plan.system.unstalled_latency().as_nanos(),
        "workers": workers.count,
        "batch": workers.batch,
        "variants": plan.variants.iter().map(variant).collect::<Vec<_>>(),
    });
    let class = |(class, of): (&RequestClass, ClassWorth)| {
        json!({
            "name": class.name,
            "share": class.share,
            "worth": of.worth,
            "deadline_ns": of.deadline.as_nanos(),
            "decay": format!("{:?}", of.decay),
        })
    };
    let classes: Vec<_> = plan.config.classes.iter().zip(plan.class_worths()).map(class).collect();
    if !classes.is_empty() {
        inputs["classes"] = classes.into();
    }
    inputs
}

/// SHA-256 of the inputs as compact JSON with sorted keys, in hexadecimal.
pub fn inputs_sha256(plan: &ServicePlan) -> String {
    sha256_hex(inputs(plan).to_string().as_bytes())
}
