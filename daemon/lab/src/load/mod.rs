//! Open-loop load: stands where clients stand, at the start of a request's way, and keeps to its schedule
//! whatever the daemon does.
//!
//! A [`Plan`] says what is sent when; [`run()`] carries it out over one connection and one stream and returns a
//! [`Report`]. Every request is due at an instant fixed beforehand, its latency counts from that instant, and
//! one that could not be sent is a miss: a slow daemon cannot hide behind a generator that waits for it.

mod classes;
mod input;
mod pace;
mod report;
mod run;
mod scenes;
mod schedule;
mod target;

use std::ops::Range;
use std::time::Duration;

use rt_core::Constraint;
use weir_client::Registration;

pub(crate) use classes::Classes;
pub(crate) use input::{Inputs, describe};
pub(crate) use report::{Change, Judgement, Measures, PhaseReport, Quantiles, Report};
pub(crate) use run::run;
pub(crate) use scenes::Scenes;
pub(crate) use schedule::Schedule;
pub(crate) use target::Target;

/// What one stream sends, and how it is judged.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What is asked of the daemon.
    pub(crate) registration: Registration,
    /// What outcomes are held against, asked for or not.
    pub(crate) constraints: Vec<Constraint>,
    /// What requests carry.
    pub(crate) inputs: Inputs,
    /// One after the other without a gap.
    pub(crate) phases: Vec<Phase>,
    /// Of which classes they are.
    pub(crate) classes: Classes,
}

/// A stretch of a run that is reported on its own.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) schedule: Schedule,
    pub(crate) end: End,
    /// The inputs that it takes, in turn; all of them if absent.
    pub(crate) of: Option<Range<usize>>,
}

impl Phase {
    /// Where among so many inputs that of request `number` of the run is.
    fn place(&self, number: u64, inputs: usize) -> usize {
        let Range { start, end } = self.of.clone().unwrap_or(0..inputs);
        start + (number % (end - start).max(1) as u64) as usize
    }
}

/// When a phase ends, if its schedule does not end before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// After this time.
    After(Duration),
    /// When the promise holds, at once if it does to begin with; at the latest after this time.
    PromiseHolds { at_most: Duration },
}

impl End {
    /// The longest the phase can last.
    pub(crate) fn at_most(self) -> Duration {
        match self {
            Self::After(time) | Self::PromiseHolds { at_most: time } => time,
        }
    }
}

/// How a run stands, for a live display.
pub(crate) struct Progress<'a> {
    /// The phase that is being sent.
    pub(crate) phase: &'a Phase,
    /// Its number, from 0.
    pub(crate) number: usize,
    /// Its time so far.
    pub(crate) elapsed: Duration,
    /// Its counts so far.
    pub(crate) measures: &'a Measures,
    /// What the daemon last said; `None` without constraints.
    pub(crate) misses_left: Option<u32>,
    /// Every change of the service's safe mode so far.
    pub(crate) safe_mode: &'a [Change],
    /// Every suspension of the stream so far, and its end.
    pub(crate) suspension: &'a [Change],
}

impl Progress<'_> {
    /// The cause of safe mode while the service is in it.
    pub(crate) fn in_safe_mode(&self) -> Option<&str> {
        standing(self.safe_mode)
    }

    /// The cause of the stream's suspension while it is suspended.
    pub(crate) fn suspended(&self) -> Option<&str> {
        standing(self.suspension)
    }
}

fn standing(changes: &[Change]) -> Option<&str> {
    changes.last().filter(|change| change.entered).map(|change| change.cause.as_str())
}
