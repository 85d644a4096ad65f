//! The shield of a service while streams come and go: behind it batches may take longer, with a better variant.
//!
//! It counts the streams that are there and, as long as there is room, one at the promised rate. Who registers a
//! stream that it counts gets it at once. For any other a new shield is worked out; then long batches are held back
//! until none is in its way any more, at most for a deadline and the busy period that follows. A stream that leaves
//! stays counted until then: its shield protects the others all the same.

use std::sync::Arc;
use std::time::Duration;

use rt_core::{Shield, Span, StreamId, StreamSpec};
use weir_client::RefusalCode;

use super::registry::{Refusal, refuse};
use super::{Service, StreamView};
use crate::clock;
use crate::notice::notice;
use crate::realtime::calmly;

/// How often it is looked whether long batches are out of the way.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a stream waits for that at most, beside two deadlines.
const PATIENCE: Span = Span::from_millis(1_000);

impl Service {
    /// Sets the first shield, before anything runs.
    pub(super) fn raise_shield(&self) {
        if self.plan.selector.is_none() {
            return;
        }
        let reserved: Vec<_> = self.plan.config.reserved.iter().map(|s| &s.spec).collect();
        let shield = self.work_out_shield(&reserved);
        self.set_shield(&mut self.scheduler.lock(), shield);
    }

    /// Adds a stream that is admitted beside `others`, once no long batch is in its way, and in a closed service nothing
    /// that was begun for streams that have gone. Blocks until then.
    ///
    /// # Errors
    /// If there are too many streams, or something stays in its way.
    pub(super) fn add_stream(
        &self,
        spec: &StreamSpec,
        view: &Arc<StreamView>,
        others: &[StreamSpec],
    ) -> Result<StreamId, Refusal> {
        let too_many = |e: rt_core::StreamError| refuse(RefusalCode::TooManyStreams, e.to_string());
        {
            let mut scheduler = self.scheduler.lock();
            let waits = self.plan.selector.is_some() || !self.plan.config.background;
            if !waits || scheduler.counts_another(spec) && self.plan.config.background {
                return scheduler.add_stream(spec.clone(), view).map_err(too_many);
            }
        }
        let all: Vec<_> = others.iter().chain([spec]).collect();
        let shield = self.plan.selector.as_ref().and_then(|_| self.work_out_shield(&all));
        let deadline = self.plan.config.deadline;
        let most = deadline + deadline + PATIENCE;
        let until = clock::now() + most;
        let mut before = None;
        loop {
            {
                let mut scheduler = self.scheduler.lock();
                let now = clock::now();
                if scheduler.is_ready_for(now, shield.as_ref()) {
                    let added = scheduler.add_stream(spec.clone(), view).map_err(too_many);
                    // Without the stream the shield counts too much, which does no harm.
                    self.set_shield(&mut scheduler, shield);
                    return added;
                }
                before = before.or_else(|| scheduler.shield().cloned());
                if now >= until {
                    self.set_shield(&mut scheduler, before);
                    let text = format!(
                        "what was begun before is still in the way of this stream after {most}: try again"
                    );
                    return Err(refuse(RefusalCode::NotAdmissible, text));
                }
                self.set_shield(&mut scheduler, None);
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    pub(super) fn work_out_shield(&self, load: &[&StreamSpec]) -> Option<Shield> {
        calmly(|| self.plan.shield(load))
            .inspect_err(|e| notice!("service {}: base only: {e}", self.name()))
            .ok()
    }

    pub(super) fn set_shield(&self, scheduler: &mut rt_core::Scheduler, shield: Option<Shield>) {
        if let Err(error) = scheduler.set_shield(shield) {
            notice!("service {}: base only: {error}", self.name());
        }
    }
}
