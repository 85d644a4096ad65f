//! Tests of what is done without: devices that are gone, servers that are not there, and those that are nobody's business.

use super::super::Reason;
use super::super::tests::{LIMIT, load, site};
use super::*;
use crate::profile::{Fingerprint, Profile};

/// `a` may run on `lost` alone, `b` on both.
const LOSES: &str = r#"
[placement]
[[placement.class]]
name = "lost"
engine = "simulated"
cores = [2, 3]
[[placement.class]]
name = "left"
engine = "simulated"
count = 2
[[service]]
name = "a"
engine = "simulated"
deadline = "50ms"
demand = 10.0
classes = ["lost"]
simulated.models = [{ accuracy = 0.5, times = { lost = ["4ms"] } }]
[[service]]
name = "b"
engine = "simulated"
deadline = "50ms"
demand = 10.0
simulated.models = [{ accuracy = 0.5, times = { lost = ["4ms"], left = ["5ms"] } }, { accuracy = 0.9, times = { lost = ["8ms"] } }]
"#;

#[test]
fn devices_that_are_gone_are_done_without_and_who_has_no_place_then_is_named() {
    let gone = |class: &str, number| Gone { class: class.to_owned(), number };
    let units = |site: &Site| {
        let placement = site.solve(LIMIT).expect("it is profiled");
        let text = placement.complete.as_ref().map(|complete| complete.text.clone());
        let parts = placement.spots.into_iter().map(|spot| spot.map(|spot| spot.parts[0].clone()));
        let all: Vec<_> = parts.map(|part| part.map(|part| (part.placed.class, part.units))).collect();
        (all, placement.violated, text)
    };
    let (all, _, text) = units(&site(LOSES));
    assert_eq!(all, [Some((0, vec![2])), Some((0, vec![3]))]);
    // Who has one of them moves, wherever it was.
    let there = site(&text.expect("it fits"));
    let (all, ..) = units(&there.clone().without(&[gone("lost", Some(2)), gone("left", None)]));
    assert_eq!(all, [Some((0, vec![3])), Some((1, vec![]))]);
    let nothing = there.without(&[gone("lost", Some(2)), gone("lost", Some(3))]);
    let (all, violated, _) = units(&nothing);
    assert_eq!(all, [None, None]);
    let [violated] = &violated[..] else { panic!("{violated:?}") };
    assert_eq!((&*violated.service, violated.missing), ("a", 1.0));
    let (_, violated, _) =
        units(&nothing.without(&[gone("left", None), gone("left", None), gone("left", None)]));
    assert_eq!(violated.iter().map(|of| &*of.service).collect::<Vec<_>>(), ["a", "b"]);
}

/// The profile with so many milliseconds for a request of each of these models on servers.
fn times(config: &Config, mut profile: Profile, all: &[(&str, u64)]) -> Profile {
    let specs = crate::models::resolve_models(&measured(config)).expect("they are there").concat();
    for &(name, ms) in all {
        let spec = specs.iter().find(|spec| spec.name == name).expect("it is one of them");
        let mut entry = Entry { engine: EngineKind::Oip, ..Entry::of_simulated(spec, &[ms * 1_000_000]) };
        entry.batches.iter_mut().for_each(|times| times.mode = weir_engine::RunMode::Batched);
        profile.put(entry);
    }
    profile
}

/// Of 330 requests a second the better model answers 200, and no other one stands beside it there.
#[test]
fn a_server_is_called_for_one_model_that_can_do_all() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let config = load(&format!(
        "[daemon]\nmodels = {models:?}\n[placement]\n[[placement.class]]\nname = \"far\"\nengine = \"oip\"\n\
         remote = {{ url = [\"http://127.0.0.1:1\"] }}\n\
         [[service]]\nname = \"s\"\nmodels = [\"digits-s\", \"digits-m\"]\ndemand = 300.0\ndeadline = \"50ms\"\nmax-batch = 1\n"
    ));
    let profile = times(&config, Profile::new(Fingerprint::current()), &[("digits-s", 1), ("digits-m", 5)]);
    let placement = Site::of(config, profile).expect("a box").solve(LIMIT).expect("it is profiled");
    let complete = placement.complete.unwrap_or_else(|| panic!("{:?}", placement.refused));
    assert!(
        complete.text.contains("\nmodel = \"digits-s\"") && !complete.text.contains("variants"),
        "{}",
        complete.text
    );
}

#[test]
fn what_fits_and_is_refused_says_why_and_not_that_the_demand_is_too_much() {
    let fixed = "[[service]]\nname = \"fixed\"\nengine = \"simulated\"\ndeadline = \"10ms\"\nsimulated = { times = [\"20ms\"] }\n\
                 [[service.stream]]\nname = \"s\"\nconstraints = [{ row-miss = 1 }]\narrivals = [{ periodic = { period = \"50ms\" } }]\n";
    let placement = site(&format!("{LOSES}{fixed}")).solve(LIMIT).expect("it is profiled");
    assert_eq!((placement.feasible, placement.reason), (false, Some(Reason::Refused)));
    assert_eq!(placement.factor, None);
    let refused = placement.refused.expect("why");
    assert!(refused.contains("fixed") && refused.contains("deadline"), "{refused}");
}

#[test]
fn a_server_of_a_service_that_is_not_placed_is_not_met() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let fixed = "[[service]]\nname = \"fixed\"\nmodel = \"digits-s\"\nengine = \"oip\"\ndeadline = \"50ms\"\nmax-batch = 1\n\
                 remote = { url = \"http://127.0.0.1:1\" }\n";
    let mut site = site(&format!("[daemon]\nmodels = {models:?}\n{LOSES}{fixed}"));
    site.profile = times(site.config(), site.profile.clone(), &[("digits-s", 1)]);
    reach(site.config()).expect("nothing is asked");
    let placement = site.solve(LIMIT).expect("it is profiled");
    assert!(placement.feasible, "{:?}", placement.refused);
}

/// A server that is silent, and one that is not there, at which nothing runs.
#[test]
fn servers_that_nothing_is_to_be_placed_on_are_named_with_the_reason() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", silent.local_addr().expect("it has one"));
    let text = |more: &str| {
        format!(
            "[daemon]\nmodels = {models:?}\n[placement]\n[[placement.class]]\nname = \"far\"\nengine = \"oip\"\n\
             remote = {{ url = [\"http://127.0.0.1:1\", \"{silent}\"], timeout = \"20s\" }}\n\
             [[service]]\nname = \"s\"\nmodels = [\"digits-s\", \"digits-m\"]\ndeadline = \"50ms\"\nmax-batch = 1\n{more}"
        )
    };
    let told = |more: &str| -> Vec<String> {
        let site = Site::of(load(&text(more)), Profile::new(Fingerprint::current())).expect("a box");
        site.unfit(Some(Span::from_millis(100))).iter().map(ToString::to_string).collect()
    };
    let both = told("");
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[0].starts_with("class far: http://127.0.0.1:1: "), "{both:?}");
    assert!(both[1].starts_with(&format!("class far: {silent}: ")), "{both:?}");
    let runs = "engine = \"oip\"\nmodel = \"digits-s\"\nremote = { url = \"http://127.0.0.1:1\", timeout = \"20s\" }\n";
    assert_eq!(told(runs), both[1..], "the daemon knows of the one that something runs on");
}
