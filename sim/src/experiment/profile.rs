//! Files that an experiment names: profiles of models measured elsewhere, recorded arrivals.

use std::collections::BTreeMap;
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
    let path = data.path(&format!("{field}.file"), &profile.file)?;
    let unreadable = |error: csv::Error| refuse(format!("{field}.file"), path.display(), error);
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(&path).map_err(unreadable)?;
    let header = reader.headers().map_err(unreadable)?.clone();
    let column = |name: &str| {
        let found = header.iter().position(|column| column == name);
        let columns = || header.iter().collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| {
            refuse(field, name, format!("must be a column of {} ({})", profile.file, columns()))
        })
    };
    let wanted: Vec<_> = profile
        .rows
        .iter()
        .map(|(name, value)| Ok((column(name)?, value)))
        .collect::<Result<_, ExperimentError>>()?;
    let (batch, time) = (column(&profile.batch)?, column(&profile.time)?);
    let mut measured: BTreeMap<usize, Span> = BTreeMap::new();
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        if wanted.iter().any(|&(column, value)| record.get(column) != Some(value)) {
            continue;
        }
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |column: usize, reason: String| {
            let value = record.get(column).unwrap_or_default().to_owned();
            refuse(format!("{field}: {} line {line}: {}", profile.file, &header[column]), value, reason)
        };
        let size = record.get(batch).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        if size.fract() != 0.0 || !(1.0..=MAX_BATCH as f64).contains(&size) {
            return Err(wrong(batch, format!("must be a whole number in 1..={MAX_BATCH}")));
        }
        if !at(size as usize) {
            continue;
        }
        let nanos = record.get(time).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default()
            * Number::whole(1).to_span(profile.unit).map_or(1.0, |unit| unit.as_nanos() as f64);
        if !(nanos >= 1.0 && nanos <= rt_core::MAX_SPAN.as_nanos() as f64) {
            return Err(wrong(time, "must be a time above 0 and of at most an hour".to_owned()));
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
    let path = data.path(&format!("{field}.file"), file)?;
    let unreadable = |error: csv::Error| refuse(format!("{field}.file"), path.display(), error);
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(&path).map_err(unreadable)?;
    let header = reader.headers().map_err(unreadable)?.clone();
    let column = |name: &String| {
        let found = header.iter().position(|column| column == name);
        found.ok_or_else(|| refuse(field, name, format!("must be a column of {file}")))
    };
    let wanted: Vec<_> = rows
        .iter()
        .map(|(name, value)| Ok((column(name)?, value)))
        .collect::<Result<_, ExperimentError>>()?;
    let columns: Vec<usize> = columns.iter().map(column).collect::<Result<_, _>>()?;
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        if wanted.iter().all(|&(column, value)| record.get(column) == Some(value)) {
            let number = |&column: &usize| {
                let text = record.get(column).unwrap_or_default();
                let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
                number.ok_or_else(|| {
                    refuse(format!("{field}: {file}: {}", &header[column]), text, "must be a number")
                })
            };
            return columns.iter().map(number).collect();
        }
    }
    Err(refuse(field, format!("{rows:?}"), format!("no row of {file} says so")))
}
