//! The whole program at once, for what bundles do not know: devices that two services share, and pipelines.
//!
//! A mixed integer linear program: how many devices hold what, which is whole, and how many requests each answers. Of a promise it has
//! at first one row, which holds by whatever rule the promise is kept: what all devices can count for at most is 1 or more. Where a
//! solution keeps it by no rule, binaries are added that choose one, and it is solved again.

mod columns;
mod filled;
mod rules;
mod within;

use std::collections::BTreeMap;
use std::time::Duration;

use microlp::{
    ComparisonOp, Error, LinearExpr, OptimizationDirection, Problem as Program, SolveOptions, Variable,
};

use crate::configuration::{Configuration, Post};
use crate::pipeline::Parts;
use crate::plan::{Devices, Flow, Held, Of, Plan};
use crate::problem::Problem;
use crate::promise::Keeping;
use crate::until::Until;
pub(crate) use columns::Columns;
pub(crate) use filled::filled;
pub(crate) use within::{Bounded, Losses};

/// By how much a plan must be better that is looked for beyond one that is known, in points.
const MORE: f64 = 1e-5;
/// What keeps a smaller part of a device busy could be served by none, as the solver meets its rows within a ten-millionth.
const LITTLE: f64 = 1e-3;
/// The rises that a pool is looked at, at first and at most.
const RISES: usize = 8;
const MAX_RISES: usize = 512;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Whole {
    /// The best plan that was found.
    pub(crate) plan: Option<Plan>,
    /// No plan is worth more; below zero without end if there is none.
    pub(crate) bound: f64,
    /// If that is the aim: of which services how much of the promise is missing, from 0 to 1.
    pub(crate) missing: Vec<(usize, f64)>,
}

/// What is maximised.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Aim {
    /// The mean accuracy, with all demand served.
    Accuracy,
    /// The factor by which all demand is multiplied, up to 1.
    Factor,
    /// The least that is missing of promises, in parts of each, with no demand.
    Promises,
}

/// Devices that hold something, and what of it each variable is.
struct Column {
    class: usize,
    held: Held,
    count: Variable,
    /// Whose requests, by which post: a variable, and how many requests a second there are where it is 1.
    flows: Vec<(Of, Post, Variable, f64)>,
}

/// Solves the whole `problem` within `time`; only plans that are worth more than `least` are looked for.
///
/// # Errors
/// If the solver gives up: in words.
pub(crate) fn solve(
    problem: &Problem,
    columns: &Columns,
    aim: Aim,
    least: Option<f64>,
    time: Duration,
) -> Result<Whole, String> {
    let end = Until::after(time);
    let mut rules = vec![0; problem.services.len()];
    loop {
        let left = end.left();
        let mut building = Building::new(problem, columns, aim, &rules, None);
        if let Some(least) = least {
            building.worth_more(least);
        }
        let mut whole = building.solve(left)?;
        if let Some(plan) = whole.plan.take() {
            // Its numbers of devices are whole but for rounding: what they serve when they are.
            let counts = building.columns.iter().map(|column| plan.devices_of(&column.held)).collect();
            let again = Building::new(problem, columns, aim, &rules, Some(counts)).solve(left)?;
            whole.plan = again.plan.or(Some(plan));
        }
        let Some(plan) = whole.plan.as_mut() else { return Ok(whole) };
        let mut again = false;
        for (s, service) in problem.services.iter().enumerate() {
            let Some(promise) = &service.promise else { continue };
            // What something is missing of is kept by no rule.
            if whole.missing.iter().any(|(of, _)| *of == s) {
                continue;
            }
            let (all, numbers) = hosting(plan, s);
            match Keeping::new(promise, service.deadline, &all).rule(&numbers) {
                Some(rule) => plan.promises.push((s, rule)),
                // More rises are looked at each time.
                None if rules[s] < MAX_RISES => (again, rules[s]) = (true, (rules[s] * 4).max(RISES)),
                None if aim == Aim::Promises => {}
                None => {
                    return Err(format!("the solver's plan does not keep the promise of {}", service.name));
                }
            }
        }
        if !again {
            return Ok(whole);
        }
    }
}

/// A program as it is built.
struct Building<'a> {
    problem: &'a Problem,
    program: Program,
    columns: Vec<Column>,
    /// Of each service that is promised something: what may count for that.
    counted: Vec<Vec<(Configuration, Variable)>>,
    aim: Aim,
    /// What a plan is worth that is known, if only better ones are looked for.
    least: Option<f64>,
    /// What each share is worth.
    objective: LinearExpr,
    /// How many devices hold each column, if that is known.
    fixed: Option<Vec<u32>>,
    /// What the demand is multiplied by, if that is the aim.
    factor: Option<Variable>,
    /// Of each service, what is missing of its promise, if that is the aim.
    slack: Option<Vec<Option<Variable>>>,
}

