//! What the daemon adds to a request: its whole round trip on a null service against a bare blocking echo of
//! the same bytes on a Unix socket, in one run, each server a process of its own, both in one scheduling class
//! and on one core. Then what it costs to send a tensor through the socket, and through shared memory.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, retry, serve};
use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Constraint, Registration};

/// Values of a request and of its result: 256 bytes each way and the protocol's heads.
const VALUES: usize = 64;
const FRAME: usize = 16 + 8 + 4 * VALUES;
/// The two take turns in blocks, so that a disturbance of the machine falls on both.
const BLOCKS: usize = 40;
const PER_BLOCK: usize = 500;
const LIMIT: f64 = 2.5;
/// Values of a small and of a large request, as of a camera's picture; answers have few.
const SIZES: [(&str, usize); 2] = [("1 KB", 256), ("1.2 MB", 300_000)];
const ANSWER: usize = 16;
const ROUNDS: usize = 4000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, path] = &arguments[..]
        && role == "echo"
    {
        return echo(Path::new(path));
    }
    println!("round trip of {FRAME} bytes, {} requests a server\n", BLOCKS * PER_BLOCK);
    println!(
        "| servers run as | on the core of the client? | | bare echo | weir, null service | ratio | limit |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (realtime, core) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let class = if realtime { "SCHED_FIFO" } else { "SCHED_OTHER" };
        let place = if core == 0 { "the same" } else { "another" };
        match measure(realtime, core) {
            Some((bare, ours)) => print_rows(class, place, bare, ours),
            None => println!("| {class} | {place} | not permitted here | | | | |"),
        }
    }
    println!("\n| request | server on the core of the client? | | inline | arena | arena, already there |");
    println!("|---|---|---|---|---|---|");
    for (size, values) in SIZES {
        for (place, core) in [("the same", 0), ("another", 1)] {
            ways(size, values, place, core);
        }
    }
}

/// The round trips of a request of `values` values: through the socket, copied into the arena first, and made
/// in the arena to begin with. In turns.
fn ways(size: &str, values: usize, place: &str, core: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    stay_on(core);
    let (_daemon, socket) = daemon(folder.path(), false, (values, ANSWER));
    stay_on(0);
    let mut client = retry(|| Client::connect(&socket).ok());
    let stream = client.register(&registration()).expect("admitted");
    let shared = client.share(4 << 20).and_then(|mut arena| arena.place(&stream)).expect("a place");
    let input = vec![0.5f32; values];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for round in 0..ROUNDS + ROUNDS / 10 {
        for (way, times) in times.iter_mut().enumerate() {
            let began = now();
            let outcome = match way {
                0 => client.infer(&stream, &input),
                1 => shared.write(0, &input).map_err(Into::into).and_then(|()| client.infer_shared(&shared)),
                _ => client.infer_shared(&shared),
            };
            let took = began.elapsed();
            assert!(
                outcome.expect("the daemon answers").result().is_some(),
                "too slow for a deadline of 1 s"
            );
            if round >= ROUNDS / 10 {
                times.push(took);
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
        let at = |times: &[Duration]| times[(times.len() as f64 * share) as usize];
        let [inline, copied, there] = times.each_ref().map(|times| at(times));
        println!("| {size} | {place} | {name} | {inline:.1?} | {copied:.1?} | {there:.1?} |");
    }
}

fn registration() -> Registration {
    let builder = Registration::builder("null", "bench")
        .constraint(Constraint::any_miss(1, 2))
        .arrivals(ArrivalBound::window(200, Duration::from_millis(1)));
    builder.build().expect("valid")
}

/// Keeps this process on `core`, and those that it starts from now on. Where a thread is woken, on its waker's
/// core or on one that sleeps, decides between 8 and 45 µs on a virtual machine: it must not be left to chance.
fn stay_on(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).expect("the core exists");
}

/// Sorted round trips of the echo and of the daemon; `None` if the class is not permitted.
fn measure(realtime: bool, core: usize) -> Option<(Vec<Duration>, Vec<Duration>)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let echo_path = folder.path().join("echo.sock");
    let own = std::env::current_exe().expect("own path");
    stay_on(core);
    let mut command = match realtime {
        // The class and priority of the daemon's own threads that read requests.
        true => Command::new("chrt"),
        false => Command::new(&own),
    };
    if realtime {
        command.args(["--fifo", "20"]).arg(&own);
    }
    let mut echo = Server(command.arg("echo").arg(&echo_path).stderr(Stdio::null()).spawn().ok()?);
    std::thread::park_timeout(Duration::from_millis(200));
    if echo.0.try_wait().ok()?.is_some() {
        return None;
    }
    let (_daemon, socket) = daemon(folder.path(), realtime, (VALUES, VALUES));
    stay_on(0);

    let mut bare = connect(&echo_path);
    let mut client = retry(|| Client::connect(&socket).ok());
    let stream = client.register(&registration()).expect("admitted");
    let input = [0.5f32; VALUES];
    let (mut frame, mut back) = ([7u8; FRAME], [0u8; FRAME]);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        for _ in 0..PER_BLOCK {
            let began = now();
            bare.write_all(&frame).and_then(|()| bare.read_exact(&mut back)).expect("echo");
            theirs.push(began.elapsed());
            frame[0] = back[0];
        }
        for _ in 0..PER_BLOCK {
            let began = now();
            let outcome = client.infer(&stream, &input).expect("the daemon answers");
            ours.push(began.elapsed());
            assert!(outcome.result().is_some(), "a null request cannot miss a deadline of 1 s");
        }
        if block == 0 {
            // The first block warms both up.
            (ours, theirs) = (Vec::new(), Vec::new());
        }
    }
    ours.sort_unstable();
    theirs.sort_unstable();
    Some((theirs, ours))
}

fn print_rows(class: &str, place: &str, bare: Vec<Duration>, ours: Vec<Duration>) {
    for (name, share) in [("p50", 0.50), ("p90", 0.90), ("p99", 0.99)] {
        let at = |times: &[Duration]| times[(times.len() as f64 * share) as usize];
        let ratio = at(&ours).as_secs_f64() / at(&bare).as_secs_f64();
        let verdict = if ratio <= LIMIT { "kept" } else { "MISSED" };
        println!(
            "| {class} | {place} | {name} | {:.1?} | {:.1?} | {ratio:.2} | {LIMIT} {verdict} |",
            at(&bare),
            at(&ours)
        );
    }
}

/// Starts `weir serve` on a null service: a simulated engine that takes no time.
fn daemon(folder: &Path, realtime: bool, (input, output): (usize, usize)) -> (Server, std::path::PathBuf) {
    let text = format!(
        "[daemon]\nsocket = \"weir.sock\"\nprofile = \"null.profile.json\"\nrealtime = {realtime}\n\
         [[service]]\nname = \"null\"\nengine = \"simulated\"\ndeadline = \"1s\"\nguard = \"500ms\"\nhandover = \"1us\"\nqueue = 65536\n\
         max-batch = 1\nsimulated = {{ times = [\"0ms\"], input = {input}, output = {output} }}\n"
    );
    (serve(folder, &text), folder.join("weir.sock"))
}

fn echo(path: &Path) {
    let listener = UnixListener::bind(path).expect("bind");
    let (mut stream, _) = listener.accept().expect("accept");
    let mut buffer = [0u8; FRAME];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(&buffer).is_ok() {}
}

fn connect(path: &Path) -> UnixStream {
    retry(|| UnixStream::connect(path).ok())
}

/// A bench measures with the clock of the standard library.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
