//! Systems of an experiment: workers, a deadline, streams, and the most that they can be promised.

mod certified;

use std::sync::Arc;

use planner::problem::{MAX_STREAMS, raw as written};
use planner::{Number, Problem, ProblemError};
use rt_core::{MAX_BATCH, MAX_SPAN, MAX_WORKERS, Selector, Span, Variant};

use super::fleet::Fleet;
use super::pipeline;
use super::profile::{self, Data};
use super::raw::{self, Declare, System as Raw, Workers as RawWorkers};
use super::routed::Routed;
use super::selecting::Selecting;
use super::service::Service;
use super::sharing::Sharing;
use super::{ExperimentError, refuse};
use crate::cluster::Cluster;
use crate::pipeline::Planned;
pub(super) use certified::Certified;
use certified::declaration;

/// A system of an experiment.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) name: String,
    /// Its streams declare nothing yet, but for those with a period of their own. Times are bounds.
    pub(super) written: written::Problem,
    /// How long its batches take.
    pub(super) service: Service,
    /// Of each stream, its period, if it has one of its own.
    pub(super) periods: Vec<Option<Span>>,
    pub(super) queue: usize,
    /// Of the answers of each worker, with the base variant.
    pub(super) accuracy: Vec<Option<f64>>,
    /// Selects among variants, if there are several.
    pub(super) selector: Option<Selector>,
    /// Instead of the workers, which then are none that anything is done with.
    pub(super) fleet: Option<Fleet>,
    /// Instead of the workers and streams, which then only name constraints.
    pub(super) sharing: Option<Sharing>,
    /// Instead of the workers, which then are none that anything is done with.
    pub(super) pipeline: Option<Arc<Planned>>,
    /// Instead of the workers and streams.
    pub(super) cluster: Option<Arc<Cluster>>,
    /// Instead of all of these.
    pub(super) router: Option<Arc<Routed>>,
    /// Or instead of all of these.
    pub(super) selecting: Option<Arc<Selecting>>,
}

impl System {
    /// Refuses what a system has that is another's, which has only what is called `own`.
    pub(super) fn nothing_beside(
        own: &str,
        (field, raw, service): (&impl Fn(&str) -> String, &Raw, &Service),
        reason: &str,
    ) -> Result<(), ExperimentError> {
        let there = [
            ("deadline", raw.deadline.is_some()),
            ("workers", !raw.workers.is_empty()),
            ("streams", !raw.streams.is_empty()),
            ("variants", !raw.variants.is_empty()),
            ("fleet", raw.fleet.is_some()),
            ("sharing", raw.sharing.is_some()),
            ("pipeline", raw.pipeline.is_some()),
            ("cluster", raw.cluster.is_some()),
            ("router", raw.router.is_some()),
            ("selecting", raw.selecting.is_some()),
            ("service", service.stall() > Span::ZERO),
        ];
        match there.iter().find(|(name, there)| *there && *name != own) {
            Some(&(name, _)) => Err(refuse(field(name), "", reason)),
            None => Ok(()),
        }
    }

    /// A problem of one worker with these streams, where another one counts.
    pub(super) fn stands_in(raw: &Raw, streams: Vec<written::Stream>) -> written::Problem {
        let one = Number::whole(1);
        written::Problem {
            unit: written::Unit::Ns,
            deadline: one,
            guard: Number::default(),
            stalls: None,
            dispatch: raw.dispatch,
            background: true,
            workers: vec![written::Workers { count: 1, batch: 1, time: Some(one), times: None }],
            streams,
        }
    }

    /// One with nothing but a stream that is promised nothing, for those whose requests come otherwise.
    pub(super) fn bare(raw: &Raw, service: Service) -> Self {
        let stream = written::Stream { name: "s0".to_owned(), ..written::Stream::default() };
        Self {
            name: raw.name.clone(),
            written: Self::stands_in(raw, vec![stream]),
            service,
            periods: vec![None],
            queue: raw.queue,
            accuracy: Vec::new(),
            selector: None,
            fleet: None,
            sharing: None,
            pipeline: None,
            cluster: None,
            router: None,
            selecting: None,
        }
    }

