//! A folder with a configuration, and what the binary says when it is run there.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::{Daemon, eventually, stderr, weir};

/// A folder with a configuration, in which the binary is run; it goes with the last clone.
#[derive(Clone)]
pub(crate) struct Deployment {
    folder: Arc<TempDir>,
}

impl Deployment {
    /// Writes `config` into a new folder.
    pub(crate) fn new(config: impl AsRef<str>) -> Self {
        let deployment = Self { folder: Arc::new(TempDir::new().expect("a temporary folder")) };
        deployment.configure(config);
        deployment
    }

    /// Replaces the configuration.
    pub(crate) fn configure(&self, config: impl AsRef<str>) {
        std::fs::write(self.config(), config.as_ref()).expect("the configuration is written");
    }

    /// Where the configuration lies.
    pub(crate) fn config(&self) -> PathBuf {
        self.path("weir.toml")
    }

    /// A path within the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The daemon's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("s")
    }

    /// Runs a subcommand on the configuration and waits for its end.
    pub(crate) fn weir(&self, arguments: &[&str]) -> Output {
        let output = Command::new(weir()).args(arguments).arg(self.config()).output();
        output.expect("weir can be run")
    }

    /// Runs a subcommand that must succeed; its standard output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.weir(arguments);
        assert!(output.status.success(), "weir {arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Runs a subcommand that must fail with a code of its own; its standard error.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let output = self.weir(arguments);
        assert!(output.status.code().is_some_and(|code| code != 0), "weir {arguments:?}: {}", output.status);
        stderr(&output)
    }

    /// Starts the daemon and waits until it takes clients.
    pub(crate) fn serve(&self) -> Daemon {
        let mut daemon = self.spawn(&[]);
        eventually("the daemon's socket", || {
            assert!(daemon.ended().is_none(), "the daemon ended: {}", daemon.stderr());
            UnixStream::connect(self.socket()).ok()
        });
        daemon
    }

    /// Starts the daemon with further environment variables; waits for nothing.
    pub(crate) fn spawn(&self, variables: &[(&str, &Path)]) -> Daemon {
        let errors = File::create(self.path("stderr")).expect("a file for the daemon's errors");
        self.spawn_telling(variables, errors)
    }

    /// The same with another standard error.
    pub(crate) fn spawn_telling(&self, variables: &[(&str, &Path)], errors: impl Into<Stdio>) -> Daemon {
        self.spawn_by(Command::new(weir()).envs(variables.iter().copied()), errors)
    }

    /// The same by another command, to which the rest of the command line is added; it becomes the daemon.
    pub(crate) fn spawn_by(&self, command: &mut Command, errors: impl Into<Stdio>) -> Daemon {
        let child = command
            .args(["serve", "--quiet"])
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("weir can be started");
        Daemon::new(self.clone(), child)
    }
}
