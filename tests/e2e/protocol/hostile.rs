//! The first step of a request's way, taken by those who mean no good: they harm themselves, nobody else.

use std::borrow::Cow;
use std::net::Shutdown;
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, Raw, best_effort, eventually, frame, hello, pause, values};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::wire::{ClientFrame, DaemonFrame, ErrorCode, MAX_HELLO_FRAME, VERSION};
use weir_client::{Error, RefusalCode, StreamInfo};

/// A service that answers at once, with an output of `output` values; `daemon` goes into the `[daemon]` table.
fn serve(daemon: &str, output: usize) -> Daemon {
    let service = format!(
        r#"
        [[service]]
        name = "null"
        engine = "simulated"
        simulated = {{ times = ["0ms"], input = 2, output = {output} }}
        deadline = "30s"
        guard = "1s"
        streams = 4
        queue = 1024
        [[service.stream]]
        name = "reserved"
        constraints = [{{ any-miss = {{ m = 1, k = 2 }} }}]
        arrivals = [{{ window = {{ count = 1, length = "1s" }} }}]
        "#
    );
    Deployment::new(format!("{DAEMON}{daemon}{service}")).profiled(&[200]).serve()
}

fn stream(client: &mut Client, name: &str) -> StreamInfo {
    client.register(&best_effort("null", name)).expect("a stream")
}

/// The daemon serves a client as if nothing had happened.
fn serves(client: &mut Client, stream: &StreamInfo) {
    let outcome = client.infer(stream, &[3.0, 4.0]).expect("an answer");
    assert_eq!(values(stream, &outcome).map(|values| [values[0], values[1]]), Some([3.0, 4.0]));
}

/// Waits until this is the only client; the status then.
fn alone(client: &mut Client) -> Value {
    eventually("one client alone", || {
        let status: Value = serde_json::from_str(&client.status().expect("a status")).expect("JSON");
        (status["clients"] == 1).then_some(status)
    })
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> RefusalCode {
    match result {
        Err(Error::Refused(refusal)) => refusal.code,
        other => panic!("not refused but {other:?}"),
    }
}

/// A header of any contents.
fn header(length: u32, kind: u16, flags: u16, id: u64) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes
}

#[test]
fn what_is_no_frame_ends_its_connection_with_the_right_error_and_no_other() {
    let daemon = serve("max-frame = 16384\n", 2);
    let mut witness = daemon.client();
    let witnessed = stream(&mut witness, "witness");
    let submit = |payload: &[u8]| frame(2, &ClientFrame::Submit { stream: 1, payload });
    let mut trailing = frame(2, &ClientFrame::Ping);
    trailing[0] = 1;
    trailing.push(0);
    let mut reserved = submit(&[0; 8]);
    reserved[20] = 1;
    let mut not_text = frame(2, &ClientFrame::Register(Cow::Owned(best_effort("null", "x"))));
    not_text[18] = 0xff;
    let mut magic = frame(1, &hello(VERSION));
    magic[16] = b'w';
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (greeted, what, bytes, code) in [
        (false, "noise", noise.clone(), None),
        (false, "zeros", vec![0; 64], Some(ErrorCode::Malformed)),
        (false, "another magic", magic, Some(ErrorCode::Malformed)),
        (false, "a version not spoken", frame(1, &hello(VERSION + 1)), Some(ErrorCode::Version)),
        (false, "PING before HELLO", frame(1, &ClientFrame::Ping), Some(ErrorCode::ProtocolOrder)),
        (false, "a long HELLO", header(MAX_HELLO_FRAME + 1, 1, 0, 1), Some(ErrorCode::TooLarge)),
        (true, "noise after HELLO", noise, None),
        (true, "HELLO twice", frame(2, &hello(VERSION)), Some(ErrorCode::ProtocolOrder)),
        (true, "a frame too long", header(16_385, 4, 0, 2), Some(ErrorCode::TooLarge)),
        (true, "the longest length", header(u32::MAX, 4, 0, 2), Some(ErrorCode::TooLarge)),
        (true, "no such kind", header(0, 31, 0, 2), Some(ErrorCode::Malformed)),
        (true, "a kind of the daemon", header(0, 135, 0, 2), Some(ErrorCode::Malformed)),
        (true, "flags", header(0, 7, 1, 2), Some(ErrorCode::Malformed)),
        (true, "id 0", header(0, 7, 0, 0), Some(ErrorCode::Malformed)),
        (
            true,
            "a body that ends early",
            [header(2, 3, 0, 2), vec![0; 2]].concat(),
            Some(ErrorCode::Malformed),
        ),
        (true, "a body that goes on", trailing, Some(ErrorCode::Malformed)),
        (true, "a reserved field", reserved, Some(ErrorCode::Malformed)),
        (true, "no UTF-8", not_text, Some(ErrorCode::Malformed)),
    ] {
        let mut raw = if greeted { daemon.raw().hello() } else { daemon.raw() };
        // The daemon may close before it has read everything.
        raw.send(&bytes);
        let (error, others) = raw.read_to_end();
        let (found, text) = error.unwrap_or_else(|| panic!("{what}: closed without a word"));
        assert!(code.is_none_or(|code| code == found), "{what}: {found}, {text}");
        assert!(!text.is_empty() && others == 0, "{what}: {others} frames before {found}");
        serves(&mut witness, &witnessed);
    }
    // What is a frame but no request is refused, and the connection stays.
    let mut raw = daemon.raw().hello();
    assert!(raw.send(&frame(2, &ClientFrame::Register(Cow::Owned(best_effort("null", "odd"))))));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(info) if info.id == 1)), Some(true));
    for (payload, stream, expected) in [
        (&[0; 8][..], 77, RefusalCode::UnknownStream),
        (&[0; 7], 1, RefusalCode::InputLength),
        (&[0; 16_000], 1, RefusalCode::InputLength),
        (&[], 1, RefusalCode::InputLength),
    ] {
        assert!(raw.send(&frame(3, &ClientFrame::Submit { stream, payload })));
        let code = raw.next(|frame| match frame {
            DaemonFrame::Refused { code, .. } => *code,
            other => panic!("{other:?}"),
        });
        assert_eq!(code, Some(expected));
    }
}

