//! The streams of a client that registers them again on each connection.

use std::time::Duration;

use crate::error::Error;
use crate::types::{Registration, StreamInfo};
use crate::wire::RefusalCode;

/// Between attempts to register a stream again whose name is in use: mostly by the connection before, whose end the daemon has not
/// seen yet.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_millis(320);

    pub(crate) const fn new() -> Self {
        Self(Self::FIRST)
    }

    /// How long to wait after `error`; `None` if it does not pass, or has been waited for long enough.
    pub(crate) fn after(&mut self, error: &Error) -> Option<Duration> {
        let passes = matches!(error, Error::Refused(refusal) if refusal.code == RefusalCode::NameInUse);
        let pause = self.0;
        (passes && pause <= Self::LONGEST).then(|| {
            self.0 = pause * 2;
            pause
        })
    }
}

/// A stream of a client that connects again, whichever number the present connection has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held(usize);

/// Whether a stream cannot be registered though others can: its own calls tell that.
pub(crate) fn is_of_one_stream(error: &Error) -> bool {
    matches!(error, Error::Refused(_) | Error::Classes { .. } | Error::FrameTooLarge { .. })
}

/// What is to be registered again, with what it is on the present connection, if it is there; those that were given up leave
/// their place.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Option<(Registration, Option<StreamInfo>)>>);

impl Streams {
    pub(crate) fn add(&mut self, registration: &Registration, stream: StreamInfo) -> Held {
        self.0.push(Some((registration.clone(), Some(stream))));
        Held(self.0.len() - 1)
    }

    /// Gives one up; what it was on the present connection.
    pub(crate) fn remove(&mut self, Held(place): Held) -> Result<Option<StreamInfo>, Error> {
        let held = self.0.get_mut(place).and_then(Option::take);
        held.map(|(_, stream)| stream).ok_or(Error::GivenUp)
    }

    pub(crate) fn get(
        &mut self,
        Held(place): Held,
    ) -> Result<(&Registration, &mut Option<StreamInfo>), Error> {
        let held = self.0.get_mut(place).and_then(Option::as_mut);
        held.map(|(registration, stream)| (&*registration, stream)).ok_or(Error::GivenUp)
    }

    /// All of them, with nothing left of the connection before.
    pub(crate) fn anew(&mut self) -> impl Iterator<Item = (&Registration, &mut Option<StreamInfo>)> {
        self.0.iter_mut().flatten().for_each(|(_, stream)| *stream = None);
        self.0.iter_mut().flatten().map(|(registration, stream)| (&*registration, stream))
    }
}
