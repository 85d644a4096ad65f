//! Tests of plans that are tried in virtual time: what is better and worse there is told, the same each time.

use std::collections::BTreeMap;

use weir_plan::config::Config;
use weir_plan::models::resolve_models;
use weir_plan::place::measured;
use weir_plan::profile::{Entry, Fingerprint, Profile, Work};

use super::*;

const LIMIT: Span = Span::from_millis(60_000);
const LENGTH: Span = Span::from_millis(30_000);

/// Two services on four devices of one class, which they have to themselves, and on one of another that they may share.
fn text() -> String {
    let service = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndemand = 40.0\ndeadline = \"400ms\"\nguard = \"100ms\"\nhandover = \"0ms\"\nmax-batch = 1\n\
             simulated.models = [{{ accuracy = 0.6, times = {{ own = [\"20ms\"], all = [\"10ms\"] }} }}, \
             {{ accuracy = 0.8, times = {{ own = [\"40ms\"], all = [\"100ms\"] }} }}]\n\
             [[service.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = 2, k = 5 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"100ms\", jitter = \"50ms\" }} }}]\n"
        )
    };
    format!(
        "[daemon]\nrealtime = false\n[placement]\nheadroom = 1.1\n\
         [[placement.class]]\nname = \"own\"\nengine = \"simulated\"\ncount = 4\n\
         [[placement.class]]\nname = \"all\"\nengine = \"simulated\"\ncount = 1\nshared = true\n{}{}",
        service("a"),
        service("b")
    )
}

/// The same with `b` as a pipeline: each of its sources becomes one request of the second stage on average, and two at most.
fn staged() -> String {
    let text = text().replace("[[service]]", "[[service]]\nclasses = [\"own\"]");
    let (others, _) = text.rsplit_once("[[service]]").expect("it is the last");
    let runs = "handover = \"0ms\"\nmax-batch = 1\nsimulated = { input = 4, output = 4, models = [\
                { accuracy = 0.6, times = { own = [\"20ms\"] } }, { accuracy = 0.8, times = { own = [\"40ms\"] } }] }\n";
    format!(
        "{others}[[pipeline]]\nname = \"b\"\ndemand = 20.0\ndeadline = \"800ms\"\nguard = \"100ms\"\n\
         [[pipeline.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = 2, k = 5 }} }}]\n\
         arrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"50ms\" }} }}]\n\
         [[pipeline.stage]]\nname = \"x\"\n{runs}\
         [[pipeline.stage]]\nname = \"y\"\nafter = \"x\"\nfan-out = 2\nmean = 1.0\n{runs}\
         adapter = {{ each = {{ scores = \"output\", threshold = 0.5 }}, inputs.input = {{ pass = \"source.input\" }} }}\n"
    )
}

/// The box of a text, whose simulated models take as long as they say, for that demand.
fn site(text: &str, demand: [f64; 2]) -> Site {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("box.toml");
    std::fs::write(&path, text).expect("written");
    let config = Config::load_box(&path).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let all = measured(&config);
    let mut profile = Profile::new(Fingerprint::current());
    for subject in Work::new(&all, &resolve_models(&all).expect("simulated"), false).subjects {
        let times: Vec<u64> = subject.times.iter().map(|time| time.bound).collect();
        let (model, sha256) = (subject.timed.name, subject.timed.identity);
        profile.put(Entry { model, sha256, ..Entry::of_simulated(&subject.spec, &times) });
    }
    let site = Site::of(config, profile).expect("a box");
    site.demanding(&BTreeMap::from([("a".to_owned(), demand[0]), ("b".to_owned(), demand[1])]))
        .expect("demand")
}

/// A plan for that demand, by what `text` serves.
fn planned(text: &str, demand: [f64; 2]) -> Placement {
    site(text, demand).solve(LIMIT).expect("it is profiled")
}

fn written(placement: &Placement) -> String {
    placement.complete.as_ref().expect("it fits").text.clone()
}

fn tried(site: &Site, placement: &Placement) -> Option<Trial> {
    Trial::new(site, placement, LENGTH, clock::now() + LIMIT).expect("there are schedulers")
}

const FIRST: [f64; 2] = [80.0, 10.0];
const SWAPPED: [f64; 2] = [10.0, 80.0];

#[test]
fn a_plan_for_the_demand_is_better_in_virtual_time_and_one_for_another_worse() {
    let first = written(&planned(&text(), FIRST));
    let swapped = planned(&first, SWAPPED);
    let trial = tried(&site(&first, SWAPPED), &swapped).expect("there is time");
    let present = trial.present.expect("it is served");
    assert!(trial.planned > present && trial.broken.is_empty(), "{trial:?}");
    assert!((2_000..3_400).contains(&trial.requests), "ninety a second for thirty: {trial:?}");
    // The same plan for demand that has not swapped.
    let worse = tried(&site(&first, FIRST), &swapped).expect("there is time");
    assert!(worse.planned < worse.present.expect("it is served") && worse.broken.is_empty(), "{worse:?}");
    let again = tried(&site(&first, SWAPPED), &swapped).expect("there is time");
    assert_eq!((again.planned, again.present), (trial.planned, trial.present), "the same arrivals");
}

#[test]
fn what_does_not_change_is_not_tried_nor_is_anything_without_time() {
    let first = written(&planned(&text(), FIRST));
    assert!(tried(&site(&first, FIRST), &planned(&first, FIRST)).is_none(), "nothing changes");
    let swapped = planned(&first, SWAPPED);
    let trial = Trial::new(&site(&first, SWAPPED), &swapped, LENGTH, Instant::ZERO);
    assert!(trial.expect("there are schedulers").is_none());
}

