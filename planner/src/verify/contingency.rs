//! Contingencies: whether what is said to hold with a worker less, or with longer batches, passes Theorem A there.

use std::fmt::Display;

use super::problem::{Kind, Stream, System, streams, time, up};
use super::{UNCONFIRMED, VerifyError, same, wrong};
use crate::certificate::{Case, Claim};
use crate::problem::raw::{self, Unit};

/// Every scale of every level passes, on whatever is left; `limits` counts those that were derived.
pub(super) fn check(claim: &Claim, system: &System, limits: &mut usize) -> Result<(), VerifyError> {
    for (i, told) in claim.contingencies.iter().enumerate() {
        let field = |level: &dyn Display| format!("contingencies[{i}].max_load_scales[{level}]");
        // Who absorbs stalls changes no level.
        same(field(&"_"), &system.absorbed.is_none(), &true)?;
        let most = claim.problem.streams.iter().map(|stream| stream.degraded.len()).max().unwrap_or(0);
        same(field(&"_"), &(told.max_load_scales.len() == most + 1), &true)?;
        let left = left(told.case, system);
        for (level, &scale) in told.max_load_scales.iter().enumerate() {
            let thousandths = time(scale, Unit::Us);
            if thousandths == Some(0) {
                continue;
            }
            same(field(&level), &left.is_empty(), &false)?;
            for kinds in &left {
                let mut system = System {
                    kinds: kinds.clone(),
                    streams: at_level(&claim.problem, level)?,
                    ..system.clone()
                };
                let hastened = thousandths.and_then(|scale| system.hasten(scale));
                match hastened.map_or(Err("no value".to_owned()), |()| system.test(false)) {
                    Err(no) if !no.starts_with(UNCONFIRMED) => return Err(wrong(field(&level), scale, no)),
                    tested => *limits += usize::from(tested.is_ok()),
                }
            }
        }
    }
    Ok(())
}

/// The workers that are left: of a loss, whichever it is.
fn left(case: Case, system: &System) -> Vec<Vec<Kind>> {
    match case {
        Case::LongerBatches => {
            let longer =
                |kind: &Kind| Kind { times: kind.times.iter().map(|t| up(3 * t, 2)).collect(), ..*kind };
            vec![system.kinds.iter().map(longer).collect()]
        }
        Case::WorkerLost if system.kinds.iter().map(|kind| kind.count).sum::<i128>() == 1 => Vec::new(),
        Case::WorkerLost => (0..system.kinds.len())
            .map(|lost| {
                let mut kinds = system.kinds.clone();
                kinds[lost].count -= 1;
                kinds.retain(|kind| kind.count > 0);
                kinds
            })
            .collect(),
    }
}

/// The streams, each with the constraints of that level, or of its last one, and the arrivals of its first promise.
fn at_level(problem: &raw::Problem, level: usize) -> Result<Vec<Stream>, VerifyError> {
    let at = |stream: &raw::Stream| {
        let behind = level.min(stream.degraded.len()).checked_sub(1).map(|behind| &stream.degraded[behind]);
        let constraints = behind.map_or(&stream.constraints, |level| &level.constraints).clone();
        raw::Stream { constraints, degraded: Vec::new(), ..stream.clone() }
    };
    streams("streams.degraded", &problem.streams.iter().map(at).collect::<Vec<_>>(), problem.unit)
}
