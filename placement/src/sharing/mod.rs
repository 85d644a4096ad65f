//! Services that may share devices: branch and bound over how many devices each has alone of each class, and how many each two share.
//!
//! Without whole numbers a shared device is worth no more than one of either service, so what is lost lies in the numbers of devices. What
//! is not whole is branched on: the sum of all that a service, or two, may hold on a class, or of the first of these. Where a promise is
//! kept by more than two kinds, or by none, it is branched on which kinds count, or which pool does. Of the choices that of which least is
//! left to be looked at is taken.
//!
//! What loses little against the bound without whole numbers is looked at first: that is few configurations and few parts of all plans.
//! Each time nothing is found, it is known that no plan is worth more, and as much again may be lost. Before, and where that takes long,
//! good plans are found by exchange. Of few devices the best plan is found sooner by looking at one after the other.

mod each;
mod exchange;
mod kinds;
mod relaxation;
#[cfg(test)]
mod tests;

use microlp::{ComparisonOp, Error, Solution};

use crate::PROVEN;
use crate::plan::{Held, Plan};
use crate::problem::{Problem, Service};
use crate::until::Until;
use crate::whole::{self, Bounded, Columns};
use each::Each;
use exchange::Exchange;
use kinds::{Kinds, Promised, Row};
use relaxation::Relaxation;

/// By how much more a plan must be worth to be looked for, in points: less than what counts as a gap.
const MORE: f64 = 0.9 * PROVEN;
/// How many numbers of devices are tried to be decided next, and what may be left to be looked at that is little enough.
const TRIED: usize = 3;
const ENOUGH: f64 = 0.1;
/// What plans that are looked for lose at most, in points: at first, and beyond what limit there are none.
const FIRST: f64 = 0.05;
const MOST: f64 = 1e7;
/// The part of the time that is left for which it is looked for plans by exchange, and then at first for the best.
const PART: u32 = 3;
/// Which part of what a device is worth on average it loses at most with what is exchanged, one after the other; and of how many devices at
/// most it is soon known what is best.
const NEAR: [f64; 4] = [0.02, 0.06, 0.2, 0.6];
const FEW_DEVICES: u32 = 8;
/// Of how many at most one after the other is looked at.
const FEWEST: u32 = 5;
/// For how many rounds no better plan may be found by exchange, at first and then.
const FEW: u32 = 200;
const MANY: u32 = 2_000;

/// The best plan of services that is found by `end`, where that without sharing is known, and what no plan exceeds.
///
/// # Errors
/// If the solver gives up: in words.
pub(crate) fn solve(
    problem: &Problem,
    columns: &Columns,
    alone: Option<Plan>,
    end: Until,
) -> Result<(Option<Plan>, f64), String> {
    let bounded = columns.bounded(problem).ok_or("no multipliers bound the plans")?;
    let bound = bounded.bound();
    let mut looking = Looking { problem, columns, bounded, known: alone, bound, lost: FIRST };
    let devices: u32 = problem.classes.iter().map(|(_, count)| count).sum();
    // No plan is worth less than if the least accurate answered all: where none is worth as much, there is none.
    let answered = |service: &Service| {
        let least = service.variants.iter().map(|of| of.accuracy).fold(f64::INFINITY, f64::min);
        problem.share(service) * least
    };
    if devices > FEW_DEVICES && bound >= problem.services.iter().map(answered).sum::<f64>() - PROVEN {
        looking.exchange_near(Until::after(end.left() * 2 / PART));
    }
    let mut is_few = devices <= FEWEST;
    for (rounds, part) in [(FEW, PART), (MANY, 1)] {
        if !is_few || looking.known.is_none() {
            looking.exchange(rounds, Until::after(end.left() / PART));
        }
        // Where none is known there may be none, which the program without whole numbers soon tells.
        if is_few && looking.known.is_some() {
            if looking.each(Until::after(end.left() * 3 / 4)) {
                break;
            }
            is_few = false;
        }
        if looking.best(Until::after(end.left() / part))? {
            break;
        }
    }
    let bound = looking.bound.max(looking.least());
    Ok((looking.known, bound))
}

/// What is known so far.
struct Looking<'a> {
    problem: &'a Problem,
    columns: &'a Columns,
    bounded: Bounded,
    known: Option<Plan>,
    /// No plan is worth more.
    bound: f64,
    /// What a plan loses at most that is looked for.
    lost: f64,
}

