//! `weir place` at the prompt: a plan, what does not fit, and what is no problem.

use std::process::{Command, Output};

use crate::harness::{DAEMON, Deployment, best_effort, repository, stderr, weir};
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

/// A box of simulated devices: two that are quick, and one that services share.
fn simulated_box() -> String {
    format!(
        "{DAEMON}{}",
        r#"
        [placement]
        headroom = 1.1
        [[placement.class]]
        name = "quick"
        engine = "simulated"
        count = 2
        [[placement.class]]
        name = "slow"   # the old ones
        engine = "simulated"
        count = 1
        shared = true

        [[service]]
        name = "lanes"
        simulated.models = [
            { accuracy = 0.71, times = { quick = ["2ms"], slow = ["9ms"] } },
            { accuracy = 0.78, times = { quick = ["20ms"], slow = ["80ms"] } },
        ]
        demand = 40.0
        deadline = "400ms"
        guard = "100ms"
        handover = "0ms"
        max-batch = 1
        [[service.stream]]
        name = "cam"
        constraints = [{ any-miss = { m = 1, k = 5 } }]
        arrivals = [{ periodic = { period = "20ms", jitter = "10ms" } }]

        [[service]]
        name = "parts"
        simulated = { models = [{ accuracy = 0.64, times = { slow = ["10ms"] } }] }
        demand = 10.0
        deadline = "500ms"
        guard = "100ms"
        handover = "0ms"
        max-batch = 1
        "#
    )
}

/// The simulated box, profiled, with bounds that do not depend on this machine: a quarter more than is waited out.
fn profiled_box() -> Deployment {
    let deployment = profiled(simulated_box());
    deployment.set_bounds_by(|usual| usual * 5 / 4);
    deployment
}

/// A deployment of `text` that is profiled.
fn profiled(text: impl AsRef<str>) -> Deployment {
    let deployment = Deployment::new(text);
    deployment.succeed(&["profile", "--quick"]);
    deployment
}

/// What `place` answers in JSON.
fn placed(deployment: &Deployment, arguments: &[&str]) -> Value {
    let output = deployment.weir(&[&["place", "--json"], arguments].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

/// What `place` says where it fails, and its exit code.
fn refused(deployment: &Deployment, arguments: &[&str]) -> (Option<i32>, String) {
    let output = deployment.weir(&[&["place"], arguments].concat());
    (output.status.code(), stderr(&output))
}

#[test]
fn a_box_of_two_classes_is_placed_and_its_file_is_served() {
    let deployment = profiled_box();
    let message = deployment.fail(&["serve"]);
    assert!(
        message.contains("service[0].model = (absent): must say what serves it: run `weir place`"),
        "{message}"
    );
    let (output, figure) = (deployment.path("placed.toml"), deployment.path("box.svg"));
    let (path, picture) = (output.display().to_string(), figure.display().to_string());
    let answer = placed(&deployment, &["-o", &path, "--figure", &picture]);
    assert_eq!(answer["feasible"], true);
    let services = answer["services"].as_array().expect("a list");
    let of = |field: &str| services.iter().map(|service| service[field].clone()).collect::<Vec<_>>();
    assert_eq!((of("class"), of("workers")), (vec!["quick".into(), "slow".into()], vec![2.into(), 1.into()]));
    // Two devices answer all with the better model, 44 requests a second of at most 40 each.
    assert!(
        (answer["accuracy"].as_f64().expect("a number") - (40.0 * 78.0 + 10.0 * 64.0) / 50.0).abs() < 0.01
    );
    assert_eq!(answer["gap"], 0.0);
    assert_eq!(answer["prices"][0]["points"], 0.0);
    assert_eq!(answer["more"].as_array().map(Vec::len), Some(2));
    assert!(services[0]["keeps"]["margin_ms"].as_f64().is_some_and(|margin| margin > 0.0), "{answer:#}");
    let written = std::fs::read_to_string(&output).expect("written");
    assert_eq!(answer["configuration"], written);
    assert!(
        written.contains("# the old ones") && written.contains("[[device]]\nname = \"slow\""),
        "{written}"
    );
    assert!(std::fs::read_to_string(&figure).expect("drawn").contains("<svg"));
    // It is a box again, in which nothing needs to change, and it is served.
    deployment.configure(&written);
    deployment.succeed(&["check"]);
    assert_eq!(placed(&deployment, &[])["changes"].as_array().map(Vec::len), Some(0));
    let daemon = deployment.serve();
    let mut client = daemon.client();
    let streams =
        ["lanes", "parts"].map(|service| client.register(&best_effort(service, "one")).expect("room"));
    for stream in &streams {
        let outcome = client.infer(stream, &[0.5_f32; 64]).expect("an answer");
        assert!(outcome.result().is_some(), "{outcome:?}");
    }
    let seen = placed(&deployment, &["--demand", "status"]);
    assert_eq!(seen["services"][0]["demand"], 0.0, "nothing comes meanwhile");
}

#[test]
fn shipped_models_are_profiled_placed_and_served_with_their_promise() {
    let models = repository("models/manifest.toml").display().to_string();
    let text = format!(
        "{DAEMON}models = {models:?}\n{}",
        r#"
        [placement]
        [[placement.class]]
        name = "core"
        count = 2
        [[service]]
        name = "lanes"
        models = ["digits-xs", "digits-s"]
        demand = 5.0
        deadline = "2s"
        guard = "500ms"
        max-batch = 1
        [[service.stream]]
        name = "camera"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ periodic = { period = "200ms", jitter = "100ms" } }]
        "#
    );
    let deployment = profiled(&text);
    let path = deployment.path("placed.toml").display().to_string();
    let answer = placed(&deployment, &["-o", &path]);
    assert_eq!(
        (&answer["feasible"], &answer["services"][0]["model"]),
        (&true.into(), &"digits-s".into()),
        "{answer:#}"
    );
    // What a device may hold leaves the small one alone.
    let bytes = std::fs::metadata(repository("models/digits-xs.onnx")).expect("it is shipped").len();
    deployment.configure(text.replace("count = 2", &format!("count = 2\nmemory = {bytes}")));
    assert_eq!(placed(&deployment, &[])["services"][0]["model"], "digits-xs");
    deployment.configure(std::fs::read_to_string(&path).expect("written"));
    deployment.succeed(&["check"]);
    let daemon = deployment.serve();
    let mut client = daemon.client();
    let camera = client.register(&best_effort("lanes", "camera")).expect("its room is kept");
    for _ in 0..5 {
        let outcome = client.infer(&camera, &[0.5_f32; 784]).expect("an answer");
        assert!(outcome.result().is_some(), "{outcome:?}");
    }
}

