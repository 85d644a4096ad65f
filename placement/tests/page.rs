//! The problems of the page are answered as it says.

use std::time::Duration;

use placement::{Answer, Problem, place};
use serde_json::Value;

const PAGE: &str = include_str!("../../docs/placement.md");

/// Whether what is `told` is in `answer`, numbers to a thousandth.
fn agrees(told: &Value, answer: &Value) -> bool {
    match (told, answer) {
        (Value::Object(told), Value::Object(answer)) => {
            told.iter().all(|(key, told)| answer.get(key).is_some_and(|answer| agrees(told, answer)))
        }
        (Value::Array(told), Value::Array(answer)) => {
            told.len() == answer.len() && told.iter().zip(answer).all(|(told, answer)| agrees(told, answer))
        }
        (Value::Number(told), Value::Number(answer)) => {
            told.as_f64().zip(answer.as_f64()).is_some_and(|(told, answer)| (told - answer).abs() < 1e-3)
        }
        _ => told == answer,
    }
}

#[test]
fn the_problems_of_the_page_are_answered_as_it_says() {
    let blocks: Vec<&str> =
        PAGE.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4 && blocks.len().is_multiple_of(2), "{} blocks", blocks.len());
    for pair in blocks.chunks(2) {
        let problem = Problem::parse(pair[0]).expect("a problem");
        let placed = place(&problem, Duration::from_secs(60)).expect("an answer");
        let answer = serde_json::to_value(Answer::new(&problem, &placed)).expect("as JSON");
        let told: Value = serde_json::from_str(pair[1]).expect("JSON");
        assert!(agrees(&told, &answer), "the page says {told:#}, the answer is {answer:#}");
    }
}
