//! Classes of requests beside all else that a service may have: workers of several kinds, a shared device, weaker promises,
//! stalls that are declared, misses that are spread, safe mode; and a reload that numbers them anew.

use std::thread;

use crate::harness::{DAEMON, Daemon, Deployment, Listener, PATIENCE, best_effort, not_checked};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{Answer, Outcome, RequestId, SafeModeCause, StreamInfo, StreamState, SuspensionEvent};

const CLASSES: [&str; 3] = ["plain", "soft", "hard"];
/// What is said of each: no batch is as short as the last two want it, and what is late for the soft one is delivered for five seconds.
const SAID: [&str; 3] = [
    "accuracy = { large = 0.9 }\n",
    "deadline = \"50ms\"\nvalue = 2\ndecay = { step = { part = 0.5, cutoff = 100.0 } }\n",
    "deadline = \"50ms\"\n",
];
/// What answers, in 60 ms, or in 90 by a variant that is worth more; and a service beside that, whose model takes 70.
const SMALL: &str = "simulated = { name = \"small\", times = [\"60ms\"], accuracy = 0.5, input = 2, output = 2, \
                     variants = [{ name = \"large\", times = [\"90ms\"], accuracy = 0.7 }] }\n";
const STRICT: &str = "deadline = \"40s\"\nguard = \"10s\"\nconstraints = [{ any-miss = { m = 1, k = 3 } }]\n";
/// Only what is promised so loosely can stalls be absorbed by.
const LOOSE: &str = "deadline = \"8s\"\nguard = \"2s\"\nconstraints = [{ any-miss = { m = 40, k = 80 } }]\n";

