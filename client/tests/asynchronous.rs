//! Off a request's way: the async client against a scripted daemon.
#![cfg(feature = "async")]
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod mock;

use std::time::Duration;

use mock::{Mock, impatient, registration};
use weir_client::asynchronous::Client;
use weir_client::wire::{ClientFrame, DEFAULT_MAX_FRAME, DaemonFrame, Kind};
use weir_client::{
    Error, ErrorCode, Event, EventMask, MissReason, Options, Outcome, RefusalCode, StreamState,
};

const INPUT: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// Lets the runtime close the connection while the script waits for its end.
async fn finish(mock: Mock) {
    tokio::task::spawn_blocking(|| mock.finish()).await.unwrap();
}

#[tokio::test]
async fn many_tasks_infer_at_once() {
    const TASKS: u64 = 50;
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        let mut ids: Vec<u64> = (0..TASKS).map(|_| peer.expect(Kind::Submit)).collect();
        ids.reverse();
        for id in ids {
            peer.result(id, id, [id as f32, 0.0]);
        }
        peer.expect_end();
    });
    let client = Client::connect(mock.path()).await.unwrap();
    assert_eq!(client.daemon(), "mock 0.1");
    let stream = client.register(&registration()).await.unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (client, stream) = (client.clone(), stream.clone());
            tokio::spawn(async move { client.infer(&stream, &INPUT).await })
        })
        .collect();
    for task in tasks {
        let Outcome::Result(result) = task.await.unwrap().unwrap() else { panic!("a result") };
        assert_eq!(
            stream.output::<f32>(&result).unwrap()[0],
            result.sequence as f32,
            "each task has its own answer"
        );
    }
    drop(client);
    finish(mock).await;
}

#[tokio::test]
async fn every_operation_finds_its_answer() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let id = peer.expect(Kind::Register);
        peer.send(id, &DaemonFrame::Refused { code: RefusalCode::NameInUse, text: "front" });
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        let (first, second) = (peer.expect(Kind::Submit), peer.expect(Kind::Submit));
        let status = peer.expect(Kind::Status);
        peer.send(status, &DaemonFrame::StatusReply { json: "{}" });
        peer.miss(second, 1, MissReason::QueueFull);
        peer.result(first, 0, [1.0, 2.0]);
        let id = peer.expect(Kind::Ping);
        peer.send(id, &DaemonFrame::Pong);
        let id = peer.expect(Kind::Unregister);
        peer.send(id, &DaemonFrame::Unregistered);
        peer.expect_end();
    });
    let client = Client::connect(mock.path()).await.unwrap();
    let Err(Error::Refused(refusal)) = client.register(&registration()).await else { panic!("refused") };
    assert_eq!(refusal.code, RefusalCode::NameInUse);
    let stream = client.register(&registration()).await.unwrap();
    let first = client.submit(&stream, &INPUT).await.unwrap();
    let second = client.submit_bytes(&stream, &[0; 16]).await.unwrap();
    assert!(first.id() < second.id());
    assert_eq!(client.status().await.unwrap(), "{}");
    let first = first.outcome().await.unwrap();
    assert_eq!(stream.output::<f32>(first.result().unwrap()), Ok(vec![1.0, 2.0]));
    let Outcome::Miss(miss) = second.outcome().await.unwrap() else { panic!("a miss") };
    assert_eq!(miss.reason, MissReason::QueueFull);
    client.ping().await.unwrap();
    client.unregister(&stream).await.unwrap();
    drop(client);
    finish(mock).await;
}

