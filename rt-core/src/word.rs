//! Balanced words: which requests of a stream are mandatory, decided on arrival (theory: Morse and
//! Hedlund's balanced sequences; used for (m,k) patterns by Ramanathan, 1999).

use core::cmp::Ordering;
use core::fmt;

/// A share of requests `p/q`, `0 ≤ p ≤ q`, `q ≥ 1`: the part that must be served.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Density {
    p: u32,
    q: u32,
}

impl Density {
    /// Nothing is promised (best effort).
    pub const ZERO: Self = Self { p: 0, q: 1 };

    /// The density `p/q`; `None` unless `p ≤ q` and `q ≥ 1`.
    #[must_use]
    pub const fn new(p: u32, q: u32) -> Option<Self> {
        if q == 0 || p > q { None } else { Some(Self { p, q }) }
    }

    /// The numerator.
    #[must_use]
    pub const fn numerator(self) -> u32 {
        self.p
    }

    /// The denominator, at least 1.
    #[must_use]
    pub const fn denominator(self) -> u32 {
        self.q
    }

    /// `p/q`, for people and estimates.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.p) / f64::from(self.q)
    }

    /// `ceil(count · p/q)`: the most mandatory requests among any `count` consecutive ones.
    #[must_use]
    pub const fn ceil_of(self, count: u64) -> u64 {
        (count as u128 * self.p as u128).div_ceil(self.q as u128) as u64
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.p, self.q)
    }
}

impl PartialEq for Density {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl PartialOrd for Density {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Density {
    fn cmp(&self, other: &Self) -> Ordering {
        (u64::from(self.p) * u64::from(other.q)).cmp(&(u64::from(other.p) * u64::from(self.q)))
    }
}

/// The balanced word of a density: request `i` (from 1) is mandatory iff
/// `floor(i·p/q) > floor((i-1)·p/q)`.
///
/// Any `n` consecutive requests hold at least `floor(n·p/q)` and at most `ceil(n·p/q)` mandatory ones, so
/// serving the mandatory ones satisfies every constraint of density at most `p/q` at once.
#[derive(Clone, Debug)]
pub struct BalancedWord {
    density: Density,
    /// `i·p mod q` for the last request.
    remainder: u32,
}

impl BalancedWord {
    /// The word of `density`, before its first request.
    #[must_use]
    pub const fn new(density: Density) -> Self {
        Self { density, remainder: 0 }
    }

    /// Whether the next request is mandatory.
    pub fn next_is_mandatory(&mut self) -> bool {
        let sum = u64::from(self.remainder) + u64::from(self.density.p);
        let q = u64::from(self.density.q);
        let mandatory = sum >= q;
        self.remainder = (if mandatory { sum - q } else { sum }) as u32;
        mandatory
    }
}

/// How much a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The promise counts on it.
    Mandatory,
    /// It would be mandatory if it kept to the declaration.
    Demoted,
    /// Neither.
    Optional,
}

/// Which requests of a stream are to be served, of all that come, and which of these are mandatory.
///
/// The balanced word runs over all requests, so that what is to be served stays evenly spread whatever comes. Of
/// the conforming requests alone each earns `p/q` of a mandatory one, and less than one is kept: `n` in a row hold
/// at most `ceil(n·p/q)` mandatory ones. As long as all conform, the two agree.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    word: BalancedWord,
    /// What the conforming requests have earned, in `1/q`; less than `q`.
    earned: u32,
}

impl Marks {
    /// Before the first request.
    pub(crate) const fn new(density: Density) -> Self {
        Self { word: BalancedWord::new(density), earned: 0 }
    }

    /// From the letter on at which any number of requests hold as many mandatory ones as they ever do: what was missed before weighs
    /// least then (`proof/Ladder.v`, `best_phase`).
    pub(crate) const fn first(density: Density) -> Self {
        let last = density.q - 1;
        Self { word: BalancedWord { density, remainder: last }, earned: last }
    }

    /// Goes on with another density: what has been earned of the next mandatory request is kept, rounded up.
    pub(crate) fn change(&mut self, density: Density) {
        let Density { q, .. } = self.word.density;
        let keep = |part: u32| {
            let kept = (u64::from(part) * u64::from(density.q)).div_ceil(u64::from(q));
            kept.min(u64::from(density.q) - 1) as u32
        };
        *self = Self {
            earned: keep(self.earned),
            word: BalancedWord { density, remainder: keep(self.word.remainder) },
        };
    }

