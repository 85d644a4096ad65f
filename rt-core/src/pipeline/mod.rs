//! Pipelines: one promise from the arrival of a source to the last answer to all that it became (Theorems P1 and P2).
//!
//! A source request arrives at the first stage. Each result of a stage becomes at most `F` requests of each of its children,
//! so a source is at most `M_i` requests at stage `i`, the product of `F` on the way there. Stage `i` has `n_i` workers of its
//! own that run batches of up to `B_i` in at most `P_i`. A free worker never idles while a mandatory request waits, and takes
//! the first `B_i` *in the order of their sources*, whenever they came to the stage. Behind an instant at which none waits
//! that goes before a request or is it, all of `j` of them are answered by
//!
//! ```text
//! A_i(j) = g + P_i·(1 + ⌈j/(n_i·B_i)⌉) ,
//! ```
//!
//! dispatch being late by `g` in all meanwhile. Let `α_m(δ + 1)` be the most mandatory sources that come up to `δ` behind such
//! an instant. A mandatory source is answered as a whole within the smaller of
//!
//! ```text
//! P1:  Σ R_i on the longest path,   R_i = max over δ of  A_i(M_i·α_m(δ + 1)) - δ
//! P2:  max over δ of  f_0(α_m(δ + 1)) - δ ,
//!      f_i(Y) = A_i(Y) at a leaf, else  max over 1 ≤ X ≤ Y, children c of  A_i(X) + f_c(F_c·(Y - X + 1)) .
//! ```
//!
//! P1 lets every stage meet the whole burst anew. P2 counts it once: consecutive stages share one request, and all others
//! are waited for at one stage alone.
//!
//! A stage may take the results of several others, each by itself or of a source at once ([`Parents`]). Then `M_i` is `F` times the sum
//! over its parents, or what a join declares, paths are those of the graph, and consecutive stages share one *source*:
//!
//! ```text
//! P2:  f_i(N) = A_i(M_i·N) at a leaf, else  max over 1 ≤ X ≤ N, children c of  A_i(M_i·X) + f_c(N - X + 1) .
//! ```
//!
//! Stalls that are declared cost as much of the deadline as they may take (`stalls.rs` here).
//!
//! The proofs are in `docs/guarantee.md`.

mod calm;
mod choose;
mod flow;
mod handover;
mod horizon;
mod overruns;
mod parents;
mod path;
mod prolong;
mod scheduler;
mod shield;
mod sources;
mod stage;
mod stalls;
mod streams;
mod types;
mod workers;

use alloc::vec::Vec;

use crate::admission::Load;
use crate::busy::{MAX_RISES, MandatoryCurve};
use crate::growth::Envelope;
use crate::stalls::Stalls;
use crate::stream::StreamSpec;
use crate::time::{MAX_SPAN, Span};
use crate::{MAX_BATCH, MAX_WORKERS, Newcomer, SchedulerConfig};
use horizon::Horizon;
use path::Tables;

pub use choose::StageVariants;
pub use parents::Parents;
pub use scheduler::PipelineScheduler;
pub use shield::PipelineShield;
pub use sources::SourceId;
pub use types::{Part, PipelineAction, PipelineConfig, PipelineConfigError, StageConfig};

/// The most stages of a pipeline.
pub const MAX_STAGES: usize = 32;
/// The most requests that a result may become at a child.
pub const MAX_FAN_OUT: u32 = 1 << 10;
/// The most requests that a source may become at a stage.
pub const MAX_DESCENDANTS: u64 = 1 << 16;

/// A stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The stages whose results it takes.
    pub parents: Parents,
    /// `F`, in `1..=MAX_FAN_OUT`: the most requests that a result of a parent becomes here, or a source if it is a join; 1 for the
    /// first.
    pub fan_out: u32,
    /// `n`, in `1..=MAX_WORKERS`, identical and its own.
    pub workers: usize,
    /// `B`, in `1..=MAX_BATCH`: the most requests of a batch.
    pub batch: usize,
    /// `P`, at least 1 ns: what a batch takes at most, whatever it holds.
    pub time: Span,
}

/// Stages that feed one another, and what is asked of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// `D`: from the arrival of a source to the last answer to what it became.
    pub deadline: Span,
    /// `g`: by how much dispatch may come late at each stage, in all while something waits there.
    pub guard: Span,
    /// Rare losses of time at whatever stages, for which a part of the deadline is kept back; none is absorbed.
    pub stalls: Option<Stalls>,
    /// In `1..=MAX_STAGES`, every parent before its children.
    pub stages: Vec<Stage>,
}

/// One stage of the path that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The stage.
    pub stage: usize,
    /// How many requests are waited for there, that of the path among them.
    pub requests: u64,
    /// How long that takes.
    pub time: Span,
}

