//! Servers that are killed, stopped and started again while a promised stream sends: each request gets one answer, its own; what
//! happens is told before it can break a promise; and what comes back serves again.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{alive, back, says};
use crate::harness::{
    Authority, DAEMON, Daemon, Deployment, Listener, PATIENCE, answers, best_effort, eventually, now,
    one_in_three, own_address, pause, repository, sequence, values,
};
use rustix::process::Signal;
use weir_client::{Answer, ArrivalBound, Constraint, Outcome, Registration, SafeModeCause};

const DEADLINE: Duration = Duration::from_secs(6);
/// So long a worker waits for its server.
const TIMEOUT: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(200);

/// A worker of the service's own.
const HERE: &str = "engine = \"tract\"\n";

/// A worker that is the server at `url`.
fn there(name: &str, url: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nengine = \"oip\"\n\
         remote = {{ url = \"{url}\", model = \"digits\", timeout = \"{}s\"{more} }}\n",
        TIMEOUT.as_secs()
    )
}

/// A front whose service `far` has these two workers.
fn front(workers: [&str; 2]) -> Deployment {
    let kinds = workers.map(|kind| format!("[[service.workers]]\n{kind}")).concat();
    let place = Deployment::new(format!(
        "{DAEMON}models = {:?}\n[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n\
         [[service]]\nname = \"far\"\nmodel = \"digits-s\"\nmax-batch = 1\ndeadline = \"{}s\"\nguard = \"1s\"\n\
         constraints = [{{ any-miss = {{ m = 1, k = 3 }} }}]\n{kinds}",
        repository("models/manifest.toml"),
        DEADLINE.as_secs(),
    ));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(500);
    place
}

/// A picture for each number, of which any seven in a row differ.
fn picture(number: usize) -> Vec<f32> {
    vec![(number % 7) as f32 / 8.0; 28 * 28]
}

/// What the daemon answers to each of them.
fn expected(daemon: &Daemon) -> Vec<Vec<f32>> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("far", "before")).expect("a stream");
    let one = |number| {
        eventually("an answer", || {
            let outcome = client.infer(&stream, &picture(number)).expect("an answer");
            values(&stream, &outcome)
        })
    };
    let all: Vec<_> = (0..7).map(one).collect();
    client.unregister(&stream).expect("given up");
    all
}

/// Sends for a promised stream until it has gone on for long enough: what became of each request, in their order.
fn sent(daemon: &Daemon, going: &AtomicBool, expected: &[Vec<f32>]) -> Vec<Outcome> {
    let mut client = daemon.client();
    let cam = Registration::builder("far", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, EVERY));
    let cam = client.register(&cam.build().expect("it fits")).expect("admitted");
    let (mut open, mut outcomes) = (Vec::new(), Vec::new());
    for number in 0.. {
        if !going.load(Ordering::Relaxed) {
            break;
        }
        open.push(client.submit(&cam, &picture(number)).expect("submitted"));
        let sent = now();
        while let Some(left) = EVERY.checked_sub(sent.elapsed()).filter(|left| !left.is_zero()) {
            let (id, outcome) = match client.recv_timeout(left).expect("the connection stays") {
                Some(Answer::Result(id, result)) => (id, Outcome::Result(result)),
                Some(Answer::Miss(id, miss)) => (id, Outcome::Miss(miss)),
                None => continue,
                other => panic!("{other:?}"),
            };
            let place = open.iter().position(|of| *of == id);
            open.swap_remove(place.unwrap_or_else(|| panic!("{id} was answered twice")));
            outcomes.push(outcome);
        }
    }
    outcomes.extend(answers(&mut client, &open));
    outcomes.sort_by_key(sequence);
    assert!(outcomes.iter().map(sequence).eq(0..outcomes.len() as u64), "each once: {outcomes:?}");
    for (number, outcome) in outcomes.iter().enumerate() {
        if let Outcome::Result(result) = outcome {
            assert!(result.queued + result.run <= DEADLINE, "late, and told to be in time: {result:?}");
            let values = values(&cam, outcome).expect("a result");
            assert_eq!(values, expected[number % 7], "another's answer, to request {number}");
        }
    }
    outcomes
}

/// Whether the constraint of the stream was kept.
fn kept(outcomes: &[Outcome]) -> bool {
    one_in_three(outcomes.iter().map(|outcome| outcome.result().is_some()))
}

/// What is told of a trouble until both workers are there again, and something is promised.
fn troubled(daemon: &Daemon, listener: &mut Listener, trouble: impl FnOnce()) -> Vec<SafeModeCause> {
    let before = listener.changes().len();
    trouble();
    alive(daemon, 2);
    eventually("what is promised again", || {
        let far = daemon.status()["services"][0].clone();
        (far["safe_mode"]["state"] == "normal").then_some(())
    });
    let new = &listener.changes()[before..];
    new.iter().filter(|change| change.state.is_suspended()).map(|change| change.cause).collect()
}

