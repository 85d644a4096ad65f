//! What operators see of a service while it runs and do to it, whichever way they come.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use rt_core::{Cause, Evidence, Instant, Span};
use weir_client::status;

use super::{Effects, Held, Planning, Service, StreamView};
use weir_os::clock;

impl Service {
    /// Suspends the promises until [`Service::clear_safe_mode`].
    pub fn enter_safe_mode(&self) {
        let for_good = Instant::from_nanos(u64::MAX);
        self.operate(|scheduler, now| {
            scheduler.raise_safe_mode(now, Cause::Operator, Evidence::default(), for_good);
        });
    }

    /// Ends safe mode as soon as it may end.
    pub fn clear_safe_mode(&self) {
        self.operate(|scheduler, now| scheduler.clear_safe_mode(now));
    }

    /// Announces no change of safe mode for this long from now on; the state, its counts and its effects go on.
    pub fn inhibit_safe_mode(&self, length: Span) {
        self.operate(|scheduler, now| scheduler.inhibit_safe_mode(now + length));
    }

    /// Does it to the scheduler that serves now, be it that of who has taken over just before.
    fn operate(&self, act: impl Fn(&mut Held<'_>, Instant)) {
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
    pub fn rate_seen_per_s(&self) -> Option<f64> {
        self.rate_window.map(|window| self.view().rate_per_s(clock::now(), window))
    }

    /// The names of the streams whose promises are suspended, in order.
    pub fn suspended_streams(&self) -> Vec<String> {
        if self.view().standing().suspensions.1 == 0 {
            return Vec::new();
        }
        let registry = self.registry.lock();
        let suspended = registry.iter().filter(|(view, ..)| view.fared().suspended.is_some());
        let mut names: Vec<_> = suspended.map(|(view, ..)| view.name.clone()).collect();
        drop(registry);
        names.sort();
        names
    }

    /// The streams of which a weaker promise than their own is in force, and its level, counted from 1.
    pub fn degraded_streams(&self) -> BTreeMap<String, u8> {
        let config = &self.plan.config;
        if config.degraded.is_empty() && config.reserved.iter().all(|stream| stream.spec.levels().is_empty())
        {
            return BTreeMap::new();
        }
        let registry = self.registry.lock();
        let degraded = |view: &StreamView| Some((view.name.clone(), view.fared().degraded?.0));
        registry.iter().filter_map(|(view, ..)| degraded(view)).collect()
    }

    /// Answers so far, by variant.
    pub fn answered(&self) -> impl Iterator<Item = u64> + '_ {
        self.answered.iter().map(|count| count.load(Ordering::Relaxed))
    }

    /// Of a pipeline: results so far of each stage, by variant.
    pub fn results(&self) -> impl Iterator<Item = impl Iterator<Item = u64> + '_> + '_ {
        self.results.iter().map(|stage| stage.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Of a pipeline, by stage: of how many results of those before it was looked what they become there, and how many requests that is.
    pub fn factors(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        self.factors.iter().map(|counts| counts.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// A result has become so many requests of that stage.
    pub(super) fn note_factor(&self, stage: usize, requests: usize) {
        let [results, all] = &self.factors[stage];
        results.fetch_add(1, Ordering::Relaxed);
        all.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// What is planned for the load that comes, if anything is.
    pub fn planning_status(&self) -> Option<status::Planning> {
        self.planning.as_ref().map(Planning::status)
    }

    /// How all requests have ended so far.
    pub fn totals(&self) -> &super::Totals {
        &self.totals
    }

    /// How long answers took and how large batches were.
    pub fn meters_status(&self) -> (status::Histogram, status::Histogram) {
        (self.meters.latency_status(), self.meters.batch_status())
    }

    /// From the arrivals of the answered to the starts of their batches, in nanoseconds and in all.
    pub fn waited_ns(&self) -> u64 {
        self.meters.waited_ns()
    }
}
