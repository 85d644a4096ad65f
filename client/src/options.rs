//! On a request's way: what a connection is opened with, before there are requests.

use std::time::Duration;

use crate::wire::{ClientFrame, OLDEST_VERSION, VERSION};

/// Where the daemon listens unless its configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/weir/weir.sock";

/// How a client opens and bounds its connection.
///
/// ```
/// let options = weir_client::Options { name: "lane-keeping".into(), ..Default::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Who is calling, for the daemon's logs; cut at 255 bytes. Default: `weir-client`.
    pub name: String,
    /// Longest wait for the answer to anything but a request, for the socket to take a frame, and, beyond
    /// its deadline, for the answer to a request by `infer`. Above zero; default: 5 s.
    pub timeout: Duration,
    /// Most requests without an answer; bounds what the client keeps while it waits for something else.
    /// At least 1; default: 4096.
    pub max_in_flight: usize,
    /// Most events kept until they are asked for; the oldest give way and are counted. At least 1;
    /// default: 256.
    pub event_backlog: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: env!("CARGO_PKG_NAME").into(),
            timeout: Duration::from_secs(5),
            max_in_flight: 4096,
            event_backlog: 256,
        }
    }
}

impl Options {
    pub(crate) fn hello(&self) -> ClientFrame<'_> {
        ClientFrame::Hello { min_version: OLDEST_VERSION, max_version: VERSION, name: &self.name }
    }
}