/// Has servers killed, ended and stopped for a while, as many at a time as `which` says, while a promised stream sends.
fn all_troubles(place: &Deployment, places: &[Deployment], servers: &mut [Daemon], which: &[usize]) {
    let daemon = place.serve();
    alive(&daemon, 2);
    let (expected, going) = (expected(&daemon), AtomicBool::new(true));
    let mut listener = Listener::new(&daemon);
    let (outcomes, told) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| sent(&daemon, &going, &expected));
        pause(5 * EVERY);
        let mut told = Vec::new();
        for &count in which {
            let left = 2 - count as u64;
            for signal in [Signal::KILL, Signal::TERM] {
                let causes = troubled(&daemon, &mut listener, || {
                    for server in &mut servers[..count] {
                        server.signal(signal);
                        server.wait();
                    }
                    alive(&daemon, left);
                    pause(3 * EVERY);
                    for (server, place) in servers.iter_mut().zip(places).take(count) {
                        *server = serve(place);
                    }
                });
                told.push((format!("{signal:?} to {count}"), causes));
            }
            let causes = troubled(&daemon, &mut listener, || {
                servers[..count].iter().for_each(|server| server.signal(Signal::STOP));
                alive(&daemon, left);
                pause(3 * EVERY);
                servers[..count].iter().for_each(|server| server.signal(Signal::CONT));
            });
            told.push((format!("stopped {count}"), causes));
        }
        pause(5 * EVERY);
        going.store(false, Ordering::Relaxed);
        (sender.join().expect("it sends"), told)
    });
    println!("{} sent, kept: {}, told: {told:?}", outcomes.len(), kept(&outcomes));
    for (trouble, causes) in &told {
        assert!(causes.contains(&SafeModeCause::WorkerLost), "{trouble}: {causes:?}");
        assert_ne!(
            causes[0],
            SafeModeCause::ConstraintViolated,
            "{trouble}: what led to it comes first: {causes:?}"
        );
    }
    // Whatever happened, it was served before and after.
    for end in [&outcomes[..3], &outcomes[outcomes.len() - 3..]] {
        listener.kept_or_told("far", kept(end), &end);
    }
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}

/// Serves there, and waits until others may call it.
fn serve(place: &Deployment) -> Daemon {
    let daemon = place.serve();
    let door = ["h", "g"].map(|door| place.path(door));
    eventually("the door for others", || door.iter().find_map(|door| UnixStream::connect(door).ok()));
    daemon
}

#[test]
fn a_server_beside_a_worker_here_is_killed_stopped_and_started_again_in_mid_stream() {
    let back = back();
    let mut servers = [serve(&back)];
    let far = there("far", &format!("unix:{}", back.path("h").display()), "");
    let place = front([HERE, &far]);
    all_troubles(&place, &[back], &mut servers, &[1]);
}

#[test]
fn one_of_two_servers_or_both_are_killed_stopped_and_started_again_in_mid_stream() {
    let backs = [back(), back()];
    for back in &backs {
        let text = std::fs::read_to_string(back.config()).expect("there");
        back.configure(text.replace("http = \"unix:h\"", "grpc = \"unix:g\""));
    }
    let mut servers = [serve(&backs[0]), serve(&backs[1])];
    let [one, other] = [("one", &backs[0]), ("other", &backs[1])]
        .map(|(name, back)| there(name, &format!("grpc+unix:{}", back.path("g").display()), ""));
    let place = front([&one, &other]);
    all_troubles(&place, &backs, &mut servers, &[1, 2]);
}

/// A box that is there again, but so that its handshake never ends, or would take forever.
#[test]
fn a_box_whose_handshake_does_not_end_is_given_up_and_the_worker_beside_it_goes_on() {
    let back_place = back();
    let text = std::fs::read_to_string(back_place.config()).expect("there");
    let address = format!("{}:8012", own_address());
    let there_tls = format!(
        "http = \"{address}\"\ntls = {{ certificate = \"box.pem\", key = \"box.key\", client-ca = \"ca.pem\", allow-clients = [\"front.example\"] }}",
    );
    back_place.configure(text.replace("http = \"unix:h\"", &there_tls));
    let authority = Authority::new(&back_place.path("ca.pem"));
    authority.vouch(&back_place.path("box"), &own_address(), 4000);
    let (certificate, key) = authority.vouch(&back_place.path("front"), "front.example", 4000);
    let port = || eventually("the port", || TcpStream::connect(&address).ok());
    let mut server = back_place.serve();
    drop(port());
    let ca = back_place.path("ca.pem");
    let tls = format!(", tls = {{ ca = {ca:?}, certificate = {certificate:?}, key = {key:?} }}");
    let place = front([HERE, &there("far", &format!("https://{address}"), &tls)]);
    let daemon = place.serve();
    alive(&daemon, 2);
    let (expected, going) = (expected(&daemon), AtomicBool::new(true));
    let mut listener = Listener::new(&daemon);
    let outcomes = std::thread::scope(|scope| {
        let sender = scope.spawn(|| sent(&daemon, &going, &expected));
        let causes = troubled(&daemon, &mut listener, || {
            server.signal(Signal::KILL);
            server.wait();
            alive(&daemon, 1);
            let tarpit = eventually("the port once more", || TcpListener::bind(&address).ok());
            let silent = tarpit.accept().expect("a connection");
            says(&daemon, &format!("https://{address}: no answer came within 2000 ms"));
            drop(silent);
            // One that says how much comes, and lets it drip.
            let (mut slow, _) = tarpit.accept().expect("a connection");
            slow.write_all(&[22, 3, 3, 0x40, 0]).expect("it listens");
            let began = now();
            while slow.write_all(&[2]).is_ok() {
                assert!(began.elapsed() < PATIENCE, "it is waited for without end");
                pause(Duration::from_millis(50));
            }
            drop(tarpit);
            server = back_place.serve();
        });
        assert!(causes.contains(&SafeModeCause::WorkerLost), "{causes:?}");
        pause(5 * EVERY);
        going.store(false, Ordering::Relaxed);
        sender.join().expect("it sends")
    });
    listener.kept_or_told("far", kept(&outcomes), &outcomes);
    assert!(outcomes.iter().filter(|outcome| outcome.result().is_some()).count() > outcomes.len() / 2);
}
