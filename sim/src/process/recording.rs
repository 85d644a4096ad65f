//! Recorded traces and rates, read from CSV.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use planner::Number;
use planner::problem::raw::Unit;
use rt_core::{Instant, Span};

use super::{Process, ProcessError};
use crate::arrivals::ArrivalsError;
use crate::lines::{Line, Lines};

/// What the lines of a recording say. A first line of just the names of the fields, empty lines, and those that
/// begin with `#` are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// `time`: when each request came, in order.
    Instants {
        /// What the times are in.
        unit: Unit,
    },
    /// `time,count`: how many requests came from that time to the next one. All are equally far apart.
    Counts {
        /// What the times are in.
        unit: Unit,
    },
    /// `rate`: requests a second, interval after interval.
    Rates {
        /// How long each holds, at least 1 ns.
        interval: Span,
    },
}

/// Why a file is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be opened.
    #[error("cannot open {path}: {error}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A line does not say what it must, or there are too many.
    #[error(transparent)]
    Lines(#[from] ArrivalsError),
    /// The lines together make no process.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl Process {
    /// Reads a file of recorded arrivals: see [`Process::read`].
    ///
    /// # Errors
    /// As there, or if the file cannot be opened.
    pub fn open(recording: Recording, path: &Path) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|error| RecordingError::Open { path: path.to_owned(), error })?;
        Self::read(recording, file)
    }

    /// Reads recorded arrivals: [`Process::Trace`] from instants, [`Process::Rates`] from anything else.
    ///
    /// # Errors
    /// [`RecordingError`]: with line, field, value and limit if a line is wrong; if there are more than
    /// [`MAX_ARRIVALS`](crate::MAX_ARRIVALS) lines; if all are, as a process, none: too few, or nothing but zeros.
    pub fn read(recording: Recording, csv: impl Read) -> Result<Self, RecordingError> {
        let process = match recording {
            Recording::Instants { unit } => Self::Trace(instants(csv, unit)?.into()),
            Recording::Counts { unit } => counts(csv, unit)?,
            Recording::Rates { interval } => {
                let mut lines = Lines::of_numbers(csv, &["rate"]);
                let mut rates = Vec::new();
                while let Some(line) = lines.next()? {
                    rates.push(amount(&line, 0)?);
                }
                Self::Rates { rates: rates.into(), interval }
            }
        };
        process.check()?;
        Ok(process)
    }
}

fn instants(csv: impl Read, unit: Unit) -> Result<Vec<Instant>, ArrivalsError> {
    let mut lines = Lines::of_numbers(csv, &["time"]);
    let mut trace: Vec<Instant> = Vec::new();
    while let Some(line) = lines.next()? {
        let instant = Instant::ZERO + line.span(0, unit)?;
        if trace.last().is_some_and(|&before| instant < before) {
            return Err(line.refuse(0, "must not be before the time of the line above"));
        }
        trace.push(instant);
    }
    Ok(trace)
}

fn counts(csv: impl Read, unit: Unit) -> Result<Process, RecordingError> {
    let mut lines = Lines::of_numbers(csv, &["time", "count"]);
    let (mut counts, mut before, mut interval) = (Vec::new(), None, None);
    while let Some(line) = lines.next()? {
        let time = line.span(0, unit)?;
        if let Some(before) = before {
            let step = time.saturating_sub(before);
            if step == Span::ZERO {
                return Err(line.refuse(0, "must be after the time of the line above").into());
            }
            if step != *interval.get_or_insert(step) {
                let reason = "must be as far from the time of the line above as the second is from the first";
                return Err(line.refuse(0, reason).into());
            }
        }
        before = Some(time);
        counts.push(amount(&line, 1)?);
    }
    let few =
        || ProcessError::new("counts", format!("{} lines", counts.len()), "2 at least, to tell the interval");
    let interval = interval.ok_or_else(few)?;
    let rates = counts.iter().map(|count| count / interval.as_secs_f64()).collect();
    Ok(Process::Rates { rates, interval })
}

/// A number that is not negative.
fn amount(line: &Line, field: usize) -> Result<f64, ArrivalsError> {
    let number = line.text(field).parse::<Number>().map_err(|e| line.refuse(field, e.to_string()))?;
    match number.as_f64() {
        amount if amount < 0.0 => Err(line.refuse(field, "must not be negative")),
        amount if amount > super::MAX_WEIGHT => {
            Err(line.refuse(field, format!("must be at most {:e}", super::MAX_WEIGHT)))
        }
        amount => Ok(amount),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANTS: Recording = Recording::Instants { unit: Unit::Ms };
    const COUNTS: Recording = Recording::Counts { unit: Unit::S };
    const RATES: Recording = Recording::Rates { interval: Span::from_millis(100) };

    fn refusal(recording: Recording, text: &str) -> String {
        Process::read(recording, text.as_bytes()).expect_err("refused").to_string()
    }

    #[test]
    fn instants_counts_and_rates_are_read() {
        let read = |recording, text: &str| Process::read(recording, text.as_bytes()).expect("a recording");
        let trace = [0u64, 500_000, 500_000, 2_000_000].map(Instant::from_nanos);
        assert_eq!(read(INSTANTS, "time\n0\n# half\n0.5\n\n 0.5\n2"), Process::Trace(trace.into()));
        let rates = |rates: &[f64], interval| Process::Rates { rates: rates.into(), interval };
        let minute = Span::from_millis(60_000);
        assert_eq!(read(COUNTS, "time,count\n60,120\n120,0\n180,30"), rates(&[2.0, 0.0, 0.5], minute));
        assert_eq!(read(RATES, "2.5\n0\n1e3"), rates(&[2.5, 0.0, 1_000.0], Span::from_millis(100)));
    }

    #[test]
    fn what_is_no_recording_is_refused_with_line_field_value_and_limit() {
        let cases = [
            (INSTANTS, "1\n0.5", "line 2: time = 0.5: must not be before the time of the line above"),
            (INSTANTS, "0\n1,s0", "line 2: line = 1,s0: must be time"),
            (INSTANTS, "time\ntime", "line 2: time = time: is no number"),
            (INSTANTS, "", "trace = 0 requests: must be 2 at least, not all at once"),
            (INSTANTS, "5\n5", "trace = 2 requests in 0 ns: must be 2 at least, not all at once"),
            (COUNTS, "0,1\n0,2", "line 2: time = 0: must be after the time of the line above"),
            (
                COUNTS,
                "0,1\n1,2\n3,2",
                "line 3: time = 3: must be as far from the time of the line above as the second is from the first",
            ),
            (COUNTS, "0,1\n1,-2", "line 2: count = -2: must not be negative"),
            (COUNTS, "0,1", "counts = 1 lines: must be 2 at least, to tell the interval"),
            (RATES, "1\nnan", "line 2: rate = nan: is no number"),
            (RATES, "1e19", "line 1: rate = 1e19: must be at most 1e18"),
            (RATES, "0\n0", "rates = 0 in sum: must be above 0"),
            (RATES, "", "rates = none: must be 1 at least"),
            (Recording::Rates { interval: Span::ZERO }, "1", "interval = 0 ns: must be 1 ns at least"),
        ];
        for (recording, text, error) in cases {
            assert_eq!(refusal(recording, text), error);
        }
        let missing = Process::open(RATES, Path::new("/nonexistent/rates.csv")).expect_err("no file");
        assert!(missing.to_string().starts_with("cannot open /nonexistent/rates.csv: "), "{missing}");
    }
}
