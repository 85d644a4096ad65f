//! Systems of an experiment: workers, a deadline, streams, and the most that they can be promised.

use planner::problem::raw as written;
use planner::{Number, Problem, ProblemError};
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, LatencyProfile, MAX_SPAN, Selector, Span, Variant,
    largest_count, seed_count,
};

use super::fleet::Fleet;
use super::profile::{self, Data};
use super::raw::{self, Declare, System as Raw, Theorem, Workers as RawWorkers};
use super::{ExperimentError, refuse, span};

/// A system of an experiment.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) name: String,
    /// Its streams declare nothing yet.
    written: written::Problem,
    pub(super) queue: usize,
    /// Of the answers of each worker, with the base variant.
    pub(super) accuracy: Vec<Option<f64>>,
    /// Selects among variants, if there are several.
    pub(super) selector: Option<Selector>,
    /// Instead of the workers, which then are none that anything is done with.
    pub(super) fleet: Option<Fleet>,
}

/// What a system can be promised.
#[derive(Clone, Debug)]
pub(super) struct Certified {
    /// Requests a second, of all streams together.
    pub(super) rate: f64,
    /// The system with streams that declare so many; one without constraints declares nothing.
    pub(super) problem: Problem,
    /// What each stream with constraints declares, if one does.
    declared: Option<ArrivalBound>,
}

impl System {
    /// Checks `raw`, the `index`th of its experiment.
    pub(super) fn new(index: usize, raw: &Raw, data: &Data) -> Result<Self, ExperimentError> {
        let field = |name: &str| format!("system[{index}].{name}");
        let deadline = span(&field("deadline"), &raw.deadline)?;
        let mut streams = Vec::new();
        for kind in &raw.streams {
            for _ in 0..kind.count {
                let constraints = kind.constraints.clone();
                streams.push(written::Stream {
                    name: format!("s{}", streams.len()),
                    constraints,
                    arrivals: None,
                });
            }
        }
        let mut workers = Vec::new();
        for (i, kind) in raw.workers.iter().enumerate() {
            workers.push(workers_of(&field(&format!("workers[{i}]")), kind, data)?);
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
            (None, false, _) => {}
            (Some(_), true, true) => {
                streams.push(written::Stream {
                    name: "s0".to_owned(),
                    constraints: Vec::new(),
                    arrivals: None,
                });
                let time = Some(Number::whole(1));
                workers.push(written::Workers { count: 1, batch: 1, time, times: None });
            }
        }
        let accuracy =
            raw.workers.iter().flat_map(|kind| std::iter::repeat_n(kind.accuracy, kind.count)).collect();
        let written = written::Problem {
            unit: written::Unit::Ns,
            deadline: number(deadline),
            guard: Number::default(),
            dispatch: raw.dispatch,
            background: true,
            workers,
            streams,
        };
        let mut system =
            Self { name: raw.name.clone(), written, queue: raw.queue, accuracy, selector: None, fleet };
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
        let mut variants = vec![Variant { profile: workers.profile.clone(), accuracy: base }];
        for (i, variant) in raw.variants.iter().enumerate() {
            let raw::Variant { time, times, profile, accuracy } = variant.clone();
            let batch = time.is_some().then_some(workers.batch);
            let kind = RawWorkers { count: 1, batch, time, times, profile, accuracy: Some(accuracy) };
            let field = format!("{field}[{i}]");
            let written = workers_of(&field, &kind, data)?;
            let times = match (written.times, written.time) {
                (Some(times), _) => times,
                (None, time) => vec![time.unwrap_or_default(); written.batch],
            };
            let times: Result<Vec<_>, _> = times.iter().map(|time| time.to_span(written::Unit::Ns)).collect();
            let profile = times.ok().and_then(|times| LatencyProfile::new(&times).ok());
            let profile =
                profile.ok_or_else(|| refuse(field, i, "must have times above 0 that do not fall"))?;
            variants.push(Variant { profile, accuracy });
        }
        let capacity = workers.capacity_per_s();
        Selector::greedy(variants)
            .map(|greedy| greedy.sparing(capacity))
            .map_err(|error| refuse(field, raw.variants.len(), error))
    }

    /// The most that can be certified if all streams with constraints declare alike: `None` if nothing can.
    ///
    /// A window is as many requests as can be certified in the time of a full batch, one at least, and then as short
    /// as it may be; a period is as short as it may be, with a jitter of so many periods.
    pub(super) fn certify(&self, declare: Declare, jitter: f64) -> Option<Certified> {
        let plain = self.declaring(None).ok()?;
        let promised = self.written.streams.iter().filter(|stream| !stream.constraints.is_empty()).count();
        if promised == 0 {
            return Some(Certified { rate: f64::NAN, problem: plain, declared: None });
        }
        let admitted = |count: u64, time: u64| {
            let problem = self.declaring(Some(&declaration(declare, count, time, jitter))).ok()?;
            problem.system().admit(problem.specs()).ok().map(|_| problem)
        };
        let batch_time = plain.workers.first()?.batch_time().as_nanos();
        let counts = (1..=self.largest_count()? / promised as u64).rev();
        let count = match declare {
            Declare::Window => counts.into_iter().find(|&count| admitted(count, batch_time).is_some()),
            Declare::Periodic => None,
        };
        let count = count.unwrap_or(1);
        let (mut below, mut time) = (0, MAX_SPAN.as_nanos());
        let mut problem = admitted(count, time)?;
        while time - below > 1 {
            let middle = below + (time - below) / 2;
            match admitted(count, middle) {
                Some(found) => (time, problem) = (middle, found),
                None => below = middle,
            }
        }
        let declared =
            problem.specs().find_map(|spec| spec.arrivals()).map(|curve| curve.bounds()[0].clone());
        let all = self.written.streams.len() as f64;
        Some(Certified { rate: all * count as f64 * 1e9 / time as f64, problem, declared })
    }

