//! The most accurate plan of devices of which it is known what they hold.

use std::time::Duration;

use super::{Aim, Building, Columns, hosting};
use crate::configuration::Configuration;
use crate::plan::{Held, Plan};
use crate::problem::Problem;
use crate::promise::Keeping;

/// The most accurate plan of devices that hold this, if they serve all demand, and how it keeps the promises.
///
/// # Errors
/// If the solver gives up, or a promise is not kept: in words.
pub(crate) fn filled(problem: &Problem, held: Vec<(Held, u32)>) -> Result<Option<Plan>, String> {
    let (mut alone, mut shared) = (vec![Vec::new(); problem.services.len()], Vec::new());
    for (held, count) in held {
        match held {
            Held::Alone(s, of) => alone[s].push((of, count)),
            Held::Shared(of) => shared.push((of, count)),
            Held::Stage { .. } => {}
        }
    }
    let counts: Vec<u32> = alone
        .iter()
        .flatten()
        .map(|(_, count)| *count)
        .chain(shared.iter().map(|(_, count)| *count))
        .collect();
    let of = |all: Vec<(Configuration, u32)>| all.into_iter().map(|(of, _)| of).collect();
    let alone = alone.into_iter().map(of).collect();
    let shared = shared.into_iter().map(|(of, _)| of).collect();
    let columns = Columns { alone, shared, parts: Vec::new() };
    let rules = vec![0; problem.services.len()];
    let building = Building::new(problem, &columns, Aim::Accuracy, &rules, Some(counts));
    let Some(mut plan) = building.solve(Duration::MAX)?.plan else { return Ok(None) };
    for (s, service) in problem.services.iter().enumerate() {
        let Some(promise) = &service.promise else { continue };
        let (all, numbers) = hosting(&plan, s);
        let rule = Keeping::new(promise, service.deadline, &all).rule(&numbers);
        let rule = rule.ok_or_else(|| format!("the promise of {} is not kept", service.name))?;
        plan.promises.push((s, rule));
    }
    Ok(Some(plan))
}
