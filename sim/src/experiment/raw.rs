//! An experiment as it is written: TOML fields, each checked by itself as it is read.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use serde::Deserialize;

use super::X;
use super::contender::Contender;
use super::service::Service;
use super::value::{Positive, Share, Time};

pub(super) use super::view::{At, Figure, Table, Theorem};

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Experiment {
    /// What it shows, in one line.
    pub(super) title: String,
    /// What it is about, for the reader of its tables.
    #[serde(default)]
    pub(super) about: String,
    /// Runs of each cell, each with a seed of its own.
    #[serde(default = "once")]
    pub(super) runs: NonZeroU32,
    /// Requests of a run, of all streams together.
    pub(super) requests: NonZeroU64,
    /// The first run's; the next has one more.
    #[serde(default = "one")]
    pub(super) seed: u32,
    /// The systems compared.
    pub(super) system: Vec<System>,
    /// How requests come.
    pub(super) arrivals: Vec<Arrivals>,
    /// How many come.
    pub(super) x: X,
    /// Who decides, by name.
    pub(super) policies: Vec<Contender>,
    /// How long batches take; exactly their bound if absent.
    #[serde(default)]
    pub(super) service: Service,
    /// What is printed.
    #[serde(default)]
    pub(super) table: Vec<Table>,
    /// What is drawn.
    #[serde(default)]
    pub(super) figure: Vec<Figure>,
}

fn once() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn one() -> u32 {
    1
}

/// Workers, a deadline, and streams that are promised something.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct System {
    /// Unique.
    pub(super) name: String,
    /// From arrival to answer, such as `20ms`; of several services each has its own.
    pub(super) deadline: Option<Time>,
    /// `eager` or `full-or-latest`.
    #[serde(default)]
    pub(super) dispatch: planner::problem::raw::Dispatch,
    /// Requests that wait at most under `weir`.
    #[serde(default = "queue")]
    pub(super) queue: usize,
    /// Kind by kind; or a fleet.
    #[serde(default)]
    pub(super) workers: Vec<Workers>,
    /// Identical workers that can run any of several models, and one stream that is promised nothing.
    pub(super) fleet: Option<Fleet>,
    /// Or several services on the same workers.
    pub(super) sharing: Option<Sharing>,
    /// Or stages that feed one another, on identical workers that can run any model of any.
    pub(super) pipeline: Option<super::pipeline::Raw>,
    /// Or devices of several classes, and services with variants that are placed on them.
    pub(super) cluster: Option<super::cluster::Raw>,
    /// Or workers that hold all models, and requests of several classes that are routed to them.
    pub(super) router: Option<super::routed::Raw>,
    /// Or a service whose requests are of classes, for which variants are selected.
    pub(super) selecting: Option<super::selecting::Raw>,
    /// More accurate variants of the model, by rising accuracy, that `weir` may let answer in lulls; the workers'
    /// own is the base.
    #[serde(default)]
    pub(super) variants: Vec<Variant>,
    /// Of one kind after the other; none of a fleet.
    #[serde(default)]
    pub(super) streams: Vec<Streams>,
    /// How long its batches take; as the experiment says if absent.
    pub(super) service: Option<Service>,
}

/// Identical workers that can run any of several models.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Fleet {
    /// How many.
    pub(super) workers: usize,
    /// Their models, as the authors of RAMSIS measured theirs: a JSON within the folder of data.
    pub(super) file: String,
    /// The largest batch; as far as was measured if absent.
    pub(super) batch: Option<usize>,
}

/// Identical workers, and the services that share them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Sharing {
    /// How many.
    #[serde(default = "single")]
    pub(super) workers: usize,
    /// What shares them.
    pub(super) services: Vec<SharingService>,
}

/// One of several services.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SharingService {
    /// From arrival to answer.
    pub(super) deadline: Time,
    /// The times of batches of 1, 2, …; the largest that anybody runs is the last.
    pub(super) times: Vec<Time>,
    /// Of one kind after the other.
    pub(super) streams: Vec<SharingStreams>,
}

/// Streams of a service that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SharingStreams {
    /// How many.
    #[serde(default = "single")]
    pub(super) count: usize,
    /// Such as `any_miss(1,2)`, one at least.
    pub(super) constraints: Vec<String>,
    /// At most so many in any such time: its shape, which is made shorter or longer for the load.
    pub(super) window: (u64, Time),
}

fn queue() -> usize {
    256
}

/// Identical workers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Workers {
    /// How many.
    #[serde(default = "single")]
    pub(super) count: usize,
    /// The largest batch; as far as times are given if absent.
    pub(super) batch: Option<usize>,
    /// The batch that promises are computed for; the largest if absent.
    pub(super) promised: Option<usize>,
    /// The time of every batch; one of the three.
    pub(super) time: Option<Time>,
    /// The times of batches of 1, 2, ….
    pub(super) times: Option<Vec<Time>>,
    /// Times from a table.
    pub(super) profile: Option<Profile>,
    /// How good their answers are, in `0..=1`.
    pub(super) accuracy: Option<Share>,
}

