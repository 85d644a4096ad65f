//! A slow judge of small instances, written from the definitions alone: can a mandatory request ever miss?
//!
//! Time goes in ticks. Within a tick an adversary lets requests arrive, as many as the bounds allow, and
//! lets free workers take due batches, in whatever order it likes; a tick ends only when no batch is due.
//! Every state that it can reach is visited once. Nothing of the crate under test is used here.

use std::collections::HashSet;

/// At most so many requests in any half-open interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// `count` in any interval of `length`.
    Window { count: u8, length: u8 },
    /// `ceil((Δ + jitter) / period)` in any interval of any length `Δ`.
    Periodic { period: u8, jitter: u8 },
    /// At least so long from a request to the next, the one after that, and so on; never decreasing.
    Distances(Vec<u8>),
}

/// Requests that keep to all of `bounds`; of any `K` in a row at most `m` may be missed, for each `(m, K)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) bounds: Vec<Bound>,
    pub(crate) constraints: Vec<(u8, u8)>,
}

/// How the rule dispatches, and how long batches take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// A batch is due when full or at the latest start of a waiting request; else whenever one waits.
    pub(crate) full_or_latest: bool,
    /// A batch of `b` takes exactly `P(b)`; else any time up to it.
    pub(crate) exact: bool,
}

/// A small system and its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) streams: Vec<Stream>,
    /// `P(1), P(2), …`, at least as far as `batch`.
    pub(crate) times: Vec<u8>,
    pub(crate) batch: usize,
    pub(crate) workers: usize,
    pub(crate) latency: u8,
}

/// One choice of the adversary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request of this stream arrives.
    Arrive(usize),
    /// A free worker takes what is due; the batch takes so long.
    Start(u8),
    /// Time goes on by one.
    Tick,
}

/// What an exhaustive search says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No mandatory request can ever miss its deadline; so many states were seen.
    Safe(usize),
    /// These steps make one miss.
    Miss(Vec<Step>),
    /// More states than the limit.
    TooLarge,
}

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

