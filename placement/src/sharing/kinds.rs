//! By which kinds of devices a promise is kept where devices are shared: what a branch of the search leaves open.

use std::ops::Range;

use microlp::{ComparisonOp, LinearExpr};
use rt_core::Span;
use rustc_hash::FxHashMap;

use super::relaxation::Relaxation;
use crate::configuration::Configuration;
use crate::problem::Promise;
use crate::promise::{Keeping, Lack, lacking};
use crate::quota::Shape;

/// So little of a promise may be missing for rounding.
const ROUNDING: f64 = 1e-6;

/// A row of the program.
pub(super) type Row = (LinearExpr, ComparisonOp, f64);

/// What keeps the promise of a service in a part of all plans.
#[derive(Clone, Debug)]
pub(super) enum Kinds {
    /// Any rule.
    Any,
    /// Quotas of at most two kinds, each of which is among these: the same ones, or the first before the second.
    Quotas([Range<usize>; 2]),
    /// A pool.
    Pooled,
    /// The pool of batches that are no longer.
    Pool(Span),
}

/// A kind of devices, and which members are of it.
#[derive(Debug)]
struct Kind {
    shape: Shape,
    quota: f64,
    /// What a device counts for at most, by any rule.
    most: f64,
    members: Vec<(usize, usize)>,
}

/// The two kinds of a service that count for most.
pub(super) struct Two {
    best: (usize, f64),
    second: f64,
}

impl Two {
    pub(super) fn of(kinds: &[f64]) -> Self {
        let mut two = Self { best: (usize::MAX, 0.0), second: 0.0 };
        for (kind, &counts) in kinds.iter().enumerate() {
            if counts > two.best.1 {
                (two.second, two.best) = (two.best.1, (kind, counts));
            } else {
                two.second = two.second.max(counts);
            }
        }
        two
    }

    pub(super) fn sum(&self) -> f64 {
        self.best.1 + self.second
    }

    /// The two best where a kind counts for so much.
    pub(super) fn with(&self, kind: usize, counts: f64) -> f64 {
        if kind == self.best.0 { counts + self.second } else { self.best.1 + self.second.max(counts) }
    }
}

/// A promise, and all that may count for it.
#[derive(Debug)]
pub(super) struct Promised<'a> {
    promise: &'a Promise,
    deadline: Span,
    kinds: Vec<Kind>,
    all: Vec<(usize, usize, Configuration)>,
}

impl<'a> Promised<'a> {
    /// Of all members, by group and place, that may count.
    pub(super) fn new(promise: &'a Promise, deadline: Span, all: Vec<(usize, usize, Configuration)>) -> Self {
        let configurations: Vec<Configuration> = all.iter().map(|(.., of)| of.clone()).collect();
        let most = Keeping::new(promise, deadline, &configurations).at_most();
        let mut kinds: Vec<Kind> = Vec::new();
        let mut known: FxHashMap<Shape, usize> = FxHashMap::default();
        for ((group, place, of), most) in all.iter().zip(most) {
            let Some(shape) = of.shape else { continue };
            let kind = *known.entry(shape).or_insert_with(|| {
                kinds.push(Kind { shape, quota: of.quota, most, members: Vec::new() });
                kinds.len() - 1
            });
            kinds[kind].members.push((*group, *place));
        }
        Self { promise, deadline, kinds, all }
    }

    fn sum(&self, of: &Relaxation, counts: impl Fn(usize, &Kind) -> f64) -> LinearExpr {
        let mut sum = LinearExpr::empty();
        for (i, kind) in self.kinds.iter().enumerate() {
            let each = counts(i, kind);
            if each > 0.0 {
                kind.members.iter().for_each(|member| of.add(&mut sum, *member, each));
            }
        }
        sum
    }

    /// What holds of every plan.
    pub(super) fn root(&self, of: &Relaxation) -> Row {
        (self.sum(of, |_, kind| kind.most), ComparisonOp::Ge, 1.0)
    }

    fn devices(&self, devices: &[Vec<f64>]) -> Vec<f64> {
        let of = |kind: &Kind| kind.members.iter().map(|&(group, place)| devices[group][place]).sum();
        self.kinds.iter().map(of).collect()
    }

    /// Whether so many devices of each kind keep it, were they whole.
    fn is_kept(&self, devices: &[f64], kinds: &Kinds) -> bool {
        let counts = |i: usize| devices[i] * self.kinds[i].quota;
        let best = |range: &Range<usize>| range.clone().map(counts).fold(0.0, f64::max);
        let all = match kinds {
            Kinds::Quotas([a, b]) if a != b => best(a) + best(b),
            Kinds::Pool(longest) => return self.lacks(devices, *longest).is_none(),
            _ => Two::of(&(0..devices.len()).map(counts).collect::<Vec<_>>()).sum(),
        };
        all >= 1.0 - ROUNDING
    }

