//! Certificates: what was promised or refused, from what, and why, as a file that anyone can check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::problem::raw;

/// The version of the format, its field `weir_certificate`.
pub const VERSION: u32 = 1;

/// The file: an envelope around the answer to one abstract problem, or to each service of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`VERSION`].
    pub weir_certificate: u32,
    /// The program that made it, and its version.
    pub made_by: String,
    /// What the machine it was made for tells of itself; empty for an abstract problem.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine: BTreeMap<String, String>,
    /// One for an abstract problem, else one a service.
    pub claims: Vec<Claim>,
    /// SHA-256 over all of the above, see [`Certificate::digest`].
    pub digest: String,
}

/// One problem, its answer and its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What it is about, if it is about a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The question. For a service in nanoseconds.
    pub problem: raw::Problem,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// The service of a claim, and the files that its times come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its name in the configuration.
    pub name: String,
    /// The model's name, the SHA-256 of its file, and the engine.
    pub model: String,
    /// SHA-256 of the model file, in hexadecimal.
    pub model_sha256: String,
    /// The engine.
    pub engine: String,
    /// SHA-256 of the profile entry that the batch times come from.
    pub profile_sha256: String,
}

/// Whether everything that the streams want can be promised, and why. Times are in the problem's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether the load is promised.
    pub admissible: bool,
    /// Which argument decided: `theorem-a`, `refined` or `nothing-promised`; for a refusal also `rate` or `horizon`.
    pub rule: String,
    /// The tightest instant; absent if nothing is promised or the long-run rate alone refuses.
    pub binding: Option<Binding>,
    /// The longest busy period: no later instant needs a look.
    pub busy: Option<f64>,
    /// The most mandatory requests that can wait at once.
    pub waiting: Option<u64>,
    /// How many times as fast all streams may send, to within a thousandth; absent if nothing limits them, 0 if
    /// not even the slowest load is promised.
    pub max_load_scale: Option<f64>,
    /// By how much single inputs could change, each alone.
    pub limits: Limits,
    /// Stream by stream.
    pub streams: Vec<StreamAnswer>,
    /// For a refusal: why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a refusal: arrivals that show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refutation: Option<Refutation>,
}

/// The tightest instant of the inequality `lhs ≤ rhs`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Offset of the last arrival behind the start of the busy period.
    pub delta: f64,
    /// Mandatory requests that may have come by then.
    pub backlog: u64,
    /// When the last of them is answered at the latest.
    pub lhs: f64,
    /// When it must be.
    pub rhs: f64,
}

/// By how much single inputs could change with everything else as it is; absent where no value will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The smallest deadline.
    pub min_deadline: Option<Limit<f64>>,
    /// The smallest number of workers, all of the one kind that there is.
    pub min_workers: Option<Limit<u64>>,
    /// How many times as many requests every burst may hold at the same long-run rate.
    pub max_burst_scale: Option<Limit<f64>>,
}

/// A limit, and the instant that binds there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit<T> {
    /// The last value that is admissible.
    pub value: T,
    /// The tightest instant there.
    pub binding: Option<Binding>,
}

/// What the plan says about one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamAnswer {
    /// Its name.
    pub name: String,
    /// `[p, q]`: the share `p/q` of its requests is mandatory.
    pub density: (u32, u32),
    /// Each constraint, and whether it `binds`, is `implied by …` another, or is `kept` by the binding density.
    pub constraints: Vec<(String, String)>,
    /// How many times as fast this stream alone may send.
    pub max_rate_scale: Option<Limit<f64>>,
    /// Theorem B for this stream alone, if there is one kind of workers: the largest `N` per batch time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_count: Option<LargestCount>,
}

/// Theorem B beside the seed paper's theorems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargestCount {
    /// `N*`: at most so many in any window of one batch time are promised, with a deadline of two.
    pub n_star: u64,
    /// What the spread-drop paper promises: Theorem 1 for misses in a row, else Theorem 2; one worker.
    pub spread_drop: u64,
}

/// Arrivals that a refused load allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refutation {
    /// `violation`: a constraint is violated; `mandatory-miss`: a request that the promise counts on is missed,
    /// though others may make up for it.
    pub shows: String,
    /// The constraint and stream that is violated, or the stream that misses.
    pub stream: String,
    /// Instant and stream of each request, in order. A name that is no stream's is background.
    pub arrivals: Vec<(f64, String)>,
}

impl Certificate {
    /// The digest of everything but the digest itself: SHA-256, in hexadecimal, of the compact JSON with the
    /// fields in the order of the types.
    #[must_use]
    pub fn compute_digest(&self) -> String {
        let bare = Self { digest: String::new(), ..self.clone() };
        let text = serde_json::to_vec(&bare).unwrap_or_default();
        Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
