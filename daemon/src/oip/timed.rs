//! The body of a call over gRPC, which must be there within some time: whoever says that more comes and sends nothing holds no memory
//! for longer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tonic::Status;

use crate::local::pass;

/// Any body of a call but that of a stream of calls, which lasts as long as the stream.
pub(super) struct Timed {
    body: Incoming,
    /// Until it is over.
    left: Option<(Duration, Pin<Box<dyn Future<Output = ()> + Send>>)>,
}

impl Timed {
    pub(super) fn new(body: Incoming, within: Option<Duration>) -> Self {
        let left = within.map(|within| (within, Box::pin(pass(within)) as _));
        Self { body, left }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((within, over)) = &mut self.left else { return Poll::Pending };
        let within = *within;
        over.as_mut().poll(context).map(|()| {
            let text = format!("the body did not come within {within:?}");
            Some(Err(Status::invalid_argument(text).into()))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
