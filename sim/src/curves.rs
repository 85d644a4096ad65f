//! Arrivals against declared curves: an exact check, and a source that sends as early as its curve allows.

use std::borrow::Cow;
use std::collections::VecDeque;

use planner::Problem;
use rt_core::{ArrivalBound, ArrivalCurve, Instant, Span};

use crate::time::at;

/// A request that comes sooner than its stream declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {seq} of stream {stream:?} at {} ns breaks {bound}", .instant.as_nanos())]
pub struct Breach {
    /// The stream.
    pub stream: String,
    /// The number of the request within it, from 0.
    pub seq: u64,
    /// When it comes.
    pub instant: Instant,
    /// The bound that it breaks.
    pub bound: ArrivalBound,
}

/// Checks that `arrivals`, in order, keep to what the streams of `problem` declare, in every half-open interval.
/// Streams beyond those of the problem, or without a declaration, may do as they like.
///
/// # Errors
/// The first request that comes too soon.
pub fn check_curves(problem: &Problem, arrivals: &[(Instant, usize)]) -> Result<(), Breach> {
    let mut pacers: Vec<_> =
        problem.streams.iter().map(|(_, spec)| spec.arrivals().map(Pacer::new)).collect();
    for &(instant, stream) in arrivals {
        let Some(Some(pacer)) = pacers.get_mut(stream) else { continue };
        if let Some(bound) = pacer.breach(instant.as_nanos()) {
            let stream = problem.streams[stream].0.clone();
            return Err(Breach { stream, seq: pacer.count() as u64, instant, bound });
        }
        pacer.send(instant.as_nanos());
    }
    Ok(())
}

/// Requests that come at `wishes`, in order, each put off until `curve` allows it.
pub fn paced(
    curve: &ArrivalCurve,
    wishes: impl IntoIterator<Item = Instant>,
) -> impl Iterator<Item = Instant> {
    let mut pacer = Pacer::new(curve);
    let (mut last, wishes) = (0, wishes.into_iter());
    wishes.map(move |wish| {
        last = pacer.earliest(wish.as_nanos().max(last));
        pacer.send(last);
        at(last)
    })
}

/// A stream as its curve sees it. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Pacer<'a> {
    curve: Cow<'a, ArrivalCurve>,
    /// When the latest requests were sent, as many as any bound looks back at.
    recent: VecDeque<u64>,
    reach: usize,
    /// Requests sent.
    count: usize,
    /// Of each periodic bound: when the next request would come if none were ever early.
    regular: Vec<u64>,
}

impl<'a> Pacer<'a> {
    pub(crate) fn new(curve: &'a ArrivalCurve) -> Self {
        Self::of(Cow::Borrowed(curve))
    }

    /// One that keeps its curve.
    pub(crate) fn owned(curve: ArrivalCurve) -> Pacer<'static> {
        Pacer::of(Cow::Owned(curve))
    }

    fn of(curve: Cow<'a, ArrivalCurve>) -> Self {
        let reach = |bound: &ArrivalBound| match bound {
            ArrivalBound::Window { count, .. } => *count as usize,
            ArrivalBound::Periodic { .. } => 1,
            ArrivalBound::Distances(distances) => distances.as_slice().len(),
        };
        let reach = curve.bounds().iter().map(reach).max().unwrap_or(1);
        let regular = vec![0; curve.bounds().len()];
        Self { curve, recent: VecDeque::new(), reach, count: 0, regular }
    }

    /// The first instant from `wish` on at which one more may be sent.
    pub(crate) fn earliest(&self, wish: u64) -> u64 {
        (0..self.regular.len()).map(|bound| self.allows(bound)).fold(wish, u64::max)
    }

    /// Sends one at `instant`, which must be allowed.
    pub(crate) fn send(&mut self, instant: u64) {
        for (regular, bound) in self.regular.iter_mut().zip(self.curve.bounds()) {
            if let ArrivalBound::Periodic { period, .. } = bound {
                *regular = instant.max(*regular).saturating_add(period.as_nanos());
            }
        }
        if self.recent.len() == self.reach {
            self.recent.pop_front();
        }
        self.recent.push_back(instant);
        self.count += 1;
    }

    /// How many were sent.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// From when on nothing that was sent counts any more, if nothing else is sent.
    pub(crate) fn recovered(&self) -> u64 {
        let after_last =
            |span: Span| self.recent.back().map_or(0, |last| last.saturating_add(span.as_nanos()));
        let free = |(bound, &regular): (&ArrivalBound, &u64)| match bound {
            ArrivalBound::Window { length, .. } => after_last(*length),
            ArrivalBound::Periodic { .. } => regular,
            ArrivalBound::Distances(distances) => {
                distances.as_slice().last().map_or(0, |&longest| after_last(longest))
            }
        };
        self.curve.bounds().iter().zip(&self.regular).map(free).max().unwrap_or(0)
    }

    /// The bound that forbids one more at `instant`.
    fn breach(&self, instant: u64) -> Option<ArrivalBound> {
        (0..self.regular.len())
            .find(|&bound| self.allows(bound) > instant)
            .map(|bound| self.curve.bounds()[bound].clone())
    }

    /// From when on one bound allows one more. Each interval that ends with it, from any request before, may hold
    /// no more than its length allows. Of a window the one that begins `count` requests before decides, of a
    /// period the one that made `regular`.
    fn allows(&self, bound: usize) -> u64 {
        match &self.curve.bounds()[bound] {
            ArrivalBound::Window { count, length } => {
                let first = self.recent.len().checked_sub(*count as usize);
                first.map_or(0, |first| self.recent[first].saturating_add(length.as_nanos()))
            }
            ArrivalBound::Periodic { jitter, .. } => self.regular[bound].saturating_sub(jitter.as_nanos()),
            ArrivalBound::Distances(distances) => {
                let after = |(sent, distance): (&u64, &Span)| sent.saturating_add(distance.as_nanos());
                self.recent.iter().rev().zip(distances.as_slice()).map(after).max().unwrap_or(0)
            }
        }
    }
}

