//! The streams' names, for events: of those that are there, and of those gone that safe mode is still about.

use std::collections::HashMap;

use rt_core::StreamId;

/// The names of a service's streams by number.
#[derive(Clone, Default)]
pub(crate) struct Names {
    present: HashMap<StreamId, String>,
    /// Streams that have gone and still stand in the evidence: no more than safe mode has severities.
    past: Vec<(StreamId, String)>,
}

impl Names {
    /// Enters a stream.
    pub(crate) fn insert(&mut self, id: StreamId, name: &str) {
        self.present.insert(id, name.to_owned());
    }

    /// The name of a stream; empty if it has none.
    pub(crate) fn get(&self, id: StreamId) -> &str {
        let past = || self.past.iter().find(|(gone, _)| *gone == id).map(|(_, name)| name);
        self.present.get(&id).or_else(past).map(String::as_str).unwrap_or_default()
    }

    /// Takes out a stream that has gone. Of all those gone the names stay of whichever are among `evidence`, the
    /// streams that safe mode is about now.
    pub(crate) fn remove(&mut self, id: StreamId, evidence: &[StreamId]) {
        self.past.extend(self.present.remove(&id).map(|name| (id, name)));
        self.past.retain(|(gone, _)| evidence.contains(gone));
    }

    /// The streams that are there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &str)> {
        self.present.iter().map(|(id, name)| (*id, name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use rt_core::{
        Dispatch, LatencyProfile, SafeModeConfig, Scheduler, SchedulerConfig, Span, StreamSpec, Workers,
    };

    use super::*;

    #[test]
    fn a_name_outlives_its_stream_while_safe_mode_is_about_it() {
        let span = Span::from_millis(1);
        let profile = LatencyProfile::new(&[span]).expect("a profile");
        let config = SchedulerConfig {
            deadline: span + span,
            guard: Span::ZERO,
            workers: vec![Workers { count: 1, batch: 1, profile }],
            dispatch: Dispatch::Eager,
            background: true,
            queue: 1,
            streams: 3,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        };
        let mut scheduler = Scheduler::new(config).expect("valid");
        let ids = [(); 3].map(|()| scheduler.add_stream(StreamSpec::best_effort()).expect("room"));
        let mut names = Names::default();
        ids.iter().zip(["a", "b", "c"]).for_each(|(&id, name)| names.insert(id, name));
        names.remove(ids[0], &ids[..1]);
        names.remove(ids[1], &ids[..1]);
        assert_eq!(ids.map(|id| names.get(id).to_owned()), ["a", "", "c"]);
        assert_eq!(names.iter().collect::<Vec<_>>(), [(ids[2], "c")]);
        // Once safe mode is about something else, the next to go takes it along.
        names.remove(ids[2], &ids[2..]);
        assert_eq!(ids.map(|id| names.get(id).to_owned()), ["", "", "c"]);
    }
}