    /// Checks `raw`, the `index`th of its experiment, whose batches take as `service` says unless it says otherwise.
    pub(super) fn new(
        index: usize,
        raw: &Raw,
        service: &Service,
        data: &Data,
    ) -> Result<Self, ExperimentError> {
        let field = |name: &str| format!("system[{index}].{name}");
        let service = raw.service.as_ref().unwrap_or(service).clone();
        if let Some(router) = &raw.router {
            return Self::of_router(&field, raw, router, service);
        }
        if let Some(selecting) = &raw.selecting {
            return Self::of_classes(&field, raw, selecting, service);
        }
        if let Some(cluster) = &raw.cluster {
            return Self::of_cluster(&field, raw, cluster, service, data);
        }
        if let Some(sharing) = &raw.sharing {
            return Self::of_services(&field, raw, sharing, service);
        }
        let deadline = raw.deadline.ok_or_else(|| refuse(field("deadline"), "", "must be there"))?.0;
        let (mut streams, mut periods) = (Vec::new(), Vec::new());
        for kind in &raw.streams {
            let period = kind.period.map(|period| period.0);
            // Of more it need not be known how many: they are refused.
            for _ in 0..kind.count.min(MAX_STREAMS + 1) {
                let constraints = kind.constraints.clone();
                let arrivals = period.map(|period| declaration(Declare::Periodic, 1, period.as_nanos(), 0.0));
                streams.push(written::Stream {
                    name: format!("s{}", streams.len()),
                    constraints,
                    arrivals,
                    degraded: Vec::new(),
                });
                periods.push(period);
            }
        }
        let mut workers = Vec::new();
        for (i, kind) in raw.workers.iter().enumerate() {
            workers.push(workers_of(&field(&format!("workers[{i}]")), kind, &service, data)?);
        }
        let pipeline = pipeline::planned(&field, raw, deadline, &service, data)?;
        if pipeline.is_some() {
            workers.push(written::Workers { count: 1, batch: 1, time: Some(Number::whole(1)), times: None });
        }
        let fleet = raw.fleet.as_ref().map(|fleet| Fleet::new(&field("fleet"), fleet, deadline, data));
        let fleet = fleet.transpose()?;
        match (&fleet, streams.is_empty(), workers.is_empty()) {
            (None, true, _) => return Err(refuse(field("streams"), "[]", "must hold a stream")),
            (Some(_), false, _) => {
                return Err(refuse(field("streams"), streams.len(), "must be none of a fleet"));
            }
            (Some(_), _, false) => {
                return Err(refuse(field("workers"), workers.len(), "must be none beside a fleet"));
            }
            (Some(_), true, true) if service.stall() > Span::ZERO => {
                return Err(refuse(field("fleet"), "", "must be none where batches stall"));
            }
            (None, false, _) => {}
            (Some(_), true, true) => {
                streams.push(written::Stream { name: "s0".to_owned(), ..written::Stream::default() });
                periods.push(None);
                let time = Some(Number::whole(1));
                workers.push(written::Workers { count: 1, batch: 1, time, times: None });
            }
        }
        let each = |kind: &RawWorkers| {
            std::iter::repeat_n(kind.accuracy.map(|share| share.0), kind.count.min(MAX_WORKERS))
        };
        let accuracy = raw.workers.iter().flat_map(each).collect();
        let written = written::Problem {
            unit: written::Unit::Ns,
            deadline: number(deadline),
            guard: Number::default(),
            stalls: None,
            dispatch: raw.dispatch,
            background: true,
            workers,
            streams,
        };
        let (name, queue) = (raw.name.clone(), raw.queue);
        let (selector, sharing, cluster, router, selecting) = (None, None, None, None, None);
        let mut system = Self {
            name,
            written,
            service,
            periods,
            queue,
            accuracy,
            selector,
            fleet,
            sharing,
            pipeline,
            cluster,
            router,
            selecting,
        };
        // Whatever is wrong with it is wrong with every declaration.
        let any = written::Arrivals { windows: vec![(1, number(MAX_SPAN))], ..written::Arrivals::default() };
        system
            .declaring(Some(&any))
            .map_err(|error| ExperimentError::System { name: raw.name.clone(), error })?;
        if !raw.variants.is_empty() {
            system.selector = Some(system.selector(&field("variants"), raw, data)?);
        }
        Ok(system)
    }

