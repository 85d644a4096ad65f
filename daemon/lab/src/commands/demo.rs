//! `weir demo`: a promise computed, kept, overrun and restored, on this machine with the shipped models.

mod beside;
mod room;
mod scenes;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weir_client::Registration;
use weir_client::blocking::Client;

use self::beside::Beside;
use self::room::Room;
use self::verdict::{Verdict, print_legend, print_table};
use super::load::{Live, declaration, demand};
use crate::load::{self, End, Inputs, Phase, Report, Schedule};
use weir::commands::stop_on_signals;
use weir_engine::manifest::Manifest;
use weir_os::clock;
use weir_os::pipe::say;
use weir_plan::plan::ServicePlan;
use weir_plan::profile::Profile;
use weir_plan::text::print_plan;

/// What is served in each act, but for its paths.
const CONFIGS: [(&str, &str); 2] = [
    ("demo.toml", include_str!("../../../../config/demo.toml")),
    ("scenes.toml", include_str!("../../../../config/scenes.toml")),
];
/// The promise holds again a second after the last breach unless breaches go on; then the demonstration goes on too.
const SETTLE: Duration = Duration::from_secs(5);

const BELOW: &str = "below";
const ABOVE: &str = "above";
const AGAIN: &str = "below again";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of load in the first act, and half as many in the second, shared by three phases each; profiling and recovery come on top
    #[arg(long, default_value_t = 24.0)]
    seconds: f64,
    /// The manifest of the shipped models
    #[arg(long, value_name = "PATH", default_value = "models/manifest.toml")]
    models: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    ensure!((1.0..=3600.0).contains(&args.seconds), "--seconds is {}, must be 1..=3600", args.seconds);
    let models = args.models.canonicalize().with_context(|| {
        format!(
            "{}: run in the project's folder, or tell the manifest's place with --models",
            args.models.display()
        )
    })?;
    let stop = stop_on_signals()?;
    let [first, second] = CONFIGS;
    let kept = overload(&models, first, args.seconds, &stop)?;
    let read = scenes::play(&models, second, args.seconds / 2.0, &stop)?;
    Ok(if kept && read { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first act: two services on one worker, one of which is overloaded. Whether the promise held.
fn overload(models: &Path, config: (&str, &str), seconds: f64, stop: &AtomicBool) -> Result<bool> {
    let heldout = Manifest::load(models)?.heldout()?.context("the manifest names no held-out data")?;
    let mut room = Room::new(config, models)?;
    let (profile, plan) = room.plan()?;
    let service = &plan.services[0];
    let stage = Stage::new(service, &profile, seconds)?;
    print_plan(&plan);
    say!("\n{stage}\n");
    let played = room.serve().and_then(|(client, daemon)| {
        let load = stage.load(service, Inputs::heldout(&heldout))?;
        let beside = Beside::start(&room.config, &plan.services[1], Inputs::heldout(&heldout))?;
        let report = watched(client, &load, stop);
        let beside = beside.end();
        drop(daemon);
        Ok(vec![report?, beside?])
    });
    concluded(&mut room, stop, played, |reports| Verdict::of(&reports[0], Some(&reports[1]), "the overload"))
}

/// Runs a load and shows on the terminal how it goes.
fn watched(client: Client, load: &load::Plan, stop: &AtomicBool) -> Result<Report> {
    let mut live = Live::new(load, true)?;
    let (mut told, mut phase) = ([0; 2], None);
    let report = load::run(client, load, stop, &mut |progress| {
        for (changes, told) in [progress.safe_mode, progress.suspension].into_iter().zip(&mut told) {
            for change in &changes[*told..] {
                live.line(&format!("  {:.2} s: {}", change.at_s, change.text));
            }
            *told = changes.len();
        }
        if progress.measures.scheduled > 0 && phase.replace(progress.number) != Some(progress.number) {
            live.line(&format!("{}: {:.1} requests/s", progress.phase.name, progress.phase.schedule.rate()));
        }
        live.show(progress);
    });
    live.clear();
    report
}

/// Prints what each stream came to, and the verdict; whether the promise held. The log of a daemon that did not keep it, or was
/// not heard to the end, is kept.
fn concluded(
    room: &mut Room,
    stop: &AtomicBool,
    played: Result<Vec<Report>>,
    judge: impl FnOnce(&[Report]) -> Verdict,
) -> Result<bool> {
    let reports = match played {
        Ok(reports) => reports,
        Err(error) => return Err(error.context(format!("the daemon's log is {}", room.keep().display()))),
    };
    ensure!(!stop.load(Ordering::Relaxed), "stopped before the end");
    if let Some(broken) = reports.iter().find_map(|report| report.broken.as_ref()) {
        bail!("{broken}; the daemon's log is {}", room.keep().display());
    }
    reports.iter().for_each(print_table);
    print_legend();
    let verdict = judge(&reports);
    say!("\n{verdict}");
    if !verdict.is_kept() {
        say!("The daemon's log is {}", room.keep().display());
    }
    Ok(verdict.is_kept())
}

/// The rates of the demonstration, in requests per second.
struct Stage {
    promised: f64,
    below: f64,
    above: f64,
    /// What the workers manage in a typical run.
    capacity: f64,
    /// Of each of the three phases.
    time: Duration,
}

impl Stage {
    fn new(service: &ServicePlan, profile: &Profile, seconds: f64) -> Result<Self> {
        let rate = service.rate.as_ref().context("config/demo.toml: no constraints")?;
        let promised = rate.per_second().context("config/demo.toml: no room for a stream")?;
        let density = rate.density.as_f64();
        let (spec, workers) = (&service.spec, service.workers());
        let entry = profile.entry(&spec.name, &spec.identity(), service.config.engine)?;
        let typical = entry.batches.iter().take(service.max_batch());
        let per_s = typical.map(|times| times.batch as f64 * 1e9 / times.p50_ns.max(1) as f64);
        let capacity = workers.count as f64 * per_s.fold(0.0, f64::max);
        // Bounds are cautious: only where the workers cannot serve the demanded share is it truly too much.
        let above = (1.6 * promised).max(1.2 * capacity / density);
        Ok(Self {
            promised,
            below: 0.95 * promised,
            above,
            capacity,
            time: Duration::from_secs_f64(seconds / 3.0),
        })
    }

    fn load(&self, service: &ServicePlan, inputs: Inputs) -> Result<load::Plan> {
        let phase = |name, rate, end| Ok(Phase { name, schedule: Schedule::constant(rate)?, end, of: None });
        let (time, settled) = (End::After(self.time), End::PromiseHolds { at_most: SETTLE });
        let phases: Result<Vec<_>> = [
            phase(BELOW, self.below, time),
            // Nothing, unless the machine was disturbed.
            phase("settling", self.below, settled),
            phase(ABOVE, self.above, time),
            phase("recovery", self.below, settled),
            phase(AGAIN, self.below, time),
        ]
        .into_iter()
        .collect();
        let (config, jitter) = (&service.config, clock::duration(service.config.jitter));
        let builder =
            Registration::builder(&config.name, "demo").arrivals(declaration(self.promised, jitter));
        let registration = demand(builder, &config.constraints).build()?;
        Ok(load::Plan {
            registration,
            constraints: config.constraints.clone(),
            inputs,
            phases: phases?,
            classes: load::Classes::Own,
        })
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { promised, below, above, capacity, time } = self;
        let seconds = time.as_secs_f64();
        write!(
            f,
            "two services share one worker. Of digits, one stream declares {promised:.1} requests/s and sends {below:.1}/s for {seconds:.1} s, then \
             {above:.1}/s ({:.2} of what it declared;\nthe worker manages about {capacity:.0}/s), then {below:.1}/s again. Beside it, the stream line of stop sends all \
             the time what it has declared:\nwhatever becomes of the other, it is to be promised the same throughout",
            above / promised
        )
    }
}
