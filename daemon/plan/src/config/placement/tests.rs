//! Tests of what may be placed where: what is read, what is refused in which words, and when.

use super::super::{Config, ConfigError};
use super::*;

const BOX: &str = r#"
    [placement]
    mode = "advise"
    headroom = 1.5
    [[placement.class]]
    name = "fast"
    cores = [2, 3]
    memory = 1000000
    [[placement.class]]
    name = "slow"
    count = 4
    shared = true
    [[service]]
    name = "digits"
    models = ["digits-s", "digits-m"]
    deadline = "50ms"
    value = 2.0
    [[service.stream]]
    name = "cam0"
    constraints = [{ row-miss = 2 }]
    arrivals = [{ window = { count = 5, length = "100ms" } }, { periodic = { period = "50ms" } }]
"#;

fn load(text: &str, is_box: bool) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("box.toml");
    std::fs::write(&path, text).expect("written");
    if is_box { Config::load_box(&path) } else { Config::load(&path) }
}

fn error(from: &str, to: &str) -> String {
    assert!(BOX.contains(from), "{from}");
    load(&BOX.replace(from, to), true).expect_err("must be refused").to_string()
}

#[test]
fn models_have_times_of_their_own_on_classes_whose_devices_are_told_apart() {
    let own = |classes: &[&str]| -> Vec<bool> {
        let classes: String = classes
            .iter()
            .enumerate()
            .map(|(i, class)| format!("[[placement.class]]\nname = \"c{i}\"\n{class}\n"))
            .collect();
        let service = "[[service]]\nname = \"digits\"\nmodels = [\"digits-s\"]\ndeadline = \"50ms\"\n";
        let config = load(&format!("[placement]\n{classes}{service}"), true).expect("good");
        config.placement.expect("there").classes.iter().map(|class| class.timed_as().is_some()).collect()
    };
    assert_eq!(own(&["cores = [0]"]), [false]);
    assert_eq!(own(&["cores = [0]", "cores = [1]"]), [true, true]);
    assert_eq!(own(&["cores = [0]", "count = 2"]), [true, true]);
    assert_eq!(own(&["cores = [0]", "count = 2", "count = 2\nshared = true"]), [true, false, false]);
    assert_eq!(own(&["count = 2\nshared = true", "count = 1\nshared = true"]), [false, false]);
    assert_eq!(own(&["cores = [0]", "count = 1", "count = 2"]), [true, false, false]);
}

#[test]
fn where_times_tell_classes_apart_a_service_is_where_they_are() {
    let text = |times: &str| {
        format!(
            "[placement]\n[[placement.class]]\nname = \"a\"\nengine = \"simulated\"\ncount = 2\n\
             [[placement.class]]\nname = \"b\"\nengine = \"simulated\"\ncount = 2\n\
             [[service]]\nname = \"s\"\nengine = \"simulated\"\ndeadline = \"50ms\"\nworkers = 1\n[service.simulated]\ntimes = [\"{times}\"]\n\
             accuracy = 0.5\nmodels = [{{ accuracy = 0.5, times = {{ a = [\"4ms\"], b = [\"6ms\"] }} }}]\n"
        )
    };
    let placed = |times: &str| {
        let config = load(&text(times), true).expect("good");
        config.services[0].candidates.as_ref().and_then(|of| of.placed.as_ref()).map(|placed| placed.class)
    };
    assert_eq!((placed("4ms"), placed("6ms"), placed("5ms")), (Some(0), Some(1), None));
}

