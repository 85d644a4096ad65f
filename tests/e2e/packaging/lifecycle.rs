//! Around all requests: the daemon starts, says so, ends in order, and survives what was left behind.

use std::borrow::Cow;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, PATIENCE, answers, best_effort, eventually, frame, pause, repository, values,
};
use rustix::net::{RecvFlags, recv};
use rustix::process::Signal;
use weir_client::blocking::Client;
use weir_client::wire::{ClientFrame, DaemonFrame};
use weir_client::{Error, Event, EventMask, RefusalCode, SafeModeCause, SafeModeState};

/// One worker that takes 100 ms a request.
fn deployment() -> Deployment {
    Deployment::new(format!(
        "{DAEMON}{}",
        r#"
        [safe-mode]
        hold = "300ms"
        clean = "300ms"
        [[service]]
        name = "slow"
        engine = "simulated"
        simulated = { times = ["100ms"], input = 4, output = 4 }
        deadline = "20s"
        guard = "1s"
        "#
    ))
}

fn stops_in_order(signal: Signal) {
    let place = deployment().profiled(&[400]);
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "last")).expect("a stream");
    let ids: Vec<_> = (0..4).map(|_| client.submit(&stream, &[1.0; 4]).expect("submitted")).collect();
    // The answer to PING says that the requests before it have been taken in.
    client.ping().expect("an answer");
    daemon.signal(signal);
    let outcomes = answers(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| values(&stream, outcome) == Some(vec![1.0; 4])), "{outcomes:?}");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
    assert!(!place.socket().exists(), "the socket is left behind");
    assert!(matches!(client.recv(), Err(Error::Closed)));
}

#[test]
fn sigterm_lets_requests_in_flight_be_answered_and_exits_with_zero() {
    stops_in_order(Signal::TERM);
}

#[test]
fn sigint_lets_requests_in_flight_be_answered_and_exits_with_zero() {
    stops_in_order(Signal::INT);
}

/// Sends one request after the other until the daemon ends; whether the last one was read and left without an answer.
fn ask_until_the_end(daemon: &Daemon, name: &str, asking: &AtomicUsize) -> bool {
    let mut raw = daemon.raw().hello();
    let registration = best_effort("quick", name);
    assert!(raw.send(&frame(2, &ClientFrame::Register(Cow::Borrowed(&registration)))));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
    asking.fetch_add(1, Ordering::Relaxed);
    for id in 3.. {
        if !raw.send(&frame(id, &ClientFrame::Submit { stream: 1, payload: &[0; 4] })) {
            break;
        }
        let mut byte = [0];
        // What is left unread in a socket that is closed makes the other end hear of a reset connection.
        match recv(&raw.socket, &mut byte, RecvFlags::PEEK) {
            Ok((_, 0)) => return true,
            Ok(_) => assert!(raw.next(|_| ()).is_some()),
            Err(_) => return false,
        }
    }
    false
}

#[test]
fn whatever_was_read_is_answered_before_the_daemon_ends() {
    let service = "[[service]]\nname = \"quick\"\nengine = \"simulated\"\nmax-batch = 1\ndeadline = \"20s\"\n\
                   guard = \"1s\"\nsimulated = { times = [\"0ms\"], input = 1, output = 1 }\n";
    let place = Deployment::new(format!("{DAEMON}{service}")).profiled(&[1]);
    for _ in 0..6 {
        let mut daemon = place.serve();
        let asking = AtomicUsize::new(0);
        let unanswered = std::thread::scope(|scope| {
            let (daemon, asking) = (&daemon, &asking);
            let ask =
                |n: usize| scope.spawn(move || ask_until_the_end(daemon, &format!("stream{n}"), asking));
            let clients: Vec<_> = (0..32).map(ask).collect();
            eventually("all clients", || (asking.load(Ordering::Relaxed) == 32).then_some(()));
            pause(Duration::from_millis(50));
            daemon.signal(Signal::TERM);
            clients.into_iter().map(|c| c.join().expect("no panic")).filter(|&is| is).count()
        });
        assert_eq!(unanswered, 0, "requests that the daemon had read");
        assert_eq!(daemon.wait().code(), Some(0));
    }
}

