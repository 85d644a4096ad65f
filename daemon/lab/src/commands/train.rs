//! `weir train SERVICE FILE`: trains a network that selects among a service's variants, in virtual time, and compares it.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use planner::selection::{DEFAULT_MAX_MISS, Expected, Inputs};
use research::learned::{AllLoads, Progress, Schooled, Schooling, school};
use serde_json::{Value, json};

use super::plan::plan_before;
use super::word;
use crate::train::{Compared, Means, Traffic};
use crate::tune::Recording;
use weir::commands::stop_on_signals;
use weir_os::pipe::{say, say_part};
use weir_plan::plan::{SelectionPlan, ServicePlan, write_weights};

/// Tries without a better one after which a training ends.
const PATIENCE: usize = 6;
/// What the next decision's worth counts.
const DISCOUNT: f64 = 0.98;
/// Full batches whose answers are a reward of 1.
const UNIT: f64 = 16.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The service's name
    service: String,
    /// Configuration file
    file: PathBuf,
    /// Train around a load instead of all that the base can carry: `poisson:RATE`, or `mmpp:RATE@SECONDS,RATE@SECONDS,…`,
    /// with requests a second and how long each rate holds on average
    #[arg(long, value_name = "PROCESS")]
    arrivals: Option<Traffic>,
    /// Train on what a service has recorded, as `record` has it written
    #[arg(long, value_name = "CSV", conflicts_with = "arrivals")]
    recording: Option<PathBuf>,
    /// Whatever is random depends on it: the same seed writes the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Neurons of each hidden layer
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    width: u16,
    /// Hidden layers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    layers: u8,
    /// Episodes of 3000 requests at most
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    episodes: u32,
    /// Train so many, each with the next seed, and keep the one that does best where it is tried
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    restarts: u8,
    /// Train no longer than this in all, but for an episode of each
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    limit: Duration,
    /// Where the weights go, for `weights` of the service
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of it.
struct Trained {
    schooled: Schooled,
    /// Of the one that was kept.
    seed: u64,
    /// Whether --limit cut any short.
    cut: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (plan, index) = plan_before(&args.file, "SERVICE = ", &args.service)?;
    let service = &plan.services[index];
    let name = &args.service;
    if service.pipeline.is_some() {
        bail!("{name}: is a pipeline, whose stages choose their variants themselves");
    }
    if service.variants.len() == 1 {
        bail!("{name}: has no variants to select among");
    }
    if let Some(device) = plan.services[index].shared_device() {
        bail!(
            "{name}: shares device {device}, where `select` may be \"base\" or \"accurate\" alone: weights are of no use there"
        );
    }
    let inputs = service.selection_inputs(DEFAULT_MAX_MISS);
    inputs.check()?;
    let traffic = match (&args.arrivals, &args.recording) {
        (Some(traffic), _) => traffic.clone(),
        (None, Some(path)) => {
            let read = Recording::instants(path, name).and_then(Traffic::recorded);
            read.with_context(|| format!("--recording = {}", path.display()))?
        }
        (None, None) => Traffic::AllLoads(AllLoads { capacity_per_s: inputs.capacity_per_s(0) }),
    };
    let trained = train(&inputs, args, &traffic)?;
    let net = &trained.schooled.net;
    let tables = SelectionPlan::compute(service, DEFAULT_MAX_MISS)?.selector()?;
    let compared = Compared::all(&inputs, (net, &tables), &traffic)?;
    let sha256 = write_weights(service, net, &args.output)?;
    if args.json {
        say!("{:#}", as_json(service, args, (&trained, &sha256), &compared));
    } else {
        print(service, args, (&trained, &sha256), &compared);
    }
    Ok(ExitCode::SUCCESS)
}

