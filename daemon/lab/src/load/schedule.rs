//! When requests are due: fixed before the first one is sent, so that no answer can slow the next one down.

use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp};

/// The highest rate of a generator, requests per second.
pub(crate) const MAX_RATE: f64 = 1e6;
/// The most requests of one burst.
pub(crate) const MAX_BURST: u64 = 1 << 16;
/// The most instants of a trace.
pub(crate) const MAX_TRACE: usize = 1 << 24;

/// The instants at which requests are due, in nanoseconds from the start; non-decreasing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    shape: Shape,
    /// Mean requests per second.
    rate: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Constant,
    Poisson { seed: u64 },
    Burst { size: u64 },
    Trace { instants: Vec<u64> },
}

/// Why there is no schedule.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error("rate is {rate} requests/s, must be above 0 and at most {MAX_RATE}")]
    Rate { rate: f64 },
    #[error("burst is {size} requests, must be 1..={MAX_BURST}")]
    Burst { size: u64 },
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line} is {value:?}, must be seconds, at least 0", path.display())]
    Value { path: PathBuf, line: usize, value: String },
    #[error("{}: line {line} is {value} s, must not be before the {before} s above it", path.display())]
    Order { path: PathBuf, line: usize, value: f64, before: f64 },
    #[error("{}: {count} instants, must be 1..={MAX_TRACE}", path.display())]
    Count { path: PathBuf, count: usize },
}

impl Schedule {
    /// One request every `1/rate` seconds, the first at once.
    ///
    /// # Errors
    /// If `rate` is not above 0 and at most [`MAX_RATE`].
    pub(crate) fn constant(rate: f64) -> Result<Self, ScheduleError> {
        Self::new(Shape::Constant, rate)
    }

    /// Independent arrivals: gaps drawn from the exponential distribution of mean `1/rate`, the same ones for
    /// the same seed.
    ///
    /// # Errors
    /// As [`Schedule::constant`].
    pub(crate) fn poisson(rate: f64, seed: u64) -> Result<Self, ScheduleError> {
        Self::new(Shape::Poisson { seed }, rate)
    }

    /// `size` requests at once every `size/rate` seconds, the first ones at once.
    ///
    /// # Errors
    /// As [`Schedule::constant`], and if `size` is not in `1..=MAX_BURST`.
    pub(crate) fn burst(rate: f64, size: u64) -> Result<Self, ScheduleError> {
        if !(1..=MAX_BURST).contains(&size) {
            return Err(ScheduleError::Burst { size });
        }
        Self::new(Shape::Burst { size }, rate)
    }

    /// Recorded arrivals: the first column of a CSV file in seconds, counted from its first instant. The first
    /// line may be a header.
    ///
    /// # Errors
    /// If the file cannot be read, a line is no number of seconds or lies before the one above, or there is no
    /// instant at all.
    pub(crate) fn trace(path: &Path) -> Result<Self, ScheduleError> {
        let text = planner::read_text(path)
            .map_err(|source| ScheduleError::Read { path: path.to_owned(), source })?;
        Self::parse_trace(path, &text)
    }

