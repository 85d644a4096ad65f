//! A stream that sends more than its promise allows has a weaker one instead: it is told which, and that is kept.

use std::borrow::Cow;
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, Listener, Raw, frame, pause, quiet};
use weir_client::wire::{ClientFrame, DaemonFrame};
use weir_client::{Registration, StreamState};

/// One worker of 100 requests a second. Beside a camera of 50, of which 1 in 10 may be missed, a meter that may miss none.
fn serve() -> Daemon {
    quiet();
    Deployment::new(format!(
        "{DAEMON}[safe-mode]\nhold = \"300ms\"\nclean = \"300ms\"\n[[service]]\nname = \"cameras\"\n\
         engine = \"simulated\"\nsimulated = {{ times = [\"6ms\"], input = 2, output = 2 }}\n\
         deadline = \"400ms\"\nguard = \"200ms\"\nmax-batch = 1\n\
         constraints = [{{ any-miss = {{ m = 1, k = 10 }} }}]\n\
         degraded = [[{{ any-miss = {{ m = 5, k = 10 }} }}], [{{ row-miss = 8 }}]]\n\
         [[service.stream]]\nname = \"front\"\narrivals = [{{ window = {{ count = 5, length = \"100ms\" }} }}]\n\
         [[service.stream]]\nname = \"meter\"\nconstraints = [{{ row-miss = 0 }}]\n\
         arrivals = [{{ window = {{ count = 1, length = \"100ms\" }} }}]\n"
    ))
    .profiled(&[10])
    .serve()
}

/// A client of a reserved stream.
struct Sender {
    raw: Raw,
    sent: u64,
}

impl Sender {
    fn register(daemon: &Daemon, name: &str) -> Self {
        let mut raw = daemon.raw().hello();
        let registration = Registration::builder("cameras", name).build().expect("it fits");
        assert!(raw.send(&frame(1, &ClientFrame::Register(Cow::Owned(registration)))));
        assert_eq!(raw.next(|frame| matches!(frame, DaemonFrame::Registered(_))), Some(true));
        Self { raw, sent: 0 }
    }

    /// Sends so many at once.
    fn burst(&mut self, count: u64) {
        for _ in 0..count {
            self.sent += 1;
            let submit = ClientFrame::Submit { stream: 1, payload: &[0; 8] };
            assert!(self.raw.send(&frame(self.sent + 1, &submit)));
        }
    }

    /// Whether each of the next `count` requests to be answered was in time, in the order in which they were sent.
    fn answers(&mut self, count: u64) -> Vec<bool> {
        let mut answers = vec![None; count as usize];
        let first = self.sent - count + 1;
        for _ in 0..count {
            let (number, served) = self
                .raw
                .next_of(|id, frame| match *frame {
                    DaemonFrame::Result { .. } => (id, true),
                    DaemonFrame::Miss { .. } => (id, false),
                    ref other => panic!("{other:?}"),
                })
                .expect("the connection stays");
            answers[(number - 1 - first) as usize] = Some(served);
        }
        answers.into_iter().map(|served| served.expect("each is answered")).collect()
    }
}

/// Whether no `row` misses follow each other.
fn apart(answers: &[bool], row: usize) -> bool {
    answers.windows(row).all(|window| window.contains(&true))
}

fn keeps(answers: &[bool], m: usize, k: usize) -> bool {
    answers.windows(k).all(|window| window.iter().filter(|&&served| !served).count() <= m)
}

#[test]
fn more_than_was_declared_is_promised_less_and_less_again_and_the_stream_climbs_back() {
    let daemon = serve();
    let mut listener = Listener::new(&daemon);
    let (mut front, mut meter) = (Sender::register(&daemon, "front"), Sender::register(&daemon, "meter"));
    let status = daemon.stream_status("front");
    assert_eq!(
        (&status["level"], &status["levels"][1]["constraints"][0]),
        (&0.into(), &"row_miss(8)".into())
    );
    let rates =
        [0, 1].map(|level: usize| status["levels"][level]["declared_per_s"].as_f64().expect("a number"));
    assert_eq!(rates, [90.0, 400.0], "as many as leave 45 a second that must be served, in whole windows");
    let mut meters = 0;
    // Eight in 100 ms, then twenty, for 600 ms each.
    for (count, level, state) in [(8, 1, StreamState::Degraded1), (20, 2, StreamState::Degraded2)] {
        for _ in 0..6 {
            front.burst(count);
            meter.burst(1);
            meters += 1;
            pause(Duration::from_millis(110));
        }
        let told = daemon.stream_status("front");
        if listener.excuses("cameras") == 0 {
            assert_eq!(told["level"], level, "{told}");
            assert_eq!(told["suspended"], serde_json::Value::Null, "{told}");
        }
        let text = told["degraded"]["text"].as_str().unwrap_or_default();
        assert!(text.contains("front sent"), "{told}");
        let answers = front.answers(6 * count);
        // From the request on that exceeded the first declaration; before it nothing is missed either.
        let kept = if level == 1 { keeps(&answers, 5, 10) } else { apart(&answers[2 * count as usize..], 9) };
        listener.kept_or_told("cameras", kept, &answers);
        let heard = listener.until_it_stands("front", state);
        assert!(
            heard.text.contains(if level == 1 {
                "any_miss(5,10) is in force"
            } else {
                "row_miss(8) is in force"
            }),
            "{}",
            heard.text
        );
    }
    let answers = meter.answers(meters);
    listener.kept_or_told("cameras", answers.iter().all(|&served| served), &answers);
    let back = listener.until_it_stands("front", StreamState::Normal);
    assert_eq!(back.text, "cameras: the promise to stream front holds again");
    let told = daemon.stream_status("front");
    assert_eq!((&told["level"], &told["degraded"]), (&0.into(), &serde_json::Value::Null), "{told}");
}
