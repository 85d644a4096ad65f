//! What a profile says of one model on one engine, for each batch size: P(b), what it was made from, and what is
//! expected.

use std::cmp::Ordering;

use rt_core::{BatchTime, Span, Stalls};
use serde::{Deserialize, Serialize};

use super::ProfileError;
use super::group::Subject;
use super::machine::{Machine, Runs, SeenStalls};
use super::tail::{Basis, Bound, Rule, Tail};
use weir_engine::{Backend, EngineKind, Equipment, MAX_BATCH, ModelSpec, RunMode, sha256_hex};

/// How many of the longest times are written down.
pub(super) const LONGEST: usize = 8;

/// The times of one model on one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The model's name in its manifest; at a stage of a pipeline, with where that is.
    pub model: String,
    /// The identity of the model that was measured: the hash of its file or, where its manifest adds sizes, constants or
    /// files of weights to that, of all these; at a stage, with what makes its requests.
    pub sha256: String,
    /// The engine that ran it.
    pub engine: EngineKind,
    /// Its version, and what it computed on.
    pub equipment: Equipment,
    /// Workers that ran at the same time, those of this model among them, at least 1.
    pub workers: usize,
    /// The probability with which a batch may exceed its bound, where that rests on a tail.
    pub exceedance: f64,
    /// The share by which other bounds lie above the longest time seen.
    pub margin: f64,
    /// One per batch size, for 1, 2, … in this order.
    pub batches: Vec<BatchTimes>,
    /// What made runs longer than any that the machine did not disturb; absent where nothing did, or nobody watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<SeenStalls>,
}

/// The times of one batch size, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchTimes {
    /// Requests in the batch, at least 1.
    pub batch: usize,
    /// How the engine ran it; the bound holds for this way only.
    pub mode: RunMode,
    /// Timed runs, at least 1.
    pub samples: usize,
    /// Half of the runs took no longer.
    pub p50_ns: u64,
    /// 90 % of the runs took no longer.
    pub p90_ns: u64,
    /// 95 % of the runs took no longer.
    pub p95_ns: u64,
    /// 99 % of the runs took no longer.
    pub p99_ns: u64,
    /// 99.9 % of the runs took no longer.
    pub p999_ns: u64,
    /// The mean of the runs, none counted for longer than `p99_ns`: a stall must not make batches look slow.
    pub mean_ns: u64,
    /// The longest time seen.
    pub max_ns: u64,
    /// The longest times seen, from the longest on; 0 where there were fewer runs, or this was not written down.
    #[serde(default)]
    pub longest_ns: [u64; LONGEST],
    /// P(batch), the time that plans count with: never below the bound of a smaller batch, nor below `max_ns` unless it
    /// is the quantile that so many runs support.
    pub bound_ns: u64,
    /// What the bound rests on.
    pub basis: Basis,
    /// Whether it hardly changed over the last quarter of the runs; false also where that was not looked at.
    pub stable: bool,
    /// The tail that was fitted.
    pub tail: Option<Tail>,
    /// What the machine did to the runs; absent where nobody watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

impl Entry {
    /// What was measured of `subject` beside others, `workers` in all: `series` has the times of batches of 1, 2, … in
    /// their order, at least one each, and `stable` says which bounds are.
    pub fn new(
        subject: &Subject,
        modes: &[RunMode],
        (series, stable): (&[Vec<u64>], &[bool]),
        rule: &Rule,
        workers: usize,
    ) -> Self {
        let mut below = 0;
        let batches =
            series.iter().zip(modes).zip(stable).enumerate().map(|(i, ((times, &mode), &stable))| {
                let mut sorted = times.clone();
                sorted.sort_unstable();
                // The nearest rank: the smallest time that at least that many of a thousand runs do not exceed.
                let quantile = |thousandths: usize| {
                    let rank = (sorted.len() * thousandths).div_ceil(1000).max(1) - 1;
                    sorted.get(rank).copied().unwrap_or(0)
                };
                let p99_ns = quantile(990);
                let sum: u128 = sorted.iter().map(|&time| u128::from(time.min(p99_ns))).sum();
                let Bound { bound_ns, basis, tail } = rule.bound(times);
                below = bound_ns.max(below);
                BatchTimes {
                    batch: i + 1,
                    mode,
                    samples: times.len(),
                    p50_ns: quantile(500),
                    p90_ns: quantile(900),
                    p95_ns: quantile(950),
                    p99_ns,
                    p999_ns: quantile(999),
                    mean_ns: (sum / sorted.len().max(1) as u128) as u64,
                    max_ns: quantile(1000),
                    longest_ns: std::array::from_fn(|i| sorted.iter().rev().nth(i).copied().unwrap_or(0)),
                    bound_ns: below,
                    basis,
                    stable,
                    tail,
                    machine: None,
                }
            });
        Self {
            batches: batches.collect(),
            stalls: None,
            model: subject.timed.name.clone(),
            sha256: subject.timed.identity.clone(),
            engine: subject.engine,
            equipment: Equipment::current(&subject.backend),
            workers,
            exceedance: rule.exceedance(),
            margin: rule.margin(),
        }
    }

