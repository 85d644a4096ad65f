//! Clients that do not wait for what they ask: they cost no more than those that do.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use super::arena::{arena, memory, send_with};
use crate::harness::{DAEMON, Daemon, Deployment, alone, frame, hello, now, pause};
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
