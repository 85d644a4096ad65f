//! A measurement from its first round to its last: until bounds are stable, or as long as it may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tracing::warn;

use super::group::{MeasurementGroup, Work};
use super::machine::{Disturbance, Runs};
use super::measure::Bench;
use super::part::{Kept, Part, Strand};
use super::running::{RunningGroup, Times};
use super::tail::{Basis, Rule};
use weir_engine::{EngineKind, Place, RunMode};
use weir_os::clock;

/// When a measurement ends.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// Timed runs of each batch size at least, at least 1.
    pub samples: usize,
    /// Every bound must have changed by less than this share of it over the last quarter of the runs; `None` does not
    /// wait for that.
    pub stable: Option<f64>,
    /// Timed runs of each batch size at most.
    pub most: usize,
    /// Whatever is missing, no further block begins after so long, in all; but each batch size is run once.
    pub limit: Duration,
}

/// A measurement: what it is of, and the runs so far.
pub struct Session<'a> {
    work: &'a Work,
    modes: Vec<Vec<RunMode>>,
    /// Of each subject, for batches of 1, 2, …
    runs: Vec<Vec<Runs>>,
    part: Option<Part>,
}

/// What came of it, for each subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// How batches of 1, 2, … were run.
    pub modes: Vec<Vec<RunMode>>,
    /// The runs of batches of 1, 2, …
    pub runs: Vec<Vec<Runs>>,
    /// Which bounds are stable, for batches of 1, 2, …; nothing is where that was not waited for.
    pub stable: Vec<Vec<bool>>,
}

/// How far a measurement is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is measured now.
    pub what: String,
    /// Rounds done.
    pub done: usize,
    /// Rounds to be done until something is decided.
    pub of: usize,
    /// Bounds that were not stable when that was last looked at, and all of them.
    pub unstable: Option<(usize, usize)>,
}

impl<'a> Session<'a> {
    /// A measurement of `work` that runs batches by `modes` or, without, as is found to be faster: then it also warns of models whose
    /// requests are not answered each by itself in these batches.
    ///
    /// # Errors
    /// A model that cannot be loaded.
    pub fn new(work: &'a Work, modes: Option<Vec<Vec<RunMode>>>) -> Result<Self> {
        let find = || -> Result<Vec<Vec<RunMode>>> {
            let modes = work.subjects.iter().map(|subject| {
                let mut bench = Bench::load((subject, 0), subject.max_batch, None, &Place::default())?;
                let modes = bench.modes(subject.max_batch);
                bench.mixing(subject).iter().for_each(|line| warn!("{line}"));
                Ok(modes)
            });
            modes.collect()
        };
        let modes = modes.map_or_else(find, Ok)?;
        let runs = work.subjects.iter().map(|subject| vec![Runs::default(); subject.max_batch]).collect();
        Ok(Self { work, modes, runs, part: None })
    }

    /// How batches are run.
    pub fn modes(&self) -> &[Vec<RunMode>] {
        &self.modes
    }

    /// Goes on from `kept`.
    ///
    /// # Errors
    /// If it does not fit the work.
    pub fn resume(work: &'a Work, kept: Kept) -> Result<Self> {
        let fits = kept.modes.len() == work.subjects.len()
            && kept.modes.iter().zip(&work.subjects).all(|(modes, subject)| modes.len() == subject.max_batch);
        if !fits {
            bail!("its models are others");
        }
        let mut session = Self::new(work, Some(kept.modes))?;
        for strand in kept.blocks.into_iter().flatten() {
            let place = session.runs.get_mut(strand.subject);
            let place = place.and_then(|runs| runs.get_mut(strand.batch.wrapping_sub(1)));
            place.context("it has times of an unknown model or batch size")?.append(&strand.runs);
        }
        Ok(session)
    }

    /// Keeps what is measured in `part` from now on.
    pub fn keep(&mut self, part: Part) {
        self.part = Some(part);
    }

    /// Timed runs so far.
    pub fn runs(&self) -> usize {
        self.runs.iter().flatten().map(|runs| runs.times.len()).sum()
    }

