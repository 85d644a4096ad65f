//! A figure of one model: how often each batch takes longer than a time, as measured and as fitted.

use rt_core::Span;
use sim::figure::{Figure, Line, Panel, Point, Series};

use weir_plan::profile::{Basis, BatchTimes, Entry, Runs, Tail};

/// Points of a curve at most.
const POINTS: usize = 200;

/// The figure of `entry` from the runs that it was made from, for batches of 1, 2, …, as SVG text.
pub(crate) fn figure(entry: &Entry, runs: &[Runs]) -> String {
    let panels = entry.batches.iter().zip(runs);
    let panels = panels.map(|(batch, runs)| panel(batch, &runs.times, entry.exceedance));
    let figure = Figure {
        title: format!("{} on {}: times of batches", entry.model, entry.engine),
        x: "time (ms)".to_owned(),
        y: "share of runs that take longer".to_owned(),
        log_y: true,
        panels: panels.collect(),
    };
    figure.svg()
}

fn panel(batch: &BatchTimes, times: &[u64], exceedance: f64) -> Panel {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let fitted = match batch.basis {
        Basis::Tail => "fitted tail",
        _ => "tail that was not used",
    };
    let mut series = vec![Series { name: "measured".to_owned(), points: measured(&sorted) }];
    if let Some(tail) = &batch.tail {
        let points = curve(tail, batch, exceedance);
        series.push(Series { name: fitted.to_owned(), points });
    }
    let line = |ns: u64, what: &str, dashed| Line {
        at: milliseconds(ns),
        label: format!("{what} {}", Span::from_nanos(ns)),
        dashed,
    };
    let lines = vec![line(batch.max_ns, "longest", true), line(batch.bound_ns, "P(b)", false)];
    Panel { title: format!("batch of {}: {} runs", batch.batch, batch.samples), series, lines }
}

/// The share of times above each of the longest ones, and above some of the others.
fn measured(sorted: &[u64]) -> Vec<Point> {
    let count = sorted.len();
    let mut points = Vec::new();
    let mut above = 0;
    while above < count {
        let time = sorted[count - 1 - above];
        // In the middle of its step, for the longest is not beyond all times to come.
        points.push(Point::new(milliseconds(time), (above as f64 + 0.5) / count as f64));
        // As many points to each decade.
        above = (above + 1).max((above as f64 * 10f64.powf(8.0 / POINTS as f64)) as usize);
    }
    points.reverse();
    points
}

/// The share that the tail expects to take longer, from where it begins down to the exceedance asked for.
fn curve(tail: &Tail, batch: &BatchTimes, exceedance: f64) -> Vec<Point> {
    let most = tail.excesses as f64 / batch.samples as f64;
    let steps = POINTS / 4;
    let share = |step: usize| most * (exceedance / most).min(1.0).powf(step as f64 / steps as f64);
    let point = |share: f64| Point::new(milliseconds(tail.quantile(share, batch.samples)), share);
    (0..=steps).map(|step| point(share(step))).collect()
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use weir_engine::{Backend, EngineKind, Isolation, ModelSpec, RunMode};
    use weir_plan::models::Timed;
    use weir_plan::profile::{Rule, Subject};

    /// A model that has no tensors and was never run.
    fn subject(max_batch: usize) -> Subject {
        let spec = ModelSpec {
            name: "m".to_owned(),
            path: "m.onnx".into(),
            sha256: "aa".to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            accuracy: 1.0,
            accuracy_by_class: Vec::new(),
            constants: Vec::new(),
            states: Vec::new(),
            external: Vec::new(),
        };
        let engine = EngineKind::Simulated;
        let backend = Backend { kind: engine, ..Backend::TRACT };
        let timed = Timed::of(&spec, None);
        let isolation = Isolation::Thread;
        Subject { timed, spec, staging: None, engine, backend, isolation, times: Vec::new(), max_batch }
    }

    /// Times with an exponential tail.
    fn draws(seed: u64) -> Vec<u64> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut uniform = || ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (0..3000).map(|_| (1e6 - 5e4 * uniform().ln()) as u64).collect()
    }

    #[test]
    fn a_figure_has_a_panel_for_each_batch_size_and_says_what_is_what() {
        let runs: Vec<Runs> = (0..2).map(|seed| Runs { times: draws(seed), ..Runs::default() }).collect();
        let rule = Rule::new(1e-4, 0.1, false).unwrap();
        let modes = [RunMode::Batched; 2];
        let entry = Entry::of_runs(&subject(2), &modes, (&runs, &[true; 2]), &rule, 1);
        let svg = figure(&entry, &runs);
        for text in ["batch of 1: 3000 runs", "batch of 2: 3000 runs", "measured", "fitted tail", "time (ms)"]
        {
            assert_eq!(svg.lines().filter(|line| *line == text).count(), 1, "{text}");
        }
        assert!(svg.contains("P(b) ") && svg.contains("longest ") && !svg.contains("no data"));
    }

    #[test]
    fn curves_fall_from_the_start_of_the_tail_to_the_bound() {
        let times = draws(1);
        let rule = Rule::new(1e-4, 0.1, false).unwrap();
        let entry =
            Entry::new(&subject(1), &[RunMode::Batched], (std::slice::from_ref(&times), &[true]), &rule, 1);
        let batch = &entry.batches[0];
        let curve = curve(&batch.tail.unwrap(), batch, 1e-4);
        let last = curve[curve.len() - 1];
        assert!((last.y / 1e-4 - 1.0).abs() < 1e-9 && last.x <= milliseconds(batch.bound_ns));
        assert!(curve.windows(2).all(|pair| pair[0].x < pair[1].x && pair[0].y > pair[1].y));
        let mut sorted = times;
        sorted.sort_unstable();
        let points = measured(&sorted);
        assert!(points.len() > 50 && points.len() < 3000, "{}", points.len());
        assert_eq!(points[points.len() - 1].x, milliseconds(batch.max_ns));
        assert!(points.windows(2).all(|pair| pair[0].x <= pair[1].x && pair[0].y > pair[1].y));
    }
}
