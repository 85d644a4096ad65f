//! Notifications: how promises stand goes out on every channel as it changes, and nobody who serves waits for it.

#[cfg(test)]
mod announced;
mod bus;
mod hook;
mod log;
mod metrics;
mod newest;
#[cfg(test)]
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;

use crate::overview::Overview;
use crate::socket::Hub;
use bus::Bus;
use hook::Hook;
use log::Log;
use metrics::Metrics;
use rt_core::Constraint;
use weir_plan::config::{Config, HookConfig};
use weir_serve::announcement::{Announcement, State, Subject};
use weir_serve::out::Audience;

/// Announcements that wait for a channel at most.
const ROOM: usize = 256;

/// All channels. Each has a bounded queue and a thread of its own, so that none is kept waiting by another, but for the
/// socket: its connections take a frame without waiting.
pub(crate) struct Notifications {
    pub(crate) hub: Arc<Hub>,
    log: Log,
    hook: Hook,
    bus: Option<Bus>,
    metrics: Option<Metrics>,
    /// Announcements that found no room in the queue of a channel, until the log tells.
    lost: Arc<AtomicU64>,
}

impl Notifications {
    /// Opens the channels of the configuration, and hands out the threads that [`Notifications::close`] ends.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn open(config: &Config) -> Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let lost = Arc::default();
        let log = Log::open(&lost)?;
        let (hook, hooking) = Hook::open(config.hook.clone())?;
        let bus = Bus::new(&config.daemon.bus);
        let metrics = config.daemon.metrics.clone().map(Metrics::new);
        let notifications = Self { hub: Arc::default(), log, hook, bus, metrics, lost };
        Ok((Arc::new(notifications), vec![hooking]))
    }

    /// Opens the channels through which one also looks in, once there is something to look at. [`Notifications::close`]
    /// ends these threads too.
    ///
    /// # Errors
    /// If a thread cannot be started, or an address not be bound.
    pub(crate) fn start(&self, overview: &Arc<Overview>) -> Result<Vec<JoinHandle<()>>> {
        let bus = self.bus.iter().map(|bus| bus.start(overview, &self.hub));
        let metrics = self.metrics.iter().map(|metrics| metrics.start(overview, &self.hub));
        bus.chain(metrics).collect()
    }

    /// Has another program run from now on, or none.
    pub(crate) fn set_hook(&self, config: Option<HookConfig>) {
        self.hook.set(config);
    }

    /// A service has gone: nothing of it stands any more, and another one of that name begins anew.
    pub(crate) fn forget(&self, service: &str) {
        self.hook.forget(service);
        self.log.forget(service);
    }

    /// Lets nothing more out; the threads end. That of the log is waited for.
    pub(crate) fn close(&self) {
        self.bus.iter().for_each(Bus::close);
        self.metrics.iter().for_each(Metrics::close);
        self.hook.close();
        self.log.close();
    }
}

impl Audience for Notifications {
    /// Tells it everywhere: what finds no room in a queue is counted, and told in the log.
    fn announce(&self, announcement: Announcement) {
        let announcement = Arc::new(announcement);
        self.hub.announce(&announcement);
        self.hook.put(&announcement);
        // The log comes last: it tells what was counted before it.
        if self.bus.as_ref().is_some_and(|bus| !bus.put(&announcement)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        if !self.log.put(&announcement) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn misses_left(&self, service: &str, stream: &str, left: u32, constraint: Constraint) {
        self.hub.announce_misses_left(service, stream, left, constraint);
    }

    /// Has the channels through which one looks in tell what is different, though there was nothing to announce.
    fn refresh(&self) {
        self.bus.iter().for_each(Bus::refresh);
    }
}

#[cfg(test)]
mod tests;
