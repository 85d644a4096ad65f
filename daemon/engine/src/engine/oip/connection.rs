//! One connection to a remote server: one question at a time, each answered within a limit of time and of bytes, or the
//! connection is closed, which tells the server too that nobody waits any more.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use weir_oip::http::LENGTH_HEADER;

use super::reach::reach;
use crate::engine::{Address, Remote};

/// So long what has come unasked may take to be read.
const ASIDE: Duration = Duration::from_millis(1);

/// A question.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) path: &'a str,
    /// Of an inference; without one the question is a plain GET.
    pub(super) body: Option<Vec<u8>>,
    /// How long its JSON is, where something follows it.
    pub(super) header: Option<usize>,
    /// The stream of a Weir that it belongs to.
    pub(super) stream: Option<&'a str>,
    /// Bytes that the body of the answer may have.
    pub(super) limit: usize,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    /// Of HTTP.
    pub(super) status: u16,
    /// How long the JSON of the body is, where something follows it.
    pub(super) header: Option<usize>,
    pub(super) body: Bytes,
}

/// A connection, closed when dropped, and as soon as something is wrong with it.
pub(super) struct Connection {
    /// Absent once it is closed.
    link: Option<Link>,
    host: String,
    timeout: Duration,
    /// Whether what TLS says of itself can come unasked.
    secure: bool,
}

struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// The same socket, to look at it without asking anything.
    socket: OwnedFd,
    /// Drives the connection on the thread that asks, and while it asks. With it the socket goes.
    runtime: Runtime,
}

impl Connection {
    /// Connects; that and every question may take as long as the `timeout` of `remote`.
    ///
    /// # Errors
    /// Why nobody is reached.
    pub(super) fn open(remote: &Remote, address: &Address) -> Result<Self, String> {
        let limit = remote.timeout;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(told)?;
        let reached = runtime.block_on(async { timeout(limit, reach(remote, address)).await });
        let (sender, socket) = match reached.unwrap_or_else(|_| Err(late(limit))) {
            Ok(reached) => reached,
            Err(reason) => {
                // Not waiting for a name that is still looked up.
                runtime.shutdown_background();
                return Err(reason);
            }
        };
        let host = match address {
            Address::Port { host, port, .. } => format!("{host}:{port}"),
            Address::Socket(_) => "localhost".to_owned(),
        };
        let link = Some(Link { sender, socket, runtime });
        Ok(Self { link, host, timeout: limit, secure: address.is_secure() })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Why there is none: the connection is closed then, and every later question is refused.
    pub(super) fn ask(&mut self, ask: Ask<'_>) -> Result<Reply, String> {
        let Some(mut link) = self.link.take() else { return Err("it was lost before".to_owned()) };
        let limit = ask.limit;
        let request = self.request(ask)?;
        let Link { sender, runtime, .. } = &mut link;
        let exchanged =
            runtime.block_on(async { timeout(self.timeout, exchange(sender, request, limit)).await });
        let reply = exchanged.map_err(|_| late(self.timeout))??;
        self.link = Some(link);
        Ok(reply)
    }

    /// Whether the server has hung up, or speaks unasked.
    pub(super) fn is_closed(&self) -> bool {
        let Some(link) = &self.link else { return true };
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let silent =
            || matches!(recv(link.socket.as_raw_fd(), &mut [0], flags), Err(Errno::EAGAIN | Errno::EINTR));
        if silent() {
            return false;
        }
        if !self.secure {
            return true;
        }
        // A ticket, most likely: the connection takes it by itself, if it is let run.
        link.runtime.block_on(async { drop(timeout(ASIDE, std::future::pending::<()>()).await) });
        link.sender.is_closed() || !silent()
    }

    /// Closes it.
    pub(super) fn close(&mut self) {
        self.link = None;
    }

    fn request(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder().uri(ask.path).header(HOST, &self.host);
        if ask.body.is_some() {
            let kind = if ask.header.is_some() { "application/octet-stream" } else { "application/json" };
            request = request.method("POST").header(CONTENT_TYPE, kind);
        }
        if let Some(length) = ask.header {
            request = request.header(LENGTH_HEADER, length);
        }
        if let Some(stream) = ask.stream {
            request = request.header("weir-stream", stream);
        }
        request.body(Full::new(ask.body.unwrap_or_default().into())).map_err(told)
    }
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Reply, String> {
    sender.ready().await.map_err(told)?;
    let response: Response<Incoming> = sender.send_request(request).await.map_err(told)?;
    let (head, body) = response.into_parts();
    let header = head.headers.get(LENGTH_HEADER).map(|length| {
        let length = length.to_str().ok().and_then(|length| length.parse().ok());
        length.ok_or_else(|| format!("{LENGTH_HEADER} of its answer is no number"))
    });
    let header = header.transpose()?;
    let body = Limited::new(body, limit).collect().await.map_err(|error| {
        match error.downcast_ref::<LengthLimitError>() {
            Some(_) => format!("its answer has more than the {limit} bytes that it may have"),
            None => told(error),
        }
    })?;
    Ok(Reply { status: head.status.as_u16(), header, body: body.to_bytes() })
}

fn late(limit: Duration) -> String {
    format!("no answer came within {} ms", limit.as_millis())
}

/// With what led to it: what hyper says of itself is seldom enough.
pub(super) fn told(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> String {
    let error = error.into();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