/// Theorem A, read off the page: the inequality at every offset up to `horizon`.
pub(crate) fn inequality_holds(instance: &Instance, horizon: u64) -> bool {
    let p = u64::from(instance.times[instance.batch - 1]);
    (0..horizon).all(|offset| {
        let mandatory = |s: &Stream| {
            let (served, of) = density(&s.constraints);
            (arrivals_within(s, offset + 1) * u64::from(served)).div_ceil(u64::from(of))
        };
        let demand: u64 = instance.streams.iter().map(mandatory).sum();
        let rounds = demand.div_ceil(instance.batch as u64).div_ceil(instance.workers as u64);
        demand == 0 || p * (1 + rounds) <= offset + u64::from(instance.latency)
    })
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// Of each bound of each stream, what it still remembers.
    memory: Vec<Vec<Memory>>,
    /// Of each stream, how many requests came, modulo the period of its word.
    phase: Vec<u8>,
    /// Time left to the deadlines of waiting requests, first come first.
    mandatory: Vec<u8>,
    optional: Vec<u8>,
    /// Time that each worker is still busy, sorted.
    busy: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Memory {
    /// Ages of the requests that came less than a window, or the last distance, ago.
    Ages(Vec<u8>),
    /// `a_k ≥ a_j + (k-j)·period - jitter` must hold for all `j < k`; this is the largest
    /// `a_j + (k-j)·period`, from now, or 0 if all of them are past and no longer bind.
    Ahead(u8),
}

impl State {
    fn new(instance: &Instance) -> Self {
        let fresh = |bound: &Bound| match bound {
            Bound::Window { .. } | Bound::Distances(_) => Memory::Ages(Vec::new()),
            Bound::Periodic { .. } => Memory::Ahead(0),
        };
        Self {
            memory: instance.streams.iter().map(|s| s.bounds.iter().map(fresh).collect()).collect(),
            phase: vec![0; instance.streams.len()],
            mandatory: Vec::new(),
            optional: Vec::new(),
            busy: vec![0; instance.workers],
        }
    }

    fn may_arrive(&self, instance: &Instance, stream: usize) -> bool {
        let allows = |(bound, memory): (&Bound, &Memory)| match (bound, memory) {
            (Bound::Window { count, .. }, Memory::Ages(ages)) => ages.len() < usize::from(*count),
            (Bound::Periodic { jitter, .. }, Memory::Ahead(ahead)) => ahead <= jitter,
            (Bound::Distances(list), Memory::Ages(ages)) => {
                ages.iter().rev().zip(list).all(|(age, distance)| age >= distance)
            }
            _ => unreachable!("memories are made from their bounds"),
        };
        instance.streams[stream].bounds.iter().zip(&self.memory[stream]).all(allows)
    }

    fn arrive(&mut self, instance: &Instance, stream: usize) {
        let declared = &instance.streams[stream];
        for (bound, memory) in declared.bounds.iter().zip(&mut self.memory[stream]) {
            match (bound, memory) {
                (_, Memory::Ages(ages)) => ages.push(0),
                (Bound::Periodic { period, .. }, Memory::Ahead(ahead)) => *ahead += period,
                _ => unreachable!("memories are made from their bounds"),
            }
        }
        let word = density(&declared.constraints);
        let queue = match is_mandatory(u64::from(self.phase[stream]) + 1, word) {
            true => &mut self.mandatory,
            false => &mut self.optional,
        };
        queue.push(instance.latency);
        self.phase[stream] = (self.phase[stream] + 1) % word.1;
    }

    fn batch_due(&self, instance: &Instance, mode: Mode) -> bool {
        let waiting = self.mandatory.len() + self.optional.len();
        let full_time = instance.times[instance.batch - 1];
        let latest = self.mandatory.iter().chain(&self.optional).any(|&left| left <= full_time);
        let due = if mode.full_or_latest { waiting >= instance.batch || latest } else { waiting > 0 };
        due && self.busy[0] == 0
    }

    /// Mandatory requests first, then optional ones; returns the batch's bound (0 if it came out empty),
    /// or `None` if a mandatory request cannot be served by it.
    fn start(&mut self, instance: &Instance) -> Option<u8> {
        let size = instance.batch.min(self.mandatory.len() + self.optional.len());
        let bound = instance.times[size - 1];
        let mut taken = 0;
        while taken < size && !self.mandatory.is_empty() {
            if self.mandatory.remove(0) < bound {
                return None;
            }
            taken += 1;
        }
        while taken < size && !self.optional.is_empty() {
            // One that this batch could no longer serve is given up.
            taken += usize::from(self.optional.remove(0) >= bound);
        }
        Some(if taken == 0 { 0 } else { instance.times[taken - 1] })
    }

    fn occupy(&mut self, time: u8) {
        self.busy[0] = time;
        self.busy.sort_unstable();
    }

    /// `false` if a mandatory request is lost by waiting.
    fn tick(&mut self, instance: &Instance) -> bool {
        for (stream, memories) in instance.streams.iter().zip(&mut self.memory) {
            for (bound, memory) in stream.bounds.iter().zip(memories) {
                match (bound, memory) {
                    (Bound::Window { length, .. }, Memory::Ages(ages)) => {
                        ages.iter_mut().for_each(|age| *age += 1);
                        ages.retain(|age| age < length);
                    }
                    (Bound::Distances(list), Memory::Ages(ages)) => {
                        ages.iter_mut().for_each(|age| *age += 1);
                        ages.retain(|age| age < &list[list.len() - 1]);
                    }
                    (_, Memory::Ahead(ahead)) => *ahead = ahead.saturating_sub(1),
                    _ => unreachable!("memories are made from their bounds"),
                }
            }
        }
        let least = instance.times[0];
        let pass = |left: &mut u8| *left -= 1;
        self.busy.iter_mut().for_each(|left| *left = left.saturating_sub(1));
        self.mandatory.iter_mut().for_each(pass);
        self.optional.iter_mut().for_each(pass);
        self.optional.retain(|&left| left >= least);
        self.mandatory.iter().all(|&left| left >= least)
    }
}

/// Visits every reachable state, at most `limit` of them.
pub(crate) fn judge(instance: &Instance, mode: Mode, limit: usize) -> Verdict {
    let mut seen = HashSet::new();
    // How each state on the stack was reached: the state before it, and the step.
    let mut origin: Vec<(usize, Step)> = vec![(0, Step::Tick)];
    let mut stack = vec![(State::new(instance), 0usize)];
    let trace = |origin: &[(usize, Step)], mut at: usize, last: Step| {
        let mut steps = vec![last];
        while at != 0 {
            steps.push(origin[at].1);
            at = origin[at].0;
        }
        steps.reverse();
        steps
    };
    if instance.latency < instance.times[0] {
        return Verdict::Miss(Vec::new());
    }
    seen.insert(stack[0].0.clone());
    while let Some((state, at)) = stack.pop() {
        let mut visit = |next: State, step: Step| {
            if !seen.contains(&next) {
                seen.insert(next.clone());
                origin.push((at, step));
                stack.push((next, origin.len() - 1));
            }
        };
        for stream in (0..instance.streams.len()).filter(|&s| state.may_arrive(instance, s)) {
            let mut next = state.clone();
            next.arrive(instance, stream);
            visit(next, Step::Arrive(stream));
        }
        if state.batch_due(instance, mode) {
            let mut next = state.clone();
            let Some(bound) = next.start(instance) else {
                return Verdict::Miss(trace(&origin, at, Step::Start(0)));
            };
            let least = if mode.exact { bound } else { bound.min(1) };
            for time in least..=bound {
                let mut next = next.clone();
                next.occupy(time);
                visit(next, Step::Start(time));
            }
        } else {
            let mut next = state.clone();
            if !next.tick(instance) {
                return Verdict::Miss(trace(&origin, at, Step::Tick));
            }
            visit(next, Step::Tick);
        }
        if seen.len() > limit {
            return Verdict::TooLarge;
        }
    }
    Verdict::Safe(seen.len())
}
