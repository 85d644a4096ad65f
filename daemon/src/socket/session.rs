//! One client's thread: bytes to frames, frames to requests, and the end of all of it when the client goes.

mod read;
mod submit;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rt_core::{Instant, Span};
use weir_client::RefusalCode;
use weir_client::wire::{
    CLASS_VERSION, ClientFrame, DaemonFrame, ErrorCode, EventMask, FrameBuffer, HEADER_LEN, Header,
    MAX_HELLO_FRAME, OLDEST_VERSION, SENT_VERSION, VERSION, WITHIN_VERSION, WireError,
};

use super::alarm::Alarm;
use super::arena::Arena;
use super::debt::{self, Debt, Portion};
use super::quota::Quota;
use super::register::{self, Waiting};
use super::{Connection, Front};
use read::CRUMBS;
use weir_os::clock;
use weir_os::realtime::{self, Otherwise, Role};
use weir_plan::config::DaemonConfig;
use weir_serve::service::{Effects, Lease, Refusal, Registry, Said};

/// So many frames of a client that owes too much are dealt with before others may run again.
const TOGETHER: usize = 16;
/// What it takes to register a stream, admission left out, and to write a byte of the status.
const REGISTERING: Span = Span::from_nanos(50_000);
const STATUS_BYTE: u64 = 5;

/// Why nothing is taken in any more.
pub(crate) const DRAINING: &str = "the daemon is stopping";

/// The last word to a client whose connection ends here.
struct Goodbye(ErrorCode, String);

struct Session<'a> {
    front: &'a Arc<Front>,
    connection: &'a Arc<Connection>,
    begun: Instant,
    /// Of the protocol; none before HELLO.
    version: Option<u16>,
    leases: HashMap<u32, Lease>,
    waiting: Waiting,
    next_stream: u32,
    /// A descriptor whose ARENA is still to come.
    descriptor: Option<OwnedFd>,
    arena: Option<Arena>,
    questions: Quota,
    debt: Debt,
    /// Until when nothing is to be read of it, because too much was read in vain; and how much is then.
    pause: Option<Instant>,
    portion: Portion,
    /// Bytes of the frame at hand.
    length: usize,
    /// What it should have taken to read all since it was last charged, in vain or not, and the thread's time then.
    read: Span,
    charged: Span,
    /// While it asks too often, or owes too much, its thread has no real-time priority, until then.
    calm: Option<(Instant, Option<Otherwise>)>,
    effects: Effects,
    frame: Vec<u8>,
}

/// Serves a client until it goes, breaks the protocol, or the connection is closed by others.
pub(super) fn run(front: &Arc<Front>, connection: &Arc<Connection>, debt: Debt) {
    let mut session = Session {
        front,
        connection,
        begun: clock::now(),
        version: None,
        leases: HashMap::new(),
        waiting: Waiting::default(),
        next_stream: 1,
        descriptor: None,
        arena: None,
        questions: Quota::new(front.overview.config.daemon.client_questions),
        debt,
        pause: None,
        portion: Portion::default(),
        length: 0,
        read: Span::ZERO,
        charged: clock::thread_time(),
        calm: None,
        effects: Effects::default(),
        frame: Vec::new(),
    };
    let served = session.serve();
    connection.uncork();
    if let Err(Goodbye(code, text)) = served {
        session.reply(0, &DaemonFrame::Error { code, text: &text });
    }
    let late = session.waiting.finish();
    for lease in session.leases.values().chain(&late) {
        Registry::release(lease, &mut session.effects);
    }
    // First of all the client sees the end: it is its own affair how long that of its alarm takes.
    connection.close();
    connection.end_alarm();
    session.settle();
}

