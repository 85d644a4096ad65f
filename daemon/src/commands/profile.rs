//! `weir profile FILE`: measures `P(b)` of every model that the configuration uses, as it will be run.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rt_core::Span;

use crate::config::{Config, ServiceConfig};
use crate::engine::{Engine, ModelSpec, load};
use crate::plan::{prepare_engines, resolve_models, run_singly};
use crate::profile::{DEFAULT_MARGIN, Entry, Fingerprint, Profile, measure};
use crate::realtime::{self, Role};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    file: PathBuf,
    /// Runs of each batch size
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// A tenth of the runs, for a first look
    #[arg(long)]
    quick: bool,
    /// Added to the longest time seen, as a part of it
    #[arg(long, default_value_t = DEFAULT_MARGIN)]
    margin: f64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = Config::load(&args.file)?;
    let samples = if args.quick { args.samples.div_ceil(10) } else { args.samples };
    let profile = take(&config, samples as usize, args.margin)?;
    println!(
        "\n{:<16} {:>5} {:>8} {:>11} {:>11} {:>11} {:>11}",
        "model", "batch", "run as", "median", "99%", "longest", "P(b)"
    );
    for entry in profile.entries() {
        for b in &entry.batches {
            let span = |ns| Span::from_nanos(ns).to_string();
            println!(
                "{:<16} {:>5} {:>8} {:>11} {:>11} {:>11} {:>11}",
                entry.model,
                b.batch,
                b.mode.to_string(),
                span(b.p50_ns),
                span(b.p99_ns),
                span(b.max_ns),
                span(b.bound_ns)
            );
        }
    }
    for (service, specs) in config.services.iter().zip(resolve_models(&config)?) {
        run_singly(service, &specs)?.iter().for_each(|line| println!("{line}"));
    }
    println!("\nwritten to {}", config.daemon.profile.display());
    Ok(ExitCode::SUCCESS)
}

/// Measures what `config` uses and writes its profile; entries of other models stay if the machine is the same.
///
/// # Errors
/// If a model cannot be loaded or run, or the file not be written.
pub(crate) fn take(config: &Config, samples: usize, margin: f64) -> Result<Profile> {
    let specs = resolve_models(config)?;
    prepare_engines(config)?;
    let here = Fingerprint::current();
    let mut profile = Profile::load(&config.daemon.profile)
        .ok()
        .filter(|old| old.fingerprint().differences(&here).is_empty())
        .unwrap_or_else(|| Profile::new(here));
    let style = ProgressStyle::with_template("{prefix:16} {bar:30} {pos}/{len} runs, {eta} left")
        .context("progress template")?;
    let all: Vec<(&ServiceConfig, usize, &ModelSpec)> = config
        .services
        .iter()
        .zip(&specs)
        .flat_map(|(service, specs)| specs.iter().enumerate().map(move |(v, spec)| (service, v, spec)))
        .collect();
    for (i, &(service, variant, spec)) in all.iter().enumerate() {
        // Services that share a model share its entry: measured once, for the largest batch.
        let key = |(j, (service, ..)): (usize, &(&ServiceConfig, usize, &ModelSpec))| {
            (service.max_batch, std::cmp::Reverse(j))
        };
        let same = all
            .iter()
            .enumerate()
            .filter(|(_, (s, _, m))| (&m.name, s.engine) == (&spec.name, service.engine));
        if same.map(key).max() != Some((service.max_batch, std::cmp::Reverse(i))) {
            continue;
        }
        let bar = ProgressBar::new(0).with_style(style.clone()).with_prefix(spec.name.clone());
        let entry = measure_as_served(config, (service, variant, spec), samples, margin, &bar)?;
        bar.finish();
        profile.put(entry);
    }
    profile.save(&config.daemon.profile)?;
    Ok(profile)
}

/// On a thread with the core and priority that the service's first worker will have.
fn measure_as_served(
    config: &Config,
    (service, variant, spec): (&ServiceConfig, usize, &ModelSpec),
    samples: usize,
    margin: f64,
    bar: &ProgressBar,
) -> Result<Entry> {
    let times = service.model.simulated_times(variant);
    // A simulated engine has no times for larger batches.
    let max_batch = times.as_ref().map_or(service.max_batch, |times| service.max_batch.min(times.len()));
    let work = || -> Result<Entry> {
        let engine = match &times {
            Some(times_ns) => Engine::Simulated { times_ns },
            None => Engine::Real { backend: service.backend(0), modes: None },
        };
        let mut runner = load(engine, spec, max_batch)?;
        realtime::enter(Role::Worker, service.cores.first().copied(), config.daemon.realtime);
        let measured = measure(runner.as_mut(), spec, max_batch, samples, |done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        })?;
        Ok(Entry::new(spec, service.engine, &measured, margin)?)
    };
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(entry) => entry.with_context(|| format!("service {}", service.name)),
        Err(_) => {
            anyhow::bail!("service {}: model {} panicked while it was measured", service.name, spec.name)
        }
    })
}
