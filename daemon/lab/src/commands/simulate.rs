//! `weir simulate`: what becomes of given arrivals, in virtual time, by the scheduler that the daemon runs, and
//! experiments that compare it with its rivals.

mod experiment;
mod gaps;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use planner::Question;
use planner::selection::{DEFAULT_MAX_MISS, choose_all};
use rt_core::Selector;
use sim::{Class, PolicyKind, Report, simulate, simulate_logged, simulate_pipeline, simulate_shared};

use super::certify::read_question;
use super::place_of;
use super::plan::service_and_file;
use gaps::Gaps;
use tracing::warn;
use weir_os::pipe::say;
use weir_plan::config::{Config, RequestClass, Select};
use weir_plan::plan::{Meanwhile, Plan, SelectionPlan, ServicePlan};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Experiments to run; or else --problem and --arrivals
    #[arg(value_name = "EXPERIMENT", required_unless_present = "problem", conflicts_with_all = ["problem", "arrivals", "policy"])]
    experiments: Vec<PathBuf>,
    /// The abstract problem
    #[arg(long, value_name = "FILE", requires = "arrivals")]
    problem: Option<PathBuf>,
    /// Lines `time,stream` or `time,stream,class`, or `time,service/stream` of several services, times in the problem's unit; `-` reads standard input
    #[arg(long, value_name = "CSV", requires = "problem")]
    arrivals: Option<PathBuf>,
    /// Who decides
    #[arg(long, value_name = "NAME", default_value = "weir", value_parser = str::parse::<PolicyKind>)]
    policy: PolicyKind,
    /// Select among the variants of a service as its configuration says; the problem must be of that service
    #[arg(long, value_name = "SERVICE=CONFIG", requires = "problem", value_parser = service_and_file)]
    select: Option<(String, PathBuf)>,
    /// Write down all that the scheduler does, for `weir accept`
    #[arg(long, value_name = "FILE", requires = "problem")]
    log: Option<PathBuf>,
    /// Print every request, or every result, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: experiment::Options,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (Some(problem), Some(arrivals)) = (&args.problem, &args.arrivals) else {
        return experiment::run(&args.experiments, &args.options, args.json);
    };
    let (daemons, mut spread) = (args.policy.is_own(), args.policy.spreads());
    ensure!(
        daemons || (args.select.is_none() && args.log.is_none()),
        "--policy = {}: --select and --log are for weir and weir-spread, which the daemon has",
        args.policy
    );
    let question = read_question(problem)?;
    let name = || arrivals.display().to_string();
    let csv: Box<dyn Read> = match name().as_str() {
        "-" => Box::new(stdin().lock()),
        path => Box::new(BufReader::new(File::open(path).with_context(name)?)),
    };
    let mut csv = Gaps::new(csv);
    let problem = match question {
        Question::One(problem) => problem,
        Question::Pipeline(problem) => {
            let weir = args.policy == PolicyKind::Weir && args.select.is_none();
            ensure!(weir, "a pipeline: --policy and --select are for services");
            let (report, log) = simulate_pipeline(&problem, &mut csv).with_context(name)?;
            write_log(args, |file| log.write_pipeline(&problem, file))?;
            return end(&report, csv.missing(), args);
        }
        Question::Shared(problem) => {
            let single = "services that share workers: --select and rivals are for a single service";
            ensure!(daemons && args.select.is_none(), single);
            let ahead = args.log.is_none();
            let (report, log) = simulate_shared(&problem, &mut csv, (ahead, spread)).with_context(name)?;
            write_log(args, |file| log.write_shared(&problem, file))?;
            return end(&report, csv.missing(), args);
        }
    };
    let report = if args.select.is_none() && args.log.is_none() {
        simulate(&problem, &mut csv, args.policy).with_context(name)?
    } else {
        let selected = args.select.as_ref().map(|(service, config)| selector(service, config)).transpose()?;
        let (selector, classes) = match selected {
            Some((selector, classes, spreads)) => {
                spread |= spreads;
                (Some(selector), classes)
            }
            None => (None, Vec::new()),
        };
        let (report, log) =
            simulate_logged(&problem, &mut csv, selector, &classes, spread).with_context(name)?;
        write_log(args, |file| log.write(&problem, file))?;
        report
    };
    end(&report, csv.missing(), args)
}

