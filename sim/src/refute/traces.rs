//! Arrivals that keep to the declared curves and mean no good. Times are in nanoseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use planner::problem::shared::Service;
use planner::{Problem, SharedProblem};
use rt_core::pipeline::Pipeline;
use rt_core::{ArrivalCurve, Density, Instant, Span, StreamSpec, Workers};

use crate::curves::{Merged, Pacer};
use crate::dice::Dice;
use crate::policy::work_per_s;

/// Requests at most that bring the words into phase, and in a burst behind background.
const MAX_BURSTS: usize = 6_000;
/// Background requests at most in a trace.
const MAX_FLOOD: usize = 30_000;

/// How many requests, sent as early as they may, are sure to violate a constraint of a load above capacity; `None`
/// if the load is not above it.
///
/// Of `N_s` requests, a stream without violation has at least `ρ_s·N_s - m_s` served, and the workers serve
/// no more than `n·B` in each `P`; what they owe grows until it is more than all that the streams allow.
pub(super) fn overload(problem: &Problem) -> Option<u64> {
    let per = |w: &Workers| w.round() as f64 / w.batch_time().as_nanos() as f64;
    let late = |capacity| capacity * problem.deadline.as_nanos() as f64 + 2.0 * round(problem) as f64;
    above(problem, problem.workers.iter().map(per).sum(), late)
}

/// The same where so much is served a nanosecond, and `late` of it may come too late.
fn above(problem: &Problem, capacity: f64, late: impl Fn(f64) -> f64) -> Option<u64> {
    let demands = || problem.streams.iter().filter_map(|(_, spec)| Some((spec, spec.demand()?)));
    let demand: f64 = demands().map(|(_, (d, a))| d.as_f64() * a.rate_per_s() / 1e9).sum();
    let rate: f64 = demands().map(|(_, (_, a))| a.rate_per_s() / 1e9).sum();
    let excess = Some(demand - capacity).filter(|&excess| excess > capacity * 1e-9)?;
    let allowed =
        |spec: &StreamSpec| spec.constraints().as_slice().iter().map(|c| c.window()).max().unwrap_or(0);
    let slack: f64 = demands().map(|(spec, _)| f64::from(allowed(spec))).sum();
    Some(((slack + late(capacity)) / excess * rate) as u64 + 64)
}

/// The same of services that share workers, which serve a request of each no faster than in the best of its batches.
pub(super) fn overload_shared(problem: &SharedProblem) -> Option<u64> {
    let workers = problem.workers as f64;
    let work: f64 = problem.services.iter().map(|service| work_per_s(service, true)).sum();
    let excess = Some(work - workers).filter(|&excess| excess > workers * 1e-9)?;
    let (mut owed, mut rate) = (0.0, 0.0);
    for service in &problem.services {
        let each = service.profile.bound(1).as_secs_f64();
        for (_, spec) in &service.streams {
            let longest = spec.constraints().as_slice().iter().map(|c| c.window()).max().unwrap_or(0);
            owed += f64::from(longest) * each;
            rate += spec.arrivals().map_or(0.0, ArrivalCurve::rate_per_s);
        }
    }
    let longest =
        |of: fn(&Service) -> Span| problem.services.iter().map(|s| of(s).as_secs_f64()).fold(0.0, f64::max);
    let late = workers * (longest(|s| s.deadline) + 2.0 * longest(|s| s.time));
    Some(((owed + late) / excess * rate) as u64 + 64)
}

/// The same of a pipeline, whose busiest stage works off no more sources than it can.
pub(super) fn overload_pipeline(problem: &Problem, pipeline: &Pipeline) -> Option<u64> {
    let most = pipeline.descendants().ok()?;
    let capacity = pipeline.stages.iter().zip(most).map(|(stage, most)| {
        (stage.workers * stage.batch) as f64 / (stage.time.as_nanos() as f64 * most as f64)
    });
    let path =
        pipeline.stages.iter().map(|stage| stage.time.as_nanos()).sum::<u64>() + problem.deadline.as_nanos();
    above(problem, capacity.fold(f64::INFINITY, f64::min), |capacity| capacity * path as f64)
}

/// All streams send as early as they may, from the start.
pub(super) fn sustained(problem: &Problem, requests: usize, phased: bool) -> Vec<(Instant, usize)> {
    let mut trace = Trace::new(problem);
    let from = if phased { trace.phase(&[]) } else { 0 };
    let starts = vec![Some(from); trace.pacers.len()];
    trace.burst(&starts, u64::MAX, trace.all.len() + requests);
    trace.all.into_arrivals()
}

