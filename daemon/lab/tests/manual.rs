//! The pages of the manual and the completions cover the whole command line: what `weir` does and what it leads on to. And
//! as long as this is an integration test, `cargo test --workspace` builds `weir-lab` beside `weir`.

use std::process::Command;

fn lab(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-lab")).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn pages_and_completions_cover_all_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    lab(&["man", "--out", folder.path().to_str().expect("UTF-8")]);
    let page = std::fs::read_to_string(folder.path().join("weir.1")).expect("a page");
    let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(".SS \"weir ")).collect();
    let places: Vec<_> =
        headings.iter().map(|heading| weir::commands::place(heading.trim_end_matches('"'))).collect();
    assert!(places.is_sorted() && places.len() > 17, "{headings:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = lab(&["completions", shell]);
        for command in ["serve", "simulate", "events", "demo"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}
