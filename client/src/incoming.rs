//! On a request's way: where a daemon's frame becomes an owned value that can wait for whoever it is for.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::alarm::Alarm;
use crate::error::Error;
use crate::types::{
    Answer, Event, Inference, Miss, MissesLeftEvent, Outcome, Refusal, RequestId, SafeModeEvent, StreamInfo,
    SuspensionEvent,
};
use crate::wire::{DaemonFrame, Header, Kind, OLDEST_VERSION, ResultHead, VERSION, WireError};

/// What one frame brought.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The answer to the frame of this id.
    Reply(u64, Reply),
    /// An event.
    Event(Event),
}

/// The answer to one frame.
#[derive(Debug)]
pub(crate) enum Reply {
    Welcome {
        version: u16,
        max_frame: u32,
        max_arena: u64,
        daemon: String,
    },
    Registered(StreamInfo),
    Outcome(Outcome),
    Status(String),
    Refused(Refusal),
    Alarmed(Alarm),
    /// An answer that says nothing but its kind.
    Done(Kind),
}

impl Incoming {
    /// Reads a frame, with a descriptor that came along if it takes one; a frame that ends the connection is an error.
    pub(crate) fn read(
        header: &Header,
        body: &[u8],
        descriptor: &mut Option<OwnedFd>,
    ) -> Result<Self, Error> {
        let reply = match DaemonFrame::decode(header, body)? {
            DaemonFrame::Welcome { version, max_frame, max_arena, daemon } => {
                Reply::Welcome { version, max_frame, max_arena, daemon: daemon.into() }
            }
            DaemonFrame::Registered(info) => Reply::Registered(info.into_owned()),
            DaemonFrame::Result { head, output } => Reply::Outcome(Outcome::Result(inference(head, output))),
            DaemonFrame::Miss { stream, misses_left, sequence, reason } => {
                Reply::Outcome(Outcome::Miss(Miss { stream, sequence, misses_left, reason }))
            }
            DaemonFrame::StatusReply { json } => Reply::Status(json.into()),
            DaemonFrame::Refused { code, text } => Reply::Refused(Refusal { code, text: text.into() }),
            done @ (DaemonFrame::Unregistered
            | DaemonFrame::Subscribed
            | DaemonFrame::Pong
            | DaemonFrame::Mapped) => Reply::Done(done.kind()),
            DaemonFrame::Alarmed => {
                let file = descriptor.take().ok_or(WireError::NoDescriptor { kind: header.kind })?;
                Reply::Alarmed(Alarm::new(file))
            }
            DaemonFrame::Error { code, text } => return Err(Error::Daemon { code, text: text.into() }),
            event => return Ok(Self::Event(self::event(event, header)?)),
        };
        Ok(Self::Reply(header.id, reply))
    }
}

impl Reply {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Welcome { .. } => Kind::Welcome,
            Self::Registered(_) => Kind::Registered,
            Self::Outcome(Outcome::Result(_)) => Kind::Result,
            Self::Outcome(Outcome::Miss(_)) => Kind::Miss,
            Self::Status(_) => Kind::StatusReply,
            Self::Refused(_) => Kind::Refused,
            Self::Alarmed(_) => Kind::Alarmed,
            Self::Done(kind) => *kind,
        }
    }

    /// Takes this as the answer to HELLO: the daemon's name, and the largest arena in bytes.
    pub(crate) fn welcome(self, id: u64) -> Result<(String, u64), Error> {
        match self {
            Self::Welcome { version: OLDEST_VERSION..=VERSION, daemon, max_arena, .. } => {
                Ok((daemon, max_arena))
            }
            Self::Welcome { version, .. } => Err(Error::Version(version)),
            other => Err(other.out_of_place(id)),
        }
    }

    /// Takes this as the answer to REGISTER.
    pub(crate) fn registered(self, id: u64) -> Result<StreamInfo, Error> {
        if let Self::Registered(info) = self { Ok(info) } else { Err(self.out_of_place(id)) }
    }

    /// Takes this as the answer to SUBMIT.
    pub(crate) fn outcome(self, id: u64) -> Result<Outcome, Error> {
        if let Self::Outcome(outcome) = self { Ok(outcome) } else { Err(self.out_of_place(id)) }
    }

    /// Takes this as the answer to STATUS.
    pub(crate) fn status(self, id: u64) -> Result<String, Error> {
        if let Self::Status(json) = self { Ok(json) } else { Err(self.out_of_place(id)) }
    }

    /// Takes this as the answer to ALARM.
    pub(crate) fn alarm(self, id: u64) -> Result<Alarm, Error> {
        if let Self::Alarmed(alarm) = self { Ok(alarm) } else { Err(self.out_of_place(id)) }
    }

    /// Takes this as an answer that says nothing but its kind.
    pub(crate) fn done(self, kind: Kind, id: u64) -> Result<(), Error> {
        if self.kind() == kind { Ok(()) } else { Err(self.out_of_place(id)) }
    }

    /// Takes this as the answer to some SUBMIT.
    pub(crate) fn answer(self, id: u64) -> Result<Answer, Error> {
        match self {
            Self::Outcome(Outcome::Result(inference)) => Ok(Answer::Result(RequestId(id), inference)),
            Self::Outcome(Outcome::Miss(miss)) => Ok(Answer::Miss(RequestId(id), miss)),
            Self::Refused(refusal) => Ok(Answer::Refused(RequestId(id), refusal)),
            other => Err(other.out_of_place(id)),
        }
    }

    /// Why this is not the answer that was waited for.
    pub(crate) fn out_of_place(self, id: u64) -> Error {
        match self {
            Self::Refused(refusal) => Error::Refused(refusal),
            other => Error::Unexpected { got: other.kind(), id },
        }
    }
}

fn inference(head: ResultHead, output: &[u8]) -> Inference {
    Inference {
        stream: head.stream,
        sequence: head.sequence,
        misses_left: head.misses_left,
        queued: Duration::from_nanos(head.queued_ns),
        run: Duration::from_nanos(head.run_ns),
        batch: head.batch,
        variant: head.variant,
        skipped: head.skipped,
        late: head.late,
        output: output.to_vec(),
    }
}

fn event(frame: DaemonFrame<'_>, header: &Header) -> Result<Event, Error> {
    Ok(match frame {
        DaemonFrame::SafeMode { state, change } => Event::SafeMode(SafeModeEvent {
            service: change.service.into(),
            state,
            cause: change.cause,
            sequence: change.sequence,
            entered: Duration::from_nanos(change.entered_ns),
            stream: change.stream.into(),
            limit: change.limit,
            seen: change.seen,
            window: Duration::from_nanos(change.window_ns),
            breaches: change.breaches,
            text: change.text.into(),
        }),
        DaemonFrame::Suspension { state, change } => Event::Suspension(SuspensionEvent {
            service: change.service.into(),
            stream: change.stream.into(),
            state,
            cause: change.cause,
            sequence: change.sequence,
            entered: Duration::from_nanos(change.entered_ns),
            limit: change.limit,
            seen: change.seen,
            window: Duration::from_nanos(change.window_ns),
            breaches: change.breaches,
            text: change.text.into(),
        }),
        DaemonFrame::MissesLeft { misses_left, constraint, service, stream } => {
            Event::MissesLeft(MissesLeftEvent {
                service: service.into(),
                stream: stream.into(),
                misses_left,
                constraint,
            })
        }
        DaemonFrame::EventsLost { count } => Event::Lost { count },
        other => return Err(Error::Unexpected { got: other.kind(), id: header.id }),
    })
}
