//! Beside a request's way: experiments are run from their files, and the documentation shows what comes out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{stderr, weir};
use serde_json::Value;
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a parent").to_owned()
}

fn documentation() -> String {
    std::fs::read_to_string(root().join("docs/experiments.md")).expect("the documentation")
}

/// The experiment of the documentation, in a folder of its own.
fn example() -> (TempDir, PathBuf) {
    let text = documentation();
    let (_, rest) = text.split_once("```toml experiment\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("bursts.toml");
    std::fs::write(&path, example).expect("written");
    (folder, path)
}

fn simulate(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(weir());
    command.arg("simulate").args(arguments).args(files).env_remove("WEIR_DATA").current_dir(root());
    command.output().expect("weir can be run")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn the_documented_example_is_run_tabled_and_drawn() {
    let (folder, file) = example();
    let out = folder.path().to_str().expect("a path");
    let told = stdout(&simulate(&["-o", out], &[&file]));
    assert!(told.starts_with("# Bursts on a faster worker\n\nSIMULATED"), "{told}");
    assert!(told.contains("| x | weir | nexus |"), "{told}");
    assert!(std::fs::read_to_string(folder.path().join("bursts.svg")).expect("a figure").starts_with("<svg"));
    let csv = std::fs::read_to_string(folder.path().join("bursts.csv")).expect("numbers");
    assert_eq!(csv.lines().count(), 1 + 5 * 2, "a header, and five loads under two policies");
    let json: Value = serde_json::from_str(&stdout(&simulate(&["--json"], &[&file]))).expect("JSON");
    let cells = json[0]["results"]["cells"].as_array().expect("cells");
    assert_eq!((json[0]["experiment"].as_str(), cells.len()), (Some("bursts"), 10));
    assert!(cells.iter().all(|cell| cell["estimates"]["misses"]["n"] == 5), "five runs each");
    let smaller = stdout(&simulate(&["--json", "--runs", "2", "--requests", "100"], &[&file]));
    assert!(smaller.contains("\"n\": 2") && !smaller.contains("\"n\": 5"), "{smaller}");
}

/// The tables of the documentation are what the experiments give; of those that take seconds.
#[test]
fn the_documentation_shows_what_comes_out() {
    let folder = TempDir::new().expect("a folder");
    let copy = folder.path().join("experiments.md");
    let text = documentation();
    std::fs::write(&copy, &text).expect("written");
    let names = ["mcd-poisson", "mcd-constant", "weakly-hard-constant-b4", "weakly-hard-constant-b20"];
    let files = names.map(|name| root().join(format!("sim/experiments/{name}.toml")));
    let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    stdout(&simulate(&["--into", copy.to_str().expect("a path")], &files));
    let now = std::fs::read_to_string(&copy).expect("a copy");
    for (was, is) in text.lines().zip(now.lines()) {
        assert_eq!(was, is, "`make experiments` brings it up to date");
    }
}

#[test]
fn what_cannot_be_run_is_refused_and_nothing_is_written() {
    let (folder, file) = example();
    let refused = |arguments: &[&str], files: &[&Path]| {
        let output = simulate(arguments, files);
        assert!(!output.status.success());
        stderr(&output)
    };
    assert!(refused(&[], &[]).contains("EXPERIMENT"));
    assert!(refused(&["--problem", "p.json"], &[]).contains("--arrivals"));
    assert!(refused(&["--runs", "0"], &[&file]).contains("--runs"));
    assert!(refused(&[], &[Path::new("none.toml")]).contains("none.toml"));
    let proteus = root().join("sim/experiments/proteus-batching.toml");
    let message = refused(&[], &[&proteus]);
    assert!(message.contains("proteus-batching.toml") && message.contains("--data"), "{message}");
    let page = folder.path().join("page.md");
    std::fs::write(&page, "nothing\n").expect("written");
    let message = refused(&["--into", page.to_str().expect("a path")], &[&file]);
    assert!(message.contains("page.md: must hold <!-- bursts --> and <!-- end bursts -->"), "{message}");
    assert_eq!(std::fs::read_to_string(&page).expect("the page"), "nothing\n");
    let text = std::fs::read_to_string(&file).expect("the example");
    std::fs::write(&file, text.replace("deadline = \"40ms\"", "deadline = \"8ms\"")).expect("written");
    let message = refused(&[], &[&file]);
    assert!(message.contains("system camera: nothing can be certified for arrivals bursts"), "{message}");
}
