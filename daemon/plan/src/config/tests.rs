//! Tests of the configuration: what its fields come to, and those that are left out.

mod lines;
mod refused;

use super::*;

const GOOD: &str = r#"
    [daemon]
    socket = "/tmp/weir.sock"
    models = "models.toml"
    profile = "x.profile.json"
    [[service]]
    name = "digits"
    model = "digits-m"
    deadline = "50ms"
    constraints = [{ any-miss = { m = 1, k = 2 } }, { row-miss = 2 }]
    [[service.stream]]
    name = "cam0"
    arrivals = [{ window = { count = 5, length = "100ms" } }]
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("dir/test.toml"), text)
}

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replace(from, to)).expect_err("must be refused").to_string()
}

#[test]
fn a_good_file_loads_with_defaults_and_resolved_paths() {
    let config = parse(GOOD).expect("good");
    assert_eq!(config.daemon.models.as_deref(), Some(Path::new("dir/models.toml")));
    let service = &config.services[0];
    assert_eq!(service.isolation, Isolation::Thread);
    assert_eq!((service.workers, service.deadline), (1, Span::from_millis(50)));
    assert_eq!(service.reserved[0].spec.constraints().as_slice(), &service.constraints[..]);
}

#[test]
fn requests_may_be_early_by_a_tenth_of_the_time_to_answer_them_or_by_what_is_stated() {
    let tolerance = |more: &str| {
        let text =
            GOOD.replace("deadline = \"50ms\"", &format!("deadline = \"50ms\"\nguard = \"10ms\"\n{more}"));
        let Tolerance { most, paced } = parse(&text).expect("good").services[0].tolerance;
        (most, paced)
    };
    let ms = Span::from_millis;
    assert_eq!((tolerance(""), tolerance("tolerance = \"auto\"")), ((ms(4), true), (ms(4), true)));
    assert_eq!(tolerance("tolerance = \"39ms\""), (ms(39), false));
    assert_eq!(
        (tolerance("tolerance = \"0s\""), tolerance("background = false")),
        ((ms(0), false), (ms(0), true))
    );
}

