//! A ladder of promises: weaker ones behind a stream's first, each for more requests and for no more that must be served.
//!
//! *Why no test of admission asks for the levels.* Of a stream at level *i* at most `⌈ρ_i·α_i(Δ)⌉` requests of any interval
//! are mandatory. Where that is nowhere above `⌈ρ_0·α_0(Δ)⌉`, which admission has counted, whoever shares the workers can bear
//! any level of it ([`Level::check`]). What crosses a change of levels is a matter of when that happens
//! (`scheduler/levels.rs`).

use alloc::vec::Vec;

use crate::arrival::{ArrivalBound, ArrivalError, MAX_COUNT};
use crate::constraint::ConstraintSet;
use crate::curve::ArrivalCurve;
use crate::distances::MAX_DISTANCES;
use crate::time::Span;
use crate::word::Density;

/// The most levels behind a stream's first promise.
pub const MAX_LEVELS: usize = 4;

/// A promise that stands in for a stronger one: `constraints` as long as the requests keep to `arrivals`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// What is kept.
    pub constraints: ConstraintSet,
    /// How the requests may come.
    pub arrivals: ArrivalCurve,
}

/// Why promises are no ladder. Levels are counted from 1, the first promise is level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// More than [`MAX_LEVELS`].
    #[error("{count} levels behind the first promise, must be at most {MAX_LEVELS}")]
    Count {
        /// How many were given.
        count: usize,
    },
    /// There is no first promise to fall from.
    #[error("weaker promises need a first one, with constraints and arrivals")]
    NoFirst,
    /// A level that promises nothing.
    #[error("level {level} promises nothing: leave it out, beyond the last level nothing is promised")]
    Nothing {
        /// Which one.
        level: usize,
    },
    /// A level that asks for a larger share of the requests than the one before it.
    #[error(
        "level {level} is not weaker: {asked} of its requests must be served, of the level before {before}"
    )]
    NotWeaker {
        /// Which one.
        level: usize,
        /// Its share.
        asked: Density,
        /// That of the level before.
        before: Density,
    },
    /// A level of which more requests may have to be served than of the first.
    #[error(
        "level {level} may have more requests that must be served than the first promise, or cannot be compared with it"
    )]
    Demand {
        /// Which one.
        level: usize,
    },
}

impl Level {
    /// The promise of `constraints` behind a `first` one, for as many requests as leave no more that must be served, as far as
    /// the kinds of bounds can say it: windows of the same length with more requests, shorter periods, shorter distances. For
    /// constraints that are none or no weaker, which stand behind no promise, as many as of the first.
    ///
    /// # Errors
    /// If there is no such bound: state the arrivals then.
    pub fn behind(first: (Density, &ArrivalCurve), constraints: ConstraintSet) -> Result<Self, ArrivalError> {
        let asked = constraints.density();
        if asked.numerator() == 0 || asked >= first.0 {
            return Ok(Self { constraints, arrivals: first.1.clone() });
        }
        let ratio = Ratio::of(first.0, asked);
        let bounds = first.1.bounds().iter().map(|bound| ratio.widened(bound));
        let bounds = bounds.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { constraints, arrivals: ArrivalCurve::new(&bounds)? })
    }

    /// Whether it may stand behind the promise `before`, and behind the `first` one, as level number `level`.
    pub(crate) fn check(
        &self,
        level: usize,
        before: Density,
        first: (Density, &ArrivalCurve),
    ) -> Result<(), LevelError> {
        let asked = self.constraints.density();
        if asked.numerator() == 0 {
            return Err(LevelError::Nothing { level });
        }
        if asked > before {
            return Err(LevelError::NotWeaker { level, asked, before });
        }
        let ratio = Ratio::of(first.0, asked);
        let within =
            |bound: &ArrivalBound| self.arrivals.bounds().iter().any(|own| ratio.is_within(own, bound));
        // The least of its bounds is within each that the least of the first ones may be.
        if first.1.bounds().iter().all(within) { Ok(()) } else { Err(LevelError::Demand { level }) }
    }
}

/// How many times as many requests may come, for as many that must be served: `of / per` = ρ_0 / ρ_i, at least 1.
#[derive(Clone, Copy)]
struct Ratio {
    of: u128,
    per: u128,
    /// Whether, at the level asked for, one of a whole number of requests in a row must be served.
    single: bool,
}

impl Ratio {
    fn of(first: Density, asked: Density) -> Self {
        let [p, q, r, s] =
            [first.numerator(), first.denominator(), asked.numerator(), asked.denominator()].map(u128::from);
        Self { of: p * s, per: q * r, single: s.is_multiple_of(r) }
    }

