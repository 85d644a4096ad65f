//! Requests that come before they were declared to: what could not have changed any outcome is counted and suspends nothing, what
//! could does as ever.

use std::borrow::Cow;
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, Listener, Raw, frame, pause, quiet};
use rustix::time::{ClockId, clock_gettime};
use weir_client::wire::{ClientFrame, DaemonFrame};
use weir_client::{ArrivalBound, Constraint, Registration, SafeModeCause};

const PERIOD: u64 = 40_000_000;
/// By how much every other frame comes early.
const EARLY: u64 = 900_000;

/// One service whose requests take nearly nothing. Of the 2 s to answer them in a tenth could be for early ones, but no more
/// than a quarter of the time between two requests is.
fn serve(tolerance: &str) -> Daemon {
    quiet();
    Deployment::new(format!(
        "{DAEMON}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[[service]]\nname = \"cameras\"\n\
         engine = \"simulated\"\nsimulated = {{ times = [\"1ms\"], input = 2, output = 2 }}\n\
         deadline = \"3s\"\nguard = \"1s\"\n{tolerance}"
    ))
    .profiled(&[5])
    .serve()
}

/// A camera of 25 frames a second without jitter, which says when it sent them.
struct Camera {
    raw: Raw,
    began: u64,
}

impl Camera {
    fn register(daemon: &Daemon) -> Self {
        let mut raw = daemon.raw().hello();
        let registration = Registration::builder("cameras", "front")
            .constraint(Constraint::any_miss(0, 1))
            .arrivals(ArrivalBound::periodic(Duration::from_nanos(PERIOD), Duration::ZERO))
            .build()
            .expect("it fits");
        assert!(raw.send(&frame(1, &ClientFrame::Register(Cow::Owned(registration)))));
        assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
        Self { raw, began: now() }
    }

    /// Sends the frame of this number, early by so much; whether it is answered in time.
    fn send(&mut self, number: u64, early: u64) -> bool {
        let sent_ns = self.began + number * PERIOD - early;
        pause(Duration::from_nanos(sent_ns.saturating_sub(now())));
        let submit = ClientFrame::SubmitAt { stream: 1, within_us: 0, sent_ns, payload: &[0; 8] };
        assert!(self.raw.send(&frame(number + 2, &submit)));
        let answered = self.raw.next(|frame| match frame {
            DaemonFrame::Result { .. } => true,
            DaemonFrame::Miss { .. } => false,
            other => panic!("{other:?}"),
        });
        answered.expect("the connection stays")
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn frames_that_come_a_little_early_suspend_nothing_and_those_that_come_much_too_early_do() {
    let daemon = serve("");
    let mut listener = Listener::new(&daemon);
    let mut camera = Camera::register(&daemon);
    let outcomes: Vec<_> = (0..20).map(|k| camera.send(k, if k % 2 == 1 { EARLY } else { 0 })).collect();
    listener.kept_or_told("cameras", outcomes.iter().all(|&served| served), &outcomes);
    assert_eq!(listener.suspensions(), [], "early by less than a quarter of a period");
    let seen = daemon.stream_status("front");
    assert_eq!((&seen["early"], &seen["earliest_ns"]), (&10.into(), &EARLY.into()), "{seen}");
    assert_eq!((&seen["arrived"], &seen["suspended"]), (&20.into(), &serde_json::Value::Null), "{seen}");
    assert_eq!(daemon.status()["services"][0]["tolerance_ns"], PERIOD / 4);
    camera.send(20, PERIOD / 4);
    assert_eq!(daemon.stream_status("front")["earliest_ns"], PERIOD / 4);
    camera.send(21, PERIOD / 4 + 1);
    listener.until_promised_anew("front", 1);
    let told = listener.suspensions();
    assert_eq!((told[0].cause, told[0].stream.as_str()), (SafeModeCause::ArrivalExcess, "front"));
    assert_eq!(daemon.stream_status("front")["early"], 11);
}

#[test]
fn where_nothing_is_tolerated_a_frame_that_comes_a_little_early_suspends_its_stream() {
    let daemon = serve("tolerance = \"0s\"\n");
    let mut listener = Listener::new(&daemon);
    let mut camera = Camera::register(&daemon);
    camera.send(0, 0);
    camera.send(1, EARLY);
    listener.until_promised_anew("front", 1);
    assert_eq!(listener.suspensions()[0].cause, SafeModeCause::ArrivalExcess);
    let seen = daemon.stream_status("front");
    assert_eq!((&seen["early"], &seen["earliest_ns"]), (&0.into(), &0.into()), "{seen}");
}
