//! The installed unit under a real systemd, which is booted for it in a container over this machine's `/usr`.

mod inside;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::files::make;
use crate::harness::{not_checked, now, pause};

/// How long the container may live; what it does takes half a minute.
const LIFE: Duration = Duration::from_secs(300);

/// The only target of the container: the checks of `inside`, then the end.
const UNIT: &str = "[Unit]
Wants=dbus.socket
After=sysinit.target systemd-journald.service dbus.socket
[Service]
Type=oneshot
Environment=RUST_BACKTRACE=0 WEIR_NOT_CHECKED=/said/not-checked
ExecStart=/checks --ignored --test-threads=1 packaging::booted::inside::
StandardOutput=file:/said/checks
StandardError=file:/said/trace
ExecStopPost=systemctl --no-block --force poweroff
";

/// What a container cannot be booted without.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root alone can boot one".to_owned());
    }
    let programs = [
        "/usr/bin/systemd-nspawn",
        "/lib/systemd/systemd",
        "/usr/bin/dbus-daemon",
        "/usr/lib/polkit-1/polkitd",
    ];
    programs
        .iter()
        .find(|program| !Path::new(program).exists())
        .map(|program| format!("{program} is not here"))
}

/// What `make install` installs, below `root`; and this machine's folders of D-Bus and polkit with what it adds to them.
fn install(root: &Path) {
    make("install", &[format!("DESTDIR={}", root.display())]);
    for folder in ["dbus-1", "polkit-1"] {
        let merged = root.join(folder);
        let sources = [Path::new("/usr/share").join(folder), root.join("usr/share").join(folder)];
        for source in sources {
            let copied =
                Command::new("cp").args(["-rT"]).arg(&source).arg(&merged).status().expect("cp runs");
            assert!(copied.success(), "{}", source.display());
        }
    }
    // Their owners have other numbers in the container.
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(root).status().expect("chmod runs");
    assert!(opened.success(), "{}", root.display());
}

/// Boots the container and waits until it is gone; what systemd said on its console, if it could not be booted.
fn boot(root: &Path) -> Result<(), String> {
    std::fs::write(root.join("test.service"), UNIT).expect("written");
    std::fs::create_dir(root.join("said")).expect("a folder");
    let console = File::create(root.join("console")).expect("a file");
    let checks = std::env::current_exe().expect("this program");
    let bind = |kind: &str, source: PathBuf, target: &str| format!("--{kind}={}:{target}", source.display());
    let mut container = Command::new("systemd-nspawn")
        .args(["--register=no", "--keep-unit", "--directory=/", "--volatile=yes", "--private-network"])
        .arg(format!("--machine=weir-{}", std::process::id()))
        .arg(bind("bind", root.join("said"), "/said"))
        .arg(bind("bind-ro", checks, "/checks"))
        .arg(bind("bind-ro", root.join("test.service"), "/etc/systemd/system/test.service"))
        // It would ask for a root password.
        .arg(bind("bind-ro", PathBuf::from("/dev/null"), "/etc/systemd/system/systemd-firstboot.service"))
        .arg(bind("bind-ro", root.join("usr/local"), "/usr/local"))
        .arg(bind("bind-ro", root.join("dbus-1"), "/usr/share/dbus-1"))
        .arg(bind("bind-ro", root.join("polkit-1"), "/usr/share/polkit-1"))
        .args(["--boot", "--", "--unit=test.service"])
        .stdin(Stdio::null())
        .stdout(console.try_clone().expect("the same file"))
        .stderr(console)
        .spawn()
        .expect("systemd-nspawn runs");
    let started = now();
    while container.try_wait().expect("a child").is_none() {
        if started.elapsed() > LIFE {
            container.kill().expect("killed");
            container.wait().expect("buried");
        }
        pause(Duration::from_millis(50));
    }
    match root.join("said/checks").exists() {
        true => Ok(()),
        false => Err(std::fs::read_to_string(root.join("console")).unwrap_or_default()),
    }
}

#[test]
fn the_installed_unit_stands_up_to_a_real_systemd() {
    if let Some(missing) = missing() {
        return not_checked(&format!("the unit under a real systemd: {missing}"));
    }
    let root = TempDir::new().expect("a folder");
    install(root.path());
    if let Err(console) = boot(root.path()) {
        eprintln!("{console}");
        return not_checked("the unit under a real systemd: none could be booted in a container here");
    }
    let read = |name: &str| std::fs::read_to_string(root.path().join("said").join(name)).unwrap_or_default();
    read("not-checked").lines().for_each(not_checked);
    let said = read("checks");
    let passed = said.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ... ok")).count();
    assert!(said.contains("test result: ok. ") && passed == inside::CHECKS, "{said}\n{}", read("trace"));
}