#[test]
fn clients_that_vanish_within_a_frame_or_with_requests_in_flight_leave_nothing_behind() {
    let daemon = serve("", 2);
    let mut witness = daemon.client();
    let witnessed = stream(&mut witness, "witness");
    let whole = [
        frame(2, &ClientFrame::Register(Cow::Owned(best_effort("null", "reserved")))),
        frame(3, &ClientFrame::Submit { stream: 1, payload: &[0; 8] }),
        frame(4, &ClientFrame::Submit { stream: 1, payload: &[0; 8] }),
    ]
    .concat();
    for cut in (1..=whole.len()).step_by(7) {
        let mut raw = daemon.raw().hello();
        assert!(raw.send(&whole[..cut]));
        drop(raw);
    }
    // The kernel closes a killed client's socket as it does a dropped one's; here with the writing half first.
    let mut raw = daemon.raw().hello();
    assert!(raw.send(&whole[..whole.len() - 1]));
    raw.socket.shutdown(Shutdown::Write).expect("shut down");
    raw.read_to_end();
    // Whoever held the reserved stream is gone, so it can be had again.
    let again =
        eventually("the reserved stream", || match witness.register(&best_effort("null", "reserved")) {
            Ok(stream) => Some(stream),
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::NameInUse => None,
            Err(error) => panic!("{error}"),
        });
    serves(&mut witness, &again);
    serves(&mut witness, &witnessed);
    let status = eventually("nothing in flight", || {
        let status = daemon.status();
        (status["services"][0]["waiting"] == 0 && status["services"][0]["running"] == 0).then_some(status)
    });
    assert_eq!(status["services"][0]["streams"].as_array().map(Vec::len), Some(2), "{status}");
}

#[test]
fn clients_that_never_say_hello_are_cut_off_while_others_are_served() {
    let daemon = serve("", 2);
    let mut client = daemon.client();
    let served = stream(&mut client, "served");
    let mut silent: Vec<Raw> = (0..8).map(|_| daemon.raw()).collect();
    // Half a HELLO is none.
    assert!(silent[0].send(&frame(1, &hello(VERSION))[..20]));
    for _ in 0..50 {
        serves(&mut client, &served);
        pause(Duration::from_millis(2));
    }
    for raw in &mut silent {
        let (error, _) = raw.read_to_end();
        let (code, text) = error.expect("a last word");
        assert_eq!(code, ErrorCode::ProtocolOrder);
        assert!(text.contains("no HELLO"), "{text}");
    }
    serves(&mut client, &served);
}

