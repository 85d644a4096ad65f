//! `weir man`: the manual pages, made of the command line's own definitions and of the documents in `docs/`.

use std::fs::write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use super::whole;
use crate::manual::append;

/// What weir(1) has beyond the command line.
const WEIR: &str = include_str!("../../../../docs/man/weir.1.md");
/// The pages that are documents: name, section, in a line, text.
const DOCUMENTS: [(&str, &str, &str, &str); 2] = [
    (
        "weir.toml",
        "5",
        "configuration of the Weir inference daemon",
        include_str!("../../../../docs/configuration.md"),
    ),
    (
        "weir-protocol",
        "7",
        "the Weir inference daemon's data protocol",
        include_str!("../../../../docs/protocol.md"),
    ),
];
/// `man` runs the preprocessor for tables where the first line asks for it.
const TABLES: &str = "'\\\" t\n";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for weir.1, weir.toml.5 and weir-protocol.7
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    save(&args.out, "weir.1", &weir()?)?;
    for (name, section, line, text) in DOCUMENTS {
        let mut page = Roff::new();
        page.control("TH", [name, section, "", version().as_str()]);
        // On a terminal it is one long page: no table is too long for what is left of it.
        page.control("if", ["n", ".pl", "10000v"]).control("SH", ["NAME"]);
        // Filled to the left: the narrow columns of tables look torn otherwise.
        page.text([roman(format!("{name} - {line}"))]).control("ad", ["l"]);
        append(&mut page, text);
        page.control("SH", ["SEE ALSO"]).text([bold("weir"), roman("(1)")]);
        save(&args.out, &format!("{name}.{section}"), &page.render())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn save(folder: &Path, name: &str, page: &str) -> Result<()> {
    let path = folder.join(name);
    write(&path, format!("{TABLES}{page}")).with_context(|| path.display().to_string())
}

fn version() -> String {
    format!("weir {}", env!("CARGO_PKG_VERSION"))
}

/// weir(1): one page with every subcommand and all its options.
fn weir() -> io::Result<String> {
    let mut command = whole();
    command.build();
    let page = Man::new(command.clone()).source(version());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    let mut heading = Roff::new();
    text.extend(heading.control("SH", ["COMMANDS"]).to_roff().bytes());
    let mut commands: Vec<_> =
        command.get_subcommands_mut().filter(|command| !command.is_hide_set()).collect();
    commands.sort_by_key(|command| weir::commands::place(command.get_name()));
    for command in commands {
        text.extend(subcommand(command)?.bytes());
    }
    let mut rest = Roff::new();
    append(&mut rest, WEIR);
    text.extend(rest.to_roff().bytes());
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn subcommand(command: &mut Command) -> io::Result<String> {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim_end_matches("\n\n").to_owned();
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let mut text = Roff::new();
    text.control("SS", [usage.split_whitespace().take(2).collect::<Vec<_>>().join(" ").as_str()]);
    text.text([bold(usage.split_whitespace().collect::<Vec<_>>().join(" "))]).control("PP", []);
    text.text([roman(about.unwrap_or_default()), roman(".")]);
    let mut options = Vec::new();
    Man::new(command.clone()).render_options_section(&mut options)?;
    let options = String::from_utf8_lossy(&options).into_owned();
    // The heading would end the subcommand.
    Ok(text.to_roff() + options.split_once(".SH OPTIONS\n").map_or("", |(_, rest)| rest))
}
