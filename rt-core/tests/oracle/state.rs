//! A state of an instance, in few bytes and in a normal form, so that equal situations are one state.

use super::theory::{density, is_mandatory};
use super::{Bound, Instance, Stream};

/// A short list; the places beyond its length are 0, so that equal lists are equal bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct List<const N: usize>
where
    [u8; N]: Default,
{
    items: [u8; N],
    len: u8,
}

impl<const N: usize> List<N>
where
    [u8; N]: Default,
{
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.items[..usize::from(self.len)]
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn push(&mut self, item: u8) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }

    /// Takes the first `count` away.
    pub(super) fn drop_front(&mut self, count: usize) {
        self.items.copy_within(count.., 0);
        self.items[N - count..].fill(0);
        self.len -= count as u8;
    }

    pub(super) fn each(&mut self, change: impl Fn(u8) -> u8) {
        self.items[..usize::from(self.len)].iter_mut().for_each(|item| *item = change(*item));
    }
}

/// What a bound remembers: a window the ages of the requests that came less than its length ago, oldest first, and
/// distances those less than the last distance ago.
/// Periodic, `a_k ≥ a_j + (k-j)·period - jitter` must hold for all `j < k`; one item, the largest
/// `a_j + (k-j)·period` from now, or none if all of them are past and no longer bind.
type Memory = List<6>;

pub(super) type Queue = List<12>;

/// A stream: how many requests came, modulo the period of its word, and what its bounds remember.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Record {
    memory: [Memory; 2],
    phase: u8,
}

impl Record {
    /// Whether the bounds of the stream allow a request now.
    pub(super) fn allows(&self, stream: &Stream) -> bool {
        let allows = |(bound, memory): (&Bound, &Memory)| match bound {
            Bound::Window { count, .. } => memory.len() < usize::from(*count),
            Bound::Periodic { jitter, .. } => memory.as_slice().first().is_none_or(|ahead| ahead <= jitter),
            Bound::Distances(list) => {
                memory.as_slice().iter().rev().zip(list).all(|(age, distance)| age >= distance)
            }
        };
        stream.bounds.iter().zip(&self.memory).all(allows)
    }

    /// A request comes: whether it is mandatory.
    pub(super) fn arrive(&mut self, stream: &Stream) -> bool {
        for (bound, memory) in stream.bounds.iter().zip(&mut self.memory) {
            match bound {
                Bound::Window { .. } | Bound::Distances(_) => memory.push(0),
                Bound::Periodic { period, .. } if memory.len() == 0 => memory.push(*period),
                Bound::Periodic { period, .. } => memory.each(|ahead| ahead + period),
            }
        }
        let word = density(&stream.constraints);
        let mandatory = is_mandatory(u64::from(self.phase) + 1, word);
        self.phase = (self.phase + 1) % word.1;
        mandatory
    }

    /// Time goes on by one.
    pub(super) fn tick(&mut self, stream: &Stream) {
        for (bound, memory) in stream.bounds.iter().zip(&mut self.memory) {
            let reach = match bound {
                Bound::Window { length, .. } => *length,
                Bound::Distances(list) => list[list.len() - 1],
                Bound::Periodic { .. } => {
                    memory.each(|ahead| ahead - 1);
                    let past = memory.as_slice().iter().filter(|&&ahead| ahead == 0).count();
                    memory.drop_front(past);
                    continue;
                }
            };
            memory.each(|age| age + 1);
            let past = memory.as_slice().iter().filter(|&&age| age >= reach).count();
            memory.drop_front(past);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    streams: [Record; 3],
    /// Time left to the deadlines of waiting requests, first come first.
    pub(super) mandatory: Queue,
    pub(super) optional: Queue,
    /// Time that each worker is still busy, group by group, sorted in each.
    pub(super) busy: [u8; 4],
    /// Ticks lost to stalls since no mandatory request waited.
    pub(super) lost: u8,
}

impl State {
    pub(super) fn may_arrive(&self, instance: &Instance, stream: usize) -> bool {
        self.streams[stream].allows(&instance.streams[stream])
    }

    /// A request of `stream` comes; with `background`, an optional one is forgotten.
    pub(super) fn arrive(&mut self, instance: &Instance, stream: usize, background: bool) {
        if self.streams[stream].arrive(&instance.streams[stream]) {
            self.mandatory.push(instance.latency);
        } else if !background {
            self.optional.push(instance.latency);
        }
        self.fold(instance);
    }

    /// Streams of equal declarations are interchangeable: their records go in order.
    fn fold(&mut self, instance: &Instance) {
        for i in 1..instance.streams.len() {
            for j in (1..=i).rev().filter(|&j| instance.streams[j] == instance.streams[j - 1]) {
                if self.streams[j] < self.streams[j - 1] {
                    self.streams.swap(j, j - 1);
                }
            }
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.mandatory.len() + self.optional.len()
    }

    /// Time left to the earliest deadline.
    pub(super) fn earliest(&self) -> Option<u8> {
        self.mandatory.as_slice().iter().chain(self.optional.as_slice()).min().copied()
    }

    /// The workers of `group`, as places in `busy`.
    fn places(instance: &Instance, group: usize) -> std::ops::Range<usize> {
        let first: usize = instance.groups[..group].iter().map(|g| g.count).sum();
        first..first + instance.groups[group].count
    }

    /// Whether a worker of `group` is free.
    pub(super) fn is_free(&self, instance: &Instance, group: usize) -> bool {
        self.busy[Self::places(instance, group).start] == 0
    }

    /// Fills a batch with up to `room` optional requests; returns how many. One that a batch of `bound` could
    /// not serve is given up.
    pub(super) fn fill(&mut self, room: usize, bound: u8) -> usize {
        let mut filled = 0;
        while filled < room && self.optional.len() > 0 {
            filled += usize::from(self.optional.as_slice()[0] >= bound);
            self.optional.drop_front(1);
        }
        filled
    }

    /// A free worker of `group` is busy for `time`.
    pub(super) fn occupy(&mut self, instance: &Instance, group: usize, time: u8) {
        let workers = &mut self.busy[Self::places(instance, group)];
        workers[0] = time;
        workers.sort_unstable();
    }

    /// A tick in which no worker gets on. `false` as for [`State::tick`].
    pub(super) fn stall(&mut self, instance: &Instance) -> bool {
        let busy = self.busy;
        let kept = self.tick(instance);
        (self.busy, self.lost) = (busy, self.lost + 1);
        kept
    }

    /// Where no mandatory request waits, what was lost before counts no more.
    pub(super) fn look_back(&mut self) {
        if self.mandatory.len() == 0 {
            self.lost = 0;
        }
    }

    /// `false` if a mandatory request is lost by waiting: even alone on the fastest worker it would be late.
    pub(super) fn tick(&mut self, instance: &Instance) -> bool {
        for (stream, record) in instance.streams.iter().zip(&mut self.streams) {
            record.tick(stream);
        }
        self.fold(instance);
        let least = instance.groups.iter().map(|g| g.times[0]).min().expect("a group");
        self.busy.iter_mut().for_each(|left| *left = left.saturating_sub(1));
        self.mandatory.each(|left| left - 1);
        self.optional.each(|left| left - 1);
        let expired = self.optional.as_slice().iter().filter(|&&left| left < least).count();
        self.optional.drop_front(expired);
        self.mandatory.as_slice().iter().all(|&left| left >= least)
    }
}