#[test]
fn a_box_says_among_what_is_chosen() {
    let config = load(BOX, true).expect("good");
    let placement = config.placement.as_ref().expect("there");
    assert_eq!((placement.mode, placement.headroom, placement.budget), (Mode::Advise, 1.5, 2));
    assert_eq!((placement.period, placement.limit), (Span::from_millis(30_000), Span::from_millis(2_000)));
    let [fast, slow] = &placement.classes[..] else { panic!("{:?}", placement.classes) };
    assert_eq!(
        (fast.devices, &fast.cores[..], fast.memory, fast.shared),
        (2, &[2, 3][..], Some(1_000_000), false)
    );
    assert_eq!((slow.devices, slow.cores.len(), slow.shared), (4, 0, true));
    let service = &config.services[0];
    let candidates = service.candidates.as_ref().expect("there");
    // Without a demand that is stated, what its streams declare: the lower of their bounds.
    assert_eq!((candidates.demand, candidates.value, &candidates.classes[..]), (20.0, 2.0, &[0, 1][..]));
    assert!(service.is_open() && candidates.placed.is_none() && candidates.switches);
}

/// A class of this machine, and servers elsewhere.
fn elsewhere(class: &str, service: &str) -> String {
    format!(
        "[placement]\n[[placement.class]]\nname = \"here\"\ncount = 2\n[[placement.class]]\nname = \"far\"\nengine = \"oip\"\n{class}\n\
         [[service]]\nname = \"digits\"\ndeadline = \"50ms\"\nmodels = [\"digits-s\", \"digits-m\"]\n{service}\n"
    )
}

const SERVERS: &str =
    "remote = { url = [\"http://127.0.0.1:1\", \"unix:s\", \"grpc://127.0.0.1:3\"], timeout = \"2s\" }";

#[test]
fn servers_elsewhere_are_devices_of_a_class() {
    let config = load(&elsewhere(SERVERS, ""), true).expect("good");
    let classes = &config.placement.as_ref().expect("there").classes;
    let far = &classes[1];
    assert_eq!((far.devices, far.units()), (3, vec![0, 1, 2]));
    assert_eq!(far.unit(1), Unit::Server("unix:s".to_owned()));
    let placed = |devices, models| Placed { class: 1, devices, models };
    let on = config.services[0].on(far, &placed(2, vec![1])).expect("it runs there");
    let remote = on.backend(0).remote.as_ref().expect("servers");
    assert_eq!((&*remote.model, remote.addresses.len(), on.workers), ("digits-m", 3, 2));
    assert_eq!(far.unit_of(&on, 2), Some(2));
    assert!(config.services[0].on(far, &placed(2, vec![0, 1])).is_none(), "a server is called for one model");
    let less = far.without(&[Some(0)]);
    assert_eq!((less.devices, less.unit(1), less.unit_of(&on, 2)), (2, far.unit(2), Some(1)));
    let none = less.without(&[Some(1), Some(0)]);
    assert_eq!((none.devices, none.units()), (0, vec![]));
    assert_eq!(classes[0].without(&[None, None, None]).devices, 0, "where a class only counts");
}

#[test]
fn a_service_is_on_the_servers_of_a_class_that_it_names() {
    let placed = |remote: &str| {
        let service = format!("engine = \"oip\"\nmodel = \"digits-m\"\nworkers = 2\nremote = {{ {remote} }}");
        let config = load(&elsewhere(SERVERS, &service), false).expect("it can be served");
        let service = &config.services[0];
        let placed = service.candidates.as_ref().and_then(|of| of.placed.clone());
        let far = &config.placement.as_ref().expect("there").classes[1];
        placed.map(|placed| (placed, far.unit_of(service, 0), far.unit_of(service, 1)))
    };
    let there = Placed { class: 1, devices: 2, models: vec![1] };
    let two = "url = [\"grpc://127.0.0.1:3\", \"unix:s\"]";
    assert_eq!(placed(&format!("{two}, timeout = \"2s\"")), Some((there, Some(2), Some(1))));
    assert_eq!(placed(two), None, "they are called in another way");
    assert_eq!(placed("url = [\"unix:s\", \"unix:t\"], timeout = \"2s\""), None, "one is of no class");
}