/// The best of all that were trained, its seed, and whether --limit cut any short.
fn train(inputs: &Inputs, args: &Args, traffic: &Traffic) -> Result<Trained> {
    let stop = stop_on_signals()?;
    let style =
        ProgressStyle::with_template("{bar:24} {pos} of at most {len} episodes, {elapsed}: {wide_msg}");
    let count = u64::from(args.restarts);
    let bar =
        ProgressBar::new(count * u64::from(args.episodes)).with_style(style.context("progress template")?);
    let mut best: Option<Trained> = None;
    let mut any_cut = false;
    for run in 0..count {
        let seed = args.seed.wrapping_add(run);
        let schooling = schooling(inputs, args, seed);
        let (begun, most) =
            (run * u64::from(args.episodes), args.limit.mul_f64((run + 1) as f64 / count as f64));
        let so_far = best.as_ref().and_then(|best| best.schooled.progress.right);
        let mut watch = |Progress { episodes, right }: Progress| {
            bar.set_position(begun + episodes as u64);
            if let Some(right) = so_far.into_iter().chain(right).reduce(f64::max) {
                bar.set_message(format!("{:.2} % right where it is tried", 100.0 * right));
            }
            let cut = bar.elapsed() >= most && episodes < schooling.episodes;
            any_cut |= cut;
            if cut || stop.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let build = |selector| inputs.scheduled(selector);
        let schooled = school(inputs, &schooling, traffic, build, &mut watch)?;
        ensure!(!stop.load(Ordering::Relaxed), "interrupted: nothing is written");
        if so_far.is_none() || schooled.progress.right > so_far {
            best = Some(Trained { schooled, seed, cut: false });
        }
    }
    bar.finish_and_clear();
    let best = best.context("nothing was trained")?;
    Ok(Trained { cut: any_cut, ..best })
}

fn schooling(inputs: &Inputs, args: &Args, seed: u64) -> Schooling {
    Schooling {
        hidden: vec![usize::from(args.width); usize::from(args.layers)],
        episodes: args.episodes as usize,
        patience: PATIENCE,
        discount: DISCOUNT,
        unit: UNIT * inputs.batch as f64,
        seed,
        ..Schooling::default()
    }
}

fn print(
    service: &ServicePlan,
    args: &Args,
    (Trained { schooled, seed, cut }, sha256): (&Trained, &str),
    compared: &[Compared],
) {
    let (name, path) = (&service.config.name, args.output.display());
    let hidden = format!("{} x {}", args.width, args.layers);
    say!(
        "{name}: a network of {hidden} by seed {seed}, best after {} of {} episodes; written to {path}, sha256 {sha256}",
        schooled.at,
        schooled.progress.episodes
    );
    if *cut {
        say!("--limit ended it: with more time it may be better, and another machine may get other weights");
    }
    let what = match service.config.classes.is_empty() {
        true => "requests answered in time and right",
        false => "what a request is worth by its class, a right answer of value 1 being 100 %",
    };
    say!("SIMULATED on arrivals held out, nothing promised: {what} (missed)");
    say!(
        "  {:>10} {:>18} {:>18} {:>18}   best model alone",
        "requests/s",
        "learned",
        "planned tables",
        "accurate"
    );
    let share = |e: Expected| format!("{:>7.2}% ({:>6.3}%)", 100.0 * e.right(), 100.0 * e.missed);
    for one in compared {
        say_part!("  {:>10.1}", one.rate_per_s);
        for expected in [one.learned, one.tables, one.accurate] {
            say_part!(" {:>18}", share(expected));
        }
        let (best, alone) = one.alone;
        say!("   {} {}", service.variants[best].spec.name, share(alone).trim());
    }
    let means = Means::of(compared);
    let percent = [means.learned, means.tables, means.accurate, means.alone].map(|mean| 100.0 * mean);
    say!(
        "  {:>10} {:>17.2}% {:>17.2}% {:>17.2}%   {:.2}%",
        "mean",
        percent[0],
        percent[1],
        percent[2],
        percent[3]
    );
    let (other, best) = means.best_other();
    let (own, best) = (percent[0], 100.0 * best);
    if own > best {
        say!("the network is better than all of them: {own:.2} % against {best:.2} % of {other}");
    } else {
        say!("the network is NOT better: {own:.2} % against {best:.2} % of {other}");
    }
    let (weights, file) = (weights(args), word(&args.file));
    say!(
        "next: set select = \"learned\" and weights = {weights} in service {name}, then run `weir check {file}`"
    );
}

/// The file of the weights as the configuration names it, from its own folder.
fn weights(args: &Args) -> toml::Value {
    let below = args.file.parent().and_then(|folder| args.output.strip_prefix(folder).ok());
    let named = below.map_or_else(|| std::path::absolute(&args.output), |path| Ok(path.to_owned()));
    toml::Value::from(named.unwrap_or_else(|_| args.output.clone()).display().to_string())
}

fn as_json(
    service: &ServicePlan,
    args: &Args,
    (Trained { schooled, seed, cut }, sha256): (&Trained, &str),
    compared: &[Compared],
) -> Value {
    let share = |e: Expected| json!({ "right": e.right(), "accuracy": e.accuracy, "missed": e.missed });
    let loads = compared.iter().map(|one| {
        json!({
            "rate_per_s": one.rate_per_s,
            "learned": share(one.learned),
            "tables": share(one.tables),
            "accurate": share(one.accurate),
            "best_alone": service.variants[one.alone.0].spec.name,
            "alone": share(one.alone.1),
        })
    });
    let means = Means::of(compared);
    json!({
        "service": service.config.name,
        "path": args.output,
        "sha256": sha256,
        "widths": schooled.net.widths(),
        "seed": seed,
        "restarts": args.restarts,
        "episodes": schooled.progress.episodes,
        "best_after": schooled.at,
        "ended_by_limit": cut,
        "simulated": true,
        "loads": loads.collect::<Vec<_>>(),
        "mean_right": {
            "learned": means.learned,
            "tables": means.tables,
            "accurate": means.accurate,
            "alone": means.alone,
        },
        "better": means.learned > means.best_other().1,
    })
}
