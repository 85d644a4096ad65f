//! The inputs of a policy, checked, and their hash.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::RamsisError;
use super::arrivals::{Arrivals, MAX_TICKS};
use super::error::{refuse, within};
use super::model::{self, Model};

/// The longest queue.
pub const MAX_QUEUE: usize = 64;
/// The most intervals of the slack.
pub const MAX_BINS: usize = 1000;
/// The longest slack, in nanoseconds: one hour.
pub const MAX_SLO: u64 = rt_core::MAX_SPAN.as_nanos();
/// The most ticks that are expected within the longest time that matters.
const MAX_EXPECTED: f64 = 1e5;

/// What a policy is made for, besides the arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// 1 to [`model::MAX_MODELS`] models with at least `queue` batch sizes each, [`Flavour::Program`] one more,
    /// [`Batching::Limited`] as many as it takes. They are taken as they are: see [`super::pareto`].
    pub models: Vec<Model>,
    /// The time from arrival to answer, in nanoseconds: at least the fastest model's for one request, at most
    /// [`MAX_SLO`].
    pub slo_ns: u64,
    /// The longest queue of one worker that is told apart, 1 to [`MAX_QUEUE`] (section 4.2.3).
    pub queue: usize,
    /// How slack is told apart.
    pub slack: Slack,
    /// Which batches may be taken.
    pub batching: Batching,
    /// What is optimised, and where the paper and its authors' program part.
    pub flavour: Flavour,
}

/// How the slack of the earliest deadline is told apart (section 4.2); always rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slack {
    /// Into so many intervals of equal length, 1 to [`MAX_BINS`] (FLD).
    Fixed(usize),
    /// At each time that a batch of some model takes (MD).
    ModelBased,
}

/// The batches that may be taken from a queue (section 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Batching {
    /// All that wait.
    Maximal,
    /// Any number of those that wait longest.
    Variable,
    /// Those that wait longest, so many at most and as many as the first model has time for: what a scheduler takes
    /// that decides on batches itself, and drops only what no model has time for alone. Only for [`Flavour::Requests`].
    Limited(usize),
}

/// What the decisions are made for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// As written: accuracy per decision; an empty queue is a state, and waiting in it a decision that is worth
    /// nothing; of a full queue, what does not fit is dropped; a late batch is all that wait, by the model that is
    /// fastest for it.
    Paper,
    /// As the released program does it: accuracy per decision, in proportion to the share of the queue that it
    /// takes; an empty queue is skipped; a full one holds one more request than fits, and all of it is served;
    /// all that wait may always be served by the first model; 100 sweeps from 0. Also its way with phases whose
    /// probability is below the smallest number (all are then the same), and slack bins that leave out a time
    /// whose neighbours are of the same model.
    Program,
    /// Beyond the paper: accuracy per request, at most a share `max_miss` of requests missed, as [`super::Evaluation`] expects
    /// it, which is no bound. What is late is never run: the oldest request may be dropped in any state, and is if there is
    /// no time for it.
    Requests {
        /// The share of requests that may miss their deadlines, 0 to 1.
        max_miss: f64,
    },
}

impl Spec {
    /// Checks every value, also against `arrivals`.
    ///
    /// # Errors
    /// [`RamsisError::Value`] for the first that is outside its range.
    pub fn check(&self, arrivals: &dyn Arrivals) -> Result<(), RamsisError> {
        within("queue", self.queue as f64, 1.0, MAX_QUEUE as f64)?;
        let mut batches = self.queue + usize::from(self.flavour == Flavour::Program);
        if let Batching::Limited(most) = self.batching {
            within("batching", most as f64, 1.0, MAX_QUEUE as f64)?;
            if !matches!(self.flavour, Flavour::Requests { .. }) {
                return Err(refuse(
                    "flavour",
                    format!("{:?}", self.flavour),
                    "must be requests for these batches",
                ));
            }
            batches = batches.min(most);
        }
        model::check(&self.models, batches)?;
        within("slo_ns", self.slo_ns as f64, 1.0, MAX_SLO as f64)?;
        let fastest = self.models.iter().map(|m| m.latency(1)).fold(f64::INFINITY, f64::min);
        if (self.slo_ns as f64) < fastest {
            let limit = format!(
                "must be at least {fastest}, the time of the fastest model ({})",
                model::span(fastest)
            );
            return Err(refuse("slo_ns", self.slo_ns, limit));
        }
        if let Slack::Fixed(bins) = self.slack {
            within("slack", bins as f64, 1.0, MAX_BINS as f64)?;
        }
        if let Flavour::Requests { max_miss } = self.flavour {
            within("max_miss", max_miss, 0.0, 1.0)?;
        }
        let longest = self.models.iter().map(|m| m.latency(self.queue + 1)).fold(f64::INFINITY, f64::min);
        for queued in 1..=self.queue {
            let clock = arrivals.clock(queued);
            within("ticks", clock.ticks as f64, 1.0, MAX_TICKS as f64)?;
            let expected = clock.per_ns * longest.max(self.slo_ns as f64);
            within("ticks expected within the longest time", expected, f64::MIN_POSITIVE, MAX_EXPECTED)?;
        }
        Ok(())
    }

    /// SHA-256, in hexadecimal, of all inputs.
    #[must_use]
    pub fn hash(&self, arrivals: &dyn Arrivals) -> String {
        let mut hasher = Sha256::new();
        // Nothing in it can fail: there are no maps, and numbers that are none are written as null.
        hasher.update(serde_json::to_vec(self).unwrap_or_default());
        hasher.update([0]);
        hasher.update(arrivals.describe());
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
