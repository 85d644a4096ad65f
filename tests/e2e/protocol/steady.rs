//! Clients that connect and register again by themselves, over a restart of the daemon.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::clients::build;

use crate::harness::{DAEMON, Daemon, Deployment, best_effort, eventually, pause};
use weir_client::blocking::{Client, Steady};
use weir_client::{
    ArrivalBound, Constraint, Error, EventMask, Outcome, Registration, StreamInfo, asynchronous,
};

const SERVICE: &str = r#"
    [[service]]
    name = "echo"
    engine = "simulated"
    simulated = { times = ["1ms"], input = 2, output = 2 }
    deadline = "5s"
    max-batch = 1
"#;

fn place() -> Deployment {
    let place = Deployment::new(format!("{DAEMON}{SERVICE}"));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place
}

fn promised(name: &str) -> Registration {
    let promised = Registration::builder("echo", name)
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(50, Duration::from_millis(1_000)));
    promised.build().expect("it fits")
}

/// The names of the streams that are held.
fn held(daemon: &Daemon) -> Vec<String> {
    let status = daemon.status();
    let streams = status["services"][0]["streams"].as_array().expect("a list").clone();
    streams.iter().map(|stream| stream["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_blocking_client_goes_on_with_its_streams_after_a_restart() {
    let place = place();
    let daemon = place.serve();
    let mut client = Steady::connect(place.socket()).expect("a daemon");
    let [gone, first, second] =
        ["gone", "first", "second"].map(|name| client.register(&promised(name)).expect("admitted"));
    client.unregister(gone).expect("given up");
    client.subscribe(EventMask::ALL).expect("subscribed");
    let numbers = |client: &mut Steady| [first, second].map(|held| client.stream(held).expect("held").1.id);
    assert_eq!(numbers(&mut client), [2, 3]);
    assert!(matches!(client.infer(second, &[1.0f32, 2.0]), Ok(Outcome::Result(_))));

    drop(daemon);
    let told = client.infer(second, &[1.0f32, 2.0]).expect_err("the daemon is gone");
    assert!(matches!(told, Error::Closed | Error::Io(_)), "{told}");
    for _ in 0..2 {
        let told = client.infer(second, &[1.0f32, 2.0]).expect_err("nobody is there");
        assert!(matches!(told, Error::Connect { .. }), "{told}");
    }
    let daemon = place.serve();
    assert!(matches!(client.infer(second, &[1.0f32, 2.0]), Ok(Outcome::Result(_))));
    assert_eq!(held(&daemon), ["first", "second"]);
    assert_eq!(numbers(&mut client), [1, 2], "the new connection counts anew");
    assert!(matches!(client.infer(gone, &[1.0f32, 2.0]), Err(Error::GivenUp)));
    // It has subscribed again as well: a flood of one more stream is told.
    let tight = Registration::builder("echo", "tight")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, Duration::from_secs(60)));
    let tight = client.register(&tight.build().expect("it fits")).expect("admitted");
    let (connection, stream) = client.stream(tight).expect("held");
    for _ in 0..2 {
        connection.submit(stream, &[0.0f32; 2]).expect("sent");
    }
    connection.next_event_timeout(crate::harness::PATIENCE).expect("a connection").expect("an event");
}

#[test]
fn a_stream_whose_name_is_taken_keeps_no_other_from_going_on() {
    let place = place();
    let daemon = place.serve();
    let mut client = Steady::connect(place.socket()).expect("a daemon");
    let stream = client.register(&promised("cam")).expect("admitted");
    let second = client.register(&promised("second")).expect("admitted");
    drop(daemon);
    client.infer(stream, &[0.0f32; 2]).expect_err("the daemon is gone");
    let daemon = place.serve();
    let mut other = daemon.client();
    other.register(&best_effort("echo", "cam")).expect("first come");
    // The name is taken by now: no call for this stream succeeds until it is free again.
    for _ in 0..2 {
        let told = client.infer(stream, &[0.0f32; 2]).expect_err("the name is taken");
        assert!(matches!(told, Error::Refused(_)), "{told}");
        assert!(matches!(client.infer(second, &[0.0f32; 2]), Ok(Outcome::Result(_))));
    }
    drop(daemon);
    client.infer(second, &[0.0f32; 2]).expect_err("the daemon is gone");
    let daemon = place.serve();
    let mut other = daemon.client();
    let theirs = other.register(&best_effort("echo", "cam")).expect("first come");
    // Whoever had the name, the client's own connection before or another client, may have it for some time yet.
    let giver = give_up_in_a_while(other, theirs);
    assert!(matches!(client.infer(stream, &[0.0f32; 2]), Ok(Outcome::Result(_))));
    giver.join().expect("no panic");
}

