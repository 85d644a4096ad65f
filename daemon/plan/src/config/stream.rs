//! What is promised to a stream, and for which arrivals: constraints, weaker ones behind them, and how requests may come.

use std::fmt::Display;

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Level, LevelError, MAX_LEVELS, MAX_SPAN, Span,
    StreamSpec,
};

use super::check::{Check, Refused, all, shown};
use super::{ReservedStream, ServiceConfig, raw};

impl Check<'_> {
    pub(super) fn stream(
        &self,
        at: &str,
        raw: raw::Stream,
        defaults: Option<(&ConstraintSet, &Vec<ConstraintSet>)>,
        possible: (bool, bool),
    ) -> Result<ReservedStream, Refused> {
        let inherits = raw.constraints.is_none();
        let constraints = match raw.constraints {
            Some(list) => self.constraints(&format!("{at}.constraints"), &list),
            None => defaults.map(|(set, _)| set.clone()).ok_or(Refused),
        };
        let behind = format!("{at}.degraded");
        let degraded = match &raw.degraded {
            Some(levels) => self.degraded(&behind, levels, possible),
            None if inherits => defaults.map(|(_, levels)| levels.clone()).ok_or(Refused),
            None => Ok(Vec::new()),
        };
        let field = format!("{at}.arrivals");
        let arrivals = raw.arrivals.iter().enumerate();
        let bounds = all(arrivals.map(|(i, arrival)| self.arrival(&format!("{field}[{i}]"), arrival)));
        let (constraints, bounds, degraded) = (constraints?, bounds?, degraded?);
        let spec = match (constraints.as_slice().is_empty(), bounds.is_empty()) {
            (true, true) => StreamSpec::best_effort(),
            (false, true) => {
                let reason = "a stream with constraints must declare how its requests come";
                return Err(self.refuse(&field, "[]", reason));
            }
            _ => {
                let curve = ArrivalCurve::new(&bounds)
                    .map_err(|e| self.refuse(&field, &format!("{} bounds", bounds.len()), e))?;
                StreamSpec::promised(constraints, curve)
            }
        };
        let spec =
            with_ladder(spec, &degraded).map_err(|wrong| self.refuse_ladder(&behind, &degraded, wrong))?;
        Ok(ReservedStream { name: raw.name, spec, class: 0 })
    }

    /// Weaker promises, where a service has workers of its own and background, and its constraints absorb no stalls.
    pub(super) fn degraded(
        &self,
        field: &str,
        raw: &[Vec<raw::Constraint>],
        (own, unstalled): (bool, bool),
    ) -> Result<Vec<ConstraintSet>, Refused> {
        if !raw.is_empty() && !own {
            let reason = "is not possible where services share workers, in a pipeline, nor with background = false: remove it";
            return Err(self.refuse(field, &format!("{} level(s)", raw.len()), reason));
        }
        if !raw.is_empty() && !unstalled {
            let reason = "is not possible where constraints may absorb stalls: say stalls.by = \"deadline\"";
            return Err(self.refuse(field, &format!("{} level(s)", raw.len()), reason));
        }
        all(raw.iter().enumerate().map(|(i, level)| self.constraints(&format!("{field}[{i}]"), level)))
    }

    /// The same behind the constraints of a service, if they are a ladder whatever a stream declares.
    pub(super) fn ladder(
        &self,
        field: &str,
        first: &Result<ConstraintSet, Refused>,
        levels: Vec<ConstraintSet>,
    ) -> Result<Vec<ConstraintSet>, Refused> {
        let (Ok(first), Ok(bound)) = (first, ArrivalBound::window(1, MAX_SPAN)) else { return Ok(levels) };
        let curve = ArrivalCurve::new(&[bound]).map_err(|_| Refused)?;
        let any = StreamSpec::promised(first.clone(), curve);
        match with_ladder(any, &levels) {
            Ok(_) => Ok(levels),
            Err(wrong) => Err(self.refuse_ladder(field, &levels, wrong)),
        }
    }

    fn refuse_ladder(&self, field: &str, levels: &[ConstraintSet], (level, reason): NoLadder) -> Refused {
        match level {
            Some(level) => self.refuse(&format!("{field}[{level}]"), &levels[level].to_string(), reason),
            None => self.refuse(field, &format!("{} level(s)", levels.len()), reason),
        }
    }

    pub(super) fn constraints(&self, field: &str, raw: &[raw::Constraint]) -> Result<ConstraintSet, Refused> {
        let list = all(raw.iter().enumerate().map(|(i, c)| {
            let made = match *c {
                raw::Constraint::AnyMiss { m, k } => Constraint::any_miss(m, k),
                raw::Constraint::AnyHit { h, k } => Constraint::any_hit(h, k),
                raw::Constraint::RowMiss(m) => Constraint::row_miss(m),
                raw::Constraint::RowHit { h, k } => Constraint::row_hit(h, k),
            };
            made.map_err(|e| self.refuse(&format!("{field}[{i}]"), &shown(c), e))
        }))?;
        ConstraintSet::new(&list).map_err(|e| self.refuse(field, &format!("{} constraints", list.len()), e))
    }

    fn arrival(&self, field: &str, raw: &raw::Arrival) -> Result<ArrivalBound, Refused> {
        let span = |name: &str, text: &str| self.span(&format!("{field}.{name}"), text, Span::ZERO);
        let made = match raw {
            raw::Arrival::Window { count, length } => ArrivalBound::window(*count, span("length", length)?),
            raw::Arrival::Periodic { period, jitter } => {
                let (period, jitter) = (span("period", period), span("jitter", jitter));
                ArrivalBound::periodic(period?, jitter?)
            }
            raw::Arrival::TokenBucket { burst, period } => {
                ArrivalBound::token_bucket(*burst, span("period", period)?)
            }
        };
        made.map_err(|e| self.refuse(field, &shown(raw), e))
    }
}

