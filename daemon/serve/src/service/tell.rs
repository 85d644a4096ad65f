//! The way back: what the scheduler has decided is told to workers and clients, after its lock is released.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rt_core::{Alarm, Cause, Event, MissReason, Outcome, Resolution, Span, StreamState, Suspension};
use tracing::trace;
use weir_client::wire::{DaemonFrame, ResultHead};

use super::guarded::Held;
use super::slots::Origin;
use super::stage;
use super::{AlarmView, Effects, Named, REQUEST, Service};
use crate::announcement::Announcement;
use crate::cause::{culprit, describe};
use crate::out::Replies;

/// What a scheduler has decided and nobody has been told yet. As long as this is there, no service of its device is
/// drained.
#[must_use = "workers and clients wait for what was decided: `ring_and_tell`"]
pub(super) struct Decided<'a> {
    service: &'a Service,
}

impl<'a> Decided<'a> {
    /// To be made while the scheduler is locked, before anything is resolved.
    pub(super) fn under(service: &'a Service, _scheduler: &Held<'_>) -> Self {
        service.device.telling.fetch_add(1, Ordering::Relaxed);
        Self { service }
    }

    /// Tells workers, clients and whoever else hears of it. The scheduler must no longer be locked.
    pub(super) fn ring_and_tell(self, effects: &mut Effects) {
        let (own, Effects { resolutions, events, started, frame }) = (self.service, effects);
        started.iter().for_each(|&(_, worker)| own.device.mailboxes[worker].ring());
        for (service, resolution) in resolutions.iter() {
            own.on(*service, |of| {
                frame.clear();
                if let Some(replies) = of.answer(resolution, frame) {
                    replies.send(frame);
                }
            });
        }
        events.iter().for_each(|(service, event)| own.on(*service, |of| of.announce(event)));
    }
}

impl Drop for Decided<'_> {
    fn drop(&mut self) {
        self.service.device.telling.fetch_sub(1, Ordering::Release);
    }
}

impl Service {
    /// Encodes the answer to a resolved request and frees its slot.
    fn answer(&self, resolution: &Resolution, frame: &mut Vec<u8>) -> Option<Arc<dyn Replies>> {
        let Resolution { request, outcome, misses_left } = *resolution;
        let token = request.token;
        self.totals.count(outcome);
        if let Outcome::Missed(_) = outcome {
            self.by_class.missed(request.class);
        }
        match outcome {
            Outcome::Served => trace!(target: REQUEST, token, sequence = request.seq, misses_left, "result"),
            Outcome::Missed(reason) => {
                trace!(target: REQUEST, token, sequence = request.seq, misses_left, ?reason, "miss");
            }
        }
        {
            let mut slot = self.slots.get(token);
            if let (Some(reply), Outcome::Served) = (self.plan.reply(), outcome) {
                stage::assemble(reply, &mut slot);
            }
            let &Origin {
                frame: id,
                stream,
                output: ref place,
                tells_skipped,
                tells_late,
                unpromised,
                ref replies,
            } = slot.origin.as_ref()?;
            match outcome {
                Outcome::Served => {
                    let queued_ns = slot.started_ns.saturating_sub(request.arrival.as_nanos());
                    let (waited, ran) = (Span::from_nanos(queued_ns), Span::from_nanos(slot.run_ns));
                    let took = waited + ran;
                    self.meters.answered(waited, ran);
                    let late = self.count_answer(request.class, (took, slot.due), slot.variant);
                    let head = ResultHead {
                        stream,
                        misses_left,
                        sequence: request.seq,
                        queued_ns,
                        run_ns: slot.run_ns,
                        batch: slot.batch,
                        variant: slot.variant,
                        skipped: if tells_skipped { slot.skipped } else { 0 },
                        late: late && tells_late,
                    };
                    self.answered[usize::from(slot.variant)].fetch_add(1, Ordering::Relaxed);
                    let output = match place {
                        Some(place) => place.write(&slot.output),
                        None => slot.output.as_slice(),
                    };
                    DaemonFrame::Result { head, output }.encode(id, frame);
                }
                Outcome::Missed(reason) => {
                    if let Some(bytes) = unpromised.filter(|_| is_in_vain(reason)) {
                        replies.in_vain(bytes);
                    }
                    let (reason, sequence) = (wire_reason(reason), request.seq);
                    DaemonFrame::Miss { stream, misses_left, sequence, reason }.encode(id, frame);
                }
            }
        }
        // The count of requests without an answer goes down before the answer is sent: who waits for it may send anew.
        self.slots.put_back(token).map(|origin| Arc::clone(&origin.replies))
    }

