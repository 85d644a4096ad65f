//! How a service ends: closed to requests, drained of those it has, and stopped.

use std::sync::atomic::Ordering;

use super::Service;
use weir_os::locks::write;

impl Service {
    /// Takes nothing in from now on; what waits and runs is still answered.
    pub fn close(&self) {
        let _scheduler = self.scheduler();
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Closes the service and ends its threads, unless clients hold streams: then it goes on.
    ///
    /// # Errors
    /// The names of these streams.
    pub fn stop_unless_held(&self) -> Result<(), Vec<String>> {
        let _alone = write(&self.moving);
        let held = self.registry.lock().held();
        if !held.is_empty() {
            return Err(held);
        }
        self.stop();
        Ok(())
    }

    /// Nothing waits, nothing runs, and all answers have been handed to their connections: for good, if the service
    /// is closed.
    pub fn is_drained(&self) -> bool {
        // In this order: who is telling the last one was counted before it was resolved.
        self.view().open() == 0 && self.device.is_silent()
    }

    /// Closes the service and, unless others go on with them, ends all threads; what still runs is finished first.
    pub fn stop(&self) {
        self.close();
        self.stopped.store(true, Ordering::Relaxed);
        if self.device.services().all(|service| service.is_stopped()) {
            self.device.stop();
            self.stop_recorder();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
