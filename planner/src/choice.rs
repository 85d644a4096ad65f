//! The best batches and workers of a pipeline, of all stages at once.
//!
//! A stage may have several options, each a size of batches, what they take and how many workers run them. How long a source
//! takes depends on the options of all stages together: the larger batches keep up with more, the smaller ones are done
//! sooner, and a burst is paid for once (Theorem P2). Of a tree the answer is exact: no other choice would let more come. With merges or
//! joins it is if the choices are few (`graph.rs`), and [`Chosen::proved`] says so.

mod graph;
mod naive;
mod tables;

use rt_core::pipeline::{Parents, Pipeline, PipelineAdmission, PipelineError, Stage, rises};
use rt_core::{LatencyProfile, MAX_SPAN, Span, Stalls, StreamSpec};

pub use naive::Split;
use tables::{Search, Theorem};

/// How many rises of the sources a search looks at to begin with, as far as they are no further apart than the deadline.
const FIRST_RISES: usize = 64;
/// The most that it looks at.
const MAX_RISES: usize = 1 << 16;
/// The most entries of tables that a search makes or compares.
const MAX_WORK: u64 = 1 << 28;
/// So many tables of each stage are kept where it is first tried with few.
const FEW_TABLES: usize = 16;
/// The most options of all stages together.
pub const MAX_OPTIONS: usize = 1 << 14;

/// A pipeline of which options are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// From the arrival of a source to the last answer to what it became.
    pub deadline: Span,
    /// By how much dispatch may come late at each stage.
    pub guard: Span,
    /// As those of a [`Pipeline`].
    pub stalls: Option<Stalls>,
    /// The most workers of all stages together; `None` if only the options say.
    pub workers: Option<usize>,
    /// Every parent before its children.
    pub stages: Vec<StageChoices>,
}

/// A stage, and what it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageChoices {
    /// As those of a [`Stage`].
    pub parents: Parents,
    /// As that of a [`Stage`].
    pub fan_out: u32,
    /// At least one.
    pub options: Vec<StageOption>,
}

/// One way to run a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageOption {
    /// As that of a [`Stage`].
    pub workers: usize,
    /// As that of a [`Stage`].
    pub batch: usize,
    /// What a batch takes at most.
    pub time: Span,
}

impl StageOption {
    /// Every size of batches in `batches`, each with every number of `workers`, as `profile` says what they take.
    #[must_use]
    pub fn of_profile(
        profile: &LatencyProfile,
        batches: impl IntoIterator<Item = usize>,
        workers: impl IntoIterator<Item = usize> + Clone,
    ) -> Vec<Self> {
        let with = |batch| {
            let time = profile.bound(batch);
            workers.clone().into_iter().map(move |workers| Self { workers, batch, time })
        };
        batches.into_iter().flat_map(with).collect()
    }
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which option of each stage.
    pub options: Vec<usize>,
    /// The pipeline with these.
    pub pipeline: Pipeline,
    /// Whether every better choice was ruled out; if not, some could only have been by looking at more than is.
    pub proved: bool,
}

/// What a search says.
enum Answer {
    Found(Vec<usize>, PipelineAdmission),
    /// No choice passes, or, if this is false, none that could be judged.
    None(bool),
}

impl Choices {
    /// The choice that passes [`Pipeline::admit`] at the largest of the loads 1 to `most`, and that one; of several one of the
    /// fewest workers. `None` if none passes at load 1.
    ///
    /// Each `load` must allow all that those before it do: all streams faster and faster, or one of them with the others as
    /// they are. `None` stands for more than can be declared. A load that the test would have to look at for too long counts
    /// as refused.
    ///
    /// # Errors
    /// [`PipelineError::Range`] if a number is outside its range.
    pub fn largest(
        &self,
        most: u64,
        load: impl Fn(u64) -> Option<Vec<StreamSpec>>,
    ) -> Result<Option<(u64, Chosen)>, PipelineError> {
        self.check()?;
        if !self.is_tree() {
            return Ok(self.largest_tried(most, load));
        }
        let find =
            |at| load(at).map_or(Answer::None(true), |streams| self.find(&streams, self.deadline, false));
        let (mut best, mut passes, mut fails, mut proved) = (None::<Vec<usize>>, 0, most + 1, true);
        // So much further is tried next: what was found often passes much more, and the next one little.
        let mut further = 1;
        while passes + 1 < fails {
            let at = (passes + further).min(passes + (fails - passes) / 2).max(passes + 1);
            match find(at) {
                Answer::Found(options, _) => {
                    let pipeline = self.pipeline(&options);
                    let admits = |at| load(at).is_some_and(|streams| pipeline.admit(&streams).is_ok());
                    passes = largest(at, fails, admits);
                    best = Some(options);
                    further = further.saturating_mul(2);
                }
                Answer::None(all) => {
                    proved &= all;
                    fails = at;
                }
            }
        }
        // What was found on the way may have more workers than it needs.
        if self.workers.is_some()
            && best.is_some()
            && let Some(streams) = load(passes)
            && let Answer::Found(options, _) = self.find(&streams, self.deadline, true)
        {
            best = Some(options);
        }
        Ok(best.map(|options| (passes, self.chosen(options, proved))))
    }

