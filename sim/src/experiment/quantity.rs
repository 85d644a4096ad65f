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
    /// Of classes: what answers are worth on average, as a part of the best there could be.
    Worth,
    /// Of classes: the share of windows of 20 requests that are worth at least so many percent of the best.
    Windows(u8),
    /// Of classes: the share of the requests of a class that go to a model, both counted from 1.
    Routed(u8, u8),
    /// Of classes: whether more than so many percent of the requests are late.
    Unavailable(u8),
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
            Self::Worth => "worth of the answers, % of the best".to_owned(),
            Self::Windows(least) => format!("windows of 20 requests worth at least {least} %, %"),
            Self::Routed(class, model) => format!("requests of class {class} to model {model}, %"),
            Self::Unavailable(most) => format!("runs in which more than {most} % are late, %"),
        }
    }

    /// Whether the larger of two is the better one.
    #[must_use]
    pub const fn is_more_better(self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::Batch
                | Self::Accuracy
                | Self::AccuracyOfAll
                | Self::Certified
                | Self::Worth
                | Self::Windows(_)
        )
    }

    /// What it is multiplied with to be told.
    #[must_use]
    pub fn scale(self) -> f64 {
        match self {
            Self::Misses | Self::Violations | Self::Unannounced | Self::Announced | Self::Lost => 100.0,
            Self::Accuracy | Self::AccuracyOfAll | Self::AccuracyDrop => 100.0,
            Self::Certified | Self::InUse => 100.0,
            Self::Worth | Self::Windows(_) | Self::Routed(..) | Self::Unavailable(_) => 100.0,
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
            Self::Worth => f.write_str("worth"),
            Self::Windows(least) => write!(f, "windows({least})"),
            Self::Routed(class, model) => write!(f, "routed({class},{model})"),
            Self::Unavailable(most) => write!(f, "unavailable({most})"),
        }
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(found) = Self::ALL
            .into_iter()
            .chain([Self::Lost, Self::InUse, Self::AccuracyDrop, Self::Offered, Self::Certified, Self::Worth])
            .find(|quantity| quantity.to_string() == text)
        {
            return Ok(found);
        }
        if let Some(of_classes) = Self::of_classes(text) {
            return of_classes;
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

impl Quantity {
    /// `windows(P)`, `unavailable(P)` and `routed(CLASS,MODEL)`.
    fn of_classes(text: &str) -> Option<Result<Self, String>> {
        let (name, rest) = text.split_once('(')?;
        let numbers: Vec<Option<u8>> =
            rest.strip_suffix(')')?.split(',').map(|number| number.trim().parse().ok()).collect();
        match (name, &numbers[..]) {
            ("windows", &[Some(percent @ 0..=100)]) => Some(Ok(Self::Windows(percent))),
            ("unavailable", &[Some(percent @ 0..=100)]) => Some(Ok(Self::Unavailable(percent))),
            ("routed", &[Some(class @ 1..), Some(model @ 1..)]) => Some(Ok(Self::Routed(class, model))),
            ("windows" | "unavailable", _) => Some(Err("must be of a number in 0..=100".to_owned())),
            ("routed", _) => Some(Err("must be of a class and a model, both in 1..=255".to_owned())),
            _ => None,
        }
    }
}

impl TryFrom<String> for Quantity {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map_err(|reason| format!("{name}: {reason}"))
    }
}
