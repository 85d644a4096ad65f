//! What the process boundary costs: the same model and batch, run on a worker's thread and in a worker process
//! of one daemon, in turns. The model is simulated and takes no time; its answer repeats the request, so that
//! every byte is read and written where the model runs.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Server, retry, serve};
use weir_client::blocking::Client;
use weir_client::{Outcome, Registration, StreamInfo};

/// Runs of each kind; the two take turns, so that a disturbance of the machine falls on both.
const RUNS: usize = 5_000;
/// At most this much at the median, for requests of either size.
const LIMIT: Duration = Duration::from_micros(60);
/// Bytes each way, with their name.
const SIZES: [(&str, usize); 2] = [("1 KB", 1 << 10), ("1 MB", 1 << 20)];

fn main() {
    println!("what a batch takes as its worker sees it, {RUNS} requests each\n");
    println!("| class | worker's core | pause | bytes each way | | thread | process | added | limit |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for realtime in [false, true] {
        for core in [None, Some(0)] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let (_daemon, mut client) = daemon(folder.path(), realtime, core);
            for pause in [Duration::ZERO, Duration::from_millis(1)] {
                for (name, bytes) in SIZES {
                    let times = measure(&mut client, bytes / 4, pause);
                    print_rows(&[class(realtime), place(core), &format!("{pause:?}"), name], times);
                }
            }
        }
    }
}

fn class(realtime: bool) -> &'static str {
    if realtime { "SCHED_FIFO" } else { "SCHED_OTHER" }
}

fn place(core: Option<u32>) -> &'static str {
    if core.is_some() { "the same for both" } else { "the kernel's choice" }
}

/// Sorted times of the runs in a thread and in a process.
fn measure(client: &mut Client, values: usize, pause: Duration) -> [Vec<Duration>; 2] {
    let streams = ["thread", "process"].map(|isolation| {
        let registration = Registration::builder(format!("{isolation}-{values}"), "bench");
        client.register(&registration.build().expect("valid")).expect("admitted")
    });
    let input = vec![0.5f32; values];
    let mut times = [Vec::new(), Vec::new()];
    let warm_up = RUNS / 10;
    for run in 0..RUNS + warm_up {
        for (stream, times) in streams.iter().zip(&mut times) {
            let took = once(client, stream, &input);
            if run >= warm_up {
                times.push(took);
            }
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
    }
    streams.iter().for_each(|stream| client.unregister(stream).expect("given up"));
    times.iter_mut().for_each(|times| times.sort_unstable());
    times
}

fn once(client: &mut Client, stream: &StreamInfo, input: &[f32]) -> Duration {
    match client.infer(stream, input).expect("the daemon answers") {
        Outcome::Result(result) => result.run,
        Outcome::Miss(miss) => panic!("a null request cannot miss a deadline of 10 s: {miss:?}"),
    }
}

fn print_rows(what: &[&str], [thread, process]: [Vec<Duration>; 2]) {
    for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
        let at = |times: &[Duration]| times[(times.len() as f64 * share) as usize];
        let added = at(&process).saturating_sub(at(&thread));
        let verdict = match name {
            "p50" if added <= LIMIT => format!("{LIMIT:?} kept"),
            "p50" => format!("{LIMIT:?} MISSED"),
            _ => String::new(),
        };
        let (thread, process) = (at(&thread), at(&process));
        println!(
            "| {} | {name} | {thread:.1?} | {process:.1?} | {added:.1?} | {verdict} |",
            what.join(" | ")
        );
    }
}

/// Starts `weir serve` on a service of each size and each isolation.
fn daemon(folder: &Path, realtime: bool, core: Option<u32>) -> (Server, Client) {
    let cores = core.map(|core| format!("cores = [{core}]\n")).unwrap_or_default();
    let mut text = format!(
        "[daemon]\nsocket = \"s\"\nprofile = \"profile.json\"\nrealtime = {realtime}\nmax-pending = 8388608\n"
    );
    for values in SIZES.map(|(_, bytes)| bytes / 4) {
        for isolation in ["thread", "process"] {
            text += &format!(
                "[[service]]\nname = \"{isolation}-{values}\"\nengine = \"simulated\"\nisolation = \"{isolation}\"\n{cores}\
                 deadline = \"10s\"\nguard = \"5s\"\nmax-batch = 1\n\
                 simulated = {{ times = [\"0ms\"], input = {values}, output = {values} }}\n"
            );
        }
    }
    let server = serve(folder, &text);
    (server, retry(|| Client::connect(folder.join("s")).ok()))
}
