//! On a request's way: where bytes read from the socket wait until they are whole frames.

use super::{HEADER_LEN, Header, WireError};

const FIRST_SIZE: usize = 64 * 1024;

/// Cuts a byte stream into frames without doing the reading itself.
///
/// Contract: call [`next_frame`](Self::next_frame) until it yields `None`, read some bytes into
/// [`space`](Self::space), tell how many with [`filled`](Self::filled), and start over. After an error the
/// stream has no frame boundaries any more and the connection must be closed. Holds at most one frame of the
/// largest size plus what one read brought beyond it.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    max_frame: u32,
}

impl FrameBuffer {
    /// An empty buffer for bodies of up to `max_frame` bytes.
    pub fn new(max_frame: u32) -> Self {
        let first = FIRST_SIZE.min(HEADER_LEN.saturating_add(max_frame as usize));
        Self { bytes: vec![0; first], start: 0, end: 0, max_frame }
    }

    /// Changes the largest body accepted from the next frame on, in bytes.
    pub fn set_max_frame(&mut self, max_frame: u32) {
        self.max_frame = max_frame;
    }

    /// Takes the next whole frame out, if there is one.
    ///
    /// # Errors
    /// Those of [`Header::decode`], as soon as the header is there.
    pub fn next_frame(&mut self) -> Result<Option<(Header, &[u8])>, WireError> {
        let Some(header) = self.header()? else { return Ok(None) };
        let body = self.start + HEADER_LEN;
        let end = body + header.length as usize;
        if end > self.end {
            return Ok(None);
        }
        self.start = end;
        Ok(Some((header, &self.bytes[body..end])))
    }

    /// Where the next bytes belong: never empty, and large enough for the rest of a frame already begun.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let begun = self.header().ok().flatten().map_or(0, |header| header.length as usize);
        let wanted = (HEADER_LEN + begun).max(self.end + 1);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// How many bytes are missing of the frame that has begun, as far as it tells by now; of a header where none has.
    pub fn missing(&self) -> usize {
        let begun = self.header().ok().flatten().map_or(0, |header| header.length as usize);
        (HEADER_LEN + begun).saturating_sub(self.end - self.start)
    }

    /// Tells that the first `count` bytes of [`space`](Self::space) now hold what was read.
    ///
    /// # Panics
    /// If `count` exceeds the length of that slice.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "filled {count} bytes of a smaller space");
        self.end += count;
    }

    /// Whether a frame has begun and is not whole yet: the stream must not end here.
    pub fn is_mid_frame(&self) -> bool {
        self.end > self.start
    }

    fn header(&self) -> Result<Option<Header>, WireError> {
        let waiting = &self.bytes[self.start..self.end];
        waiting.first_chunk().map(|bytes| Header::decode(bytes, self.max_frame)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ClientFrame, Kind};

    fn feed(buffer: &mut FrameBuffer, bytes: &[u8], step: usize) -> Vec<(Header, Vec<u8>)> {
        let mut frames = Vec::new();
        let mut bytes = bytes;
        loop {
            while let Some((header, body)) = buffer.next_frame().expect("well-formed") {
                frames.push((header, body.to_vec()));
            }
            if bytes.is_empty() {
                return frames;
            }
            let missing = buffer.missing();
            let space = buffer.space();
            assert!((1..=space.len()).contains(&missing), "{missing} bytes of {}", space.len());
            let count = step.min(space.len()).min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            buffer.filled(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let payload = vec![7u8; 100_000];
        let mut bytes = Vec::new();
        for id in 1..=5 {
            ClientFrame::Ping.encode(id, &mut bytes);
            ClientFrame::Submit { stream: 3, payload: &payload[..id as usize * 20_000] }
                .encode(id, &mut bytes);
        }
        for step in [1, 15, 16, 17, 4096, 70_000, usize::MAX] {
            let mut buffer = FrameBuffer::new(1 << 20);
            let frames = feed(&mut buffer, &bytes, step);
            assert_eq!(frames.len(), 10, "step {step}");
            for (n, (header, body)) in frames.iter().enumerate() {
                assert_eq!(header.id, n as u64 / 2 + 1);
                assert_eq!(header.length as usize, body.len());
                assert_eq!(header.kind, if n % 2 == 0 { Kind::Ping } else { Kind::Submit });
            }
            assert!(!buffer.is_mid_frame());
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
        let mut buffer = FrameBuffer::new(8);
        let header = Header { length: 9, kind: Kind::Submit, id: 1 }.encode();
        buffer.space()[..16].copy_from_slice(&header);
        buffer.filled(16);
        assert_eq!(buffer.next_frame(), Err(WireError::TooLarge { kind: Kind::Submit, length: 9, limit: 8 }));
        assert!(!buffer.space().is_empty());
    }

    #[test]
    fn a_begun_frame_is_told_apart_from_a_clean_end() {
        let mut buffer = FrameBuffer::new(8);
        assert!(!buffer.is_mid_frame());
        buffer.space()[0] = 1;
        buffer.filled(1);
        assert!(buffer.is_mid_frame());
    }
}