#[tokio::test]
async fn events_beyond_the_backlog_are_counted() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        let id = peer.expect(Kind::Subscribe);
        peer.suspension(1, StreamState::Suspended);
        peer.safe_mode(1);
        peer.send(id, &DaemonFrame::Subscribed);
        let id = peer.expect(Kind::Ping);
        (2..=7).for_each(|sequence| peer.safe_mode(sequence));
        peer.send(id, &DaemonFrame::Pong);
        let (code, text) = (ErrorCode::TooSlow, "bye");
        peer.send(0, &DaemonFrame::Error { code, text });
    });
    let options = Options { event_backlog: 4, ..Options::default() };
    let client = Client::connect_with(mock.path(), options).await.unwrap();
    let mut events = client.subscribe(EventMask::ALL).await.unwrap();
    let Event::Suspension(event) = events.next().await.unwrap() else { panic!("a suspension") };
    assert!(event.state.is_suspended() && event.stream == "front", "{event:?}");
    let Event::SafeMode(event) = events.next().await.unwrap() else { panic!("an event") };
    assert_eq!(event.sequence, 1);
    client.ping().await.unwrap();
    assert_eq!(events.next().await.unwrap(), Event::Lost { count: 2 });
    for expected in 4..=7 {
        let Event::SafeMode(event) = events.next().await.unwrap() else { panic!("an event") };
        assert_eq!(event.sequence, expected);
    }
    assert_eq!(events.next().await.unwrap_err().to_string(), "closed by the daemon, too-slow: bye");
    assert!(matches!(client.ping().await, Err(Error::Daemon { code: ErrorCode::TooSlow, .. })));
    finish(mock).await;
}

#[tokio::test]
async fn dropped_futures_leave_the_connection_whole() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        for sequence in 0..3 {
            let id = peer.expect(Kind::Submit);
            let ping = peer.expect(Kind::Ping);
            peer.result(id, sequence, [0.0, 0.0]);
            peer.send(ping, &DaemonFrame::Pong);
        }
        peer.expect_end();
    });
    let options = Options { max_in_flight: 2, ..Options::default() };
    let client = Client::connect_with(mock.path(), options).await.unwrap();
    let stream = client.register(&registration()).await.unwrap();
    for _ in 0..3 {
        let patience = Duration::from_millis(5);
        assert!(tokio::time::timeout(patience, client.infer(&stream, &INPUT)).await.is_err());
        client.ping().await.unwrap();
    }
    drop(client);
    finish(mock).await;
}

#[tokio::test]
async fn a_stream_granted_to_nobody_is_given_up() {
    let mock = Mock::serve(|peer| {
        peer.welcome();
        // After its caller had stopped waiting, and before it looked.
        for _ in 0..2 {
            let (late, ping) = (peer.expect(Kind::Register), peer.expect(Kind::Ping));
            peer.registered(late);
            peer.send(ping, &DaemonFrame::Pong);
            peer.expect_given_up(late);
        }
        // Late answers of other kinds are only dropped.
        let (late, ping) = (peer.expect(Kind::Register), peer.expect(Kind::Ping));
        peer.send(late, &DaemonFrame::Refused { code: RefusalCode::NameInUse, text: "front" });
        peer.send(ping, &DaemonFrame::Pong);
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        peer.expect_end();
    });
    let client = Client::connect(mock.path()).await.unwrap();
    for looked in [true, false, true] {
        let registration = registration();
        let mut register = Box::pin(client.register(&registration));
        tokio::select! {
            biased;
            _ = &mut register => panic!("answered before it was asked"),
            () = std::future::ready(()) => {}
        }
        if looked {
            drop(register);
            client.ping().await.unwrap();
        } else {
            client.ping().await.unwrap();
            drop(register);
        }
    }
    client.register(&registration()).await.unwrap();
    drop(client);
    finish(mock).await;
}

#[tokio::test]
async fn limits_hold_and_silence_ends() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        peer.expect(Kind::Submit);
        peer.expect(Kind::Ping);
        peer.expect(Kind::Submit);
        peer.expect(Kind::Ping);
        peer.expect_end();
    });
    let options = Options { max_in_flight: 2, ..impatient() };
    let client = Client::connect_with(mock.path(), options).await.unwrap();
    let stream = client.register(&registration()).await.unwrap();
    assert!(matches!(client.submit(&stream, &[0.0f32]).await, Err(Error::Tensor(_))));
    assert!(matches!(client.submit_bytes(&stream, &[0; 4]).await, Err(Error::InputLength { bytes: 4, .. })));
    let ticket = client.submit(&stream, &INPUT).await.unwrap();
    assert!(matches!(client.ping().await, Err(Error::Timeout { what: Kind::Ping, .. })));
    let second = client.submit(&stream, &INPUT).await.unwrap();
    let third = client.submit(&stream, &INPUT).await;
    assert!(matches!(third, Err(Error::TooManyInFlight { limit: 2 })));
    drop(ticket);
    assert!(matches!(client.ping().await, Err(Error::Timeout { .. })));
    drop(second);
    drop(client);
    finish(mock).await;
}

