//! How the certified rate grows with boxes, and what splitting a stream over several fronts costs: docs/cluster.md, "Several fronts".
//!
//!     cargo run -p rt-core --example fronts -- FRONT
//!
//! FRONT is how many requests one front can take in the time of a batch. On paper, by Theorem B; rt-core/tests/dealt.rs checks what it rests
//! on by simulation.

use rt_core::{Constraint, Density, largest_count};

/// Requests of a batch of a box.
const BATCH: usize = 8;

fn main() {
    let front: u64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("requests a batch time that one front can take");
    println!(
        "(m, K) = (3, 10), boxes alike with batches of {BATCH}, at most {front} requests a batch time through a front\n"
    );
    println!(
        "| boxes | certified requests a batch time | fronts | dealt | word-blind round robin |\n|---|---|---|---|---|"
    );
    let constraint = Constraint::any_miss(3, 10).expect("a constraint");
    for boxes in [1usize, 2, 5, 10, 20, 50, 100, 200, 500, 1000] {
        let one = largest_count(boxes, BATCH, constraint.density()).expect("a promise");
        // As many fronts as divide the boxes, so that each has as many.
        let is_enough =
            |fronts: &usize| boxes.is_multiple_of(*fronts) && one.div_ceil(*fronts as u64) <= front;
        let Some(fronts) = (1..=boxes).find(is_enough) else {
            println!("| {boxes} | {one} | a front cannot take what one box computes | | |");
            continue;
        };
        let (dealt, blind) = (dealt(boxes, fronts, constraint), blind(boxes, fronts, constraint));
        println!("| {boxes} | {one} | {fronts} | {dealt} | {blind} |");
    }
}

/// The most requests in the time of a batch whose shares fit the boxes of each front.
fn dealt(boxes: usize, fronts: usize, constraint: Constraint) -> u64 {
    let own = (boxes / fronts * BATCH) as u64;
    let fits = |count: u64| constraint.density().ceil_of(count).div_ceil(fronts as u64) <= own;
    let most = largest_count(boxes, BATCH, constraint.density()).unwrap_or(0) + 1;
    (0..=most).rev().find(|count| fits(*count)).unwrap_or(0)
}

/// The same where requests go to the fronts in turn and each keeps a word of its own, of the least density for which no window of the whole
/// misses too many.
fn blind(boxes: usize, fronts: usize, constraint: Constraint) -> u64 {
    let (misses, window) = (u64::from(constraint.misses()), u64::from(constraint.window()));
    let (each, more) = (window / fronts as u64, window % fronts as u64);
    let worst = |density: Density| {
        let missed =
            |count: u64| count - count * u64::from(density.numerator()) / u64::from(density.denominator());
        more * missed(each + 1) + (fronts as u64 - more) * missed(each)
    };
    let all = (1..=constraint.window()).flat_map(|q| (0..=q).filter_map(move |p| Density::new(p, q)));
    let least = all
        .filter(|density| worst(*density) <= misses)
        .min()
        .unwrap_or_else(|| Density::new(1, 1).expect("a share"));
    largest_count(boxes / fronts, BATCH, least).unwrap_or(0) * fronts as u64
}
