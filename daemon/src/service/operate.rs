//! What operators see of a service while it runs and do to it, whichever door they come through.

use std::sync::atomic::Ordering;

use rt_core::{Cause, Evidence, Instant, Scheduler, Span, StreamId};
use serde_json::Value;

use super::{Effects, Planning, Service, lock};

impl Service {
    /// Suspends the promises until [`Service::clear_safe_mode`].
    pub(crate) fn enter_safe_mode(&self) {
        let for_good = Instant::from_nanos(u64::MAX);
        self.operate(|scheduler, now| {
            scheduler.raise_safe_mode(now, Cause::Operator, Evidence::default(), for_good);
        });
    }

    /// Ends safe mode as soon as it may end.
    pub(crate) fn clear_safe_mode(&self) {
        self.operate(|scheduler, now| scheduler.clear_safe_mode(now));
    }

    /// Announces no change of safe mode for this long from now on; the state, its counts and its effects go on.
    pub(crate) fn inhibit_safe_mode(&self, length: Span) {
        self.operate(|scheduler, now| scheduler.inhibit_safe_mode(now + length));
    }

    /// Does it to the scheduler that serves now, be it that of who has taken over just before.
    fn operate(&self, act: impl Fn(&mut Scheduler, Instant)) {
        let mut service = self;
        loop {
            let mut retired = false;
            service.with_scheduler(&mut Effects::default(), |scheduler, now| {
                retired = service.successor().is_some();
                if !retired {
                    act(scheduler, now);
                }
            });
            if !retired {
                return;
            }
            service = service.latest();
        }
    }

    /// Requests a second of streams that declare their arrivals, over the window of the rate warning; `None` where
    /// nothing is certified that they could exceed.
    pub(crate) fn rate_seen_per_s(&self) -> Option<f64> {
        let mut rate = None;
        self.with_scheduler(&mut Effects::default(), |scheduler, now| rate = scheduler.rate_seen_per_s(now));
        rate
    }

    /// Of each worker, whether it is there and not lost.
    pub(crate) fn alive(&self) -> Vec<bool> {
        self.look(|scheduler| (0..self.plan.workers().count).map(|id| scheduler.is_alive(id)).collect())
    }

    /// The names of the streams whose promises are suspended, in order.
    pub(crate) fn suspended_streams(&self) -> Vec<String> {
        if self.look(|scheduler| scheduler.suspensions().1) == 0 {
            return Vec::new();
        }
        let names = lock(&self.names);
        let is_suspended = |id| self.look(|scheduler| scheduler.suspension(id)).is_some();
        let mut suspended: Vec<_> =
            names.iter().filter(|&(id, _)| is_suspended(id)).map(|(_, name)| name.to_owned()).collect();
        drop(names);
        suspended.sort();
        suspended
    }

    /// The streams that safe mode is about.
    pub(super) fn streams_in_evidence(&self) -> Vec<StreamId> {
        self.look(|scheduler| scheduler.safe_mode().streams().collect())
    }

    /// Lets go of the name of a stream that has gone, unless safe mode is about it.
    pub(super) fn forget_name(&self, id: StreamId) {
        let evidence = self.streams_in_evidence();
        lock(&self.names).remove(id, &evidence);
    }

    /// Answers so far, by variant.
    pub(crate) fn answered(&self) -> impl Iterator<Item = u64> + '_ {
        self.answered.iter().map(|count| count.load(Ordering::Relaxed))
    }

    /// What is planned for the load that comes, as JSON; `null` if nothing is.
    pub(crate) fn planning_status(&self) -> Value {
        self.planning.as_ref().map(Planning::status).unwrap_or_default()
    }

    /// How long answers took and how large batches were, as JSON.
    pub(crate) fn meters_status(&self) -> (Value, Value) {
        (self.meters.latency_status(), self.meters.batch_status())
    }
}
