//! D-Bus, as foreign clients find it on a real bus under the shipped policy.

use std::collections::BTreeMap;

use crate::harness::bus::{Bus, Listener, address, daemon_on_bus, is_possible};
use crate::harness::polkit::Polkit;
use crate::harness::{Daemon, Deployment, best_effort, eventually, not_checked, pause, repository};
use crate::promise::METER;
use rustix::process::Signal;
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Constraint, Registration};

const SERVICE: &str = "/org/weir/Weir1/service/lane_2ds";
const SLOW: &str = "/org/weir/Weir1/service/slow";
const MANAGER: &str = "org.weir.Weir1.Manager";

/// Services of which the first is promised something, and the last takes longer than it may.
fn place(more: &str) -> Deployment {
    let place = Deployment::new("");
    place.configure(format!(
        r#"{}
        [safe-mode]
        hold = "1s"
        clean = "1s"
        {more}
        [[service]]
        name = "lane-s"
        engine = "simulated"
        simulated = {{ times = ["1ms"], input = 1, output = 1 }}
        deadline = "10s"
        guard = "5s"
        workers = 2
        constraints = [{{ any-miss = {{ m = 1, k = 3 }} }}]
        [[service]]
        name = "other"
        engine = "simulated"
        simulated = {{ times = ["1ms"], input = 1, output = 1 }}
        deadline = "10s"
        [[service]]
        name = "slow"
        engine = "simulated"
        simulated = {{ times = ["60ms"], input = 1, output = 1 }}
        deadline = "10s"
        "#,
        daemon_on_bus(&place)
    ));
    place.profiled(&[20])
}

fn start(place: &Deployment) -> (Bus, Daemon) {
    let bus = Bus::start(place);
    let daemon = place.serve();
    bus.wait_for_weir();
    (bus, daemon)
}

/// Has a stream send more than it declares; it stays as long as its client.
fn flood(daemon: &Daemon, name: &str) -> Client {
    let mut client = daemon.client();
    let stream = Registration::builder("lane-s", name)
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(2, std::time::Duration::from_millis(300)));
    let stream = client.register(&stream.build().expect("valid")).expect("admitted");
    for _ in 0..4 {
        client.infer(&stream, &[0.0]).expect("an answer");
    }
    client
}

/// Has a batch take longer than its bound.
fn overrun(daemon: &Daemon) {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "one")).expect("a stream");
    client.infer(&stream, &[0.0]).expect("an answer");
}

#[test]
fn foreign_clients_read_properties_hear_signals_and_call_methods() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, daemon) = start(&place);
    let service = |name: &str| bus.property(SERVICE, "org.weir.Weir1.Service", name);
    assert_eq!(bus.property("/org/weir/Weir1", MANAGER, "State"), "u 1");
    let version = bus.property("/org/weir/Weir1", MANAGER, "Version");
    assert_eq!(version, format!("s \"{}\"", daemon.status()["version"].as_str().expect("a version")));
    assert_eq!(
        (service("State"), service("Name"), service("Workers")),
        ("u 1".into(), "s \"lane-s\"".into(), "u 2".into())
    );
    assert_eq!(service("Evidence"), "(tttss) 0 0 0 \"\" \"\"");
    assert_eq!((service("SuspendedStreams"), service("SuspensionSequence")), ("as 0".into(), "t 0".into()));
    assert!(service("CertifiedRate").starts_with("d ") && service("CertifiedRate") != "d 0");
    let worker = bus.property(&format!("{SERVICE}/worker/1"), "org.weir.Weir1.Worker", "State");
    assert_eq!(worker, "u 1");

    let ears = Listener::start(&place);
    overrun(&daemon);
    let signal = ears.hear(&[SLOW, "SafeModeChanged", "service-overrun"]);
    assert!(signal.contains("uint32 3, uint32 2, uint64 1"), "{signal}");
    ears.hear(&[SLOW, "PropertiesChanged", "'State': <uint32 3>", "'Cause': <uint32 2>"]);
    ears.hear(&["/org/weir/Weir1:", "PropertiesChanged", MANAGER, "'State': <uint32 3>"]);
    ears.hear(&[SLOW, "SafeModeChanged", "uint32 1, uint32 0"]);
    ears.hear(&["/org/weir/Weir1:", "PropertiesChanged", MANAGER, "'State': <uint32 1>"]);
    assert_eq!(bus.property(SLOW, "org.weir.Weir1.Service", "Breaches"), "t 1");

    let said = bus.gdbus(None, "org.weir.Weir1.Manager.Status", &[]);
    assert!(said.ok && said.out.contains("\"lane-s\""), "{said:?}");
    let said =
        bus.busctl(None, &["--json=short", "call", "org.weir.Weir1", "/org/weir/Weir1", MANAGER, "Plan"]);
    let plan: Value = serde_json::from_str(&said.out).expect("JSON");
    let plan: Value = serde_json::from_str(plan["data"][0].as_str().expect("text")).expect("JSON");
    assert_eq!(plan["services"][0]["rate"]["n_star"], said_by_plan(&place));
    let tree = bus.busctl(None, &["tree", "--list", "org.weir.Weir1"]);
    assert!(tree.out.contains("service/other/worker/0"), "{tree:?}");
    let managed = bus.gdbus(None, "org.freedesktop.DBus.ObjectManager.GetManagedObjects", &[]);
    assert!(managed.out.contains(SERVICE) && managed.out.contains("org.weir.Weir1.Worker"), "{managed:?}");
}

