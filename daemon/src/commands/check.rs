//! `weir check FILE`: is this configuration right, as far as can be said without the machine?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::config::Config;
use crate::plan::{resolve_models, run_singly};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration files
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for file in &args.files {
        let checked = Config::load(file).map_err(anyhow::Error::from).and_then(|config| {
            let specs = resolve_models(&config)?;
            for (service, specs) in config.services.iter().zip(&specs) {
                run_singly(service, specs)?.iter().for_each(|line| println!("{}: {line}", file.display()));
            }
            Ok(config)
        });
        match checked {
            Ok(config) => {
                let streams: usize = config.services.iter().map(|s| s.reserved.len()).sum();
                let services = config.services.len();
                println!("{}: ok, {services} service(s), {streams} reserved stream(s)", file.display());
            }
            Err(error) => {
                eprintln!("weir: {}", super::whole(&error));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
