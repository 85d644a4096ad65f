//! Logs as files: written, and read with the number of the line that is wrong.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};

use planner::problem::raw::Unit;
use planner::{Number, PipelineProblem, Problem, SharedProblem};
use rt_core::{Instant, Span};

use super::{Became, Entry, Log, Member};
use crate::arrivals::{Arrivals, MAX_ARRIVALS};
use crate::lines::{MAX_BYTES, split};
use crate::record::MAX_STREAMS;
use crate::time::of_arrival;

/// Why something is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be read.
    #[error("cannot read the log: {0}")]
    Read(#[from] std::io::Error),
    /// It is too long.
    #[error("more than {MAX_ARRIVALS} arrivals or {MAX_BYTES} bytes")]
    TooLong,
    /// A line that does not say what it must.
    #[error("line {line}: {text}: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it says, cut if it is long.
        text: String,
        /// What it must be.
        reason: String,
    },
}

impl Log {
    /// Writes the log, times in the unit of `problem`.
    ///
    /// # Errors
    /// What writing reports.
    pub fn write(&self, problem: &Problem, to: impl Write) -> std::io::Result<()> {
        self.write_in(problem.raw.unit, &[], to)
    }

    /// The same of services that share workers.
    ///
    /// # Errors
    /// What writing reports.
    pub fn write_shared(&self, problem: &SharedProblem, to: impl Write) -> std::io::Result<()> {
        self.write_in(problem.raw.unit, &[], to)
    }

    /// The same of a pipeline.
    ///
    /// # Errors
    /// What writing reports.
    pub fn write_pipeline(&self, problem: &PipelineProblem, to: impl Write) -> std::io::Result<()> {
        self.write_in(problem.raw.unit, &stages_of(problem), to)
    }

    fn write_in(&self, unit: Unit, stages: &[String], to: impl Write) -> std::io::Result<()> {
        // The writer of `csv` would leave blanks around a name, which are part of it, without quotes.
        let never = csv::QuoteStyle::Never;
        let mut to = csv::WriterBuilder::new().flexible(true).quote_style(never).from_writer(to);
        let name = |stream: usize| quoted(&self.streams[stream]);
        let span = |span: Span| Number::of_span(span, unit).to_string();
        let since = |at: Instant| span(at.since(Instant::ZERO));
        to.write_record(["time", "stream"])?;
        for (at, entry) in &self.entries {
            let at = since(*at);
            match entry {
                Entry::Arrives(stream) => to.write_record([&*at, &name(*stream)])?,
                Entry::Starts { worker, length, batch } => {
                    self.write_batch(batch, &mut to)?;
                    to.write_record(["# start", &at, &worker.to_string(), &span(*length)])?;
                }
                Entry::StageStarts { stage, worker, length, batch } => {
                    self.write_batch(batch, &mut to)?;
                    let (stage, worker) = (quoted(&stages[*stage]), worker.to_string());
                    to.write_record(["# start", &at, &stage, &worker, &span(*length)])?;
                }
                Entry::StageEnds { stage, worker, became } => {
                    for Became { source, stage, count } in became {
                        let (stream, seq) = (name(source.stream), source.seq.to_string());
                        let stage = quoted(&stages[*stage]);
                        to.write_record(["# become", &stream, &seq, &stage, &count.to_string()])?;
                    }
                    to.write_record(["# end", &at, &quoted(&stages[*stage]), &worker.to_string()])?;
                }
                Entry::Ends(worker) => to.write_record(["# end", &at, &worker.to_string()])?,
                Entry::Refuses(Member { stream, seq }) => {
                    to.write_record(["# refuse", &at, &name(*stream), &seq.to_string()])?;
                }
                Entry::Counts(streams) => {
                    let names = streams.iter().map(|&stream| name(stream));
                    let fields = ["# count".into(), at.into()];
                    to.write_record(
                        fields.into_iter().chain(names).map(|field: Cow<'_, str>| field.into_owned()),
                    )?;
                }
            }
        }
        to.flush()
    }

    fn write_batch(&self, batch: &[Member], to: &mut csv::Writer<impl Write>) -> csv::Result<()> {
        batch.iter().try_for_each(|Member { stream, seq }| {
            to.write_record(["# take", &quoted(&self.streams[*stream]), &seq.to_string()])
        })
    }

    /// Reads a log, times in the unit of `problem`. What a recording says in other comments is left out, but not that
    /// something is missing.
    ///
    /// # Errors
    /// [`LogError`], with the number of the line.
    pub fn read(problem: &Problem, from: impl Read) -> Result<Self, LogError> {
        let streams = problem.streams.iter().map(|(name, _)| name.clone());
        Self::read_in(streams.collect(), problem.raw.unit, &[], from)
    }

    /// The same of services that share workers: streams are named `service/stream`.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn read_shared(problem: &SharedProblem, from: impl Read) -> Result<Self, LogError> {
        Self::read_in(Arrivals::of_shared(problem).streams, problem.raw.unit, &[], from)
    }

    /// The same of a pipeline.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn read_pipeline(problem: &PipelineProblem, from: impl Read) -> Result<Self, LogError> {
        let streams = problem.streams.iter().map(|(name, _)| name.clone());
        Self::read_in(streams.collect(), problem.raw.unit, &stages_of(problem), from)
    }

    fn read_in(
        streams: Vec<String>,
        unit: Unit,
        stages: &[String],
        from: impl Read,
    ) -> Result<Self, LogError> {
        let index = streams.iter().cloned().enumerate().map(|(index, name)| (name, index)).collect();
        let log = Self { streams, entries: Vec::new() };
        let mut reader = Reader { log, unit, stages, index, taken: Vec::new(), became: Vec::new() };
        let mut from = BufReader::new(from.take(MAX_BYTES));
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            if from.read_line(&mut text)? == 0 {
                break;
            }
            let said = text.trim_start_matches('\u{feff}').trim();
            reader.line(said).map_err(|reason| LogError::Line {
                line,
                text: said.chars().take(60).collect(),
                reason,
            })?;
            if reader.log.entries.len() > 4 * MAX_ARRIVALS {
                return Err(LogError::TooLong);
            }
        }
        // What lies behind the limit was never seen.
        if from.get_ref().limit() == 0 { Err(LogError::TooLong) } else { Ok(reader.log) }
    }
}

