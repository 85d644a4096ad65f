//! Recorded arrivals: a CSV of instants and stream names.

use std::collections::HashMap;
use std::io::Read;

use planner::problem::raw::Unit;
use planner::problem::shared::Service;
use planner::{PipelineProblem, Problem, SharedProblem};
use rt_core::{Instant, MAX_CLASSES};

use crate::lines::{Lines, MAX_BYTES};
use crate::record::MAX_STREAMS;

/// Lines with an arrival at most.
pub const MAX_ARRIVALS: usize = 10_000_000;

/// Arrivals in order, and the streams that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// The problem's streams in its order, then those of no promise as they are first named.
    pub streams: Vec<String>,
    /// Instant of each, and its stream as an index into `streams`.
    pub list: Vec<(Instant, usize)>,
    /// The classes of requests that lines name, as they are first named.
    pub classes: Vec<String>,
    /// Of each arrival the place of its class among these, if its line names one.
    pub of: Vec<Option<u8>>,
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
    /// Reads lines `time,stream` or `time,stream,class`, in order of time, with the time in the problem's unit. A first line that says
    /// just that, empty lines, and those that begin with `#` are left out. A name that is no stream's is a
    /// stream that is promised nothing, if the problem allows background.
    ///
    /// # Errors
    /// [`ArrivalsError`], with the number of the line.
    pub fn read(problem: &Problem, csv: impl Read) -> Result<Self, ArrivalsError> {
        let background = |known: &[String], _: &str| match problem.background {
            true => Ok(()),
            false => {
                let known = known.join(", ");
                Err(format!("must be a stream of the problem ({known}), which has no background"))
            }
        };
        Self::of(problem).and(csv, problem.raw.unit, background)
    }

    /// The same for services that share workers, of which each stream is named as `service/stream`.
    ///
    /// # Errors
    /// As [`Arrivals::read`]; also for a stream of a service that there is not.
    pub fn read_shared(problem: &SharedProblem, csv: impl Read) -> Result<Self, ArrivalsError> {
        let background = |known: &[String], name: &str| match service_of(problem, name) {
            None => {
                let services: Vec<_> = problem.services.iter().map(|service| service.name.as_str()).collect();
                Err(format!("must be service/stream, of one of the services {}", services.join(", ")))
            }
            Some(_) if problem.raw.background => Ok(()),
            Some(_) => {
                let known = known.join(", ");
                Err(format!("must be a stream of the problem ({known}), which has no background"))
            }
        };
        Self::of_shared(problem).and(csv, problem.raw.unit, background)
    }

    /// The same for a pipeline, of which each line is a source.
    ///
    /// # Errors
    /// As [`Arrivals::read`].
    pub fn read_pipeline(problem: &PipelineProblem, csv: impl Read) -> Result<Self, ArrivalsError> {
        let background = |known: &[String], _: &str| match problem.raw.background {
            true => Ok(()),
            false => {
                let known = known.join(", ");
                Err(format!("must be a stream of the problem ({known}), which has no background"))
            }
        };
        let streams = problem.streams.iter().map(|(name, _)| name.clone()).collect();
        Self { streams, ..Self::default() }.and(csv, problem.raw.unit, background)
    }

    /// The same of a recording by itself, with times in nanoseconds: all streams are as they are first named.
    ///
    /// # Errors
    /// As [`Arrivals::read`], but for names.
    pub fn recorded(csv: impl Read) -> Result<Self, ArrivalsError> {
        Self::default().and(csv, Unit::Ns, |_, _| Ok(()))
    }

    /// With the lines of a file; `background` refuses the names that no stream of no promise may have.
    fn and(
        self,
        csv: impl Read,
        unit: Unit,
        background: impl Fn(&[String], &str) -> Result<(), String>,
    ) -> Result<Self, ArrivalsError> {
        let mut lines = Lines::of_least(csv, &["time", "stream", "class"], 2);
        let (declared, mut read) = (self.streams.len(), self);
        let mut indices: HashMap<String, usize> =
            read.streams.iter().cloned().enumerate().map(|(index, name)| (name, index)).collect();
        while let Some(line) = lines.next()? {
            let (instant, name) = (Instant::ZERO + line.span(0, unit)?, line.text(1));
            if read.list.last().is_some_and(|&(before, _)| instant < before) {
                return Err(line.refuse(0, "must not be before the time of the line above"));
            }
            let index = match indices.get(name) {
                Some(&index) => index,
                None if read.streams.len() >= MAX_STREAMS => {
                    return Err(line.refuse(1, format!("at most {MAX_STREAMS} streams")));
                }
                None => {
                    background(&read.streams[..declared], name).map_err(|reason| line.refuse(1, reason))?;
                    read.streams.push(name.to_owned());
                    indices.insert(name.to_owned(), read.streams.len() - 1);
                    read.streams.len() - 1
                }
            };
            let class = match line.optional(2) {
                None => None,
                Some(name) => Some(
                    read.class(name)
                        .ok_or_else(|| line.refuse(2, format!("at most {MAX_CLASSES} classes")))?,
                ),
            };
            read.list.push((instant, index));
            read.of.push(class);
        }
        Ok(read)
    }

    /// The place of a class, which is a new one if there is room.
    fn class(&mut self, name: &str) -> Option<u8> {
        let known = self.classes.iter().position(|class| class == name);
        let place = known.unwrap_or_else(|| {
            self.classes.push(name.to_owned());
            self.classes.len() - 1
        });
        (place < MAX_CLASSES).then_some(place as u8)
    }

    /// No arrivals yet.
    pub(crate) fn of(problem: &Problem) -> Self {
        let streams = problem.streams.iter().map(|(name, _)| name.clone()).collect();
        Self { streams, ..Self::default() }
    }

    /// The same for services that share workers.
    pub(crate) fn of_shared(problem: &SharedProblem) -> Self {
        let of = |service: &Service| {
            let named = |(stream, _): &(String, _)| format!("{}/{stream}", service.name);
            service.streams.iter().map(named).collect::<Vec<_>>()
        };
        Self { streams: problem.services.iter().flat_map(of).collect(), ..Self::default() }
    }
}

