//! The squishy bin packing of Nexus: which services share a worker, in which batches.

use planner::SharedProblem;
use rt_core::ArrivalCurve;

/// The services of a worker, each with its batch, and how long a cycle of them may take, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bin {
    pub(super) batches: Vec<(usize, usize)>,
    duty: f64,
    /// What share of the time the worker is busy.
    occupancy: f64,
}

/// A service with its rate, as far as no worker of its own is filled by it.
#[derive(Clone, Copy)]
struct Session {
    service: usize,
    rate: f64,
}

/// Algorithm 1 of Nexus (Shen et al., SOSP 2019, section 6.1), for the mean rates of the declarations: each service fills as
/// many workers as it can with batches `b` for which `2·P(b)` is within the deadline; of what is left the batch is the
/// largest for which gathering it and running it is, `b/r + P(b)`. Bins are merged, the fullest first and into the fullest,
/// while the batches of the shorter cycle, `⌈d·r⌉`, fit into it. `None` if a deadline leaves no time for a batch of one.
///
/// It knows mean rates only, so a burst may find no room: what it admits is not promised to hold. Open, and decided here: a
/// service that does not gather even one request in time has batches of one, as often as its deadline needs it.
pub(super) fn pack(problem: &SharedProblem) -> Option<Vec<Bin>> {
    let (mut bins, mut rest) = (Vec::new(), Vec::new());
    for (service, of) in problem.services.iter().enumerate() {
        let mut rate: f64 =
            of.streams.iter().filter_map(|(_, spec)| spec.arrivals()).map(ArrivalCurve::rate_per_s).sum();
        let batch = largest(problem, service)?;
        let time = seconds(problem, service, batch);
        while rate >= batch as f64 / time {
            bins.push(Bin { batches: vec![(service, batch)], duty: time, occupancy: 1.0 });
            rate -= batch as f64 / time;
        }
        if rate > 0.0 {
            rest.push(gathered(problem, Session { service, rate })?);
        }
    }
    rest.sort_by(|(a, _), (b, _)| b.occupancy.total_cmp(&a.occupancy));
    let mut shared: Vec<(Bin, Vec<Session>)> = Vec::new();
    for (bin, session) in rest {
        let merged = |(i, (other, sessions)): (usize, &(Bin, Vec<Session>))| {
            let all: Vec<_> = sessions.iter().copied().chain([session]).collect();
            Some((i, merge(problem, &all, other.duty.min(bin.duty))?, all))
        };
        let best = shared.iter().enumerate().filter_map(merged);
        match best.max_by(|(_, a, _), (_, b, _)| a.occupancy.total_cmp(&b.occupancy)) {
            Some((i, bin, all)) => shared[i] = (bin, all),
            None => shared.push((bin, vec![session])),
        }
    }
    bins.extend(shared.into_iter().map(|(bin, _)| bin));
    Some(bins)
}

/// All services in turn, with their largest batches: where they do not fit.
pub(super) fn all(problem: &SharedProblem) -> Bin {
    let batches = 0..problem.services.len();
    let batches = batches.map(|service| (service, largest(problem, service).unwrap_or(1))).collect();
    Bin { batches, duty: f64::INFINITY, occupancy: 1.0 }
}

/// The largest batch that may wait for one before it.
fn largest(problem: &SharedProblem, service: usize) -> Option<usize> {
    let batches = (1..=problem.services[service].batch).rev();
    batches.into_iter().find(|&b| 2.0 * seconds(problem, service, b) <= latency(problem, service))
}

/// A bin of its own for what is left of a service.
fn gathered(problem: &SharedProblem, session: Session) -> Option<(Bin, Session)> {
    let Session { service, rate } = session;
    let (time, latency) = (|b| seconds(problem, service, b), latency(problem, service));
    let in_time = |&b: &usize| b as f64 / rate + time(b) <= latency;
    let (batch, duty) = match (1..=problem.services[service].batch).rev().find(in_time) {
        Some(batch) => (batch, batch as f64 / rate),
        None => (1, latency - time(1)),
    };
    let bin = Bin { batches: vec![(service, batch)], duty, occupancy: time(batch) / duty };
    (duty > 0.0).then_some((bin, session))
}

/// One bin of all these with a cycle of `duty`.
fn merge(problem: &SharedProblem, sessions: &[Session], duty: f64) -> Option<Bin> {
    let batch = |s: &Session| (s.service, ((duty * s.rate - 1e-9).ceil() as usize).max(1));
    let batches: Vec<_> = sessions.iter().map(batch).collect();
    let fits = |&(service, b): &(usize, usize)| {
        b <= problem.services[service].batch
            && duty + seconds(problem, service, b) <= latency(problem, service)
    };
    let busy: f64 =
        batches.iter().filter(|s| fits(s)).map(|&(service, b)| seconds(problem, service, b)).sum();
    let whole = batches.iter().all(fits) && busy <= duty;
    whole.then(|| Bin { occupancy: busy / duty, batches, duty })
}

fn seconds(problem: &SharedProblem, service: usize, batch: usize) -> f64 {
    problem.services[service].profile.bound(batch).as_secs_f64()
}

fn latency(problem: &SharedProblem, service: usize) -> f64 {
    let of = &problem.services[service];
    of.deadline.saturating_sub(of.guard).as_secs_f64()
}