    /// The choice with the least bound for `streams`, whatever the deadline. `None` if no choice carries them.
    ///
    /// # Errors
    /// [`PipelineError::Range`] if a number is outside its range.
    pub fn least(&self, streams: &[StreamSpec]) -> Result<Option<Chosen>, PipelineError> {
        self.check()?;
        if !self.is_tree() {
            return Ok(self.least_tried(streams));
        }
        let mut ends: Vec<u64> = Vec::new();
        for stage in &self.stages {
            let time = stage.options.iter().map(|o| (self.guard + o.time).as_nanos()).min().unwrap_or(0);
            ends.push(stage.parents.most(&ends) + time);
        }
        // Nothing is answered sooner.
        let mut fails = ends.into_iter().max().unwrap_or(0).saturating_sub(1);
        let (mut best, mut passes, mut proved) = (None, MAX_SPAN.as_nanos() + 1, true);
        // How rare stalls must be depends on the deadline.
        let unstalled = Self { stalls: None, ..self.clone() };
        while fails + 1 < passes {
            // While nothing passes twice as much is tried, then all is halved.
            let middle = fails + (passes - fails) / 2;
            let at = if best.is_none() { middle.min(2 * fails + 2) } else { middle };
            match unstalled.find(streams, Span::from_nanos(at), false) {
                Answer::Found(options, admission) => {
                    best = Some(options);
                    passes = admission.bound.as_nanos();
                    fails = fails.min(passes.saturating_sub(1));
                }
                Answer::None(all) => {
                    proved &= all;
                    fails = at;
                }
            }
        }
        Ok(best.map(|options| self.chosen(options, proved)))
    }

