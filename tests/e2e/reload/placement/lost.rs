//! Devices that are lost for good: services and pipelines are placed without them.

use super::apart::working_for;
use super::staged::{SWAPPED, senders, shared, six};
use super::*;

#[test]
fn a_worker_of_a_stage_that_is_lost_for_good_is_done_without() {
    let place = six(SWAPPED, "isolation = \"process\"\n");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let senders = senders(&daemon, SWAPPED);
    settled(&daemon, SWAPPED);
    let all = eventually("all workers", || Some(working(&daemon)).filter(|all| all.len() == 6));
    let victim = working_for(&daemon, "p")[0];
    let others: Vec<Pid> = all.into_iter().filter(|pid| *pid != victim).collect();
    give_up(&daemon, victim, &others);
    eventually("what is left", || {
        let (workers, alive) = left(&daemon);
        (workers <= 5 && alive == workers).then_some(())
    });
    assert!(daemon.stderr().contains("p has lost a worker for good"), "{}", daemon.stderr());
    Sender::end(senders, &mut listener);
}

#[test]
fn a_worker_that_is_lost_for_good_is_done_without() {
    let place = placed("follow", FIRST, "isolation = \"process\"\n");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let senders = Sender::all(&daemon, FIRST);
    settled(&daemon, FIRST);
    assert_eq!(workers(&daemon).iter().sum::<u64>(), 8, "all devices are of use");
    let all = eventually("all workers", || Some(working(&daemon)).filter(|all| all.len() == 8));
    give_up(&daemon, all[0], &all[1..]);
    // Until there is a plan it may have come back, which changes nothing.
    let killed = |pid: &Pid| kill_process(*pid, Signal::KILL).is_ok();
    eventually("who looks", || looking(&daemon).iter().any(killed).then_some(()));
    eventually("its return", || {
        let (workers, alive) = left(&daemon);
        (alive == 8 || workers == 7).then_some(())
    });
    eventually("seven devices", || (left(&daemon) == (7, 7)).then_some(()));
    Sender::end(senders, &mut listener);
}

/// Who shares a device has lost the same worker: one device is lost.
#[test]
fn a_shared_device_that_is_lost_for_good_is_lost_once() {
    let place = shared(2, "isolation = \"process\"\n");
    place.succeed(&["place", "-o", place.config().to_str().expect("UTF-8")]);
    let daemon = place.serve();
    assert_eq!(left(&daemon), (6, 6), "each has all workers");
    let all = working(&daemon);
    give_up(&daemon, all[0], &all[1..]);
    // It stays so while looks go on.
    let looks = || placement(&daemon)["looks"].as_u64();
    let before = looks();
    eventually("two looks more", || (looks() > before.map(|looks| looks + 1)).then_some(()));
    assert_eq!(placement(&daemon)["lost"], serde_json::json!(["box"]));
}

/// Kills a process, and whatever is started in its place beside the `others`, until its device is given up.
fn give_up(daemon: &Daemon, victim: Pid, others: &[Pid]) {
    kill_process(victim, Signal::KILL).expect("it is there");
    eventually("a device that is given up", || {
        let given_up = placement(daemon)["lost"] == serde_json::json!(["box"]);
        let again = working(daemon).into_iter().filter(|pid| !given_up && !others.contains(pid));
        again.for_each(|pid| {
            // It may have gone by itself.
            let _ = kill_process(pid, Signal::KILL);
        });
        given_up.then_some(())
    });
}

/// How many workers there are to be, and how many are there.
fn left(daemon: &Daemon) -> (u64, u64) {
    let status = daemon.status();
    let services = status["services"].as_array().expect("services");
    let count = |what: &str| services.iter().filter_map(|service| service[what].as_u64()).sum::<u64>();
    (count("workers"), count("workers_alive"))
}
