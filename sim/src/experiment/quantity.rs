//! What a cell of an experiment says about its runs: one number each, by name.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// A number that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Quantity {
    /// The share of requests that are missed.
    Misses,
    /// The longest run of misses of a stream.
    Mcd,
    /// The least `m` for which `(m,K)` held, of the stream that fared worst.
    Strictest(u32),
    /// The share of requests at which a constraint of their stream was violated.
    Violations,
    /// The same, as long as nothing was announced: what must not be.
    Unannounced,
    /// Whether anything was announced before a constraint was violated, or without.
    Announced,
    /// Requests served a second.
    Goodput,
    /// Requests of a batch, on average.
    Batch,
    /// Milliseconds from arrival to answer of those served: this quantile, in thousandths.
    Latency(u16),
    /// Mean accuracy of the answers.
    Accuracy,
    /// The same with misses as 0.
    AccuracyOfAll,
    /// Of pipelines: the share of the requests at all stages that are given up or answered too late.
    Lost,
    /// Of pipelines: the share of the workers that are kept in use, on average.
    InUse,
    /// Of clusters: what the answers of the worst ten seconds are less accurate than they could be.
    AccuracyDrop,
    /// Of clusters: requests that come a second.
    Offered,
    /// Of several services: the load that the policy's own test of admission lets in, as a part of what the workers could do
    /// at best.
    Certified,
}

impl Quantity {
    /// Every one, as results are written.
    pub const ALL: [Self; 14] = [
        Self::Misses,
        Self::Mcd,
        Self::Strictest(10),
        Self::Violations,
        Self::Unannounced,
        Self::Announced,
        Self::Goodput,
        Self::Batch,
        Self::Latency(500),
        Self::Latency(900),
        Self::Latency(990),
        Self::Latency(1000),
        Self::Accuracy,
        Self::AccuracyOfAll,
    ];

    /// What an axis or a table shows, with its unit.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Misses => "requests missed, %".to_owned(),
            Self::Mcd => "longest run of misses".to_owned(),
            Self::Strictest(k) => format!("most misses in any {k} requests"),
            Self::Violations => "requests at which a constraint was violated, %".to_owned(),
            Self::Unannounced => "violations before anything was announced, % of requests".to_owned(),
            Self::Announced => "runs in which something was announced, %".to_owned(),
            Self::Goodput => "requests served a second".to_owned(),
            Self::Batch => "requests of a batch".to_owned(),
            Self::Latency(1000) => "longest time to an answer, ms".to_owned(),
            Self::Latency(q) => format!("time to an answer, {} % quantile, ms", f64::from(q) / 10.0),
            Self::Accuracy => "accuracy of the answers, %".to_owned(),
            Self::AccuracyOfAll => "accuracy with misses as 0, %".to_owned(),
            Self::Lost => "requests at all stages lost, %".to_owned(),
            Self::InUse => "workers kept in use, %".to_owned(),
            Self::AccuracyDrop => "largest drop of accuracy in ten seconds, points".to_owned(),
            Self::Offered => "requests that come a second".to_owned(),
            Self::Certified => "load that is admitted, % of the workers' time".to_owned(),
        }
    }

    /// Whether the larger of two is the better one.
    #[must_use]
    pub const fn is_more_better(self) -> bool {
        matches!(self, Self::Goodput | Self::Batch | Self::Accuracy | Self::AccuracyOfAll | Self::Certified)
    }

    /// What it is multiplied with to be told.
    #[must_use]
    pub fn scale(self) -> f64 {
        match self {
            Self::Misses | Self::Violations | Self::Unannounced | Self::Announced | Self::Lost => 100.0,
            Self::Accuracy | Self::AccuracyOfAll | Self::AccuracyDrop => 100.0,
            Self::Certified | Self::InUse => 100.0,
            _ => 1.0,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misses => f.write_str("misses"),
            Self::Mcd => f.write_str("mcd"),
            Self::Strictest(k) => write!(f, "strictest({k})"),
            Self::Violations => f.write_str("violations"),
            Self::Unannounced => f.write_str("unannounced"),
            Self::Announced => f.write_str("announced"),
            Self::Goodput => f.write_str("goodput"),
            Self::Batch => f.write_str("batch"),
            Self::Latency(1000) => f.write_str("latency-max"),
            Self::Latency(q) => write!(f, "latency-p{}", f64::from(*q) / 10.0),
            Self::Accuracy => f.write_str("accuracy"),
            Self::AccuracyOfAll => f.write_str("accuracy-of-all"),
            Self::Lost => f.write_str("lost"),
            Self::InUse => f.write_str("in-use"),
            Self::AccuracyDrop => f.write_str("accuracy-drop"),
            Self::Offered => f.write_str("offered"),
            Self::Certified => f.write_str("certified"),
        }
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(found) = Self::ALL
            .into_iter()
            .chain([Self::Lost, Self::InUse, Self::AccuracyDrop, Self::Offered, Self::Certified])
            .find(|quantity| quantity.to_string() == text)
        {
            return Ok(found);
        }
        let window = text.strip_prefix("strictest(").and_then(|rest| rest.strip_suffix(')')?.parse().ok());
        match window {
            Some(k @ 1..=256) => Ok(Self::Strictest(k)),
            Some(_) => Err("K must be in 1..=256".to_owned()),
            None => {
                let names: Vec<_> = Self::ALL.iter().map(ToString::to_string).collect();
                Err(format!("must be one of {}", names.join(", ")))
            }
        }
    }
}

impl TryFrom<String> for Quantity {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map_err(|reason| format!("{name}: {reason}"))
    }
}
