//! The checker that is proved sound (`proof/`): a program of its own, which reads lines of integers.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rt_core::pipeline::Pipeline as RtPipeline;
use rt_core::sharing::{Rule as SharedRule, SharedAdmission};
use rt_core::{ArrivalBound, Dispatch, Span, StreamSpec, Workers};

use super::VerifyError;
use super::pipeline::Pipeline;
use super::problem::{Bound, Kind, Stream, System};
use super::shared::{Told, told};
use crate::certificate::{Certificate, PipelineClaim, PipelineReason, Rule, SharedClaim, SharedReason};
use crate::certify::{Decision, chosen};
use crate::problem::{PipelineProblem, Problem, SharedProblem};

/// The program `weir-proved` that `make proof` builds.
#[derive(Clone, Debug)]
pub struct Prover {
    program: PathBuf,
}

/// Why the program did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ProverError {
    /// It cannot be run.
    #[error("{}: cannot be run: {source} (`make proof` builds it)", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It failed, or said something else than expected.
    #[error("{}: {what}", program.display())]
    Answer {
        /// The program.
        program: PathBuf,
        /// What it said.
        what: String,
    },
    /// There is no such problem.
    #[error(transparent)]
    Problem(#[from] VerifyError),
}

const STALLED: &str = "it counts on stalls, of which nothing is proved";

/// A claim that promises something for which there is no proof by machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproved {
    /// Its number in the certificate, from 0.
    pub claim: usize,
    /// Why.
    pub reason: &'static str,
}

impl Prover {
    /// The program at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { program: path.into() }
    }

    /// Where the program is.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// How many claims of `certificate` promise something that is proved to hold, and those that do without. Whoever
    /// asks has verified the certificate: here only its promises are looked at, not its limits.
    ///
    /// # Errors
    /// [`ProverError`] if the program does not answer, or a problem is none.
    pub fn check(&self, certificate: &Certificate) -> Result<(usize, Vec<Unproved>), ProverError> {
        let promised = |rule| rule != Rule::NothingPromised;
        let claims = certificate.claims.iter().enumerate().filter(|(_, c)| c.admissible && promised(c.rule));
        let (mut asked, mut lines, mut unproved) = (Vec::new(), String::new(), Vec::new());
        for (claim, c) in claims {
            if c.problem.stalls.is_some() {
                unproved.push(Unproved { claim, reason: STALLED });
            } else if c.rule == Rule::Refined {
                unproved.push(Unproved { claim, reason: "it rests on the refinement, which is not proved" });
            } else {
                asked.push(claim);
                lines += &(line(&System::read(&c.problem)?) + "\n");
            }
        }
        let said = self.ask("check", &lines)?;
        let mut answers = said.lines();
        for &claim in &asked {
            match answers.next() {
                Some("confirmed") => {}
                Some("not confirmed") => unproved.push(Unproved { claim, reason: "it is not confirmed" }),
                other => return Err(self.odd(format!("{other:?} for claim {claim}"))),
            }
        }
        let mut proved = asked.len() - unproved.iter().filter(|u| asked.contains(&u.claim)).count();
        let promises = |claim: &&SharedClaim| claim.admissible && claim.rule != SharedReason::NothingPromised;
        let first = certificate.claims.len();
        let mut alone = Vec::new();
        for (i, shared) in certificate.shared.iter().enumerate().filter(|(_, claim)| promises(claim)) {
            if shared.problem.stalls.is_some() {
                unproved.push(Unproved { claim: first + i, reason: STALLED });
                continue;
            }
            let told = told(shared)?;
            alone.push((first + i, "shared", shared_line(shared, &told)));
        }
        let promises = |rule| rule != PipelineReason::NothingPromised;
        let first = first + certificate.shared.len();
        let staged = certificate.pipelines.iter().enumerate();
        for (i, claim) in staged.filter(|(_, c)| c.admissible && promises(c.rule)) {
            let claim_of = first + i;
            if claim.problem.stalls.is_some() {
                unproved.push(Unproved { claim: claim_of, reason: STALLED });
                continue;
            }
            match pipeline_line(claim)? {
                Some(line) => alone.push((claim_of, "pipeline", line)),
                None => unproved.push(Unproved {
                    claim: claim_of,
                    reason: "it has merges or joins, which are not known to the proved checker",
                }),
            }
        }
        for (claim, mode, line) in alone {
            match self.ask(mode, &(line + "\n"))?.trim_end() {
                "confirmed" => proved += 1,
                "not confirmed" => unproved.push(Unproved { claim, reason: "it is not confirmed" }),
                other => return Err(self.odd(format!("{other:?} for claim {claim}, {mode}"))),
            }
        }
        unproved.sort_by_key(|u| u.claim);
        Ok((proved, unproved))
    }

    /// What the program says to `input` in one of its modes.
    ///
    /// # Errors
    /// [`ProverError::Run`] and [`ProverError::Answer`].
    pub fn ask(&self, mode: &str, input: &str) -> Result<String, ProverError> {
        let failed = |source| ProverError::Run { program: self.program.clone(), source };
        let mut command = Command::new(&self.program);
        let piped = command.arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(failed)?;
        let (stdin, text) = (child.stdin.take(), input.to_owned());
        // It answers while it reads: who writes all of it first could wait for ever.
        let writer = std::thread::spawn(move || stdin.map_or(Ok(()), |mut to| to.write_all(text.as_bytes())));
        let output = child.wait_with_output().map_err(failed)?;
        let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(self.odd(format!("{}: {}", output.status, said.trim())));
        }
        written.map_err(failed)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// That it said something that it should not.
    pub fn odd(&self, what: impl Into<String>) -> ProverError {
        ProverError::Answer { program: self.program.clone(), what: what.into() }
    }
}

