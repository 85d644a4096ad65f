//! DeepRT: requests of one period of time are a job, and jobs go by their deadlines.

use planner::SharedProblem;
use rt_core::{Instant, Span};

use super::lanes::{balanced, members, split};
use super::requests_in;
use super::rival::{Hall, Rule};

/// DeepRT (Yang, Nahrstedt, Guo and Zhou, "DeepRT: A Soft Real Time Scheduler for Computer Vision Applications on the Edge",
/// SEC 2021): what comes in a window of half of the deadline is a *job*, released as the window ends and due one window
/// later; jobs go by earliest deadline, without preemption.
///
/// Its test of admission has all requests served, for it knows no other promise: the load must fit, and the demand of jobs up
/// to each deadline beside one that blocks (Jeffay, Stanat and Martel, "On non-preemptive scheduling of periodic and sporadic
/// tasks", RTSS 1991, which is exact for such jobs). Open, and decided here: a job larger than a batch is several batches of
/// one deadline, so a single one of them blocks; what cannot be in time even alone is dropped; it has one GPU, so of several
/// workers each has services of its own, by a split that passes the test if there is one; smaller images after overruns
/// have no meaning here.
pub(super) struct DeepRt {
    windows: Vec<Span>,
    /// Of each service, its worker.
    lanes: Vec<usize>,
}

impl DeepRt {
    pub(super) fn new(problem: &SharedProblem) -> Self {
        let lanes = Self::plan(problem).unwrap_or_else(|| balanced(problem));
        Self { windows: windows(problem), lanes }
    }

    /// A worker for each service with which all is admitted.
    pub(super) fn plan(problem: &SharedProblem) -> Option<Vec<usize>> {
        split(problem, |services| fits(problem, services).then_some(())).map(|(lanes, _)| lanes)
    }
}

impl Rule for DeepRt {
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant> {
        let (mut next, mut wait) = (None, None::<Instant>);
        for service in members(&self.lanes, hall.id) {
            let mut floor = hall.floor(service);
            floor.drop_hopeless(1);
            let number = |arrival: Instant| arrival.as_nanos() / self.windows[service].as_nanos();
            let Some(job) = floor.queue.front().map(|first| number(first.arrival)) else { continue };
            let end_of = |job: u64| Instant::from_nanos((job + 1) * self.windows[service].as_nanos());
            if end_of(job) > floor.now {
                wait = wait.into_iter().chain([end_of(job)]).min();
            } else {
                let size = floor.queue.iter().take_while(|request| number(request.arrival) == job).count();
                let candidate = (end_of(job + 1), service, size.min(floor.worker.batch));
                next = next.into_iter().chain([candidate]).min();
            }
        }
        let Some((_, service, size)) = next else { return wait };
        hall.floor(service).take_first(size);
        None
    }
}

/// Half of each deadline.
fn windows(problem: &SharedProblem) -> Vec<Span> {
    let half = |span: Span| Span::from_nanos((span.as_nanos() / 2).max(1));
    problem.services.iter().map(|service| half(service.deadline.saturating_sub(service.guard))).collect()
}

/// Whether the jobs of `services` keep their deadlines on one worker.
fn fits(problem: &SharedProblem, services: &[usize]) -> bool {
    let windows = windows(problem);
    // Of each, the window, what a job takes at most, and its longest batch.
    let jobs: Vec<(u64, u64, u64)> = services
        .iter()
        .map(|&index| {
            let service = &problem.services[index];
            let (count, batch) = (requests_in(service, windows[index]), service.batch as u64);
            let time =
                |size: u64| if size == 0 { 0 } else { service.profile.bound(size as usize).as_nanos() };
            let all = (count / batch).saturating_mul(time(batch)).saturating_add(time(count % batch));
            (windows[index].as_nanos(), all, time(count.min(batch)))
        })
        .collect();
    let load: f64 = jobs.iter().map(|&(window, all, _)| all as f64 / window as f64).sum();
    let demand = |until: u64| jobs.iter().map(|&(w, all, _)| u128::from(until / w) * u128::from(all)).sum();
    let longest = jobs.iter().map(|&(window, ..)| window).max().unwrap_or(0);
    // Beyond the longest window nothing blocks, and a load of 1 suffices.
    let mut ends: Vec<u64> = jobs.iter().flat_map(|&(w, ..)| (1..=longest / w).map(move |i| i * w)).collect();
    ends.sort_unstable();
    ends.dedup();
    let holds = |&end: &u64| {
        let blocking = jobs.iter().filter(|&&(window, ..)| window > end).map(|&(_, _, batch)| batch).max();
        let demanded: u128 = demand(end);
        demanded + u128::from(blocking.unwrap_or(0)) <= u128::from(end)
    };
    load <= 1.0 && ends.iter().all(holds)
}
