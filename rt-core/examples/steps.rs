//! Runs `<steps>` steps of a scheduler whose queue holds `<queue-length>` requests, for counting instructions.

#[path = "../benches/steady/mod.rs"]
mod steady;

use std::process::ExitCode;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [length, steps] = numbers[..] else {
        eprintln!("usage: steps <queue-length> <steps>");
        return ExitCode::FAILURE;
    };
    let mut steady = steady::Steady::new(length as usize);
    let before = steady.polls;
    for _ in 0..steps {
        steady.step();
    }
    println!("{steps} steps at queue length {length}: {} polls", steady.polls - before);
    ExitCode::SUCCESS
}
