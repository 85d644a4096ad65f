//! `weir demo`: a promise computed, kept, overrun and restored, on this machine with the shipped models.

mod beside;
mod verdict;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt_core::Span;
use tempfile::TempDir;
use weir_client::Registration;
use weir_client::blocking::Client;

use self::beside::Beside;
use self::verdict::{Verdict, print_legend, print_table};
use super::load::{Live, declaration, demand};
use super::profile;
use crate::load::{self, End, Inputs, Phase, Schedule};
use tracing::warn;
use weir::commands::stop_on_signals;
use weir_engine::manifest::Manifest;
use weir_os::clock;
use weir_os::pipe::say;
use weir_plan::config::Config;
use weir_plan::plan::{Plan, ServicePlan};
use weir_plan::profile::{DEFAULT_EXCEEDANCE, Profile, Request, Rule};
use weir_plan::text::print_plan;

/// What is served, but for its paths.
const CONFIG: &str = include_str!("../../../../config/demo.toml");
/// Runs of each batch size when profiling.
const SAMPLES: usize = 40;
/// A machine that others use as well steals more time than a short look at it shows.
const MARGIN: f64 = 0.5;
/// How often it is profiled if what was measured leaves no promise.
const ATTEMPTS: usize = 3;
/// The promise holds again a second after the last breach unless breaches go on; then the demonstration goes on too.
const SETTLE: Duration = Duration::from_secs(5);
/// How long the daemon may take to listen, or to end.
const PATIENCE: Span = Span::from_millis(10_000);

const BELOW: &str = "below";
const ABOVE: &str = "above";
const AGAIN: &str = "below again";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of load, shared by three phases; profiling and recovery come on top
    #[arg(long, default_value_t = 50.0)]
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
    let heldout = Manifest::load(&models)?.heldout()?.context("the manifest names no held-out data")?;
    let mut room = tempfile::Builder::new().prefix("weir-demo-").tempdir().context("temporary folder")?;
    let (config, path) = configure(room.path(), &models)?;
    let (profile, plan) = plan(&config)?;
    let service = &plan.services[0];
    let stage = Stage::new(service, &profile, args.seconds)?;
    print_plan(&plan);
    say!("\n{stage}\n");
    let stop = stop_on_signals()?;
    let played = Daemon::start(&room, &path, &config.daemon.socket).and_then(|(client, daemon)| {
        let load = stage.load(service, Inputs::heldout(&heldout))?;
        let beside = Beside::start(&config, &plan.services[1], Inputs::heldout(&heldout))?;
        let mut live = Live::new(&load, true)?;
        let (mut told, mut phase) = ([0; 2], None);
        let report = load::run(client, &load, &stop, &mut |progress| {
            for (changes, told) in [progress.safe_mode, progress.suspension].into_iter().zip(&mut told) {
                for change in &changes[*told..] {
                    live.line(&format!("  {:.2} s: {}", change.at_s, change.text));
                }
                *told = changes.len();
            }
            if progress.measures.scheduled > 0 && phase.replace(progress.number) != Some(progress.number) {
                live.line(&format!(
                    "{}: {:.1} requests/s",
                    progress.phase.name,
                    progress.phase.schedule.rate()
                ));
            }
            live.show(progress);
        });
        live.clear();
        let beside = beside.end();
        drop(daemon);
        Ok((report?, beside?))
    });
    let (report, beside) = played.with_context(|| {
        room.disable_cleanup(true);
        format!("the daemon's log is {}", log_of(&room).display())
    })?;
    ensure!(!stop.load(Ordering::Relaxed), "stopped before the end");
    if let Some(broken) = report.broken.as_ref().or(beside.broken.as_ref()) {
        room.disable_cleanup(true);
        bail!("{broken}; the daemon's log is {}", log_of(&room).display());
    }
    print_table(&report);
    print_table(&beside);
    print_legend();
    let verdict = Verdict::of(&report, &beside);
    say!("\n{verdict}");
    if verdict.is_kept() {
        return Ok(ExitCode::SUCCESS);
    }
    room.disable_cleanup(true);
    say!("The daemon's log is {}", log_of(&room).display());
    Ok(ExitCode::FAILURE)
}

/// Writes the configuration with the paths of this run.
fn configure(room: &Path, models: &Path) -> Result<(Config, PathBuf)> {
    let mut table: toml::Table = toml::from_str(CONFIG).context("config/demo.toml")?;
    let daemon = table
        .get_mut("daemon")
        .and_then(toml::Value::as_table_mut)
        .context("config/demo.toml: no [daemon]")?;
    let paths = [
        ("socket", room.join("weir.sock")),
        ("models", models.to_owned()),
        ("profile", room.join("profile.json")),
    ];
    for (field, path) in paths {
        let text = path.to_str().with_context(|| format!("{}: the path is not UTF-8", path.display()))?;
        daemon.insert(field.to_owned(), text.into());
    }
    // It is not the daemon of this machine.
    daemon.insert("bus".to_owned(), "off".into());
    let path = room.join("demo.toml");
    std::fs::write(&path, table.to_string()).with_context(|| path.display().to_string())?;
    Ok((Config::load(&path)?, path))
}

/// Profiles and plans; once more if a disturbance of the machine left no promise.
fn plan(config: &Config) -> Result<(Profile, Plan)> {
    let mut attempt = 1;
    loop {
        let request = Request::quick(SAMPLES, Rule::new(DEFAULT_EXCEEDANCE, MARGIN, true)?);
        let profile = profile::take(config, &request, &AtomicBool::new(false))?.profile;
        match Plan::compute(config) {
            Err(error) if attempt < ATTEMPTS => warn!("{error}; measuring once more"),
            done => return Ok((profile, done?)),
        }
        attempt += 1;
    }
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
        let phase = |name, rate, end| Ok(Phase { name, schedule: Schedule::constant(rate)?, end });
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
        Ok(load::Plan { registration, constraints: config.constraints.clone(), inputs, phases: phases? })
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

/// The daemon as a child process; ends with this value.
struct Daemon(Child);

impl Daemon {
    fn start(room: &TempDir, config: &Path, socket: &Path) -> Result<(Client, Self)> {
        let log = File::create(log_of(room)).context("the daemon's log")?;
        let mut command = Command::new(weir::commands::find("weir")?);
        command.args(["serve", "--quiet"]).arg(config);
        // A group of its own: an interrupt from the terminal reaches it through us, after the report.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut daemon = Self(command.spawn().context("starting the daemon")?);
        let patience = clock::now() + PATIENCE;
        loop {
            match Client::connect(socket) {
                Ok(client) => return Ok((client, daemon)),
                Err(error) if clock::now() > patience => return Err(error.into()),
                Err(_) => {}
            }
            if let Some(status) = daemon.0.try_wait()? {
                bail!("the daemon ended at once, {status}");
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let patience = clock::now() + PATIENCE;
        // Each of these fails only if it has ended already.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        while clock::now() < patience && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn log_of(room: &TempDir) -> PathBuf {
    room.path().join("daemon.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_configuration_loads_with_the_paths_of_a_run() {
        let room = tempfile::tempdir().unwrap();
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/manifest.toml");
        let (config, path) = configure(room.path(), &models).unwrap();
        assert_eq!(path, room.path().join("demo.toml"));
        assert_eq!(config.daemon.socket, room.path().join("weir.sock"));
        assert_eq!(config.daemon.models, Some(models));
        assert!(!config.services[0].constraints.is_empty());
    }
}
