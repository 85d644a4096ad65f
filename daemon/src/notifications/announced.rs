//! Announcements for the tests of the notifications.

use rt_core::{Alarm, Cause, Evidence, Instant, SafeModeState, Severity, Transition};
use weir_client::StreamState;
use weir_serve::announcement::Announcement;

/// What a batch that took too long gives rise to.
pub(super) fn overrun(service: &str, sequence: u64) -> Announcement {
    let evidence = Evidence { limit: 5_000, seen: 6_000, window: 0, stream: None };
    let alarm = Alarm { cause: Cause::ServiceOverrun, evidence, entered: Instant::from_nanos(1_234_567) };
    let state = SafeModeState { severity: Severity::Safe, alarm: Some(alarm) };
    Announcement::of_service(service, Transition { sequence, state, breaches: 3 }, "", "")
}

/// What the flood of a stream gives rise to, or the end of its suspension.
pub(super) fn suspension((service, stream): (&str, &str), sequence: u64, suspended: bool) -> Announcement {
    let evidence = Evidence { limit: 5, seen: 6, window: 100_000_000, stream: None };
    let alarm = Alarm { cause: Cause::ArrivalExcess, evidence, entered: Instant::from_nanos(1_234_567) };
    let state = if suspended { StreamState::Suspended } else { StreamState::Normal };
    Announcement::of_stream((service, stream, ""), (state, ""), suspended.then_some(alarm), (sequence, 4))
}
