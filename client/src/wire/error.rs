//! On a request's way: what is wrong with bytes that are not a frame of this protocol.

use super::codes::{ErrorCode, Kind};

/// Why bytes are not a frame; always fatal for the connection, never for the daemon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The header announces more than the connection allows.
    #[error("{kind}: length is {length} bytes, limit {limit}")]
    TooLarge {
        /// Kind in the same header.
        kind: Kind,
        /// Announced bytes after the header.
        length: u32,
        /// Largest allowed.
        limit: u32,
    },
    /// No frame of this kind travels in this direction.
    #[error("kind {0} is not a frame of this direction")]
    UnknownKind(Kind),
    /// The reserved flags of the header are set.
    #[error("{kind}: flags are {flags:#06x}, only 0 is defined")]
    Flags {
        /// Kind in the same header.
        kind: Kind,
        /// The flags found.
        flags: u16,
    },
    /// A client's frame carries id 0, which belongs to events.
    #[error("{kind}: id is 0, a client's frames need another")]
    ZeroId {
        /// Kind in the same header.
        kind: Kind,
    },
    /// The body ends before a field does.
    #[error("{kind}: {field} needs {needed} bytes, {left} left")]
    Short {
        /// Kind of the frame.
        kind: Kind,
        /// The field that does not fit.
        field: &'static str,
        /// Bytes the field takes.
        needed: usize,
        /// Bytes left in the body.
        left: usize,
    },
    /// The body goes on after its last field.
    #[error("{kind}: {bytes} bytes after the last field, 0 allowed")]
    Trailing {
        /// Kind of the frame.
        kind: Kind,
        /// Bytes too many.
        bytes: usize,
    },
    /// A string is not UTF-8.
    #[error("{kind}: {field} is not UTF-8 from byte {at}")]
    Utf8 {
        /// Kind of the frame.
        kind: Kind,
        /// The string.
        field: &'static str,
        /// Bytes of it that are valid.
        at: usize,
    },
    /// A string is longer than its limit.
    #[error("{kind}: {field} is {length} bytes, limit {limit}")]
    TooLong {
        /// Kind of the frame.
        kind: Kind,
        /// The string.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
        /// Largest allowed.
        limit: usize,
    },
    /// A list has more entries than its limit.
    #[error("{kind}: {field} has {count} entries, limit {limit}")]
    TooMany {
        /// Kind of the frame.
        kind: Kind,
        /// The list.
        field: &'static str,
        /// Its entries.
        count: usize,
        /// Most allowed.
        limit: usize,
    },
    /// The class of a stream is none of those that are told.
    #[error("{kind}: class is {class}, there are {classes}")]
    Class {
        /// Kind of the frame.
        kind: Kind,
        /// The class told.
        class: u8,
        /// How many there are.
        classes: usize,
    },
    /// A reserved field is not 0.
    #[error("{kind}: {field} is {value}, must be 0")]
    Reserved {
        /// Kind of the frame.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u32,
    },
    /// A frame came without the descriptor that belongs to it.
    #[error("{kind}: no descriptor came with it")]
    NoDescriptor {
        /// Kind of the frame.
        kind: Kind,
    },
    /// HELLO does not open with the magic bytes.
    #[error("HELLO: magic is {0:02x?}, expected \"WEIR\"")]
    Magic([u8; 4]),
}

impl WireError {
    /// The code of the ERROR frame that tells the other end.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            _ => ErrorCode::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_field_value_and_limit() {
        let long = WireError::TooLong { kind: Kind::Register, field: "service", length: 300, limit: 255 };
        assert_eq!(long.to_string(), "REGISTER: service is 300 bytes, limit 255");
        assert_eq!(long.code(), ErrorCode::Malformed);
        let large = WireError::TooLarge { kind: Kind::Submit, length: 9, limit: 8 };
        assert_eq!(large.to_string(), "SUBMIT: length is 9 bytes, limit 8");
        assert_eq!(large.code(), ErrorCode::TooLarge);
        let other = WireError::UnknownKind(Kind::from_code(77));
        assert_eq!(other.to_string(), "kind unknown (77) is not a frame of this direction");
    }
}
