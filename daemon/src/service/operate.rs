//! What operators see of a service while it runs and do to it, whichever door they come through.

use std::sync::atomic::Ordering;

use rt_core::{Cause, Evidence, Instant, Span};
use serde_json::Value;

use super::{Core, Effects, Planning, Service};
use crate::clock;

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
    fn operate(&self, act: impl Fn(&mut Core, Instant)) {
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
        self.rate_window.map(|window| self.view().rate_per_s(clock::now(), window))
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