/// A variant of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Variant {
    /// The time of every batch; one of the three.
    pub(super) time: Option<Time>,
    /// The times of batches of 1, 2, ….
    pub(super) times: Option<Vec<Time>>,
    /// Times from a table.
    pub(super) profile: Option<Profile>,
    /// How good its answers are, in `0..=1`.
    pub(super) accuracy: Share,
}

fn single() -> usize {
    1
}

/// Times from a table of measurements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Profile {
    /// A CSV with a header, within the folder of data.
    pub(super) file: String,
    /// Columns and what they must say.
    #[serde(default)]
    pub(super) rows: BTreeMap<String, String>,
    /// The column of batch sizes. A size between two takes the time of the larger one.
    pub(super) batch: String,
    /// The column of times.
    pub(super) time: String,
    /// Their unit.
    pub(super) unit: planner::problem::raw::Unit,
}

/// Streams that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Streams {
    /// How many.
    #[serde(default = "single")]
    pub(super) count: usize,
    /// Such as `any_miss(1,2)`; none for best effort.
    #[serde(default)]
    pub(super) constraints: Vec<String>,
    /// Each sends and declares one request in this time, whatever the rate, of which the other streams share the rest.
    pub(super) period: Option<Time>,
}

/// How requests come.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Arrivals {
    /// Unique.
    pub(super) name: String,
    /// Their shape.
    pub(super) process: Process,
    /// What each stream declares.
    #[serde(default)]
    pub(super) declare: Declare,
    /// The mean rate, as a part of the rate that `x` says.
    #[serde(default = "whole")]
    pub(super) mean: Positive,
}

fn whole() -> Positive {
    Positive(1.0)
}

/// See [`crate::process::Process`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum Process {
    /// One a period.
    Constant,
    /// One a period, each up to `jitter` periods late.
    #[serde(rename_all = "kebab-case")]
    Periodic {
        /// In periods.
        jitter: f64,
    },
    /// Memoryless.
    Poisson,
    /// Gaps of a Gamma distribution.
    #[serde(rename_all = "kebab-case")]
    Gamma {
        /// Below 1: bursty.
        shape: f64,
    },
    /// Poisson, at a rate that changes.
    #[serde(rename_all = "kebab-case")]
    MarkovModulated {
        /// Relative rate and mean stay in seconds of each state.
        states: Vec<(f64, f64)>,
    },
    /// So many at once.
    #[serde(rename_all = "kebab-case")]
    Bursts {
        /// Requests of a burst.
        size: u32,
    },
    /// The worst that the declaration allows, again and again; beyond a load of 1 as if more were declared.
    Adversarial,
    /// A recorded trace: a CSV of instants.
    #[serde(rename_all = "kebab-case")]
    Trace {
        /// Within the folder of data.
        file: String,
        /// Of its times.
        unit: planner::problem::raw::Unit,
    },
    /// A rate that changes: a CSV of `time,count`, how many requests came from that time to the next.
    #[serde(rename_all = "kebab-case")]
    Counts {
        /// Within the folder of data.
        file: String,
        /// Of its times.
        unit: planner::problem::raw::Unit,
    },
    /// Several services at rates that change: a CSV, or one compressed by gzip, with how many requests came to a service in a second.
    #[serde(rename_all = "kebab-case")]
    Services(super::cluster::Counts),
    /// Poisson, at a rate that is drawn anew now and then, of classes that are routed: times what `x` says.
    #[serde(rename_all = "kebab-case")]
    Redrawn(super::routed::Redrawn),
}

/// What each stream declares: the most of its shape that is certified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Declare {
    /// At most so many in any window as long as a full batch takes.
    #[default]
    Window,
    /// A period with the jitter of the process.
    Periodic,
}

/// How many requests come; one of the four.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawX {
    /// Requests a second.
    pub(super) rate: Option<Values>,
    /// As a part of the certified rate.
    pub(super) load: Option<Values>,
    /// As a part of what the workers serve in full batches.
    pub(super) capacity: Option<Values>,
    /// As a part of what was recorded of services.
    pub(super) recorded: Option<Values>,
}

/// Numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "must be a list of numbers, or { from = …, to = …, step = … }")]
pub(super) enum Values {
    /// One by one.
    List(Vec<f64>),
    /// From the first to the last.
    Range(Range),
}

/// Numbers from the first to the last.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    /// The first.
    pub(super) from: f64,
    /// The last, if a step meets it.
    pub(super) to: f64,
    /// From one to the next.
    pub(super) step: f64,
}

/// How long batches take.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawService {
    /// Points `[share, part]` of the distribution of batch times, as parts of the times of the workers: so large a
    /// share takes at most this part. Straight lines between. Exactly those times if empty.
    pub(super) quantiles: Vec<(f64, f64)>,
    /// What now and then comes on top, and is part of the bounds.
    pub(super) stalls: Option<Stalls>,
    /// The share of batches that overrun.
    pub(super) overruns: Share,
    /// How long those take, as a multiple of their bound.
    pub(super) factor: f64,
}

/// Stalls: a batch is held up by something else.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Stalls {
    /// One batch in so many.
    pub(super) one_in: u32,
    /// For so long.
    pub(super) length: Time,
}

/// Exactly the times of the workers.
impl Default for RawService {
    fn default() -> Self {
        Self { quantiles: Vec::new(), stalls: None, overruns: Share(0.0), factor: 1.0 }
    }
}
