//! Classes of requests in a plan: how many are of each, by when they are wanted, and what answers to them are worth.

use weir_os::pipe::say;

use crate::config::RequestClass;
use crate::plan::ServicePlan;

/// A line for each.
pub(super) fn print(plan: &ServicePlan) {
    plan.config.classes.iter().for_each(|class| say!("  {}", line(plan, class)));
}

fn line(plan: &ServicePlan, class: &RequestClass) -> String {
    let RequestClass { name, share, deadline, reach, .. } = class;
    let late = if reach > deadline { format!(", delivered late up to {reach}") } else { String::new() };
    let others = plan.variants.iter().skip(1).map(|variant| &variant.spec);
    let worth = std::iter::once(&plan.spec).chain(others);
    let worth: Vec<_> = worth.map(|spec| format!("{:.3} by {}", class.worth(spec), spec.name)).collect();
    let soonest = plan.system.workers.iter().map(|kind| kind.profile.likely(1)).min();
    let never = soonest.filter(|one| one > deadline).map_or_else(String::new, |one| {
        format!("; hardly ever in time, as a batch of one most likely takes {one}")
    });
    format!(
        "class {name}: {:.1}% of the requests, within {deadline}{late}, worth {}{never}",
        100.0 * share,
        worth.join(", ")
    )
}
