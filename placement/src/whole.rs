//! The whole program at once, for what bundles do not know: devices that two services share, and pipelines.
//!
//! A mixed integer linear program: how many devices hold what, which is whole, and how many requests each answers. Of a promise it has
//! at first one row, which holds by whatever rule the promise is kept: what all devices can count for at most is 1 or more. Where a
//! solution keeps it by no rule, binaries are added that choose one, and it is solved again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rt_core::Span;

use microlp::{ComparisonOp, Error, LinearExpr, OptimizationDirection, Problem as Program, SolveOptions, Variable};

use crate::configuration::{self, Configuration, Post, Shared};
use crate::pipeline::Parts;
use crate::plan::{Devices, Flow, Held, Of, Plan};
use crate::problem::{Problem, Promise};
use crate::promise::Keeping;
use crate::quota::Shape;

/// The most columns of devices; a problem with more has too many pairs that may share.
const MAX_COLUMNS: usize = 20_000;
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

/// What devices may hold, whoever shares them.
pub(crate) struct Columns {
    alone: Vec<Vec<Configuration>>,
    shared: Vec<Shared>,
    parts: Vec<Parts>,
}

impl Columns {
    /// All of a problem.
    ///
    /// # Errors
    /// If there are more than the program can hold: in words.
    pub(crate) fn new(problem: &Problem) -> Result<Self, String> {
        let classes = 0..problem.classes.len();
        let alone = |service| classes.clone().flat_map(move |class| configuration::alone(problem, service, class)).collect();
        let alone: Vec<Vec<Configuration>> = problem.services.iter().map(alone).collect();
        let mut shared = Vec::new();
        if !problem.rounds.is_empty() {
            for one in 0..problem.services.len() {
                for other in one + 1..problem.services.len() {
                    shared.extend(classes.clone().flat_map(|class| configuration::shared(problem, one, other, class)));
                }
            }
        }
        let parts = problem.pipelines.iter().map(|pipeline| Parts::new(pipeline, problem)).collect::<Result<_, _>>()?;
        let count = alone.iter().map(Vec::len).sum::<usize>() + shared.len();
        if count > MAX_COLUMNS {
            return Err(format!("{count} ways to hold services on a device, must be at most {MAX_COLUMNS}: fewer variants, sizes of batches or rounds to share by"));
        }
        Ok(Self { alone, shared, parts })
    }
}

/// Devices that hold something, and what of it each variable is.
struct Column {
    class: usize,
    held: Held,
    count: Variable,
    /// Whose requests, by which post: a variable, and how many requests a second there are where it is 1.
    flows: Vec<(Of, Post, Variable, f64)>,
}

