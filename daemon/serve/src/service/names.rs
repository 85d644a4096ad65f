//! The streams of a scheduler as others see them: those that are there, and those gone that safe mode is still about.

use std::collections::HashMap;
use std::sync::Arc;

use rt_core::StreamId;

use super::view::StreamView;

/// The views of a scheduler's streams by number.
#[derive(Clone, Default)]
pub(super) struct Names {
    present: HashMap<StreamId, Arc<StreamView>>,
    /// Streams that have gone and still stand in the evidence: no more than safe mode has severities.
    past: Vec<(StreamId, Arc<StreamView>)>,
}

impl Names {
    /// Of a scheduler of so many streams: none yet.
    pub(super) fn with_capacity(streams: usize) -> Self {
        Self { present: HashMap::with_capacity(streams), past: Vec::with_capacity(4) }
    }

    /// Enters a stream.
    pub(super) fn insert(&mut self, id: StreamId, view: Arc<StreamView>) {
        self.present.insert(id, view);
    }

    /// The view of a stream that is there.
    pub(super) fn present(&self, id: StreamId) -> Option<&Arc<StreamView>> {
        self.present.get(&id)
    }

    /// The view of a stream, if it has one.
    pub(super) fn get(&self, id: StreamId) -> Option<&Arc<StreamView>> {
        let past = || self.past.iter().find(|(gone, _)| *gone == id).map(|(_, view)| view);
        self.present.get(&id).or_else(past)
    }

    /// The same of these streams alone, as of such that have gone.
    pub(super) fn only(&self, ids: &[StreamId]) -> Self {
        let found = |&id: &StreamId| Some((id, Arc::clone(self.get(id)?)));
        Self { present: HashMap::new(), past: ids.iter().filter_map(found).collect() }
    }

    /// Takes out a stream that has gone. Of all those gone the names stay of whichever are among `evidence`, the
    /// streams that safe mode is about now.
    pub(super) fn remove(&mut self, id: StreamId, evidence: &[StreamId]) {
        self.past.extend(self.present.remove(&id).map(|view| (id, view)));
        self.past.retain(|(gone, _)| evidence.contains(gone));
    }
}

#[cfg(test)]
mod tests {
    use rt_core::{Scheduler, StreamSpec};

    use super::*;
    use crate::service::tests::small_config;

    #[test]
    fn a_name_outlives_its_stream_while_safe_mode_is_about_it() {
        let mut scheduler = Scheduler::new(small_config()).expect("valid");
        let ids = [(); 3]
            .map(|()| scheduler.add_stream(rt_core::Instant::ZERO, StreamSpec::best_effort()).expect("room"));
        let mut names = Names::default();
        ids.iter().zip(["a", "b", "c"]).for_each(|(&id, name)| {
            names.insert(id, Arc::new(StreamView::new(name, &StreamSpec::best_effort())));
        });
        names.remove(ids[0], &ids[..1]);
        names.remove(ids[1], &ids[..1]);
        let named =
            |names: &Names| ids.map(|id| names.get(id).map_or(String::new(), |view| view.name.clone()));
        assert_eq!(named(&names), ["a", "", "c"]);
        assert!(names.present(ids[0]).is_none() && names.present(ids[2]).is_some());
        assert_eq!(named(&names.only(&ids[..1])), ["a", "", ""]);
        // Once safe mode is about something else, the next to go takes it along.
        names.remove(ids[2], &ids[2..]);
        assert_eq!(named(&names), ["", "", "c"]);
    }
}
