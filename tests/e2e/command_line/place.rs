//! `weir place` at the prompt: a plan, what does not fit, and what is no problem.

use std::process::{Command, Output};

use crate::harness::{Deployment, stderr, weir};
use serde_json::Value;

/// The first problem of the page.
fn example() -> &'static str {
    let page = include_str!("../../../docs/placement.md");
    page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example")
}

fn place(text: &str, arguments: &[&str]) -> Output {
    let deployment = Deployment::new("");
    let file = deployment.path("box.json");
    std::fs::write(&file, text).expect("written");
    let output = Command::new(weir()).args(["place", "--problem"]).arg(&file).args(arguments).output();
    output.expect("weir can be run")
}

#[test]
fn a_plan_is_shown_as_a_table_or_as_json() {
    let shown = place(example(), &[]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    for told in [
        "effective accuracy 71.729, and no plan is better",
        "lanes/large, batch 4",
        "lanes: kept by 1 with batches of 4",
    ] {
        assert!(text.contains(told), "{told:?} is not in\n{text}");
    }
    let shown = place(example(), &["--json"]);
    let answer: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(answer["feasible"], true);
    assert_eq!(answer["plan"].as_array().map(Vec::len), Some(3));
}

#[test]
fn what_does_not_fit_is_said_with_what_does() {
    let shown = place(&example().replace("\"demand\": 120", "\"demand\": 1500"), &[]);
    assert_eq!(shown.status.code(), Some(1));
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(text.contains("the promises fit, the demand does not: 0.8190"), "{text}");
    let shown = place(&example().replace("[[36, 200]]", "[[800, 200]]"), &[]);
    assert_eq!(shown.status.code(), Some(1));
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(text.contains("the promises do not fit") && text.contains("lanes: "), "{text}");
}

#[test]
fn what_is_no_problem_is_refused_by_field_value_and_limit() {
    let shown = place(&example().replace("\"demand\": 160", "\"demand\": -160"), &[]);
    assert_eq!(shown.status.code(), Some(2));
    assert!(
        stderr(&shown).contains("services[0].demand = -160: must be a number from 0"),
        "{}",
        stderr(&shown)
    );
    let shown = place(example(), &["--limit", "1ms"]);
    assert_eq!(shown.status.code(), Some(2));
    assert!(stderr(&shown).contains("--limit 1ms: must be from 10ms to 1day"), "{}", stderr(&shown));
}
