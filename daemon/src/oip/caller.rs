//! Whoever calls: a connection, of which nothing is read for as long as it is to wait, and what it owes for calls that it gives up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use rt_core::{Instant, Span};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_os::clock;

use super::desk::Desk;
use crate::local::{Duplex, pass};
use crate::socket::Debt;

/// Whoever calls: a connection.
pub(super) struct Caller {
    pub(super) debt: Debt,
    /// Its requests without an answer.
    pub(super) open: Arc<AtomicUsize>,
    /// Until when nothing of it is to be read, in nanoseconds.
    held: AtomicU64,
}

impl Caller {
    pub(super) fn new(debt: Debt) -> Self {
        Self { debt, open: Arc::default(), held: AtomicU64::new(0) }
    }

    /// Has nothing read of it until then.
    pub(super) fn hold(&self, until: Instant) {
        self.held.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    /// How long nothing of it is to be read yet, if so.
    fn held(&self, now: Instant) -> Option<Span> {
        let until = Instant::from_nanos(self.held.load(Ordering::Relaxed));
        (until > now).then(|| until.since(now))
    }
}

/// Who gives up a call while it is to wait for the answer waits with what comes next.
pub(super) struct Waiting<'a> {
    pub(super) caller: &'a Caller,
    pub(super) until: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Past if it has waited.
        self.caller.hold(self.until);
    }
}

/// A call that has no answer yet: given up, it was in vain.
pub(super) struct Unanswered<'a> {
    desk: &'a Desk,
    caller: &'a Caller,
    answered: bool,
}

impl<'a> Unanswered<'a> {
    pub(super) fn new(desk: &'a Desk, caller: &'a Caller) -> Self {
        Self { desk, caller, answered: false }
    }

    /// There is an answer.
    pub(super) fn end(mut self) {
        self.answered = true;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        // Who was to wait for it has been charged.
        if !self.answered
            && self.caller.held(clock::now()).is_none()
            && let Some(pause) = self.desk.bill(self.caller, 0, false)
        {
            self.caller.hold(pause.until);
        }
    }
}

/// What a caller sends, which is read no sooner than it is to be, and is sent.
pub(super) struct Paced {
    stream: Box<dyn Duplex>,
    caller: Arc<Caller>,
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Paced {
    pub(super) fn new(stream: Box<dyn Duplex>, caller: &Arc<Caller>) -> Self {
        Self { stream, caller: Arc::clone(caller), pause: None }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while let Some(left) = self.caller.held(clock::now()) {
            let pause = self.pause.get_or_insert_with(|| Box::pin(pass(clock::duration(left))));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        self.pause = None;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
