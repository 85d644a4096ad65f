//! Experiments from files: their tables are printed, their figures and all numbers are written beside.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sim::experiment::{Data, Experiment, Results};
use tracing::warn;
use weir_os::pipe::say;

#[derive(clap::Args)]
#[command(next_help_heading = "Experiments")]
pub(super) struct Options {
    /// Where figures (SVG) and numbers (CSV) are written; made if it is not there
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Put the tables into this Markdown file, between `<!-- NAME -->` and `<!-- end NAME -->`
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Where measurements and traces lie that an experiment names
    #[arg(long, value_name = "FOLDER", env = "WEIR_DATA")]
    data: Option<PathBuf>,
    /// Runs of each cell, instead of what the experiment says
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Requests of a run, instead of what the experiment says
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
}

pub(super) fn run(files: &[PathBuf], options: &Options, json: bool) -> Result<ExitCode> {
    let data = Data(options.data.clone());
    let mut broken = false;
    // All are read before any is run: it may take long.
    let read = |file: &PathBuf| {
        let named = || file.display().to_string();
        let text = planner::read_text(file).with_context(named)?;
        let mut experiment = Experiment::parse(&text, &data).with_context(named)?;
        experiment.runs = options.runs.unwrap_or(experiment.runs);
        experiment.requests = options.requests.unwrap_or(experiment.requests);
        let name = file.file_stem().context("an experiment has a file name")?.to_string_lossy().into_owned();
        Ok((name, experiment))
    };
    let experiments = files.iter().map(read).collect::<Result<Vec<_>>>()?;
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    if let Some(file) = &options.into {
        experiments.iter().try_for_each(|(name, _)| insert(file, name, None))?;
    }
    let mut told = Vec::new();
    for (name, experiment) in &experiments {
        let results = run_one(name, experiment)?;
        for cell in results.broken() {
            broken = true;
            warn!(
                "{name}: the promise was broken: {}, {}, x = {}: a constraint was violated and nothing announced",
                cell.system, cell.arrivals, cell.x
            );
        }
        if let Some(folder) = &options.out {
            write(folder, name, experiment, &results)?;
        }
        let tables = experiment.tables(&results);
        if let Some(file) = &options.into {
            insert(file, name, Some(&tables))?;
        }
        if json {
            told.push(serde_json::json!({ "experiment": name, "results": results }));
        } else {
            say!("# {}\n\nSIMULATED, in virtual time\n\n{}\n{tables}", experiment.title, experiment.about);
        }
    }
    if json {
        say!("{}", serde_json::to_string_pretty(&told)?);
    }
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_one(name: &str, experiment: &Experiment) -> Result<Results> {
    let bar = ProgressBar::new(experiment.size() as u64);
    let style = "{prefix} {bar:32} {pos}/{len} runs, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    let results = experiment.run(&|| bar.inc(1)).with_context(|| name.to_owned());
    bar.finish_and_clear();
    results
}

fn write(folder: &Path, name: &str, experiment: &Experiment, results: &Results) -> Result<()> {
    let files = experiment.figures(results).into_iter().map(|(name, svg)| (format!("{name}.svg"), svg));
    for (file, text) in files.chain([(format!("{name}.csv"), results.csv())]) {
        let path = folder.join(file);
        planner::write_atomically(&path, text.as_bytes()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Puts `tables` between the marks of an experiment; without, only looks for the marks.
fn insert(file: &Path, name: &str, tables: Option<&str>) -> Result<()> {
    let path = || file.display().to_string();
    let text = planner::read_text(file).with_context(path)?;
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end {name} -->"));
    let Some((before, (_, after))) =
        text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)))
    else {
        bail!("{}: must hold {} and {end}", path(), begin.trim_end());
    };
    let Some(tables) = tables else { return Ok(()) };
    let text = format!("{before}{begin}\n{tables}\n{end}{after}");
    planner::write_atomically(file, text.as_bytes()).with_context(path)
}