    /// What the workers serve in full batches, in requests a second.
    pub(super) fn capacity(&self) -> f64 {
        if let Some(fleet) = &self.fleet {
            return fleet.capacity();
        }
        self.declaring(None).map_or(0.0, |p| p.workers.iter().map(rt_core::Workers::capacity_per_s).sum())
    }

    /// The rate in requests a second that a theorem proves for one stream on the workers.
    pub(super) fn theorem(&self, theorem: Theorem, certified: f64) -> Option<f64> {
        let problem = self.declaring(None).ok()?;
        let (kind, set) = (problem.workers.first()?, self.constraints()?);
        let per_s = |count: u64| count as f64 / kind.batch_time().as_secs_f64();
        match theorem {
            Theorem::Seed => Some(per_s(seed_count(kind.batch, set.densest()?))),
            Theorem::TheoremB => largest_count(kind.count, kind.batch, set.density()).map(per_s),
            Theorem::Certified => Some(certified).filter(|rate| rate.is_finite()),
        }
    }

    /// Of the first stream that is promised something.
    fn constraints(&self) -> Option<ConstraintSet> {
        let stream = self.written.streams.iter().find(|stream| !stream.constraints.is_empty())?;
        let list: Result<Vec<Constraint>, _> = stream.constraints.iter().map(|text| text.parse()).collect();
        ConstraintSet::new(&list.ok()?).ok()
    }

    /// Theorem B's count, over all kinds of workers, in the time of a full batch of the first.
    fn largest_count(&self) -> Option<u64> {
        let (problem, set) = (self.declaring(None).ok()?, self.constraints()?);
        let time = problem.workers.first()?.batch_time().as_secs_f64();
        let served = self.capacity() * time;
        Some((served / set.density().as_f64() + 1e-9).floor() as u64)
    }

    /// The problem in which every stream with constraints declares `arrivals`; without, none has constraints.
    fn declaring(&self, arrivals: Option<&written::Arrivals>) -> Result<Problem, ProblemError> {
        let mut written = self.written.clone();
        for stream in &mut written.streams {
            match arrivals {
                Some(arrivals) if !stream.constraints.is_empty() => stream.arrivals = Some(arrivals.clone()),
                Some(_) => {}
                None => stream.constraints.clear(),
            }
        }
        Problem::from_raw(written)
    }
}

impl Certified {
    /// What a stream declares, in time that runs `load` times as fast: what an adversary sends.
    pub(super) fn faster(&self, load: f64) -> Option<ArrivalCurve> {
        let scaled = |span: Span| Span::from_nanos((span.as_nanos() as f64 / load).ceil().max(1.0) as u64);
        let bound = match self.declared.as_ref()? {
            ArrivalBound::Window { count, length } => ArrivalBound::window(*count, scaled(*length)),
            ArrivalBound::Periodic { period, jitter } => {
                let late = Span::from_nanos((jitter.as_nanos() as f64 / load) as u64);
                ArrivalBound::periodic(scaled(*period), late)
            }
            ArrivalBound::Distances(_) => return None,
        };
        ArrivalCurve::new(&[bound.ok()?]).ok()
    }
}

/// At most `count` requests in any window of `time` nanoseconds, or one in each, so many periods late at most.
fn declaration(declare: Declare, count: u64, time: u64, jitter: f64) -> written::Arrivals {
    let none = written::Arrivals::default();
    match declare {
        Declare::Window => written::Arrivals { windows: vec![(count, Number::whole(time))], ..none },
        Declare::Periodic => {
            // Rounded up, as arrivals are rounded to nanoseconds.
            let jitter = Number::whole((jitter * time as f64).ceil() as u64);
            let periodic = written::Periodic { period: Number::whole(time), jitter, distance: None };
            written::Arrivals { periodic: vec![periodic], ..none }
        }
    }
}

fn number(span: Span) -> Number {
    Number::whole(span.as_nanos())
}

fn workers_of(field: &str, raw: &RawWorkers, data: &Data) -> Result<written::Workers, ExperimentError> {
    if raw.accuracy.is_some_and(|accuracy| !(0.0..=1.0).contains(&accuracy)) {
        let value = raw.accuracy.unwrap_or_default().to_string();
        return Err(refuse(format!("{field}.accuracy"), value, "must be in 0..=1"));
    }
    let times = match (&raw.time, &raw.times, &raw.profile) {
        (Some(time), None, None) => {
            let time = number(span(&format!("{field}.time"), time)?);
            let batch = raw.batch.unwrap_or(1);
            return Ok(written::Workers { count: raw.count, batch, time: Some(time), times: None });
        }
        (None, Some(times), None) => {
            let time = |(i, time): (usize, &String)| span(&format!("{field}.times[{i}]"), time);
            times.iter().enumerate().map(time).collect::<Result<Vec<_>, _>>()?
        }
        (None, None, Some(profile)) => profile::times(&format!("{field}.profile"), profile, data)?,
        _ => return Err(refuse(field, "", "must have one of time, times, profile")),
    };
    let batch = raw.batch.unwrap_or(times.len());
    let times = Some(times.into_iter().map(number).collect());
    Ok(written::Workers { count: raw.count, batch, time: None, times })
}
