//! On a request's way: when it was sent, by the clock that the daemon has as well.

use rustix::time::{ClockId, clock_gettime};

/// The present instant in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs())
}
