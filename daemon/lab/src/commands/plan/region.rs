//! A figure of a device: how much of one service it can carry beside how much of another.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use planner::certify::{promised_per_s, region};
use sim::figure::{Figure, Line, Panel, Point, Series};

use weir_os::pipe::say;
use weir_plan::certificate::planned_on;
use weir_plan::plan::Plan;

/// Steps of the edge.
const POINTS: u64 = 48;

/// Draws the edge of what is admissible of the two services `names`, the others of their device as they are reserved.
pub(super) fn draw(plan: &Plan, names: &[String], output: &Path) -> Result<()> {
    let find = |name: &String| {
        let found = plan.services.iter().find(|service| service.config.name == *name);
        let shared = found.and_then(|service| service.shared.as_ref());
        shared.with_context(|| format!("--region = {name}: must be a service that shares a device"))
    };
    let [one, other] = names else { bail!("--region: two services are needed") };
    let (a, b) = (find(one)?, find(other)?);
    ensure!(one != other, "--region = {one} {other}: must be two services");
    ensure!(
        a.device.config.name == b.device.config.name,
        "--region = {one} {other}: they are on devices {} and {}",
        a.device.config.name,
        b.device.config.name
    );
    let (device, problem) = (&a.device, planned_on(plan, &a.device)?);
    let turns: Vec<u32> = device.sharing.services.iter().map(|service| service.turn).collect();
    let style = ProgressStyle::with_template("{bar:24} {pos} of {len} points of the edge: {msg}");
    let bar = ProgressBar::new(POINTS + 1).with_style(style.context("progress template")?);
    bar.set_message(format!("{one} and {other}"));
    let rule = (device.sharing.rule, &turns[..]);
    let edge = region(&problem, rule, (a.index, b.index), POINTS, &mut |point| bar.set_position(point));
    bar.finish_and_clear();
    ensure!(
        !edge.is_empty(),
        "--region = {one} {other}: each must have a reserved stream that is promised something"
    );
    let (x, y) = (promised_per_s(&problem, a.index), promised_per_s(&problem, b.index));
    let points: Vec<_> =
        edge.iter().map(|&(of_one, of_other)| Point::new(x * of_one, y * of_other)).collect();
    let figure = Figure {
        title: format!("device {}: what can be promised at once", device.config.name),
        x: format!("{one}, requests/s"),
        y: format!("{other}, requests/s"),
        log_y: false,
        panels: vec![Panel {
            title: String::new(),
            series: vec![
                Series { name: "edge".to_owned(), points },
                Series { name: "reserved".to_owned(), points: vec![Point::new(x, y)] },
            ],
            lines: vec![Line { at: x, label: format!("{one} as reserved"), dashed: true }],
        }],
    };
    planner::write_atomically(output, figure.svg().as_bytes())
        .with_context(|| output.display().to_string())?;
    let ((_, up), (right, _)) = (edge[0], edge[edge.len() - 1]);
    say!(
        "{one} without {other}: up to {:.1} requests/s, {other} without {one}: up to {:.1}",
        x * right,
        y * up
    );
    say!("written to {}", output.display());
    Ok(())
}
