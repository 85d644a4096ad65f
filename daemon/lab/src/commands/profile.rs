//! `weir profile FILE`: measures `P(b)` of every model that the configuration uses, as it will be run, or checks it.

mod check;
mod figure;
mod print;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use weir::commands::stop_on_signals;

use figure::figure;
use weir_os::pipe::say;
use weir_plan::config::Config;
use weir_plan::models::{resolve_models, run_singly, running};
use weir_plan::profile::{DEFAULT_EXCEEDANCE, DEFAULT_MARGIN, MOST, Profile, Progress, Request, Rule, Taken};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    file: PathBuf,
    /// Runs of each batch size at least
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// A tenth of the runs and no waiting for stability, for a first look
    #[arg(long)]
    quick: bool,
    /// Go on until no P(b) changes by this share of it over the last quarter of the runs
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    stable: f64,
    /// Measure no longer than this, but for a round, whatever is missing then
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    limit: Duration,
    /// The probability with which a batch may take longer than P(b)
    #[arg(long, value_name = "P", default_value_t = DEFAULT_EXCEEDANCE)]
    exceedance: f64,
    /// Added to the longest time seen, as a part of it, where that probability cannot be told
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_MARGIN)]
    margin: f64,
    /// Use the longest time seen plus --margin as P(b), even where a tail could be fitted
    #[arg(long, conflicts_with = "exceedance")]
    longest: bool,
    /// Measure each model by itself instead of all workers at once
    #[arg(long)]
    alone: bool,
    /// Start over instead of going on from what an interrupted run has kept
    #[arg(long)]
    afresh: bool,
    /// Write nothing: measure a quarter of the runs again and say whether the profile still holds
    #[arg(long, conflicts_with_all = ["samples", "stable", "limit", "exceedance", "margin", "longest", "afresh", "figure"])]
    check: bool,
    /// Write a figure of each measured model's tails into this folder
    #[arg(long, value_name = "DIR")]
    figure: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    ensure!(
        args.stable > 0.0 && args.stable <= 1.0,
        "--stable is {}, must be above 0, at most 1",
        args.stable
    );
    let config = weir_plan::place::measured(&Config::load_box(&args.file)?);
    let stop = stop_on_signals()?;
    if args.check {
        let verdict = check::check(&config, args.quick, args.alone, &stop)?;
        if args.json {
            say!("{:#}", serde_json::to_value(&verdict).context("the verdict")?);
        } else {
            print::verdict(&verdict);
        }
        return Ok(if verdict.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let samples = args.samples as usize;
    let request = Request {
        samples: if args.quick { samples.div_ceil(10) } else { samples },
        stable: (!args.quick).then_some(args.stable),
        limit: args.limit,
        rule: Rule::new(args.exceedance, args.margin, args.longest)?,
        alone: args.alone,
        afresh: args.afresh,
    };
    if let Some(folder) = &args.figure {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let taken = take(&config, &request, &stop)?;
    if let Some(folder) = &args.figure {
        for (entry, runs) in &taken.measured {
            let name: String =
                entry.model.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            let path = folder.join(format!("{name}-{}.svg", entry.engine));
            std::fs::write(&path, figure(entry, runs)).with_context(|| path.display().to_string())?;
        }
    }
    if args.json {
        let profile: &Profile = &taken.profile;
        let (path, resumed) = (config.daemon.profile.display().to_string(), taken.resumed);
        let profile = serde_json::to_value(profile).context("the profile")?;
        let unstable = taken.unstable(&request);
        say!("{:#}", json!({ "path": path, "resumed": resumed, "unstable": unstable, "profile": profile }));
    } else {
        print::profile(&taken.profile);
        let fewest = taken.fewest();
        if fewest < request.samples {
            say!(
                "\n--limit ended it after {fewest} of {} rounds: allow more time for bounds to rely on",
                request.samples
            );
        }
        let unstable = taken.unstable(&request);
        if !unstable.is_empty() {
            say!(
                "\nnot stable to {} % within the limits (--limit, {} runs): {}",
                100.0 * args.stable,
                MOST,
                unstable.join(", ")
            );
        }
        for runs in running(&config, &resolve_models(&config)?) {
            run_singly(runs.config, runs.specs)?.iter().for_each(|line| say!("{line}"));
        }
        say!("\nwritten to {}", config.daemon.profile.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes the profile of `config`, and shows how far it is.
///
/// # Errors
/// As [`weir_plan::profile::take`].
pub(crate) fn take(config: &Config, request: &Request, stop: &AtomicBool) -> Result<Taken> {
    let (bar, mut show) = bar()?;
    let taken = weir_plan::profile::take(config, request, stop, &mut show)?;
    bar.finish_and_clear();
    Ok(taken)
}

/// A bar that shows how far a measurement is.
fn bar() -> Result<(ProgressBar, impl FnMut(&Progress))> {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} rounds, {eta} left: {wide_msg}");
    let bar = ProgressBar::new(0).with_style(style.context("progress template")?);
    let shown = bar.clone();
    let show = move |progress: &Progress| {
        let unstable = progress.unstable.filter(|&(unstable, _)| unstable > 0);
        let waited = unstable.map(|(unstable, of)| format!("; {unstable} of {of} bounds not stable yet"));
        shown.set_length(progress.of as u64);
        shown.set_position(progress.done as u64);
        shown.set_message(format!("{}{}", progress.what, waited.unwrap_or_default()));
    };
    Ok((bar, show))
}
