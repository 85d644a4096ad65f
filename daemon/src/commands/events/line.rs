//! One announcement, for people and for programs.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;
use weir_client::status::{Service, Stream};
use weir_client::{Event, SafeModeState, StreamState};
use weir_os::clock;

/// What is told on one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// How a service stands as it is first looked at.
    State(Standing),
    /// How it has come to stand.
    SafeMode(Standing),
    /// A stream is suspended, or no longer.
    Suspension(Suspension),
    /// A stream is close to what its constraint allows.
    MissesLeft {
        /// When it was read, in nanoseconds of `CLOCK_MONOTONIC`.
        at_ns: u64,
        service: String,
        stream: String,
        misses_left: u32,
        constraint: String,
    },
    /// Announcements that did not arrive.
    EventsLost { at_ns: u64, count: u64 },
}

/// How the promises of a service stand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// When it was entered, or looked at where nothing has broken; nanoseconds of `CLOCK_MONOTONIC`.
    at_ns: u64,
    service: String,
    state: String,
    /// `None` where nothing has broken.
    cause: Option<String>,
    sequence: u64,
    breaches: u64,
    text: String,
}

/// How the promise to one stream stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspension {
    /// When it was entered, in nanoseconds of `CLOCK_MONOTONIC`.
    at_ns: u64,
    service: String,
    stream: String,
    state: String,
    /// `None` where the promise holds again.
    cause: Option<String>,
    /// `None` as it is first looked at: a stream does not tell its number; and so its breaches.
    sequence: Option<u64>,
    breaches: Option<u64>,
    text: String,
}

impl Line {
    /// A stream of a service in a reply to STATUS, if it is suspended or a weaker promise is in force, and since when.
    pub fn suspended(service: &str, stream: &Stream) -> Option<(Self, u64)> {
        let (why, state) = match (&stream.suspended, &stream.degraded) {
            (Some(why), _) => (why, StreamState::Suspended),
            (None, Some(why)) => (why, StreamState::of_level(stream.level)),
            (None, None) => return None,
        };
        let suspension = Suspension {
            at_ns: why.entered_ns,
            service: service.to_owned(),
            stream: stream.name.clone(),
            state: state.to_string(),
            cause: Some(why.cause.clone()),
            sequence: None,
            breaches: None,
            text: why.text.clone(),
        };
        Some((Self::Suspension(suspension), why.entered_ns))
    }

    /// A stream that a reply to STATUS of instant `at_ns` tells suspended no longer.
    pub fn resumed(service: &str, stream: &str, at_ns: u64) -> Self {
        Self::Suspension(Suspension {
            at_ns,
            service: service.to_owned(),
            stream: stream.to_owned(),
            state: StreamState::Normal.to_string(),
            cause: None,
            sequence: None,
            breaches: None,
            text: format!("the promise to stream {stream} holds again"),
        })
    }

    /// The state of a service in a reply to STATUS of instant `at_ns`, and the number of its last change.
    pub fn present(service: &Service, at_ns: u64) -> (Self, u64) {
        let mode = service.safe_mode.clone();
        let standing = Standing {
            at_ns: mode.entered_ns.unwrap_or(at_ns),
            service: service.name.clone(),
            state: mode.state,
            cause: mode.cause,
            sequence: mode.sequence,
            breaches: mode.breaches,
            text: mode.text.unwrap_or_default(),
        };
        (Self::State(standing), mode.sequence)
    }

