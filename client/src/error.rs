//! On a request's way: everything that can end it without an outcome, as the client sees it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::shared::MemoryError;
use crate::types::{ErrorCode, Refusal, TensorError};
use crate::wire::{CLASS_VERSION, HEADER_LEN, Kind, OLDEST_VERSION, VERSION, WITHIN_VERSION, WireError};

/// Why an operation of a client did not succeed.
///
/// After [`Refused`](Self::Refused), [`Tensor`](Self::Tensor), [`InputLength`](Self::InputLength), [`Memory`](Self::Memory),
/// [`ArenaFull`](Self::ArenaFull), [`OtherArena`](Self::OtherArena), [`GivenUp`](Self::GivenUp), [`FrameTooLarge`](Self::FrameTooLarge), [`TooManyInFlight`](Self::TooManyInFlight)
/// and a [`Timeout`](Self::Timeout) waiting for an answer the connection stays usable; after any other error
/// it is closed and the client must connect again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The socket could not be reached.
    #[error("connect to {}: {hint}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
        /// What to look at first.
        hint: &'static str,
    },
    /// The daemon closed the connection or went away.
    #[error("connection closed by the daemon")]
    Closed,
    /// No answer, or no room in the socket, within the time allowed.
    #[error("{what}: nothing after {} ms{}", after.as_millis(), hint(*what))]
    Timeout {
        /// The kind of frame that waited.
        what: Kind,
        /// The time allowed.
        after: Duration,
    },
    /// The daemon did not grant a request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The daemon gave up on this connection.
    #[error("closed by the daemon, {code}: {text}")]
    Daemon {
        /// Why.
        code: ErrorCode,
        /// Why, for people.
        text: String,
    },
    /// Values that are not those of the stream's tensors; nothing was sent.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A payload that has not the length of the stream's input tensors; nothing was sent.
    #[error("stream {stream}: input is {bytes} bytes, must be {expected}")]
    InputLength {
        /// The stream.
        stream: u32,
        /// Bytes given.
        bytes: usize,
        /// Bytes of its input tensors.
        expected: u32,
    },
    /// Memory that cannot be shared; nothing was sent.
    #[error(transparent)]
    Memory(Arc<MemoryError>),
    /// An arena without room for another place.
    #[error("the arena has {left} bytes left, a place takes {wanted}")]
    ArenaFull {
        /// Bytes that the place takes.
        wanted: usize,
        /// Bytes left.
        left: usize,
    },
    /// A place in an arena of another connection, mostly of the one before; nothing was sent.
    #[error("the arena of this place is not that of the present connection: share another")]
    OtherArena,
    /// A request above the largest frame that the daemon takes; nothing was sent.
    #[error("a frame of {bytes} bytes, limit {limit}: share an arena")]
    FrameTooLarge {
        /// Bytes after the header.
        bytes: usize,
        /// The daemon's limit.
        limit: u32,
    },
    /// As many requests wait for their answers as the options allow; nothing was sent.
    #[error("requests in flight: {limit}, limit {limit}; receive answers before submitting more")]
    TooManyInFlight {
        /// Requests allowed without an answer.
        limit: usize,
    },
    /// A deadline of a request's own, which a daemon of this version of the protocol does not know; nothing was sent.
    #[error(
        "the daemon speaks version {version} of the protocol, and a request has a deadline of its own from {WITHIN_VERSION} on"
    )]
    Within {
        /// What the daemon speaks.
        version: u16,
    },
    /// A class that the service does not have, or whose daemon knows of none; nothing was sent.
    #[error("the service has no class {name:?}; {}", there_are(known))]
    Class {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A class of a stream, which a daemon of this version of the protocol does not know; nothing was sent.
    #[error(
        "the daemon speaks version {version} of the protocol, and a stream has a class from {CLASS_VERSION} on"
    )]
    Classes {
        /// What the daemon speaks.
        version: u16,
    },
    /// A stream of a client that connects again, which was given up; nothing was sent.
    #[error("this stream was given up")]
    GivenUp,
    /// The daemon chose a version this client did not offer.
    #[error("WELCOME: version is {0}, offered {OLDEST_VERSION}..={VERSION}")]
    Version(u16),
    /// The daemon sent bytes that are not a frame.
    #[error("from the daemon: {0}")]
    Protocol(#[from] WireError),
    /// The daemon sent a frame that has no place at this point.
    #[error("from the daemon: {got} with id {id}, which nothing here waits for")]
    Unexpected {
        /// What came.
        got: Kind,
        /// The id it carries.
        id: u64,
    },
    /// The system failed in some other way.
    #[error("socket: {0}")]
    Io(Arc<io::Error>),
}

