//! Clusters: nothing is lost or answered twice, nobody does more than its devices can, and allocations differ where they must.

use rt_core::{Instant, Span};

use super::allocate::Allocator;
use super::{Allocation, Cluster, Told};
use crate::policy::PolicyKind;
use placement::Problem;

/// Two services of a quick and a good variant each, on two quick devices and two slow ones: a quick one does 500 a second with
/// the quick variant one by one and 800 in fours, 100 and 160 with the good one; a slow one a quarter of that.
fn cluster(load: u64) -> Cluster {
    let times = |one: f64| {
        format!(
            r#"{{"fast": {{"1": {one}, "4": {}}}, "slow": {{"1": {}, "4": {}}}}}"#,
            2.5 * one,
            4.0 * one,
            10.0 * one
        )
    };
    let variants = format!(
        r#"[{{"name": "quick", "accuracy": 60, "time": {}}}, {{"name": "good", "accuracy": 100, "time": {}}}]"#,
        times(2.0),
        times(10.0)
    );
    let service =
        |name: &str| format!(r#"{{"name": "{name}", "demand": 1, "deadline": 250, "variants": {variants}}}"#);
    let text = format!(
        r#"{{"devices": {{"fast": 2, "slow": 2}}, "services": [{}, {}]}}"#,
        service("a"),
        service("b")
    );
    Cluster {
        problem: Problem::parse(&text).expect("a problem"),
        period: Span::from_millis(10_000),
        soonest: Span::from_millis(2_000),
        margin: 1.1,
        load: Span::from_millis(load),
    }
}

/// So many a second of each service, from second to second.
fn even(seconds: &[[u64; 2]]) -> Vec<(Instant, usize)> {
    let mut all = Vec::new();
    for (second, rates) in seconds.iter().enumerate() {
        for (service, &rate) in rates.iter().enumerate() {
            let at = |i| Instant::from_nanos(second as u64 * 1_000_000_000 + i * 1_000_000_000 / rate);
            all.extend((0..rate).map(|i| (at(i), service)));
        }
    }
    all.sort_unstable();
    all
}

fn play(cluster: &Cluster, kind: Allocation, batching: PolicyKind, seconds: &[[u64; 2]]) -> Told {
    let arrivals = even(seconds);
    let mean = |s: usize| seconds.iter().map(|rates| rates[s]).sum::<u64>() as f64 / seconds.len() as f64;
    let demand = [mean(0), mean(1)];
    let told = cluster.play((kind, batching), &demand, arrivals.clone(), |_, _, bound| bound);
    let told = told.expect("in order");
    assert_eq!(told.total().arrived, arrivals.len() as u64, "{kind:?}, {batching:?}: each ends once");
    assert!(told.total().served <= told.total().arrived);
    told
}

fn by(kind: Allocation, seconds: &[[u64; 2]]) -> Told {
    play(&cluster(0), kind, kind.batching(), seconds)
}

fn everyone() -> Vec<Allocation> {
    let mut all = Allocation::OTHERS.to_vec();
    all.push(Allocation::Best);
    all
}

#[test]
fn each_request_ends_once_and_nobody_does_more_than_the_devices_can() {
    // The devices carry 2·800 + 2·200 of the quick variant.
    for rates in [[20, 20], [300, 100]] {
        for kind in everyone() {
            let told = by(kind, &[rates; 12]);
            assert!(told.batch() <= 4.0 && (0.0..=1.0).contains(&told.in_use()));
        }
    }
    let told = by(Allocation::ClipperHt, &[[3_000, 500]; 4]);
    assert!(told.total().served as f64 <= 2_000.0 * 4.5);
    for batching in
        [PolicyKind::Proteus, PolicyKind::Nexus, PolicyKind::Clipper, PolicyKind::Edf, PolicyKind::Weir]
    {
        play(&cluster(500), Allocation::Best, batching, &[[300, 100], [40, 300], [300, 100], [300, 100]]);
    }
}

#[test]
fn seats_are_as_many_as_devices_and_are_asked_for_no_more_than_they_serve() {
    for rates in [[20.0, 20.0], [300.0, 100.0], [850.0, 850.0]] {
        for kind in everyone() {
            let mut allocator = Allocator::new(&cluster(0), kind, &[100.0, 100.0]);
            for _ in 0..2 {
                for class in 0..2 {
                    let held = allocator.seats.iter().filter(|seat| seat.class == class).count();
                    assert!(held <= 2, "{kind:?}, {rates:?}: {held} of class {class}");
                }
                let over = allocator.seats.iter().find(|seat| seat.rate > seat.peak * (1.0 + 1e-6));
                assert!(over.is_none() || kind == Allocation::Infaas, "{kind:?}, {rates:?}: {over:?}");
                allocator.decide(&rates);
            }
        }
    }
}

#[test]
fn little_demand_is_answered_as_well_as_can_be_and_much_by_what_is_quick() {
    let little = by(Allocation::Best, &[[30, 30]; 20]);
    assert!(little.total().misses() < 0.01 && little.largest_drop() < 1e-9, "{:?}", little.total());
    let quick = by(Allocation::ClipperHt, &[[30, 30]; 20]);
    assert!((quick.total().accuracy_of_served() - 0.6).abs() < 1e-9);
    // 2·160 + 2·40 of the good variant: half of this.
    let much = [[400, 400]; 30];
    let (best, good) = (by(Allocation::Best, &much), by(Allocation::NoSelection, &much));
    assert!(best.total().misses() < 0.02, "{:?}", best.total());
    assert!(good.total().misses() > 0.4 && good.largest_drop() < 1e-9, "{:?}", good.total());
    assert!((0.6..0.95).contains(&best.total().accuracy_of_served()));
    let one = by(Allocation::NoBatching, &[[700, 700]; 15]);
    assert!(one.total().served < by(Allocation::Best, &[[700, 700]; 15]).total().served);
}

#[test]
fn who_does_not_place_anew_loses_when_demand_swaps() {
    let mut seconds = vec![[1_100, 20]; 25];
    seconds.extend([[20, 1_100]; 25]);
    let [best, fixed] = [Allocation::Best, Allocation::NoPlacement].map(|kind| {
        // It is known at the beginning what comes first.
        let told =
            cluster(0).play((kind, kind.batching()), &[1_100.0, 20.0], even(&seconds), |_, _, bound| bound);
        told.expect("in order").total()
    });
    assert!(best.misses() + 0.1 < fixed.misses(), "{best:?} beside {fixed:?}");
}

#[test]
fn requests_spread_evenly_over_uneven_devices_are_late() {
    let [best, even] =
        [Allocation::Best, Allocation::NoAssignment].map(|kind| by(kind, &[[850, 850]; 20]).total());
    assert!(best.misses() + 0.05 < even.misses(), "{best:?} beside {even:?}");
}

#[test]
fn a_device_that_loads_answers_nothing() {
    let mut seconds = vec![[600, 20]; 15];
    seconds.extend([[20, 600]; 15]);
    let [at_once, slow] = [0, 3_000]
        .map(|load| play(&cluster(load), Allocation::Best, PolicyKind::Proteus, &seconds).total().served);
    assert!(slow < at_once, "{slow} beside {at_once}");
}