/// The arrivals of several streams in one order: by instant, and of one instant as they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merged(Vec<(u64, usize)>);

impl Merged {
    pub(crate) fn add(&mut self, instant: u64, stream: usize) {
        self.0.push((instant, stream));
    }

    pub(crate) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_arrivals(mut self) -> Vec<(Instant, usize)> {
        self.0.sort_by_key(|&(instant, _)| instant);
        self.0.into_iter().map(|(instant, stream)| (at(instant), stream)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::samples;
    use crate::time::ns;
    use proptest::prelude::*;

    /// Every half-open interval from one request to another, counted.
    fn conforms(sent: &[u64], curve: &ArrivalCurve) -> bool {
        let within = |i: usize, j: usize| (j - i + 1) as u64 <= curve.count(ns(sent[j] - sent[i] + 1));
        (0..sent.len()).all(|i| (i..sent.len()).all(|j| within(i, j)))
    }

    proptest! {
        #[test]
        fn the_earliest_instant_is_exact(curve in samples::curve(), seed: u64) {
            let mut dice = Dice(seed);
            let (mut pacer, mut sent) = (Pacer::new(&curve), Vec::new());
            let mut now = 0;
            for _ in 0..30 {
                let wish = now + dice.within(0, 12).saturating_sub(6);
                now = pacer.earliest(wish);
                let sooner = |instant: u64| [&sent[..], &[instant]].concat();
                prop_assert!(conforms(&sooner(now), &curve));
                prop_assert!(now == wish || !conforms(&sooner(now - 1), &curve));
                pacer.send(now);
                sent.push(now);
                prop_assert!(pacer.recent.len() <= pacer.reach);
            }
        }

        #[test]
        fn what_is_paced_keeps_its_curve_in_order_and_comes_as_soon_as_it_may(
            curve in samples::curve(),
            mut wishes in prop::collection::vec(0u64..60, 1..25),
        ) {
            wishes.sort_unstable();
            let sent: Vec<u64> = paced(&curve, wishes.iter().map(|&wish| at(wish))).map(Instant::as_nanos).collect();
            prop_assert!(sent.len() == wishes.len() && conforms(&sent, &curve));
            for (i, (&sent_at, &wish)) in sent.iter().zip(&wishes).enumerate() {
                let first = wish.max(i.checked_sub(1).map_or(0, |before| sent[before]));
                prop_assert!(sent_at >= first);
                let sooner = [&sent[..i], &[sent_at.saturating_sub(1)]].concat();
                prop_assert!(sent_at == first || !conforms(&sooner, &curve));
            }
        }

        #[test]
        fn what_is_recovered_may_burst_anew(curve in samples::curve(), requests in 1usize..12) {
            let mut pacer = Pacer::new(&curve);
            let mut fresh = Pacer::new(&curve);
            (0..requests).for_each(|_| pacer.send(pacer.earliest(0)));
            let start = pacer.recovered();
            for _ in 0..12 {
                let (again, first) = (pacer.earliest(start), fresh.earliest(0));
                prop_assert_eq!(again, start + first);
                pacer.send(again);
                fresh.send(first);
            }
        }
    }
}
