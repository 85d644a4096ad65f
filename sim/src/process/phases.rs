//! A Poisson process whose rate changes by steps: with a hidden Markov chain, or as a recorded series has it.

use std::sync::Arc;

use rt_core::Instant;

use super::draws::Draws;
use super::ticks::Ticks;

/// The rate is constant in each phase; the next phase begins where one ends.
///
/// The time between requests is drawn as work (exponential, mean 1) that is done at the present rate, phase by
/// phase: the time change that makes any such process out of a plain one.
#[derive(Clone, Debug)]
pub(super) struct Phases {
    now: Ticks,
    /// Where this phase ends, and how many nanoseconds are left until then.
    end: Ticks,
    left: f64,
    /// Requests a nanosecond in this phase.
    rate: f64,
    course: Course,
    draws: Draws,
}

/// Which phases follow one another.
#[derive(Clone, Debug)]
pub(super) enum Course {
    /// States in turn, for times that are exponential.
    Modulated {
        /// Requests a nanosecond and mean nanoseconds of each.
        states: Vec<(f64, f64)>,
        /// The state at present.
        index: usize,
    },
    /// Given rates for equal times, again from the first after the last.
    Series {
        /// In any unit.
        rates: Arc<[f64]>,
        /// Requests a nanosecond in one of that unit.
        unit: f64,
        /// How long each rate holds.
        interval: Ticks,
        /// The same in nanoseconds.
        nanos: f64,
        /// The rate that comes next.
        index: usize,
    },
}

impl Phases {
    /// From 0 on. A chain is in equilibrium: in each state as likely as it is there in the long run.
    pub(super) fn new(mut course: Course, mut draws: Draws) -> Self {
        if let Course::Modulated { states, index } = &mut course {
            let whole: f64 = states.iter().map(|(_, dwell)| dwell).sum();
            let mut point = draws.unit() * whole;
            *index = states.len() - 1;
            for (i, &(_, dwell)) in states.iter().enumerate() {
                point -= dwell;
                if point <= 0.0 {
                    // `enter` moves on by one.
                    *index = (i + states.len() - 1) % states.len();
                    break;
                }
            }
        }
        let mut phases = Self { now: Ticks::ZERO, end: Ticks::ZERO, left: 0.0, rate: 0.0, course, draws };
        phases.enter();
        phases
    }

    pub(super) fn reseed(&mut self, draws: Draws) {
        self.draws = draws;
    }

    pub(super) fn next(&mut self) -> Option<Instant> {
        let mut work = self.draws.exponential();
        loop {
            let within = self.rate * self.left;
            if work < within {
                let gap = work / self.rate;
                self.left = (self.left - gap).max(0.0);
                // What is left is rounded, the end is not.
                self.now = self.now.after(Ticks::of_nanos(gap)?)?.min(self.end);
                return Some(self.now.instant());
            }
            if self.end == Ticks::MAX {
                return None;
            }
            work -= within;
            self.enter();
        }
    }