    /// An event that was read at `at_ns`.
    pub fn event(event: &Event, at_ns: u64) -> Self {
        match event {
            Event::SafeMode(event) => Self::SafeMode(Standing {
                at_ns: u64::try_from(event.entered.as_nanos()).unwrap_or(u64::MAX),
                service: event.service.clone(),
                state: event.state.to_string(),
                cause: (event.state != SafeModeState::Normal).then(|| event.cause.to_string()),
                sequence: event.sequence,
                breaches: event.breaches,
                text: event.text.clone(),
            }),
            Event::Suspension(event) => Self::Suspension(Suspension {
                at_ns: u64::try_from(event.entered.as_nanos()).unwrap_or(u64::MAX),
                service: event.service.clone(),
                stream: event.stream.clone(),
                state: event.state.to_string(),
                cause: event.state.is_suspended().then(|| event.cause.to_string()),
                sequence: Some(event.sequence),
                breaches: Some(event.breaches),
                text: event.text.clone(),
            }),
            Event::MissesLeft(event) => Self::MissesLeft {
                at_ns,
                service: event.service.clone(),
                stream: event.stream.clone(),
                misses_left: event.misses_left,
                constraint: event.constraint.to_string(),
            },
            Event::Lost { count } => Self::EventsLost { at_ns, count: *count },
        }
    }

    /// The service it is about; empty where it is about all.
    pub fn service(&self) -> &str {
        match self {
            Self::State(standing) | Self::SafeMode(standing) => &standing.service,
            Self::Suspension(suspension) => &suspension.service,
            Self::MissesLeft { service, .. } => service,
            Self::EventsLost { .. } => "",
        }
    }

