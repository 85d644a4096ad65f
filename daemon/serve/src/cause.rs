//! The causes of safe mode and of suspensions in words, with what was seen of each.

use rt_core::{Cause, Span};

/// What about the machine is not as profiled; the numbers are those of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stale {
    /// A frequency limit, in kHz.
    Frequency = 1,
    /// Throttled by heat: so many times since the last look, or cooling devices that hold it back.
    Throttled = 2,
    /// Cores online.
    Cores = 3,
    /// Anything else that the profile tells: governor, power mode, processor, kernel, engine, GPU.
    Other = 4,
}

impl Stale {
    /// The one of that number.
    pub fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Frequency,
            2 => Self::Throttled,
            3 => Self::Cores,
            _ => Self::Other,
        }
    }
}

/// Of evidence that blames a batch of a service for what it does to the others of its device: the number of that service, from 0.
pub fn culprit(cause: Cause, window: u64) -> Option<usize> {
    (cause == Cause::ServiceOverrun).then(|| window.checked_sub(1)).flatten().map(|number| number as usize)
}

/// The evidence of a cause in words and units; `stream` is the name of the stream in it, or empty. `place` says where that was seen
/// if that is not the service as a whole: `service NAME`, another one of the device; `device NAME`, the others of which its own batch
/// harms; or `stage NAME` of a pipeline. Of a lost worker it says how many are left of which kind, if there are several.
pub fn describe(cause: Cause, [limit, seen, window]: [u64; 3], stream: &str, place: &str) -> String {
    let span = Span::from_nanos;
    match cause {
        Cause::ArrivalExcess => format!(
            "{cause}: stream {stream} sent {seen} requests within {}, {limit} were declared",
            span(window)
        ),
        Cause::ServiceOverrun if place.starts_with("device ") => format!(
            "{cause}: a batch took {} or more, its bound is {}, which harms the others on {place}: demoted until it keeps its time",
            span(seen),
            span(limit)
        ),
        Cause::ServiceOverrun => {
            let of = if place.is_empty() { String::new() } else { format!(" of {place}") };
            format!("{cause}: a batch{of} took {} or more, its bound is {}", span(seen), span(limit))
        }
        Cause::LateDispatch if !stream.is_empty() => {
            format!(
                "{cause}: a request of stream {stream} was read {} after it was sent, {} is allowed",
                span(seen),
                span(limit)
            )
        }
        Cause::LateDispatch => {
            format!("{cause}: the daemon needed {} where {} is allowed", span(seen), span(limit))
        }
        Cause::WorkerLost if !place.is_empty() => {
            format!("{cause}: {seen} of {limit} workers are left; of {place}")
        }
        Cause::WorkerLost => format!("{cause}: {seen} of {limit} workers are left"),
        Cause::ConstraintViolated => {
            format!(
                "{cause}: stream {stream} missed {seen} of {window} requests, {limit} were promised at most"
            )
        }
        Cause::ProfileStale => match Stale::from_number(window) {
            Stale::Frequency => {
                format!(
                    "{cause}: at most {seen} kHz are allowed, it was profiled with {limit} kHz (0: not known)"
                )
            }
            Stale::Throttled => format!("{cause}: heat throttles the processor"),
            Stale::Cores => format!("{cause}: {seen} cores are online, it was profiled with {limit}"),
            Stale::Other => {
                format!("{cause}: the machine is not as profiled in {seen} respects; the journal names them")
            }
        },
        Cause::Operator => format!("{cause}: raised by an operator"),
        Cause::MissesLow => {
            format!("{cause}: stream {stream} can miss {seen} more of {window} requests, {limit} in all")
        }
        Cause::RateHigh => format!(
            "{cause}: {seen} requests came within {}, more than {limit}, nine tenths of the certified rate",
            span(window)
        ),
        Cause::FanOutExcess => {
            format!(
                "{cause}: a result of a source of stream {stream} became {seen} requests of {place}, {limit} were declared"
            )
        }
    }
}
