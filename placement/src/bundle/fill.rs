//! What so many devices of one service hold best: those that keep its promise are chosen first, then those that only serve.
//!
//! Bounded as in [`uses`](super::uses), and branched on whether a device holds what is worth most on one side of the best multiplier and
//! not on the other. Where no class has such a thing the bound is reached, for then what serves the last request is on a device that may
//! serve more or less.

use super::search::{Bundle, devices};
use super::service::{EPSILON, Hosting};
use super::tangent::{Lowest, Tangent, lowest};
use crate::problem::MAX_CLASSES;
use crate::until::Until;

/// By how much a bundle is worth more than another for it to count as better, in points.
const BETTER: f64 = 1e-8;

/// Devices of a class each of which holds one of these.
#[derive(Clone, Debug)]
struct Group {
    items: Vec<usize>,
    left: u32,
}

/// The search for what fixed numbers of devices hold.
pub(super) struct Filling<'a> {
    hosting: &'a Hosting<'a>,
    /// Of each class what is left for whatever only serves; then what counts for the promise.
    groups: Vec<Group>,
    classes: usize,
    /// Items, and how many devices hold them for sure.
    chosen: Vec<(usize, u32)>,
    /// What is looked for is worth more.
    pub(super) enough: f64,
    pub(super) best: Option<Bundle>,
    nodes: u64,
    end: Until,
}

impl<'a> Filling<'a> {
    /// For what is worth more than `enough` on `counts` devices.
    pub(super) fn new(hosting: &'a Hosting<'a>, counts: &[u32], enough: f64, nodes: u64, end: Until) -> Self {
        let of_class = |(class, &left): (usize, &u32)| {
            let items = hosting.helpers.iter().copied().filter(|&i| hosting.items[i].class == class);
            Group { items: items.collect(), left }
        };
        let groups = counts.iter().enumerate().map(of_class).collect();
        Self { hosting, groups, classes: counts.len(), chosen: Vec::new(), enough, best: None, nodes, end }
    }

    /// Whether all has been looked at.
    pub(super) fn complete(&self) -> bool {
        self.nodes > 0
    }

    /// Looks at all that may stand beside so many devices of each of these kinds, wherever these are.
    pub(super) fn beside(&mut self, kinds: &[(usize, u32)], near: f64) {
        match kinds.split_first() {
            Some((&(kind, count), others)) => self.count(kind, count, 0, others, near),
            None => self.descend(near),
        }
    }

    /// Has `count` devices of `class` and those behind it be of `kind`.
    fn count(&mut self, kind: usize, count: u32, class: usize, others: &[(usize, u32)], near: f64) {
        if count == 0 {
            return self.beside(others, near);
        }
        if class == self.classes {
            return;
        }
        let of_class = |&i: &usize| self.hosting.items[i].class == class;
        let items: Vec<usize> = self.hosting.kinds[kind].iter().copied().filter(of_class).collect();
        let most = if items.is_empty() { 0 } else { count.min(self.groups[class].left) };
        self.groups.push(Group { items, left: 0 });
        let own = self.groups.len() - 1;
        for n in (0..=most).rev() {
            self.groups[own].left = n;
            self.groups[class].left -= n;
            self.count(kind, count - n, class + 1, others, near);
            self.groups[class].left += n;
        }
        self.groups.pop();
    }

