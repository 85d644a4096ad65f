//! A configuration with what serves each service written into it: the rest of the file, comments too, stays as it is.

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use super::{Part, PlaceError, Spot};
use crate::config::{ClassConfig, Config, Models, PlacementConfig, Unit};

/// The file of `config` with each service where `spots` says, those that are not placed left as they are.
///
/// # Errors
/// If the text has another form than what was read from it.
pub(super) fn completed(
    config: &Config,
    placement: &PlacementConfig,
    spots: &[Option<Spot>],
) -> Result<String, PlaceError> {
    let mut document: DocumentMut =
        config.text().parse().map_err(|error: toml_edit::TomlError| PlaceError::Text(error.to_string()))?;
    let placed =
        config.services.iter().zip(spots).filter_map(|(service, spot)| Some((service, spot.as_ref()?)));
    for (service, spot) in placed {
        for (runs, part) in service.running().zip(&spot.parts) {
            let Some(candidates) = &runs.candidates else { continue };
            let class = &placement.classes[part.placed.class];
            let servers = servers_of(&document, part.placed.class, class);
            write(table(&mut document, &runs.at)?, (class, servers), part, &candidates.models);
        }
        let Some(first) = spot.parts.first() else { continue };
        // A pipeline names the device that its stages share.
        let shared = (first.placed.devices == 0).then(|| &*placement.classes[first.placed.class].name);
        or_none(table(&mut document, &service.at)?, "device", shared.map(value));
    }
    devices(&mut document, placement, spots);
    Ok(document.to_string())
}

/// The table at a place such as `pipeline[0].stage[1]`.
fn table<'a>(document: &'a mut DocumentMut, at: &str) -> Result<&'a mut dyn TableLike, PlaceError> {
    let root: &mut dyn TableLike = document.as_table_mut();
    let table = at.split('.').try_fold(root, |table, part| {
        let (name, place) = part.strip_suffix(']')?.split_once('[')?;
        nth(table.get_mut(name)?, place.parse().ok()?)
    });
    table.ok_or_else(|| PlaceError::Text(format!("{at} is no table")))
}

/// The `n`th table of a list, in either form.
fn nth(item: &mut Item, n: usize) -> Option<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(tables) => tables.get_mut(n).map(|table| table as &mut dyn TableLike),
        Item::Value(Value::Array(array)) => {
            array.get_mut(n)?.as_inline_table_mut().map(|table| table as &mut dyn TableLike)
        }
        _ => None,
    }
}

fn write(
    table: &mut dyn TableLike,
    (class, servers): (&ClassConfig, Option<InlineTable>),
    part: &Part,
    models: &Models,
) {
    set(table, "engine", value(class.engine.to_string()));
    match models {
        Models::Named(names) => {
            let name = |&place: &usize| names[place].as_str();
            set(table, "model", value(name(&part.placed.models[0])));
            let variants: Array = part.placed.models[1..].iter().map(name).collect();
            or_none(table, "variants", (!variants.is_empty()).then(|| value(variants)));
        }
        Models::Simulated { .. } => simulated(table, class, part),
    }
    let own = part.placed.devices > 0;
    or_none(table, "workers", own.then(|| value(part.placed.devices as i64)));
    let units = || value(part.units.iter().map(|&unit| listed(class.unit(unit))).collect::<Array>());
    or_none(table, "cores", (own && !class.cores.is_empty()).then(units));
    or_none(table, "gpu", (own && !class.gpus.is_empty()).then(units));
    let servers = servers.map(|mut servers| {
        servers.get_or_insert("url", "");
        if let Ok(urls) = units().into_value() {
            servers.insert("url", urls);
        }
        value(servers)
    });
    or_none(table, "remote", servers);
}

/// How the servers of a class are called, as its table in the file says it.
fn servers_of(document: &DocumentMut, place: usize, class: &ClassConfig) -> Option<InlineTable> {
    class.servers.as_ref()?;
    let classes = document.get("placement")?.get("class")?;
    let class: &dyn TableLike = match classes {
        Item::ArrayOfTables(tables) => tables.get(place)?,
        Item::Value(Value::Array(array)) => array.get(place)?.as_inline_table()?,
        _ => return None,
    };
    match class.get("remote")?.clone().into_value().ok()? {
        Value::InlineTable(mut table) => {
            table.decor_mut().clear();
            table.fmt();
            Some(table)
        }
        _ => None,
    }
}

