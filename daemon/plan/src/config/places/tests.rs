//! No table of a configuration is read from a list, by position: each is refused by its field.

use std::path::Path;

use super::super::Config;

#[test]
fn a_list_is_told_where_a_table_belongs() {
    let service = |field: &str| format!("[[service]]\nname = \"s\"\n{field}\n");
    let stage = |field: &str| format!("[[pipeline]]\nname = \"p\"\n[[pipeline.stage]]\n{field}\n");
    for (text, field) in [
        ("daemon = []".into(), "daemon"),
        ("[daemon]\noip = []".into(), "daemon.oip"),
        ("[daemon]\noip = [\"127.0.0.1:8000\", \"127.0.0.1:8001\"]".into(), "daemon.oip"),
        ("[daemon]\noip = { tls = [\"a\", \"b\"] }".into(), "daemon.oip.tls"),
        ("safe-mode = []".into(), "safe-mode"),
        ("[[safe-mode]]\nhold = \"1s\"".into(), "safe-mode"),
        ("safe-mode = [\"1s\", \"1s\", false, [], \"5s\"]".into(), "safe-mode"),
        ("device = [[]]".into(), "device[0]"),
        ("[[device]]\nname = \"d\"\nstalls = [1, \"1s\", \"1ms\"]".into(), "device[0].stalls"),
        ("service = [[]]".into(), "service[0]"),
        ("pipeline = [[]]".into(), "pipeline[0]"),
        ("placement = []".into(), "placement"),
        ("placement = { class = [[]] }".into(), "placement.class[0]"),
        (service("stalls = [1, \"1s\", \"1ms\"]"), "service[0].stalls"),
        (service("workers = [[]]"), "service[0].workers[0]"),
        (service("workers = [{ simulated = [[\"1ms\"]] }]"), "service[0].workers[0].simulated"),
        (service("remote = [\"http://127.0.0.1:1\"]"), "service[0].remote"),
        (service("remote = { url = \"https://127.0.0.1:1\", tls = [\"ca.pem\"] }"), "service[0].remote.tls"),
        (service("simulated = [[\"1ms\"]]"), "service[0].simulated"),
        (service("simulated = { variants = [[[\"1ms\"], \"a\", 0.5]] }"), "service[0].simulated.variants[0]"),
        (service("simulated = { models = [[0.5, {}]] }"), "service[0].simulated.models[0]"),
        (service("class = [[\"a\"]]"), "service[0].class[0]"),
        (service("stream = [[\"a\"]]"), "service[0].stream[0]"),
        (service("constraints = [{ any-miss = [3, 10] }]"), "service[0].constraints[0].any-miss"),
        (service("degraded = [[{ row-hit = [1, 3] }]]"), "service[0].degraded[0][0].row-hit"),
        (
            service("stream = [{ arrivals = [{ periodic = [\"10ms\"] }] }]"),
            "service[0].stream[0].arrivals[0].periodic",
        ),
        (stage("simulated = [[\"1ms\"]]"), "pipeline[0].stage[0].simulated"),
        (stage("adapter = []"), "pipeline[0].stage[0].adapter"),
        (stage("adapter = { each = [\"s\"] }"), "pipeline[0].stage[0].adapter.each"),
        (stage("adapter = { inputs = { x = [\"y\"] } }"), "pipeline[0].stage[0].adapter.inputs.x"),
    ] {
        let text: String = text;
        let found = problems(&text);
        let told = format!("{field}: must be a table, not a list");
        assert!(found.iter().any(|one| one.ends_with(&told)), "{text}: {found:#?}");
    }
    // One of several kinds, of which none is a list.
    for (text, told) in [
        (
            service("simulated = { times = [[\"3ms\", \"2ms\", \"1ms\"]] }"),
            "service[0].simulated.times: must be a time in quotes, or { bound = ",
        ),
        (
            stage("adapter = { inputs = { x = { arg-max = [\"y\"] } } }"),
            "pipeline[0].stage[0].adapter.inputs.x.arg-max: the name of a tensor is needed, or { row = ",
        ),
    ] {
        let found = problems(&text);
        assert!(found.iter().any(|one| one.contains(told)), "{text}: {found:#?}");
    }
}

fn problems(text: &str) -> Vec<String> {
    let error = Config::parse(Path::new("test.toml"), text).expect_err(text).to_string();
    error.lines().map(str::to_owned).collect()
}