#[test]
fn large_answers_that_are_read_late_are_whole_when_the_daemon_ends() {
    let place = Deployment::new(format!(
        "{DAEMON}max-pending = 67108864\n[[service]]\nname = \"large\"\nengine = \"simulated\"\nmax-batch = 1\n\
         deadline = \"20s\"\nguard = \"1s\"\nsimulated = {{ times = [\"5ms\"], input = 4, output = 500000 }}\n"
    ));
    let place = place.profiled(&[400]);
    let mut daemon = place.serve();
    let mut raw = daemon.raw().hello();
    let registration = best_effort("large", "cam");
    assert!(raw.send(&frame(2, &ClientFrame::Register(Cow::Borrowed(&registration)))));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
    for id in 3..9 {
        assert!(raw.send(&frame(id, &ClientFrame::Submit { stream: 1, payload: &[0; 16] })));
    }
    eventually("the last answer", || Some(()).filter(|()| daemon.stream_status("cam")["served"] == 6));
    daemon.signal(Signal::TERM);
    // Nothing is read until a daemon that does not wait for it would have ended.
    pause(Duration::from_millis(500));
    let length = |frame: &DaemonFrame<'_>| match frame {
        DaemonFrame::Result { output, .. } => output.len(),
        other => panic!("{other:?}"),
    };
    let lengths: Vec<_> = std::iter::from_fn(|| raw.next(length)).collect();
    assert_eq!(lengths, [2_000_000; 6]);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
}

