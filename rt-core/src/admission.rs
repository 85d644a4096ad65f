//! The admission test: whether workers on one queue keep every promise (Theorem A).
//!
//! Let `α_m(Δ) = Σ ceil(ρ_s·α_s(Δ))` over the streams be the most *mandatory* requests in any half-open
//! interval of length `Δ`, and `σ(u) = Σ_w B_w·floor(u/P_w)` the requests in the full batches that the workers
//! have begun for certain a time `u` after each was taken. Every mandatory request is served within `L` of its
//! arrival, whatever the arrivals, if at every offset `δ ≥ 0` behind a batch start that left none waiting
//!
//! ```text
//! min{ u : σ(u) ≥ α_m(δ + 1 ns) } + P_max  ≤  δ + L .
//! ```
//!
//! For `n` identical workers the left side is `P·(1 + ceil(α_m/(n·B)))`. Times are integers: `α_m(δ + 1 ns)`
//! counts the requests that came up to and including `δ`. The left side is constant between the rises of
//! `α_m`, so only those are tested. Where it fails, `crate::refine` asks whether the requests that would have
//! to occupy the workers before the burst leave enough of the curve for the burst itself.

mod error;

use alloc::vec;
use alloc::vec::Vec;

use crate::absorb::regular_span;
use crate::busy::{BusyPeriod, Rise};
use crate::curve::ArrivalCurve;
use crate::refine::Refinement;
use crate::stalls::Stalls;
use crate::stream::StreamSpec;
use crate::time::{MAX_SPAN, Span};
use crate::word::Density;
use crate::workers::Workers;

pub use error::{AdmissionError, PerSecond};

/// How far it is looked for the end of a busy period, to say how rare stalls must be.
pub(crate) const LONGEST_BUSY: Span = Span::from_millis(60_000);

/// The streams that a test counts: the density each must be served at, and how its requests come.
pub(crate) type Load<'a> = [(Density, &'a ArrivalCurve)];

/// When a free worker takes a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// At once, whatever waits.
    #[default]
    Eager,
    /// When a full batch waits, or the earliest deadline leaves just the time of a full batch.
    FullOrLatest,
}

/// The hardware side of a promise: workers on one queue, and how they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The workers, kind by kind; at least one.
    pub workers: Vec<Workers>,
    /// `L`: from arrival to answer, the user's deadline less the guard.
    pub latency: Span,
    /// By how much a dispatch may come late.
    pub guard: Span,
    /// Rare losses of time, for which a part of `L` is kept back.
    pub stalls: Option<Stalls>,
    /// When a free worker takes a batch.
    pub dispatch: Dispatch,
    /// Whether requests that no curve bounds (best effort, or beyond a declaration) may occupy a worker. Without
    /// them more can be promised.
    pub background: bool,
}

/// The tightest instant of an admission test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Offset `δ` of the last arrival behind the start of the busy period.
    pub delta: Span,
    /// Mandatory requests that may have come by then and wait behind the requests that block the workers.
    pub backlog: u64,
    /// When the last of them is answered at the latest.
    pub lhs: Span,
    /// When it must be answered, `δ + L`.
    pub rhs: Span,
}

/// The answer to an admission test that says yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Where the margin `rhs - lhs` is smallest; `None` if nothing is promised to anyone.
    pub binding: Option<Binding>,
    /// The most mandatory requests that can wait at once; the queue must hold them.
    pub waiting: u64,
    /// The longest busy period: later arrivals meet the workers as if nothing had been.
    pub busy: Span,
    /// Whether Theorem A alone says yes; else its refinement was needed, which holds only without background.
    pub plain: bool,
}

impl System {
    /// Identical workers that start at once whatever waits, requests of no promise among it.
    #[must_use]
    pub fn identical(workers: Workers, latency: Span) -> Self {
        let guard = Span::ZERO;
        let stalls = None;
        Self { workers: vec![workers], latency, guard, stalls, dispatch: Dispatch::Eager, background: true }
    }