#[test]
fn every_refusal_of_servers_names_field_value_and_limit() {
    let refused = |class: &str, service: &str| {
        load(&elsewhere(class, service), true).expect_err("must be refused").to_string()
    };
    for (class, service, told) in [
        ("count = 1", "", "placement.class[1].remote = (absent): engine \"oip\" needs the servers"),
        (
            &format!("{SERVERS}\ncount = 1"),
            "",
            "placement.class[1].count = (present): is for devices of this machine",
        ),
        (&format!("{SERVERS}\nshared = true"), "", "placement.class[1].shared = (present): is for devices"),
        (
            &SERVERS.replace("unix:s", "http://127.0.0.1:1"),
            "",
            "placement.class[1].remote.url[1] = \"http://127.0.0.1:1\": is there already",
        ),
        (
            &SERVERS.replace("timeout", "model = \"m\", timeout"),
            "",
            "placement.class[1].remote.model = \"m\": is for one model",
        ),
        (
            &SERVERS.replace("127.0.0.1:1", "10.0.0.1:1"),
            "",
            "placement.class[1].remote.url = \"http://10.0.0.1:1\": whoever is on the way reads",
        ),
        (
            SERVERS,
            "remote = { url = \"unix:s\" }",
            "service[0].remote = (present): is chosen by `weir place`",
        ),
    ] {
        let message = refused(class, service);
        assert!(message.contains(told), "{told:?} is not in\n{message}");
    }
    let twice = "engine = \"oip\"\nremote = { url = \"unix:./s\" }";
    let message =
        load(&elsewhere(SERVERS, "").replace("count = 2", twice), true).expect_err("two classes").to_string();
    let told = "placement.class[1].remote.url[1] = \"unix:s\": is there already, in class here: a server is one device, of one class";
    assert!(message.contains(told), "{message}");
    let fixed = "[[service]]\nname = \"fixed\"\ndeadline = \"50ms\"\nmodel = \"digits-l\"\nengine = \"oip\"\nremote = { url = \"grpc://127.0.0.1:3\" }\n";
    let message = load(&(elsewhere(SERVERS, "") + fixed), true).expect_err("it is of a class").to_string();
    let told = "service[1].remote.url = \"grpc://127.0.0.1:3\": is of class far, where services are placed";
    assert!(message.contains(told), "{message}");
    let here = elsewhere(SERVERS, "").replace("count = 2", &format!("count = 2\n{SERVERS}"));
    let message = load(&here, true).expect_err("must be refused").to_string();
    assert!(message.contains("placement.class[0].remote = (table): only for engine = \"oip\""), "{message}");
    let stage = "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\n[[pipeline.stage]]\nname = \"a\"\nmodels = [\"m\"]\nclasses = [\"far\"]\n";
    let message = load(&(elsewhere(SERVERS, "") + stage), true).expect_err("must be refused").to_string();
    assert!(message.contains("pipeline[0].stage[0].classes = far: are servers elsewhere"), "{message}");
}

#[test]
fn only_a_box_leaves_open_what_serves() {
    let message = load(BOX, false).expect_err("must be refused").to_string();
    assert!(
        message.contains("service[0].model = (absent): must say what serves it: run `weir place`"),
        "{message}"
    );
    let placed = BOX.replace(
        "deadline = \"50ms\"",
        "deadline = \"50ms\"\nmodel = \"digits-m\"\nworkers = 2\ncores = [3, 2]",
    );
    let config = load(&placed, false).expect("it can be served");
    let placed = config.services[0].candidates.as_ref().and_then(|of| of.placed.clone());
    assert_eq!(placed, Some(Placed { class: 0, devices: 2, models: vec![1] }));
}

#[test]
fn a_service_elsewhere_than_where_it_may_run_is_not_placed() {
    for more in ["cores = [7]", "cores = []", "engine = \"ort-cpu\"\ncores = [2]"] {
        let text =
            BOX.replace("deadline = \"50ms\"", &format!("deadline = \"50ms\"\nmodel = \"digits-m\"\n{more}"));
        let config = load(&text, false).expect("it can be served");
        assert!(config.services[0].candidates.as_ref().is_some_and(|of| of.placed.is_none()), "{more}");
    }
}

