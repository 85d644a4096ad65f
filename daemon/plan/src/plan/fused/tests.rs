//! Tests of pipelines on devices: what a batch of all stages takes, and in which batches each stage runs it.

use super::*;
use crate::config::Config;
use crate::plan::tests::plan_as_stated;

fn profile(ms: &[u64]) -> LatencyProfile {
    LatencyProfile::new(&ms.iter().map(|&ms| Span::from_millis(ms)).collect::<Vec<_>>()).expect("a profile")
}

/// The least that any division of so many requests into batches takes.
fn least(times: &LatencyProfile, largest: usize, requests: usize) -> Span {
    (1..=largest.min(requests))
        .map(|batch| times.bound(batch) + least(times, largest, requests - batch))
        .min()
        .unwrap_or(Span::ZERO)
}

#[test]
fn requests_are_divided_into_the_batches_that_together_take_least_and_fewer_take_no_longer() {
    let all: [&[u64]; 5] = [&[3], &[4, 5, 6, 7], &[1, 9, 9, 9], &[5, 5, 8, 20], &[2, 3, 7, 8]];
    for times in all.map(profile) {
        for largest in 1..=times.max_batch() {
            let cuts = Cuts::new(&times, largest, 11);
            for requests in 0..=11 {
                let mut left = requests;
                let mut taken = Span::ZERO;
                while left > 0 {
                    let batch = cuts.first[left];
                    assert!((1..=largest.min(left)).contains(&batch));
                    (taken, left) = (taken + times.bound(batch), left - batch);
                }
                let of = cuts.times[requests];
                assert_eq!((taken, of.bound), (least(&times, largest, requests), taken));
                assert!(of.mean <= of.bound && of.likely <= of.bound);
                assert!(cuts.times[..requests].iter().all(|fewer| fewer.bound <= of.bound));
            }
        }
    }
    // Batches of one and of two take as long for each: the fewest.
    assert_eq!(Cuts::new(&profile(&[2, 4]), 2, 4).first, [0, 1, 2, 2, 2]);
}

/// A detector and a reader of up to three of what it finds, on a device that another service has too.
fn config(read: &str, of_pipeline: &str) -> Config {
    let text = format!(
        "[daemon]\nrealtime = false\n[[device]]\nname = \"box\"\nworkers = 2\n\
         [[service]]\nname = \"stop\"\ndevice = \"box\"\nengine = \"simulated\"\nhandover = \"0s\"\n\
         simulated = {{ times = [\"2ms\"], input = 1, output = 1 }}\ndeadline = \"50ms\"\n\
         [[pipeline]]\nname = \"plate\"\ndevice = \"box\"\ndeadline = \"100ms\"\n{of_pipeline}\n\
         [[pipeline.stage]]\nname = \"detect\"\nengine = \"simulated\"\nhandover = \"1ms\"\n\
         simulated = {{ times = [\"5ms\", \"7ms\"], input = 4, output = 4 }}\n\
         [[pipeline.stage]]\nname = \"read\"\nafter = \"detect\"\nfan-out = 3\nmean = 1.5\nengine = \"simulated\"\nhandover = \"9ms\"\n\
         simulated = {{ times = [\"4ms\", \"5ms\"], input = 4, output = 4 }}\n{read}\n\
         adapter = {{ each = {{ scores = \"output\", threshold = 0.5 }}, inputs.input = {{ pass = \"source.input\" }} }}\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).expect("written");
    Config::load(&path).expect("good")
}

#[test]
fn a_batch_takes_what_all_that_its_sources_may_become_takes_and_one_handover() {
    let plan = plan_as_stated(&config("", "")).expect("a plan");
    let plate = plan.services.iter().find(|service| service.config.name == "plate").expect("planned");
    let fused = plate.fused.as_ref().expect("on a device");
    assert!(plate.pipeline.is_none() && plate.shared_device() == Some("box"));
    let ms = Span::from_millis;
    let times = &plate.workers().profile;
    // Of one source three requests, in batches of two and one; of two sources six in three batches of two.
    assert_eq!([1, 2].map(|sources| times.bound(sources)), [ms(5 + 1 + 5 + 4), ms(7 + 1 + 15)]);
    // Of one source two requests are expected, of two three.
    assert_eq!([1, 2].map(|sources| times.mean(sources)), [ms(5 + 1 + 5), ms(7 + 1 + 9)]);
    assert_eq!((fused.batch(0, 2), fused.batch(1, 6), fused.batch(1, 1)), (2, 2, 1));
    assert_eq!((fused.bound(1, 3), plate.stages().len(), plate.running().count()), (ms(9), 2, 2));
    assert_eq!(plate.variants.len(), 1, "of its own it has none");
    let outputs: Vec<_> = plate.spec.outputs.iter().map(|tensor| &*tensor.name).collect();
    assert_eq!(outputs, ["read.output", "read.parent", "read.row"]);
    // The device is blocked by all of it.
    assert_eq!(plan.devices()[0].sharing.longest, plate.workers().batch_time());
}

#[test]
fn the_batch_of_a_later_stage_may_be_stated_and_that_of_the_first_is_the_promises() {
    let configured = config("batch = 1", "");
    let one = plan_as_stated(&configured).expect("a plan");
    let plate = one.services.iter().find(|service| service.config.name == "plate").expect("planned");
    assert_eq!(plate.workers().profile.bound(1), Span::from_millis(5 + 1 + 3 * 4));
    assert_eq!(plate.fused.as_ref().expect("on a device").batch(1, 3), 1);
}

#[test]
fn what_is_reserved_is_promised_beside_the_other_services_or_refused() {
    let stream = |ms: u64| {
        format!(
            "[[pipeline.stream]]\nname = \"cam\"\nconstraints = [{{ row-miss = 0 }}]\n\
             arrivals = [{{ periodic = {{ period = \"{ms}ms\" }} }}]"
        )
    };
    let kept = plan_as_stated(&config("", &stream(30))).expect("one in 30 ms");
    assert!(kept.devices()[0].admission.binding.is_some());
    // Two workers serve two sources in 23 ms each at best.
    let refused = plan_as_stated(&config("", &stream(5))).expect_err("one in 5 ms").to_string();
    assert!(refused.starts_with("device box: not every promise can be kept: "), "{refused}");
}
