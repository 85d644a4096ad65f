//! Tests of pipelines on devices as they are configured.

use weir_engine::Isolation;

use super::*;

const BOX: &str = "\n[[device]]\nname = \"box\"\nworkers = 2\ncores = [3]\nrecord = \"box.csv\"\n";

fn on_box(from: &str, to: &str) -> Result<Config, ConfigError> {
    let text = with("    workers = 2\n", "").replacen("queue = 32", "device = \"box\"\nweight = 2.0", 1);
    assert_eq!(text.matches(from).count(), 1, "{from}");
    parse(&(text.replace(from, to) + BOX))
}

#[test]
fn a_pipeline_on_a_device_has_the_workers_of_that_for_all_stages_and_is_woken_once() {
    let config = on_box("mean = 1.5", "mean = 2.0").expect("good");
    let plate = &config.services[0];
    assert!(plate.is_fused() && !plate.is_staged() && plate.is_on(0));
    assert_eq!(
        (plate.workers, &*plate.cores, plate.share.map(|share| share.weight)),
        (2, &[3][..], Some(2.0))
    );
    assert!(plate.record.as_ref().is_some_and(|record| record.path.ends_with("box.csv")));
    let stages: Vec<_> = plate.stages.iter().map(|stage| (stage.runs.workers, stage.runs.handover)).collect();
    assert_eq!(stages, [(2, Span::from_micros(200)), (2, Span::ZERO), (2, Span::ZERO)]);
    assert!(plate.running().all(|runs| runs.isolation == Isolation::Thread && runs.is_on(0)));
    let apart =
        on_box("model = \"digits-s\"", "model = \"digits-s\"\nisolation = \"process\"").expect("good");
    let plate = &apart.services[0];
    assert!(plate.isolation == Isolation::Process, "one process has all models of a worker");
    assert!(plate.running().all(|runs| runs.isolation == Isolation::Process));
    // What the workers lose is lost to all stages.
    let text = with("    workers = 2\n", "").replacen("queue = 32", "device = \"box\"", 1);
    let stalled =
        parse(&format!("{text}{BOX}stalls = {{ at-most = 2, in = \"10s\", of = \"5ms\" }}\n")).expect("good");
    let reserve = |of: &crate::config::ServiceConfig| rt_core::Stalls::reserve_of(of.stalls);
    assert!(reserve(&stalled.services[0]) > Span::ZERO);
    assert!(stalled.services[0].running().all(|runs| reserve(runs) == reserve(&stalled.services[0])));
    let own = parse(GOOD).expect("good");
    assert!(own.services[0].is_staged() && !own.services[0].is_fused());
}

#[test]
fn what_is_the_devices_or_not_possible_there_is_refused_by_field_value_and_reason() {
    let refused = |from: &str, to: &str, expected: &str| {
        let error = on_box(from, to).expect_err(to).to_string();
        assert!(error.contains(expected), "{error}");
    };
    let of_device = "is the device's where services share one: remove it, or move it to its [[device]]";
    let read = "model = \"digits-s\"";
    refused(
        read,
        "model = \"digits-s\"\nworkers = 2",
        &format!("pipeline[0].stage[1].workers = 2: {of_device}"),
    );
    refused(
        read,
        "model = \"digits-s\"\ngpu = 0",
        &format!("pipeline[0].stage[1].gpu = (present): {of_device}"),
    );
    refused("weight = 2.0", "workers = 3", &format!("pipeline[0].workers = 3: {of_device}"));
    let stalls = "stalls = { at-most = 1, in = \"10s\", of = \"5ms\" }";
    refused("weight = 2.0", stalls, &format!("pipeline[0].stalls = (present): {of_device}"));
    refused("weight = 2.0", "record = \"x.csv\"", "pipeline[0].record = x.csv: is the device's");
    refused(
        "device = \"box\"",
        "device = \"bux\"",
        "pipeline[0].device = \"bux\": no [[device]] has this name (box)",
    );
    refused("device = \"box\"", "device = 0", "pipeline[0].device = 0: must be the name of a [[device]]");
    refused("weight = 2.0", "weight = 0.0", "pipeline[0].weight = 0: must be in 0.000001..=1000000");
    refused("weight = 2.0", "turn = 0", "pipeline[0].turn = 0: must be in 1..=");
    let all = "is not possible on a device, where each batch runs all stages: remove it";
    refused(
        read,
        "model = \"digits-s\"\nvariants = [\"digits-m\"]",
        &format!("pipeline[0].stage[1].variants = (present): {all}"),
    );
    refused(
        read,
        "models = [\"digits-s\"]",
        "pipeline[0].device = \"box\": is chosen by `weir place`: remove it, or say the model of each stage as well",
    );
    refused(
        "after = \"detect\"\n    fan-out",
        "device = \"box\"\n    after = \"detect\"\n    fan-out",
        "pipeline[0].stage[1].device = \"box\": is said of the pipeline as a whole: move it to its [[pipeline]]",
    );
    let without = parse(&with("queue = 32", "turn = 2")).expect_err("no device").to_string();
    assert!(
        without.contains("pipeline[0].turn = 2: only for a service that names a device; remove it"),
        "{without}"
    );
}
