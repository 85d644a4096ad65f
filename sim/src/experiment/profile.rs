//! Files that an experiment names: profiles of models measured elsewhere, recorded arrivals.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use planner::Number;
use rt_core::{MAX_BATCH, Span};

use super::raw::Profile;
use super::{ExperimentError, refuse};

/// The folder in which files are looked for.
#[derive(Clone, Debug, Default)]
pub struct Data(pub Option<PathBuf>);

impl Data {
    /// Where `file` lies, which `field` names.
    ///
    /// # Errors
    /// If there is no folder of data.
    pub(super) fn path(&self, field: &str, file: &str) -> Result<PathBuf, ExperimentError> {
        let folder = self.0.as_ref().ok_or_else(|| refuse(field, file, "needs a folder of data (--data)"))?;
        Ok(folder.join(file))
    }
}

/// The times of batches of 1, 2, … up to the largest in the table; of several rows for one size the longest counts,
/// and a size between two takes as long as the larger one, as if it were filled up.
///
/// # Errors
/// If the table cannot be read, has no such column or row, or a time or size is out of range.
pub(super) fn times(field: &str, profile: &Profile, data: &Data) -> Result<Vec<Span>, ExperimentError> {
    times_of(field, profile, |_| true, data)
}

/// The same of those sizes that are looked `at`.
///
/// # Errors
/// As [`times`].
pub(super) fn times_of(
    field: &str,
    profile: &Profile,
    at: impl Fn(usize) -> bool,
    data: &Data,
) -> Result<Vec<Span>, ExperimentError> {
    let mut measured: BTreeMap<usize, Span> = BTreeMap::new();
    for (line, row) in read(field, &profile.file, &profile.rows, &[&profile.batch, &profile.time], data)? {
        let wrong = |column: &str, value: &str, reason: String| {
            refuse(format!("{field}: {} line {line}: {column}", profile.file), value, reason)
        };
        let (batch, time) = (&row[0], &row[1]);
        let size = batch.parse::<f64>().unwrap_or_default();
        if size.fract() != 0.0 || !(1.0..=MAX_BATCH as f64).contains(&size) {
            return Err(wrong(&profile.batch, batch, format!("must be a whole number in 1..={MAX_BATCH}")));
        }
        if !at(size as usize) {
            continue;
        }
        let nanos = time.parse::<f64>().unwrap_or_default()
            * Number::whole(1).to_span(profile.unit).map_or(1.0, |unit| unit.as_nanos() as f64);
        if !(nanos >= 1.0 && nanos <= rt_core::MAX_SPAN.as_nanos() as f64) {
            return Err(wrong(
                &profile.time,
                time,
                "must be a time above 0 and of at most an hour".to_owned(),
            ));
        }
        let longest = measured.entry(size as usize).or_default();
        *longest = (*longest).max(Span::from_nanos(nanos.ceil() as u64));
    }
    let Some((&largest, _)) = measured.last_key_value() else {
        return Err(refuse(
            field,
            format!("{:?}", profile.rows),
            format!("no row of {} says so", profile.file),
        ));
    };
    let mut times = vec![Span::ZERO; largest];
    let mut before = Span::ZERO;
    // A larger batch never counts as faster.
    for (&size, &time) in &measured {
        before = before.max(time);
        times[size - 1] = before;
    }
    let mut next = Span::ZERO;
    for time in times.iter_mut().rev() {
        if *time == Span::ZERO {
            *time = next;
        }
        next = *time;
    }
    Ok(times)
}

/// The number in each of `columns` of the first row that says what `rows` says.
///
/// # Errors
/// If the table cannot be read, or has no such row, column or number.
pub(super) fn numbers(
    field: &str,
    file: &str,
    rows: &BTreeMap<String, String>,
    columns: &[String],
    data: &Data,
) -> Result<Vec<f64>, ExperimentError> {
    let names: Vec<&String> = columns.iter().collect();
    let Some((_, row)) = read(field, file, rows, &names, data)?.into_iter().next() else {
        return Err(refuse(field, format!("{rows:?}"), format!("no row of {file} says so")));
    };
    let number = |(name, text): (&String, &String)| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| refuse(format!("{field}: {file}: {name}"), text, "must be a number"))
    };
    columns.iter().zip(&row).map(number).collect()
}

/// The rows that say what `rows` says, each with its line: of these columns, in this order. A name that ends in `.gz` is unpacked.
///
/// # Errors
/// If the table cannot be read, or has no such column.
pub(super) fn read(
    field: &str,
    file: &str,
    rows: &BTreeMap<String, String>,
    columns: &[&String],
    data: &Data,
) -> Result<Vec<(u64, Vec<String>)>, ExperimentError> {
    let path = data.path(&format!("{field}.file"), file)?;
    let wrong = |error: &dyn std::fmt::Display| refuse(format!("{field}.file"), path.display(), error);
    let opened = File::open(&path).map_err(|error| wrong(&error))?;
    let text: Box<dyn Read> =
        if file.ends_with(".gz") { Box::new(flate2::read::GzDecoder::new(opened)) } else { Box::new(opened) };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = reader.headers().map_err(|error| wrong(&error))?.clone();
    let column = |name: &String| {
        let found = header.iter().position(|column| column == name);
        let all = || header.iter().collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| refuse(field, name, format!("must be a column of {file} ({})", all())))
    };
    let wanted = rows.iter().map(|(name, value)| Ok((column(name)?, value)));
    let wanted = wanted.collect::<Result<Vec<_>, ExperimentError>>()?;
    let columns = columns.iter().map(|name| column(name)).collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| wrong(&error))?;
        if wanted.iter().all(|&(column, value)| record.get(column) == Some(value)) {
            let line = record.position().map_or(0, csv::Position::line);
            found.push((line, columns.iter().map(|&column| record[column].to_owned()).collect()));
        }
    }
    Ok(found)
}
