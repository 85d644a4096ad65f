//! `weir completions SHELL`: what the shell can complete, from the command line's own definitions.

use std::process::ExitCode;

use anyhow::Result;
use clap_complete::{Shell, generate};

use super::whole;
use weir_os::pipe::say_part;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(args.shell, &mut whole(), "weir", &mut script);
    say_part!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