/// A device as a list in a file names it.
pub(crate) fn listed(unit: Unit) -> Value {
    match unit {
        Unit::Number(number) => (number as i64).into(),
        Unit::Server(url) => url.into(),
    }
}

/// What a simulated engine waits out, beside the models that were chosen among, as these say it.
fn simulated(table: &mut dyn TableLike, class: &ClassConfig, part: &Part) {
    let Some(inner) = table.get_mut("simulated").and_then(Item::as_table_like_mut) else { return };
    let Some(models) = inner.get_mut("models") else { return };
    let mut chosen: Vec<(Value, Value)> = Vec::new();
    for &place in &part.placed.models {
        let Some(model) = nth(models, place) else { return };
        let times = model.get("times").and_then(Item::as_table_like).and_then(|times| times.get(&class.name));
        let both = times.and_then(Item::as_value).zip(model.get("accuracy").and_then(Item::as_value));
        let Some((times, accuracy)) = both else { return };
        chosen.push((plain(times), plain(accuracy)));
    }
    let variant = |(times, accuracy): (Value, Value)| {
        let mut variant = InlineTable::new();
        variant.insert("times", times);
        variant.insert("accuracy", accuracy);
        variant
    };
    let mut chosen = chosen.into_iter();
    if let Some((times, accuracy)) = chosen.next() {
        set(inner, "times", value(times));
        set(inner, "accuracy", value(accuracy));
    }
    let variants: Array = chosen.map(variant).collect();
    or_none(inner, "variants", (!variants.is_empty()).then(|| value(variants)));
}

/// A value without what stands around it.
fn plain(value: &Value) -> Value {
    let mut value = value.clone();
    value.decor_mut().clear();
    value
}

/// The devices that are shared: those on which something is placed, and none besides that a class is called as.
fn devices(document: &mut DocumentMut, placement: &PlacementConfig, spots: &[Option<Spot>]) {
    for (place, class) in placement.classes.iter().enumerate().filter(|(_, class)| class.shared) {
        let used = spots.iter().flatten().flat_map(|spot| &spot.parts).any(|part| part.placed.class == place);
        let all = document.entry("device").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        let named = |table: &dyn TableLike| {
            table.get("name").and_then(Item::as_str).is_some_and(|name| name == class.name)
        };
        let mut at = 0;
        let found = loop {
            match nth(all, at) {
                Some(table) if named(table) => break Some(at),
                Some(_) => at += 1,
                None => break None,
            }
        };
        match (used, found) {
            (false, None) => {}
            (false, Some(at)) => match all {
                Item::ArrayOfTables(tables) => drop(tables.remove(at)),
                Item::Value(Value::Array(array)) => drop(array.remove(at)),
                _ => {}
            },
            (true, found) => {
                if found.is_none() {
                    match all {
                        Item::ArrayOfTables(tables) => tables.push(Table::new()),
                        Item::Value(Value::Array(array)) => array.push(InlineTable::new()),
                        _ => {}
                    }
                }
                let Some(table) = nth(all, at) else { continue };
                set(table, "name", value(class.name.as_str()));
                set(table, "workers", value(class.devices as i64));
                let cores: Array = class.cores.iter().map(|&core| core as i64).collect();
                or_none(table, "cores", (!cores.is_empty()).then(|| value(cores)));
                let gpus: Array = class.gpus.iter().map(|&gpu| i64::from(gpu)).collect();
                or_none(table, "gpu", (!gpus.is_empty()).then(|| value(gpus)));
                if let Some(memory) = class.memory {
                    let all = crate::config::DeviceConfig::memory(class.devices, memory);
                    set(table, "max-memory", value(i64::try_from(all).unwrap_or(i64::MAX)));
                }
            }
        }
    }
    let none = |item: &Item| match item {
        Item::ArrayOfTables(tables) => tables.is_empty(),
        Item::Value(Value::Array(array)) => array.is_empty(),
        _ => false,
    };
    if document.get("device").is_some_and(none) {
        document.remove("device");
    }
}

/// Writes a field, with what stands around its value if it is there already.
fn set(table: &mut dyn TableLike, name: &str, mut item: Item) {
    if let (Some(old), Some(new)) = (table.get(name).and_then(Item::as_value), item.as_value_mut()) {
        *new.decor_mut() = old.decor().clone();
    }
    match table.get_mut(name) {
        Some(there) => *there = item,
        None => drop(table.insert(name, item)),
    }
}

fn or_none(table: &mut dyn TableLike, name: &str, item: Option<Item>) {
    match item {
        Some(item) => set(table, name, item),
        None => drop(table.remove(name)),
    }
}
