//! Where an act is played: a folder of its own, with what is served, its profile and a daemon.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt_core::Span;
use tempfile::TempDir;
use tracing::warn;
use weir_client::blocking::Client;

use crate::commands::profile;
use weir_os::clock;
use weir_plan::config::Config;
use weir_plan::plan::Plan;
use weir_plan::profile::{DEFAULT_EXCEEDANCE, Profile, Request, Rule};

/// Runs of each batch size when profiling.
const SAMPLES: usize = 40;
/// A machine that others use as well, and on which the load is made too, steals more time than a short look at it shows.
const MARGIN: f64 = 1.0;
/// How often it is profiled if what was measured leaves no promise.
const ATTEMPTS: usize = 3;
/// How long the daemon may take to listen, or to end.
const PATIENCE: Span = Span::from_millis(10_000);

/// The folder, which goes with this value, and the configuration with its paths.
pub(super) struct Room {
    folder: TempDir,
    path: PathBuf,
    pub(super) config: Config,
}

impl Room {
    /// With the configuration `text`, a file of that `name`, and with the models of that manifest.
    ///
    /// # Errors
    /// If the folder or the file cannot be written, or the configuration is none.
    pub(super) fn new((name, text): (&str, &str), models: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("weir-demo-").tempdir().context("temporary folder")?;
        let mut table: toml::Table = toml::from_str(text).with_context(|| name.to_owned())?;
        let daemon = table.get_mut("daemon").and_then(toml::Value::as_table_mut);
        let daemon = daemon.with_context(|| format!("{name}: no [daemon]"))?;
        let paths = [
            ("socket", folder.path().join("weir.sock")),
            ("models", models.to_owned()),
            ("profile", folder.path().join("profile.json")),
        ];
        for (field, path) in paths {
            let text = path.to_str().with_context(|| format!("{}: the path is not UTF-8", path.display()))?;
            daemon.insert(field.to_owned(), text.into());
        }
        // It is not the daemon of this machine.
        daemon.insert("bus".to_owned(), "off".into());
        let path = folder.path().join(name);
        std::fs::write(&path, table.to_string()).with_context(|| path.display().to_string())?;
        let config = Config::load(&path)?;
        Ok(Self { folder, path, config })
    }

    /// Profiles and plans; once more if a disturbance of the machine left no promise.
    ///
    /// # Errors
    /// If a model cannot be run, or there is no promise at last.
    pub(super) fn plan(&self) -> Result<(Profile, Plan)> {
        let mut attempt = 1;
        loop {
            let request = Request::quick(SAMPLES, Rule::new(DEFAULT_EXCEEDANCE, MARGIN, true)?);
            let profile = profile::take(&self.config, &request, &AtomicBool::new(false))?.profile;
            match Plan::compute(&self.config) {
                Err(error) if attempt < ATTEMPTS => warn!("{error}; measuring once more"),
                done => return Ok((profile, done?)),
            }
            attempt += 1;
        }
    }

    /// Starts the daemon, and waits until it takes clients.
    ///
    /// # Errors
    /// If it cannot be started, or ends at once.
    pub(super) fn serve(&self) -> Result<(Client, Daemon)> {
        let log = File::create(self.log()).context("the daemon's log")?;
        let mut command = Command::new(weir::commands::find("weir")?);
        command.args(["serve", "--quiet"]).arg(&self.path);
        // A group of its own: an interrupt from the terminal reaches it through us, after the report.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut daemon = Daemon(command.spawn().context("starting the daemon")?);
        let patience = clock::now() + PATIENCE;
        loop {
            match Client::connect(&self.config.daemon.socket) {
                Ok(client) => return Ok((client, daemon)),
                Err(error) if clock::now() > patience => return Err(error.into()),
                Err(_) => {}
            }
            if let Some(status) = daemon.0.try_wait()? {
                bail!("the daemon ended at once, {status}");
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Keeps the folder; the daemon's log in it.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.log()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("daemon.log")
    }
}

/// The daemon as a child process; ends with this value.
pub(super) struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let patience = clock::now() + PATIENCE;
        // Each of these fails only if it has ended already.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        while clock::now() < patience && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_configurations_load_with_the_paths_of_a_run() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/manifest.toml");
        for (name, text) in super::super::CONFIGS {
            let room = Room::new((name, text), &models).unwrap();
            let folder = room.folder.path();
            assert_eq!(room.path, folder.join(name));
            assert_eq!(room.config.daemon.socket, folder.join("weir.sock"));
            assert_eq!(room.config.daemon.models.as_deref(), Some(&*models));
            assert!(!room.config.services[0].constraints.is_empty());
        }
    }
}