impl Error {
    pub(crate) fn connect(path: &Path, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => "is the daemon running? (systemctl status weir)",
            io::ErrorKind::ConnectionRefused => {
                "the socket is left over and nobody listens: is the daemon running? (systemctl status weir)"
            }
            io::ErrorKind::PermissionDenied => {
                "is this user in the group that owns the socket? (see ls -l on it; log in again after joining)"
            }
            _ => "is this the daemon's socket?",
        };
        Self::Connect { path: path.into(), source: Arc::new(source), hint }
    }
}

/// That a whole frame may be sent to a daemon that takes bodies of `limit` bytes.
pub(crate) fn check_length(frame: &[u8], limit: u32) -> Result<(), Error> {
    let bytes = frame.len() - HEADER_LEN;
    if bytes <= limit as usize { Ok(()) } else { Err(Error::FrameTooLarge { bytes, limit }) }
}

impl From<MemoryError> for Error {
    fn from(source: MemoryError) -> Self {
        Self::Memory(Arc::new(source))
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
        match source.kind() {
            BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof => Self::Closed,
            _ => Self::Io(Arc::new(source)),
        }
    }
}

/// What there is in place of what was asked for.
fn there_are(known: &[String]) -> String {
    match known {
        [] => "it has none".to_owned(),
        known => format!("there are: {}", known.join(", ")),
    }
}

/// What else is to be known of an answer that has not come.
fn hint(what: Kind) -> &'static str {
    match what {
        Kind::Hello => "; a daemon that starts answers once its models are loaded",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_says_what_to_look_at() {
        let error =
            |kind| Error::connect(Path::new("/run/weir/weir.sock"), io::Error::from(kind)).to_string();
        assert!(error(io::ErrorKind::NotFound).starts_with("connect to /run/weir/weir.sock: "));
        assert!(error(io::ErrorKind::NotFound).contains("is the daemon running?"));
        assert!(error(io::ErrorKind::PermissionDenied).contains("group that owns the socket"));
    }

    #[test]
    fn a_vanished_daemon_is_closed_whatever_the_system_calls_it() {
        assert!(matches!(Error::from(io::Error::from(io::ErrorKind::BrokenPipe)), Error::Closed));
        assert!(matches!(Error::from(io::Error::from(io::ErrorKind::ConnectionReset)), Error::Closed));
        assert!(matches!(Error::from(io::Error::from(io::ErrorKind::OutOfMemory)), Error::Io(_)));
    }

    #[test]
    fn messages_name_field_value_and_limit() {
        let error = Error::InputLength { stream: 2, bytes: 12, expected: 16 };
        assert_eq!(error.to_string(), "stream 2: input is 12 bytes, must be 16");
        let class = |known: &[&str]| Error::Class {
            name: "noisy".to_owned(),
            known: known.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(class(&[]).to_string(), "the service has no class \"noisy\"; it has none");
        assert_eq!(
            class(&["torn", "clean"]).to_string(),
            "the service has no class \"noisy\"; there are: torn, clean"
        );
        let error = Error::Timeout { what: Kind::Register, after: Duration::from_millis(20) };
        assert_eq!(error.to_string(), "REGISTER: nothing after 20 ms");
        let error = Error::Timeout { what: Kind::Hello, after: Duration::from_secs(5) };
        assert!(error.to_string().contains("once its models are loaded"), "{error}");
    }
}
