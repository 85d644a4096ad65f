//! On a request's way: what travels before its output, all but the output itself.

use super::WireError;
use super::codec::{Reader, Writer};

/// Stands for `None` where misses are counted.
pub(super) const NO_CONSTRAINT: u32 = u32::MAX;

/// Everything a RESULT frame says beside the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultHead {
    /// The request's stream.
    pub stream: u32,
    /// Misses the tightest constraint still allows; `None` without one. `u32::MAX` reads back as `None`.
    pub misses_left: Option<u32>,
    /// Number of the request within its stream, from 0.
    pub sequence: u64,
    /// Time from arrival to the start of its batch, in nanoseconds.
    pub queued_ns: u64,
    /// Time its batch ran, in nanoseconds.
    pub run_ns: u64,
    /// Requests in its batch.
    pub batch: u16,
    /// Index of the variant that answered, in the order of the service's configuration.
    pub variant: u16,
    /// How many requests of the stream just before this one were not executed, so that the model does not remember them; 0
    /// of a model that remembers nothing, and before version 4 of the protocol.
    pub skipped: u32,
    /// Whether its kind is RESULT_LATE; from version 5 of the protocol on.
    pub late: bool,
}

impl ResultHead {
    pub(super) fn write<'o>(&self, writer: Writer<'o>) -> Writer<'o> {
        let misses_left = self.misses_left.unwrap_or(NO_CONSTRAINT);
        let numbered = writer.u32(self.stream).u32(misses_left).u64(self.sequence);
        numbered.u64(self.queued_ns).u64(self.run_ns).u16(self.batch).u16(self.variant).u32(self.skipped)
    }

    pub(super) fn read(fields: &mut Reader<'_>, late: bool) -> Result<Self, WireError> {
        Ok(Self {
            stream: fields.u32("stream")?,
            misses_left: read_misses_left(fields)?,
            sequence: fields.u64("sequence")?,
            queued_ns: fields.u64("queued_ns")?,
            run_ns: fields.u64("run_ns")?,
            batch: fields.u16("batch")?,
            variant: fields.u16("variant")?,
            skipped: fields.u32("skipped")?,
            late,
        })
    }
}

pub(super) fn read_misses_left(fields: &mut Reader<'_>) -> Result<Option<u32>, WireError> {
    let misses_left = fields.u32("misses_left")?;
    Ok((misses_left != NO_CONSTRAINT).then_some(misses_left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{DaemonFrame, HEADER_LEN, PACKING, RESULT_HEAD_LEN};

    const HEAD: ResultHead = ResultHead {
        stream: 1,
        misses_left: None,
        sequence: 2,
        queued_ns: 3,
        run_ns: 4,
        batch: 5,
        variant: 6,
        skipped: 7,
        late: false,
    };

    #[test]
    fn a_result_into_spare_capacity_does_not_allocate() {
        let mut out = Vec::with_capacity(HEADER_LEN + RESULT_HEAD_LEN + 40);
        let before = (out.as_ptr(), out.capacity());
        DaemonFrame::Result { head: HEAD, output: &[1; 40] }.encode(1, &mut out);
        assert_eq!((out.as_ptr(), out.capacity()), before);
        assert_eq!((HEADER_LEN + RESULT_HEAD_LEN) % PACKING, 0, "the output stays aligned within its frame");
    }
}
