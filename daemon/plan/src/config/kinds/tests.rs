//! What entries of workers mean, and in which words the rest is refused.

use std::path::Path;

use super::super::{Config, ConfigError};
use weir_engine::Isolation;

/// A tract worker here, and two elsewhere.
const MIXED: &str = r#"
    [daemon]
    models = "models.toml"
    [[service]]
    name = "front"
    model = "digits"
    deadline = "50ms"
    max-batch = 4
    [[service.workers]]
    count = 2
    cores = [1, 2]
    [[service.workers]]
    name = "far"
    engine = "oip"
    remote = { url = ["http://127.0.0.1:8000", "http://127.0.0.1:8001"], timeout = "5s" }
    max-batch = 2
    batch = 2
    handover = "3ms"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("dir/test.toml"), text)
}

#[test]
fn each_entry_is_a_kind_with_an_engine_and_a_place_of_its_own() {
    let config = parse(MIXED).expect("good");
    let service = &config.services[0];
    let [here, far] = &service.kinds[..] else { panic!("{:?}", service.kinds) };
    assert_eq!((service.workers, service.max_batch, service.engines().as_str()), (4, 4, "tract, oip"));
    assert_eq!((here.kind_name().as_str(), here.workers, &here.cores[..]), ("tract", 2, &[1, 2][..]));
    // Each server has a worker unless it is said how many there are.
    assert_eq!((far.kind_name().as_str(), far.workers, far.isolation), ("far", 2, Isolation::Thread));
    assert_eq!((far.max_batch, far.batch, here.max_batch, here.batch), (2, Some(2), 4, None));
    assert_eq!((far.handover.as_nanos(), here.handover.as_nanos()), (3_000_000, 200_000));
    assert_eq!((&here.model, &here.constraints), (&far.model, &far.constraints));
    // Times of workers with a name are theirs alone, all others are of their engine.
    assert_eq!((here.named_place(), far.named_place().as_deref()), (None, Some("front/far")));
    assert_eq!(service.running().count(), 2);
    assert_eq!(config.line_of("service[0].workers[1].remote"), 15);
}

#[test]
fn one_entry_is_the_same_as_none() {
    let plain = MIXED.split("    [[service.workers]]").next().expect("text").to_owned();
    let stated = format!("{plain}    workers = 2\n    cores = [1, 2]\n");
    let entry = format!("{plain}    [[service.workers]]\n    count = 2\n    cores = [1, 2]\n");
    let of = |text: &str| format!("{:?}", parse(text).expect("good").services);
    assert_eq!(of(&entry).replace("service[0].workers[0]", "service[0]"), of(&stated));
    let inline = format!("{plain}    workers = [{{ count = 2, cores = [1, 2] }}]\n");
    assert_eq!(of(&inline), of(&entry));
}

#[test]
fn a_number_of_workers_is_refused_once_and_by_the_name_that_it_has() {
    let refused = parse(&MIXED.replace("count = 2", "count = 300")).expect_err("too many").to_string();
    assert_eq!(refused.matches("300").count(), 1, "{refused}");
}

#[test]
fn what_is_wrong_is_named_with_its_field_and_limit() {
    for (from, to, told) in [
        ("count = 2", "count = 0", "service[0].workers[0].count = 0: must be in 1..=256"),
        ("count = 2", "count = 255", "service[0].workers (how many, of all kinds) = 257: must be in 1..=256"),
        ("count = 2", "cuont = 2", "unknown field `cuont`"),
        ("count = 2", "engine = \"oip\"", "service[0].workers[0].remote = (absent): engine \"oip\" needs"),
        ("cores = [1, 2]", "cores = [1, 4096]", "service[0].workers[0].cores[1] = 4096: must be in 0..=1023"),
        ("name = \"far\"", "name = \"a b\"", "service[0].workers[1].name = \"a b\": must be 1..=64"),
        (
            "name = \"far\"",
            "name = \"tract\"",
            "service[0].workers[1].name = \"tract\": is the name of another",
        ),
        ("    batch = 2\n", "    batch = 3\n", "service[0].workers[1].batch = 3: must be in 1..=2"),
        ("    max-batch = 4", "    batch = 4", "service[0].batch = 4: belongs to the entries of workers"),
        ("    max-batch = 4", "    cores = [0]", "service[0].cores = (present): belongs to the entries of"),
        ("    max-batch = 4", "    gpu = 1", "service[0].gpu = (present): belongs to the entries of workers"),
        (
            "    max-batch = 4",
            "    isolation = \"thread\"",
            "service[0].isolation = (present): belongs to the",
        ),
        (
            "    max-batch = 4",
            "    variants = [\"digits-l\"]",
            "service[0].variants = \"digits-l\": the shield",
        ),
        ("    max-batch = 4", "    select = \"base\"", "service[0].select = (present): only with variants"),
        ("    max-batch = 4", "    optimise = \"headroom\"", "service[0].optimise = (present): the shield"),
        (
            "    max-batch = 4",
            "    device = \"box\"",
            "service[0].device = (present): workers that services share",
        ),
        (
            "    max-batch = 4",
            "    stalls = { at-most = 1, in = \"9s\", of = \"9ms\", by = \"constraints\" }",
            "service[0].stalls.by = (present): constraints absorb stalls with workers of one kind",
        ),
        (
            "    max-batch = 4",
            "    stalls = { at-most = 1, in = \"9s\", of = \"6s\" }",
            "service[0].workers[1].remote.timeout = 5000 ms: must be above 6.00 s",
        ),
        (
            "    model = \"digits\"",
            "    simulated = { times = [\"1ms\"] }\n    engine = \"simulated\"",
            "service[0].workers[1].simulated = (table): only for engine = \"simulated\"",
        ),
        ("    model = \"digits\"", "", "service[0].model = (absent): must name a model of daemon.models"),
    ] {
        assert!(MIXED.contains(from), "{from}");
        let error = parse(&MIXED.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains(told), "{to}: {error}");
    }
}

#[test]
fn workers_of_a_device_or_a_stage_are_alike() {
    for text in [
        "[[device]]\nname = \"box\"\n[[device.workers]]\ncount = 1\n",
        "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\n[[pipeline.stage]]\nname = \"a\"\nmodel = \"m\"\n\
         [[pipeline.stage.workers]]\ncount = 1\n",
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert_eq!(
            error.matches("workers[0]: workers of several kinds are not possible").count(),
            1,
            "{error}"
        );
    }
}

#[test]
fn two_remotes_of_one_model_need_a_name() {
    let other = MIXED
        .split("    [[service]]")
        .nth(1)
        .expect("text")
        .replace("front", "other")
        .replace(":8001", ":8002");
    let unnamed = |text: &str| text.replace("    name = \"far\"\n", "");
    let both = format!("{}    [[service]]{}", unnamed(MIXED), unnamed(&other));
    let error = parse(&both).expect_err("two places").to_string();
    assert!(
        error.contains("service[1].workers[1].remote = (table): service front has the same model"),
        "{error}"
    );
    assert!(error.contains("or its workers one"), "{error}");
    parse(&format!("{MIXED}    [[service]]{other}")).expect("each has times of its own");
}
