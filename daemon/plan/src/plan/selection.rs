//! Tables that select among the variants of a service, for parts of the rate that it promises.

use std::path::{Path, PathBuf};

use planner::selection::{Inputs, Planned, SelectionError, plan};
use rt_core::{LoadMonitor, Manner, SelectError, Selector};
use serde_json::json;

use super::select::VERSION;
use super::{ServicePlan, inputs_sha256};

/// So many loads, evenly up to the whole rate.
const LOADS: u32 = 10;

/// What selection is expected to be worth.
#[derive(Debug)]
pub struct SelectionPlan {
    pub inputs: Inputs,
    /// The rate that is promised, with that of the reserved streams; without a promise what the base can carry.
    pub rate_per_s: f64,
    pub loads: Vec<Load>,
}

/// One load.
#[derive(Debug)]
pub struct Load {
    /// The part of the whole rate.
    pub part: f64,
    pub rate_per_s: f64,
    /// The table; none if the load is more than the base can carry, which then answers alone.
    pub planned: Option<Planned>,
}

/// Why a file of tables or weights could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {source}", path.display())]
pub struct WriteError {
    path: PathBuf,
    source: std::io::Error,
}

impl WriteError {
    pub(super) fn new(path: &Path, source: std::io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

impl SelectionPlan {
    /// What to expect if at most a share `max_miss` of the requests may be missed.
    ///
    /// # Errors
    /// A value that no tables can be made for, such as too large a batch.
    pub fn compute(service: &ServicePlan, max_miss: f64) -> Result<Self, SelectionError> {
        let inputs = service.selection_inputs(max_miss);
        let capacity = service.capacity();
        let rate_per_s = service.certified_per_s().unwrap_or(capacity);
        let parts = (1..=LOADS).map(|i| f64::from(i) / f64::from(LOADS));
        let loads: Vec<_> = parts.map(|part| (part, part * rate_per_s)).collect();
        let within: Vec<f64> = loads.iter().map(|&(_, load)| load).filter(|&load| load < capacity).collect();
        let mut planned = plan(&inputs, &within)?.into_iter();
        // Those within are the first ones.
        let load = |(part, rate_per_s)| Load { part, rate_per_s, planned: planned.next() };
        let loads = loads.into_iter().map(load).collect();
        Ok(Self { inputs, rate_per_s, loads })
    }

    /// The tables as the scheduler reads them, by rising load.
    ///
    /// # Errors
    /// Variants or classes that no selector has.
    pub fn selector(&self) -> Result<Selector, SelectError> {
        let planned = self.loads.iter().filter_map(|load| load.planned.as_ref());
        let tables: Vec<_> = planned.map(|planned| planned.table.clone()).collect();
        let selector = Selector::new(self.inputs.variants.clone(), tables, LoadMonitor::default());
        self.inputs.for_classes(selector?)
    }

    /// The tables for the load nearest to this part of the whole rate.
    pub fn nearest(&self, part: f64) -> Option<&Planned> {
        let distance = |load: &Load| (load.part - part).abs();
        let tables = self.loads.iter().filter_map(|load| Some((distance(load), load.planned.as_ref()?)));
        tables.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, planned)| planned)
    }

    /// Writes the file of tables for `service`, which this is the plan of.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, service: &ServicePlan, path: &Path) -> Result<(), WriteError> {
        let table = |planned: &Planned| {
            let (table, rate) = (&planned.table, planned.rate_per_s);
            let mut told = if table.prices().is_empty() {
                let rows: Vec<_> = table.wishes().chunks(table.columns()).collect();
                let manner = if table.manner() == Manner::Forming { "forming" } else { "plain" };
                let bin = table.bin().as_nanos();
                json!({ "rate_per_s": rate, "bin_ns": bin, "manner": manner, "wishes": rows })
            } else {
                let rows: Vec<_> = table.prices().chunks(table.columns()).collect();
                json!({ "rate_per_s": rate, "prices": rows })
            };
            if !table.sizes().is_empty() {
                told["sizes"] = table.sizes().into();
            }
            told
        };
        let tables: Vec<_> = self.loads.iter().filter_map(|load| load.planned.as_ref()).map(table).collect();
        let file =
            json!({ "weir_select": VERSION, "inputs_sha256": inputs_sha256(service), "tables": tables });
        planner::write_atomically(path, format!("{file}\n").as_bytes())
            .map_err(|source| WriteError::new(path, source))
    }
}
