//! CSV lines of a known form: whatever is wrong with one is told with its number, field and value.

use std::io::{BufRead, BufReader, Read, Take};

use csv::StringRecord;
use planner::Number;
use planner::problem::raw::Unit;
use rt_core::Span;

use crate::arrivals::{ArrivalsError, MAX_ARRIVALS};
use crate::time::of_arrival;

/// Bytes read at most.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// Reads lines that all have the same fields. A first line of just their names, empty lines, and those that begin
/// with `#` are left out; of a table of numbers any first line without a number.
pub(crate) struct Lines<R> {
    from: BufReader<Take<R>>,
    /// The line just read, its number from 1, and its fields.
    text: String,
    number: u64,
    record: StringRecord,
    fields: &'static [&'static str],
    /// So many of them every line has.
    least: usize,
    /// Whether all fields are numbers.
    numbers: bool,
    /// Whether the next line may be the names.
    first: bool,
    read: usize,
}

/// One line.
pub(crate) struct Line<'a> {
    number: u64,
    record: &'a StringRecord,
    fields: &'static [&'static str],
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(csv: R, fields: &'static [&'static str]) -> Self {
        Self {
            from: BufReader::new(csv.take(MAX_BYTES)),
            text: String::new(),
            number: 0,
            record: StringRecord::new(),
            fields,
            least: fields.len(),
            numbers: false,
            first: true,
            read: 0,
        }
    }

    /// As [`Lines::new`], of lines that may end after `least` of the fields.
    pub(crate) fn of_least(csv: R, fields: &'static [&'static str], least: usize) -> Self {
        Self { least, ..Self::new(csv, fields) }
    }

    /// As [`Lines::new`], of numbers alone.
    pub(crate) fn of_numbers(csv: R, fields: &'static [&'static str]) -> Self {
        Self { numbers: true, ..Self::new(csv, fields) }
    }

    /// Whether the line just read, the first, is none of them but names the fields.
    fn is_header(&self) -> bool {
        let named = self.is_whole() && self.record.iter().zip(self.fields).all(|(one, other)| one == *other);
        named || self.numbers && self.record.iter().all(|field| field.parse::<f64>().is_err())
    }

    /// Whether the line just read has as many fields as it must.
    fn is_whole(&self) -> bool {
        (self.least..=self.fields.len()).contains(&self.record.len())
    }

    /// Takes the fields of the next line that has any; false after the last.
    fn read_line(&mut self) -> Result<bool, ArrivalsError> {
        loop {
            self.text.clear();
            if self.from.read_line(&mut self.text).map_err(csv::Error::from)? == 0 {
                return Ok(false);
            }
            self.number += 1;
            let marked = if self.number == 1 { self.text.strip_prefix('\u{feff}') } else { None };
            let text = marked.unwrap_or(&self.text).trim();
            if !text.is_empty() && !text.starts_with('#') {
                split(text, &mut self.record);
                return Ok(true);
            }
        }
    }

    /// The next line; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, ArrivalsError> {
        while self.read_line()? {
            if std::mem::take(&mut self.first) && self.is_header() {
                continue;
            }
            if !self.is_whole() {
                let all: Vec<_> = self.record.iter().collect();
                let (needed, more) = self.fields.split_at(self.least);
                let more = more.iter().map(|field| format!(" or {},{field}", needed.join(",")));
                let reason = format!("must be {}{}", needed.join(","), more.collect::<String>());
                return Err(refuse(self.number, "line", &all.join(","), reason));
            }
            if self.read == MAX_ARRIVALS {
                return Err(ArrivalsError::TooLong);
            }
            self.read += 1;
            return Ok(Some(Line { number: self.number, record: &self.record, fields: self.fields }));
        }
        // What lies behind the limit was never seen.
        if self.from.get_ref().limit() == 0 { Err(ArrivalsError::TooLong) } else { Ok(None) }
    }
}

impl<'a> Line<'a> {
    /// What a field says, which must be one of those read for.
    pub(crate) fn text(&self, field: usize) -> &'a str {
        &self.record[field]
    }

    /// The same of one that a line may leave out.
    pub(crate) fn optional(&self, field: usize) -> Option<&'a str> {
        self.record.get(field)
    }

    /// A field that is the time of an arrival in `unit`.
    pub(crate) fn span(&self, field: usize, unit: Unit) -> Result<Span, ArrivalsError> {
        let number = self.text(field).parse::<Number>().map_err(|e| e.to_string());
        number.and_then(|number| of_arrival(number, unit)).map_err(|e| self.refuse(field, e))
    }

    /// The error that a field is.
    pub(crate) fn refuse(&self, field: usize, reason: impl Into<String>) -> ArrivalsError {
        refuse(self.number, self.fields[field], self.text(field), reason.into())
    }
}

/// Takes the fields of a line of CSV. Blanks around one are no part of it, those within quotes are, which the reader of `csv` does not
/// tell apart.
pub(crate) fn split(line: &str, fields: &mut StringRecord) {
    fields.clear();
    let mut rest = Some(line);
    while let Some(text) = rest {
        let text = text.trim_start();
        let quoted = text.starts_with('"');
        let mut within = false;
        let end = text.find(|c| {
            within ^= quoted && c == '"';
            c == ',' && !within
        });
        let field = text[..end.unwrap_or(text.len())].trim_end();
        rest = end.map(|end| &text[end + 1..]);
        match field.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
            Some(inner) => fields.push_field(&inner.replace("\"\"", "\"")),
            None => fields.push_field(field),
        }
    }
}

fn refuse(line: u64, field: &'static str, value: &str, reason: String) -> ArrivalsError {
    ArrivalsError::Line { line, field, value: value.chars().take(60).collect(), reason }
}
