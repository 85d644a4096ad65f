//! Services and pipelines that each wait for the other's device.

use super::apart::box_of;
use super::*;

/// `a` and `b` on two devices, of which the one is better for who is asked much; on a third both keep their promise, and not more.
fn three_classes() -> String {
    let services = [("a", 40), ("b", 6)].map(|(name, demand)| {
        format!(
            "[[service]]\nname = \"{name}\"\ndemand = {demand}.0\ndeadline = \"2s\"\nguard = \"500ms\"\nhandover = \"0ms\"\nmax-batch = 1\n\
             [service.simulated]\ninput = 4\noutput = 4\nmodels = [\n\
             {{ accuracy = 0.6, times = {{ good = [\"10ms\"], fair = [\"11ms\"], spare = [\"40ms\"] }} }},\n\
             {{ accuracy = 0.9, times = {{ good = [\"18ms\"], fair = [\"70ms\"] }} }}]\n\
             [[service.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"150ms\" }} }}]\n"
        )
    });
    format!("{}{}", box_of(&[("good", 1), ("fair", 1), ("spare", 1)], ""), services.concat())
}

/// The same with `b` as the first stage of a pipeline, and `a` that cannot be on the third, so that the pipeline has to make room.
fn staged() -> String {
    let (a, b) = three_classes()
        .split_once("[[service]]\nname = \"b\"")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("both");
    let (declared, runs) = b.split_once("handover").expect("what runs it");
    let (runs, stream) = runs.split_once("[[service.stream]]").expect("a stream");
    let runs = runs.replace("[service.simulated]", "[pipeline.stage.simulated]");
    let a = a.replace(", spare = [\"40ms\"]", "").replacen(
        "[[placement.class]]",
        "[[placement.class]]\nname = \"rest\"\nengine = \"simulated\"\ncount = 1\n[[placement.class]]",
        1,
    );
    format!(
        "{a}[[pipeline]]\nname = \"b\"{declared}[[pipeline.stream]]{stream}[[pipeline.stage]]\nname = \"x\"\nhandover{runs}\
         [[pipeline.stage]]\nname = \"y\"\nafter = \"x\"\nhandover = \"0ms\"\nmax-batch = 1\n\
         adapter = {{ inputs.input = {{ pass = \"source.input\" }} }}\n\
         simulated = {{ input = 4, output = 4, models = [{{ accuracy = 0.9, times = {{ rest = [\"2ms\"] }} }}] }}\n"
    )
}

#[test]
fn services_that_wait_for_each_other_make_room_by_a_device_that_is_free() {
    make_room(three_classes(), "stands aside until others have moved");
}

#[test]
fn a_pipeline_makes_room_with_all_of_its_stages() {
    let served = make_room(staged(), "b stands aside until others have moved");
    let y = &served["pipeline"][0]["stage"][1];
    assert_eq!(y["simulated"]["times"][0].as_str(), Some("2ms"), "{y}");
}

/// What is served when both are where the other was.
fn make_room(file: String, aside: &str) -> toml::Table {
    let place = Deployment::new(file);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    let path = place.config();
    place.succeed(&["place", "-o", path.to_str().expect("UTF-8")]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    // Who was to be asked little is asked much.
    let senders = vec![Sender::start(&daemon, "a", 6), Sender::start(&daemon, "b", 40)];
    eventually("both where the other was", || {
        let told = daemon.stderr();
        pause(Duration::from_millis(100));
        let all = [aside, "a has moved", "b has moved"];
        all.iter().all(|line| told.contains(line)).then_some(())
    });
    let aside = daemon.stderr().lines().find(|line| line.contains("stands aside")).map(str::to_owned);
    assert!(aside.is_some_and(|line| line.contains("placement: ")), "{}", daemon.stderr());
    Sender::end(senders, &mut listener);
    let served = std::fs::read_to_string(kept(&place)).expect("what is served is kept");
    let served: toml::Table = toml::from_str(&served).expect("TOML");
    let stages = served.get("pipeline").map(|all| &all[0]["stage"]).into_iter().filter_map(|all| all.get(0));
    for runs in served["service"].as_array().expect("services").iter().chain(stages) {
        assert_ne!(runs["simulated"]["times"][0].as_str(), Some("40ms"), "nobody is left on what is spare");
    }
    served
}