impl Looking<'_> {
    /// What the known plan is worth.
    fn least(&self) -> f64 {
        self.known.as_ref().map_or(f64::NEG_INFINITY, |plan| plan.accuracy)
    }

    /// Looks for the best plan until `end`; whether that is known then.
    fn best(&mut self, end: Until) -> Result<bool, String> {
        loop {
            if end.is_over() {
                return Ok(false);
            }
            let least = self.least() + MORE;
            let floor = (self.bounded.bound() - self.lost).max(least);
            let found = self.above(floor, end)?;
            // What is worth no more than the floor was left out: whatever was found is the best, or what is known is, or there is none.
            let last = found.plan.is_some() || floor <= least || found.none || self.lost > MOST;
            let none = found.plan.is_none() && self.known.is_none() && last && !found.left;
            self.known = found.plan.or(self.known.take());
            self.bound = self.bound.min(if none { f64::NEG_INFINITY } else { found.bound });
            if last || found.left {
                return Ok(!found.left);
            }
            self.lost *= 2.0;
        }
    }

    /// Looks for the best plan device by device until `end`; whether that is known then.
    fn each(&mut self, end: Until) -> bool {
        loop {
            let least = self.least() + MORE;
            let floor = (self.bounded.bound() - self.lost).max(least);
            let mut each = Each::new(self.problem, self.columns, &self.bounded, floor, end);
            let is_whole = each.search();
            let (found, skipped) = (each.plan, each.skipped);
            let is_found = found.is_some();
            self.known = found.or(self.known.take());
            if !is_whole {
                return false;
            }
            let reached = self.least() + MORE;
            self.bound = self.bound.min(if is_found { reached } else { floor }.max(skipped));
            if is_found || floor <= least {
                return skipped <= reached;
            }
            if self.lost > MOST {
                return false;
            }
            self.lost *= 2.0;
        }
    }

    /// Looks for better plans by exchange of what loses little, from what the program without whole numbers has whole, and from the plan that
    /// is known: where there are many devices much of them may be shared, and little is lost by that.
    fn exchange_near(&mut self, end: Until) {
        let mut rounded = Vec::new();
        for (i, part) in NEAR.into_iter().enumerate() {
            let most = part * self.bounded.device;
            let columns = self.bounded.near(self.columns, most, self.known.as_ref());
            let until = |runs: usize| Until::after(end.left() / (2 * (NEAR.len() - i) - runs) as u32);
            if rounded.is_empty() && !end.is_over() {
                rounded = Relaxation::new(self.problem, &columns).0.rounded();
            }
            self.exchanged(&columns, &rounded, MANY, until(0));
            self.exchanged(&columns, &self.held(), MANY, until(1));
        }
    }

    /// Looks for a better plan by exchange, until none is found for so many `rounds`.
    fn exchange(&mut self, rounds: u32, end: Until) {
        let columns = self.bounded.within(self.columns, self.least() - MORE);
        self.exchanged(&columns, &self.held(), rounds, end);
    }

    /// What the known plan holds.
    fn held(&self) -> Vec<(Held, u32)> {
        let devices = self.known.iter().flat_map(|plan| &plan.devices);
        devices.map(|devices| (devices.held.clone(), devices.count)).collect()
    }

    /// Looks for a better plan by exchange of `columns`, from `start` on.
    fn exchanged(&mut self, columns: &Columns, start: &[(Held, u32)], rounds: u32, end: Until) {
        let (least, bound) = (self.least(), self.bound);
        if bound - least <= PROVEN || end.is_over() {
            return;
        }
        let held = Exchange::new(self.problem, columns).improved(start, (least, bound), rounds, end);
        // It may serve less than all, and then it is no plan.
        let found = held.and_then(|held| whole::filled(self.problem, held).ok().flatten());
        self.known = found.filter(|plan| plan.accuracy > least).or(self.known.take());
    }

    /// Looks for the best plan that is worth more than `floor`.
    fn above(&self, floor: f64, end: Until) -> Result<Above, String> {
        let columns = self.bounded.within(self.columns, floor);
        let (relaxation, promised) = Relaxation::new(self.problem, &columns);
        let Some(root) = relaxation.root()? else {
            let none = columns.count() == self.columns.count();
            return Ok(Above { plan: None, bound: floor, left: false, none });
        };
        let kinds = vec![Kinds::Any; promised.len()];
        let mut open = vec![Node { most: root.objective(), solution: root, kinds }];
        let (problem, plan, skipped) = (self.problem, None, f64::NEG_INFINITY);
        let mut search = Search { problem, relaxation: &relaxation, promised, floor, plan, skipped };
        while let Some(node) = open.pop() {
            if end.is_over() {
                open.push(node);
                break;
            }
            if node.most > search.floor {
                search.look(node, &mut open)?;
            }
        }
        let most = open.iter().map(|node| node.most).fold(search.skipped, f64::max);
        let left = most > search.floor;
        Ok(Above { plan: search.plan, bound: most.max(search.floor), left, none: false })
    }
}

