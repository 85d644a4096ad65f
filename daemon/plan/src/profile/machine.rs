//! What the machine did while batches were measured, apart from what the model takes: which runs it disturbed, and how.

use std::fmt;

use rt_core::Span;
use serde::{Deserialize, Serialize};

use super::entry::LONGEST;
use weir_os::counters::{Counters, Counts};

/// A run is disturbed if what the kernel counts took at least one of so many parts of it.
const PARTS: u64 = 100;
/// What a page fault that waits for no disk may take.
const FAULT_NS: u64 = 1_000;

/// Something that a machine does to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The host had the processor.
    Stolen,
    /// Others had the core.
    Waited,
    /// Pages came from a disk.
    Paged,
    /// More pages than such batches usually touch were mapped.
    Mapped,
    /// The core ran a tenth slower than it had.
    Slowed,
}

/// A set of these; empty where nothing was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Cause>", into = "Vec<Cause>")]
pub struct Causes(u8);

/// A run that was disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Which of the runs of its batch size.
    pub run: usize,
    /// When it ended, in nanoseconds of the machine's clock.
    pub at_ns: u64,
    /// By what.
    pub causes: Causes,
}

/// The runs of one batch size, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// How long each took, in nanoseconds.
    pub times: Vec<u64>,
    /// Those that were disturbed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<Disturbance>,
}

/// What the machine did to the runs of one batch size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Runs that it disturbed; some for several causes.
    pub disturbed: usize,
    /// In which the host had the processor.
    pub stolen: usize,
    /// In which others had the core.
    pub waited: usize,
    /// In which pages came from a disk.
    pub paged: usize,
    /// In which pages were mapped that such runs usually need not.
    pub mapped: usize,
    /// In which the core ran slower.
    pub slowed: usize,
    /// The longest run that was not disturbed, in nanoseconds; 0 if there was none.
    pub longest_calm_ns: u64,
    /// What disturbed the longest runs, in the order of `longest_ns`.
    pub longest: [Causes; LONGEST],
}

/// The disturbances that made runs of a model longer than any that was not disturbed, and the margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenStalls {
    /// How many there were; runs that overlap were one.
    pub count: usize,
    /// By how much they made runs longer, at most.
    pub longest_ns: u64,
    /// From the end of one to that of the next, at least; of a single one, how long was measured.
    pub closest_ns: u64,
}

impl Causes {
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `cause` is among them.
    pub fn has(self, cause: Cause) -> bool {
        self.0 & 1 << cause as u8 != 0
    }

    /// With `cause`, if `so`.
    #[must_use]
    pub fn with(self, cause: Cause, so: bool) -> Self {
        Self(self.0 | u8::from(so) << cause as u8)
    }

    fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |&cause| self.has(cause))
    }
}

impl From<Vec<Cause>> for Causes {
    fn from(causes: Vec<Cause>) -> Self {
        causes.into_iter().fold(Self::default(), |all, cause| all.with(cause, true))
    }
}

impl From<Causes> for Vec<Cause> {
    fn from(causes: Causes) -> Self {
        causes.iter().collect()
    }
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 5] = [Self::Stolen, Self::Waited, Self::Paged, Self::Mapped, Self::Slowed];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stolen => "stolen by the host",
            Self::Waited => "waited for a core",
            Self::Paged => "paged in from disk",
            Self::Mapped => "mapped pages",
            Self::Slowed => "ran slower",
        })
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing that the kernel counts");
        }
        for (i, cause) in self.iter().enumerate() {
            write!(f, "{}{cause}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Machine {
    /// Of the runs of a batch size.
    pub(super) fn of(runs: &Runs) -> Self {
        let Runs { times, disturbed } = runs;
        let causes = |run: usize| {
            let place = disturbed.binary_search_by_key(&run, |disturbance| disturbance.run);
            place.map_or(Causes::default(), |place| disturbed[place].causes)
        };
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by_key(|&run| std::cmp::Reverse(times[run]));
        let calm = order.iter().find(|&&run| causes(run).is_empty());
        let count = |cause| disturbed.iter().filter(|disturbance| disturbance.causes.has(cause)).count();
        Self {
            disturbed: disturbed.len(),
            stolen: count(Cause::Stolen),
            waited: count(Cause::Waited),
            paged: count(Cause::Paged),
            mapped: count(Cause::Mapped),
            slowed: count(Cause::Slowed),
            longest_calm_ns: calm.map_or(0, |&run| times[run]),
            longest: std::array::from_fn(|i| order.get(i).map_or(Causes::default(), |&run| causes(run))),
        }
    }

    /// How many runs each cause disturbed, of those that disturbed any.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, usize)> {
        let counts = [self.stolen, self.waited, self.paged, self.mapped, self.slowed];
        Cause::ALL.into_iter().zip(counts).filter(|&(_, count)| count > 0)
    }

    /// The longest run that was not disturbed and `margin` of it, if there was one.
    pub(super) fn calm_bound(&self, margin: f64) -> Option<u64> {
        let calm = self.longest_calm_ns;
        (calm > 0).then(|| calm.saturating_add((calm as f64 * margin).ceil() as u64))
    }
}

