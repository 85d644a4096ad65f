//! `weir plan FILE`: what can be promised on this machine, and why.

mod region;
mod selection;
mod stages;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use planner::selection::DEFAULT_MAX_MISS;
use serde_json::{Value, json};

use super::place_of;
use weir_os::pipe::say;
use weir_plan::certificate::{planned_on, problem_of, staged_problem_of};
use weir_plan::config::{Config, Select};
use weir_plan::models::resolve_models;
use weir_plan::plan::{DevicePlan, Plan, SelectionPlan, ServicePlan, Split, Stalls, splits};
use weir_plan::profile::{Fingerprint, Profile};
use weir_plan::text::{device_json, print_plan, service_json, warn_of};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    file: PathBuf,
    /// Print the plan as JSON, times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Print one service's workers and reserved streams as an abstract problem instead, for `weir simulate`; with the services
    /// that it shares a device with; of a pipeline its stages and reserved streams
    #[arg(long, value_name = "SERVICE", conflicts_with = "json")]
    problem: Option<String>,
    /// Draw how much of one service its device can carry beside how much of another
    #[arg(long, num_args = 2, value_names = ["SERVICE", "OTHER"], requires = "output", conflicts_with_all = ["json", "problem"])]
    region: Option<Vec<String>>,
    /// Where the figure of --region goes, as SVG
    #[arg(long, short, value_name = "PATH", requires = "region")]
    output: Option<PathBuf>,
    /// Write the tables that select among a service's variants, for its `select = { table = "FILE" }`
    #[arg(long, value_name = "SERVICE=FILE", group = "drawn", conflicts_with = "problem", value_parser = service_and_file)]
    select: Option<(String, PathBuf)>,
    /// Draw the stages of a pipeline, with what each adds and what is left of the deadline
    #[arg(long, value_name = "PIPELINE", group = "drawn", requires = "figure", conflicts_with_all = ["json", "problem", "region"])]
    pipeline: Option<String>,
    /// Where the figure of --pipeline, or of one of the tables of --select, goes, as SVG
    #[arg(long, value_name = "FILE", requires = "drawn")]
    figure: Option<PathBuf>,
    /// For the planned load nearest to this part of the certified rate
    #[arg(long, value_name = "PART", requires = "figure", default_value_t = 0.5)]
    figure_at: f64,
    /// The share of requests that selection may expect to miss
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_MAX_MISS)]
    max_miss: f64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    for (option, share) in [("--max-miss", args.max_miss), ("--figure-at", args.figure_at)] {
        if !(0.0..=1.0).contains(&share) {
            bail!("{option} = {share}: must be 0 to 1");
        }
    }
    let plan = plan(args)?;
    if let Some(name) = &args.problem {
        print_problem(&plan, name)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(names), Some(output)) = (&args.region, &args.output) {
        region::draw(&plan, names, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(name), Some(figure)) = (&args.pipeline, &args.figure) {
        stages::draw(&plan, name, figure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let splits = if plan.devices().is_empty() { Vec::new() } else { splits_of(&args.file)? };
    let compute = |s: &ServicePlan| (s.variants.len() > 1).then(|| SelectionPlan::compute(s, args.max_miss));
    let selections: Vec<_> = plan.services.iter().map(compute).collect();
    let all = || plan.services.iter().zip(&selections);
    if args.json {
        let services: Vec<_> = all()
            .map(|(service, selection)| {
                let mut json = service_json(service);
                json["stalls"] = service.stalls().map_or(Value::Null, |stalls| stalls_json(&stalls));
                json["selection"] = match selection {
                    None => Value::Null,
                    Some(Ok(selection)) => with_auto(service, selection),
                    Some(Err(error)) => json!({ "error": error.to_string() }),
                };
                json
            })
            .collect();
        say!(
            "{:#}",
            json!({
                "services": services,
                "devices": plan.devices().into_iter().map(|device| with_split(device, &splits)).collect::<Vec<_>>(),
                "machine_differs": plan.mismatches(),
                "workers_differ": plan.other_company,
                "servers_unreached": plan.unreached,
            })
        );
    } else {
        print_plan(&plan);
        splits.iter().for_each(|(device, split)| print_split(device, split));
        for (service, selection) in all() {
            match selection {
                None => {}
                Some(Ok(selection)) => {
                    selection::print(service, selection);
                    if let Some(auto) = selection::Auto::of(service, selection)? {
                        auto.print(service);
                    }
                }
                Some(Err(error)) => say!("{}: no tables can be made: {error}", service.config.name),
            }
        }
    }
    if let Some((name, path)) = &args.select {
        let of = all().find(|(service, _)| service.config.name == *name);
        let (service, selection) = of.context("the service is there")?;
        let Some(selection) = selection else { bail!("--select = {name}: has no variants to select among") };
        let selection = selection.as_ref().map_err(|error| anyhow::anyhow!("--select = {name}: {error}"))?;
        selection.write(service, path)?;
        if let Some(figure) = &args.figure {
            selection::draw(service, selection, args.figure_at, figure)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How the devices of a configuration would carry more.
fn splits_of(file: &Path) -> Result<Vec<(String, Split)>> {
    let config = Config::load(file)?;
    Ok(splits(&config, &resolve_models(&config)?, &Profile::load(&config.daemon.profile)?)?)
}

/// How a device would carry more.
fn print_split(device: &str, split: &Split) {
    let times = |thousandths: u64| thousandths as f64 / 1000.0;
    say!("device {device} would carry more of what is reserved {split}:");
    say!(
        "  all of it could be sent {:.2} times as fast as declared, instead of {:.2}; each worker would load the models of its own \
         services alone, and take their promises with it when it is lost",
        times(split.carries),
        times(split.together)
    );
}

/// A device, and how it would carry more.
fn with_split(device: &DevicePlan, splits: &[(String, Split)]) -> Value {
    let mut json = device_json(device);
    let of = splits.iter().find(|(name, _)| *name == device.config.name);
    json["split"] = of.map_or(Value::Null, |(_, split)| {
        json!({
            "groups": split.groups,
            "workers": split.workers,
            "load_scale": split.carries as f64 / 1000.0,
            "load_scale_together": split.together as f64 / 1000.0,
        })
    });
    json
}

/// What selection is worth, and who selects where simulation says who does.
fn with_auto(service: &ServicePlan, selection: &SelectionPlan) -> Value {
    let mut json = selection::json(service, selection);
    match selection::Auto::of(service, selection) {
        Ok(None) => {}
        Ok(Some(auto)) => json["auto"] = auto.json(service),
        Err(error) => json["auto"] = json!({ "error": error.to_string() }),
    }
    json
}

/// The plan; tables that are about to be made need not be there.
fn plan(args: &Args) -> Result<Plan> {
    match &args.select {
        None => watched(&Config::load(&args.file)?),
        Some((name, _)) => Ok(plan_before(&args.file, "--select = ", name)?.0),
    }
}

/// The plan of the configuration at `path`, and the place of the service that `argument` says is `name`: files that select
/// need not be there yet, its own nor those of others, which may be made next.
pub(super) fn plan_before(path: &Path, argument: &str, name: &str) -> Result<(Plan, usize)> {
    let mut config = Config::load(path)?;
    let names = config.services.iter().map(|service| service.name.as_str());
    let index = place_of(argument, name, names)?;
    let read = config.services.iter_mut().filter(|service| service.select.file().is_some());
    let selects: Vec<_> = read
        .map(|service| (service.name.clone(), std::mem::replace(&mut service.select, Select::Base)))
        .collect();
    let mut plan = watched(&config)?;
    for (name, select) in selects {
        let service = plan.services.iter_mut().find(|service| service.config.name == name);
        service.into_iter().for_each(|service| service.config.select = select.clone());
    }
    Ok((plan, index))
}

/// Computes the plan, and shows on a terminal how far it is where several services share workers.
fn watched(config: &Config) -> Result<Plan> {
    let style = ProgressStyle::with_template("{bar:24} {pos} of at most {len} admission tests: {wide_msg}");
    let bar = ProgressBar::new(0).with_style(style.context("progress template")?);
    let profile = Profile::load(&config.daemon.profile)?;
    let plan = Plan::watched(config, resolve_models(config)?, &profile, &mut |search| {
        bar.set_length(search.most);
        bar.set_position(search.tests);
        bar.set_message(format!("the batches of device {}", search.device));
    });
    bar.finish_and_clear();
    // Perhaps that is why there is none.
    if plan.is_err() {
        warn_of(&profile.fingerprint().differences(&Fingerprint::current()));
    }
    Ok(plan?)
}

/// Parses `SERVICE=FILE`.
pub(super) fn service_and_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((service, file)) if !service.is_empty() && !file.is_empty() => Ok((service.into(), file.into())),
        _ => Err("must be SERVICE=FILE".to_owned()),
    }
}

fn print_problem(plan: &Plan, name: &str) -> Result<()> {
    let names = plan.services.iter().map(|service| service.config.name.as_str());
    let service = &plan.services[place_of("--problem = ", name, names)?];
    if let Some(problem) = staged_problem_of(service) {
        say!("{}", serde_json::to_string_pretty(&problem?.raw)?);
        return Ok(());
    }
    match &service.shared {
        None => say!("{}", serde_json::to_string_pretty(&problem_of(service)?.raw)?),
        Some(share) => say!("{}", serde_json::to_string_pretty(&planned_on(plan, &share.device)?.raw)?),
    }
    Ok(())
}

/// What rare long times keep from being promised, as JSON.
fn stalls_json(stalls: &Stalls) -> Value {
    json!({
        "batch": stalls.batch,
        "likely_ns": stalls.likely.as_nanos(),
        "bound_ns": stalls.bound.as_nanos(),
        "capacity_per_s": stalls.capacity_per_s,
        "promised_per_s": stalls.promised_per_s,
    })
}
