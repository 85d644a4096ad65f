//! Recorded arrivals: a CSV of instants and stream names.

use std::collections::HashMap;
use std::io::Read;

use planner::{Number, Problem};
use rt_core::Instant;

use crate::record::MAX_STREAMS;

/// Lines with an arrival at most.
pub const MAX_ARRIVALS: usize = 10_000_000;
/// Bytes read at most.
const MAX_BYTES: u64 = 1 << 30;

/// Arrivals in order, and the streams that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// The problem's streams in its order, then those of no promise as they are first named.
    pub streams: Vec<String>,
    /// Instant of each, and its stream as an index into `streams`.
    pub list: Vec<(Instant, usize)>,
}

/// Why something is no list of arrivals.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalsError {
    /// It cannot be read, or is no CSV.
    #[error("cannot read the arrivals: {0}")]
    Csv(#[from] csv::Error),
    /// It is too long.
    #[error("more than {MAX_ARRIVALS} arrivals or {MAX_BYTES} bytes")]
    TooLong,
    /// A line that does not say what it must.
    #[error("line {line}: {field} = {value}: {reason}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// Which field; `line` for all of it.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it must be.
        reason: String,
    },
}

impl Arrivals {
    /// Reads lines `time,stream`, in order of time, with the time in the problem's unit. A first line that says
    /// just that, empty lines, and those that begin with `#` are left out. A name that is no stream's is a
    /// stream that is promised nothing, if the problem allows background.
    ///
    /// # Errors
    /// [`ArrivalsError`], with the number of the line.
    pub fn read(problem: &Problem, csv: impl Read) -> Result<Self, ArrivalsError> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .from_reader(csv.take(MAX_BYTES));
        let mut read = Self::of(problem);
        let mut indices: HashMap<String, usize> =
            read.streams.iter().cloned().enumerate().map(|(index, name)| (name, index)).collect();
        let mut record = csv::StringRecord::new();
        let mut first = true;
        while reader.read_record(&mut record)? {
            let line = record.position().map_or(0, csv::Position::line);
            let refuse = |field, value: &str, reason: String| {
                let value = value.chars().take(60).collect();
                ArrivalsError::Line { line, field, value, reason }
            };
            let (time, name) = match (record.get(0), record.get(1), record.len()) {
                (Some("time"), Some("stream"), 2) if std::mem::take(&mut first) => continue,
                (Some(time), Some(name), 2) => (time, name),
                _ => {
                    let all: Vec<_> = record.iter().collect();
                    return Err(refuse("line", &all.join(","), "must be time,stream".into()));
                }
            };
            first = false;
            let span = time.parse::<Number>().and_then(|number| number.to_span(problem.raw.unit));
            let instant = Instant::ZERO + span.map_err(|e| refuse("time", time, e.to_string()))?;
            if read.list.last().is_some_and(|&(before, _)| instant < before) {
                return Err(refuse("time", time, "must not be before the time of the line above".into()));
            }
            let index = match indices.get(name) {
                Some(&index) => index,
                None if !problem.background => {
                    let known: Vec<_> = problem.streams.iter().map(|(name, _)| name.as_str()).collect();
                    let reason = format!(
                        "must be a stream of the problem ({}), which has no background",
                        known.join(", ")
                    );
                    return Err(refuse("stream", name, reason));
                }
                None if read.streams.len() >= MAX_STREAMS => {
                    return Err(refuse("stream", name, format!("at most {MAX_STREAMS} streams")));
                }
                None => {
                    read.streams.push(name.to_owned());
                    indices.insert(name.to_owned(), read.streams.len() - 1);
                    read.streams.len() - 1
                }
            };
            if read.list.len() == MAX_ARRIVALS {
                return Err(ArrivalsError::TooLong);
            }
            read.list.push((instant, index));
        }
        // What lies behind the limit was never seen.
        if reader.get_ref().limit() == 0 { Err(ArrivalsError::TooLong) } else { Ok(read) }
    }

    /// No arrivals yet.
    pub(crate) fn of(problem: &Problem) -> Self {
        let streams = problem.streams.iter().map(|(name, _)| name.clone()).collect();
        Self { streams, list: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{problem, stream};
    use planner::problem::raw::Unit;

    fn read(background: bool, text: &str) -> Result<Arrivals, ArrivalsError> {
        let mut problem = problem(&[1], 1, 4, &[stream(0, 1, 1, 4), stream(0, 1, 1, 4)]);
        (problem.raw.unit, problem.background) = (Unit::Ms, background);
        Arrivals::read(&problem, text.as_bytes())
    }

    fn refusal(background: bool, text: &str) -> String {
        read(background, text).expect_err("refused").to_string()
    }

    #[test]
    fn header_comments_spaces_and_decimals_are_read() {
        let given = "# recorded\ntime,stream\n\n0,s1\n# more\n 0.5 , s0\n0.5,\"s1\"\n1e1,s0";
        let list = read(false, given).expect("arrivals").list;
        let nanos: Vec<_> = list.iter().map(|&(instant, stream)| (instant.as_nanos(), stream)).collect();
        assert_eq!(nanos, [(0, 1), (500_000, 0), (500_000, 1), (10_000_000, 0)]);
        assert_eq!(read(false, "").expect("nothing").list, []);
    }

    #[test]
    fn other_names_are_background_where_there_is_some() {
        let found = read(true, "0,x\n1,s0\n1,y\n2,x").expect("arrivals");
        assert_eq!(found.streams, ["s0", "s1", "x", "y"]);
        assert_eq!(found.list.iter().map(|&(_, stream)| stream).collect::<Vec<_>>(), [2, 0, 3, 2]);
        let text = refusal(false, "0,s0\n0,x");
        assert_eq!(
            text,
            "line 2: stream = x: must be a stream of the problem (s0, s1), which has no background"
        );
    }

    #[test]
    fn what_is_no_arrival_is_refused_with_its_line() {
        assert_eq!(
            refusal(false, "0,s0\n\n2,s0\n1.5,s1"),
            "line 4: time = 1.5: must not be before the time of the line above"
        );
        assert_eq!(refusal(false, "0,s0,5"), "line 1: line = 0,s0,5: must be time,stream");
        assert_eq!(refusal(false, "0"), "line 1: line = 0: must be time,stream");
        assert_eq!(refusal(false, "0,s0\ntime,stream"), "line 2: time = time: is no number");
        assert_eq!(refusal(false, "-1,s0"), "line 1: time = -1: must not be negative");
        assert_eq!(refusal(false, "1e-7,s0"), "line 1: time = 1e-7: must be a whole number of nanoseconds");
        assert!(refusal(false, "nan,s0").contains("is no number"));
    }
}
