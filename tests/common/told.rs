//! Beside a request's way: what a daemon tells of its promises, and what a busy machine excuses.

use std::fmt::Debug;
use std::time::Duration;

use weir_client::blocking::Client;
use weir_client::{Event, EventMask, SafeModeCause, SafeModeEvent, SafeModeState};

use super::{Daemon, PATIENCE};

/// What a machine does that stops a thread for as long as it likes.
const EXCUSES: [SafeModeCause; 3] =
    [SafeModeCause::ServiceOverrun, SafeModeCause::LateDispatch, SafeModeCause::WorkerLost];

/// Hears every change of safe mode from its creation on.
pub(crate) struct Listener {
    client: Client,
    changes: Vec<SafeModeEvent>,
}

impl Listener {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let mut client = daemon.client();
        client.subscribe(EventMask::SAFE_MODE).expect("subscribed");
        Self { client, changes: Vec::new() }
    }

    /// All that was told so far.
    pub(crate) fn changes(&mut self) -> &[SafeModeEvent] {
        // What comes before the answer is read with it.
        self.client.ping().expect("an answer");
        while self.hear(Duration::ZERO) {}
        &self.changes
    }

    /// All that was told, once there is something that `is_it`, and the service is back to normal after it.
    pub(crate) fn until_normal_after(&mut self, is_it: impl Fn(&SafeModeEvent) -> bool) -> &[SafeModeEvent] {
        loop {
            let after = self.changes.iter().position(&is_it).map(|at| &self.changes[at..]);
            if after.is_some_and(|after| after.iter().any(|change| change.state == SafeModeState::Normal)) {
                return &self.changes;
            }
            assert!(self.hear(PATIENCE), "nothing more is told: {:?}", self.changes);
        }
    }

    /// Whether it was told that the machine was not there when it was needed.
    pub(crate) fn excuses(&mut self, service: &str) -> bool {
        self.changes().iter().any(|change| excuses(change, service))
    }

    /// A promise of `service` was kept, or it is told why the machine may not have let it.
    pub(crate) fn kept_or_told(&mut self, service: &str, kept: bool, evidence: &dyn Debug) {
        while !kept && !self.excuses(service) {
            // An answer may come an instant before what is told of it.
            assert!(self.hear(PATIENCE), "not kept: {evidence:?}, and no excuse told: {:?}", self.changes);
        }
    }

    /// Waits for one more change; whether it came.
    fn hear(&mut self, patience: Duration) -> bool {
        match self.client.next_event_timeout(patience).expect("the connection stays") {
            Some(Event::SafeMode(change)) => self.changes.push(change),
            Some(other) => panic!("{other:?}"),
            None => return false,
        }
        true
    }
}

fn excuses(change: &SafeModeEvent, service: &str) -> bool {
    change.service == service && EXCUSES.contains(&change.cause)
}
