//! Stages that come after several.

use super::*;

/// Two ways of each result of `detect`, of which `both` takes each result, and `all` a request of the pipeline once.
const GRAPH: &str = r#"
    [[pipeline]]
    name = "p"
    deadline = "1s"
    [[pipeline.stage]]
    name = "detect"
    model = "m"
    [[pipeline.stage]]
    name = "left"
    model = "m"
    after = "detect"
    [[pipeline.stage]]
    name = "right"
    model = "m"
    after = ["detect"]
    fan-out = 3
    [[pipeline.stage]]
    name = "both"
    model = "m"
    after = ["right", "left"]
    fan-out = 2
    [[pipeline.stage]]
    name = "all"
    model = "m"
    after = ["both", "right"]
    join = true
    [[pipeline.stage]]
    name = "end"
    model = "m"
    after = "all"
    fan-out = 5
"#;

#[test]
fn a_stage_may_come_after_several_and_take_each_result_or_a_request_once() {
    let config = parse(GRAPH).expect("good");
    let p = &config.services[0];
    let after: Vec<_> = p.stages.iter().map(|stage| stage.after).collect();
    let each = |of: &[usize]| Parents::each(of.iter().copied());
    let expected = [Parents::NONE, each(&[0]), each(&[0]), each(&[1, 2]), Parents::join([2, 3]), each(&[4])];
    assert_eq!(after, expected);
    assert_eq!((p.most(), p.depths()), (vec![1, 1, 3, 8, 1, 5], vec![1, 2, 2, 3, 4, 5]));
    let ways = p.ways();
    assert_eq!(ways[3], [[0, 1], [0, 2]]);
    // Above a join there are no ways, but all results of all stages.
    assert_eq!((&ways[4], &ways[5]), (&vec![vec![]], &vec![vec![4]]));
    assert_eq!((p.above(4), p.above(0)), (vec![0, 1, 2, 3], vec![]));
    assert_eq!(
        p.stages.iter().map(|stage| stage.answers).collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    // A join may wait for one stage alone: until all that it became there is done.
    let one = parse(&GRAPH.replace("after = [\"both\", \"right\"]", "after = \"both\"")).expect("good");
    assert_eq!(one.services[0].stages[4].after, Parents::join([3]));
}

#[test]
fn what_no_merge_and_no_join_can_have_is_refused_with_line_field_and_value() {
    let diamonds = |count: usize| {
        let stage = |name: String, after: String| {
            format!("[[pipeline.stage]]\nname = \"{name}\"\nmodel = \"m\"\nafter = [{after}]\n")
        };
        let one = |n: usize| {
            let top = if n == 0 { "\"top\"".to_owned() } else { format!("\"m{}\"", n - 1) };
            let sides = ["l", "r"].map(|side| stage(format!("{side}{n}"), top.clone()));
            sides.concat() + &stage(format!("m{n}"), format!("\"l{n}\", \"r{n}\""))
        };
        let head = "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\n[[pipeline.stage]]\nname = \"top\"\nmodel = \"m\"\n";
        head.to_owned() + &(0..count).map(one).collect::<String>()
    };
    assert!(parse(&diamonds(4)).is_ok());
    let changed = |from: &str, to: &str| {
        assert_eq!(GRAPH.matches(from).count(), 1, "{from}");
        GRAPH.replace(from, to)
    };
    let once = "a join makes one request of a source: remove it";
    for (text, line, wanted) in [
        (
            changed("after = [\"detect\"]", "after = []"),
            15,
            "stage[2].after (how many) = 0: must be in 1..=32",
        ),
        (
            changed("after = [\"detect\"]", "after = [\"detect\", 7]"),
            15,
            "stage[2].after[1] = 7: must be the name of a stage",
        ),
        (
            changed("after = [\"detect\"]", "after = { a = 1 }"),
            15,
            "stage[2].after = { a = 1 }: must be the name of a stage before",
        ),
        (
            changed("\"right\", \"left\"", "\"right\", \"right\""),
            20,
            "stage[3].after[1] = \"right\": is there already",
        ),
        (
            changed("\"right\", \"left\"", "\"right\", \"both\""),
            20,
            "stage[3].after[1] = \"both\": no stage before it",
        ),
        (changed("join = true", "join = true\nfan-out = 2"), 27, &*format!("stage[4].fan-out = 2: {once}")),
        (changed("join = true", "join = true\nmean = 0.5"), 27, &*format!("stage[4].mean = 0.5: {once}")),
        (
            changed("join = true", "join = true\nadapter = { each = { rows = \"output\" } }"),
            27,
            &*format!("stage[4].adapter.each = (present): {once}"),
        ),
        (changed("join = true", "join = 1"), 26, "must be true or false, not 1"),
        (
            changed("after = \"detect\"", "after = \"detect\"\nvariants = [\"n\"]"),
            12,
            "stage[1].variants = (present): is not possible where a stage has several parents",
        ),
        (
            changed("name = \"detect\"", "name = \"detect\"\njoin = true"),
            7,
            "stage[0].join = true: the first stage takes",
        ),
        (
            changed("fan-out = 5", "fan-out = 257"),
            31,
            "stage[5].fan-out = 257: a request of the pipeline would become 257",
        ),
        (
            diamonds(5),
            66,
            "stage[15].after = [\"l4\", \"r4\"]: 32 ways lead to \"m4\", at most 16 are possible",
        ),
    ] {
        let error = parse(&text).expect_err(wanted).to_string();
        assert!(
            error.contains(&format!("pipeline[0].{wanted}")) || error.contains(wanted),
            "{wanted}: {error}"
        );
        assert!(error.contains(&format!("dir/test.toml:{line}: ")), "line {line} of {wanted}: {error}");
    }
}
