//! The data socket: a Unix socket, one thread a client, frames checked before anything else sees them.

mod alarm;
mod arena;
mod connection;
mod debt;
mod file;
mod intake;
mod listener;
mod peer;
mod quota;
mod receive;
mod register;
mod send;
mod session;
mod unserved;

use std::sync::{Arc, Weak};
use std::time::Duration;

use rt_core::{Cause, Constraint, Span};
use weir_client::wire::{Change, DaemonFrame, EventMask};
use weir_client::{SafeModeCause, SafeModeState};

use crate::overview::{self, Overview};
use weir_os::clock;
use weir_os::pi_mutex::PiMutex;
use weir_serve::announcement::{Announcement, State};

pub(crate) use connection::Connection;
pub(crate) use debt::{Debt, Debts, Pause, Peer};
pub(crate) use file::SocketFile;
pub(crate) use intake::Intake;
pub(crate) use listener::Listener;
pub(crate) use register::register;
pub(crate) use session::DRAINING;
pub(crate) use unserved::Unserved;

/// How often it is looked whether clients have taken their last answers.
const PAUSE: Duration = Duration::from_millis(1);

/// What every client's thread works with.
pub(crate) struct Front {
    pub(crate) overview: Arc<Overview>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) intake: Intake,
    pub(crate) debts: Arc<Debts>,
}

impl Front {
    /// The state of everything, as a JSON object.
    fn status(&self) -> String {
        overview::json(&self.overview.status(self.hub.count()))
    }
}

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

    /// Tells how a service or a stream has come to stand.
    pub(crate) fn announce(&self, told: &Announcement) {
        let evidence = &told.evidence;
        let change = Change {
            cause: told.cause.map_or(SafeModeCause::Unknown(0), |c| SafeModeCause::from_code(c as u16)),
            sequence: told.sequence,
            entered_ns: told.entered.as_nanos(),
            limit: evidence.limit,
            seen: evidence.seen,
            window_ns: if told.cause.is_some_and(has_window) { evidence.window } else { 0 },
            breaches: told.breaches,
            service: &told.service,
            stream: &told.stream,
            text: &told.text,
        };
        let (kind, event) = match told.state {
            State::Service(severity) => {
                let state = SafeModeState::from_code(u16::from(severity as u8));
                (EventMask::SAFE_MODE, DaemonFrame::SafeMode { state, change })
            }
            State::Stream(state) => (EventMask::SUSPENSION, DaemonFrame::Suspension { state, change }),
        };
        let mut frame = Vec::new();
        event.encode(0, &mut frame);
        self.tell(kind, &frame);
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
        if EventMask::CHANGES.contains(kind) {
            connections.iter().for_each(|connection| connection.ring(kind));
        }
        connections.iter().for_each(|connection| connection.send_event(kind, frame));
    }
}

/// Whether the window of its evidence is a stretch of time, or says what is stale.
fn has_window(cause: Cause) -> bool {
    matches!(cause, Cause::ArrivalExcess | Cause::RateHigh | Cause::ProfileStale)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use rt_core::{Alarm, Evidence, Instant, SafeModeState as State, Severity, Transition};
    use weir_client::StreamState;
    use weir_client::wire::{DEFAULT_MAX_FRAME, FrameBuffer};

    use super::*;

    /// A client of `hub` with this subscription, and its end of the socket.
    fn client(hub: &Hub, mask: EventMask) -> (Arc<Connection>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("set");
        let connection = Arc::new(Connection::new(ours, 1 << 16).expect("an eventfd"));
        connection.subscribe(mask);
        hub.add(&connection);
        (connection, theirs)
    }

    /// What `look` makes of every event that has come.
    fn events<T>(mut socket: &UnixStream, look: impl Fn(&DaemonFrame<'_>) -> T) -> Vec<T> {
        let mut buffer = FrameBuffer::new(DEFAULT_MAX_FRAME);
        let mut found = Vec::new();
        while let Ok(count @ 1..) = socket.read(buffer.space()) {
            buffer.filled(count);
            while let Some((header, body)) = buffer.next_frame().expect("frames") {
                found.push(look(&DaemonFrame::decode(&header, body).expect("a frame")));
            }
        }
        found
    }

    fn alarm(cause: Cause, limit: u64, seen: u64, window: u64) -> Alarm {
        let evidence = Evidence { limit, seen, window, stream: None };
        Alarm { cause, evidence, entered: Instant::from_nanos(70) }
    }

    #[test]
    fn suspensions_go_to_those_who_asked_for_them_and_to_nobody_else() {
        let hub = Hub::default();
        let (_one, all) = client(&hub, EventMask::ALL);
        let (_other, old) = client(&hub, EventMask::ALL.within(1));
        let suspended = alarm(Cause::ArrivalExcess, 5, 6, 100);
        let names = ("lanes", "front", "");
        let (first, second) = ((StreamState::Suspended, ""), (StreamState::Normal, ""));
        hub.announce(&Announcement::of_stream(names, first, Some(suspended), (1, 4)));
        hub.announce(&Announcement::of_stream(names, second, None, (2, 4)));
        assert_eq!(events(&old, |event| event.kind()), []);
        let told = events(&all, |event| match *event {
            DaemonFrame::Suspension { state, change: c } => {
                assert_eq!((c.service, c.stream), ("lanes", "front"));
                (state, c.cause, c.sequence, [c.limit, c.seen, c.window_ns, c.breaches])
            }
            ref other => panic!("{other:?}"),
        });
        assert_eq!(
            told,
            [
                (StreamState::Suspended, SafeModeCause::ArrivalExcess, 1, [5, 6, 100, 4]),
                (StreamState::Normal, SafeModeCause::Unknown(0), 2, [0, 0, 0, 4]),
            ]
        );
    }

    #[test]
    fn the_window_says_what_is_stale() {
        let hub = Hub::default();
        let (_connection, socket) = client(&hub, EventMask::SAFE_MODE);
        for (sequence, cause) in [(1, Cause::ProfileStale), (2, Cause::ConstraintViolated)] {
            let state = State { severity: Severity::Safe, alarm: Some(alarm(cause, 8, 6, 3)) };
            hub.announce(&Announcement::of_service(
                "lanes",
                Transition { sequence, state, breaches: 1 },
                "",
                "",
            ));
        }
        let windows = events(&socket, |event| match *event {
            DaemonFrame::SafeMode { change, .. } => (change.cause, change.window_ns),
            ref other => panic!("{other:?}"),
        });
        // A window of requests is no stretch of time.
        assert_eq!(windows, [(SafeModeCause::ProfileStale, 3), (SafeModeCause::ConstraintViolated, 0)]);
    }
}
