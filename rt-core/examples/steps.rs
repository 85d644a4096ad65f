//! Runs `<steps>` steps of a scheduler with `<workers>` workers whose queue holds `<queue-length>` requests, for counting
//! instructions; with `shielded`, behind a shield and with the variant of each batch selected.

#[path = "../benches/steady/mod.rs"]
mod steady;

use std::process::ExitCode;

use steady::Steady;

fn main() -> ExitCode {
    let shielded = std::env::args().any(|a| a == "shielded");
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [length, workers, steps] = numbers[..] else {
        eprintln!("usage: steps <queue-length> <workers> <steps> [shielded]");
        return ExitCode::FAILURE;
    };
    let mut steady =
        if shielded { Steady::shielded(length, workers, true) } else { Steady::new(length, workers) };
    let before = steady.polls;
    for _ in 0..steps {
        steady.step();
    }
    println!("{steps} steps, {workers} workers, queue length {length}: {} polls", steady.polls - before);
    ExitCode::SUCCESS
}
