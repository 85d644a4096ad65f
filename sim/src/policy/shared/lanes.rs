//! Which services go to which worker, where a rival has each worker by itself.

use planner::SharedProblem;

use super::work_per_s;

/// The most ways to give services to workers that are tried.
const MAX_WAYS: usize = 1 << 12;

/// A worker for each service so that `fits` says something of the services of each worker; and what it says, for each
/// worker. The first way there is; `None` if there is none.
pub(super) fn split<T>(
    problem: &SharedProblem,
    fits: impl Fn(&[usize]) -> Option<T>,
) -> Option<(Vec<usize>, Vec<T>)> {
    let (workers, services) = (problem.workers, problem.services.len());
    let ways = workers.checked_pow(services as u32).filter(|&ways| ways <= MAX_WAYS)?;
    (0..ways).find_map(|way| {
        let digit = |service: usize| way / workers.pow(service as u32) % workers;
        let lanes: Vec<_> = (0..services).map(digit).collect();
        let of = |worker: usize| fits(&members(&lanes, worker));
        Some(((0..workers).map(of).collect::<Option<Vec<_>>>()?, lanes)).map(|(said, lanes)| (lanes, said))
    })
}

/// The services of a worker.
pub(super) fn members(lanes: &[usize], worker: usize) -> Vec<usize> {
    (0..lanes.len()).filter(|&service| lanes[service] == worker).collect()
}

/// Where nothing fits: each service to the worker that has least to do, the most work first.
pub(super) fn balanced(problem: &SharedProblem) -> Vec<usize> {
    let work: Vec<f64> = problem.services.iter().map(|service| work_per_s(service, false)).collect();
    let mut order: Vec<_> = (0..work.len()).collect();
    order.sort_by(|&a, &b| work[b].total_cmp(&work[a]));
    let (mut lanes, mut loads) = (vec![0; work.len()], vec![0.0f64; problem.workers]);
    for service in order {
        let least = (0..loads.len()).min_by(|&a, &b| loads[a].total_cmp(&loads[b])).unwrap_or(0);
        (lanes[service], loads[least]) = (least, loads[least] + work[service]);
    }
    lanes
}
