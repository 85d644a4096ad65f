//! The data door: a Unix socket, one thread a client, frames checked before anything else sees them.

mod alarm;
mod arena;
mod connection;
mod file;
mod intake;
mod listener;
mod peer;
mod quota;
mod receive;
mod register;
mod send;
mod session;

use std::sync::{Arc, Weak};
use std::time::Duration;

use rt_core::{Cause, Constraint, Span};
use weir_client::wire::{DaemonFrame, EventMask};
use weir_client::{SafeModeCause, SafeModeState as WireState};

use crate::clock;
use crate::doors::Announcement;
use crate::hardware::Stale;
use crate::pi_mutex::PiMutex;

pub(crate) use arena::Place;
pub(crate) use connection::Connection;
pub(crate) use file::{LONGEST_PATH, SocketFile};
pub(crate) use intake::Intake;
pub(crate) use listener::Listener;

/// How often it is looked whether clients have taken their last answers.
const PAUSE: Duration = Duration::from_millis(1);

/// Knows every connection, to tell events to those that asked.
#[derive(Default)]
pub(crate) struct Hub {
    connections: PiMutex<Vec<Weak<Connection>>>,
}

impl Hub {
    /// Adds a connection; closed ones are forgotten on the way.
    pub(crate) fn add(&self, connection: &Arc<Connection>) {
        let mut connections = self.connections.lock();
        connections.retain(|c| c.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// Tells a change of safe mode.
    pub(crate) fn announce_safe_mode(&self, told: &Announcement) {
        let mut frame = Vec::new();
        DaemonFrame::SafeMode {
            state: WireState::from_code(u16::from(told.severity as u8)),
            cause: told.cause.map_or(SafeModeCause::Unknown(0), |c| SafeModeCause::from_code(c as u16)),
            sequence: told.sequence,
            entered_ns: told.entered.as_nanos(),
            limit: told.evidence.limit,
            seen: told.evidence.seen,
            window_ns: if told.cause.is_some_and(has_window) { told.evidence.window } else { 0 },
            breaches: told.breaches,
            service: &told.service,
            stream: &told.stream,
            text: &told.text,
        }
        .encode(0, &mut frame);
        self.tell(EventMask::SAFE_MODE, &frame);
    }

    /// Tells that a stream has few misses left.
    pub(crate) fn announce_misses_left(
        &self,
        service: &str,
        stream: &str,
        left: u32,
        constraint: Constraint,
    ) {
        let mut frame = Vec::new();
        let constraint = weir_client::Constraint::any_miss(constraint.misses(), constraint.window());
        DaemonFrame::MissesLeft { misses_left: left, constraint, service, stream }.encode(0, &mut frame);
        self.tell(EventMask::MISSES_LEFT, &frame);
    }

    /// How many clients are connected.
    pub(crate) fn count(&self) -> usize {
        self.connections.lock().iter().filter(|c| c.strong_count() > 0).count()
    }

    /// Waits until no connection has anything to be flushed any more, but no longer than `limit`.
    pub(crate) fn wait_until_flushed(&self, limit: Span) {
        let until = clock::now() + limit;
        let pending = || self.connections.lock().iter().filter_map(Weak::upgrade).any(|c| c.has_pending());
        while pending() && clock::now() < until {
            std::thread::park_timeout(PAUSE);
        }
    }

    fn tell(&self, kind: EventMask, frame: &[u8]) {
        let connections: Vec<_> = self.connections.lock().iter().filter_map(Weak::upgrade).collect();
        // All alarms first: nobody's waits for the sockets of others.
        if kind == EventMask::SAFE_MODE {
            connections.iter().for_each(|connection| connection.ring());
        }
        connections.iter().for_each(|connection| connection.send_event(kind, frame));
    }
}

/// Whether the window of its evidence is a stretch of time.
fn has_window(cause: Cause) -> bool {
    matches!(cause, Cause::ArrivalExcess | Cause::RateHigh)
}

/// The evidence of a cause in words and units.
pub(crate) fn describe(cause: Cause, limit: u64, seen: u64, window: u64, stream: &str) -> String {
    let span = Span::from_nanos;
    match cause {
        Cause::ArrivalExcess => format!(
            "{cause}: stream {stream} sent {seen} requests within {}, {limit} were declared",
            span(window)
        ),
        Cause::ServiceOverrun => {
            format!("{cause}: a batch took {} or more, its bound is {}", span(seen), span(limit))
        }
        Cause::LateDispatch => {
            format!("{cause}: the daemon needed {} where {} is allowed", span(seen), span(limit))
        }
        Cause::WorkerLost => format!("{cause}: {seen} of {limit} workers are left"),
        Cause::ConstraintViolated => {
            format!(
                "{cause}: stream {stream} missed {seen} of {window} requests, {limit} were promised at most"
            )
        }
        Cause::ProfileStale => match Stale::from_number(window) {
            Stale::Frequency => {
                format!(
                    "{cause}: at most {seen} kHz are allowed, it was profiled with {limit} kHz (0: not known)"
                )
            }
            Stale::Throttled => format!("{cause}: heat throttles the processor"),
            Stale::Cores => format!("{cause}: {seen} cores are online, it was profiled with {limit}"),
            Stale::Other => {
                format!("{cause}: the machine is not as profiled in {seen} respects; the journal names them")
            }
        },
        Cause::Operator => format!("{cause}: raised by an operator"),
        Cause::MissesLow => {
            format!("{cause}: stream {stream} can miss {seen} more of {window} requests, {limit} in all")
        }
        Cause::RateHigh => format!(
            "{cause}: {seen} requests came within {}, more than {limit}, nine tenths of the certified rate",
            span(window)
        ),
    }
}
