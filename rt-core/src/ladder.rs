//! A ladder of promises: weaker ones behind a stream's first, each for more requests and for no more that must be served.
//!
//! *Why no test of admission asks for the levels.* Of a stream at level *i* at most `⌈ρ_i·α_i(Δ)⌉` requests of any interval
//! are mandatory. Where that is nowhere above `⌈ρ_0·α_0(Δ)⌉`, which admission has counted, whoever shares the workers can bear
//! any level of it ([`Level::check`]). What crosses a change of levels is a matter of when that happens
//! (`scheduler/levels.rs`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::arrival::{ArrivalBound, ArrivalError, MAX_COUNT};
use crate::constraint::ConstraintSet;
use crate::curve::ArrivalCurve;
use crate::distances::MAX_DISTANCES;
use crate::police::Policer;
use crate::safe_mode::Alarm;
use crate::time::{Instant, Span};
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

/// A level that is not in force.
#[derive(Clone, Debug)]
struct Rung {
    police: Policer,
    /// Until when what exceeded its declaration counts against it.
    quiet: Instant,
}

/// The levels of a stream, and which one is in force. The arrivals are held against all of them all the time.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    level: usize,
    /// The level whose constraints stand in, with the declaration of the first, while its service has fallen back, and why. Then
    /// `level` is 0.
    held: Option<(usize, Alarm)>,
    /// Since when, and since which request of the stream.
    since: Instant,
    from: u64,
    /// Until when what exceeded the declaration of the level in force counts against it.
    quiet: Instant,
    /// What made it leave the first level itself; none there.
    pub(crate) alarm: Option<Alarm>,
    /// By level; in place of the one in force, which the stream has, is one that is not used.
    rungs: Box<[Rung]>,
    /// Of the last request, whether it kept to each level.
    kept: heapless::Vec<bool, { MAX_LEVELS + 1 }>,
}

impl Ladder {
    /// At the first level, of `levels` behind it; none if there are none. Allocates.
    pub(crate) fn new(first: &ArrivalCurve, levels: &[Level]) -> Option<Box<Self>> {
        if levels.is_empty() {
            return None;
        }
        let behind = levels.iter().map(|level| &level.arrivals);
        let rung = |arrivals| Rung { police: Policer::new(arrivals), quiet: Instant::ZERO };
        let rungs: Box<[Rung]> = core::iter::once(first).chain(behind).map(rung).collect();
        let mut kept = heapless::Vec::new();
        let _ = kept.resize(rungs.len(), true);
        let (level, since, from, quiet) = (0, Instant::ZERO, 0, Instant::ZERO);
        Some(Box::new(Self { level, held: None, since, from, quiet, alarm: None, rungs, kept }))
    }

    /// The level in force, from 0.
    pub(crate) fn level(&self) -> usize {
        self.held.map_or(self.level, |(level, _)| level)
    }

    /// Whether it is held to a level as its service has fallen back.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// What made it leave the first level.
    pub(crate) fn cause(&self) -> Option<Alarm> {
        self.held.map(|(_, alarm)| alarm).or(self.alarm)
    }

    /// Holds it to a level from `now` and request number `from` on, or no longer; until when what exceeded the first declaration
    /// counts against it, if it was at a weaker level for that.
    pub(crate) fn hold_to(
        &mut self,
        now: Instant,
        held: Option<(usize, Alarm)>,
        from: u64,
        police: &mut Policer,
    ) -> Option<Instant> {
        let climbs = self.level > 0;
        if climbs {
            self.change(now, 0, from, police);
        }
        (self.held, self.since, self.from) = (held, now, from);
        climbs.then_some(self.quiet)
    }

    /// A request at `at`, which may come early by `tolerance`: holds it against all levels but that in force. What exceeds one
    /// counts against it for `clean` after its effects.
    pub(crate) fn observe(&mut self, at: Instant, tolerance: Span, clean: Span) {
        for (index, rung) in self.rungs.iter_mut().enumerate().filter(|&(index, _)| index != self.level) {
            let police = &mut rung.police;
            let mut kept = police.observe_conforming(at) || police.observe_early(at, tolerance).is_some();
            if !kept {
                let (conforms, excess) = police.observe_excess(at, false);
                if excess.is_some() {
                    rung.quiet = police.spaced_until().unwrap_or(at) + clean;
                }
                kept = conforms && excess.is_none();
            }
            self.kept[index] = kept;
        }
    }

    /// The declaration of the level in force was exceeded, with effects until `quiet`.
    pub(crate) fn exceeded(&mut self, quiet: Instant) {
        self.quiet = quiet;
    }

    /// The level that ought to be in force at `now` instead of the present one: the highest whose declaration has been kept for
    /// long enough. From a level behind the first none is left upwards within `hold`.
    pub(crate) fn wanted(&self, now: Instant, hold: Span) -> Option<usize> {
        if self.is_held() {
            return None;
        }
        let rested = now >= self.since + hold;
        let is_kept = |&index: &usize| match index {
            _ if index == self.level => self.quiet <= now,
            _ => self.rungs[index].quiet <= now && (index > self.level || rested),
        };
        (0..self.rungs.len()).find(is_kept).filter(|&index| index != self.level)
    }

    /// When [`Ladder::wanted`] may become another at the soonest; none at the first level while it is kept.
    pub(crate) fn next(&self, now: Instant, hold: Span) -> Option<Instant> {
        if self.is_held() || self.level == 0 && self.quiet <= now {
            return None;
        }
        let at = |(index, rung): (usize, &Rung)| match index {
            _ if index == self.level => None,
            _ if index < self.level => Some(rung.quiet.max(self.since + hold)),
            _ => Some(rung.quiet),
        };
        self.rungs.iter().enumerate().filter_map(at).filter(|&at| at > now).min()
    }

    /// Whether the last request kept to a level that is not in force.
    pub(crate) fn kept(&self, level: usize) -> bool {
        self.kept[level]
    }

    /// The first request for which it is in force.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// The requests are counted anew.
    pub(crate) fn restart(&mut self) {
        self.from = 0;
    }

    /// Puts another level in force at `now`, from request number `from` on, whose arrival monitor takes the place of the present one's.
    pub(crate) fn change(&mut self, now: Instant, level: usize, from: u64, police: &mut Policer) {
        core::mem::swap(police, &mut self.rungs[level].police);
        core::mem::swap(&mut self.quiet, &mut self.rungs[level].quiet);
        self.rungs.swap(self.level, level);
        (self.level, self.since, self.from) = (level, now, from);
    }

    /// What exceeded a declaration no longer counts.
    pub(crate) fn forget_excess(&mut self, now: Instant) {
        self.quiet = now;
        self.since = Instant::ZERO;
        for rung in &mut self.rungs {
            rung.police.forget_excess();
            rung.quiet = now;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::arrival::tests::bound;
    use crate::constraint::Constraint;
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
