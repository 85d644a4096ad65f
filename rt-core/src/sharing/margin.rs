//! The lines of Theorem E that count from one reference, and the margins that they leave.

use alloc::vec::Vec;

use super::horizon::Ceiling;
use super::{Demands, Reference, SharedBinding, Sharing};
use crate::time::Span;

/// What a margin depends on but the distance and the work: of each service that is promised something `n·(X - D) + P`.
pub(super) struct Keys {
    of: Vec<i128>,
    least: i128,
}

impl Keys {
    pub(super) fn of(sharing: &Sharing, demands: &[Demands], within: &[Span]) -> Self {
        let key = |j: usize| {
            let service = &sharing.services[j];
            let [within, latency, guard, time] = [within[j], service.latency, sharing.guard, service.time]
                .map(|span| i128::from(span.as_nanos()));
            sharing.workers as i128 * (within - latency - guard) + time
        };
        let of: Vec<_> = (0..demands.len()).map(key).collect();
        let promised = of.iter().zip(demands).filter(|(_, of)| !of.is_empty()).map(|(&key, _)| key);
        Self { least: promised.min().unwrap_or(0), of }
    }
}

/// The lines of one reference.
pub(super) struct Lines<'a> {
    pub(super) sharing: &'a Sharing,
    pub(super) reference: Reference,
    /// The first distance.
    pub(super) from: u64,
    /// What may still be running at the reference, on all workers.
    pub(super) running: i128,
    /// No more work than this is counted.
    pub(super) work: Ceiling,
}

impl Lines<'_> {
    /// From where on every margin is at least `margin`.
    pub(super) fn hold_from(&self, margin: i128, keys: &Keys) -> u64 {
        let n = self.sharing.workers as i128;
        let guard = i128::from(self.sharing.guard.as_nanos());
        let late = n.saturating_mul(margin.saturating_add(guard)).saturating_add(self.running - keys.least);
        self.work.ahead_from(self.from, late as f64)
    }
}

/// The lines of one reference at one distance.
pub(super) struct Front<'a> {
    pub(super) lines: &'a Lines<'a>,
    pub(super) distance: u64,
    pub(super) batches: &'a [u64],
    /// Of which services there are batches, a bit each.
    pub(super) there: u64,
    /// `Σ P_j·c_j`.
    pub(super) work: i128,
}

impl Front<'_> {
    /// Whether no margin would be below `margin` even if a worker got the average.
    pub(super) fn is_no_tighter_than(&self, margin: i128, keys: &Keys) -> bool {
        let Lines { sharing, running, .. } = self.lines;
        let guard = i128::from(sharing.guard.as_nanos());
        let spare = (i128::from(self.distance) - guard).saturating_sub(margin).saturating_add(1);
        let late = running + self.work - sharing.workers as i128 * spare;
        // Mostly that of all says enough.
        late < keys.least || self.services().all(|k| late < keys.of[k])
    }

    fn services(&self) -> impl Iterator<Item = usize> {
        let mut there = self.there;
        core::iter::from_fn(move || {
            let first = (there != 0).then(|| there.trailing_zeros() as usize)?;
            there &= there - 1;
            Some(first)
        })
    }

    /// Every line that is there.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let line = |service| Line {
            sharing: self.lines.sharing,
            reference: self.lines.reference,
            service,
            distance: self.distance,
            batches: self.batches,
            work: self.work as u128,
        };
        self.services().map(line)
    }
}

/// One line of the test.
pub(super) struct Line<'a> {
    sharing: &'a Sharing,
    reference: Reference,
    pub(super) service: usize,
    distance: u64,
    batches: &'a [u64],
    /// `Σ P_j·c_j`.
    work: u128,
}

impl Line<'_> {
    /// When the batch begins at the latest, if all that is known of a worker's share is the average.
    pub(super) fn average(&self) -> u128 {
        let n = self.sharing.workers as u128;
        let [guard, longest, own] =
            [self.sharing.guard, self.sharing.longest, self.sharing.services[self.service].time]
                .map(|span| u128::from(span.as_nanos()));
        let work = self.work - own;
        let clear = longest + work / n;
        guard
            + match self.reference {
                Reference::Short(i) => {
                    let first = u128::from(self.sharing.services[i].time.as_nanos());
                    clear.min((first + (n - 1) * longest + work) / n)
                }
                _ => clear,
            }
    }

    /// When it begins at the latest.
    pub(super) fn latest(&self) -> u128 {
        let [guard, longest] =
            [self.sharing.guard, self.sharing.longest].map(|span| u128::from(span.as_nanos()));
        self.average().min(guard + longest + self.sharing.longest_share(self.batches, self.service))
    }

    pub(super) fn binding(&self, within: &[Span], latest: u128) -> SharedBinding {
        let service = &self.sharing.services[self.service];
        let due = i128::from((service.latency + self.sharing.guard).as_nanos());
        SharedBinding {
            reference: self.reference,
            service: self.service,
            distance: Span::from_nanos(self.distance),
            lhs: Span::from_nanos(u64::try_from(latest).unwrap_or(u64::MAX)),
            rhs: i128::from(self.distance) - due + i128::from(within[self.service].as_nanos()),
        }
    }
}
