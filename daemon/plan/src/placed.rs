//! What a daemon that follows its plans serves: a text beside the profile, for as long as the configuration file is the one that it
//! was made of. Whoever edits the file has the last word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};
use tracing::warn;
use weir_engine::sha256_hex;

use crate::config::{Config, ConfigError, Mode};

/// How it begins; the digest of the configuration file follows.
const OF: &str = "# weir: placed, of a configuration file with the SHA-256 ";
/// What says of a service where it runs, and with which models.
const PLACE: [&str; 10] =
    ["engine", "model", "variants", "workers", "cores", "gpu", "device", "batch", "max-batch", "turn"];
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
            warn!("{}: is left aside, and the file is served as it is: {error}", kept(&file).display());
            Ok(file.made_of(digest))
        }
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

/// `present` with some services where `next` has them.
///
/// # Errors
/// If one of them is no TOML, or has no such service.
pub fn mixed(present: &str, next: &str, moved: &BTreeSet<&str>) -> Result<String> {
    let (mut text, next): (DocumentMut, DocumentMut) = (present.parse()?, next.parse()?);
    for name in moved {
        let from =
            named(next.get("service"), name).with_context(|| format!("service {name} is not in the plan"))?;
        let services = text
            .get_mut("service")
            .and_then(Item::as_array_of_tables_mut)
            .context("there are no services")?;
        let to = services.iter_mut().find(|table| table.get("name").and_then(Item::as_str) == Some(name));
        let to = to.with_context(|| format!("service {name} is not served"))?;
        take(to, from, &PLACE);
        let simulated = from.get("simulated").and_then(Item::as_table_like);
        if let Some((to, from)) = to.get_mut("simulated").and_then(Item::as_table_like_mut).zip(simulated) {
            take(to, from, &SIMULATED);
        }
    }
    share(&mut text, &next);
    Ok(text.to_string())
}