#[tokio::test]
async fn the_end_of_the_connection_reaches_everyone_who_waits() {
    type End = fn(&mut mock::Peer);
    let cases: [(End, &str); 5] = [
        (|_| (), "connection closed by the daemon"),
        (|peer| peer.send_bytes(&[3, 0, 0, 0, 131, 0]), "connection closed by the daemon"),
        (
            |peer| {
                peer.send(2, &DaemonFrame::Alarmed);
                peer.expect_end();
            },
            "from the daemon: ALARMED: no descriptor came with it",
        ),
        (
            |peer| {
                peer.send_bytes(&[0xff; 16]);
                peer.expect_end();
            },
            "from the daemon: unknown (65535): length is 4294967295",
        ),
        (
            |peer| {
                peer.send(4, &DaemonFrame::Pong);
                peer.expect_end();
            },
            "from the daemon: PONG with id 4, which nothing here waits for",
        ),
    ];
    for (end, message) in cases {
        let mock = Mock::serve(move |peer| {
            peer.welcome_and_register();
            peer.expect(Kind::Submit);
            peer.expect(Kind::Status);
            end(peer);
        });
        let client = Client::connect(mock.path()).await.unwrap();
        let stream = client.register(&registration()).await.unwrap();
        let ticket = client.submit(&stream, &INPUT).await.unwrap();
        for error in [client.status().await.unwrap_err(), ticket.outcome().await.unwrap_err()] {
            assert!(error.to_string().starts_with(message), "{error} should start with {message}");
        }
        assert!(client.submit(&stream, &INPUT).await.is_err());
        finish(mock).await;
    }
    let gone = Client::connect("/nonexistent/weir.sock").await.unwrap_err().to_string();
    assert!(gone.contains("is the daemon running?"), "{gone}");
}

#[tokio::test]
async fn large_tensors_lie_in_shared_memory() {
    let mock = Mock::serve(|peer| {
        peer.welcome_and_register();
        let id =
            peer.expect_with(Kind::Arena, |frame| assert_eq!(frame, ClientFrame::Arena { length: 4096 }));
        peer.send(id, &DaemonFrame::Mapped);
        let shared = ClientFrame::SubmitShared { stream: 7, input: 0, output: 64 };
        let id = peer.expect_with(Kind::SubmitShared, |frame| assert_eq!(frame, shared));
        peer.miss(id, 0, MissReason::Shed);
        let id = peer.expect(Kind::Arena);
        peer.send(id, &DaemonFrame::Refused { code: RefusalCode::Arena, text: "one already" });
        peer.expect_end();
    });
    let client = Client::connect(mock.path()).await.unwrap();
    assert_eq!(client.max_arena(), 1 << 20);
    let stream = client.register(&registration()).await.unwrap();
    let place = client.share(4096).await.unwrap().place(&stream).unwrap();
    place.write(0, &INPUT).unwrap();
    let Outcome::Miss(miss) = client.infer_shared(&place).await.unwrap() else { panic!("a miss") };
    assert_eq!(miss.reason, MissReason::Shed);
    assert!(matches!(client.share(4096).await, Err(Error::Refused(_))));
    drop(client);
    finish(mock).await;
}

#[tokio::test]
async fn a_daemon_that_can_read_it_is_told_when_a_request_was_sent() {
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let before = now();
    let mock = Mock::serve(move |peer| {
        peer.welcome_as(3, DEFAULT_MAX_FRAME);
        let id = peer.expect(Kind::Register);
        peer.registered(id);
        let id = peer.expect_with(Kind::SubmitAt, |frame| {
            let ClientFrame::SubmitAt { sent_ns, .. } = frame else { unreachable!() };
            assert!((before..=now()).contains(&sent_ns));
        });
        peer.miss(id, 0, MissReason::Shed);
    });
    let client = Client::connect(mock.path()).await.unwrap();
    let stream = client.register(&registration()).await.unwrap();
    client.infer(&stream, &INPUT).await.unwrap();
    drop(client);
    finish(mock).await;
}
