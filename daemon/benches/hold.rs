//! How long one thread holds the scheduler of a service with many streams and workers: while streams are registered, while they
//! are served, while another one takes over with all of them, and while they are given up. What is measured is the daemon's own
//! `lock_held_ns`, the longest hold since its start or, of who has taken over, since then.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{retry, serve};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{Answer, ArrivalBound, Constraint, Registration, StreamInfo};

/// Streams, and workers of the service.
const SIZES: [(usize, usize); 4] = [(1, 1), (64, 4), (256, 16), (1024, 64)];
/// Requests at least, a few at a time.
const REQUESTS: usize = 20_000;
const AT_ONCE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    println!("the longest hold of the scheduler, {REQUESTS} requests or more\n");
    println!(
        "| streams | workers | once all are registered | once all are served | taken over | once all are given up |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for (streams, workers) in SIZES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let _daemon = serve(folder.path(), &config(streams, workers, "1h"));
        let mut client = retry(|| Client::connect(folder.path().join("s")).ok());
        let streams: Vec<_> = (0..streams).map(|n| register(&mut client, n)).collect();
        let registered = held(&mut client);
        let rounds = REQUESTS.div_ceil(streams.len());
        for _ in 0..rounds {
            streams.chunks(AT_ONCE).for_each(|some| ask(&mut client, some));
        }
        let served = held(&mut client);
        take_over(folder.path(), &config(streams.len(), workers, "30m"));
        let taken_over = held(&mut client);
        for stream in &streams {
            client.submit(stream, &[0.0]).expect("submitted");
            client.unregister(stream).expect("given up");
        }
        let given_up = held(&mut client);
        let count = streams.len();
        println!(
            "| {count} | {workers} | {registered:.1?} | {served:.1?} | {taken_over:.1?} | {given_up:.1?} |"
        );
    }
}

/// Every eighth stream is promised something.
fn register(client: &mut Client, n: usize) -> StreamInfo {
    let registration = Registration::builder("null", format!("stream{n}"));
    let registration = match n % 8 {
        0 => registration
            .constraint(Constraint::any_miss(5, 10))
            .arrivals(ArrivalBound::window(64, Duration::from_secs(1))),
        _ => registration,
    };
    client.register(&registration.build().expect("valid")).expect("a stream")
}

fn ask(client: &mut Client, streams: &[StreamInfo]) {
    for stream in streams {
        client.submit(stream, &[0.0]).expect("submitted");
    }
    for _ in streams {
        let answer = client.recv_timeout(PATIENCE).expect("the connection stays");
        assert!(matches!(answer, Some(Answer::Result(..) | Answer::Miss(..))), "{answer:?}");
    }
}

fn held(client: &mut Client) -> Duration {
    let status: Value = serde_json::from_str(&client.status().expect("a status")).expect("JSON");
    Duration::from_nanos(status["services"][0]["lock_held_ns"].as_u64().expect("a time"))
}

/// Has the daemon serve `config` from now on.
fn take_over(folder: &Path, config: &str) {
    std::fs::write(folder.join("weir.toml"), config).expect("config written");
    let mut reload = Command::new(env!("CARGO_BIN_EXE_weir"));
    let reloaded = reload.arg("reload").arg("--socket").arg(folder.join("s")).stdout(Stdio::null()).status();
    assert!(reloaded.expect("weir runs").success(), "reload");
}

fn config(streams: usize, workers: usize, deadline: &str) -> String {
    format!(
        "[daemon]\nsocket = \"s\"\nprofile = \"profile.json\"\nbus = \"off\"\nclient-streams = 1024\n\
         [[service]]\nname = \"null\"\nengine = \"simulated\"\nisolation = \"thread\"\ndeadline = \"{deadline}\"\nguard = \"5s\"\n\
         simulated = {{ times = [\"0ms\"], input = 1, output = 1 }}\nmax-batch = 1\nqueue = 65536\n\
         streams = {streams}\nworkers = {workers}\n"
    )
}