    /// `⌊count · of / per⌋`.
    fn times(self, count: u64) -> u64 {
        (u128::from(count) * self.of / self.per).min(MAX_COUNT.into()) as u64
    }

    /// Whether rounding a period keeps to whole requests that must be served: of `of / per` as many, or of one in so many.
    fn is_even(self) -> bool {
        self.of.is_multiple_of(self.per) || self.single
    }

    fn widened(self, bound: &ArrivalBound) -> Result<ArrivalBound, ArrivalError> {
        match bound {
            ArrivalBound::Window { count, length } => ArrivalBound::window(self.times(*count), *length),
            ArrivalBound::Periodic { period, jitter } => {
                let shorter = Span::from_nanos(
                    (u128::from(period.as_nanos()) * self.per).div_ceil(self.of).max(1) as u64,
                );
                match self.is_even() {
                    true => ArrivalBound::periodic(shorter, *jitter),
                    false if *jitter >= shorter => {
                        ArrivalBound::periodic(shorter, jitter.saturating_sub(shorter))
                    }
                    false => Ok(bound.clone()),
                }
            }
            ArrivalBound::Distances(distances) => {
                // The nth after one comes with the least that takes so many more: `nth + 1` are too many for fewer.
                let most = self.times(distances.as_slice().len() as u64).min(MAX_DISTANCES as u64);
                let held = |nth: u64| (u128::from(nth + 1) * self.per).div_ceil(self.of) as u64 - 1;
                let apart = (1..=most).map(|nth| distances.distance(held(nth)));
                ArrivalBound::distances(&apart.map(Span::from_nanos).collect::<Vec<_>>())
            }
        }
    }

