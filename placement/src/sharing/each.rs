//! Few devices, one after the other: each holds every configuration in turn, as long as nothing rules out that a better plan comes of it.
//!
//! With any multipliers of demands a configuration loses something against the best of its class, and a plan loses the sum of that against
//! what bounds all plans. What devices hold is ruled out by the first multipliers that say so. Where none do, the best of it is a linear
//! program, whose multipliers rule out much that is alike.

use std::collections::HashMap;

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem as Program};

use crate::configuration::Configuration;
use crate::plan::{Held, Plan};
use crate::problem::Problem;
use crate::promise::{EPSILON, Lack, lacking};
use crate::quota::Shape;
use crate::until::Until;
use crate::whole::{self, Bounded, Columns, Losses};

use super::kinds::Two;
use super::{FEWEST, MORE};

/// The most multipliers that are remembered.
const CUTS: usize = 32;
/// How often it is looked at the time, in configurations.
const LOOK: u64 = 1 << 8;
/// The least that a multiplier is, in parts of what all answers are worth: what does not serve all demand, be it by little, is worth no more
/// than nothing.
const LEAST: f64 = -1e6;

/// What a device may hold.
struct Way<'a> {
    held: Held,
    /// Of which services, and which kind of theirs that is.
    of: Vec<(usize, &'a Configuration, Option<usize>)>,
    /// By service: which part of its demand it answers, and what all of that is worth so.
    posts: Vec<(usize, f64, f64)>,
}

impl Way<'_> {
    /// What a device that holds it is worth by these multipliers of demands.
    fn gain(&self, requests: &[f64]) -> f64 {
        self.posts.iter().fold(0.0, |most, &(s, part, points)| most.max(part * (points - requests[s])))
    }
}

/// Multipliers: what no plan exceeds, and what each way loses.
struct Cut {
    bound: f64,
    losses: Vec<f64>,
}

/// The search.
pub(super) struct Each<'a> {
    problem: &'a Problem,
    /// Those of a class one after the other, by what they lose.
    ways: Vec<Way<'a>>,
    /// The class of each device.
    devices: Vec<usize>,
    /// Of each class its ways.
    classes: Vec<std::ops::Range<usize>>,
    cuts: Vec<Cut>,
    floor: f64,
    chosen: Vec<usize>,
    seen: u64,
    end: Until,
    /// The best that was found, and what was refused by rounding alone.
    pub(super) plan: Option<Plan>,
    pub(super) skipped: f64,
}

