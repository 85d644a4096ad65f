//! On a request's way: the frames that carry it over the socket, used by both ends; `docs/protocol.md` in code.
//!
//! Reading: [`FrameBuffer`] cuts the byte stream into frames, [`ClientFrame::decode`] and
//! [`DaemonFrame::decode`] turn a body into fields without copying payloads. Writing: `encode` appends one
//! whole frame to a buffer and allocates only where the buffer has no capacity left.

mod buffer;
mod change;
mod client_frame;
mod codec;
mod codes;
mod daemon_frame;
mod error;
mod registration;
mod result_head;
mod tensors;

pub use buffer::FrameBuffer;
pub use change::Change;
pub use client_frame::{ClientFrame, EventMask};
pub use codec::Header;
pub use codes::{
    DataType, ErrorCode, Kind, MissReason, RefusalCode, SafeModeCause, SafeModeState, StreamState,
};
pub use daemon_frame::DaemonFrame;
pub use error::WireError;
pub use result_head::ResultHead;

/// The newest version of the protocol this crate speaks.
pub const VERSION: u16 = 5;

/// From this version on a request may say when it was sent.
pub const SENT_VERSION: u16 = 3;

/// From this version on a request may say how soon its answer is wanted, and a RESULT how many requests were skipped.
pub const WITHIN_VERSION: u16 = 4;

/// From this version on requests and streams may be of a class, and a late RESULT says that it is.
pub const CLASS_VERSION: u16 = 5;

/// The oldest version it speaks as well.
pub const OLDEST_VERSION: u16 = 1;

/// The first bytes of a HELLO body.
pub const MAGIC: [u8; 4] = *b"WEIR";

/// Bytes of the header before every body.
pub const HEADER_LEN: usize = 16;

/// Largest body in bytes unless WELCOME says otherwise: 4 MiB.
pub const DEFAULT_MAX_FRAME: u32 = 4 << 20;

/// Largest body in bytes of the frame that opens a connection, HELLO.
pub const MAX_HELLO_FRAME: u32 = 512;

/// Longest name in bytes: client, daemon, service, stream, variant.
pub const MAX_NAME: usize = 255;

/// Longest text in bytes: refusals, errors, evidence.
pub const MAX_TEXT: usize = 1024;

/// Most constraints of one stream.
pub const MAX_CONSTRAINTS: usize = 8;

/// Most arrival bounds of one stream.
pub const MAX_ARRIVALS: usize = 4;

/// Most tensors on one side of a stream.
pub const MAX_TENSORS: usize = 16;

/// Most dimensions of a tensor.
pub const MAX_DIMENSIONS: usize = 8;

/// Most classes of requests of one service.
pub const MAX_CLASSES: usize = 16;

/// Within a payload or output each tensor begins at a multiple of this many bytes.
pub const PACKING: usize = 8;

/// Bytes of a SUBMIT body before its payload.
pub const SUBMIT_HEAD_LEN: usize = 8;

/// Bytes of a SUBMIT_AT body before its payload.
pub const SUBMIT_AT_HEAD_LEN: usize = 16;

/// Bytes of a SUBMIT_OF body before its payload.
pub const SUBMIT_OF_HEAD_LEN: usize = 24;

/// Bytes of a RESULT body before its output.
pub const RESULT_HEAD_LEN: usize = 40;
