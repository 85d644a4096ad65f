//! What a daemon that follows its plans serves: a text beside the profile, for as long as the configuration file is the one that it
//! was made of. Whoever edits the file has the last word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};
use tracing::warn;
use weir_engine::sha256_hex;

use crate::config::{Config, ConfigError, Mode, Unit};
use crate::place::listed;

/// How it begins; the digest of the configuration file follows.
const OF: &str = "# weir: placed, of a configuration file with the SHA-256 ";
/// What says of a service or a stage where it runs, and with which models.
const PLACE: [&str; 11] = [
    "engine",
    "model",
    "variants",
    "workers",
    "cores",
    "gpu",
    "remote",
    "device",
    "batch",
    "max-batch",
    "turn",
];
/// The same of its table of simulated times.
const SIMULATED: [&str; 3] = ["times", "accuracy", "variants"];

/// The folder where plans are looked for, and what is served is kept.
#[must_use]
pub fn folder(config: &Config) -> PathBuf {
    let mut name = config.daemon.profile.clone().into_os_string();
    name.push(".placement");
    name.into()
}

fn kept(config: &Config) -> PathBuf {
    folder(config).join("served.toml")
}

/// The configuration that is to be served: that of the file, or what the daemon has made of it so far.
///
/// # Errors
/// As [`Config::load`], of the file.
pub fn serving(path: &Path) -> Result<Config, ConfigError> {
    let file = Config::load(path)?;
    let digest = sha256_hex(file.text().as_bytes());
    let follows = file.placement.as_ref().is_some_and(|placement| placement.mode == Mode::Follow);
    let placed = follows.then(|| std::fs::read_to_string(kept(&file)).ok()).flatten();
    let text =
        placed.as_deref().and_then(|text| text.strip_prefix(OF)?.strip_prefix(&*digest)?.strip_prefix('\n'));
    let placed = text.map(|text| Config::parse(path, text));
    match placed {
        None => Ok(file.made_of(digest)),
        Some(Ok(placed)) => Ok(placed.made_of(digest)),
        Some(Err(error)) => {
            let error = of_kept(&file, error);
            warn!("what was served is left aside, and the file is served as it is: {error}");
            Ok(file.made_of(digest))
        }
    }
}

/// What is wrong with what is kept of `file`, told by its own path and lines, the first of which says what it was made of.
fn of_kept(file: &Config, error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Wrong { problems, .. } => {
            let problems = problems.into_iter().map(|(line, problem)| (line + 1, problem)).collect();
            ConfigError::Wrong { path: kept(file), problems }
        }
        error => error,
    }
}

/// Whether the configuration file is still the one that `config` was made of.
#[must_use]
pub fn is_of_the_file(config: &Config) -> bool {
    planner::read_text(&config.path).is_ok_and(|text| sha256_hex(text.as_bytes()) == config.of_file)
}

/// Whether what is kept to be served was made of the file that `config` is of.
#[must_use]
pub fn is_kept_of(config: &Config) -> bool {
    let start = format!("{OF}{}\n", config.of_file);
    std::fs::read_to_string(kept(config)).is_ok_and(|text| text.starts_with(&start))
}

/// From the next reload or start on `text` is served in place of the file that `config` is of; without it, the file.
///
/// # Errors
/// If it cannot be written.
pub fn keep(config: &Config, text: Option<&str>) -> Result<()> {
    let path = kept(config);
    let Some(text) = text else {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        };
    };
    std::fs::create_dir_all(folder(config))
        .and_then(|()| planner::write_atomically(&path, format!("{OF}{}\n{text}", config.of_file).as_bytes()))
        .with_context(|| path.display().to_string())
}

/// `present` with some services and pipelines where `next` has them.
///
/// # Errors
/// If one of them is no TOML, or has no such service or stage.
pub fn mixed(present: &str, next: &str, moved: &BTreeSet<&str>) -> Result<String> {
    let (mut text, mut next): (DocumentMut, DocumentMut) = (present.parse()?, next.parse()?);
    for name in moved {
        let from = running(&mut next, name).with_context(|| format!("service {name} is not in the plan"))?;
        let to = running(&mut text, name).with_context(|| format!("service {name} is not served"))?;
        ensure!(
            from.len() == to.len(),
            "pipeline {name} has {} stages in the plan, and {}",
            from.len(),
            to.len()
        );
        for (to, from) in to.into_iter().zip(from) {
            take(to, from, &PLACE);
            let simulated = from.get("simulated").and_then(Item::as_table_like);
            if let Some((to, from)) = to.get_mut("simulated").and_then(Item::as_table_like_mut).zip(simulated)
            {
                take(to, from, &SIMULATED);
            }
        }
    }
    share(&mut text, &next);
    Ok(text.to_string())
}