fn ns(span: Span) -> i128 {
    i128::from(span.as_nanos())
}

/// A stream, if it is promised something.
fn promised((name, spec): &(String, StreamSpec)) -> Option<Stream> {
    let bound = |bound: &ArrivalBound| match bound {
        ArrivalBound::Window { count, length } => {
            Bound { step: ns(*length), shift: 0, starts: vec![(0, i128::from(*count))] }
        }
        ArrivalBound::Periodic { period, jitter } => {
            Bound { step: ns(*period), shift: ns(*jitter), starts: vec![(0, 1)] }
        }
        ArrivalBound::Distances(distances) => {
            let mut starts: Vec<_> = std::iter::once(&Span::ZERO).chain(distances.as_slice()).collect();
            let step = starts.pop().map_or(0, |&last| ns(last));
            Bound { step, shift: 0, starts: starts.into_iter().map(|&at| (ns(at), 1)).collect() }
        }
    };
    let (density, arrivals) = spec.demand()?;
    let constraints = spec.constraints().as_slice().iter();
    Some(Stream {
        name: name.clone(),
        constraints: constraints.map(|c| (c.misses().into(), c.window().into())).collect(),
        p: density.numerator().into(),
        q: density.denominator().into(),
        bounds: arrivals.bounds().iter().map(bound).collect(),
    })
}

/// A problem as the program reads it, one line of integers: times in nanoseconds, of streams those that are promised
/// something.
#[must_use]
pub fn problem_line(problem: &Problem) -> String {
    let kind = |kind: &Workers| Kind {
        count: kind.count as i128,
        times: (1..=kind.batch).map(|b| ns(kind.profile.bound(b))).collect(),
    };
    line(&System {
        latency: ns(problem.deadline.saturating_sub(problem.reserve())),
        guard: ns(problem.reserve()),
        stalls: None,
        absorbed: None,
        full_or_latest: problem.dispatch == Dispatch::FullOrLatest,
        background: problem.background,
        kinds: problem.workers.iter().map(kind).collect(),
        streams: problem.streams.iter().filter_map(promised).collect(),
    })
}

fn line(system: &System) -> String {
    let kinds = system.kinds.iter();
    let workers = kinds.flat_map(|kind| std::iter::repeat_n(kind, kind.count as usize));
    let workers: Vec<_> = workers.map(|kind| (kind.times.len() as i128, kind.time())).collect();
    let streams: Vec<_> = system.streams.iter().filter(|s| s.p > 0).collect();
    format!(
        "{} {} {} {} {}",
        system.latency + system.guard,
        system.guard,
        i32::from(!system.full_or_latest),
        list(&workers, pair),
        list(&streams, |stream| stream_line(stream))
    )
}

