//! `weir simulate`: what becomes of given arrivals, in virtual time, by the scheduler that the daemon runs, and
//! experiments that compare it with its rivals.

mod experiment;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sim::{PolicyKind, Report, simulate};

use super::certify::read_problem;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Experiments to run; or else --problem and --arrivals
    #[arg(value_name = "EXPERIMENT", required_unless_present = "problem", conflicts_with_all = ["problem", "arrivals", "policy"])]
    experiments: Vec<PathBuf>,
    /// The abstract problem
    #[arg(long, value_name = "FILE", requires = "arrivals")]
    problem: Option<PathBuf>,
    /// Lines `time,stream`, times in the problem's unit; `-` reads standard input
    #[arg(long, value_name = "CSV", requires = "problem")]
    arrivals: Option<PathBuf>,
    /// Who decides
    #[arg(long, value_name = "NAME", default_value = "weir", value_parser = str::parse::<PolicyKind>)]
    policy: PolicyKind,
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
    let problem = read_problem(problem)?;
    let name = || arrivals.display().to_string();
    let csv: Box<dyn Read> = match name().as_str() {
        "-" => Box::new(stdin().lock()),
        path => Box::new(BufReader::new(File::open(path).with_context(name)?)),
    };
    let report = simulate(&problem, csv, args.policy).with_context(name)?;
    if args.json {
        let mut out = BufWriter::new(stdout().lock());
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        out.flush()?;
    } else {
        print(&report);
    }
    let held = report.streams.iter().flat_map(|s| &s.constraints).all(|c| c.held);
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Report) {
    println!("SIMULATED, in virtual time");
    for stream in &report.streams {
        println!(
            "{}: {} of {} served, at most {} missed in a row",
            stream.name, stream.served, stream.arrived, stream.longest_miss_run
        );
        for c in &stream.constraints {
            let verdict = if c.held { "kept" } else { "VIOLATED" };
            let (misses, from) = (c.worst_window.misses, c.worst_window.from);
            println!("  {} {verdict}: at worst {misses} misses, from request {from} on", c.constraint);
        }
    }
    for mode in &report.safe_mode {
        println!("safe mode at {}: {}", mode.at, mode.cause);
    }
}
