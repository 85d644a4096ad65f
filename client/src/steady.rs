//! The streams of a client that registers them again on each connection.

use crate::error::Error;
use crate::types::{Registration, StreamInfo};

/// A stream of a client that connects again, whichever number the present connection has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held(usize);

/// What is to be registered again, with what it is on the present connection; those that were given up leave their place.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Option<(Registration, StreamInfo)>>);

impl Streams {
    pub(crate) fn add(&mut self, registration: &Registration, stream: StreamInfo) -> Held {
        self.0.push(Some((registration.clone(), stream)));
        Held(self.0.len() - 1)
    }

    pub(crate) fn remove(&mut self, Held(place): Held) {
        if let Some(stream) = self.0.get_mut(place) {
            *stream = None;
        }
    }

    pub(crate) fn get(&self, Held(place): Held) -> Result<&StreamInfo, Error> {
        let held = self.0.get(place).and_then(Option::as_ref);
        held.map(|(_, stream)| stream).ok_or(Error::GivenUp)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Registration, &mut StreamInfo)> {
        self.0.iter_mut().flatten().map(|(registration, stream)| (&*registration, stream))
    }
}
