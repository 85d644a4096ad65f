//! What selection among variants is worth: for people, as JSON and as a picture.

use std::path::Path;

use anyhow::{Context, Result};
use planner::selection::{Expected, Planned};
use serde_json::{Value, json};
use sim::figure::Cells;

use weir_os::pipe::{say, say_part};
use weir_plan::plan::{SelectionPlan, ServicePlan};

/// More rows are no longer told apart in a picture.
const ROWS: usize = 32;

/// Prints what to expect at each load, and of the best variant alone.
pub(super) fn print(service: &ServicePlan, selection: &SelectionPlan) {
    let max_miss = selection.inputs.max_miss;
    say!("{}: what selection among variants is worth, with random (Poisson) arrivals:", service.config.name);
    let headroom = service.lull().map_or_else(|_| "none".to_owned(), |lull| format!("{lull} in a lull"));
    say!(
        "  certified {:.1} requests/s in all; headroom for slower variants: {headroom}",
        selection.rate_per_s
    );
    say!("  expected if at most {} % may miss, before the shield forbids anything:", 100.0 * max_miss);
    say!("    {:>5} {:>11} {:>8} {:>9}   best variant alone", "load", "requests/s", "right", "missed");
    for load in &selection.loads {
        say_part!("    {:>4.0}% {:>11.1} ", 100.0 * load.part, load.rate_per_s);
        let Some(planned) = &load.planned else {
            say!("more than the base can carry: it answers alone");
            continue;
        };
        let share = |e: Expected| format!("{:>7.2}% {:>8.4}%", 100.0 * e.accuracy, 100.0 * e.missed);
        match planned.best_alone(max_miss) {
            Some((best, alone)) => {
                say!("{}   {} {}", share(planned.expected), service.variants[best].spec.name, share(alone));
            }
            None => say!("{}", share(planned.expected)),
        }
    }
}

/// The same as JSON.
pub(super) fn json(service: &ServicePlan, selection: &SelectionPlan) -> Value {
    let expected = |e: &Expected| json!({ "accuracy": e.accuracy, "missed": e.missed });
    let max_miss = selection.inputs.max_miss;
    let loads = selection.loads.iter().map(|load| {
        let planned = load.planned.as_ref();
        let best = planned.and_then(|p| p.best_alone(max_miss)).map(|(best, _)| best);
        json!({
            "part": load.part,
            "rate_per_s": load.rate_per_s,
            "expected": planned.map(|p| expected(&p.expected)),
            "alone": planned.map(|p| p.alone.iter().map(|a| a.as_ref().map(expected)).collect::<Vec<_>>()),
            "best_alone": best.map(|best| &service.variants[best].spec.name),
        })
    });
    json!({
        "max_miss": max_miss,
        "rate_per_s": selection.rate_per_s,
        "loads": loads.collect::<Vec<_>>(),
    })
}

/// Draws the table for the load nearest to this part of the whole rate.
pub(super) fn draw(service: &ServicePlan, selection: &SelectionPlan, part: f64, path: &Path) -> Result<()> {
    let planned = selection.nearest(part).context("no load is planned: the base cannot carry any")?;
    let svg = cells(service, planned).svg();
    planner::write_atomically(path, svg.as_bytes())
        .with_context(|| format!("{}: cannot be written", path.display()))
}

fn cells(service: &ServicePlan, planned: &Planned) -> Cells {
    let row = |row: &Vec<u8>| row.iter().map(|&wish| usize::from(wish)).collect();
    let variant =
        |v: &weir_plan::plan::VariantPlan| format!("{}, {:.1}% right", v.spec.name, 100.0 * v.spec.accuracy);
    Cells {
        title: format!(
            "{}: variants wished for at {:.1} requests/s",
            service.config.name, planned.rate_per_s
        ),
        x: "time left for the earliest of the batch, less the guard (ms)".to_owned(),
        width: planned.bin.as_secs_f64() * 1e3,
        y: "requests in the batch and waiting".to_owned(),
        names: service.variants.iter().map(variant).collect(),
        rows: planned.wishes.iter().take(ROWS).map(row).collect(),
    }
}
