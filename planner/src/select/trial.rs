//! A policy tried out: one queue and its workers in virtual time, every batch as long as the profile says.

use std::collections::VecDeque;

use rt_core::{Instant, Span};

use super::decision::{Decision, State, Take};
use super::policy::Policy;
use super::profile::Profile;

/// Poisson arrivals: the same for the same seed, on every machine.
///
/// The bits come from SplitMix64 (Steele, Lea, Flood 2014), the gaps by inversion, with the logarithm of `libm`.
#[derive(Clone, Debug)]
pub struct Poisson {
    state: u64,
    /// The mean gap, in nanoseconds.
    gap: f64,
    now: f64,
}

/// What became of the requests that a trial counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Answered in time.
    pub answered: u64,
    /// Answered late: none, if batches are as long as the profile says.
    pub late: u64,
    /// Given up.
    pub refused: u64,
    /// The accuracies of those answered in time, summed.
    pub accuracy_sum: f64,
    /// Worker time spent on nothing, in worker seconds, and the length of the trial in seconds.
    pub idle: (f64, f64),
    /// How many batches there were of each model, by batch size from 0.
    pub started: Vec<Vec<u64>>,
}

impl Poisson {
    /// Arrivals from instant 0 on, `load` per second, which must be positive.
    #[must_use]
    pub fn new(load: f64, seed: u64) -> Self {
        Self { state: seed, gap: 1e9 / load, now: 0.0 }
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

impl Iterator for Poisson {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        self.now -= libm::log(self.unit()) * self.gap;
        Some(Instant::from_nanos(self.now as u64))
    }
}

impl Score {
    /// The mean accuracy of the requests answered in time, in 0..=1; 0 if there are none.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        if self.answered == 0 { 0.0 } else { self.accuracy_sum / self.answered as f64 }
    }

    /// The share of requests answered late or given up.
    #[must_use]
    pub fn violations(&self) -> f64 {
        let missed = self.late + self.refused;
        if missed == 0 { 0.0 } else { missed as f64 / (self.answered + missed) as f64 }
    }

    /// How many workers are idle on average.
    #[must_use]
    pub fn idle_workers(&self) -> f64 {
        self.idle.0 / self.idle.1
    }
}

/// Plays `arrivals`, in order, on `workers` workers, at least one. Requests count that arrive in `counted`; the trial
/// ends when the last of them has its fate, and arrivals must go on for that long.
pub fn trial(
    profile: &Profile,
    policy: &Policy,
    workers: usize,
    arrivals: impl IntoIterator<Item = Instant>,
    counted: std::ops::Range<Instant>,
) -> Score {
    let mut play = Play {
        profile,
        policy,
        free: workers,
        ends: Vec::with_capacity(workers),
        queue: VecDeque::new(),
        counted,
        score: Score::default(),
    };
    play.score.started = profile.models().iter().map(|m| vec![0; m.latencies.len() + 1]).collect();
    play.run(arrivals.into_iter());
    play.score
}

struct Play<'a> {
    profile: &'a Profile,
    policy: &'a Policy,
    free: usize,
    /// When the busy workers will be free, latest first.
    ends: Vec<Instant>,
    queue: VecDeque<Instant>,
    counted: std::ops::Range<Instant>,
    score: Score,
}

impl Play<'_> {
    fn run(&mut self, mut arrivals: impl Iterator<Item = Instant>) {
        let mut arrival = arrivals.next();
        let mut timer: Option<Instant> = None;
        let mut last = Instant::ZERO;
        while let Some(now) = [arrival, self.ends.last().copied(), timer].into_iter().flatten().min() {
            if now >= self.counted.end && self.queue.front().is_none_or(|&a| a >= self.counted.end) {
                break;
            }
            self.score.idle.0 += self.free as f64 * now.since(last).as_secs_f64();
            last = now;
            while self.ends.last() == Some(&now) {
                self.ends.pop();
                self.free += 1;
            }
            while arrival == Some(now) {
                self.queue.push_back(now);
                arrival = arrivals.next();
            }
            timer = self.act(now);
        }
        self.score.idle.1 = last.as_nanos() as f64 * 1e-9;
    }

    /// Follows the policy until it waits; until when.
    fn act(&mut self, now: Instant) -> Option<Instant> {
        loop {
            let soon = now + self.policy.horizon();
            let state = State {
                now,
                waiting: self.queue.as_slices(),
                free: self.free,
                soon: self.ends.len() - self.ends.partition_point(|&end| end > soon),
                longest: self.profile.slo(),
            };
            match self.policy.decide(&state) {
                Decision::Wait { until } => return until,
                Decision::Refuse => {
                    let arrival = self.queue.pop_front();
                    self.score.refused += u64::from(arrival.is_some_and(|a| self.counted.contains(&a)));
                }
                Decision::Start { model, batch, take } => self.start(now, model, batch, take),
            }
        }
    }

    fn start(&mut self, now: Instant, model: usize, batch: usize, take: Take) {
        let latency = self.profile.latency(model, batch).unwrap_or(Span::ZERO);
        let end = now + latency;
        for _ in 0..batch {
            let arrival = match take {
                Take::Oldest => self.queue.pop_front(),
                Take::Newest => self.queue.pop_back(),
            };
            let Some(arrival) = arrival.filter(|a| self.counted.contains(a)) else { continue };
            if end.since(arrival) <= self.profile.slo() {
                self.score.answered += 1;
                self.score.accuracy_sum += self.profile.models()[model].accuracy;
            } else {
                self.score.late += 1;
            }
        }
        self.score.started[model][batch] += 1;
        self.free -= 1;
        self.ends.insert(self.ends.partition_point(|&e| e > end), end);
    }
}
