//! A reload measures what nobody has measured yet, and throws nothing away that somebody has.

use std::path::Path;

use crate::harness::{DAEMON, Daemon, Deployment, eventually, repository};
use serde_json::Value;

/// A simulated service; `more` are further fields of it.
fn simulated(name: &str, times: &str, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\ndeadline = \"2s\"\nguard = \"100ms\"\n\
         {more}\nsimulated = {{ times = [{times}], input = 4, output = 4, accuracy = 0.5 }}\n"
    )
}

/// A service of the model `net` of the place's own manifest.
fn digits(name: &str, more: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\nmodel = \"net\"\ndeadline = \"20s\"\nmax-batch = 1\n{more}\n")
}

fn profiled(services: &str) -> Deployment {
    let place = Deployment::new(format!("{DAEMON}{services}"));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place
}

/// A place whose manifest has the model `net`, which is `shipped`.
fn with_manifest(shipped: &str, services: &str) -> Deployment {
    let place = Deployment::new(format!("{DAEMON}models = \"manifest.toml\"\n{services}"));
    name_net(&place, shipped);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place
}

/// Makes `shipped` what the manifest calls `net`.
fn name_net(place: &Deployment, shipped: &str) {
    let manifest = std::fs::read_to_string(repository("models/manifest.toml")).expect("the manifest");
    let start = manifest.find(&format!("[[model]]\nname = \"{shipped}\"")).expect("the model");
    let end = manifest[start + 9..].find("[[model]]").map_or(manifest.len(), |next| start + 9 + next);
    let file = format!("{shipped}.onnx");
    std::fs::copy(repository(&format!("models/{file}")), place.path(&file)).expect("copied");
    let entry = manifest[start..end].replace(&format!("name = \"{shipped}\""), "name = \"net\"");
    std::fs::write(place.path("manifest.toml"), entry).expect("the manifest is written");
}

fn profile(place: &Deployment) -> Value {
    serde_json::from_str(&text(&place.path("profile.json"))).expect("JSON")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file")
}

fn entries(place: &Deployment) -> Vec<Value> {
    profile(place)["entries"].as_array().expect("entries").clone()
}

/// Changes the machine that the profile says it is of.
fn of_another_machine(place: &Deployment) {
    let mut profile = profile(place);
    profile["fingerprint"]["kernel"] = "1.0".into();
    std::fs::write(place.path("profile.json"), profile.to_string()).expect("written");
}

fn measured(daemon: &Daemon) -> usize {
    daemon.stderr().matches("measuring what the profile does not have").count()
}

#[test]
fn what_was_measured_stays_as_it_is_beside_what_is_new() {
    let two = simulated("two", "\"4ms\", \"6ms\"", "batch = 2");
    let place = profiled(&two);
    let before = entries(&place);
    // Left behind by a `weir profile` that was interrupted, and wants to go on.
    let kept = place.path("profile.json.part");
    std::fs::write(&kept, "kept").expect("written");
    let daemon = place.serve();
    // The same model, for smaller batches, beside one that is new.
    let both = simulated("both", "\"4ms\", \"6ms\"", "max-batch = 1")
        .replace("accuracy = 0.5", "accuracy = 0.5, variants = [{ times = [\"8ms\"], accuracy = 0.8 }]");
    place.configure(format!("{DAEMON}{two}{both}"));
    assert_eq!(daemon.reload_accepted(), "service both: new\n");
    assert_eq!(measured(&daemon), 1);
    let after = entries(&place);
    assert!(after.len() == 2 && after.contains(&before[0]), "{before:#?} became {after:#?}");
    assert_eq!(text(&kept), "kept");
}

#[test]
fn on_another_machine_than_the_profiled_one_nothing_is_measured() {
    let one = simulated("one", "\"4ms\"", "");
    let place = profiled(&one);
    of_another_machine(&place);
    let before = text(&place.path("profile.json"));
    let daemon = place.serve();
    place.configure(format!("{DAEMON}{one}{}", simulated("more", "\"3ms\"", "")));
    let told = daemon.reload_refused();
    assert!(told.contains("kernel: profile 1.0") && told.contains("weir profile"), "{told}");
    assert_eq!(text(&place.path("profile.json")), before);
    assert_eq!(measured(&daemon), 0);
}

#[test]
fn another_engine_costs_no_entry_of_the_first() {
    let tract = digits("tract", "");
    let place = with_manifest("digits-xs", &tract);
    let before = entries(&place);
    let daemon = place.serve();
    let services = format!("{tract}{}", digits("ort", "engine = \"ort-cpu\""));
    place.configure(format!("{DAEMON}models = \"manifest.toml\"\n{services}"));
    // What comes of it is the profile's matter: the entries that were there are not.
    daemon.reload();
    assert!(entries(&place).contains(&before[0]), "{before:#?} became {:#?}", entries(&place));
}

#[test]
fn a_file_that_comes_back_under_its_name_is_known_still() {
    let service = digits("digits", "");
    let place = with_manifest("digits-xs", &service);
    let daemon = place.serve();
    let told = text(&place.config());
    name_net(&place, "digits-s");
    // What cannot be promised is measured first, and refused then.
    place.configure(told.replace("20s", "5001us") + "constraints = [{ row-miss = 1 }]\n");
    assert!(daemon.reload_refused().contains("of the deadline"), "{}", daemon.stderr());
    place.configure(told);
    assert!(daemon.reload_accepted().starts_with("service digits: net"));
    name_net(&place, "digits-xs");
    assert!(daemon.reload_accepted().starts_with("service digits: net"));
    assert_eq!((measured(&daemon), entries(&place).len()), (1, 2));
    drop(daemon);
    place.serve();
    // A measurement of its own leaves what is measured now.
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    assert_eq!(entries(&place).len(), 1);
}

#[test]
fn the_watch_on_the_machine_follows_the_profile() {
    let place = with_manifest("digits-xs", &digits("digits", ""));
    of_another_machine(&place);
    let daemon = place.serve();
    let cause = || daemon.status()["services"][0]["safe_mode"]["cause"].as_str() == Some("profile-stale");
    eventually("safe mode", || cause().then_some(()));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    daemon.reload_accepted();
    eventually("the end of safe mode", || (!cause()).then_some(()));
    assert!(daemon.stderr().contains("the machine is as profiled again"), "{}", daemon.stderr());
}
