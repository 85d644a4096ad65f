//! Demand for which a plan was tried in virtual time, or is what is served: any other was never seen.

use std::collections::{BTreeMap, VecDeque};

use rt_core::Span;

use super::demand::DEVIATIONS;

/// So many are remembered, the newest.
const MOST: usize = 64;

/// Requests a second of each service.
type Demand = BTreeMap<String, f64>;

/// What was seen since the file was taken over, or a device was lost.
#[derive(Debug, Default)]
pub(super) struct Known(VecDeque<Demand>);

impl Known {
    /// Whether one like it was: where of no service in a `window` comes more or less by what is beyond chance.
    pub(super) fn has(&self, demand: &Demand, window: Span) -> bool {
        let like = |known: &Demand| {
            known.len() == demand.len()
                && demand
                    .iter()
                    .all(|(name, rate)| known.get(name).is_some_and(|of| near(*rate, *of, window)))
        };
        self.0.iter().any(like)
    }

    /// From now on this one is, unless it was.
    pub(super) fn note(&mut self, demand: Demand, window: Span) {
        if self.has(&demand, window) {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(demand);
    }
}

/// Whether two rates differ by no more than what comes at random in a window.
fn near(one: f64, other: f64, window: Span) -> bool {
    let [one, other] = [one, other].map(|rate| rate * window.as_secs_f64());
    (one - other).abs() <= DEVIATIONS * one.max(other).max(1.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(a: f64, b: f64) -> Demand {
        BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)])
    }

    #[test]
    fn what_differs_by_chance_is_known_and_more_is_not() {
        let (mut known, second) = (Known::default(), Span::from_millis(1_000));
        assert!(!known.has(&demand(100.0, 25.0), second), "nothing is known at first");
        known.note(demand(100.0, 25.0), second);
        // 4·√100 either way, by the larger of the two.
        for (a, b, is_known) in [
            (100.0, 25.0, true),
            (61.0, 25.0, true),
            (59.0, 25.0, false),
            (144.0, 25.0, true),
            (150.0, 25.0, false),
            (100.0, 46.0, true),
            (100.0, 60.0, false),
            // Each of them was seen, and not both at once.
            (25.0, 100.0, false),
        ] {
            assert_eq!(known.has(&demand(a, b), second), is_known, "{a} {b}");
        }
        // In a shorter window more is chance.
        assert!(known.has(&demand(59.0, 25.0), Span::from_millis(250)));
        assert!(!known.has(&BTreeMap::from([("a".to_owned(), 100.0)]), second), "other services");
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let (mut known, second) = (Known::default(), Span::from_millis(1_000));
        (0..=MOST).for_each(|i| known.note(demand(9_000.0 * i as f64, 0.0), second));
        assert!(known.has(&demand(9_000.0, 0.0), second) && known.has(&demand(576_000.0, 0.0), second));
        assert!(!known.has(&demand(0.0, 0.0), second), "the first of 65");
    }
}
