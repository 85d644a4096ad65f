//! The daemon's only clock: `CLOCK_MONOTONIC`, shared by every process on the box.

use rt_core::{Instant, Span};
use rustix::time::{ClockId, clock_gettime};

/// The present instant, in nanoseconds of `CLOCK_MONOTONIC`.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// A span as the standard library's duration.
pub const fn duration(span: Span) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}