#[test]
fn while_draining_what_is_new_is_refused() {
    let place = deployment().profiled(&[400]);
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "last")).expect("a stream");
    let ids: Vec<_> = (0..25).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
    client.ping().expect("an answer");
    daemon.signal(Signal::TERM);
    // More than two seconds of work is left: the daemon tells that it is draining, then refuses.
    let refused = eventually("a refusal", || match client.register(&best_effort("slow", "late")) {
        Ok(stream) => {
            client.unregister(&stream).expect("given up");
            None
        }
        Err(Error::Refused(refusal)) => Some(refusal.code),
        Err(error) => panic!("{error}"),
    });
    assert_eq!(refused, RefusalCode::Draining);
    answers(&mut client, &ids);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn an_idle_daemon_with_clients_connected_ends_too() {
    let mut daemon = deployment().profiled(&[400]).serve();
    let _clients: Vec<_> = (0..5).map(|_| daemon.client()).collect();
    let _silent = daemon.raw();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused_and_the_first_goes_on() {
    let place = deployment().profiled(&[400]);
    let daemon = place.serve();
    let message = place.fail(&["serve"]);
    let socket = place.socket();
    assert!(message.contains("another daemon is listening"), "{message}");
    assert!(message.contains(&format!("daemon.socket = {}", socket.display())), "{message}");
    daemon.client().ping().expect("the first daemon answers");
}

#[test]
fn the_socket_that_a_killed_daemon_left_behind_is_replaced() {
    let place = deployment().profiled(&[400]);
    let mut daemon = place.serve();
    daemon.signal(Signal::KILL);
    assert_eq!(daemon.wait().code(), None);
    assert!(place.socket().exists(), "nothing was left behind, nothing is tested");
    assert!(matches!(Client::connect(place.socket()), Err(Error::Connect { .. })));
    let again = place.serve();
    let mut client = again.client();
    let stream = client.register(&best_effort("slow", "anew")).expect("a stream");
    let outcome = client.infer(&stream, &[2.0; 4]).expect("an answer");
    assert_eq!(values(&stream, &outcome), Some(vec![2.0; 4]));
}

#[test]
fn a_batch_that_outlasts_its_profile_raises_service_overrun() {
    // Each batch takes 100 ms; the profile says 10.
    let daemon = deployment().profiled(&[10]).serve();
    let mut client = daemon.client();
    client.subscribe(EventMask::SAFE_MODE).expect("subscribed");
    let stream = client.register(&best_effort("slow", "overrun")).expect("a stream");
    let outcome = client.infer(&stream, &[0.0; 4]).expect("an answer");
    assert!(outcome.result().is_some(), "late for the profile, not for the deadline: {outcome:?}");
    let mut next = || match client.next_event_timeout(PATIENCE).expect("the connection stays") {
        Some(Event::SafeMode(event)) => event,
        other => panic!("{other:?}"),
    };
    let entered = next();
    assert_eq!((entered.state, entered.cause), (SafeModeState::SafeMode, SafeModeCause::ServiceOverrun));
    assert_eq!((entered.service.as_str(), entered.sequence), ("slow", 1));
    assert!(entered.limit >= 10_000_000 && entered.seen > entered.limit, "{entered:?}");
    let left = next();
    assert_eq!((left.state, left.sequence), (SafeModeState::Normal, 2));
}

#[test]
fn a_machine_that_is_no_longer_as_profiled_is_announced_until_it_is_again() {
    let manifest = repository("models/manifest.toml");
    let place = Deployment::new(format!(
        "{DAEMON}models = {manifest:?}\n[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n\
         [[service]]\nname = \"digits\"\nmodel = \"digits-xs\"\ndeadline = \"20s\"\nmax-batch = 1\n"
    ));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    // A kernel that shows a heat-limited processor, and nothing else that differs from the profile.
    let sysfs = place.path("sys");
    let device = sysfs.join("class/thermal/cooling_device0");
    std::fs::create_dir_all(&device).expect("a folder");
    let real = std::path::Path::new("/sys/devices");
    std::os::unix::fs::symlink(real, sysfs.join("devices")).expect("a link");
    std::os::unix::fs::symlink("/sys/firmware", sysfs.join("firmware")).expect("a link");
    let set = |state: &str| std::fs::write(device.join("cur_state"), state).expect("written");
    std::fs::write(device.join("type"), "cpufreq-cpu0\n").expect("written");
    set("0");
    let daemon = place.spawn(&[("WEIR_SYSFS", &sysfs)]);
    let mut client = eventually("the daemon's socket", || Client::connect(place.socket()).ok());
    client.subscribe(EventMask::SAFE_MODE).expect("subscribed");
    let mut next = || match client.next_event_timeout(PATIENCE).expect("the connection stays") {
        Some(Event::SafeMode(event)) => event,
        other => panic!("{other:?}"),
    };
    set("3");
    let entered = next();
    assert_eq!((entered.state, entered.cause), (SafeModeState::SafeMode, SafeModeCause::ProfileStale));
    assert!(entered.text.contains("heat"), "{entered:?}");
    set("0");
    assert_eq!(next().state, SafeModeState::Normal);
    assert!(daemon.stderr().contains("not as profiled"), "{}", daemon.stderr());
}

#[test]
fn ready_is_told_to_the_service_manager_once_clients_can_connect() {
    let place = deployment().profiled(&[400]);
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut daemon = place.spawn(&[("NOTIFY_SOCKET", &place.path("notify"))]);
    let mut message = [0; 4096];
    let ready = std::iter::repeat_with(|| {
        let length = manager.recv(&mut message).expect("a notification");
        String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1")
    });
    assert!(ready.take(16).any(|ready| ready), "READY=1 is not among the first notifications");
    // At the first attempt, without waiting.
    let mut client = daemon.client();
    client.ping().expect("an answer");
    assert!(daemon.ended().is_none());
}

#[test]
fn ready_is_never_told_by_a_daemon_that_cannot_start() {
    let place = deployment();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("set");
    // There is no profile, and something is promised.
    let config = std::fs::read_to_string(place.config()).expect("written");
    place.configure(config + "constraints = [{ row-miss = 1 }]\n");
    let mut daemon = place.spawn(&[("NOTIFY_SOCKET", &place.path("notify"))]);
    assert_ne!(daemon.wait().code(), Some(0));
    assert!(manager.recv(&mut [0; 4096]).is_err(), "a notification came");
    assert!(!place.socket().exists());
}

#[test]
fn a_socket_in_a_folder_that_is_not_there_is_named() {
    let place = deployment();
    place.configure(
        std::fs::read_to_string(place.config()).expect("written").replace("\"s\"", "\"nowhere/s\""),
    );
    let place = place.profiled(&[400]);
    let message = place.fail(&["serve"]);
    assert!(message.contains("daemon.socket") && message.contains("nowhere/s"), "{message}");
}

#[test]
fn a_socket_file_removed_under_the_daemon_does_not_keep_it_from_ending() {
    let place = deployment().profiled(&[400]);
    let mut daemon = place.serve();
    std::fs::remove_file(place.socket()).expect("removed");
    assert!(UnixStream::connect(place.socket()).is_err());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}
