//! A problem of several services as the checker reads it.

use super::super::problem::{MANY, Stream, span, streams, times};
use super::super::{VerifyError, levels, same};
use crate::problem::shared::raw::SharedProblem;

#[derive(Clone)]
pub(in crate::verify) struct Shared {
    pub(in crate::verify) workers: i128,
    /// By how much dispatch may be late, and what stalls may take: what every service keeps back of its deadline at least.
    pub(in crate::verify) late: i128,
    /// The window of stalls, and the length of one.
    pub(in crate::verify) stalls: Option<(i128, i128)>,
    /// `P̂`.
    pub(in crate::verify) longest: i128,
    pub(in crate::verify) services: Vec<Service>,
}

#[derive(Clone)]
pub(in crate::verify) struct Service {
    pub(in crate::verify) name: String,
    /// What is kept back of the deadline, stalls included.
    pub(in crate::verify) guard: i128,
    /// `L`, the deadline less that.
    pub(in crate::verify) latency: i128,
    pub(in crate::verify) batch: i128,
    /// `P`.
    pub(in crate::verify) time: i128,
    pub(in crate::verify) streams: Vec<Stream>,
}

impl Service {
    /// Whether anything is promised.
    pub(super) fn demands(&self) -> bool {
        self.streams.iter().any(|s| s.p > 0)
    }

    /// The most mandatory requests in an interval of `length`.
    pub(super) fn mandatory(&self, length: i128) -> i128 {
        if length < 1 {
            0
        } else {
            self.streams.iter().filter(|s| s.p > 0).map(|s| s.mandatory(length)).sum()
        }
    }

    /// The next length in which there may be more.
    pub(super) fn rise(&self, length: i128) -> Option<i128> {
        let promised = self.streams.iter().filter(|s| s.p > 0);
        promised.map(|s| if length < 1 { 1 } else { s.rise(length) }).min()
    }
}

impl Shared {
    pub(super) fn read(problem: &SharedProblem) -> Result<Self, VerifyError> {
        let (unit, mut services) = (problem.unit, Vec::new());
        let (mut lost, mut stalls) = (0, None);
        if let Some(s) = &problem.stalls {
            same("problem.stalls.recovery", &s.recovery, &None)?;
            let window = span("stalls.window", s.window, 1, unit)?;
            let length = span("stalls.length", s.length, 1, unit)?;
            (lost, stalls) = (i128::from(s.count) * length, Some((window, length)));
        }
        for (s, raw) in problem.services.iter().enumerate() {
            let field = format!("services[{s}]");
            let time = times(&field, raw.batch, (raw.time, raw.times.as_deref()), unit)?.last().copied();
            let deadline = span(&format!("{field}.deadline"), raw.deadline, 1, unit)?;
            let guard = span(&format!("{field}.guard"), raw.guard, 0, unit)? + lost;
            same(format!("problem.{field}.batch"), &(1..=MANY).contains(&(raw.batch as i128)), &true)?;
            services.push(Service {
                name: raw.name.clone(),
                guard,
                latency: deadline - guard,
                batch: raw.batch as i128,
                time: time.unwrap_or(0),
                streams: streams(&format!("{field}.streams"), &raw.streams, unit)?,
            });
            let taken = services[..s].iter().any(|other| other.name == raw.name);
            same(format!("problem.{field}.name, taken already,"), &taken, &false)?;
        }
        same("problem.services", &services.is_empty(), &false)?;
        levels::absent(problem.services.iter().flat_map(|service| &service.streams))?;
        same("problem.workers.count", &(1..=MANY).contains(&(problem.workers.count as i128)), &true)?;
        Ok(Self {
            workers: problem.workers.count as i128,
            late: services.iter().map(|s| s.guard).min().unwrap_or(0),
            stalls,
            longest: services.iter().map(|s| s.time).max().unwrap_or(0),
            services,
        })
    }

    /// The same with dispatch later by so much: it delays as batches do that run over by as much in all.
    pub(super) fn later_by(&self, margin: i128) -> Self {
        let mut later = self.clone();
        later.late += margin;
        later.services.iter_mut().for_each(|service| service.latency -= margin);
        later
    }

    /// `D`: when a request of service `s` must be answered, dispatch as late as it may be.
    pub(super) fn due(&self, s: usize) -> i128 {
        self.services[s].latency + self.late
    }

    /// When a batch of it must begin; below zero if no start is early enough.
    pub(super) fn latest(&self, s: usize) -> i128 {
        self.due(s) - self.services[s].time
    }
}
