//! The same streams, faster or in larger bursts: whole nanoseconds and requests, rounded towards more load.

use rt_core::{ArrivalBound, ArrivalCurve, MAX_SPAN, Span, StreamSpec};

/// The factor 1: scales are counted in thousandths.
pub(super) const ONE: u64 = 1000;

/// `spec` sent `scale` thousandths times as fast: all lengths divided by that. `None` if a length would be below
/// 1 ns. The larger `scale`, the larger the curve, everywhere.
pub(super) fn faster(spec: &StreamSpec, scale: u64) -> Option<StreamSpec> {
    scaled(spec, |bound| match bound {
        &ArrivalBound::Window { count, length } => {
            ArrivalBound::window(count, span(ratio(length, ONE, scale))).ok()
        }
        &ArrivalBound::Periodic { period, jitter } => {
            // The jitter keeps its share of the period, rounded up, and must stay in its range.
            let (old, late) = (period.as_nanos(), jitter.as_nanos());
            let most = ratio(MAX_SPAN, old, late.max(1));
            let new = ratio(period, ONE, scale).min(most).min(u128::from(MAX_SPAN.as_nanos()));
            let late = (u128::from(late) * new).div_ceil(u128::from(old));
            ArrivalBound::periodic(span(new), span(late)).ok()
        }
        ArrivalBound::Distances(list) => {
            let nearer = |d: &Span| span(ratio(*d, ONE, scale));
            ArrivalBound::distances(&list.as_slice().iter().map(nearer).collect::<Vec<_>>()).ok()
        }
    })
}

/// `spec` in bursts of `scale` thousandths times as many requests at the same rate: `α(Δ)` becomes
/// `k·α(Δ/k)`, or a little more. `None` if a value leaves its range.
pub(super) fn burstier(spec: &StreamSpec, scale: u64) -> Option<StreamSpec> {
    scaled(spec, |bound| match bound {
        &ArrivalBound::Window { count, length } => {
            let more = (count * scale).div_ceil(ONE);
            ArrivalBound::window(more, span(ratio(length, more, count))).ok()
        }
        &ArrivalBound::Periodic { period, jitter } => {
            // A bucket of `1 + jitter/period` tokens.
            let tokens = (u128::from((period + jitter).as_nanos()) * u128::from(scale)).div_ceil(ONE.into());
            let late = tokens.saturating_sub(u128::from(period.as_nanos()));
            ArrivalBound::periodic(period, Span::from_nanos(u64::try_from(late).ok()?)).ok()
        }
        // A list is what it is: it has no burst to scale.
        ArrivalBound::Distances(_) => None,
    })
}

fn scaled(spec: &StreamSpec, one: impl Fn(&ArrivalBound) -> Option<ArrivalBound>) -> Option<StreamSpec> {
    let Some(curve) = spec.arrivals() else { return Some(spec.clone()) };
    let bounds: Option<Vec<_>> = curve.bounds().iter().map(one).collect();
    Some(StreamSpec::promised(spec.constraints().clone(), ArrivalCurve::new(&bounds?).ok()?))
}

/// `length · up / down`, rounded down.
fn ratio(length: Span, up: u64, down: u64) -> u128 {
    u128::from(length.as_nanos()) * u128::from(up) / u128::from(down)
}

/// A window or period, at most the longest one: shorter ones allow more.
fn span(nanos: u128) -> Span {
    u64::try_from(nanos).map_or(MAX_SPAN, |n| Span::from_nanos(n).min(MAX_SPAN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rt_core::ConstraintSet;

    fn ns(n: u64) -> Span {
        Span::from_nanos(n)
    }

    fn spec() -> impl Strategy<Value = StreamSpec> {
        let bound = prop_oneof![
            (1u64..9, 1u64..5000).prop_map(|(n, w)| ArrivalBound::window(n, ns(w)).expect("valid")),
            // At most 10 000 tokens: six times as many are still within the largest burst.
            (1u64..5000, 0u64..20_000)
                .prop_map(|(t, j)| ArrivalBound::periodic(ns(t), ns(j.min(9_999 * t))).expect("valid")),
        ];
        proptest::collection::vec(bound, 1..3).prop_map(|bounds| {
            StreamSpec::promised(ConstraintSet::default(), ArrivalCurve::new(&bounds).expect("few"))
        })
    }

    fn count(spec: &StreamSpec, length: u64) -> u64 {
        spec.arrivals().expect("declared").count(ns(length))
    }

    proptest! {
        #[test]
        fn faster_is_never_less_than_exact_scaling_and_rises_with_the_scale(
            spec in spec(), scale in 1u64..5000, more in 0u64..500, length in 1u64..20_000,
        ) {
            prop_assert_eq!(faster(&spec, ONE), Some(spec.clone()));
            if let Some(fast) = faster(&spec, scale) {
                // α(λΔ), with the interval rounded up to whole nanoseconds only where that cannot matter.
                let exact = count(&spec, length * scale / ONE);
                prop_assert!(count(&fast, length) >= exact);
                if let Some(faster) = faster(&spec, scale + more) {
                    prop_assert!(count(&faster, length) >= count(&fast, length));
                }
            }
        }

        #[test]
        fn bursts_grow_at_the_same_rate(spec in spec(), k in 1u64..6, length in 1u64..20_000) {
            prop_assert_eq!(burstier(&spec, ONE), Some(spec.clone()));
            let larger = burstier(&spec, k * ONE).expect("small");
            prop_assert!(count(&larger, k * length) >= k * count(&spec, length));
            let (before, after) = (spec.arrivals().expect("declared"), larger.arrivals().expect("declared"));
            prop_assert!((before.rate_per_s() / after.rate_per_s() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_bucket_stays_a_bucket() {
        let bucket = |burst, period| ArrivalBound::token_bucket(burst, ns(period)).expect("valid");
        let of =
            |bound| StreamSpec::promised(ConstraintSet::default(), ArrivalCurve::new(&[bound]).expect("one"));
        assert_eq!(faster(&of(bucket(5, 900)), 3 * ONE), Some(of(bucket(5, 300))));
        assert_eq!(burstier(&of(bucket(5, 900)), 3 * ONE), Some(of(bucket(15, 900))));
        assert_eq!(burstier(&of(bucket(5, 900)), 1), Some(of(bucket(1, 900))));
    }

    #[test]
    fn what_leaves_its_range_is_cut_towards_more_load_or_refused() {
        let of =
            |bound| StreamSpec::promised(ConstraintSet::default(), ArrivalCurve::new(&[bound]).expect("one"));
        let hour = of(ArrivalBound::token_bucket(10, ns(MAX_SPAN.as_nanos() / 10)).expect("valid"));
        let slow = faster(&hour, 1).expect("cut");
        assert!(count(&slow, 1) >= 10);
        assert_eq!(faster(&of(ArrivalBound::window(1, ns(1)).expect("valid")), ONE + 1), None);
        assert_eq!(burstier(&of(ArrivalBound::window(1 << 16, ns(9)).expect("valid")), ONE + 1), None);
    }
}
