//! What a call costs by each way in and out: HTTP and gRPC, over TCP, TLS and a Unix socket, by the calls that `engine = "oip"` makes of a
//! null service; and where one front ends: requests a second, processor time and memory by the connections that are open.
//!
//! All in one run, in turns, so that what disturbs the machine falls on all. The callers share the processors with the daemon: what one
//! front could take with a core of its own is told by the processor time that it spends on a request.

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Server, retry, serve};
use weir_client::Registration;
use weir_client::blocking::Client;
use weir_engine::{
    Backend, DataType, Engine, EngineKind, ModelSpec, Remote, RunMode, Runner, TensorSpec, load,
};
use weir_oip::tls::ClientFiles;

/// Values of a request and of its answer: 256 bytes each way.
const VALUES: usize = 64;
/// The ways take turns in blocks.
const BLOCKS: usize = 40;
const PER_BLOCK: usize = 250;
/// For how long so many connections ask.
const SPELL: Duration = Duration::from_secs(2);
const CONNECTIONS: [usize; 4] = [1, 8, 64, 256];

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    write("box.pem", own.cert.pem());
    write("box.key", own.signing_key.serialize_pem());
    let ports: Vec<u16> = (0..4).map(|_| free()).collect();
    let open = format!("http = \"127.0.0.1:{}\"\ngrpc = \"127.0.0.1:{}\"", ports[0], ports[1]);
    let secure = format!(
        "http = \"127.0.0.1:{}\"\ngrpc = \"127.0.0.1:{}\"\ntls = {{ certificate = \"../box.pem\", key = \"../box.key\" }}",
        ports[2], ports[3]
    );
    let sockets = "http = \"unix:h\"\ngrpc = \"unix:g\"".to_owned();
    let start = |name: &str, doors: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("a folder");
        (null(&place, doors), place)
    };
    let ((plain, place), (_secure, _), (_local, local)) =
        (start("plain", &open), start("secure", &secure), start("local", &sockets));
    let ways = [
        ("HTTP, a Unix socket", format!("unix:{}", local.join("h").display())),
        ("gRPC, a Unix socket", format!("grpc+unix:{}", local.join("g").display())),
        ("HTTP", format!("http://127.0.0.1:{}", ports[0])),
        ("gRPC", format!("grpc://127.0.0.1:{}", ports[1])),
        ("HTTP, TLS", format!("https://127.0.0.1:{}", ports[2])),
        ("gRPC, TLS", format!("grpcs://127.0.0.1:{}", ports[3])),
    ];
    let ca = folder.path().join("box.pem");
    calls(&ways, &ca);
    println!();
    limit(&plain, &place, (&ways[2].1, &ways[3].1), &ca);
}

/// Whole calls by each way, in turns.
fn calls(ways: &[(&str, String)], ca: &Path) {
    let mut runners: Vec<_> = ways.iter().map(|(_, url)| retry(|| caller(url, ca))).collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); ways.len()];
    for block in 0..=BLOCKS {
        for (runner, times) in runners.iter_mut().zip(&mut times) {
            for _ in 0..PER_BLOCK {
                let began = now();
                runner.run(1).expect("an answer");
                times.push(began.elapsed());
            }
            if block == 0 {
                // The first block warms up.
                times.clear();
            }
        }
    }
    println!(
        "a call of {} bytes each way by `engine = \"oip\"`, {} calls a way\n",
        4 * VALUES,
        BLOCKS * PER_BLOCK
    );
    println!("| | p50 | p90 | p99 | p50, of HTTP's |\n|---|---|---|---|---|");
    times.iter_mut().for_each(|times| times.sort_unstable());
    let at = |times: &[Duration], share: f64| times[(times.len() as f64 * share) as usize];
    let base = at(&times[2], 0.5).as_secs_f64();
    for ((name, _), times) in ways.iter().zip(&times) {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| at(times, share));
        println!("| {name} | {p50:.1?} | {p90:.1?} | {p99:.1?} | {:.2} |", p50.as_secs_f64() / base);
    }
}

