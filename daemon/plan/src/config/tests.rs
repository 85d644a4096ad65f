//! Tests of the configuration: what is refused, in which words, and what is left out.

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
fn every_refusal_names_file_field_value_and_limit() {
    for (from, to, wanted) in [
        ("\"50ms\"", "\"0ms\"", &["dir/test.toml", "service[0].deadline", "0ms", "1h"][..]),
        ("\"50ms\"", "\"50 lightyears\"", &["service[0].deadline", "lightyears"]),
        ("m = 1, k = 2", "m = 2, k = 2", &["service[0].constraints[0]", "m must be below K"]),
        ("count = 5", "count = 0", &["service[0].stream[0].arrivals[0]", "0 requests", "65536"]),
        ("name = \"digits\"", "name = \"\"", &["service[0].name", "1..=64"]),
        ("model = \"digits-m\"", "model = \"m\"\nworkers = 999", &["service[0].workers", "999", "256"]),
        ("[daemon]", "[daemon]\nmax-clients = 0", &["daemon.max-clients", "0", "1..=1024"]),
        ("[daemon]", "[daemon]\nallow-users = [\"nobody-here\"]", &["daemon.allow-users", "nobody-here"]),
        ("deadline = \"50ms\"", "deadline = \"50ms\"\nguard = \"60ms\"", &["service[0].guard", "60ms"]),
        (
            "deadline = \"50ms\"",
            "deadline = \"50ms\"\ntolerance = \"45ms\"",
            &["service[0].tolerance", "45ms", "less the guard, 45.0 ms"],
        ),
        (
            "deadline = \"50ms\"",
            "deadline = \"50ms\"\ntolerance = \"1ms\"\nbackground = false",
            &["service[0].tolerance", "1ms", "background = false"],
        ),
        ("model = \"digits-m\"", "engine = \"simulated\"", &["service[0].simulated"]),
        ("[daemon]", "[daemon]\nmax-model = 0", &["daemon.max-model", "0", "1..="]),
        (
            "[[service]]",
            "[[device]]\nname = \"d\"\nmax-memory = 0\n[[service]]",
            &["device[0].max-memory", "0", "1..=17592186044416"],
        ),
        (
            "[[service]]",
            "[[device]]\nname = \"d\"\nstalls = { at-most = 1, in = \"1s\", of = \"1ms\", by = \"constraints\" }\n[[service]]",
            &["device[0].stalls.by", "constraints", "workers of its own"],
        ),
        (
            "[[service]]",
            "[[device]]\nname = \"d\"\n[[service]]\ndevice = \"d\"\nstalls = { at-most = 1, in = \"1s\", of = \"1ms\" }",
            &["service[0].stalls", "(present)", "is the device's"],
        ),
        ("model = \"digits-m\"", "model = \"m\"\ngpu = 1", &["service[0].gpu", "1", "tract"]),
        (
            "model = \"digits-m\"",
            "model = \"m\"\nengine = \"ort-cuda\"\ngpu = [0, 99]",
            &["service[0].gpu", "99", "0..=63"],
        ),
        ("[daemon]", "[daemon]\nbus = \"train\"", &["daemon.bus", "train", "unix:path"]),
        ("[daemon]", "[daemon]\nmetrics = \"9464\"", &["daemon.metrics", "9464", "ADDRESS:PORT"]),
        ("[daemon]", "[daemon]\nmetrics = \"10.0.0.1:9464\"", &["daemon.metrics", "10.0.0.1", "127."]),
        (
            "[daemon]",
            "[daemon]\noip = { http = \"127.0.0.1:8000\", grpc = \"127.0.0.1:8000\" }",
            &["daemon.oip.grpc = \"127.0.0.1:8000\"", "that of daemon.oip.http already"],
        ),
        ("[daemon]", "[daemon]\noip.http = \"8000\"", &["daemon.oip.http", "8000", "ADDRESS:PORT"]),
        ("[daemon]", "[daemon]\noip.grpc = \"0.0.0.0:8001\"", &["daemon.oip.grpc", "0.0.0.0", "127."]),
        (
            "[daemon]",
            "[daemon]\noip.http = \"unix:x.profile.json\"",
            &["daemon.oip.http", "x.profile", "other"],
        ),
        (
            "[daemon]",
            "[daemon]\nallow-users = [\"0\"]\noip.http = \"127.0.0.1:8000\"",
            &["daemon.oip.http", "127.0.0.1:8000", "daemon.allow-users", "unix:PATH"],
        ),
        (
            "[daemon]",
            "[daemon]\noip.http = \"10.0.0.2:8000\"",
            &["daemon.oip.http", "10.0.0.2:8000", "needs daemon.oip.tls with a client-ca"],
        ),
        (
            "[daemon]",
            "[daemon]\noip.grpc = \"10.0.0.2:8001\"\noip.tls = { certificate = \"c\", key = \"k\" }",
            &["daemon.oip.grpc", "10.0.0.2:8001", "needs daemon.oip.tls with a client-ca"],
        ),
        (
            "[daemon]",
            "[daemon]\noip.http = \"unix:h\"\noip.tls = { certificate = \"c\", key = \"k\", client-ca = \"a\" }",
            &["daemon.oip.tls", "is for ports", "remove it"],
        ),
        (
            "[daemon]",
            "[daemon]\noip.http = \"127.0.0.1:8000\"\noip.tls = { certificate = \"c\", key = \"k\", allow-clients = [\"a\"] }",
            &["daemon.oip.tls.allow-clients", "[\"a\"]", "needs client-ca"],
        ),
        (
            "[daemon]",
            "[daemon]\noip.http = \"127.0.0.1:8000\"\noip.tls = { certificate = \"c\", key = \"k\", revoked = \"r\" }",
            &["daemon.oip.tls.revoked", "\"r\"", "needs client-ca"],
        ),
        (
            "[daemon]",
            "[daemon]\noip.tls = { certificate = \"c\", key = \"k\", client-ca = \"a\", allow-clients = [\"a\", \"a b\"] }",
            &["daemon.oip.tls.allow-clients[1]", "a b", "the name of a host, an IP address or", "sha256:"],
        ),
        (
            "[[service]]",
            "[safe-mode]\nhook = [\"/nowhere\"]\n[[service]]",
            &["safe-mode.hook[0]", "/nowhere"],
        ),
        (
            "[[service]]",
            "[safe-mode]\nhook-limit = \"2m\"\n[[service]]",
            &["safe-mode.hook-limit", "2m", "1.00 ms", "60.0 s"],
        ),
        (
            "[[service]]",
            "[safe-mode]\nhook-limit = \"0s\"\n[[service]]",
            &["safe-mode.hook-limit", "0s", "1.00 ms", "60.0 s"],
        ),
        (
            "model = \"digits-m\"",
            "engine = \"simulated\"\nsimulated = { times = [\"1ms\", { bound = \"9ms\", likely = \"2ms\", mean = \"4ms\" }] }",
            &["service[0].simulated.times[1].mean", "4ms", "must be 310.0 µs..=2.07 ms", "one batch in 100"],
        ),
        (
            "model = \"digits-m\"",
            "engine = \"simulated\"\nsimulated = { times = [{ bound = \"1ms\", likely = \"2ms\", mean = \"1ms\" }] }",
            &["service[0].simulated.times[0].likely", "2ms", "at most the bound, 1.00 ms"],
        ),
        ("socket =", "sokcet =", &["dir/test.toml", "sokcet", "socket"]),
        ("[[service]]", "[[service]]\nisolation = \"cell\"", &["dir/test.toml", "cell", "thread", "process"]),
        ("model = \"digits-m\"", "model = \"digits-m\"\nbatch = 65", &["service[0].batch", "65", "1..=64"]),
        (
            "model = \"digits-m\"",
            "model = \"m\"\nbatch = 3\nmax-batch = 2",
            &["service[0].batch", "3", "1..=2"],
        ),
        (
            "model = \"digits-m\"",
            "model = \"m\"\nprobability = 0.4",
            &["service[0].probability", "0.4", "0.5..=0.999"],
        ),
        (
            "model = \"digits-m\"",
            "model = \"m\"\nprobability = nan",
            &["service[0].probability", "NaN", "0.5..=0.999"],
        ),
        ("model = \"digits-m\"", "model = \"m\"\nvariants = [\"m\"]", &["service[0].variants[0]", "\"m\""]),
        ("model = \"digits-m\"", "model = \"m\"\nselect = \"base\"", &["service[0].select", "variants"]),
        (
            "model = \"digits-m\"",
            "model = \"m\"\nvariants = [\"n\"]\nselect = \"learned\"",
            &["service[0].weights", "(absent)", "weir train"],
        ),
        (
            "model = \"digits-m\"",
            "model = \"m\"\nvariants = [\"n\"]\nweights = \"w\"",
            &["service[0].weights", "\"w\"", "only with select = \"learned\" or \"auto\""],
        ),
        (
            "[daemon]",
            "[daemon]\nmetrics = \"unix:x.profile.json\"",
            &["daemon.metrics", "x.profile", "other"],
        ),
        ("\"/tmp/weir.sock\"", "\"models.toml\"", &["daemon.socket", "models.toml", "other file"]),
    ] {
        let text = error(from, to);
        for word in wanted {
            assert!(text.contains(word), "{to}: {text} lacks {word}");
        }
    }
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

#[test]
fn a_stream_with_constraints_must_declare_its_arrivals() {
    let text = error("arrivals = [{ window = { count = 5, length = \"100ms\" } }]", "");
    assert!(text.contains("service[0].stream[0].arrivals"), "{text}");
}

#[test]
fn names_are_unique() {
    let twice = format!(
        "{GOOD}\n[[service.stream]]\nname = \"cam0\"\narrivals = [{{ periodic = {{ period = \"1s\" }} }}]"
    );
    let text = parse(&twice).expect_err("twice").to_string();
    assert!(text.contains("service[0].stream[1].name") && text.contains("cam0"), "{text}");
}

/// As it is told, each in a line of its own.
fn problems(text: &str) -> Vec<String> {
    let error = parse(text).expect_err("must be refused").to_string();
    error.lines().map(|line| line.strip_prefix("dir/test.toml:").expect("the file").to_owned()).collect()
}

#[test]
fn all_that_is_wrong_is_told_at_once_each_with_its_line() {
    let text = r#"[daemon]
sokcet = "/tmp/weir.sock"
max-clients = 0
max-frame = "big"
socket-mode = "9"

[[device]]
name = "shared"
workers = 0

[[service]]
name = "digits"
model = "digits-m"
deadline = "50 lightyears"
queue = 0
stalls = { at-most = 9, in = "10s", of = "0s" }
constraints = [{ any-miss = { m = 2, k = 2 } }, { row-miss = 0 }, { any-mess = { m = 1, k = 2 } }]

[[service.stream]]
name = "cam 0"
arrivals = [{ window = { count = 0, length = "100ms" } }]

[[service]]
model = "digits-m"
device = "shared"
workers = 1
dispatch = "lazy"
"#;
    let found = problems(text);
    let expected = [
        (2, "daemon: unknown field `sokcet`"),
        (3, "daemon.max-clients = 0: must be in 1..=1024"),
        (4, "daemon.max-frame: must be a whole number of at least 0, not \"big\""),
        (5, "daemon.socket-mode = 9"),
        (9, "device[0].workers = 0"),
        (14, "service[0].deadline = 50 lightyears"),
        (15, "service[0].queue = 0"),
        (16, "service[0].stalls.at-most = 9"),
        (16, "service[0].stalls.of = 0s"),
        (17, "service[0].constraints[2]: must be one of \"any-miss\", \"any-hit\""),
        (17, "service[0].constraints[0]"),
        (20, "service[0].stream[0].name"),
        (21, "service[0].stream[0].arrivals[0]"),
        (23, "service[1].name"),
        (23, "service[1].deadline = (absent)"),
        (27, "service[1].dispatch: must be \"eager\" or \"full-or-latest\", not \"lazy\""),
    ];
    for ((line, text), found) in expected.iter().zip(&found) {
        assert!(found.starts_with(&format!("{line}: {text}")), "{found} is not {line}: {text}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_misses_a_part_that_it_must_have_is_told_with_all_else_that_can_be_read() {
    let wrong = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        problems(&GOOD.replace(from, to))
    };
    let more = "[[service.stream]]\nextra = 1";
    let found = wrong("[[service.stream]]", &format!("stalls = {{ in = \"1s\" }}\n{more}"));
    assert!(
        found.len() == 2 && found[0].starts_with("11: service[0].stalls: missing field `at-most`"),
        "{found:?}"
    );
    assert!(found[1].starts_with("13: service[0].stream[0]: unknown field `extra`"), "{found:?}");
    // What is wrong itself is not missing as well.
    let found = wrong("deadline = \"50ms\"", "deadline = 50");
    assert!(
        found.len() == 1 && found[0].starts_with("9: service[0].deadline: must be a text in quotes, not 50"),
        "{found:?}"
    );
    let found = wrong(
        "[[service.stream]]",
        "stalls = { at-most = \"1\", in = \"1s\", of = \"1ms\" }\n[[service.stream]]",
    );
    assert!(
        found.len() == 1
            && found[0].starts_with(
                "11: service[0].stalls.at-most: must be a whole number of at least 0, not \"1\""
            ),
        "{found:?}"
    );
    let found = wrong("deadline = \"50ms\"", "deadline = \"50ms\"\ndeadline = \"60ms\"");
    assert_eq!(found, ["10: deadline is there already"]);
    let found = wrong("deadline = \"50ms\"", "deadline = \"50ms\nqueue = ");
    assert!(!found.is_empty() && found[0].starts_with("9: "), "{found:?}");
}

#[test]
fn a_value_of_another_kind_is_told_once_with_its_field_and_in_words_of_the_file() {
    let (model, whole) = ("model = \"digits-m\"", "must be a whole number of at least 0, not");
    for (field, told) in [
        ("gpu = -1", "gpu: must be the number of a GPU, from 0, or a list of numbers"),
        ("cores = [0, -1, 1]", &format!("cores[1]: {whole} -1")),
        ("queue = 1e300", &format!("queue: {whole} 1e300")),
        ("queue = []", &format!("queue: {whole} a list")),
        ("weights = 5", "weights: must be a path in quotes, not 5"),
        ("record = \"\"", "record: must name a file, not \"\""),
        ("select = { table = \"\" }", "select: must name a file, not \"\""),
        ("variants = \"m\"", "variants: must be a list, not \"m\""),
        ("background = \"no\"", "background: must be true or false, not \"no\""),
        ("probability = \"half\"", "probability: must be a number, not \"half\""),
        ("workers = -1", "workers: must be how many workers, or a table for each kind of them, not -1"),
        ("workers = [1]", "workers[0]: must be a table, not 1"),
        ("remote = { url = 5 }", "remote.url: must be a URL in quotes, or a list of URLs"),
        ("remote = 5", "remote: must be a table, not 5"),
        ("simulated = { times = [5] }", "simulated.times: must be a time in quotes, or { bound = "),
        (
            "degraded = [[{ any-miss = { m = 1, k = 2.5 } }]]",
            &format!("degraded[0][0].any-miss.k: {whole} 2.5"),
        ),
        ("degraded = [[{ any-miss = 1 }]]", "degraded[0][0].any-miss: must be a table, not 1"),
        ("degraded = [[{}]]", "degraded[0][0]: must be a table of exactly one field"),
        ("degraded = [[\"any\"]]", "degraded[0][0]: must be one of \"any-miss\", \"any-hit\""),
        ("select = 5", "select: must be a text in quotes, or a table"),
        (
            "class = [{ decay = { points = [[0.1, true]] }, name = \"a\" }]",
            "class[0].decay.points[0][1]: must be a number",
        ),
    ] {
        let found = problems(&GOOD.replace(model, &format!("{model}\n{field}")));
        assert!(found[0].starts_with(&format!("9: service[0].{told}")), "{field}: {found:#?}");
        // What is left of some says too little.
        let says_less = ["simulated", "degraded", "class"].iter().any(|name| field.starts_with(name));
        assert!(found.len() == 1 || says_less, "{field}: {found:#?}");
    }
    assert_eq!(problems("service = 5"), ["1: service: must be a list, not 5"]);
    assert_eq!(problems("service = [5]"), ["1: service[0]: must be a table, not 5"]);
}
