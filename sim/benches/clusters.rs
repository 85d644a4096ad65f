//! How long plans for a cluster take as it grows, and what promises cost on it: two tables, and a figure of the first.
//!
//! `WEIR_DATA=FOLDER cargo bench -p sim --bench clusters`, where the profiles lie that the authors of Proteus measured; without them
//! there is nothing to plan. The figure goes where `WEIR_FIGURES` says, if it does.

use std::path::Path;
use std::time::Duration;

use placement::problem::Promise;
use placement::{Outcome, Placed, Problem, place};
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, Span};
use sim::experiment::{Data, Experiment};
use sim::figure::{Figure, Panel, Point, Series};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/proteus-cluster.toml");
/// How long a search may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Of the most that fits on 40 devices, for each 40 of them.
const LOADS: [f64; 2] = [0.5, 0.95];

fn main() {
    let Some(folder) = std::env::var_os("WEIR_DATA") else {
        println!("nothing measured: WEIR_DATA names no folder of the authors' profiles");
        return;
    };
    let text = std::fs::read_to_string(Path::new(FILE)).expect("shipped");
    let experiment = Experiment::parse(&text, &Data(Some(folder.into()))).expect("an experiment");
    let (_, cluster, means) = experiment.clusters().next().expect("a cluster");
    growth(&cluster.problem, &means[0]);
    promises(&cluster.problem, &means[0]);
}

/// The problem with `factor` times the demand of `means`, which begin anew where there are more services.
fn demanding(problem: &Problem, means: &[f64], factor: f64) -> Problem {
    let mut problem = problem.clone();
    for (s, service) in problem.services.iter_mut().enumerate() {
        service.demand = means[s % means.len()] * factor;
    }
    problem
}

/// Which multiple of the demand just fits.
fn most(problem: &Problem, means: &[f64]) -> f64 {
    match place(&demanding(problem, means, 1e4), LIMIT).map(|placed| placed.outcome) {
        Ok(Outcome::Demand { factor, .. }) => factor * 1e4,
        other => panic!("ten thousand times the demand: {other:?}"),
    }
}

fn gap(placed: &Placed) -> Option<f64> {
    match &placed.outcome {
        Outcome::Fits { plan, bound } => Some((bound - plan.accuracy).max(0.0)),
        _ => None,
    }
}

fn growth(problem: &Problem, means: &[f64]) {
    println!("| devices | families | variants | load | s | gap, points |\n|---:|---:|---:|---:|---:|---:|");
    let mut series: Vec<Series> = Vec::new();
    let fits = most(problem, means);
    let sizes = [20, 40, 80, 160, 320, 640, 1000].map(|devices| (devices, 9u32));
    let families = [18, 60].map(|families| (160, families));
    for (devices, services) in sizes.into_iter().chain(families) {
        let mut grown = problem.clone();
        for (i, class) in grown.classes.iter_mut().enumerate() {
            class.1 = if i == 0 { devices / 2 } else { devices / 4 };
        }
        let copy = |s: usize| {
            let mut service = problem.services[s % problem.services.len()].clone();
            service.name = format!("{} {}", service.name, s / problem.services.len());
            service
        };
        grown.services = (0..services as usize).map(copy).collect();
        let variants: usize = grown.services.iter().map(|service| service.variants.len()).sum();
        let all = fits * f64::from(devices) / 40.0 * problem.services.len() as f64 / f64::from(services);
        for load in LOADS {
            let asked = demanding(&grown, means, all * load);
            let placed = place(&asked, LIMIT).expect("an answer");
            let seconds = placed.took.as_secs_f64();
            let told = gap(&placed).map_or_else(|| "no plan".to_owned(), |gap| format!("{gap:.4}"));
            println!("| {devices} | {services} | {variants} | {load} | {seconds:.3} | {told} |");
            if services == 9 {
                let name = format!("load {load}");
                let point = Point::new(f64::from(devices), seconds);
                match series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series { name, points: vec![point] }),
                }
            }
        }
    }
    if let Some(folder) = std::env::var_os("WEIR_FIGURES") {
        let figure = Figure {
            title: "Time to the best plan, nine families of 46 variants".to_owned(),
            x: "devices".to_owned(),
            y: "seconds".to_owned(),
            log_y: true,
            panels: vec![Panel { series, ..Panel::default() }],
        };
        std::fs::write(Path::new(&folder).join("placement-growth.svg"), figure.svg()).expect("written");
    }
}

fn promises(problem: &Problem, means: &[f64]) {
    println!(
        "\n| load | promised, burst | without | with | cost, points | s |\n|---:|---|---:|---:|---:|---:|"
    );
    let all = most(problem, means);
    for load in [0.3, 0.6, 0.9] {
        let asked = demanding(problem, means, all * load);
        let accuracy = |placed: &Placed| match &placed.outcome {
            Outcome::Fits { plan, .. } => Some(plan.accuracy),
            _ => None,
        };
        let free = accuracy(&place(&asked, LIMIT).expect("an answer")).expect("it fits");
        for (m, k) in [(5, 10), (2, 10), (0, 1)] {
            for burst in [1.2, 2.0] {
                let mut promised = asked.clone();
                for service in &mut promised.services {
                    // So many times the mean in any tenth of a second.
                    let length = Span::from_millis(100);
                    let count = (service.demand * burst / 10.0).ceil().max(1.0) as u64;
                    let bound = ArrivalBound::window(count, length).expect("in range");
                    let constraint = Constraint::any_miss(m, k).expect("in range");
                    service.promise = Some(Promise {
                        curve: ArrivalCurve::new(&[bound]).expect("in range"),
                        density: constraint.density(),
                        windows: vec![(count, length)],
                        m,
                        k,
                    });
                }
                let placed = place(&promised, LIMIT / 2).expect("an answer");
                // What is said of a case in the last moment may be said for want of time.
                let late = placed.took > LIMIT / 3;
                let (with, cost) = match (&placed.outcome, accuracy(&placed)) {
                    (_, Some(with)) => (format!("{with:.3}"), format!("{:.3}", free - with)),
                    _ if late => ("no plan in time".to_owned(), String::new()),
                    (Outcome::Promises { .. }, _) => ("promises do not fit".to_owned(), String::new()),
                    (Outcome::Demand { factor, .. }, _) => {
                        (format!("{factor:.2} of the demand fits"), String::new())
                    }
                    _ => ("not known".to_owned(), String::new()),
                };
                println!(
                    "| {load} | ({m},{k}), {burst} | {free:.3} | {with} | {cost} | {:.2} |",
                    placed.took.as_secs_f64()
                );
            }
        }
    }
}