/// `text` with a service on these cores or GPUs, as many as it has already.
///
/// # Errors
/// If it is no TOML, or has no such service.
pub fn on_units(text: &str, service: &str, units: &[usize]) -> Result<String> {
    let mut text: DocumentMut = text.parse()?;
    let services =
        text.get_mut("service").and_then(Item::as_array_of_tables_mut).context("there are no services")?;
    let table = services.iter_mut().find(|table| table.get("name").and_then(Item::as_str) == Some(service));
    let table = table.with_context(|| format!("service {service} is not there"))?;
    let list: toml_edit::Array = units.iter().map(|&unit| unit as i64).collect();
    let key = if table.contains_key("cores") { "cores" } else { "gpu" };
    if !units.is_empty() {
        table.insert(key, toml_edit::value(list));
    }
    Ok(text.to_string())
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

/// Leaves the devices that services name, each as it was, and those that are new as the other one has them.
fn share(text: &mut DocumentMut, next: &DocumentMut) {
    let services = text.get("service").and_then(Item::as_array_of_tables);
    let names =
        services.into_iter().flatten().filter_map(|table| Some(table.get("device")?.as_str()?.to_owned()));
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

/// A device that is no longer there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gone {
    /// The name of its class.
    pub class: String,
    /// Its core or GPU; none where the class only counts.
    pub number: Option<usize>,
}

/// `text` without these devices.
///
/// # Errors
/// If it is no TOML, or nothing would be left of a class: then its services are to be told where else they may run.
pub fn without(text: &str, gone: &[Gone]) -> Result<String> {
    let mut text: DocumentMut = text.parse()?;
    for Gone { class, number } in gone {
        let classes = text.get_mut("placement").and_then(|placement| placement.get_mut("class"));
        let classes = classes.and_then(Item::as_array_of_tables_mut).context("there are no classes")?;
        let table = classes.iter_mut().find(|table| table.get("name").and_then(Item::as_str) == Some(class));
        let table = table.with_context(|| format!("there is no class {class}"))?;
        let left = match (number, table.get("count").and_then(Item::as_integer)) {
            (_, Some(count)) => {
                table.insert("count", toml_edit::value(count - 1));
                count - 1
            }
            (Some(number), None) => {
                let key = if table.contains_key("cores") { "cores" } else { "gpu" };
                match table.get_mut(key).and_then(Item::as_array_mut) {
                    Some(list) => {
                        list.retain(|one| one.as_integer() != i64::try_from(*number).ok());
                        list.len() as i64
                    }
                    None => 0,
                }
            }
            (None, None) => 1,
        };
        if left < 1 {
            classes.retain(|table| table.get("name").and_then(Item::as_str) != Some(class));
            let services = text.get_mut("service").and_then(Item::as_array_of_tables_mut);
            let services = services.into_iter().flat_map(|services| services.iter_mut());
            services.for_each(|service| forget(service, class));
            let pipelines = text.get_mut("pipeline").and_then(Item::as_array_of_tables_mut);
            let pipelines = pipelines.into_iter().flat_map(|pipelines| pipelines.iter_mut());
            let stages = pipelines.filter_map(|of| of.get_mut("stage")?.as_array_of_tables_mut());
            stages.flat_map(|stages| stages.iter_mut()).for_each(|stage| forget(stage, class));
        }
    }
    Ok(text.to_string())
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

/// Takes a class from where a service may run.
fn forget(service: &mut Table, class: &str) {
    if let Some(classes) = service.get_mut("classes").and_then(Item::as_array_mut) {
        classes.retain(|one| one.as_str() != Some(class));
    }
    let models = service
        .get_mut("simulated")
        .and_then(Item::as_table_like_mut)
        .and_then(|table| table.get_mut("models"));
    match models {
        Some(Item::Value(Value::Array(models))) => {
            for times in models
                .iter_mut()
                .filter_map(Value::as_inline_table_mut)
                .filter_map(|model| model.get_mut("times"))
            {
                times.as_inline_table_mut().map(|times: &mut InlineTable| times.remove(class));
            }
        }
        Some(Item::ArrayOfTables(models)) => {
            for times in models.iter_mut().filter_map(|model| model.get_mut("times")?.as_table_like_mut()) {
                times.remove(class);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: &str = r#"# ours
[[placement.class]]
name = "gpu"
gpu = [0, 1]
[[placement.class]]
name = "cpu"
count = 2

[[service]]
name = "a"   # the first
model = "small"
cores = [1]
deadline = "65ms"
[[service.stream]]
name = "s"

[[service]]
name = "b"
classes = ["gpu", "cpu"]
simulated = { times = ["2ms"], input = 4, models = [{ accuracy = 0.5, times = { gpu = ["2ms"], cpu = ["9ms"] } }] }
workers = 2
"#;

    #[test]
    fn who_moved_is_where_the_plan_has_it_and_nothing_else_changes() {
        let next = PRESENT
            .replace("cores = [1]", "cores = [2, 3]\nvariants = [\"large\"]")
            .replace("times = [\"2ms\"], input", "times = [\"9ms\"], input")
            .replace("65ms", "never");
        let text = |moved: &[&str]| mixed(PRESENT, &next, &moved.iter().copied().collect()).expect("TOML");
        assert_eq!(text(&[]), PRESENT);
        let first = text(&["a"]);
        assert!(first.contains("cores = [2, 3]") && first.contains("variants = [\"large\"]"), "{first}");
        assert!(
            first.contains("# the first")
                && first.contains("65ms")
                && first.contains("times = [\"2ms\"], input"),
            "{first}"
        );
        let both = text(&["a", "b"]);
        assert!(both.contains("times = [\"9ms\"]") && both.contains("models = [{ accuracy = 0.5"), "{both}");
        let error = mixed(PRESENT, &next, &["c"].into()).expect_err("no such service");
        assert_eq!(error.to_string(), "service c is not in the plan");
    }

    #[test]
    fn who_stands_aside_is_on_the_devices_that_are_free() {
        let text = on_units(PRESENT, "a", &[3, 4]).expect("TOML");
        assert_eq!(text, PRESENT.replace("cores = [1]", "cores = [3, 4]"));
        assert_eq!(on_units(PRESENT, "b", &[]).expect("TOML"), PRESENT, "where the class only counts");
        assert!(on_units(PRESENT, "c", &[1]).is_err());
    }

    #[test]
    fn devices_come_and_go_with_those_who_name_them() {
        let device = "[[device]]\nname = \"box\"\ncores = [4]\n";
        let next = format!("{device}{}", PRESENT.replace("cores = [1]", "device = \"box\""));
        let shared = mixed(PRESENT, &next, &["a"].into()).expect("TOML");
        assert!(
            shared.contains("name = \"box\"")
                && shared.contains("device = \"box\"")
                && !shared.contains("cores = [1]")
        );
        let back = mixed(&shared, PRESENT, &["a"].into()).expect("TOML");
        assert!(!back.contains("box") && back.contains("cores = [1]"), "{back}");
    }

    #[test]
    fn a_device_that_has_gone_is_left_out_and_so_is_a_class_without_any() {
        let gone = |class: &str, number| Gone { class: class.to_owned(), number };
        let text = without(PRESENT, &[gone("gpu", Some(0)), gone("cpu", None)]).expect("TOML");
        assert!(text.contains("gpu = [ 1]") || text.contains("gpu = [1]"), "{text}");
        assert!(text.contains("count = 1"), "{text}");
        let text = without(PRESENT, &[gone("cpu", None), gone("cpu", None)]).expect("TOML");
        assert!(
            !text.contains("\"cpu\"") && !text.contains("9ms") && text.contains("classes = [\"gpu\"]"),
            "{text}"
        );
        assert!(without(PRESENT, &[gone("npu", None)]).is_err());
    }

    #[test]
    fn a_service_is_left_out_with_all_that_is_its_own() {
        let text = without_services(PRESENT, &["a".to_owned()].into()).expect("TOML");
        assert!(
            !text.contains("\"a\"") && !text.contains("service.stream") && text.contains("\"b\""),
            "{text}"
        );
    }
}
