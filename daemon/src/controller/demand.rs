//! How much is asked of a service: its arrivals, counted by window, and what they are expected to be; and how many requests of a stage of a
//! pipeline a result of the stages before it becomes.
//!
//! `Mean` is how Proteus takes demand (section 4: statistics of the load balancers, looked at each period, at once on a burst),
//! `Ewma` how Loki does (section 4: "an exponentially weighted moving average on the recent demand history").

use std::collections::VecDeque;
use std::time::Duration;

use weir_plan::config::Estimator;

/// Windows that are kept at most, whatever the period.
const MOST: usize = 4096;
/// A window beyond what is planned by more than so many standard deviations of what comes at random is none of its whims.
pub(super) const DEVIATIONS: f64 = 4.0;
/// Of fewer results a second nothing is told of what they become.
const FEWEST: f64 = 1e-3;

/// The arrivals of one service.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    estimator: Estimator,
    /// What the mean is over.
    period: Duration,
    /// What came in which time, the newest last; no more than the period needs.
    windows: VecDeque<(u64, Duration)>,
    /// Requests a second, smoothed; none before the first window.
    smooth: Option<f64>,
}

impl Demand {
    /// Of which nothing has been seen.
    pub(crate) fn new(estimator: Estimator, period: Duration) -> Self {
        Self { estimator, period, windows: VecDeque::new(), smooth: None }
    }

    /// A window of that length has ended, in which so many requests came. One without length says nothing.
    pub(crate) fn add(&mut self, came: u64, length: Duration) {
        if length.is_zero() {
            return;
        }
        self.windows.push_back((came, length));
        // As many as cover the period, and one at least.
        let mut covered: Duration = self.windows.iter().map(|(_, length)| *length).sum();
        while let Some(&(_, oldest)) = self.windows.front()
            && self.windows.len() > 1
            && (covered - oldest >= self.period || self.windows.len() > MOST)
        {
            covered -= oldest;
            self.windows.pop_front();
        }
        let rate = came as f64 / length.as_secs_f64();
        let Estimator::Ewma { weight } = self.estimator else { return };
        self.smooth = Some(self.smooth.map_or(rate, |before| before + weight * (rate - before)));
    }

    /// Requests a second that are expected; none before the first window.
    pub(crate) fn expected(&self) -> Option<f64> {
        match self.estimator {
            Estimator::Mean => {
                let over = |(all, time): (u64, Duration), &(came, length): &(u64, Duration)| {
                    (all + came, time + length)
                };
                let (all, time) = self.windows.iter().fold((0, Duration::ZERO), over);
                (!time.is_zero()).then(|| all as f64 / time.as_secs_f64())
            }
            Estimator::Ewma { .. } => self.smooth,
        }
    }

    /// Requests a second of the newest window, if that is more than `planned` by more than chance: a burst.
    pub(crate) fn burst(&self, planned: f64) -> Option<f64> {
        let &(came, length) = self.windows.back()?;
        let planned = planned * length.as_secs_f64();
        let beyond = came as f64 > planned + DEVIATIONS * planned.max(1.0).sqrt();
        beyond.then(|| came as f64 / length.as_secs_f64())
    }
}

/// How many requests a result becomes at a stage: both are counted by window, and each is expected as arrivals are (Loki, section 4:
/// "records the multiplicative factors it observes").
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    results: Demand,
    requests: Demand,
    known: f64,
}

impl Factor {
    /// Of which nothing has been seen: it is `guessed` until any results are.
    pub(crate) fn new(estimator: Estimator, period: Duration, guessed: f64) -> Self {
        let none = Demand::new(estimator, period);
        Self { results: none.clone(), requests: none, known: guessed }
    }

    /// A window of that length has ended, in which so many results became so many requests.
    pub(crate) fn add(&mut self, (results, requests): (u64, u64), length: Duration) {
        self.results.add(results, length);
        self.requests.add(requests, length);
        let both = self.results.expected().zip(self.requests.expected());
        // Where none come for long, it stays what it was.
        if let Some((results, requests)) = both.filter(|(results, _)| *results > FEWEST) {
            self.known = requests / results;
        }
    }

