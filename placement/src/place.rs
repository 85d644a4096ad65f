//! From a problem to a verified plan, a bound on every other, or what is in the way.

use std::time::Duration;

use crate::bundle::{self, Demand, Solved};
use crate::configuration;
use crate::factor;
use crate::plan::{self, Plan};
use crate::problem::Problem;
use crate::promise::Keeping;
use crate::sharing;
use crate::until::Until;
use crate::verify;
use crate::whole::{self, Aim, Columns, Whole};

/// The most devices for which pools of several kinds are among the bundles.
const FEW_DEVICES: u32 = 100;
/// The part of the time that bundles may take where services may share devices.
const PART: u32 = 4;
/// A gap that counts as none, in points.
pub const PROVEN: f64 = 1e-3;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// More than the program can hold.
    #[error("{0}")]
    Size(String),
    /// The solver of linear programs failed.
    #[error("the solver gave up: {0}")]
    Solver(String),
    /// The plan that was found breaks a constraint when it is looked at by itself: a defect of this program.
    #[error("the plan that was found is refused: {0}")]
    Verify(String),
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All fits.
    Fits {
        /// The plan, verified.
        plan: Plan,
        /// No plan is more accurate, in points.
        bound: f64,
    },
    /// The promises fit, the demand does not.
    Demand {
        /// The largest part of all demand that is known to fit.
        factor: f64,
        /// No larger part than this fits.
        at_most: f64,
        /// Services that no device answers in time, whatever it holds.
        hopeless: Vec<usize>,
        /// The plan for that part, and a bound on every other.
        plan: Option<(Plan, f64)>,
    },
    /// Not even the promises fit.
    Promises {
        /// Services of whose promises something is missing if as little as possible is, and which part.
        violated: Vec<(usize, f64)>,
        /// No plan lacks less than so much of them in sum.
        at_least: f64,
    },
    /// Neither a plan was found in time nor proved that there is none.
    Unknown {
        /// No plan is more accurate.
        bound: f64,
    },
}

/// The best plan for `problem` that is found within `time`.
///
/// # Errors
/// As [`PlaceError`] says.
pub fn place(problem: &Problem, time: Duration) -> Result<Placed, PlaceError> {
    let end = Until::after(time);
    configuration::check(problem).map_err(PlaceError::Size)?;
    let columns = Columns::new(problem).map_err(PlaceError::Size)?;
    let outcome = Placing { problem, columns, end }.outcome()?;
    let plan = match &outcome {
        Outcome::Fits { plan, .. } => Some((plan, 1.0)),
        Outcome::Demand { plan: Some((plan, _)), factor, .. } => Some((plan, *factor)),
        _ => None,
    };
    if let Some((plan, factor)) = plan {
        verify::verify(&problem.scaled(factor), plan).map_err(PlaceError::Verify)?;
    }
    Ok(Placed { outcome, took: end.took() })
}

/// A plan, if one was found, and the bound on all.
pub(crate) type Best = (Option<Plan>, f64);

pub(crate) struct Placing<'a> {
    pub(crate) problem: &'a Problem,
    /// What devices may hold: the same for any part of the demand.
    columns: Columns,
    end: Until,
}

