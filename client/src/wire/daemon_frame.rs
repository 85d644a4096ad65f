//! On a request's way: its last step, the frames the daemon sends to a client.

use std::borrow::Cow;

use super::change::Change;
use super::codec::{Reader, Writer};
use super::registration::{read_constraint, write_constraint};
use super::result_head::{NO_CONSTRAINT, ResultHead, read_misses_left};
use super::tensors::{read_stream, write_stream};
use super::{ErrorCode, Header, Kind, MAX_NAME, MAX_TEXT, MissReason, RefusalCode, WireError};
use super::{SafeModeState, StreamState};
use crate::types::{Constraint, StreamInfo};

/// A frame from daemon to client.
///
/// Names above 255 bytes and texts above 1024 bytes are cut at a character when encoded.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonFrame<'a> {
    /// Answers HELLO.
    Welcome {
        /// The version both ends speak from here on.
        version: u16,
        /// Largest body in bytes, in both directions.
        max_frame: u32,
        /// Largest arena in bytes; 0 where none is accepted.
        max_arena: u64,
        /// Name and version of the daemon, for logs.
        daemon: &'a str,
    },
    /// Answers REGISTER.
    Registered(Cow<'a, StreamInfo>),
    /// Answers UNREGISTER.
    Unregistered,
    /// Answers a request: the output, in time, or late where that is worth something.
    Result {
        /// Everything but the output.
        head: ResultHead,
        /// The output tensors, packed; empty where they lie in the arena.
        output: &'a [u8],
    },
    /// Answers SUBMIT and SUBMIT_SHARED: no output in time.
    Miss {
        /// The request's stream.
        stream: u32,
        /// Misses the tightest constraint still allows; `None` without one. `u32::MAX` reads back as `None`.
        misses_left: Option<u32>,
        /// Number of the request within its stream, from 0.
        sequence: u64,
        /// Why.
        reason: MissReason,
    },
    /// Answers SUBSCRIBE.
    Subscribed,
    /// Answers STATUS.
    StatusReply {
        /// A JSON object.
        json: &'a str,
    },
    /// Answers PING.
    Pong,
    /// Answers ARENA.
    Mapped,
    /// Answers ALARM; an eventfd comes with it, as a descriptor in `SCM_RIGHTS`.
    Alarmed,
    /// Answers a request that is not granted; the connection stays open.
    Refused {
        /// Why.
        code: RefusalCode,
        /// Why, for people; at most 1024 bytes.
        text: &'a str,
    },
    /// The last frame before the daemon closes the connection.
    Error {
        /// Why.
        code: ErrorCode,
        /// Why, for people; at most 1024 bytes.
        text: &'a str,
    },
    /// A service entered or left safe mode.
    SafeMode {
        /// The state entered.
        state: SafeModeState,
        /// Why, and the evidence.
        change: Change<'a>,
    },
    /// The promise to one stream is suspended, or holds again.
    Suspension {
        /// The state entered.
        state: StreamState,
        /// What the stream itself broke, and the evidence.
        change: Change<'a>,
    },
    /// A stream has few misses left.
    MissesLeft {
        /// Misses the constraint still allows.
        misses_left: u32,
        /// The constraint.
        constraint: Constraint,
        /// The stream's service.
        service: &'a str,
        /// The stream.
        stream: &'a str,
    },
    /// Events were dropped because the client read too slowly.
    EventsLost {
        /// How many, since the last frame of this kind.
        count: u64,
    },
}

