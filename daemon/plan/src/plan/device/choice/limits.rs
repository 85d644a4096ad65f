//! What keeps services that share a device from larger batches.

use planner::SharedProblem;
use planner::certify::{bisect, decide_by};
use rt_core::sharing::SharingError;
use rt_core::{Span, Workers};

use super::{Choice, Chosen};

/// What a batch may take at most is told in steps of such a part of what it takes.
const PARTS: u64 = 1024;

impl Choice<'_> {
    /// What keeps each service from the next larger batch.
    pub(super) fn limits(&self, chosen: &Chosen) -> Vec<String> {
        let limit = |(service, sizes): (usize, &Vec<Workers>)| {
            let mut picks = chosen.picks.clone();
            picks[service] += 1;
            let next = sizes.get(picks[service])?;
            let reason = self.admitted(&picks).err()?;
            Some(self.blocked(&picks, service).unwrap_or_else(|| {
                let (batch, name, time) = (next.batch, &self.services[service].name, next.batch_time());
                format!("batches of {batch} of {name} would take {time}: {reason}")
            }))
        };
        self.sizes.iter().enumerate().filter_map(limit).collect()
    }

    /// Whom these batches of a service come in the way of, and how short they would have to be; `None` if no time would do.
    fn blocked(&self, picks: &[usize], service: usize) -> Option<String> {
        let problem = self.problem(picks).ok()?;
        let answer = |problem: &SharedProblem, rule| decide_by(problem, rule).answer;
        let Err(SharingError::Late(line)) = answer(&problem, self.rules().next()?) else { return None };
        let time = problem.services[service].time;
        let holds = |part: u64| {
            let mut shorter = problem.clone();
            shorter.services[service].time = Span::from_nanos((time.as_nanos() / PARTS).max(1) * part);
            self.rules().any(|rule| answer(&shorter, rule).is_ok())
        };
        if !holds(1) {
            return None;
        }
        let short = bisect(1, PARTS, holds);
        let (next, needed) =
            (&self.sizes[service][picks[service]], Span::from_nanos(time.as_nanos() / PARTS * short));
        let (name, other) = (&self.services[service].name, self.services[line.service]);
        let whom = if line.service == service { "it" } else { &other.name };
        Some(format!(
            "a batch of {} of {name} takes {time}; {whom} with {} needs P({}) ≤ {needed}: batch ≤ {}",
            next.batch,
            other.deadline,
            next.batch,
            self.sizes[service][picks[service] - 1].batch
        ))
    }
}