    /// Mean requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// The instants, in nanoseconds from the start; endless but for a trace.
    pub(crate) fn instants(&self) -> Box<dyn Iterator<Item = u64> + Send + '_> {
        let rate = self.rate;
        // From the number each time: sums of rounded gaps would drift.
        let due = move |number: u64| (number as f64 * 1e9 / rate) as u64;
        match &self.shape {
            Shape::Constant => Box::new((0..).map(due)),
            Shape::Burst { size } => Box::new((0u64..).map(move |i| due(i / size * size))),
            Shape::Poisson { seed } => {
                let mut random = StdRng::seed_from_u64(*seed);
                let mut seconds = 0.0;
                // A rate that was checked always has a distribution.
                let gaps = Exp::new(rate).into_iter();
                Box::new(gaps.flat_map(std::iter::repeat).map(move |gap| {
                    seconds += gap.sample(&mut random);
                    (seconds * 1e9) as u64
                }))
            }
            Shape::Trace { instants } => Box::new(instants.iter().copied()),
        }
    }

    fn new(shape: Shape, rate: f64) -> Result<Self, ScheduleError> {
        if rate > 0.0 && rate <= MAX_RATE {
            Ok(Self { shape, rate })
        } else {
            Err(ScheduleError::Rate { rate })
        }
    }

    fn parse_trace(path: &Path, text: &str) -> Result<Self, ScheduleError> {
        let path = || path.to_owned();
        let mut seconds: Vec<f64> = Vec::new();
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        // What is read is text already: nothing else can be wrong with it.
        for record in reader.records().flatten() {
            let line = record.position().map_or(0, csv::Position::line) as usize;
            let field = record.get(0).unwrap_or_default().trim();
            if field.is_empty() && record.len() == 1 {
                continue;
            }
            match field.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => {
                    if let Some(&before) = seconds.last().filter(|before| value < **before) {
                        return Err(ScheduleError::Order { path: path(), line, value, before });
                    }
                    seconds.push(value);
                }
                Err(_) if line == 1 => {}
                _ => {
                    let value = field.to_owned();
                    return Err(ScheduleError::Value { path: path(), line, value });
                }
            }
        }
        let count = seconds.len();
        let (Some(first), Some(last)) = (seconds.first().copied(), seconds.last().copied()) else {
            return Err(ScheduleError::Count { path: path(), count });
        };
        if count > MAX_TRACE {
            return Err(ScheduleError::Count { path: path(), count });
        }
        let instants = seconds.iter().map(|s| ((s - first) * 1e9).round() as u64).collect();
        // A trace that lasts no time has no rate; it is told as one of a request per second. One that lasts next to none
        // has no more than others may have.
        let rate = if last > first { (count - 1) as f64 / (last - first) } else { 1.0 };
        let rate = rate.min(MAX_RATE);
        Ok(Self { shape: Shape::Trace { instants }, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes(rate: f64, seed: u64, size: u64) -> [Schedule; 3] {
        [
            Schedule::constant(rate).unwrap(),
            Schedule::poisson(rate, seed).unwrap(),
            Schedule::burst(rate, size).unwrap(),
        ]
    }

    fn first(schedule: &Schedule, count: usize) -> Vec<u64> {
        schedule.instants().take(count).collect()
    }

    fn trace(text: &str) -> Result<Schedule, String> {
        Schedule::parse_trace(Path::new("t.csv"), text).map_err(|e| e.to_string())
    }

    proptest! {
        #[test]
        fn instants_never_go_back_and_repeat_with_their_seed(
            rate in 0.1f64..1e5, seed in any::<u64>(), size in 1u64..20
        ) {
            for schedule in shapes(rate, seed, size) {
                let instants = first(&schedule, 300);
                prop_assert!(instants.is_sorted());
                prop_assert_eq!(&instants, &first(&schedule, 300));
            }
        }

        #[test]
        fn constant_arrivals_keep_a_periodic_curve_and_do_not_drift(rate in 0.1f64..1e5, number in 0usize..1_000_000) {
            let at = Schedule::constant(rate).unwrap().instants().nth(number).unwrap();
            prop_assert!((at as f64 - number as f64 * 1e9 / rate).abs() <= 2.0);
        }

        #[test]
        fn bursts_come_together_and_keep_the_mean_rate(rate in 1f64..1e4, size in 1u64..20) {
            let instants = first(&Schedule::burst(rate, size).unwrap(), 10 * size as usize);
            for (number, burst) in instants.chunks(size as usize).enumerate() {
                let due = (number as f64 * size as f64 * 1e9 / rate) as u64;
                prop_assert!(burst.iter().all(|&at| at == due));
            }
        }

        #[test]
        fn a_trace_reads_back_as_written(gaps in proptest::collection::vec(0u64..2_000_000_000, 1..50), start in 0u64..1000) {
            let mut at = 0;
            let instants: Vec<u64> = std::iter::once(0).chain(gaps.iter().map(|gap| { at += gap; at })).collect();
            let lines: Vec<_> = instants.iter().map(|i| format!("{}.{:09}", start + i / 1_000_000_000, i % 1_000_000_000)).collect();
            let schedule = trace(&lines.join("\n")).unwrap();
            for (found, wanted) in schedule.instants().zip(&instants) {
                prop_assert!(found.abs_diff(*wanted) <= 1000);
            }
            prop_assert_eq!(schedule.instants().count(), instants.len());
        }
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_its_spread() {
        let instants = first(&Schedule::poisson(1000.0, 7).unwrap(), 100_001);
        let mean = instants[100_000] as f64 / 100_001.0;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        let gaps: Vec<f64> = instants.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((square.sqrt() / mean - 1.0).abs() < 0.05);
        assert_ne!(instants, first(&Schedule::poisson(1000.0, 8).unwrap(), 100_001));
    }

    #[test]
    fn a_trace_counts_from_its_first_instant_and_knows_its_rate() {
        let schedule = trace("time,who\n10.0,a\n10.5,b\n\n12.0,a\n").unwrap();
        assert_eq!(first(&schedule, 9), [0, 500_000_000, 2_000_000_000]);
        assert_eq!(schedule.rate(), 1.0);
        assert_eq!(trace("0\n5e-324\n").unwrap().rate(), MAX_RATE);
    }

    #[test]
    fn refusals_name_field_value_and_limit() {
        let told = |r: Result<Schedule, ScheduleError>| r.unwrap_err().to_string();
        assert!(told(Schedule::constant(0.0)).contains("rate is 0"));
        assert!(told(Schedule::constant(f64::NAN)).contains("must be above 0"));
        assert!(told(Schedule::burst(1.0, 0)).contains("burst is 0 requests, must be 1..=65536"));
        assert!(trace("").unwrap_err().contains("t.csv: 0 instants"));
        assert!(trace("1\nx\n").unwrap_err().contains("line 2 is \"x\""));
        assert!(trace("-1\n").unwrap_err().contains("line 1 is \"-1\""));
        assert!(trace("2\n1\n").unwrap_err().contains("line 2 is 1 s, must not be before the 2 s"));
    }
}
