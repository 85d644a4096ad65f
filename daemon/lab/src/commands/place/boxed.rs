//! `weir place BOX.toml`: the services of a box divided among its devices, and a configuration of that.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use rt_core::Span;
use weir_client::blocking::Client;
use weir_client::status::{Service, Status};
use weir_os::clock;
use weir_os::pipe::say;
use weir_plan::config::{Config, Mode};
use weir_plan::place::{Gone, Site, Unfit, Why, reach};

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
            Config::parse_box(file, &text)?
        }
        None if file == Path::new("-") => {
            Config::parse_box(file, &crate::commands::certify::read_text(file)?)?
        }
        None => Config::load_box(file)?,
    };
    if args.text.is_none() {
        reach(&config).with_context(|| file.display().to_string())?;
    }
    let mut site = Site::new(config)?;
    if let Some(path) = &args.gone {
        let text = planner::read_text(path).with_context(|| path.display().to_string())?;
        site = site
            .without(&planner::from_json::<Vec<Gone>>(&text).with_context(|| path.display().to_string())?);
    }
    let limit = args.limit.map_or(site.placement().limit, |limit| Span::from_nanos(limit.as_nanos() as u64));
    let mut unfit = site.unfit(args.text.as_ref().map(|_| limit));
    // Whoever serves does without them; of whoever asks by hand it is not known whether that is wanted.
    let missing = |unfit: &Unfit| args.text.is_none() && matches!(unfit.why, Why::Reach(_));
    if let Some(missing) = unfit.iter().position(missing) {
        bail!("{}: {}", file.display(), unfit.swap_remove(missing));
    }
    site = site.without(&unfit.iter().map(|unfit| unfit.device.clone()).collect::<Vec<_>>());
    let unfit: Vec<String> = unfit.iter().map(ToString::to_string).collect();
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
    let start = clock::now();
    let placement = site.solve(limit)?;
    let took = clock::now().since(start);
    // The daemon asks what is to be served, and not what would be if.
    let wonder = if args.text.is_some() { Span::ZERO } else { limit };
    let mut told = Told::new(&site, &placement, took, wonder)?;
    told.unfit = unfit;
    if args.text.is_none() {
        told.warn();
    } else {
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
