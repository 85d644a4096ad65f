//! The schedulers of several services on the same workers as a policy.

use rt_core::sharing::{Device, DeviceAction};
use rt_core::{Arrival, Event, Instant, Ran, Span, StreamId, Suspension, WorkerId};

use crate::policy::{End, Policy, Step};
use crate::scheduled::end;

/// A device and the streams of its services. Every batch is run as it says, and none fails.
#[derive(Debug)]
pub struct OnDevice {
    device: Device,
    streams: Vec<(usize, StreamId)>,
    /// Of each service what batches of 1, 2, … take, where that is not what is counted on.
    times: Vec<Option<Vec<Span>>>,
}

impl OnDevice {
    /// `device`, to which nothing has come yet, with its `streams`, each of a service, in the order in which arrivals name
    /// them.
    #[must_use]
    pub fn new(device: Device, streams: Vec<(usize, StreamId)>) -> Self {
        Self { device, streams, times: Vec::new() }
    }

    /// The same where batches of 1, 2, … of some services take so long, and not what is counted on.
    #[must_use]
    pub fn taking(self, times: Vec<Option<Vec<Span>>>) -> Self {
        Self { times, ..self }
    }
}

impl Policy for OnDevice {
    fn workers(&self) -> usize {
        self.device.service(0).config().worker_count()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let (service, stream) = self.streams[stream];
        self.device.handle_arrival(now, service, Arrival::new(stream, token, now)).map(end)
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.device.handle_completion(now, worker, Ran::Done(time));
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            return match self.device.poll(now) {
                DeviceAction::Start { worker, .. } => Step::Start { worker },
                DeviceAction::Resolve(_, resolution) => Step::End(end(resolution)),
                DeviceAction::Event(_, Event::SafeMode(transition)) => Step::SafeMode(transition),
                DeviceAction::Event(service, Event::Suspension(Suspension { stream, state, alarm, .. })) => {
                    match self.streams.iter().position(|&known| known == (service, stream)) {
                        Some(stream) => Step::Suspension { stream, state, alarm },
                        None => continue,
                    }
                }
                DeviceAction::Event(_, Event::MissesLeft { .. }) => continue,
                DeviceAction::WakeAt(until) => Step::Wait { until },
            };
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        let batch = self.device.owner(worker).map_or(&[][..], |s| self.device.service(s).batch(worker));
        batch.iter().map(|request| request.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let of = |service: usize| {
            let scheduler = self.device.service(service);
            let kind = scheduler.config().worker(worker)?;
            let size = scheduler.batch(worker).len();
            let takes = self.times.get(service).and_then(|times| times.as_ref()?.get(size.wrapping_sub(1)));
            Some(takes.copied().unwrap_or(kind.profile.bound(size)))
        };
        self.device.owner(worker).and_then(of).unwrap_or(Span::ZERO)
    }
}
