//! A listener: a Unix socket or a port, for others' protocols.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::socket::{Peer, SocketFile};
use weir_plan::config::{Allowed, ListenAddress};

/// Lets some time pass: nobody's deadline depends on how exactly.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// A client of another machine that is silent for so long is asked whether it is there, and asked again after so long; …
const QUIET: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(10);
/// … without an answer to so many, or to what was sent for so many milliseconds, it has gone.
const TRIES: u32 = 3;
const UNHEARD: u32 = 60_000;

/// Both directions of a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What is listened on; the file of a socket goes when this is dropped.
pub(crate) enum Local {
    Socket(UnixListener, #[expect(dead_code, reason = "goes with it")] SocketFile),
    Port(TcpListener),
}

/// Somebody who has connected.
pub(crate) struct Guest {
    pub(crate) stream: Box<dyn Duplex>,
    /// The process, where the kernel knows it, or the machine.
    pub(crate) peer: Peer,
    /// Whether it is on the list of those who may connect.
    pub(crate) permitted: bool,
}

impl Local {
    /// Listens there, within a runtime; `field` is named where that fails. A socket gets the permission bits `mode`.
    ///
    /// # Errors
    /// If the address is in use or not permitted.
    pub(crate) fn bind(field: &str, address: &ListenAddress, mode: Option<u32>) -> Result<Self> {
        let at = || format!("{field} = {address}");
        match address {
            ListenAddress::Socket(path) => {
                let (socket, file) = SocketFile::bind(path, mode).with_context(at)?;
                Ok(Self::Socket(UnixListener::from_std(socket)?, file))
            }
            ListenAddress::Port(address) => {
                let listener = std::net::TcpListener::bind(address).with_context(at)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Port(TcpListener::from_std(listener)?))
            }
        }
    }

    /// Whether it is a port.
    pub(crate) fn is_port(&self) -> bool {
        matches!(self, Self::Port(_))
    }

    /// The next who connects, if anybody may or who is on the list `allowed`.
    ///
    /// # Errors
    /// If the system is out of descriptors, or whoever it was has gone.
    pub(crate) async fn accept(&self, allowed: Option<&Allowed>) -> std::io::Result<Guest> {
        match self {
            Self::Socket(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let (peer, permitted) = (Peer::of(&stream), Peer::may_connect(&stream, allowed));
                Ok(Guest { stream: Box::new(stream), peer, permitted })
            }
            Self::Port(listener) => {
                let (stream, from) = listener.accept().await?;
                // An answer is written at once and waited for.
                let _ = stream.set_nodelay(true);
                if !from.ip().to_canonical().is_loopback() {
                    notice_its_end(&stream);
                }
                Ok(Guest { stream: Box::new(stream), peer: Peer::at(from.ip()), permitted: true })
            }
        }
    }
}

/// Another machine can go without a word: then its place is given back all the same. What the system does not offer is left out.
fn notice_its_end(stream: &TcpStream) {
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, QUIET);
    let _ = sockopt::set_tcp_keepintvl(stream, AGAIN);
    let _ = sockopt::set_tcp_keepcnt(stream, TRIES);
    let _ = sockopt::set_tcp_user_timeout(stream, UNHEARD);
}
