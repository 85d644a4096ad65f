//! What comes while a network is trained, tried and compared: at all loads, as a process says, or as it was recorded.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use research::learned::{AllLoads, Course};
use rt_core::Instant;
use sim::process::{ModulatedState, Process};
use virtual_time::Poisson;

/// Loads that are held out, as parts of what the base carries, and as parts of the rate that is stated.
const PARTS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0];
const AROUND: [f64; 5] = [0.5, 0.75, 1.0, 1.25, 1.5];
/// Requests of each.
const REQUESTS: usize = 20_000;
/// Seeds of what it is tried on, and of what is held out: no episode has them.
const TRIED: u64 = 0x5eed_0000;
const HELD_OUT: u64 = 0x7e57_0000;
/// Arrivals of a recording at least, and the parts of it that are trained on, and tried on.
const FEWEST: usize = 1_000;
const TRAINED: f64 = 0.6;
const UP_TO: f64 = 0.8;

/// What comes.
#[derive(Clone, Debug)]
pub(crate) enum Traffic {
    /// Poisson arrivals at all loads that the base carries.
    AllLoads(AllLoads),
    /// From half to one and a half of the rate.
    Around { process: Process, rate_per_s: f64 },
    /// The first part of it to train on, the second to try, the last to compare.
    Recorded(Vec<Instant>),
}

impl Traffic {
    /// As it was recorded, in order.
    ///
    /// # Errors
    /// If it is too short to learn anything from.
    pub(crate) fn recorded(arrivals: Vec<Instant>) -> Result<Self> {
        let count = arrivals.len();
        ensure!(count >= FEWEST, "{count} arrivals: must be {FEWEST} at least to train, try and compare");
        ensure!(arrivals[0] < arrivals[count - 1], "{count} arrivals at once: there is no rate to learn for");
        Ok(Self::Recorded(arrivals))
    }

    /// What it is compared on, with the rate of each.
    pub(crate) fn held_out(&self) -> Vec<(f64, Vec<Instant>)> {
        match self {
            Self::AllLoads(AllLoads { capacity_per_s }) => {
                let load = |(seed, part): (u64, f64)| {
                    let rate = part * capacity_per_s;
                    (rate, Poisson::new(rate, HELD_OUT + seed).take(REQUESTS).collect())
                };
                (0..).zip(PARTS).map(load).collect()
            }
            Self::Around { process, rate_per_s } => {
                let load = |(seed, part): (u64, f64)| {
                    let rate = part * rate_per_s;
                    (rate, drawn(process, rate, HELD_OUT + seed, REQUESTS))
                };
                (0..).zip(AROUND).map(load).collect()
            }
            Self::Recorded(all) => {
                let last = &all[place(all, UP_TO)..];
                let last = &last[..last.len().min(REQUESTS)];
                let length = last[last.len() - 1].since(last[0]).as_secs_f64();
                vec![(last.len() as f64 / length.max(1e-9), from_zero(last))]
            }
        }
    }
}

impl Course for Traffic {
    fn episode(&self, draw: f64, requests: usize, seed: u64) -> Vec<Instant> {
        match self {
            Self::AllLoads(all) => all.episode(draw, requests, seed),
            Self::Around { process, rate_per_s } => drawn(process, (0.5 + draw) * rate_per_s, seed, requests),
            Self::Recorded(all) => {
                let own = &all[..place(all, TRAINED)];
                let first = (draw * own.len().saturating_sub(requests) as f64) as usize;
                from_zero(&own[first..own.len().min(first + requests)])
            }
        }
    }

    fn trials(&self, requests: usize) -> Vec<Vec<Instant>> {
        match self {
            Self::AllLoads(all) => all.trials(requests),
            Self::Around { process, rate_per_s } => {
                let load =
                    |(seed, part): (u64, f64)| drawn(process, part * rate_per_s, TRIED + seed, requests);
                (0..).zip(AROUND).map(load).collect()
            }
            Self::Recorded(all) => {
                let own = &all[place(all, TRAINED)..place(all, UP_TO)];
                own.chunks(requests.max(1)).take(AROUND.len()).map(from_zero).collect()
            }
        }
    }
}

/// Where a part of them ends.
fn place(all: &[Instant], part: f64) -> usize {
    (part * all.len() as f64) as usize
}

/// As if the first came at 0.
fn from_zero(arrivals: &[Instant]) -> Vec<Instant> {
    let first = arrivals.first().copied().unwrap_or(Instant::ZERO);
    arrivals.iter().map(|at| Instant::ZERO + at.since(first)).collect()
}

/// So many of a process whose rates were checked when it was read.
fn drawn(process: &Process, rate_per_s: f64, seed: u64, requests: usize) -> Vec<Instant> {
    process.arrivals(rate_per_s, seed).map_or_else(|_| Vec::new(), |source| source.take(requests).collect())
}

impl FromStr for Traffic {
    type Err = anyhow::Error;

