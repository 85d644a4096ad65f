//! Requests whose answers are wanted before the deadline, and what is refused at once because the backlog rules it out.

use std::borrow::Cow;
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, alone, best_effort, frame};
use weir_client::wire::{ClientFrame, DaemonFrame, ErrorCode};
use weir_client::{Answer, MissReason, Outcome};

/// One service whose requests take 200 ms, one after the other; `more` is said of it.
fn config(deadline: &str, more: &str) -> String {
    format!(
        "{DAEMON}[[service]]\nname = \"slow\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"200ms\"], input = 2, output = 2 }}\n\
         deadline = \"{deadline}\"\nguard = \"1ms\"\nmax-batch = 1\n{more}"
    )
}

fn serve(deadline: &str) -> Daemon {
    alone();
    Deployment::new(config(deadline, "")).profiled(&[201]).serve()
}

#[test]
fn what_the_backlog_rules_out_is_refused_before_anything_is_answered() {
    // By the service's deadline, or by one of the request's own.
    for (deadline, within) in [("700ms", None), ("30s", Some(Duration::from_millis(700)))] {
        let daemon = serve(deadline);
        let mut client = daemon.client();
        let plain = client.register(&best_effort("slow", "many")).expect("a stream");
        let hurried = match within {
            Some(within) => plain.within(within),
            None => plain.clone(),
        };
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(client.submit(&plain, &[1.0, 2.0]).expect("submitted"));
        }
        let last = client.submit(&hurried, &[1.0, 2.0]).expect("submitted");
        match client.recv().expect("an answer") {
            Answer::Miss(id, miss) => assert_eq!((id, miss.reason), (last, MissReason::Shed)),
            other => panic!("the first to be answered is the one that is refused, not {other:?}"),
        }
        let served = (0..3).filter(|_| matches!(client.recv(), Ok(Answer::Result(..)))).count();
        assert_eq!(served, 3, "with a deadline of {deadline}");
    }
}

/// Where misses are spread it waits for its turn until then, from a reload that asks for it on; and no longer after another one.
#[test]
fn what_the_backlog_rules_out_waits_where_misses_are_spread() {
    alone();
    let place = Deployment::new(config("30s", "")).profiled(&[201]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let plain = client.register(&best_effort("slow", "many")).expect("a stream");
    let hurried = plain.within(Duration::from_millis(700));
    for spread in [true, false] {
        place.configure(config("30s", if spread { "best-effort = \"spread\"\n" } else { "" }));
        daemon.reload_accepted();
        assert_eq!(daemon.status()["services"][0]["spread"], spread);
        for _ in 0..3 {
            client.submit(&plain, &[1.0, 2.0]).expect("submitted");
        }
        let last = client.submit(&hurried, &[1.0, 2.0]).expect("submitted");
        let answers: Vec<_> = (0..4).map(|_| client.recv().expect("an answer")).collect();
        let first = |answer: &Answer| matches!(answer, Answer::Miss(id, miss) if (*id, miss.reason) == (last, MissReason::Shed));
        // Its deadline comes first: who waits is served before the others, or expires where the machine stood still.
        assert_eq!(first(&answers[0]), !spread, "{answers:?}");
        let served = answers.iter().filter(|answer| matches!(answer, Answer::Result(..))).count();
        assert!(served >= 3, "{answers:?}");
    }
}

#[test]
fn what_is_answered_later_than_wanted_is_a_miss() {
    let daemon = serve("30s");
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "one")).expect("a stream");
    let soon = client.infer(&stream.within(Duration::from_micros(1)), &[1.0, 2.0]).expect("an answer");
    let Outcome::Miss(miss) = soon else { panic!("{soon:?}") };
    assert!(matches!(miss.reason, MissReason::Expired | MissReason::Shed), "{miss:?}");
    let later = client.infer(&stream.within(Duration::from_secs(20)), &[1.0, 2.0]).expect("an answer");
    assert!(later.result().is_some(), "{later:?}");
}

#[test]
fn a_deadline_of_its_own_breaks_an_older_version_of_the_protocol() {
    let daemon = serve("30s");
    let mut raw = daemon.raw();
    let hello = ClientFrame::Hello { min_version: 1, max_version: 3, name: "older" };
    assert!(raw.send(&frame(1, &hello)));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Welcome { version: 3, .. })), Some(true));
    assert!(raw.send(&frame(2, &ClientFrame::Register(Cow::Owned(best_effort("slow", "raw"))))));
    assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
    let wanted = ClientFrame::SubmitAt { stream: 1, within_us: 1, sent_ns: 0, payload: &[0; 8] };
    assert!(raw.send(&frame(3, &wanted)));
    let malformed =
        |frame: &DaemonFrame<'_>| matches!(frame, DaemonFrame::Error { code: ErrorCode::Malformed, .. });
    assert_eq!(raw.next(malformed), Some(true));
}
