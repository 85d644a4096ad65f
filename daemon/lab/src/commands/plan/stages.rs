//! A figure of a pipeline: what each stage adds to the time of a request, and what is left of the deadline.

use std::path::Path;

use anyhow::{Context, Result};
use rt_core::Span;
use sim::figure::{Figure, Line, Panel, Point, Series};

use super::place_of;
use weir_os::pipe::say;
use weir_plan::plan::Plan;

/// Draws the stages of the pipeline `name` along time, each from the end of what is before it on.
pub(super) fn draw(plan: &Plan, name: &str, output: &Path) -> Result<()> {
    let names = plan.services.iter().map(|service| service.config.name.as_str());
    let service = &plan.services[place_of("--pipeline = ", name, names)?];
    let pipeline = service.pipeline.as_ref();
    let pipeline = pipeline.with_context(|| format!("--pipeline = {name}: must be a [[pipeline]]"))?;
    let carried = service.carried();
    let carried = carried.with_context(|| format!("--pipeline = {name}: nothing is promised there"))?;
    let ms = |span: Span| span.as_secs_f64() * 1e3;
    let level =
        |level: usize, from: Span, to: Span| [from, to].map(|at| Point::new(ms(at), level as f64)).to_vec();
    let (mut ends, mut series) = (Vec::<Span>::new(), Vec::new());
    for (i, (stage, &adds)) in pipeline.stages.iter().zip(&carried.admission.responses).enumerate() {
        let begin = stage.config.after.most(&ends);
        let (end, workers) = (begin + adds, stage.runs.workers());
        ends.push(end);
        let (batch, time) = (workers.batch, workers.batch_time());
        let name = &stage.config.runs.name;
        let label = format!("{} {name}: {} × B = {batch} in {time}, adds {adds}", i + 1, workers.count);
        series.push(Series { name: label, points: level(i + 1, begin, end) });
    }
    let (bound, deadline) = (carried.admission.bound, service.config.deadline);
    let slack = deadline.saturating_sub(bound);
    series.push(Series { name: format!("0 left: {slack}"), points: level(0, bound, deadline) });
    let line = |at: Span, label: &str, dashed| Line { at: ms(at), label: format!("{label} {at}"), dashed };
    let figure = Figure {
        title: format!("pipeline {name}: all of it within {bound} of {deadline}"),
        x: "ms from the arrival of a request that must be served".to_owned(),
        y: "stage".to_owned(),
        log_y: false,
        panels: vec![Panel {
            title: String::new(),
            series,
            lines: vec![line(bound, "bound", true), line(deadline, "deadline", false)],
        }],
    };
    planner::write_atomically(output, figure.svg().as_bytes())
        .with_context(|| output.display().to_string())?;
    say!("{name}: all of it within {bound}, {slack} left of the deadline; drawn in {}", output.display());
    Ok(())
}