    /// Runs the test on `streams`; best-effort streams (no constraints) demand nothing, but one that does not
    /// declare its arrivals is background.
    ///
    /// # Errors
    /// If the promise cannot be given: [`AdmissionError`] says why. Theory: section 3, Theorem A.
    pub fn admit<'a, I>(&self, streams: I) -> Result<Admission, AdmissionError>
    where
        I: IntoIterator<Item = &'a StreamSpec>,
    {
        self.check()?;
        let streams: Vec<_> = streams.into_iter().collect();
        let closed = !self.background && streams.iter().all(|s| s.arrivals().is_some());
        let density = |spec: &&StreamSpec| match self.stalls {
            Some(stalls) => stalls.absorb(spec, self.deadline()).map(|(_, density)| density),
            None => Ok(spec.constraints().density()),
        };
        let densities = streams.iter().map(density).collect::<Result<Vec<_>, _>>()?;
        let declared = |(s, density): (&&'a StreamSpec, Density)| Some((density, s.arrivals()?));
        let all: Vec<_> = streams.iter().zip(densities).filter_map(declared).collect();
        if all.iter().all(|(density, _)| density.numerator() == 0) {
            return Ok(Admission { binding: None, waiting: 0, busy: Span::ZERO, plain: true });
        }
        self.check_rate(&all)?;
        self.check_stalls(&all, streams.iter().map(|spec| regular_span(spec)))?;
        // What is proved of the refinement knows late dispatch, and no stalls.
        let closed = closed && self.stalls.is_none();
        let latency = self.unstalled_latency();
        let refinement = if closed { Refinement::new(self, &all) } else { None };
        let mut tightest: Option<Binding> = None;
        let (mut waiting, mut busy, mut after, mut plain) = (0, Span::ZERO, Span::ZERO, true);
        let mut rises = BusyPeriod::new(self, &all);
        for Rise { length, next, backlog, begun } in &mut rises {
            let delta = length.saturating_sub(Span::from_nanos(1));
            let mut binding =
                Binding { delta, backlog, lhs: begun + self.longest_batch(), rhs: delta + latency };
            waiting = waiting.max(self.waiting(backlog, delta));
            (busy, after) = (begun, next);
            if binding.lhs > binding.rhs
                && let Some(refinement) = &refinement
            {
                binding = refinement.worst(binding, next);
                plain = false;
            }
            if tightest.is_none_or(|t| margin(&binding) < margin(&t)) {
                tightest = Some(binding);
            }
        }
        // What comes at the end of the busy period may still find the last of it waiting; of one that does not end, what
        // comes until all that was lost of the first round has been made up for: from then on it repeats.
        let end = busy.min(after) + self.guard + self.reserve() + Span::from_nanos(1);
        if end >= after {
            waiting =
                waiting.max(self.waiting(mandatory(&all, end), after.saturating_sub(Span::from_nanos(1))));
        }
        match tightest {
            Some(b) if b.lhs > b.rhs => Err(AdmissionError::Burst(b)),
            _ if !rises.ended => Err(AdmissionError::Horizon),
            binding => Ok(Admission { binding, waiting, busy, plain }),
        }
    }

    fn check(&self) -> Result<(), AdmissionError> {
        if self.workers.is_empty() {
            return Err(AdmissionError::System { group: 0, batch: 0, max_batch: 0, count: 0 });
        }
        match self.workers.iter().position(|w| !w.is_valid()) {
            None => Ok(()),
            Some(group) => {
                let Workers { count, batch, ref profile } = self.workers[group];
                Err(AdmissionError::System { group, batch, max_batch: profile.max_batch(), count })
            }
        }
    }

    /// Refuses at once what is clearly above capacity, so that no time is spent on it. Loads that are within a
    /// rounding error of it go on to the test, which is exact.
    fn check_rate(&self, load: &Load) -> Result<(), AdmissionError> {
        let capacity: f64 = self.workers.iter().map(Workers::capacity_per_s).sum();
        let demand: f64 = load.iter().map(|(density, a)| density.as_f64() * a.rate_per_s()).sum();
        if demand <= capacity * (1.0 + 1e-9) {
            return Ok(());
        }
        let (demand_per_s, capacity_per_s) = PerSecond::above(demand, capacity);
        Err(AdmissionError::Rate { demand_per_s, capacity_per_s })
    }

    /// `P_max`, the time of the slowest full batch.
    #[must_use]
    pub fn longest_batch(&self) -> Span {
        self.workers.iter().map(Workers::batch_time).max().unwrap_or(Span::ZERO)
    }

    /// `L` less what stalls may take: within it each request that must be served is answered where none comes.
    #[must_use]
    pub fn unstalled_latency(&self) -> Span {
        self.latency.saturating_sub(self.reserve())
    }

    /// What stalls may take in a busy period.
    pub(crate) fn reserve(&self) -> Span {
        Stalls::reserve_of(self.stalls)
    }

    /// From arrival to answer, dispatch as late as may be.
    pub(crate) fn deadline(&self) -> Span {
        self.latency + self.guard
    }

    /// How long after a stall began that is absorbed nothing more is missed for it: behind it everything is begun by then. `None`
    /// if that is not seen in a minute.
    fn time_to_recover(&self, stalls: Stalls, load: &Load) -> Option<Span> {
        BusyPeriod::after(self, load, stalls.lost() + self.guard + self.guard).length(LONGEST_BUSY)
    }

    /// How long after the beginning of the stalls that are declared requests of `streams` can be missed, if constraints absorb
    /// what is: with a recovery of less they are refused. `None` if nothing is to be absorbed, or that is not seen in a minute.
    #[must_use]
    pub fn recovery<'a>(&self, streams: impl IntoIterator<Item = &'a StreamSpec>) -> Option<Span> {
        let stalls = self.stalls.filter(|stalls| stalls.recovery().is_some())?;
        let density = |spec: &StreamSpec| Some(stalls.absorb(spec, self.deadline()).ok()?.1);
        let load: Option<Vec<_>> = streams
            .into_iter()
            .filter_map(|s| Some((s, s.arrivals()?)))
            .map(|(s, a)| Some((density(s)?, a)))
            .collect();
        let load = load?;
        self.check_rate(&load).ok()?;
        self.time_to_recover(stalls, &load)
    }

