//! A split: services in groups that have some of the workers each, and the daemon's device on them.

use std::collections::HashMap;

use planner::SharedProblem;
use planner::certify::groupings;
use rt_core::StreamSpec;
use virtual_time::OnDevice;

use super::super::weir::{WeirError, on_device};
use super::SharedKind;
use super::parts::Parts;

/// The services of a group, and the problem of these on its workers.
type Group = (Vec<usize>, SharedProblem);

/// Each group by the daemon's device on its own workers, with batches up to those of the problem; all together on all of them where no
/// split promises all.
pub(super) fn split(
    problem: &SharedProblem,
    queue: usize,
    streams: &[(usize, StreamSpec)],
) -> Result<Parts<OnDevice>, WeirError> {
    let promised = |part: &SharedProblem| SharedKind::Device.admits(part).then(|| part.clone());
    let together = || vec![((0..problem.services.len()).collect(), problem.clone())];
    let groups = groups(problem, promised).unwrap_or_else(together);
    let (groups, problems): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
    Parts::new(&groups, streams, |group, streams| on_device(&problems[group], queue, &streams, false))
}

/// The problem with the batches of the groups with which all is promised.
pub(super) fn planned(problem: &SharedProblem) -> Option<SharedProblem> {
    let mut all = problem.clone();
    for (group, part) in groups(problem, |part| SharedKind::Device.planned(part))? {
        for (service, planned) in group.into_iter().zip(part.services) {
            all.services[service] = planned;
        }
    }
    Some(all)
}

/// The first of all groupings, from that of all together on, of which each group is `promised` all by itself; groups have as many
/// workers, as `weir plan` splits a device.
fn groups(
    problem: &SharedProblem,
    promised: impl Fn(&SharedProblem) -> Option<SharedProblem>,
) -> Option<Vec<Group>> {
    let services = problem.services.len();
    let counts = (1..=services).filter(|&count| problem.workers.is_multiple_of(count));
    let mut known = HashMap::new();
    let mut all = counts.flat_map(|count| groupings(services, count));
    all.find_map(|groups| {
        let workers = problem.workers / groups.len();
        let group = |group: Vec<usize>| {
            let services = || group.iter().map(|&service| problem.services[service].clone()).collect();
            let part = || promised(&SharedProblem { workers, services: services(), ..problem.clone() });
            let part = known.entry((workers, group.clone())).or_insert_with(part).clone()?;
            Some((group, part))
        };
        groups.into_iter().map(group).collect()
    })
}
