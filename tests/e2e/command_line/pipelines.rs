//! Pipelines at the prompt: checked across their stages, profiled, planned, certified, verified and drawn.

use std::process::Command;

use crate::harness::{DAEMON, Deployment, repository, stderr, weir};
use serde_json::Value;

/// A picture of four numbers: up to three of them are read.
fn plate() -> String {
    format!(
        "{DAEMON}{}",
        r#"
        certificate = "c.json"
        [[pipeline]]
        name = "plate"
        deadline = "200ms"
        guard = "10ms"
        constraints = [{ any-miss = { m = 1, k = 3 } }]
        answer = ["detect", "read"]
        [[pipeline.stream]]
        name = "left"
        arrivals = [{ periodic = { period = "200ms", jitter = "10ms" } }]
        [[pipeline.stage]]
        name = "detect"
        engine = "simulated"
        simulated = { times = ["2ms", "3ms"], input = 4, output = 4 }
        handover = "0s"
        [[pipeline.stage]]
        name = "read"
        engine = "simulated"
        simulated = { times = ["1ms", "2ms", "2ms"], input = 1, output = 2 }
        handover = "0s"
        workers = 2
        after = "detect"
        fan-out = 3
        mean = 1.5
        [pipeline.stage.adapter]
        each = { scores = "output", threshold = 0.5 }
        inputs.input = { row = "output" }
        "#
    )
}

/// Profiled, with times that no host changes.
fn profiled(config: &str) -> Deployment {
    let place = Deployment::new(config);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_stage_bounds("plate/detect", &[10, 15]);
    place.set_stage_bounds("plate/read", &[5, 8, 9]);
    place
}

fn json(place: &Deployment, arguments: &[&str]) -> Value {
    serde_json::from_str(&place.succeed(arguments)).expect("JSON")
}

