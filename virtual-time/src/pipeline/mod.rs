//! Pipelines in virtual time: a tree of stages whose results become requests of the next, and who decides what runs.

mod content;
mod drive;
mod sources;

#[cfg(test)]
mod tests;

use rt_core::{Instant, Outcome, Span, Variant, WorkerId};

pub use drive::drive_pipeline;

/// A tree of stages, and within what time a source must be answered as a whole.
#[derive(Clone, Debug)]
pub struct Tree {
    /// From the arrival of a source to the last answer to what it became.
    pub deadline: Span,
    /// One at least, every parent before its children.
    pub stages: Vec<TreeStage>,
}

/// A stage of a [`Tree`].
#[derive(Clone, Debug)]
pub struct TreeStage {
    /// The stage whose results it takes; `None` for the first, which takes the sources.
    pub parent: Option<usize>,
    /// The most requests that a result of the parent becomes here; not looked at for the first.
    pub fan_out: u32,
    /// How many it becomes on average, of each variant of the parent; in `0..=fan_out`.
    pub means: Vec<f64>,
    /// The models that can run here, one at least.
    pub variants: Vec<Variant>,
}

impl Tree {
    /// The stages that take the results of `stage`.
    pub fn children(&self, stage: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.stages.len()).filter(move |&child| self.stages[child].parent == Some(stage))
    }

    /// What a batch of `size` takes at most.
    #[must_use]
    pub fn bound(&self, model: Model, size: usize) -> Span {
        self.variant(model).profile.bound(size)
    }

    /// The variant of a model.
    #[must_use]
    pub fn variant(&self, model: Model) -> &Variant {
        &self.stages[model.stage].variants[model.variant]
    }
}

/// A variant of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Model {
    /// The stage.
    pub stage: usize,
    /// Which of its variants.
    pub variant: usize,
}

/// A request that a result became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The request that had the result.
    pub parent: u64,
    /// The stage that it is for.
    pub stage: usize,
    /// Its name from now on.
    pub token: u64,
}

/// A source that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Its stream.
    pub stream: usize,
    /// Its number among all sources, from 0.
    pub source: u64,
    /// The request that it is at the first stage.
    pub token: u64,
}

/// What a policy of a pipeline does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineStep {
    /// Run the batch of this worker, with this model; the worker was free.
    Start {
        /// The worker.
        worker: WorkerId,
        /// The model, of the stage for which all requests of the batch wait.
        model: Model,
    },
    /// Give up a request that waits: its source is missed, what else it became goes on.
    DropRequest(u64),
    /// Give up a source as a whole: its requests that wait are forgotten, and those that run become nothing.
    DropSource(u64),
    /// Nothing now; ask again at this instant, which is still to come, or only when something happens.
    Wait {
        /// The instant.
        until: Option<Instant>,
    },
}

/// Who decides which requests of a pipeline run, when, where and with which model.
///
/// Told of each source that comes and of each batch that ends with what its results became, and then asked by
/// [`PipelinePolicy::poll`] until it waits. Whether a source is answered in time is not its business: the drive counts.
pub trait PipelinePolicy {
    /// How many workers there are, numbered from 0. Any may run any model: whose they are is the policy's matter.
    fn workers(&self) -> usize;

    /// A source comes.
    fn arrive(&mut self, now: Instant, arriving: Arriving);

    /// The batch of `worker` ends, after it ran for `time`. Its results became `children`, those of one result together;
    /// none of a source that was given up as a whole.
    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span, children: &[Child]);

    /// What is to be done now.
    fn poll(&mut self, now: Instant) -> PipelineStep;

    /// The requests of the batch that `worker` has just started, at least one and no more than the model takes.
    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_;

    /// How many of the workers it keeps in use now, busy or not.
    fn in_use(&self) -> usize {
        self.workers()
    }
}

/// What became of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceEnd {
    /// Its stream.
    pub stream: usize,
    /// Its number within the stream, from 0.
    pub seq: u64,
    /// When it came.
    pub arrival: Instant,
    /// Served if all that it became was answered in time.
    pub outcome: Outcome,
    /// When the last of it was answered, or it was given up.
    pub ended: Instant,
    /// How many requests it became, itself included, and how many of them were given up or answered too late; of one that
    /// was given up as a whole those that were known by then.
    pub requests: u64,
    /// See above.
    pub lost: u64,
    /// Of a source that was served: the mean, over the answers that ended a path, of the product of the accuracies on it.
    pub accuracy: f64,
}

/// A batch of a pipeline that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageBatch {
    /// On which worker.
    pub worker: WorkerId,
    /// With which model.
    pub model: Model,
    /// With how many requests.
    pub size: usize,
    /// From when.
    pub start: Instant,
    /// Until when.
    pub finish: Instant,
}

/// Hears what happens in a run of a pipeline, as it happens.
pub trait PipelineObserver {
    /// What became of a source. Sources are told in the order in which they came, each once its own end and those of all
    /// before it are known.
    fn source(&mut self, end: &SourceEnd);
    /// A batch starts.
    fn batch(&mut self, batch: &StageBatch);
    /// So many workers are kept in use from `now` on.
    fn in_use(&mut self, now: Instant, workers: usize);
}