    /// The same of runs whose machine was watched.
    pub fn of_runs(
        subject: &Subject,
        modes: &[RunMode],
        (runs, stable): (&[Runs], &[bool]),
        rule: &Rule,
        workers: usize,
    ) -> Self {
        let series: Vec<Vec<u64>> = runs.iter().map(|runs| runs.times.clone()).collect();
        let mut entry = Self::new(subject, modes, (&series, stable), rule, workers);
        for (times, runs) in entry.batches.iter_mut().zip(runs) {
            times.machine = Some(Machine::of(runs));
        }
        // Those of each worker took their time beside the others.
        let measured = entry.batches.iter().map(BatchTimes::measured_ns).sum::<u64>() / workers.max(1) as u64;
        entry.stalls = SeenStalls::of(runs, rule.margin(), measured);
        entry
    }

    /// What it is of: a model's name, its identity, which is the hash of its file in most cases, and an engine.
    pub(super) fn key(&self) -> (&str, &str, EngineKind) {
        (&self.model, &self.sha256, self.engine)
    }

    /// What batches of 1, 2, … take: at most, but for `stalls`, with that `probability` (0.5 to 0.999), and on average; none of it
    /// falls.
    pub fn times(&self, probability: f64, stalls: Option<Stalls>) -> Vec<BatchTime> {
        // Without margin, but as monotone as the bounds: noise must not make a larger batch look faster.
        let (mut bound, mut likely, mut mean) = (1, 1, 1);
        let alone = self.batches.first().map_or(0, |times| times.mean_ns);
        let times = (1..).zip(&self.batches).map(|(size, times)| {
            bound =
                stalls.map_or(times.bound_ns, |stalls| times.bound_but_for(stalls, self.margin)).max(bound);
            likely = times.within(probability).min(bound).max(likely);
            // Run one by one they take as long as so many batches of one: where they look shorter, that is noise, by which larger
            // batches would seem to pay.
            let in_a_row = if times.mode == RunMode::Loop { alone.saturating_mul(size) } else { 0 };
            mean = times.mean_ns.max(in_a_row).min(bound).max(mean);
            let [bound, likely, mean] = [bound, likely, mean].map(Span::from_nanos);
            BatchTime { bound, likely, mean }
        });
        times.collect()
    }

    /// How batches of 1, 2, … were run; an engine that serves by these bounds must run them the same way.
    pub fn modes(&self) -> Vec<RunMode> {
        self.batches.iter().map(|times| times.mode).collect()
    }

    /// In what `here` is not what it was measured with, one line each.
    pub fn differences(&self, here: &Equipment) -> Vec<String> {
        let differences = self.equipment.differences(here);
        differences
            .iter()
            .map(|difference| format!("{} on {}: {difference}", self.model, self.engine))
            .collect()
    }

    /// What is to be said if `now` workers run beside each other and another number did when it was measured.
    pub fn other_company(&self, now: usize) -> Option<String> {
        let (Self { model, engine, workers, .. }, what) = (
            self,
            match self.workers.cmp(&now) {
                Ordering::Less => "too short",
                Ordering::Equal => return None,
                Ordering::Greater => "longer than they need be",
            },
        );
        Some(format!(
            "{model} on {engine} was measured with {workers} worker(s) at once, the configuration has {now}: its \
             times may be {what}"
        ))
    }

