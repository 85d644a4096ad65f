//! The first and last step of a request's way in other languages: each client of `client/` against the real daemon.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::harness::{DAEMON, Daemon, Deployment, best_effort, eventually, repository, stderr};
use weir_client::{Double, f16};

/// Models of every type of tensor, and a service that takes its time.
fn serve() -> Daemon {
    let deployment = Deployment::new(format!(
        r#"{DAEMON}
        models = "{}"
        max-arena = 1048576
        [safe-mode]
        hold = "100ms"
        clean = "100ms"
        [[service]]
        name = "typed"
        model = "typed"
        deadline = "20s"
        guard = "1s"
        max-batch = 1
        queue = 1024
        [[service]]
        name = "numbers"
        model = "numbers"
        deadline = "20s"
        guard = "1s"
        max-batch = 1
        [[service]]
        name = "slow"
        engine = "simulated"
        simulated = {{ times = ["40ms"], input = 2, output = 2 }}
        deadline = "2s"
        guard = "500ms"
        queue = 64
        [[service]]
        name = "fast"
        engine = "simulated"
        simulated = {{ times = ["1ms"], input = 2, output = 2 }}
        deadline = "2s"
        guard = "500ms"
        [[service]]
        name = "classed"
        engine = "simulated"
        simulated = {{ times = ["40ms"], input = 2, output = 2 }}
        deadline = "20s"
        guard = "1s"
        [[service.class]]
        name = "plain"
        [[service.class]]
        name = "soft"
        deadline = "10ms"
        decay = {{ step = {{ part = 0.5, cutoff = 100.0 }} }}
        "#,
        repository("tests/typed/manifest.toml").display()
    ));
    deployment.succeed(&["profile", "--quick", "--samples", "10"]);
    deployment.serve()
}

/// The library, its example and its checks, built so that every wrong access ends them.
pub(super) fn build(place: &Deployment) -> PathBuf {
    let folder = place.path("c");
    let output = Command::new("make")
        .arg("-C")
        .arg(repository("client/c"))
        .arg(format!("BUILD={}", folder.display()))
        .args(["CFLAGS=-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"])
        .args(["check", "hostile", "restarts"].map(|program| format!("{}/{program}", folder.display())))
        .arg("all")
        .output()
        .expect("make can be run");
    assert!(output.status.success(), "{}", stderr(&output));
    folder
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it can be run")
}

#[test]
fn the_c_client_keeps_what_its_header_says() {
    let daemon = serve();
    let folder = build(&daemon.deployment);
    let output = run(Command::new(folder.join("check")).arg(daemon.deployment.socket()));
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run(Command::new(folder.join("hostile")).arg(daemon.deployment.path("hostile")));
    assert!(output.status.success(), "{}", stderr(&output));
    eventually("no arena left behind", || (daemon.arenas() == 0).then_some(()));
    // The example runs until the daemon goes, and says why it ends.
    let socket = daemon.deployment.socket();
    let mut example = Command::new(folder.join("control_loop"));
    let example = example.args(["fast".as_ref(), socket.as_os_str()]).stdout(std::process::Stdio::piped());
    let child = example.stderr(std::process::Stdio::piped()).spawn().expect("the example starts");
    eventually("answers to the example", || {
        let status = daemon.status();
        let streams = status["services"][3]["streams"].as_array()?.clone();
        streams.iter().any(|s| s["served"].as_u64() > Some(2)).then_some(())
    });
    drop(daemon);
    let output = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("guaranteed within 2000.0 ms") && said.contains("output of 8 bytes in"), "{said}");
    assert!(
        stderr(&output).contains("control_loop: the connection was closed by the daemon"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_rust_client_sends_and_reads_every_type() {
    let daemon = serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("typed", "rust")).expect("a stream");
    let names: Vec<_> = stream.inputs.iter().map(|t| (t.name.as_str(), t.data_type.word())).collect();
    assert_eq!(names, [("image", "u8"), ("ids", "i64"), ("half", "f16"), ("score", "f32")]);
    let (image, ids, half) = ([1u8, 2, 3, 4, 5, 6], [i64::MIN, 7], [0.5, -2.0, 65504.0].map(f16::from_f32));
    let packed = stream.pack().push(&image).and_then(|p| p.push(&ids)).and_then(|p| p.push(&half));
    let payload = packed.and_then(|p| p.push(&[1.25f32])).and_then(|p| p.finish()).expect("it fits");
    let outcome = client.infer_bytes(&stream, &payload).expect("an answer");
    let result = outcome.result().expect("in time");
    assert_eq!(stream.output_at(result, 0), Ok(image.to_vec()));
    assert_eq!(stream.output_at(result, 1), Ok(ids.to_vec()));
    assert_eq!(stream.output_at(result, 2), Ok(half.to_vec()));
    assert_eq!(stream.output_at(result, 3), Ok(vec![2.5f32]));
    let place = client.share(4096).and_then(|mut arena| arena.place(&stream)).expect("a place");
    place.write(0, &image).and_then(|()| place.write(2, &half)).expect("they fit");
    place.write(1, &ids).and_then(|()| place.write(3, &[-3.0f32])).expect("they fit");
    assert!(client.infer_shared(&place).expect("an answer").result().is_some());
    assert_eq!(place.read(1), Ok(ids.to_vec()));
    assert_eq!(place.read(2), Ok(half.to_vec()));
    assert_eq!(place.read(3), Ok(vec![-6.0f32]));
}

#[test]
fn the_rust_client_sends_and_reads_the_other_types() {
    let daemon = serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("numbers", "rust")).expect("a stream");
    let types: Vec<_> = stream.inputs.iter().map(|tensor| tensor.data_type.word()).collect();
    assert_eq!(types, ["f64", "i8", "i32", "bool"]);
    assert!(stream.accuracy.is_nan(), "the manifest tells none");
    let (double, small, count) =
        ([0.1, f64::MIN].map(Double::new), [i8::MIN, 0, i8::MAX], [i32::MIN, i32::MAX]);
    let packed = stream.pack().push(&double).and_then(|p| p.push(&small)).and_then(|p| p.push(&count));
    let payload =
        packed.and_then(|p| p.push(&[true, false, true])).and_then(|p| p.finish()).expect("it fits");
    let mut infer = |payload: &[u8]| client.infer_bytes(&stream, payload).expect("an answer");
    let outcome = infer(&payload);
    let result = outcome.result().expect("in time");
    assert_eq!(stream.output_at(result, 0), Ok(double.to_vec()));
    assert_eq!(stream.output_at(result, 1), Ok(small.to_vec()));
    assert_eq!(stream.output_at(result, 2), Ok(count.to_vec()));
    assert_eq!(stream.output_at(result, 3), Ok(vec![true, false, true]));
    // What is neither 0 nor 1 is true, and no engine sees another number.
    let flags = payload.len() - 3..;
    let outcome = infer(&[&payload[..flags.start], &[0, 2, 255]].concat());
    assert_eq!(outcome.result().expect("in time").output[flags], [0, 1, 1]);
}
