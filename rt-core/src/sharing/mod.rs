//! Several services on the same workers: the admission tests of both rules by which they may take turns (Theorems E and T).
//!
//! Service `s` runs batches of up to `B_s` in at most `P_s`, and must answer each mandatory request within `L_s`, its deadline
//! less its guard. A free worker never idles while one waits, takes the oldest mandatory requests of one service and fills
//! the batch with others of it. Which service goes next is the [`Rule`]. Nothing is interrupted, and `P̂` is the longest batch
//! of any kind. If `c_j` batches of each service `j` are all that `n` workers have begun, one of them got at most
//!
//! ```text
//! share(c) = min( ⌊Σ P_j·c_j / n⌋ , the ⌊Σ c_j / n⌋ longest of these batches together )
//! ```
//!
//! of it, for one got at most the average, and one at most as many batches. Both tests look at how much can have been begun
//! before a request, and ask whether that share leaves it in time. What is proved of them is in `docs/guarantee.md`.

mod ahead;
mod answer;
mod coming;
mod crew;
mod decide;
mod device;
mod earliest;
mod handover;
mod harm;
mod horizon;
mod line;
mod margin;
mod pace;
mod relief;
mod shield;
mod stalls;
mod sweep;
mod turns;
mod types;
mod vary;

use alloc::vec::Vec;

use crate::curve::ArrivalCurve;
use crate::growth::Envelope;
use crate::stalls::Stalls;
use crate::stream::StreamSpec;
use crate::time::Span;
use crate::word::Density;

pub use answer::{Reference, SharedAdmission, SharedBinding, SharingError};
pub use device::Device;
pub use handover::Heir;
pub use shield::SharedShield;
pub use types::{DeviceAction, DeviceConfig, DeviceError};

/// The most services that may share workers.
pub const MAX_SERVICES: usize = 64;
/// The most batches that a service may have in a turn.
pub const MAX_TURN: u32 = 1 << 16;

/// Which service a free worker serves next, of those of which a mandatory request waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The one whose oldest mandatory request has the earliest deadline, less its guard.
    #[default]
    Earliest,
    /// Services stand in a line. One joins at the end when a mandatory request finds no other of it waiting, and again when
    /// it has had [`SharedService::turn`] batches and some still wait. The first of the line is served.
    Turns,
}

/// One of the services on shared workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedService {
    /// `L`: from arrival to answer, the user's deadline less the guard of this service and what stalls may take.
    pub latency: Span,
    /// `B`, at least 1: the most requests of a batch.
    pub batch: usize,
    /// `P`, at least 1 ns: what a batch takes at most.
    pub time: Span,
    /// `k`, in `1..=MAX_TURN`: batches in a turn; means something to [`Rule::Turns`] alone.
    pub turn: u32,
}

/// Identical workers, and the services on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// `n`, at least 1.
    pub workers: usize,
    /// By how much dispatch may come late in all while something waits, and what stalls may take: what each service keeps back of its
    /// deadline at least.
    pub guard: Span,
    /// Rare losses of time, counted in `guard` and the latencies.
    pub stalls: Option<Stalls>,
    /// `P̂`: the longest batch of any kind, background included; at least every [`SharedService::time`].
    pub longest: Span,
    /// Who goes next.
    pub rule: Rule,
    /// In `1..=MAX_SERVICES`.
    pub services: Vec<SharedService>,
}

/// What must be served of one service: the density of each stream, and how its requests come.
type Demands<'a> = Vec<(Density, &'a ArrivalCurve)>;

/// The most distances that a test looks at, all references together.
const MAX_POINTS: u64 = 1 << 20;
/// So many are looked at where an answer is to come soon.
const FEW_POINTS: u64 = 1 << 12;

/// What a test is asked for.
#[derive(Clone, Copy)]
struct Asked {
    /// Lines with margins below this alone are of interest.
    below: i128,
    /// So many distances may be looked at.
    points: u64,
}

impl Asked {
    /// More than any margin is.
    const ANY: i128 = 1 << 100;
}

impl Sharing {
    /// Runs the test of the rule on the streams of each service, in the order of the services; best-effort streams demand
    /// nothing.
    ///
    /// # Errors
    /// If not every promise can be given: [`SharingError`] says why.
    ///
    /// # Panics
    /// If there are not as many lists of streams as services.
    pub fn admit(&self, streams: &[&[StreamSpec]]) -> Result<SharedAdmission, SharingError> {
        self.test(streams, Asked { below: Asked::ANY, points: MAX_POINTS })
    }

    /// Whether [`Sharing::admit`] says yes, and that is seen at so many distances: far quicker, as nobody asks by how much.
    ///
    /// # Errors
    /// As [`Sharing::admit`], but that not the tightest line must be the one that is told.
    ///
    /// # Panics
    /// If there are not as many lists of streams as services.
    pub fn admits(&self, streams: &[&[StreamSpec]], points: u64) -> Result<(), SharingError> {
        self.test(streams, Asked { below: 0, points }).map(drop)
    }

    fn test(&self, streams: &[&[StreamSpec]], asked: Asked) -> Result<SharedAdmission, SharingError> {
        assert_eq!(streams.len(), self.services.len(), "one list of streams a service");
        self.check()?;
        let demands: Vec<Demands> =
            streams.iter().map(|of| of.iter().filter_map(StreamSpec::demand).collect()).collect();
        if demands.iter().all(Vec::is_empty) {
            return Ok(SharedAdmission {
                start_within: self.latest_starts(),
                binding: None,
                relieved: 0,
                singly: 0,
            });
        }
        self.check_rate(&demands)?;
        let admission = match self.rule {
            Rule::Earliest => earliest::admit(self, &demands, asked),
            Rule::Turns => turns::admit(self, &demands, asked),
        }?;
        self.check_stalls(&demands)?;
        Ok(admission)
    }

