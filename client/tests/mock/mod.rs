//! Off a request's way: a daemon of a few lines that says exactly what a test wants the client to hear.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses the part it needs, and may fail anywhere")]

use std::borrow::Cow;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use weir_client::wire::{
    Change, ClientFrame, DEFAULT_MAX_FRAME, DaemonFrame, FrameBuffer, Header, Kind, MissReason, ResultHead,
    SafeModeCause, SafeModeState, StreamState,
};
use weir_client::{ArrivalBound, Constraint, DataType, Options, Registration, StreamInfo, TensorInfo};

/// What the daemon's end of one connection does.
pub(crate) type Script = Box<dyn FnOnce(&mut Peer) + Send>;

/// A listening socket whose first connection follows a script on its own thread.
pub(crate) struct Mock {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    pub(crate) fn serve(script: impl FnOnce(&mut Peer) + Send + 'static) -> Self {
        Self::serve_each(vec![Box::new(script)])
    }

    /// Each connection follows a script of its own, one after the other.
    pub(crate) fn serve_each(scripts: Vec<Script>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-client-test-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            for script in scripts {
                let (socket, _) = listener.accept().unwrap();
                script(&mut Peer { socket, buffer: FrameBuffer::new(DEFAULT_MAX_FRAME) });
            }
        });
        Self { path, thread: Some(thread) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the script to end, so that what failed in it fails the test.
    pub(crate) fn finish(mut self) {
        self.thread.take().unwrap().join().expect("the script ran to its end");
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The daemon's end of a connection.
pub(crate) struct Peer {
    socket: UnixStream,
    buffer: FrameBuffer,
}

impl Peer {
    /// The next frame: its id, once it is of this kind.
    pub(crate) fn expect(&mut self, kind: Kind) -> u64 {
        self.expect_with(kind, |_| ())
    }

    /// The next frame, once it is of this kind, looked at by `look`.
    pub(crate) fn expect_with(&mut self, kind: Kind, look: impl FnOnce(ClientFrame<'_>)) -> u64 {
        let (header, body) = self.next().expect("one more frame");
        assert_eq!(header.kind, kind);
        look(ClientFrame::decode(&header, &body).unwrap());
        header.id
    }

    /// Waits until the client has closed the connection.
    pub(crate) fn expect_end(&mut self) {
        assert!(self.next().is_none(), "no frame more");
    }

    pub(crate) fn send(&mut self, id: u64, frame: &DaemonFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(id, &mut bytes);
        self.send_bytes(&bytes);
    }

    /// What a client does not want to hear any more is no failure of the script.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// All of it at once, and a descriptor with the first byte.
    pub(crate) fn send_bytes_with(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.unwrap(), bytes.len());
    }

    pub(crate) fn welcome(&mut self) {
        self.welcome_to(DEFAULT_MAX_FRAME);
    }

    /// Answers HELLO; bodies have so many bytes at most.
    pub(crate) fn welcome_to(&mut self, max_frame: u32) {
        // Older than the clients here: requests do not say when they were sent.
        self.welcome_as(2, max_frame);
    }

    /// Answers HELLO with this version.
    pub(crate) fn welcome_as(&mut self, version: u16, max_frame: u32) {
        let id = self.expect(Kind::Hello);
        let (max_arena, daemon) = (1 << 20, "mock 0.1");
        self.send(id, &DaemonFrame::Welcome { version, max_frame, max_arena, daemon });
    }

    /// Answers HELLO, and REGISTER with stream 7: four floats in, two out, 50 ms.
    pub(crate) fn welcome_and_register(&mut self) {
        self.welcome();
        let id = self.expect(Kind::Register);
        self.registered(id);
    }

    pub(crate) fn registered(&mut self, id: u64) {
        let tensor = |name: &str, length| {
            vec![TensorInfo { name: name.into(), data_type: DataType::F32, shape: vec![length] }]
        };
        let registered = DaemonFrame::Registered(Cow::Owned(StreamInfo {
            id: 7,
            input_bytes: 16,
            deadline: Duration::from_millis(50),
            output_bytes: 8,
            density_numerator: 7,
            density_denominator: 10,
            accuracy: 0.75,
            variant: "small".into(),
            inputs: tensor("x", 4),
            outputs: tensor("y", 2),
            class: 0,
            classes: Vec::new(),
            wanted: None,
            asked: None,
        }));
        self.send(id, &registered);
    }

    /// The next frame, once it gives up stream 7 under `id`; answers it.
    pub(crate) fn expect_given_up(&mut self, id: u64) {
        let by = self.expect_with(Kind::Unregister, |frame| {
            assert_eq!(frame, ClientFrame::Unregister { stream: 7 });
        });
        assert_eq!(by, id, "the id of the REGISTER, so that this answer is not waited for either");
        self.send(id, &DaemonFrame::Unregistered);
    }

    pub(crate) fn result(&mut self, id: u64, sequence: u64, output: [f32; 2]) {
        let (queued_ns, run_ns, batch, variant) = (1_000, 2_000, 3, 1);
        let (misses_left, skipped, late) = (Some(2), 4, false);
        let head =
            ResultHead { stream: 7, misses_left, sequence, queued_ns, run_ns, batch, variant, skipped, late };
        let output: Vec<u8> = output.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.send(id, &DaemonFrame::Result { head, output: &output });
    }

    pub(crate) fn miss(&mut self, id: u64, sequence: u64, reason: MissReason) {
        self.send(id, &DaemonFrame::Miss { stream: 7, misses_left: Some(0), sequence, reason });
    }

    pub(crate) fn safe_mode(&mut self, sequence: u64) {
        let event = DaemonFrame::SafeMode {
            state: SafeModeState::SafeMode,
            change: change(SafeModeCause::ArrivalExcess, sequence),
        };
        self.send(0, &event);
    }

    pub(crate) fn suspension(&mut self, sequence: u64, state: StreamState) {
        let excess = SafeModeCause::ArrivalExcess;
        let cause = if state.is_suspended() { excess } else { SafeModeCause::Unknown(0) };
        let event = DaemonFrame::Suspension { state, change: change(cause, sequence) };
        self.send(0, &event);
    }

    fn next(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            if let Some((header, body)) = self.buffer.next_frame().unwrap() {
                return Some((header, body.to_vec()));
            }
            match self.socket.read(self.buffer.space()) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.filled(count),
            }
        }
    }
}

pub(crate) fn registration() -> Registration {
    Registration::builder("obstacles", "front")
        .constraint(Constraint::any_miss(3, 10))
        .constraint(Constraint::RowMiss { misses: 1 })
        .arrivals(ArrivalBound::periodic(Duration::from_millis(20), Duration::from_millis(2)))
        .build()
        .unwrap()
}

pub(crate) fn impatient() -> Options {
    Options { timeout: Duration::from_millis(250), ..Options::default() }
}

/// What both kinds of event tell beside their state.
fn change(cause: SafeModeCause, sequence: u64) -> Change<'static> {
    Change {
        cause,
        sequence,
        entered_ns: 5,
        limit: 10,
        seen: 11,
        window_ns: 1_000,
        breaches: 1,
        service: "obstacles",
        stream: "front",
        text: "11 arrivals in 1 us, 10 declared",
    }
}