/// Where Theorem P2 finds a source answered latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tightest {
    /// When the source comes, counted from when the first that it may wait for does.
    pub delta: Span,
    /// How many mandatory sources come by then.
    pub sources: u64,
    /// From the first stage to a leaf; the times add up to `delta` and the bound.
    pub path: Vec<Leg>,
}

/// The answer to an admission test that says yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineAdmission {
    /// Within what time of its arrival a mandatory source is answered as a whole: the least that P1 or P2 proves.
    pub bound: Span,
    /// Of each stage `R_i`: what it adds at most, by P1.
    pub responses: Vec<Span>,
    /// `None` if nothing is promised to anyone.
    pub tightest: Option<Tightest>,
}

/// Why a pipeline is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// No stages or too many, or a number of one outside its range.
    #[error("{field} of stage {stage} = {value} is outside {min}..={max}")]
    Range {
        /// Which number.
        field: &'static str,
        /// Whose, from 0; 0 for a number of all.
        stage: usize,
        /// The number.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// In the long run more work comes to a stage than its workers can do.
    #[error("stage {stage} needs {thousandths} thousandths of its {workers} workers")]
    Rate {
        /// The stage that is asked most of.
        stage: usize,
        /// The work that comes, in thousandths of all its workers, rounded up.
        thousandths: u64,
        /// The workers.
        workers: usize,
    },
    /// A source may be answered too late.
    #[error("a source may take {}, the deadline is {deadline}", .admission.bound)]
    Late {
        /// What was asked for, less what stalls may take.
        deadline: Span,
        /// What can be said.
        admission: PipelineAdmission,
    },
    /// The load is so close to capacity, or a source becomes so many requests, that more would have to be looked at than is.
    #[error("there is too much to test: lower the load a little")]
    Horizon,
    /// More stalls than are kept back for may meet one source.
    #[error("stalls must be so rare that a window of them covers {needed}, but it is {window}")]
    Stalls {
        /// What a source can see of what was before it, behind a delay of a deadline, and what may end late after it; the longest of
        /// all spans if that is not seen within a minute.
        needed: Span,
        /// The window that is declared.
        window: Span,
    },
}

/// `(δ, α_m(δ + 1))` at every `δ` at which that may rise: how many mandatory sources of `streams` come up to `δ` behind the first;
/// nothing if nothing is promised to anyone.
pub fn rises<'a>(streams: impl IntoIterator<Item = &'a StreamSpec>) -> impl Iterator<Item = (Span, u64)> {
    let load: Vec<_> = streams.into_iter().filter_map(StreamSpec::demand).collect();
    let mut curve = (!load.is_empty()).then(|| MandatoryCurve::new(&load));
    core::iter::from_fn(move || {
        let rising = curve.as_mut()?;
        let at = (rising.length().saturating_sub(Span::from_nanos(1)), rising.requests());
        if rising.next_rise() < MAX_SPAN {
            rising.rise();
        } else {
            curve = None;
        }
        Some(at)
    })
}