/// Where something that no curve bounds may come: it occupies all workers as the streams burst, and goes on to
/// take whatever their mandatory requests leave.
pub(super) fn floods(problem: &Problem, hint: u64) -> Vec<Vec<(Instant, usize)>> {
    let free = problem.streams.iter().position(|(_, spec)| spec.arrivals().is_none());
    let background = Some(problem.streams.len()).filter(|_| problem.background).or(free);
    let Some(background) = background else { return Vec::new() };
    let single = problem.workers.iter().map(|w| w.profile.bound(1).as_nanos()).max().unwrap_or(1);
    let (full, round) = (longest_batch(problem), round(problem) as usize);
    // The burst comes just behind the start of full batches on all workers, or as they end and the next ones start,
    // if it is not taken along in these; and there are orders in which the first batches hold one request each.
    let heads = [1, full, full + single];
    let flood = |(head, starved): (u64, bool)| {
        let mut trace = Trace::new(problem);
        let start = trace.phase(&[]).max(head);
        // Enough comes as batches start that whatever the streams sent meanwhile is not among the oldest.
        let mut all = Merged::default();
        // Either from the very first request of the streams on, or just before the burst.
        let mut instant = if starved { (start - head) % full } else { start - head };
        let until = trace.until_all_have_sent(start, hint);
        while instant <= until && all.len() < MAX_FLOOD {
            (0..2 * round).for_each(|_| all.add(instant, background));
            instant += full;
        }
        let starts = vec![Some(start); trace.pacers.len()];
        trace.burst(&starts, until.min(instant), trace.all.len() + MAX_BURSTS);
        all.append(trace.all);
        all.into_arrivals()
    };
    [false, true].iter().flat_map(|&starved| heads.map(|head| flood((head, starved)))).collect()
}

/// A burst of all streams that nothing is in the way of, each where its next requests hold as many mandatory ones as they can, and on
/// until a window of each is over: when it begins, not before `head`, when it ends, and all that comes.
pub(super) fn burst(problem: &Problem, head: u64, hint: u64) -> (u64, u64, Vec<(Instant, usize)>) {
    let mut trace = Trace::new(problem);
    let start = trace.phase(&[]).max(head);
    let until = trace.until_all_have_sent(start, hint);
    let starts = vec![Some(start); trace.pacers.len()];
    trace.burst(&starts, until, trace.all.len() + MAX_BURSTS);
    (start, until, trace.all.into_arrivals())
}

/// Bursts of the streams behind requests of their own that occupy the workers, over and over, all at random.
pub(super) fn adversary(problem: &Problem, dice: &mut Dice, hint: u64) -> Vec<(Instant, usize)> {
    let mut trace = Trace::new(problem);
    let streams = trace.pacers.len() as u64;
    let (full, latency) = (longest_batch(problem), problem.deadline.as_nanos());
    let (count, round) = (problem.workers.iter().map(|w| w.count as u64).sum(), round(problem));
    let time = |dice: &mut Dice| {
        let workers = &problem.workers[dice.within(0, problem.workers.len() as u64 - 1) as usize];
        workers.profile.bound(dice.within(1, workers.batch as u64) as usize).as_nanos()
    };
    let lead = |dice: &mut Dice| match dice.within(0, 5) {
        0 => 0,
        1 => 1,
        2 => time(dice) - 1,
        3 => time(dice),
        4 => dice.within(0, 2 * full),
        _ => dice.within(0, latency + full),
    };
    // Often as many as the workers, or as fill their batches.
    let most = dice.pick(&[0, count, round, 2 * round]);
    let count = if dice.within(0, 1) == 0 { most } else { dice.within(0, most) };
    let (same_stream, same_lead) = (dice.within(0, 1) == 0, dice.within(0, 1) == 0);
    let (only, alike) = (dice.within(0, streams - 1), lead(dice));
    let mut blockers: Vec<(u64, usize)> = (0..count)
        .map(|_| {
            let stream = if same_stream { only } else { dice.within(0, streams - 1) };
            (if same_lead { alike } else { lead(dice) }, stream as usize)
        })
        .collect();
    blockers.sort_unstable_by_key(|&(lead, _)| Reverse(lead));
    let mut spent = vec![0; streams as usize];
    blockers.iter().for_each(|&(_, stream)| spent[stream] += 1);
    let longest = blockers.first().map_or(0, |&(lead, _)| lead);
    let starts: Vec<Option<u64>> = (0..streams)
        .map(|_| match dice.within(0, 7) {
            0 => None,
            1 => Some(dice.within(0, 2 * full)),
            _ => Some(0),
        })
        .collect();
    let length = match dice.within(0, 4) {
        0 => hint + 1,
        1 => latency,
        2 => dice.within(0, 4 * latency),
        3 => hint + dice.within(0, 8 * latency),
        _ => dice.within(0, full),
    };
    let (phased, pause) = (dice.within(0, 2) > 0, dice.within(0, 2 * latency));
    let requests = dice.within(20, 300 + 8 * round) as usize;
    for _ in 0..dice.within(1, 12) {
        let base = if phased { trace.phase(&spent) } else { trace.last + pause };
        let start = base + longest;
        for &(lead, stream) in &blockers {
            trace.send(stream, start - lead);
        }
        let starts: Vec<_> = starts.iter().map(|offset| offset.map(|offset| start + offset)).collect();
        trace.burst(&starts, start.saturating_add(length), requests);
        if trace.all.len() >= requests {
            break;
        }
    }
    trace.all.into_arrivals()
}

