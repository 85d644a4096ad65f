//! Which columns a plan may have that is better than a known one: by the dual of the program without whole numbers.
//!
//! For any multipliers of demands and promises a device of each class is worth no more than the most that a column of its class is, and
//! that bounds every plan. A plan with a column that is worth less by some amount is worth less than the bound by as much.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem as Program};

use super::Columns;
use crate::configuration::{Configuration, Shared};
use crate::plan::{Held, Plan};
use crate::problem::Problem;
use crate::promise::Keeping;

/// The most rounds of cutting planes: any multipliers bound.
const ROUNDS: usize = 200;
/// The most multipliers that are kept.
const GOOD: usize = 8;
/// The most that a multiplier is, in points.
const MOST: f64 = 1e6;
/// How far the bound may be from the least one, in points.
const ENOUGH: f64 = 1e-6;

/// What a device serves with a post: of which service, which part of the demand, and what all of that is worth by it.
type Serving = (usize, f64, f64);
/// A line, and what it is used for, if for anything: a plane of the dual.
type Plane = (usize, Option<Serving>);

/// A column: its class, what it may serve, and for which part of a promise it counts at most.
struct Line {
    class: usize,
    posts: Vec<Serving>,
    counts: Vec<(usize, f64)>,
}

/// Multipliers of each service: of its demand and its promise.
struct Multipliers {
    requests: Vec<f64>,
    promises: Vec<f64>,
}

/// What all of a device is worth that serves so.
fn gain(&(s, part, points): &Serving, by: &Multipliers) -> f64 {
    part * (points - by.requests[s])
}

impl Line {
    /// What a device is worth with this column, and the post that it is best used for.
    fn worth(&self, by: &Multipliers) -> (f64, Option<Serving>) {
        let best = self.posts.iter().map(|post| (gain(post, by), Some(*post)));
        let best = best.fold((0.0, None), |a, b| if b.0 > a.0 { b } else { a });
        (best.0 + self.kept(by), best.1)
    }

    /// What it is worth if it is used for that post alone which is worth least.
    fn least(&self, by: &Multipliers) -> f64 {
        let least = self.posts.iter().map(|post| gain(post, by)).reduce(f64::min);
        least.unwrap_or(0.0) + self.kept(by)
    }

    /// What it is worth for promises.
    fn kept(&self, by: &Multipliers) -> f64 {
        self.counts.iter().map(|&(s, counts)| by.promises[s] * counts).sum()
    }
}

/// A bound on all plans of services, and what a plan loses at least with each column, those of each service alone before those that two share.
pub(crate) struct Losses {
    pub(crate) bound: f64,
    pub(crate) alone: Vec<Vec<f64>>,
    pub(crate) shared: Vec<f64>,
}

/// Bounds by several multipliers, and what is known by those that bound best.
pub(crate) struct Bounded {
    /// What a device is worth on average.
    pub(crate) device: f64,
    /// What a shared device loses that serves only that of both services by which it loses more.
    either: Vec<f64>,
    /// By all multipliers that bound well, the best first: at least one.
    pub(crate) all: Vec<Losses>,
}

impl Bounded {
    /// By the multipliers that bound best.
    fn best(&self) -> &Losses {
        &self.all[0]
    }

    /// What no plan exceeds.
    pub(crate) fn bound(&self) -> f64 {
        self.best().bound
    }

    /// Those of `columns`, which these are, that a plan may have that is worth more than `least`.
    pub(crate) fn within(&self, columns: &Columns, least: f64) -> Columns {
        let may = |loss: &f64| self.bound() - loss > least;
        let of = |(all, losses): (&Vec<Configuration>, &Vec<f64>)| -> Vec<Configuration> {
            all.iter().zip(losses).filter(|(_, loss)| may(loss)).map(|(of, _)| of.clone()).collect()
        };
        let shared = columns.shared.iter().zip(&self.best().shared).filter(|(_, loss)| may(loss));
        Columns {
            shared: shared.map(|(of, _)| of.clone()).collect(),
            alone: columns.alone.iter().zip(&self.best().alone).map(of).collect(),
            parts: Vec::new(),
        }
    }

