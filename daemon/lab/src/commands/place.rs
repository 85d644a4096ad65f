//! `weir place`: which variant of which service runs on which devices, so that every promise is kept.

mod boxed;
mod picture;
mod told;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use placement::{Answer, Problem, place};

use weir_os::pipe::say;

/// The least and the longest that the search may take.
const LIMITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(86_400));
/// How long a plan of an abstract problem is looked for, if nobody says.
const LIMIT: Duration = Duration::from_secs(10);

/// What fits of the demand and what does not are further apart only if the time was over.
const CUT_OFF: f64 = 1e-3;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file whose services say among which models to choose; `-` reads it from standard input, as if it lay here
    #[arg(required_unless_present = "problem", conflicts_with = "problem", value_name = "BOX")]
    file: Option<PathBuf>,
    /// An abstract problem instead, as JSON; `-` reads it from standard input
    #[arg(long, value_name = "FILE")]
    problem: Option<PathBuf>,
    /// Mean requests a second by service, as JSON; `status` counts what comes to the running daemon
    #[arg(long, value_name = "FILE", conflicts_with = "problem")]
    demand: Option<String>,
    /// What BOX is taken to say, as the daemon asks that serves something else by now
    #[arg(long, hide = true, value_name = "FILE", requires = "file")]
    text: Option<PathBuf>,
    /// Devices that are not to be used, as the daemon asks that has lost them
    #[arg(long, hide = true, value_name = "FILE", requires = "text")]
    gone: Option<PathBuf>,
    /// Beside what BOX says, which is served, what it finds is tried for so long in virtual time, as the daemon asks
    #[arg(long, hide = true, value_name = "TIME", requires = "text", value_parser = humantime::parse_duration)]
    simulate: Option<Duration>,
    /// Where the configuration goes, with what serves each service; beside BOX
    #[arg(long, short, value_name = "PATH", conflicts_with = "problem")]
    output: Option<PathBuf>,
    /// Draw what keeps each device busy, as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "problem")]
    figure: Option<PathBuf>,
    /// How long to look for a better plan, or for a proof that there is none [default: placement.limit, or 10s for a problem]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    limit: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (least, most) = LIMITS;
    if let Some(limit) = args.limit.filter(|limit| !(least..=most).contains(limit)) {
        anyhow::bail!(
            "--limit {}: must be from {} to {}",
            humantime::format_duration(limit),
            humantime::format_duration(least),
            humantime::format_duration(most)
        );
    }
    match (&args.file, &args.problem) {
        (Some(file), _) => boxed::run(args, file),
        (None, Some(file)) => run_problem(args, file),
        (None, None) => unreachable!("one of them is required"),
    }
}

fn run_problem(args: &Args, file: &Path) -> Result<ExitCode> {
    let text = super::certify::read_text(file)?;
    let problem = Problem::parse(&text).with_context(|| file.display().to_string())?;
    let placed = place(&problem, args.limit.unwrap_or(LIMIT))?;
    let answer = Answer::new(&problem, &placed);
    if args.json {
        say!("{}", serde_json::to_string_pretty(&answer)?);
    } else {
        print(&answer);
    }
    Ok(if answer.feasible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(answer: &Answer) {
    match (answer.feasible, answer.reason) {
        (true, _) => say!("all demand is served, every promise is kept"),
        (false, Some("promises")) => {
            say!("the promises do not fit; if as little as possible is missing, it is of");
            for violated in answer.violated.iter().flatten() {
                say!("  {}: {:.1} % of what keeps it", violated.service, violated.missing * 100.0);
            }
            let missing: f64 = answer.violated.iter().flatten().map(|of| of.missing).sum();
            if let Some(bound) = answer.missing_bound.filter(|bound| bound + 1e-4 < missing) {
                say!(
                    "  {:.1} % in sum; {:.1} % are sure: a longer --limit may tell",
                    missing * 100.0,
                    bound * 100.0
                );
            }
            return;
        }
        (false, Some("demand")) => {
            let (fits, bound) = (answer.factor.unwrap_or(0.0), answer.factor_bound.unwrap_or(1.0));
            say!("the promises fit, the demand does not: {fits:.5} of it does, {bound:.5} is too much");
            if answer.violated.iter().flatten().next().is_none() && bound - fits > CUT_OFF {
                say!(
                    "the time was over before it was known how much of what is between them fits: a longer --limit may tell"
                );
            }
            answer
                .violated
                .iter()
                .flatten()
                .for_each(|of| say!("  {}: no device is fast enough", of.service));
        }
        _ => say!("no plan was found in time, and none was ruled out: a longer --limit may tell"),
    }
    if let Some(accuracy) = answer.accuracy {
        let bound = match (answer.bound, answer.gap) {
            (_, Some(gap)) if gap <= placement::PROVEN => ", and no plan is better".to_owned(),
            (Some(bound), Some(gap)) => {
                format!("; no plan has more than {bound:.3}, {gap:.3} points above it")
            }
            _ => String::new(),
        };
        say!("effective accuracy {accuracy:.3}{bound}");
    }
    if !answer.plan.is_empty() {
        say!("");
        say!("{:<16} {:>5}  {:<48} {:>12}", "class", "count", "holds", "answers /s");
    }
    for (i, devices) in answer.plan.iter().enumerate() {
        for (j, runs) in devices.configuration.iter().enumerate() {
            let (class, count) = if j == 0 {
                (devices.class.as_str(), devices.count.to_string())
            } else {
                ("", String::new())
            };
            let name = [Some(&runs.service), runs.stage.as_ref(), Some(&runs.variant)];
            let name: Vec<&str> = name.into_iter().flatten().map(String::as_str).collect();
            let batch = runs.batch.map(|batch| format!(", batch {batch}")).unwrap_or_default();
            let turn = runs.turn.map(|turn| format!(", {turn} in a round")).unwrap_or_default();
            let role = runs.role.map(|role| format!(", {role}")).unwrap_or_default();
            let same = |flow: &&placement::answer::Flow| {
                flow.devices == i
                    && flow.service == runs.service
                    && flow.stage == runs.stage
                    && flow.variant == runs.variant
            };
            let rate =
                answer.flows.iter().filter(same).map(|flow| flow.rate).fold(0.0, |all, rate| all + rate);
            say!(
                "{class:<16} {count:>5}  {:<48} {rate:>12.1}",
                format!("{}{batch}{turn}{role}", name.join("/"))
            );
        }
    }
    for kept in &answer.promises {
        let kinds = kept.kinds.iter().map(|kind| {
            let quota = kind.quota.map(|quota| format!(" at {quota:.3} of it each")).unwrap_or_default();
            format!("{} with batches of {} in {:.3} ms{quota}", kind.count, kind.batch, kind.time)
        });
        let theta =
            kept.theta.map(|theta| format!("; {:.1} % of mandatory requests go to the first", theta * 100.0));
        say!(
            "{}: kept by {}{}",
            kept.service,
            kinds.collect::<Vec<_>>().join(" and "),
            theta.unwrap_or_default()
        );
    }
}
