//! What a daemon tells of its promises, and what a busy machine excuses.

use std::fmt::Debug;
use std::time::Duration;

use weir_client::blocking::Client;
use weir_client::{Event, EventMask, SafeModeCause, SafeModeEvent, StreamState, SuspensionEvent};

use super::{Daemon, PATIENCE, not_checked, now};

/// What a machine does that stops a thread for as long as it likes.
const EXCUSES: [SafeModeCause; 3] =
    [SafeModeCause::ServiceOverrun, SafeModeCause::LateDispatch, SafeModeCause::WorkerLost];

/// Hears every change of safe mode and every suspension from its creation on.
pub(crate) struct Listener {
    client: Client,
    changes: Vec<SafeModeEvent>,
    suspensions: Vec<SuspensionEvent>,
    /// Events that did not reach it: who hears nothing for long has no room for all.
    lost: u64,
}

impl Listener {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let mut client = daemon.client();
        client.subscribe(EventMask::CHANGES).expect("subscribed");
        Self { client, changes: Vec::new(), suspensions: Vec::new(), lost: 0 }
    }

    /// Hears what is told for so long.
    pub(crate) fn listen_for(&mut self, length: Duration) {
        let began = now();
        while let Some(left) = length.checked_sub(began.elapsed()) {
            self.hear(left);
        }
    }

    /// How many events did not reach it.
    pub(crate) fn lost(&mut self) -> u64 {
        self.listen();
        self.lost
    }

    /// The changes of safe mode that were told so far.
    pub(crate) fn changes(&mut self) -> &[SafeModeEvent] {
        self.listen();
        &self.changes
    }

    /// The suspensions and their ends that were told so far.
    pub(crate) fn suspensions(&mut self) -> &[SuspensionEvent] {
        self.listen();
        &self.suspensions
    }

    /// All suspensions and their ends, once the suspension of `stream` has ended so many times.
    pub(crate) fn until_promised_anew(&mut self, stream: &str, times: usize) -> &[SuspensionEvent] {
        let ended = |told: &&SuspensionEvent| told.stream == stream && !told.state.is_suspended();
        while self.suspensions.iter().filter(ended).count() < times {
            assert!(self.hear(PATIENCE), "nothing more is told: {:?}", self.suspensions);
        }
        &self.suspensions
    }

    /// The first time that `stream` is told to stand so.
    pub(crate) fn until_it_stands(&mut self, stream: &str, state: StreamState) -> SuspensionEvent {
        loop {
            let stands = |told: &&SuspensionEvent| told.stream == stream && told.state == state;
            if let Some(told) = self.suspensions.iter().find(stands) {
                return told.clone();
            }
            assert!(self.hear(PATIENCE), "nothing more is told: {:?}", self.suspensions);
        }
    }

    fn listen(&mut self) {
        // What comes before the answer is read with it.
        self.client.ping().expect("an answer");
        while self.hear(Duration::ZERO) {}
    }

    /// How often it was told that the machine was not there when it was needed.
    pub(crate) fn excuses(&mut self, service: &str) -> usize {
        self.listen();
        self.excused(service).count()
    }

    /// Why the machine was not there, of the service or of a stream of it that was read too late.
    fn excused(&self, service: &str) -> impl Iterator<Item = SafeModeCause> {
        let changes = self.changes.iter().filter(move |c| c.service == service).map(|c| c.cause);
        let suspensions = self.suspensions.iter().filter(move |s| s.service == service).map(|s| s.cause);
        changes.chain(suspensions).filter(|cause| EXCUSES.contains(cause))
    }

    /// A promise of `service` was kept, or it is told why the machine may not have let it: then nothing has been shown
    /// of the promise, and the end of `make test` says so.
    pub(crate) fn kept_or_told(&mut self, service: &str, kept: bool, evidence: &dyn Debug) {
        if kept {
            return;
        }
        while self.excuses(service) == 0 {
            // An answer may come an instant before what is told of it.
            let heard = self.hear(PATIENCE);
            let told = (&self.changes, &self.suspensions, self.lost);
            assert!(heard, "not kept: {evidence:?}, and no excuse told: {told:?}");
        }
        let cause = self.excused(service).next().expect("it was told").to_string();
        let test = std::thread::current().name().unwrap_or("a thread of a test").to_owned();
        not_checked(&format!("{test}: not kept, after {cause} of {service} had been announced"));
    }

    /// Waits for one more event; whether it came.
    fn hear(&mut self, patience: Duration) -> bool {
        match self.client.next_event_timeout(patience).expect("the connection stays") {
            Some(Event::SafeMode(change)) => self.changes.push(change),
            Some(Event::Suspension(suspension)) => self.suspensions.push(suspension),
            Some(Event::Lost { count }) => self.lost += count,
            Some(other) => panic!("{other:?}"),
            None => return false,
        }
        true
    }
}