    /// Whether no more stalls can fall into a busy period than one window has ([`crate::stalls`]), or into requests that a
    /// constraint is about if they are absorbed (`crate::absorb`): those of streams that send them within `spans`.
    fn check_stalls(&self, load: &Load, spans: impl Iterator<Item = Span>) -> Result<(), AdmissionError> {
        let Some(stalls) = self.stalls else { return Ok(()) };
        let (deadline, window) = (self.deadline(), stalls.window());
        if let Some(recovery) = stalls.recovery() {
            if self.workers.len() > 1 {
                return Err(AdmissionError::Kinds);
            }
            match self.time_to_recover(stalls, load) {
                Some(needed) if needed <= recovery => {}
                needed => {
                    return Err(AdmissionError::Recovery { needed: needed.unwrap_or(MAX_SPAN), recovery });
                }
            }
            let needed = stalls.needed_window(deadline, spans).unwrap_or(MAX_SPAN);
            return if needed <= window { Ok(()) } else { Err(AdmissionError::Stalls { needed, window }) };
        }
        let busy = BusyPeriod::after(self, load, deadline).length(window.max(LONGEST_BUSY));
        match busy.map(|busy| busy + deadline + stalls.length()) {
            Some(needed) if needed <= window => Ok(()),
            needed => Err(AdmissionError::Stalls { needed: needed.unwrap_or(MAX_SPAN), window }),
        }
    }

    /// The most mandatory requests waiting at offset `delta` or later if `backlog` have come: less those in batches
    /// that were due before, dispatched as late as may be; up to `B - 1` may have waited for their batch to fill.
    fn waiting(&self, backlog: u64, delta: Span) -> u64 {
        let lost = self.guard + self.reserve() + Span::from_nanos(1);
        let before = delta.saturating_sub(lost);
        let left = u128::from(backlog).saturating_sub(self.begun_by(before));
        let filling = self.workers.iter().map(|w| w.batch as u64 - 1).max().unwrap_or(0);
        u64::try_from(left).unwrap_or(u64::MAX).saturating_add(filling)
    }
}

