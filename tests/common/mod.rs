//! Beside a request's way: what every end-to-end test needs to start a daemon, talk to it and see it end.
#![allow(dead_code, unused_imports, reason = "each test uses the part it needs")]

mod raw;

mod bounds;

mod told;

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use weir_client::blocking::Client;
use weir_client::{Answer, Outcome, Registration, RequestId, StreamInfo};

pub(crate) use raw::{Raw, frame, hello};
pub(crate) use told::Listener;

/// How long a test waits for what must come before it gives up; says nothing about how fast it should be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The whole `[daemon]` table of a test: without real-time priorities and a bus of the machine's, which would only
/// disturb other tests.
pub(crate) const DAEMON: &str =
    "[daemon]\nsocket = \"s\"\nprofile = \"profile.json\"\nrealtime = false\nbus = \"off\"\n";

/// The same with real-time priorities, where the machine permits them: what is said at the end of a test's daemon tells
/// whether it did.
pub(crate) fn daemon_in_real_time() -> String {
    DAEMON.replace("realtime = false", "realtime = true")
}

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

    /// Measures the models with a few runs, until they can be planned with: on a busy machine a better variant can seem
    /// to be faster than the base, which is refused.
    pub(crate) fn measure(&self) {
        eventually("a profile to plan with", || {
            self.succeed(&["profile", "--quick", "--samples", "10", "--afresh"]);
            self.weir(&["plan"]).status.success().then_some(())
        });
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
        Daemon { deployment: self.clone(), child }
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
        Client::connect(self.deployment.socket()).expect("the daemon takes a client")
    }

    /// A connection that has said nothing yet.
    pub(crate) fn raw(&self) -> Raw {
        let socket = UnixStream::connect(self.deployment.socket()).expect("the daemon accepts");
        Raw::new(socket)
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

    /// The number of its thread of that name, and its folder in `/proc`.
    pub(crate) fn thread(&self, name: &str) -> (i32, PathBuf) {
        let folder = format!("/proc/{}/task", self.child.id());
        let threads = std::fs::read_dir(folder).expect("the daemon is there").flatten();
        let named = |folder: &PathBuf| {
            std::fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let folder = threads.map(|thread| thread.path()).find(named).expect("a thread of that name");
        let number = folder.file_name().and_then(|number| number.to_str()?.parse().ok());
        (number.expect("a number"), folder)
    }

    /// The daemon's resident memory.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        line.and_then(|kib| kib.trim().parse().ok()).expect("VmRSS")
    }

    /// The processes that the daemon has started and not yet buried.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let tasks =
            std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the daemon is there");
        let paths = tasks.filter_map(|task| Some(task.ok()?.path().join("children")));
        let lists = paths.filter_map(|path| std::fs::read_to_string(path).ok()).collect::<Vec<_>>().join(" ");
        lists.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }

    /// How many memories of clients the daemon has mapped.
    pub(crate) fn arenas(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id()));
        maps.expect("the daemon is there").matches("memfd:weir-arena").count()
    }

    /// `weir reload`.
    pub(crate) fn reload(&self) -> Output {
        let output = Command::new(weir()).args(["reload", "--socket"]).arg(self.deployment.socket()).output();
        output.expect("weir can be run")
    }

    /// A reload that must be accepted; what it printed.
    pub(crate) fn reload_accepted(&self) -> String {
        let output = self.reload();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// A reload that must be refused; why.
    pub(crate) fn reload_refused(&self) -> String {
        let output = self.reload();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
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

    /// The daemon's exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// What the daemon has said on standard error.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.deployment.path("stderr")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let config = std::fs::read_to_string(self.deployment.config()).unwrap_or_default();
        if config.contains("realtime = true") && self.stderr().contains("no real-time priority") {
            not_checked(
                "what real-time priorities change: they are not permitted (LimitRTPRIO, CAP_SYS_NICE)",
            );
        }
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.stderr());
        }
    }
}

/// The registration of a best-effort or reserved stream.
pub(crate) fn best_effort(service: &str, stream: &str) -> Registration {
    Registration::builder(service, stream).build().expect("it fits the frame")
}

/// Takes the answers to `ids` in any order, each exactly once; events are left out.
pub(crate) fn answers(client: &mut Client, ids: &[RequestId]) -> Vec<Outcome> {
    let mut open: Vec<RequestId> = ids.to_vec();
    let mut outcomes = Vec::new();
    while !open.is_empty() {
        let (id, outcome) = match client.recv_timeout(PATIENCE).expect("the connection stays") {
            Some(Answer::Result(id, result)) => (id, Outcome::Result(result)),
            Some(Answer::Miss(id, miss)) => (id, Outcome::Miss(miss)),
            Some(Answer::Event(_)) => continue,
            Some(Answer::Refused(id, refusal)) => panic!("{id}: {refusal}"),
            None => panic!("{} requests have no answer", open.len()),
        };
        let place = open.iter().position(|of| *of == id);
        open.swap_remove(place.unwrap_or_else(|| panic!("{id} was answered twice")));
        outcomes.push(outcome);
    }
    outcomes
}

/// The values of an answer's only output; `None` for a miss.
pub(crate) fn values(stream: &StreamInfo, outcome: &Outcome) -> Option<Vec<f32>> {
    outcome.result().map(|result| stream.output(result).expect("an output of f32"))
}

/// Looks again every few milliseconds until there is something to be found.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} did not come");
        pause(Duration::from_millis(5));
    }
}

/// Lets at least this much time pass.
pub(crate) fn pause(length: Duration) {
    let started = now();
    while let Some(left) = length.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Says that a check cannot be made here, and why; the end of `make test` says it again.
pub(crate) fn not_checked(what: &str) {
    eprintln!("NOT CHECKED: {what}");
    if let Some(path) = std::env::var_os("WEIR_NOT_CHECKED") {
        let mut file = File::options().create(true).append(true).open(path).expect("a file to append to");
        file.write_all(format!("{what}\n").as_bytes()).expect("written");
    }
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The binary under test.
pub(crate) fn weir() -> &'static str {
    env!("CARGO_BIN_EXE_weir")
}

/// The present instant of the test.
#[allow(clippy::disallowed_methods, reason = "a test paces its clients and waits in its own time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
