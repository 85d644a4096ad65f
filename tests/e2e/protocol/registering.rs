//! A stream that must wait for long batches: its connection is served meanwhile, and so are all others.

use std::borrow::Cow;
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, Raw, best_effort, eventually, frame};
use weir_client::wire::{ClientFrame, DaemonFrame};
use weir_client::{ArrivalBound, Constraint, Registration};

/// What the variants wait out, in milliseconds.
const TIMES: [[u64; 1]; 2] = [[16], [600]];
/// One worker: 32 ms a request, or more accurately 700, within 1 s after the guard.
const BOUNDS: [[u64; 1]; 2] = [[32], [700]];

fn place() -> Deployment {
    let place = Deployment::new(format!(
        "{DAEMON}[[service]]\nname = \"lanes\"\nengine = \"simulated\"\nhandover = \"0ms\"\nmax-batch = 1\n\
         deadline = \"2s\"\nguard = \"1s\"\n\
         simulated = {{ times = [\"16ms\"], accuracy = 0.6, input = 4, output = 4, \
         variants = [{{ times = [\"600ms\"], accuracy = 0.9 }}] }}\n"
    ));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_variant_bounds(&TIMES, &BOUNDS);
    place
}

/// Sends a registration.
fn register(raw: &mut Raw, id: u64, registration: &Registration) {
    assert!(raw.send(&frame(id, &ClientFrame::Register(Cow::Borrowed(registration)))));
}

/// The number of the stream that the next frame gives out, and what the frame answers otherwise.
fn registered(raw: &mut Raw) -> Result<u32, String> {
    let answer = raw.next(|frame| match frame {
        DaemonFrame::Registered(info) => Ok(info.id),
        other => Err(format!("{other:?}")),
    });
    answer.expect("the connection stays")
}

/// A connection whose first request, of the stream that is told, is run by the slow variant.
fn amid_a_long_batch(daemon: &Daemon) -> (Raw, u32) {
    let mut raw = daemon.raw().hello();
    register(&mut raw, 2, &best_effort("lanes", "any"));
    let any = registered(&mut raw).expect("best effort");
    assert!(raw.send(&frame(3, &ClientFrame::Submit { stream: any, payload: &[0; 16] })));
    eventually("a long batch", || Some(()).filter(|()| daemon.status()["services"][0]["running"] == 1));
    (raw, any)
}

/// 25 at once take 800 ms: there is no room for them behind what a long batch still takes.
fn burst() -> Registration {
    Registration::builder("lanes", "burst")
        .constraint(Constraint::any_miss(0, 1))
        .arrivals(ArrivalBound::window(25, Duration::from_secs(2)))
        .build()
        .expect("it fits the frame")
}

#[test]
fn a_registration_that_waits_holds_nothing_else_up() {
    let daemon = place().serve();
    let (mut raw, any) = amid_a_long_batch(&daemon);
    register(&mut raw, 4, &burst());
    assert!(raw.send(&frame(5, &ClientFrame::Ping)));
    assert!(raw.send(&frame(6, &ClientFrame::Status)));
    let kinds: Vec<_> = (0..2).map(|_| registered(&mut raw).expect_err("it waits")).collect();
    assert!(kinds[0].contains("Pong") && kinds[1].contains("StatusReply"), "{kinds:?}");
    let mut answers: Vec<_> = (0..2).map(|_| registered(&mut raw)).collect();
    answers.sort();
    assert_eq!(answers[0], Ok(any + 1), "{answers:?}");
    assert!(answers[1].as_ref().is_err_and(|other| other.contains("Result")), "{answers:?}");
    assert_eq!(daemon.stream_status("burst")["connected"], true);
}

/// Who goes while a registration waits leaves nothing behind, and the name is free again.
#[test]
fn a_client_that_goes_while_its_stream_waits_leaves_nothing_behind() {
    let daemon = place().serve();
    let (mut raw, _) = amid_a_long_batch(&daemon);
    register(&mut raw, 4, &burst());
    drop(raw);
    eventually("no stream", || {
        let status = daemon.status();
        Some(())
            .filter(|()| status["services"][0]["streams"] == serde_json::json!([]) && status["clients"] == 1)
    });
    daemon.client().register(&burst()).expect("the name is free");
}

/// Two by two for the same name: the first of each has it.
#[test]
fn registrations_of_a_connection_are_carried_out_in_their_order() {
    let daemon = place().serve();
    let mut raw = daemon.raw().hello();
    let pairs = 7;
    for pair in 0..pairs {
        let name = format!("s{pair}");
        for id in [10 + 2 * pair, 11 + 2 * pair] {
            register(&mut raw, id, &best_effort("lanes", &name));
        }
    }
    for pair in 0..pairs {
        assert!(registered(&mut raw).is_ok(), "the first of pair {pair}");
        let refused = registered(&mut raw).expect_err("the second");
        assert!(refused.contains("NameInUse"), "{refused}");
    }
}