/// What came of a search.
struct Above {
    plan: Option<Plan>,
    /// No plan is worth more.
    bound: f64,
    /// Whether something was not looked at.
    left: bool,
    /// Whether there is no plan at all, as far as numbers need not be whole.
    none: bool,
}

/// A part of all plans.
struct Node {
    solution: Solution,
    /// None is worth more.
    most: f64,
    /// Of each promise, what keeps it.
    kinds: Vec<Kinds>,
}

/// A part of a part: what keeps a promise in it, if that is what is decided, and what it says.
type Part = (Option<(usize, Kinds)>, Row);

struct Search<'a> {
    problem: &'a Problem,
    relaxation: &'a Relaxation,
    promised: Vec<Promised<'a>>,
    /// What a plan must be worth to be looked for.
    floor: f64,
    plan: Option<Plan>,
    /// What was not looked at as the solver gave up is worth no more.
    skipped: f64,
}

impl Search<'_> {
    fn look(&mut self, node: Node, open: &mut Vec<Node>) -> Result<(), String> {
        let devices = self.relaxation.devices(&node.solution);
        let mut best: Option<(f64, Vec<Node>)> = None;
        for choice in 0..self.promised.len() + TRIED {
            let Some(parts) = self.choice(&node, &devices, choice) else { continue };
            let found = self.by(&node, parts)?;
            // Behind a part that may be worth more there is more to be looked at, by far.
            let left = |of: &Node| ((of.most - self.floor) / (node.most - self.floor)).powi(4);
            let left: f64 = found.iter().map(left).sum();
            if best.as_ref().is_none_or(|(least, _)| left < *least) {
                best = Some((left, found));
            }
            if left < ENOUGH {
                break;
            }
        }
        match best {
            Some((_, parts)) => open.extend(parts),
            None => self.note(&node, &devices)?,
        }
        Ok(())
    }

    /// What may be decided next, by number: what keeps a promise, and then numbers of devices; `None` where that is decided.
    fn choice(&self, node: &Node, devices: &[Vec<f64>], choice: usize) -> Option<Vec<Part>> {
        if let Some(promised) = self.promised.get(choice) {
            let parts = promised.parts(self.relaxation, devices, &node.kinds[choice])?;
            return Some(parts.into_iter().map(|(kinds, row)| (Some((choice, kinds)), row)).collect());
        }
        let split = self.relaxation.split(devices, choice - self.promised.len())?;
        let below = split.devices.floor();
        let sides = [(ComparisonOp::Le, below), (ComparisonOp::Ge, below + 1.0)];
        Some(sides.map(|(side, count)| (None, (self.relaxation.sum(&split), side, count))).into())
    }

    /// The parts of `node` that may hold anything, the best last, which is looked at first.
    fn by(&mut self, node: &Node, parts: Vec<Part>) -> Result<Vec<Node>, String> {
        let mut found = Vec::new();
        for (decided, (row, side, least)) in parts {
            match node.solution.clone().add_constraint(row, side, least) {
                Ok(outcome) => {
                    let solution =
                        outcome.into_solution().map_err(|_| "a limit without a limit".to_owned())?;
                    let most = solution.objective().min(node.most);
                    if most > self.floor {
                        let mut kinds = node.kinds.clone();
                        decided.into_iter().for_each(|(promise, of)| kinds[promise] = of);
                        found.push(Node { solution, most, kinds });
                    }
                }
                Err(Error::Infeasible) => {}
                Err(_) => self.skipped = self.skipped.max(node.most),
            }
        }
        found.sort_by(|a, b| a.most.total_cmp(&b.most));
        Ok(found)
    }

    /// Notes a plan: all numbers of devices are whole.
    fn note(&mut self, node: &Node, devices: &[Vec<f64>]) -> Result<(), String> {
        let held = self.relaxation.groups.iter().zip(devices).flat_map(|(group, devices)| {
            let counts = devices.iter().map(|devices| devices.round() as u32);
            group.iter().zip(counts).map(|(member, count)| (member.held.clone(), count))
        });
        let held = held.filter(|(_, count)| *count > 0).collect();
        let kept = self.promised.iter().all(|promised| promised.keeps(devices));
        match if kept { whole::filled(self.problem, held)? } else { None } {
            Some(plan) => {
                if self.plan.as_ref().is_none_or(|known| plan.accuracy > known.accuracy) {
                    self.floor = self.floor.max(plan.accuracy + MORE);
                    self.plan = Some(plan);
                }
            }
            // By rounding alone.
            None => self.skipped = self.skipped.max(node.most),
        }
        Ok(())
    }
}
