//! A service: what runs its batches, and what is promised of its requests.

use std::collections::HashSet;
use std::fmt::Display;

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Level, LevelError, MAX_BATCH,
    MAX_LEVELS, MAX_SPAN, MAX_STALLS, Span, Stalls, StreamSpec,
};

use super::check::{ABSENT, Check, Refused, all, shown};
use super::classes::RequestClass;
use super::device::Place;
use super::model::{ModelChoice, Select};
use super::{DaemonConfig, DeviceConfig, HeldBy, Optimise, ReservedStream, ServiceConfig, Tolerance, raw};
use weir_engine::{Backend, EngineKind, Isolation, Remote};

/// The largest batch that is profiled and served, unless told otherwise.
const MOST_SERVED: u64 = 8;
/// Unless it is stated, requests may be early by one such part of the time that there is to answer them.
const AUTO_TOLERANCE: u64 = 10;

/// The devices and the daemon's own fields, as far as they are right.
pub(super) type Beside<'a> = (Option<&'a [DeviceConfig]>, Option<&'a DaemonConfig>);

/// What runs batches.
pub(super) struct Runs {
    engine: EngineKind,
    isolation: Isolation,
    place: Place,
    backends: Vec<Backend>,
    pub(super) model: ModelChoice,
    select: Select,
    handover: Span,
    max_batch: usize,
    batch: Option<usize>,
    probability: f64,
}

/// What is promised, and to whom.
#[derive(Clone)]
pub(super) struct Promise {
    deadline: Span,
    guard: Span,
    tolerance: Tolerance,
    stalls: Option<Stalls>,
    pub(super) stalls_held_by: HeldBy,
    optimise: Optimise,
    dispatch: Dispatch,
    queue: usize,
    background: bool,
    spread: bool,
    streams: usize,
    constraints: Vec<Constraint>,
    degraded: Vec<ConstraintSet>,
    jitter: Span,
    classes: Vec<RequestClass>,
    reserved: Vec<ReservedStream>,
}

impl Runs {
    /// The servers that compute, if they do.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.backends.first().and_then(|backend| backend.remote.as_ref())
    }

    pub(super) fn workers(&self) -> usize {
        self.place.workers
    }

    pub(super) fn engine(&self) -> EngineKind {
        self.engine
    }

    /// What is declared of its workers, or by what is promised.
    pub(super) fn stalls(&self, promise: &Promise) -> Option<Stalls> {
        self.place.stalls.or(promise.stalls)
    }
}

impl Promise {
    /// The same where constraints cannot absorb stalls.
    pub(super) fn held_by_deadline(self) -> Self {
        Self { stalls_held_by: HeldBy::Deadline, ..self }
    }
}

