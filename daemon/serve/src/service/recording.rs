//! Beside a request's way: a service and the recorder of its arrivals, which goes on with whoever takes over.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Result;
use rt_core::{Instant, Scheduler, StreamSpec, WorkerId};

use super::recorder::Recorder;
use super::{Lease, Service};
use weir_plan::problem;

impl Service {
    /// The file that arrivals are recorded in, if they are.
    pub fn recorded_in(&self) -> Option<&Path> {
        self.plan.config.record.as_ref().map(|record| &*record.path)
    }

    /// Creates the file, unless it is that of the service before, which goes on; hands out the thread that writes it.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn start_recorder(&self, before: Option<&Self>) -> Result<Option<JoinHandle<()>>> {
        let Some(record) = &self.plan.config.record else { return Ok(None) };
        if before.and_then(Self::recorded_in) == Some(&*record.path) {
            return Ok(None);
        }
        let (recorder, writer) = Recorder::start(self.name(), record)?;
        let _ = self.recorder.set(Arc::new(recorder));
        Ok(Some(writer))
    }

    /// Has `next`, which takes over now, go on with the same file, if that is its file.
    pub(super) fn pass_recorder_on(&self, next: &Self) {
        if let (Some(own), Some(record)) = (self.recorder.get(), &next.plan.config.record)
            && self.recorded_in() == Some(&*record.path)
        {
            own.set_limit(record.limit);
            let _ = next.recorder.set(Arc::clone(own));
        }
    }

    /// Ends the recording, unless whoever has taken over goes on with it.
    pub(super) fn stop_recorder(&self) {
        let passed_on = self.successor().and_then(|next| next.recorder.get());
        if let Some(own) = self.recorder.get()
            && passed_on.is_none_or(|other| !Arc::ptr_eq(own, other))
        {
            own.stop();
        }
    }

    /// Notes that a request has come, with its token, if the scheduler is to have one; to be called under the scheduler's
    /// lock, as the two below.
    pub(super) fn record(&self, now: Instant, lease: &Lease, token: Option<u64>) {
        if let Some(recorder) = self.recorder.get() {
            recorder.arrival(now, &lease.name, token);
        }
    }

    /// Notes that `worker` has been told to start its batch.
    pub(super) fn record_start(&self, now: Instant, scheduler: &Scheduler, worker: WorkerId) {
        if let Some(recorder) = self.recorder.get() {
            let (variant, batch) = (scheduler.variant(worker), scheduler.batch(worker));
            let length = self.plan.variants[variant].times.bound(batch.len());
            recorder.start_of(now, worker, length, batch.iter().map(|request| request.token));
        }
    }

    /// Notes that the batch of `worker` has ended.
    pub(super) fn record_end(&self, now: Instant, worker: WorkerId) {
        if let Some(recorder) = self.recorder.get() {
            recorder.end_of(now, worker);
        }
    }

    /// Notes what a client declared of a stream, if it did: no configuration tells.
    pub(super) fn record_declared(&self, name: &str, spec: &StreamSpec) {
        if let Some(recorder) = self.recorder.get().filter(|_| spec.arrivals().is_some()) {
            let written = serde_json::to_string(&problem::stream(name, spec));
            recorder.declared(name, written.unwrap_or_default());
        }
    }
}
