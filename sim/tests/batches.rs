//! Batches that pay: `weir` beside the best rival where batch times vary, with and without a promise in force.

use sim::PolicyKind;
use sim::experiment::{Contender, Data, Experiment, Quantity};

const BATCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/batches.toml");

/// Goal: without a promise never below the best rival in goodput nor above it in misses, by more than 2 %, at 0.25 to 4
/// times the capacity; with one, by no more than 5 % below the capacity.
#[test]
fn weir_is_never_far_below_the_best_rival() {
    let text = std::fs::read_to_string(BATCHES).expect("a file");
    let mut experiment = Experiment::parse(&text, &Data::default()).expect("an experiment");
    (experiment.runs, experiment.requests) = (1, 10_000);
    let results = experiment.run(&|| {}).expect("results");
    assert!(results.broken().is_empty(), "a constraint was violated and nothing announced");
    let weir = Contender::Policy(PolicyKind::Weir);
    let (mut compared, mut failed) = (0, Vec::new());
    for quantity in [Quantity::Goodput, Quantity::Misses] {
        for beside in results.beside(weir, quantity) {
            let cell = beside.cell;
            let promised = cell.system.ends_with("promised");
            if promised && cell.x >= 1.0 {
                continue;
            }
            compared += 1;
            if beside.better_by < if promised { -5.0 } else { -2.0 } {
                let (own, best) = beside.means;
                let told = format!("{quantity}: {own:.4}, {} {best:.4}", beside.rival.policy);
                failed.push(format!("{} at {}: {told} ({:+.1})", cell.system, cell.x, beside.better_by));
            }
        }
    }
    assert_eq!(compared, 2 * (6 * 9 + 6 * 4), "every cell is compared");
    assert!(failed.is_empty(), "{} of {compared} cells fail:\n{}", failed.len(), failed.join("\n"));
}
