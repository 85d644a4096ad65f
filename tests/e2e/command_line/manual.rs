//! What the programs say of themselves: manual pages and completions.

use std::path::Path;
use std::process::Command;

use crate::harness::{not_checked, stderr, weir};

use super::prompt::{fed, text};

/// Subcommands with their options, long ones, from `--help`.
fn commands_and_options() -> Vec<(String, Vec<String>)> {
    let help = |arguments: &[&str]| text(&fed(arguments, "").stdout);
    let listed = help(&["--help"]);
    let commands = listed.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let options = |name: &str| {
        let help = help(&[name, "--help"]);
        let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
        let words = lines.flat_map(|line| line.split([' ', ',', '=']).take(8).map(str::to_owned));
        words.filter(|word| word.starts_with("--")).collect::<Vec<_>>()
    };
    names.map(|name| (name.to_owned(), options(name))).collect()
}

#[test]
fn the_manual_has_every_subcommand_and_option_and_is_set_without_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(weir()).args(["man", "--out"]).arg(folder.path()).output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(folder.path().join("weir.1")).expect("a page");
    let all = commands_and_options();
    assert!(all.len() > 12 && all.iter().map(|(_, options)| options.len()).sum::<usize>() > 40, "{all:?}");
    let mut sections = page.split(".SS \"weir ");
    sections.next();
    let sections: Vec<_> = sections.collect();
    for (command, options) in &all {
        let section = sections.iter().find(|section| section.starts_with(&format!("{command}\"")));
        let section = section.unwrap_or_else(|| panic!("weir(1) has no section on {command}"));
        for option in options {
            // `--proved[=<PROGRAM>]`: the value may be left out.
            let escaped = option.trim_end_matches('[').replace('-', "\\-");
            assert!(section.contains(&escaped), "weir(1) says nothing of weir {command} {option}");
        }
    }
    assert!(page.contains(".SH \"EXIT STATUS\""));
    if !Path::new("/usr/bin/groff").exists() {
        return not_checked("manual pages as set: groff is not here");
    }
    for (name, words) in [
        ("weir.1", "weir profile [OPTIONS] <FILE>"),
        ("weir.toml.5", "max-pending"),
        ("weir-protocol.7", "REGISTERED"),
    ] {
        let page = folder.path().join(name);
        // The last argument: without bold and underlined letters, which would stand between the words.
        let set =
            Command::new("groff").args(["-t", "-k", "-man", "-ww", "-Tutf8", "-P-cbu"]).arg(&page).output();
        let set = set.expect("groff runs");
        assert!(set.status.success() && set.stderr.is_empty(), "{name}: {}", stderr(&set));
        let plain = text(&set.stdout);
        assert!(plain.contains(words), "{name} as set lacks {words}");
    }
}

#[test]
fn the_shells_complete_every_subcommand() {
    let all = commands_and_options();
    for shell in ["bash", "zsh", "fish"] {
        let script = fed(&["completions", shell], "");
        assert!(script.status.success());
        let script = text(&script.stdout);
        for (command, _) in &all {
            assert!(script.contains(command.as_str()), "{shell} does not complete {command}");
        }
        if shell == "bash" {
            let ask = format!(
                "{script}\nCOMP_WORDS=(weir pro) COMP_CWORD=1; _weir weir pro weir; echo \"${{COMPREPLY[*]}}\""
            );
            let reply = Command::new("bash").args(["-c", &ask]).output().expect("bash");
            assert_eq!(text(&reply.stdout).trim(), "profile", "{}", stderr(&reply));
        }
    }
}
