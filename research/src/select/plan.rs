//! Finds the policy for a demand by trying many out on the same arrivals: simple rules, and prices with the numbers that
//! the fluid bound leaves open.

use rt_core::Instant;
use virtual_time::Poisson;

use super::candidate::{Candidate, Search};
use super::decision::{Demand, DemandError};
use super::fluid::{Fluid, fluid};
use super::policy::Policy;
use super::profile::Profile;
use super::score::trial;

/// A policy is tried at this multiple of its load too: loads are estimates.
const STRESS: f64 = 1.03;
/// What that counts, beside the load itself.
const STRESSED: f64 = 0.05;
/// How many arrivals follow the last that counts.
const AFTER: usize = 64;
/// The last tries have so many times as many requests.
const LONGER: usize = 6;
/// A trial lasts for so many times the objective at least, first, again and at last: so long it takes until a queue that grows
/// is seen to.
const OBJECTIVES: [f64; 3] = [8.0, 16.0, 32.0];
/// As if no more than so many requests came within the objective.
const WITHIN: f64 = 125_000.0;
/// How many of the best are tried again, and how many of these at last; where trials must be long, fewer, but so many at
/// least. A quarter as many rules are tried beside them.
const AGAIN: [(usize, usize); 2] = [(60, 12), (12, 4)];
/// Where trials must be long, there are fewer tries, but this part of them at least.
const LEAST: usize = 16;

/// With so few workers it matters most what one of them does: so many times as much is tried for them,
const FEW: usize = 4;
const MORE: usize = 4;
/// as long as these are no more work, in requests and decisions, than if each request of all trials were decided on once: policies
/// that look again and again while they wait would take many times as long.
const WORK: f64 = 2.0;
/// A try that was worth less than the best by so much on this part of the requests is not looked at any longer.
const GLANCE: usize = 8;
const HOPELESS: f64 = 0.05;

/// How much work to put into a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// How many policies to try, at least 1. Where more requests come within 8 times the objective than they are to be tried on,
    /// trials are so long, and fewer: one in 16 at least.
    pub tries: usize,
    /// On how many requests each, at least 1. The best are tried again on as many others, and the best of these on six times as
    /// many.
    pub requests: usize,
    /// The seed of all draws.
    pub seed: u64,
    /// Whether four workers or fewer have four times as many tries, greedy ones of batches that are not too long among them, and only
    /// those that do well on the first eighth of the requests are tried on all.
    pub thorough: bool,
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
    /// How many policies were tried before the best of them were tried again.
    pub tries: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { tries: 400, requests: 16_000, seed: 1, thorough: false }
    }
}

impl Effort {
    const fn is_thorough(self, demand: Demand) -> bool {
        self.thorough && demand.workers <= FEW
    }
}

/// The best policy found for `demand`, by [`super::Score::worth`]: of simple rules and of prices.
///
/// Arrivals are drawn, so that of two that are about as good either may be taken.
///
/// # Errors
/// [`DemandError`] for the first value that is outside its range.
pub fn plan(profile: &Profile, demand: Demand, effort: Effort) -> Result<Plan, DemandError> {
    let few = effort.is_thorough(demand);
    let tries = if few { effort.tries.saturating_mul(MORE) } else { effort.tries };
    search(profile, demand, Effort { tries, ..effort }, Search::new(profile, few, effort.seed))
}

/// The best rule with two thresholds that was found for `demand`, as [`plan()`] finds the best of all:
/// [`Policy::thresholds`].
///
/// # Errors
/// [`DemandError`] for the first value that is outside its range.
pub fn plan_thresholds(profile: &Profile, demand: Demand, effort: Effort) -> Result<Plan, DemandError> {
    search(profile, demand, effort, Search::of_thresholds(profile, effort.seed))
}

