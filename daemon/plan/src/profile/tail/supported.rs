//! The quantile that so many runs support by themselves: one of the longest of them, whatever the tail looks like.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::FEWEST;
use super::clusters::extremal_index;

/// The probability with which the quantile may be longer after all.
const DOUBT: f64 = 0.05;
/// Whether long times come in clusters is seen of so many times as many as should exceed the quantile.
const AROUND: f64 = 4.0;

/// A time that is exceeded with probability `exceedance` at most, but for a doubt of one in twenty; none if there are too few
/// runs to say.
///
/// Of *n* independent runs a binomial number exceeds the quantile. If fewer than *r* do with a probability below the doubt,
/// the *r*-th longest is not below it. Long times that come in clusters are worth as many runs less.
pub(super) fn supported(times: &[u64], exceedance: f64) -> Option<u64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let around = (AROUND * exceedance * times.len() as f64) as usize;
    let threshold = *sorted.get(around.max(FEWEST))?;
    let places: Vec<usize> = (0..times.len()).filter(|&run| times[run] > threshold).collect();
    let runs = (times.len() as f64 * extremal_index(&places, times.len())) as u64;
    let exceeding = Binomial::new(exceedance, runs).ok()?;
    let rank = (0..).take_while(|&fewer| exceeding.cdf(fewer) <= DOUBT).count();
    Some(sorted[rank.checked_sub(1)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tail::tests::draws;

    #[test]
    fn the_rank_is_that_of_binomial_tables() {
        // Each by itself; longer the later.
        let times: Vec<u64> = (0..60_000).map(|run| (run * 7919) % 60_000).collect();
        let longest = |runs: usize, exceedance| {
            supported(&times[..runs], exceedance)
                .map(|time| times[..runs].iter().filter(|&&other| other >= time).count())
        };
        // 0.9999^n ≤ 0.05 from n = 29 956 on; of 47 437 and more one or none is as seldom.
        assert_eq!(
            [29_000, 30_000, 47_000, 48_000].map(|n| longest(n, 1e-4)),
            [None, Some(1), Some(1), Some(2)]
        );
        // Poisson: of 14.1 expected, 7 or fewer come with 0.030, 8 or fewer with 0.058.
        assert_eq!(longest(14_097, 1e-3), Some(8));
        assert_eq!(longest(40, 0.1), None, "too few to see clusters");
    }

    #[test]
    fn fresh_times_exceed_it_no_more_often_than_asked() {
        for (samples, exceedance) in [(3_500, 1e-3), (14_000, 1e-3), (2_000, 1e-2)] {
            let above = (0..200).filter(|&seed| {
                // Uniform, so that the share above a time is known.
                let bound = supported(&draws(seed, samples, |u| (u * 1e12) as u64), exceedance);
                bound.is_some_and(|bound| 1.0 - bound as f64 / 1e12 > exceedance)
            });
            let above = above.count();
            assert!(above <= 20, "{above} of 200 from {samples} runs, 10 expected");
        }
    }

    #[test]
    fn one_disturbance_of_many_runs_is_one_run_in_effect() {
        let burst: Vec<u64> =
            (0..5_000u64).map(|run| if run < 60 { 9_000 + run } else { run % 1_000 }).collect();
        assert_eq!(supported(&burst, 1e-3), None);
    }
}