impl Placing<'_> {
    fn outcome(&self) -> Result<Outcome, PlaceError> {
        let (plan, bound) = self.best()?;
        match plan {
            Some(plan) => Ok(Outcome::Fits { plan, bound }),
            None if bound > f64::NEG_INFINITY => Ok(Outcome::Unknown { bound }),
            None => factor::what_fits(self),
        }
    }

    pub(crate) fn left(&self) -> Duration {
        self.end.left()
    }

    /// Whether services share nothing but the number of devices.
    pub(crate) fn is_separable(&self) -> bool {
        self.problem.rounds.is_empty() && self.problem.pipelines.is_empty()
    }

    /// The best plan for all demand.
    pub(crate) fn best(&self) -> Result<Best, PlaceError> {
        if !self.is_separable() {
            return self.beside_alone();
        }
        let (plan, bound) = self.bundles(self.problem, false, self.left() / 2);
        if bound == f64::NEG_INFINITY || plan.as_ref().is_some_and(|plan| bound - plan.accuracy <= PROVEN) {
            return Ok((plan, bound));
        }
        // Where services are few and devices many, the whole program may find what bundles do not.
        let accuracy = |plan: &Option<Plan>| plan.as_ref().map_or(f64::NEG_INFINITY, |plan| plan.accuracy);
        let least = plan.as_ref().map(|plan| plan.accuracy);
        let (found, most) = self.whole(self.problem, least, self.left())?;
        // The bound of bundles may be on plans that keep promises by quotas alone, the other is on all.
        let bound = most.min(bound.max(accuracy(&found)));
        Ok((if accuracy(&found) > accuracy(&plan) + 1e-9 { found } else { plan }, bound))
    }

    /// The best plan where services may share devices, or there are pipelines. A plan of services that all have devices to themselves
    /// is one too, and is found sooner: only better ones are looked for then.
    fn beside_alone(&self) -> Result<Best, PlaceError> {
        if !self.problem.pipelines.is_empty() {
            let whole = self.aim(self.problem, Aim::Accuracy, None, self.left())?;
            return Ok((whole.plan, whole.bound));
        }
        let alone = self.bundles(self.problem, false, self.left() / PART).0;
        sharing::solve(self.problem, &self.columns, alone, self.end).map_err(PlaceError::Solver)
    }

    /// The best plan by bundles, for a problem that is separable; or the `first` that serves all.
    pub(crate) fn bundles(&self, problem: &Problem, first: bool, time: Duration) -> Best {
        let end = Until::after(time);
        let worth = problem.worth();
        let counts: Vec<u32> = problem.classes.iter().map(|(_, count)| *count).collect();
        let demands = |pooled: bool| -> Vec<Demand<'_>> {
            let all = problem.services.iter().zip(&self.columns.alone);
            all.map(|(service, configurations)| Demand {
                rate: service.demand,
                worth: service.weight / worth,
                promised: service.promise.is_some(),
                pooled: service
                    .promise
                    .as_ref()
                    .filter(|_| pooled)
                    .map(|promise| Keeping::new(promise, service.deadline, configurations)),
                configurations,
            })
            .collect()
        };
        let mut solved = bundle::solve(&demands(false), &counts, first, None, end.left() / 2);
        // What no two kinds keep a pool of several may, and what two keep a pool may keep with less.
        let promised = problem.services.iter().any(|service| service.promise.is_some());
        if promised && counts.iter().sum::<u32>() <= FEW_DEVICES && !(first && solved.plan.is_some()) {
            let pooled = bundle::solve(&demands(true), &counts, first, Some(&solved), end.left());
            solved = Solved { plan: pooled.plan.or(solved.plan), ..pooled };
        }
        let demands = demands(false);
        let plan = solved.plan.map(|hosted| {
            let mut plan = Plan { accuracy: hosted.value, ..Plan::default() };
            for (s, (demand, counts)) in demands.iter().zip(&hosted.counts).enumerate() {
                plan::host(&mut plan, s, demand.rate, demand.configurations, counts);
                let service = &problem.services[s];
                if let Some(promise) = &service.promise {
                    let rule = Keeping::new(promise, service.deadline, demand.configurations).rule(counts);
                    plan.promises.extend(rule.map(|rule| (s, rule)));
                }
            }
            plan
        });
        (plan, solved.bound)
    }

    /// The best plan by the whole program, or none if none is worth more than `least`.
    pub(crate) fn whole(
        &self,
        problem: &Problem,
        least: Option<f64>,
        time: Duration,
    ) -> Result<Best, PlaceError> {
        let whole = self.aim(problem, Aim::Accuracy, least, time)?;
        Ok((whole.plan, whole.bound))
    }

    /// Solves the whole program with this aim.
    pub(crate) fn aim(
        &self,
        problem: &Problem,
        aim: Aim,
        least: Option<f64>,
        time: Duration,
    ) -> Result<Whole, PlaceError> {
        self.solve(problem, &self.columns, aim, least, time)
    }

    fn solve(
        &self,
        problem: &Problem,
        columns: &Columns,
        aim: Aim,
        least: Option<f64>,
        time: Duration,
    ) -> Result<Whole, PlaceError> {
        columns.check().map_err(PlaceError::Size)?;
        whole::solve(problem, columns, aim, least, time).map_err(PlaceError::Solver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        /// A device that holds two variants may also help where it is not counted.
        #[test]
        fn no_plan_of_the_whole_program_is_above_the_bound_of_bundles(
            ones in prop::collection::vec(1u64..7, 3),
            steps in prop::collection::vec(1u64..12, 3),
            (devices, demand, deadline) in (3u32..6, 20u32..900, 10u64..50),
            (count, window, m) in (4u64..40, 4u64..40, 0u32..3),
        ) {
            let variant = |v: usize| {
                let (one, more) = (ones[v] << v, (ones[v] << v) + steps[v]);
                format!(r#"{{"name": "v{v}", "accuracy": {}, "time": {{"gpu": {{"1": {one}, "4": {more}}}}}}}"#, 60 + 10 * v)
            };
            let variants = (0..3).map(variant).collect::<Vec<_>>().join(", ");
            let text = format!(
                r#"{{"devices": {{"gpu": {devices}}}, "switch": true, "services": [{{"name": "s", "demand": {demand},
                "deadline": {deadline}, "variants": [{variants}],
                "promise": {{"windows": [[{count}, {window}]], "m": {m}, "K": 4}}}}]}}"#
            );
            let problem = Problem::parse(&text).expect("a problem");
            let columns = Columns::new(&problem).expect("few");
            let placing = Placing { problem: &problem, columns, end: Until::after(Duration::from_secs(60)) };
            let (_, bound) = placing.bundles(&problem, false, Duration::from_secs(30));
            let (plan, _) = placing.whole(&problem, None, Duration::from_secs(30)).expect("an answer");
            if let Some(plan) = plan {
                prop_assert!(bound >= plan.accuracy - 1e-5, "{bound} is below {}: {text}", plan.accuracy);
            }
        }
    }
}
