//! What is wrong with a file of JSON or TOML, in words of the file: which field, what it must be, and what stands there instead.

mod tables;

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Error};
use serde_path_to_error::Track;

pub use tables::{Tables, table};

/// Reads JSON as [`serde_json::from_str`] does, but no list as an object; an error names the field.
///
/// # Errors
/// As of [`serde_json::from_str`], in [these](in_words) words.
pub fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(Tables(&mut from)).map_err(|error| {
        let field = error.path().to_string();
        told(&field, &error.into_inner().to_string())
    })?;
    from.end()?;
    Ok(read)
}

/// The same of one field of a file, or of all that are left if it has no name. Where in the file it stands is not known.
pub(crate) fn field_from_json<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, serde_json::Error> {
    seed_from_json(field, PhantomData, text)
}

/// The same of one field as `seed` reads it.
///
/// # Errors
/// As of [`from_json`].
pub fn seed_from_json<'a, S: DeserializeSeed<'a>>(
    field: &str,
    seed: S,
    text: &'a str,
) -> Result<S::Value, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_str(text);
    let mut path = Track::new();
    let read = seed.deserialize(serde_path_to_error::Deserializer::new(Tables(&mut from), &mut path));
    read.map_err(|error| {
        let within = match path.path().to_string() {
            within if within == "." => field.to_owned(),
            within if within.starts_with('[') || field.is_empty() => format!("{field}{within}"),
            within => format!("{field}.{within}"),
        };
        let error = error.to_string();
        told(&within, error.rsplit_once(" at line ").map_or(&*error, |(message, _)| message))
    })
}

fn told(field: &str, error: &str) -> serde_json::Error {
    let (message, place) = error.rsplit_once(" at line ").unwrap_or((error, ""));
    let mut told = in_words(message, "an object");
    // What is not known or there twice is named already, where the file ends it has no fields, and the whole of it is none.
    let field = match message.split_whitespace().next() {
        Some("unknown" | "duplicate") if message.contains(" field ") => {
            field.rsplit_once('.').map_or("", |(table, _)| table)
        }
        Some("EOF") => "",
        _ => field,
    };
    // A name that is no text has none.
    if !matches!(field, "" | "." | "?") {
        told = format!("{field}: {told}");
    }
    if !place.is_empty() {
        told = format!("{told} at line {place}");
    }
    serde_json::Error::custom(told)
}

/// What a reader says of a value, without the names of types; `table` is what the file calls fields with their values.
#[must_use]
pub fn in_words(message: &str, table: &str) -> String {
    let expected = |kind: &str| {
        let found = message.strip_prefix(kind)?;
        found.rsplit_once(", expected ")
    };
    if let Some((found, kind)) = expected("invalid type: ").or_else(|| expected("invalid value: ")) {
        let found = found_in_words(found, table);
        let most = match kind {
            "u8" => u64::from(u8::MAX),
            "u16" => u64::from(u16::MAX),
            "u32" => u64::from(u32::MAX),
            _ => u64::MAX,
        };
        let beyond = found.parse().is_ok_and(|found: u64| found > most);
        let kind =
            if beyond { format!("a whole number of at most {most}") } else { kind_in_words(kind, table) };
        return format!("must be {kind}, not {found}");
    }
    if let Some((length, kind)) = expected("invalid length ") {
        let kind = kind_in_words(kind, table);
        return format!("must be {kind}, not a list of {length}");
    }
    if let Some((found, known)) = expected("unknown variant ") {
        let found = found.trim_matches('`');
        let known = known.replace('`', "\"");
        return format!("must be {known}, not \"{found}\"");
    }
    match message {
        // Of a name that stands alone, or leads to a value.
        "wanted string or table" => format!("must be a text in quotes, or {table}"),
        // Of all that a list may have.
        "trailing characters" => "must be a list of fewer".to_owned(),
        "expected value" => "no such value can stand here".to_owned(),
        "EOF while parsing a value" => "it ends where a value must stand".to_owned(),
        _ if message.starts_with("EOF while parsing ") => {
            message.replacen("EOF while parsing", "it ends within", 1)
        }
        _ => match message.strip_prefix("wanted exactly 1 element, found ") {
            Some(_) => format!("must be {table} of exactly one field"),
            None => message.to_owned(),
        },
    }
}

