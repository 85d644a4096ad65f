//! What is refused: by file, field, value and limit.

use super::*;

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
