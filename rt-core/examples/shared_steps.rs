//! Steps of a device that sixteen services share, for callgrind: `tests/bench/instructions.sh` counts their instructions.

#[path = "../benches/shared/mod.rs"]
mod shared;

use rt_core::sharing::Rule;
use shared::Shared;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("turns or earliest, workers, waiting requests, steps");
    let rule = match next().as_str() {
        "turns" => Rule::Turns,
        _ => Rule::Earliest,
    };
    let [workers, length, steps] = [(); 3].map(|()| next().parse().expect("a number"));
    let mut shared = Shared::new(rule, workers, length);
    (0..steps).for_each(|_| shared.step());
}
