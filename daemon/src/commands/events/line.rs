//! One announcement, for people and for programs.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use weir_client::{Event, SafeModeState};

/// What is told on one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(in crate::commands) enum Line {
    /// How a service stands as it is first looked at.
    State(Standing),
    /// How it has come to stand.
    SafeMode(Standing),
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
pub(in crate::commands) struct Standing {
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

impl Line {
    /// The state of a service in a reply to STATUS of instant `at_ns`, and the number of its last change.
    pub(in crate::commands) fn present(service: &Value, at_ns: u64) -> (Self, u64) {
        let mode = &service["safe_mode"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let sequence = mode["sequence"].as_u64().unwrap_or(0);
        let standing = Standing {
            at_ns: mode["entered_ns"].as_u64().unwrap_or(at_ns),
            service: text(&service["name"]).unwrap_or_default(),
            state: text(&mode["state"]).unwrap_or_else(|| "unknown".to_owned()),
            cause: text(&mode["cause"]),
            sequence,
            breaches: mode["breaches"].as_u64().unwrap_or(0),
            text: text(&mode["text"]).unwrap_or_default(),
        };
        (Self::State(standing), sequence)
    }

    /// An event that was read at `at_ns`.
    pub(in crate::commands) fn event(event: &Event, at_ns: u64) -> Self {
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
    pub(in crate::commands) fn service(&self) -> &str {
        match self {
            Self::State(standing) | Self::SafeMode(standing) => &standing.service,
            Self::MissesLeft { service, .. } => service,
            Self::EventsLost { .. } => "",
        }
    }

    /// The word that says how bad it is.
    pub(in crate::commands) fn state(&self) -> &str {
        match self {
            Self::State(standing) | Self::SafeMode(standing) => &standing.state,
            Self::MissesLeft { .. } => "misses-left",
            Self::EventsLost { .. } => "events-lost",
        }
    }

    /// As one JSON object.
    pub(super) fn json(&self) -> Value {
        serde_json::json!(self)
    }

    fn at_ns(&self) -> u64 {
        match self {
            Self::State(standing) | Self::SafeMode(standing) => standing.at_ns,
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
        // The evidence begins with its cause.
        let text =
            self.text.strip_prefix(cause).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&self.text);
        if text.is_empty() { Ok(()) } else { write!(f, ": {text}") }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use weir_client::{Constraint, MissesLeftEvent, SafeModeCause, SafeModeEvent};

    use super::*;

    fn raised() -> Event {
        Event::SafeMode(SafeModeEvent {
            service: "obstacles".to_owned(),
            state: SafeModeState::SafeMode,
            cause: SafeModeCause::ArrivalExcess,
            sequence: 1,
            entered: Duration::from_secs(90),
            stream: "front".to_owned(),
            limit: 5,
            seen: 6,
            window: Duration::from_millis(100),
            breaches: 2,
            text: "arrival-excess: stream front sent 6".to_owned(),
        })
    }

    #[test]
    fn a_breach_is_told_with_its_cause_once() {
        let told = Line::event(&raised(), 0).to_string();
        assert_eq!(
            told,
            "[      90.000] obstacles    safe-mode   arrival-excess      change 1, 2 breaches: stream front sent 6"
        );
    }

    #[test]
    fn a_state_and_the_event_that_led_to_it_read_alike() {
        let service = json!({"name": "obstacles", "safe_mode": {
            "state": "safe-mode", "sequence": 1, "breaches": 2, "cause": "arrival-excess",
            "entered_ns": 90_000_000_000u64, "text": "arrival-excess: stream front sent 6",
        }});
        let (state, sequence) = Line::present(&service, 95_000_000_000);
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