/// What must stand there.
fn kind_in_words(kind: &str, table: &str) -> String {
    let size = kind.strip_prefix("a tuple of size ");
    match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "a whole number of at least 1",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" => "a text in quotes",
        "path string" => "a path in quotes",
        "a sequence" => "a list",
        "a map" | "an object" => table,
        "string or map" => return format!("a text in quotes, or {table}"),
        _ if kind.starts_with("struct ") || kind.starts_with("internally tagged enum ") => table,
        _ => return size.map_or_else(|| kind.to_owned(), |size| format!("a list of {size}")),
    }
    .to_owned()
}

/// What stands there, as it was written where a reader tells that.
fn found_in_words(found: &str, table: &str) -> String {
    let value = |kind: &str| found.strip_prefix(kind);
    let float = |text: &str| text.parse().map_or_else(|_| text.to_owned(), |value: f64| format!("{value:?}"));
    match found {
        "map" => table.to_owned(),
        "sequence" => "a list".to_owned(),
        _ => value("string ")
            .map(str::to_owned)
            .or_else(|| Some(float(value("floating point ")?.trim_matches('`'))))
            .or_else(|| Some(value("integer ").or(value("boolean "))?.trim_matches('`').to_owned()))
            .unwrap_or_else(|| found.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Cell {
        count: u32,
        rate: Option<f64>,
        unit: Unit,
        pairs: Vec<(u64, f64)>,
        by: BTreeMap<String, bool>,
        cells: Option<Vec<Cell>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Unit {
        Ms,
        Us,
    }

    #[test]
    fn an_error_names_the_field_and_what_it_must_be_and_no_type_of_the_program() {
        let good = r#"{"count": 1, "unit": "ms", "pairs": [[1, 2]], "by": {"a": true}}"#;
        from_json::<Cell>(good).expect("good");
        for (from, to, told) in [
            ("1,", "-1,", "count: must be a whole number of at least 0, not -1 at line 1 column 12"),
            ("1,", "1.5,", "count: must be a whole number of at least 0, not 1.5 at line 1 column 13"),
            ("1,", "1e300,", "count: must be a whole number of at least 0, not 1e300 at line 1 column 15"),
            (
                "1,",
                "4294967296,",
                "count: must be a whole number of at most 4294967295, not 4294967296 at line 1",
            ),
            ("1,", "null,", "count: must be a whole number of at least 0, not null at line 1 column 14"),
            (
                "1,",
                "1, \"rate\": \"a, expected b\",",
                "rate: must be a number, not \"a, expected b\" at line 1",
            ),
            ("\"ms\"", "7", "unit: no such value can stand here at line 1 column 22"),
            ("\"ms\"", "\"s\"", "unit: must be \"ms\" or \"us\", not \"s\" at line 1 column 24"),
            ("[[1, 2]]", "[1, 2]", "pairs[0]: must be a list of 2, not 1 at line 1"),
            ("[[1, 2]]", "[[1, 2], [1]]", "pairs[1]: must be a list of 2, not a list of 1 at line 1"),
            ("\"a\"", "\"a\": true, \"b\": 1, \"c\"", "by.b: must be true or false, not 1 at line 1"),
            ("[[1, 2]]", "[[1, 2], [1, 2, 3]]", "pairs[1]: must be a list of fewer at line 1"),
            (", \"by\": {\"a\": true}}", "", "it ends within an object at line 1"),
            (
                "1,",
                "1, \"cells\": [[1, null, \"ms\", [], {}, null]],",
                "cells[0]: must be an object, not a list at line 1",
            ),
            ("[[1, 2]]", "{}", "pairs: must be a list, not an object at line 1"),
            ("true", "0", "by.a: must be true or false, not 0 at line 1"),
            ("\"count\": 1, ", "", "missing field `count` at line 1"),
            (
                "1,",
                "1, \"cells\": [{\"cuont\": 1}],",
                "cells[0]: unknown field `cuont`, expected one of `count`",
            ),
            ("\"count\"", "\"cuont\"", "unknown field `cuont`, expected one of `count`, `rate`"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = from_json::<Cell>(&good.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(told), "{to}: {error}");
        }
        let other = from_json::<Cell>("7").expect_err("no object").to_string();
        assert_eq!(other, "must be an object, not 7 at line 1 column 1");
        let list = from_json::<Cell>("[1, null, \"ms\", [], {}, null]").expect_err("no object").to_string();
        assert!(list.starts_with("must be an object, not a list at line 1"), "{list}");
        assert!(
            from_json::<Unit>("\"us\" 1").expect_err("more").to_string().starts_with("trailing characters")
        );
    }
}