    /// Whether there is nothing to choose.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.stages.iter().all(|stage| stage.options.len() == 1)
    }

    /// The deadline less what stalls may take.
    fn latency(&self) -> Span {
        self.deadline.saturating_sub(Stalls::reserve_of(self.stalls))
    }

    /// The pipeline with one option of each stage.
    #[must_use]
    pub fn pipeline(&self, options: &[usize]) -> Pipeline {
        let stage = |(stage, &option): (&StageChoices, &usize)| {
            let StageOption { workers, batch, time } = stage.options[option];
            Stage { parents: stage.parents, fan_out: stage.fan_out, workers, batch, time }
        };
        Pipeline {
            deadline: self.deadline,
            guard: self.guard,
            stalls: self.stalls,
            stages: self.stages.iter().zip(options).map(stage).collect(),
        }
    }

    /// Whether every number is in its range, and the workers suffice for the options with the fewest.
    ///
    /// # Errors
    /// [`PipelineError::Range`] for the first that is not.
    pub fn check(&self) -> Result<(), PipelineError> {
        let range = |field, stage, value: usize, min: usize, max: usize| {
            let [value, min, max] = [value, min, max].map(|number| number as u64);
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(PipelineError::Range { field, stage, value, min, max })
        };
        for (i, stage) in self.stages.iter().enumerate() {
            range("options", i, stage.options.len(), 1, MAX_OPTIONS)?;
        }
        let all: usize = self.stages.iter().map(|stage| stage.options.len()).sum();
        range("options", 0, all, self.stages.len(), MAX_OPTIONS)?;
        let most = self.stages.iter().map(|stage| stage.options.len()).max().unwrap_or(1);
        for i in 0..most {
            let options = self.stages.iter().map(|stage| i.min(stage.options.len() - 1));
            self.pipeline(&options.collect::<Vec<_>>()).descendants()?;
        }
        let fewest = |stage: &StageChoices| stage.options.iter().map(|o| o.workers).min().unwrap_or(0);
        let fewest = self.stages.iter().map(fewest).sum();
        self.workers.map_or(Ok(()), |workers| range("workers of all stages", 0, workers, fewest, usize::MAX))
    }

    fn workers_of(&self, options: &[usize]) -> usize {
        self.stages.iter().zip(options).map(|(stage, &o)| stage.options[o].workers).sum()
    }

    fn chosen(&self, options: Vec<usize>, proved: bool) -> Chosen {
        Chosen { pipeline: self.pipeline(&options), options, proved }
    }

    /// A choice that answers every mandatory source of `streams` within `deadline`, perhaps one of the fewest workers.
    ///
    /// Looks at the first rises of the sources alone, then has the choice judged by all of them. If it fails at a later one, that
    /// is looked at as well: so few are needed, and no choice is refused for anything but what it would be refused for.
    fn find(&self, streams: &[StreamSpec], deadline: Span, fewest_workers: bool) -> Answer {
        let rate: f64 = streams
            .iter()
            .filter_map(StreamSpec::demand)
            .map(|(density, arrivals)| density.as_f64() * arrivals.rate_per_s())
            .sum();
        let Ok(descendants) = self.pipeline(&vec![0; self.stages.len()]).descendants() else {
            return Answer::None(false);
        };
        // What cannot keep up.
        let keeps_up = |i: usize, o: &StageOption| {
            rate * descendants[i] as f64 * o.time.as_secs_f64() <= (o.workers * o.batch) as f64 * (1.0 + 1e-9)
        };
        let open = |(i, stage): (usize, &StageChoices)| -> Vec<usize> {
            (0..stage.options.len()).filter(|&o| keeps_up(i, &stage.options[o])).collect()
        };
        let mut open: Vec<_> = self.stages.iter().enumerate().map(open).collect();
        let (mut rises, mut seen) = (rises(streams), Vec::<(u64, u64)>::new());
        // At least so many, and up to one so late, but at most so many.
        let (mut least, mut until, mut most) = (1, deadline.as_nanos(), FIRST_RISES);
        let (mut left, mut all) = (MAX_WORK, true);
        let latency = deadline.saturating_sub(Stalls::reserve_of(self.stalls));
        loop {
            if open.iter().any(Vec::is_empty) {
                return Answer::None(all);
            }
            let before = seen.len();
            let wanted =
                |seen: &[(u64, u64)]| seen.len() < least || seen.last().is_none_or(|&(last, _)| last < until);
            while seen.len() < most
                && wanted(&seen)
                && let Some((delta, sources)) = rises.next()
            {
                seen.push((delta.as_nanos(), sources));
            }
            let ended = seen.len() == before && before > 0;
            let mut search = Search::new(self, &descendants, &seen, latency, left);
            let found = if fewest_workers {
                let both = [Theorem::P1, Theorem::P2].map(|theorem| search.run(theorem, &open, usize::MAX));
                both.into_iter().flatten().min_by_key(|options| self.workers_of(options))
            } else {
                let quick = search.run(Theorem::P1, &open, usize::MAX);
                let quick = quick.or_else(|| search.run(Theorem::P2, &open, FEW_TABLES));
                quick.or_else(|| search.run(Theorem::P2, &open, usize::MAX))
            };
            left = search.left();
            let Some(options) = found else { return Answer::None(all && left > 0) };
            let pipeline = Pipeline { deadline, ..self.pipeline(&options) };
            match pipeline.admit(streams) {
                Ok(admission) => return Answer::Found(options, admission),
                Err(PipelineError::Late { admission, .. }) if !ended && seen.len() < MAX_RISES => {
                    let delta = admission.tightest.map_or(0, |at| at.delta.as_nanos());
                    let reached = seen.last().is_some_and(|&(last, _)| last >= delta);
                    (least, until, most) =
                        if reached { (2 * seen.len(), 0, MAX_RISES) } else { (1, delta, MAX_RISES) };
                }
                // So near to capacity that the test does not look at it to the end, or not by the same rounding, or that it catches up
                // too late for stalls.
                Err(PipelineError::Rate { .. } | PipelineError::Horizon | PipelineError::Stalls { .. }) => {
                    all = false;
                    let busy = |&i: &usize| {
                        let StageOption { workers, batch, time } = self.stages[i].options[options[i]];
                        descendants[i] as f64 * time.as_secs_f64() / (workers * batch) as f64
                    };
                    let busiest = (0..options.len()).max_by(|a, b| busy(a).total_cmp(&busy(b))).unwrap_or(0);
                    open[busiest].retain(|&o| o != options[busiest]);
                }
                Err(_) => return Answer::None(false),
            }
        }
    }
}

/// The largest value below `no` that passes, `yes` being one that does.
fn largest(mut yes: u64, mut no: u64, passes: impl Fn(u64) -> bool) -> u64 {
    let mut further = 1;
    while no - yes > 1 {
        let at = yes + (no - yes).div_ceil(2).min(further);
        if at < no && passes(at) {
            yes = at;
            further = further.saturating_mul(2);
        } else {
            no = at;
            further = u64::MAX;
        }
    }
    yes
}

#[cfg(test)]
mod tests;
