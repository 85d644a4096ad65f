//! How all that is wrong is told at once: each with its line, and nothing that follows from it.

use super::*;

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
