//! `weir replay CERT`: a certificate's counterexample, replayed in the scheduler.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use planner::{PipelineProblem, Problem, SharedProblem};
use serde_json::{Value, json};
use sim::{Broken, Replay, Waited};

use super::certify::word;
use super::verify::read_certificate;
use weir_os::pipe::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Certificate of a refused load; `-` reads it from standard input
    file: PathBuf,
    /// Print every request as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = || args.file.display().to_string();
    let certificate = read_certificate(&args.file)?;
    let mut shown = Vec::new();
    let mut show = |whose: &'static str, name: Option<String>, replay: &Replay| {
        if args.json {
            shown.push(json!({ whose: name, "replay": replay }));
        } else {
            print(name, &replay.broken);
            shown.push(Value::Null);
        }
    };
    for (i, claim) in certificate.claims.iter().enumerate() {
        let Some(refutation) = &claim.refutation else { continue };
        let problem = Problem::from_raw(claim.problem.clone()).with_context(name)?;
        let replay = sim::replay(&problem, refutation).with_context(|| format!("{}: claim {i}", name()))?;
        show("service", claim.service.as_ref().map(|s| s.name.clone()), &replay);
    }
    for claim in &certificate.shared {
        let Some(refutation) = &claim.refutation else { continue };
        let problem = SharedProblem::from_raw(claim.problem.clone()).with_context(name)?;
        let replay = sim::replay_shared(&problem, refutation).with_context(name)?;
        show("device", claim.device.as_ref().map(|device| device.name.clone()), &replay);
    }
    for claim in &certificate.pipelines {
        let Some(refutation) = &claim.refutation else { continue };
        let problem = PipelineProblem::from_raw(claim.problem.clone()).with_context(name)?;
        let replay = sim::replay_pipeline(&problem, refutation).with_context(name)?;
        show("pipeline", claim.service.as_ref().map(|service| service.name.clone()), &replay);
    }
    if shown.is_empty() {
        bail!("{}: nothing to replay: no claim is refused with arrivals that show it", name());
    }
    if args.json {
        say!("{:#}", Value::Array(shown));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(service: Option<String>, broken: &Broken) {
    let Broken { shows, stream, constraint, window: (first, last), instants: (from, to), misses, .. } =
        broken;
    let service = service.map(|s| format!("{s}: ")).unwrap_or_default();
    match constraint {
        Some(constraint) => say!(
            "{service}{}: {constraint} of stream {stream} is broken: {misses} misses in requests {first} to {last}, \
             which came at {from} to {to}",
            word(shows)
        ),
        None => {
            say!("{service}{}: request {first} of stream {stream}, which came at {from}", word(shows));
        }
    }
    if let Some(Waited { source, stage, time }) = &broken.waited {
        say!("  source {source} waited longest at {stage}: {time}");
    }
}
