//! Logs: what a scheduler did, from arrival to arrival and batch to batch, and whether the proved model allows it.
//!
//! The file is a recording of arrivals, `time,stream`, whose comments tell of batches: before `# start,TIME,WORKER,LENGTH`
//! a line `# take,STREAM,NUMBER` for each request of the batch, in order; then `# end,TIME,WORKER`. `# refuse,TIME,STREAM,NUMBER`
//! tells of a mandatory request that was given up, `# count,TIME,STREAM,…` of the streams that are counted from then on where
//! streams come and go. Requests are numbered from 0 within their stream.
//!
//! Of a pipeline the stream and number are a source's, whatever it has become: `# start,TIME,STAGE,WORKER,LENGTH`; and before
//! `# end,TIME,STAGE,WORKER` a line `# become,STREAM,NUMBER,STAGE,COUNT` for each source of the batch and each stage behind it at
//! which its results become requests. Stages are named.

mod file;
mod lines;

use std::fmt;

use planner::certify::{Decision, decide};
use planner::verify::{Prover, ProverError, chosen_line, problem_line, sharing_line};
use planner::{PipelineProblem, Problem, SharedProblem};
use rt_core::{Instant, Span, WorkerId};

pub use file::LogError;

/// A request: which of which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its stream, as an index into those of the log.
    pub stream: usize,
    /// Its number within the stream, from 0.
    pub seq: u64,
}

/// What the results of a batch become of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Became {
    /// The source.
    pub source: Member,
    /// At which stage they wait now.
    pub stage: usize,
    /// How many there are.
    pub count: u32,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The next request of a stream has come.
    Arrives(usize),
    /// A worker has begun a batch.
    Starts {
        /// The worker.
        worker: WorkerId,
        /// How long the batch may take.
        length: Span,
        /// Its requests, in order.
        batch: Vec<Member>,
    },
    /// The batch of a worker has ended.
    Ends(WorkerId),
    /// A mandatory request was given up.
    Refuses(Member),
    /// On a device: from now on these streams are counted, and no other is promised anything.
    Counts(Vec<usize>),
    /// At a stage of a pipeline a worker has begun a batch.
    StageStarts {
        /// The stage.
        stage: usize,
        /// The worker, among those of the stage.
        worker: WorkerId,
        /// How long the batch may take.
        length: Span,
        /// Of each request its source, in order.
        batch: Vec<Member>,
    },
    /// The batch of a worker of a stage has ended.
    StageEnds {
        /// The stage.
        stage: usize,
        /// The worker, among those of the stage.
        worker: WorkerId,
        /// What became of it.
        became: Vec<Became>,
    },
}

/// What happened, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The problem's streams in its order, then those of no promise as they are first named.
    pub streams: Vec<String>,
    /// Each entry with its instant.
    pub entries: Vec<(Instant, Entry)>,
}

/// Why a log is not known to be a run of the model.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The model does not allow it.
    #[error("entry {index}, {entry} at {} ns: the model does not allow it", .at.as_nanos())]
    Refused {
        /// Which entry, from 0.
        index: usize,
        /// When it happened.
        at: Instant,
        /// What happened.
        entry: Entry,
    },
    /// A batch or a refusal names a request that has not come.
    #[error("entry {index}: request {seq} of stream {stream} has not come")]
    Unknown {
        /// Which entry, from 0.
        index: usize,
        /// The stream.
        stream: usize,
        /// The request's number.
        seq: u64,
    },
    /// The model has trees alone.
    #[error("the pipeline has merges or joins, of which the model knows nothing")]
    NoTree,
    /// The program that knows the model does not answer.
    #[error(transparent)]
    Prover(#[from] ProverError),
}

impl Log {
    /// Holds the log against the model in which the promise of `problem` is proved (`proof/Run.v`).
    ///
    /// # Errors
    /// [`AcceptError`]: the first entry that the model does not allow, or why that is not known.
    pub fn accept(&self, problem: &Problem, prover: &Prover) -> Result<(), AcceptError> {
        let promised: Vec<_> = problem.specs().map(|spec| spec.demand().is_some()).collect();
        let length = |_, length: Span| length;
        self.follow(&self.to_lines(&format!("p {}", problem_line(problem)), &promised, length)?, prover)
    }

    /// The same where services share workers (`proof/SharedRun.v`), decided as [`decide`] does. A batch may take longer than it
    /// should as far as the margin for overruns allows: what it took is known where it ends.
    ///
    /// # Errors
    /// As [`Log::accept`].
    pub fn accept_shared(&self, problem: &SharedProblem, prover: &Prover) -> Result<(), AcceptError> {
        self.accept_decided(problem, &decide(problem), prover)
    }

    /// The same, decided otherwise.
    pub(crate) fn accept_decided(
        &self,
        problem: &SharedProblem,
        decided: &Decision,
        prover: &Prover,
    ) -> Result<(), AcceptError> {
        self.follow(&self.to_shared_lines(problem, decided)?, prover)
    }