/// Solves the whole `problem` within `time`.
///
/// # Errors
/// If the solver gives up: in words.
pub(crate) fn solve(problem: &Problem, columns: &Columns, aim: Aim, time: Duration) -> Result<Whole, String> {
    let end = Instant::now() + time;
    let mut rules = vec![0; problem.services.len()];
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let building = Building::new(problem, columns, aim, &rules, None);
        let mut whole = building.solve(left)?;
        if let Some(plan) = whole.plan.take() {
            // Its numbers of devices are whole but for rounding: what they serve when they are.
            let counts = building.columns.iter().map(|column| plan.devices_of(&column.held)).collect();
            let again = Building::new(problem, columns, aim, &rules, Some(counts)).solve(left)?;
            whole.plan = again.plan.or(Some(plan));
        }
        let Some(plan) = whole.plan.as_mut().filter(|_| aim != Aim::Promises) else { return Ok(whole) };
        let mut again = false;
        for (s, service) in problem.services.iter().enumerate() {
            let Some(promise) = &service.promise else { continue };
            let (all, numbers) = hosting(plan, s);
            match Keeping::new(promise, service.deadline, &all).rule(&numbers) {
                Some(rule) => plan.promises.push((s, rule)),
                // More rises are looked at each time.
                None if rules[s] < MAX_RISES => (again, rules[s]) = (true, (rules[s] * 4).max(RISES)),
                None => return Err(format!("the solver's plan does not keep the promise of {}", service.name)),
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
    /// How many devices hold each column, if that is known.
    fixed: Option<Vec<u32>>,
    /// What the demand is multiplied by, if that is the aim.
    factor: Option<Variable>,
    /// Of each service, what is missing of its promise, if that is the aim.
    slack: Option<Vec<Option<Variable>>>,
}

impl<'a> Building<'a> {
    fn new(problem: &'a Problem, columns: &Columns, aim: Aim, rules: &[usize], fixed: Option<Vec<u32>>) -> Self {
        let mut program = Program::new(OptimizationDirection::Maximize);
        let factor = (aim == Aim::Factor).then(|| program.add_var(1.0, (0.0, 1.0)));
        let slack = (aim == Aim::Promises).then(|| {
            let of = problem.services.iter();
            of.map(|service| service.promise.as_ref().map(|_| program.add_var(-1.0, (0.0, 1.0)))).collect()
        });
        let mut building = Self { aim, fixed, slack, problem, program, columns: Vec::new(), counted: vec![Vec::new(); problem.services.len()], factor };
        for (s, of) in columns.alone.iter().enumerate() {
            for configuration in of {
                building.column(configuration.class, Held::Alone(s, configuration.clone()), &[(s, configuration)]);
            }
        }
        for shared in &columns.shared {
            let of: Vec<(usize, &Configuration)> = shared.of.iter().map(|(s, configuration)| (*s, configuration)).collect();
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

    /// Devices for one or two services.
    fn column(&mut self, class: usize, held: Held, of: &[(usize, &Configuration)]) {
        let count = self.count(class);
        let (mut flows, mut busy) = (Vec::new(), vec![(count, -1.0)]);
        for &(s, configuration) in of {
            let service = &self.problem.services[s];
            for post in configuration.posts() {
                let share = self.program.add_var(self.worth(service.weight, service.demand, post.accuracy), (0.0, 1.0));
                busy.push((share, service.demand / post.peak));
                flows.push((Of::Service(s), post, share, service.demand));
            }
            if configuration.shape.is_some() {
                self.counted[s].push((configuration.clone(), count));
            }
        }
        self.program.add_constraint(busy.as_slice(), ComparisonOp::Le, 0.0);
        self.columns.push(Column { class, held, count, flows });
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
                busy.push((share, of.demand * part.requests / post.peak));
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

    /// What holds of all columns together.
    fn rows(&mut self, rules: &[usize]) {
        for class in 0..self.problem.classes.len() {
            let of: Vec<(Variable, f64)> = self.columns.iter().filter(|c| c.class == class).map(|c| (c.count, 1.0)).collect();
            if !of.is_empty() {
                self.program.add_constraint(of.as_slice(), ComparisonOp::Le, f64::from(self.problem.count(class)));
            }
        }
        for s in 0..self.problem.services.len() {
            if self.problem.services[s].demand > 0.0 {
                let mut shares = LinearExpr::empty();
                let flows = self.columns.iter().flat_map(|column| &column.flows);
                flows.filter(|(of, ..)| *of == Of::Service(s)).for_each(|&(_, _, share, _)| shares.add(share, 1.0));
                self.all_served(shares);
            }
            if self.problem.services[s].promise.is_some() && self.fixed.is_none() {
                self.promise(s, rules[s]);
            }
        }
    }

    /// The promise of `s` is kept, by a rule that is chosen if it is to hold at that many rises, or at least not ruled out.
    fn promise(&mut self, s: usize, rises: usize) {
        let service = &self.problem.services[s];
        let Some(promise) = &service.promise else { return };
        let counted = std::mem::take(&mut self.counted[s]);
        let (all, counts): (Vec<Configuration>, Vec<Variable>) = counted.into_iter().unzip();
        let keeping = Keeping::new(promise, service.deadline, &all);
        let mut whole = LinearExpr::empty();
        counts.iter().enumerate().for_each(|(i, &count)| whole.add(count, keeping.at_most(i)));
        match self.slack.as_ref().map(|slack| slack[s]) {
            Some(Some(slack)) => whole.add(slack, 1.0),
            _ if rises > 0 => self.choose(promise, service.deadline, &all, &counts, rises),
            _ => {}
        }
        self.program.add_constraint(whole, ComparisonOp::Ge, 1.0);
    }

    /// Two kinds by their quotas, or a pool of those whose batches are up to some length.
    fn choose(&mut self, promise: &Promise, deadline: Span, all: &[Configuration], counts: &[Variable], rises: usize) {
        let most = all.iter().map(|configuration| f64::from(self.problem.count(configuration.class))).sum::<f64>();
        let mut kinds: BTreeMap<Shape, LinearExpr> = BTreeMap::new();
        for (configuration, &count) in all.iter().zip(counts) {
            let Some(shape) = configuration.shape else { continue };
            kinds.entry(shape).or_insert_with(LinearExpr::empty).add(count, configuration.quota);
        }
        let (mut chosen, mut sum, mut rule) = (LinearExpr::empty(), LinearExpr::empty(), LinearExpr::empty());
        for (_, mut quotas) in kinds.clone() {
            let (counted, choice) = (self.program.add_var(0.0, (0.0, 1.0)), self.program.add_binary_var(0.0));
            quotas.add(counted, -1.0);
            self.program.add_constraint(quotas, ComparisonOp::Ge, 0.0);
            self.program.add_constraint([(counted, 1.0), (choice, -1.0)], ComparisonOp::Le, 0.0);
            chosen.add(choice, 1.0);
            sum.add(counted, 1.0);
        }
        self.program.add_constraint(chosen, ComparisonOp::Le, 2.0);
        let by_quotas = self.program.add_binary_var(0.0);
        rule.add(by_quotas, 1.0);
        sum.add(by_quotas, -1.0);
        self.program.add_constraint(sum, ComparisonOp::Ge, 0.0);
        let mut longest: Vec<Span> =
            kinds.keys().filter(|shape| shape.is_plain()).map(|shape| shape.blocked).collect();
        longest.sort_unstable();
        longest.dedup();
        for longest in longest {
            let pooled = self.program.add_binary_var(0.0);
            rule.add(pooled, 1.0);
            for rise in promise.rises().take(rises) {
                let mut begun = LinearExpr::empty();
                for (configuration, &count) in all.iter().zip(counts) {
                    let shape = configuration.shape.filter(|shape| shape.is_plain() && shape.time <= longest);
                    let Some(shape) = shape else { continue };
                    let left = (rise.length + deadline).saturating_sub(longest);
                    let batches = (left.as_nanos() / shape.time.as_nanos()) as f64;
                    // No device counts for more than all there are could need.
                    begun.add(count, (f64::from(shape.batch) * batches / rise.requests as f64).min(most));
                }
                begun.add(pooled, -1.0);
                self.program.add_constraint(begun, ComparisonOp::Ge, 0.0);
            }
        }
        self.program.add_constraint(rule, ComparisonOp::Ge, 1.0);
    }

    /// Solves it.
    fn solve(&self, time: Duration) -> Result<Whole, String> {
        let mut options = SolveOptions::default();
        options.time_limit = Some(time);
        // A device that is there by a millionth serves what none does.
        options.int_tol = 1e-9;
        let outcome = match self.program.solve_with(options) {
            Ok(outcome) => outcome,
            Err(Error::Infeasible) => return Ok(Whole { plan: None, bound: f64::NEG_INFINITY, missing: Vec::new() }),
            Err(error) => return Err(error.to_string()),
        };
        let most = outcome.stats().best_bound.unwrap_or(f64::INFINITY);
        let Some(solution) = outcome.solution() else { return Ok(Whole { plan: None, bound: most, missing: Vec::new() }) };
        let accuracy = solution.objective();
        let missing = self.slack.iter().flatten().enumerate();
        let missing = missing.filter_map(|(s, slack)| Some((s, solution.var_value((*slack)?)))).filter(|(_, part)| *part > 1e-9);
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
        Held::Shared(shared) => {
            shared.of.iter().find(|(s, _)| *s == service).map(|(_, configuration)| (configuration.clone(), devices.count))
        }
        Held::Stage { .. } => None,
    };
    plan.devices.iter().filter_map(of).unzip()
}
