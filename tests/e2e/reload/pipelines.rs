//! A reload of pipelines: one that has not changed goes on, others come and go, and one that has changed is taken over.

use crate::harness::{DAEMON, Deployment, answers, best_effort};
use weir_client::{MissReason, Outcome};

/// A pipeline of two stages that repeats what comes.
fn pipeline(name: &str, deadline: &str) -> String {
    format!(
        r#"
        [[pipeline]]
        name = "{name}"
        deadline = "{deadline}"
        guard = "50ms"
        [[pipeline.stage]]
        name = "first"
        engine = "simulated"
        simulated = {{ times = ["2ms"], input = 4, output = 4 }}
        max-batch = 1
        [[pipeline.stage]]
        name = "second"
        after = "first"
        engine = "simulated"
        simulated = {{ times = ["3ms"], input = 4, output = 4 }}
        max-batch = 1
        [pipeline.stage.adapter]
        inputs.input = {{ pass = "output" }}
        "#
    )
}

#[test]
fn an_unchanged_pipeline_goes_on_others_come_and_go_and_a_changed_one_is_taken_over_with_its_streams() {
    let service = "[[service]]\nname = \"calm\"\nengine = \"simulated\"\nmax-batch = 1\ndeadline = \"1s\"\n\
        simulated = { times = [\"2ms\"], input = 4, output = 4 }\n";
    let config = |pipelines: &[String]| format!("{DAEMON}{service}{}", pipelines.concat());
    let one = pipeline("one", "2s");
    let place = Deployment::new(config(&[one.clone(), pipeline("two", "2s")]));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(20);
    place.configure(config(std::slice::from_ref(&one)));
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("one", "cam")).expect("registered");
    let mut served = 0;
    let mut infer = |expected: f32| {
        let outcome = client.infer(&stream, &[expected; 4]).expect("an answer");
        let Outcome::Result(result) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(stream.output_at::<f32>(result, 0).expect("f32"), [expected; 4]);
        served += 1;
        assert_eq!(daemon.status()["services"][1]["served"], served, "it is the same one");
    };
    infer(1.0);

    // Another comes.
    daemon.deployment.configure(config(&[one.clone(), pipeline("two", "2s")]));
    assert!(daemon.reload_accepted().contains("two"), "it is new");
    infer(2.0);
    let mut other = daemon.client();
    let two = other.register(&best_effort("two", "cam")).expect("registered");
    assert!(other.infer(&two, &[3.0; 4]).expect("an answer").result().is_some());

    // It does not go while it is held, then it does.
    daemon.deployment.configure(config(std::slice::from_ref(&one)));
    let refused = daemon.reload_refused();
    assert!(refused.contains("two") && refused.contains("held"), "{refused}");
    other.unregister(&two).expect("given up");
    assert!(daemon.reload_accepted().contains("two: gone"));
    infer(4.0);

    // Another takes over, and who holds a stream notices nothing.
    daemon.deployment.configure(config(&[pipeline("one", "3s").replace("\"3ms\"", "\"2ms\"")]));
    assert!(daemon.reload_accepted().contains("one"), "it has changed");
    assert_eq!(daemon.status()["services"][1]["deadline_ns"], 3_000_000_000_u64);
    infer(5.0);

    // A service of that name is something else.
    let service = service.replace("calm", "one");
    daemon.deployment.configure(format!("{DAEMON}{service}"));
    let refused = daemon.reload_refused();
    assert!(refused.contains("restart"), "{refused}");
    infer(6.0);
}

#[test]
fn a_pipeline_on_a_device_is_taken_over_while_its_sources_come_and_each_is_answered_once() {
    let shared = |name: &str, deadline: &str| {
        pipeline(name, deadline).replacen("guard = ", "device = \"box\"\n        guard = ", 1)
    };
    let config = |pipelines: &[String]| format!("{DAEMON}[[device]]\nname = \"box\"\n{}", pipelines.concat());
    let place = Deployment::new(config(&[shared("one", "2s"), shared("two", "2s")]));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(20);
    place.configure(config(&[shared("one", "2s")]));
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("one", "cam")).expect("registered");
    let mut ids = Vec::new();
    let mut send = |client: &mut weir_client::blocking::Client, count: u16| {
        for _ in 0..count {
            let mark = f32::from(ids.len() as u16);
            ids.push(client.submit(&stream, &[mark; 4]).expect("sent"));
        }
    };
    send(&mut client, 10);
    daemon.deployment.configure(config(&[shared("one", "3s"), shared("two", "2s")]));
    daemon.reload_accepted();
    send(&mut client, 10);
    let mut served = 0;
    for (n, outcome) in answers(&mut client, &ids).iter().enumerate() {
        match outcome {
            Outcome::Result(result) => {
                assert_eq!(stream.output_at::<f32>(result, 0).expect("f32"), [n as f32; 4]);
                served += 1;
            }
            // What nothing is promised for does not wait for who takes over.
            Outcome::Miss(miss) => assert_eq!(miss.reason, MissReason::Cancelled, "{n}: {miss:?}"),
        }
    }
    assert!(served >= 10, "what came behind it at least: {served}");
    let status = daemon.status();
    let one = &status["services"][0];
    assert_eq!((&one["served"], &one["deadline_ns"]), (&served.into(), &3_000_000_000_u64.into()));
    // On workers of their own the stages are somewhere else.
    daemon.deployment.configure(format!("{DAEMON}{}", pipeline("one", "3s")));
    let refused = daemon.reload_refused();
    assert!(
        refused.contains("service one runs on device box, and on workers of its own from the next start on"),
        "{refused}"
    );
}
