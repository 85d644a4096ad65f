//! The search: every state that the adversary can reach, until one is found from which a request misses.

use super::seen::Seen;
use super::state::State;
use super::{Group, Instance, Mode, Step, Verdict};

/// What a choice of a slow action may depend on.
pub(crate) struct View<'a> {
    /// Time that each of the other workers is still busy.
    pub(crate) others: &'a [u8],
    /// Time left to the deadlines of the mandatory requests that the action leaves waiting, in order.
    pub(crate) left: &'a [u8],
    /// How long the action takes, more than `P`.
    pub(crate) length: u8,
}

/// Actions slower than a full batch: on a free worker, at any instant, with any number of the mandatory
/// requests up to `B` that all end in time, if `allowed` says so.
#[derive(Clone, Copy)]
pub(crate) struct Slow<'a> {
    pub(crate) longest: u8,
    pub(crate) allowed: &'a dyn Fn(&View) -> bool,
}

/// A search, to be run on an instance.
#[derive(Clone, Copy)]
pub(crate) struct Judge<'a> {
    pub(crate) mode: Mode,
    /// The most states to look at.
    pub(crate) limit: usize,
    /// Slow actions, on identical workers only.
    pub(crate) slow: Option<Slow<'a>>,
    /// For so many ticks, from an instant at which no mandatory request waits to the next, nothing need go on.
    pub(crate) stall: u8,
    /// Finds a shortest way to a miss, if it may look at so many states.
    pub(crate) shortest: bool,
}

/// Where a step leads; `None` if a mandatory request misses.
type Next = (Step, Option<State>);

impl<'a> Judge<'a> {
    pub(crate) fn new(mode: Mode, limit: usize) -> Self {
        Self { mode, limit, slow: None, stall: 0, shortest: false }
    }

    /// Visits every reachable state.
    pub(crate) fn run(&self, instance: &Instance) -> Verdict {
        let mut seen = Seen::<State, Step>::new(Step::Tick);
        let (mut open, mut next) = (vec![0u32], Vec::new());
        let mut first = 0;
        if instance.groups.iter().all(|g| instance.latency < g.times[0]) {
            return Verdict::Miss(Vec::new());
        }
        loop {
            let at = if self.shortest { open.get(first).copied() } else { open.pop() };
            let Some(at) = at else { return Verdict::Safe(seen.states.len()) };
            first += 1;
            let state = seen.states[at as usize].0;
            self.steps(instance, &state, &mut next);
            for (step, state) in next.drain(..) {
                match state {
                    None => return Verdict::Miss(seen.trace(at, step)),
                    Some(state) => open.extend(seen.insert(state, at, step)),
                }
            }
            if seen.states.len() > self.limit {
                return Verdict::TooLarge;
            }
        }
    }

    /// The last step is gone first: arrivals, for bursts are what makes requests miss.
    fn steps(&self, instance: &Instance, state: &State, next: &mut Vec<Next>) {
        let groups = || instance.groups.iter().enumerate().filter(|(g, _)| state.is_free(instance, *g));
        let latest = instance.groups.iter().map(Group::full).max();
        let latest = state.earliest().is_some_and(|left| Some(left) <= latest.map(|full| full + self.stall));
        let due = |threshold: Option<usize>| match (self.mode.full_or_latest, threshold) {
            (_, None) => false,
            (true, Some(threshold)) => latest || state.waiting() >= threshold,
            (false, _) => state.waiting() > 0,
        };
        if !due(groups().map(|(_, g)| g.batch).max()) {
            let mut other = *state;
            let kept = other.tick(instance);
            other.look_back();
            next.push((Step::Tick, kept.then_some(other)));
        }
        if state.lost < self.stall {
            let mut other = *state;
            let kept = other.stall(instance);
            other.look_back();
            next.push((Step::Stall, kept.then_some(other)));
        }
        let may = due(groups().map(|(_, g)| g.batch).min());
        for (index, group) in groups() {
            if self.mode.background {
                self.start_filled(instance, state, (index, group), next);
            } else if may {
                self.start(instance, state, (index, group), next);
            }
            if let Some(slow) = self.slow {
                self.start_slow(instance, state, slow, next);
            }
        }
        for stream in (0..instance.streams.len()).filter(|&s| state.may_arrive(instance, s)) {
            let mut other = *state;
            other.arrive(instance, stream, self.mode.background);
            next.push((Step::Arrive(stream), Some(other)));
        }
    }

