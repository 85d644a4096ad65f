//! The theory read off the page, naively: words, curves, and the inequalities that promise.

use super::{Bound, Instance, Stream, View};

/// The share `p/q` that the strictest constraint wants served; 0/1 if there is none.
pub(crate) fn density(constraints: &[(u8, u8)]) -> (u8, u8) {
    let mut best = (0, 1);
    for &(m, k) in constraints {
        let served = k - m;
        if u32::from(served) * u32::from(best.1) > u32::from(best.0) * u32::from(k) {
            best = (served, k);
        }
    }
    best
}

/// Whether request `i` (from 1) of a word of density `p/q` is mandatory.
pub(crate) fn is_mandatory(i: u64, (p, q): (u8, u8)) -> bool {
    i * u64::from(p) / u64::from(q) > (i - 1) * u64::from(p) / u64::from(q)
}

/// `α(Δ)` of one stream, by the definitions.
pub(crate) fn arrivals_within(stream: &Stream, length: u64) -> u64 {
    let within = |bound: &Bound| match bound {
        Bound::Window { count, length: w } => u64::from(*count) * length.div_ceil(u64::from(*w)),
        Bound::Periodic { period, jitter } => (length + u64::from(*jitter)).div_ceil(u64::from(*period)),
        Bound::Distances(list) => {
            let (n, d) = (list.len(), |i: usize| i.checked_sub(1).map_or(0, |i| u64::from(list[i])));
            let fits = |i: &usize| (i / n) as u64 * d(n) + d(i % n) < length;
            (0..).take_while(fits).count() as u64
        }
    };
    stream.bounds.iter().map(within).min().expect("a bound")
}

/// `α_m(Δ)` of all streams.
pub(crate) fn mandatory_within(instance: &Instance, length: u64) -> u64 {
    let mandatory = |s: &Stream| {
        let (served, of) = density(&s.constraints);
        (arrivals_within(s, length) * u64::from(served)).div_ceil(u64::from(of))
    };
    instance.streams.iter().map(mandatory).sum()
}

/// The most requests that can come in `0, 1, …, horizon` ticks: the least of several bounds may allow more in a
/// whole than it does in the parts of it.
fn possible_within(stream: &Stream, horizon: usize) -> Vec<u64> {
    let mut possible = vec![0];
    for length in 1..=horizon {
        let parts = (1..length).map(|part| possible[part] + possible[length - part]).min();
        possible.push(arrivals_within(stream, length as u64).min(parts.unwrap_or(u64::MAX)));
    }
    possible
}

/// Theorem A, for one group of workers, with what can truly come: the inequality at every offset up to `horizon`.
pub(crate) fn inequality_holds_for_what_is_possible(instance: &Instance, horizon: usize) -> bool {
    let possible: Vec<_> = instance.streams.iter().map(|s| possible_within(s, horizon)).collect();
    theorem_a(instance, horizon as u64, |offset| {
        let mandatory = |(s, possible): (&Stream, &Vec<u64>)| {
            let (served, of) = density(&s.constraints);
            (possible[offset as usize + 1] * u64::from(served)).div_ceil(u64::from(of))
        };
        instance.streams.iter().zip(&possible).map(mandatory).sum()
    })
}

/// Theorem A, for one group of workers: the inequality at every offset up to `horizon`.
pub(crate) fn inequality_holds(instance: &Instance, horizon: u64) -> bool {
    theorem_a(instance, horizon, |offset| mandatory_within(instance, offset + 1))
}

fn theorem_a(instance: &Instance, horizon: u64, demand: impl Fn(u64) -> u64) -> bool {
    let [group] = &instance.groups[..] else { panic!("identical workers") };
    let p = u64::from(group.full());
    (0..horizon).all(|offset| {
        let demand = demand(offset);
        let rounds = demand.div_ceil(group.batch as u64).div_ceil(group.count as u64);
        demand == 0 || p * (1 + rounds) <= offset + u64::from(instance.latency)
    })
}

/// The condition for mixed workers: with `σ(u) = Σ B·floor(u/P)`, by `u` behind the start of a busy period so
/// many mandatory requests are in batches; the slowest of these takes `P_max` more.
pub(crate) fn mixed_inequality_holds(instance: &Instance, horizon: u64) -> bool {
    let served = |u: u64| -> u64 {
        instance.groups.iter().map(|g| (g.count * g.batch) as u64 * (u / u64::from(g.full()))).sum()
    };
    let slowest = instance.groups.iter().map(|g| u64::from(g.full())).max().expect("a group");
    (0..horizon).all(|offset| {
        let demand = mandatory_within(instance, offset + 1);
        let started = (0..).find(|&u| served(u) >= demand).expect("all are served some time");
        demand == 0 || started + slowest <= offset + u64::from(instance.latency)
    })
}

/// Whether an action longer than `P` leaves the promise intact, on identical workers: `S_j`, the latest start
/// of the `j`-th full batch from now, must be early enough for what waits and for all that may come.
pub(crate) fn slow_action_is_safe(instance: &Instance, view: &View, horizon: u64) -> bool {
    let [group] = &instance.groups[..] else { panic!("identical workers") };
    let (p, batch) = (u64::from(group.full()), group.batch as u64);
    let mut free: Vec<u64> = view.others.iter().map(|&busy| p.max(u64::from(busy))).collect();
    free.push(u64::from(view.length));
    let left = view.left.len() as u64;
    let total = left + mandatory_within(instance, horizon);
    let mut starts: Vec<u64> =
        free.iter().flat_map(|&g| (0..=total.div_ceil(batch)).map(move |k| g + k * p)).collect();
    starts.sort_unstable();
    // The end of the batch of the `i`-th request from now, at the latest.
    let end = |i: u64| starts[i.div_ceil(batch) as usize - 1] + p;
    let waiting = (1..).zip(view.left).all(|(i, &deadline)| end(i) <= u64::from(deadline));
    waiting
        && (0..horizon).all(|offset| {
            let demand = mandatory_within(instance, offset + 1);
            demand == 0 || end(left + demand) <= offset + u64::from(instance.latency)
        })
}
