//! Beside a request's way: the recorder of what comes to the services of a device, or to one by itself, which goes on with whoever
//! takes over.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Result;
use rt_core::{Instant, Scheduler, StreamSpec, WorkerId};

use super::recorder::{Recorder, Ticket};
use super::slots::{self, NOBODY};
use super::staged::{Found, Staged};
use super::{Lease, Service};
use weir_plan::problem;

impl Service {
    /// The file that arrivals are recorded in, if they are: one for all services of a device.
    pub fn recorded_in(&self) -> Option<&Path> {
        self.plan.config.record.as_ref().map(|record| &*record.path)
    }

    /// Creates the file for all on its device, unless it is that of those before, one of which is `before`: that goes on. Hands
    /// out the thread that writes it.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn start_recorder(&self, before: Option<&Self>) -> Result<Option<JoinHandle<()>>> {
        let Some(record) = &self.plan.config.record else { return Ok(None) };
        if before.and_then(Self::recorded_in) == Some(&*record.path) {
            return Ok(None);
        }
        let kind = if self.plan.shared.is_some() { "device" } else { "service" };
        let (recorder, writer) = Recorder::start((kind, self.plan.device_name()), record)?;
        let _ = self.device.recorder.set(Arc::new(recorder));
        Ok(Some(writer))
    }

    /// Has the device of `next`, which takes over now from that of this one, go on with the same file, if that is its file.
    pub(super) fn pass_recorder_on(&self, next: &Self) {
        if let (Some(own), Some(record)) = (self.device.recorder.get(), &next.plan.config.record)
            && self.recorded_in() == Some(&*record.path)
        {
            own.set_limit(record.limit);
            let _ = next.device.recorder.set(Arc::clone(own));
        }
    }

    /// Ends the recording of its device, all services of which have ended, unless who has taken over goes on with it.
    pub(super) fn stop_recorder(&self) {
        let goes_on = |own: &Arc<Recorder>| {
            let other =
                |next: &Arc<Self>| next.device.recorder.get().is_some_and(|one| Arc::ptr_eq(own, one));
            self.device.services().any(|service| service.successor().is_some_and(other))
        };
        if let Some(own) = self.device.recorder.get().filter(|own| !goes_on(own)) {
            own.stop();
        }
    }

    /// How a stream is called in a recording.
    pub(super) fn recorded_as(&self, stream: &str) -> Arc<str> {
        match self.plan.shared {
            Some(_) => format!("{}/{stream}", self.name()).into(),
            None => stream.into(),
        }
    }

    /// Notes that a request of that class has come, with its token, if the scheduler is to have one; to be called under the scheduler's
    /// lock, as the two below.
    pub(super) fn record(&self, now: Instant, (lease, class): (&Lease, u8), token: Option<u64>) {
        if let Some(recorder) = self.device.recorder.get() {
            recorder.arrival(
                now,
                (&lease.recorded, self.by_class.name(class)),
                token.map(|token| self.ticket(token)),
            );
        }
    }

    /// The slot of a request, which is used again once it is answered: the recorder keeps something of each.
    fn ticket(&self, token: u64) -> Ticket {
        (self.index, slots::place(token) as u64)
    }

    /// Notes that `worker` has been told to start its batch.
    pub(super) fn record_start(&self, now: Instant, scheduler: &Scheduler, worker: WorkerId) {
        if let Some(recorder) = self.device.recorder.get() {
            let (variant, batch) = (scheduler.variant(worker), scheduler.batch(worker));
            let length = self.plan.on_worker(worker).0.variants[variant].times.bound(batch.len());
            let tickets = batch.iter().map(|request| self.ticket(request.token));
            recorder.start_of(now, (None, worker), length, tickets);
        }
    }

    /// The same of a worker of a pipeline.
    pub(super) fn record_start_of_stage(&self, now: Instant, staged: &Staged, worker: WorkerId) {
        if let (Some(recorder), Some(pipeline)) = (self.device.recorder.get(), &self.plan.pipeline) {
            let (stage, own) = staged.place_of(worker);
            let parts = staged.batch(worker).filter(|part| part.token != NOBODY);
            let times = &pipeline.stages[stage].runs.variants[staged.variant(worker)].times;
            let length = times.bound(parts.clone().count());
            let place = (Some(Arc::clone(staged.name_of(stage))), own);
            recorder.start_of(now, place, length, parts.map(|part| self.ticket(part.token)));
        }
    }

    /// Notes that the batch of `worker` has ended.
    pub(super) fn record_end(&self, now: Instant, worker: WorkerId) {
        if let Some(recorder) = self.device.recorder.get() {
            recorder.end_of(now, (None, worker));
        }
    }

    /// Notes what the results of a batch of a pipeline that is about to end become, as they were found, before its scheduler hears of
    /// it.
    pub(super) fn record_results(&self, staged: &Staged, worker: WorkerId, found: &Found) {
        if let Some(recorder) = self.device.recorder.get() {
            let alive = staged.batch(worker).enumerate().filter(|(_, part)| part.token != NOBODY);
            let became = alive.flat_map(|(result, part)| {
                found.counts(result).map(move |(child, count)| (part.token, child, count))
            });
            recorder.became(became.map(|(token, child, count)| self.became(staged, token, child, count)));
        }
    }

    /// Notes that it has ended, and which sources joins have taken with it; once its scheduler has heard of it.
    pub(super) fn record_end_of_stage(&self, now: Instant, staged: &Staged, worker: WorkerId) {
        if let Some(recorder) = self.device.recorder.get() {
            let (stage, own) = staged.place_of(worker);
            let joined = staged.joined().map(|(token, child)| self.became(staged, token, child, 1));
            recorder.became(joined);
            recorder.end_of(now, (Some(Arc::clone(staged.name_of(stage))), own));
        }
    }

    fn became(&self, staged: &Staged, token: u64, child: usize, count: u32) -> (Ticket, Arc<str>, u32) {
        (self.ticket(token), Arc::clone(staged.name_of(child)), count)
    }

    /// Notes what a client declared of a stream, if it did: no configuration tells.
    pub(super) fn record_declared(&self, name: &str, spec: &StreamSpec) {
        if let Some(recorder) = self.device.recorder.get().filter(|_| spec.arrivals().is_some()) {
            let written = serde_json::to_string(&problem::stream(&self.recorded_as(name), spec));
            recorder.declared(name, written.unwrap_or_default());
        }
    }
}
