//! A service in STATUS: what it serves with, how its promises stand, and what came of its requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{SafeMode, Stream, Suspensions};

/// A service, or who has taken over from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// In the configuration.
    pub name: String,
    /// What runs its models.
    pub engine: String,
    /// Whether that computes nothing.
    pub simulated: bool,
    /// The device whose workers it shares with others; none if they are its own.
    pub device: Option<String>,
    /// The base variant.
    pub model: String,
    /// The share of right answers of the base, 0 to 1; none where it is not known.
    pub accuracy: Option<f64>,
    /// In the order of RESULT's numbers.
    pub variants: Vec<Variant>,
    /// The kinds of its workers, in the order of their numbers, if there are several; what is said here of batches is then of the first.
    pub kinds: Vec<Kind>,
    /// Of a pipeline, every parent before what takes its results; none of a service with one model.
    pub stages: Vec<Stage>,
    /// What chooses among several variants.
    pub select: Option<String>,
    /// What is planned for the load that comes, if it is.
    pub planning: Option<Planning>,
    /// Whether longer batches and other variants than the base are allowed at all; of a service on a device, whether what nothing is
    /// promised for may go before what is.
    pub shielded: bool,
    /// Batches of it that have.
    #[serde(default)]
    pub ahead: u64,
    /// Whether it is promised nothing until it has kept its time again, for its batches have harmed the others on its device.
    #[serde(default)]
    pub demoted: bool,
    /// What a request brings.
    pub inputs: Vec<Tensor>,
    /// What an answer consists of.
    pub outputs: Vec<Tensor>,
    /// What the base remembers of each stream from one request to the next, in bytes.
    pub state_bytes: u64,
    /// From a request's arrival to its answer.
    pub deadline_ns: u64,
    /// The part of the deadline that is kept for late dispatch.
    pub guard_ns: u64,
    /// The batch size that is promised by.
    pub batch: usize,
    /// What such a batch takes at most.
    pub batch_time_ns: u64,
    /// The most requests of one batch: beyond what is promised by, where the shield allows it.
    pub max_batch: usize,
    /// How late requests of the promised rate may come.
    pub jitter_ns: u64,
    /// The service's own.
    pub constraints: Vec<String>,
    /// The least time between the requests of one more stream with these constraints; none where there is no room.
    pub promised_period_ns: Option<u64>,
    /// Requests a second that are certified; none where nothing is.
    pub certified_per_s: Option<f64>,
    /// Requests a second of streams that declare their arrivals; none where nothing is certified.
    pub measured_per_s: Option<f64>,
    /// From arrival to the end of the batch, of answers.
    pub latency_ns: Histogram,
    /// Requests in a batch.
    pub batch_sizes: Histogram,
    /// Whether anything is served that no stream declared.
    pub background: bool,
    /// Whether the misses of what nothing is promised for are spread over each stream's requests, and chosen late.
    pub spread: bool,
    /// Workers configured.
    pub workers: usize,
    /// Those that are not lost.
    pub workers_alive: usize,
    /// What all promises fall back on.
    pub fallback: Fallback,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that run.
    pub running: usize,
    /// The latest dispatch so far.
    pub guard_seen_ns: u64,
    /// Batches so far that took longer than they may, also where that broke no promise.
    #[serde(default)]
    pub overruns: u64,
    /// Stalls so far that the promise held through, as declared.
    #[serde(default)]
    pub stalls_seen: u64,
    /// Requests so far that had to be served and were missed for them, where constraints absorb that.
    #[serde(default)]
    pub stall_misses: u64,
    /// By how much requests may come before their declaration allows them now, so that it suspends nothing and harms nobody.
    #[serde(default)]
    pub tolerance_ns: u64,
    /// What the way to a worker and back may take.
    pub handover_ns: u64,
    /// The longest such way so far.
    pub handover_seen_ns: u64,
    /// The longest time for which one thread held the scheduler so far.
    pub lock_held_ns: u64,
    /// How its promises stand.
    pub safe_mode: SafeMode,
    /// Of its streams.
    pub suspensions: Suspensions,
    /// Those that are there, by name.
    pub streams: Vec<Stream>,
    /// Requests answered in time since the start, of all streams, also those that have gone.
    pub served: u64,
    /// Those missed, by the name of the reason.
    pub missed: BTreeMap<String, u64>,
    /// The classes of its requests, in the order of the numbers that requests name them by; none if they are all alike.
    pub classes: Vec<Class>,
    /// What has become of the requests of clients that have given their stream up: by name, the last to go last, and of as
    /// many names as the daemon remembers.
    pub departed: Vec<Departed>,
}

