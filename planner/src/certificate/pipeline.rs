//! Claims about pipelines: one problem, whether what it asks for can be promised from end to end, and why.

use serde::{Deserialize, Serialize};

use super::{Refutation, Service, SharedStreamAnswer};
use crate::number::Number;
use crate::problem::pipeline::raw;

/// One problem of a pipeline, its answer and the reasons. Times are in the problem's unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineClaim {
    /// The pipeline of a configuration that it is about; absent for an abstract problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<StagedService>,
    /// The question.
    pub problem: raw::PipelineProblem,
    /// Whether all is promised.
    pub admissible: bool,
    /// What decided.
    pub rule: PipelineReason,
    /// Within what time of its arrival each mandatory source is answered as a whole, whatever the deadline; absent if nothing is
    /// promised, or the answer needed none.
    pub bound: Option<Number>,
    /// Where Theorem P2 finds a source answered latest; absent with `bound`.
    pub binding: Option<PipelineBinding>,
    /// How many times as fast all streams may send, in steps of a thousandth, at most
    /// [`MAX_SCALE`](crate::certify::MAX_SCALE); absent if nothing is promised, 0 if not even a thousandth of the rate is.
    pub max_load_scale: Option<Number>,
    /// `false` where batches or workers were chosen and not all choices could be tried: another one may let more come. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<bool>,
    /// For comparison, where batches were chosen and something is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitAnswer>,
    /// In the order of the problem.
    pub stages: Vec<StageAnswer>,
    /// In the order of the problem.
    pub streams: Vec<SharedStreamAnswer>,
    /// For a refusal: why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a refusal: sources that show it; background is meant for a stage, as `stage/background`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refutation: Option<Refutation>,
}

/// A pipeline of a configuration, and what runs its stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedService {
    /// Its name.
    pub name: String,
    /// In the order of the problem.
    pub stages: Vec<Service>,
}

/// What decided (`docs/guarantee.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipelineReason {
    /// Stage by stage.
    TheoremP1,
    /// A burst counted once.
    TheoremP2,
    /// No stream has a constraint.
    NothingPromised,
    /// In the long run more work comes to a stage than its workers can do.
    Rate,
    /// So close to capacity, or so many requests of a source, that more would have to be looked at than is.
    Horizon,
    /// More stalls may meet one source than are kept back for.
    Stalls,
}

/// The source that is answered latest: `lhs` and `rhs` count from when the first that it waits for comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineBinding {
    /// When it comes.
    pub delta: Number,
    /// How many mandatory sources come by then, itself among them.
    pub sources: u64,
    /// When all that it became is answered at the latest.
    pub lhs: Number,
    /// When it must be: `delta` and the deadline, less what stalls may take.
    pub rhs: Number,
}

/// What could be promised with the same workers if the deadline were split among the stages, in proportion to their shortest
/// batches, and requests served as they come to a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitAnswer {
    /// As [`PipelineClaim::max_load_scale`].
    pub max_load_scale: Number,
    /// The largest batch of each stage by which that much can be promised; none if nothing can.
    pub batches: Vec<usize>,
}

/// What is answered of one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageAnswer {
    /// Its name.
    pub name: String,
    /// How many workers it is to have, if they were to be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// The largest batch, if it was to be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// How many requests are waited for here on the way of `binding`; absent off that way, or without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// How long that takes, its share of `lhs`; absent with `requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Number>,
    /// What the stage adds at most, by Theorem P1; absent with `bound`.
    pub response: Option<Number>,
}
