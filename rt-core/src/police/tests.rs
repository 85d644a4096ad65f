//! The arrival monitor against the definition of the curve, request by request.

extern crate std;
use super::*;
use crate::arrival::tests::bound;
use proptest::prelude::*;
use std::vec::Vec;

fn at(n: u64) -> Instant {
    Instant::from_nanos(n)
}

/// Whether `arrivals` satisfy `curve`: every half-open interval is counted.
pub(crate) fn satisfies(arrivals: &[u64], curve: &ArrivalCurve) -> bool {
    (0..arrivals.len()).all(|i| {
        (i..arrivals.len())
            .all(|j| (j - i + 1) as u64 <= curve.count(Span::from_nanos(arrivals[j] - arrivals[i] + 1)))
    })
}

pub(crate) fn curve() -> impl Strategy<Value = ArrivalCurve> {
    proptest::collection::vec(bound(), 1..=3).prop_map(|b| ArrivalCurve::new(&b).expect("1..=3"))
}

proptest! {
    #[test]
    fn an_excess_is_reported_exactly_at_the_first_breach(curve in curve(), gaps in proptest::collection::vec(0u64..8, 1..40)) {
        let mut police = Policer::new(&curve);
        let mut seen: Vec<u64> = Vec::new();
        let mut now = 0;
        for gap in gaps {
            now += gap;
            seen.push(now);
            let (conforms, excess) = police.observe(at(now), false);
            prop_assert_eq!(conforms, satisfies(&seen, &curve));
            prop_assert_eq!(excess.is_none(), conforms);
            if let Some(e) = excess {
                let inside = seen.iter().filter(|&&a| now - a < e.window.as_nanos()).count() as u64;
                prop_assert!(inside >= e.seen && e.seen > e.allowed);
                break;
            }
        }
    }

    #[test]
    fn from_the_earliest_instant_on_a_request_conforms_and_before_it_none_does(
        curve in curve(),
        gaps in proptest::collection::vec(0u64..8, 1..40),
        pause in 0u64..40,
    ) {
        let mut police = Policer::new(&curve);
        let mut now = 0;
        for gap in gaps {
            now += gap;
            police.observe(at(now), false);
        }
        let asked = at(now + pause);
        let excess = police.bounds.iter().any(|bound| bound.excess(asked).is_some());
        prop_assert_eq!(excess, asked < police.earliest());
    }

    /// Whoever sends as soon as it may, none of what comes conforms before; of one window, it does then.
    #[test]
    fn no_request_conforms_before_its_number_can(
        curve in curve(),
        gaps in proptest::collection::vec(0u64..8, 0..40),
        pauses in proptest::collection::vec(0u64..6, 1..30),
    ) {
        let mut police = Policer::new(&curve);
        let mut now = 0;
        for gap in gaps {
            now += gap;
            police.observe(at(now), false);
        }
        let (from, known, greedy) = (at(now), police.clone(), pauses.iter().all(|&pause| pause < 3));
        for (nth, pause) in pauses.into_iter().enumerate() {
            let least = known.nth(from, nth as u64);
            now = now.max(police.earliest().as_nanos()) + if greedy { 0 } else { pause };
            police.bounds.iter_mut().for_each(|bound| bound.count(at(now)));
            prop_assert!(least <= at(now));
            let exact = greedy && matches!(curve.bounds(), [ArrivalBound::Window { .. }]);
            prop_assert!(!exact || least == at(now));
        }
    }

    #[test]
    fn what_conforms_always_satisfies_the_curve(curve in curve(), gaps in proptest::collection::vec(0u64..5, 1..80)) {
        let mut police = Policer::new(&curve);
        let mut now = 0;
        let mut counted = Vec::new();
        for gap in gaps {
            now += gap;
            if police.observe(at(now), false).0 {
                counted.push(now);
            }
        }
        prop_assert!(satisfies(&counted, &curve));
    }
}

proptest! {
    #[test]
    fn what_is_early_within_the_tolerance_satisfies_the_wider_curve_and_its_own_when_it_conforms(
        curve in curve(),
        gaps in proptest::collection::vec(0u64..8, 1..80),
        tolerance in 1u64..9,
    ) {
        let mut police = Policer::new(&curve);
        let (mut now, mut came, mut conformed): (u64, Vec<u64>, Vec<u64>) = (0, Vec::new(), Vec::new());
        for gap in gaps {
            now += gap;
            let early = match police.observe_conforming(at(now)) {
                true => Span::ZERO,
                false => match police.observe_early(at(now), Span::from_nanos(tolerance)) {
                    Some(early) => early,
                    // It is early by more, and nothing is recorded of it.
                    None => {
                        prop_assert!(police.earliest() > at(now + tolerance));
                        continue;
                    }
                },
            };
            prop_assert!(early.as_nanos() <= tolerance);
            came.push(now);
            conformed.push(now + early.as_nanos());
        }
        prop_assert!(conformed.is_sorted());
        prop_assert!(satisfies(&conformed, &curve));
        let wider = |length: u64| curve.count(Span::from_nanos(length + tolerance));
        for (i, first) in came.iter().enumerate() {
            for (count, last) in (1..).zip(&came[i..]) {
                prop_assert!(count <= wider(last - first + 1));
            }
        }
    }
}

#[test]
fn earliness_does_not_add_up() {
    // One in 10, each 3 early: the third would be 9 early if each paid for the one before.
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, Span::from_nanos(10)).expect("valid")]);
    let mut police = Policer::new(&curve.expect("one"));
    let tolerance = Span::from_nanos(3);
    assert!(police.observe_conforming(at(0)));
    for n in 1..9 {
        assert!(!police.observe_conforming(at(10 * n - 3)));
        assert_eq!(police.observe_early(at(10 * n - 3), tolerance), Some(tolerance));
    }
    assert_eq!(police.observe_early(at(86), tolerance), None, "4 early");
    assert_eq!(police.observe_early(at(88), tolerance), Some(Span::from_nanos(2)));
    assert!(police.observe_conforming(at(100)));
    // In an excess none is.
    assert!(police.observe(at(101), false).1.is_some());
    assert_eq!(police.observe_early(at(108), tolerance), None);
}

#[test]
fn in_excess_conforming_requests_come_evenly() {
    let curve = ArrivalCurve::new(&[ArrivalBound::window(10, Span::from_nanos(100)).expect("valid")]);
    let mut police = Policer::new(&curve.expect("one"));
    // One and a half times the rate: after the first window two of three conform, none far apart.
    let conforming: Vec<bool> = (0..300).map(|i| police.observe(at(i * 20 / 3), false).0).collect();
    let steady = &conforming[60..];
    let share = steady.iter().filter(|&&c| c).count() as f64 / steady.len() as f64;
    assert!((0.62..=0.68).contains(&share), "{share}");
    assert!(steady.windows(3).all(|w| w.contains(&true)));
}

#[test]
fn entering_excess_after_a_long_burst_blocks_nobody_for_long() {
    // Period 100 with a jitter of eight periods, sent at 1.9 times the rate.
    let curve = ArrivalCurve::new(&[ArrivalBound::token_bucket(9, Span::from_nanos(100)).expect("valid")]);
    let mut police = Policer::new(&curve.expect("one"));
    let conforming: Vec<bool> = (0..2_000).map(|i| police.observe(at(i * 1_000 / 19), false).0).collect();
    let longest = conforming.split(|&c| c).map(<[bool]>::len).max();
    assert!(longest <= Some(2), "{longest:?} in a row did not conform");
}
