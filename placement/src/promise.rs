//! Whether devices keep a promise together: by quotas, at most two kinds of them, or as one pool.

use rt_core::Span;
use rustc_hash::FxHashMap;

use crate::configuration::Configuration;
use crate::problem::Promise;
use crate::quota::{Rise, Shape};

/// The least part of a quota that counts.
pub(crate) const EPSILON: f64 = 1e-9;
/// The most rises that a pool of several kinds is looked at; a pool that needs more does not count.
const MAX_RISES: usize = 20_000;
/// The most rises that are looked at for what begins no less than another.
const MAX_SEEN: usize = 2_000;

/// How a promise is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Theorem Q: of mandatory requests each kind gets its share, at most two kinds. What counts of each: shape, number, quota of one.
    Quotas(Vec<(Shape, u32, f64)>),
    /// One queue for all of these, which admission tests as workers of several kinds.
    Pool(Vec<(Shape, u32)>),
}

/// A promise and what each configuration of its service does for it.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    promise: &'a Promise,
    deadline: Span,
    /// Of each configuration, which shape it has.
    kinds: Vec<Option<usize>>,
    shapes: Vec<(Shape, f64)>,
}

impl<'a> Keeping<'a> {
    pub(crate) fn new(promise: &'a Promise, deadline: Span, configurations: &[Configuration]) -> Self {
        let mut shapes: Vec<(Shape, f64)> = Vec::new();
        let mut known: FxHashMap<Shape, usize> = FxHashMap::default();
        let mut kinds = Vec::new();
        for configuration in configurations {
            kinds.push(configuration.shape.map(|shape| {
                *known.entry(shape).or_insert_with(|| {
                    shapes.push((shape, configuration.quota));
                    shapes.len() - 1
                })
            }));
        }
        Self { promise, deadline, kinds, shapes }
    }

    /// What a device of each configuration can count for at most, by either rule; 1 is the whole promise.
    pub(crate) fn at_most(&self) -> Vec<f64> {
        let most = at_most(self.promise, self.deadline, &self.shapes);
        self.kinds.iter().map(|kind| kind.map_or(0.0, |kind| most[kind])).collect()
    }

    /// The pools there may be, one for each longest batch: of each the configurations whose devices are in it, and what one counts for at most.
    /// Left out is what has begun no more at any rise than another that `stands_for` it.
    pub(crate) fn pools(&self, stands_for: impl Fn(usize, usize) -> bool) -> Vec<Vec<(usize, f64)>> {
        let rises: Vec<Rise> = self.promise.rises().take(MAX_SEEN).collect();
        let plain = self.shapes.iter().filter(|(shape, _)| shape.is_plain());
        let mut longest: Vec<Span> = plain.map(|(shape, _)| shape.blocked).collect();
        longest.sort_unstable();
        longest.dedup();
        let of = |longest: Span| {
            let kind = |i: usize| self.kinds[i].map(|kind| self.shapes[kind].0);
            let within = |shape: &Shape| shape.is_plain() && shape.blocked <= longest;
            let all = (0..self.kinds.len()).filter_map(|i| Some((i, kind(i).filter(within)?)));
            let all: Vec<(usize, Shape)> = all.collect();
            let left: Vec<Span> =
                rises.iter().map(|rise| (rise.length + self.deadline).saturating_sub(longest)).collect();
            let beats = |a: &(usize, Shape), b: &(usize, Shape)| {
                stands_for(a.0, b.0) && begins_no_less(&a.1, &b.1, &left)
            };
            let kept = |b: &&(usize, Shape)| {
                !all.iter().any(|a| a.0 != b.0 && beats(a, b) && (a.0 < b.0 || !beats(b, a)))
            };
            let all: Vec<&(usize, Shape)> = all.iter().filter(kept).collect();
            // Each does what it does alone behind a batch that is as long.
            let behind = |of: &&(usize, Shape)| (Shape { blocked: longest, ..of.1 }, 0.0);
            let most = at_most(self.promise, self.deadline, &all.iter().map(behind).collect::<Vec<_>>());
            all.iter().zip(most).map(|(of, most)| (of.0, most)).collect()
        };
        longest.into_iter().map(of).collect()
    }

    /// How `counts` devices of each configuration keep the promise, if they do.
    pub(crate) fn rule(&self, counts: &[u32]) -> Option<Rule> {
        let mut devices = vec![0; self.shapes.len()];
        for (kind, &count) in self.kinds.iter().zip(counts) {
            if let Some(kind) = kind {
                devices[*kind] += count;
            }
        }
        let mut kept: Vec<usize> = (0..devices.len()).filter(|&kind| devices[kind] > 0).collect();
        let quota = |kind: usize| f64::from(devices[kind]) * self.shapes[kind].1;
        kept.sort_by(|&a, &b| quota(b).total_cmp(&quota(a)));
        for number in 1..=kept.len().min(2) {
            if kept[..number].iter().map(|&kind| quota(kind)).sum::<f64>() >= 1.0 - EPSILON {
                let of = |&kind: &usize| (self.shapes[kind].0, devices[kind], self.shapes[kind].1);
                return Some(Rule::Quotas(kept[..number].iter().map(of).collect()));
            }
        }
        if kept.len() < 2 {
            return None;
        }
        let of = |&kind: &usize| (self.shapes[kind].0, devices[kind]);
        pool(self.promise, self.deadline, &kept.iter().map(of).collect::<Vec<_>>())
    }
}

