//! The two ways out of the serving core: where replies go, and who hears how promises stand.

use rt_core::Constraint;

use crate::announcement::Announcement;

/// Where the replies to one client's requests go: its connection.
pub trait Replies: Send + Sync {
    /// One more request waits for its reply.
    fn opened(&self);

    /// One of them waits no more: its reply is sent after this, if there is one.
    fn closed(&self);

    /// A frame of so many bytes was read in vain: it came to nothing, and nothing was promised to whoever sent it.
    fn in_vain(&self, bytes: usize);

    /// Sends a whole frame. Never waits.
    fn send(&self, frame: &[u8]);
}

/// Who hears how promises stand, as it changes. None of this waits.
pub trait Audience: Send + Sync {
    /// A service or a stream has come to stand otherwise.
    fn announce(&self, announcement: Announcement);

    /// A stream has few misses left.
    fn misses_left(&self, service: &str, stream: &str, left: u32, constraint: Constraint);

    /// There is something else to be seen, though nothing to announce.
    fn refresh(&self);
}
