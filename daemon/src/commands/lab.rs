//! The commands of `weir-lab`, which lies beside this program or on the path, as git and cargo find theirs: what serves
//! need not be linked with what measures, simulates and draws.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// The program.
const LAB: &str = "weir-lab";

/// Its commands, and what each does. A test of that program holds them to its own.
pub const COMMANDS: [(&str, &str); 18] = [
    ("inspect", "Show what an ONNX file wants and gives"),
    ("import", "Write a manifest, and a configuration to begin with, from ONNX files"),
    ("profile", "Measure how long each batch of each model takes on this machine"),
    ("plan", "Compute what can be promised, and why; refuse what cannot"),
    ("place", "Choose which variant of which service runs on which devices, so that every promise is kept"),
    ("tune", "Propose, from a recording, what the streams of a service should declare of their arrivals"),
    (
        "train",
        "Train a network that selects among the variants of a service, in simulated time, and compare it",
    ),
    ("certify", "Write down what can be promised, or what breaks it, as a certificate that anyone can check"),
    ("verify", "Check a certificate with a program of its own"),
    ("replay", "Replay a certificate's counterexample in the scheduler"),
    ("simulate", "Run given arrivals through the scheduler, in virtual time"),
    ("accept", "Hold what a scheduler did against the model in which its promise is proved"),
    ("infer", "Send one request and print its answer"),
    ("top", "Watch a running daemon's services in the terminal"),
    ("load", "Load a service at a fixed pace; judge what became of every request"),
    (
        "demo",
        "See a promise kept, broken into safe mode by overload, and restored: about a minute, nothing to set up",
    ),
    ("models", "Measure the accuracy of the models of a manifest on its held-out data"),
    ("completions", "Print what a shell needs to complete this command line"),
];
/// Those that help does not list.
const HIDDEN: [&str; 1] = ["man"];

/// What help lists of them.
pub(super) fn stubs() -> impl Iterator<Item = clap::Command> {
    COMMANDS.into_iter().map(|(name, about)| clap::Command::new(name).about(about))
}

/// The arguments for `weir-lab`, if it is asked for something, or for help with it.
pub(super) fn asked_for(arguments: &[OsString]) -> Option<&[OsString]> {
    let own = arguments.get(1..)?;
    let named = own.iter().find(|argument| *argument != "help")?;
    let is_its = |name: &OsStr| {
        COMMANDS.iter().map(|(name, _)| *name).chain(HIDDEN).any(|command| OsStr::new(command) == name)
    };
    is_its(named).then_some(own)
}

/// Goes on as `weir-lab`.
///
/// # Errors
/// If it is not there, or cannot be run.
pub(super) fn become_lab(arguments: &[OsString]) -> Result<ExitCode> {
    let program = find(LAB).with_context(|| {
        let command = arguments.first().map(|name| name.display().to_string()).unwrap_or_default();
        format!(
            "`weir {command}` is done by {LAB}: build the package {LAB} (cargo build --release -p {LAB}), or install \
             the package weir, which holds both"
        )
    })?;
    // Returns only if it fails.
    let error = std::process::Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| program.display().to_string())
}

/// Finds the other one of `weir` and `weir-lab`: beside this program, or on the path.
///
/// # Errors
/// If it is in neither place.
pub fn find(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own path")?;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let mut places = std::iter::once(own.with_file_name(name)).chain(on_path);
    places.find(|place| place.is_file()).with_context(|| {
        let folder = own.parent().unwrap_or(&own).display().to_string();
        format!("{name} is neither in {folder} nor on PATH")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_labs_is_handed_on_and_nothing_else() {
        let asked = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            asked_for(&arguments).map(|own| own.len())
        };
        assert_eq!(asked("weir simulate --help"), Some(2));
        assert_eq!(asked("weir help simulate"), Some(2));
        assert_eq!(asked("weir man --out x"), Some(3));
        for line in
            ["weir", "weir help", "weir serve simulate", "weir --help", "weir help status", "weir nonsense"]
        {
            assert_eq!(asked(line), None, "{line}");
        }
    }
}
