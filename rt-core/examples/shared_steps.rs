//! Steps of a device that sixteen services share, for callgrind: `tests/bench/instructions.sh` counts their instructions; with `mixed`,
//! of batches that do not end in the order in which they began.

#[path = "../benches/shared/mod.rs"]
mod shared;

use rt_core::sharing::Rule;
use shared::Shared;

fn main() {
    let mixed = std::env::args().any(|argument| argument == "mixed");
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("turns or earliest, workers, waiting requests, steps, [mixed]");
    let rule = match next().as_str() {
        "turns" => Rule::Turns,
        _ => Rule::Earliest,
    };
    let [workers, length, steps] = [(); 3].map(|()| next().parse().expect("a number"));
    let mut shared = Shared::new(rule, workers, length, mixed);
    (0..steps).for_each(|_| shared.step());
    shared.check();
}