/// For how long a name is held that a client asks for again meanwhile.
const IN_USE: Duration = Duration::from_millis(100);

fn give_up_in_a_while(mut holder: Client, stream: StreamInfo) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        pause(IN_USE);
        holder.unregister(&stream).expect("given up");
    })
}

#[test]
fn an_async_client_goes_on_with_its_streams_after_a_restart() {
    let place = place();
    let daemon = place.serve();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = asynchronous::Steady::connect(place.socket()).await.expect("a daemon");
        let gone = client.register(&promised("gone")).await.expect("admitted");
        let stream = client.register(&promised("cam")).await.expect("admitted");
        client.unregister(gone).await.expect("given up");
        let mut events = client.subscribe(EventMask::ALL).await.expect("subscribed");
        assert!(matches!(client.infer(stream, &[1.0f32, 2.0]).await, Ok(Outcome::Result(_))));
        drop(daemon);
        // They end with the connection; what a busy machine did is told before.
        while events.next().await.is_ok() {}
        let told = client.infer(stream, &[1.0f32, 2.0]).await.expect_err("nobody is there");
        assert!(matches!(told, Error::Connect { .. }), "{told}");
        let daemon = place.serve();
        // Any number of tasks at once, and one connection for all of them.
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.infer(stream, &[1.0f32, 2.0]).await })
            })
            .collect();
        for task in tasks {
            assert!(matches!(task.await.expect("no panic"), Ok(Outcome::Result(_))));
        }
        eventually("the one stream", || (held(&daemon) == ["cam"]).then_some(()));
        drop(daemon);
        client.infer(stream, &[1.0f32, 2.0]).await.expect_err("the daemon is gone");
        let daemon = place.serve();
        let mut other = daemon.client();
        let theirs = other.register(&best_effort("echo", "cam")).expect("first come");
        let giver = give_up_in_a_while(other, theirs);
        assert!(matches!(client.infer(stream, &[1.0f32, 2.0]).await, Ok(Outcome::Result(_))));
        giver.join().expect("no panic");
        assert!(matches!(client.infer(gone, &[1.0f32, 2.0]).await, Err(Error::GivenUp)));
        client.subscribe(EventMask::ALL).await.expect("subscribed again");
    });
}

#[test]
fn a_c_client_goes_on_with_its_streams_after_a_restart() {
    let place = place();
    let program = build(&place).join("restarts");
    let mut child = Command::new(program)
        .arg(place.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut answer = child.stdin.take().expect("piped");
    // What it fails at it says on standard error.
    let mut hear = |word: &str| assert_eq!(said.next().expect("a line").expect("text"), word);
    let mut done = || answer.write_all(b"\n").expect("it reads");
    hear("open");
    let daemon = place.serve();
    done();
    hear("stop");
    assert_eq!(held(&daemon), ["first", "second"]);
    drop(daemon);
    done();
    hear("start");
    let daemon = place.serve();
    done();
    hear("take the name");
    assert_eq!(held(&daemon), ["first", "second", "third"]);
    let taken = |daemon: Daemon| {
        drop(daemon);
        let daemon = place.serve();
        let mut other = daemon.client();
        let theirs = other.register(&best_effort("echo", "second")).expect("first come");
        (daemon, other, theirs)
    };
    let (daemon, mut other, theirs) = taken(daemon);
    done();
    hear("give it back");
    other.unregister(&theirs).expect("given up");
    done();
    hear("take the name again");
    let (daemon, mut other, theirs) = taken(daemon);
    done();
    hear("give it back in a while");
    done();
    pause(IN_USE);
    other.unregister(&theirs).expect("given up");
    hear("take the name for good");
    let (daemon, _other, _) = taken(daemon);
    done();
    hear("other tensors");
    drop(daemon);
    place.configure(format!("{DAEMON}{}", SERVICE.replace("input = 2", "input = 3")));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let daemon = place.serve();
    done();
    hear("all checks passed");
    eventually("nothing left", || held(&daemon).is_empty().then_some(()));
    assert!(child.wait().expect("an end").success());
}
