//! The busy period: what the workers have to begin, rise by rise of `α_m`, until they have caught up.

use alloc::vec::Vec;

use crate::admission::{Load, System};
use crate::curve::ArrivalCurve;
use crate::growth::{Repetition, growth, repetition};
use crate::time::{MAX_SPAN, Span};
use crate::word::Density;
use crate::workers::Workers;

/// The most rises of `α_m` that a test looks at; a load that needs more is refused, never waved through.
pub(crate) const MAX_RISES: u64 = 1 << 20;

/// A length at which `α_m` rises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rise {
    pub(crate) length: Span,
    /// The length at which it rises next.
    pub(crate) next: Span,
    /// `α_m(length)`.
    pub(crate) backlog: u64,
    /// When the last of so many is in a batch at the latest.
    pub(crate) begun: Span,
}

/// The rises of `α_m` until the longest busy period is over, or all repeats.
pub(crate) struct BusyPeriod<'a> {
    system: &'a System,
    curve: MandatoryCurve<'a>,
    repetition: Span,
    /// What has been lost before the workers begin.
    delay: Span,
    left: u64,
    /// Whether the last rise was the last that matters, and not just the last that is looked at.
    pub(crate) ended: bool,
}

impl<'a> BusyPeriod<'a> {
    /// Of a load that demands something of `system`.
    pub(crate) fn new(system: &'a System, load: &Load<'a>) -> Self {
        Self::after(system, load, Span::ZERO)
    }

    /// The same, of which the workers begin everything by so much later.
    pub(crate) fn after(system: &'a System, load: &Load<'a>, delay: Span) -> Self {
        // Behind a delay that the workers work off the load does not repeat, though it does by itself.
        let repetition = if delay == Span::ZERO { system.repetition(load) } else { MAX_SPAN };
        Self { system, curve: MandatoryCurve::new(load), repetition, delay, left: MAX_RISES, ended: false }
    }
}

impl BusyPeriod<'_> {
    /// When the workers have caught up; `None` if that is not seen by `limit`.
    pub(crate) fn length(mut self, limit: Span) -> Option<Span> {
        let last = self.find(|rise| rise.begun < rise.next || rise.begun > limit)?;
        (last.begun < last.next).then_some(last.begun)
    }
}

impl Iterator for BusyPeriod<'_> {
    type Item = Rise;

    fn next(&mut self) -> Option<Rise> {
        self.left = self.left.checked_sub(1).filter(|_| !self.ended)?;
        let (length, backlog, next) = (self.curve.length(), self.curve.requests(), self.curve.next_rise());
        let begun = self.system.time_to_begin(backlog) + self.delay;
        // Before the next rise the workers have begun all that can have come; or what comes has come before.
        self.ended = begun < next || length > self.repetition;
        self.curve.rise();
        Some(Rise { length, next, backlog, begun })
    }
}

/// `α_m` of a load, from rise to rise.
pub(crate) struct MandatoryCurve<'a> {
    streams: Vec<Demand<'a>>,
    length: Span,
}

/// What one stream demands up to the length under test.
struct Demand<'a> {
    density: Density,
    arrivals: &'a ArrivalCurve,
    mandatory: u64,
    next_rise: Span,
}

impl<'a> MandatoryCurve<'a> {
    /// At the shortest length.
    pub(crate) fn new(load: &Load<'a>) -> Self {
        let length = Span::from_nanos(1);
        let demands = load.iter().filter(|(density, _)| density.numerator() > 0);
        let streams = demands.map(|&(density, arrivals)| {
            let mut demand = Demand { density, arrivals, mandatory: 0, next_rise: Span::ZERO };
            demand.rise(length);
            demand
        });
        Self { streams: streams.collect(), length }
    }

    /// The length that it is at.
    pub(crate) fn length(&self) -> Span {
        self.length
    }

    /// `α_m(length)`.
    pub(crate) fn requests(&self) -> u64 {
        self.streams.iter().map(|stream| stream.mandatory).fold(0, u64::saturating_add)
    }

    /// The next length at which it may be more; the longest span if none.
    pub(crate) fn next_rise(&self) -> Span {
        self.streams.iter().map(|stream| stream.next_rise).min().unwrap_or(MAX_SPAN)
    }

    /// Goes on to that length.
    pub(crate) fn rise(&mut self) {
        self.length = self.next_rise();
        let rises = self.streams.iter_mut().filter(|stream| stream.next_rise == self.length);
        rises.for_each(|stream| stream.rise(self.length));
    }
}

impl Demand<'_> {
    /// Goes on to `length`.
    fn rise(&mut self, length: Span) {
        self.mandatory = self.density.ceil_of(self.arrivals.count(length));
        self.next_rise = self.arrivals.next_rise(length);
    }
}

impl System {
    /// `min{ u : σ(u) ≥ requests }`: when the last of so many is in a batch at the latest, if every worker is
    /// free after one batch time and all batches from then on are full.
    #[must_use]
    pub fn time_to_begin(&self, requests: u64) -> Span {
        if let [w] = self.workers.as_slice() {
            let rounds = u128::from(requests).div_ceil(u128::from(w.round()));
            return times(w.batch_time(), rounds);
        }
        // Each worker alone would have begun them all by then.
        let alone =
            |w: &Workers| times(w.batch_time(), u128::from(requests.div_ceil(w.batch as u64))).as_nanos();
        let mut high = self.workers.iter().map(alone).min().unwrap_or(0);
        let mut low = 0;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.begun_by(Span::from_nanos(middle)) >= u128::from(requests) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Span::from_nanos(high)
    }

    /// `σ(u)`.
    pub(crate) fn begun_by(&self, u: Span) -> u128 {
        let one = |w: &Workers| u128::from(w.round()) * u128::from(u.as_nanos() / w.batch_time().as_nanos());
        self.workers.iter().map(one).sum()
    }

    /// A length beyond which nothing new comes: once the load repeats, and the workers keep up with it. The
    /// longest of all spans if there is none.
    fn repetition(&self, load: &Load) -> Span {
        let times = self.workers.iter().map(|w| w.batch_time().as_nanos());
        let keeps_up = |r: &Repetition| {
            let grown = load.iter().map(|(d, a)| d.ceil_of(growth(a, r.length))).fold(0, u64::saturating_add);
            u128::from(grown) <= self.begun_by(Span::from_nanos(r.length))
        };
        let end = repetition(load, times).filter(keeps_up).and_then(|r| r.from.checked_add(r.length));
        Span::from_nanos(end.unwrap_or(u64::MAX))
    }
}

fn times(span: Span, count: u128) -> Span {
    Span::from_nanos(u64::try_from(u128::from(span.as_nanos()).saturating_mul(count)).unwrap_or(u64::MAX))
}
