//! The reply to one call: what the service tells of it, for whoever waits.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rt_core::MissReason;
use tokio::sync::oneshot;
use weir_client::MissReason as WireReason;
use weir_client::wire::{DaemonFrame, HEADER_LEN, Header, ResultHead};
use weir_os::locks::lock;
use weir_serve::out::Replies;
use weir_serve::service::wire_reason;

/// What has become of a request.
#[derive(Debug)]
pub(super) enum Told {
    Result { head: ResultHead, packed: Vec<u8> },
    Miss { misses_left: Option<u32>, sequence: u64, reason: WireReason },
}

impl Told {
    /// Of a request that was missed at once.
    pub(super) fn missed((misses_left, sequence, reason): (Option<u32>, u64, MissReason)) -> Self {
        Self::Miss { misses_left, sequence, reason: wire_reason(reason) }
    }
}

/// Where the reply to one request goes.
pub(super) struct Reply {
    to: Mutex<Option<oneshot::Sender<Told>>>,
    /// The requests of its connection without a reply.
    open: Arc<AtomicUsize>,
    /// It was read in vain.
    vain: AtomicBool,
}

impl Reply {
    /// With the end at which it arrives.
    pub(super) fn new(open: &Arc<AtomicUsize>) -> (Arc<Self>, oneshot::Receiver<Told>) {
        let (to, from) = oneshot::channel();
        let (to, open, vain) = (Mutex::new(Some(to)), Arc::clone(open), AtomicBool::new(false));
        (Arc::new(Self { to, open, vain }), from)
    }

    /// Whether the request was one too many.
    pub(super) fn is_in_vain(&self) -> bool {
        self.vain.load(Ordering::Relaxed)
    }
}

impl Replies for Reply {
    fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn in_vain(&self, _: usize) {
        self.vain.store(true, Ordering::Relaxed);
    }

    fn send(&self, frame: &[u8]) {
        let Some(told) = read(frame) else { return };
        if let Some(to) = lock(&self.to).take() {
            // Whoever waited may have gone.
            let _ = to.send(told);
        }
    }
}

/// What a frame of the socket's protocol tells of a request; `None` for any other.
fn read(frame: &[u8]) -> Option<Told> {
    let (header, body) = frame.split_first_chunk::<HEADER_LEN>()?;
    match DaemonFrame::decode(&Header::decode(header, u32::MAX).ok()?, body).ok()? {
        DaemonFrame::Result { head, output } => Some(Told::Result { head, packed: output.to_vec() }),
        DaemonFrame::Miss { misses_left, sequence, reason, .. } => {
            Some(Told::Miss { misses_left, sequence, reason })
        }
        _ => None,
    }
}
