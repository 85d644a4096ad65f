//! Off a request's way: the blocking client against a scripted daemon.
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod mock;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mock::{Mock, impatient, registration};
use weir_client::blocking::Client;
use weir_client::wire::{ClientFrame, DEFAULT_MAX_FRAME, DaemonFrame, Kind};
use weir_client::{
    Answer, Error, ErrorCode, Event, EventMask, MissReason, Options, Outcome, RefusalCode, RequestId,
    SafeModeCause, StreamState,
};

const INPUT: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn a_daemon_that_can_read_it_is_told_when_a_request_was_sent() {
    let (sender, told) = std::sync::mpsc::channel();
    let mock = Mock::serve(move |peer| {
        peer.welcome_as(3, DEFAULT_MAX_FRAME);
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        for _ in 0..2 {
            let id = peer.expect_with(Kind::SubmitAt, |frame| {
                let ClientFrame::SubmitAt { stream: 7, within_us: 0, sent_ns, payload } = frame else {
                    unreachable!()
                };
                assert_eq!(payload.len(), 16);
                sender.send((sent_ns, monotonic_ns())).unwrap();
            });
            peer.result(id, 0, [0.5, 0.25]);
        }
    });
    let mut client = Client::connect(mock.path()).unwrap();
    let stream = client.register(&registration()).unwrap();
    let mut before = monotonic_ns();
    for _ in 0..2 {
        client.infer(&stream, &INPUT).unwrap();
        let (sent, read) = told.recv().unwrap();
        assert!(before <= sent && sent <= read, "{before} {sent} {read}");
        before = sent;
    }
    drop(client);
    mock.finish();
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn registers_and_infers() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let id = peer.expect_with(Kind::Register, |frame| {
            let ClientFrame::Register(asked) = frame else { unreachable!() };
            assert_eq!(*asked, registration());
        });
        peer.registered(id);
        let id = peer.expect_with(Kind::Submit, |frame| {
            let payload: Vec<u8> = INPUT.iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(frame, ClientFrame::Submit { stream: 7, payload: &payload });
        });
        peer.result(id, 0, [0.5, 0.25]);
        let id = peer.expect(Kind::Submit);
        peer.miss(id, 1, MissReason::Shed);
        let id = peer.expect(Kind::Status);
        peer.send(id, &DaemonFrame::StatusReply { json: "{}" });
        let id = peer.expect(Kind::Ping);
        peer.send(id, &DaemonFrame::Pong);
        let id = peer.expect(Kind::Unregister);
        peer.send(id, &DaemonFrame::Unregistered);
        peer.expect_end();
    });
    let mut client = Client::connect(mock.path()).unwrap();
    assert_eq!(client.daemon(), "mock 0.1");
    let stream = client.register(&registration()).unwrap();
    assert_eq!((stream.id, stream.deadline, stream.density()), (7, Duration::from_millis(50), 0.7));
    let hit = client.infer(&stream, &INPUT).unwrap();
    assert_eq!(stream.output::<f32>(hit.result().unwrap()), Ok(vec![0.5, 0.25]));
    assert_eq!(hit.misses_left(), Some(2));
    let Outcome::Miss(miss) = client.infer(&stream, &INPUT).unwrap() else { panic!("a miss") };
    assert_eq!((miss.reason, miss.sequence, miss.misses_left), (MissReason::Shed, 1, Some(0)));
    assert_eq!(client.status().unwrap(), "{}");
    client.ping().unwrap();
    client.unregister(&stream).unwrap();
    drop(client);
    mock.finish();
}

#[test]
fn nothing_is_lost_while_something_else_is_waited_for() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        let (first, second) = (peer.expect(Kind::Submit), peer.expect(Kind::Submit));
        let status = peer.expect(Kind::Status);
        peer.result(second, 1, [2.0, 2.0]);
        peer.safe_mode(1);
        peer.miss(first, 0, MissReason::Late);
        peer.send(status, &DaemonFrame::StatusReply { json: "{\"n\":1}" });
        let third = peer.expect(Kind::Submit);
        peer.result(third, 2, [3.0, 3.0]);
        peer.expect_end();
    });
    let mut client = Client::connect(mock.path()).unwrap();
    let stream = client.register(&registration()).unwrap();
    let first = client.submit(&stream, &INPUT).unwrap();
    let second = client.submit_bytes(&stream, &[0; 16]).unwrap();
    assert_eq!(client.status().unwrap(), "{\"n\":1}");
    assert!(client.infer(&stream, &INPUT).unwrap().result().is_some());

    let Answer::Event(Event::SafeMode(event)) = client.recv().unwrap() else { panic!("the event first") };
    assert_eq!((event.service.as_str(), event.limit, event.seen), ("obstacles", 10, 11));
    let Answer::Result(id, result) = client.recv().unwrap() else { panic!("the second request's result") };
    assert_eq!((id, result.sequence), (second, 1));
    let Answer::Miss(id, miss) = client.recv().unwrap() else { panic!("the first request's miss") };
    assert_eq!((id, miss.reason), (first, MissReason::Late));
    assert_eq!(client.recv_timeout(Duration::from_millis(1)).unwrap(), None);
    drop(client);
    mock.finish();
}

