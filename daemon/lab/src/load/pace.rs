//! The sending half of a load: sleeps until each request is due, sends it, and never waits for an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::geteuid;
use rt_core::{Instant, Span};
use weir_client::blocking::Sender;
use weir_client::{Error, RequestId};

use super::classes::Mix;
use super::{End, Inputs, Phase};
use weir_os::clock;
use weir_os::realtime::{self, Role};

/// The longest sleep without a look at whether to stop.
const NAP: Span = Span::from_millis(100);

/// What the sending half tells the collecting one, in order.
pub(super) enum Issued {
    /// A phase began.
    Phase(Instant),
    /// A request was due; its id, or `None` if it was not sent because too many were in flight.
    Request { due: Instant, lateness_ns: u64, id: Option<RequestId> },
    /// The last phase ended.
    End(Instant),
}

/// What both halves look at while they run.
pub(super) struct Signals<'a> {
    /// The user wants an end.
    pub(super) stop: &'a AtomicBool,
    /// The collecting half is gone.
    pub(super) over: AtomicBool,
    /// The service is in safe mode.
    pub(super) safe_mode: AtomicBool,
    /// The stream is suspended.
    pub(super) suspended: AtomicBool,
}

impl Signals<'_> {
    /// Whether the promise holds, as far as was told.
    pub(super) fn promised(&self) -> bool {
        !self.safe_mode.load(Ordering::Relaxed) && !self.suspended.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.over.load(Ordering::Relaxed)
    }
}

/// Sends everything that `phases` schedules, each request not before it is due and as soon as possible then.
///
/// # Errors
/// If the connection breaks.
pub(super) fn send(
    mut sender: Sender,
    mix: &Mix,
    inputs: &Inputs,
    phases: &[Phase],
    start: Instant,
    signals: &Signals<'_>,
    log: &mpsc::Sender<Issued>,
) -> Result<()> {
    realtime::enter(Role::Dispatch, None, may_be_realtime());
    // The other half outlives this one, or ended both: nobody is left to miss what is told.
    let tell = |issued| drop(log.send(issued));
    let (mut begin, mut number) = (start, 0);
    for phase in phases {
        tell(Issued::Phase(begin));
        let limit = begin + span(phase.end.at_most());
        let mut end = None;
        for offset in phase.schedule.instants() {
            let due = begin + Span::from_nanos(offset);
            if due >= limit {
                end = Some(limit);
                break;
            }
            if !sleep_until(due, signals) {
                tell(Issued::End(clock::now()));
                return Ok(());
            }
            if signals.promised() && matches!(phase.end, End::PromiseHolds { .. }) {
                end = Some(due);
                break;
            }
            let lateness_ns = clock::now().since(due).as_nanos();
            let payload = inputs.payload(phase.place(number, inputs.count()));
            let id = match sender.submit_bytes(mix.stream(number), payload) {
                Ok(id) => Some(id),
                Err(Error::TooManyInFlight { .. }) => None,
                Err(error) => return Err(error).with_context(|| format!("request {number}")),
            };
            tell(Issued::Request { due, lateness_ns, id });
            number += 1;
        }
        // A trace ends when its instants do.
        begin = end.unwrap_or_else(clock::now);
    }
    tell(Issued::End(begin));
    Ok(())
}

/// Sleeps until `due` on the daemon's clock; false if the run is over before.
fn sleep_until(due: Instant, signals: &Signals<'_>) -> bool {
    loop {
        if signals.is_over() {
            return false;
        }
        let now = clock::now();
        if now >= due {
            return true;
        }
        // A signal ends it early, and the loop looks again.
        let _ = clock::sleep_until(due.min(now + NAP));
    }
}

/// Whether asking for real-time priority has a chance; where it has none there is nothing to tell. Both halves
/// ask: a generator that is held up sends bursts that nobody scheduled, and takes answers for late.
pub(super) fn may_be_realtime() -> bool {
    geteuid().is_root() || getrlimit(Resource::RLIMIT_RTPRIO).is_ok_and(|(limit, _)| limit > 0)
}

fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