    /// Whether of requests within `own` no more must be served, at the level asked for, than of requests within `first` at the
    /// first one: `⌈ρ_i·own(Δ)⌉ ≤ ⌈ρ_0·first(Δ)⌉` for every Δ. Found by one look at each; not said of all of which it is so.
    fn is_within(self, own: &ArrivalBound, first: &ArrivalBound) -> bool {
        let Self { of, per, .. } = self;
        let fits = |requests: u64, count: u64| u128::from(requests) * per <= u128::from(count) * of;
        match (own, first) {
            _ if own.is_within(first) => true,
            // No more come in two intervals that follow each other than in one and in the other: so it adds up from where the first
            // bound counts.
            (_, ArrivalBound::Window { count, length }) => fits(own.count(*length), *count),
            (_, ArrivalBound::Distances(distances)) => {
                (1..).zip(distances.as_slice()).all(|(count, &length)| fits(own.count(length), count))
            }
            // Here Δ + jitter is all that is rounded up.
            (
                ArrivalBound::Periodic { period, jitter },
                ArrivalBound::Periodic { period: long, jitter: most },
            ) => {
                let [period, jitter, long, most] =
                    [period, jitter, long, most].map(|span| u128::from(span.as_nanos()));
                let slow = period * of >= long * per;
                slow && (self.is_even() && jitter <= most
                    || (jitter + period) * long * per <= most * of * period)
            }
            // rate·Δ + excess ≤ (of / per)·(Δ + jitter) / period.
            (_, ArrivalBound::Periodic { period, jitter }) => {
                let (count, length) = own.rate();
                let [length, period, jitter] =
                    [length, *period, *jitter].map(|span| u128::from(span.as_nanos()));
                u128::from(count) * period * per <= length * of
                    && u128::from(own.excess_over_rate()) * period * per <= jitter * of
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::arrival::tests::bound;
    use crate::constraint::Constraint;
    use crate::police::Policer;
    use crate::time::Instant;
    use proptest::prelude::*;

    fn set(m: u32, k: u32) -> ConstraintSet {
        ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one")
    }

    fn constraints() -> impl Strategy<Value = ConstraintSet> {
        (1u32..9).prop_flat_map(|k| (0..k, Just(k))).prop_map(|(m, k)| set(m, k))
    }

    fn curve() -> impl Strategy<Value = ArrivalCurve> {
        proptest::collection::vec(bound(), 1..4).prop_map(|bounds| ArrivalCurve::new(&bounds).expect("few"))
    }

    /// Whether of requests within `one`, each as early as it may come, no more must be served than `other` counts.
    fn is_within(one: (Density, &ArrivalCurve), other: (Density, &ArrivalCurve)) -> bool {
        let (mut police, mut count) = (Policer::new(one.1), 0);
        (0..300).all(|at| {
            while police.observe_conforming(Instant::from_nanos(at)) {
                count += 1;
            }
            one.0.ceil_of(count) <= other.0.ceil_of(other.1.count(Span::from_nanos(at + 1)))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn no_level_that_is_taken_has_more_that_must_be_served(
            first in curve(), strong in constraints(), weak in constraints(), own in curve(), stated in any::<bool>(),
        ) {
            let first = (strong.density(), &first);
            let level = match stated {
                true => Ok(Level { constraints: weak.clone(), arrivals: own }),
                false => Level::behind(first, weak.clone()),
            };
            let Ok(level) = level else { return Ok(()) };
            if level.check(1, strong.density(), first).is_ok() {
                prop_assert!(is_within((weak.density(), &level.arrivals), first), "{:?}", level.arrivals);
            }
        }
    }

    #[test]
    fn what_a_level_allows_is_what_leaves_as_much_to_be_served() {
        let ms = Span::from_millis;
        let strong = set(1, 10).density();
        let behind = |bound: ArrivalBound, weak: ConstraintSet| {
            let first = ArrivalCurve::new(&[bound]).expect("one");
            let level = Level::behind((strong, &first), weak).expect("a bound");
            level.check(1, strong, (strong, &first)).expect("it is within the first");
            level.arrivals.bounds()[0].clone()
        };
        let window = |count| ArrivalBound::window(count, ms(100)).expect("valid");
        assert_eq!(behind(window(10), set(5, 10)), window(18));
        assert_eq!(behind(window(10), set(8, 9)), window(81));
        let every =
            |period, jitter| ArrivalBound::periodic(Span::from_nanos(period), ms(jitter)).expect("valid");
        assert_eq!(behind(every(36_000_000, 8), set(5, 10)), every(20_000_000, 8));
        // Of 7 in 10 two that must be served may be nearer than a period: where no jitter makes room for that it allows no more.
        assert_eq!(behind(every(36_000_000, 8), set(3, 10)), every(36_000_000, 8));
        assert_eq!(behind(every(36_000_000, 40), set(3, 10)), every(28_000_000, 12));
    }

    #[test]
    fn constraints_that_are_none_or_no_weaker_are_refused_with_what_is_wrong() {
        let first = ArrivalCurve::new(&[ArrivalBound::window(4, Span::from_millis(10)).expect("valid")])
            .expect("one");
        let behind = |constraints| {
            let level = Level::behind((set(1, 4).density(), &first), constraints).expect("a bound");
            crate::StreamSpec::promised(set(1, 4), first.clone()).with_levels(std::vec![level]).map(|_| ())
        };
        assert_eq!(behind(ConstraintSet::default()), Err(LevelError::Nothing { level: 1 }));
        assert!(matches!(behind(set(0, 4)), Err(LevelError::NotWeaker { level: 1, .. })));
        assert_eq!(behind(set(1, 4)), Ok(()));
    }

    #[test]
    fn what_is_no_ladder_is_refused() {
        let first = ArrivalCurve::new(&[ArrivalBound::window(4, Span::from_millis(10)).expect("valid")])
            .expect("one");
        let spec = || crate::StreamSpec::promised(set(1, 4), first.clone());
        let level = |set: ConstraintSet, count| {
            let arrivals = ArrivalBound::window(count, Span::from_millis(10)).expect("valid");
            Level { constraints: set, arrivals: ArrivalCurve::new(&[arrivals]).expect("one") }
        };
        let refused = |levels| spec().with_levels(levels).expect_err("no ladder");
        assert!(spec().with_levels(std::vec![level(set(1, 2), 6), level(set(2, 3), 9)]).is_ok());
        assert_eq!(refused(std::vec![level(set(1, 2), 7)]), LevelError::Demand { level: 1 });
        assert!(matches!(refused(std::vec![level(set(0, 2), 4)]), LevelError::NotWeaker { level: 1, .. }));
        let twice = std::vec![level(set(2, 3), 9), level(set(1, 2), 6)];
        assert!(matches!(refused(twice), LevelError::NotWeaker { level: 2, .. }));
        assert_eq!(refused(std::vec![level(ConstraintSet::default(), 4)]), LevelError::Nothing { level: 1 });
        let few = (0..=MAX_LEVELS).map(|_| level(set(1, 2), 6)).collect();
        assert_eq!(refused(few), LevelError::Count { count: MAX_LEVELS + 1 });
        let nothing = crate::StreamSpec::best_effort().with_levels(std::vec![level(set(1, 2), 6)]);
        assert_eq!(nothing, Err(LevelError::NoFirst));
    }
}
