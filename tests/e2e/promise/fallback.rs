//! A service that loses one of its workers goes on with what it promises without it: it is told what that is, and that is kept.

use std::time::Duration;

use crate::engines::isolation::{in_order, miss};
use crate::harness::{DAEMON, Daemon, Deployment, Listener, eventually, not_checked, pause, quiet};
use rustix::process::{Signal, kill_process};
use weir_client::{Registration, SafeModeCause, SafeModeState, StreamState};

/// Two workers of 100 requests a second, and a camera of 160 of which 1 in 10 may be missed, or 5: one worker is enough for those.
fn serve() -> Daemon {
    quiet();
    Deployment::new(format!(
        "{DAEMON}[safe-mode]\nhold = \"300ms\"\nclean = \"300ms\"\n[[service]]\nname = \"cameras\"\n\
         engine = \"simulated\"\nsimulated = {{ times = [\"6ms\"], input = 2, output = 2 }}\n\
         isolation = \"process\"\nworkers = 2\ndeadline = \"500ms\"\nguard = \"200ms\"\nmax-batch = 1\n\
         constraints = [{{ any-miss = {{ m = 1, k = 10 }} }}]\n\
         degraded = [[{{ any-miss = {{ m = 5, k = 10 }} }}]]\n\
         [[service.stream]]\nname = \"front\"\narrivals = [{{ window = {{ count = 16, length = \"100ms\" }} }}]\n"
    ))
    .profiled(&[10])
    .serve()
}

#[test]
fn what_holds_without_a_worker_is_in_force_at_once_and_kept_until_it_is_back() {
    let daemon = serve();
    let both = || (daemon.status()["services"][0]["workers_alive"] == 2).then_some(());
    eventually("both workers", both);
    assert_eq!(daemon.status()["services"][0]["fallback"]["worker_lost"], 1);
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let front = Registration::builder("cameras", "front").build().expect("it fits");
    let stream = client.register(&front).expect("reserved");
    let mut asked = Vec::new();
    for round in 0..20 {
        if round == 5 {
            kill_process(daemon.children()[0], Signal::KILL).expect("it is there");
        }
        asked.extend((0..16).map(|_| client.submit(&stream, &[1.0, 2.0]).expect("submitted")));
        pause(Duration::from_millis(110));
    }
    let missed: Vec<_> =
        in_order(&mut client, &asked).iter().map(|outcome| miss(outcome).is_some()).collect();
    let changes = listener.changes().to_vec();
    let machine = [SafeModeCause::ServiceOverrun, SafeModeCause::LateDispatch];
    let causes =
        changes.iter().map(|change| change.cause).chain(listener.suspensions().iter().map(|s| s.cause));
    let other = causes.into_iter().find(|cause| machine.contains(cause));
    if let Some(other) = other {
        not_checked(&format!("what holds without a worker: {other} was announced"));
        return;
    }
    let back = listener.until_it_stands("front", StreamState::Normal);
    assert_eq!(back.text, "cameras: the promise to stream front holds again");
    let fell = listener.until_it_stands("front", StreamState::Degraded1);
    assert!(fell.text.contains("any_miss(5,10) is in force"), "{}", fell.text);
    assert_eq!(fell.cause, SafeModeCause::WorkerLost);

    // Lost, and in force without it next.
    let told: Vec<_> = changes.iter().map(|change| (change.state, change.cause)).collect();
    let lost = (SafeModeState::SafeMode, SafeModeCause::WorkerLost);
    let lost = told.iter().position(|&change| change == lost).expect("a lost worker is told");
    assert_eq!(told[lost + 1].0, SafeModeState::Warning, "{told:?}");
    // It was within a deadline and a busy period: of the six rounds from the fifth on.
    for kept in [&missed[..5 * 16], &missed[11 * 16..]] {
        let most = kept.windows(10).map(|window| window.iter().filter(|&&missed| missed).count()).max();
        assert!(most <= Some(5), "{missed:?} {told:?}");
    }
}