impl<'a> Each<'a> {
    /// Of `columns` that a plan may have that is worth more than `floor`.
    pub(super) fn new(
        problem: &'a Problem,
        columns: &'a Columns,
        bounded: &Bounded,
        floor: f64,
        end: Until,
    ) -> Self {
        let mut known: Vec<HashMap<Shape, usize>> = vec![HashMap::new(); problem.services.len()];
        let mut way = |held: Held, of: &[(usize, &'a Configuration)]| {
            let part = |&(s, of): &(usize, &'a Configuration)| {
                let next = known[s].len();
                (s, of, of.shape.map(|shape| *known[s].entry(shape).or_insert(next)))
            };
            let parts = of.iter().map(part).collect();
            let demanded = of.iter().filter(|(s, _)| problem.services[*s].demand > 0.0);
            let posts = demanded.flat_map(|&(s, of)| {
                let service = &problem.services[s];
                let all = problem.share(service);
                of.posts().map(move |post| (s, post.peak / service.demand, all * post.accuracy))
            });
            Way { held, of: parts, posts: posts.collect() }
        };
        let lost: Vec<Vec<f64>> = bounded
            .all
            .iter()
            .map(|losses| losses.alone.iter().flatten().chain(&losses.shared).copied().collect())
            .collect();
        // Its class, its place among all, and what it is.
        let mut all: Vec<(usize, usize, Way<'a>)> = Vec::new();
        for (s, own) in columns.alone.iter().enumerate() {
            for of in own {
                all.push((of.class, all.len(), way(Held::Alone(s, of.clone()), &[(s, of)])));
            }
        }
        for shared in &columns.shared {
            let of = [0, 1].map(|i| (shared.of[i].0, &shared.of[i].1));
            all.push((of[0].1.class, all.len(), way(Held::Shared(shared.clone()), &of)));
        }
        all.retain(|(_, place, _)| bounded.bound() - lost[0][*place] > floor);
        all.sort_by(|a, b| a.0.cmp(&b.0).then(lost[0][a.1].total_cmp(&lost[0][b.1])));
        let of = |class: usize| {
            all.partition_point(|way| way.0 < class)..all.partition_point(|way| way.0 <= class)
        };
        let classes: Vec<_> = (0..problem.classes.len()).map(of).collect();
        let devices = (0..classes.len()).filter(|&class| !classes[class].is_empty());
        let devices =
            devices.flat_map(|class| std::iter::repeat_n(class, problem.count(class) as usize)).collect();
        let cut = |(losses, of): (&Losses, &Vec<f64>)| Cut {
            bound: losses.bound,
            losses: all.iter().map(|way| of[way.1]).collect(),
        };
        let cuts = bounded.all.iter().zip(&lost).map(cut).collect();
        Self {
            problem,
            ways: all.into_iter().map(|way| way.2).collect(),
            devices,
            classes,
            cuts,
            floor,
            chosen: Vec::new(),
            seen: 0,
            end,
            plan: None,
            skipped: f64::NEG_INFINITY,
        }
    }

    /// Looks at all; whether there was time for it. That a device holds nothing need not be looked at: whatever it holds besides takes
    /// nothing from a plan.
    pub(super) fn search(&mut self) -> bool {
        let Some(&class) = self.devices.get(self.chosen.len()) else {
            self.note();
            return true;
        };
        let ways = self.classes[class].clone();
        let again = self.chosen.last().filter(|last| ways.contains(*last));
        for way in again.copied().unwrap_or(ways.start)..ways.end {
            self.seen += 1;
            if self.seen.is_multiple_of(LOOK) && self.end.is_over() {
                return false;
            }
            self.chosen.push(way);
            // Behind it all lose more by the first.
            let over = self.most(0) <= self.floor;
            let goes_on = over || self.is_ruled_out() || self.search();
            self.chosen.pop();
            if !goes_on {
                return false;
            }
            if over {
                break;
            }
        }
        true
    }

    /// What no plan exceeds in which devices hold what is chosen.
    fn most(&self, cut: usize) -> f64 {
        let Cut { bound, losses } = &self.cuts[cut];
        self.chosen.iter().fold(*bound, |most, &way| most - losses[way])
    }

    fn is_ruled_out(&mut self) -> bool {
        let found = (1..self.cuts.len()).find(|&cut| self.most(cut) <= self.floor);
        // What has ruled out something soon does so again.
        if let Some(cut) = found.filter(|cut| *cut > 1) {
            self.cuts.swap(cut, cut - 1);
        }
        found.is_some()
    }

    /// Looks at what all devices hold.
    fn note(&mut self) {
        let mut is_known = true;
        for s in 0..self.problem.services.len() {
            match self.keeps(s) {
                Some(false) => return,
                Some(true) => {}
                None => is_known = false,
            }
        }
        let Some(requests) = self.best().filter(|_| is_known) else {
            self.skipped = self.skipped.max(self.most(0));
            return;
        };
        // Whatever the solver rounded, these multipliers bound so.
        let gains = self.chosen.iter().map(|&way| self.ways[way].gain(&requests));
        let most = self.demanded(&requests) + gains.sum::<f64>();
        if most <= self.floor {
            self.remember(&requests);
            return;
        }
        let mut held: Vec<(Held, u32)> = Vec::new();
        for &way in &self.chosen {
            match held.iter_mut().find(|(known, _)| *known == self.ways[way].held) {
                Some((_, count)) => *count += 1,
                None => held.push((self.ways[way].held.clone(), 1)),
            }
        }
        match whole::filled(self.problem, held).ok().flatten() {
            Some(plan) if plan.accuracy + MORE > self.floor => {
                self.floor = plan.accuracy + MORE;
                self.plan = Some(plan);
            }
            Some(_) => {}
            // By rounding alone.
            None => self.skipped = self.skipped.max(most),
        }
    }

    /// Whether what is chosen keeps the promise of a service; `None` if that is too close to be known.
    fn keeps(&self, s: usize) -> Option<bool> {
        let service = &self.problem.services[s];
        let Some(promise) = &service.promise else { return Some(true) };
        let ways = self.chosen.iter().flat_map(|&way| &self.ways[way].of).filter(|(own, ..)| *own == s);
        // By kind, as few as there are.
        let (mut kinds, mut counts) = ([0; FEWEST as usize], [0.0; FEWEST as usize]);
        let mut last = 0;
        for (_, of, kind) in ways.clone() {
            let Some(kind) = *kind else { continue };
            let at = kinds[..last].iter().position(|known| *known == kind).unwrap_or(last);
            last = last.max(at + 1);
            kinds[at] = kind;
            counts[at] += of.quota;
        }
        if Two::of(&counts).sum() >= 1.0 - EPSILON {
            return Some(true);
        }
        let plain = ways.filter_map(|(_, of, _)| of.shape.filter(Shape::is_plain));
        let plain: Vec<(Shape, f64)> = plain.map(|shape| (shape, 1.0)).collect();
        if plain.len() < 2 {
            return Some(false);
        }
        let mut is_known = true;
        for (Shape { blocked: longest, .. }, _) in &plain {
            let pool: Vec<_> = plain.iter().copied().filter(|(shape, _)| shape.blocked <= *longest).collect();
            match lacking(promise, service.deadline, &pool, *longest) {
                None => return Some(true),
                Some(Lack::Unknown) => is_known = false,
                Some(_) => {}
            }
        }
        is_known.then_some(false)
    }

    /// The multipliers of demands that bound best what is chosen; `None` if the solver gives up.
    fn best(&self) -> Option<Vec<f64>> {
        let mut program = Program::new(OptimizationDirection::Minimize);
        let services = &self.problem.services;
        let requests: Vec<_> = services
            .iter()
            .map(|service| {
                let demanded = if service.demand > 0.0 { 1.0 } else { 0.0 };
                program.add_var(demanded, (LEAST * (self.problem.share(service) + 0.01), f64::INFINITY))
            })
            .collect();
        for &way in &self.chosen {
            let device = program.add_var(1.0, (0.0, f64::INFINITY));
            for &(s, part, points) in &self.ways[way].posts {
                let mut row = LinearExpr::empty();
                row.add(device, 1.0);
                row.add(requests[s], part);
                program.add_constraint(row, ComparisonOp::Ge, part * points);
            }
        }
        let solution = program.solve().ok()?.into_solution().ok()?;
        Some(requests.iter().map(|&of| solution.var_value(of)).collect())
    }

    /// What all demands are worth by their multipliers.
    fn demanded(&self, requests: &[f64]) -> f64 {
        let demanded = self.problem.services.iter().zip(requests).filter(|(service, _)| service.demand > 0.0);
        demanded.map(|(_, request)| request).sum()
    }

    /// Remembers multipliers of demands.
    fn remember(&mut self, requests: &[f64]) {
        let gains: Vec<f64> = self.ways.iter().map(|way| way.gain(requests)).collect();
        let mut bound = self.demanded(requests);
        let mut losses = gains.clone();
        for (class, ways) in self.classes.iter().enumerate() {
            let best = gains[ways.clone()].iter().copied().fold(0.0, f64::max);
            bound += best * f64::from(self.problem.count(class));
            losses[ways.clone()].iter_mut().for_each(|loss| *loss = best - *loss);
        }
        self.cuts.truncate(CUTS);
        self.cuts.insert(1, Cut { bound, losses });
    }
}
