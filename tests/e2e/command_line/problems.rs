//! Abstract problems at the prompt: certified, verified, refuted and replayed, by exit codes and standard input.

use crate::harness::prover::prover;
use crate::harness::{DAEMON, Deployment, stderr};
use planner::{Certificate, Number};
use serde_json::Value;

use super::prompt::{code, fed, text};

/// One worker, 2 ms a request; `period` decides whether the load can be promised.
pub(super) fn problem(period_us: u32) -> String {
    format!(
        r#"{{"unit": "us", "deadline": 6000, "workers": [{{"count": 1, "batch": 1, "time": 2000}}],
            "streams": [{{"name": "cam0", "constraints": ["any_miss(1,2)"],
                          "arrivals": {{"windows": [[2, {period_us}]]}}}}]}}"#
    )
}

#[test]
fn certificates_come_from_standard_input_and_the_exit_code_tells_a_refusal_from_trouble() {
    let kept = fed(&["certify", "--problem", "-", "--json"], &problem(4000));
    assert_eq!(code(&kept), Some(0), "{}", stderr(&kept));
    let verified = fed(&["verify", "-"], &text(&kept.stdout));
    assert_eq!(code(&verified), Some(0), "{}", stderr(&verified));
    assert!(text(&verified.stdout).starts_with("-: verified"));

    let refused = fed(&["certify", "--problem", "-", "--json"], &problem(1000));
    assert_eq!(code(&refused), Some(1), "{}", stderr(&refused));
    let replayed = fed(&["replay", "-"], &text(&refused.stdout));
    assert_eq!(code(&replayed), Some(0), "{}", stderr(&replayed));
    assert!(!replayed.stdout.is_empty());

    // It says something else than what was certified: no. It is no certificate: nothing can be said.
    let tampered = fed(&["verify", "-"], &text(&kept.stdout).replace("6000", "7000"));
    assert_eq!(code(&tampered), Some(1), "{}", stderr(&tampered));
    assert_eq!(code(&fed(&["verify", "-"], "none")), Some(2));
    assert_eq!(code(&fed(&["verify", "/nowhere"], "")), Some(2));
    assert_eq!(code(&fed(&["verify", "--unheard-of"], "")), Some(2));
    assert_eq!(code(&fed(&["status", "--socket", "/nowhere"], "")), Some(2));
}

#[test]
fn a_pipeline_is_certified_verified_and_simulated() {
    let place = Deployment::new(DAEMON);
    let problem = |deadline: u32| {
        format!(
            r#"{{"unit": "ms", "background": true, "deadline": {deadline}, "pipeline": [
                {{"name": "detect", "workers": 1, "batch": 1, "time": 3}},
                {{"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}}],
              "streams": [{{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 14]]}}}}]}}"#
        )
    };
    let kept = fed(&["certify", "--problem", "-", "--json"], &problem(13));
    assert_eq!(code(&kept), Some(0), "{}", stderr(&kept));
    assert_eq!(code(&fed(&["verify", "-"], &text(&kept.stdout))), Some(0));
    let tampered = text(&kept.stdout).replacen("\"bound\": 13", "\"bound\": 12", 1);
    assert_ne!(tampered, text(&kept.stdout));
    assert_eq!(code(&fed(&["verify", "-"], &tampered)), Some(1));
    assert_eq!(code(&fed(&["certify", "--problem", "-"], &problem(12))), Some(1));

    // Behind a stranger that takes every stage for as long as it can: still within 13.
    let file = place.path("pipeline.json");
    std::fs::write(&file, problem(13)).expect("written");
    let simulate = |more: &[&str]| {
        let file = file.to_str().expect("a path");
        let arguments = [&["simulate", "--problem", file, "--arrivals", "-"], more].concat();
        fed(&arguments, "0,stranger\n1,cam\n1,cam\n")
    };
    let told = simulate(&["--json"]);
    assert_eq!(code(&told), Some(0), "{}", stderr(&told));
    let told: Value = serde_json::from_slice(&told.stdout).expect("a report");
    let finish: Vec<_> =
        told["requests"].as_array().expect("requests").iter().map(|r| &r["finish"]).collect();
    assert_eq!(finish, [5, 8, 11], "{told:#}");
    assert_eq!(told["streams"][0]["missed"], 0);
    let refused = simulate(&["--policy", "nexus"]);
    assert_eq!(code(&refused), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--policy"), "{}", stderr(&refused));

    let log = place.path("run.log");
    assert_eq!(code(&simulate(&["--log", log.to_str().expect("a path")])), Some(0));
    if let Some(prover) = prover() {
        let (file, log) = (file.to_str().expect("a path"), log.to_str().expect("a path"));
        let program = prover.program().display().to_string();
        let said = fed(&["accept", "--problem", file, "--proved", &program, log], "");
        assert!(text(&said.stdout).contains("a run of the model"), "{}", stderr(&said));
    }
    let log = std::fs::read_to_string(log).expect("a log");
    for line in ["# take,cam,1", "# start,6,detect,0,3", "# become,cam,1,read,2", "# end,9,detect,0"] {
        assert!(log.lines().any(|written| written == line), "{line} in {log}");
    }
}

/// One of two frames is answered by 11 if something else has just begun at the first stage, and 10 are asked for.
#[test]
fn a_refused_pipeline_is_refuted_and_the_counterexample_replayed() {
    let problem = r#"{"unit": "ms", "background": true, "deadline": 10, "pipeline": [
        {"name": "detect", "workers": 1, "batch": 1, "time": 3},
        {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}],
      "streams": [{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 14]]}}]}"#;
    let refused = fed(&["certify", "--problem", "-", "--json"], problem);
    assert_eq!(code(&refused), Some(1), "{}", stderr(&refused));
    let certificate = text(&refused.stdout);
    assert_eq!(code(&fed(&["verify", "-"], &certificate)), Some(0));
    let told: Value = serde_json::from_str(&certificate).expect("a certificate");
    assert_eq!(told["refutation"]["shows"], "violation", "{told:#}");
    let shown = fed(&["replay", "-"], &certificate);
    assert_eq!(code(&shown), Some(0), "{}", stderr(&shown));
    let shown = text(&shown.stdout);
    assert!(
        shown.starts_with("violation: row_miss(0) of stream cam is broken: 1 misses in requests"),
        "{shown}"
    );
    assert!(shown.contains("waited longest at "), "{shown}");

    // With a digest of its own, but other sources.
    type Change = fn(&mut Vec<(Number, String)>);
    let forged = |change: Change| {
        let mut certificate = Certificate::parse(&certificate).expect("a certificate");
        change(&mut certificate.pipelines[0].refutation.as_mut().expect("refuted").arrivals);
        let forged = Certificate::of_pipeline(&certificate.made_by, certificate.pipelines.remove(0));
        let said = ["replay", "verify"].map(|command| {
            let said = fed(&[command, "-"], &forged.to_json());
            assert_eq!(code(&said), Some(1), "{command}: {}", stderr(&said));
            stderr(&said)
        });
        said[0].clone()
    };
    let nowhere = forged(|sources| sources[0].1 = "write/background".into());
    assert!(
        nowhere.contains("\"write/background\" is none of the problem's, and of none of its stages"),
        "{nowhere}"
    );
    let more = forged(|sources| {
        let cam = sources.iter().rposition(|(_, name)| name == "cam").expect("a frame");
        (0..2).for_each(|_| sources.insert(cam, sources[cam].clone()));
    });
    assert!(more.contains("cam"), "{more}");
}