#[test]
fn a_suspension_is_told_and_shown_apart_from_safe_mode() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, daemon) = start(&place);
    let service = |name: &str| bus.property(SERVICE, "org.weir.Weir1.Service", name);
    let ears = Listener::start(&place);
    let client = flood(&daemon, "cam0");
    let [signal, _] = ears.hear_each([
        &[SERVICE, "SuspensionChanged", "arrival-excess", "'cam0'"],
        &[SERVICE, "PropertiesChanged", "'SuspendedStreams': <['cam0']>"],
    ]);
    assert!(signal.contains("uint32 2, uint32 1, uint64 1"), "{signal}");
    ears.hear_each([
        &[SERVICE, "SuspensionChanged", "uint32 1, uint32 0, uint64 2", "'cam0'"],
        &[SERVICE, "PropertiesChanged", "'SuspendedStreams': <@as []>"],
    ]);
    assert_eq!(service("SuspensionSequence"), "t 2");
    drop(client);
}

#[test]
fn a_weaker_promise_in_force_is_a_level() {
    if !is_possible() {
        return;
    }
    // Of the third within 5 s, which is one more than was declared, the weaker one takes up to four.
    let place = place(
        r#"[[service]]
        name = "ladder"
        engine = "simulated"
        simulated = { times = ["1ms"], input = 1, output = 1 }
        deadline = "10s"
        guard = "5s"
        constraints = [{ any-miss = { m = 1, k = 3 } }]
        degraded = [[{ any-miss = { m = 2, k = 3 } }]]"#,
    );
    let (bus, daemon) = start(&place);
    let path = "/org/weir/Weir1/service/ladder";
    let service = |name: &str| bus.property(path, "org.weir.Weir1.Service", name);
    assert_eq!((service("Level"), service("DegradedStreams")), ("u 0".into(), "a{su} 0".into()));
    let ears = Listener::start(&place);
    let mut client = daemon.client();
    let stream = Registration::builder("ladder", "cam0")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(2, std::time::Duration::from_secs(5)));
    let stream = client.register(&stream.build().expect("valid")).expect("admitted");
    for _ in 0..3 {
        client.infer(&stream, &[0.0]).expect("an answer");
    }
    ears.hear_each([
        &[path, "SuspensionChanged", "uint32 3, uint32 1", "arrival-excess", "'cam0'"],
        &[path, "PropertiesChanged", "'Level': <uint32 1>", "'DegradedStreams': <{'cam0': uint32 1}>"],
    ]);
    ears.hear_each([
        &[path, "SuspensionChanged", "uint32 1, uint32 0", "'cam0'"],
        &[path, "PropertiesChanged", "'Level': <uint32 0>"],
    ]);
    assert_eq!((service("Level"), service("DegradedStreams")), ("u 0".into(), "a{su} 0".into()));
    drop(client);
}

