//! Finds the numbers that the fluid bound leaves open, by trying policies out on the same arrivals.

use rt_core::{Instant, Span};
use virtual_time::Poisson;

use super::decision::{Demand, DemandError, Tuning};
use super::fluid::{Fluid, fluid};
use super::policy::Policy;
use super::profile::Profile;
use super::score::{Score, trial};

/// What a violation costs, in answers that are wrong for certain.
const VIOLATION: f64 = 20.0;
/// A policy is tried at this multiple of its load too, which counts a quarter: loads are estimates.
const STRESS: f64 = 1.03;
/// How many arrivals follow the last that counts.
const AFTER: usize = 64;
/// How many numbers are searched for.
const NUMBERS: usize = 10;
/// The first tries, in the order that [`build`] has: one that never keeps a worker waiting for long, and one that keeps
/// the last free worker for batches worth more.
const STARTS: [[f64; NUMBERS]; 2] = [[0.5; NUMBERS], [0.05, 0.7, 0.05, 0.65, 0.4, 0.5, 0.8, 0.0, 1.0, 0.6]];
/// How many of the best tries are varied, and then tried anew.
const ELITE: usize = 20;

/// How much work to put into a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// How many policies to try, at least 1.
    pub tries: usize,
    /// On how many requests each, at least 1.
    pub requests: usize,
    /// The seed of all draws.
    pub seed: u64,
}

/// A policy and what was found on the way to it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policy.
    pub policy: Policy,
    /// The fluid bound at this load, which no policy exceeds; `None` if the load exceeds what the workers can carry.
    pub bound: Option<Fluid>,
    /// The accuracy of the policy in the last trial, in 0..=1.
    pub accuracy: f64,
    /// Its share of violations there.
    pub violations: f64,
}

impl Default for Effort {
    /// Two to four seconds of computing.
    fn default() -> Self {
        Self { tries: 1000, requests: 16_000, seed: 1 }
    }
}

/// The best policy found for `demand`.
///
/// # Errors
/// [`DemandError`] for the first value that is outside its range.
pub fn plan(profile: &Profile, demand: Demand, effort: Effort) -> Result<Plan, DemandError> {
    demand.check()?;
    if effort.tries == 0 {
        return Err(DemandError::Tries);
    }
    if effort.requests == 0 {
        return Err(DemandError::Requests);
    }
    let mut draws = Poisson::new(1.0, effort.seed);
    let short = Course::new(demand, effort.requests, effort.seed ^ 1);
    let mut tried: Vec<(f64, [f64; NUMBERS])> = Vec::with_capacity(effort.tries);
    let random = effort.tries.div_ceil(3);
    for index in 0..effort.tries {
        let mut numbers = STARTS[index.min(STARTS.len() - 1)];
        if (STARTS.len()..random).contains(&index) {
            numbers = numbers.map(|_| draws.unit());
        } else if index >= STARTS.len() {
            tried.sort_by(|a, b| b.0.total_cmp(&a.0));
            tried.truncate(ELITE);
            numbers = tried[(draws.unit() * tried.len() as f64) as usize % tried.len()].1;
            let width = 0.25 * (1.0 - index as f64 / (effort.tries + 1) as f64);
            for number in &mut numbers {
                if draws.unit() < 0.5 {
                    let step = draws.unit() + draws.unit() + draws.unit() - 1.5;
                    *number = (*number + width * step).clamp(0.0, 1.0);
                }
            }
        }
        let policy = build(profile, demand, numbers);
        tried.push((short.worth(profile, &policy).0, numbers));
    }
    tried.sort_by(|a, b| b.0.total_cmp(&a.0));
    tried.truncate(ELITE);
    let long = Course::new(demand, effort.requests.saturating_mul(3), effort.seed ^ 2);
    let mut best: Option<(f64, Plan)> = None;
    for (_, numbers) in tried {
        let policy = build(profile, demand, numbers);
        let (worth, accuracy, violations) = long.worth(profile, &policy);
        if best.as_ref().is_none_or(|b| worth > b.0) {
            let bound = fluid(profile, profile.slo(), demand.per_request());
            best = Some((worth, Plan { policy, bound, accuracy, violations }));
        }
    }
    best.map(|b| b.1).ok_or(DemandError::Tries)
}

/// The same arrivals for every policy, at the load and above it.
struct Course {
    workers: usize,
    calm: (Vec<Instant>, Instant),
    stress: (Vec<Instant>, Instant),
}

impl Course {
    fn new(demand: Demand, requests: usize, seed: u64) -> Self {
        let arrivals = |load: f64, count: usize, seed| {
            let arrivals: Vec<Instant> = Poisson::new(load, seed).take(count + AFTER).collect();
            let last = arrivals[count];
            (arrivals, last)
        };
        Self {
            workers: demand.workers,
            calm: arrivals(demand.load, requests, seed),
            stress: arrivals(demand.load * STRESS, requests.div_ceil(2), seed ^ 0x5555),
        }
    }

    /// What a policy is worth, its accuracy and its violations.
    fn worth(&self, profile: &Profile, policy: &Policy) -> (f64, f64, f64) {
        let run = |(arrivals, last): &(Vec<Instant>, Instant)| {
            // Every worker is free at first, which the start of the trial must not count.
            let from =
                Instant::from_nanos(profile.slo().as_nanos().saturating_mul(4).min(last.as_nanos() / 2));
            trial(profile, policy, self.workers, arrivals.iter().copied(), from..*last)
        };
        let calm = run(&self.calm);
        let stress = run(&self.stress);
        let of = |s: &Score| s.accuracy() - VIOLATION * s.violations();
        let worth = of(&calm) + 0.25 * of(&stress);
        (worth, calm.accuracy(), calm.violations())
    }
}

/// The policy of numbers in 0..=1, each the place in a range that suits any profile.
fn build(profile: &Profile, demand: Demand, numbers: [f64; NUMBERS]) -> Policy {
    let [reserve, pressure, stiffness, target, share, horizon, last, other, anticipation, patience] = numbers;
    let slo = profile.slo().as_secs_f64();
    let between = |low: f64, high: f64, at: f64| low + (high - low) * at;
    let per_request = demand.per_request();
    let reserve = between(0.01, 0.1, reserve);
    // The mean batch and the mean time of a batch in the best mix give the scale of the stock.
    let limit = Span::from_nanos((profile.slo().as_nanos() as f64 * (1.0 - reserve)) as u64);
    let mix = fluid(profile, limit, per_request)
        .map_or([1.0, 1.0], |f| f.mix.map(|(choice, part)| part / choice.batch as f64));
    let batch = 1.0 / (mix[0] + mix[1]).min(1.0);
    let share = between(0.0, 1.2, share) * batch;
    let horizon = slo * between(0.02, 0.35, horizon);
    // Batches end at the rate at which they start.
    let soon = demand.load / batch * horizon;
    let tuning = Tuning {
        reserve,
        pressure: between(0.96, 1.06, pressure),
        stiffness: 1e-4 * libm::exp(between(0.0, 5.3, stiffness)),
        target: demand.load * slo * between(-0.05, 0.12, target) - share * soon,
        share,
        horizon: Span::from_nanos((horizon * 1e9) as u64),
        hold: [between(-0.025, 0.015, last), between(-0.035, 0.005, other)],
        patience: Span::from_nanos((slo * between(0.03, 0.35, patience) * 1e9) as u64),
        anticipation: between(-0.015, 0.015, anticipation),
    };
    Policy::build(profile, demand, tuning)
}