    /// As accurate as the shield allows, as the daemon does.
    fn selector(&self, field: &str, raw: &Raw, data: &Data) -> Result<Selector, ExperimentError> {
        let workers = self.declaring(None).map(|plain| plain.workers);
        let ([kind], Ok([workers])) = (&raw.workers[..], workers.as_deref()) else {
            return Err(refuse(field, raw.variants.len(), "must be none beside workers of several kinds"));
        };
        let base = kind.accuracy.ok_or_else(|| {
            refuse(field, raw.variants.len(), "must be none unless workers[0].accuracy is given")
        })?;
        let mut variants = vec![Variant { profile: workers.profile.clone(), accuracy: base.0 }];
        for (i, variant) in raw.variants.iter().enumerate() {
            let raw::Variant { time, times, profile, accuracy } = variant.clone();
            let batch = time.is_some().then_some(workers.batch);
            let accuracy = Some(accuracy);
            let kind = RawWorkers { count: 1, batch, promised: None, time, times, profile, accuracy };
            let field = format!("{field}[{i}]");
            let written = workers_of(&field, &kind, &self.service, data)?;
            let times: Result<Vec<_>, _> =
                written.times.iter().flatten().map(|time| time.to_span(written::Unit::Ns)).collect();
            let profile = times.ok().and_then(|times| self.service.profile(times).ok());
            let profile =
                profile.ok_or_else(|| refuse(field, i, "must have times above 0 that do not fall"))?;
            variants.push(Variant { profile, accuracy: variant.accuracy.0 });
        }
        let capacity = workers.capacity_per_s();
        Selector::greedy(variants)
            .map(|greedy| greedy.sparing(capacity))
            .map_err(|error| refuse(field, raw.variants.len(), error))
    }

    /// The problem in which every stream with constraints declares `arrivals`, but for those with a period of their
    /// own; without, none has constraints.
    fn declaring(&self, arrivals: Option<&written::Arrivals>) -> Result<Problem, ProblemError> {
        let mut written = self.written.clone();
        for stream in &mut written.streams {
            match arrivals {
                Some(arrivals) if !stream.constraints.is_empty() => {
                    stream.arrivals.get_or_insert_with(|| arrivals.clone());
                }
                Some(_) => {}
                None => stream.constraints.clear(),
            }
        }
        let mut problem = Problem::from_raw(written)?;
        for (i, kind) in problem.workers.iter_mut().enumerate() {
            let known = self.service.profile(kind.profile.bounds());
            kind.profile = known.map_err(|error| ProblemError::Value {
                field: format!("workers[{i}]"),
                value: "its times".to_owned(),
                reason: error.to_string(),
            })?;
        }
        Ok(problem)
    }
}

fn number(span: Span) -> Number {
    Number::whole(span.as_nanos())
}

/// Their times are bounds: with a stall of `service`.
fn workers_of(
    field: &str,
    raw: &RawWorkers,
    service: &Service,
    data: &Data,
) -> Result<written::Workers, ExperimentError> {
    let times = match (&raw.time, &raw.times, &raw.profile) {
        (Some(time), None, None) => vec![time.0; raw.batch.unwrap_or(1).min(MAX_BATCH)],
        (None, Some(times), None) => times.iter().map(|time| time.0).collect(),
        (None, None, Some(profile)) => profile::times(&format!("{field}.profile"), profile, data)?,
        _ => return Err(refuse(field, "", "must have one of time, times, profile")),
    };
    let largest = raw.batch.unwrap_or(times.len());
    if largest == 0 || largest > times.len() {
        let reason = format!("must be in 1..={}, as many as there are times", times.len());
        return Err(refuse(format!("{field}.batch"), largest, reason));
    }
    let batch = raw.promised.unwrap_or(largest);
    if batch == 0 || batch > largest {
        return Err(refuse(format!("{field}.promised"), batch, format!("must be in 1..={largest}")));
    }
    let times = times[..largest].iter().map(|&time| number(time + service.stall())).collect();
    Ok(written::Workers { count: raw.count, batch, time: None, times: Some(times) })
}