#[test]
fn what_came_of_each_class_of_requests_is_a_property() {
    if !is_possible() {
        return;
    }
    // A batch takes longer than either is wanted in: answers to the soft class come late, those to the hard one not at all.
    let place = place(
        r#"[[service]]
        name = "classes"
        engine = "simulated"
        simulated = { times = ["60ms"], accuracy = 0.5, input = 1, output = 1 }
        deadline = "10s"
        [[service.class]]
        name = "soft"
        deadline = "50ms"
        decay = { step = { part = 0.5, cutoff = 100.0 } }
        [[service.class]]
        name = "hard"
        deadline = "50ms""#,
    );
    let (bus, daemon) = start(&place);
    let told = |service: &str| {
        bus.property(&format!("/org/weir/Weir1/service/{service}"), "org.weir.Weir1.Service", "Classes")
    };
    assert_eq!(told("other"), "a(sttttd) 0");
    assert_eq!(told("classes"), "a(sttttd) 2 \"soft\" 0 0 0 0 0 \"hard\" 0 0 0 0 0");
    let mut client = daemon.client();
    let soft = client.register(&best_effort("classes", "one")).expect("a stream");
    let hard = soft.of_class("hard").expect("it is there");
    let late = client.infer(&soft, &[0.0]).expect("an outcome");
    assert!(client.infer(&hard, &[0.0]).expect("an outcome").result().is_none(), "no batch is as short");
    if late.result().is_none() {
        return not_checked("what came of each class on the bus: the machine stood still for seconds");
    }
    assert_eq!(told("classes"), "a(sttttd) 2 \"soft\" 1 1 1 0 0.25 \"hard\" 1 0 0 1 0");
}

fn said_by_plan(place: &Deployment) -> Value {
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    plan["services"][0]["rate"]["n_star"].clone()
}

#[test]
fn operators_enter_clear_and_inhibit() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, daemon) = start(&place);
    let state = || bus.property(SLOW, "org.weir.Weir1.Service", "State");
    let ears = Listener::start(&place);
    assert!(bus.call(None, &["EnterSafeMode", "s", "slow"]).ok);
    ears.hear(&[SLOW, "SafeModeChanged", "uint32 3, uint32 7"]);
    let other = bus.property("/org/weir/Weir1/service/other", "org.weir.Weir1.Service", "State");
    assert_eq!((state(), other), ("u 3".into(), "u 1".into()));
    assert!(bus.call(None, &["Clear", "s", ""]).ok);
    ears.hear(&[SLOW, "SafeModeChanged", "uint32 1, uint32 0, uint64 2"]);
    // What an operator cleared is over: the next state ends by itself, after hold and clean.
    overrun(&daemon);
    ears.hear(&[SLOW, "SafeModeChanged", "uint32 3, uint32 2, uint64 3"]);
    ears.hear(&[SLOW, "SafeModeChanged", "uint32 1, uint32 0, uint64 4"]);

    assert!(bus.gdbus(None, "org.weir.Weir1.Manager.Inhibit", &["slow", "3600000000"]).ok);
    assert!(bus.call(None, &["EnterSafeMode", "s", "slow"]).ok);
    assert_eq!(state(), "u 3", "it is entered");
    assert_eq!(bus.property(SLOW, "org.weir.Weir1.Service", "Sequence"), "t 4", "and not told");
    assert!(bus.call(None, &["Inhibit", "st", "slow", "0"]).ok);
    ears.hear(&[SLOW, "SafeModeChanged", "uint32 3, uint32 7, uint64 5"]);

    let said = bus.call(None, &["EnterSafeMode", "s", "lanes"]);
    assert!(!said.ok && said.err.contains("lane-s, other, slow"), "{said:?}");
    let said = bus.call(None, &["Inhibit", "st", "slow", "86400000001"]);
    assert!(!said.ok && said.err.contains("86400000000"), "{said:?}");
}

#[test]
fn others_may_look_and_change_nothing() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, daemon) = start(&place);
    if !rustix::process::geteuid().is_root() {
        return not_checked("D-Bus: others may change nothing, which root alone can try");
    }
    let nobody = Some(65_534);
    let read =
        bus.busctl(nobody, &["get-property", "org.weir.Weir1", SERVICE, "org.weir.Weir1.Service", "State"]);
    assert!(read.ok && read.out.trim() == "u 1", "{read:?}");
    for change in [
        &["EnterSafeMode", "s", "lane-s"][..],
        &["Clear", "s", ""],
        &["Inhibit", "st", "", "1"],
        &["Reload"],
        &["Drain"],
    ] {
        let said = bus.call(nobody, change);
        assert!(!said.ok && said.err.contains("denied"), "{change:?}: {said:?}");
    }
    // It is the daemon that refuses, and says what it wants.
    let said = bus.gdbus(nobody, "org.weir.Weir1.Manager.Clear", &["lane-s"]);
    assert!(!said.ok && said.err.contains("org.weir.Weir1.manage"), "{said:?}");
    assert_eq!(daemon.status()["services"][0]["safe_mode"]["sequence"], 0);
    let steal = bus.busctl(
        nobody,
        &[
            "call",
            "org.freedesktop.DBus",
            "/",
            "org.freedesktop.DBus",
            "RequestName",
            "su",
            "org.weir.Weir1",
            "2",
        ],
    );
    assert!(!steal.ok && steal.err.contains("denied"), "{steal:?}");
    let set = ["call", "org.weir.Weir1", SERVICE, "org.freedesktop.DBus.Properties", "Set", "ssv"];
    let set = bus.busctl(nobody, &[&set[..], &["org.weir.Weir1.Service", "State", "u", "1"]].concat());
    assert!(!set.ok, "{set:?}");
}

