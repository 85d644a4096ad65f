//! A service: what runs its batches, and what is promised of its requests.

use std::collections::HashSet;

use rt_core::{Constraint, ConstraintSet, Dispatch, MAX_BATCH, MAX_SPAN, MAX_STALLS, Span, Stalls};

use super::check::{ABSENT, Check, Refused, all};
use super::classes::RequestClass;
use super::device::Place;
use super::model::{ModelChoice, Select};
use super::{DaemonConfig, DeviceConfig, HeldBy, Optimise, ReservedStream, ServiceConfig, Tolerance, raw};
use weir_engine::{Backend, EngineKind, Isolation, Remote};
use weir_oip::ANONYMOUS;

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
        let isolation = raw.engine.isolation_of(raw.isolation);
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
            if stream.name == ANONYMOUS {
                let reason = "is the stream of all calls of the Open Inference Protocol that name none, which is promised nothing";
                return Err(self.refuse(&format!("{at}.name"), &stream.name, reason));
            }
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
}

impl ServiceConfig {
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
