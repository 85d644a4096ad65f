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

#[test]
fn whichever_service_of_a_device_ends_the_streams_of_all_others_go_on_as_they_were() {
    let service = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\nmax-batch = 1\ndeadline = \"10s\"\n\
             simulated = {{ times = [\"2ms\"], input = 4, output = 4 }}\n\
             [[service.stream]]\nname = \"{name}-1\"\nconstraints = [{{ row-miss = 0 }}]\n\
             arrivals = [{{ periodic = {{ period = \"500ms\", jitter = \"400ms\" }} }}]\n"
        )
    };
    let shared = pipeline("two", "10s").replacen("guard = ", "device = \"box\"\n        guard = ", 1);
    let config = |ends: &str| {
        let services = ["a", "b", "c"].into_iter().filter(|name| *name != ends).map(service);
        format!("{DAEMON}[[device]]\nname = \"box\"\n{}{shared}", services.collect::<String>())
    };
    let place = Deployment::new(config(""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(20);
    for ends in ["a", "b", "c"] {
        place.configure(config(""));
        let daemon = place.serve();
        let mut stays: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| *name != ends).collect();
        stays.push("two");
        let mut client = daemon.client();
        let mut streams = Vec::new();
        for name in &stays {
            let stream = best_effort(name, &format!("{name}-1"));
            streams.push(client.register(&stream).expect("it is there"));
        }
        let mut infer = || {
            for stream in &streams {
                let outcome = client.infer(stream, &[1.0; 4]).expect("an answer");
                assert!(outcome.result().is_some(), "{ends} ends: {outcome:?}");
            }
        };
        infer();
        place.configure(config(ends));
        let told = daemon.reload_accepted();
        assert!(told.contains(&format!("service {ends}: gone")), "{told}");
        infer();
        let status = daemon.status();
        for (service, name) in status["services"].as_array().expect("a list").iter().zip(&stays) {
            let streams = service["streams"].as_array().expect("a list");
            let streams: Vec<_> = streams.iter().map(|stream| (&stream["name"], &stream["served"])).collect();
            assert_eq!(service["name"], *name, "{ends} ends: {status}");
            assert_eq!(streams, [(&format!("{name}-1").into(), &2.into())], "{ends} ends: {status}");
        }
    }
}
