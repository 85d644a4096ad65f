//! What goes out on every channel: how one service or one stream has come to stand, in numbers and in words.

use rt_core::{Alarm, Cause, Evidence, Instant, SafeModeState, Severity, Transition};
use weir_client::StreamState;

use crate::cause::describe;
use weir_os::clock;

/// How what an announcement is about stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A service: its safe mode.
    Service(Severity),
    /// One stream of a service: whether it is suspended.
    Stream(StreamState),
}

/// What an announcement is about: a service, or a stream of it.
pub type Subject = (String, Option<String>);

/// A change of safe mode, a further cause of it, or the suspension of a stream and its end.
#[derive(Clone, Debug)]
pub struct Announcement {
    pub service: String,
    pub state: State,
    /// `None` in the normal state alone.
    pub cause: Option<Cause>,
    /// One more than that of the service's last announcement of this kind; a gap is what was missed.
    pub sequence: u64,
    /// Breaches of the service since the start, of a stream since it was added; those that were not announced included.
    pub breaches: u64,
    /// When the state was entered, on the monotonic clock.
    pub entered: Instant,
    /// In the units of the cause, see [`Cause`]; zeroes in the normal state.
    pub evidence: Evidence,
    /// The stream it is about, or that of the evidence; empty if there is none.
    pub stream: String,
    /// The cause and its evidence in words, in one line.
    pub text: String,
}

impl Announcement {
    /// The announcement of `transition` of `service`; `stream` is the name of the stream in its evidence, or empty, and `place` as
    /// for [`describe`].
    pub fn of_service(service: &str, transition: Transition, stream: &str, place: &str) -> Self {
        let Transition { sequence, state: SafeModeState { severity, alarm }, breaches } = transition;
        Self::new((service, stream, place), State::Service(severity), alarm, (sequence, breaches))
    }

    /// The announcement that a stream stands so for `alarm`, or as it was promised if there is none; with its number and the
    /// stream's breaches so far. `names` are those of the service, of the stream and of the place, as above; `instead` is the weaker
    /// promise that is in force, if one is.
    pub fn of_stream(
        names: (&str, &str, &str),
        (state, instead): (StreamState, &str),
        alarm: Option<Alarm>,
        numbers: (u64, u64),
    ) -> Self {
        let mut told = Self::new(names, State::Stream(state), alarm, numbers);
        if state.level().is_some_and(|level| level > 0) {
            told.text = format!("{instead} is in force: {}", told.text);
        }
        told
    }

    fn new(
        (service, stream, place): (&str, &str, &str),
        state: State,
        alarm: Option<Alarm>,
        (sequence, breaches): (u64, u64),
    ) -> Self {
        let of =
            if matches!(state, State::Stream(_)) { format!(" to stream {stream}") } else { String::new() };
        let (cause, evidence, entered, text) = match alarm {
            None => {
                let text = format!("{service}: the promise{of} holds again");
                (None, Evidence::default(), clock::now(), text)
            }
            Some(Alarm { cause, evidence: e, entered }) => {
                (Some(cause), e, entered, describe(cause, [e.limit, e.seen, e.window], stream, place))
            }
        };
        let (service, stream) = (service.to_owned(), stream.to_owned());
        Self { service, state, cause, sequence, breaches, entered, evidence, stream, text }
    }

    /// What it is about.
    pub fn subject(&self) -> Subject {
        let stream = matches!(self.state, State::Stream(_)).then(|| self.stream.clone());
        (self.service.clone(), stream)
    }

    /// The number of the cause; 0 in the normal state.
    pub fn cause_number(&self) -> u32 {
        self.cause.map_or(0, |cause| cause as u32)
    }

    /// The line for people: what a log says.
    pub fn line(&self) -> String {
        match self.state {
            State::Service(Severity::Normal) | State::Stream(StreamState::Normal) => self.text.clone(),
            State::Service(severity) => format!("{}: {severity}: {}", self.service, self.text),
            State::Stream(state) => format!("{}: {state}: {}", self.service, self.text),
        }
    }

