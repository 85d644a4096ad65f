//! Services in groups, each of which has workers of its own and a policy on them.

use rt_core::{Instant, Span, StreamSpec, WorkerId};

use super::super::{End, Policy, Step};

/// Policies beside each other, of groups of services: all on the same number of workers.
pub(super) struct Parts<P> {
    parts: Vec<P>,
    /// Workers of each part.
    workers: usize,
    /// Of each stream, its part and its number there.
    streams: Vec<(usize, usize)>,
    /// Of each part, the streams in order.
    members: Vec<Vec<usize>>,
}

impl<P: Policy> Parts<P> {
    /// Of each of the `groups` what `part` makes of its number and its streams, each with the number of its service within the group.
    /// Every service of the `streams` is in a group.
    pub(super) fn new<E>(
        groups: &[Vec<usize>],
        streams: &[(usize, StreamSpec)],
        part: impl Fn(usize, Vec<(usize, StreamSpec)>) -> Result<P, E>,
    ) -> Result<Self, E> {
        let (mut members, mut own) = (vec![Vec::new(); groups.len()], vec![Vec::new(); groups.len()]);
        let mut places = Vec::new();
        for (index, (service, spec)) in streams.iter().enumerate() {
            let within = |group: &Vec<usize>| group.iter().position(|of| of == service);
            for (group, place) in groups.iter().enumerate().filter_map(|(g, of)| Some((g, within(of)?))) {
                places.push((group, own[group].len()));
                members[group].push(index);
                own[group].push((place, spec.clone()));
            }
        }
        let parts: Vec<_> =
            own.into_iter().enumerate().map(|(group, own)| part(group, own)).collect::<Result<_, _>>()?;
        Ok(Self { workers: parts.first().map_or(1, P::workers), parts, streams: places, members })
    }
}

impl<P: Policy> Policy for Parts<P> {
    fn workers(&self) -> usize {
        self.parts.len() * self.workers
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let (part, stream) = self.streams[stream];
        self.parts[part].arrive(now, stream, token)
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.parts[worker / self.workers].complete(now, worker % self.workers, time);
    }

    fn poll(&mut self, now: Instant) -> Step {
        let mut next = None::<Instant>;
        for (number, part) in self.parts.iter_mut().enumerate() {
            match part.poll(now) {
                Step::Start { worker } => return Step::Start { worker: number * self.workers + worker },
                Step::Suspension { stream, state, alarm } => {
                    return Step::Suspension { stream: self.members[number][stream], state, alarm };
                }
                Step::Wait { until } => next = next.into_iter().chain(until).min(),
                other => return other,
            }
        }
        Step::Wait { until: next }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.parts[worker / self.workers].batch(worker % self.workers)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        self.parts[worker / self.workers].bound(worker % self.workers)
    }
}
