//! On a request's way: its first step, the frames a client sends to the daemon.

use std::borrow::Cow;

use super::codec::{Reader, Writer};
use super::registration::{read_registration, write_registration};
use super::{Header, Kind, MAGIC, MAX_NAME, WireError};
use crate::types::Registration;

/// A frame from client to daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientFrame<'a> {
    /// Opens the connection; always the first frame.
    Hello {
        /// Lowest version of the protocol the client speaks.
        min_version: u16,
        /// Highest version of the protocol the client speaks.
        max_version: u16,
        /// Who is calling, for logs; at most 255 bytes.
        name: &'a str,
    },
    /// Asks for a stream.
    Register(Cow<'a, Registration>),
    /// Gives a stream up.
    Unregister {
        /// Its number, from REGISTERED.
        stream: u32,
    },
    /// One request.
    Submit {
        /// The stream it belongs to.
        stream: u32,
        /// The input tensors, packed, exactly `input_bytes` long.
        payload: &'a [u8],
    },
    /// One request, with the instant at which it was sent; from version 3 of the protocol on.
    SubmitAt {
        /// The stream it belongs to.
        stream: u32,
        /// How soon after that the answer is wanted, in microseconds; 0 for the service's deadline, as always before version 4.
        within_us: u32,
        /// When it was sent, in nanoseconds of `CLOCK_MONOTONIC`.
        sent_ns: u64,
        /// The input tensors, packed, exactly `input_bytes` long.
        payload: &'a [u8],
    },
    /// Hands over the memory that comes with this frame, as a descriptor in `SCM_RIGHTS`.
    Arena {
        /// Its length in bytes.
        length: u64,
    },
    /// One request whose tensors lie in the arena.
    SubmitShared {
        /// The stream it belongs to.
        stream: u32,
        /// Where in the arena its input tensors begin, a multiple of 8.
        input: u64,
        /// Where in the arena its output tensors are to begin, a multiple of 8.
        output: u64,
    },
    /// The same, with the instant at which it was sent; from version 3 of the protocol on.
    SubmitSharedAt {
        /// The stream it belongs to.
        stream: u32,
        /// How soon after that the answer is wanted, in microseconds; 0 for the service's deadline, as always before version 4.
        within_us: u32,
        /// When it was sent, in nanoseconds of `CLOCK_MONOTONIC`.
        sent_ns: u64,
        /// Where in the arena its input tensors begin, a multiple of 8.
        input: u64,
        /// Where in the arena its output tensors are to begin, a multiple of 8.
        output: u64,
    },
    /// One request of a class, with the instant at which it was sent; from version 5 of the protocol on.
    SubmitOf {
        /// The stream it belongs to.
        stream: u32,
        /// As of SUBMIT_AT.
        within_us: u32,
        /// When it was sent, in nanoseconds of `CLOCK_MONOTONIC`.
        sent_ns: u64,
        /// Its class, by its place among those of REGISTERED.
        class: u8,
        /// The input tensors, packed, exactly `input_bytes` long.
        payload: &'a [u8],
    },
    /// The same, whose tensors lie in the arena; from version 5 of the protocol on.
    SubmitSharedOf {
        /// The stream it belongs to.
        stream: u32,
        /// As of SUBMIT_AT.
        within_us: u32,
        /// When it was sent, in nanoseconds of `CLOCK_MONOTONIC`.
        sent_ns: u64,
        /// Its class, by its place among those of REGISTERED.
        class: u8,
        /// Where in the arena its input tensors begin, a multiple of 8.
        input: u64,
        /// Where in the arena its output tensors are to begin, a multiple of 8.
        output: u64,
    },
    /// Asks for an eventfd that counts changes of safe mode and suspensions.
    Alarm,
    /// Chooses the events to be told; replaces the choice made before.
    Subscribe {
        /// The events wanted.
        mask: EventMask,
    },
    /// Asks for the daemon's state.
    Status,
    /// Asks for a PONG.
    Ping,
}

