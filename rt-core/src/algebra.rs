//! The order of weakly-hard constraints: which follow from others, and which one decides what must be served.

use core::fmt;

use crate::constraint::{Constraint, ConstraintSet};

/// Why a constraint of a set is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No other one of the set implies it and none is denser: its density is the share that must be served.
    Binds,
    /// Whatever keeps this other one of the set keeps it too.
    ImpliedBy(Constraint),
    /// No single other one implies it. The balanced word of the binding density, which is larger, keeps it.
    Covered,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Binds => f.write_str("binds"),
            Self::ImpliedBy(other) => write!(f, "is implied by {other}"),
            Self::Covered => f.write_str("is kept by the balanced word of the binding density"),
        }
    }
}

impl Constraint {
    /// Whether every endless sequence of outcomes that keeps `self` keeps `other` too: Bernat et al.'s
    /// "harder than" (2001, "any n in m").
    ///
    /// Exact. Let `self` be `(m, K)` and `other` be `(m', K')`, with `K' = q·K + r` and `0 ≤ r < K`. Any `K'`
    /// consecutive requests are `q` windows of `K` with at most `m` misses each, and `r` requests inside one
    /// more window, so with at most `min(m, r)`. The sequence that misses the first `m` of every `K` reaches
    /// both at once, and it keeps `(m, K)` because every window of `K` is a rotation of its period.
    #[must_use]
    pub const fn implies(self, other: Self) -> bool {
        let (whole, rest) = (other.window() / self.window(), other.window() % self.window());
        let partial = if rest < self.misses() { rest } else { self.misses() };
        whole * self.misses() + partial <= other.misses()
    }
}

impl ConstraintSet {
    /// The constraints in the order given, each with its standing in the set.
    ///
    /// An implied one names a constraint that is not implied itself, so there are no chains to follow. Of
    /// constraints that say the same, the first stands for all. At least one of a set that is not empty
    /// binds; several do if they have the same density and none implies another.
    pub fn standings(&self) -> impl Iterator<Item = (Constraint, Standing)> + '_ {
        self.as_slice().iter().enumerate().map(|(i, &c)| (c, self.standing(i)))
    }

    fn standing(&self, i: usize) -> Standing {
        let all = self.as_slice();
        let undercut = |i: usize| (0..all.len()).any(|j| self.stands_for(j, i));
        match (0..all.len()).find(|&j| self.stands_for(j, i) && !undercut(j)) {
            Some(j) => Standing::ImpliedBy(all[j]),
            None if all[i].density() == self.density() => Standing::Binds,
            None => Standing::Covered,
        }
    }

    /// A strict order: `j` implies `i`, and where `i` implies `j` as well, `j` was given first.
    fn stands_for(&self, j: usize, i: usize) -> bool {
        let all = self.as_slice();
        j != i && all[j].implies(all[i]) && (j < i || !all[i].implies(all[j]))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn any(m: u32, k: u32) -> Constraint {
        Constraint::any_miss(m, k).expect("m < k")
    }

    fn up_to(k: u32) -> impl Iterator<Item = Constraint> {
        (1..=k).flat_map(|k| (0..k).map(move |m| any(m, k)))
    }

    /// Whether the last `len` outcomes (bit 0 the latest, 1 a miss) keep `c` in every whole window of them.
    fn keeps(misses: u32, len: u32, c: Constraint) -> bool {
        let window = (1 << c.window()) - 1;
        (0..=len.saturating_sub(c.window())).all(|i| (misses >> i & window).count_ones() <= c.misses())
    }

    #[test]
    fn implication_is_exact_over_every_sequence() {
        // A sequence that keeps a constraint goes on for ever with hits, so short ones are enough: one of
        // length K' is a window of the other. It stands between hits, so short windows count as whole ones.
        for a in up_to(6) {
            for b in up_to(11) {
                let long = b.window() + 2 * a.window();
                let escapes = (0u32..1 << b.window())
                    .map(|bits| bits << a.window())
                    .find(|&bits| keeps(bits, long, a) && bits.count_ones() > b.misses());
                assert_eq!(a.implies(b), escapes.is_none(), "{a} and {b}: {escapes:?}");
            }
        }
    }

    #[test]
    fn implication_is_the_theorem_in_hits() {
        // Bernat et al. state it for hits: "any n in m" is harder than "any p in q" if and only if
        // p ≤ max(floor(q/m)·n, q + ceil(q/m)·(n - m)).
        for a in up_to(20) {
            for b in up_to(20) {
                let [n, m, p, q] = [a.hits(), a.window(), b.hits(), b.window()].map(i64::from);
                let hits = (q / m * n).max(q + (q + m - 1) / m * (n - m));
                assert_eq!(a.implies(b), p <= hits, "{a} and {b}");
            }
        }
    }

    #[test]
    fn the_largest_constraints_do_not_overflow() {
        let top = crate::MAX_WINDOW;
        assert!(any(0, 1).implies(any(0, top)) && any(0, top).implies(any(top - 1, top)));
        assert!(any(top - 1, top).implies(any(top - 1, top)) && !any(1, 2).implies(any(top / 2 - 1, top)));
    }

    proptest! {
        #[test]
        fn every_constraint_has_one_standing_and_the_named_one_stands(
            pairs in proptest::collection::vec((1u32..9).prop_flat_map(|k| (0..k, Just(k))), 1..=8),
        ) {
            let list: Vec<_> = pairs.iter().map(|&(m, k)| any(m, k)).collect();
            let set = ConstraintSet::new(&list).expect("few");
            let standings: Vec<_> = set.standings().collect();
            prop_assert!(standings.iter().map(|s| s.0).eq(list.iter().copied()));
            prop_assert!(standings.iter().any(|s| s.1 == Standing::Binds));
            for (i, &(c, standing)) in standings.iter().enumerate() {
                let earlier = || list[..i].iter().any(|o| o.implies(c));
                match standing {
                    Standing::ImpliedBy(by) => {
                        prop_assert!(by.implies(c));
                        let stands = |s: &&(Constraint, Standing)| s.0 == by && !matches!(s.1, Standing::ImpliedBy(_));
                        prop_assert_eq!(standings.iter().filter(stands).count(), 1);
                    }
                    Standing::Binds => {
                        prop_assert_eq!(c.density(), set.density());
                        prop_assert!(!earlier());
                    }
                    Standing::Covered => {
                        prop_assert!(c.density() < set.density());
                        prop_assert!(!earlier() && list.iter().all(|o| !o.implies(c) || c.implies(*o)));
                    }
                }
            }
        }
    }

    #[test]
    fn standings_read_well() {
        let set = ConstraintSet::new(&[any(5, 10), any(2, 3), any(5, 9), any(5, 10)]).expect("four");
        let lines: Vec<_> = set.standings().map(|(c, s)| std::format!("{c} {s}")).collect();
        let covered = "is kept by the balanced word of the binding density";
        assert_eq!(lines[0], "any_miss(5,10) binds");
        assert_eq!(lines[1], std::format!("any_miss(2,3) {covered}"));
        assert_eq!(
            lines[2..],
            ["any_miss(5,9) is implied by any_miss(5,10)", "any_miss(5,10) is implied by any_miss(5,10)"]
        );
        assert_eq!(ConstraintSet::default().standings().count(), 0);
        assert_eq!(Standing::Binds.to_string(), "binds");
    }
}