#[test]
fn every_refusal_names_field_value_and_limit() {
    let cases = [
        ("headroom = 1.5", "headroom = 0.5", "placement.headroom = 0.5: must be in 1..=100"),
        ("mode = \"advise\"", "budget = 0", "placement.budget = 0: must be in 1..=16"),
        ("mode = \"advise\"", "limit = \"1ms\"", "placement.limit = 1ms: must be 10.0 ms..=1h"),
        ("cores = [2, 3]", "cores = [2, 2]", "placement.class[0].cores[1] = 2: is there already"),
        ("cores = [2, 3]", "cores = [2, 2000]", "placement.class[0].cores[1] = 2000: must be in 0..=1023"),
        ("count = 4", "count = 0", "placement.class[1].count = 0: must be in 1..=256"),
        (
            "count = 4",
            "count = 4\ncores = [5]",
            "placement.class[1].name = \"slow\": says which devices there are by exactly one",
        ),
        ("count = 4", "gpu = [0]", "placement.class[1].gpu = [0]: engine \"tract\" has none"),
        ("name = \"slow\"", "name = \"fast\"", "placement.class[1].name = fast: is taken already"),
        ("memory = 1000000", "memory = 0", "placement.class[0].memory = 0: must be in 1..=17592186044416"),
        ("value = 2.0", "value = -1.0", "service[0].value = -1: must be in 0..=1000000000"),
        ("value = 2.0", "demand = -1.0", "service[0].demand = -1: must be in 0..=1000000000"),
        ("value = 2.0", "classes = []", "service[0].classes = []: must name one of fast, slow at least"),
        (
            "value = 2.0",
            "classes = [\"gpu\"]",
            "service[0].classes[0] = \"gpu\": no [[placement.class]] has this name (fast, slow)",
        ),
        ("value = 2.0", "workers = 2", "service[0].workers = (present): is chosen by `weir place`"),
        (
            "value = 2.0",
            "select = { table = \"t.json\" }",
            "service[0].select = (a table): is for one choice of variants",
        ),
        (
            "value = 2.0",
            "select = \"learned\"\nweights = \"w\"",
            "service[0].select = \"learned\": is for one choice of variants",
        ),
        ("\"digits-m\"]", "\"digits-s\"]", "service[0].models[1] = \"digits-s\": is there already"),
        (
            "models = [\"digits-s\", \"digits-m\"]",
            "models = []",
            "service[0].models (how many) = 0: must be in 1..=",
        ),
        (
            "models = [\"digits-s\", \"digits-m\"]",
            "model = \"digits-s\"",
            "service[0].value = 2: only for a service that says among which models",
        ),
        (
            "cores = [2, 3]",
            "cores = [2, 3]\nengine = \"simulated\"",
            "class fast has engine \"simulated\", which runs no model",
        ),
    ];
    for (from, to, told) in cases {
        let message = error(from, to);
        assert!(message.contains(told), "{to}: {told:?} is not in\n{message}");
    }
    let none: String = BOX.split("[[service]]").skip(1).map(|rest| format!("[[service]]{rest}")).collect();
    let message = load(&none, true).expect_err("nothing to be placed on").to_string();
    assert!(message.contains("service[0].models = (present): is placed on classes of devices"), "{message}");
    let beside = format!("{BOX}\n[[service]]\nname = \"b\"\nmodel = \"m\"\ndeadline = \"1s\"\ncores = [3]");
    let message = load(&beside, true).expect_err("a core of a class").to_string();
    assert!(
        message.contains("service[1].cores = 3: is of class fast, where services are placed"),
        "{message}"
    );
}

