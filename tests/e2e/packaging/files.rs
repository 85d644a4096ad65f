//! Around the daemon: the units stand up to systemd's own checks, and what is installed is whole and goes again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{not_checked, repository, stderr, weir};
use tempfile::TempDir;

/// Of ten, the most that an attacker could still do (`systemd-analyze security`).
pub(super) const MOST_EXPOSED: f64 = 1.5;
/// The same where devices must be open.
const MOST_EXPOSED_WITH_DEVICES: f64 = 2.0;

/// Whether a program of systemd is here; says so if not.
fn is_here(program: &str) -> bool {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        not_checked(&format!("the units of systemd: {program} is not here"));
    }
    found
}

/// The units in a folder of their own, with a binary that is there.
fn units(drop_in: Option<&Path>) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for unit in ["weir.service", "weir.socket"] {
        let text = std::fs::read_to_string(repository("systemd").join(unit)).expect("a unit");
        std::fs::write(folder.path().join(unit), text.replace("/usr/bin/weir", weir())).expect("written");
    }
    if let Some(drop_in) = drop_in {
        let place = folder.path().join("weir.service.d");
        std::fs::create_dir(&place).expect("a folder");
        std::fs::copy(drop_in, place.join("it.conf")).expect("copied");
    }
    folder
}

fn drop_ins() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository("systemd/weir.service.d")).expect("drop-ins");
    let paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(paths.len() >= 3, "{paths:?}");
    paths
}

fn analyze(arguments: &[&str], folder: &Path) -> Output {
    let command = Command::new("systemd-analyze").args(arguments).current_dir(folder).output();
    command.expect("systemd-analyze runs")
}

/// What systemd finds wrong with the units.
fn faults(folder: &Path) -> Vec<String> {
    let output = analyze(&["--man=no", "verify", "./weir.service", "./weir.socket"], folder);
    let said = stderr(&output);
    // Before version 253 it does not know the type and takes the line above it; what it says of other units is not ours.
    let ours = said.lines().filter(|line| line.contains("weir"));
    ours.filter(|line| !line.ends_with("service type, ignoring: notify-reload")).map(str::to_owned).collect()
}

fn exposure(folder: &Path) -> f64 {
    let output = analyze(&["security", "--offline=true", "--no-pager", "./weir.service"], folder);
    verdict(&String::from_utf8_lossy(&output.stdout))
}

/// The level at the end of what `systemd-analyze security` says.
pub(super) fn verdict(said: &str) -> f64 {
    let line = said.lines().find(|line| line.contains("Overall exposure level")).expect("a verdict");
    let number = line.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn systemd_finds_no_fault_with_the_units_and_little_that_is_open() {
    if !is_here("systemd-analyze") {
        return;
    }
    let folder = units(None);
    assert_eq!(faults(folder.path()), Vec::<String>::new());
    let level = exposure(folder.path());
    assert!(level <= MOST_EXPOSED, "exposure {level}, at most {MOST_EXPOSED}");
    // The check can fail at all.
    let unit = folder.path().join("weir.service");
    let text = std::fs::read_to_string(&unit).expect("a unit");
    std::fs::write(
        &unit,
        text.replace("WatchdogSec=10", "WatchdogSec=soon").replace("PrivateNetwork=yes", ""),
    )
    .expect("written");
    assert!(!faults(folder.path()).is_empty() && exposure(folder.path()) > level);
}

#[test]
fn each_drop_in_opens_devices_and_little_else() {
    if !is_here("systemd-analyze") {
        return;
    }
    let closed = exposure(units(None).path());
    for drop_in in drop_ins() {
        let folder = units(Some(&drop_in));
        assert_eq!(faults(folder.path()), Vec::<String>::new(), "{}", drop_in.display());
        let level = exposure(folder.path());
        assert!(level > closed, "{} has no effect", drop_in.display());
        assert!(level <= MOST_EXPOSED_WITH_DEVICES, "{}: exposure {level}", drop_in.display());
    }
}

#[test]
fn the_user_is_made_as_systemd_understands_it() {
    if !is_here("systemd-sysusers") {
        return;
    }
    let root = tempfile::tempdir().expect("a folder");
    let output = Command::new("systemd-sysusers")
        .arg(format!("--root={}", root.path().display()))
        .arg("--dry-run")
        .arg(repository("systemd/weir.sysusers"))
        .output()
        .expect("systemd-sysusers runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("Creating user 'weir'") && said.contains("Creating group 'weir'"), "{said}");
}

/// Runs a target of the Makefile with the binary under test.
pub(super) fn make(target: &str, variables: &[String]) -> String {
    let output = Command::new("make")
        .args(["--no-print-directory", "-C"])
        .arg(repository("."))
        .arg(target)
        .arg(format!("WEIR={}", weir()))
        .args(variables)
        .env("COMPRESSION", "none")
        .output()
        .expect("make runs");
    assert!(output.status.success(), "make {target}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file below a folder, by its path from there.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).expect("below it").display().to_string());
            }
        }
    }
    found
}

