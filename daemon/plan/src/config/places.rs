//! A configuration file as a tree whose parts know where they stand: read as far as it can be, with all that is wrong noted.

use std::ops::Range;

use planner::{Tables, in_words};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};
use weir_engine::manifest::Problems;

use super::raw;

/// So many of a file's faults are told at most.
const MOST: usize = 100;

/// The tree of a file.
pub(super) struct Tree<'a> {
    table: DeTable<'a>,
    /// Of each table that something was left out of: where it begins, and what.
    left_out: Vec<(usize, String)>,
}

/// The fields of the file, if none of its tables had to be left out, and the tree that they were read from. What is not TOML, not
/// known, or of another type than it should be is noted and left out.
pub(super) fn read<'a>(text: &'a str, problems: &mut Problems<'_>) -> (Option<raw::File>, Tree<'a>) {
    let (mut document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let key = error.span().and_then(|span| text.get(span)).filter(|_| error.message() == "duplicate key");
        let told = key.map_or_else(|| error.message().into(), |key| format!("{key} is there already"));
        problems.add(begin(error), told);
    }
    let mut whole = errors.is_empty();
    let mut left_out: Vec<(usize, String)> = Vec::new();
    let tree = |document: Spanned<DeTable<'a>>, left_out| Tree { table: document.into_inner(), left_out };
    let written = document.clone();
    while errors.is_empty() && left_out.len() < MOST {
        let from = Tables(Deserializer::from(document.clone()));
        let read: Result<raw::File, _> = Deserialize::deserialize(from);
        let error = match read {
            Ok(file) => return (whole.then_some(file), tree(document, left_out)),
            Err(error) => error,
        };
        let message = error.message();
        let absent = message.strip_prefix("missing field `").and_then(|name| name.strip_suffix('`'));
        let shorter = message.starts_with("invalid length ") || message.starts_with("wanted exactly ");
        // Because of what was left out, which is told already.
        let known = |name: &str| absent == Some(name) || shorter;
        let news = !left_out.iter().any(|(at, field)| *at == begin(&error) && known(field));
        whole &= absent.is_none();
        if news {
            let told = in_words(message, "a table");
            let list = message.starts_with("invalid type: sequence");
            let field = error.span().and_then(|span| field_at(written.get_ref(), (&span, list)));
            let field = field.unwrap_or_default();
            let told = if field.is_empty() { told } else { format!("{field}: {told}") };
            problems.add(begin(&error), told);
        }
        let removed = error.span().and_then(|span| remove(document.get_mut(), 0, &span));
        let Some(removed) = removed else { break };
        left_out.push(removed);
    }
    (None, tree(document, left_out))
}

impl Tree<'_> {
    /// Where in the file a field begins, or the innermost table of it that is there.
    pub(super) fn place(&self, field: &str) -> usize {
        place(&self.table, field)
    }

    /// Whether a field that is not here, or something of a list, stands in the file and was left out.
    pub(super) fn lacks(&self, field: &str) -> bool {
        let (at, name) = (self.place(field), field.rsplit('.').next().unwrap_or_default());
        self.left_out.iter().any(|(table, left)| *table == at && (left == name || left.is_empty()))
    }
}

fn begin(error: &Error) -> usize {
    error.span().map_or(0, |span| span.start)
}

/// The field that stands there, such as `service[0].stream[1].name`; of a name that stands there, the table that has it. A list of
/// tables stands where its first one does: it is meant if it is a `list`.
fn field_at(table: &DeTable<'_>, (span, list): (&Range<usize>, bool)) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let within = field_within(value, (span, list)).map(|within| format!("{}{within}", key.get_ref()));
        let own = || (value.span() == *span).then(|| key.get_ref().to_string());
        within.or_else(own).or_else(|| (key.span() == *span).then(String::new))
    })
}

fn field_within(value: &Spanned<DeValue<'_>>, (span, list): (&Range<usize>, bool)) -> Option<String> {
    match value.get_ref() {
        DeValue::Table(table) => field_at(table, (span, list))
            .map(|field| if field.is_empty() { field } else { format!(".{field}") }),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(place, item)| {
            let own = || (item.span() == *span && !(list && item.get_ref().is_table())).then(String::new);
            field_within(item, (span, list)).or_else(own).map(|within| format!("[{place}]{within}"))
        }),
        _ => None,
    }
}

/// Removes what stands there, or whose name does: where the table begins that held it, and its name.
fn remove(table: &mut DeTable<'_>, at: usize, span: &Range<usize>) -> Option<(usize, String)> {
    for (_, value) in table.iter_mut() {
        let removed = remove_within(value, span);
        if removed.is_some() {
            return removed;
        }
    }
    let found = table.iter().find(|(key, value)| key.span() == *span || value.span() == *span);
    let key = found.map(|(key, _)| key.clone())?;
    table.remove(&key);
    Some((at, key.into_inner().into_owned()))
}

fn remove_within(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<(usize, String)> {
    let at = value.span().start;
    match value.get_mut() {
        DeValue::Table(table) => remove(table, at, span),
        DeValue::Array(array) => {
            let found = array.iter_mut().enumerate().find_map(|(place, item)| {
                if item.span() == *span {
                    return Some((place, false, (at, String::new())));
                }
                let removed = remove_within(item, span)?;
                // What says which of several things it is says nothing without that.
                let stays = item.get_ref().as_table().is_none_or(|table| !table.is_empty());
                Some((place, stays, removed))
            });
            let (place, stays, removed) = found?;
            if !stays {
                let others = std::mem::replace(array, DeArray::new()).into_iter().enumerate();
                *array = others.filter(|(at, _)| *at != place).map(|(_, item)| item).collect();
            }
            Some(removed)
        }
        _ => None,
    }
}

/// The line of a file at which a field stands.
pub(super) fn line(text: &str, field: &str) -> usize {
    let (document, _) = DeTable::parse_recoverable(text);
    let before = &text.as_bytes()[..place(document.get_ref(), field).min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// Where in the file a field such as `service[0].stream[1].name` begins, or the innermost table of it that is there.
fn place(table: &DeTable<'_>, field: &str) -> usize {
    let (mut at, mut inside) = (0, Some(table));
    for part in field.split('.') {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        let found = inside.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name));
        let Some((_, mut value)) = found else { break };
        at = value.span().start;
        for index in indices.split('[').filter_map(|index| index.strip_suffix(']')?.parse::<usize>().ok()) {
            let Some(item) = value.get_ref().as_array().and_then(|array| array.get(index)) else { break };
            (at, value) = (item.span().start, item);
        }
        inside = value.get_ref().as_table();
    }
    at
}

#[cfg(test)]
mod tests;