    /// The word that says how bad it is.
    pub fn state(&self) -> &str {
        match self {
            Self::State(standing) | Self::SafeMode(standing) => &standing.state,
            Self::Suspension(suspension) => &suspension.state,
            Self::MissesLeft { .. } => "misses-left",
            Self::EventsLost { .. } => "events-lost",
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        serde_json::json!(self)
    }

    /// When that was by the wall clock as it goes now, in UTC.
    pub fn time(&self) -> String {
        let ago = clock::now().as_nanos().saturating_sub(self.at_ns());
        let at = clock::wall().checked_sub(Duration::from_nanos(ago)).unwrap_or(UNIX_EPOCH);
        humantime::format_rfc3339_millis(at).to_string()
    }

    fn at_ns(&self) -> u64 {
        match self {
            Self::State(standing) | Self::SafeMode(standing) => standing.at_ns,
            Self::Suspension(suspension) => suspension.at_ns,
            Self::MissesLeft { at_ns, .. } | Self::EventsLost { at_ns, .. } => *at_ns,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = Some(self.service()).filter(|name| !name.is_empty()).unwrap_or("-");
        let (at, state) = (self.at_ns() as f64 / 1e9, self.state());
        write!(f, "[{at:12.3}] {service:<12} {state:<11} ")?;
        match self {
            Self::State(standing) | Self::SafeMode(standing) => standing.fmt(f),
            Self::Suspension(suspension) => suspension.fmt(f),
            Self::MissesLeft { stream, misses_left, constraint, .. } => {
                write!(f, "stream {stream} has {misses_left} misses left of {constraint}")
            }
            Self::EventsLost { count, .. } => {
                write!(f, "{count} did not arrive; what has changed since follows")
            }
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.as_deref().unwrap_or("-");
        write!(f, "{cause:<19} change {}, {} breaches", self.sequence, self.breaches)?;
        let text = without(cause, &self.text);
        if text.is_empty() { Ok(()) } else { write!(f, ": {text}") }
    }
}

impl fmt::Display for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.as_deref().unwrap_or("-");
        write!(f, "{cause:<19} ")?;
        if let (Some(sequence), Some(breaches)) = (self.sequence, self.breaches) {
            write!(f, "change {sequence}, {breaches} breaches: ")?;
        }
        f.write_str(without(cause, &self.text))
    }
}

/// The evidence without the cause that it begins with.
fn without<'a>(cause: &str, text: &'a str) -> &'a str {
    text.strip_prefix(cause).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use weir_client::{Constraint, MissesLeftEvent, SafeModeCause, SafeModeEvent, SuspensionEvent};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(told: Value) -> T {
        serde_json::from_value(told).expect("a part of a status")
    }

    fn raised() -> Event {
        Event::SafeMode(SafeModeEvent {
            service: "obstacles".to_owned(),
            state: SafeModeState::SafeMode,
            cause: SafeModeCause::ServiceOverrun,
            sequence: 1,
            entered: Duration::from_secs(90),
            stream: String::new(),
            limit: 5,
            seen: 6,
            window: Duration::ZERO,
            breaches: 2,
            text: "service-overrun: a batch took 6 ns".to_owned(),
        })
    }

    fn suspension(state: StreamState, cause: SafeModeCause, text: &str) -> Event {
        Event::Suspension(SuspensionEvent {
            service: "obstacles".to_owned(),
            stream: "front".to_owned(),
            state,
            cause,
            sequence: 3,
            entered: Duration::from_secs(95),
            limit: 5,
            seen: 6,
            window: Duration::from_millis(100),
            breaches: 4,
            text: text.to_owned(),
        })
    }

    #[test]
    fn a_suspension_and_its_end_are_told_and_read_alike_in_the_state() {
        let excess = SafeModeCause::ArrivalExcess;
        let event = suspension(StreamState::Suspended, excess, "arrival-excess: stream front sent 6");
        assert_eq!(
            Line::event(&event, 0).to_string(),
            "[      95.000] obstacles    suspended   arrival-excess      change 3, 4 breaches: stream front sent 6"
        );
        let stream = json!({"name": "front", "suspended": {
            "cause": "arrival-excess", "entered_ns": 95_000_000_000u64, "text": "arrival-excess: stream front sent 6",
        }});
        let (state, since) = Line::suspended("obstacles", &read(stream)).expect("it is suspended");
        assert_eq!(
            (state.to_string().as_str(), since),
            (
                "[      95.000] obstacles    suspended   arrival-excess      stream front sent 6",
                95_000_000_000
            )
        );
        assert_eq!((&state.json()["kind"], &state.json()["stream"]), (&json!("suspension"), &json!("front")));
        assert_eq!(Line::suspended("obstacles", &read(json!({"name": "front", "suspended": null}))), None);
        assert_eq!(Line::suspended("obstacles", &read(json!({"name": "of an older daemon"}))), None);
        let end = suspension(StreamState::Normal, SafeModeCause::Unknown(0), "it holds");
        let (end, seen) = (Line::event(&end, 0), Line::resumed("obstacles", "front", 1));
        assert_eq!((end.state(), end.json()["cause"].is_null()), ("normal", true));
        assert_eq!(
            seen.to_string().split_once("- ").expect("no cause").1.trim(),
            "the promise to stream front holds again"
        );
    }

    #[test]
    fn a_breach_is_told_with_its_cause_once() {
        let told = Line::event(&raised(), 0).to_string();
        assert_eq!(
            told,
            "[      90.000] obstacles    safe-mode   service-overrun     change 1, 2 breaches: a batch took 6 ns"
        );
    }

    #[test]
    fn a_state_and_the_event_that_led_to_it_read_alike() {
        let service = json!({"name": "obstacles", "safe_mode": {
            "state": "safe-mode", "sequence": 1, "breaches": 2, "cause": "service-overrun",
            "entered_ns": 90_000_000_000u64, "text": "service-overrun: a batch took 6 ns",
        }});
        let (state, sequence) = Line::present(&read(service), 95_000_000_000);
        assert_eq!((state.to_string(), sequence), (Line::event(&raised(), 0).to_string(), 1));
        assert_eq!(
            (&state.json()["kind"], &state.json()["at_ns"]),
            (&json!("state"), &json!(90_000_000_000u64))
        );
    }

    #[test]
    fn few_misses_left_and_lost_events_have_their_lines() {
        let few = Event::MissesLeft(MissesLeftEvent {
            service: "obstacles".to_owned(),
            stream: "front".to_owned(),
            misses_left: 1,
            constraint: Constraint::any_miss(3, 10),
        });
        let few = Line::event(&few, 1_500_000_000);
        assert!(
            few.to_string().ends_with("stream front has 1 misses left of at most 3 of any 10 missed"),
            "{few}"
        );
        assert_eq!(few.json()["kind"], "misses-left");
        let lost = Line::event(&Event::Lost { count: 12 }, 2_000_000_000);
        assert_eq!(lost.json(), json!({"kind": "events-lost", "at_ns": 2_000_000_000u64, "count": 12}));
    }
}