#[test]
fn events_beyond_the_backlog_are_counted() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let id = peer.expect_with(Kind::Subscribe, |frame| {
            assert_eq!(frame, ClientFrame::Subscribe { mask: EventMask::ALL });
        });
        peer.send(id, &DaemonFrame::Subscribed);
        let id = peer.expect(Kind::Ping);
        peer.send(0, &DaemonFrame::EventsLost { count: 10 });
        (1..=5).for_each(|sequence| peer.safe_mode(sequence));
        peer.send(id, &DaemonFrame::Pong);
        peer.expect_end();
    });
    let options = Options { event_backlog: 2, ..Options::default() };
    let mut client = Client::connect_with(mock.path(), options).unwrap();
    client.subscribe(EventMask::ALL).unwrap();
    client.ping().unwrap();
    assert_eq!(client.next_event().unwrap(), Event::Lost { count: 13 });
    for expected in [4, 5] {
        let Event::SafeMode(event) = client.next_event().unwrap() else { panic!("a safe-mode event") };
        assert_eq!(event.sequence, expected);
    }
    assert_eq!(client.next_event_timeout(Duration::from_millis(1)).unwrap(), None);
    drop(client);
    mock.finish();
}

#[test]
fn a_suspension_is_told_apart_from_safe_mode() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        peer.suspension(1, StreamState::Suspended);
        peer.suspension(2, StreamState::Normal);
        peer.safe_mode(1);
        peer.expect_end();
    });
    let mut client = Client::connect(mock.path()).unwrap();
    for (sequence, state, cause) in [
        (1, StreamState::Suspended, SafeModeCause::ArrivalExcess),
        (2, StreamState::Normal, SafeModeCause::Unknown(0)),
    ] {
        let Event::Suspension(event) = client.next_event().unwrap() else { panic!("a suspension") };
        assert_eq!((event.service.as_str(), event.stream.as_str()), ("obstacles", "front"));
        assert_eq!((event.sequence, event.state, event.cause), (sequence, state, cause));
        assert_eq!((event.limit, event.seen, event.window), (10, 11, Duration::from_micros(1)));
    }
    assert!(matches!(client.next_event().unwrap(), Event::SafeMode(_)));
    drop(client);
    mock.finish();
}

#[test]
fn a_refusal_leaves_the_connection_usable() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let id = peer.expect(Kind::Register);
        let (code, text) = (RefusalCode::NotAdmissible, "at 40 ms: 12 ms needed, 10 ms there");
        peer.send(id, &DaemonFrame::Refused { code, text });
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        let id = peer.expect(Kind::Submit);
        peer.send(id, &DaemonFrame::Refused { code: RefusalCode::Draining, text: "" });
        peer.expect_end();
    });
    let mut client = Client::connect(mock.path()).unwrap();
    let Err(Error::Refused(refusal)) = client.register(&registration()) else { panic!("refused") };
    assert_eq!(refusal.to_string(), "refused, not-admissible: at 40 ms: 12 ms needed, 10 ms there");
    let stream = client.register(&registration()).unwrap();
    let submitted = client.submit(&stream, &INPUT).unwrap();
    let Answer::Refused(id, refusal) = client.recv().unwrap() else { panic!("refused") };
    assert_eq!((id, refusal.code), (submitted, RefusalCode::Draining));
    drop(client);
    mock.finish();
}