/// Arrivals under construction.
struct Trace<'a> {
    problem: &'a Problem,
    /// Of the streams that declare something.
    pacers: Vec<Option<Pacer<'a>>>,
    all: Merged,
    /// The last instant so far.
    last: u64,
}

impl<'a> Trace<'a> {
    fn new(problem: &'a Problem) -> Self {
        let pacers = problem.streams.iter().map(|(_, spec)| spec.arrivals().map(Pacer::new)).collect();
        Self { problem, pacers, all: Merged::default(), last: 0 }
    }

    /// Sends a request of `stream` at `wish`, or as soon after as it may.
    fn send(&mut self, stream: usize, wish: u64) {
        let Some(pacer) = &mut self.pacers[stream] else { return };
        let instant = pacer.earliest(wish);
        pacer.send(instant);
        self.all.add(instant, stream);
        self.last = self.last.max(instant);
    }

    /// Sends requests that come alone until every word is where the requests after the next `spent[s]` hold as
    /// many mandatory ones as they can. Returns an instant by which all is as if nothing had been.
    fn phase(&mut self, spent: &[u64]) -> u64 {
        let rest = self.problem.deadline.as_nanos() + longest_batch(self.problem);
        let idle = |trace: &Self| {
            let recovered = trace.pacers.iter().flatten().map(Pacer::recovered).max().unwrap_or(0);
            if trace.last == 0 && trace.all.len() == 0 { 0 } else { recovered.max(trace.last + rest) }
        };
        let mut from = idle(self);
        loop {
            let late: Vec<_> = (0..self.pacers.len()).filter(|&s| !self.in_phase(s, spent)).collect();
            if late.is_empty() || self.all.len() > MAX_BURSTS {
                return from;
            }
            late.into_iter().for_each(|stream| self.send(stream, from));
            from = idle(self);
        }
    }

    fn in_phase(&self, stream: usize, spent: &[u64]) -> bool {
        let density = self.problem.streams[stream].1.constraints().density();
        let Some(pacer) = &self.pacers[stream] else { return true };
        let before = pacer.count() as u64 + spent.get(stream).unwrap_or(&0);
        before_most(density, before)
    }

    /// All streams send as early as they may, each from its own start, until the instant `until`, or until there
    /// are so many `requests` in all.
    fn burst(&mut self, starts: &[Option<u64>], until: u64, requests: usize) {
        let next = |pacer: &Option<Pacer>, start: u64| pacer.as_ref().map(|pacer| pacer.earliest(start));
        let first = |(stream, start): (usize, &Option<u64>)| {
            Some(Reverse((next(&self.pacers[stream], (*start)?)?, stream)))
        };
        let mut queue: BinaryHeap<_> = starts.iter().enumerate().filter_map(first).collect();
        while let Some(Reverse((instant, stream))) = queue.pop() {
            if instant > until || self.all.len() >= requests {
                return;
            }
            self.send(stream, instant);
            queue.extend(next(&self.pacers[stream], instant).map(|next| Reverse((next, stream))));
        }
    }

    /// An instant by which every stream has sent as many requests as its windows hold, from `start` on, and what
    /// came by `hint` is late.
    fn until_all_have_sent(&self, start: u64, hint: u64) -> u64 {
        let needed = |spec: &StreamSpec| {
            let windows = spec.constraints().as_slice().iter().map(|c| f64::from(c.window()));
            let rate = spec.arrivals()?.rate_per_s() / 1e9;
            Some((windows.fold(0.0, f64::max) / rate) as u64)
        };
        let longest = self.problem.streams.iter().filter_map(|(_, spec)| needed(spec)).max().unwrap_or(0);
        start.saturating_add(hint).saturating_add(self.problem.deadline.as_nanos()).saturating_add(longest)
    }
}

/// The time of the slowest full batch.
fn longest_batch(problem: &Problem) -> u64 {
    problem.workers.iter().map(|w| w.batch_time().as_nanos()).max().unwrap_or(1)
}

/// The requests in full batches on all workers.
fn round(problem: &Problem) -> u64 {
    problem.workers.iter().map(Workers::round).sum()
}

/// Whether the requests after the first `before` of a balanced word hold as many mandatory ones as any can.
fn before_most(density: Density, before: u64) -> bool {
    let (p, q) = (u64::from(density.numerator()), u64::from(density.denominator()));
    p == 0 || before % q * p % q == q - gcd(p, q)
        // Of density 1, all are.
        || p == q
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_core::BalancedWord;

    #[test]
    fn the_phase_is_the_one_that_holds_most() {
        for q in 1..12 {
            for p in 1..=q {
                let density = Density::new(p, q).expect("p ≤ q");
                let before = (0..u64::from(q)).find(|&before| before_most(density, before)).expect("a phase");
                let mut word = BalancedWord::new(density);
                (0..before).for_each(|_| _ = word.next_is_mandatory());
                let mut held = 0;
                for n in 1..40 {
                    held += u64::from(word.next_is_mandatory());
                    assert_eq!(held, density.ceil_of(n), "{p}/{q}, {n} after {before}");
                }
            }
        }
    }
}