#[test]
fn what_nobody_serves_yet_has_nothing_beside_it() {
    let trial = tried(&site(&text(), FIRST), &planned(&text(), FIRST)).expect("there is time");
    assert!(trial.present.is_none() && trial.planned > 0.0, "{trial:?}");
}

/// Of services that share their devices all are answered, each by the one model that it has there.
#[test]
fn those_of_a_device_are_tried_together() {
    let text =
        text().replace("count = 4", "count = 1").replace("deadline = \"400ms\"", "deadline = \"800ms\"");
    let demand = [20.0, 20.0];
    let shared = text.replace("[[service]]", "[[service]]\nclasses = [\"all\"]");
    let placement = planned(&shared, demand);
    assert!(placement.complete.is_some(), "{:?}", placement.reason);
    let trial = tried(&site(&shared, demand), &placement).expect("there is time");
    assert!((trial.planned - 60.0).abs() < 1e-9 && trial.broken.is_empty(), "{trial:?}");
}

/// Of what is asked much there is the better model: so a pipeline is judged as a service is, by what is right to the end.
#[test]
fn pipelines_are_tried_too() {
    let (much, little) = ([10.0, 40.0], [60.0, 4.0]);
    let first = written(&planned(&staged(), little));
    let swapped = planned(&first, much);
    assert_eq!(swapped.changes, ["a", "b"]);
    let trial = tried(&site(&first, much), &swapped).expect("there is time");
    assert!(trial.planned > trial.present.expect("it is served") && trial.broken.is_empty(), "{trial:?}");
    assert!((1_250..1_700).contains(&trial.requests), "fifty a second for thirty: {trial:?}");
    let worse = tried(&site(&first, little), &swapped).expect("there is time");
    assert!(worse.planned < worse.present.expect("it is served"), "{worse:?}");
    let again = tried(&site(&first, much), &swapped).expect("there is time");
    assert_eq!(
        (again.planned, again.present),
        (trial.planned, trial.present),
        "the same arrivals and results"
    );
}

/// On a device that is shared a batch of sources takes what they become on average: two requests each would be too many for it.
#[test]
fn a_pipeline_on_shared_devices_takes_what_its_sources_become() {
    let text = staged().replace("classes = [\"own\"]", "classes = [\"all\"]");
    let text = text
        .replace("own = [\"20ms\"] } }, { accuracy = 0.8, times = { own = [\"40ms\"]", "all = [\"20ms\"]");
    let demand = [10.0, 17.0];
    let placement = planned(&text, demand);
    let complete = placement.complete.as_ref().unwrap_or_else(|| panic!("{:?}", placement.reason));
    assert!(complete.plan.services.iter().all(|plan| plan.shared_device() == Some("all")));
    let trial = tried(&site(&text, demand), &placement).expect("there is time");
    let sure = (10.0 * 60.0 + 17.0 * 36.0) / 27.0;
    assert!((trial.planned - sure).abs() < 0.5 && trial.broken.is_empty(), "{trial:?} for {sure}");
}

/// Nothing is lost where all fits by far: what is right is what the two models are together.
#[test]
fn a_source_is_right_where_all_stages_are() {
    let demand = [1.0, 1.0];
    let text = staged().replace(", { accuracy = 0.8, times = { own = [\"40ms\"] } }] }", "] }");
    let trial = tried(&site(&text, demand), &planned(&text, demand)).expect("there is time");
    let service = planned(&text, demand).spots[0].as_ref().map(|spot| spot.accuracy).expect("it is placed");
    let sure = (service + 36.0) / 2.0;
    assert!((trial.planned - sure).abs() < 5.0 && trial.broken.is_empty(), "{trial:?} for {sure}");
}

#[test]
fn arrivals_keep_to_what_is_declared_and_come_as_often_as_is_asked() {
    let site = site(&text(), FIRST);
    let config = &site.config().services[0];
    let until = Instant::ZERO + Span::from_millis(200_000);
    let came = arrivals(config, 40.0, until, 7);
    assert!(came.is_sorted() && (7_200..8_800).contains(&came.len()), "{}", came.len());
    let cam: Vec<Instant> = came.iter().filter(|(_, stream)| *stream == 0).map(|(at, _)| *at).collect();
    // As fast as ten a second, in any stretch of time.
    let curve = config.reserved[0].spec.arrivals().expect("it declares");
    for first in 0..cam.len() {
        for last in first..cam.len().min(first + 40) {
            let length = cam[last].since(cam[first]) + Span::from_nanos(1);
            assert!((last - first + 1) as u64 <= curve.count(length), "{first} to {last}");
        }
    }
    assert!((1_600..=2_001).contains(&cam.len()), "{}", cam.len());
    // Of less than is declared each stream sends its part, and nothing comes beside.
    let few = arrivals(config, 5.0, until, 7);
    assert!(few.iter().all(|(_, stream)| *stream == 0) && (850..1_150).contains(&few.len()), "{}", few.len());
    assert!(arrivals(config, 0.0, until, 7).is_empty());
}

#[test]
fn a_constraint_that_does_not_hold_is_broken() {
    let any = site(&text(), FIRST);
    let plan = planned(&text(), FIRST).complete.expect("it fits").plan;
    assert_eq!(any.config().services.len(), plan.services.len());
    let mut fate = Fate::new(&plan.services[0]);
    [true, false, true, false, true].into_iter().for_each(|hit| fate.misses[0].record(hit));
    assert!(!fate.is_broken(), "two of five may be missed");
    fate.misses[0].record(false);
    assert!(fate.is_broken());
}