impl<'a> ClientFrame<'a> {
    /// What the frame is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello { .. } => Kind::Hello,
            Self::Register(_) => Kind::Register,
            Self::Unregister { .. } => Kind::Unregister,
            Self::Submit { .. } => Kind::Submit,
            Self::Arena { .. } => Kind::Arena,
            Self::SubmitShared { .. } => Kind::SubmitShared,
            Self::SubmitAt { .. } => Kind::SubmitAt,
            Self::SubmitSharedAt { .. } => Kind::SubmitSharedAt,
            Self::SubmitOf { .. } => Kind::SubmitOf,
            Self::SubmitSharedOf { .. } => Kind::SubmitSharedOf,
            Self::Alarm => Kind::Alarm,
            Self::Subscribe { .. } => Kind::Subscribe,
            Self::Status => Kind::Status,
            Self::Ping => Kind::Ping,
        }
    }

    /// The same request, sent at `sent_ns`, its answer wanted within so many microseconds, of that class if of one; any other
    /// frame as it is.
    pub(crate) fn sent_at(self, sent_ns: u64, within_us: u32, class: Option<u8>) -> Self {
        match (self, class) {
            (Self::Submit { stream, payload }, Some(class)) => {
                Self::SubmitOf { stream, within_us, sent_ns, class, payload }
            }
            (Self::SubmitShared { stream, input, output }, Some(class)) => {
                Self::SubmitSharedOf { stream, within_us, sent_ns, class, input, output }
            }
            (own, _) => own.sent_of_none(sent_ns, within_us),
        }
    }

    fn sent_of_none(self, sent_ns: u64, within_us: u32) -> Self {
        match self {
            Self::Submit { stream, payload } => Self::SubmitAt { stream, within_us, sent_ns, payload },
            Self::SubmitShared { stream, input, output } => {
                Self::SubmitSharedAt { stream, within_us, sent_ns, input, output }
            }
            other => other,
        }
    }

    /// Appends the whole frame to `out`. `id` must not be 0. Names above 255 bytes are cut at a character.
    pub fn encode(&self, id: u64, out: &mut Vec<u8>) {
        let writer = Writer::begin(out, self.kind(), id);
        match self {
            Self::Hello { min_version, max_version, name } => {
                writer.bytes(&MAGIC).u16(*min_version).u16(*max_version).string(name, MAX_NAME)
            }
            Self::Register(registration) => write_registration(writer, registration),
            Self::Unregister { stream } => writer.u32(*stream),
            Self::Submit { stream, payload } => writer.u32(*stream).u32(0).bytes(payload),
            Self::Arena { length } => writer.u64(*length),
            Self::SubmitShared { stream, input, output } => {
                writer.u32(*stream).u32(0).u64(*input).u64(*output)
            }
            Self::SubmitAt { stream, within_us, sent_ns, payload } => {
                writer.u32(*stream).u32(*within_us).u64(*sent_ns).bytes(payload)
            }
            Self::SubmitSharedAt { stream, within_us, sent_ns, input, output } => {
                writer.u32(*stream).u32(*within_us).u64(*sent_ns).u64(*input).u64(*output)
            }
            Self::SubmitOf { stream, within_us, sent_ns, class, payload } => {
                write_class(writer.u32(*stream).u32(*within_us).u64(*sent_ns), *class).bytes(payload)
            }
            Self::SubmitSharedOf { stream, within_us, sent_ns, class, input, output } => {
                let head = writer.u32(*stream).u32(*within_us).u64(*sent_ns);
                write_class(head, *class).u64(*input).u64(*output)
            }
            Self::Subscribe { mask } => writer.u32(mask.0),
            Self::Alarm | Self::Status | Self::Ping => writer,
        }
        .end();
    }

    /// Reads the body that followed `header`, borrowing names and payload from it.
    ///
    /// # Errors
    /// Any deviation from the protocol, see [`WireError`].
    pub fn decode(header: &Header, body: &'a [u8]) -> Result<Self, WireError> {
        let kind = header.kind;
        let mut fields = Reader::new(kind, body);
        let frame = match kind {
            Kind::Hello => {
                let magic = fields.array("magic")?;
                if magic != MAGIC {
                    return Err(WireError::Magic(magic));
                }
                Self::Hello {
                    min_version: fields.u16("min version")?,
                    max_version: fields.u16("max version")?,
                    name: fields.string("client name", MAX_NAME)?,
                }
            }
            Kind::Register => Self::Register(Cow::Owned(read_registration(&mut fields)?)),
            Kind::Unregister => Self::Unregister { stream: fields.u32("stream")? },
            Kind::Submit => {
                let stream = fields.u32("stream")?;
                fields.reserved("reserved")?;
                Self::Submit { stream, payload: fields.rest() }
            }
            Kind::Arena => Self::Arena { length: fields.u64("length")? },
            Kind::SubmitShared => {
                let stream = fields.u32("stream")?;
                fields.reserved("reserved")?;
                Self::SubmitShared { stream, input: fields.u64("input")?, output: fields.u64("output")? }
            }
            Kind::SubmitAt => {
                let (stream, within_us) = (fields.u32("stream")?, fields.u32("within")?);
                Self::SubmitAt { stream, within_us, sent_ns: fields.u64("sent")?, payload: fields.rest() }
            }
            Kind::SubmitSharedAt => {
                let (stream, within_us) = (fields.u32("stream")?, fields.u32("within")?);
                let (sent_ns, input, output) =
                    (fields.u64("sent")?, fields.u64("input")?, fields.u64("output")?);
                Self::SubmitSharedAt { stream, within_us, sent_ns, input, output }
            }
            Kind::SubmitOf => {
                let (stream, within_us) = (fields.u32("stream")?, fields.u32("within")?);
                let (sent_ns, class) = (fields.u64("sent")?, read_class(&mut fields)?);
                Self::SubmitOf { stream, within_us, sent_ns, class, payload: fields.rest() }
            }
            Kind::SubmitSharedOf => {
                let (stream, within_us) = (fields.u32("stream")?, fields.u32("within")?);
                let (sent_ns, class) = (fields.u64("sent")?, read_class(&mut fields)?);
                let (input, output) = (fields.u64("input")?, fields.u64("output")?);
                Self::SubmitSharedOf { stream, within_us, sent_ns, class, input, output }
            }
            Kind::Alarm => Self::Alarm,
            Kind::Subscribe => Self::Subscribe { mask: EventMask(fields.u32("mask")?) },
            Kind::Status => Self::Status,
            Kind::Ping => Self::Ping,
            other => return Err(WireError::UnknownKind(other)),
        };
        fields.end()?;
        if header.id == 0 {
            return Err(WireError::ZeroId { kind });
        }
        Ok(frame)
    }
}

