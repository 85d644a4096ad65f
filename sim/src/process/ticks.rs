//! Time inside a generator: nanoseconds with 64 binary places, so that sums neither drift nor round.

use rt_core::Instant;

/// An instant or a length of time, in nanoseconds · 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticks(u128);

/// Nanoseconds that no clock holds.
const BEYOND: f64 = 18_446_744_073_709_551_616.0;

impl Ticks {
    pub(super) const ZERO: Self = Self(0);
    pub(super) const MAX: Self = Self(u128::MAX);

    /// That many nanoseconds, rounded down; `None` if the clock does not hold them.
    #[inline]
    pub(super) fn of_nanos(nanos: f64) -> Option<Self> {
        if !(0.0..BEYOND).contains(&nanos) {
            return None;
        }
        // The 53 bits of the number, of which the last counts 2^(exponent - 1075), in their place.
        let (exponent, rest) = (nanos.to_bits() >> 52 & 0x7ff, nanos.to_bits() & ((1 << 52) - 1));
        let bits = u128::from(1 << 52 | rest);
        Some(Self(match exponent.checked_sub(1075 - 64) {
            Some(places) => bits << places,
            None => bits.checked_shr((1075 - 64 - exponent) as u32).unwrap_or(0),
        }))
    }

    /// `self + span`; `None` beyond the clock.
    pub(super) fn after(self, span: Self) -> Option<Self> {
        self.0.checked_add(span.0).map(Self)
    }

    /// `self + span`, or the end of the clock.
    pub(super) fn after_or_end(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// `self · count`; `None` beyond the clock.
    pub(super) fn times(self, count: u64) -> Option<Self> {
        self.0.checked_mul(u128::from(count)).map(Self)
    }

    /// `self · share / 2^64`, rounded down: below `self`, unless that is zero.
    pub(super) fn part(self, share: u64) -> Self {
        let (whole, rest) = (self.0 >> 64, u128::from(self.0 as u64));
        Self(whole * u128::from(share) + ((rest * u128::from(share)) >> 64))
    }

    /// The instant, rounded down to nanoseconds.
    pub(super) fn instant(self) -> Instant {
        Instant::from_nanos((self.0 >> 64) as u64)
    }
}

/// `nanos` to 48 significant bits, so that a time which is a whole number of nanoseconds (up to three days) is that
/// again after a division or two, and its multiples are.
pub(super) fn tidy(nanos: f64) -> f64 {
    f64::from_bits((nanos.to_bits() + 16) & !31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nanoseconds_are_kept_exactly(nanos: u64, rest in 0u64..1 << 20) {
            let nanos = nanos >> 31;
            let given = nanos as f64 + rest as f64 / f64::from(1 << 20);
            let ticks = Ticks::of_nanos(given).expect("inside the clock");
            prop_assert_eq!(ticks.0, u128::from(nanos) << 64 | u128::from(rest) << 44);
            prop_assert_eq!(ticks.instant().as_nanos(), nanos);
        }

        #[test]
        fn any_float_is_its_whole_part_and_the_rest(bits in 0u64..0x43f0_0000_0000_0000) {
            let nanos = f64::from_bits(bits);
            let whole = nanos as u64;
            let rest = ((nanos - whole as f64) * BEYOND) as u64;
            prop_assert_eq!(Ticks::of_nanos(nanos), Some(Ticks(u128::from(whole) << 64 | u128::from(rest))));
        }

        #[test]
        fn floats_like_gaps_are_too(nanos in 0.0..1e10) {
            let whole = nanos as u64;
            let rest = ((nanos - whole as f64) * BEYOND) as u64;
            prop_assert_eq!(Ticks::of_nanos(nanos), Some(Ticks(u128::from(whole) << 64 | u128::from(rest))));
        }

        #[test]
        fn a_part_is_the_exact_product(ticks: u128, share: u64, places in 0u32..64) {
            prop_assert_eq!(Ticks(ticks).part(1 << places).0, ticks >> (64 - places));
            let short = ticks >> 64;
            prop_assert_eq!(Ticks(short).part(share).0, (short * u128::from(share)) >> 64);
            prop_assert!(Ticks(ticks).part(share).0 < ticks.max(1));
        }

        #[test]
        fn whole_periods_come_back_from_their_rates(period in 1u64..1 << 47) {
            let rate = 1e9 / period as f64;
            prop_assert_eq!(tidy(1e9 / rate), period as f64);
            prop_assert_eq!(tidy(1.0 / (rate / 1e9)), period as f64);
        }
    }

    #[test]
    fn what_no_clock_holds_is_none() {
        for nanos in [-1.0, f64::NAN, f64::INFINITY, BEYOND] {
            assert_eq!(Ticks::of_nanos(nanos), None, "{nanos}");
        }
        assert_eq!(Ticks::MAX.after(Ticks(1)), None);
        assert_eq!(Ticks::MAX.after_or_end(Ticks(1)), Ticks::MAX);
        assert_eq!(Ticks::of_nanos(1e18).and_then(|ticks| ticks.times(20)), None);
        assert_eq!(Ticks::MAX.instant().as_nanos(), u64::MAX);
    }
}
