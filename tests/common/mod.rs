//! Beside a request's way: what every end-to-end test needs to start a daemon, talk to it and see it end.
#![allow(dead_code, reason = "each test uses the part it needs")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use weir_client::blocking::Client;
use weir_client::wire::{ClientFrame, DaemonFrame, ErrorCode, FrameBuffer, VERSION};
use weir_client::{Answer, Outcome, Registration, RequestId};

/// How long a test waits for what must come before it gives up; says nothing about how fast it should be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The whole `[daemon]` table of a test: without real-time priorities, which would only disturb other tests.
pub(crate) const DAEMON: &str = "[daemon]\nsocket = \"s\"\nprofile = \"profile.json\"\nrealtime = false\n";

/// A folder with a configuration, in which the binary is run.
pub(crate) struct Deployment {
    folder: TempDir,
}

impl Deployment {
    /// Writes `config` into a new folder.
    pub(crate) fn new(config: impl AsRef<str>) -> Self {
        let deployment = Self { folder: TempDir::new().expect("a temporary folder") };
        deployment.configure(config);
        deployment
    }

    /// Replaces the configuration.
    pub(crate) fn configure(&self, config: impl AsRef<str>) {
        std::fs::write(self.config(), config.as_ref()).expect("the configuration is written");
    }

    /// Profiles with the fewest runs, then sets each bound to the next of `bounds_ms`: what a test promises
    /// must not depend on the machine it runs on.
    pub(crate) fn profiled(self, bounds_ms: &[u64]) -> Self {
        self.succeed(&["profile", "--quick", "--samples", "10"]);
        self.set_bounds(bounds_ms);
        self
    }

    /// Sets the times and bounds of the first profiled model, in milliseconds for batches of 1, 2, …
    pub(crate) fn set_bounds(&self, bounds_ms: &[u64]) {
        let path = self.path("profile.json");
        let text = std::fs::read_to_string(&path).expect("a profile");
        let mut profile: Value = serde_json::from_str(&text).expect("the profile is JSON");
        let batches = profile["entries"][0]["batches"].as_array_mut().expect("batches");
        assert_eq!(batches.len(), bounds_ms.len(), "one bound per batch size");
        for (batch, ms) in batches.iter_mut().zip(bounds_ms) {
            for field in ["p50_ns", "p99_ns", "max_ns", "bound_ns"] {
                batch[field] = Value::from(ms * 1_000_000);
            }
        }
        std::fs::write(&path, profile.to_string()).expect("the profile is written");
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
    pub(crate) fn serve(self) -> Daemon {
        let daemon = self.spawn(&[]);
        eventually("the daemon's socket", || {
            assert!(daemon.is_running(), "the daemon ended: {}", daemon.stderr());
            UnixStream::connect(daemon.socket()).ok()
        });
        daemon
    }

    /// Starts the daemon with further environment variables; waits for nothing.
    pub(crate) fn spawn(self, variables: &[(&str, &Path)]) -> Daemon {
        let errors = File::create(self.path("stderr")).expect("a file for the daemon's errors");
        let child = Command::new(weir())
            .args(["serve", "--quiet"])
            .arg(self.config())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("weir can be started");
        Daemon { deployment: self, child }
    }
}

/// A running daemon, killed when dropped; what it said on standard error is shown if the test fails.
pub(crate) struct Daemon {
    pub(crate) deployment: Deployment,
    child: Child,
}

impl Daemon {
    /// A client that is connected.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.socket()).expect("the daemon takes a client")
    }

    /// A connection that has said nothing yet.
    pub(crate) fn raw(&self) -> Raw {
        let socket = UnixStream::connect(self.socket()).expect("the daemon accepts");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Raw { socket, buffer: FrameBuffer::new(1 << 24) }
    }

    /// The status, as JSON.
    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.client().status().expect("a status")).expect("the status is JSON")
    }

    /// The status of one stream of the first service.
    pub(crate) fn stream_status(&self, name: &str) -> Value {
        let status = self.status();
        let streams = status["services"][0]["streams"].as_array().expect("streams");
        streams.iter().find(|s| s["name"] == name).cloned().unwrap_or_else(|| panic!("{name} is in {status}"))
    }

    /// How many entries a folder of the daemon's `/proc` has: `fd` its descriptors, `task` its threads.
    pub(crate) fn count(&self, what: &str) -> usize {
        let folder = format!("/proc/{}/{what}", self.child.id());
        std::fs::read_dir(folder).expect("the daemon is there").count()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("the signal is sent");
    }

    /// Waits until the daemon has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the daemon's end", || self.child.try_wait().expect("a child"))
    }

    /// Kills the daemon as a crash would; the deployment, as it was left.
    pub(crate) fn crash(self) -> Deployment {
        let mut daemon = std::mem::ManuallyDrop::new(self);
        daemon.signal(Signal::KILL);
        assert_eq!(daemon.wait().signal(), Some(9));
        let Daemon { deployment, .. } = std::mem::ManuallyDrop::into_inner(daemon).into_parts();
        deployment
    }
}
