//! Pipelines beside services that are placed: what is told of them, and how they move.

use weir_client::{ArrivalBound, Constraint, Registration};

use super::*;

/// Requests a second of `a`, and sources of `p`.
const FIRST: [u64; 2] = [36, 8];
pub(super) const SWAPPED: [u64; 2] = [8, 36];

/// `a` and the pipeline `p` of two stages, on so many devices.
fn file(mode: &str, devices: usize, demand: [u64; 2], more: &str) -> String {
    let models = "[{ accuracy = 0.6, times = { box = [\"16ms\"] } }, { accuracy = 0.9, times = { box = [\"64ms\"] } }]";
    let stream = |of: &str| {
        format!(
            "[[{of}.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"150ms\" }} }}]\n"
        )
    };
    let common = |demand: u64| format!("demand = {demand}.0\ndeadline = \"2s\"\nguard = \"500ms\"\n");
    let [a, p] = demand.map(common);
    let runs = format!(
        "{more}handover = \"0ms\"\nmax-batch = 1\nsimulated = {{ input = 4, output = 4, models = {models} }}\n"
    );
    format!(
        "{DAEMON}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[placement]\nmode = \"{mode}\"\nperiod = \"1s\"\nbudget = 4\n\
         limit = \"5s\"\nwindow = \"250ms\"\nhysteresis = 0.5\nheadroom = 1.2\nlost-after = \"500ms\"\n\
         [[placement.class]]\nname = \"box\"\nengine = \"simulated\"\ncount = {devices}\n\
         [[service]]\nname = \"a\"\n{a}{runs}{}\
         [[pipeline]]\nname = \"p\"\n{p}{}\
         [[pipeline.stage]]\nname = \"x\"\n{runs}\
         [[pipeline.stage]]\nname = \"y\"\nafter = \"x\"\n{runs}adapter = {{ inputs.input = {{ pass = \"source.input\" }} }}\n",
        stream("service"),
        stream("pipeline")
    )
}