/// What a front takes by each way, with more and more connections that each wait for their answer.
fn limit(daemon: &Server, place: &Path, (http, grpc): (&str, &str), ca: &Path) {
    println!("each connection asks as soon as it has its answer, for {SPELL:.0?}\n");
    println!(
        "| way | connections | requests/s | processor time a request | a core could take | memory a connection |\n|---|---|---|---|---|---|"
    );
    for way in ["the socket", "HTTP", "gRPC"] {
        for count in CONNECTIONS {
            let socket = place.join("weir.sock");
            let ask = || -> Box<dyn FnMut() + Send> {
                if way == "the socket" {
                    let mut client = retry(|| Client::connect(&socket).ok());
                    let name = format!("bench-{:?}", std::thread::current().id());
                    let registration = Registration::builder("null", &name).build().expect("it fits");
                    let stream = client.register(&registration).expect("a stream");
                    return Box::new(move || {
                        drop(client.infer(&stream, &[0.0f32; VALUES]).expect("an answer"));
                    });
                }
                let mut runner = retry(|| caller(if way == "HTTP" { http } else { grpc }, ca));
                Box::new(move || runner.run(1).expect("an answer"))
            };
            let (before, connected) = (resident(daemon), Barrier::new(count + 1));
            let (asked, over) = (AtomicU64::new(0), AtomicBool::new(false));
            let (rate, spent, memory) = std::thread::scope(|scope| {
                for _ in 0..count {
                    scope.spawn(|| {
                        let mut ask = ask();
                        ask();
                        connected.wait();
                        while !over.load(Ordering::Relaxed) {
                            ask();
                            asked.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                connected.wait();
                let memory = resident(daemon).saturating_sub(before) / count as u64;
                let (began, at_first, ticks) = (now(), asked.load(Ordering::Relaxed), ticks(daemon));
                std::thread::park_timeout(SPELL);
                let (took, ended) = (began.elapsed(), asked.load(Ordering::Relaxed) - at_first);
                let spent = Duration::from_millis(10 * (self::ticks(daemon) - ticks)) / ended.max(1) as u32;
                over.store(true, Ordering::Relaxed);
                (ended as f64 / took.as_secs_f64(), spent, memory)
            });
            let most = 1.0 / spent.as_secs_f64().max(1e-9);
            println!("| {way} | {count} | {rate:.0} | {spent:.1?} | {most:.0}/s | {memory} KiB |");
        }
    }
}

/// Who calls the null service at `url`, over one connection.
fn caller(url: &str, ca: &Path) -> Option<Box<dyn Runner>> {
    let tensor = |name: &str| vec![TensorSpec::new(name, DataType::F32, &[VALUES])];
    let spec = ModelSpec {
        name: "null".to_owned(),
        path: "null".into(),
        sha256: String::new(),
        inputs: tensor("input"),
        outputs: tensor("output"),
        constants: Vec::new(),
        states: Vec::new(),
        external: Vec::new(),
        accuracy: 1.0,
        accuracy_by_class: Vec::new(),
    };
    let address: weir_engine::Address = url.parse().expect("an address");
    let tls = address.is_secure().then(|| ClientFiles { ca: ca.to_owned(), own: None });
    let remote = Remote {
        addresses: vec![address],
        model: "null".to_owned(),
        version: None,
        stream: None,
        timeout: Duration::from_secs(60),
        tls,
    };
    let backend = Backend { kind: EngineKind::Oip, remote: Some(remote), ..Backend::TRACT };
    load(Engine::Real { backend: &backend, modes: Some(&[RunMode::Batched]) }, &spec, 1).ok()
}

/// A daemon with a null service, and these doors.
fn null(place: &Path, doors: &str) -> Server {
    let text = format!(
        "[daemon]\nsocket = \"weir.sock\"\nprofile = \"null.profile.json\"\nrealtime = false\nbus = \"off\"\nmax-clients = 1024\n\
         [daemon.oip]\n{doors}\n\
         [[service]]\nname = \"null\"\nengine = \"simulated\"\ndeadline = \"10s\"\nguard = \"5s\"\nhandover = \"1us\"\nqueue = 512\nstreams = 512\n\
         max-batch = 1\nsimulated = {{ times = [\"0ms\"], input = {VALUES}, output = {VALUES} }}\n"
    );
    serve(place, &text)
}

/// Processor time of a daemon, in hundredths of a second.
fn ticks(daemon: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", daemon.0.id())).expect("its times");
    let fields: Vec<_> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
    // utime and stime: the 14th and 15th field, of which two came before.
    fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
}

/// Memory of a daemon, in KiB.
fn resident(daemon: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).expect("its status");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// A bench measures with the clock of the standard library.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
