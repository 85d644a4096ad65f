//! The second act: pictures with several digits are read as a whole by a pipeline, within one deadline; then busier ones come than
//! were declared.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use weir_client::Registration;

use super::room::Room;
use super::verdict::Verdict;
use super::{ABOVE, AGAIN, BELOW, SETTLE, concluded, watched};
use crate::commands::load::{declaration, demand};
use crate::load::{self, End, Inputs, Phase, Scenes, Schedule};
use weir_os::clock;
use weir_os::pipe::say;
use weir_plan::plan::ServicePlan;
use weir_plan::text::print_plan;

/// What breaks the declaration.
const BUSY: &str = "what was beyond the fan-out";

/// Plays it for about so many seconds, and says how it went; whether the promise held.
///
/// # Errors
/// If it cannot be played to the end.
pub(super) fn play(models: &Path, config: (&str, &str), seconds: f64, stop: &AtomicBool) -> Result<bool> {
    let folder = models.parent().context("the manifest lies in a folder")?;
    let scenes = Scenes::heldout(folder)?;
    let mut room = Room::new(config, models)?;
    let (_, plan) = room.plan()?;
    say!("");
    print_plan(&plan);
    let load = load(&plan.services[0], scenes, seconds)?;
    let played = room.serve().and_then(|(client, daemon)| {
        let report = watched(client, &load, stop);
        drop(daemon);
        Ok(vec![report?])
    });
    concluded(&mut room, stop, played, |reports| Verdict::of(&reports[0], None, BUSY))
}

/// As many scenes as are promised, of few digits; then the same number of those with more than are declared; then few again.
fn load(service: &ServicePlan, scenes: Scenes, seconds: f64) -> Result<load::Plan> {
    let rate = service.rate.as_ref().and_then(|rate| rate.per_second());
    let rate = rate.context("config/scenes.toml: no room for a stream")?;
    let pipeline = service.pipeline.as_ref().context("config/scenes.toml: no pipeline")?;
    let most = pipeline.stages.iter().map(|stage| stage.config.fan_out as usize).max().unwrap_or(1);
    // What a detector finds where nothing is counts too: one less than declared is surely within.
    let few = scenes.digits.partition_point(|digits| digits.len() < most);
    let many = scenes.digits.partition_point(|digits| digits.len() <= most);
    let count = scenes.digits.len();
    say!(
        "\none stream declares {rate:.1} scenes/s and sends {:.1}/s: first those with fewer than {most} digits, then those with more than \
         {most},\nwhich is more than was declared of any, then those with fewer again",
        0.95 * rate
    );
    let (calm, busy) = (0..few, many..count);
    let phase = |name, of: &std::ops::Range<usize>, end| {
        Ok(Phase { name, schedule: Schedule::constant(0.95 * rate)?, end, of: Some(of.clone()) })
    };
    let after = |share: f64| End::After(Duration::from_secs_f64(seconds * share));
    let settled = End::PromiseHolds { at_most: SETTLE };
    let phases: Result<Vec<_>> = [
        phase(BELOW, &calm, after(0.4)),
        phase("settling", &calm, settled),
        phase(ABOVE, &busy, after(0.2)),
        phase("recovery", &calm, settled),
        phase(AGAIN, &calm, after(0.4)),
    ]
    .into_iter()
    .collect();
    let (config, jitter) = (&service.config, clock::duration(service.config.jitter));
    let builder = Registration::builder(&config.name, "camera").arrivals(declaration(rate, jitter));
    let registration = demand(builder, &config.constraints).build()?;
    let constraints = config.constraints.clone();
    Ok(load::Plan {
        registration,
        constraints,
        inputs: Inputs::scenes(scenes),
        phases: phases?,
        classes: load::Classes::Own,
    })
}