    /// Begins the next phase where this one ends.
    fn enter(&mut self) {
        let length;
        match &mut self.course {
            Course::Modulated { states, index } => {
                *index = (*index + 1) % states.len();
                let (rate, dwell) = states[*index];
                self.rate = rate;
                self.left = dwell * self.draws.exponential();
                length = Ticks::of_nanos(self.left).unwrap_or(Ticks::MAX);
            }
            Course::Series { rates, unit, interval, nanos, index } => {
                self.rate = rates[*index] * *unit;
                *index = (*index + 1) % rates.len();
                self.left = *nanos;
                length = *interval;
            }
        }
        self.now = self.end;
        self.end = self.now.after_or_end(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: f64 = 1e9;

    /// Requests in each of so many intervals of `nanos`.
    fn counts(phases: &mut Phases, nanos: u64, intervals: usize) -> Vec<f64> {
        let mut counts = vec![0.0; intervals];
        let mut last = Instant::ZERO;
        while let Some(instant) = phases.next() {
            assert!(instant >= last);
            last = instant;
            let Some(count) = counts.get_mut((instant.as_nanos() / nanos) as usize) else { break };
            *count += 1.0;
        }
        counts
    }

    /// Mean, and variance over mean.
    fn dispersion(counts: &[f64]) -> (f64, f64) {
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / (n - 1.0);
        (mean, variance / mean)
    }

    fn modulated(states: &[(f64, f64)], seed: u64) -> Phases {
        let states = states.iter().map(|&(rate, dwell)| (rate / SECOND, dwell * SECOND)).collect();
        Phases::new(Course::Modulated { states, index: 0 }, Draws::new(seed))
    }

    /// Of two states with rates a, b and mean times 1/s, 1/r the counts in a time t have, with p = s/(s + r) and
    /// q = 1 - p: dispersion 1 + 2pq(a-b)²/((qa + pb)(s+r)) · (1 - (1 - e^-(s+r)t)/((s+r)t)) (Heffes and Lucantoni,
    /// "A Markov modulated characterization of packetized voice", 1986).
    #[test]
    fn a_modulated_process_is_as_much_burstier_than_poisson_as_theory_has_it() {
        let (a, b, dwell) = (300.0, 100.0, 0.5);
        let rates = 2.0 / dwell;
        let theory =
            1.0 + 0.5 * (a - b) * (a - b) / (200.0 * rates) * (1.0 - (1.0 - f64::exp(-rates)) / rates);
        let intervals = 20_000;
        for seed in 0..3 {
            let (mean, found) = dispersion(&counts(
                &mut modulated(&[(a, dwell), (b, dwell)], seed),
                1_000_000_000,
                intervals,
            ));
            // Counts of neighbours go together for about one interval: as good as a third of them, independent.
            let effective = intervals as f64 / 3.0;
            assert!((mean - 200.0).abs() < 5.0 * (theory * 200.0 / effective).sqrt(), "{mean}");
            // The variance of counts near a normal distribution deviates by √(2/n) of itself.
            assert!((found / theory - 1.0).abs() < 5.0 * (2.0 / effective).sqrt(), "{found} of {theory}");
            let (mean, plain) =
                dispersion(&counts(&mut modulated(&[(200.0, 1.0)], seed), 1_000_000_000, intervals));
            assert!((mean - 200.0).abs() < 5.0 * (200.0 / intervals as f64).sqrt());
            assert!((plain - 1.0).abs() < 5.0 * (2.0 / intervals as f64).sqrt(), "{plain}");
            assert!(theory > 10.0);
        }
    }

    #[test]
    fn the_first_state_is_as_likely_as_in_the_long_run() {
        let starts = 20_000;
        let found = (0..starts)
            .filter(|&seed| modulated(&[(1.0, 1.0), (2.0, 2.0), (3.0, 5.0)], seed).rate > 2.5e-9)
            .count();
        let (share, expected): (f64, f64) = (found as f64 / starts as f64, 5.0 / 8.0);
        assert!(
            (share - expected).abs() < 5.0 * (expected * (1.0 - expected) / starts as f64).sqrt(),
            "{share}"
        );
    }

    fn series(rates: &[f64], nanos: f64) -> Phases {
        let interval = Ticks::of_nanos(nanos).expect("inside the clock");
        let course = Course::Series { rates: rates.into(), unit: 1.0 / SECOND, interval, nanos, index: 0 };
        Phases::new(course, Draws::new(5))
    }

    #[test]
    fn a_series_is_followed_interval_by_interval_and_repeated() {
        let rates = [1_000.0, 0.0, 50.0, 4_000.0];
        let counts = counts(&mut series(&rates, SECOND), 1_000_000_000, 400);
        for (i, rate) in rates.iter().enumerate() {
            let own: Vec<_> = counts.iter().skip(i).step_by(4).copied().collect();
            let sum: f64 = own.iter().sum();
            assert!((sum - 100.0 * rate).abs() <= 5.0 * (100.0 * rate).sqrt(), "{sum} at {rate}");
        }
    }

    #[test]
    fn phases_end_where_the_clock_does() {
        let mut source = series(&[1e-9, 0.0], 3e18);
        let all: Vec<_> = std::iter::from_fn(|| source.next()).collect();
        assert!(all.len() < 60 && all.is_sorted());
        assert!(series(&[0.0], 1e18).next().is_none());
    }
}