    /// Those of `columns`, which these are, that lose at most so much, shared ones whichever of both services they serve; and those of a plan
    /// that is known.
    pub(crate) fn near(&self, columns: &Columns, most: f64, known: Option<&Plan>) -> Columns {
        let held = || known.into_iter().flat_map(|plan| &plan.devices).map(|devices| &devices.held);
        let of = |(s, (all, losses)): (usize, (&Vec<Configuration>, &Vec<f64>))| -> Vec<Configuration> {
            let is_held = |of: &Configuration| {
                held().any(|held| matches!(held, Held::Alone(own, known) if *own == s && known == of))
            };
            let near = all.iter().zip(losses).filter(|(of, loss)| **loss <= most || is_held(of));
            near.map(|(of, _)| of.clone()).collect()
        };
        let is_held = |of: &Shared| held().any(|held| matches!(held, Held::Shared(known) if known == of));
        let shared = columns.shared.iter().zip(&self.either);
        let shared = shared.filter(|(of, loss)| **loss <= most || is_held(of));
        Columns {
            shared: shared.map(|(of, _)| of.clone()).collect(),
            alone: columns.alone.iter().zip(&self.best().alone).enumerate().map(of).collect(),
            parts: Vec::new(),
        }
    }
}

impl Columns {
    /// A bound on all plans of services, and what each column loses by it; `None` if the solver gives up.
    pub(crate) fn bounded(&self, problem: &Problem) -> Option<Bounded> {
        let (alone, shared) = self.lines(problem);
        let lines: Vec<&Line> = alone.iter().flatten().chain(&shared).collect();
        let mut known: Vec<Plane> = Vec::new();
        // By what they bound, the best first: multipliers, and what a device of each class is worth.
        let mut tried: Vec<(f64, Multipliers, Vec<f64>)> = Vec::new();
        for _ in 0..ROUNDS {
            let Some((value, by)) = lowest(problem, &lines, &known) else { break };
            let before = known.len();
            let mut worth = vec![0.0f64; problem.classes.len()];
            // Of each class and post's service the line that is worth most.
            let mut most: Vec<Option<(f64, usize)>> =
                vec![None; problem.classes.len() * (problem.services.len() + 1)];
            for (i, line) in lines.iter().enumerate() {
                let (own, post) = line.worth(&by);
                worth[line.class] = worth[line.class].max(own);
                let place = line.class * (problem.services.len() + 1) + post.map_or(0, |(s, ..)| s + 1);
                if most[place].is_none_or(|(known, _)| own > known) {
                    most[place] = Some((own, i));
                }
            }
            for (_, i) in most.into_iter().flatten() {
                let cut = (i, lines[i].worth(&by).1);
                if !known.contains(&cut) {
                    known.push(cut);
                }
            }
            let devices =
                worth.iter().zip(&problem.classes).map(|(worth, (_, count))| worth * f64::from(*count));
            let bound =
                by.requests.iter().sum::<f64>() + devices.sum::<f64>() - by.promises.iter().sum::<f64>();
            tried.insert(tried.partition_point(|(known, ..)| *known <= bound), (bound, by, worth));
            tried.truncate(GOOD);
            if tried[0].0 - value <= ENOUGH || known.len() == before {
                break;
            }
        }
        let losses = |(bound, by, worth): &(f64, Multipliers, Vec<f64>)| {
            let loss = |line: &Line| worth[line.class] - line.worth(by).0;
            Losses {
                bound: *bound,
                alone: alone.iter().map(|lines| lines.iter().map(loss).collect()).collect(),
                shared: shared.iter().map(loss).collect(),
            }
        };
        let all: Vec<Losses> = tried.iter().map(losses).collect();
        let (_, by, worth) = tried.first()?;
        let counts = || problem.classes.iter().map(|(_, count)| f64::from(*count));
        let devices = worth.iter().zip(counts()).map(|(worth, count)| worth * count).sum::<f64>();
        Some(Bounded {
            device: devices / counts().sum::<f64>().max(1.0),
            either: shared.iter().map(|line| worth[line.class] - line.least(by)).collect(),
            all,
        })
    }

