//! A picture of a box: of each device which services keep it busy, and for how much of the time.

use sim::figure::Cells;
use weir_plan::config::ModelChoice;
use weir_plan::place::{Part, Placement, Site};

/// Parts of a device's time that are told apart.
const PARTS: usize = 100;

/// The devices of each class one above the other, each with what of its time the mean load of each model takes, headroom included.
pub(super) fn picture(site: &Site, placement: &Placement) -> Cells {
    let classes = &site.placement().classes;
    let mut names: Vec<String> = Vec::new();
    // Of each class the devices that are taken, and what the shared ones are busy with.
    let mut rows: Vec<Vec<Vec<(usize, f64)>>> = vec![Vec::new(); classes.len()];
    let plans = placement.complete.iter().flat_map(|complete| &complete.plan.services);
    for (plan, spot) in plans.zip(&placement.spots) {
        for (runs, Part { placed, busy: parts, .. }) in
            spot.iter().flat_map(|spot| plan.running().zip(&spot.parts))
        {
            let mut busy: Vec<(usize, f64)> = Vec::new();
            for (variant, &part) in runs.variants.iter().zip(parts).filter(|(_, part)| **part > 0.0) {
                busy.push((names.len(), part));
                let model = match runs.config.model {
                    ModelChoice::Named(_) => variant.spec.name.clone(),
                    ModelChoice::Simulated { .. } => format!("{:.1} % right", 100.0 * variant.spec.accuracy),
                };
                let stage = match plan.stages() {
                    [] => String::new(),
                    _ => format!("/{}", runs.config.name),
                };
                names.push(format!("{}{stage}: {model}", plan.config.name));
            }
            let (class, devices) = (&mut rows[placed.class], placed.devices);
            if devices == 0 {
                class.resize(classes[placed.class].devices, Vec::new());
                class.iter_mut().for_each(|row| row.extend(busy.clone()));
            } else {
                class.extend((0..devices).map(|_| busy.clone()));
            }
        }
    }
    let mut from = 1;
    let mut spans = Vec::new();
    for (class, rows) in classes.iter().zip(&mut rows) {
        rows.resize(class.devices, Vec::new());
        spans.push(match class.devices {
            1 => format!("{from} {}", class.name),
            devices => format!("{from} to {} {}", from + devices - 1, class.name),
        });
        from += class.devices;
    }
    let row = |parts: Vec<(usize, f64)>| {
        let mut cells = vec![names.len(); PARTS];
        let mut at = 0.0;
        for (name, busy) in parts {
            let end: f64 = at + busy * PARTS as f64;
            let within = (at.round() as usize).min(PARTS)..(end.round() as usize).min(PARTS);
            cells[within].fill(name);
            at = end;
        }
        cells
    };
    let rows = rows.into_iter().flatten().map(row).collect();
    Cells {
        title: format!("{}: what keeps each device busy", site.config().path.display()),
        x: "part of its time (%), by the mean load with headroom".to_owned(),
        y: format!("device: {}", spans.join(", ")),
        names,
        rows,
        width: 1.0,
    }
}