#[test]
fn where_polkit_is_it_decides() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, _daemon) = start(&place);
    let polkit = Polkit::start(&address(&place));
    let said = bus.gdbus(None, "org.weir.Weir1.Manager.Clear", &[""]);
    assert!(!said.ok && said.err.contains("polkit does not authorise it"), "{said:?}");
    polkit.permits.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(bus.call(None, &["Clear", "s", ""]).ok);
    let asked = polkit.asked.lock().expect("no panic").clone();
    let one = ("org.weir.Weir1.manage".to_owned(), "system-bus-name".to_owned());
    assert_eq!(asked, [one.clone(), one]);
    // Looking needs nobody's leave.
    assert!(bus.call(None, &["Status"]).ok);
    assert_eq!(polkit.asked.lock().expect("no panic").len(), 2);
}

#[test]
fn the_daemon_outlives_the_bus_and_comes_back_to_it() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, daemon) = start(&place);
    bus.kill();
    eventually("the loss", || daemon.stderr().contains("the bus has gone").then_some(()));
    drop(flood(&daemon, "cam0"));
    let bus = Bus::start(&place);
    bus.wait_for_weir();
    assert!(bus.call(None, &["EnterSafeMode", "s", "other"]).ok);
    assert_eq!(bus.property("/org/weir/Weir1", MANAGER, "State"), "u 3");
}

#[test]
fn without_a_bus_the_daemon_serves_and_says_so_once() {
    let place = place("");
    let mut daemon = place.serve();
    eventually("a word", || daemon.stderr().contains("served without it").then_some(()));
    drop(flood(&daemon, "cam0"));
    // The second attempt comes after 250 ms, the third after 500 more.
    pause(std::time::Duration::from_millis(1_000));
    assert_eq!(daemon.stderr().matches("served without it").count(), 1, "{}", daemon.stderr());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn drain_ends_the_daemon_in_order() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, mut daemon) = start(&place);
    assert!(bus.call(None, &["Drain"]).ok);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
}

#[test]
fn a_pipeline_shows_its_stages_and_whose_worker_each_is() {
    if !is_possible() {
        return;
    }
    let place = Deployment::new("");
    place.configure(format!("{}{METER}", daemon_on_bus(&place)));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(10);
    let (bus, _daemon) = start(&place);
    let pipeline = "/org/weir/Weir1/service/meter";
    let stages = bus.property(pipeline, "org.weir.Weir1.Service", "Stages");
    assert!(stages.starts_with("a(sssuuu) 2 \"detect\" \"simulated-"), "{stages}");
    assert!(stages.contains("\"\" 1 1 0 \"read\"") && stages.ends_with("\"detect\" 2 2 0"), "{stages}");
    let whose = [0, 1, 2]
        .map(|id| bus.property(&format!("{pipeline}/worker/{id}"), "org.weir.Weir1.Worker", "Stage"));
    assert_eq!(whose, ["s \"detect\"", "s \"read\"", "s \"read\""]);
}

/// Our interfaces in an introspection by name, without what the bus library adds to every object.
fn interfaces(xml: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut within = None;
    for line in xml.lines().map(str::trim) {
        if line.starts_with("<interface name=\"org.weir.Weir1") {
            within = Some(line.to_owned());
            found.insert(line.to_owned(), Vec::new());
        }
        if let Some(name) = &within {
            found.get_mut(name).expect("inserted").push(line.to_owned());
        }
        if line == "</interface>" {
            within = None;
        }
    }
    found
}

#[test]
fn the_shipped_introspection_is_that_of_the_daemon() {
    if !is_possible() {
        return;
    }
    let place = place("");
    let (bus, _daemon) = start(&place);
    // An object's introspection includes those below it.
    let said = bus.busctl(None, &["introspect", "--xml-interface", "org.weir.Weir1", "/org/weir/Weir1"]);
    let live = interfaces(&said.out);
    assert_eq!(live.len(), 3, "{said:?}");
    let shipped = std::fs::read_to_string(repository("systemd/org.weir.Weir1.xml")).expect("the file");
    assert_eq!(interfaces(&shipped), live);
}