    /// Requests of a result.
    pub(crate) fn expected(&self) -> f64 {
        self.known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(length: f64) -> Duration {
        Duration::from_secs_f64(length)
    }

    #[test]
    fn the_mean_is_that_of_the_last_period_and_forgets_what_was_before() {
        let mut demand = Demand::new(Estimator::Mean, seconds(3.0));
        assert_eq!(demand.expected(), None);
        for (came, expected) in [(30, 30.0), (0, 15.0), (60, 30.0), (60, 40.0), (60, 60.0)] {
            demand.add(came, seconds(1.0));
            assert_eq!(demand.expected(), Some(expected));
        }
        demand.add(7, Duration::ZERO);
        assert_eq!(demand.expected(), Some(60.0));
    }

    #[test]
    fn the_average_moves_by_its_weight() {
        let mut demand = Demand::new(Estimator::Ewma { weight: 0.25 }, seconds(1.0));
        for (came, expected) in [(40, 40.0), (80, 50.0), (50, 50.0), (10, 40.0)] {
            demand.add(came, seconds(1.0));
            assert_eq!(demand.expected(), Some(expected));
        }
    }

    #[test]
    fn a_burst_is_more_than_chance() {
        let mut demand = Demand::new(Estimator::Mean, seconds(10.0));
        assert_eq!(demand.burst(0.0), None);
        for (came, burst) in [(100, None), (139, None), (141, Some(141.0)), (90, None)] {
            demand.add(came, seconds(1.0));
            assert_eq!(demand.burst(100.0), burst, "{came}");
        }
        // Nothing was planned, and a single request is no burst.
        demand.add(1, seconds(1.0));
        assert_eq!(demand.burst(0.0), None);
        demand.add(5, seconds(0.5));
        assert_eq!(demand.burst(0.0), Some(10.0));
    }

    fn estimators() -> impl Strategy<Value = Estimator> {
        prop_oneof![Just(Estimator::Mean), (0.01f64..=1.0).prop_map(|weight| Estimator::Ewma { weight })]
    }

    #[test]
    fn a_factor_is_the_guess_until_results_come_and_then_what_they_became() {
        let windows = [((0, 0), 2.0), ((10, 30), 3.0), ((30, 30), 1.5), ((0, 0), 1.0), ((20, 10), 0.5)];
        let mut factor = Factor::new(Estimator::Mean, seconds(2.0), 2.0);
        for (came, expected) in windows {
            factor.add(came, seconds(1.0));
            assert_eq!(factor.expected(), expected, "{came:?}");
        }
        // Nothing comes for longer than the period: it is what it was.
        (0..5).for_each(|_| factor.add((0, 0), seconds(1.0)));
        assert_eq!(factor.expected(), 0.5);
        // By the average each counts for how often it comes: 10 and 30 of both, then 20 and 10, by a half.
        let mut factor = Factor::new(Estimator::Ewma { weight: 0.5 }, seconds(2.0), 2.0);
        for (came, expected) in
            [((0, 0), 2.0), ((20, 60), 3.0), ((30, 0), 15.0 / 20.0), ((0, 0), 15.0 / 20.0)]
        {
            factor.add(came, seconds(1.0));
            assert!((factor.expected() - expected).abs() < 1e-9, "{came:?}: {}", factor.expected());
        }
        (0..100).for_each(|_| factor.add((0, 0), seconds(1.0)));
        assert!((factor.expected() - 0.75).abs() < 1e-9, "{}", factor.expected());
    }

    proptest! {
        /// Whatever comes, what is expected lies between the least and the most of a window, and a steady rate is found.
        #[test]
        fn what_is_expected_is_between_what_was_seen(
            estimator in estimators(),
            period in 0.05f64..20.0,
            windows in proptest::collection::vec((0u64..10_000, 0.01f64..3.0), 1..60),
            steady in 0u64..1_000,
        ) {
            let mut demand = Demand::new(estimator, seconds(period));
            for &(came, length) in &windows {
                demand.add(came, seconds(length));
                prop_assert!(demand.windows.len() <= MOST);
            }
            let rates: Vec<f64> = windows.iter().map(|(came, length)| *came as f64 / length).collect();
            let (least, most) = rates.iter().fold((f64::MAX, 0f64), |(l, m), &r| (l.min(r), m.max(r)));
            let expected = demand.expected().expect("a window has ended");
            let slack = 1e-6 * most.max(1.0);
            prop_assert!((least - slack..=most + slack).contains(&expected), "{least} {expected} {most}");
            for _ in 0..3_000 {
                demand.add(steady, seconds(1.0));
            }
            let expected = demand.expected().expect("windows have ended");
            prop_assert!((expected - steady as f64).abs() <= 1e-6 * (steady.max(1) as f64) + 1e-6, "{expected} {steady}");
            prop_assert_eq!(demand.burst(steady as f64), None);
        }

        /// The mean is that of the shortest run of the newest windows that covers the period.
        #[test]
        fn the_mean_is_over_no_more_than_the_period_needs(
            period in 0.5f64..5.0,
            windows in proptest::collection::vec((0u64..100, 0.1f64..1.0), 1..40),
        ) {
            let mut demand = Demand::new(Estimator::Mean, seconds(period));
            windows.iter().for_each(|&(came, length)| demand.add(came, seconds(length)));
            let (mut all, mut time) = (0, Duration::ZERO);
            for &(came, length) in windows.iter().rev() {
                if time >= seconds(period) {
                    break;
                }
                all += came;
                time += seconds(length);
            }
            let expected = demand.expected().expect("a window has ended");
            prop_assert!((expected - all as f64 / time.as_secs_f64()).abs() < 1e-9);
        }
    }
}