/// A name as a field of a line.
fn quoted(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match name.chars().all(plain) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("\"{}\"", name.replace('"', "\"\""))),
    }
}

fn stages_of(problem: &PipelineProblem) -> Vec<String> {
    problem.raw.pipeline.iter().map(|stage| stage.name.clone()).collect()
}

struct Reader<'a> {
    log: Log,
    unit: Unit,
    /// Of a pipeline.
    stages: &'a [String],
    index: HashMap<String, usize>,
    /// The requests of the batch that is to start.
    taken: Vec<Member>,
    /// What the batch that is to end became.
    became: Vec<Became>,
}

impl Reader<'_> {
    fn line(&mut self, text: &str) -> Result<(), String> {
        if text.ends_with("not recorded") {
            return Err("what is missing cannot be held against the model".to_owned());
        }
        let mut fields = csv::StringRecord::new();
        split(text, &mut fields);
        let fields: Vec<_> = fields.iter().collect();
        match *fields.as_slice() {
            _ if text.is_empty() => {}
            ["# take", stream, seq] => {
                let member = self.member(stream, seq)?;
                self.taken.push(member);
            }
            ["# start", at, stage, worker, length] => {
                let (at, stage, worker) = (self.instant(at)?, self.stage(stage)?, whole(worker)? as usize);
                let length = self.span(length)?;
                let batch = std::mem::take(&mut self.taken);
                self.log.entries.push((at, Entry::StageStarts { stage, worker, length, batch }));
            }
            ["# become", stream, seq, stage, count] => {
                let (source, stage) = (self.member(stream, seq)?, self.stage(stage)?);
                let count = count.parse().map_err(|_| format!("{count} is no number of requests"))?;
                self.became.push(Became { source, stage, count });
            }
            ["# end", at, stage, worker] => {
                let (at, stage, worker) = (self.instant(at)?, self.stage(stage)?, whole(worker)? as usize);
                let became = std::mem::take(&mut self.became);
                self.log.entries.push((at, Entry::StageEnds { stage, worker, became }));
            }
            ["# start", at, worker, length] if self.stages.is_empty() => {
                let (at, worker) = (self.instant(at)?, whole(worker)? as usize);
                let length = self.span(length)?;
                let batch = std::mem::take(&mut self.taken);
                self.log.entries.push((at, Entry::Starts { worker, length, batch }));
            }
            ["# end", at, worker] if self.stages.is_empty() => {
                let entry = (self.instant(at)?, Entry::Ends(whole(worker)? as usize));
                self.log.entries.push(entry);
            }
            ["# refuse", at, stream, seq] => {
                let entry = (self.instant(at)?, Entry::Refuses(self.member(stream, seq)?));
                self.log.entries.push(entry);
            }
            ["# count", at, ref names @ ..] => {
                let at = self.instant(at)?;
                let streams = names.iter().map(|name| self.stream(name)).collect::<Result<_, _>>()?;
                self.log.entries.push((at, Entry::Counts(streams)));
            }
            ["# take" | "# start" | "# become" | "# end" | "# refuse" | "# count", ..] => {
                return Err("has not the fields that it must have".to_owned());
            }
            _ if text.starts_with('#') => {}
            ["time", "stream"] => {}
            // The model knows no classes.
            [at, stream] | [at, stream, _] => {
                let entry = (self.instant(at)?, Entry::Arrives(self.stream(stream)?));
                self.log.entries.push(entry);
            }
            _ => return Err("must be time,stream or time,stream,class".to_owned()),
        }
        Ok(())
    }

    fn span(&self, text: &str) -> Result<Span, String> {
        let number = text.parse::<Number>().map_err(|e| e.to_string())?;
        of_arrival(number, self.unit)
    }

    /// An instant, none before the last one.
    fn instant(&self, text: &str) -> Result<Instant, String> {
        let at = Instant::ZERO + self.span(text)?;
        match self.log.entries.last() {
            Some(&(before, _)) if at < before => {
                Err("must not be before the time of the line above".to_owned())
            }
            _ => Ok(at),
        }
    }

    fn stream(&mut self, name: &str) -> Result<usize, String> {
        if let Some(&index) = self.index.get(name) {
            return Ok(index);
        }
        if self.log.streams.len() >= MAX_STREAMS {
            return Err(format!("at most {MAX_STREAMS} streams"));
        }
        self.log.streams.push(name.to_owned());
        self.index.insert(name.to_owned(), self.log.streams.len() - 1);
        Ok(self.log.streams.len() - 1)
    }

    fn stage(&self, name: &str) -> Result<usize, String> {
        let found = self.stages.iter().position(|stage| stage == name);
        found.ok_or_else(|| match self.stages {
            [] => "stages are of pipelines".to_owned(),
            stages => format!("{name} is no stage, those are {}", stages.join(", ")),
        })
    }

    fn member(&mut self, stream: &str, seq: &str) -> Result<Member, String> {
        Ok(Member { stream: self.stream(stream)?, seq: whole(seq)? })
    }
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no whole number"))
}
