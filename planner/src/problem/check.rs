//! From a problem as written to values that can only be right, or an error that says which field is not.

use std::collections::HashSet;
use std::fmt::Display;

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, LatencyProfile, Level,
    MAX_BATCH, MAX_SPAN, MAX_STALLS, MAX_WINDOW, MAX_WORKERS, ParseConstraintError, Span, Stalls,
    StallsError, StreamSpec, Workers,
};

use super::{MAX_STREAMS, MAX_TRACE, Problem, ProblemError, raw};
use crate::number::Number;

/// The longest part of a value that an error shows, in characters.
const MAX_SHOWN: usize = 60;

pub(super) fn problem(raw: raw::Problem) -> Result<Problem, ProblemError> {
    let check = Check { unit: raw.unit };
    let deadline = check.span("deadline", raw.deadline, Span::from_nanos(1))?;
    let guard = check.span("guard", raw.guard, Span::ZERO)?;
    if guard >= deadline {
        return Err(refuse("guard", raw.guard, format_args!("must be below the deadline, {}", raw.deadline)));
    }
    let stalls = raw.stalls.map(|stalls| check.stalls(stalls)).transpose()?;
    let reserve = Stalls::reserve_of(stalls);
    number("length of workers", raw.workers.len(), 1, MAX_WORKERS)?;
    let mut workers = Vec::new();
    let mut count = 0;
    for (i, kind) in raw.workers.iter().enumerate() {
        let field = format!("workers[{i}]");
        let kind = check.workers(&field, kind)?;
        count += kind.count;
        number(&format!("{field}.count, added to those before,"), count, 1, MAX_WORKERS)?;
        let one = kind.profile.bound(1);
        if guard + reserve + one > deadline {
            let [one, lost] = [one, reserve].map(|span| Number::of_span(span, raw.unit));
            let stalls = stalls.map_or_else(String::new, |_| format!(" + {lost}"));
            let words = if stalls.is_empty() { "" } else { " + stalls" };
            let reason = format!(
                "leaves no time for one request on {field}: must be at least guard + P(1){words} = {} + {one}{stalls}",
                raw.guard
            );
            return Err(refuse("deadline", raw.deadline, reason));
        }
        workers.push(kind);
    }
    let streams = check.streams("streams", &raw.streams)?;
    if !raw.background || stalls.is_some_and(|stalls| stalls.recovery().is_some()) {
        without_levels("streams", &streams)?;
    }
    let dispatch = match raw.dispatch {
        raw::Dispatch::Eager => Dispatch::Eager,
        raw::Dispatch::FullOrLatest => Dispatch::FullOrLatest,
    };
    Ok(Problem { deadline, guard, stalls, dispatch, background: raw.background, workers, streams, raw })
}

/// Knows the unit of all times.
pub(super) struct Check {
    pub(super) unit: raw::Unit,
}

impl Check {
    /// At most [`MAX_STREAMS`], each with a name of its own.
    pub(super) fn streams(
        &self,
        field: &str,
        raw: &[raw::Stream],
    ) -> Result<Vec<(String, StreamSpec)>, ProblemError> {
        number(&format!("length of {field}"), raw.len(), 0, MAX_STREAMS)?;
        let mut names = HashSet::new();
        let mut streams = Vec::new();
        for (i, stream) in raw.iter().enumerate() {
            let field = format!("{field}[{i}]");
            name(&format!("{field}.name"), &stream.name)?;
            if !names.insert(&stream.name) {
                return Err(refuse(&format!("{field}.name"), &stream.name, "is taken already"));
            }
            streams.push((stream.name.clone(), self.stream(&field, stream)?));
        }
        Ok(streams)
    }

    pub(super) fn stalls(&self, raw: raw::Stalls) -> Result<Stalls, ProblemError> {
        let window = self.span("stalls.window", raw.window, Span::from_nanos(1))?;
        let length = self.span("stalls.length", raw.length, Span::from_nanos(1))?;
        let stalls = Stalls::new(raw.count, window, length).map_err(|e| match e {
            StallsError::Full { .. } => {
                let reason =
                    format_args!("must be below the window, {}, taken {} times", raw.window, raw.count);
                refuse("stalls.length", raw.length, reason)
            }
            _ => refuse("stalls.count", raw.count, format_args!("must be in 1..={MAX_STALLS}")),
        })?;
        let Some(recovery) = raw.recovery else { return Ok(stalls) };
        Ok(stalls.absorbed(self.span("stalls.recovery", recovery, Span::from_nanos(1))?))
    }

    fn workers(&self, field: &str, raw: &raw::Workers) -> Result<Workers, ProblemError> {
        number(&format!("{field}.count"), raw.count, 1, MAX_WORKERS)?;
        let batch = number(&format!("{field}.batch"), raw.batch, 1, MAX_BATCH)?;
        let profile = self.profile(field, batch, raw.time, raw.times.as_deref())?;
        Ok(Workers { count: raw.count, batch, profile })
    }