impl<'a> Building<'a> {
    fn new(
        problem: &'a Problem,
        columns: &Columns,
        aim: Aim,
        rules: &[usize],
        fixed: Option<Vec<u32>>,
    ) -> Self {
        let mut program = Program::new(OptimizationDirection::Maximize);
        let factor = (aim == Aim::Factor).then(|| program.add_var(1.0, (0.0, 1.0)));
        let slack = (aim == Aim::Promises).then(|| {
            let of = problem.services.iter();
            of.map(|service| service.promise.as_ref().map(|_| program.add_var(-1.0, (0.0, 1.0)))).collect()
        });
        let mut building = Self {
            aim,
            fixed,
            slack,
            least: None,
            objective: LinearExpr::empty(),
            problem,
            program,
            columns: Vec::new(),
            counted: vec![Vec::new(); problem.services.len()],
            factor,
        };
        for (s, of) in columns.alone.iter().enumerate() {
            for configuration in of {
                building.column(
                    configuration.class,
                    Held::Alone(s, configuration.clone()),
                    &[(s, configuration)],
                );
            }
        }
        for shared in &columns.shared {
            let of: Vec<(usize, &Configuration)> =
                shared.of.iter().map(|(s, configuration)| (*s, configuration)).collect();
            building.column(shared.of[0].1.class, Held::Shared(shared.clone()), &of);
        }
        for (p, parts) in columns.parts.iter().enumerate() {
            building.pipeline(p, parts);
        }
        building.rows(rules);
        building
    }

    /// What one of all requests that count is worth, a share of `demand` by a post of so much accuracy.
    fn worth(&self, weight: f64, demand: f64, accuracy: f64) -> f64 {
        if self.aim != Aim::Accuracy { 0.0 } else { weight * demand * accuracy / self.problem.worth() }
    }

    /// The variable of how many devices of a class hold the same.
    fn count(&mut self, class: usize) -> Variable {
        if let Some(fixed) = &self.fixed {
            let count = f64::from(fixed[self.columns.len()]);
            return self.program.add_var(0.0, (count, count));
        }
        self.program.add_integer_var(0.0, (0, i32::try_from(self.problem.count(class)).unwrap_or(i32::MAX)))
    }

    /// Has only plans be looked for that are worth more than `least`, of which the objective knows shares of services.
    fn worth_more(&mut self, least: f64) {
        self.least = Some(least);
        self.program.add_constraint(self.objective.clone(), ComparisonOp::Ge, least + MORE);
    }

    /// Devices for one or two services.
    fn column(&mut self, class: usize, held: Held, of: &[(usize, &Configuration)]) {
        let count = self.count(class);
        let (mut flows, mut busy) = (Vec::new(), vec![(count, -1.0)]);
        for &(s, configuration) in of {
            let service = &self.problem.services[s];
            for post in configuration.posts() {
                let worth = self.worth(service.weight, service.demand, post.accuracy);
                let share = self.program.add_var(worth, (0.0, 1.0));
                self.objective.add(share, worth);
                self.keeps_busy(&mut busy, share, service.demand / post.peak);
                flows.push((Of::Service(s), post, share, service.demand));
            }
            if configuration.shape.is_some() {
                self.counted[s].push((configuration.clone(), count));
            }
        }
        self.program.add_constraint(busy.as_slice(), ComparisonOp::Le, 0.0);
        self.columns.push(Column { class, held, count, flows });
    }

    /// All of a share keeps so many devices `busy`, the first of which are those that there are: one at least if it is anything.
    fn keeps_busy(&mut self, busy: &mut Vec<(Variable, f64)>, share: Variable, devices: f64) {
        if devices > 0.0 && devices < LITTLE {
            let count = busy[0].0;
            self.program.add_constraint([(share, 1.0), (count, -1.0)], ComparisonOp::Le, 0.0);
        }
        busy.push((share, devices));
    }