/// What must be there, whatever else is.
const INSTALLED: [&str; 12] = [
    "bin/weir",
    "bin/weir-lab",
    "lib/systemd/system/weir.service",
    "lib/systemd/system/weir.socket",
    "lib/sysusers.d/weir.conf",
    "lib/tmpfiles.d/weir.conf",
    "share/weir/weir.service.d/nvidia.conf",
    "share/man/man1/weir.1",
    "share/man/man5/weir.toml.5",
    "share/man/man7/weir-protocol.7",
    "share/bash-completion/completions/weir",
    "share/doc/weir/operations.md",
];

#[test]
fn what_is_installed_is_whole_names_its_own_binary_and_goes_again() {
    let root = tempfile::tempdir().expect("a folder");
    let place = [format!("DESTDIR={}", root.path().display()), "PREFIX=/opt/weir".to_owned()];
    make("install", &place);
    let there = files(root.path());
    for name in INSTALLED {
        assert!(there.contains(&format!("opt/weir/{name}")), "{name} is not in {there:?}");
    }
    for bus in [
        "dbus-1/system.d/org.weir.Weir1.conf",
        "polkit-1/actions/org.weir.Weir1.policy",
        "polkit-1/rules.d/org.weir.Weir1.rules",
    ] {
        let source = repository("systemd").join(Path::new(bus).file_name().expect("a name"));
        assert_eq!(there.contains(&format!("usr/share/{bus}")), source.exists(), "{bus}");
    }
    let unit = root.path().join("opt/weir/lib/systemd/system/weir.service");
    let unit = std::fs::read_to_string(unit).expect("the unit");
    assert!(unit.contains("\nExecStart=/opt/weir/bin/weir serve "), "{unit}");
    assert!(!unit.contains("/usr/bin/weir"), "{unit}");
    let installed = root.path().join("opt/weir/bin/weir");
    let output = Command::new(installed).arg("--version").output().expect("it runs");
    assert!(output.status.success());
    make("uninstall", &place);
    assert_eq!(files(root.path()), BTreeSet::new());
}

#[test]
fn the_debian_package_has_the_same_and_tells_systemd() {
    if !is_here("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    make("deb", &[format!("DEB_FOLDER={}", folder.path().display())]);
    let name = files(folder.path()).into_iter().next().expect("a package");
    let package = folder.path().join(&name);
    let ask = |option: &str, rest: &[&Path]| {
        let output = Command::new("dpkg-deb").arg(option).arg(&package).args(rest).output().expect("runs");
        assert!(output.status.success(), "{option}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let fields = ask("--field", &[]);
    assert!(fields.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{fields}");
    assert!(fields.contains("Depends: libc6 (>= 2."), "{fields}");
    let listed = ask("--contents", &[]);
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
    for name in INSTALLED {
        assert!(listed.contains(&format!("./usr/{name}")), "{name} is not in {listed}");
    }
    let scripts = folder.path().join("scripts");
    ask("--control", &[&scripts]);
    let script = |name: &str| std::fs::read_to_string(scripts.join(name)).expect("a script");
    for words in ["systemd-sysusers weir.conf", "systemd-tmpfiles --create weir.conf", "daemon-reload"] {
        assert!(script("postinst").contains(words), "{words}");
    }
    for name in ["postinst", "prerm", "postrm"] {
        let checked = Command::new("sh").arg("-n").arg(scripts.join(name)).output().expect("sh");
        assert!(checked.status.success(), "{name}: {}", stderr(&checked));
    }
}