    /// SHA-256 of what it says, in hexadecimal.
    pub fn digest(&self) -> String {
        sha256_hex(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// What contradicts itself in it, if anything does.
    pub(super) fn check(&self) -> Result<(), String> {
        let holds = |holds: bool, fault: &dyn Fn() -> String| if holds { Ok(()) } else { Err(fault()) };
        holds(self.workers >= 1, &|| "workers is 0, at least 1 is needed".to_owned())?;
        Rule::new(self.exceedance, self.margin, false).map_err(|fault: ProfileError| fault.to_string())?;
        let sizes = self.batches.len();
        holds((1..=MAX_BATCH).contains(&sizes), &|| {
            format!("{sizes} batch sizes are listed, the limits are 1..={MAX_BATCH}")
        })?;
        let mut below = 1;
        for (i, times) in self.batches.iter().enumerate() {
            let BatchTimes { batch, samples, p99_ns, mean_ns, max_ns, bound_ns, .. } = *times;
            let rising = [times.p50_ns, times.p90_ns, times.p95_ns, p99_ns, times.p999_ns, max_ns];
            holds(batch == i + 1, &|| format!("batch {batch} stands where {} is needed", i + 1))?;
            holds(samples >= 1, &|| format!("batch {batch}: samples is 0, at least 1 is needed"))?;
            holds(rising.is_sorted(), &|| {
                format!("batch {batch}: p50_ns to max_ns are {rising:?}, they must not fall")
            })?;
            holds(bound_ns >= max_ns || times.basis == Basis::Quantile, &|| {
                format!("batch {batch}: bound_ns is {bound_ns}, at least max_ns = {max_ns} is needed")
            })?;
            holds(mean_ns <= p99_ns, &|| {
                format!("batch {batch}: mean_ns is {mean_ns}, at most p99_ns = {p99_ns} is possible")
            })?;
            holds(bound_ns >= below, &|| {
                format!("batch {batch}: bound_ns is {bound_ns}, at least {below} is needed")
            })?;
            let longest = times.longest_ns;
            holds(longest[0] <= max_ns && longest.is_sorted_by(|a, b| a >= b), &|| {
                format!(
                    "batch {batch}: longest_ns is {longest:?}, it must not rise, nor be above max_ns = {max_ns}"
                )
            })?;
            let machine = times.machine.unwrap_or_default();
            holds(machine.longest_calm_ns <= max_ns, &|| {
                let calm = machine.longest_calm_ns;
                format!(
                    "batch {batch}: machine.longest_calm_ns is {calm}, at most max_ns = {max_ns} is possible"
                )
            })?;
            holds(machine.disturbed <= samples, &|| {
                let disturbed = machine.disturbed;
                format!(
                    "batch {batch}: machine.disturbed is {disturbed}, at most samples = {samples} is possible"
                )
            })?;
            let fault = times.tail.and_then(|tail| tail.fault(max_ns, samples));
            fault.map_or(Ok(()), |fault| Err(format!("batch {batch}: {fault}")))?;
            holds(times.basis != Basis::Tail || times.tail.is_some(), &|| {
                format!("batch {batch}: basis is tail, but there is none")
            })?;
            below = bound_ns;
        }
        Ok(())
    }
}

impl BatchTimes {
    /// P(batch) where `stalls` are declared: as many of the longest runs are taken for stalls as there may have been
    /// while all runs went on, and none for a longer one than was declared; the longest other run and `margin` of it are the
    /// bound.
    fn bound_but_for(&self, stalls: Stalls, margin: f64) -> u64 {
        let windows = 1 + self.measured_ns() / stalls.window().as_nanos();
        let many = usize::try_from(windows.saturating_mul(stalls.count().into())).unwrap_or(usize::MAX);
        let longest = self.longest_ns[many.min(LONGEST - 1)];
        // Where nobody wrote the longest times down, or all runs could be stalls, nothing is known of the others.
        if longest == 0 || many >= self.samples {
            return self.bound_ns;
        }
        let bound = longest.saturating_add((longest as f64 * margin).ceil() as u64);
        // What no machine disturbed is what the model takes.
        let calm = self.machine.and_then(|machine| machine.calm_bound(margin)).unwrap_or(0);
        bound.max(calm).max(self.max_ns.saturating_sub(stalls.length().as_nanos())).min(self.bound_ns)
    }

    /// How long all runs took together, but for stalls.
    fn measured_ns(&self) -> u64 {
        self.mean_ns.saturating_mul(self.samples as u64)
    }

    /// The time within which a run ends with at least that `probability`: the quantile that is written for it, or else
    /// for the next one above, for it is never too short.
    fn within(&self, probability: f64) -> u64 {
        let written = [(0.5, self.p50_ns), (0.9, self.p90_ns), (0.95, self.p95_ns), (0.99, self.p99_ns)];
        written.into_iter().find(|&(of, _)| of >= probability).map_or(self.p999_ns, |(_, time)| time)
    }
}

impl Entry {
    /// P(1), P(2), … in nanoseconds.
    pub fn bounds(&self) -> Vec<u64> {
        self.batches.iter().map(|times| times.bound_ns).collect()
    }

    /// What nobody measured, for tests: batches of 1, 2, … of a simulated model take so many nanoseconds at most.
    pub fn of_simulated(model: &ModelSpec, bounds_ns: &[u64]) -> Self {
        let batch = |(i, &ns): (usize, &u64)| BatchTimes {
            batch: i + 1,
            mode: RunMode::Simulated,
            samples: 100,
            p50_ns: ns,
            p90_ns: ns,
            p95_ns: ns,
            p99_ns: ns,
            p999_ns: ns,
            mean_ns: ns,
            max_ns: ns,
            longest_ns: [ns; LONGEST],
            bound_ns: ns,
            basis: Basis::Few,
            stable: false,
            tail: None,
            machine: None,
        };
        Self {
            model: model.name.clone(),
            sha256: model.identity(),
            engine: EngineKind::Simulated,
            equipment: Equipment::current(&Backend { kind: EngineKind::Simulated, ..Backend::TRACT }),
            workers: 1,
            exceedance: 1e-4,
            margin: 0.1,
            batches: bounds_ns.iter().enumerate().map(batch).collect(),
            stalls: None,
        }
    }
}