    /// Devices for the stages of a pipeline, and which part of its sources goes along which paths.
    fn pipeline(&mut self, p: usize, parts: &Parts) {
        let of = &self.problem.pipelines[p];
        let leaves = (0..of.stages.len()).filter(|&stage| of.is_leaf(stage)).count() as f64;
        let shares: Vec<Variable> = parts
            .all
            .iter()
            .map(|part| {
                let accuracy = part.accuracy.map_or(0.0, |accuracy| accuracy / leaves);
                self.program.add_var(self.worth(of.weight, of.demand, accuracy), (0.0, 1.0))
            })
            .collect();
        for (at, &(stage, class, post)) in parts.posts.iter().enumerate() {
            let count = self.count(class);
            let mut busy = vec![(count, -1.0)];
            let mut flows = Vec::new();
            for (part, &share) in parts.all.iter().zip(&shares).filter(|(part, _)| part.post == at) {
                self.keeps_busy(&mut busy, share, of.demand * part.requests / post.peak);
                flows.push((Of::Stage(p, stage), post, share, of.demand * part.requests));
            }
            self.program.add_constraint(busy.as_slice(), ComparisonOp::Le, 0.0);
            self.columns.push(Column { class, held: Held::Stage { pipeline: p, stage, post }, count, flows });
        }
        // All sources enter, and what goes through a part goes on to every stage below.
        let mut entering: LinearExpr = LinearExpr::empty();
        let mut on: BTreeMap<(usize, usize), LinearExpr> = BTreeMap::new();
        for (i, (part, &share)) in parts.all.iter().zip(&shares).enumerate() {
            let stage = parts.posts[part.post].0;
            match part.before {
                None => entering.add(share, 1.0),
                Some(before) => on.entry((before, stage)).or_insert_with(LinearExpr::empty).add(share, 1.0),
            }
            for child in of.children(stage) {
                on.entry((i, child)).or_insert_with(LinearExpr::empty).add(share, -1.0);
            }
        }
        self.all_served(entering);
        for (_, on) in on {
            self.program.add_constraint(on, ComparisonOp::Eq, 0.0);
        }
    }

    fn all_served(&mut self, mut shares: LinearExpr) {
        match self.factor {
            Some(factor) => {
                shares.add(factor, -1.0);
                self.program.add_constraint(shares, ComparisonOp::Eq, 0.0);
            }
            None if self.aim == Aim::Promises => {}
            None => self.program.add_constraint(shares, ComparisonOp::Eq, 1.0),
        }
    }

    /// Solves it.
    fn solve(&self, time: Duration) -> Result<Whole, String> {
        let mut options = SolveOptions::default();
        options.time_limit = Some(time);
        // A device that is there by a millionth serves what none does.
        options.int_tol = 1e-9;
        let none = self.least.unwrap_or(f64::NEG_INFINITY);
        let outcome = match self.program.solve_with(options) {
            Ok(outcome) => outcome,
            Err(Error::Infeasible) => return Ok(Whole { plan: None, bound: none, missing: Vec::new() }),
            Err(error) => return Err(error.to_string()),
        };
        let most = outcome.stats().best_bound.unwrap_or(f64::INFINITY);
        let Some(solution) = outcome.solution() else {
            return Ok(Whole { plan: None, bound: most, missing: Vec::new() });
        };
        let accuracy = solution.objective();
        let missing = self.slack.iter().flatten().enumerate();
        let missing = missing
            .filter_map(|(s, slack)| Some((s, solution.var_value((*slack)?))))
            .filter(|(_, part)| *part > 1e-9);
        let missing = missing.collect();
        let mut plan = Plan { accuracy, ..Plan::default() };
        for column in &self.columns {
            let count = solution.var_value(column.count).round() as u32;
            if count == 0 {
                continue;
            }
            for &(of, post, share, whole) in &column.flows {
                let rate = solution.var_value(share) * whole;
                if rate > 1e-9 * whole {
                    plan.flows.push(Flow { devices: plan.devices.len(), of, post, rate });
                }
            }
            plan.devices.push(Devices { class: column.class, count, held: column.held.clone() });
        }
        let bound = if outcome.is_optimal() { accuracy } else { most.max(accuracy) };
        Ok(Whole { plan: Some(plan), bound, missing })
    }
}

/// Of a service: what it is hosted by in `plan`, alone or shared, and how many.
fn hosting(plan: &Plan, service: usize) -> (Vec<Configuration>, Vec<u32>) {
    let of = |devices: &Devices| match &devices.held {
        Held::Alone(s, configuration) => (*s == service).then(|| (configuration.clone(), devices.count)),
        Held::Shared(shared) => shared
            .of
            .iter()
            .find(|(s, _)| *s == service)
            .map(|(_, configuration)| (configuration.clone(), devices.count)),
        Held::Stage { .. } => None,
    };
    plan.devices.iter().filter_map(of).unzip()
}