/// A class, and what keeps tensors behind it at a multiple of 8.
fn write_class(writer: Writer<'_>, class: u8) -> Writer<'_> {
    writer.u8(class).bytes(&[0; 7])
}

fn read_class(fields: &mut Reader<'_>) -> Result<u8, WireError> {
    let [class, reserved @ ..] = fields.array::<8>("class")?;
    let wrong = reserved.into_iter().find(|&byte| byte != 0).unwrap_or(0);
    fields.must_be_zero("reserved", wrong.into())?;
    Ok(class)
}

/// The events a connection asks for; bits without a name are ignored by the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventMask(pub u32);

impl EventMask {
    /// None: ends a subscription.
    pub const NONE: Self = Self(0);
    /// A service entering or leaving safe mode.
    pub const SAFE_MODE: Self = Self(1);
    /// A stream with few misses left.
    pub const MISSES_LEFT: Self = Self(2);
    /// The promise to one stream suspended, or holding again; from version 2 of the protocol on.
    pub const SUSPENSION: Self = Self(4);
    /// What an alarm counts: both kinds of change of what is promised.
    pub const CHANGES: Self = Self(Self::SAFE_MODE.0 | Self::SUSPENSION.0);
    /// Everything this version names.
    pub const ALL: Self = Self(7);

    /// Whether all events of `other` are in this mask.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The events of this mask that `version` of the protocol has.
    pub const fn within(self, version: u16) -> Self {
        let known = if version < 2 { Self::SAFE_MODE.0 | Self::MISSES_LEFT.0 } else { Self::ALL.0 };
        Self(self.0 & known)
    }
}

impl std::ops::BitOr for EventMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{
        DEFAULT_MAX_FRAME, HEADER_LEN, PACKING, SUBMIT_AT_HEAD_LEN, SUBMIT_HEAD_LEN, SUBMIT_OF_HEAD_LEN,
    };

    fn decode(bytes: &[u8]) -> Result<ClientFrame<'_>, WireError> {
        let (head, body) = bytes.split_first_chunk::<HEADER_LEN>().expect("a header");
        ClientFrame::decode(&Header::decode(head, DEFAULT_MAX_FRAME)?, body)
    }

    #[test]
    fn a_submit_into_spare_capacity_does_not_allocate() {
        let mut out = Vec::with_capacity(HEADER_LEN + SUBMIT_HEAD_LEN + 400);
        let before = (out.as_ptr(), out.capacity());
        ClientFrame::Submit { stream: 1, payload: &[5; 400] }.encode(1, &mut out);
        assert_eq!((out.as_ptr(), out.capacity()), before);
        for head in [SUBMIT_HEAD_LEN, SUBMIT_AT_HEAD_LEN, SUBMIT_OF_HEAD_LEN] {
            assert_eq!((HEADER_LEN + head) % PACKING, 0, "the payload stays aligned within its frame");
        }
    }

    #[test]
    fn deviations_are_told_apart() {
        let mut ping = Vec::new();
        ClientFrame::Ping.encode(0, &mut ping);
        assert_eq!(decode(&ping), Err(WireError::ZeroId { kind: Kind::Ping }));
        ping[8] = 1;
        assert_eq!(decode(&ping), Ok(ClientFrame::Ping));
        ping.push(0);
        assert_eq!(decode(&ping), Err(WireError::Trailing { kind: Kind::Ping, bytes: 1 }));

        let mut hello = Vec::new();
        ClientFrame::Hello { min_version: 1, max_version: 1, name: "x" }.encode(1, &mut hello);
        hello[16] = b'w';
        assert_eq!(decode(&hello), Err(WireError::Magic(*b"wEIR")));
        hello[16] = b'W';
        hello[26] = 0xff;
        assert_eq!(decode(&hello), Err(WireError::Utf8 { kind: Kind::Hello, field: "client name", at: 0 }));

        let mut submit = Vec::new();
        ClientFrame::Submit { stream: 1, payload: &[] }.encode(1, &mut submit);
        submit[20] = 9;
        assert_eq!(
            decode(&submit),
            Err(WireError::Reserved { kind: Kind::Submit, field: "reserved", value: 9 })
        );
        submit[4] = 128;
        assert_eq!(decode(&submit), Err(WireError::UnknownKind(Kind::Welcome)));
    }

    #[test]
    fn masks_combine() {
        let old = EventMask::SAFE_MODE | EventMask::MISSES_LEFT;
        assert_eq!(old | EventMask::SUSPENSION, EventMask::ALL);
        assert_eq!((EventMask(u32::MAX).within(1), EventMask(u32::MAX).within(2)), (old, EventMask::ALL));
        assert!(EventMask::ALL.contains(EventMask::SAFE_MODE));
        assert!(!EventMask::SAFE_MODE.contains(EventMask::ALL));
    }
}
