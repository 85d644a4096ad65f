//! What was seen of a scheduler in a run: how requests ended, and what was told.

use rt_core::{Cause, Event, MissReason, Outcome, Resolution, StreamId};

use super::{Harness, Place};

impl Harness {
    /// Asserts that every request of `stream` that came was served, missed, or is waiting or running.
    pub(crate) fn account(&self, stream: StreamId) {
        let of_stream = || self.requests.iter().filter(|(s, _)| *s == stream).map(|(_, place)| *place);
        let open = of_stream().filter(|p| !matches!(p, Place::Ended(_))).count() as u64;
        let (counts, _) = self.scheduler.stream_counts(stream).expect("a stream");
        assert_eq!(counts.arrived, of_stream().count() as u64);
        assert_eq!(counts.arrived, counts.served + counts.missed_total() + open);
        assert_eq!(counts.served, of_stream().filter(|p| *p == Place::Ended(Outcome::Served)).count() as u64);
        for reason in MissReason::ALL {
            let seen = of_stream().filter(|p| *p == Place::Ended(Outcome::Missed(reason))).count();
            assert_eq!(counts.missed(reason), seen as u64, "{reason}");
        }
    }

    /// How the requests of `stream` that have ended, ended, in the order in which they came.
    pub(crate) fn outcomes(&self, stream: StreamId) -> Vec<bool> {
        let ended = |(s, place): &(StreamId, Place)| match place {
            Place::Ended(outcome) if *s == stream => Some(*outcome == Outcome::Served),
            _ => None,
        };
        self.requests.iter().filter_map(ended).collect()
    }

    /// How many batches were allowed more than `time`.
    pub(crate) fn longer_than(&self, time: u64) -> usize {
        self.bounds.iter().filter(|&&bound| bound > time).count()
    }

    /// Answers all that is left, with nobody waiting to be added: nothing that had to be served was missed, but what its stream
    /// left behind, and nothing was raised in this `run`.
    pub(crate) fn end_unharmed(&mut self, run: &dyn std::fmt::Debug) {
        self.scheduler.withdraw();
        self.settle();
        self.drain();
        let gone = |r: &Resolution| r.outcome == Outcome::Missed(MissReason::Cancelled);
        let missed = self.mandatory_misses();
        assert!(missed.iter().all(gone), "{run:?}: {missed:?}");
        assert_eq!(self.causes(), [], "{run:?}");
    }

    /// Mandatory requests that were missed.
    pub(crate) fn mandatory_misses(&self) -> Vec<Resolution> {
        let missed = |r: &Resolution| r.request.mandatory && r.outcome != Outcome::Served;
        self.resolutions.iter().map(|(_, r)| *r).filter(missed).collect()
    }

    /// When the promise to `stream` was suspended for what it did itself, and when it was resumed; the last time may still
    /// go on.
    pub(crate) fn suspensions(&self, stream: StreamId) -> Vec<(u64, u64)> {
        let mut stays: Vec<(u64, u64)> = Vec::new();
        for (at, event) in &self.events {
            match event {
                Event::Suspension(told) if told.stream != stream => {}
                Event::Suspension(told) if told.alarm.is_some() => stays.push((*at, u64::MAX)),
                Event::Suspension(_) => stays.last_mut().expect("suspended before").1 = *at,
                _ => {}
            }
        }
        stays
    }

    /// The causes for which safe mode was entered, or the promise to a stream suspended, and when.
    pub(crate) fn causes(&self) -> Vec<(u64, Cause)> {
        let cause = |(at, event): &(u64, Event)| match event {
            Event::SafeMode(transition) => transition.breach().map(|cause| (*at, cause)),
            Event::Suspension(told) => told.alarm.map(|alarm| (*at, alarm.cause)),
            Event::MissesLeft { .. } => None,
        };
        self.events.iter().filter_map(cause).collect()
    }
}
