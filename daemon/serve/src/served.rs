//! What is served now, and whether anything more is taken in: what everything around the core looks at.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rt_core::Span;
use weir_os::clock;
use weir_os::locks::lock;
use weir_os::pi_mutex::PiMutex;

use crate::service::Service;

/// The services, which come, go and take over from one another while all of this lasts, and their threads.
pub struct Served {
    services: PiMutex<Vec<Arc<Service>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    draining: AtomicBool,
}

impl Served {
    /// Serves these, with these threads.
    pub fn new(services: Vec<Arc<Service>>, threads: Vec<JoinHandle<()>>) -> Self {
        let (services, threads) = (PiMutex::new(services), Mutex::new(threads));
        Self { services, threads, draining: AtomicBool::new(false) }
    }

    /// What is served now.
    pub fn services(&self) -> Vec<Arc<Service>> {
        self.services.lock().clone()
    }

    /// Serves what `change` leaves from now on.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Arc<Service>>)) {
        change(&mut self.services.lock());
    }

    /// Waits for these threads of services at the end, too.
    pub fn add_threads(&self, threads: Vec<JoinHandle<()>>) {
        let mut all = lock(&self.threads);
        all.retain(|thread| !thread.is_finished());
        all.extend(threads);
    }

    /// Refuses new requests from now on.
    pub fn refuse(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// New requests are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Set from then on.
    pub fn draining(&self) -> &AtomicBool {
        &self.draining
    }

    /// The longest deadline of a service.
    pub fn longest_deadline(&self) -> Span {
        self.services().iter().map(|service| service.plan.config.deadline).max().unwrap_or_default()
    }

    /// Takes nothing in any more, answers what can still be answered within the longest deadline, then stops the
    /// services.
    pub fn drain(&self) {
        let (services, until) = (self.services(), clock::now() + self.longest_deadline());
        services.iter().for_each(|service| service.close());
        while clock::now() < until && !services.iter().all(|service| service.is_drained()) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        services.iter().for_each(|service| service.stop());
    }

    /// Waits for the threads of the services, which have been stopped.
    pub fn join(&self) {
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A panic there has told its message; the others still end in order.
            let _ = thread.join();
        }
    }
}
