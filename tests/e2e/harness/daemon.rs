//! A running daemon, as a test sees it from outside: its clients, its status, its folder in `/proc`, its end.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_client::blocking::Client;

use super::{Deployment, Raw, eventually, not_checked, stderr, weir};

/// A running daemon, killed when dropped; what it said on standard error is shown if the test fails.
pub(crate) struct Daemon {
    pub(crate) deployment: Deployment,
    child: Child,
}

impl Daemon {
    /// The process that was started in `deployment`.
    pub(super) fn new(deployment: Deployment, child: Child) -> Self {
        Self { deployment, child }
    }

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

    /// The processor time that it has taken so far, that of threads which have ended with it.
    pub(crate) fn taken(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("the daemon is there");
        let fields = stat.rsplit(") ").next().expect("behind its name").split(' ').skip(11).take(2);
        // A hundred a second (proc(5), USER_HZ).
        fields.map(|ticks| Duration::from_millis(10 * ticks.parse::<u64>().expect("a number"))).sum()
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
