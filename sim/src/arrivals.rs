//! Recorded arrivals: a CSV of instants and stream names.

use std::collections::HashMap;
use std::io::Read;

use planner::Problem;
use rt_core::Instant;

use crate::lines::{Lines, MAX_BYTES};
use crate::record::MAX_STREAMS;

/// Lines with an arrival at most.
pub const MAX_ARRIVALS: usize = 10_000_000;

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
        let mut lines = Lines::new(csv, &["time", "stream"]);
        let mut read = Self::of(problem);
        let mut indices: HashMap<String, usize> =
            read.streams.iter().cloned().enumerate().map(|(index, name)| (name, index)).collect();
        while let Some(line) = lines.next()? {
            let (instant, name) = (Instant::ZERO + line.span(0, problem.raw.unit)?, line.text(1));
            if read.list.last().is_some_and(|&(before, _)| instant < before) {
                return Err(line.refuse(0, "must not be before the time of the line above"));
            }
            let index = match indices.get(name) {
                Some(&index) => index,
                None if !problem.background => {
                    let known: Vec<_> = problem.streams.iter().map(|(name, _)| name.as_str()).collect();
                    let reason = format!(
                        "must be a stream of the problem ({}), which has no background",
                        known.join(", ")
                    );
                    return Err(line.refuse(1, reason));
                }
                None if read.streams.len() >= MAX_STREAMS => {
                    return Err(line.refuse(1, format!("at most {MAX_STREAMS} streams")));
                }
                None => {
                    read.streams.push(name.to_owned());
                    indices.insert(name.to_owned(), read.streams.len() - 1);
                    read.streams.len() - 1
                }
            };
            read.list.push((instant, index));
        }
        Ok(read)
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
        assert_eq!(
            refusal(false, "9223372036854.775808,s0"),
            "line 1: time = 9223372036854.775808: must be at most 9223372036854.775807"
        );
    }
}
