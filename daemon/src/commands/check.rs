//! `weir check FILE`: is this configuration right, and can this machine run what it names?

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tracing::warn;

use weir_oip::tls::HTTP;
use weir_os::notice;
use weir_os::pipe::say;
use weir_plan::config::{Config, ConfigError, Select, ServiceConfig, tight_classes};
use weir_plan::models::{Running, resolve_models, run_singly, running, try_models};
use weir_plan::place::measured;
use weir_plan::plan::{Plan, PlanError, check_tables, check_weights};
use weir_plan::profile::{Fingerprint, Profile, ProfileError};
use weir_plan::text::{tree, warn_of};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Load no model and look for no engine and no core: is the configuration right for some machine?
    #[arg(long)]
    no_models: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut code = 0;
    for file in &args.files {
        let checked = Config::load_box(file).map_err(anyhow::Error::from).and_then(|whole| {
            // What may be chosen must do as well as what was.
            let config = measured(&whole);
            let models = resolve_models(&config)?;
            for Running { config: service, specs: variants, .. } in running(&config, &models) {
                run_singly(service, variants)?.iter().for_each(|line| say!("{}: {line}", file.display()));
                match &service.select {
                    Select::Table(path) => check_tables(path, variants.len())?,
                    Select::Learned(path) => check_weights(path, variants.len(), service.classes.len())?,
                    Select::Auto(Some(path)) => check_weights(path, variants.len(), service.classes.len())?,
                    Select::Base | Select::Accurate | Select::Planned | Select::Auto(None) => {}
                }
            }
            for (service, specs) in config.services.iter().zip(&models).filter(|(s, _)| !s.stages.is_empty())
            {
                tree(service, specs).iter().for_each(|line| say!("{}: {line}", file.display()));
            }
            if !args.no_models {
                check_cores(&config)?;
                if let Some(tls) = &config.daemon.oip.tls {
                    let pems = tls.read().and_then(|pems| tls.config(&pems, HTTP));
                    pems.with_context(|| format!("{}: daemon.oip.tls", file.display()))?;
                }
                for Running { config: service, specs: variants, .. } in running(&config, &models) {
                    let lines = try_models(service, variants)
                        .with_context(|| format!("{}: service {}", file.display(), service.name))?;
                    lines.iter().for_each(|line| say!("{}: {line}", file.display()));
                }
            }
            // What they were made for can be told where this machine has been profiled.
            let profile = match Profile::load(&config.daemon.profile) {
                Ok(profile) => profile,
                Err(ProfileError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    return Ok(whole);
                }
                Err(error) => {
                    warn!("{error}");
                    return Ok(whole);
                }
            };
            if whole.services.iter().any(ServiceConfig::is_open) {
                return Ok(whole);
            }
            // Read anew only where other models were looked at than are served.
            let models = if whole.placement.is_some() { resolve_models(&whole)? } else { models };
            let plan = Plan::of(&whole, models, &profile);
            if !args.no_models {
                let machine = || profile.fingerprint().differences(&Fingerprint::current());
                warn_of(&plan.as_ref().map_or_else(|_| machine(), Plan::mismatches));
            }
            match plan {
                Err(error) => {
                    let of_file = |error: &PlanError| {
                        matches!(
                            error,
                            PlanError::Table { .. } | PlanError::Weights { .. } | PlanError::Timeout { .. }
                        )
                    };
                    match error.each().into_iter().find(of_file) {
                        Some(error) => Err(error.into()),
                        None => Ok(whole),
                    }
                }
                Ok(_) => Ok(whole),
            }
        });
        match checked {
            Ok(config) => {
                let idle = config.services.iter().flat_map(ServiceConfig::idle_levels);
                let tight = tight_classes(&config.services.iter().collect::<Vec<_>>());
                idle.chain(tight).for_each(|line| warn!("{}: {line}", file.display()));
                let streams: usize = config.services.iter().map(|s| s.reserved.len()).sum();
                let services = config.services.len();
                say!("{}: ok, {services} service(s), {streams} reserved stream(s)", file.display());
                let open = config.services.iter().filter(|service| service.is_open()).count();
                if open > 0 {
                    say!("{}: {open} service(s) are to be placed: run `weir place`", file.display());
                }
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

/// Refuses workers that are to run on cores which are not there.
fn check_cores(config: &Config) -> Result<()> {
    // Nothing is refused where the kernel does not tell.
    let Ok(text) = std::fs::read_to_string("/sys/devices/system/cpu/online") else { return Ok(()) };
    let online = cores(text.trim());
    for service in config.services.iter().flat_map(ServiceConfig::running) {
        if let Some(core) = service.cores.iter().find(|core| !online.contains(core)) {
            let (path, at, cores) = (config.path.display(), &service.at, text.trim());
            bail!("{path}: {at}.cores = {core}: this machine has no such core, only {cores}");
        }
    }
    Ok(())
}

/// The numbers of a list such as `0-3,8`.
fn cores(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::cores;

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(cores("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cores("0"), [0]);
        assert!(cores("").is_empty());
    }
}
