//! What a system of an experiment can be promised: the most that can be certified, and what theorems say of it.

use planner::problem::raw as written;
use planner::{Number, Problem};
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, MAX_SPAN, Span, Workers, largest_count, seed_count,
};

use super::{System, number};
use crate::experiment::raw::{Declare, Theorem};
use crate::policy::SharedKind;

/// What a system can be promised.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Certified {
    /// Requests a second, of all streams together.
    pub(in crate::experiment) rate: f64,
    /// The system with streams that declare so many; one without constraints declares nothing.
    pub(in crate::experiment) problem: Problem,
    /// What each stream with constraints declares, if one does.
    declared: Option<ArrivalBound>,
}

impl System {
    /// The most that can be certified if all streams with constraints and without a period of their own declare
    /// alike: `None` if nothing can.
    ///
    /// A window is as many requests as can be certified in the time of a full batch, one at least, and then as short
    /// as it may be; a period is as short as it may be, with a jitter of so many periods.
    pub(in crate::experiment) fn certify(&self, declare: Declare, jitter: f64) -> Option<Certified> {
        if let Some(sharing) = &self.sharing {
            let load = sharing.certify(SharedKind::Device)?;
            let problem = Problem::from_raw(self.written.clone()).ok()?;
            return Some(Certified { rate: sharing.rate(load), problem, declared: None });
        }
        if self.router.is_some() || self.selecting.is_some() {
            let problem = Problem::from_raw(self.written.clone()).ok()?;
            return Some(Certified { rate: f64::NAN, problem, declared: None });
        }
        if self.pipeline.is_some() {
            // Nothing is promised yet: constraints are looked at, and no more.
            let any =
                written::Arrivals { windows: vec![(1, number(MAX_SPAN))], ..written::Arrivals::default() };
            let problem = self.declaring(Some(&any)).ok()?;
            return Some(Certified { rate: f64::NAN, problem, declared: None });
        }
        let plain = self.declaring(None).ok()?;
        let open = |stream: &&written::Stream| !stream.constraints.is_empty() && stream.arrivals.is_none();
        let promised = self.written.streams.iter().filter(open).count();
        if promised == 0 {
            let any = written::Arrivals::default();
            let problem = self.declaring(Some(&any)).ok()?;
            problem.system().admit(problem.specs()).ok()?;
            return Some(Certified { rate: f64::NAN, problem, declared: None });
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
        let first = self.written.streams.iter().position(|stream| open(&stream));
        let curve = first.and_then(|first| problem.streams[first].1.arrivals());
        let declared = curve.map(|curve| curve.bounds()[0].clone());
        let all = self.written.streams.len() as f64;
        Some(Certified { rate: all * count as f64 * 1e9 / time as f64, problem, declared })
    }

    /// What the workers serve in their largest batches, in requests a second.
    pub(in crate::experiment) fn capacity(&self) -> f64 {
        if let Some(fleet) = &self.fleet {
            return fleet.capacity();
        }
        if let Some(sharing) = &self.sharing {
            return sharing.rate(1.0);
        }
        if let Some(selecting) = &self.selecting {
            return selecting.capacity();
        }
        if let Some(pipeline) = &self.pipeline {
            return pipeline.capacity().unwrap_or(f64::NAN);
        }
        let of = |kind: &Workers| {
            let batch = kind.profile.max_batch();
            (kind.count * batch) as f64 / kind.profile.mean(batch).as_secs_f64()
        };
        self.declaring(None).map_or(0.0, |problem| problem.workers.iter().map(of).sum())
    }

    /// The rate in requests a second that a theorem proves for one stream on the workers.
    pub(in crate::experiment) fn theorem(&self, theorem: Theorem, certified: f64) -> Option<f64> {
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
        let served = problem.workers.iter().map(Workers::capacity_per_s).sum::<f64>() * time;
        Some((served / set.density().as_f64() + 1e-9).floor() as u64)
    }
}

impl Certified {
    /// What a stream declares, in time that runs `load` times as fast: what an adversary sends.
    pub(in crate::experiment) fn faster(&self, load: f64) -> Option<ArrivalCurve> {
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
pub(super) fn declaration(declare: Declare, count: u64, time: u64, jitter: f64) -> written::Arrivals {
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
