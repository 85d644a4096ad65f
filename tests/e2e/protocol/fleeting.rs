//! Clients that do not wait for what they ask: they cost no more than those that do.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::arena::{arena, memory, send_with};
use crate::harness::{DAEMON, Daemon, Deployment, alone, eventually, frame, hello, now, pause};
use rustix::fs::SealFlags;
use weir_client::wire::{ClientFrame, DaemonFrame, VERSION};

/// For how long they come and go.
const LENGTH: Duration = Duration::from_secs(4);

fn serve(more: &str) -> Daemon {
    let service = "[[service]]\nname = \"fast\"\nengine = \"simulated\"\ndeadline = \"50ms\"\nguard = \"10ms\"\n\
                   simulated = { times = [\"1ms\"], input = 4, output = 4 }\n";
    Deployment::new(format!("{DAEMON}{more}\n{service}")).profiled(&[5]).serve()
}

/// Has one client after another do this; how many there were, and the part of a core that the daemon took.
fn come_and_go(daemon: &Daemon, mut one: impl FnMut()) -> (u32, f64) {
    let (before, began, mut clients) = (daemon.taken(), now(), 0);
    while began.elapsed() < LENGTH {
        one();
        clients += 1;
    }
    (clients, (daemon.taken() - before).as_secs_f64() / began.elapsed().as_secs_f64())
}

#[test]
fn who_shares_memory_and_goes_pays_for_its_pages_with_the_next() {
    const LENGTH: u64 = 16 << 20;
    alone();
    let daemon = serve("");
    let mut mapped = 0;
    let (clients, took) = come_and_go(&daemon, || {
        // It may connect too often.
        let mut raw = daemon.raw();
        let welcomed = raw.send(&frame(1, &hello(VERSION)))
            && raw.next(|frame| matches!(frame, DaemonFrame::Welcome { .. })) == Some(true);
        if welcomed {
            // No page of it is there yet.
            send_with(&raw, &arena(LENGTH), &[memory(LENGTH, SealFlags::SHRINK).as_fd()]);
            mapped += u32::from(raw.next(|frame| matches!(frame, DaemonFrame::Mapped)) == Some(true));
        }
    });
    println!("{mapped} arenas of {clients} clients with {took:.2} of a core");
    assert!(mapped >= 4, "each waits a second at most: {mapped}");
    // A tenth, and what may be owed before that counts.
    assert!(took < 0.25, "{mapped} arenas of {clients} clients with {took:.2} of a core");
}

#[test]
fn what_is_left_of_who_closes_is_not_read() {
    alone();
    let daemon = serve("");
    let sent = [frame(1, &hello(VERSION)), frame(2, &ClientFrame::Ping).repeat(12_000)].concat();
    let mut bytes = 0;
    let (clients, took) = come_and_go(&daemon, || {
        let mut raw = daemon.raw();
        raw.socket.set_nonblocking(true).expect("a socket");
        // As many as the socket takes, which is closed at once.
        bytes += raw.socket.write(&sent).unwrap_or(0);
        pause(Duration::from_millis(4));
    });
    println!("{clients} clients with {bytes} bytes, and {took:.2} of a core");
    assert!(bytes > 10_000_000, "{clients} clients with {bytes} bytes");
    assert!(took < 0.25, "{clients} clients with {bytes} bytes, and {took:.2} of a core");
}

#[test]
fn who_does_not_wait_for_an_answer_over_http_pays_as_who_does() {
    alone();
    let daemon = serve("[daemon.oip]\nhttp = \"unix:h\"\n");
    let socket = daemon.deployment.path("h");
    let values = "1,".repeat(500_000);
    let body =
        format!(r#"{{"inputs":[{{"name":"input","datatype":"FP32","shape":[4],"data":[{values}1]}}]}}"#);
    let head = format!(
        "POST /v2/models/nobody/infer HTTP/1.1\r\nHost: weir\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (clients, took) = come_and_go(&daemon, || {
        let mut socket = eventually("the socket", || UnixStream::connect(&socket).ok());
        // It may connect too often, and then nothing of it is read.
        let _ = socket.write_all(&[head.as_bytes(), body.as_bytes()].concat());
    });
    println!("{clients} calls of {} bytes with {took:.2} of a core", body.len());
    assert!(clients >= 4, "each waits a second at most: {clients}");
    assert!(took < 0.2, "{clients} calls of {} bytes with {took:.2} of a core", body.len());
}

#[test]
fn who_does_not_wait_for_answers_over_grpc_pays_as_who_does() {
    const CALLS: u32 = 32;
    alone();
    let daemon = serve("[daemon.oip]\ngrpc = \"unix:g\"\n");
    let socket = daemon.deployment.path("g");
    let calls = (0..CALLS).flat_map(|n| {
        // Its head, which ends there, and an empty message, which ends it.
        [of_http2(1, 4, 1 + 2 * n, &head()), of_http2(0, 1, 1 + 2 * n, &[0; 5])].concat()
    });
    let settings = [of_http2(4, 0, 0, &[]), of_http2(4, 1, 0, &[])].concat();
    let sent: Vec<u8> =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".iter().copied().chain(settings).chain(calls).collect();
    let (clients, took) = come_and_go(&daemon, || {
        let mut socket = eventually("the socket", || UnixStream::connect(&socket).ok());
        let _ = socket.write_all(&sent);
        pause(Duration::from_millis(2));
    });
    println!("{CALLS} calls of each of {clients} clients with {took:.2} of a core");
    assert!(clients >= 100, "{clients}");
    assert!(took < 0.2, "{CALLS} calls of each of {clients} clients with {took:.2} of a core");
}

#[test]
fn who_is_not_on_the_list_and_tries_again_at_once_fills_no_log() {
    const CLIENTS: usize = 200;
    let daemon = serve("allow-users = [\"65533\"]\n[daemon.oip]\nhttp = \"unix:h\"\n");
    let began = now();
    for socket in ["s", "h"].map(|name| daemon.deployment.path(name)) {
        for _ in 0..CLIENTS {
            let mut stream = eventually("the socket", || UnixStream::connect(&socket).ok());
            // It ends, be it with an ERROR before.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    let text = daemon.stderr();
    let told = text.matches("is not on the list of those who may connect").count();
    let seconds = began.elapsed().as_secs() as usize + 1;
    assert!((2..=2 * seconds).contains(&told), "{told} lines in {seconds} s: {text}");
}

/// A frame of HTTP/2.
fn of_http2(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a question over gRPC, by HPACK: POST and http by their numbers, all else as it is.
fn head() -> Vec<u8> {
    let told = [
        (":path", "/inference.GRPCInferenceService/RepositoryIndex"),
        (":authority", "weir"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let told = told.map(|(name, value)| [vec![0], text(name), text(value)].concat());
    [vec![0x83, 0x86], told.concat()].concat()
}