impl Pipeline {
    /// Whether every mandatory source of `streams` is answered as a whole in time; best-effort streams demand nothing.
    ///
    /// # Errors
    /// If not every promise can be given: [`PipelineError`] says why.
    pub fn admit<'a>(
        &self,
        streams: impl IntoIterator<Item = &'a StreamSpec>,
    ) -> Result<PipelineAdmission, PipelineError> {
        let descendants = self.check()?;
        let load: Vec<_> = streams.into_iter().filter_map(StreamSpec::demand).collect();
        if load.is_empty() {
            let responses = self.stages.iter().map(|_| Span::ZERO).collect();
            return Ok(PipelineAdmission { bound: Span::ZERO, responses, tightest: None });
        }
        self.check_rate(&descendants, &load)?;
        let horizon = Horizon::new(self, &descendants, &load);
        let mut tables = Tables::new(self, &descendants);
        // So near to capacity it would be looked at for long, and in vain.
        if !horizon.sources(&load).is_some_and(|sources| tables.have_room(sources)) {
            return Err(PipelineError::Horizon);
        }
        let mut curve = MandatoryCurve::new(&load);
        let mut responses = alloc::vec![0; self.stages.len()];
        let mut latest = None::<(u64, u64, u64)>;
        for _ in 0..MAX_RISES {
            let (sources, length) = (curve.requests(), curve.length().as_nanos());
            let delta = length - 1;
            let end = tables.end(sources).ok_or(PipelineError::Horizon)?.saturating_sub(delta);
            if latest.is_none_or(|(bound, ..)| end > bound) {
                latest = Some((end, delta, sources));
            }
            for (stage, response) in responses.iter_mut().enumerate() {
                *response = tables.alone(stage, sources).saturating_sub(delta).max(*response);
            }
            let next = curve.next_rise();
            if horizon.is_over(next.as_nanos(), length, sources) {
                let admission = self.answer(&tables, &responses, latest)?;
                self.check_stalls(&mut tables, &load, horizon.catches_up())?;
                return Ok(admission);
            }
            curve.rise();
        }
        Err(PipelineError::Horizon)
    }

    /// `M_i` of every stage: how many requests a source becomes there at most.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub fn descendants(&self) -> Result<Vec<u64>, PipelineError> {
        self.check()
    }

    /// Whether each stage takes the results of one other, each by itself.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        self.stages.iter().all(|stage| stage.parents.is_of_tree())
    }

    /// A stream to be added to a [`PipelineScheduler`] of this pipeline: all that is to be allocated for it. `config` is that of
    /// the scheduler of the first stage, see [`PipelineScheduler::first`].
    #[must_use]
    pub fn newcomer(&self, config: &SchedulerConfig, spec: StreamSpec) -> Newcomer {
        Newcomer::lasting(config, spec, self.life())
    }

    /// For how long a source may be without an answer.
    fn life(&self) -> Span {
        let path = self.stages.iter().map(|stage| stage.time + self.guard);
        let lost = self.stalls.map_or(Span::ZERO, |stalls| stalls.lost());
        path.fold(self.deadline + lost, |all, time| all + time)
    }

    /// The answer, of where the last source is answered latest.
    fn answer(
        &self,
        tables: &Tables,
        responses: &[u64],
        latest: Option<(u64, u64, u64)>,
    ) -> Result<PipelineAdmission, PipelineError> {
        let (together, delta, sources) = latest.unwrap_or_default();
        let mut by = Vec::<u64>::with_capacity(responses.len());
        for (stage, &response) in self.stages.iter().zip(responses) {
            by.push(stage.parents.most(&by) + response);
        }
        let apart = by.into_iter().max().unwrap_or(0);
        let tightest = Tightest { delta: Span::from_nanos(delta), sources, path: tables.path(sources) };
        let admission = PipelineAdmission {
            bound: Span::from_nanos(together.min(apart)),
            responses: responses.iter().map(|&r| Span::from_nanos(r)).collect(),
            tightest: Some(tightest),
        };
        let deadline = self.latency();
        if admission.bound > deadline {
            return Err(PipelineError::Late { deadline, admission });
        }
        Ok(admission)
    }

    fn check(&self) -> Result<Vec<u64>, PipelineError> {
        let range = |field, stage, value: u64, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(PipelineError::Range { field, stage, value, min, max })
            }
        };
        range("stages", 0, self.stages.len() as u64, 1, MAX_STAGES as u64)?;
        range("deadline", 0, self.deadline.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        range("guard", 0, self.guard.as_nanos(), 0, MAX_SPAN.as_nanos())?;
        let recovery = self.stalls.and_then(|stalls| stalls.recovery());
        range("recovery from stalls", 0, recovery.map_or(0, Span::as_nanos), 0, 0)?;
        let mut descendants: Vec<u64> = Vec::with_capacity(self.stages.len());
        for (i, stage) in self.stages.iter().enumerate() {
            range("workers", i, stage.workers as u64, 1, MAX_WORKERS as u64)?;
            range("batch", i, stage.batch as u64, 1, MAX_BATCH as u64)?;
            range("time", i, stage.time.as_nanos(), 1, MAX_SPAN.as_nanos())?;
            let most = if i == 0 { 1 } else { MAX_FAN_OUT };
            range("fan-out", i, stage.fan_out.into(), 1, most.into())?;
            let last = stage.parents.last();
            if last.map_or(i > 0 || stage.parents.is_join(), |last| last >= i) {
                let value = last.map_or(u64::MAX, |parent| parent as u64);
                let max = (i as u64).saturating_sub(1);
                return Err(PipelineError::Range { field: "parent", stage: i, value, min: 0, max });
            }
            let above = match stage.parents.iter().map(|parent| descendants[parent]).sum() {
                _ if i == 0 || stage.parents.is_join() => 1,
                above => above,
            };
            let all = above * u64::from(stage.fan_out);
            range("descendants", i, all, 1, MAX_DESCENDANTS)?;
            descendants.push(all);
        }
        Ok(descendants)
    }

    /// Refuses at once what is clearly above capacity; the test is exact.
    fn check_rate(&self, descendants: &[u64], load: &Load) -> Result<(), PipelineError> {
        let rate = Envelope::of(load).rate;
        let busy = |i: usize| rate * horizon::cost(&self.stages[i], descendants[i]);
        let busiest = (0..self.stages.len()).max_by(|&a, &b| busy(a).total_cmp(&busy(b))).unwrap_or(0);
        if busy(busiest) <= 1.0 + 1e-9 {
            return Ok(());
        }
        let thousandths = (busy(busiest) * 1000.0) as u64 + 1;
        Err(PipelineError::Rate { stage: busiest, thousandths, workers: self.stages[busiest].workers })
    }
}