    /// Whether whole numbers of devices keep it, by whatever rule.
    pub(super) fn keeps(&self, counts: &[Vec<f64>]) -> bool {
        let there = self.all.iter().map(|(group, place, of)| (of, counts[*group][*place].round() as u32));
        let (of, numbers): (Vec<Configuration>, Vec<u32>) =
            there.filter(|(_, count)| *count > 0).map(|(of, count)| (of.clone(), count)).unzip();
        Keeping::new(self.promise, self.deadline, &of).rule(&numbers).is_some()
    }

    /// The parts of `kinds`, of each what it says and a row that holds in it; `None` if `devices` keep the promise, or that is not known.
    pub(super) fn parts(
        &self,
        of: &Relaxation,
        devices: &[Vec<f64>],
        kinds: &Kinds,
    ) -> Option<Vec<(Kinds, Row)>> {
        let counts = self.devices(devices);
        if self.is_kept(&counts, kinds) {
            return None;
        }
        let ge = |sum: LinearExpr| (sum, ComparisonOp::Ge, 1.0);
        let quotas =
            |ranges: [Range<usize>; 2]| {
                let row = self.sum(of, |i, kind| {
                    if ranges.iter().any(|range| range.contains(&i)) { kind.quota } else { 0.0 }
                });
                (Kinds::Quotas(ranges), ge(row))
            };
        let weight = |i: usize| counts[i] * self.kinds[i].quota;
        Some(match kinds {
            Kinds::Any => {
                let pooled = self.sum(of, |_, kind| if kind.shape.is_plain() { kind.most } else { 0.0 });
                let all = 0..self.kinds.len();
                vec![(Kinds::Pooled, ge(pooled)), quotas([all.clone(), all])]
            }
            Kinds::Quotas([a, b]) if a == b => {
                let (low, high) = halves(a, weight);
                vec![
                    quotas([low.clone(), high.clone()]),
                    quotas([high.clone(), high]),
                    quotas([low.clone(), low]),
                ]
            }
            Kinds::Quotas([a, b]) => {
                let spread = |of: &Range<usize>| {
                    of.clone().map(weight).sum::<f64>() - of.clone().map(weight).fold(0.0, f64::max)
                };
                if spread(a) >= spread(b) {
                    let (low, high) = halves(a, weight);
                    vec![quotas([high, b.clone()]), quotas([low, b.clone()])]
                } else {
                    let (low, high) = halves(b, weight);
                    vec![quotas([a.clone(), high]), quotas([a.clone(), low])]
                }
            }
            Kinds::Pooled => {
                let plain = self.kinds.iter().filter(|kind| kind.shape.is_plain());
                let mut longest: Vec<Span> = plain.map(|kind| kind.shape.blocked).collect();
                longest.sort_unstable();
                longest.dedup();
                let first = self.promise.rises().next()?;
                let row = |longest| (Kinds::Pool(longest), self.pool(of, longest, Lack::Rise(first)));
                longest.into_iter().map(row).collect()
            }
            Kinds::Pool(longest) => match self.lacks(&counts, *longest)? {
                Lack::Unknown => return None,
                lack => vec![(kinds.clone(), self.pool(of, *longest, lack))],
            },
        })
    }

    /// What the pool of batches up to `longest` lacks, but for rounding.
    fn lacks(&self, devices: &[f64], longest: Span) -> Option<Lack> {
        let all = self.kinds.iter().zip(devices).filter(|(kind, _)| kind.is_in(longest));
        let pool: Vec<(Shape, f64)> =
            all.map(|(kind, &count)| (kind.shape, count * (1.0 + ROUNDING))).collect();
        lacking(self.promise, self.deadline, &pool, longest)
    }

    /// What a pool must have that does not lack this.
    fn pool(&self, of: &Relaxation, longest: Span, lack: Lack) -> Row {
        let each = |_: usize, kind: &Kind| match lack {
            _ if !kind.is_in(longest) => 0.0,
            Lack::Rise(rise) => {
                let left = (rise.length + self.deadline).saturating_sub(longest);
                let batches = left.as_nanos() / kind.shape.time.as_nanos();
                (u64::from(kind.shape.batch) * batches) as f64 / rise.requests as f64
            }
            Lack::Rate | Lack::Unknown => kind.shape.rate() / self.promise.rate(),
        };
        (self.sum(of, each), ComparisonOp::Ge, 1.0)
    }
}

impl Kind {
    /// Whether it may be in the pool of batches that are no longer.
    fn is_in(&self, longest: Span) -> bool {
        self.shape.is_plain() && self.shape.blocked <= longest
    }
}

/// Two parts that weigh about as much, none of which is empty.
fn halves(of: &Range<usize>, weight: impl Fn(usize) -> f64) -> (Range<usize>, Range<usize>) {
    let all: f64 = of.clone().map(&weight).sum();
    let (mut sum, mut best, mut at) = (0.0, f64::INFINITY, of.start + 1);
    for i in of.start..of.end - 1 {
        sum += weight(i);
        let off = (sum - all / 2.0).abs();
        if off < best {
            (best, at) = (off, i + 1);
        }
    }
    (of.start..at, at..of.end)
}