/// `text` with a service on these devices, as many as it has already; with a pipeline each stage on its own.
///
/// # Errors
/// If it is no TOML, or has no such service.
pub fn on_units(text: &str, service: &str, units: &[Vec<Unit>]) -> Result<String> {
    let mut text: DocumentMut = text.parse()?;
    let all = running(&mut text, service).with_context(|| format!("service {service} is not there"))?;
    for (table, units) in all.into_iter().zip(units).filter(|(_, units)| !units.is_empty()) {
        let list: toml_edit::Array = units.iter().cloned().map(listed).collect();
        match table.get_mut("remote").and_then(Item::as_table_like_mut) {
            Some(remote) => remote.insert("url", toml_edit::value(list)),
            None => {
                let key = if table.contains_key("cores") { "cores" } else { "gpu" };
                table.insert(key, toml_edit::value(list))
            }
        };
    }
    Ok(text.to_string())
}

/// What runs models of that service or pipeline: its own table, or that of each stage.
fn running<'a>(text: &'a mut DocumentMut, name: &str) -> Option<Vec<&'a mut dyn TableLike>> {
    let of = |kind: &str, text: &DocumentMut| named(text.get(kind), name).is_some();
    let kind = ["service", "pipeline"].into_iter().find(|kind| of(kind, text))?;
    let is = |table: &&mut dyn TableLike| table.get("name").and_then(Item::as_str) == Some(name);
    let table = tables(text.get_mut(kind)?).into_iter().find(is)?;
    match kind {
        "service" => Some(vec![table]),
        _ => Some(tables(table.get_mut("stage")?)),
    }
}

/// The tables of a list, in either form.
fn tables(item: &mut Item) -> Vec<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(all) => all.iter_mut().map(|table| table as &mut dyn TableLike).collect(),
        Item::Value(Value::Array(all)) => {
            let tables = all.iter_mut().filter_map(Value::as_inline_table_mut);
            tables.map(|table| table as &mut dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

/// Takes over what the other one says of these.
fn take(to: &mut dyn TableLike, from: &dyn TableLike, keys: &[&str]) {
    for key in keys {
        match from.get(key) {
            Some(item) => drop(to.insert(key, item.clone())),
            None => drop(to.remove(key)),
        }
    }
}

fn named<'a>(tables: Option<&'a Item>, name: &str) -> Option<&'a Table> {
    tables?.as_array_of_tables()?.iter().find(|table| table.get("name").and_then(Item::as_str) == Some(name))
}

/// Leaves the devices that services and pipelines name, each as it was, and those that are new as the other one has them.
fn share(text: &mut DocumentMut, next: &DocumentMut) {
    let all = ["service", "pipeline"].into_iter().filter_map(|kind| text.get(kind)?.as_array_of_tables());
    let names = all.flatten().filter_map(|table| Some(table.get("device")?.as_str()?.to_owned()));
    let names: BTreeSet<String> = names.collect();
    let tables = names.iter().filter_map(|name| {
        named(text.get("device"), name).or_else(|| named(next.get("device"), name)).cloned()
    });
    let tables: toml_edit::ArrayOfTables = tables.collect();
    match tables.is_empty() {
        true => drop(text.remove("device")),
        false => drop(text.insert("device", Item::ArrayOfTables(tables))),
    }
}

/// `text` without these services, pipelines among them.
///
/// # Errors
/// If it is no TOML.
pub fn without_services(text: &str, services: &BTreeSet<String>) -> Result<String> {
    let mut text: DocumentMut = text.parse()?;
    for kind in ["service", "pipeline"] {
        let Some(all) = text.get_mut(kind).and_then(Item::as_array_of_tables_mut) else { continue };
        let is = |table: &Table| {
            table.get("name").and_then(Item::as_str).is_some_and(|name| services.contains(name))
        };
        all.retain(|table| !is(table));
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests;
