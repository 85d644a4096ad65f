//! What goes out on every door: one change of one service's safe mode, in numbers and in words.

use rt_core::{Alarm, Cause, Evidence, Instant, Severity, Transition};

use crate::clock;
use crate::socket::describe;

/// A change of safe mode, or a further cause of it.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    pub(crate) service: String,
    pub(crate) severity: Severity,
    /// `None` in the normal state alone.
    pub(crate) cause: Option<Cause>,
    /// One more than that of the service's last announcement; a gap is what was missed.
    pub(crate) sequence: u64,
    /// Breaches since the start, those that were not announced included.
    pub(crate) breaches: u64,
    /// When the state was entered, on the monotonic clock.
    pub(crate) entered: Instant,
    /// In the units of the cause, see [`Cause`]; zeroes in the normal state.
    pub(crate) evidence: Evidence,
    /// The stream of the evidence; empty if it is about none.
    pub(crate) stream: String,
    /// The cause and its evidence in words, in one line.
    pub(crate) text: String,
}

impl Announcement {
    /// The announcement of `transition` of `service`; `stream` is the name of the stream in its evidence, or empty.
    pub(crate) fn new(service: &str, transition: Transition, stream: &str) -> Self {
        let Transition { sequence, state, breaches } = transition;
        let (cause, evidence, entered, text) = match state.alarm {
            None => (None, Evidence::default(), clock::now(), format!("{service}: the promise holds again")),
            Some(Alarm { cause, evidence: e, entered }) => {
                (Some(cause), e, entered, describe(cause, e.limit, e.seen, e.window, stream))
            }
        };
        let (service, stream) = (service.to_owned(), stream.to_owned());
        Self { service, severity: state.severity, cause, sequence, breaches, entered, evidence, stream, text }
    }

    /// The number of the cause; 0 in the normal state.
    pub(crate) fn cause_number(&self) -> u32 {
        self.cause.map_or(0, |cause| cause as u32)
    }

    /// The line for people: what a log says.
    pub(crate) fn line(&self) -> String {
        match self.severity {
            Severity::Normal => self.text.clone(),
            severity => format!("{}: {severity}: {}", self.service, self.text),
        }
    }

    /// Every field by the name that a hook finds in its environment and a reader in the journal.
    pub(crate) fn fields(&self) -> [(&'static str, String); 13] {
        let Evidence { limit, seen, window, .. } = self.evidence;
        [
            ("WEIR_SERVICE", self.service.clone()),
            ("WEIR_STATE", self.severity.to_string()),
            ("WEIR_STATE_NUMBER", (self.severity as u32).to_string()),
            ("WEIR_CAUSE", self.cause.map(|cause| cause.to_string()).unwrap_or_default()),
            ("WEIR_CAUSE_NUMBER", self.cause_number().to_string()),
            ("WEIR_SEQUENCE", self.sequence.to_string()),
            ("WEIR_BREACHES", self.breaches.to_string()),
            ("WEIR_ENTERED_USEC", (self.entered.as_nanos() / 1_000).to_string()),
            ("WEIR_LIMIT", limit.to_string()),
            ("WEIR_SEEN", seen.to_string()),
            ("WEIR_WINDOW", window.to_string()),
            ("WEIR_STREAM", self.stream.clone()),
            ("WEIR_TEXT", self.text.clone()),
        ]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rt_core::SafeModeState;

    /// An announcement as a flood would give rise to it.
    pub(in crate::doors) fn flood(service: &str, sequence: u64) -> Announcement {
        let evidence = Evidence { limit: 5, seen: 6, window: 100_000_000, stream: None };
        let alarm = Alarm { cause: Cause::ArrivalExcess, evidence, entered: Instant::from_nanos(1_234_567) };
        let state = SafeModeState { severity: Severity::Safe, alarm: Some(alarm) };
        Announcement::new(service, Transition { sequence, state, breaches: 3 }, "cam0")
    }

    #[test]
    fn it_tells_words_and_numbers() {
        let told = flood("lanes", 7);
        let field = |name| told.fields().into_iter().find(|(n, _)| *n == name).map(|(_, value)| value);
        for (name, value) in [
            ("WEIR_SERVICE", "lanes"),
            ("WEIR_STATE", "safe-mode"),
            ("WEIR_STATE_NUMBER", "3"),
            ("WEIR_CAUSE", "arrival-excess"),
            ("WEIR_CAUSE_NUMBER", "1"),
            ("WEIR_SEQUENCE", "7"),
            ("WEIR_BREACHES", "3"),
            ("WEIR_ENTERED_USEC", "1234"),
            ("WEIR_LIMIT", "5"),
            ("WEIR_SEEN", "6"),
            ("WEIR_WINDOW", "100000000"),
            ("WEIR_STREAM", "cam0"),
        ] {
            assert_eq!(field(name).as_deref(), Some(value), "{name}");
        }
        assert!(told.line().starts_with("lanes: safe-mode: arrival-excess: stream cam0"), "{}", told.line());
    }

    #[test]
    fn the_normal_state_has_no_cause() {
        let state = SafeModeState { severity: Severity::Normal, alarm: None };
        let told = Announcement::new("lanes", Transition { sequence: 8, state, breaches: 3 }, "");
        assert_eq!((told.cause_number(), told.evidence), (0, Evidence::default()));
        assert_eq!(told.line(), "lanes: the promise holds again");
    }
}