    /// Whether the next request, if it conforms, could be mandatory, and yet need not be served.
    pub(crate) fn is_early(&self) -> bool {
        let Density { p, q } = self.word.density;
        let full = |part: u32| u64::from(part) + u64::from(p) >= u64::from(q);
        full(self.earned) && !full(self.word.remainder)
    }

    /// Whether the next request is to be served, if all before it was in excess; outside an excess it may not be.
    pub(crate) fn may_be_marked(&self) -> bool {
        let Density { p, q } = self.word.density;
        u64::from(self.word.remainder) + u64::from(p) >= u64::from(q)
    }

    /// Whether a request is ever mandatory.
    pub(crate) fn may_ever_be(&self) -> bool {
        self.word.density.p > 0
    }

    /// How many conforming requests come before the `nth` to come, counted from 0, that is mandatory at the earliest; none ever is
    /// if nothing is promised.
    pub(crate) fn before_mandatory(&self, nth: u64) -> u64 {
        let (p, q) = (u128::from(self.word.density.p), u128::from(self.word.density.q));
        let missing = (u128::from(nth) + 1) * q - u128::from(self.earned);
        missing.div_ceil(p.max(1)) as u64 - 1
    }

    /// The class of the next request. Outside an excess nothing is demoted: what the word is ahead is forgotten.
    pub(crate) fn next(&mut self, conforms: bool, excess: bool) -> Class {
        if !excess {
            self.word.remainder = self.word.remainder.min(self.earned);
        }
        let marked = self.word.next_is_mandatory();
        let (p, q) = (u64::from(self.word.density.p), u64::from(self.word.density.q));
        let earned = u64::from(self.earned) + if conforms { p } else { 0 };
        let mandatory = marked && earned >= q;
        self.earned = (if mandatory { earned - q } else { earned.min(q - 1) }) as u32;
        match (marked, mandatory) {
            (_, true) => Class::Mandatory,
            (true, false) => Class::Demoted,
            (false, false) => Class::Optional,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn the_word_is_the_formula_and_is_balanced((q, p) in (1u32..40).prop_flat_map(|q| (Just(q), 0..=q)), n in 1usize..60) {
            let density = Density::new(p, q).expect("p ≤ q");
            let mut word = BalancedWord::new(density);
            let letters: Vec<bool> = (0..200).map(|_| word.next_is_mandatory()).collect();
            for (i, &letter) in letters.iter().enumerate() {
                let floor = |k: usize| k as u64 * u64::from(p) / u64::from(q);
                prop_assert_eq!(letter, floor(i + 1) > floor(i));
            }
            for window in letters.windows(n) {
                let ones = window.iter().filter(|&&m| m).count() as u64;
                prop_assert!(ones >= n as u64 * u64::from(p) / u64::from(q));
                prop_assert!(ones <= density.ceil_of(n as u64));
            }
        }
    }

    proptest! {
        #[test]
        fn a_conforming_stream_never_has_demoted_requests(
            (q, p) in (1u32..12).prop_flat_map(|q| (Just(q), 0..=q)),
            excesses in proptest::collection::vec((proptest::collection::vec(any::<bool>(), 0..20), 0usize..60), 1..4),
        ) {
            let density = Density::new(p, q).expect("p ≤ q");
            let mut marks = Marks::new(density);
            let mut conforming = Vec::new();
            for (excess, after) in excesses {
                let mut marked = Vec::new();
                for conforms in excess {
                    let class = marks.next(conforms, true);
                    prop_assert!(conforms || class != Class::Mandatory);
                    marked.push(class != Class::Optional);
                    if conforms {
                        conforming.push(class == Class::Mandatory);
                    }
                }
                // In an excess the marks are as even over all requests as otherwise over those that conform.
                for n in 1..=marked.len() {
                    for window in marked.windows(n) {
                        let ones = window.iter().filter(|&&m| m).count() as u64;
                        prop_assert!((n as u64 * u64::from(p) / u64::from(q)..=density.ceil_of(n as u64)).contains(&ones));
                    }
                }
                let classes: Vec<_> = (0..after).map(|_| marks.next(true, false)).collect();
                prop_assert!(classes.iter().all(|&class| class != Class::Demoted));
                let mandatory: Vec<_> = classes.iter().map(|&class| class == Class::Mandatory).collect();
                for n in 1..=after {
                    let least = n as u64 * u64::from(p) / u64::from(q);
                    prop_assert!(mandatory.windows(n).all(|w| w.iter().filter(|&&m| m).count() as u64 >= least));
                }
                conforming.extend(mandatory);
            }
            // Whatever came, the promise counts on no more of those that conform than admission allowed for.
            for n in 1..=conforming.len() {
                let most = density.ceil_of(n as u64);
                prop_assert!(conforming.windows(n).all(|w| w.iter().filter(|&&m| m).count() as u64 <= most));
            }
        }
    }

    proptest! {
        #[test]
        fn a_word_that_goes_on_with_a_lesser_density_is_even_across_the_change(
            (q, p) in (1u32..12).prop_flat_map(|q| (Just(q), 0..=q)),
            (r, s) in (1u32..12).prop_flat_map(|r| (Just(r), 0..=r)),
            before in 0usize..30,
        ) {
            let (one, other) = (Density::new(p, q).expect("p ≤ q"), Density::new(s, r).expect("s ≤ r"));
            let (first, then) = (one.max(other), one.min(other));
            let mut marks = Marks::new(first);
            let is_mandatory = |marks: &mut Marks| marks.next(true, false) == Class::Mandatory;
            let mut letters: Vec<_> = (0..before).map(|_| is_mandatory(&mut marks)).collect();
            marks.change(then);
            letters.extend((0..30).map(|_| is_mandatory(&mut marks)));
            let (p, q) = (u64::from(then.numerator()), u64::from(then.denominator()));
            for n in 1..=letters.len() {
                let ones = |window: &[bool]| window.iter().filter(|&&m| m).count() as u64;
                prop_assert!(letters.windows(n).all(|window| ones(window) >= n as u64 * p / q));
                let after = &letters[before..];
                prop_assert!(after.windows(n.min(30)).all(|window| ones(window) <= then.ceil_of(window.len() as u64)));
            }
        }

        /// What is mandatory in a row across a change of density is no less than the two parts ask for together.
        #[test]
        fn a_word_goes_on_with_another_density(
            (q, p) in (1u32..40).prop_flat_map(|q| (Just(q), 1..=q)),
            (r, o) in (1u32..40).prop_flat_map(|r| (Just(r), 1..=r)),
            before in 0u64..60, skipped in 0u64..60,
        ) {
            let mut marks = Marks::new(Density::new(p, q).expect("p ≤ q"));
            let next = |marks: &mut Marks| u64::from(marks.next(true, false) == Class::Mandatory);
            for _ in 0..skipped {
                next(&mut marks);
            }
            let old: u64 = (0..before).map(|_| next(&mut marks)).sum();
            marks.change(Density::new(o, r).expect("o ≤ r"));
            let mut new = 0;
            for n in 1..60 {
                new += next(&mut marks);
                let (p, q, o, r) = (u64::from(p), u64::from(q), u64::from(o), u64::from(r));
                prop_assert!(old + new >= (before * p * r + n * o * q) / (q * r));
                prop_assert!(new <= (n * o).div_ceil(r));
            }
        }

        #[test]
        fn no_request_is_mandatory_before_its_number_can_be(
            (q, p) in (1u32..12).prop_flat_map(|q| (Just(q), 1..=q)),
            before in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..30),
            after in proptest::collection::vec(any::<bool>(), 1..60),
        ) {
            let mut marks = Marks::new(Density::new(p, q).expect("p ≤ q"));
            for (conforms, excess) in before {
                marks.next(conforms || !excess, excess);
            }
            let known = marks.clone();
            let mut nth = 0;
            for (conforming, excess) in after.into_iter().enumerate() {
                if marks.next(true, excess) == Class::Mandatory {
                    prop_assert!(known.before_mandatory(nth) <= conforming as u64);
                    nth += 1;
                }
            }
        }
    }

    #[test]
    fn densities_compare_as_fractions() {
        assert_eq!(Density::new(1, 2), Density::new(2, 4));
        assert!(Density::new(2, 3) > Density::new(3, 5));
        assert!(Density::new(3, 2).is_none() && Density::new(0, 0).is_none());
    }
}