/// The service of a stream that is named as `service/stream`.
pub(crate) fn service_of(problem: &SharedProblem, stream: &str) -> Option<usize> {
    part_of(problem.services.iter().map(|service| service.name.as_str()), stream)
}

/// Which of `parts` a stream is of that is named as `part/stream`. Both may have slashes in their names: the longest name that there
/// is, is the part.
pub(crate) fn part_of<'a>(parts: impl IntoIterator<Item = &'a str>, stream: &str) -> Option<usize> {
    let begins = |part: &str| stream.strip_prefix(part).is_some_and(|rest| rest.starts_with('/'));
    let parts = parts.into_iter().enumerate().filter(|(_, part)| begins(part));
    parts.max_by_key(|(_, part)| part.len()).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{problem, stream};

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
    fn blanks_around_a_name_are_part_of_it_within_quotes_alone() {
        let given = "\u{feff}time,stream,class\n0, cam \n0,\"cam \"\n 0 , \" cam\" , \"a \"\"b\"\",\"\r\n0,\" cam\",a \n0,\"cam\t\"\n1,cam\n";
        let found = Arrivals::recorded(given.as_bytes()).expect("arrivals");
        assert_eq!(found.streams, ["cam", "cam ", " cam", "cam\t"]);
        assert_eq!(found.list.iter().map(|&(_, stream)| stream).collect::<Vec<_>>(), [0, 1, 2, 2, 3, 0]);
        assert_eq!(found.classes, ["a \"b\",", "a"]);
        assert_eq!(read(true, given.trim_end()).expect("arrivals").list.len(), 6);
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
        assert_eq!(
            refusal(false, "0,s0,5,6"),
            "line 1: line = 0,s0,5,6: must be time,stream or time,stream,class"
        );
        assert_eq!(refusal(false, "0"), "line 1: line = 0: must be time,stream or time,stream,class");
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