/// Placed on three devices, and served where there are nine.
fn served(mode: &str) -> Deployment {
    let place = Deployment::new(file(mode, 3, [20, 20], ""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    let path = place.config();
    let path = path.to_str().expect("UTF-8");
    let message = place.fail(&["serve"]);
    let open = "pipeline[0].stage[0].model = (absent): must say what serves it: run `weir place`";
    assert!(message.contains(open), "{message}");
    let told: Value = serde_json::from_str(&place.succeed(&["place", "--json", "-o", path])).expect("JSON");
    let stages: Vec<_> =
        told["services"].as_array().expect("a list").iter().map(|one| one["stage"].as_str()).collect();
    assert_eq!(stages, [None, Some("x"), Some("y")]);
    // Of each 0.6: with three devices nobody has two.
    let right = told["pipelines"][0]["accuracy"].as_f64().expect("a number");
    assert!((right - 36.0).abs() < 1e-6, "{told:#}");
    assert!(
        told["pipelines"][0]["keeps"]["margin_ms"].as_f64().is_some_and(|margin| margin > 0.0),
        "{told:#}"
    );
    let written = std::fs::read_to_string(path).expect("written");
    place.configure(written.replace("count = 3", "count = 9"));
    place.succeed(&["check"]);
    place.succeed(&["plan"]);
    place
}

/// Six devices, divided for that demand.
pub(super) fn six(demand: [u64; 2], more: &str) -> Deployment {
    let place = Deployment::new(file("follow", 6, demand, more));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    place.succeed(&["place", "-o", place.config().to_str().expect("UTF-8")]);
    place
}

pub(super) fn senders(daemon: &Daemon, [a, p]: [u64; 2]) -> Vec<Sender> {
    vec![Sender::start(daemon, "a", a), Sender::start(daemon, "p", p)]
}

#[test]
fn a_pipeline_whose_demand_swaps_with_that_of_a_service_is_placed_anew_twice_and_a_restart_goes_on() {
    let place = six(FIRST, "");
    let file = std::fs::read_to_string(place.config()).expect("the file");
    let mut daemon = place.serve();
    // With the better models: four devices for much, and two for a little of both stages.
    assert_eq!(workers(&daemon), [4, 2]);
    let mut listener = Listener::new(&daemon);
    let senders = senders(&daemon, FIRST);
    settled(&daemon, FIRST);
    for (demand, expected) in [(SWAPPED, [1, 5]), (FIRST, [4, 2])] {
        set(&senders, demand);
        // Where the machine has held the senders up, more was expected for a while than is asked.
        eventually(&format!("{expected:?}"), || {
            let now = workers(&daemon);
            assert!(now.iter().sum::<u64>() <= 6, "a device is held by two: {now:?}");
            (now == expected).then_some(())
        });
    }
    let told = daemon.stderr();
    assert!(told.contains("a has moved") && told.contains("p has moved"), "{told}");
    assert!(
        told.contains("pipeline p: x 1 of box with accuracy 0.9, y 1 of box with accuracy 0.9 -> "),
        "{told}"
    );
    set(&senders, SWAPPED);
    eventually("the pipeline with one better stage", || (workers(&daemon) == [1, 5]).then_some(()));
    settled(&daemon, SWAPPED);
    let after = workers(&daemon);
    Sender::end(senders, &mut listener);
    assert_eq!(file, std::fs::read_to_string(place.config()).expect("the file"), "the file is its owner's");
    let demand = placement(&daemon)["demand"].clone();
    assert_eq!(demand[1]["service"], "p", "what is asked of it is counted");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let again = place.serve();
    assert_eq!(workers(&again), after, "a restart goes on from what was served");
}

#[test]
fn a_pipeline_whose_move_is_refused_stays_where_it_is() {
    let place = six(SWAPPED, "");
    let daemon = place.serve();
    assert_eq!(workers(&daemon), [1, 5]);
    let mut listener = Listener::new(&daemon);
    let senders = senders(&daemon, SWAPPED);
    settled(&daemon, SWAPPED);
    let file = std::fs::read_to_string(place.config()).expect("the file");
    place.configure(format!("{file}# edited\n"));
    let before = (workers(&daemon), std::fs::read_to_string(kept(&place)).ok());
    // It would go first, as it gives devices up.
    set(&senders, FIRST);
    eventually("a step that is left", || {
        daemon.stderr().contains("stays where it is: the configuration file has been edited").then_some(())
    });
    Sender::end(senders, &mut listener);
    assert_eq!((workers(&daemon), std::fs::read_to_string(kept(&place)).ok()), before, "all is as it was");
    assert!(placement(&daemon)["failures"].as_u64() > Some(0));
}

/// The new place is verified for the promises that clients hold by now, of which no plan knows.
#[test]
fn a_pipeline_that_has_promised_more_than_it_could_keep_elsewhere_stays_until_that_is_over() {
    let place = six(SWAPPED, "");
    let daemon = place.serve();
    assert_eq!(workers(&daemon), [1, 5]);
    let mut listener = Listener::new(&daemon);
    let senders = senders(&daemon, SWAPPED);
    settled(&daemon, SWAPPED);
    // More than one device does with the better model.
    let more = Registration::builder("p", "more still")
        .constraint(Constraint::any_miss(3, 10))
        .arrivals(ArrivalBound::periodic(Duration::from_millis(40), Duration::ZERO));
    let mut client = daemon.client();
    let held = client.register(&more.build().expect("good")).expect("there is room");
    set(&senders, FIRST);
    eventually("a step that is refused", || {
        daemon.stderr().contains("placement: p stays where it is: ").then_some(())
    });
    eventually("that a restart would find what is served", || {
        let text = std::fs::read_to_string(kept(&place)).expect("written");
        let served: toml::Table = toml::from_str(&text).expect("TOML");
        let stages = served["pipeline"][0]["stage"].as_array().expect("stages");
        let of = |stage: &toml::Value| stage["workers"].as_integer().expect("a number") as u64;
        let now = workers(&daemon)[1];
        assert!(now > 2, "one device of each stage does not keep what is promised");
        (stages.iter().map(of).sum::<u64>() == now).then_some(())
    });
    client.unregister(&held).expect("given up");
    eventually("a move that nothing is in the way of", || (workers(&daemon) == [4, 2]).then_some(()));
    Sender::end(senders, &mut listener);
}

#[test]
fn what_would_be_better_for_a_pipeline_is_told() {
    let place = served("advise");
    let daemon = place.serve();
    let told = eventually("advice", || {
        let told = placement(&daemon);
        told["state"].as_str().filter(|state| state.contains("pipeline p: ")).map(str::to_owned)
    });
    assert!(
        told.contains("pipeline p: x 1 of box with accuracy 0.6, y 1 of box with accuracy 0.6 -> "),
        "{told}"
    );
    let demand = placement(&daemon)["demand"].clone();
    let names: Vec<_> =
        demand.as_array().expect("a list").iter().map(|one| one["service"].as_str()).collect();
    assert_eq!(names, [Some("a"), Some("p")], "what is asked of the pipeline is counted");
}

/// `a`, another service and `p` on devices that they share, where no result of `p` becomes a request though the file says that each becomes
/// one; not placed yet.
pub(super) fn shared(devices: usize, more: &str) -> Deployment {
    let text = file("advise", devices, [8, 8], more);
    let text = text.replace("engine = \"simulated\"\ncount", "engine = \"simulated\"\nshared = true\ncount");
    let text = text.replace("after = \"x\"", "after = \"x\"\nfan-out = 3\nmean = 1.0");
    let (head, rest) = text.split_once("[[service]]").expect("it is there");
    let (service, pipeline) = rest.split_once("[[pipeline]]").expect("it is there");
    let other = service.replace("name = \"a\"", "name = \"b\"");
    let text = format!("{head}[[service]]{service}[[service]]{other}[[pipeline]]{pipeline}");
    let each = "each = { scores = \"output\", threshold = 0.5 }, inputs.input";
    let place = Deployment::new(text.replace("inputs.input", each));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    place
}

/// What is counted of a pipeline that shares a device is shown, and planned for.
#[test]
fn a_pipeline_is_placed_on_a_shared_device_and_what_its_results_become_is_counted_there() {
    let place = shared(1, "");
    let path = place.config();
    let path = path.to_str().expect("UTF-8");
    let told: Value = serde_json::from_str(&place.succeed(&["place", "--json", "-o", path])).expect("JSON");
    let services = told["services"].as_array().expect("a list");
    let on: Vec<_> = services.iter().map(|one| (one["stage"].as_str(), &one["shared"])).collect();
    assert_eq!(on, [None, None, Some("x"), Some("y")].map(|stage| (stage, &Value::Bool(true))));
    assert_eq!(told["services"][3]["demand"], 8.0, "{told:#}");
    let written = std::fs::read_to_string(path).expect("written");
    assert_eq!(
        written.matches("device = \"box\"").count(),
        3,
        "of the services and of the pipeline: {written}"
    );
    place.succeed(&["check"]);
    place.succeed(&["certify"]);
    let daemon = place.serve();
    let (mut listener, senders) = (Listener::new(&daemon), senders(&daemon, [8, 8]));
    let of_p = |told: &Value| told["demand"][2]["stages"][0].clone();
    let counted = eventually("results that become nothing", || {
        Some(of_p(&placement(&daemon))).filter(|stage| stage["mean"] == 0.0)
    });
    assert_eq!(counted["stage"], "y");
    let status = std::process::Command::new(weir()).args(["status", "--socket"]).arg(place.socket()).output();
    let told = String::from_utf8(status.expect("it runs").stdout).expect("UTF-8");
    assert!(told.contains("y                   0.00 of each result before it"), "{told}");
    let told: Value =
        serde_json::from_str(&place.succeed(&["place", "--json", "--demand", "status"])).expect("JSON");
    assert_eq!(told["services"][3]["demand"], 0.0, "{told:#}");
    Sender::end(senders, &mut listener);
}