impl<'a> Session<'a> {
    fn serve(&mut self) -> Result<(), Goodbye> {
        let mut buffer = FrameBuffer::new(MAX_HELLO_FRAME);
        while let Some((_taken, is_crumb)) = self.read(&mut buffer)? {
            let (mut frames, mut urgent) = (0, None);
            if self.calm.is_some() {
                self.connection.cork();
            }
            while let Some((header, body)) = buffer.next_frame().map_err(goodbye)? {
                let frame = ClientFrame::decode(&header, body).map_err(goodbye)?;
                let first = self.version.is_none();
                if frames % TOGETHER == 0 {
                    drop(urgent.take());
                    self.calm.take_if(|(until, _)| clock::now() >= *until);
                    // Each request is handed on in a hurry: to change the priority once is enough for several.
                    let wanted = self.calm.is_some() && !self.leases.is_empty();
                    urgent = realtime::urgently(wanted && self.front.overview.config.daemon.realtime);
                }
                frames += 1;
                self.length = HEADER_LEN + header.length as usize;
                self.read = self.read + debt::of_frame(self.length);
                self.handle(&header, frame)?;
                if first {
                    buffer.set_max_frame(self.front.overview.config.daemon.max_frame);
                }
            }
            drop(urgent);
            self.connection.uncork();
            if frames == 0 && is_crumb {
                self.connection.owe(debt::of_frame(CRUMBS));
            }
            if self.descriptor.is_some() && !buffer.is_mid_frame() {
                return Err(malformed("a descriptor came without an ARENA"));
            }
        }
        Ok(())
    }