    /// All columns, of each service alone and of two.
    fn lines(&self, problem: &Problem) -> (Vec<Vec<Line>>, Vec<Line>) {
        let halves =
            |s: usize| self.shared.iter().flat_map(move |of| of.of.iter().filter(move |(own, _)| *own == s));
        // What each counts for at most, those alone before those that are shared.
        let most = |(s, alone): (usize, &Vec<Configuration>)| {
            let service = &problem.services[s];
            let all: Vec<Configuration> =
                alone.iter().cloned().chain(halves(s).map(|(_, of)| of.clone())).collect();
            let promise = service.promise.as_ref();
            promise
                .map_or_else(|| vec![0.0; all.len()], |of| Keeping::new(of, service.deadline, &all).at_most())
        };
        let most: Vec<Vec<f64>> = self.alone.iter().enumerate().map(most).collect();
        let line = |of: &[(usize, &Configuration, f64)]| {
            let posts = of.iter().flat_map(|&(s, configuration, _)| {
                let service = &problem.services[s];
                let all = problem.share(service);
                let demanded = service.demand > 0.0;
                let post = move |post: crate::configuration::Post| {
                    (s, post.peak / service.demand, all * post.accuracy)
                };
                configuration.posts().filter(move |_| demanded).map(post)
            });
            let counts = of.iter().filter(|(.., most)| *most > 0.0).map(|&(s, _, most)| (s, most));
            Line { class: of[0].1.class, posts: posts.collect(), counts: counts.collect() }
        };
        let of = |(s, all): (usize, &Vec<Configuration>)| -> Vec<Line> {
            all.iter().zip(&most[s]).map(|(of, &most)| line(&[(s, of, most)])).collect()
        };
        let alone: Vec<Vec<Line>> = self.alone.iter().enumerate().map(of).collect();
        let mut next: Vec<usize> = self.alone.iter().map(Vec::len).collect();
        let both = |of: &Shared| {
            let half = |i: usize, next: &mut Vec<usize>| {
                let (s, configuration) = &of.of[i];
                next[*s] += 1;
                (*s, configuration, most[*s][next[*s] - 1])
            };
            let (one, other) = (half(0, &mut next), half(1, &mut next));
            line(&[one, other])
        };
        let shared = self.shared.iter().map(both).collect();
        (alone, shared)
    }
}

/// The multipliers that bound best by the lines that are known, and that bound.
fn lowest(problem: &Problem, lines: &[&Line], known: &[Plane]) -> Option<(f64, Multipliers)> {
    let mut program = Program::new(OptimizationDirection::Minimize);
    let demanded = |s: usize| if problem.services[s].demand > 0.0 { 1.0 } else { 0.0 };
    let promised = |s: usize| problem.services[s].promise.is_some();
    let services = 0..problem.services.len();
    // Of nothing that is demanded nothing bounds the multiplier, and it would count in the bound.
    let any = |s: usize| MOST * demanded(s);
    let requests: Vec<_> =
        services.clone().map(|s| program.add_var(demanded(s), (-any(s), any(s)))).collect();
    let most = |s: usize| if promised(s) { MOST } else { 0.0 };
    let promises: Vec<_> = services.map(|s| program.add_var(-1.0, (0.0, most(s)))).collect();
    let worth: Vec<_> = problem
        .classes
        .iter()
        .map(|(_, count)| program.add_var(f64::from(*count), (0.0, f64::INFINITY)))
        .collect();
    for (i, post) in known {
        let mut row = LinearExpr::empty();
        row.add(worth[lines[*i].class], 1.0);
        lines[*i].counts.iter().for_each(|&(s, counts)| row.add(promises[s], -counts));
        if let Some((s, part, _)) = post {
            row.add(requests[*s], *part);
        }
        program.add_constraint(row, ComparisonOp::Ge, post.map_or(0.0, |(_, part, points)| part * points));
    }
    let solution = program.solve().ok()?.into_solution().ok()?;
    let values = |of: &[microlp::Variable]| of.iter().map(|&of| solution.var_value(of)).collect();
    let by = Multipliers { requests: values(&requests), promises: values(&promises) };
    Some((solution.objective(), by))
}
