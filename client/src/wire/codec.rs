//! On a request's way: the step between a frame's fields and its bytes, one field at a time, in both directions.

use super::{HEADER_LEN, Kind, WireError};

/// Writes one frame at the end of a buffer: header first, fields in order, length last.
///
/// Allocates only where the buffer has no capacity left.
#[must_use = "a frame without `end` has no length"]
pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Writer<'o> {
    pub(super) fn begin(out: &'o mut Vec<u8>, kind: Kind, id: u64) -> Self {
        let start = out.len();
        out.extend_from_slice(&Header { length: 0, kind, id }.encode());
        Self { out, start }
    }

    pub(super) fn u8(self, value: u8) -> Self {
        self.out.push(value);
        self
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn f32(self, value: f32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// A string of at most `limit` bytes (≤ 65535); what exceeds it is cut at a character.
    pub(super) fn string(self, text: &str, limit: usize) -> Self {
        let text = &text[..text.floor_char_boundary(limit)];
        self.u16(text.len() as u16).bytes(text.as_bytes())
    }

    pub(super) fn end(self) {
        let length = u32::try_from(self.out.len() - self.start - HEADER_LEN).unwrap_or(u32::MAX);
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Reads a body's fields in order; every error names the field.
pub(super) struct Reader<'a> {
    kind: Kind,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(kind: Kind, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let short = WireError::Short { kind: self.kind, field, needed: N, left: self.rest.len() };
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(short)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(super) fn f32(&mut self, field: &'static str) -> Result<f32, WireError> {
        Ok(f32::from_le_bytes(self.array(field)?))
    }

    /// Four bytes kept for later versions: only 0 is accepted.
    pub(super) fn reserved(&mut self, field: &'static str) -> Result<(), WireError> {
        let value = self.u32(field)?;
        self.must_be_zero(field, value)
    }

    pub(super) fn must_be_zero(&self, field: &'static str, value: u32) -> Result<(), WireError> {
        if value == 0 { Ok(()) } else { Err(WireError::Reserved { kind: self.kind, field, value }) }
    }

    /// The length of a list, told in one byte.
    pub(super) fn count(&mut self, field: &'static str, limit: usize) -> Result<usize, WireError> {
        let count = usize::from(self.u8(field)?);
        if count > limit {
            return Err(WireError::TooMany { kind: self.kind, field, count, limit });
        }
        Ok(count)
    }

    pub(super) fn string(&mut self, field: &'static str, limit: usize) -> Result<&'a str, WireError> {
        let length = usize::from(self.u16(field)?);
        if length > limit {
            return Err(WireError::TooLong { kind: self.kind, field, length, limit });
        }
        let short = WireError::Short { kind: self.kind, field, needed: length, left: self.rest.len() };
        let (text, rest) = self.rest.split_at_checked(length).ok_or(short)?;
        self.rest = rest;
        self.text(field, text)
    }

    /// Whether anything is left.
    pub(super) fn goes_on(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Everything left, as it is.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Everything left, as text.
    pub(super) fn rest_as_text(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        let rest = self.rest();
        self.text(field, rest)
    }

    pub(super) fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(WireError::Trailing { kind: self.kind, bytes }),
        }
    }

    fn text(&self, field: &'static str, bytes: &'a [u8]) -> Result<&'a str, WireError> {
        std::str::from_utf8(bytes).map_err(|e| WireError::Utf8 {
            kind: self.kind,
            field,
            at: e.valid_up_to(),
        })
    }
}

/// The fixed 16 bytes before every body.
///
/// A value of this type announces a length within the connection's limit and sets no flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes after the header.
    pub length: u32,
    /// What the body is.
    pub kind: Kind,
    /// Chosen by the client (not 0) and echoed in the answer; 0 in events.
    pub id: u64,
}

impl Header {
    /// The bytes that open a frame.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.kind.code().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// Reads a header whose body may have up to `max_frame` bytes.
    ///
    /// # Errors
    /// [`WireError::TooLarge`], [`WireError::Flags`]. An unknown kind is found when the body is decoded.
    pub fn decode(bytes: &[u8; HEADER_LEN], max_frame: u32) -> Result<Self, WireError> {
        let (length, kind, flags, id) = Self::fields(bytes);
        if length > max_frame {
            return Err(WireError::TooLarge { kind, length, limit: max_frame });
        }
        if flags != 0 {
            return Err(WireError::Flags { kind, flags });
        }
        Ok(Self { length, kind, id })
    }

    fn fields(bytes: &[u8; HEADER_LEN]) -> (u32, Kind, u16, u64) {
        let [l0, l1, l2, l3, k0, k1, f0, f1, id @ ..] = *bytes;
        let kind = Kind::from_code(u16::from_le_bytes([k0, k1]));
        (u32::from_le_bytes([l0, l1, l2, l3]), kind, u16::from_le_bytes([f0, f1]), u64::from_le_bytes(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_sixteen_little_endian_bytes() {
        let header = Header { length: 0x0102, kind: Kind::Submit, id: 0x0a0b };
        let bytes = header.encode();
        assert_eq!(bytes, [2, 1, 0, 0, 4, 0, 0, 0, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Header::decode(&bytes, 0x0102), Ok(header));
        let limit = 0x0101;
        let large = WireError::TooLarge { kind: Kind::Submit, length: 0x0102, limit };
        assert_eq!(Header::decode(&bytes, limit), Err(large));
    }

    #[test]
    fn flags_are_refused() {
        let mut bytes = Header { length: 0, kind: Kind::Ping, id: 1 }.encode();
        bytes[6] = 1;
        assert_eq!(Header::decode(&bytes, 0), Err(WireError::Flags { kind: Kind::Ping, flags: 1 }));
    }

    #[test]
    fn a_long_string_is_cut_at_a_character() {
        let mut out = Vec::new();
        Writer::begin(&mut out, Kind::Refused, 1).string("aéé", 4).end();
        assert_eq!(&out[HEADER_LEN..], &[3, 0, b'a', 0xc3, 0xa9]);
    }
}
