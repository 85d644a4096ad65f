//! A listener on this machine: a Unix socket or a port, for others' protocols.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::socket::{Peer, SocketFile};
use weir_plan::config::{Allowed, LocalAddress};

/// Lets some time pass: nobody's deadline depends on how exactly.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

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
    /// The process, where the kernel knows it.
    pub(crate) peer: Peer,
    /// Whether it is on the list of those who may connect.
    pub(crate) permitted: bool,
}

impl Local {
    /// Listens there, within a runtime; `field` is named where that fails. A socket gets the permission bits `mode`.
    ///
    /// # Errors
    /// If the address is in use or not permitted.
    pub(crate) fn bind(field: &str, address: &LocalAddress, mode: Option<u32>) -> Result<Self> {
        let at = || format!("{field} = {address}");
        match address {
            LocalAddress::Socket(path) => {
                let (socket, file) = SocketFile::bind(path, mode).with_context(at)?;
                Ok(Self::Socket(UnixListener::from_std(socket)?, file))
            }
            LocalAddress::Port(address) => {
                let listener = std::net::TcpListener::bind(address).with_context(at)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Port(TcpListener::from_std(listener)?))
            }
        }
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
                let (stream, _) = listener.accept().await?;
                // An answer is written at once and waited for.
                let _ = stream.set_nodelay(true);
                Ok(Guest { stream: Box::new(stream), peer: Peer::default(), permitted: true })
            }
        }
    }
}