fn search(
    profile: &Profile,
    demand: Demand,
    effort: Effort,
    mut search: Search,
) -> Result<Plan, DemandError> {
    demand.check()?;
    if effort.tries == 0 {
        return Err(DemandError::Tries);
    }
    if effort.requests == 0 {
        return Err(DemandError::Requests);
    }
    let Effort { tries, requests, seed, .. } = effort;
    // As many tries of what lasts long enough as are no more work than all of so few requests, or the least.
    let course = |stage: usize, requests: usize, (tries, least): (usize, usize)| {
        let within = OBJECTIVES[stage] * (demand.load * profile.slo().as_secs_f64()).min(WITHIN);
        let length = requests.max(within as usize);
        let tries = (tries as u128 * requests as u128 / length as u128) as usize;
        (Course::new(demand, length, seed ^ (stage as u64 + 1)), tries.max(least))
    };
    let (short, tries) = course(0, requests, (tries, tries.div_ceil(LEAST)));
    let (glance, _) = course(0, requests.div_ceil(GLANCE), (1, 1));
    let is_thorough = effort.is_thorough(demand);
    let limit = if is_thorough { WORK * short.requests() * tries as f64 } else { f64::INFINITY };
    let (mut most, mut work, mut tried) = (f64::NEG_INFINITY, 0.0, 0);
    loop {
        let done = (tried as f64 / tries as f64).max(work / limit);
        if done >= 1.0 {
            break;
        }
        tried += 1;
        let candidate = search.next(done);
        let policy = candidate.policy(profile, demand);
        if is_thorough {
            let glimpse = glance.of(profile, &policy);
            work += glimpse.work;
            most = most.max(glimpse.worth);
            if glimpse.worth < most - HOPELESS {
                search.tried(candidate, glimpse.worth - HOPELESS);
                continue;
            }
        }
        let trial = short.of(profile, &policy);
        work += trial.work;
        search.tried(candidate, trial.worth);
    }
    let [mut rules, mut priced] = search.tries();
    let mut best = None;
    for (stage, requests) in [(1, requests), (2, requests.saturating_mul(LONGER))] {
        let (course, again) = course(stage, requests, AGAIN[stage - 1]);
        priced.truncate(again);
        rules.truncate(again / 4 + 1);
        let of = |candidate: Candidate| (course.of(profile, &candidate.policy(profile, demand)), candidate);
        let mut trials: Vec<(Trial, Candidate)> = rules.into_iter().chain(priced).map(of).collect();
        trials.sort_by(|a, b| b.0.worth.total_cmp(&a.0.worth));
        best = trials.first().copied();
        (priced, rules) = trials.into_iter().map(|(_, candidate)| candidate).partition(Candidate::is_priced);
    }
    let (Trial { accuracy, violations, .. }, candidate) = best.ok_or(DemandError::Tries)?;
    let bound = fluid(profile, profile.slo(), demand.per_request());
    Ok(Plan { policy: candidate.policy(profile, demand), bound, accuracy, violations, tries: tried })
}

/// The same arrivals for every policy, at the load and above it.
struct Course {
    workers: usize,
    calm: (Vec<Instant>, Instant),
    stress: (Vec<Instant>, Instant),
}

/// What became of a policy.
#[derive(Clone, Copy)]
struct Trial {
    worth: f64,
    accuracy: f64,
    violations: f64,
    /// Requests and decisions.
    work: f64,
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

    /// How many come in a trial.
    fn requests(&self) -> f64 {
        (self.calm.0.len() + self.stress.0.len()) as f64
    }

    fn of(&self, profile: &Profile, policy: &Policy) -> Trial {
        let run = |(arrivals, last): &(Vec<Instant>, Instant)| {
            // Every worker is free at first, which the start of the trial must not count.
            let from =
                Instant::from_nanos(profile.slo().as_nanos().saturating_mul(4).min(last.as_nanos() / 2));
            trial(profile, policy, self.workers, arrivals.iter().copied(), from..*last)
        };
        let (calm, stress) = (run(&self.calm), run(&self.stress));
        let worth = calm.worth() + STRESSED * stress.worth();
        let work = self.requests() + (calm.decisions + stress.decisions) as f64;
        Trial { worth, accuracy: calm.accuracy(), violations: calm.violations(), work }
    }
}