impl<'a> DaemonFrame<'a> {
    /// What the frame is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Welcome { .. } => Kind::Welcome,
            Self::Registered(_) => Kind::Registered,
            Self::Unregistered => Kind::Unregistered,
            Self::Result { head, .. } => {
                if head.late {
                    Kind::ResultLate
                } else {
                    Kind::Result
                }
            }
            Self::Miss { .. } => Kind::Miss,
            Self::Subscribed => Kind::Subscribed,
            Self::StatusReply { .. } => Kind::StatusReply,
            Self::Pong => Kind::Pong,
            Self::Mapped => Kind::Mapped,
            Self::Alarmed => Kind::Alarmed,
            Self::Refused { .. } => Kind::Refused,
            Self::Error { .. } => Kind::Error,
            Self::SafeMode { .. } => Kind::EventSafeMode,
            Self::Suspension { .. } => Kind::EventSuspension,
            Self::MissesLeft { .. } => Kind::EventMissesLeft,
            Self::EventsLost { .. } => Kind::EventsLost,
        }
    }

    /// Appends the whole frame to `out`. `id` is that of the frame it answers, 0 for events.
    pub fn encode(&self, id: u64, out: &mut Vec<u8>) {
        let writer = Writer::begin(out, self.kind(), id);
        match *self {
            Self::Welcome { version, max_frame, max_arena, daemon } => {
                let limits = writer.u16(version).u16(0).u32(max_frame).u64(max_arena);
                limits.string(daemon, MAX_NAME)
            }
            Self::Registered(ref info) => write_stream(writer, info),
            Self::Result { ref head, output } => head.write(writer).bytes(output),
            Self::Miss { stream, misses_left, sequence, reason } => {
                let numbered = writer.u32(stream).u32(misses_left.unwrap_or(NO_CONSTRAINT)).u64(sequence);
                numbered.u16(reason.code())
            }
            Self::StatusReply { json } => writer.bytes(json.as_bytes()),
            Self::Refused { code, text } => writer.u16(code.code()).string(text, MAX_TEXT),
            Self::Error { code, text } => writer.u16(code.code()).string(text, MAX_TEXT),
            Self::SafeMode { state, ref change } => change.write(writer.u16(state.code())),
            Self::Suspension { state, ref change } => change.write(writer.u16(state.code())),
            Self::MissesLeft { misses_left, constraint, service, stream } => {
                let numbers = write_constraint(writer.u32(misses_left), constraint);
                numbers.string(service, MAX_NAME).string(stream, MAX_NAME)
            }
            Self::EventsLost { count } => writer.u64(count),
            Self::Unregistered | Self::Subscribed | Self::Pong | Self::Mapped | Self::Alarmed => writer,
        }
        .end();
    }

    /// Reads the body that followed `header`, borrowing names and output from it.
    ///
    /// # Errors
    /// Any deviation from the protocol, see [`WireError`].
    pub fn decode(header: &Header, body: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Reader::new(header.kind, body);
        let frame = match header.kind {
            Kind::Welcome => {
                let version = fields.u16("version")?;
                let reserved = fields.u16("reserved")?;
                fields.must_be_zero("reserved", reserved.into())?;
                Self::Welcome {
                    version,
                    max_frame: fields.u32("max_frame")?,
                    max_arena: fields.u64("max_arena")?,
                    daemon: fields.string("daemon", MAX_NAME)?,
                }
            }
            Kind::Registered => Self::Registered(Cow::Owned(read_stream(&mut fields)?)),
            Kind::Unregistered => Self::Unregistered,
            kind @ (Kind::Result | Kind::ResultLate) => {
                let head = ResultHead::read(&mut fields, matches!(kind, Kind::ResultLate))?;
                Self::Result { head, output: fields.rest() }
            }
            Kind::Miss => Self::Miss {
                stream: fields.u32("stream")?,
                misses_left: read_misses_left(&mut fields)?,
                sequence: fields.u64("sequence")?,
                reason: MissReason::from_code(fields.u16("reason")?),
            },
            Kind::Subscribed => Self::Subscribed,
            Kind::StatusReply => Self::StatusReply { json: fields.rest_as_text("status")? },
            Kind::Pong => Self::Pong,
            Kind::Mapped => Self::Mapped,
            Kind::Alarmed => Self::Alarmed,
            Kind::Refused => Self::Refused {
                code: RefusalCode::from_code(fields.u16("code")?),
                text: fields.string("text", MAX_TEXT)?,
            },
            Kind::Error => Self::Error {
                code: ErrorCode::from_code(fields.u16("code")?),
                text: fields.string("text", MAX_TEXT)?,
            },
            Kind::EventSafeMode => Self::SafeMode {
                state: SafeModeState::from_code(fields.u16("state")?),
                change: Change::read(&mut fields)?,
            },
            Kind::EventSuspension => Self::Suspension {
                state: StreamState::from_code(fields.u16("state")?),
                change: Change::read(&mut fields)?,
            },
            Kind::EventMissesLeft => Self::MissesLeft {
                misses_left: fields.u32("misses_left")?,
                constraint: read_constraint(&mut fields)?,
                service: fields.string("service", MAX_NAME)?,
                stream: fields.string("stream", MAX_NAME)?,
            },
            Kind::EventsLost => Self::EventsLost { count: fields.u64("count")? },
            other => return Err(WireError::UnknownKind(other)),
        };
        fields.end()?;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_later_versions_are_kept() {
        let mut out = Vec::new();
        let reason = MissReason::from_code(999);
        let miss = DaemonFrame::Miss { stream: 1, misses_left: Some(0), sequence: 7, reason };
        miss.encode(3, &mut out);
        let (head, body) = out.split_first_chunk().expect("a header");
        let header = Header::decode(head, 100).expect("a short frame");
        assert_eq!(DaemonFrame::decode(&header, body), Ok(miss));
    }
}