/// Writes a log where it is asked for.
fn write_log(args: &Args, write: impl FnOnce(BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let Some(path) = &args.log else { return Ok(()) };
    let name = || path.display().to_string();
    write(BufWriter::new(File::create(path).with_context(name)?)).with_context(name)
}

/// Tells what became of the arrivals, of which some are `missing`.
fn end(report: &Report, missing: u64, args: &Args) -> Result<ExitCode> {
    if missing > 0 {
        let name = args.arrivals.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        warn!("{name}: {missing} arrivals were not recorded: what follows them may have fared otherwise");
    }
    if args.json {
        say!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print(report);
    }
    let held = report.streams.iter().flat_map(|s| &s.constraints).all(|c| c.held);
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Who selects among the variants of a service; where the daemon plans tables as it goes, those that it would. And the classes
/// of its requests, and whether misses of what nothing is promised for are spread.
fn selector(name: &str, config: &Path) -> Result<(Selector, Vec<Class>, bool)> {
    let mut plan = Plan::compute(&Config::load(config)?)?;
    let names = plan.services.iter().map(|service| service.config.name.as_str());
    let place = place_of("--select = ", name, names)?;
    let service = plan.services.swap_remove(place).by_bounds()?;
    if service.config.select == Select::Planned {
        let planned = SelectionPlan::compute(&service, DEFAULT_MAX_MISS)?.selector()?;
        return Ok((planned, classes(&service), service.config.spread));
    }
    let (classes, spread) = (classes(&service), service.config.spread);
    if let Some(Meanwhile { inputs, auto: Some(net) }) = service.meanwhile() {
        let chosen = choose_all(&inputs, net.as_ref())?;
        return Ok((inputs.for_classes(inputs.auto(&chosen, net.as_ref())?)?, classes, spread));
    }
    let nothing = || format!("--select = {name}: nothing is selected there, the base answers alone");
    Ok((service.selector.with_context(nothing)?, classes, spread))
}

fn classes(service: &ServicePlan) -> Vec<Class> {
    let told = service.config.classes.iter().zip(service.class_worths());
    let class =
        |(class, worth): (&RequestClass, _)| Class { name: class.name.clone(), reach: class.reach, worth };
    told.map(class).collect()
}

fn print(report: &Report) {
    say!("SIMULATED, in virtual time");
    for stream in &report.streams {
        say!(
            "{}: {} of {} served, at most {} missed in a row",
            stream.name,
            stream.served,
            stream.arrived,
            stream.longest_miss_run
        );
        for c in &stream.constraints {
            let verdict = if c.held { "kept" } else { "VIOLATED" };
            let (misses, from) = (c.worst_window.misses, c.worst_window.from);
            say!("  {} {verdict}: at worst {misses} misses, from request {from} on", c.constraint);
        }
    }
    if report.by_variant.len() > 1 {
        let counts: Vec<_> = report.by_variant.iter().map(ToString::to_string).collect();
        say!("served by variant, the base first: {}", counts.join(", "));
    }
    for class in &report.classes {
        let worth = class.worth.map_or_else(String::new, |worth| format!(", worth {worth:.3} on average"));
        say!(
            "{}: {} answered, {} of them late, {} missed{worth}",
            class.class,
            class.answered,
            class.late,
            class.missed
        );
    }
    for mode in &report.safe_mode {
        match (&mode.stream, mode.level) {
            (Some(stream), None) => say!("promise to {stream} suspended at {}: {}", mode.at, mode.cause),
            (Some(stream), Some(level)) => {
                say!("level {level} of {stream} in force at {}: {}", mode.at, mode.cause);
            }
            (None, _) => say!("safe mode at {}: {}", mode.at, mode.cause),
        }
    }
}
