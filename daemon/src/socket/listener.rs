//! Accepts clients: checks who they are and that there is room, then gives each a thread of its own.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{AcceptConn, SockType as TypeOf};
use nix::sys::socket::{MsgFlags, SockType, UnixAddr, getsockname, getsockopt, recv};
use weir_client::wire::{DaemonFrame, ErrorCode};

use super::Connection;
use super::debt::Peer;
use super::file::identity;
use super::peer::may_connect;
use super::quota::Quota;
use super::unserved::Unserved;
use super::{Front, SocketFile, session};
use weir_os::clock;
use weir_plan::config::DaemonConfig;

/// Clients that are accepted within a second, and at once: to accept one and turn it away takes some 10 µs.
const ACCEPTED: usize = 4_000;
/// How long those beyond are left in the backlog.
const REST: Duration = Duration::from_millis(2);

/// The listening socket; its file goes when this is dropped.
pub(crate) struct Listener {
    socket: UnixListener,
    /// `None` if the service manager bound it.
    file: Option<SocketFile>,
}

impl Listener {
    /// Takes the socket of the configuration over from a service manager that listens on it already, or binds it
    /// with its mode, at once under its final name.
    ///
    /// # Errors
    /// If the service manager listens elsewhere, and as [`SocketFile::bind`].
    pub(crate) fn bind(config: &DaemonConfig) -> Result<Self> {
        let path = &config.socket;
        let at = || format!("daemon.socket = {}", path.display());
        if let Some(socket) = inherited(path).with_context(at)? {
            return Ok(Self { socket, file: None });
        }
        let (socket, file) = SocketFile::bind(path, Some(config.socket_mode)).with_context(at)?;
        Ok(Self { socket, file: Some(file) })
    }

    /// Removes its file before its time: nobody finds it any more.
    pub(crate) fn remove(&self) {
        self.file.iter().for_each(SocketFile::remove);
    }

    /// Accepts until `stop` becomes readable.
    ///
    /// # Errors
    /// If waiting itself fails.
    pub(crate) fn run(&self, front: &Arc<Front>, stop: &UnixStream) -> Result<()> {
        let clients = Arc::new(AtomicUsize::new(0));
        let mut accepted = Quota::new(ACCEPTED);
        let mut unserved = <[Unserved; 2]>::default();
        loop {
            let mut waits =
                [self.socket.as_fd(), stop.as_fd()].map(|file| PollFd::new(file, PollFlags::POLLIN));
            match poll(&mut waits, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            if waits[1].any() != Some(false) {
                return Ok(());
            }
            if !accepted.take(clock::now()) {
                std::thread::park_timeout(REST);
                continue;
            }
            match self.socket.accept() {
                Ok((stream, _)) if has_gone(&stream) => {}
                Ok((stream, _)) => welcome(stream, front, &clients, &mut unserved),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    // Out of descriptors, most likely: say so, and leave the clients in the backlog a while.
                    let [_, failed] = &mut unserved;
                    failed.note(clock::now(), format_args!("a client cannot be accepted: {error}"));
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            }
        }
    }
}

/// The socket that the service manager passed (`LISTEN_FDS`), if it did.
#[allow(unsafe_code)]
fn inherited(path: &Path) -> Result<Option<UnixListener>> {
    let mut passed = sd_notify::listen_fds().context("what the service manager passed")?;
    let Some(fd) = passed.next() else { return Ok(None) };
    ensure!(passed.len() == 0, "the service manager passed {} sockets, 1 is expected", 1 + passed.len());
    // SAFETY: `listen_fds` has found the descriptor open; looked at only here. One that was not passed after all may be another of this
    // process by now.
    let seen = unsafe { BorrowedFd::borrow_raw(fd) };
    let fits = getsockopt(&seen, TypeOf)? == SockType::Stream
        && getsockopt(&seen, AcceptConn)?
        && getsockname::<UnixAddr>(fd).is_ok();
    ensure!(
        fits,
        "the service manager passed something else than a listening Unix stream socket: LISTEN_FDS = 1 is descriptor {fd}"
    );
    // SAFETY: it listens, which nothing of this process does yet: it was passed, and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let socket = UnixListener::from(socket);
    let address = socket.local_addr()?;
    let there = address.as_pathname();
    // Compared as files too: either path may go through a link.
    let same = there.is_some_and(|there| {
        there == path || identity(there).is_ok_and(|file| identity(path).is_ok_and(|own| own == file))
    });
    let elsewhere =
        there.map_or_else(|| "an address without a path".to_owned(), |there| there.display().to_string());
    ensure!(same, "the service manager listens on {elsewhere}: give both the same path");
    socket.set_nonblocking(true)?;
    Ok(Some(socket))
}

/// Whether a client has closed its end already: then it needs no thread.
fn has_gone(stream: &UnixStream) -> bool {
    recv(stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) == Ok(0)
}

/// Serves a client, or notes that it is none of those who may connect, or that serving it has failed.
fn welcome(
    stream: UnixStream,
    front: &Arc<Front>,
    clients: &Arc<AtomicUsize>,
    [strangers, failed]: &mut [Unserved; 2],
) {
    let now = clock::now();
    let config = &front.overview.config.daemon;
    let (permitted, who) = may_connect(&stream, config.allowed.as_ref());
    let debt = front.debts.connect(now, Peer::of(&stream));
    let room = clients.fetch_add(1, Ordering::Relaxed) < config.max_clients;
    let place = Place(Arc::clone(clients));
    let connection = match Connection::new(stream, config.max_pending) {
        Ok(connection) => Arc::new(connection),
        Err(error) => return failed.note(now, format_args!("{who} cannot be served: {error}")),
    };
    if !permitted {
        strangers.note(now, format_args!("{who} is not on the list of those who may connect"));
        return turn_away(
            &connection,
            ErrorCode::NotPermitted,
            "daemon.allow-users and allow-groups do not list you",
        );
    }
    let Some(debt) = debt else {
        let text = "this process connects too often";
        return turn_away(&connection, ErrorCode::TooManyClients, text);
    };
    if !room {
        let text = format!("daemon.max-clients = {} are connected", config.max_clients);
        return turn_away(&connection, ErrorCode::TooManyClients, &text);
    }
    front.hub.add(&connection);
    let front = Arc::clone(front);
    let spawned = std::thread::Builder::new().name("client".into()).spawn(move || {
        session::run(&front, &connection, debt);
        drop(place);
    });
    if let Err(error) = spawned {
        failed.note(now, format_args!("{who} cannot be served: {error}"));
    }
}

/// A client's place among `max-clients`, free again when dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn turn_away(connection: &Connection, code: ErrorCode, text: &str) {
    let mut frame = Vec::new();
    DaemonFrame::Error { code, text }.encode(0, &mut frame);
    connection.send(&frame);
    connection.close();
}