    /// Of each service: the margin for overruns, at most that of the admission, with which all that the others are promised begins within the
    /// same times on one worker less, if nothing of it is mandatory; `None` if it does not, or that is not soon seen.
    fn margins_on_fewer(&self, demands: &[Demands], admission: &SharedAdmission) -> Vec<Option<Span>> {
        let fewer = Self { workers: self.workers - 1, ..self.clone() };
        let margin = admission.overrun_margin();
        let asked = Asked { below: margin.as_nanos().into(), points: FEW_POINTS };
        let without = |service: usize| {
            let mut others = demands.to_vec();
            others[service].clear();
            fewer.check().and_then(|()| fewer.check_rate(&others)).ok()?;
            let tightest = match self.rule {
                Rule::Earliest => earliest::tightest(&fewer, &others, &admission.start_within, asked).ok()?,
                Rule::Turns => turns::admit(&fewer, &others, asked).ok()?.binding,
            };
            fewer.check_stalls(&others).ok()?;
            let left = tightest.map_or(Ok(margin), |line| u64::try_from(line.margin()).map(Span::from_nanos));
            left.ok()
        };
        (0..demands.len()).map(without).collect()
    }

    /// Of each service: the latest start, counted from the arrival, with which an answer is in time.
    fn latest_starts(&self) -> Vec<Span> {
        self.services.iter().map(|s| self.guard + s.latency.saturating_sub(s.time)).collect()
    }

    fn check(&self) -> Result<(), SharingError> {
        let range = |field, service, value: u64, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(SharingError::Range { field, service, value, min, max })
            }
        };
        range("workers", 0, self.workers as u64, 1, crate::MAX_WORKERS as u64)?;
        range("services", 0, self.services.len() as u64, 1, MAX_SERVICES as u64)?;
        let longest = self.longest.as_nanos();
        range("longest", 0, longest, 1, crate::MAX_SPAN.as_nanos())?;
        range("guard", 0, self.guard.as_nanos(), 0, crate::MAX_SPAN.as_nanos())?;
        let recovery = self.stalls.and_then(|stalls| stalls.recovery());
        range("recovery from stalls", 0, recovery.map_or(0, Span::as_nanos), 0, 0)?;
        for (service, s) in self.services.iter().enumerate() {
            range("batch", service, s.batch as u64, 1, crate::MAX_BATCH as u64)?;
            range("time", service, s.time.as_nanos(), 1, longest)?;
            range("turn", service, s.turn.into(), 1, MAX_TURN.into())?;
            range("latency", service, s.latency.as_nanos(), 1, crate::MAX_SPAN.as_nanos())?;
            if s.time > s.latency {
                return Err(SharingError::Latency { service, time: s.time, latency: s.latency });
            }
        }
        Ok(())
    }

    /// How many workers the mandatory requests keep busy in the long run, in full batches.
    fn load(&self, demands: &[Demands]) -> f64 {
        let needs = |(of, s): (&Demands, &SharedService)| Envelope::of(of).utilisation(s);
        demands.iter().zip(&self.services).map(needs).sum()
    }

    /// Refuses at once what is clearly above capacity; the tests are exact.
    fn check_rate(&self, demands: &[Demands]) -> Result<(), SharingError> {
        let work = self.load(demands);
        if work <= self.workers as f64 * (1.0 + 1e-9) {
            return Ok(());
        }
        Err(SharingError::Rate { thousandths: (work * 1000.0) as u64 + 1, workers: self.workers })
    }

    /// `Σ P_j·c_j`.
    fn work(&self, batches: &[u64]) -> u128 {
        let times = self.services.iter().map(|s| u128::from(s.time.as_nanos()));
        times.zip(batches).map(|(time, &count)| time * u128::from(count)).sum()
    }

    /// `share(c)`, of so many batches of each service, and one less of `but`, of which there is one.
    fn share(&self, batches: &[u64], but: usize) -> u128 {
        let work = self.work(batches) - u128::from(self.services[but].time.as_nanos());
        self.share_but(work, batches, but)
    }

    /// The same, where the work is counted already, and a batch less only if there is one.
    fn share_but(&self, work: u128, batches: &[u64], but: usize) -> u128 {
        (work / self.workers as u128).min(self.longest_share(batches, but))
    }

    /// The `⌊Σ c_j / n⌋` longest batches together, of so many of each service and one less of `but`.
    fn longest_share(&self, batches: &[u64], but: usize) -> u128 {
        let time = |j: usize| u128::from(self.services[j].time.as_nanos());
        let there = |j: usize| u128::from(batches[j].saturating_sub(u64::from(j == but)));
        let all = 0..batches.len();
        if self.workers == 1 {
            return all.map(|j| time(j) * there(j)).sum();
        }
        let mut left = all.clone().map(there).sum::<u128>() / self.workers as u128;
        let (mut together, mut below) = (0, u128::MAX);
        while left > 0
            && let Some(next) = all.clone().map(time).filter(|&time| time < below).max()
        {
            let equal: u128 = all.clone().filter(|&j| time(j) == next).map(there).sum();
            together += next * equal.min(left);
            left -= equal.min(left);
            below = next;
        }
        together
    }
}
