//! Tests of the watchdog: a scheduler that nobody can poll gets no ping, one that idles does.

use super::*;
use crate::service::Effects;
use crate::service::tests::idle_service;

/// Whether the service is seen to move within so many milliseconds.
fn moves_within(services: &[Arc<Service>], asked: Instant, ms: u64) -> bool {
    let until = clock::now() + Span::from_millis(ms);
    while clock::now() < until && !have_moved(services, asked) {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    have_moved(services, asked)
}

#[test]
fn an_idle_service_moves_when_asked_and_one_whose_scheduler_is_stalled_does_not() {
    let (service, threads) = idle_service();
    let services = [service];
    assert!(moves_within(&services, ask(&services), 60_000));
    // Nobody asks: nothing moves, and a ping for an older question is no answer to a new one.
    assert!(!have_moved(&services, clock::now()));
    let mut stalled = (false, Instant::from_nanos(0));
    // The feed runs under the scheduler's lock.
    services[0].with_scheduler(&mut Effects::default(), |_, _| {
        let asked = ask(&services);
        stalled = (moves_within(&services, asked, 100), asked);
    });
    assert!(!stalled.0, "the timer polled a scheduler that was locked");
    assert!(moves_within(&services, stalled.1, 60_000), "it does not go on");
    services[0].stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(have_moved(&services, clock::now()), "one that has ended holds the pings up");
}
