//! The results of an experiment, cell by cell.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};

use super::contender::Contender;
use super::quantity::Quantity;
use crate::statistics::Estimate;

/// What came out of every cell: systems, arrivals, rates, policies, the last one fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What is told of each cell.
    pub quantities: Vec<Quantity>,
    /// Each with each.
    pub cells: Vec<Cell>,
}

/// What came out of the runs of one system, arrivals, rate and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The system's name.
    pub system: String,
    /// The name of the arrivals.
    pub arrivals: String,
    /// As the experiment has it.
    pub x: f64,
    /// Who decided.
    pub policy: Contender,
    /// The rate that is certified, in requests a second; NaN where nothing is promised.
    pub certified: f64,
    /// The mean rate of the arrivals, in requests a second.
    pub rate: f64,
    /// Over the runs, of each quantity. Of a run that has none, as the latency of no answers, nothing.
    pub estimates: Vec<Estimate>,
    /// What they are of: of each run each quantity, NaN where it has none.
    pub runs: Vec<Vec<f64>>,
    /// Of clusters and pipelines the same of what came from each of these seconds on.
    pub moments: Vec<(f64, Vec<Estimate>)>,
}

impl Results {
    /// What a cell says.
    #[must_use]
    pub fn estimate(&self, cell: &Cell, quantity: Quantity) -> Option<Estimate> {
        self.quantities.iter().position(|&q| q == quantity).map(|i| cell.estimates[i])
    }

    /// Cells in which our own policy violated a constraint before it had announced anything: there must be none.
    #[must_use]
    pub fn broken(&self) -> Vec<&Cell> {
        let silent = |cell: &&Cell| self.estimate(cell, Quantity::Unannounced).is_some_and(|e| e.mean > 0.0);
        self.cells
            .iter()
            .filter(|cell| matches!(cell.policy, Contender::Policy(kind) if kind.is_own()))
            .filter(silent)
            .collect()
    }

    /// All of it, a line for each cell: mean and half of the 95 % confidence interval of each quantity. A field is
    /// empty where no run has a value.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "system,arrivals,x,policy,certified,rate".to_owned();
        for quantity in &self.quantities {
            let _ = write!(text, ",{quantity},{quantity} ±");
        }
        text.push('\n');
        for cell in &self.cells {
            let names = [&cell.system, &cell.arrivals].map(|name| quoted(name));
            let _ = write!(text, "{},{},{},{}", names[0], names[1], cell.x, cell.policy);
            let _ = write!(text, ",{},{}", number(cell.certified), number(cell.rate));
            for estimate in &cell.estimates {
                let (mean, half) =
                    if estimate.n == 0 { (f64::NAN, f64::NAN) } else { (estimate.mean, estimate.half_width) };
                let _ = write!(text, ",{},{}", number(mean), number(half));
            }
            text.push('\n');
        }
        text
    }
}

impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Told<'a>(&'a Results, &'a Cell);
        impl Serialize for Told<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self(results, cell) = self;
                let named = results.quantities.iter().zip(&cell.estimates);
                let estimates: BTreeMap<_, _> =
                    named.map(|(q, e)| (q.to_string(), (e.n > 0).then_some(e))).collect();
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("system", &cell.system)?;
                map.serialize_entry("arrivals", &cell.arrivals)?;
                map.serialize_entry("x", &cell.x)?;
                map.serialize_entry("policy", cell.policy.name())?;
                map.serialize_entry("certified_per_s", &cell.certified)?;
                map.serialize_entry("rate_per_s", &cell.rate)?;
                map.serialize_entry("estimates", &estimates)?;
                map.end()
            }
        }
        let cells: Vec<_> = self.cells.iter().map(|cell| Told(self, cell)).collect();
        let mut all = serializer.serialize_struct("Results", 1)?;
        all.serialize_field("cells", &cells)?;
        all.end()
    }
}

/// Six significant digits; empty if it is none.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let digits = format!("{value:.5e}").parse::<f64>().unwrap_or(value);
    digits.to_string()
}

fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}
