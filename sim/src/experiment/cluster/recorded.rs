//! What came to each service of a cluster, second by second, as it was recorded.

use std::collections::BTreeMap;

use placement::problem::Service as Placed;
use serde::Deserialize;

use crate::cluster::Cluster;
use crate::experiment::profile::{Data, read};
use crate::experiment::{ExperimentError, refuse};

/// The longest recording, in seconds.
const LONGEST: usize = 1_000_000;

/// How many requests came to each service, second by second.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::experiment) struct Counts {
    /// A CSV with a header, within the folder of data; compressed by gzip if its name ends so.
    file: String,
    /// Columns and what they must say.
    #[serde(default)]
    rows: BTreeMap<String, String>,
    /// The columns of services, of seconds from 0, and of requests.
    service: String,
    second: String,
    count: String,
}

/// What came to each service, second by second.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Recorded {
    pub(super) seconds: usize,
    pub(super) services: BTreeMap<String, Vec<f64>>,
}

impl Recorded {
    pub(in crate::experiment) fn new(
        field: &str,
        counts: &Counts,
        data: &Data,
    ) -> Result<Self, ExperimentError> {
        let columns = [&counts.service, &counts.second, &counts.count];
        let mut recorded = Self { seconds: 0, services: BTreeMap::new() };
        for (line, row) in read(field, &counts.file, &counts.rows, &columns, data)? {
            let number = |i: usize, most: f64| {
                let value = row[i].parse::<f64>().ok().filter(|value| (0.0..=most).contains(value));
                let place = format!("{field}: {} line {line}: {}", counts.file, columns[i]);
                value.ok_or_else(|| refuse(place, &row[i], format!("must be a number in 0..={most}")))
            };
            let (second, count) = (number(1, LONGEST as f64)? as usize, number(2, 1e9)?);
            let of = recorded.services.entry(row[0].clone()).or_default();
            of.resize(of.len().max(second + 1), 0.0);
            of[second] += count;
            recorded.seconds = recorded.seconds.max(second + 1);
        }
        let seconds = recorded.seconds;
        recorded.services.values_mut().for_each(|of| of.resize(seconds, 0.0));
        if recorded.rate() > 0.0 {
            Ok(recorded)
        } else {
            Err(refuse(field, &counts.file, "no row says so, or all are 0"))
        }
    }

    /// Requests a second of each service of a cluster.
    pub(in crate::experiment) fn means(&self, cluster: &Cluster) -> Vec<f64> {
        let mean = |service: &Placed| {
            let of = self.services.get(&service.name);
            of.map_or(0.0, |of| of.iter().sum::<f64>() / self.seconds as f64)
        };
        cluster.problem.services.iter().map(mean).collect()
    }

    /// Requests a second of all services.
    pub(in crate::experiment) fn rate(&self) -> f64 {
        self.services.values().flatten().sum::<f64>() / self.seconds as f64
    }
}