/// Services that share workers, with what was decided of them, as the program reads them: one line of integers, times in
/// nanoseconds, of streams those that are promised something.
#[must_use]
pub fn sharing_line(problem: &SharedProblem, decided: &Decision) -> String {
    let sharing = problem.sharing(decided.rule, &decided.turns);
    let none = || (vec![Span::ZERO; sharing.services.len()], Span::ZERO);
    let admitted = |a: &SharedAdmission| (a.start_within.clone(), a.overrun_margin());
    let (within, margin) = decided.answer.as_ref().map_or_else(|_| none(), admitted);
    let services: Vec<_> = sharing.services.iter().zip(within).collect();
    let clients: Vec<_> = (problem.services.iter().enumerate())
        .flat_map(|(s, service)| service.streams.iter().filter_map(promised).map(move |stream| (s, stream)))
        .collect();
    format!(
        "{} {} {} {} {} {} {}",
        i32::from(decided.rule == SharedRule::Turns),
        sharing.workers,
        ns(sharing.longest),
        ns(sharing.guard),
        ns(margin),
        list(&services, |(s, start)| {
            format!("{} {} {} {} {}", s.batch, ns(s.time), ns(s.latency), s.turn, ns(*start))
        }),
        list(&clients, |(s, stream)| format!("{s} {}", stream_line(stream)))
    )
}

/// What is claimed of services that share workers: the workers, the services, each with its turn and within what time its
/// requests begin, and the streams, each with the number of its service.
fn shared_line(claim: &SharedClaim, Told { problem, turns, within, margin }: &Told) -> String {
    let services: Vec<_> = problem.services.iter().zip(turns.iter().zip(within)).collect();
    let promised = problem.services.iter().enumerate().flat_map(|(number, service)| {
        service.streams.iter().filter(|stream| stream.p > 0).map(move |stream| (number, stream))
    });
    let streams: Vec<_> = promised.collect();
    format!(
        "{} {} {} {} {margin} {} {}",
        i32::from(claim.rule == SharedReason::Turns),
        problem.workers,
        problem.longest,
        problem.late,
        list(&services, |(s, (turn, start))| format!("{} {} {} {turn} {start}", s.batch, s.time, s.latency)),
        list(&streams, |(number, stream)| format!("{number} {}", stream_line(stream)))
    )
}

/// The deadline and the guard, the stages, each with the number of the one before it, and the streams; `None` of what is no tree.
fn pipeline_line(claim: &PipelineClaim) -> Result<Option<String>, VerifyError> {
    let read = Pipeline::read(claim)?;
    if !read.is_tree() {
        return Ok(None);
    }
    let Pipeline { deadline, guard, stages, streams, .. } = read;
    let promised: Vec<_> = streams.iter().filter(|stream| stream.p > 0).collect();
    let stages = list(&stages, |s| {
        format!("{} {} {} {} {}", s.workers, s.batch, s.time, s.parents.first().unwrap_or(&0), s.fan_out)
    });
    Ok(Some(format!("{deadline} {guard} {stages} {}", list(&promised, |stream| stream_line(stream)))))
}

/// A pipeline as the program reads it, with the batches and workers that are chosen where they are to be; `None` of what is no tree.
#[must_use]
pub fn chosen_line(problem: &PipelineProblem) -> Option<String> {
    let pipeline = Some(chosen(problem)).filter(RtPipeline::is_tree)?;
    let (deadline, RtPipeline { guard, stages, .. }) = (pipeline.latency(), pipeline);
    let promised: Vec<_> = problem.streams.iter().filter_map(promised).collect();
    let stages = list(&stages, |s| {
        format!("{} {} {} {} {}", s.workers, s.batch, ns(s.time), s.parents.first().unwrap_or(0), s.fan_out)
    });
    Some(format!("{} {} {stages} {}", ns(deadline), ns(guard), list(&promised, stream_line)))
}

/// The density, the constraints, the bounds.
fn stream_line(stream: &Stream) -> String {
    let bound = |b: &Bound| format!("{} {} {}", b.step, b.shift, list(&b.starts, pair));
    let (constraints, bounds) = (list(&stream.constraints, pair), list(&stream.bounds, bound));
    format!("{} {} {constraints} {bounds}", stream.p, stream.q)
}

fn pair(&(a, b): &(i128, i128)) -> String {
    format!("{a} {b}")
}

/// How many there are, and each.
fn list<T>(items: &[T], each: impl Fn(&T) -> String) -> String {
    std::iter::once(items.len().to_string()).chain(items.iter().map(each)).collect::<Vec<_>>().join(" ")
}