#[test]
fn streams_of_a_device_are_told_apart_by_the_names_of_its_services() {
    let named = |first: &str, second: &str, device: &str| {
        let service = |name: &str, device: &str| {
            format!(
                "[[service]]\nname = \"{name}\"\nmodel = \"m\"\ndeadline = \"50ms\"\ndevice = \"{device}\"\n"
            )
        };
        let devices = "[[device]]\nname = \"box\"\n[[device]]\nname = \"other\"\n";
        let services = [service(first, "box"), service(second, device), service("last", "other")];
        let (daemon, _) = GOOD.split_once("[[service]]").expect("a service");
        parse(&format!("{daemon}{devices}{}", services.concat()))
    };
    for (first, second, device) in [("r/s", "r", "box"), ("r", "r/s", "box")] {
        let text = named(first, second, device).expect_err("refused").to_string();
        for part in [".name = \"r/s\"", "begins with r/", "service r on device box"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
    for (first, second, device) in [("r", "r/s", "other"), ("r", "rs", "box"), ("r/s", "r/t", "box")] {
        named(first, second, device).expect("told apart");
    }
}

#[test]
fn what_is_run_or_loaded_is_that_beside_the_file() {
    let loaded = |file: &str| {
        let text = GOOD.replace("[daemon]", "[daemon]\nonnxruntime = \"lib.so\"");
        Config::parse(Path::new(file), &text).expect("good").daemon.onnxruntime
    };
    // A name without a slash would be looked for on the loader's path.
    assert_eq!(loaded("test.toml").as_deref(), Some(Path::new("./lib.so")));
    assert_eq!(loaded("/etc/test.toml").as_deref(), Some(Path::new("/etc/lib.so")));
}

#[test]
fn weaker_promises_are_a_ladder_or_refused() {
    let with = |levels: &str| {
        parse(&GOOD.replace("[[service.stream]]", &format!("degraded = {levels}\n    [[service.stream]]")))
    };
    let refused = |levels: &str| with(levels).expect_err("no ladder").to_string();
    let config = with("[[{ any-miss = { m = 2, k = 3 } }]]").expect("weaker");
    assert_eq!(config.services[0].reserved[0].spec.levels().len(), 1);
    for (levels, why) in [
        ("[[]]", "level 1 promises nothing"),
        ("[[{ any-miss = { m = 2, k = 3 } }], []]", "level 2 promises nothing"),
        (
            "[[{ any-miss = { m = 0, k = 2 } }]]",
            "degraded[0] = any_miss(0,2): is not weaker than what stands before it: 2/2 of the requests must be served",
        ),
        ("[[{ any-miss = { m = 3, k = 4 } }], [{ any-miss = { m = 2, k = 3 } }]]", "must be less than 1/4"),
        (
            "[[{ any-miss = { m = 2, k = 3 } }], [{ any-miss = { m = 2, k = 3 } }]]",
            "degraded[1] = any_miss(2,3): is not weaker",
        ),
        ("[[{ any-miss = { m = 4, k = 6 } }], [{ any-miss = { m = 2, k = 3 } }]]", "must be less than 2/6"),
        (
            "[[{ row-miss = 5 }], [{ row-miss = 6 }], [{ row-miss = 7 }], [{ row-miss = 8 }], [{ row-miss = 9 }]]",
            "at most 4",
        ),
    ] {
        let told = refused(levels);
        assert!(told.contains("service[0].degraded") && told.contains(why), "{levels}: {told}");
    }
    // A level whose declaration could not be made wider is told of.
    assert_eq!(config.services[0].idle_levels(), Vec::<String>::new());
    let narrow = GOOD.replace("count = 5", "count = 1").replace(
        "[[service.stream]]",
        "degraded = [[{ any-miss = { m = 3, k = 5 } }], [{ row-miss = 5 }]]\n    [[service.stream]]",
    );
    let idle = parse(&narrow).expect("a ladder").services[0].idle_levels();
    assert_eq!(
        idle,
        [
            "digits: stream cam0: level 1 of `degraded`, any_miss(3,5), allows no more than what stands before it, 1 per 100.0 ms: \
          it is never in force for a stream that sends more"
        ]
    );
    // Of a stream's own constraints as well.
    let own = "arrivals = [{ window = { count = 5, length = \"100ms\" } }]";
    let told = error(own, &format!("{own}\n    constraints = [{{ row-miss = 2 }}]\n    degraded = [[]]"));
    assert!(told.contains("stream[0].degraded") && told.contains("level 1 promises nothing"), "{told}");
}

#[test]
fn misses_may_be_spread_where_anything_is_served_that_nobody_declared() {
    let with = |more: &str| {
        parse(&GOOD.replace("[[service.stream]]", &format!("{more}\n    [[service.stream]]")))
            .map_err(|error| error.to_string())
    };
    let spread = |more: &str| with(more).expect("good").services[0].spread;
    assert_eq!(
        ["", "best-effort = \"refuse-early\"", "best-effort = \"spread\""].map(spread),
        [false, false, true]
    );
    let told = with("best-effort = \"luck\"").expect_err("no such choice");
    assert!(told.contains("best-effort") && told.contains("refuse-early"), "{told}");
    let told = with("best-effort = \"spread\"\nbackground = false").expect_err("closed");
    assert!(
        told.contains("service[0].best-effort = spread: is not possible with background = false"),
        "{told}"
    );
    assert!(with("best-effort = \"refuse-early\"\nbackground = false").is_ok());
}

#[test]
fn workers_take_the_gpus_in_turn() {
    let on = |text: &str| {
        let text = GOOD.replace("model = \"digits-m\"", &format!("model = \"m\"\n{text}"));
        let config = parse(&text).expect("good");
        [0, 1, 2].map(|worker| config.services[0].backend(worker).device)
    };
    assert_eq!(on(""), [0, 0, 0]);
    assert_eq!(on("engine = \"ort-cuda\"\ngpu = 1"), [1, 1, 1]);
    assert_eq!(on("engine = \"ort-tensorrt\"\ngpu = [0, 2]"), [0, 2, 0]);
}

#[test]
fn a_port_that_knows_its_clients_may_be_anywhere_and_beside_lists_of_users() {
    let text = "[daemon]\nallow-users = [\"0\"]\noip.http = \"10.0.0.2:8000\"\n\
                oip.tls = { certificate = \"c.pem\", key = \"/k.pem\", client-ca = \"a.pem\", revoked = \"r.pem\", allow-clients = [\"front.example\"] }";
    let config = Config::parse(Path::new("dir/test.toml"), &GOOD.replace("[daemon]", text)).expect("good");
    let tls = config.daemon.oip.tls.expect("it is there");
    assert_eq!((tls.certificate, tls.key), ("dir/c.pem".into(), "/k.pem".into()));
    assert_eq!((tls.client_ca, tls.allowed.len()), (Some("dir/a.pem".into()), 1));
    assert_eq!(tls.revoked, Some("dir/r.pem".into()));
}

#[test]
fn batches_are_served_up_to_eight_or_the_size_of_the_promise() {
    let sizes = |text: &str| {
        let text = GOOD.replace("model = \"digits-m\"", &format!("model = \"m\"\n{text}"));
        let service = &parse(&text).expect("good").services[0];
        (service.batch, service.max_batch)
    };
    assert_eq!(sizes(""), (None, 8));
    assert_eq!(sizes("batch = 3"), (Some(3), 8));
    assert_eq!(sizes("batch = 12"), (Some(12), 12));
    assert_eq!(sizes("batch = 1\nmax-batch = 4"), (Some(1), 4));
}
