//! What may be said of servers elsewhere, and in which words the rest is refused.

use std::path::PathBuf;
use std::time::Duration;

use super::super::{Config, ConfigError};
use super::*;

const GOOD: &str = r#"
    [daemon]
    models = "models.toml"
    [[service]]
    name = "far"
    engine = "oip"
    model = "digits@3"
    remote = { url = "http://127.0.0.1:8000" }
    deadline = "50ms"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("dir/test.toml"), text)
}

/// With `said` as the table.
fn with(said: &str) -> Result<Config, ConfigError> {
    parse(&GOOD.replace(r#"{ url = "http://127.0.0.1:8000" }"#, said))
}

fn remote(config: &Config, worker: usize) -> (u32, Remote) {
    let backend = config.services[0].backend(worker);
    (backend.device, backend.remote.clone().expect("servers"))
}

#[test]
fn one_url_is_one_worker_on_its_thread_and_the_models_own_name() {
    let config = parse(GOOD).expect("good");
    let service = &config.services[0];
    assert_eq!((service.workers, service.isolation), (1, Isolation::Thread));
    let (_, remote) = remote(&config, 0);
    assert_eq!((remote.model.as_str(), remote.version, remote.stream), ("digits", None, None));
    assert_eq!((remote.addresses.len(), remote.timeout), (1, Duration::from_secs(1)));
}

#[test]
fn each_url_has_a_worker_and_more_workers_share_them() {
    let urls = r#"{ url = ["http://127.0.0.1:8000", "unix:run/h"], model = "d", version = "2", stream = "front", timeout = "5s" }"#;
    let config = with(urls).expect("good");
    assert_eq!(config.services[0].workers, 2);
    let (second, all) = remote(&config, 1);
    assert_eq!(all.addresses[1].place, Location::Socket(PathBuf::from("dir/run/h")));
    assert_eq!((second, all.version.as_deref(), all.stream.as_deref()), (1, Some("2"), Some("front")));
    assert_eq!(all.timeout, Duration::from_secs(5));
    let text = GOOD
        .replace(r#"{ url = "http://127.0.0.1:8000" }"#, urls)
        .replace("model = \"digits@3\"", "model = \"d\"\nworkers = 5");
    let more = parse(&text).expect("good");
    assert_eq!((more.services[0].workers, remote(&more, 4).0), (5, 0));
    let fewer = parse(&text.replace("workers = 5", "workers = 1")).expect_err("too few").to_string();
    assert!(fewer.contains("service[0].remote.url (how many) = 2: only 1 worker(s)"), "{fewer}");
}

#[test]
fn another_machine_is_reached_only_if_that_is_said() {
    let there = |more: &str| with(&format!("{{ url = \"http://10.1.2.3:8000\"{more} }}"));
    let refused = there("").expect_err("in plain text").to_string();
    assert!(
        refused.contains("dir/test.toml:8: service[0].remote.url = \"http://10.1.2.3:8000\""),
        "{refused}"
    );
    assert!(refused.contains("plaintext = true"), "{refused}");
    there(", plaintext = true").expect("said");
}

#[test]
fn another_machine_is_reached_by_its_name_where_somebody_vouches_for_it() {
    let said = "{ url = \"https://box-1.example:8000\", tls = { ca = \"ca.pem\", certificate = \"own.pem\", key = \"/own.key\" } }";
    let config = with(said).expect("good");
    let (_, remote) = remote(&config, 0);
    assert_eq!(remote.addresses[0].to_string(), "https://box-1.example:8000");
    let own = Some((PathBuf::from("dir/own.pem"), PathBuf::from("/own.key")));
    assert_eq!(remote.tls, Some(ClientFiles { ca: "dir/ca.pem".into(), own }));
}

#[test]
fn what_is_wrong_is_told_by_field_value_and_limit() {
    for (said, told) in [
        ("{ url = [] }", "remote.url (how many) = 0: must be in 1..="),
        (
            "{ url = \"https://10.1.2.3:1\" }",
            "remote.url = \"https://10.1.2.3:1\": needs remote.tls, with the ca",
        ),
        (
            "{ url = \"http://127.0.0.1:0\" }",
            "remote.url = \"http://127.0.0.1:0\": must have an address or a name, and a port of 1",
        ),
        (
            "{ url = \"http://box:65536\" }",
            "remote.url = \"http://box:65536\": must have an address or a name, and a port of 1 to 65535",
        ),
        ("{ url = \"http://box:1\" }", "remote.url = \"http://box:1\": whoever is on the way"),
        ("{ url = \"http://localhost:1\" }", "remote.url = \"http://localhost:1\": whoever is on the way"),
        (
            "{ url = [\"https://box:1\", \"http://box:2\"], tls = { ca = \"a\" } }",
            "remote.url = \"http://box:2\": whoever is on the way",
        ),
        (
            "{ url = \"http://127.0.0.1:1\", tls = { ca = \"a\" } }",
            "remote.tls = (table): no url is \"https://",
        ),
        (
            "{ url = \"https://box:1\", tls = { ca = \"a\", key = \"k\" } }",
            "remote.tls.certificate = (absent): must be there with key",
        ),
        (
            "{ url = \"https://box:1\", tls = { ca = \"a\", certificate = \"k\" } }",
            "remote.tls.key = (absent): must be there with certificate",
        ),
        (
            "{ url = \"grpc://10.1.2.3:8001\" }",
            "remote.url = \"grpc://10.1.2.3:8001\": whoever is on the way",
        ),
        ("{ url = \"grpcs://10.1.2.3:8001\" }", "needs remote.tls, with the ca"),
        (
            "{ url = \"http://127.0.0.1:1\", timeout = \"0s\" }",
            "remote.timeout = 0s: must be 1.00 ms..=60.0 s",
        ),
        ("{ url = \"http://127.0.0.1:1\", timeout = \"2m\" }", "remote.timeout = 2m: must be"),
        ("{ url = \"http://127.0.0.1:1\", model = \"a/b\" }", "remote.model = \"a/b\": must be 1..=64"),
        ("{ url = \"http://127.0.0.1:1\", version = \"..\" }", "remote.version = \"..\": must be 1..=64"),
        ("{ url = \"http://127.0.0.1:1\", stream = \"a b\" }", "remote.stream = \"a b\": must be 1..=64"),
        ("{ url = \"http://127.0.0.1:1\", trust = true }", "unknown field `trust`"),
    ] {
        let refused = with(said).expect_err(said).to_string();
        assert!(refused.contains(told), "{said}: {refused}");
    }
    for (from, to, told) in [
        ("engine = \"oip\"", "engine = \"tract\"", "remote = (table): only for engine = \"oip\""),
        ("remote =", "# remote =", "service[0].remote = (absent): engine \"oip\" needs the servers"),
        (
            "deadline =",
            "isolation = \"process\"\ndeadline =",
            "isolation = \"process\": engine \"oip\" runs no model here",
        ),
        (
            "deadline =",
            "variants = [\"b\"]\ndeadline =",
            "variants = \"b\": is not possible with engine \"oip\" yet",
        ),
        ("deadline =", "gpu = 1\ndeadline =", "engine \"oip\" has only one"),
        (
            "deadline = \"50ms\"",
            "deadline = \"5s\"\nstalls = { at-most = 1, in = \"100s\", of = \"1s\" }",
            "remote.timeout = 1000 ms: must be above",
        ),
    ] {
        let refused = parse(&GOOD.replace(from, to)).expect_err(to).to_string();
        assert!(refused.contains(told), "{to}: {refused}");
    }
}

#[test]
fn stages_compute_here() {
    let stage = r#"
        [[pipeline]]
        name = "p"
        deadline = "50ms"
        [[pipeline.stage]]
        name = "a"
        engine = "oip"
        model = "m"
    "#;
    let refused = parse(stage).expect_err("a stage").to_string();
    assert!(refused.contains("stage[0].engine = \"oip\": is not possible in a pipeline yet"), "{refused}");
}

#[test]
fn a_model_is_served_at_one_place() {
    let other = GOOD[GOOD.find("[[service]]").expect("there")..].replace("\"far\"", "\"further\"");
    parse(&format!("{GOOD}{other}")).expect("the same servers");
    let patient = other.replace(":8000\"", ":8000\", timeout = \"2s\", stream = \"b\"");
    parse(&format!("{GOOD}{patient}")).expect("the same servers, asked otherwise");
    let refused =
        parse(&format!("{GOOD}{}", other.replace(":8000", ":8001"))).expect_err("others").to_string();
    assert!(
        refused.contains("service[1].remote = (table): service far has the same model at other"),
        "{refused}"
    );
}