    /// Measures, group by group. What is kept stays until [`Self::finish`].
    ///
    /// # Errors
    /// What an engine or the side file reports, and `stop`.
    pub fn run(
        &mut self,
        until: &Until,
        rule: &Rule,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured> {
        let mut stable: Vec<Vec<bool>> =
            self.work.subjects.iter().map(|subject| vec![false; subject.max_batch]).collect();
        let begun = clock::now();
        let groups = &self.work.groups;
        for (group, left) in groups.iter().zip((1..=groups.len() as u32).rev()) {
            // What one group leaves of its share is for the others.
            let limit = until.limit.saturating_sub(clock::duration(clock::now().since(begun))) / left;
            let until =
                Until { stable: until.stable.filter(|_| !is_simulated(self.work, group)), limit, ..*until };
            self.measure(group, &until, rule, stop, progress, &mut stable)?;
        }
        Ok(Measured { modes: self.modes.clone(), runs: self.runs.clone(), stable })
    }

    /// Removes what was kept.
    ///
    /// # Errors
    /// Whatever removing it reports.
    pub fn finish(self) -> Result<()> {
        self.part.map_or(Ok(()), Part::remove)
    }

    fn measure(
        &mut self,
        group: &MeasurementGroup,
        until: &Until,
        rule: &Rule,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
        stable: &mut [Vec<bool>],
    ) -> Result<()> {
        let subjects = group.subjects();
        // So that the first three quarters of the runs have a tail as well.
        let settled = until.stable.map_or(0, |_| rule.fewest().div_ceil(3) * 4);
        let most = until.most.max(until.samples);
        let mut target = until.samples.max(settled.min(most));
        let mut told = Progress { what: self.describe(group), done: 0, of: target, unstable: None };
        let (work, modes) = (self.work, self.modes.clone());
        let started = clock::now();
        let late = |done: usize| done > 0 && clock::duration(clock::now().since(started)) >= until.limit;
        let mut lead = |running: Option<&mut RunningGroup>| -> Result<bool> {
            let mut running = running;
            loop {
                let done = self.done(&subjects);
                told = Progress { done: done.min(target), of: target, ..told.clone() };
                progress(&told);
                let over = late(done);
                if done < target && !over {
                    let Some(running) = &mut running else { return Ok(false) };
                    if stop.load(Ordering::Relaxed) {
                        bail!("interrupted");
                    }
                    let workers = running.block(target - done)?;
                    self.take(group, workers, most)?;
                    continue;
                }
                let Some(share) = until.stable else { return Ok(true) };
                let mut unstable = 0;
                for &subject in &subjects {
                    for (runs, stable) in self.runs[subject].iter().zip(&mut stable[subject]) {
                        *stable = is_stable(&runs.times, rule, share);
                        unstable += usize::from(!*stable);
                    }
                }
                let all = subjects.iter().map(|&subject| self.runs[subject].len()).sum();
                told.unstable = Some((unstable, all));
                if unstable == 0 || over || done >= most {
                    progress(&told);
                    return Ok(true);
                }
                target = (done + done.div_ceil(3)).min(most);
            }
        };
        // What was kept may be enough: then no thread is started.
        if lead(None)? {
            return Ok(());
        }
        RunningGroup::lead(group, &work.subjects, &modes, work.realtime, stop, |running| lead(Some(running)))
            .map(drop)
    }

    /// Rounds done of all batch sizes of `subjects`.
    fn done(&self, subjects: &[usize]) -> usize {
        let runs = subjects.iter().flat_map(|&subject| &self.runs[subject]);
        runs.map(|runs| runs.times.len()).min().unwrap_or(0)
    }

    /// Adds the runs that the workers of `group` handed over, up to `most` of each batch size, and keeps them.
    fn take(&mut self, group: &MeasurementGroup, workers: Vec<Times>, most: usize) -> Result<()> {
        let mut block = Vec::new();
        for (slot, jobs) in group.slots.iter().zip(workers) {
            for (&(subject, _), batches) in slot.jobs.iter().zip(jobs) {
                for (index, mut runs) in batches.into_iter().enumerate() {
                    let all = &mut self.runs[subject][index];
                    runs.truncate(most.saturating_sub(all.times.len()));
                    all.append(&runs);
                    block.push(Strand { subject, batch: index + 1, runs });
                }
            }
        }
        self.part.as_mut().map_or(Ok(()), |part| part.add(&block))
    }

    fn describe(&self, group: &MeasurementGroup) -> String {
        let subjects = group.subjects();
        let names: Vec<&str> =
            subjects.iter().map(|&subject| self.work.subjects[subject].timed.name.as_str()).collect();
        match group.slots.len() {
            1 => names.join(", "),
            workers => format!("{} on {workers} workers at once", names.join(", ")),
        }
    }
}

impl Runs {
    /// Takes what comes after the first `count` runs away.
    fn truncate(&mut self, count: usize) {
        self.times.truncate(count);
        self.disturbed.retain(|disturbance| disturbance.run < self.times.len());
    }

    /// Adds `more` behind.
    fn append(&mut self, more: &Self) {
        let before = self.times.len();
        self.times.extend_from_slice(&more.times);
        let later =
            |&Disturbance { run, at_ns, causes }: &_| Disturbance { run: before + run, at_ns, causes };
        self.disturbed.extend(more.disturbed.iter().map(later));
    }
}

fn is_simulated(work: &Work, group: &MeasurementGroup) -> bool {
    group.subjects().iter().all(|&subject| work.subjects[subject].engine == EngineKind::Simulated)
}

/// Whether the last quarter of `times` changed P(b) by less than `share` of it. A tail that more runs would make usable is
/// not.
fn is_stable(times: &[u64], rule: &Rule, share: f64) -> bool {
    let before = rule.bound(&times[..times.len() * 3 / 4]).bound_ns as f64;
    let bound = rule.bound(times);
    let now = bound.bound_ns as f64;
    bound.basis != Basis::Unsure && (now - before).abs() < share * now
}

#[cfg(test)]
mod tests;