/// `α_m(length)`.
fn mandatory(load: &Load, length: Span) -> u64 {
    load.iter().map(|(density, a)| density.ceil_of(a.count(length))).fold(0, u64::saturating_add)
}

/// How much later than it must the last answer may come; the smaller the tighter.
pub(crate) fn margin(binding: &Binding) -> i128 {
    i128::from(binding.rhs.as_nanos()) - i128::from(binding.lhs.as_nanos())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::arrival::ArrivalBound;
    use crate::constraint::{Constraint, ConstraintSet};
    use crate::profile::LatencyProfile;

    fn stream(m: u32, k: u32, bound: ArrivalBound) -> StreamSpec {
        let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one");
        StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
    }

    fn window(count: u64, length: u64) -> ArrivalBound {
        ArrivalBound::window(count, Span::from_nanos(length)).expect("valid")
    }

    fn system(time: u64, latency: u64) -> System {
        let profile = LatencyProfile::new(&[Span::from_nanos(time)]).expect("valid");
        System::identical(Workers { count: 1, batch: 1, profile }, Span::from_nanos(latency))
    }

    /// The worked example of `docs/guarantee.md`, in microseconds.
    #[test]
    fn the_example_of_the_guarantee_page() {
        let admission = system(2_000, 6_000).admit([&stream(1, 2, window(2, 4_000))]).expect("it holds");
        let span = Span::from_nanos;
        let binding = Binding { delta: Span::ZERO, backlog: 1, lhs: span(4_000), rhs: span(6_000) };
        assert_eq!(admission.binding, Some(binding));
        assert!(admission.plain);
    }

    /// The example of a pessimistic no, from section 3 of the theory.
    #[test]
    fn a_burst_that_fills_its_own_blocking_batch_is_refused_though_it_could_be_served() {
        let refused = system(3, 7).admit([&stream(0, 1, window(2, 6))]).expect_err("two need 9, there are 7");
        let AdmissionError::Burst(b) = refused else { panic!("{refused}") };
        assert_eq!((b.backlog, b.lhs.as_nanos(), b.rhs.as_nanos()), (2, 9, 7));
    }

    #[test]
    fn more_than_the_workers_can_serve_is_refused_by_its_rate() {
        let second = 1_000_000_000;
        let refused = system(second / 10, 10 * second).admit([&stream(0, 1, window(11, second))]);
        let told = |refused: Result<Admission, AdmissionError>| refused.expect_err("too many").to_string();
        assert_eq!(told(refused), "11 mandatory requests/s are above the 10 requests/s of the workers");
        let seldom = system(8 * second, 10 * second).admit([&stream(0, 1, window(2, 10 * second))]);
        assert_eq!(told(seldom), "0.2 mandatory requests/s are above the 0.125 requests/s of the workers");
        assert!(system(second / 10, 10 * second).admit([&stream(0, 1, window(10, second))]).is_ok());
    }

    #[test]
    fn best_effort_streams_ask_for_nothing_and_nonsense_is_refused() {
        let nothing = Admission { binding: None, waiting: 0, busy: Span::ZERO, plain: true };
        assert_eq!(system(5, 1).admit([&StreamSpec::best_effort()]), Ok(nothing));
        let mut none = system(1, 9);
        none.workers[0].count = 0;
        assert!(matches!(none.admit([]), Err(AdmissionError::System { group: 0, count: 0, .. })));
    }

    #[test]
    fn a_period_so_long_that_the_products_overflow_is_refused_not_waved_through() {
        let odd = |length| stream(1, 4093, window(1, length));
        let load = [odd(3_599_999_999_999), odd(3_599_999_999_993), odd(3_599_999_999_977)];
        let system = system(3_600_000_000_000 / 3, 3_600_000_000_000);
        assert!(!matches!(system.admit(&load), Ok(Admission { binding: None, .. })));
    }
}
