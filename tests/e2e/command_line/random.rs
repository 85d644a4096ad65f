//! How often random arrivals would break a promise, at the prompt.

use super::problems::problem;
use super::prompt::{code, fed, text};
use crate::harness::stderr;
use serde_json::Value;

#[test]
fn random_arrivals_are_told_in_numbers_and_what_is_no_model_is_refused() {
    let asked = |model: &str, more: &[&str]| {
        let mut arguments = vec!["certify", "--problem", "-", "--arrivals", model, "--steps", "100000"];
        arguments.extend(more);
        fed(&arguments, &problem(4000))
    };
    let found = asked("cam0=poisson:400", &["--json", "--horizon", "1h"]);
    assert_eq!(code(&found), Some(0), "{}", stderr(&found));
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let number = |field: &str| found[0][field].as_f64().expect("a number");
    assert!(0.0 < number("low") && number("low") < number("per_s") && number("per_s") < number("high"));
    assert!((number("expected") / number("per_s") / 3600.0 - 1.0).abs() < 1e-9, "{found}");
    let told = text(&asked("bursts:100:4", &[]).stdout);
    assert!(
        told.contains("a violation of any_miss(1,2) begins every") && told.contains("nothing is proved"),
        "{told}"
    );
    for (model, expected) in [
        ("often", "--arrivals = often: must be poisson:RATE"),
        ("poisson:many", "rate = many: is no number"),
        ("poisson:-1", "arrivals of cam0: rate = -1: must be in 1e-9..=1e9"),
        ("cam1=poisson:1", "--arrivals = cam1=poisson:1: no such stream (cam0)"),
        ("mmpp:10:5", "state = 5: must be WEIGHT@TIME"),
        ("gone.csv", "--arrivals = gone.csv"),
    ] {
        let refused = asked(model, &[]);
        assert!(code(&refused) == Some(2) && stderr(&refused).contains(expected), "{}", stderr(&refused));
    }
    let twice = asked("cam0=poisson:1", &["--arrivals", "cam0=poisson:2"]);
    let expected =
        "--arrivals = cam0=poisson:2: how stream cam0 sends is said already, by --arrivals = cam0=poisson:1";
    assert!(code(&twice) == Some(2) && stderr(&twice).contains(expected), "{}", stderr(&twice));
    let refused = asked("poisson:1", &["--confidence", "1"]);
    assert!(
        stderr(&refused).contains("--confidence = 1: must be above 0.5 and below 1"),
        "{}",
        stderr(&refused)
    );
}
