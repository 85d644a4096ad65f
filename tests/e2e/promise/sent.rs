//! Requests that say when they were sent: the deadline counts from there, and who was read late is not blamed for it.

use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, Listener, answers, best_effort, frame, pause, quiet};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use weir_client::wire::{ClientFrame, DaemonFrame};
use weir_client::{
    ArrivalBound, Constraint, MissReason, Outcome, RefusalCode, Registration, SafeModeCause, StreamInfo,
};

const PERIOD: Duration = Duration::from_millis(40);

/// One service whose requests take nearly nothing; it must read them within the guard.
fn serve(deadline: &str, guard: &str) -> Daemon {
    quiet();
    Deployment::new(format!(
        "{DAEMON}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[[service]]\nname = \"cameras\"\n\
         engine = \"simulated\"\nsimulated = {{ times = [\"1ms\"], input = 2, output = 2 }}\n\
         deadline = \"{deadline}\"\nguard = \"{guard}\"\nqueue = 512\n"
    ))
    .profiled(&[5])
    .serve()
}

/// One request a period, not all late by more than half of one; of any two one must be served.
fn register(daemon: &Daemon) -> (weir_client::blocking::Client, StreamInfo) {
    let mut client = daemon.client();
    let registration = Registration::builder("cameras", "front")
        .constraint(Constraint::any_miss(1, 2))
        .arrivals(ArrivalBound::periodic(PERIOD, PERIOD / 2))
        .build()
        .expect("it fits");
    let stream = client.register(&registration).expect("admitted");
    (client, stream)
}

/// Stops the daemon while ten requests are sent as declared, so that it reads them all at once.
fn sent_while_stopped(daemon: &Daemon) -> Vec<Outcome> {
    let (mut client, stream) = register(daemon);
    daemon.signal(Signal::STOP);
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(client.submit(&stream, &[1.0, 2.0]).expect("submitted"));
        // Longer than declared: that this test is put off does not bring two together.
        pause(PERIOD);
    }
    daemon.signal(Signal::CONT);
    answers(&mut client, &ids)
}

#[test]
fn a_stream_that_is_read_late_within_the_guard_keeps_its_promise() {
    let daemon = serve("20s", "10s");
    let mut listener = Listener::new(&daemon);
    let outcomes = sent_while_stopped(&daemon);
    let kept = outcomes.iter().all(|outcome| outcome.result().is_some());
    listener.kept_or_told("cameras", kept, &outcomes);
    assert_eq!(listener.suspensions(), [], "who kept its declaration is not suspended");
    // From the sending: the first waited for all that time.
    let longest = outcomes.iter().filter_map(Outcome::result).map(|result| result.queued).max();
    assert!(longest >= Some(PERIOD * 9), "{longest:?}");
}

#[test]
fn a_stream_that_is_read_later_than_the_guard_is_suspended_for_that_and_not_for_an_excess() {
    let daemon = serve("300ms", "50ms");
    let mut listener = Listener::new(&daemon);
    let outcomes = sent_while_stopped(&daemon);
    // Those sent longer ago than the deadline are misses, each with its number.
    let missed = outcomes.iter().filter(|outcome| outcome.result().is_none()).count();
    assert!(missed >= 2, "{outcomes:?}");
    listener.until_promised_anew("front", 1);
    let told = listener.suspensions();
    assert_eq!((told[0].cause, told[0].stream.as_str()), (SafeModeCause::LateDispatch, "front"));
    assert!(told[0].limit == 50_000_000 && told[0].seen > 300_000_000, "{:?}", told[0]);
    assert!(told[0].text.contains("was read") && told[0].text.contains("front"), "{:?}", told[0]);
    assert!(told.iter().all(|told| told.cause != SafeModeCause::ArrivalExcess), "{told:?}");
    let status = daemon.status();
    assert_eq!(status["services"][0]["suspensions"]["streams"], 0);
}

#[test]
fn a_request_from_the_future_is_refused_and_one_after_its_deadline_is_missed() {
    let daemon = serve("300ms", "50ms");
    let mut raw = daemon.raw().hello();
    let register = std::borrow::Cow::Owned(best_effort("cameras", "raw"));
    assert!(raw.send(&frame(2, &ClientFrame::Register(register))));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
    let now = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let payload = [0; 8];
    for (id, sent_ns) in [(3, now() + 60_000_000_000), (4, u64::MAX), (5, now() - 400_000_000), (6, 0)] {
        assert!(raw.send(&frame(
            id,
            &ClientFrame::SubmitAt { stream: 1, within_us: 0, sent_ns, payload: &payload }
        )));
    }
    // The future is no request of the stream; the past is, and is missed.
    let mut told = Vec::new();
    while told.len() < 4 {
        let answer = raw.next(|frame| match frame {
            DaemonFrame::Refused { code, .. } => Err(*code),
            DaemonFrame::Miss { sequence, reason, .. } => Ok((*sequence, *reason)),
            other => panic!("{other:?}"),
        });
        told.push(answer.expect("the connection stays"));
    }
    let (ahead, expired) = (Err(RefusalCode::SentInFuture), MissReason::Expired);
    assert_eq!(told, [ahead, ahead, Ok((0, expired)), Ok((1, expired))]);
    let seen = daemon.stream_status("raw");
    assert_eq!((seen["arrived"].as_u64(), seen["missed"]["expired"].as_u64()), (Some(2), Some(2)), "{seen}");
}