#[test]
fn what_does_not_fit_a_box_is_said_and_nothing_written() {
    let deployment = profiled_box();
    let demand = deployment.path("demand.json");
    std::fs::write(&demand, r#"{"parts": 1000}"#).expect("written");
    let (file, output) = (demand.display().to_string(), deployment.path("placed.toml"));
    let path = output.display().to_string();
    let answer = placed(&deployment, &["--demand", &file, "-o", &path]);
    assert_eq!((&answer["feasible"], &answer["reason"]), (&false.into(), &"demand".into()));
    let factor = answer["factor"].as_f64().expect("a number");
    assert!((0.03..0.1).contains(&factor), "one device answers 100 at most of 1100: {factor}");
    assert!(!output.exists());
    let text = simulated_box().replace("period = \"20ms\"", "period = \"100us\"");
    deployment.configure(text);
    let answer = placed(&deployment, &[]);
    assert_eq!((&answer["reason"], &answer["violated"][0]["service"]), (&"promises".into(), &"lanes".into()));
    assert_eq!(refused(&deployment, &[]).0, Some(1));
}

#[test]
fn a_wrong_box_is_refused_by_field_value_and_limit() {
    let deployment = Deployment::new(simulated_box());
    let (code, message) = refused(&deployment, &[]);
    assert_eq!(code, Some(2), "{message}");
    assert!(
        message.contains("profile.json: cannot be read") && message.contains("weir profile"),
        "{message}"
    );
    deployment.configure(simulated_box().replace("headroom = 1.1", "headroom = 0.0"));
    let (code, message) = refused(&deployment, &[]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("placement.headroom = 0: must be in 1..=100"), "{message}");
    deployment.configure(simulated_box());
    deployment.succeed(&["profile", "--quick"]);
    let demand = deployment.path("demand.json");
    std::fs::write(&demand, r#"{"lane": 10}"#).expect("written");
    let (code, message) = refused(&deployment, &["--demand", &demand.display().to_string()]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("demand of lane = 10: no such service is placed (lanes, parts)"), "{message}");
    let (code, message) = refused(&deployment, &["-o", "/elsewhere.toml"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("--output /elsewhere.toml: must be beside"), "{message}");
}
