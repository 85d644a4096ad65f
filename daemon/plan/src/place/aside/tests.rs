//! Tests of where to stand aside: held against every place at which the promise is kept.

use rt_core::Instant;

use super::super::judge::after;
use super::super::staged::used;
use super::super::tests::{LIMIT, load, site};
use super::*;

/// A detector whose results are read, on two classes.
const PIPELINE: &str = r#"
    [daemon]
    realtime = false
    [placement]
    [[placement.class]]
    name = "fast"
    engine = "simulated"
    cores = [0, 1, 2]
    [[placement.class]]
    name = "slow"
    engine = "simulated"
    count = 3
    [[pipeline]]
    name = "meter"
    deadline = "120ms"
    guard = "2ms"
    demand = 80.0
    [[pipeline.stream]]
    name = "cam"
    constraints = [{ any-miss = { m = 1, k = 5 } }]
    arrivals = [{ periodic = { period = "25ms", jitter = "20ms" } }]
    [[pipeline.stage]]
    name = "detect"
    handover = "0ms"
    simulated.input = 4
    simulated.output = 4
    simulated.models = [
        { accuracy = 0.7, times = { fast = ["5ms", "8ms"], slow = ["30ms"] } },
        { accuracy = 0.9, times = { fast = ["20ms", "30ms"] } },
    ]
    [[pipeline.stage]]
    name = "read"
    after = "detect"
    fan-out = 3
    mean = 1.5
    handover = "0ms"
    adapter = { each = { scores = "output", threshold = 0.5 }, inputs.input = { pass = "source.input" } }
    simulated.input = 4
    simulated.output = 4
    simulated.models = [
        { accuracy = 0.8, times = { fast = ["3ms", "4ms", "5ms"], slow = ["9ms", "14ms", "20ms"] } },
        { accuracy = 0.95, times = { fast = ["12ms", "17ms", "22ms"] } },
    ]
"#;

/// Whether the whole file can be served with the pipeline there.
fn keeps(site: &Site, placed: &[Placed]) -> bool {
    let part = |placed: &Placed| Part {
        placed: placed.clone(),
        units: (0..placed.devices).collect(),
        shares: Vec::new(),
        busy: Vec::new(),
    };
    let spot = Spot { accuracy: 0.0, parts: placed.iter().map(part).collect() };
    site.complete(&[Some(spot)]).is_ok()
}

/// What every place of the pipeline needs of each class at which its promise is kept.
fn every(site: &Site) -> Vec<Vec<usize>> {
    let one = |stage: usize| {
        let of = site.config().services[0].stages[stage].runs.candidates.as_ref().expect("it is placed");
        let all =
            of.classes.iter().flat_map(move |&class| (0..of.models.count()).map(move |model| (class, model)));
        let there = all.filter(|&(class, model)| of.models.choice(class, &[model]).is_some());
        let placed = there.flat_map(|(class, model)| {
            (1..=3).map(move |devices| Placed { class, devices, models: vec![model] })
        });
        placed.collect::<Vec<_>>()
    };
    let (first, second) = (one(0), one(1));
    let both = first.iter().flat_map(|one| second.iter().map(move |other| [one.clone(), other.clone()]));
    let there = both.filter(|placed| used(placed, 2).iter().all(|&used| used <= 3) && keeps(site, placed));
    there.map(|placed| used(&placed, 2)).collect()
}

#[test]
fn a_pipeline_stands_aside_wherever_it_keeps_its_promise_and_no_device_can_be_left_out() {
    let site = site(PIPELINE);
    let (asides, complete) = site.asides(0, after(LIMIT)).expect("it is profiled");
    assert!(complete);
    let every = every(&site);
    let is_more = |one: &[usize], other: &[usize]| {
        one != other && one.iter().zip(other).all(|(one, other)| one >= other)
    };
    let mut least: Vec<Vec<usize>> =
        every.iter().filter(|one| !every.iter().any(|other| is_more(one, other))).cloned().collect();
    least.sort();
    least.dedup();
    let mut found: Vec<Vec<usize>> = asides.iter().map(|aside| used(&aside.placed, 2)).collect();
    found.sort();
    assert_eq!(found, least);
    assert!(found.len() > 1 && every.len() > found.len(), "the box says too little: {found:?} of {every:?}");
    for aside in &asides {
        assert_eq!(load(&aside.text).services[0].places(), Some(aside.placed.clone()));
    }
}

#[test]
fn what_there_was_no_time_for_is_told() {
    let (asides, complete) = site(PIPELINE).asides(0, Instant::ZERO).expect("it is profiled");
    assert!(asides.is_empty() && !complete, "nothing is known yet");
}