    /// What batches take, up to `batch` or more, from a `time` for all or `times` one by one.
    pub(super) fn profile(
        &self,
        field: &str,
        batch: usize,
        time: Option<Number>,
        times: Option<&[Number]>,
    ) -> Result<LatencyProfile, ProblemError> {
        let times = match (time, times) {
            (Some(time), None) => {
                vec![self.span(&format!("{field}.time"), time, Span::from_nanos(1))?; batch]
            }
            (None, Some(times)) => {
                let field = format!("{field}.times");
                number(&format!("length of {field}"), times.len(), batch, MAX_BATCH)?;
                self.rising(&field, times, Span::from_nanos(1), MAX_SPAN)?
            }
            (None, None) => return Err(refuse(&format!("{field}.time"), "(absent)", "needs time, or times")),
            (Some(time), Some(_)) => {
                return Err(refuse(&format!("{field}.time"), time, "times are there too: remove one"));
            }
        };
        LatencyProfile::new(&times).map_err(|e| refuse(field, "its times", e))
    }

    fn stream(&self, of: &str, raw: &raw::Stream) -> Result<StreamSpec, ProblemError> {
        let constraints = constraints(&format!("{of}.constraints"), &raw.constraints)?;
        let field = format!("{of}.arrivals");
        let spec = match &raw.arrivals {
            Some(arrivals) => StreamSpec::promised(constraints, self.curve(&field, arrivals)?),
            None if constraints.as_slice().is_empty() => StreamSpec::best_effort(),
            None => {
                return Err(refuse(
                    &field,
                    "(absent)",
                    "a stream with constraints must declare its arrivals",
                ));
            }
        };
        self.levels(&format!("{of}.degraded"), &raw.degraded, spec)
    }

    /// With weaker promises behind the first one of `spec`.
    fn levels(&self, field: &str, raw: &[raw::Level], spec: StreamSpec) -> Result<StreamSpec, ProblemError> {
        let refused = |reason: &dyn Display| refuse(field, format!("{} level(s)", raw.len()), reason);
        let mut levels = Vec::new();
        for (i, level) in raw.iter().enumerate() {
            let field = format!("{field}[{i}]");
            let constraints = constraints(&format!("{field}.constraints"), &level.constraints)?;
            levels.push(Level {
                constraints,
                arrivals: self.curve(&format!("{field}.arrivals"), &level.arrivals)?,
            });
        }
        spec.with_levels(levels).map_err(|error| refused(&error))
    }

    fn curve(&self, field: &str, raw: &raw::Arrivals) -> Result<ArrivalCurve, ProblemError> {
        let mut bounds = Vec::new();
        for (i, &(count, length)) in raw.windows.iter().enumerate() {
            let field = format!("{field}.windows[{i}]");
            let length = self.span(&format!("{field}[1]"), length, Span::from_nanos(1))?;
            bounds.push(ArrivalBound::window(count, length).map_err(|e| refuse(&field, count, e))?);
        }
        for (i, one) in raw.periodic.iter().enumerate() {
            let field = format!("{field}.periodic");
            let field = if raw.periodic.len() == 1 { field } else { format!("{field}[{i}]") };
            self.periodic(&field, one, &mut bounds)?;
        }
        if let Some(raw) = &raw.token_bucket {
            let field = format!("{field}.token_bucket");
            let period = self.span(&format!("{field}.period"), raw.period, Span::from_nanos(1))?;
            let made = ArrivalBound::token_bucket(raw.burst, period);
            bounds.push(made.map_err(|e| refuse(&format!("{field}.burst"), raw.burst, e))?);
        }
        if let Some(raw) = &raw.distances {
            let field = format!("{field}.distances");
            let distances = self.rising(&field, raw, Span::ZERO, MAX_SPAN)?;
            let made = ArrivalBound::distances(&distances);
            bounds.push(made.map_err(|e| refuse(&field, format_args!("({} distances)", raw.len()), e))?);
        }
        if let Some(raw) = &raw.trace {
            let field = format!("{field}.trace");
            number(&format!("length of {field}"), raw.len(), 2, MAX_TRACE)?;
            let instants = self.rising(&field, raw, Span::ZERO, Span::from_nanos(u64::MAX))?;
            let instants: Vec<_> = instants.iter().map(|t| Instant::from_nanos(t.as_nanos())).collect();
            let made = ArrivalCurve::of_trace(&instants);
            let curve = made.map_err(|e| refuse(&field, format_args!("({} instants)", raw.len()), e))?;
            bounds.extend(curve.bounds().iter().cloned());
        }
        ArrivalCurve::new(&bounds).map_err(|e| refuse(field, format_args!("({} bounds)", bounds.len()), e))
    }