#[test]
fn what_cannot_be_sent_is_told_before() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        peer.expect(Kind::Submit);
        peer.expect_end();
    });
    let options = Options { max_in_flight: 1, ..Options::default() };
    let mut client = Client::connect_with(mock.path(), options).unwrap();
    let stream = client.register(&registration()).unwrap();
    let short = client.submit(&stream, &INPUT[..3]).unwrap_err();
    assert_eq!(short.to_string(), "tensor `x` has 4 elements, 3 were given");
    let short = client.submit_bytes(&stream, &[0; 12]).unwrap_err();
    assert_eq!(short.to_string(), "stream 7: input is 12 bytes, must be 16");
    client.submit(&stream, &INPUT).unwrap();
    assert!(matches!(client.submit(&stream, &INPUT), Err(Error::TooManyInFlight { limit: 1 })));
    drop(client);
    mock.finish();
}

#[test]
fn the_answer_to_a_request_given_up_is_dropped() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        let (late, next) = (peer.expect(Kind::Submit), peer.expect(Kind::Submit));
        peer.result(late, 0, [9.0, 9.0]);
        peer.result(next, 1, [1.0, 1.0]);
        peer.expect_end();
    });
    let options = Options { max_in_flight: 2, ..impatient() };
    let mut client = Client::connect_with(mock.path(), options).unwrap();
    let mut stream = client.register(&registration()).unwrap();
    stream.deadline = Duration::ZERO;
    let Err(Error::Timeout { what, .. }) = client.infer(&stream, &INPUT) else { panic!("a timeout") };
    assert_eq!(what, Kind::Submit);
    let outcome = client.infer(&stream, &INPUT).unwrap();
    assert_eq!(stream.output::<f32>(outcome.result().unwrap()), Ok(vec![1.0, 1.0]));
    drop(client);
    mock.finish();
}

#[test]
fn halves_work_from_two_threads() {
    const REQUESTS: u64 = 2_000;
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        for sequence in 0..REQUESTS {
            let id = peer.expect(Kind::Submit);
            if sequence % 3 == 0 {
                peer.miss(id, sequence, MissReason::Expired);
            } else {
                peer.result(id, sequence, [0.0, 1.0]);
            }
        }
        peer.expect_end();
    });
    let mut client = Client::connect(mock.path()).unwrap();
    let stream = client.register(&registration()).unwrap();
    let (mut sender, mut receiver) = client.split();
    let submitting = std::thread::spawn(move || {
        (0..REQUESTS).map(|_| sender.submit(&stream, &INPUT).unwrap()).collect::<Vec<RequestId>>()
    });
    let mut answered = Vec::new();
    for _ in 0..REQUESTS {
        match receiver.recv().unwrap() {
            Answer::Result(id, _) | Answer::Miss(id, _) => answered.push(id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(submitting.join().unwrap(), answered);
    drop(receiver);
    mock.finish();
}

#[test]
fn a_daemon_that_vanishes_in_mid_frame_is_closed() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        let id = peer.expect(Kind::Submit);
        let mut bytes = Vec::new();
        DaemonFrame::StatusReply { json: "{}" }.encode(id, &mut bytes);
        peer.send_bytes(&bytes[..17]);
    });
    let mut client = Client::connect(mock.path()).unwrap();
    let stream = client.register(&registration()).unwrap();
    assert!(matches!(client.infer(&stream, &INPUT), Err(Error::Closed)));
    assert!(matches!(client.recv(), Err(Error::Closed)));
    mock.finish();
    let gone = Client::connect("/nonexistent/weir.sock").unwrap_err().to_string();
    assert!(gone.contains("/nonexistent/weir.sock") && gone.contains("is the daemon running?"), "{gone}");
}

#[test]
fn a_frame_cut_in_time_is_put_together() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let id = peer.expect(Kind::Ping);
        let mut bytes = Vec::new();
        DaemonFrame::EventsLost { count: 3 }.encode(0, &mut bytes);
        DaemonFrame::Pong.encode(id, &mut bytes);
        peer.send_bytes(&bytes[..20]);
        peer.expect(Kind::Ping);
        peer.send_bytes(&bytes[20..]);
        peer.expect_end();
    });
    let mut client = Client::connect_with(mock.path(), impatient()).unwrap();
    assert!(matches!(client.ping(), Err(Error::Timeout { what: Kind::Ping, .. })));
    assert!(matches!(client.ping(), Err(Error::Timeout { what: Kind::Ping, .. })));
    assert_eq!(client.recv().unwrap(), Answer::Event(Event::Lost { count: 3 }));
    drop(client);
    mock.finish();
}