/// Whether a device of shape `a` has begun no less than one of `b` after each of these lengths, and whatever is longer.
fn begins_no_less(a: &Shape, b: &Shape, lengths: &[Span]) -> bool {
    if a.batch >= b.batch && a.time <= b.time {
        return true;
    }
    let more = a.rate() - b.rate();
    // Never a batch behind its rate: from here on the higher one has begun more.
    let enough = |left: Span| more * left.as_secs_f64() >= f64::from(a.batch);
    let begun =
        |shape: &Shape, left: Span| u64::from(shape.batch) * (left.as_nanos() / shape.time.as_nanos());
    for &left in lengths {
        if enough(left) {
            return true;
        }
        if begun(a, left) < begun(b, left) {
            return false;
        }
    }
    false
}

/// The pool of `devices` that keeps the promise, if one does: those whose longest batch is not above some length.
fn pool(promise: &Promise, deadline: Span, devices: &[(Shape, u32)]) -> Option<Rule> {
    let alone: Vec<(Shape, u32)> = devices.iter().copied().filter(|(shape, _)| shape.is_plain()).collect();
    let mut longest: Vec<Span> = alone.iter().map(|(shape, _)| shape.blocked).collect();
    longest.sort_unstable();
    longest.dedup();
    longest.into_iter().find_map(|longest| {
        let pool: Vec<_> = alone.iter().copied().filter(|(shape, _)| shape.blocked <= longest).collect();
        keeps(promise, deadline, &pool, longest).then_some(Rule::Pool(pool))
    })
}

/// Whether all full batches that fit behind one of `longest` are enough at each rise.
fn keeps(promise: &Promise, deadline: Span, pool: &[(Shape, u32)], longest: Span) -> bool {
    let pool: Vec<(Shape, f64)> = pool.iter().map(|&(shape, count)| (shape, f64::from(count))).collect();
    lacking(promise, deadline, &pool, longest).is_none()
}

/// What a pool lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lack {
    /// Batches at this rise.
    Rise(Rise),
    /// Rate, in the long run.
    Rate,
    /// It is too close to capacity to be looked at to the end.
    Unknown,
}

/// What the full batches that so many devices begin behind one of `longest` are not enough for, if there is anything.
pub(crate) fn lacking(
    promise: &Promise,
    deadline: Span,
    pool: &[(Shape, f64)],
    longest: Span,
) -> Option<Lack> {
    let rate: f64 = pool.iter().map(|(shape, count)| count * shape.rate()).sum();
    if rate < promise.rate() * (1.0 - EPSILON) {
        return Some(Lack::Rate);
    }
    let whole: f64 = pool.iter().map(|(shape, count)| count * f64::from(shape.batch)).sum();
    let repetition = promise.repetition(pool.iter().map(|(shape, _)| shape.time));
    for (i, rise) in promise.rises().enumerate() {
        if repetition.is_some_and(|repetition| rise.length > repetition) {
            return None;
        }
        let left = (rise.length + deadline).saturating_sub(longest);
        let begun = |(shape, count): &(Shape, f64)| {
            count * (u64::from(shape.batch) * (left.as_nanos() / shape.time.as_nanos())) as f64
        };
        // As large as they may be, whole numbers are added and counted without rounding.
        if pool.iter().map(begun).sum::<f64>() < rise.requests as f64 - EPSILON {
            return Some(Lack::Rise(rise));
        }
        // From here on it suffices even if each device loses a whole batch.
        let least = rate * left.as_secs_f64() - whole;
        if least >= promise.rate() * rise.length.as_secs_f64() + promise.excess() && rate >= promise.rate() {
            return None;
        }
        if i >= MAX_RISES {
            return Some(Lack::Unknown);
        }
    }
    Some(Lack::Unknown)
}

/// Of each shape what it counts for at one rise, or in the long run: whatever holds by either rule holds there too. That rise is
/// taken at which the sum is least.
fn at_most(promise: &Promise, deadline: Span, shapes: &[(Shape, f64)]) -> Vec<f64> {
    let rate = promise.rate();
    let in_long_run: Vec<f64> = shapes
        .iter()
        .map(|(shape, _)| if rate > 0.0 { (shape.rate() / rate).min(1.0) } else { 1.0 })
        .collect();
    let at = |rise: Rise| -> Vec<f64> {
        let share = |shape: &Shape| {
            let done = u64::from(shape.batch) * shape.batches_by(rise.length + deadline);
            (done as f64 / rise.requests as f64).min(1.0)
        };
        shapes.iter().map(|(shape, quota)| share(shape).max(*quota)).collect()
    };
    let rises: Vec<Vec<f64>> = promise.rises().take(64).filter(|rise| rise.requests > 0).map(at).collect();
    let sum = |shares: &Vec<f64>| shares.iter().sum::<f64>();
    rises.into_iter().chain([in_long_run]).min_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_begins_no_less_does_so_at_every_length(
            (batch, time) in (1u32..9, 1u64..40), (other, other_time) in (1u32..9, 1u64..40),
            step in 1u64..20, begin in 0u64..30,
        ) {
            let shape = |batch, time| Shape::alone(batch, Span::from_nanos(time), Span::ZERO);
            let (a, b) = (shape(batch, time), shape(other, other_time));
            let length = |i: u64| begin + i * step;
            let lengths: Vec<Span> = (0..60).map(|i| Span::from_nanos(length(i))).collect();
            let begun = |shape: &Shape, left: u64| u64::from(shape.batch) * (left / shape.time.as_nanos());
            let always = (0..2_000).all(|i| begun(&a, length(i)) >= begun(&b, length(i)));
            if begins_no_less(&a, &b, &lengths) {
                prop_assert!(always);
            } else if a.rate() > b.rate() * 1.5 {
                // It is not refused for nothing either.
                prop_assert!(!always || length(60) < 3 * u64::from(batch) * time);
            }
        }
    }
}