/// What has become of the requests of earlier holders of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Departed {
    /// Of the stream.
    pub name: String,
    /// Requests that came.
    pub arrived: u64,
    /// Those answered in time.
    pub served: u64,
    /// Those missed, by the name of the reason.
    pub missed: BTreeMap<String, u64>,
}

/// A class of requests, and what came of them since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Class {
    /// In the configuration.
    pub name: String,
    /// The part of all requests that is expected to be of it.
    pub share: f64,
    /// From arrival to answer; a later one is late.
    pub deadline_ns: u64,
    /// How long an answer takes at most that is delivered.
    pub reach_ns: u64,
    /// What a right answer in time counts.
    pub value: f64,
    /// Requests that have ended.
    pub requests: u64,
    /// Those answered, late ones among them.
    pub answered: u64,
    /// Those answered late.
    pub late: u64,
    /// Those missed.
    pub missed: u64,
    /// What its requests were worth on average, a missed one nothing; none before the first.
    pub worth: Option<f64>,
}

/// One of the models that may answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variant {
    /// Its name.
    pub model: String,
    /// The share of right answers, 0 to 1; none where it is not known.
    pub accuracy: Option<f64>,
    /// Results so far.
    pub answered: u64,
}

/// The levels that all promises of a service fall back on, 0 for the first ones; none where nothing holds then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fallback {
    /// If a worker is lost.
    pub worker_lost: Option<usize>,
    /// If batches take up to half as long again.
    pub longer_batches: Option<usize>,
}

/// Workers of a service that are alike, where there are several kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// As configured, or else the engine's.
    pub name: String,
    /// What computes on them.
    pub engine: String,
    /// The batch size that is promised by.
    pub batch: usize,
    /// What such a batch takes at most.
    pub batch_time_ns: u64,
    /// The most requests of one batch.
    pub max_batch: usize,
    /// Workers configured.
    pub workers: usize,
    /// Those that are not lost.
    pub workers_alive: usize,
}

/// A stage of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stage {
    /// In the configuration.
    pub name: String,
    /// What runs there.
    pub model: String,
    /// The stage whose results it takes, if it is one; none for the first.
    pub after: Option<String>,
    /// All stages whose results it takes, in their order; none of a daemon that knows no more than one.
    pub parents: Vec<String>,
    /// Whether it waits until they are done with a request of the pipeline, and takes that once.
    pub join: bool,
    /// The most requests that a result of those becomes here.
    pub fan_out: u32,
    /// Results of those of which it was looked what they become here, since the last take-over; none of a join.
    pub parent_results: u64,
    /// How many requests that was.
    pub requests: u64,
    /// The batch size that is promised by.
    pub batch: usize,
    /// What such a batch takes at most.
    pub batch_time_ns: u64,
    /// Workers configured.
    pub workers: usize,
    /// Those that are not lost.
    pub workers_alive: usize,
    /// Requests that wait here.
    pub waiting: usize,
    /// The models that may run there, the base first; `answered` counts their results.
    pub variants: Vec<Variant>,
}

/// Tables for the load that comes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Planning {
    /// Requests a second now.
    pub load_per_s: f64,
    /// What a table is being planned for, if one is.
    pub planning_per_s: Option<f64>,
    /// Those there are.
    pub tables: Vec<Table>,
    /// So many there may be.
    pub most_tables: usize,
}

/// One of these, and what is expected of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Table {
    /// Requests a second that it is for.
    pub rate_per_s: f64,
    /// The share of right answers.
    pub accuracy: f64,
    /// The share of requests missed.
    pub missed: f64,
}

/// A tensor of a request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tensor {
    /// Its name in the model.
    pub name: String,
    /// `f32` and the like.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Its dimensions without that of the batch.
    pub shape: Vec<usize>,
}

/// Values counted by the first bound that they do not exceed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// Ascending.
    pub bounds: Vec<u64>,
    /// One more than bounds: the last is of those beyond all.
    pub counts: Vec<u64>,
    /// Of all values.
    pub sum: u64,
}
