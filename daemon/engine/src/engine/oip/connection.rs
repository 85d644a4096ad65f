//! One connection to a remote server: one question at a time, each answered within a limit of time and of bytes, or the
//! connection is closed, which tells the server too that nobody waits any more.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{CONTENT_TYPE, HOST, TE};
use hyper::{HeaderMap, Request, Response, StatusCode};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use weir_oip::http::LENGTH_HEADER;
use weir_oip::remote;
use weir_oip::remote::grpc::{Ended, FRAME, ended};

use super::reach::reach;
use super::within::within;
use crate::engine::{Address, Location, Remote};

/// So long what has come unasked may take to be read.
const ASIDE: Duration = Duration::from_millis(1);

/// A question.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) path: &'a str,
    /// Of an inference, and of all that is asked over gRPC; without one the question is a plain GET.
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
    /// Why the server refuses what it was asked, if it does.
    pub(super) refused: Option<String>,
    /// How long the JSON of the body is, where something follows it.
    pub(super) header: Option<usize>,
    pub(super) body: Bytes,
}

/// A connection, closed when dropped, and as soon as something is wrong with it.
pub(super) struct Connection {
    /// Absent once it is closed.
    link: Option<Link>,
    host: String,
    secure: bool,
    timeout: Duration,
    /// Whether something can come unasked: what TLS, or HTTP/2, says of itself.
    has_asides: bool,
}

struct Link {
    sender: Sender,
    /// The same socket, to look at it without asking anything.
    socket: OwnedFd,
    /// Drives the connection on the thread that asks, and while it asks. With it the socket goes.
    runtime: Runtime,
}

/// What is asked through.
pub(super) enum Sender {
    Http(http1::SendRequest<Full<Bytes>>),
    /// And what drives the connection, which ends with what it was closed for.
    Grpc(http2::SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>),
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
        let (sender, socket) = match runtime.block_on(within(limit, reach(remote, address))) {
            Ok(reached) => reached,
            Err(reason) => {
                // Not waiting for a name that is still looked up.
                runtime.shutdown_background();
                return Err(reason);
            }
        };
        let host = match &address.place {
            Location::Port { host, port, .. } => format!("{host}:{port}"),
            Location::Socket(_) => "localhost".to_owned(),
        };
        let secure = address.is_secure();
        let has_asides = secure || matches!(sender, Sender::Grpc(..));
        Ok(Self { link: Some(Link { sender, socket, runtime }), host, secure, timeout: limit, has_asides })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Why there is none: the connection is closed then, and every later question is refused.
    pub(super) fn ask(&mut self, ask: Ask<'_>) -> Result<Reply, String> {
        let Some(mut link) = self.link.take() else { return Err("it was lost before".to_owned()) };
        let limit = ask.limit;
        let Link { sender, runtime, .. } = &mut link;
        let request = match sender {
            Sender::Http(_) => self.by_http(ask)?,
            Sender::Grpc(..) => self.by_grpc(ask)?,
        };
        let reply = runtime.block_on(within(self.timeout, sender.exchange(request, limit)))?;
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
        if !self.has_asides {
            return true;
        }
        // A ticket or a ping, most likely: the connection takes it by itself, if it is let run.
        link.runtime.block_on(async { drop(timeout(ASIDE, std::future::pending::<()>()).await) });
        link.sender.is_closed() || !silent()
    }

    /// Closes it.
    pub(super) fn close(&mut self) {
        self.link = None;
    }

    fn by_http(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, String> {
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

    /// The server is told how long is waited, so that it need not go on when nobody does any more.
    fn by_grpc(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, String> {
        let scheme = if self.secure { "https" } else { "http" };
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("{scheme}://{}{}", self.host, ask.path))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header("grpc-timeout", format!("{}u", self.timeout.as_micros()));
        if let Some(stream) = ask.stream {
            request = request.header("weir-stream", stream);
        }
        request.body(Full::new(ask.body.unwrap_or_default().into())).map_err(told)
    }
}

impl Sender {
    async fn exchange(&mut self, request: Request<Full<Bytes>>, limit: usize) -> Result<Reply, String> {
        match self {
            Self::Http(sender) => {
                // It says no more than that its channel is closed.
                let gone = "it hung up after its last answer, or spoke unasked";
                sender.ready().await.map_err(|_| gone.to_owned())?;
                let response = sender.send_request(request).await.map_err(told)?;
                let (status, headers, body, _) = whole(response, limit).await?;
                let header = headers.get(LENGTH_HEADER).map(|length| {
                    let length = length.to_str().ok().and_then(|length| length.parse().ok());
                    length.ok_or_else(|| format!("{LENGTH_HEADER} of its answer is no number"))
                });
                let words = || format!("it answered {}: {}", status.as_u16(), remote::refusal(&body));
                let refused = (status != StatusCode::OK).then(words);
                Ok(Reply { refused, header: header.transpose()?, body })
            }
            Self::Grpc(sender, driven) => {
                let answered = async {
                    sender.ready().await?;
                    sender.send_request(request).await
                };
                let response = match answered.await {
                    Ok(response) => response,
                    Err(error) => {
                        return Err(match timeout(ASIDE, driven).await {
                            Ok(Ok(Err(cause))) => told(cause),
                            _ => told(error),
                        });
                    }
                };
                let (status, headers, body, trailers) = whole(response, FRAME + limit).await?;
                let ended = trailers.as_ref().and_then(ended).or_else(|| ended(&headers));
                let refused = match ended {
                    Some(Ended::Well) => None,
                    Some(Ended::Refused(words)) => Some(format!("it answered {words}")),
                    Some(Ended::Late) => return Err("it gave up, as the time for it was over".to_owned()),
                    // Whoever is between, who speaks no gRPC.
                    None if status != StatusCode::OK => Some(format!("it answered {}", status.as_u16())),
                    None => return Err("its answer ends without a status of gRPC".to_owned()),
                };
                Ok(Reply { refused, header: None, body })
            }
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http(sender) => sender.is_closed(),
            Self::Grpc(sender, _) => sender.is_closed(),
        }
    }
}

/// All of an answer, and what came behind its body.
async fn whole(
    response: Response<Incoming>,
    limit: usize,
) -> Result<(StatusCode, HeaderMap, Bytes, Option<HeaderMap>), String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await.map_err(|error| {
        match error.downcast_ref::<LengthLimitError>() {
            Some(_) => format!("its answer has more than the {limit} bytes that it may have"),
            None => told(error),
        }
    })?;
    let trailers = body.trailers().cloned();
    Ok((head.status, head.headers, body.to_bytes(), trailers))
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
