//! `weir check FILE`: is this configuration right, as far as can be said without the machine?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use weir_os::notice;
use weir_os::pipe::say;
use weir_plan::config::{Config, ConfigError, Select};
use weir_plan::models::{resolve_models, run_singly};
use weir_plan::plan::{Plan, PlanError, check_tables};
use weir_plan::profile::Profile;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration files
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut code = 0;
    for file in &args.files {
        let checked = Config::load(file).map_err(anyhow::Error::from).and_then(|config| {
            let models = resolve_models(&config)?;
            for (service, variants) in config.services.iter().zip(&models) {
                run_singly(service, variants)?.iter().for_each(|line| say!("{}: {line}", file.display()));
                if let Select::Table(path) = &service.select {
                    check_tables(path, variants.len())?;
                }
            }
            // What they were made for can be told where this machine has been profiled.
            let profile = Profile::load(&config.daemon.profile);
            match profile.map(|profile| Plan::of(&config, models, &profile)) {
                Ok(Err(error @ PlanError::Table { .. })) => Err(error.into()),
                _ => Ok(config),
            }
        });
        match checked {
            Ok(config) => {
                let streams: usize = config.services.iter().map(|s| s.reserved.len()).sum();
                let services = config.services.len();
                say!("{}: ok, {services} service(s), {streams} reserved stream(s)", file.display());
            }
            Err(error) => {
                notice::say(crate::errors::whole(&error));
                let unread = matches!(error.downcast_ref(), Some(ConfigError::Read { .. }));
                code = code.max(if unread { 2 } else { 1 });
            }
        }
    }
    Ok(ExitCode::from(code))
}
