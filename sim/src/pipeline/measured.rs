//! Loki's own numbers, from the profiles that its authors measured, which are read from `$WEIR_DATA/loki`.

use std::path::Path;

use crate::experiment::{Data, Experiment};

use super::*;

/// The cluster of the shipped experiment, if the measurements are there.
fn shipped() -> Option<Cluster> {
    let Some(folder) = std::env::var_os("WEIR_DATA") else {
        eprintln!("skipped: WEIR_DATA does not say where the measurements are");
        return None;
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/pipelines-loki.toml");
    let text = std::fs::read_to_string(file).expect("the experiment");
    let experiment = Experiment::parse(&text, &Data(Some(folder.into()))).expect("an experiment");
    Some(experiment.cluster("cars").expect("the system").clone())
}

/// Sources a second at which 20 servers are full: with the most accurate detector and classifier, with the fastest classifier
/// behind that detector, and with the fastest of both.
#[test]
fn hardware_and_accuracy_scaling_end_where_the_program_says() {
    let Some(cluster) = shipped() else { return };
    let most = |variants: [usize; 2]| cluster.most(&variants, 1.0).expect("fast enough").0;
    let best = cluster.most_accurate();
    assert_eq!(most([best[0], best[1]]).round(), 208.0);
    assert_eq!(most([best[0], 0]).round(), 353.0);
    assert_eq!(most([0, 0]).round(), 2306.0);
    // Of the 20 the program plans with 18.
    let fewer = Cluster { workers: 18, ..cluster.clone() };
    let most = |variants: [usize; 2]| fewer.most(&variants, 1.0).expect("fast enough").0.round();
    assert_eq!([most([best[0], best[1]]), most([best[0], 0]), most([0, 0])], [191.0, 311.0, 2030.0]);
    // No other plan carries more: where the fastest are full, so is every mixture.
    assert!(cluster.plan(2305.5, 1.0).expect("solved").is_some());
    assert_eq!(cluster.plan(2306.0, 1.0).expect("solved"), None);
    // The most accurate plan gives up the best detector before the fastest classifier is all that is left behind it.
    let plan = cluster.plan(340.0, 1.0).expect("solved").expect("carried");
    let detector = |post: &cluster::Post| post.model.stage == 0 && post.model.variant != best[0];
    assert!(plan.each().any(|post| detector(&post)) && plan.accuracy < 0.99, "{plan:?}");
}