impl Check<'_> {
    pub(super) fn service(
        &self,
        at: &str,
        mut raw: raw::Service,
        beside: Beside<'_>,
    ) -> Result<ServiceConfig, Refused> {
        if let Some(raw::Staff::Kinds(kinds)) = raw.workers {
            return self.mixed(at, raw::Service { workers: None, ..raw }, kinds, beside);
        }
        let (name, background, alone) = (raw.name.clone(), raw.background, raw.device.is_none());
        let promise = self.promise(at, &mut raw, background && alone);
        let runs = self.runs(at, raw, beside);
        if let Ok(Runs { model, .. }) = &runs
            && !background
            && !model.is_single()
        {
            let reason = "is not possible with variants, whose longer batches are reckoned beside background";
            return Err(self.refuse(&format!("{at}.background"), "false", reason));
        }
        let (runs, promise) = (runs?, promise?);
        self.remote_fits(at, &runs, &promise)?;
        Ok(ServiceConfig::of(name, at, runs, promise))
    }

    /// What runs its batches.
    pub(super) fn runs(
        &self,
        at: &str,
        raw: raw::Service,
        (devices, daemon): Beside<'_>,
    ) -> Result<Runs, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let has_candidates = raw.has_candidates();
        let most = MAX_BATCH as u64;
        let max_batch = match raw.max_batch {
            Some(stated) => self.number(&field("max-batch"), stated, 1, most),
            None => Ok(MOST_SERVED.max(raw.batch.unwrap_or(1)).min(most)),
        };
        let largest = max_batch.as_ref().copied().unwrap_or(most);
        let batch = raw.batch.map(|batch| self.number(&field("batch"), batch, 1, largest)).transpose();
        let isolation = raw.isolation.unwrap_or(raw.engine.isolation());
        let built = match raw.engine.how_to_build() {
            Some(remedy) => {
                let reason = format!("this weir was built without it: {remedy}");
                Err(self.refuse(&field("engine"), &raw.engine.to_string(), reason))
            }
            None => Ok(()),
        };
        let remote = self.remote(at, &raw);
        let place = self.place(at, &raw, devices).and_then(|place| {
            let gpu = (&place.gpu.0, place.gpu.1.clone());
            let backends = self.backends(gpu.0, (raw.engine, isolation), gpu.1, daemon)?;
            Ok((place, backends))
        });
        // What is chosen among models may have variants or none.
        let alone = raw.variants.is_empty() && raw.simulated.as_ref().is_none_or(|s| s.variants.is_empty());
        let select = raw.select.filter(|_| !(alone && has_candidates));
        let select = (select, raw.weights);
        let model = self.model(at, (raw.engine, raw.model, raw.variants), raw.simulated, select);
        let handover = self.span(&field("handover"), &raw.handover, Span::ZERO);
        let probability = self.probability(&field("probability"), raw.probability);
        built?;
        let ((place, mut backends), (model, select), remote) = (place?, model?, remote?);
        if let Some(remote) = remote {
            let first = Backend { remote: Some(remote.clone()), ..backends.swap_remove(0) };
            backends = (0..remote.addresses.len()).map(|server| first.of_worker(server)).collect();
        }
        Ok(Runs {
            engine: raw.engine,
            isolation,
            place,
            backends,
            model,
            select,
            handover: handover?,
            max_batch: max_batch? as usize,
            batch: batch?.map(|batch| batch as usize),
            probability: probability?,
        })
    }

    /// What is promised of its requests; they may be early only if that is `possible`.
    pub(super) fn promise(&self, at: &str, raw: &mut raw::Service, early: bool) -> Result<Promise, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let background = raw.background;
        let spread = raw.best_effort == raw::BestEffort::Spread;
        let spread = match background || !spread {
            true => Ok(spread),
            false => {
                let reason = "is not possible with background = false, where nothing is served but what is declared: remove it";
                Err(self.refuse(&field("best-effort"), "spread", reason))
            }
        };
        let deadline = match &raw.deadline {
            Some(stated) => self.span(&field("deadline"), stated, Span::from_nanos(1)),
            None => Err(self.refuse(&field("deadline"), ABSENT, "must be given, such as \"50ms\"")),
        };
        let guard = self.span(&field("guard"), &raw.guard, Span::ZERO);
        let times = deadline.and_then(|deadline| Ok((deadline, guard?)));
        let times = times.and_then(|(deadline, guard)| match guard < deadline {
            true => Ok((deadline, guard)),
            false => {
                let reason = format!("must be below the deadline, {deadline}");
                Err(self.refuse(&field("guard"), &raw.guard, reason))
            }
        });
        let stalls_held_by = raw.stalls.as_ref().map_or(HeldBy::Auto, |stalls| stalls.by);
        let stated = raw.tolerance.as_deref().unwrap_or("auto");
        let room = times.as_ref().map_or(MAX_SPAN, |(deadline, guard)| deadline.saturating_sub(*guard));
        let tolerance = self.tolerance((&field("tolerance"), stated), room, early);
        let stalls = raw.stalls.as_ref().map(|stalls| self.stalls(&field("stalls"), stalls)).transpose();
        let constraints = self.constraints(&field("constraints"), &raw.constraints);
        let possible = (early, raw.stalls.as_ref().is_none_or(|stalls| stalls.by == HeldBy::Deadline));
        let degraded = self.degraded(&field("degraded"), &raw.degraded, possible);
        let degraded = degraded.and_then(|levels| self.ladder(&field("degraded"), &constraints, levels));
        let within = times.as_ref().ok().map(|(deadline, _)| *deadline);
        let classes = self.request_classes(at, std::mem::take(&mut raw.class), within);
        let mut names = HashSet::new();
        let count = raw.stream.len() as u64;
        let reserved = all(std::mem::take(&mut raw.stream).into_iter().enumerate().map(|(i, stream)| {
            let at = format!("{at}.stream[{i}]");
            let named = self.name(&format!("{at}.name"), stream.name.clone(), &mut names);
            let defaults = constraints.as_ref().ok().zip(degraded.as_ref().ok());
            let class = match &classes {
                Ok(classes) => self.class_named(&format!("{at}.class"), stream.class.as_deref(), classes),
                Err(Refused) => Err(Refused),
            };
            let stream = self.stream(&at, stream, defaults, possible)?;
            let stream = ReservedStream { class: class?, ..stream };
            if !background && stream.spec.arrivals().is_none() {
                let reason = "must declare how its requests come where background = false";
                return Err(self.refuse(&format!("{at}.arrivals"), "[]", reason));
            }
            named.and(Ok(stream))
        }));
        let streams = self.number(&field("streams"), raw.streams, 1, 1024);
        let fits = match streams {
            Ok(streams) => self.number(&field("stream (how many)"), count, 0, streams),
            Err(Refused) => Err(Refused),
        };
        let queue = self.number(&field("queue"), raw.queue, 1, 1 << 16);
        let jitter = self.span(&field("jitter"), &raw.jitter, Span::ZERO);
        fits?;
        let (deadline, guard) = times?;
        Ok(Promise {
            deadline,
            guard,
            tolerance: tolerance?,
            stalls: stalls?,
            stalls_held_by,
            optimise: raw.optimise.unwrap_or_default(),
            dispatch: match raw.dispatch {
                raw::Dispatch::Eager => Dispatch::Eager,
                raw::Dispatch::FullOrLatest => Dispatch::FullOrLatest,
            },
            queue: queue? as usize,
            background,
            spread: spread?,
            streams: streams? as usize,
            constraints: constraints?.as_slice().to_vec(),
            degraded: degraded?,
            jitter: jitter?,
            classes: classes?,
            reserved: reserved?,
        })
    }

    /// How early requests may come, of `latency` to answer them, where that is `possible`.
    fn tolerance(
        &self,
        (at, stated): (&str, &str),
        latency: Span,
        possible: bool,
    ) -> Result<Tolerance, Refused> {
        if stated == "auto" {
            let most = Span::from_nanos(latency.as_nanos() / AUTO_TOLERANCE);
            return Ok(Tolerance { most: if possible { most } else { Span::ZERO }, paced: true });
        }
        let most = self.span(at, stated, Span::ZERO)?;
        if most > Span::ZERO && !possible {
            let reason = "is not possible where services share workers, in a pipeline, nor with background = false: remove it";
            return Err(self.refuse(at, stated, reason));
        }
        if most >= latency {
            let reason = format!("must be below the deadline less the guard, {latency}");
            return Err(self.refuse(at, stated, reason));
        }
        Ok(Tolerance { most, paced: false })
    }

    pub(super) fn stalls(&self, at: &str, raw: &raw::Stalls) -> Result<Stalls, Refused> {
        let count = self.number(&format!("{at}.at-most"), raw.at_most, 1, MAX_STALLS as u64);
        let window = self.span(&format!("{at}.in"), &raw.window, Span::from_nanos(1));
        let length = self.span(&format!("{at}.of"), &raw.length, Span::from_nanos(1));
        Stalls::new(count? as u32, window?, length?)
            .map_err(|error| self.refuse(&format!("{at}.of"), &raw.length, error))
    }

    /// Stalls of what constraints absorb none of.
    pub(super) fn kept_by_deadline(&self, at: &str, stalls: Option<&raw::Stalls>) -> Result<(), Refused> {
        if stalls.is_some_and(|stalls| stalls.by == HeldBy::Constraints) {
            let reason = "constraints absorb stalls of a service with workers of its own: say \"deadline\"";
            return Err(self.refuse(&format!("{at}.stalls.by"), "\"constraints\"", reason));
        }
        Ok(())
    }

    fn probability(&self, field: &str, value: f64) -> Result<f64, Refused> {
        if (0.5..=0.999).contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(field, &value.to_string(), "must be in 0.5..=0.999"))
    }

    fn stream(
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
    fn degraded(
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
    fn ladder(
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

    fn constraints(&self, field: &str, raw: &[raw::Constraint]) -> Result<ConstraintSet, Refused> {
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

    pub(super) fn of(name: String, at: &str, runs: Runs, promise: Promise) -> Self {
        let stalls = runs.stalls(&promise);
        Self {
            name,
            at: at.to_owned(),
            engine: runs.engine,
            kind: None,
            class: None,
            isolation: runs.isolation,
            share: runs.place.share,
            backends: runs.backends,
            model: runs.model,
            candidates: None,
            select: runs.select,
            deadline: promise.deadline,
            guard: promise.guard,
            tolerance: promise.tolerance,
            stalls,
            stalls_held_by: promise.stalls_held_by,
            handover: runs.handover,
            workers: runs.place.workers,
            cores: runs.place.cores,
            max_batch: runs.max_batch,
            optimise: promise.optimise,
            batch: runs.batch,
            probability: runs.probability,
            dispatch: promise.dispatch,
            queue: promise.queue,
            background: promise.background,
            spread: promise.spread,
            streams: promise.streams,
            constraints: promise.constraints,
            degraded: promise.degraded,
            jitter: promise.jitter,
            record: runs.place.record,
            classes: promise.classes,
            reserved: promise.reserved,
            kinds: Vec::new(),
            stages: Vec::new(),
        }
    }
}
