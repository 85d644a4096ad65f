//! What it costs a service at least to keep its promise, with devices of at most two kinds that count or with a pool.

use super::service::EPSILON;
use crate::configuration::{Configuration, serves_no_worse};

/// So many devices of a kind, and what they count for together.
#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: usize,
    count: u32,
    quota: f64,
    /// So many entries from the first count for the rest, if there is one.
    rest: usize,
}

/// What one more device of a kind costs that counts, and how much more of the demand it serves than what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) cost: f64,
    pub(super) serves: f64,
    /// Devices there are.
    pub(super) most: u32,
}

/// All numbers of devices of each kind that may count for a promise, those that count for most first.
#[derive(Debug, Default)]
pub(super) struct Cover {
    entries: Vec<Entry>,
}

impl Cover {
    /// Of kinds of which a device counts for so much, and of which there are so many devices.
    pub(super) fn new(kinds: impl Iterator<Item = (f64, u32)>) -> Self {
        let mut entries = Vec::new();
        for (kind, (quota, most)) in kinds.enumerate() {
            let enough = (1.0 / quota - EPSILON).ceil() as u32;
            entries.extend((1..=enough.min(most)).map(|count| Entry {
                kind,
                count,
                quota: f64::from(count) * quota,
                rest: 0,
            }));
        }
        entries.sort_by(|a, b| b.quota.total_cmp(&a.quota).then(a.kind.cmp(&b.kind)));
        let counts: Vec<f64> = entries.iter().map(|entry| entry.quota).collect();
        for entry in entries.iter_mut().filter(|entry| !is_enough(entry.quota)) {
            entry.rest = counts.partition_point(|&quota| is_enough(quota + entry.quota));
        }
        Self { entries }
    }

    /// What keeping it costs at least, and how much more is served by what does; `None` if there are too few devices.
    pub(super) fn least(&self, kinds: &[Kind]) -> Option<(f64, f64)> {
        // Of the entries up to each the cheapest.
        let mut cheapest: Vec<(f64, usize)> = Vec::with_capacity(self.entries.len());
        let (mut first, mut least) = ((f64::INFINITY, 0), (f64::INFINITY, None));
        for (i, entry) in self.entries.iter().enumerate() {
            let own = cost(entry, kinds);
            if own < first.0 {
                first = (own, i);
            }
            cheapest.push(first);
            let both = match entry.rest {
                0 if is_enough(entry.quota) => (own, None),
                // The one that counts for more has been seen, or sees this one.
                rest if rest > 0 && rest <= i + 1 => (own + cheapest[rest - 1].0, Some(cheapest[rest - 1].1)),
                rest if rest > 0 => (own + first.0, Some(first.1)),
                _ => continue,
            };
            if both.0 < least.0 {
                least = (both.0, Some((i, both.1)));
            }
        }
        let (one, other) = least.1?;
        let serves = |i: usize| f64::from(self.entries[i].count) * kinds[self.entries[i].kind].serves;
        Some((least.0, serves(one) + other.map_or(0.0, serves)))
    }

    /// How many devices of one kind or two may keep it for `limit` at most, the cheapest first, and what they cost.
    pub(super) fn within(&self, kinds: &[Kind], limit: f64) -> Vec<(f64, Vec<(usize, u32)>)> {
        let priced = self.entries.iter().map(|entry| (entry, cost(entry, kinds)));
        let cheap: Vec<(&Entry, f64)> = priced.filter(|(_, cost)| *cost <= limit).collect();
        let mut found = Vec::new();
        for (i, &(one, first)) in cheap.iter().enumerate() {
            if is_enough(one.quota) {
                found.push((first, vec![(one.kind, one.count)]));
                continue;
            }
            // Both are needed, and no fewer of the one that counts for more.
            let rest = cheap[..i].iter().take_while(|(other, _)| is_enough(one.quota + other.quota));
            for &(other, second) in
                rest.filter(|(other, _)| other.kind != one.kind && !is_enough(other.quota))
            {
                let fewer = one.quota - one.quota / f64::from(one.count) + other.quota;
                if first + second <= limit && !is_enough(fewer) {
                    found.push((first + second, vec![(one.kind, one.count), (other.kind, other.count)]));
                }
            }
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    }
}

fn is_enough(quota: f64) -> bool {
    // Never refused what a search takes for enough.
    quota >= 1.0 - 2.0 * EPSILON
}

fn cost(entry: &Entry, kinds: &[Kind]) -> f64 {
    let kind = &kinds[entry.kind];
    if entry.count > kind.most { f64::INFINITY } else { f64::from(entry.count) * kind.cost }
}

/// The kinds of which each is worth counting. Where of each configuration of a kind another kind has one of the same class that serves no
/// worse and counts for as much, every plan may have that kind in its place: it is no more kinds, and keeps as much.
pub(super) fn undominated(kinds: Vec<Vec<usize>>, configurations: &[Configuration]) -> Vec<Vec<usize>> {
    let stands_for = |a: usize, b: usize| {
        let (a, b) = (&configurations[a], &configurations[b]);
        serves_no_worse(a, b) && a.quota >= b.quota
    };
    let dominates = |a: &[usize], b: &[usize]| b.iter().all(|&of| a.iter().any(|&by| stands_for(by, of)));
    let mut kept: Vec<Vec<usize>> = Vec::new();
    for kind in kinds {
        if !kept.iter().any(|other| dominates(other, &kind)) {
            kept.retain(|other| !dominates(&kind, other));
            kept.push(kind);
        }
    }
    kept
}
