//! Claims: one problem, whether all that it asks for can be promised, and why.

use serde::{Deserialize, Serialize};

use crate::number::Number;
use crate::problem::raw;

/// One problem, its answer and the reasons. Times are in the problem's unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What it is about, if it is about a service of a configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The question. For a service in nanoseconds.
    pub problem: raw::Problem,
    /// Whether the load is promised.
    pub admissible: bool,
    /// Which argument decided.
    pub rule: Rule,
    /// The tightest instant; absent if nothing is promised, or the answer needed none.
    pub binding: Option<Binding>,
    /// The longest busy period: no later instant needs a look. Absent for a refusal.
    pub busy: Option<Number>,
    /// The most mandatory requests that can wait at once. Absent for a refusal.
    pub waiting: Option<u64>,
    /// How many times as fast all streams may send, in steps of a thousandth, at most
    /// [`MAX_SCALE`](crate::certify::MAX_SCALE); absent if nothing is promised, 0 if not even a thousandth of the
    /// rate is.
    pub max_load_scale: Option<Number>,
    /// By how much single inputs could change, each alone.
    pub limits: Limits,
    /// What would still hold if less than all workers could do were left; none where no stream has levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contingencies: Vec<Contingency>,
    /// Stream by stream, in the order of the problem.
    pub streams: Vec<StreamAnswer>,
    /// For a refusal: why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a refusal: arrivals that show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refutation: Option<Refutation>,
}

/// The service of a claim, and the files that its times come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its name in the configuration.
    pub name: String,
    /// The model's name.
    pub model: String,
    /// SHA-256 of the model file, in hexadecimal.
    pub model_sha256: String,
    /// The engine.
    pub engine: String,
    /// SHA-256 of the profile entry that the batch times come from, in hexadecimal; with workers of several kinds those of the first.
    pub profile_sha256: String,
    /// The kinds of its workers, in the order of the problem, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Other models that may answer in its place, as far as the promise allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// Workers of a service that are alike, and the file that their times come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// What they are called: as configured, or else by their engine.
    pub name: String,
    /// The engine.
    pub engine: String,
    /// SHA-256 of the profile entry that the batch times come from, in hexadecimal.
    pub profile_sha256: String,
}

/// A model that may answer in place of a service's own, and the file that its times come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The model's name.
    pub model: String,
    /// SHA-256 of the model file, in hexadecimal.
    pub model_sha256: String,
    /// SHA-256 of the profile entry that the batch times come from, in hexadecimal.
    pub profile_sha256: String,
}

/// The argument that decided (`docs/guarantee.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Theorem A, at every instant of the longest busy period.
    TheoremA,
    /// Theorem A, and its refinement where it alone says no.
    Refined,
    /// No stream has a constraint.
    NothingPromised,
    /// In the long run more mandatory requests come than the workers can serve.
    Rate,
    /// So close to capacity that the busy period goes on beyond what is looked at.
    Horizon,
    /// More stalls may fall into a busy period than are kept back for, or constraints cannot absorb them.
    Stalls,
}

/// The tightest instant of the inequality `lhs ≤ rhs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Offset of the last arrival behind the start of the busy period.
    pub delta: Number,
    /// Mandatory requests that may have come by then.
    pub backlog: u64,
    /// When the last of them is answered at the latest.
    pub lhs: Number,
    /// When it must be.
    pub rhs: Number,
}

/// By how much single inputs could change with everything else as it is; absent where no value will do, or
/// nothing is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The smallest deadline.
    pub min_deadline: Option<Limit<Number>>,
    /// The smallest number of workers, all of the one kind that there is.
    pub min_workers: Option<Limit<u64>>,
    /// How many times as many requests every burst may hold at the same long-run rate, in steps of a thousandth,
    /// at most [`MAX_SCALE`](crate::certify::MAX_SCALE).
    pub max_burst_scale: Option<Limit<Number>>,
    /// The tightest instant at [`Claim::max_load_scale`].
    pub max_load_binding: Option<Binding>,
}

/// A limit, and the instant that binds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit<T> {
    /// The last value that is admissible.
    pub value: T,
    /// The tightest instant there.
    pub binding: Option<Binding>,
}

/// How fast all streams may send in a case that a promise is not made for, for every level of their promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contingency {
    /// What has gone wrong.
    pub case: Case,
    /// By level, that of the first promise first: as [`Claim::max_load_scale`], of the declarations of the first promises, with every
    /// stream at that level, or its last one. 0 if not even a thousandth of the rate could be promised.
    pub max_load_scales: Vec<Number>,
}

/// What has gone wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// One worker is lost, whichever; nothing holds if it is the only one.
    WorkerLost,
    /// Every batch takes 1.5 times as long as it should at most.
    LongerBatches,
}

/// What the plan says about one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamAnswer {
    /// Its name.
    pub name: String,
    /// `[p, q]`: the share `p/q` of its requests is mandatory.
    pub density: (u32, u32),
    /// Each constraint as it was written, and whether it `binds`, is `implied by …` another, or is `kept` by the
    /// binding density.
    pub constraints: Vec<(String, String)>,
    /// How many times as fast this stream alone may send, as [`Claim::max_load_scale`]; absent if nothing depends
    /// on it, or there are more than 256 different streams.
    pub max_rate_scale: Option<Limit<Number>>,
    /// Theorem B for this stream alone, if it has constraints and there is one kind of workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_count: Option<LargestCount>,
}

/// Theorem B beside the theorems of the spread-drop paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargestCount {
    /// `N*`: at most so many in any window of one batch time are promised, with a deadline of two.
    pub n_star: u64,
    /// What the spread-drop paper promises on one worker: its Theorem 1 for misses in a row, else Theorem 2.
    pub spread_drop: u64,
}

/// Arrivals that a refused load allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refutation {
    /// What they show.
    pub shows: Shows,
    /// The stream whose constraint is violated, or that misses.
    pub stream: String,
    /// Instant and stream of each request, in order. A name that is no stream's is background.
    pub arrivals: Vec<(Number, String)>,
}

/// What a refutation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shows {
    /// A constraint is violated.
    Violation,
    /// A request that the promise counts on is missed, though others may make up for it.
    MandatoryMiss,
}
