//! `weir place BOX.toml`: the services of a box divided among its devices, and a configuration of that.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt_core::Span;
use weir_client::blocking::Client;
use weir_client::status::{Service, Status};
use weir_os::clock;
use weir_os::pipe::say;
use weir_plan::config::{Config, Mode};
use weir_plan::place::{Site, idle_out_of_reach, reach};
use weir_plan::placed::{self, Gone};

use super::super::word;
use super::Args;
use super::picture::picture;
use super::told::Told;
use super::trial::Trial;

/// Where to stand aside is looked for in that part of the limit.
const ASIDES: u64 = 4;
/// How long what comes is counted.
const COUNTED: Span = Span::from_millis(2_000);

pub(super) fn run(args: &Args, file: &Path) -> Result<ExitCode> {
    let config = match &args.text {
        Some(text) => {
            let text = planner::read_text(text).with_context(|| text.display().to_string())?;
            reached(Config::parse_box(file, &text)?, args.limit)?
        }
        None if file == Path::new("-") => {
            Config::parse_box(file, &crate::commands::certify::read_text(file)?)?
        }
        None => Config::load_box(file)?,
    };
    if args.text.is_none() {
        reach(&config).with_context(|| file.display().to_string())?;
    }
    let site = Site::new(config)?;
    let demand = match args.demand.as_deref() {
        None => BTreeMap::new(),
        Some("status") => seen(&site)?,
        Some(path) => {
            let text = planner::read_text(Path::new(path)).with_context(|| path.to_owned())?;
            planner::from_json::<planner::Unique<f64>>(&text)
                .map(|planner::Unique(demand)| demand)
                .with_context(|| format!("{path}: must be requests a second by service, as JSON"))?
        }
    };
    let mut site = site.demanding(&demand)?;
    // What is only advised may take a restart.
    if args.text.is_some() && site.placement().mode == Mode::Follow {
        site = site.without_restart();
    }
    if let Some(output) = &args.output {
        let folder = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        let same = |path: &Path| std::fs::canonicalize(Path::new(".").join(folder(path))).ok();
        ensure!(
            same(output) == same(file),
            "--output {}: must be beside {}, whose paths are relative to its folder",
            output.display(),
            file.display()
        );
    }
    let limit = args.limit.map_or(site.placement().limit, |limit| Span::from_nanos(limit.as_nanos() as u64));
    let start = clock::now();
    let placement = site.solve(limit)?;
    let took = clock::now().since(start);
    // The daemon asks what is to be served, and not what would be if.
    let wonder = if args.text.is_some() { Span::ZERO } else { limit };
    let mut told = Told::new(&site, &placement, took, wonder)?;
    if args.text.is_some() {
        told = told.with_asides(&site, clock::now() + Span::from_nanos(limit.as_nanos() / ASIDES))?;
    }
    if let Some(length) = args.simulate {
        let length = Span::from_nanos(length.as_nanos() as u64);
        told.trial = Trial::new(&site, &placement, length, clock::now() + limit)?;
    }
    if let Some(figure) = &args.figure {
        planner::write_atomically(figure, picture(&site, &placement).svg().as_bytes())
            .with_context(|| figure.display().to_string())?;
    }
    if let (Some(output), Some(complete)) =
        (&args.output, placement.complete.as_ref().filter(|_| placement.feasible))
    {
        planner::write_atomically(output, complete.text.as_bytes())
            .with_context(|| output.display().to_string())?;
    }
    if args.json {
        say!("{:#}", serde_json::to_value(&told)?);
    } else {
        told.print();
        match &args.output {
            Some(output) if placement.feasible => {
                say!("written to {}", output.display());
                if site.config().daemon.certificate.is_some() {
                    say!("it is served with a certificate: run `weir certify {}`", word(output));
                }
            }
            Some(output) => say!("{} is not written", output.display()),
            None => {}
        }
    }
    Ok(if placement.feasible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The box without the servers that nothing runs on and that are out of reach: what is served can do without them.
fn reached(config: Config, limit: Option<Duration>) -> Result<Config> {
    let patience = limit.or_else(|| Some(clock::duration(config.placement.as_ref()?.limit)));
    let gone = idle_out_of_reach(&config, patience.unwrap_or_default());
    let Some((_, first)) = gone.first() else { return Ok(config) };
    let why = format!("without {} servers that are out of reach, such as {first}", gone.len());
    let devices: Vec<Gone> = gone.into_iter().map(|(device, _)| device).collect();
    let text = placed::without(config.text(), &devices).with_context(|| why.clone())?;
    Config::parse_box(&config.path, &text).context(why)
}

/// What comes a second to each service that is placed, and what results become at the stages of pipelines, as the running daemon counts it.
fn seen(site: &Site) -> Result<BTreeMap<String, f64>> {
    let mut client = Client::connect(&site.config().daemon.socket)?;
    let mut told = || -> Result<(rt_core::Instant, Vec<Service>)> {
        let status: Status = serde_json::from_str(&client.status()?).context("the daemon's status")?;
        Ok((clock::now(), status.services))
    };
    let (start, before) = told()?;
    clock::sleep_until(start + COUNTED)?;
    let (end, after) = told()?;
    let seconds = end.since(start).as_secs_f64();
    let mut all = BTreeMap::new();
    for service in site.config().services.iter().filter(|service| service.is_placed()) {
        let of = |told: &[Service]| told.iter().find(|told| told.name == service.name).cloned();
        let Some((before, after)) = of(&before).zip(of(&after)) else { continue };
        all.insert(service.name.clone(), come(&after).saturating_sub(come(&before)) as f64 / seconds);
        let behind = service.stages.iter().zip(before.stages.iter().zip(&after.stages)).skip(1);
        for (stage, (before, after)) in behind.filter(|(stage, _)| !stage.after.is_join()) {
            let results = after.parent_results.saturating_sub(before.parent_results);
            if results > 0 {
                let requests = after.requests.saturating_sub(before.requests);
                let mean = (requests as f64 / results as f64).min(f64::from(stage.fan_out));
                all.insert(format!("{}/{}", service.name, stage.runs.name), mean);
            }
        }
    }
    Ok(all)
}

/// How many requests have come.
fn come(service: &Service) -> u64 {
    let missed: u64 = service.missed.values().sum();
    service.served + missed + service.waiting as u64 + service.running as u64
}
