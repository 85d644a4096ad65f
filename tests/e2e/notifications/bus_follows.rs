//! What is on the bus follows what is served: over reloads, asked for there or elsewhere, and as workers come and go.

use std::process::Command;

use crate::harness::bus::{Bus, Listener, daemon_on_bus, is_possible};
use crate::harness::{Daemon, Deployment, eventually, weir};
use rustix::process::{Signal, kill_process};
use weir_client::{ArrivalBound, Constraint, Registration};

const ROOT: &str = "/org/weir/Weir1";
const LANES: &str = "/org/weir/Weir1/service/lanes";
const SIGNS: &str = "/org/weir/Weir1/service/signs";
const SERVICE: &str = "org.weir.Weir1.Service";
const REFUSED: &str = "org.weir.Weir1.Error.ReloadRefused";

/// A service whose batches of one take `time`; `more` are further fields of it.
fn service(name: &str, time: &str, deadline: &str, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\ndeadline = \"{deadline}\"\nguard = \"5s\"\n\
         simulated = {{ times = [\"{time}\"], input = 1, output = 1 }}\n\
         constraints = [{{ any-miss = {{ m = 1, k = 3 }} }}]\n{more}\n"
    )
}

fn configure(place: &Deployment, services: &[String]) {
    let (daemon, services) = (daemon_on_bus(place), services.concat());
    place.configure(format!("{daemon}[safe-mode]\nhold = \"1h\"\n{services}"));
}

fn lanes(deadline: &str, more: &str) -> String {
    service("lanes", "1ms", deadline, more)
}

fn start(services: &[String]) -> (Bus, Daemon) {
    let place = Deployment::new("");
    configure(&place, services);
    let place = place.profiled(&[20]);
    let bus = Bus::start(&place);
    let daemon = place.serve();
    bus.wait_for_weir();
    (bus, daemon)
}

/// Everything below the manager, as `GetManagedObjects` tells it.
fn managed(bus: &Bus) -> String {
    let said = bus.gdbus(None, "org.freedesktop.DBus.ObjectManager.GetManagedObjects", &[]);
    assert!(said.ok, "{said:?}");
    said.out
}

#[test]
fn objects_come_go_and_change_with_reloads() {
    if !is_possible() {
        return;
    }
    let (bus, daemon) = start(&[lanes("10s", "workers = 2")]);
    let place = daemon.deployment.clone();
    let lanes_now = |name: &str| bus.property(LANES, SERVICE, name);
    let rate = lanes_now("CertifiedRate");
    let ears = Listener::start(&place);

    configure(&place, &[lanes("8s", "workers = 3"), service("signs", "1ms", "20s", "")]);
    let said = bus.call(None, &["Reload"]);
    assert!(said.ok && said.out.starts_with("as 2 "), "{said:?}");
    assert!(said.out.contains("deadline 8.00 s") && said.out.contains("\"service signs: new\""), "{said:?}");
    // Who has the answer finds everything as it is now.
    assert_eq!(bus.property(SIGNS, SERVICE, "DeadlineUsec"), "t 20000000");
    assert_eq!((lanes_now("DeadlineUsec"), lanes_now("Workers")), ("t 8000000".into(), "u 3".into()));
    assert_ne!(lanes_now("CertifiedRate"), rate);
    assert_eq!(bus.property(&format!("{LANES}/worker/2"), "org.weir.Weir1.Worker", "State"), "u 1");
    ears.hear(&[ROOT, "InterfacesAdded", "lanes/worker/2", "org.weir.Weir1.Worker"]);
    ears.hear(&[
        LANES,
        "PropertiesChanged",
        "'CertifiedRate'",
        "'DeadlineUsec': <uint64 8000000>",
        "'Workers': <uint32 3>",
        "'WorkersAlive': <uint32 3>",
    ]);
    ears.hear(&[ROOT, "InterfacesAdded", SIGNS, SERVICE, "'Name': <'signs'>"]);
    ears.hear(&[ROOT, "InterfacesAdded", "signs/worker/0", "org.weir.Weir1.Worker"]);
    assert_eq!(daemon.status()["reload"]["sequence"], 1);

    // By SIGHUP it is the same.
    configure(&place, &[lanes("8s", "workers = 1")]);
    let reload = Command::new(weir()).args(["reload", "--socket"]).arg(place.socket()).output();
    assert!(reload.expect("weir can be run").status.success(), "{}", daemon.stderr());
    ears.hear(&[ROOT, "InterfacesRemoved", "signs/worker/0"]);
    ears.hear(&[ROOT, "InterfacesRemoved", SIGNS, SERVICE]);
    ears.hear(&[ROOT, "InterfacesRemoved", "lanes/worker/1"]);
    ears.hear(&[ROOT, "InterfacesRemoved", "lanes/worker/2"]);
    ears.hear(&[LANES, "PropertiesChanged", "'Workers': <uint32 1>"]);
    let objects = managed(&bus);
    assert!(objects.contains("lanes/worker/0"), "{objects}");
    assert!(!objects.contains("signs") && !objects.contains("worker/1"), "{objects}");

    // What nobody could be told comes with the next bus.
    bus.kill();
    configure(&place, &[service("signs", "1ms", "20s", "")]);
    let reload = Command::new(weir()).args(["reload", "--socket"]).arg(place.socket()).output();
    assert!(reload.expect("weir can be run").status.success(), "{}", daemon.stderr());
    let bus = Bus::start(&place);
    bus.wait_for_weir();
    let objects = managed(&bus);
    assert!(objects.contains(SIGNS) && !objects.contains("lanes"), "{objects}");
}