    /// Every field by the name that a hook finds in its environment and a reader in the journal. Whoever looks for the
    /// state of a service does not find that of a stream.
    pub fn fields(&self) -> [(&'static str, String); 14] {
        let Evidence { limit, seen, window, .. } = self.evidence;
        let (event, [state, number]) = match self.state {
            State::Service(severity) => (
                "safe-mode",
                [("WEIR_STATE", severity.to_string()), ("WEIR_STATE_NUMBER", (severity as u32).to_string())],
            ),
            State::Stream(state) => (
                "suspension",
                [
                    ("WEIR_STREAM_STATE", state.to_string()),
                    ("WEIR_STREAM_STATE_NUMBER", state.code().to_string()),
                ],
            ),
        };
        [
            ("WEIR_EVENT", event.to_owned()),
            ("WEIR_SERVICE", self.service.clone()),
            state,
            number,
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
mod tests {
    use super::*;

    /// What a batch that took too long gives rise to.
    fn overrun(service: &str, sequence: u64) -> Announcement {
        let evidence = Evidence { limit: 5_000, seen: 6_000, window: 0, stream: None };
        let alarm = Alarm { cause: Cause::ServiceOverrun, evidence, entered: Instant::from_nanos(1_234_567) };
        let state = SafeModeState { severity: Severity::Safe, alarm: Some(alarm) };
        Announcement::of_service(service, Transition { sequence, state, breaches: 3 }, "", "")
    }

    /// What the flood of a stream gives rise to, or the end of its suspension.
    fn suspension((service, stream): (&str, &str), sequence: u64, suspended: bool) -> Announcement {
        let evidence = Evidence { limit: 5, seen: 6, window: 100_000_000, stream: None };
        let alarm = Alarm { cause: Cause::ArrivalExcess, evidence, entered: Instant::from_nanos(1_234_567) };
        let state = if suspended { StreamState::Suspended } else { StreamState::Normal };
        Announcement::of_stream((service, stream, ""), (state, ""), suspended.then_some(alarm), (sequence, 4))
    }

    fn check(told: &Announcement, fields: &[(&str, Option<&str>)]) {
        for (name, value) in fields {
            let field = told.fields().into_iter().find(|(n, _)| n == name).map(|(_, value)| value);
            assert_eq!(field.as_deref(), *value, "{name}");
        }
    }

    #[test]
    fn safe_mode_is_told_in_words_and_numbers() {
        let told = overrun("lanes", 7);
        check(
            &told,
            &[
                ("WEIR_EVENT", Some("safe-mode")),
                ("WEIR_SERVICE", Some("lanes")),
                ("WEIR_STATE", Some("safe-mode")),
                ("WEIR_STATE_NUMBER", Some("3")),
                ("WEIR_STREAM_STATE", None),
                ("WEIR_CAUSE", Some("service-overrun")),
                ("WEIR_CAUSE_NUMBER", Some("2")),
                ("WEIR_SEQUENCE", Some("7")),
                ("WEIR_BREACHES", Some("3")),
                ("WEIR_ENTERED_USEC", Some("1234")),
                ("WEIR_LIMIT", Some("5000")),
                ("WEIR_SEEN", Some("6000")),
                ("WEIR_WINDOW", Some("0")),
                ("WEIR_STREAM", Some("")),
            ],
        );
        assert!(
            told.line().starts_with("lanes: safe-mode: service-overrun: a batch took"),
            "{}",
            told.line()
        );
    }

    /// Who looks for the state of a service must not take that of a stream for it.
    #[test]
    fn a_suspension_is_told_as_that_of_its_stream_alone() {
        let told = suspension(("lanes", "cam0"), 9, true);
        check(
            &told,
            &[
                ("WEIR_EVENT", Some("suspension")),
                ("WEIR_SERVICE", Some("lanes")),
                ("WEIR_STREAM", Some("cam0")),
                ("WEIR_STREAM_STATE", Some("suspended")),
                ("WEIR_STREAM_STATE_NUMBER", Some("2")),
                ("WEIR_STATE", None),
                ("WEIR_STATE_NUMBER", None),
                ("WEIR_CAUSE_NUMBER", Some("1")),
                ("WEIR_SEQUENCE", Some("9")),
                ("WEIR_BREACHES", Some("4")),
                ("WEIR_LIMIT", Some("5")),
                ("WEIR_SEEN", Some("6")),
                ("WEIR_WINDOW", Some("100000000")),
            ],
        );
        assert!(
            told.line().starts_with("lanes: suspended: arrival-excess: stream cam0 sent"),
            "{}",
            told.line()
        );
        let over = suspension(("lanes", "cam0"), 10, false);
        check(&over, &[("WEIR_STREAM_STATE", Some("normal")), ("WEIR_CAUSE_NUMBER", Some("0"))]);
        assert_eq!(over.line(), "lanes: the promise to stream cam0 holds again");
        assert_ne!(told.subject(), overrun("lanes", 1).subject());
    }

    #[test]
    fn a_weaker_promise_is_told_with_what_it_is() {
        let evidence = Evidence { limit: 5, seen: 6, window: 100_000_000, stream: None };
        let alarm = Alarm { cause: Cause::ArrivalExcess, evidence, entered: Instant::from_nanos(1_234_567) };
        let state = (StreamState::of_level(2), "row_miss(8)");
        let told = Announcement::of_stream(("lanes", "cam0", ""), state, Some(alarm), (11, 4));
        check(&told, &[("WEIR_STREAM_STATE", Some("degraded-2")), ("WEIR_STREAM_STATE_NUMBER", Some("4"))]);
        let line = "lanes: degraded-2: row_miss(8) is in force: arrival-excess: stream cam0 sent";
        assert!(told.line().starts_with(line), "{}", told.line());
    }

    #[test]
    fn the_normal_state_has_no_cause() {
        let state = SafeModeState { severity: Severity::Normal, alarm: None };
        let told = Announcement::of_service("lanes", Transition { sequence: 8, state, breaches: 3 }, "", "");
        assert_eq!((told.cause_number(), told.evidence), (0, Evidence::default()));
        assert_eq!(told.line(), "lanes: the promise holds again");
    }
}
