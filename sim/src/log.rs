//! Logs: what a scheduler did, from arrival to arrival and batch to batch, and whether the proved model allows it.
//!
//! The file is a recording of arrivals, `time,stream`, whose comments tell of batches: before `# start,TIME,WORKER,LENGTH`
//! a line `# take,STREAM,NUMBER` for each request of the batch, in order; then `# end,TIME,WORKER`. `# refuse,TIME,STREAM,NUMBER`
//! tells of a mandatory request that was given up. Requests are numbered from 0 within their stream.

mod file;

use std::fmt;

use planner::Problem;
use planner::verify::{Prover, ProverError, problem_line};
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
        let answer = prover.ask("accept", &self.to_lines(problem)?)?;
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

    /// The log as the program reads it.
    fn to_lines(&self, problem: &Problem) -> Result<String, AcceptError> {
        use std::fmt::Write as _;
        let promised =
            |&stream: &usize| problem.streams.get(stream).is_some_and(|(_, spec)| spec.demand().is_some());
        // The program knows the streams that are promised something, and takes any other number for a stranger's.
        let all = self.streams.len().max(problem.streams.len());
        let (mut known, mut strange): (Vec<_>, Vec<_>) = (0..all).partition(promised);
        known.append(&mut strange);
        let mut ids = vec![0; all];
        known.iter().enumerate().for_each(|(id, &stream)| ids[stream] = id);
        let mut text = format!("p {}\n", problem_line(problem));
        let mut came: Vec<Vec<u64>> = vec![Vec::new(); all];
        for (index, (at, entry)) in self.entries.iter().enumerate() {
            let request = |&Member { stream, seq }: &Member, came: &[Vec<u64>]| {
                let arrival = came.get(stream).and_then(|all| all.get(usize::try_from(seq).ok()?));
                let arrival = arrival.ok_or(AcceptError::Unknown { index, stream, seq })?;
                Ok::<_, AcceptError>(format!(" {} {} {arrival}", ids[stream], seq + 1))
            };
            let at = at.as_nanos();
            // Writing to a text cannot fail.
            let _ = match entry {
                Entry::Arrives(stream) => {
                    came[*stream].push(at);
                    writeln!(text, "{at} a {}", ids[*stream])
                }
                Entry::Starts { worker, length, batch } => {
                    let members = batch.iter().map(|m| request(m, &came)).collect::<Result<String, _>>()?;
                    writeln!(text, "{at} s {worker} {} {}{members}", length.as_nanos(), batch.len())
                }
                Entry::Ends(worker) => writeln!(text, "{at} e {worker}"),
                Entry::Refuses(member) => writeln!(text, "{at} r{}", request(member, &came)?),
            };
        }
        Ok(text)
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
        }
    }
}

#[cfg(test)]
mod tests;