#[test]
fn an_alarm_is_kept_until_its_frame_is_read() {
    let (ours, given) = UnixStream::pair().unwrap();
    let mock = Mock::serve(move |peer| {
        peer.welcome_and_register();
        let (submit, id) = (peer.expect(Kind::Submit), peer.expect(Kind::Alarm));
        // All in one read: an answer to something else, an event, then half the frame that the descriptor belongs to.
        peer.result(submit, 0, [0.5, 0.25]);
        peer.safe_mode(1);
        let mut bytes = Vec::new();
        DaemonFrame::Alarmed.encode(id, &mut bytes);
        peer.send_bytes_with(&bytes[..10], given.as_fd());
        peer.send_bytes(&bytes[10..]);
        // The client's is the only one left.
        drop(given);
        (&ours).write_all(&7u64.to_ne_bytes()).unwrap();
        peer.expect_end();
        assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 0, "the client has closed it");
    });
    let mut client = Client::connect(mock.path()).unwrap();
    let stream = client.register(&registration()).unwrap();
    let submitted = client.submit(&stream, &INPUT).unwrap();
    let alarm = client.alarm().unwrap();
    assert_eq!(alarm.take(Duration::from_secs(60)).unwrap(), 7);
    assert_eq!(alarm.take(Duration::ZERO).unwrap(), 0);
    assert!(matches!(client.recv().unwrap(), Answer::Event(Event::SafeMode(_))));
    assert!(matches!(client.recv().unwrap(), Answer::Result(id, _) if id == submitted));
    drop((alarm, client));
    mock.finish();
}

#[test]
fn nonsense_from_the_daemon_closes_the_connection() {
    type Nonsense = fn(&mut mock::Peer, u64);
    let cases: [(Nonsense, &str); 6] = [
        (|peer, _| peer.send_bytes(&[0xff; 64]), "limit 4194304"),
        (
            |peer, id| {
                let (code, text) = (ErrorCode::TooSlow, "8 MiB unread");
                peer.send(id, &DaemonFrame::Error { code, text });
            },
            "closed by the daemon, too-slow: 8 MiB unread",
        ),
        (|peer, id| peer.send(id, &DaemonFrame::Subscribed), "SUBSCRIBED with id 2"),
        (|peer, id| peer.send(id, &DaemonFrame::Alarmed), "ALARMED: no descriptor came with it"),
        (|peer, _| peer.result(99, 0, [0.0; 2]), "nothing after"),
        (|peer, _| (98..=99).for_each(|id| peer.result(id, 0, [0.0; 2])), "RESULT with id 99"),
    ];
    for (nonsense, message) in cases {
        let mock = Mock::serve(move |peer| {
            peer.welcome();
            let id = peer.expect(Kind::Ping);
            nonsense(peer, id);
            peer.expect_end();
        });
        let mut client = Client::connect_with(mock.path(), impatient()).unwrap();
        let error = client.ping().unwrap_err().to_string();
        assert!(error.contains(message), "{error:?} should contain {message:?}");
        if message == "nothing after" {
            drop(client);
            mock.finish();
        } else {
            mock.finish();
            drop(client);
        }
    }
}

#[test]
fn a_daemon_that_does_not_answer_or_speaks_another_version_is_told() {
    let mock = Mock::serve(|peer| {
        peer.expect(Kind::Hello);
        peer.expect_end();
    });
    let silent = Client::connect_with(mock.path(), impatient()).unwrap_err();
    let told = "HELLO: nothing after 250 ms; a daemon that starts answers once its models are loaded";
    assert_eq!(silent.to_string(), told);
    mock.finish();
    let mock = Mock::serve(|peer| {
        let id = peer.expect(Kind::Hello);
        peer.send(id, &DaemonFrame::Welcome { version: 6, max_frame: 100, max_arena: 0, daemon: "later" });
    });
    assert!(matches!(Client::connect(mock.path()), Err(Error::Version(6))));
    mock.finish();
}

#[test]
fn a_daemon_of_an_older_version_is_spoken_to_in_its_own() {
    let mock = Mock::serve(|peer| {
        let id = peer.expect_with(Kind::Hello, |frame| {
            assert!(matches!(frame, ClientFrame::Hello { min_version: 1, max_version: 5, .. }), "{frame:?}");
        });
        peer.send(id, &DaemonFrame::Welcome { version: 1, max_frame: 100, max_arena: 0, daemon: "earlier" });
        let id = peer.expect(Kind::Ping);
        peer.send(id, &DaemonFrame::Pong);
        peer.expect_end();
    });
    let mut client = Client::connect(mock.path()).unwrap();
    client.ping().unwrap();
    assert_eq!(client.daemon(), "earlier");
    drop(client);
    mock.finish();
}
