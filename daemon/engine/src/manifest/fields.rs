//! The fields of a manifest as they stand in its file: each is looked at, and all that is wrong is told with its line.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Characters of a value that are told.
const SHOWN: usize = 40;

/// What is wrong with a file, each with its line, from 1.
#[derive(Debug)]
pub struct Problems<'a> {
    text: &'a str,
    list: Vec<(usize, String)>,
}

impl<'a> Problems<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, list: Vec::new() }
    }

    /// Notes what is wrong at this byte of the file.
    pub fn add(&mut self, at: usize, what: impl Into<String>) {
        let line = 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        self.list.push((line, what.into()));
    }

    /// Notes that a field has a value that is not allowed.
    pub(super) fn refuse(&mut self, at: usize, field: &str, value: impl std::fmt::Display, rule: &str) {
        self.add(at, format!("{field}: `{value}` is refused, {rule}"));
    }

    /// The same of a value as the file has it there.
    pub(super) fn refuse_as_written(&mut self, at: Range<usize>, field: &str, rule: &str) {
        let value: String = self.text.get(at.clone()).unwrap_or_default().chars().take(SHOWN).collect();
        self.refuse(at.start, field, value, rule);
    }

    /// In the order of the file, each once: several that share something may find the same wrong with it.
    pub fn into_list(mut self) -> Vec<(usize, String)> {
        let mut told = BTreeSet::new();
        self.list.retain(|problem| told.insert(problem.clone()));
        self.list.sort_by_key(|(line, _)| *line);
        self.list
    }
}

/// A table of the file whose fields are taken one by one; what is left over at the end is unknown.
pub(super) struct Fields<'t, 'd> {
    /// What messages call it, such as `model digits`.
    pub(super) name: String,
    /// Where it begins.
    pub(super) at: usize,
    table: &'t DeTable<'d>,
    known: BTreeSet<&'static str>,
}

impl<'t, 'd> Fields<'t, 'd> {
    pub(super) fn new(name: &str, at: usize, table: &'t DeTable<'d>) -> Self {
        Self { name: name.to_owned(), at, table, known: BTreeSet::new() }
    }

    /// One that must be a table.
    pub(super) fn of(
        name: &str,
        value: &'t Spanned<DeValue<'d>>,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::Table(table) => Some(Self::new(name, at, table)),
            other => {
                problems.add(at, format!("{name}: a table is needed, not a {}", other.type_str()));
                None
            }
        }
    }

    /// A field that may be absent.
    pub(super) fn optional(&mut self, field: &'static str) -> Option<&'t Spanned<DeValue<'d>>> {
        self.known.insert(field);
        self.table.iter().find(|(key, _)| key.get_ref() == field).map(|(_, value)| value)
    }

    /// A field that must be there.
    pub(super) fn required(
        &mut self,
        field: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<&'t Spanned<DeValue<'d>>> {
        let value = self.optional(field);
        if value.is_none() {
            problems.add(self.at, format!("{}: missing field `{field}`", self.name));
        }
        value
    }

    /// A text that must be there, and where it stands.
    pub(super) fn text(
        &mut self,
        field: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<(&'t str, usize)> {
        let value = self.required(field, problems)?;
        let at = value.span().start;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(field, value, "a string", problems);
        }
        text.map(|text| (text, at))
    }

    /// A whole number, 0 or more.
    pub(super) fn number(
        &mut self,
        field: &'static str,
        problems: &mut Problems<'_>,
    ) -> Option<(u64, usize)> {
        let value = self.optional(field)?;
        let number = whole(value.get_ref()).and_then(|number| u64::try_from(number).ok());
        if number.is_none() {
            self.wrong_type(field, value, "a whole number of 0 or more", problems);
        }
        number.map(|number| (number, value.span().start))
    }

    pub(super) fn wrong_type(
        &self,
        field: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        problems: &mut Problems<'_>,
    ) {
        let (at, found) = (value.span().start, value.get_ref().type_str());
        problems.add(at, format!("{}: {field}: {wanted} is needed, not this {found}", self.name));
    }

    /// Every field with its name, for tables whose fields the user names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'t str, &'t Spanned<DeValue<'d>>)> + use<'t, 'd> {
        self.table.iter().map(|(key, value)| (&**key.get_ref(), value))
    }

    /// Notes what was not taken.
    pub(super) fn finish(self, problems: &mut Problems<'_>) {
        for (key, _) in self.table.iter().filter(|(key, _)| !self.known.contains(&**key.get_ref())) {
            let known = self.known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let text = format!("{}: unknown field `{}`, there are {known}", self.name, key.get_ref());
            problems.add(key.span().start, text);
        }
    }
}

/// A whole number.
pub(super) fn whole(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    i128::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
}

/// Any number.
pub(super) fn real(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
        _ => whole(value).map(|number| number as f64),
    }
}