    /// `poisson:RATE`, or `mmpp:RATE@SECONDS,RATE@SECONDS`: rates in requests a second, and how long each holds on average.
    fn from_str(text: &str) -> Result<Self> {
        let number =
            |text: &str| -> Result<f64> { text.parse().with_context(|| format!("{text:?} is no number")) };
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let (process, rate_per_s) = match kind {
            "poisson" => (Process::Poisson, number(rest)?),
            "mmpp" => {
                let state = |text: &str| {
                    let (rate, dwell) =
                        text.split_once('@').with_context(|| format!("{text:?} is no RATE@SECONDS"))?;
                    anyhow::Ok(ModulatedState { rate: number(rate)?, dwell_s: number(dwell)? })
                };
                let states = rest.split(',').map(state).collect::<Result<Vec<_>>>()?;
                let length: f64 = states.iter().map(|state| state.dwell_s).sum();
                let mean = states.iter().map(|state| state.rate * state.dwell_s).sum::<f64>() / length;
                (Process::MarkovModulated { states }, mean)
            }
            _ => bail!("must be poisson:RATE or mmpp:RATE@SECONDS,RATE@SECONDS"),
        };
        // At all rates that it is had at.
        for part in [AROUND[0], AROUND[AROUND.len() - 1]] {
            process.arrivals(part * rate_per_s, 0)?;
        }
        Ok(Self::Around { process, rate_per_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_that_are_stated() {
        for (text, rate) in [("poisson:120", 120.0), ("mmpp:50@9,500@1", 95.0)] {
            let traffic: Traffic = text.parse().expect("a process");
            let Traffic::Around { rate_per_s, .. } = &traffic else { panic!("{traffic:?}") };
            assert!((rate_per_s - rate).abs() < 1e-9, "{text}: {rate_per_s}");
            assert_eq!(traffic.episode(0.5, 10, 1), traffic.episode(0.5, 10, 1));
            assert_ne!(traffic.episode(0.5, 10, 1), traffic.episode(0.5, 10, 2));
        }
        let steady: Traffic = "poisson:120".parse().expect("a process");
        for (rate, arrivals) in steady.held_out() {
            let seen =
                arrivals.len() as f64 / arrivals[arrivals.len() - 1].since(Instant::ZERO).as_secs_f64();
            assert!((seen / rate - 1.0).abs() < 0.05, "{seen} of {rate}");
        }
    }

    #[test]
    fn nothing_that_is_recorded_is_both_trained_on_and_compared_on() {
        let at = |i: u64| Instant::from_nanos(7_000_000 + i * i);
        let traffic = Traffic::recorded((0..1_000).map(at).collect()).expect("long enough");
        // Squares tell by the gaps between them which they are.
        let gaps = |arrivals: &[Instant]| -> Vec<u64> {
            arrivals.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos()).collect()
        };
        let trained: Vec<u64> =
            (1..=20).flat_map(|i| gaps(&traffic.episode(f64::from(i) / 20.0, 100, 1))).collect();
        let tried: Vec<u64> = traffic.trials(50).iter().flat_map(|one| gaps(one)).collect();
        let compared: Vec<u64> = traffic.held_out().iter().flat_map(|(_, one)| gaps(one)).collect();
        let range = |gaps: &[u64]| (gaps.iter().min().copied(), gaps.iter().max().copied());
        // From i to i + 1 it is 2i + 1.
        assert_eq!((range(&trained).1, range(&tried).0), (Some(2 * 598 + 1), Some(2 * 600 + 1)));
        assert_eq!(
            (range(&tried).1, range(&compared)),
            (Some(2 * 798 + 1), (Some(2 * 800 + 1), Some(2 * 998 + 1)))
        );
        assert_eq!(traffic.episode(0.7, 100, 1)[0], Instant::ZERO);
    }

    #[test]
    fn every_refusal_says_what_it_must_be() {
        for (text, wanted) in [
            ("poisson", "\"\" is no number"),
            ("poisson:0", "rate"),
            ("poisson:nan", "rate"),
            ("poisson:1e12", "rate"),
            ("mmpp:50", "\"50\" is no RATE@SECONDS"),
            ("mmpp:50@x", "\"x\" is no number"),
            ("mmpp:0@1,0@1", "rate"),
            ("mmpp:5@0,5@1", "dwell"),
            ("waves:3", "must be poisson:RATE or mmpp:RATE@SECONDS"),
        ] {
            let told = format!("{:#}", text.parse::<Traffic>().expect_err(text));
            assert!(told.contains(wanted), "{text}: {told}");
        }
        let few = Traffic::recorded(vec![Instant::ZERO; 999]).expect_err("few").to_string();
        assert!(few.contains("999 arrivals: must be 1000 at least"), "{few}");
        assert!(Traffic::recorded(vec![Instant::ZERO; 1_000]).is_err());
    }
}
