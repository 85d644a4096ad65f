//! The data protocol, as it comes out of a socket: in pieces, and from anybody.

use weir_client::wire::{ClientFrame, DaemonFrame, FrameBuffer, HEADER_LEN, Header};

/// The longest body, in bytes: small enough for a fuzzer to reach it.
const MAX_FRAME: u32 = 1024;

/// Cuts `data` into frames of a client. What is read is written as the same bytes. Returns how many were read.
pub fn client_frames(data: &[u8]) -> usize {
    cut(data, |header, body, written| match ClientFrame::decode(header, body) {
        Ok(frame) => {
            frame.encode(header.id, written);
            true
        }
        Err(_) => false,
    })
}

/// Cuts `data` into frames of a daemon. What is read is written as the same bytes. Returns how many were read.
pub fn daemon_frames(data: &[u8]) -> usize {
    cut(data, |header, body, written| match DaemonFrame::decode(header, body) {
        Ok(frame) => {
            frame.encode(header.id, written);
            true
        }
        Err(_) => false,
    })
}

/// The first byte says how much the socket gives at a time. `again` reads a frame and writes it; false ends the
/// connection.
fn cut(data: &[u8], again: impl Fn(&Header, &[u8], &mut Vec<u8>) -> bool) -> usize {
    let Some((&step, mut rest)) = data.split_first() else { return 0 };
    let mut buffer = FrameBuffer::new(MAX_FRAME);
    let (mut written, mut count) = (Vec::new(), 0);
    loop {
        loop {
            let Ok(next) = buffer.next_frame() else { return count };
            let Some((header, body)) = next else { break };
            written.clear();
            if !again(&header, body, &mut written) {
                return count;
            }
            count += 1;
            assert_eq!(written[..HEADER_LEN], header.encode());
            assert_eq!(&written[HEADER_LEN..], body, "{header:?}");
        }
        if rest.is_empty() {
            return count;
        }
        let space = buffer.space();
        assert!(!space.is_empty() && space.len() <= 2 * (HEADER_LEN + MAX_FRAME as usize), "{}", space.len());
        let (now, later) = rest.split_at((1 + usize::from(step)).min(space.len()).min(rest.len()));
        space[..now.len()].copy_from_slice(now);
        buffer.filled(now.len());
        rest = later;
    }
}
