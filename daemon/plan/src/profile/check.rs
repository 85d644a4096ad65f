//! Whether a profile still holds: fresh times of every batch size against the bounds that are written.

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

use super::entry::{BatchTimes, Entry};
use super::tail::Basis;
use weir_engine::EngineKind;

/// The probability of condemning a profile that holds, whatever the number of batch sizes.
const LEVEL: f64 = 0.01;
/// A median that moved by less, as a share, is not worth a line of its own.
const MOVED: f64 = 0.05;

/// What fresh times say of a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether the machine is as it was and no batch size exceeds its bound more often than it may.
    pub holds: bool,
    /// In what the machine differs.
    pub differences: Vec<String>,
    /// What was found, batch size by batch size.
    pub found: Vec<Found>,
}

/// What fresh times say of one batch size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The model.
    pub model: String,
    /// What runs it.
    pub engine: EngineKind,
    /// The batch size.
    pub batch: usize,
    /// Fresh times.
    pub samples: usize,
    /// P(b) as written, in nanoseconds.
    pub bound_ns: u64,
    /// The longest of the fresh times, in nanoseconds.
    pub max_ns: u64,
    /// Fresh times above P(b).
    pub above: usize,
    /// The probability of so many or more if the profile holds.
    pub p_value: f64,
    /// Whether that is too small to be chance, all batch sizes considered.
    pub too_often: bool,
    /// The median as written, in nanoseconds.
    pub p50_ns: u64,
    /// The fresh median, in nanoseconds.
    pub fresh_p50_ns: u64,
    /// Whether the median moved by 5 % or more, and not by chance.
    pub moved: bool,
}

impl Verdict {
    /// Of pairs of an entry and the fresh times of its model, for batches of 1, 2, …: none of them empty.
    pub fn new(differences: Vec<String>, fresh: &[(&Entry, &[Vec<u64>])]) -> Self {
        let pairs = fresh.iter().flat_map(|(entry, series)| {
            entry.batches.iter().zip(series.iter()).map(|(written, times)| Found::new(entry, written, times))
        });
        let mut found: Vec<Found> = pairs.collect();
        // Holm (1979): the k-th smallest of n is compared with LEVEL / (n - k + 1), up to the first that passes.
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by(|&a, &b| found[a].p_value.total_cmp(&found[b].p_value));
        for (k, &index) in order.iter().enumerate() {
            if found[index].p_value >= LEVEL / (order.len() - k) as f64 {
                break;
            }
            found[index].too_often = true;
        }
        let holds = differences.is_empty() && !found.iter().any(|found| found.too_often);
        Self { holds, differences, found }
    }
}

