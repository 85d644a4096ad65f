//! A problem as it is written: JSON fields, nothing checked but their names and types.

use planner::Unique;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The file. Times are milliseconds, demands requests a second, accuracies points.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Problem {
    /// Of each class of devices, how many there are.
    pub(super) devices: Unique<u32>,
    #[serde(default)]
    pub(super) services: Vec<Service>,
    #[serde(default)]
    pub(super) pipelines: Vec<Pipeline>,
    /// Turns of two services that may share a device.
    #[serde(default)]
    pub(super) share: Option<Vec<(u32, u32)>>,
    /// Whether a device may hold a more accurate variant beside the one that keeps a promise.
    #[serde(default)]
    pub(super) switch: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) demand: f64,
    #[serde(default)]
    pub(super) deadline: Option<f64>,
    #[serde(default)]
    pub(super) weight: Option<f64>,
    pub(super) variants: Vec<Variant>,
    #[serde(default)]
    pub(super) promise: Option<Promise>,
    /// `variant|class` to requests a second, instead of times.
    #[serde(default)]
    pub(super) peak: Option<Unique<f64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) accuracy: f64,
    /// Of each class, of each size of batch.
    #[serde(default)]
    pub(super) time: Unique<Unique<f64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Promise {
    /// At most so many requests in any so many milliseconds.
    pub(super) windows: Vec<(u64, f64)>,
    pub(super) m: u32,
    #[serde(rename = "K")]
    pub(super) k: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) slo: f64,
    pub(super) demand: f64,
    #[serde(default)]
    pub(super) weight: Option<f64>,
    pub(super) stages: Vec<Stage>,
    /// Stage, variant, child: requests for the child of one request.
    #[serde(default)]
    pub(super) mult: Unique<Unique<Unique<f64>>>,
    #[serde(default)]
    pub(super) path_accuracy: PathAccuracy,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stage {
    pub(super) name: String,
    #[serde(default)]
    pub(super) parent: Option<String>,
    pub(super) variants: Vec<Variant>,
}

/// The accuracy from the first stage to a last one; of those not listed, a product where nothing is.
#[derive(Clone, Debug, Default)]
pub(super) struct PathAccuracy(pub(super) Option<Vec<(Vec<String>, f64)>>);

impl<'de> Deserialize<'de> for PathAccuracy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// `{"a|b": 90}`, or `[[["a", "b"], 90], …]`, or nothing.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Absent(()),
            Named(Unique<f64>),
            Listed(Vec<(Vec<String>, f64)>),
        }
        let written = Written::deserialize(from).map_err(|_| {
            D::Error::custom(
                r#"path_accuracy must be {"first|second": points, …} or [[["first", "second"], points], …], no path twice"#,
            )
        })?;
        Ok(Self(match written {
            Written::Absent(()) => None,
            Written::Listed(listed) => Some(listed),
            Written::Named(Unique(named)) => {
                let split = |names: String| names.split('|').map(|name| name.trim().to_owned()).collect();
                Some(named.into_iter().map(|(names, points)| (split(names), points)).collect())
            }
        }))
    }
}
