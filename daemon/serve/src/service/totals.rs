//! How all requests of a service have ended so far, also those of streams that have gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use rt_core::{MissReason, Outcome};
use weir_client::status::Departed;

use super::view::Fared;

/// Names of streams that are remembered at most; the one that went first is forgotten first.
const NAMES: usize = 256;

/// Of a service and of those it has taken over from, since the daemon's start.
#[derive(Debug, Default)]
pub struct Totals {
    served: AtomicU64,
    missed: [AtomicU64; MissReason::ALL.len()],
}

impl Totals {
    pub(super) fn count(&self, outcome: Outcome) {
        let place = match outcome {
            Outcome::Served => &self.served,
            Outcome::Missed(reason) => match MissReason::ALL.iter().position(|of| *of == reason) {
                Some(index) => &self.missed[index],
                None => return,
            },
        };
        place.fetch_add(1, Ordering::Relaxed);
    }

    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// By reason.
    pub fn missed(&self) -> BTreeMap<String, u64> {
        let counts = self.missed.iter().map(|count| count.load(Ordering::Relaxed));
        MissReason::ALL.iter().map(ToString::to_string).zip(counts).collect()
    }
}

/// What has become of the requests of streams that clients have given up, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Past(VecDeque<Departed>);

impl Past {
    /// A stream of that name is given up. What of it is not answered yet counts as cancelled.
    pub(super) fn add(&mut self, name: &str, fared: &Fared) {
        if fared.arrived == 0 {
            return;
        }
        let known = self.0.iter().position(|departed| departed.name == name);
        let mut departed = known.and_then(|index| self.0.remove(index)).unwrap_or_default();
        departed.name = name.to_owned();
        departed.arrived += fared.arrived;
        departed.served += fared.served;
        let mut open = fared.arrived - fared.served.min(fared.arrived);
        for (reason, count) in fared.missed() {
            open = open.saturating_sub(count);
            *departed.missed.entry(reason.to_string()).or_default() += count;
        }
        *departed.missed.entry(MissReason::Cancelled.to_string()).or_default() += open;
        if self.0.len() >= NAMES {
            self.0.pop_front();
        }
        self.0.push_back(departed);
    }

    pub(super) fn status(&self) -> Vec<Departed> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::view::StreamView;
    use rt_core::{StreamCounts, StreamSpec};

    fn fared(arrived: u64, served: u64) -> Fared {
        let (view, mut counts) =
            (StreamView::new("cam", &StreamSpec::best_effort()), StreamCounts::default());
        (counts.arrived, counts.served) = (arrived, served);
        view.publish(&counts, None, Default::default());
        view.fared()
    }

    #[test]
    fn counts_are_kept_by_name_and_of_so_many_names() {
        let mut past = Past::default();
        past.add("cam", &fared(5, 3));
        past.add("silent", &fared(0, 0));
        past.add("cam", &fared(4, 4));
        let told = past.status();
        assert_eq!((told.len(), told[0].name.as_str()), (1, "cam"));
        assert_eq!((told[0].arrived, told[0].served, told[0].missed["cancelled"]), (9, 7, 2));
        (0..NAMES).for_each(|number| past.add(&number.to_string(), &fared(1, 1)));
        let told = past.status();
        assert_eq!((told.len(), told[0].name.as_str()), (NAMES, "0"));
    }
}