    /// Counts an answer of a variant to a request of that class; whether it is late, and worth something all the same.
    fn count_answer(&self, number: u8, times: (Span, Span), variant: u16) -> bool {
        let Some(class) = self.plan.config.classes.get(usize::from(number)) else { return false };
        // What is too late by its own time, and was in time for the scheduler, was so by less than it takes to tell.
        let times = if class.decay.is_hard() { (times.0.min(times.1), times.1) } else { times };
        let model = self.plan.variants.get(usize::from(variant)).map_or(&self.plan.spec, |v| &v.spec);
        self.by_class.answered((class, number), times, class.worth(model))
    }

    /// Where that was seen, if at a stage or in another service of the device, whose batch is to blame; the device, if this one's is; the
    /// kinds of workers that lack some, if they are of several; or empty.
    fn place_of(&self, cause: Cause, window: u64) -> String {
        if cause == Cause::WorkerLost && !self.plan.kinds.is_empty() {
            return self.kinds_that_lack();
        }
        let stages = self.plan.stages();
        let at_stage =
            cause == Cause::FanOutExcess || (cause == Cause::ServiceOverrun && self.plan.pipeline.is_some());
        let place = match stages.get(window as usize).filter(|_| at_stage) {
            Some(stage) => Some(format!("stage {}", stage.config.runs.name)),
            None if self.plan.pipeline.is_some() => None,
            None => culprit(cause, window).and_then(|index| self.device.service(index)).map(|service| {
                match service.index == self.index {
                    true => format!("device {}", self.plan.device_name()),
                    false => format!("service {}", service.name()),
                }
            }),
        };
        place.unwrap_or_default()
    }

    /// The cause of an alarm and its evidence in words.
    pub fn words_of(&self, alarm: &AlarmView) -> String {
        let &AlarmView { cause, limit, seen, window, ref stream, .. } = alarm;
        self.told(cause, [limit, seen, window], stream)
    }

    /// A cause and its evidence in words: limit, seen and window, and the name of the stream or nothing.
    pub fn told(&self, cause: Cause, evidence: [u64; 3], stream: &str) -> String {
        describe(cause, evidence, stream, &self.place_of(cause, evidence[2]))
    }

    fn announce(&self, (event, named): &Named) {
        let stream = named.as_ref().map_or("", |view| view.name.as_str());
        let place = |alarm: Option<Alarm>| {
            alarm.map_or_else(String::new, |alarm| self.place_of(alarm.cause, alarm.evidence.window))
        };
        match *event {
            Event::SafeMode(transition) => {
                let place = place(transition.state.alarm);
                self.audience.announce(Announcement::of_service(self.name(), transition, stream, &place));
            }
            Event::Suspension(Suspension { sequence, state, alarm, breaches, .. }) => {
                let place = place(alarm);
                let names = (self.name(), stream, &*place);
                let instead = named.as_ref().map_or("", |view| view.promise(state));
                let state = (wire_state(state), instead);
                self.audience.announce(Announcement::of_stream(names, state, alarm, (sequence, breaches)));
            }
            Event::MissesLeft { left, constraint, .. } => {
                self.audience.misses_left(self.name(), stream, left, constraint);
            }
        }
    }
}

/// Whether a request that was missed for this was one too many, and not the daemon's own loss.
fn is_in_vain(reason: MissReason) -> bool {
    matches!(reason, MissReason::Expired | MissReason::Shed | MissReason::QueueFull)
}

/// How a stream stands, in the words of the protocol.
fn wire_state(state: StreamState) -> weir_client::StreamState {
    match state {
        StreamState::Normal => weir_client::StreamState::Normal,
        StreamState::Degraded(level) => weir_client::StreamState::of_level(level),
        StreamState::Suspended => weir_client::StreamState::Suspended,
    }
}

/// The scheduler's reasons have the numbers of the protocol.
pub fn wire_reason(reason: MissReason) -> weir_client::MissReason {
    weir_client::MissReason::from_code(u16::from(reason as u8))
}
