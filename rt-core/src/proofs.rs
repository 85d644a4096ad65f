//! Small facts that the rest builds on, each stated once: for `cargo kani -p rt-core` to prove, and for tests
//! to sample.
//!
//! A harness takes its values from a source. Under Kani each is any value of its range, and overflow and
//! panics count as failures too; under `cargo test` it is drawn. Ranges are narrowed only where a solver
//! would not come to an end.

use crate::arrival::{ArrivalBound, MAX_COUNT};
use crate::constraint::{Constraint, ConstraintSet, MAX_WINDOW};
use crate::outcome::OutcomeMonitor;
use crate::profile::LatencyProfile;
use crate::time::{MAX_SPAN, Span};
use crate::word::{BalancedWord, Density};

/// Where a harness takes its values from.
trait Values {
    /// A value in `low..=high`.
    fn within(&mut self, low: u64, high: u64) -> u64;

    fn small(&mut self, low: u32, high: u32) -> u32 {
        self.within(low.into(), high.into()) as u32
    }

    fn span(&mut self, low: u64, high: Span) -> Span {
        Span::from_nanos(self.within(low, high.as_nanos()))
    }
}

/// Each harness as a proof, its loops unrolled so many times, and as a test.
macro_rules! harnesses {
    ($($name:ident unwind $unwind:literal,)*) => {
        #[cfg(kani)]
        mod proved {
            extern crate kani;

            struct Any;

            impl super::Values for Any {
                fn within(&mut self, low: u64, high: u64) -> u64 {
                    kani::any_where(|value| (low..=high).contains(value))
                }
            }

            $(
                #[kani::proof]
                #[kani::unwind($unwind)]
                fn $name() {
                    super::$name(&mut Any);
                }
            )*
        }

        #[cfg(test)]
        mod sampled {
            extern crate std;
            use proptest::prelude::*;
            use std::vec::{IntoIter, Vec};

            /// Random bits, and how many to cut off, so that small values come as often as large ones.
            struct Drawn(IntoIter<(u64, u32)>);

            impl super::Values for Drawn {
                fn within(&mut self, low: u64, high: u64) -> u64 {
                    let (bits, cut) = self.0.next().expect("as many values as a harness takes");
                    low + (high - low).checked_add(1).map_or(bits >> cut, |n| (bits >> cut) % n)
                }
            }

            fn drawn() -> impl Strategy<Value = Drawn> {
                let values = proptest::collection::vec((any::<u64>(), 0u32..64), 24);
                values.prop_map(|values: Vec<_>| Drawn(values.into_iter()))
            }

            impl core::fmt::Debug for Drawn {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    self.0.as_slice().fmt(f)
                }
            }

            proptest! {
                $(
                    #[test]
                    fn $name(mut values in drawn()) {
                        super::$name(&mut values);
                    }
                )*
            }
        }
    };
}

harnesses! {
    constraints_are_what_they_say unwind 2,
    implication_is_a_preorder unwind 2,
    the_share_is_rounded_up unwind 2,
    the_word_is_balanced_in_every_window unwind 18,
    windows_never_fall unwind 2,
    periods_never_fall unwind 2,
    distances_never_fall unwind 5,
    windows_rise_where_they_say unwind 2,
    periods_rise_where_they_say unwind 2,
    distances_rise_where_they_say unwind 5,
    the_monitor_agrees_with_a_recount unwind 9,
    the_largest_batch_is_the_last_that_fits unwind 6,
}

fn constraint(values: &mut impl Values, longest: u32) -> Constraint {
    let k = values.small(1, longest);
    Constraint::any_miss(values.small(0, k - 1), k).expect("m < k")
}

fn constraints_are_what_they_say(values: &mut impl Values) {
    let (x, k) = (values.small(0, u32::MAX), values.small(0, u32::MAX));
    let fits = (1..=MAX_WINDOW).contains(&k);
    let told = |c: Constraint| (c.misses(), c.window());
    assert_eq!(Constraint::any_miss(x, k).ok().map(told), (fits && x < k).then_some((x, k)));
    let (row, fits_row) = (Constraint::row_miss(x).ok(), x < MAX_WINDOW);
    assert_eq!(row.map(told), fits_row.then(|| (x, x + 1)));
    let hits = fits && (1..=k).contains(&x);
    assert_eq!(Constraint::any_hit(x, k).ok().map(told), hits.then(|| (k - x, k)));
    assert_eq!(Constraint::row_hit(x, k).ok().map(told), hits.then(|| (k / x - 1, k)));
}

fn implication_is_a_preorder(values: &mut impl Values) {
    let [a, b, c] = [(); 3].map(|()| constraint(values, MAX_WINDOW));
    assert!(a.implies(a));
    assert!(!(a.implies(b) && b.implies(c)) || a.implies(c));
    assert!(!a.implies(b) || a.density() >= b.density());
}

