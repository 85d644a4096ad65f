//! TLS at the ports: a bounded number of handshakes, each within a time, and files that are read again when they have changed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rt_core::{Instant, Span};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};
use weir_oip::text::printable;
use weir_oip::tls::{HTTP, HTTP2, ServerFiles, ServerPems, Unusable};
use weir_os::clock;
use weir_os::locks::lock;

use super::Protocol;
use crate::local::{Duplex, pass};
use crate::socket::Peer;

/// Refusals are told at most so often.
const TOLD: Span = Span::from_millis(1_000);
/// So long a handshake may take, and what must be waited for before it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Handshakes of a machine at a time, and of all: one more ends the oldest, so that slow ones keep nobody out.
const EACH: usize = 64;
const ALL: usize = 256;

/// What is shown at the ports, and what is under way there.
pub(super) struct Tls {
    files: ServerFiles,
    kept: Mutex<Kept>,
    begun: Begun,
    /// When a refusal was told last, and how many have not been since.
    told: Mutex<(Option<Instant>, u64)>,
}

struct Kept {
    /// What stood in the files when they were looked at last, be it of use or not.
    seen: ServerPems,
    acceptors: [TlsAcceptor; 2],
}

impl Tls {
    /// TLS with what stands in the files now.
    ///
    /// # Errors
    /// A file that cannot be read or is not what it should be.
    pub(super) fn open(files: &ServerFiles) -> Result<Self, Unusable> {
        let seen = files.read()?;
        let acceptors = acceptors(files, &seen)?;
        let kept = Mutex::new(Kept { seen, acceptors });
        Ok(Self { files: files.clone(), kept, begun: Begun::default(), told: Mutex::default() })
    }

    /// Looks at the files again; connections from now on see what has changed there, if it is of use.
    pub(super) fn refresh(&self) {
        let kept = &mut *lock(&self.kept);
        let renewed = match self.files.read() {
            Ok(pems) if pems == kept.seen => return,
            Ok(pems) => {
                let acceptors = acceptors(&self.files, &pems);
                kept.seen = pems;
                acceptors
            }
            Err(unusable) => Err(unusable),
        };
        match renewed {
            Ok(acceptors) => {
                kept.acceptors = acceptors;
                info!("daemon.oip.tls: the files have changed, and hold for those who connect from now on");
            }
            Err(unusable) => warn!("daemon.oip.tls: what was read before holds on: {unusable}"),
        }
    }

    /// A connection of `peer` once it is secured, for which it may have to wait; `None` where it is not, which is told.
    pub(super) async fn secure(
        &self,
        stream: Box<dyn Duplex>,
        (peer, protocol): (Peer, Protocol),
        wait: Duration,
    ) -> Option<Box<dyn Duplex>> {
        let secured = self.shake(stream, (peer, protocol), wait).await;
        secured
            .inspect_err(|reason| reason.iter().for_each(|reason| self.tell(clock::now(), peer, reason)))
            .ok()
    }

    /// # Errors
    /// Why it is not secured, where that is worth a word.
    async fn shake(
        &self,
        stream: Box<dyn Duplex>,
        (peer, protocol): (Peer, Protocol),
        wait: Duration,
    ) -> Result<Box<dyn Duplex>, Option<String>> {
        let ended = self.begun.begin(peer);
        let acceptor = lock(&self.kept).acceptors[protocol as usize].clone();
        let shaken = async {
            pass(wait).await;
            acceptor.accept(stream).await
        };
        tokio::select! {
            secured = tokio::time::timeout(PATIENCE, shaken) => match secured {
                Ok(Ok(secured)) => Ok(Box::new(secured)),
                // Somebody who looks whether anybody is there, most likely.
                Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => Err(None),
                Ok(Err(error)) => Err(Some(error.to_string())),
                Err(_) => Err(Some(format!("it took longer than {PATIENCE:?}"))),
            },
            _ = ended => Err(Some(format!("{EACH} of its machine, or {ALL} of all, were begun after it"))),
        }
    }

    fn tell(&self, now: Instant, peer: Peer, reason: &str) {
        let (last, untold) = &mut *lock(&self.told);
        if last.is_some_and(|last| now < last + TOLD) {
            *untold += 1;
            return;
        }
        warn!(
            "a client of daemon.oip ({peer}) is not let in: {}; {untold} more since the last such line",
            printable(reason)
        );
        (*last, *untold) = (Some(now), 0);
    }
}

fn acceptors(files: &ServerFiles, pems: &ServerPems) -> Result<[TlsAcceptor; 2], Unusable> {
    let of = |protocol| Ok(TlsAcceptor::from(Arc::new(files.config(pems, protocol)?)));
    Ok([of(HTTP)?, of(HTTP2)?])
}

/// Handshakes that are under way, the oldest first.
#[derive(Default)]
struct Begun(Mutex<VecDeque<(Peer, oneshot::Sender<()>)>>);

impl Begun {
    /// One more of `peer`: under way until what is returned is dropped, and to be ended when that has something to tell.
    fn begin(&self, peer: Peer) -> oneshot::Receiver<()> {
        let begun = &mut *lock(&self.0);
        begun.retain(|(_, end)| !end.is_closed());
        let mut own =
            (0..).zip(begun.iter()).filter(|(_, (other, _))| *other == peer).map(|(place, _)| place);
        let oldest = own.next().filter(|_| own.count() + 1 >= EACH);
        if let Some(end) = oldest.or((begun.len() >= ALL).then_some(0)) {
            begun.remove(end);
        }
        let (end, ended) = oneshot::channel();
        begun.push_back((peer, end));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_handshakes_end_for_new_ones_first_for_those_of_their_own_machine() {
        let begun = Begun::default();
        let begin = |machine| begun.begin(Peer::Machine(machine));
        let ended =
            |one: &mut oneshot::Receiver<()>| one.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let mut other = begin(7);
        let mut slow: Vec<_> = (0..EACH).map(|_| begin(1)).collect();
        assert!(!slow.iter_mut().any(ended));
        slow.push(begin(1));
        let which: Vec<_> = slow.iter_mut().map(ended).collect();
        assert!(which[0] && !which[1..].contains(&true), "its oldest has ended: {which:?}");
        assert!(!ended(&mut other), "and nobody else's");
        let mut many: Vec<_> = (0..ALL - EACH).map(|n| begin(100 + n as u64)).collect();
        assert!(ended(&mut other), "the oldest of all");
        assert!(!slow[1..].iter_mut().any(ended) && !many.iter_mut().any(ended));
        // What is done gives its place back.
        drop(slow);
        let _next = begin(1);
        assert_eq!(lock(&begun.0).len(), ALL - EACH + 1);
    }
}