impl SeenStalls {
    /// Of the runs of all batch sizes of a model, which took `measured_ns` of the machine's time; none if no run was
    /// disturbed that much.
    pub(super) fn of(runs: &[Runs], margin: f64, measured_ns: u64) -> Option<Self> {
        let mut stalls: Vec<(u64, u64)> = Vec::new();
        for runs in runs {
            let Some(calm) = Machine::of(runs).calm_bound(margin) else { continue };
            let lost = |disturbance: &Disturbance| {
                let lost = runs.times[disturbance.run].saturating_sub(calm);
                (lost > 0).then_some((disturbance.at_ns, lost))
            };
            stalls.extend(runs.disturbed.iter().filter_map(lost));
        }
        stalls.sort_unstable();
        let (mut ends, mut longest_ns) = (Vec::<u64>::new(), 0);
        for (end, lost) in stalls {
            longest_ns = lost.max(longest_ns);
            match ends.last_mut() {
                // The same that made a run on another worker long.
                Some(last) if end.saturating_sub(lost) < *last => *last = end,
                _ => ends.push(end),
            }
        }
        let closest = ends.windows(2).map(|pair| pair[1] - pair[0]).min();
        let closest_ns = closest.unwrap_or(measured_ns);
        (!ends.is_empty()).then_some(Self { count: ends.len(), longest_ns, closest_ns })
    }
}

/// Watches a worker's thread, and the process that computes for it, from run to run.
pub(super) struct Watch {
    own: Counters,
    process: Option<Counters>,
    core: Option<usize>,
    /// The fewest pages that a run has mapped, for batches of 1, 2, …
    usual: Vec<u64>,
    fastest_khz: u64,
}

impl Watch {
    /// Of the calling thread, which is to run on `core` alone if there is one, and of the main thread of `process`.
    pub(super) fn new(core: Option<usize>, process: Option<u32>, max_batch: usize) -> Self {
        let (own, process) = (Counters::of_thread(), process.map(Counters::of_process));
        Self { own, process, core, usual: vec![u64::MAX; max_batch], fastest_khz: 0 }
    }

    /// What is counted by now.
    pub(super) fn read(&mut self) -> Counts {
        let own = self.own.read(self.core);
        let Some(process) = &mut self.process else { return own };
        let other = process.read(None);
        Counts {
            waited_ns: own.waited_ns + other.waited_ns,
            major_faults: own.major_faults + other.major_faults,
            minor_faults: own.minor_faults + other.minor_faults,
            ..own
        }
    }

    /// What disturbed a run of `batch` that took `taken`, with what was counted before and after it.
    pub(super) fn causes(&mut self, batch: usize, before: Counts, after: Counts, taken: Span) -> Causes {
        let much = |lost: u64| lost > 0 && lost.saturating_mul(PARTS) >= taken.as_nanos();
        let since = |of: fn(&Counts) -> u64| of(&after).saturating_sub(of(&before));
        let mapped = since(|counts| counts.minor_faults);
        let usual = &mut self.usual[batch - 1];
        *usual = mapped.min(*usual);
        let unusual = mapped - *usual;
        self.fastest_khz = after.khz.unwrap_or(0).max(self.fastest_khz);
        // Where waiting is not counted, being taken off the core is.
        let uncounted = after.waited_ns == 0 && since(|counts| counts.switches) > 0;
        let slow = |khz: u64| khz.saturating_mul(10) < self.fastest_khz.saturating_mul(9);
        Causes::default()
            .with(Cause::Stolen, since(|counts| counts.stolen_ns) > 0)
            .with(Cause::Waited, uncounted || much(since(|counts| counts.waited_ns)))
            .with(Cause::Paged, since(|counts| counts.major_faults) > 0)
            .with(Cause::Mapped, much(unusual.saturating_mul(FAULT_NS)))
            .with(Cause::Slowed, after.khz.is_some_and(slow))
    }
}

#[cfg(test)]
mod tests;
