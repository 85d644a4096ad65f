//! `weir verify CERT`: a certificate is derived again by a program of its own.

use std::io::stdin;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use planner::certificate::MAX_BYTES;
use planner::verify::{Prover, verify};
use planner::{Certificate, read_at_most};
use serde_json::json;

use super::certify::REFUTERS;
use weir_os::pipe::say;
use weir_plan::certificate::{certificate, check};
use weir_plan::config::Config;
use weir_plan::profile::Profile;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Certificate; `-` reads it from standard input
    file: PathBuf,
    /// Check as well that it is about this configuration, its profile and this machine, as `weir serve` does
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Have each promise confirmed by the checker that is proved sound as well: the program that `make proof` builds
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, default_missing_value = "weir-proved")]
    proved: Option<PathBuf>,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = || args.file.display().to_string();
    let read = read_certificate(&args.file)?;
    let verified = match &args.config {
        Some(config) => {
            let config = Config::load(config)?;
            let profile = Profile::load(&config.daemon.profile)?;
            check(&read, &certificate(&config, &profile, REFUTERS)?, &config).map_err(anyhow::Error::from)
        }
        None => verify(&read).map_err(anyhow::Error::from),
    };
    let (verified, proved) = match (verified, &args.proved) {
        (Ok(verified), Some(program)) => match prove(&read, program) {
            Ok(proved) => (Ok(verified), Some(proved)),
            Err(error) => (Err(error), None),
        },
        (verified, _) => (verified, None),
    };
    if args.json {
        let error = verified.as_ref().err().map(weir::errors::whole);
        let count = |what: fn(&planner::verify::Verified) -> usize| verified.as_ref().map_or(0, what);
        say!(
            "{:#}",
            json!({
                "verified": verified.is_ok(), "error": error, "promised": count(|v| v.promised),
                "refused": count(|v| v.refused), "limits": count(|v| v.limits), "proved": proved,
            })
        );
        return Ok(if verified.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let verified = verified.with_context(name)?;
    say!(
        "{}: verified: {} claim(s) hold, {} promise nothing, {} limit(s) derived again",
        name(),
        verified.promised,
        verified.refused,
        verified.limits
    );
    if let Some(proved) = proved {
        say!("{}: proved: {proved} claim(s) confirmed by a checker that is proved sound", name());
    }
    Ok(ExitCode::SUCCESS)
}

/// How many claims the proved checker confirms: all that promise something.
fn prove(certificate: &Certificate, program: &Path) -> Result<usize> {
    let (proved, unproved) = Prover::new(program).check(certificate)?;
    match unproved.first() {
        None => Ok(proved),
        Some(first) => {
            bail!("claim {}: not proved: {} ({proved} claim(s) are)", first.claim, first.reason)
        }
    }
}

/// Reads a certificate; `-` is standard input.
pub(super) fn read_certificate(file: &Path) -> Result<Certificate> {
    let name = || file.display().to_string();
    if file.as_os_str() != "-" {
        return Certificate::load(file).with_context(name);
    }
    let text = read_at_most(MAX_BYTES, stdin()).with_context(name)?;
    Certificate::parse(&text).with_context(name)
}