impl Found {
    fn new(entry: &Entry, written: &BatchTimes, times: &[u64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let fresh_p50_ns = sorted[sorted.len().div_ceil(2) - 1];
        let above = sorted.len() - sorted.partition_point(|&time| time <= written.bound_ns);
        // Half of the times are at or below the median, but for chance: a sign test.
        let below = sorted.partition_point(|&time| time <= written.p50_ns);
        let rarer = below.min(sorted.len() - below);
        let by_chance = 2.0 * (1.0 - at_least(rarer + 1, sorted.len(), 0.5));
        let share = (fresh_p50_ns as f64 / written.p50_ns.max(1) as f64 - 1.0).abs();
        Self {
            model: entry.model.clone(),
            engine: entry.engine,
            batch: written.batch,
            samples: times.len(),
            bound_ns: written.bound_ns,
            max_ns: sorted[sorted.len() - 1],
            above,
            p_value: chance(entry, written, above, times.len()),
            too_often: false,
            p50_ns: written.p50_ns,
            fresh_p50_ns,
            moved: share >= MOVED && by_chance < LEVEL,
        }
    }
}

/// The probability that `above` or more of `samples` fresh times exceed the bound of `written` if nothing has changed.
///
/// A quantile or a tail states the probability for each; where long times come in clusters of 1/θ, so many count as one. Otherwise
/// nothing is known but that each of all times, old and fresh, is as likely to be among the longest: the margin is taken
/// for nothing.
fn chance(entry: &Entry, written: &BatchTimes, above: usize, samples: usize) -> f64 {
    match written.tail.filter(|_| written.basis == Basis::Tail) {
        Some(tail) => {
            let clusters = |count: usize| (count as f64 * tail.extremal_index).ceil() as usize;
            at_least(clusters(above), clusters(samples), entry.exceedance)
        }
        None if written.basis == Basis::Quantile => at_least(above, samples, entry.exceedance),
        None => {
            let all = (written.samples + samples) as f64;
            (0..above).map(|i| (samples - i) as f64 / (all - i as f64)).product()
        }
    }
}

/// The probability of `count` or more successes in `trials` of `probability` each.
fn at_least(count: usize, trials: usize, probability: f64) -> f64 {
    match (count.checked_sub(1), Binomial::new(probability, trials as u64)) {
        (Some(below), Ok(binomial)) => binomial.sf(below as u64),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::group::tests::subject;
    use crate::profile::tail::Rule;
    use crate::profile::tail::tests::draws;
    use weir_engine::RunMode;

    /// A millisecond and an exponential time of 50 µs, longer by `factor`.
    fn times(seed: u64, count: usize, factor: f64) -> Vec<u64> {
        draws(seed, count, |u| (factor * (1e6 - 50_000.0 * u.ln())) as u64)
    }

    fn entry(seed: u64, samples: usize) -> Entry {
        let series = [times(seed, samples, 1.0), times(seed + 500, samples, 2.0)];
        let rule = Rule::new(1e-3, 0.1, false).unwrap();
        Entry::new(&subject("m", &[1, 1]), &[RunMode::Batched; 2], (&series, &[true; 2]), &rule, 1)
    }

    fn verdict(seed: u64, samples: usize, factor: f64) -> Verdict {
        let series = [times(seed + 1000, 500, 1.0), times(seed + 1500, 500, 2.0 * factor)];
        Verdict::new(Vec::new(), &[(&entry(seed, samples), &series)])
    }

    #[test]
    fn a_profile_that_holds_is_seldom_condemned() {
        for samples in [2000, 50] {
            let condemned = (0..100).filter(|&seed| !verdict(seed, samples, 1.0).holds).count();
            assert!(condemned <= 5, "{condemned} of 100 from {samples} times, 1 expected");
        }
    }

    #[test]
    fn a_machine_that_became_slower_is_found_and_named() {
        for seed in 0..20 {
            let verdict = verdict(seed, 2000, 1.5);
            assert!(!verdict.holds && verdict.found.len() == 2);
            let [one, two] = &verdict.found[..] else { panic!("two batch sizes") };
            assert!(!one.too_often && !one.moved && two.too_often && two.moved, "{verdict:?}");
            assert!((two.fresh_p50_ns as f64 / two.p50_ns as f64 - 1.5).abs() < 0.05);
        }
    }

    #[test]
    fn another_machine_is_reason_enough() {
        let series = [times(1, 50, 1.0), times(2, 50, 2.0)];
        let verdict =
            Verdict::new(vec!["cores: profile 4, here 2".to_owned()], &[(&entry(3, 2000), &series)]);
        assert!(!verdict.holds && verdict.found.iter().all(|found| !found.too_often));
    }

    #[test]
    fn chances_are_those_of_worked_examples() {
        assert_eq!(at_least(0, 10, 0.1), 1.0);
        assert!((at_least(1, 10, 0.1) - (1.0 - 0.9f64.powi(10))).abs() < 1e-12);
        let mut entry = entry(4, 30);
        let written = entry.batches[0];
        assert_eq!(written.basis, Basis::Few);
        // That the two longest of 40 are both among 10 of them: 10/40 · 9/39.
        assert!((chance(&entry, &written, 2, 10) - 10.0 / 40.0 * 9.0 / 39.0).abs() < 1e-12);
        entry = self::entry(4, 2000);
        let mut written = entry.batches[0];
        let tail = written.tail.as_mut().unwrap();
        tail.extremal_index = 0.25;
        // Four in a row count as one in a quarter of the runs.
        let clusters = 1.0 - (1.0 - entry.exceedance).powi(25);
        assert!((chance(&entry, &written, 4, 100) - clusters).abs() < 1e-9);
    }
}
