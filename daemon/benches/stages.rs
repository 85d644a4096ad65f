//! What a boundary between two stages of a pipeline costs: whole round trips through one stage and through several, one after the
//! other, of a simulated engine that takes no time; in one run, in turns. What a stage more adds is the boundary, with the making
//! of a request from a result and a batch of nothing.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Server, retry, serve};
use weir_client::blocking::Client;
use weir_client::{Registration, StreamInfo};

/// Values of a request and of a result.
const VALUES: usize = 64;
const BLOCKS: usize = 40;
const PER_BLOCK: usize = 250;
const STAGES: [usize; 3] = [1, 2, 4];
/// What a boundary may add, in the middle.
const LIMIT: Duration = Duration::from_micros(10);

fn main() {
    println!(
        "| threads run as | on the cores | | {} stage | {} stages | {} stages | a boundary | limit |",
        STAGES[0], STAGES[1], STAGES[2]
    );
    println!("|---|---|---|---|---|---|---|---|");
    for realtime in [false, true] {
        for cores in [&[0][..], &[0, 1]] {
            measure(realtime, cores);
        }
    }
}

fn measure(realtime: bool, cores: &[usize]) {
    let folders: Vec<_> = STAGES.iter().map(|_| tempfile::tempdir().expect("a temporary folder")).collect();
    stay_on(cores);
    let daemons = folders.iter().zip(STAGES).map(|(folder, stages)| daemon(folder.path(), realtime, stages));
    let _daemons: Vec<Server> = daemons.collect();
    stay_on(&[0]);
    let mut clients: Vec<(Client, StreamInfo)> = folders
        .iter()
        .map(|folder| {
            let mut client = retry(|| Client::connect(folder.path().join("weir.sock")).ok());
            let registration = Registration::builder("null", "bench").build().expect("valid");
            let stream = client.register(&registration).expect("registered");
            (client, stream)
        })
        .collect();
    let input = [0.5f32; VALUES];
    let mut times: [Vec<Duration>; STAGES.len()] = Default::default();
    for block in 0..=BLOCKS {
        for ((client, stream), times) in clients.iter_mut().zip(&mut times) {
            for _ in 0..PER_BLOCK {
                let began = now();
                let outcome = client.infer(stream, &input).expect("the daemon answers");
                let took = began.elapsed();
                assert!(outcome.result().is_some(), "too slow for a deadline of 1 s");
                // The first block warms all up.
                if block > 0 {
                    times.push(took);
                }
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let class = if realtime { "SCHED_FIFO, if permitted" } else { "SCHED_OTHER" };
    for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
        let [one, two, four] = times.each_ref().map(|times| times[(times.len() as f64 * share) as usize]);
        let boundary = four.saturating_sub(one) / (STAGES[2] - STAGES[0]) as u32;
        let verdict = match name {
            "p50" if boundary <= LIMIT => "10 µs kept",
            "p50" => "10 µs MISSED",
            _ => "",
        };
        println!(
            "| {class} | {cores:?} | {name} | {one:.1?} | {two:.1?} | {four:.1?} | {boundary:.1?} | {verdict} |"
        );
    }
}

/// Starts `weir serve` on a pipeline of so many null stages in a row.
fn daemon(folder: &Path, realtime: bool, stages: usize) -> Server {
    let mut text = format!(
        "[daemon]\nsocket = \"weir.sock\"\nprofile = \"null.profile.json\"\nrealtime = {realtime}\n\
         [[pipeline]]\nname = \"null\"\ndeadline = \"1s\"\nguard = \"50ms\"\n"
    );
    for stage in 0..stages {
        text += &format!(
            "[[pipeline.stage]]\nname = \"s{stage}\"\nengine = \"simulated\"\nhandover = \"1us\"\nmax-batch = 1\n\
             simulated = {{ times = [\"0ms\"], input = {VALUES}, output = {VALUES} }}\n"
        );
        if stage > 0 {
            text += &format!(
                "after = \"s{}\"\n[pipeline.stage.adapter]\ninputs.input = {{ pass = \"output\" }}\n",
                stage - 1
            );
        }
    }
    serve(folder, &text)
}

/// Keeps this process on these cores, and those that it starts from now on.
fn stay_on(cores: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    rustix::thread::sched_setaffinity(None, &set).expect("the cores exist");
}

/// A bench measures with the clock of the standard library.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
