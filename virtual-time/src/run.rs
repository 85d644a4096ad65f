//! A whole run, kept: every request and every batch, for those who look at each of them.

use rt_core::{Alarm, Instant, StreamState, Transition};

use crate::drive::{Batch, Observer, Request};

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Every request, in the order in which they came.
    pub requests: Vec<Request>,
    /// Every batch, in the order in which they started.
    pub batches: Vec<Batch>,
    /// Safe mode as it was entered, left, or given a further cause.
    pub safe_mode: Vec<(Instant, Transition)>,
    /// When the promise to a stream came to stand so, and what it broke itself.
    pub suspensions: Vec<(Instant, usize, StreamState, Option<Alarm>)>,
    /// How many streams there are: those of the problem, and those of no promise that sent something.
    pub streams: usize,
}

impl Run {
    /// Of each stream, its requests in order, as indices into all.
    #[must_use]
    pub fn by_stream(&self) -> Vec<Vec<usize>> {
        let mut streams = vec![Vec::new(); self.streams];
        for (index, request) in self.requests.iter().enumerate() {
            streams[request.stream].push(index);
        }
        streams
    }
}

impl Observer for Run {
    fn request(&mut self, request: &Request) {
        self.requests.push(*request);
    }

    fn batch(&mut self, batch: &Batch) {
        self.batches.push(*batch);
    }

    fn safe_mode(&mut self, now: Instant, transition: Transition) {
        self.safe_mode.push((now, transition));
    }

    fn suspension(&mut self, now: Instant, stream: usize, state: StreamState, alarm: Option<Alarm>) {
        self.suspensions.push((now, stream, state, alarm));
    }
}