#[test]
fn the_check_prints_the_tree_and_holds_the_stages_against_each_other() {
    let text = Deployment::new(plate()).succeed(&["check"]);
    for line in [
        ": pipeline plate, answered within 200.0 ms: detect.output f32[4], read.output f32[3, 2], read.parent i32[3], read.row i32[3]",
        ":   detect: ",
        ":     read: ",
        " on simulated, up to 3 of each result of detect",
        ": ok, 1 service(s), 1 reserved stream(s)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let refused = |from: &str, to: &str| {
        let text = plate();
        assert!(text.contains(from), "{from}");
        Deployment::new(text.replace(from, to)).fail(&["check"])
    };
    for (from, to, wanted) in [
        ("input = 1, output = 2", "input = 3, output = 2", "pipeline[0].stage[1].adapter.inputs.input"),
        ("{ row = \"output\" }", "{ row = \"scores\" }", "pipeline[0].stage[1].adapter.inputs.input"),
        ("scores = \"output\"", "scores = \"odds\"", "pipeline[0].stage[1].adapter.each"),
        ("inputs.input =", "inputs.image =", "pipeline[0].stage[1].adapter.inputs"),
        ("after = \"detect\"", "after = \"detector\"", "pipeline[0].stage[1].after = \"detector\""),
    ] {
        let message = refused(from, to);
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    // What is wrong between two stages stands in a line of the file, as all else.
    for (from, to, at, line) in [
        ("{ row = \"output\" }", "{ row = \"scores\" }", "adapter.inputs.input.row = ", "inputs.input = "),
        ("scores = \"output\"", "scores = \"odds\"", "adapter.each.scores = ", "each = "),
        ("input = 1, output = 2", "input = 3, output = 2", "adapter.inputs.input.row = ", "inputs.input = "),
    ] {
        let message = refused(from, to);
        let said = plate().replace(from, to);
        let number = said.lines().position(|text| text.trim_start().starts_with(line)).expect("the line") + 1;
        let wanted = format!("/weir.toml:{number}: pipeline[0].stage[1].{at}");
        assert!(message.contains(&wanted), "{wanted}: {message}");
    }
}

#[test]
fn the_profile_times_a_stage_with_what_makes_its_requests() {
    let place = profiled(&plate());
    let text = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let models: Vec<_> =
        profile["entries"].as_array().expect("entries").iter().map(|e| &e["model"]).collect();
    let ends = |end: &str| models.iter().any(|model| model.as_str().is_some_and(|m| m.ends_with(end)));
    assert!(models.len() == 2 && ends(" at plate/detect") && ends(" at plate/read"), "{models:?}");
    // Another adapter is another stage: what was measured is of no use. Another threshold costs the same.
    place.configure(plate().replace("threshold = 0.5", "threshold = 0.7"));
    place.succeed(&["plan"]);
    place.configure(
        plate().replace("each = { scores = \"output\", threshold = 0.5 }", "each = { rows = \"output\" }"),
    );
    let message = place.fail(&["plan"]);
    assert!(message.contains("at plate/") && message.contains("run `weir profile FILE` anew"), "{message}");
}

#[test]
fn the_plan_says_what_each_stage_adds_and_what_limits_the_promise() {
    let place = profiled(&plate());
    let text = place.succeed(&["plan"]);
    for line in [
        "plate: a pipeline of 2 stage(s), 3 worker(s)",
        "each result becomes up to 3 requests, 1.5 on average; in the answer",
        "promise any_miss(1,3): 2 of 3 requests must be served",
        "one stream beside the reserved ones, up to 5.00 ms late: ",
        "with the deadline split among the stages by their shortest batches: ",
        "what limits it: ",
        "reserved: left; answered as a whole within ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let plan = json(&place, &["plan", "--json"])["services"][0].clone();
    let stages = plan["pipeline"].as_array().expect("stages");
    let named: Vec<_> =
        stages.iter().map(|stage| (&stage["name"], &stage["after"], &stage["most"])).collect();
    assert_eq!(
        named,
        [(&"detect".into(), &Value::Null, &1.into()), (&"read".into(), &"detect".into(), &3.into())]
    );
    assert_eq!(stages[1]["batch_times_ns"].to_string(), "[5000000,8000000,9000000]");
    let (rate, split) = (plan["rate"]["per_s"].as_f64(), plan["split_per_s"].as_f64());
    // With two at once detect keeps up with 133 a second, and read with two workers and three at once with 222.
    assert!(
        rate.is_some_and(|rate| rate > 100.0 && rate <= 200.0),
        "{rate:?}: two of three of at most 133/s"
    );
    // So near to capacity the plan's test ends a little sooner.
    assert!(split <= rate.map(|rate| rate * 1.001), "{split:?} of {rate:?}");
    let (bound, deadline) = (plan["bound_ns"].as_u64(), plan["deadline_ns"].as_u64());
    assert!(bound > Some(0) && bound <= deadline, "{bound:?} of {deadline:?}");
    // What is promised is admissible as a problem of its own, and it is played as one.
    let problem = place.succeed(&["plan", "--problem", "plate"]);
    std::fs::write(place.path("p.json"), &problem).expect("written");
    assert_eq!(problem.matches("\"batch\": ").count(), 2, "{problem}");
    let drawn = place.path("plate.svg");
    place.succeed(&["plan", "--pipeline", "plate", "--figure", &drawn.display().to_string()]);
    let svg = std::fs::read_to_string(drawn).expect("a figure");
    assert!(svg.starts_with("<svg") && svg.contains("2 read: 2 × B = "), "{svg}");
    let message = place.fail(&["plan", "--pipeline", "plat", "--figure", "x.svg"]);
    assert!(message.contains("--pipeline = plat"), "{message}");
}

#[test]
fn what_cannot_be_promised_is_refused_by_stage_and_stream() {
    let place = profiled(&plate());
    let refused = |from: &str, to: &str| {
        place.configure(plate().replace(from, to));
        place.fail(&["plan"])
    };
    let short = refused("deadline = \"200ms\"", "deadline = \"34ms\"");
    assert!(short.contains("too short for one source: P(1) is detect 10.0 ms, read 5.00 ms"), "{short}");
    let often = refused("period = \"200ms\"", "period = \"2ms\"");
    assert!(often.contains("the promise to stream left, any_miss(1,3), cannot be kept: "), "{often}");
    assert!(often.contains("detect would be busy to "), "{often}");
    let few = refused("answer = ", "queue = 1\nanswer = ");
    assert!(few.contains("queue = 1, but up to "), "{few}");
}

#[test]
fn a_pipeline_is_certified_verified_and_served_by_its_certificate() {
    let place = profiled(&plate());
    let text = place.succeed(&["certify"]);
    assert!(text.contains("plate: admissible, by theorem-p"), "{text}");
    let certificate: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("c.json")).expect("written")).expect("JSON");
    assert_eq!(
        (&certificate["weir_certificate"], certificate["services"].to_string()),
        (&3.into(), "[]".into())
    );
    let claim = &certificate["pipelines"][0];
    assert_eq!(
        (&claim["service"]["name"], &claim["service"]["stages"][1]["name"]),
        (&"plate".into(), &"read".into())
    );
    assert_eq!(
        claim["problem"]["streams"].as_array().map(Vec::len),
        Some(2),
        "the reserved one and the promised"
    );
    let verify = |deployment: &Deployment| {
        let (c, config) = (deployment.path("c.json"), deployment.config());
        Command::new(weir())
            .arg("verify")
            .arg(c)
            .arg("--config")
            .arg(config)
            .output()
            .expect("weir can be run")
    };
    let verified = verify(&place);
    assert!(verified.status.success(), "{}", stderr(&verified));
    drop(place.serve());
    place.configure(plate().replace("fan-out = 3", "fan-out = 2"));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_stage_bounds("plate/detect", &[10, 15]);
    place.set_stage_bounds("plate/read", &[5, 8, 9]);
    let message = stderr(&verify(&place));
    assert!(message.contains("pipeline plate: stage detect: profile is "), "{message}");
    let message = place.fail(&["serve"]);
    assert!(
        message.contains("daemon.certificate = ") && message.contains("run `weir certify` again"),
        "{message}"
    );
    // What cannot be promised is refused in a certificate.
    place.configure(plate().replace("period = \"200ms\"", "period = \"2ms\""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_stage_bounds("plate/detect", &[10, 15]);
    place.set_stage_bounds("plate/read", &[5, 8, 9]);
    let output = place.weir(&["certify"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("plate: refused: "),
        "{said}{}",
        stderr(&output)
    );
}

#[test]
fn shipped_models_read_the_same_picture_one_after_the_other() {
    let models = repository("models/manifest.toml");
    let place = Deployment::new(format!(
        "{}{}",
        DAEMON.replace("[daemon]", &format!("[daemon]\nmodels = {models:?}")),
        r#"
        [[pipeline]]
        name = "twice"
        deadline = "5s"
        guard = "100ms"
        constraints = [{ row-miss = 2 }]
        answer = ["first", "second"]
        [[pipeline.stage]]
        name = "first"
        model = "digits-xs"
        max-batch = 2
        [[pipeline.stage]]
        name = "second"
        model = "digits-s"
        after = "first"
        max-batch = 2
        adapter = { inputs.image = { pass = "source.image" } }
        "#
    ));
    let text = place.succeed(&["check"]);
    assert!(text.contains("first.logits f32[10], second.logits f32[1, 10]"), "{text}");
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let plan = json(&place, &["plan", "--json"])["services"][0].clone();
    assert_eq!(plan["pipeline"][1]["model"], "digits-s");
    assert!(plan["rate"]["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{plan}");
}
