//! Simulates so many requests once, for counting instructions and memory: `requests PROCESS BATCH COUNT`.

#[path = "../benches/requests/mod.rs"]
mod requests;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [process, batch, count] = &arguments[..] else { panic!("usage: requests PROCESS BATCH COUNT") };
    let (batch, count) = (batch.parse().expect("a batch size"), count.parse().expect("a count"));
    let results = requests::experiment(process, batch, count).run(&|| {}).expect("a run");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    let misses = 100.0 * results.cells[0].estimates[0].mean;
    println!("{count} requests, {misses:.1} % missed, peak memory {peak}");
}