#[test]
fn a_hello_that_drips_in_is_cut_off_as_well() {
    let daemon = serve("", 2);
    let mut raw = daemon.raw();
    assert!(raw.send(&header(MAX_HELLO_FRAME, 1, 0, 1)));
    // A byte every half second would take more than four minutes.
    eventually("the end of the connection", || {
        pause(Duration::from_millis(500));
        (!raw.send(&[0])).then_some(())
    });
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_costs_no_other_an_answer() {
    let daemon = serve("max-pending = 65536\n", 16_384);
    let mut good = daemon.client();
    let kept = stream(&mut good, "good");
    let mut slow = daemon.client();
    let unread = stream(&mut slow, "slow");
    // 64 KiB an answer: some fill the socket, one more what may wait for it.
    let mut sent = 0;
    let ended = eventually("the end of the slow reader", || {
        for _ in 0..16 {
            match slow.submit(&unread, &[0.0; 2]) {
                Ok(_) => sent += 1,
                Err(error) => return Some(error),
            }
        }
        serves(&mut good, &kept);
        None
    });
    assert!(matches!(ended, Error::Closed), "{ended}");
    assert!(sent >= 2, "{sent}");
    let status = alone(&mut good);
    assert_eq!(status["services"][0]["streams"].as_array().map(Vec::len), Some(2), "{status}");
    for _ in 0..20 {
        serves(&mut good, &kept);
    }
}

#[test]
fn one_client_too_many_is_told_so_and_the_place_of_one_who_leaves_is_free_again() {
    let daemon = serve("max-clients = 2\n", 2);
    // The connection that saw the daemon ready may still hold a place.
    let place = |what| eventually(what, || Client::connect(daemon.deployment.socket()).ok());
    let mut first = place("a first place");
    let second = place("a second place");
    for _ in 0..10 {
        match Client::connect(daemon.deployment.socket()) {
            Err(Error::Daemon { code: ErrorCode::TooManyClients, text }) => {
                assert!(text.contains("daemon.max-clients = 2"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(second);
    let mut third = place("a free place");
    third.ping().expect("an answer");
    first.ping().expect("an answer");
}

#[test]
fn streams_are_bounded_and_their_names_belong_to_one_holder() {
    let daemon = serve("", 2);
    let mut client = daemon.client();
    let mut other = daemon.client();
    // The reserved stream has its place; three of four are left.
    let mut streams: Vec<_> = (0..3).map(|i| stream(&mut client, &format!("s{i}"))).collect();
    assert_eq!(refused(client.register(&best_effort("null", "s3"))), RefusalCode::TooManyStreams);
    assert_eq!(refused(other.register(&best_effort("null", "s1"))), RefusalCode::NameInUse);
    let held = stream(&mut client, "reserved");
    assert_eq!(refused(other.register(&best_effort("null", "reserved"))), RefusalCode::NameInUse);
    assert_eq!(refused(other.register(&best_effort("void", "s"))), RefusalCode::UnknownService);
    for name in ["", "a\nb", "cam\u{202e}1", "cam\u{200b}"] {
        let refused = refused(other.register(&best_effort("null", name)));
        assert_eq!(refused, RefusalCode::InvalidConstraint, "{name:?}");
    }
    client.unregister(&streams.remove(0)).expect("given up");
    let taken = stream(&mut other, "s0");
    serves(&mut other, &taken);
    // A stream's number means nothing on another connection.
    client.unregister(&held).expect("given up");
    assert_eq!(refused(client.infer(&held, &[0.0; 2])), RefusalCode::UnknownStream);
    drop(client);
    let again = eventually("the reserved stream", || other.register(&best_effort("null", "reserved")).ok());
    serves(&mut other, &again);
}

#[test]
fn who_is_not_on_the_list_may_not_connect() {
    let daemon = serve("allow-users = [\"12345\"]\nallow-groups = []\n", 2);
    for _ in 0..3 {
        match Client::connect(daemon.deployment.socket()) {
            Err(Error::Daemon { code: ErrorCode::NotPermitted, text }) => {
                assert!(text.contains("allow-users"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    // It is told beside the way of the refusal.
    eventually("word of it", || daemon.stderr().contains("not on the list").then_some(()));
}

#[test]
fn hundreds_of_clients_come_and_go_without_a_trace() {
    let daemon = serve("", 2);
    let mut witness = daemon.client();
    let witnessed = stream(&mut witness, "witness");
    serves(&mut witness, &witnessed);
    let count = || (daemon.count("fd"), daemon.count("task"));
    alone(&mut witness);
    let before = count();
    for round in 0..300 {
        match round % 3 {
            // Says nothing, breaks off, or asks for something and does not wait for it.
            0 => drop(daemon.raw()),
            1 => drop(daemon.raw().send(&frame(1, &hello(VERSION))[..20])),
            _ => {
                // It may not have heard yet that so many others are gone.
                let mut client = eventually("a client", || Client::connect(daemon.deployment.socket()).ok());
                if let Ok(stream) = client.register(&best_effort("null", &format!("s{round}"))) {
                    client.submit(&stream, &[0.0; 2]).expect("submitted");
                }
            }
        }
    }
    eventually("descriptors and threads as before", || (count() == before).then_some(()));
    serves(&mut witness, &witnessed);
    let streams = daemon.status()["services"][0]["streams"].as_array().map(Vec::len);
    assert_eq!(streams, Some(2), "the reserved one and the witness's");
}