#[test]
fn a_worse_promise_is_refused_by_name_and_everything_goes_on() {
    if !is_possible() {
        return;
    }
    let (bus, daemon) = start(&[lanes("10s", "")]);
    let place = daemon.deployment.clone();
    let mut client = daemon.client();
    let stream = Registration::builder("lanes", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, std::time::Duration::from_millis(100)));
    let stream = client.register(&stream.build().expect("valid")).expect("admitted");
    configure(&place, &[lanes("20s", "")]);
    let said = bus.gdbus(None, "org.weir.Weir1.Manager.Reload", &[]);
    let words = [REFUSED, "lanes: stream cam is held: its deadline is 10.0 s, the new one 20.0 s"];
    assert!(!said.ok && words.iter().all(|word| said.err.contains(word)), "{said:?}");
    assert_eq!(bus.property(LANES, SERVICE, "DeadlineUsec"), "t 10000000");
    client.infer(&stream, &[0.0]).expect("an answer");
    // Given up, it stands in nobody's way.
    client.unregister(&stream).expect("given up");
    let said = bus.call(None, &["Reload"]);
    assert!(said.ok && said.out.contains("deadline 20.0 s"), "{said:?}");
    let said = bus.call(None, &["Reload"]);
    assert_eq!(said.out.trim(), "as 0", "nothing has changed: {said:?}");
    place.configure("[daemon]\nsokcet = \"s\"\n");
    let said = bus.gdbus(None, "org.weir.Weir1.Manager.Reload", &[]);
    assert!(!said.ok && said.err.contains(REFUSED) && said.err.contains("sokcet"), "{said:?}");
}

#[test]
fn others_are_answered_while_a_reload_goes_on() {
    if !is_possible() {
        return;
    }
    let (bus, daemon) = start(&[lanes("10s", "")]);
    // The profile has nothing of it: 300 runs of 20 ms come first.
    configure(&daemon.deployment, &[lanes("10s", ""), service("signs", "20ms", "10s", "")]);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..2).map(|_| scope.spawn(|| bus.call(None, &["Reload"]))).collect();
        eventually("the measuring", || daemon.stderr().contains("measuring").then_some(()));
        assert_eq!(bus.property(LANES, SERVICE, "State"), "u 1");
        assert_eq!(bus.property(ROOT, "org.weir.Weir1.Manager", "Clients"), "u 0");
        assert!(daemon.status()["reload"].is_null(), "it goes on");
        let said: Vec<_> = calls.into_iter().map(|call| call.join().expect("no panic")).collect();
        // Both are told the outcome of one that began after they asked: the same one, or the next.
        assert!(said.iter().all(|said| said.ok), "{said:?}");
        assert!(said.iter().any(|said| said.out.contains("service signs: new")), "{said:?}");
    });
    assert_eq!(bus.property(SIGNS, SERVICE, "State"), "u 1");
}

#[test]
fn workers_that_are_lost_and_return_are_told() {
    if !is_possible() {
        return;
    }
    let (bus, daemon) = start(&[lanes("10s", "workers = 2\nisolation = \"process\"")]);
    let ears = Listener::start(&daemon.deployment);
    let lost = *daemon.children().first().expect("a worker's process");
    kill_process(lost, Signal::KILL).expect("killed");
    let worker = ears.hear(&["lanes/worker/", "PropertiesChanged", "'State': <uint32 3>"]);
    ears.hear(&[LANES, "PropertiesChanged", "'WorkersAlive': <uint32 1>"]);
    let path = worker.split(':').next().expect("a path");
    ears.hear(&[path, "PropertiesChanged", "'State': <uint32 1>"]);
    ears.hear(&[LANES, "PropertiesChanged", "'WorkersAlive': <uint32 2>"]);
    assert_eq!(bus.property(path, "org.weir.Weir1.Worker", "State"), "u 1");
    // Though nothing is announced meanwhile, what is there is told; the state is not.
    assert!(bus.call(None, &["Clear", "s", ""]).ok);
    ears.hear(&[LANES, "PropertiesChanged", "'State': <uint32 1>"]);
    assert!(bus.call(None, &["Inhibit", "st", "lanes", "3600000000"]).ok);
    let next = *daemon.children().first().expect("a worker's process");
    kill_process(next, Signal::KILL).expect("killed");
    let told = ears.hear(&[LANES, "PropertiesChanged", "'WorkersAlive': <uint32 1>"]);
    assert!(!told.contains("'State'"), "{told}");
    assert_eq!(bus.property(LANES, SERVICE, "State"), "u 3");
    assert!(bus.call(None, &["Inhibit", "st", "lanes", "0"]).ok);
    ears.hear(&[LANES, "PropertiesChanged", "'State': <uint32 3>"]);
}