    /// The same of a pipeline (`proof/PipelineRun.v`), with the batches and workers that are chosen where they are to be.
    ///
    /// # Errors
    /// As [`Log::accept`].
    pub fn accept_pipeline(&self, problem: &PipelineProblem, prover: &Prover) -> Result<(), AcceptError> {
        self.follow(&self.to_pipeline_lines(problem)?, prover)
    }

    /// [`Log::is_in_time`] of a pipeline: whether all that had to be answered as a whole in it was, in time.
    ///
    /// # Errors
    /// As [`Log::accept`].
    pub fn is_pipeline_in_time(
        &self,
        problem: &PipelineProblem,
        prover: &Prover,
    ) -> Result<bool, AcceptError> {
        self.told_in_time(&self.to_pipeline_lines(problem)?, prover)
    }

    fn to_pipeline_lines(&self, problem: &PipelineProblem) -> Result<String, AcceptError> {
        let promised: Vec<_> = problem.specs().map(|spec| spec.demand().is_some()).collect();
        let problem = chosen_line(problem).ok_or(AcceptError::NoTree)?;
        self.to_lines(&format!("g {problem}"), &promised, |_, length| length)
    }

    /// Whether it is proved of this log that all that had to be answered in it was, in time: what is promised to all streams together
    /// is confirmed, arrivals keep to their declarations, and the log is a run of the model.
    ///
    /// # Errors
    /// As [`Log::accept`].
    pub fn is_in_time(&self, problem: &SharedProblem, prover: &Prover) -> Result<bool, AcceptError> {
        self.told_in_time(&self.to_shared_lines(problem, &decide(problem))?, prover)
    }

    fn told_in_time(&self, lines: &str, prover: &Prover) -> Result<bool, AcceptError> {
        let answer = prover.ask("in-time", lines)?;
        match answer.trim() {
            "in time" => Ok(true),
            "not shown" => Ok(false),
            _ => Err(prover.odd(answer).into()),
        }
    }

    fn to_shared_lines(&self, problem: &SharedProblem, decided: &Decision) -> Result<String, AcceptError> {
        let promised: Vec<_> = problem.specs().flatten().map(|spec| spec.demand().is_some()).collect();
        // All are counted from the beginning, if the log does not say otherwise.
        let all = match self.entries.first() {
            Some((_, Entry::Counts(_))) => 0,
            _ => promised.iter().filter(|&&promised| promised).count(),
        };
        let all: String = std::iter::once(all).chain(0..all).map(|number| format!("{number} ")).collect();
        let lengths = self.lengths();
        let length = |index: usize, length: Span| lengths[index].map_or(length, |took| took.max(length));
        self.to_lines(&format!("d {all}{}", sharing_line(problem, decided)), &promised, length)
    }

    /// Of each entry that is the start of a batch that ended, how long it took.
    fn lengths(&self) -> Vec<Option<Span>> {
        let (mut lengths, mut ends) = (vec![None; self.entries.len()], std::collections::HashMap::new());
        for (index, (at, entry)) in self.entries.iter().enumerate().rev() {
            match entry {
                Entry::Ends(worker) => drop(ends.insert(*worker, *at)),
                Entry::Starts { worker, .. } => {
                    lengths[index] = ends.remove(worker).map(|end| end.since(*at));
                }
                _ => {}
            }
        }
        lengths
    }

    /// Asks the program about each entry.
    fn follow(&self, lines: &str, prover: &Prover) -> Result<(), AcceptError> {
        let answer = prover.ask("accept", lines)?;
        let count = |word: &str| answer.trim().strip_prefix(word)?.trim().parse::<usize>().ok();
        match (count("accepted"), count("refused").and_then(|index| Some((index, self.entries.get(index)?))))
        {
            (Some(count), _) if count == self.entries.len() => Ok(()),
            (None, Some((index, &(at, ref entry)))) => {
                Err(AcceptError::Refused { index, at, entry: entry.clone() })
            }
            _ => Err(prover.odd(answer).into()),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrives(stream) => write!(f, "a request of stream {stream}"),
            Self::Starts { worker, length, batch } => {
                write!(f, "worker {worker} begins {} for {} ns", batch.len(), length.as_nanos())
            }
            Self::Ends(worker) => write!(f, "worker {worker} ends"),
            Self::Refuses(Member { stream, seq }) => {
                write!(f, "request {seq} of stream {stream} is given up")
            }
            Self::Counts(streams) => write!(f, "the streams {streams:?} are counted"),
            Self::StageStarts { stage, worker, length, batch } => {
                let (size, length) = (batch.len(), length.as_nanos());
                write!(f, "worker {worker} of stage {stage} begins {size} for {length} ns")
            }
            Self::StageEnds { stage, worker, became } => {
                let count: u64 = became.iter().map(|became| u64::from(became.count)).sum();
                write!(f, "worker {worker} of stage {stage} ends, and {count} come of it")
            }
        }
    }
}

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod stage_tests;
#[cfg(test)]
mod tests;