    fn periodic(
        &self,
        field: &str,
        raw: &raw::Periodic,
        bounds: &mut Vec<ArrivalBound>,
    ) -> Result<(), ProblemError> {
        let period = self.span(&format!("{field}.period"), raw.period, Span::from_nanos(1))?;
        let jitter = self.span(&format!("{field}.jitter"), raw.jitter, Span::ZERO)?;
        let made = ArrivalBound::periodic(period, jitter);
        bounds.push(made.map_err(|e| refuse(&format!("{field}.jitter"), raw.jitter, e))?);
        if let Some(least) = raw.distance {
            let field = format!("{field}.distance");
            let distance = self.span(&field, least, Span::from_nanos(1))?;
            if distance > period {
                return Err(refuse(
                    &field,
                    least,
                    format_args!("must be at most the period, {}", raw.period),
                ));
            }
            bounds.push(ArrivalBound::window(1, distance).map_err(|e| refuse(&field, least, e))?);
        }
        Ok(())
    }

    /// Times that never decrease, each in `min..=max`.
    fn rising(&self, field: &str, raw: &[Number], min: Span, max: Span) -> Result<Vec<Span>, ProblemError> {
        let mut all: Vec<Span> = Vec::with_capacity(raw.len());
        for (i, &value) in raw.iter().enumerate() {
            let field = format!("{field}[{i}]");
            let span = self.span_within(&field, value, min, max)?;
            if all.last().is_some_and(|&before| span < before) {
                let reason = format!("must not be below the one before it, {}", raw[i - 1]);
                return Err(refuse(&field, value, reason));
            }
            all.push(span);
        }
        Ok(all)
    }

    pub(super) fn span(&self, field: &str, value: Number, min: Span) -> Result<Span, ProblemError> {
        self.span_within(field, value, min, MAX_SPAN)
    }

    fn span_within(&self, field: &str, value: Number, min: Span, max: Span) -> Result<Span, ProblemError> {
        let written = |span| Number::of_span(span, self.unit);
        let limits = format!("{}..={} {:?}", written(min), written(max), self.unit).to_lowercase();
        match value.to_span(self.unit) {
            Ok(span) if (min..=max).contains(&span) => Ok(span),
            Ok(_) => Err(refuse(field, value, format_args!("must be in {limits}"))),
            Err(e) => Err(refuse(field, value, format_args!("{e}, in {limits}"))),
        }
    }
}

/// Refuses weaker promises where a stream cannot change to them.
pub(super) fn without_levels(field: &str, streams: &[(String, StreamSpec)]) -> Result<(), ProblemError> {
    let Some(place) = streams.iter().position(|(_, spec)| !spec.levels().is_empty()) else { return Ok(()) };
    let levels = format!("{} level(s)", streams[place].1.levels().len());
    let reason = "needs workers of the service's own, background, and stalls without recovery";
    Err(refuse(&format!("{field}[{place}].degraded"), levels, reason))
}

fn constraints(field: &str, raw: &[String]) -> Result<ConstraintSet, ProblemError> {
    let mut list = Vec::new();
    for (i, text) in raw.iter().enumerate() {
        let made = text.parse::<Constraint>().map_err(|e| match e {
            // The text is told with the field.
            ParseConstraintError::Form { .. } => {
                "must be any_miss(m,K), any_hit(h,K), row_miss(M) or row_hit(h,K)".to_owned()
            }
            ParseConstraintError::Number { number, .. } => {
                format!("{number:?} is no whole number in 0..={MAX_WINDOW}")
            }
            ParseConstraintError::Value { reason, .. } => reason.to_string(),
        });
        list.push(made.map_err(|e| refuse(&format!("{field}[{i}]"), text, e))?);
    }
    ConstraintSet::new(&list).map_err(|e| refuse(field, format_args!("({} constraints)", raw.len()), e))
}

pub(super) fn number(field: &str, value: usize, min: usize, max: usize) -> Result<usize, ProblemError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(refuse(field, value, format_args!("must be in {min}..={max}")))
}

pub(super) fn name(field: &str, name: &str) -> Result<(), ProblemError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !(1..=64).contains(&name.len()) || !name.chars().all(plain) {
        let reason = "must be 1..=64 letters, digits or any of - _ . /";
        return Err(refuse(field, format_args!("{name:?}"), reason));
    }
    Ok(())
}

pub(super) fn refuse(field: &str, value: impl Display, reason: impl Display) -> ProblemError {
    let whole = value.to_string();
    let mut value: String = whole.chars().take(MAX_SHOWN).collect();
    if value.len() < whole.len() {
        value.push('…');
    }
    ProblemError::Value { field: field.to_owned(), value, reason: reason.to_string() }
}