    fn handle(&mut self, header: &Header, frame: ClientFrame<'_>) -> Result<(), Goodbye> {
        let id = header.id;
        match frame {
            ClientFrame::Hello { min_version, max_version, .. } if self.version.is_none() => {
                let version = max_version.min(VERSION);
                if version < min_version.max(OLDEST_VERSION) {
                    let text = format!(
                        "this daemon speaks versions {OLDEST_VERSION}..={VERSION}, you {min_version}..={max_version}"
                    );
                    return Err(Goodbye(ErrorCode::Version, text));
                }
                self.version = Some(version);
                let DaemonConfig { max_frame, max_arena, .. } = self.front.overview.config.daemon;
                let daemon = concat!("weir ", env!("CARGO_PKG_VERSION"));
                self.reply(id, &DaemonFrame::Welcome { version, max_frame, max_arena, daemon });
            }
            ClientFrame::Hello { .. } => {
                return Err(Goodbye(ErrorCode::ProtocolOrder, "HELLO a second time".into()));
            }
            _ if self.version.is_none() => {
                return Err(Goodbye(ErrorCode::ProtocolOrder, "the first frame must be HELLO".into()));
            }
            ClientFrame::SubmitAt { .. } | ClientFrame::SubmitSharedAt { .. }
                if self.version < Some(SENT_VERSION) =>
            {
                return Err(goodbye(WireError::UnknownKind(header.kind)));
            }
            ClientFrame::SubmitAt { within_us: 1.., .. }
            | ClientFrame::SubmitSharedAt { within_us: 1.., .. }
                if self.version < Some(WITHIN_VERSION) =>
            {
                return Err(malformed("a deadline of a request's own is of version 4"));
            }
            ClientFrame::SubmitOf { .. } | ClientFrame::SubmitSharedOf { .. }
                if self.version < Some(CLASS_VERSION) =>
            {
                return Err(goodbye(WireError::UnknownKind(header.kind)));
            }
            ClientFrame::Register(registration)
                if registration.class().is_some() && self.version < Some(CLASS_VERSION) =>
            {
                return Err(malformed("the class of a stream is of version 5"));
            }
            ClientFrame::Submit { stream, payload } => self.submit(id, (stream, Said::default()), payload),
            ClientFrame::SubmitAt { stream, within_us, sent_ns, payload } => {
                self.submit(id, (stream, said(within_us, sent_ns, None)), payload);
            }
            ClientFrame::SubmitShared { stream, input, output } => {
                self.submit_shared(id, (stream, Said::default()), (input, output));
            }
            ClientFrame::SubmitSharedAt { stream, within_us, sent_ns, input, output } => {
                self.submit_shared(id, (stream, said(within_us, sent_ns, None)), (input, output));
            }
            ClientFrame::SubmitOf { stream, within_us, sent_ns, class, payload } => {
                self.submit(id, (stream, said(within_us, sent_ns, Some(class))), payload);
            }
            ClientFrame::SubmitSharedOf { stream, within_us, sent_ns, class, input, output } => {
                let said = said(within_us, sent_ns, Some(class));
                self.submit_shared(id, (stream, said), (input, output));
            }
            ClientFrame::Arena { length } => {
                let file = self.descriptor.take().ok_or(WireError::NoDescriptor { kind: header.kind });
                self.share(id, file.map_err(goodbye)?, length);
            }
            ClientFrame::Alarm => self.alarm(id),
            ClientFrame::Register(registration) => {
                let most = self.front.overview.config.daemon.client_streams;
                if self.leases.len() + self.waiting.len() >= most {
                    let text = format!("daemon.client-streams = {most} are held by this connection or wait");
                    self.refuse(id, RefusalCode::TooManyStreams, &text);
                } else if let Some(outcome) =
                    register::register(&self.front.overview, &registration, &mut self.effects, false)
                {
                    self.registered(id, outcome);
                } else if let Err(refusal) =
                    self.waiting.start(&self.front.overview, self.connection, (id, registration.into_owned()))
                {
                    self.registered(id, Err(refusal));
                }
            }
            ClientFrame::Unregister { stream } => match self.leases.remove(&stream) {
                Some(lease) => {
                    Registry::release(&lease, &mut self.effects);
                    self.reply(id, &DaemonFrame::Unregistered);
                }
                None => self.refuse_stream(id, stream),
            },
            ClientFrame::Subscribe { .. } | ClientFrame::Status | ClientFrame::Ping if !self.may_ask() => {
                let most = self.front.overview.config.daemon.client_questions;
                let text = format!("daemon.client-questions = {most} a second were asked");
                self.refuse(id, RefusalCode::TooManyQuestions, &text);
            }
            ClientFrame::Subscribe { mask } => {
                self.connection.owe(debt::of_frame(0));
                self.connection.subscribe(mask.within(self.version.unwrap_or(OLDEST_VERSION)));
                self.reply(id, &DaemonFrame::Subscribed);
            }
            ClientFrame::Status => {
                // It takes as long as there are streams, and nobody's deadline depends on it.
                let json = realtime::calmly(|| self.front.status());
                self.connection.owe(debt::of_frame(0) + Span::from_nanos(STATUS_BYTE * json.len() as u64));
                self.reply(id, &DaemonFrame::StatusReply { json: &json });
            }
            ClientFrame::Ping => {
                self.connection.owe(debt::of_frame(0));
                self.reply(id, &DaemonFrame::Pong);
            }
        }
        Ok(())
    }

    /// Whether the client may ask one more question now. To refuse it costs as much as to answer it: a client that
    /// asks too often is served without real-time priority until it may again.
    fn may_ask(&mut self) -> bool {
        let may = self.questions.take(clock::now());
        if !may {
            self.calm_down(self.questions.has_room_at());
        }
        may
    }

    /// Has the thread go without real-time priority until then.
    fn calm_down(&mut self, until: Instant) {
        let (before, calm) = self.calm.take().unwrap_or((until, None));
        self.calm = Some((until.max(before), calm.or_else(realtime::calm)));
    }

