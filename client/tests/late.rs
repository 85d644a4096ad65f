//! Off a request's way: what a daemon says to a blocking client after that has lost patience.
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod mock;

use std::time::Duration;

use mock::{Mock, registration};
use weir_client::blocking::Client;
use weir_client::wire::{DaemonFrame, Kind};
use weir_client::{Answer, Error, EventMask, Options, RefusalCode};

const INPUT: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// Impatient, but not so much that a busy machine makes it lose patience where the daemon answers.
fn connect(mock: &Mock, max_in_flight: usize) -> Client {
    let options = Options { max_in_flight, timeout: Duration::from_secs(1), ..Options::default() };
    Client::connect_with(mock.path(), options).unwrap()
}

fn times_out<T>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Timeout { .. })));
}

#[test]
fn a_stream_granted_too_late_is_given_up_again() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        for _ in 0..2 {
            let (late, ping) = (peer.expect(Kind::Register), peer.expect(Kind::Ping));
            peer.registered(late);
            peer.expect_given_up(late);
            peer.send(ping, &DaemonFrame::Pong);
        }
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        peer.expect_end();
    });
    // One place for the frame given up, one for the next: nothing may be counted twice.
    let mut client = connect(&mock, 2);
    for _ in 0..2 {
        times_out(client.register(&registration()));
        client.ping().unwrap();
    }
    client.register(&registration()).unwrap();
    drop(client);
    mock.finish();
}

#[test]
fn it_is_given_up_while_the_client_waits_for_other_things() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        for sequence in 0..2 {
            let (late, submit) = (peer.expect(Kind::Register), peer.expect(Kind::Submit));
            peer.registered(late);
            peer.expect_given_up(late);
            peer.result(submit, sequence, [0.5, 0.25]);
        }
        peer.expect_end();
    });
    let mut client = connect(&mock, 4);
    let stream = client.register(&registration()).unwrap();
    times_out(client.register(&registration()));
    let first = client.submit(&stream, &INPUT).unwrap();
    assert!(matches!(client.recv().unwrap(), Answer::Result(id, _) if id == first));
    // The same for the halves, where another writes.
    times_out(client.register(&registration()));
    let (mut sender, mut receiver) = client.split();
    let second = sender.submit(&stream, &INPUT).unwrap();
    assert!(matches!(receiver.recv().unwrap(), Answer::Result(id, _) if id == second));
    drop((sender, receiver));
    mock.finish();
}

#[test]
fn other_answers_that_come_too_late_are_dropped() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let kinds = [Kind::Register, Kind::Subscribe, Kind::Status, Kind::Ping, Kind::Ping];
        let [register, subscribe, status, ping, last] = kinds.map(|kind| peer.expect(kind));
        peer.send(register, &DaemonFrame::Refused { code: RefusalCode::NameInUse, text: "front" });
        peer.send(subscribe, &DaemonFrame::Subscribed);
        peer.send(status, &DaemonFrame::StatusReply { json: "{}" });
        peer.send(ping, &DaemonFrame::Pong);
        peer.send(last, &DaemonFrame::Pong);
        peer.expect_end();
    });
    let mut client = connect(&mock, 5);
    times_out(client.register(&registration()));
    times_out(client.subscribe(EventMask::ALL));
    times_out(client.status());
    times_out(client.ping());
    client.ping().unwrap();
    drop(client);
    mock.finish();
}