    /// Looks at all that may stand beside a pool of `items`: of each what it counts for at most and costs, the cheapest for that first. A
    /// plan with what is chosen is worth no more than `most`, and so much of the promise is missing.
    pub(super) fn pool(&mut self, items: &[(usize, f64, f64)], missing: f64, most: f64, near: f64) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes == 0 {
            return;
        }
        if missing <= EPSILON && self.is_kept() {
            return self.descend(near);
        }
        let mut each = [0.0f64; MAX_CLASSES];
        for &(item, counts, _) in items {
            let most = &mut each[self.hosting.items[item].class];
            *most = most.max(counts);
        }
        let most_counted: f64 =
            self.groups.iter().zip(each).map(|(of, each)| f64::from(of.left) * each).sum();
        if most_counted < missing - EPSILON {
            return;
        }
        for (i, &(item, counts, cost)) in items.iter().enumerate() {
            if most - self.least_for(&items[i..], missing) <= self.enough {
                break;
            }
            let class = self.hosting.items[item].class;
            if self.groups[class].left > 0 && most - cost > self.enough {
                self.groups[class].left -= 1;
                self.chosen.push((item, 1));
                self.pool(&items[i..], missing - counts, most - cost, near);
                self.chosen.pop();
                self.groups[class].left += 1;
            }
        }
    }

    /// What so much of the promise costs at least with these.
    fn least_for(&self, items: &[(usize, f64, f64)], mut missing: f64) -> f64 {
        let mut all = 0.0;
        for &(item, counts, cost) in items {
            if missing <= EPSILON {
                break;
            }
            let n = f64::from(self.groups[self.hosting.items[item].class].left).min(missing / counts);
            (all, missing) = (all + n * cost, missing - n * counts);
        }
        all
    }

    /// Whether what is chosen keeps the promise, as a pool too.
    fn is_kept(&self) -> bool {
        let mut counts = vec![0; self.hosting.items.len()];
        self.chosen.iter().for_each(|&(item, n)| counts[item] += n);
        self.hosting.pooled.is_some_and(|keeping| keeping.rule(&counts).is_some())
    }

    /// The devices that are left hold what is not excluded.
    fn descend(&mut self, near: f64) {
        self.nodes = self.nodes.saturating_sub(1);
        if self.nodes.is_multiple_of(64) && self.end.is_over() {
            self.nodes = 0;
        }
        if self.nodes == 0 {
            return;
        }
        let found =
            lowest(self.hosting.requests(), Some(near), self.enough, |request| Some(self.at(request)));
        let Some(Lowest { best, low, high }) = found else { return };
        if best.value <= self.enough + BETTER {
            return;
        }
        let (lower, higher) = (self.picks(low.request), self.picks(high.request));
        // The devices that turn at the best multiplier, and by how much one serves less then.
        let turns = |group: usize| {
            // Where nothing stands on the other side, a device just serves less.
            let ((before, serves), (after, less)) = (lower[group], higher[group]);
            let item = after.filter(|_| before != after)?;
            Some((f64::from(self.groups[group].left) * (serves - less), serves - less, group, item))
        };
        let turning = (0..self.groups.len()).filter_map(turns).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, less, group, item)) = turning else { return self.note(&lower, None) };
        let left = self.groups[group].left;
        let spare = (-low.rise / less).clamp(0.0, f64::from(left));
        self.note(&lower, Some((group, item, spare.floor() as u32)));
        self.groups[group].left -= 1;
        self.chosen.push((item, 1));
        self.descend(best.request);
        self.chosen.pop();
        self.groups[group].left += 1;
        let items = self.groups[group].items.clone();
        self.groups[group].items.retain(|other| *other != item);
        self.descend(best.request);
        self.groups[group].items = items;
    }

    /// Notes what is chosen with `picks` on what is left, of which so many of one group hold something else.
    fn note(&mut self, picks: &[(Option<usize>, f64)], other: Option<(usize, usize, u32)>) {
        let mut counts = vec![0; self.hosting.items.len()];
        self.chosen.iter().for_each(|&(item, n)| counts[item] += n);
        for (i, group) in self.groups.iter().enumerate() {
            // What counts is there, whatever it serves.
            let counted = group.items.first().copied().filter(|_| i >= self.classes);
            let Some(pick) = picks[i].0.or(counted) else { continue };
            counts[pick] += group.left;
            if let Some((_, item, n)) = other.filter(|of| of.0 == i) {
                counts[pick] -= n;
                counts[item] += n;
            }
        }
        let Some(value) = self.hosting.value(&counts).filter(|value| *value > self.enough) else { return };
        self.enough = value;
        let held = || counts.iter().enumerate().filter(|(_, n)| **n > 0);
        self.best = Some(Bundle {
            used: held().map(|(item, &n)| devices(self.hosting.items[item].class, n)).sum(),
            loss: -value,
            counts: held().map(|(item, &n)| (item as u16, n as u16)).collect(),
        });
    }

    /// The bound at one multiplier.
    fn at(&self, request: f64) -> Tangent {
        let (mut value, mut rise) = (request * self.hosting.demand, self.hosting.demand);
        let mut add = |n: u32, (gain, serves): (f64, f64)| {
            value += f64::from(n) * gain;
            rise -= f64::from(n) * serves;
        };
        let gains = |&item: &usize| self.hosting.items[item].gains(request);
        for group in self.groups.iter().filter(|group| group.left > 0) {
            let best = group.items.iter().map(gains).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
            add(group.left, best);
        }
        self.chosen.iter().for_each(|(item, n)| add(*n, gains(item)));
        Tangent { request, value, rise }
    }

    /// What a device of each group holds at best at one multiplier, and how much it serves.
    fn picks(&self, request: f64) -> Vec<(Option<usize>, f64)> {
        let best = |group: &Group| {
            let mut best = (0.0, (None, 0.0));
            for &item in group.items.iter().filter(|_| group.left > 0) {
                let (gain, serves) = self.hosting.items[item].gains(request);
                if gain > best.0 {
                    best = (gain, (Some(item), serves));
                }
            }
            best.1
        };
        self.groups.iter().map(best).collect()
    }
}