/// Each service: its name, and what it has beside its classes.
fn services() -> [(&'static str, String); 8] {
    let kind = |name: &str, ms: u64| {
        format!(
            "[[service.workers]]\nname = \"{name}\"\n\
             simulated = {{ name = \"large\", times = [\"{ms}ms\"], input = 2, output = 2 }}\n"
        )
    };
    let stalls =
        |by: &str| format!("stalls = {{ at-most = 1, in = \"400s\", of = \"30ms\", by = \"{by}\" }}\n");
    let own = |more: &str| [STRICT, more, SMALL].concat();
    let overrunning = SMALL.replace("small", "overrunning").replace("60ms", "59ms");
    [
        ("kinds", [STRICT, &kind("quick", 60), &kind("slow", 61)].concat()),
        ("shared", own("device = \"box\"\n")),
        ("beside", ["deadline = \"40s\"\ndevice = \"box\"\n", SMALL].concat()),
        ("ladder", own("degraded = [[{ row-miss = 3 }]]\n")),
        ("stalls", own(&stalls("deadline"))),
        ("absorbs", [LOOSE, &stalls("constraints"), SMALL].concat()),
        ("spread", own("best-effort = \"spread\"\n")),
        ("unsafe", [STRICT, &overrunning].concat()),
    ]
}

/// With the classes in this order, and a reserved stream of each.
fn config(order: [usize; 3]) -> String {
    let service = |(name, more): (&str, String)| {
        let class = |i: usize| format!("[[service.class]]\nname = \"{}\"\n{}", CLASSES[i], SAID[i]);
        let stream = |i: usize| {
            format!(
                "[[service.stream]]\nname = \"{0}\"\nclass = \"{0}\"\n\
                 arrivals = [{{ window = {{ count = 6, length = \"10s\" }} }}]\n",
                CLASSES[i]
            )
        };
        let (classes, streams) = (order.map(class).concat(), order.map(stream).concat());
        format!(
            "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\nmax-batch = 1\n{more}{classes}{streams}"
        )
    };
    let services = services().map(service).concat();
    format!("{DAEMON}[safe-mode]\nlatch = true\n[[device]]\nname = \"box\"\n{services}")
}

/// Profiled; what is promised does not depend on the host, and one of them takes longer than it may.
fn place() -> Deployment {
    let place = Deployment::new(config([0, 1, 2]));
    place.succeed(&["profile", "--quick", "--samples", "5"]);
    place.set_bounds_of(|model| match model {
        "overrunning" => 10,
        "large" => 500,
        _ => 400,
    });
    place
}

/// A client of one service: its reserved streams, in the order of the classes, and one that is promised nothing.
struct Caller {
    service: &'static str,
    client: Client,
    reserved: [StreamInfo; 3],
    any: StreamInfo,
    /// Of each class: answered in time, late and not at all.
    came: [[u64; 3]; 3],
}

impl Caller {
    fn new(daemon: &Daemon, service: &'static str) -> Self {
        let mut client = daemon.client();
        let mut register = |name| client.register(&best_effort(service, name)).expect("a stream");
        let (reserved, any) = (CLASSES.map(&mut register), register("any"));
        Self { service, client, reserved, any, came: [[0; 3]; 3] }
    }

    fn count(&mut self, class: usize, outcome: &Outcome) {
        let place = outcome.result().map_or(2, |result| usize::from(result.late));
        self.came[class][place] += 1;
    }

    /// Sends one request of each class on its stream, one after the other.
    fn round(&mut self) {
        for class in 0..CLASSES.len() {
            let outcome = self.client.infer(&self.reserved[class], &[1.0, 2.0]).expect("an outcome");
            self.count(class, &outcome);
        }
    }

    /// Sends two requests of each class at once on the stream that is promised nothing; of which class each is.
    fn submit(&mut self) -> Vec<(RequestId, usize)> {
        let mut ids = Vec::new();
        for (class, name) in CLASSES.iter().enumerate() {
            let stream = self.any.of_class(name).expect("it is there");
            ids.extend(
                [(); 2].map(|()| (self.client.submit(&stream, &[1.0, 2.0]).expect("submitted"), class)),
            );
        }
        ids
    }

    /// Takes the answers to these, in any order.
    fn take(&mut self, mut ids: Vec<(RequestId, usize)>) {
        while !ids.is_empty() {
            let (id, outcome) = match self.client.recv_timeout(PATIENCE).expect("the connection stays") {
                Some(Answer::Result(id, result)) => (id, Outcome::Result(result)),
                Some(Answer::Miss(id, miss)) => (id, Outcome::Miss(miss)),
                other => panic!("{other:?} instead of answers to {ids:?}"),
            };
            let place = ids.iter().position(|(of, _)| *of == id).expect("each is answered once");
            let (_, class) = ids.swap_remove(place);
            self.count(class, &outcome);
        }
    }
}

/// What is told of each class of a service: as many as its client saw, and of the worth that such answers have.
fn told(service: &Value, came: &[[u64; 3]; 3]) {
    let classes = service["classes"].as_array().expect("classes");
    for (class, [in_time, late, missed]) in CLASSES.iter().zip(*came) {
        let told = classes.iter().find(|told| told["name"] == **class).expect("the class");
        let counts = ["requests", "answered", "late", "missed"].map(|field| told[field].as_u64());
        let seen = [in_time + late + missed, in_time + late, late, missed].map(Some);
        assert_eq!(counts, seen, "{service}");
        // Of models of which nobody says how often they are right an answer counts as a right one.
        let [small, large] = match *class {
            "plain" if service["name"] == "kinds" => [0.9, 0.9],
            "plain" => [0.5, 0.9],
            "soft" if service["name"] == "kinds" => [1.0, 1.0],
            "soft" => [0.5, 0.7],
            _ => [0.0, 0.0],
        };
        let worth = told["worth"].as_f64().expect("some have ended") * seen[0].expect("a count") as f64;
        let answered = (in_time + late) as f64;
        assert!((small * answered - 1e-9..=large * answered + 1e-9).contains(&worth), "{class}: {service}");
    }
}

#[test]
fn classes_mean_the_same_whatever_else_a_service_has() {
    let place = place();
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let mut callers = services().map(|(service, _)| Caller::new(&daemon, service));
    let rounds = |callers: &mut [Caller; 8], count: usize| {
        thread::scope(|scope| {
            for caller in callers {
                scope.spawn(move || (0..count).for_each(|_| caller.round()));
            }
        });
    };
    rounds(&mut callers, 3);
    // What waits is of the classes that it was sent as, whatever numbers these have when it is answered.
    let waiting = callers.each_mut().map(Caller::submit);
    place.configure(config([2, 0, 1]));
    daemon.reload_accepted();
    callers.iter_mut().zip(waiting).for_each(|(caller, ids)| caller.take(ids));
    rounds(&mut callers, 1);
    // More than is declared: the ladder has something for that.
    let ladder = callers.iter_mut().find(|caller| caller.service == "ladder").expect("a service");
    let ids = [(); 8].map(|()| ladder.client.submit(&ladder.reserved[1], &[1.0, 2.0]).expect("submitted"));
    ladder.take(ids.map(|id| (id, 1)).to_vec());
    let fell = listener.until_it_stands("soft", StreamState::Degraded1);
    assert_eq!(fell.service, "ladder");

    let status = daemon.status();
    for (service, caller) in status["services"].as_array().expect("services").iter().zip(&callers) {
        let Caller { service: name, came, .. } = caller;
        assert_eq!(service["name"], *name);
        told(service, came);
        let [plain, soft, hard] = *came;
        assert_eq!((plain[1], soft[0], hard[0], hard[1]), (0, 0, 0, 0), "{name}: {came:?}");
        // A batch of seconds, or a machine that stands still as long, makes even these late, and may break any promise.
        let excused = *name != "unsafe" && listener.excuses(name) > 0;
        if plain[2] + soft[2] > 0 || excused {
            assert!(soft[1] > soft[2] || excused, "{name}: {came:?}");
            not_checked(&format!("what classes do to the promises of {name}: the machine was disturbed"));
            continue;
        }
        // Whoever wants more than can be had loses its own promise, if it has one that this breaks, and nobody else's.
        let own =
            |told: &SuspensionEvent| told.service == *name && told.cause == SafeModeCause::ConstraintViolated;
        let breaks = !["beside", "absorbs"].contains(name);
        let streams: Vec<_> =
            listener.suspensions().iter().filter(|told| own(told)).map(|told| told.stream.clone()).collect();
        assert!(
            streams.iter().all(|stream| stream == "hard") && streams.is_empty() != breaks,
            "{name}: {streams:?}"
        );
        assert_eq!(service["stall_misses"], 0, "no stall had a part in it: {service}");
        assert_eq!(service["safe_mode"]["state"] == "safe-mode", *name == "unsafe", "{service}");
    }
}
