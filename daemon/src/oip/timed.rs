//! The body of a call over gRPC, which must be there within some time: whoever says that more comes and sends nothing holds no memory
//! for longer.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tonic::Status;

use super::PATIENCE;
use crate::local::pass;

/// The body, and when it must be there.
pub(super) struct Timed {
    body: Incoming,
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Timed {
    /// That of a call, or of a stream of calls, which lasts as long as its client likes.
    pub(super) fn new(body: Incoming, lasts: bool) -> Self {
        let over = (!lasts).then(|| Box::pin(pass(PATIENCE)) as _);
        Self { body, over }
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
        let Some(over) = &mut self.over else { return Poll::Pending };
        over.as_mut().poll(context).map(|()| {
            let text = format!("the body did not come within {PATIENCE:?}");
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