    fn registered(&mut self, id: u64, outcome: Result<Lease, Refusal>) {
        // The first stream that is promised something is not in vain: what others of the process owe must not keep its first
        // request from being read. Who connects for no more than that is held up by how often it may.
        let first = self.next_stream == 1;
        if !outcome.as_ref().is_ok_and(|lease| lease.promised && first) {
            self.connection.owe(REGISTERING);
        }
        match outcome {
            Ok(lease) => {
                if first {
                    // Whoever holds no stream is in no hurry.
                    self.calm = None;
                    realtime::enter(Role::Dispatch, None, self.front.overview.config.daemon.realtime);
                }
                let number = self.next_stream;
                self.next_stream += 1;
                self.reply(id, &register::registered(number, &lease, self.version));
                self.leases.insert(number, lease);
            }
            Err(refusal) => self.refuse(id, refusal.code, &refusal.text),
        }
    }

    /// Maps memory, for which the kernel may have to make each page of it first: that is paid for, and after what is owed already.
    fn share(&mut self, id: u64, file: OwnedFd, length: u64) {
        if let Some(wait) = self.debt.wait(clock::now()) {
            std::thread::park_timeout(clock::duration(wait));
        }
        let (most, second) = (self.front.overview.config.daemon.max_arena, self.arena.is_some());
        // With the descriptor the last of what is refused may go, which takes its time too.
        let shared = self.in_vain(move || match second {
            true => Err("this connection shares an arena already".to_owned()),
            false => Arena::map(&file, length, most),
        });
        match shared {
            Ok(arena) => {
                self.arena = Some(arena);
                self.reply(id, &DaemonFrame::Mapped);
            }
            Err(text) => self.refuse(id, RefusalCode::Arena, &text),
        }
    }

    /// Does what takes the kernel some time, at the expense of the client's process and without being in anybody's way.
    fn in_vain<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = clock::thread_time();
        let done = realtime::calmly(work);
        let took = clock::thread_time().saturating_sub(began);
        self.read = self.read + took;
        self.connection.owe(took);
        done
    }

    /// Gives back what only the thread's end would, and charges what has not been charged: who connects anew owes it.
    fn settle(&mut self) {
        let arena = self.arena.take();
        self.in_vain(move || drop(arena));
        self.charge();
    }

    fn alarm(&mut self, id: u64) {
        let refused = if self.connection.has_alarm() {
            "this connection has its eventfd already".to_owned()
        } else if !self.connection.wants(EventMask::CHANGES) {
            "it would never count: SUBSCRIBE to EVENT_SAFE_MODE or EVENT_SUSPENSION first".to_owned()
        } else {
            match Alarm::new(self.front.overview.config.daemon.realtime) {
                Ok((alarm, file)) => {
                    self.frame.clear();
                    DaemonFrame::Alarmed.encode(id, &mut self.frame);
                    return self.connection.give_alarm(alarm, file, &self.frame);
                }
                Err(error) => error.to_string(),
            }
        };
        self.refuse(id, RefusalCode::Alarm, &refused);
    }

    fn refuse_stream(&mut self, id: u64, stream: u32) {
        let text = format!("stream {stream} is not registered on this connection");
        self.refuse(id, RefusalCode::UnknownStream, &text);
    }

    fn refuse(&mut self, id: u64, code: RefusalCode, text: &str) {
        self.connection.owe(debt::of_frame(self.length));
        self.reply(id, &DaemonFrame::Refused { code, text });
    }

    fn reply(&mut self, id: u64, frame: &DaemonFrame<'_>) {
        self.frame.clear();
        frame.encode(id, &mut self.frame);
        self.connection.send(&self.frame);
    }
}

/// What a request says of itself in these fields.
fn said(within_us: u32, sent_ns: u64, class: Option<u8>) -> Said {
    let within = (within_us > 0).then(|| Span::from_micros(within_us.into()));
    Said { sent: Some(Instant::from_nanos(sent_ns)), within, class }
}

fn malformed(text: &str) -> Goodbye {
    Goodbye(ErrorCode::Malformed, text.to_owned())
}

fn goodbye(error: WireError) -> Goodbye {
    Goodbye(error.code(), error.to_string())
}
