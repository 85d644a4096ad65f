//! Largest counts per batch time: Theorem B, and the two theorems of the seed paper it replaces.

use crate::constraint::Constraint;
use crate::word::Density;

/// Theorem B. With `L ≥ 2P`, `workers` workers and batches of `batch` that take `P`, the largest `N` such
/// that "at most `N` arrivals in any window of `P`" suffices to serve a share `density` of them in a
/// balanced pattern: `N* = floor(n·B·q/p)`. No policy on that hardware can promise `N* + 1`.
///
/// `None` for best effort (`density` 0), where nothing limits the rate.
#[must_use]
pub fn largest_count(workers: usize, batch: usize, density: Density) -> Option<u64> {
    let (p, q) = (u128::from(density.numerator()), u128::from(density.denominator()));
    let capacity = workers as u128 * batch as u128;
    let count = (capacity * q).checked_div(p)?;
    Some(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Theorem 1 of the spread-drop paper (Agelii, Zhang and Chang, section 4.1): `B(1+M)` requests per `P`
/// on one worker keep the misses in a row at `M`.
#[must_use]
pub fn seed_theorem_1(batch: usize, misses_in_a_row: u32) -> u64 {
    batch as u64 * (1 + u64::from(misses_in_a_row))
}

/// Theorem 2 of the spread-drop paper (section 4.2): `floor(B/(K-m))·K + (B mod (K-m))` requests per `P`
/// on one worker keep `(m,K)`. Never more than [`largest_count`]; needs `m < k`, else 0.
#[must_use]
pub fn seed_theorem_2(batch: usize, m: u32, k: u32) -> u64 {
    let (batch, hits) = (batch as u64, u64::from(k.saturating_sub(m)));
    batch.checked_div(hits).map_or(0, |rounds| rounds * u64::from(k) + batch % hits)
}

/// What the paper promises `constraint` on one worker: its Theorem 1 for misses in a row, else Theorem 2.
#[must_use]
pub fn seed_count(batch: usize, constraint: Constraint) -> u64 {
    let (m, k) = (constraint.misses(), constraint.window());
    if k == m + 1 { seed_theorem_1(batch, m) } else { seed_theorem_2(batch, m, k) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(batch: usize, m: u32, k: u32) -> u64 {
        let density = Constraint::any_miss(m, k).expect("valid").density();
        largest_count(1, batch, density).expect("a promise")
    }

    #[test]
    fn theorem_b_equals_theorem_1_and_is_never_below_theorem_2() {
        for batch in 1..=16 {
            for k in 1..=12 {
                assert_eq!(ours(batch, k - 1, k), seed_theorem_1(batch, k - 1));
                for m in 0..k {
                    assert!(ours(batch, m, k) >= seed_theorem_2(batch, m, k));
                }
            }
        }
    }

    #[test]
    fn the_examples_of_the_theory_page() {
        assert_eq!((ours(4, 5, 10), seed_theorem_2(4, 5, 10)), (8, 4));
        assert_eq!((ours(1, 8, 10), seed_theorem_2(1, 8, 10)), (5, 1));
        assert_eq!((ours(8, 5, 10), seed_theorem_2(8, 5, 10)), (16, 13));
        assert_eq!(largest_count(2, 4, Density::ZERO), None);
    }
}
