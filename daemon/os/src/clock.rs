//! The daemon's only clock: `CLOCK_MONOTONIC`, shared by every process on the box.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use rt_core::{Instant, Span};

/// The present instant, in nanoseconds of `CLOCK_MONOTONIC`.
pub fn now() -> Instant {
    // Every system that this runs on has the clock.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(TimeSpec::new(0, 0));
    let (seconds, nanos) = (time.tv_sec().unsigned_abs(), time.tv_nsec().unsigned_abs());
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The processor time that the calling thread has had.
pub fn thread_time() -> Span {
    // Every system that this runs on has the clock.
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(TimeSpec::new(0, 0));
    Span::from_nanos(time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs())
}

/// Sleeps until then; an instant in the past returns at once.
///
/// # Errors
/// `EINTR` if a signal ends it early.
pub fn sleep_until(instant: Instant) -> nix::Result<()> {
    // Both fit: u64::MAX nanoseconds are 584 years.
    let until = TimeSpec::from_duration(std::time::Duration::from_nanos(instant.as_nanos()));
    clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until).map(drop)
}

/// A span as the standard library's duration.
pub const fn duration(span: Span) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}

/// The time by the wall clock, which may be set while the daemon runs: for people alone.
#[allow(clippy::disallowed_methods, reason = "the one place where it is read")]
pub fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
