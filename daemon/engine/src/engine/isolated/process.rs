//! The daemon's end of a worker process: started, spoken to, found dead, and buried.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, send, sendmsg, setsockopt, socketpair,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use rt_core::Span;

use super::message::{Command, MAX_REPLY, Reply};
use super::together::Together;
use super::{EngineError, LEAST_SILENCE, Place};
use weir_os::{clock, realtime};

/// How often one who waits for a reply looks whether it is to stop.
const LOOK: Span = Span::from_millis(100);
/// A process that has hung up has nearly always ended but for what the kernel has left to do, which takes as long as
/// others keep the processor busy: how long to wait for what it died of. Its batch is lost already; and one that lives
/// on has no worse a worker than one that has become silent.
const OBITUARY: Span = LEAST_SILENCE;
/// A killed process has this long to end before a thread of its own is left to wait for it.
const BURIAL: Span = Span::from_millis(2_000);

/// A worker process, killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    /// Absent only while it is dropped.
    child: Option<Child>,
    socket: OwnedFd,
    /// Of the last command.
    sequence: u32,
    lost: bool,
    stop: Arc<AtomicBool>,
    /// Only of a real-time worker without a core of its own.
    together: Option<Together>,
}

impl Process {
    /// Starts one, and hands it its setup and memory; it sees those CUDA devices, or all that there are.
    pub(super) fn start(
        place: &Place,
        devices: Option<String>,
        setup: &File,
        memory: &File,
    ) -> io::Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::nanoseconds(LOOK.as_nanos().cast_signed()))?;
        let child = super::child::command(&place.name)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(if place.quiet { Stdio::null() } else { Stdio::inherit() })
            .envs(devices.map(|devices| ("CUDA_VISIBLE_DEVICES", devices)))
            // Signals of a terminal are for the daemon, which lets the batch in flight end first.
            .process_group(0)
            .spawn()?;
        let stop = Arc::clone(&place.stop);
        let free = place.realtime && place.core.is_none();
        let together = free.then(|| Together::new(Pid::from_raw(child.id().cast_signed())));
        let process = Self { child: Some(child), socket, sequence: 0, lost: false, stop, together };
        let files = [setup.as_raw_fd(), memory.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&files)];
        let (socket, flags) = (process.socket.as_raw_fd(), MsgFlags::MSG_NOSIGNAL);
        sendmsg::<()>(socket, &[IoSlice::new(b"setup")], &control, flags, None)?;
        Ok(process)
    }

    /// Its number.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Has a batch run and waits for its end, at most `silence`.
    ///
    /// # Errors
    /// [`EngineError::Lost`].
    pub(super) fn run(&mut self, model: u32, batch: u32, silence: Span) -> Result<Reply, EngineError> {
        if self.lost {
            return Err(EngineError::process_lost("it was lost before"));
        }
        // Not below the numbers that loading has taken: there are far fewer models.
        let sequence = self.sequence.wrapping_add(1).max(1 << 16);
        self.sequence = sequence;
        let command = Command { sequence, model, batch };
        let realtime = self.together.as_mut().filter(|_| !realtime::is_denied());
        let _bound = realtime.and_then(Together::bind);
        // There is always room: it answers each command before the next.
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(self.socket.as_raw_fd(), &command.encode(), flags) {
            Ok(_) => self.receive(sequence, silence),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(self.hung_up()),
            Err(errno) => Err(self.lose(format!("it takes no command: {errno}"))),
        }
    }

    /// Waits for the reply numbered `sequence`, at most `silence`.
    ///
    /// # Errors
    /// [`EngineError::Lost`].
    pub(super) fn receive(&mut self, sequence: u32, silence: Span) -> Result<Reply, EngineError> {
        let started = clock::now();
        let mut packet = [0; MAX_REPLY + 1];
        loop {
            match recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(0) | Err(Errno::ECONNRESET) => return Err(self.hung_up()),
                Ok(length) => {
                    return Reply::decode(&packet[..length], sequence).ok_or_else(|| self.violation());
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(self.lose(format!("its socket fails: {errno}"))),
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(self.lose("it was busy when the service stopped".to_owned()));
            }
            if clock::now().since(started) > silence {
                return Err(self.lose(format!("it has been silent for {silence}")));
            }
        }
    }

    /// Gives it up for saying what nobody asked for.
    pub(super) fn violation(&mut self) -> EngineError {
        self.lose("it broke the protocol".to_owned())
    }

    /// Whether it is gone, or speaks unasked.
    pub(super) fn is_lost(&mut self) -> bool {
        if !self.lost {
            let seen = recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
            self.lost = !matches!(seen, Err(Errno::EAGAIN | Errno::EINTR));
        }
        self.lost
    }

    fn hung_up(&mut self) -> EngineError {
        match self.child.as_mut().and_then(|child| wait(child, OBITUARY)) {
            Some(ended) => self.lose(format!("it ended with {ended}")),
            None => self.lose("it hung up".to_owned()),
        }
    }

    fn lose(&mut self, reason: String) -> EngineError {
        self.lost = true;
        self.kill();
        EngineError::process_lost(reason)
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // One that has ended already is as good.
            let _ = child.kill();
        }
    }
}

impl Drop for Process {
    /// Its models have nothing to save, and foreign code may hang on its way out: it is not asked.
    fn drop(&mut self) {
        self.kill();
        let Some(mut child) = self.child.take() else { return };
        if wait(&mut child, BURIAL).is_none() {
            // Within a driver, perhaps, that does not let go. It must not stay a zombie once it does.
            let _ = std::thread::Builder::new().name("burial".to_owned()).spawn(move || child.wait());
        }
    }
}

/// Waits at most `patience` for the end of a process; how it ended.
fn wait(child: &mut Child, patience: Span) -> Option<String> {
    let until = clock::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.to_string()),
            Err(error) => return Some(format!("an unknown status ({error})")),
            Ok(None) if clock::now() >= until => return None,
            Ok(None) => std::thread::park_timeout(Duration::from_millis(1)),
        }
    }
}
