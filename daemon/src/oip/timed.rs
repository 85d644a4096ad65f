//! The body of a call over gRPC, each message of which must be there within some time, and finds room among those of its connection:
//! whoever says that more comes and sends nothing holds little memory, and not for long.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::PATIENCE;
use crate::local::pass;

/// So many messages of `max-frame` bytes have room, of those of a connection that are not all there.
const LARGEST: u32 = 2;

type Taken = Result<OwnedSemaphorePermit, AcquireError>;
type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Room for messages of a connection that are not all there, in bytes.
#[derive(Clone)]
pub(super) struct Room {
    left: Arc<Semaphore>,
    max_frame: u32,
}

impl Room {
    pub(super) fn new(max_frame: u32) -> Self {
        Self { left: Arc::new(Semaphore::new((LARGEST * max_frame) as usize)), max_frame }
    }
}

/// The body, and when it must be there.
pub(super) struct Timed {
    body: Incoming,
    /// Whether it lasts as long as its client likes, and only each message must be there.
    lasts: bool,
    over: Option<Later<()>>,
    messages: Messages,
    room: Room,
    taken: Option<OwnedSemaphorePermit>,
    /// Bytes with the beginning of a message that there is no room for yet.
    kept: Option<(Frame<Bytes>, Later<Taken>)>,
}

impl Timed {
    /// That of a call, or of a stream of calls, which `lasts`.
    pub(super) fn new(body: Incoming, lasts: bool, room: Room) -> Self {
        let over = (!lasts).then(|| Box::pin(pass(PATIENCE)) as _);
        Self { body, lasts, over, messages: Messages::default(), room, taken: None, kept: None }
    }

    /// Looks at bytes that have come; the room for a message that begins there and does not end there.
    fn look(&mut self, bytes: &[u8]) -> Option<u32> {
        let before = self.messages.begun;
        self.messages.pass(bytes);
        let begun = self.messages.begun != before;
        if begun || self.messages.left == 0 {
            self.taken = None;
            self.over.take_if(|_| self.lasts);
        }
        // One that is longer than all of it is refused once it has all of it.
        let most = LARGEST * self.room.max_frame;
        (begun && self.messages.left > 0).then(|| self.messages.length.min(most))
    }

    /// Waits for what is to come, but not for ever.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Status>>> {
        if self.lasts && !self.messages.is_within() {
            return Poll::Pending;
        }
        let over = self.over.get_or_insert_with(|| Box::pin(pass(PATIENCE)));
        over.as_mut().poll(context).map(|()| {
            Some(Err(match self.kept {
                Some(_) => Status::resource_exhausted(format!(
                    "within {PATIENCE:?} there was no room for a message: those of a connection that are not all there have {LARGEST} times \
                     daemon.max-frame = {} bytes",
                    self.room.max_frame
                )),
                None => Status::invalid_argument(format!("the body did not come within {PATIENCE:?}")),
            }))
        })
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if this.kept.is_none() {
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(ended) => return Poll::Ready(ended.map(|frame| frame.map_err(Into::into))),
                Poll::Pending => return this.wait(context).map_err(Into::into),
            };
            let Some(room) = frame.data_ref().and_then(|bytes| this.look(bytes)) else {
                return Poll::Ready(Some(Ok(frame)));
            };
            let taken = Arc::clone(&this.room.left).acquire_many_owned(room);
            this.kept = Some((frame, Box::pin(taken)));
        }
        let taken = this.kept.as_mut().map(|(_, taken)| taken.as_mut().poll(context));
        let Some(Poll::Ready(taken)) = taken else { return this.wait(context).map_err(Into::into) };
        this.taken = taken.ok();
        Poll::Ready(this.kept.take().map(|(frame, _)| Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.kept.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// Where messages begin and end in what has come: each has a byte and its length before it.
#[derive(Debug, Default)]
struct Messages {
    head: [u8; 5],
    /// Bytes of the head of the next one, …
    known: usize,
    /// … the length of the last one whose head is there, and what is missing of it; …
    length: u32,
    left: usize,
    /// … and how many those are.
    begun: u64,
}

impl Messages {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let part = self.left.min(bytes.len());
                self.left -= part;
                bytes = &bytes[part..];
                continue;
            }
            let part = (self.head.len() - self.known).min(bytes.len());
            self.head[self.known..][..part].copy_from_slice(&bytes[..part]);
            self.known += part;
            bytes = &bytes[part..];
            if self.known == self.head.len() {
                let [_, length @ ..] = self.head;
                (self.known, self.length, self.begun) = (0, u32::from_be_bytes(length), self.begun + 1);
                self.left = self.length as usize;
            }
        }
    }

    /// Whether one has begun and has not ended.
    fn is_within(&self) -> bool {
        self.known > 0 || self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Messages;

    #[test]
    fn messages_end_where_their_lengths_say_however_they_are_cut() {
        let message = |length: u32| [&[0][..], &length.to_be_bytes(), &vec![7; length as usize]].concat();
        let bytes = [message(3), message(0), message(300), message(1)].concat();
        let ends = [8, 13, 318, 324];
        for size in [1, 2, 3, 5, 7, 100, bytes.len()] {
            let (mut messages, mut passed) = (Messages::default(), 0);
            for part in bytes.chunks(size) {
                messages.pass(part);
                passed += part.len();
                let ended = ends.iter().filter(|end| **end <= passed).count();
                assert_eq!(messages.is_within(), passed > 0 && !ends.contains(&passed), "{passed} by {size}");
                let begun = messages.begun as usize;
                assert!(begun == ended || begun == ended + 1, "{passed} by {size}: {messages:?}");
            }
            assert_eq!((messages.begun, messages.length, messages.left), (4, 1, 0));
        }
    }
}
