//! What the service manager is told: ready, reloading, stopping, and that the schedulers still move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rt_core::{Instant, Span};
use sd_notify::{NotifyState, notify};

use crate::served::Served;
use crate::service::Service;
use tracing::warn;
use weir_os::clock;
use weir_os::realtime::{self, Role};

/// What ending takes beyond the drain: batches that still run, and threads to be joined.
const STOP_MARGIN: Span = Span::from_millis(10_000);

/// Clients can connect, and after a reload: what was asked for is in force.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A reload begins; [`ready`] must follow, whether it succeeds or not.
pub fn reloading() {
    // The instant tells the manager which of several reloads this is; without it the reload counts as failed.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!("the service manager cannot be told of a reload: {error}"),
    }
}

/// What waits is answered within `drain` at most, then the daemon ends.
pub fn stopping(drain: Span) {
    let micros = (drain + STOP_MARGIN).as_nanos() / 1_000;
    // A deadline of an hour must not be cut short by the limit for stopping of the unit.
    let extend = NotifyState::ExtendTimeoutUsec(u32::try_from(micros).unwrap_or(u32::MAX));
    tell(&[NotifyState::Stopping, extend]);
}

/// One line for people, in the manager's status of the unit.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// Without a service manager this does nothing, and a deaf one is no reason to stop serving.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        warn!("the service manager cannot be told anything: {error}");
    }
}

/// Pings the manager as often as it wants while every scheduler moves: a ping says that the timer of each
/// service has polled its scheduler since the last one, not that this thread still runs.
pub struct Watchdog {
    thread: JoinHandle<()>,
    over: Arc<AtomicBool>,
}

impl Watchdog {
    /// Watches what is `served` if the manager asks for it (`WATCHDOG_USEC`), with real-time priority if `realtime`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(served: &Arc<Served>, realtime: bool) -> std::io::Result<Option<Self>> {
        let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
            return Ok(None);
        };
        let (served, over) = (Arc::clone(served), Arc::new(AtomicBool::new(false)));
        let run = {
            let over = Arc::clone(&over);
            move || {
                // Otherwise a processor full of real-time work would look like one that hangs.
                realtime::enter(Role::Dispatch, None, realtime);
                watch(&served, limit / 4, &over);
            }
        };
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(run)?;
        Ok(Some(Self { thread, over }))
    }

    /// Ends the watch.
    pub fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // A panic there has told its message.
        let _ = self.thread.join();
    }
}

fn watch(served: &Served, every: Duration, over: &AtomicBool) {
    let mut asked = ask(&served.services());
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(every);
        let services = served.services();
        let moved = have_moved(&services, asked);
        // Others may have come since; they are asked as well.
        let now = ask(&services);
        if moved {
            tell(&[NotifyState::Watchdog]);
            asked = now;
        }
    }
}

/// Has every timer poll its scheduler, although there may be nothing to do; the instant of it.
fn ask(services: &[Arc<Service>]) -> Instant {
    let now = clock::now();
    services.iter().for_each(|service| service.nudge());
    now
}

/// Whether every timer has polled its scheduler at an instant after `asked`; one that has been told to end has
/// no more to do.
fn have_moved(services: &[Arc<Service>], asked: Instant) -> bool {
    services.iter().all(|service| service.is_stopped() || service.polled() > asked)
}

#[cfg(test)]
mod tests;
