//! A message bus of a test's own, with the policy that is shipped, and what foreign clients say on it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};

use super::{DAEMON, Deployment, PATIENCE, eventually, not_checked, repository};

/// A bus, killed when dropped.
pub(crate) struct Bus {
    place: Deployment,
    child: Child,
}

/// What a foreign client said, and whether it was content.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Bus {
    /// Starts a bus on the socket `bus` in the folder of `place`, with the rules of a system bus and the shipped
    /// ones.
    pub(crate) fn start(place: &Deployment) -> Self {
        let shipped = std::fs::read_to_string(repository("systemd/org.weir.Weir1.conf")).expect("the policy");
        assert!(shipped.contains("<policy user=\"weir\">"), "the policy is not for the user of the unit");
        // Tests run as whoever runs them.
        let own = rustix::process::geteuid().as_raw().to_string();
        let policy = shipped.replace("<policy user=\"weir\">", &format!("<policy user=\"{own}\">"));
        std::fs::write(place.path("weir.conf"), policy).expect("written");
        let (address, include) = (address(place), place.path("weir.conf").display().to_string());
        let config = format!(
            r#"<busconfig>
              <type>system</type>
              <listen>{address}</listen>
              <auth>EXTERNAL</auth>
              <policy context="default">
                <allow user="*"/>
                <deny own="*"/>
                <deny send_type="method_call"/>
                <allow send_type="signal"/>
                <allow send_requested_reply="true" send_type="method_return"/>
                <allow send_requested_reply="true" send_type="error"/>
                <allow receive_type="method_call"/>
                <allow receive_type="method_return"/>
                <allow receive_type="error"/>
                <allow receive_type="signal"/>
                <allow send_destination="org.freedesktop.DBus"/>
                <allow own="org.freedesktop.PolicyKit1"/>
                <allow send_destination="org.freedesktop.PolicyKit1"/>
              </policy>
              <include>{include}</include>
            </busconfig>"#
        );
        std::fs::write(place.path("bus.conf"), config).expect("written");
        // Others than the one who runs the test are to reach the bus.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.path(""), open).expect("set");
        // Left behind by a bus that was killed.
        let _ = std::fs::remove_file(place.path("bus"));
        let config = format!("--config-file={}", place.path("bus.conf").display());
        let child = Command::new("dbus-daemon")
            .args([&config, "--nofork", "--nopidfile"])
            // It complains at each start that it may not raise its limits.
            .stderr(File::create(place.path("bus.stderr")).expect("a file for the bus's errors"))
            .spawn()
            .expect("dbus-daemon can be started (Debian package dbus-daemon)");
        eventually("the bus", || std::os::unix::net::UnixStream::connect(place.path("bus")).ok());
        Self { place: place.clone(), child }
    }

    /// Ends the bus with everything on it.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("buried");
    }

    /// Sends the bus a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("the signal is sent");
    }

    /// What `busctl` says, as user `uid` if it is to be another one.
    pub(crate) fn busctl(&self, uid: Option<u32>, arguments: &[&str]) -> Said {
        let address = format!("--address={}", address(&self.place));
        let mut whole = vec!["busctl".to_owned(), address];
        whole.extend(arguments.iter().map(|a| (*a).to_owned()));
        run(uid, &whole)
    }

    /// What `gdbus` says of a call on the manager, as user `uid` if it is to be another one.
    pub(crate) fn gdbus(&self, uid: Option<u32>, method: &str, arguments: &[&str]) -> Said {
        let mut whole: Vec<String> = ["gdbus", "call", "--address"].iter().map(|a| (*a).to_owned()).collect();
        whole.push(address(&self.place));
        let to = ["--dest", "org.weir.Weir1", "--object-path", "/org/weir/Weir1", "--method", method];
        whole.extend(to.iter().chain(arguments).map(|a| (*a).to_owned()));
        run(uid, &whole)
    }

    /// A property, as `busctl` writes it.
    pub(crate) fn property(&self, path: &str, interface: &str, name: &str) -> String {
        let said = self.busctl(None, &["get-property", "org.weir.Weir1", path, interface, name]);
        assert!(said.ok, "{name}: {said:?}");
        said.out.trim().to_owned()
    }

    /// A call on the manager through `busctl`.
    pub(crate) fn call(&self, uid: Option<u32>, arguments: &[&str]) -> Said {
        let to = ["call", "org.weir.Weir1", "/org/weir/Weir1", "org.weir.Weir1.Manager"];
        self.busctl(uid, &[&to, arguments].concat())
    }

    /// Waits until the daemon is on the bus.
    pub(crate) fn wait_for_weir(&self) {
        let there = || self.busctl(None, &["status", "org.weir.Weir1"]).ok;
        eventually("the daemon on the bus", || there().then_some(()));
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let said = std::fs::read_to_string(self.place.path("bus.stderr")).unwrap_or_default();
            eprintln!("the bus said:\n{said}");
        }
    }
}

/// The address of the bus in `place`.
pub(crate) fn address(place: &Deployment) -> String {
    format!("unix:path={}", place.path("bus").display())
}

/// The `[daemon]` table of one that goes on that bus.
pub(crate) fn daemon_on_bus(place: &Deployment) -> String {
    DAEMON.replace("bus = \"off\"", &format!("bus = \"{}\"", address(place)))
}

fn run(uid: Option<u32>, arguments: &[String]) -> Said {
    let mut command = match uid {
        None => Command::new(&arguments[0]),
        Some(uid) => {
            let mut command = Command::new("setpriv");
            command.args([
                &format!("--reuid={uid}"),
                &format!("--regid={uid}"),
                "--clear-groups",
                &arguments[0],
            ]);
            command
        }
    };
    let output = command.args(&arguments[1..]).output().expect("the foreign client can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// `gdbus monitor` on everything that the daemon says, line by line.
pub(crate) struct Listener {
    child: Child,
    lines: Receiver<String>,
}

impl Listener {
    /// Listens, and returns once it does.
    pub(crate) fn start(place: &Deployment) -> Self {
        let mut child = Command::new("gdbus")
            .args(["monitor", "--address", &address(place), "--dest", "org.weir.Weir1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("gdbus can be run (Debian package libglib2.0-bin)");
        let (told, lines) = channel();
        let output: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).all(|line| told.send(line).is_ok())
        });
        let listener = Self { child, lines };
        listener.hear(&["is owned by"]);
        listener
    }

    /// The next lines of each of which one has all these words in it, in any order: properties are told whenever any of them changes.
    pub(crate) fn hear_each<const N: usize>(&self, all: [&[&str]; N]) -> [String; N] {
        let mut heard = [const { None }; N];
        while heard.iter().any(Option::is_none) {
            let line = self.lines.recv_timeout(PATIENCE).expect("the daemon says it");
            let is_it = |words: &&[&str]| words.iter().all(|word| line.contains(word));
            let open = all.iter().zip(&mut heard).find(|(words, heard)| heard.is_none() && is_it(words));
            open.into_iter().for_each(|(_, heard)| *heard = Some(line.clone()));
        }
        heard.map(Option::unwrap_or_default)
    }

    /// The next line that has all `words` in it.
    pub(crate) fn hear(&self, words: &[&str]) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the daemon says it");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is what these tests need; says what is missing.
pub(crate) fn is_possible() -> bool {
    let found = |name: &&str| !Path::new("/usr/bin").join(name).exists();
    let missing: Vec<_> = ["dbus-daemon", "busctl", "gdbus"].into_iter().filter(found).collect();
    if !missing.is_empty() {
        not_checked(&format!("D-Bus: {} not installed", missing.join(", ")));
    }
    missing.is_empty()
}
