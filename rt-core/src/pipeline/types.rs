//! What a pipeline's scheduler is made of, and what it asks of its caller, as values.

use alloc::vec::Vec;

use super::sources::SourceId;
use super::{Parents, Pipeline, PipelineError, Stage};
use crate::safe_mode::SafeModeConfig;
use crate::stalls::Stalls;
use crate::time::{Instant, Span};
use crate::{ConfigError, Event, Resolution, WorkerId, Workers};

/// What a stage is served by.
#[derive(Clone, Debug, PartialEq)]
pub struct StageConfig {
    /// The stages whose results it takes.
    pub parents: Parents,
    /// `F`: the most requests that a result of a parent becomes here, or a source if it is a join; 1 for the first.
    pub fan_out: u32,
    /// How many it becomes on average: a hint for what nothing is promised for, at most `fan_out`.
    pub mean: f64,
    /// Its workers, batches and their times.
    pub workers: Workers,
}

/// Everything that is fixed for the life of a pipeline's scheduler.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// From the arrival of a source to the last answer to what it became.
    pub deadline: Span,
    /// By how much dispatch may come late at each stage.
    pub guard: Span,
    /// Rare losses of time that the promises are computed with; none is absorbed.
    pub stalls: Option<Stalls>,
    /// In `1..=MAX_STAGES`, every parent before its children.
    pub stages: Vec<StageConfig>,
    /// Sources waiting at most, and sources begun and not answered at most, in `1..=65536`.
    pub queue: usize,
    /// Streams at most, in `1..=4096`.
    pub streams: usize,
    /// When safe mode ends.
    pub safe_mode: SafeModeConfig,
}

/// Why a pipeline has no scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineConfigError {
    /// A number of a stage is outside its range.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The first stage could not even be scheduled by itself in what the others leave of the deadline.
    #[error("first stage: {0}")]
    First(#[from] ConfigError),
    /// Not even one request at a time fits into the deadline.
    #[error("deadline {deadline} is below the {time} that the stages after the first take")]
    Deadline {
        /// The deadline.
        deadline: Span,
        /// The least time on the longest path, without the first stage.
        time: Span,
    },
}

/// One request of a batch: a source, or one of those that it became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The source.
    pub source: SourceId,
    /// The caller's handle of the source; `None` if the source has ended meanwhile, and nobody waits for the result.
    pub token: Option<u64>,
    /// Its number among what the source became at this stage, from 0: in the order of the calls that said so, and of their
    /// results.
    pub index: u32,
}

/// What the caller must do next; see [`crate::Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineAction {
    /// Run [`super::PipelineScheduler::batch`] of this worker of this stage.
    Start {
        /// The stage.
        stage: usize,
        /// The worker, among those of the stage.
        worker: WorkerId,
    },
    /// Tell the client how its source ended.
    Resolve(Resolution),
    /// Announce this. In the evidence of a batch that took too long the window is the stage, from 0.
    Event(Event),
    /// Nothing more now; poll again at this instant, or only after the next `handle_*` if `None`.
    WakeAt(Option<Instant>),
}

impl PipelineConfig {
    /// What admission is computed for.
    #[must_use]
    pub fn pipeline(&self) -> Pipeline {
        let stage = |stage: &StageConfig| Stage {
            parents: stage.parents,
            fan_out: stage.fan_out,
            workers: stage.workers.count,
            batch: stage.workers.batch,
            time: stage.workers.batch_time(),
        };
        Pipeline {
            deadline: self.deadline,
            guard: self.guard,
            stalls: self.stalls,
            stages: self.stages.iter().map(stage).collect(),
        }
    }
}
