//! What was announced last of each service and of each stream, so that nothing older is told after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_client::StreamState;

use super::{Announcement, State, Subject};

/// Streams of which something is remembered at most: names may come and go without end.
const STREAMS: usize = 1_024;

/// The newest announcement by what it is about.
#[derive(Default)]
pub(super) struct Newest(BTreeMap<Subject, Arc<Announcement>>);

impl Newest {
    /// Takes an announcement in; false if a newer one is known. Threads that announce may overtake each other.
    pub(super) fn note(&mut self, announcement: &Arc<Announcement>) -> bool {
        let subject = announcement.subject();
        if self.0.get(&subject).is_some_and(|known| known.sequence >= announcement.sequence) {
            return false;
        }
        self.0.insert(subject, Arc::clone(announcement));
        if self.streams().count() > STREAMS {
            // Of those that are no longer suspended, which nobody misses, the oldest.
            let rank =
                |told: &Announcement| (told.state != State::Stream(StreamState::Normal), told.sequence);
            let gone = self.streams().min_by_key(|told| rank(told)).map(|told| told.subject());
            gone.map(|subject| self.0.remove(&subject));
        }
        true
    }

    /// What is known of it.
    pub(super) fn get(&self, subject: &Subject) -> Option<&Arc<Announcement>> {
        self.0.get(subject)
    }

    /// Nothing of this service stands any more.
    pub(super) fn forget(&mut self, service: &str) {
        self.0.retain(|(of, _), _| of != service);
    }

    /// That of each service and stream.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Announcement>> {
        self.0.values()
    }

    fn streams(&self) -> impl Iterator<Item = &Arc<Announcement>> {
        self.0.values().filter(|told| matches!(told.state, State::Stream(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::announced::{overrun, suspension};

    #[test]
    fn what_is_older_stays_out_and_streams_count_for_themselves() {
        let mut newest = Newest::default();
        assert!(newest.note(&Arc::new(overrun("lanes", 4))));
        assert!(!newest.note(&Arc::new(overrun("lanes", 3))));
        assert!(newest.note(&Arc::new(suspension(("lanes", "a"), 2, false))));
        assert!(!newest.note(&Arc::new(suspension(("lanes", "a"), 1, true))), "it holds again since");
        assert!(newest.note(&Arc::new(suspension(("lanes", "b"), 1, true))));
        assert!(newest.note(&Arc::new(suspension(("signs", "a"), 1, true))));
        assert_eq!(newest.iter().count(), 4);
        newest.forget("lanes");
        assert_eq!(newest.iter().map(|told| told.service.as_str()).collect::<Vec<_>>(), ["signs"]);
    }

    #[test]
    fn streams_that_come_and_go_take_no_more_room_than_there_is() {
        let mut newest = Newest::default();
        newest.note(&Arc::new(overrun("lanes", 1)));
        newest.note(&Arc::new(suspension(("lanes", "stays"), 1, true)));
        for sequence in 2..3 * STREAMS as u64 {
            newest.note(&Arc::new(suspension(("lanes", &format!("s{sequence}")), sequence, false)));
        }
        assert_eq!(newest.iter().count(), STREAMS + 1);
        let known = |stream: &str| newest.get(&("lanes".into(), Some(stream.into()))).is_some();
        assert!(known("stays") && known(&format!("s{}", 3 * STREAMS - 1)) && !known("s2"));
    }
}