#[test]
fn simulated_models_have_times_on_each_class_that_runs_them() {
    let text = BOX
        .replace("cores = [2, 3]", "count = 2\nengine = \"simulated\"")
        .replace("count = 4", "count = 4\nengine = \"simulated\"");
    let models = |models: &str| {
        text.replace("models = [\"digits-s\", \"digits-m\"]", &format!("simulated.models = [{models}]"))
    };
    let good = models(
        "{ accuracy = 0.5, times = { fast = [\"1ms\", \"2ms\"] } }, { accuracy = 0.6, times = { fast = [\"3ms\"], slow = [\"9ms\"] } }",
    );
    let config = load(&good, true).expect("good");
    let of = &config.services[0].candidates.as_ref().expect("there").models;
    assert!(of.choice(0, &[0, 1]).is_some() && of.choice(1, &[1]).is_some() && of.choice(1, &[0]).is_none());
    let falling = models("{ accuracy = 0.5, times = { fast = [\"1ms\"] } }, { accuracy = 0.5, times = {} }");
    let message = load(&falling, true).expect_err("must rise").to_string();
    assert!(
        message.contains("service[0].simulated.models[1].accuracy = 0.5: must be above 0.5"),
        "{message}"
    );
    let nowhere = models("{ accuracy = 0.5, times = { gpu = [\"1ms\"] } }");
    let message = load(&nowhere, true).expect_err("no such class").to_string();
    assert!(
        message.contains("service[0].simulated.models[0].times = \"gpu\": no [[placement.class]]"),
        "{message}"
    );
}

#[test]
fn no_class_has_fewer_devices_than_are_used() {
    let service = |name: &str, workers: usize| {
        format!(
            "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\ndeadline = \"50ms\"\nworkers = {workers}\n\
             simulated = {{ times = [\"4ms\"], accuracy = 0.5, models = [{{ accuracy = 0.5, times = {{ a = [\"4ms\"] }} }}] }}\n"
        )
    };
    let text = |a: usize, b: usize| {
        let class = "[placement]\n[[placement.class]]\nname = \"a\"\nengine = \"simulated\"\ncount = 6\n";
        format!("{class}{}{}", service("s", a), service("t", b))
    };
    assert!(load(&text(2, 4), false).is_ok());
    for (a, b, told) in [
        (40, 1, "service[0].workers = 40: class a has 6 devices"),
        (2, 5, "service[1].workers = 5: class a has 6 devices, 4 of them free"),
    ] {
        let error = load(&text(a, b), false).expect_err(told).to_string();
        assert!(error.ends_with(told), "{error}");
        assert!(load(&text(a, b), true).is_ok(), "`weir place` chooses anew");
    }
}

#[test]
fn what_has_no_place_on_shared_devices_is_refused_where_there_are_no_others() {
    let alone = "models = [\"digits-s\", \"digits-m\"]\nclasses = [\"slow\"]";
    let models = "models = [\"digits-s\", \"digits-m\"]";
    for (field, value) in [
        ("stalls", "stalls = { at-most = 1, in = \"10s\", of = \"10ms\" }"),
        (
            "degraded",
            "constraints = [{ any-miss = { m = 1, k = 5 } }]\ndegraded = [[{ any-miss = { m = 4, k = 5 } }]]",
        ),
        ("background", "background = false"),
    ] {
        let message = error(models, &format!("{alone}\n{value}"));
        let told = format!("service[0].{field} = (present): has no place on devices that services share");
        assert!(message.contains(&told), "{message}");
        load(&BOX.replace(models, &format!("{models}\n{value}")), true).expect("another class is not shared");
    }
    let stream = "constraints = [{ row-miss = 2 }]";
    let steps = format!("{stream}\ndegraded = [[{{ row-miss = 4 }}]]");
    let text = BOX.replace(models, alone).replace(stream, &steps);
    let message = load(&text, true).expect_err("must be refused").to_string();
    assert!(message.contains("service[0].stream[0].degraded = (present): has no place"), "{message}");
}

#[test]
fn a_service_of_which_nothing_is_declared_has_no_demand() {
    let text = BOX.split("    [[service.stream]]").next().expect("before");
    let config = load(text, true).expect("good");
    let demand = config.services[0].candidates.as_ref().map(|candidates| candidates.demand);
    assert!(demand.is_some_and(|demand| demand == 0.0 && demand.is_sign_positive()), "{demand:?}");
}