    /// The largest batch that a worker of `group` may take.
    fn largest(&self, state: &State, group: &Group) -> usize {
        match state.mandatory.as_slice().first() {
            Some(&left) if self.mode.shrink => {
                group.times[..group.batch].iter().filter(|&&time| time <= left).count().max(1)
            }
            _ => group.batch,
        }
    }

    /// A batch of what waits.
    fn start(
        &self,
        instance: &Instance,
        state: &State,
        (index, group): (usize, &Group),
        next: &mut Vec<Next>,
    ) {
        let size = self.largest(state, group).min(state.waiting());
        let bound = group.times[size - 1];
        let mandatory = size.min(state.mandatory.len());
        let mut other = *state;
        let taken = mandatory + other.fill(size - mandatory, bound);
        let time = if taken == 0 { 0 } else { group.times[taken - 1] };
        let least = if self.mode.exact { time } else { time.min(1) };
        self.take(instance, &other, (index, mandatory, bound), least..=time, next);
    }

    /// A batch filled with any number of requests that nobody announced. If it may take any time, full ones
    /// are enough: a smaller one does nothing that a full one cannot.
    fn start_filled(
        &self,
        instance: &Instance,
        state: &State,
        (index, group): (usize, &Group),
        next: &mut Vec<Next>,
    ) {
        let largest = self.largest(state, group);
        let mandatory = largest.min(state.mandatory.len());
        let full = group.times[largest - 1];
        if !self.mode.exact {
            return self.take(instance, state, (index, mandatory, full), 1..=full, next);
        }
        let mut times = group.times[mandatory.max(1) - 1..largest].to_vec();
        times.dedup();
        for time in times {
            self.take(instance, state, (index, mandatory, time), time..=time, next);
        }
    }

    fn start_slow(&self, instance: &Instance, state: &State, slow: Slow, next: &mut Vec<Next>) {
        let [group] = &instance.groups[..] else { panic!("slow actions need identical workers") };
        let most = group.batch.min(state.mandatory.len());
        let others = &state.busy[1..group.count];
        for mandatory in 0..=most {
            let mut rest = *state;
            rest.mandatory.drop_front(mandatory);
            if mandatory == 0 && state.optional.len() == 0 && !self.mode.background {
                continue;
            }
            for length in group.full() + 1..=slow.longest {
                // Deadlines are in order: if the first of the batch meets its own, they all do.
                let late = mandatory > 0 && state.mandatory.as_slice()[0] < length;
                let view = View { others, left: rest.mandatory.as_slice(), length };
                if late || !(slow.allowed)(&view) {
                    break;
                }
                let mut other = rest;
                if other.fill(group.batch - mandatory, length) + mandatory == 0 && !self.mode.background {
                    continue;
                }
                other.occupy(instance, 0, length);
                next.push((Step::Start { group: 0, mandatory, time: length }, Some(other)));
            }
        }
    }

    /// Takes the first `mandatory` requests of `state` into a batch of at most `bound` that takes one of `times`.
    fn take(
        &self,
        instance: &Instance,
        state: &State,
        (group, mandatory, bound): (usize, usize, u8),
        times: std::ops::RangeInclusive<u8>,
        next: &mut Vec<Next>,
    ) {
        // The batch itself may lose all that may yet be lost.
        let bound = bound + self.stall - state.lost;
        let late = state.mandatory.as_slice()[..mandatory].iter().any(|&left| left < bound);
        let mut other = *state;
        other.mandatory.drop_front(mandatory);
        other.look_back();
        for time in times {
            let mut other = other;
            other.occupy(instance, group, time);
            let step = Step::Start { group, mandatory, time };
            next.push((step, (!late).then_some(other)));
        }
    }
}
