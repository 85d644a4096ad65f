//! How a service or a stream came to stand where it stands: what both kinds of event say beside the state.

use super::codec::{Reader, Writer};
use super::{MAX_NAME, MAX_TEXT, SafeModeCause, WireError};

/// Everything that an event of safe mode, or of a suspension, says beside the state entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The assumption that broke; `Unknown(0)` where nothing is broken any more.
    pub cause: SafeModeCause,
    /// Number of the change, from 1: within the service, or among its streams.
    pub sequence: u64,
    /// When, in nanoseconds of the host's `CLOCK_MONOTONIC`.
    pub entered_ns: u64,
    /// What the assumption allows, or the stream declared, in the unit its cause gives.
    pub limit: u64,
    /// What was seen, in the same unit.
    pub seen: u64,
    /// The stretch of time looked at, in nanoseconds; 0 where there is none.
    pub window_ns: u64,
    /// Breaches of the service since the daemon started, or of the stream since it was registered, those that were not
    /// announced included.
    pub breaches: u64,
    /// The service.
    pub service: &'a str,
    /// The stream that broke it; empty where no single stream did.
    pub stream: &'a str,
    /// The evidence, for people; at most 1024 bytes.
    pub text: &'a str,
}

impl<'a> Change<'a> {
    /// Writes it behind the state's number.
    pub(super) fn write<'o>(&self, writer: Writer<'o>) -> Writer<'o> {
        let change = writer.u16(self.cause.code()).u32(0).u64(self.sequence).u64(self.entered_ns);
        let evidence = change.u64(self.limit).u64(self.seen).u64(self.window_ns).u64(self.breaches);
        evidence.string(self.service, MAX_NAME).string(self.stream, MAX_NAME).string(self.text, MAX_TEXT)
    }

    /// Reads what follows the state's number.
    pub(super) fn read(fields: &mut Reader<'a>) -> Result<Self, WireError> {
        let cause = SafeModeCause::from_code(fields.u16("cause")?);
        fields.reserved("reserved")?;
        Ok(Self {
            cause,
            sequence: fields.u64("sequence")?,
            entered_ns: fields.u64("entered_ns")?,
            limit: fields.u64("limit")?,
            seen: fields.u64("seen")?,
            window_ns: fields.u64("window_ns")?,
            breaches: fields.u64("breaches")?,
            service: fields.string("service", MAX_NAME)?,
            stream: fields.string("stream", MAX_NAME)?,
            text: fields.string("text", MAX_TEXT)?,
        })
    }
}