/// The level that is wrong, from 0, if it is one, and why.
type NoLadder = (Option<usize>, String);

/// With weaker promises behind its own, each for as many requests as leave no more that must be served: of a level that asks for no
/// smaller share of them these are no more than before it, so it is none to fall to.
fn with_ladder(spec: StreamSpec, levels: &[ConstraintSet]) -> Result<StreamSpec, NoLadder> {
    if levels.is_empty() {
        return Ok(spec);
    }
    let whole = |error: &dyn Display| (None, error.to_string());
    let first = spec.demand().ok_or_else(|| whole(&LevelError::NoFirst))?;
    let mut before = first.0;
    for (level, set) in levels.iter().enumerate().take(MAX_LEVELS) {
        let asked = set.density();
        if asked >= before && asked.numerator() > 0 {
            let reason = format!(
                "is not weaker than what stands before it: {asked} of the requests must be served, must be less than {before}"
            );
            return Err((Some(level), reason));
        }
        before = asked;
    }
    let levels: Result<Vec<_>, _> = levels.iter().map(|set| Level::behind(first, set.clone())).collect();
    spec.with_levels(levels.map_err(|error| whole(&error))?).map_err(|error| whole(&error))
}

impl ServiceConfig {
    /// What a stream is promised that asks for `spec`: with the service's own constraints, the weaker ones behind them as well.
    #[must_use]
    pub fn laddered(&self, spec: StreamSpec) -> StreamSpec {
        if spec.constraints().as_slice() != self.constraints || spec.demand().is_none() {
            return spec;
        }
        with_ladder(spec.clone(), &self.degraded).unwrap_or(spec)
    }

    /// Weaker promises of reserved streams that no excess ever leads to, each in a line: whoever exceeds what stands before one exceeds it
    /// as well, for its declaration could not be made wider.
    #[must_use]
    pub fn idle_levels(&self) -> Vec<String> {
        let of = |stream: &ReservedStream| {
            let (name, mut before) =
                (format!("{}: stream {}", self.name, stream.name), stream.spec.arrivals());
            let mut all = Vec::new();
            for (number, level) in (1..).zip(stream.spec.levels()) {
                if before == Some(&level.arrivals) {
                    let (set, bounds) = (&level.constraints, level.arrivals.bounds());
                    let allowed = bounds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    all.push(format!(
                        "{name}: level {number} of `degraded`, {set}, allows no more than what stands before it, {allowed}: \
                         it is never in force for a stream that sends more"
                    ));
                }
                before = Some(&level.arrivals);
            }
            all
        };
        self.reserved.iter().flat_map(of).collect()
    }
}
