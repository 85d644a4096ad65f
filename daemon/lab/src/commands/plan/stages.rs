//! A figure of a pipeline: what each stage adds to the time of a request, and what is left of the deadline.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rt_core::Span;
use sim::figure::{Figure, Line, Panel, Point, Series};

use super::place_of;
use weir_os::pipe::say;
use weir_plan::plan::{FusedPlan, PipelinePlan, Plan, ServicePlan};

/// Draws the stages of the pipeline `name` along time, each from the end of what is before it on.
pub(super) fn draw(plan: &Plan, name: &str, output: &Path) -> Result<()> {
    let names = plan.services.iter().map(|service| service.config.name.as_str());
    let service = &plan.services[place_of("--pipeline = ", name, names)?];
    let Drawn { series, bound } = match (&service.pipeline, &service.fused) {
        (Some(pipeline), _) => staged(service, pipeline)?,
        (_, Some(fused)) => on_device(service, fused),
        _ => bail!("--pipeline = {name}: must be a [[pipeline]]"),
    };
    let deadline = service.config.deadline;
    let slack = deadline.saturating_sub(bound);
    let left = Series { name: format!("0 left: {slack}"), points: level(0, bound, deadline) };
    let line = |at: Span, label: &str, dashed| Line { at: ms(at), label: format!("{label} {at}"), dashed };
    let figure = Figure {
        title: format!("pipeline {name}: all of it within {bound} of {deadline}"),
        x: "ms from the arrival of a request that must be served".to_owned(),
        y: "stage".to_owned(),
        log_y: false,
        panels: vec![Panel {
            title: String::new(),
            series: series.into_iter().chain([left]).collect(),
            lines: vec![line(bound, "bound", true), line(deadline, "deadline", false)],
        }],
    };
    planner::write_atomically(output, figure.svg().as_bytes())
        .with_context(|| output.display().to_string())?;
    say!("{name}: all of it within {bound}, {slack} left of the deadline; drawn in {}", output.display());
    Ok(())
}

/// A line for each stage, and when all is over at the latest.
struct Drawn {
    series: Vec<Series>,
    bound: Span,
}

/// Of stages with workers of their own, what each adds.
fn staged(service: &ServicePlan, pipeline: &PipelinePlan) -> Result<Drawn> {
    let carried = service.carried();
    let carried = carried
        .with_context(|| format!("--pipeline = {}: nothing is promised there", service.config.name))?;
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
    Ok(Drawn { series, bound: carried.admission.bound })
}

/// Of stages that one batch runs on a device: how long its sources wait, and what it takes at each stage, one behind the other.
fn on_device(service: &ServicePlan, fused: &FusedPlan) -> Drawn {
    let waits = service.shared.as_ref().map(|share| share.device.admission.start_within[share.index]);
    let mut end = waits.unwrap_or(Span::ZERO);
    let mut series = vec![Series { name: format!("1 waits: {end}"), points: level(1, Span::ZERO, end) }];
    for (i, stage) in fused.stages.iter().enumerate() {
        let requests = stage.most * service.workers().batch;
        let (begin, takes) = (end, fused.bound(i, requests));
        end = begin + takes;
        let name = format!("{} {}: up to {requests} in {takes}", i + 2, stage.runs.config.name);
        series.push(Series { name, points: level(i + 2, begin, end) });
    }
    Drawn { series, bound: end }
}

fn ms(span: Span) -> f64 {
    span.as_secs_f64() * 1e3
}

fn level(level: usize, from: Span, to: Span) -> Vec<Point> {
    [from, to].map(|at| Point::new(ms(at), level as f64)).to_vec()
}