fn the_share_is_rounded_up(values: &mut impl Values) {
    let q = values.small(1, MAX_WINDOW);
    let p = values.small(0, q);
    let count = values.within(0, u64::MAX);
    let share = Density::new(p, q).expect("p ≤ q").ceil_of(count);
    let (whole, exact) = (u128::from(share) * u128::from(q), u128::from(count) * u128::from(p));
    assert!(share <= count && whole >= exact && whole - exact < u128::from(q));
}

fn the_word_is_balanced_in_every_window(values: &mut impl Values) {
    let q = values.small(1, 8);
    let density = Density::new(values.small(0, q), q).expect("p ≤ q");
    let (before, length) = (values.small(0, 8), values.small(0, 8));
    let mut word = BalancedWord::new(density);
    let letter = |i| u64::from(word.next_is_mandatory() && i >= before);
    let ones: u64 = (0..before + length).map(letter).sum();
    let length = u64::from(length);
    let floor = length * u64::from(density.numerator()) / u64::from(q);
    assert!(floor <= ones && ones <= density.ceil_of(length));
}

fn window(values: &mut impl Values) -> ArrivalBound {
    ArrivalBound::window(values.within(1, MAX_COUNT), values.span(1, MAX_SPAN)).expect("valid")
}

fn periodic(values: &mut impl Values) -> ArrivalBound {
    let period = values.span(1, MAX_SPAN);
    let most = MAX_SPAN.as_nanos().min(period.as_nanos() * MAX_COUNT - 1);
    ArrivalBound::periodic(period, values.span(0, Span::from_nanos(most))).expect("valid")
}

fn distances(values: &mut impl Values) -> ArrivalBound {
    let last = values.span(1, MAX_SPAN);
    let middle = values.span(0, last);
    ArrivalBound::distances(&[values.span(0, middle), middle, last]).expect("valid")
}

fn never_falls(bound: &ArrivalBound, values: &mut impl Values) {
    let long = Span::from_nanos(values.within(0, u64::MAX));
    let short = values.span(0, long);
    assert!(bound.count(short) <= bound.count(long));
    assert_eq!(bound.count(short) == 0, short == Span::ZERO);
}

fn windows_never_fall(values: &mut impl Values) {
    never_falls(&window(values), values);
}

fn periods_never_fall(values: &mut impl Values) {
    never_falls(&periodic(values), values);
}

fn distances_never_fall(values: &mut impl Values) {
    never_falls(&distances(values), values);
}

/// The next rise is one, and nothing rises before it. Up to 64 of the longest spans no count reaches 2⁶⁴.
fn rises_where_it_says(bound: &ArrivalBound, values: &mut impl Values) {
    let length = values.span(1, Span::from_nanos(64 * MAX_SPAN.as_nanos()));
    let rise = bound.length_above(bound.count(length));
    let before = rise.saturating_sub(Span::from_nanos(1));
    assert!(rise > length && bound.count(before) == bound.count(length));
    assert!(bound.count(rise) > bound.count(before));
}

fn windows_rise_where_they_say(values: &mut impl Values) {
    rises_where_it_says(&window(values), values);
}

fn periods_rise_where_they_say(values: &mut impl Values) {
    rises_where_it_says(&periodic(values), values);
}

fn distances_rise_where_they_say(values: &mut impl Values) {
    rises_where_it_says(&distances(values), values);
}

fn the_monitor_agrees_with_a_recount(values: &mut impl Values) {
    let c = constraint(values, 4);
    let mut monitor = OutcomeMonitor::new(ConstraintSet::new(&[c]).expect("one"));
    // The latest outcome in bit 0, a miss as 1; what came before counts as hits.
    let mut misses = 0u32;
    for _ in 0..8 {
        let miss = values.small(0, 1);
        misses = misses << 1 | miss;
        let recount = (misses & ((1 << c.window()) - 1)).count_ones();
        let violated = monitor.record(miss == 0);
        assert_eq!(violated, (miss == 1 && recount > c.misses()).then_some(c));
    }
}

fn the_largest_batch_is_the_last_that_fits(values: &mut impl Values) {
    let mut times = [Span::ZERO; 4];
    let mut least = 1;
    for time in &mut times {
        *time = values.span(least, MAX_SPAN);
        least = time.as_nanos();
    }
    let profile = LatencyProfile::new(&times).expect("never decreases");
    let (within, limit) = (Span::from_nanos(values.within(0, u64::MAX)), values.small(0, 6) as usize);
    let largest = profile.largest_within(within, limit);
    assert!(largest <= limit.min(4));
    assert!(largest == 0 || profile.bound(largest) <= within);
    assert!(largest == limit.min(4) || profile.bound(largest + 1) > within);
}
