//! Better plans of services that may share devices by exchange: some devices are taken out, and what is worth most is put in their place.
//!
//! How much of each service shared devices answer is a linear program. Its multipliers say what one more device is worth at most, whatever
//! it holds, and what about the most is put in. What is missing of demands and promises costs more than any accuracy is worth. What is worse
//! by little is gone on from, by less the longer nothing better was found (threshold accepting, Dueck and Scheuer 1990).

use std::collections::HashMap;

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem as Program};

use crate::PROVEN;
use crate::configuration::{Configuration, Post};
use crate::plan::Held;
use crate::problem::Problem;
use crate::promise::{EPSILON, Keeping};
use crate::quota::Shape;
use crate::until::Until;
use crate::whole::Columns;

use super::kinds::Two;

/// What a promise that is not kept, or a demand that is not served, costs in points.
const MISSING: f64 = 300.0;
/// How many devices are taken out at most: of any services, or of one.
const TAKEN: u64 = 4;
/// Which part of what they are worth, at least, ways are compared by: thrown anew each time that devices are taken out, between these.
const NEAR: [f64; 2] = [0.3, 1.0];
/// Which part of what may be gained at most a hosting may be worse by that is gone on from, and how much may be gained where it is not known.
const WORSE: f64 = 0.2;
const ANY: f64 = 3.0;
/// What counts as a gain, in points.
const GAIN: f64 = 1e-7;

/// What a device holds for one service.
#[derive(Debug)]
struct Half {
    service: usize,
    /// Which part of the demand it answers at most, and what all of that is worth so.
    part: f64,
    points: f64,
    /// Which kind of the service's it is, and what one counts for; nothing if it has none.
    kind: Option<(usize, f64)>,
}

/// What a device may hold.
#[derive(Debug)]
struct Way {
    class: usize,
    halves: Vec<Half>,
}

/// What devices hold, by way, and how many hold nothing.
#[derive(Clone, Debug)]
struct Hosting {
    held: Vec<(usize, u32)>,
    free: Vec<u32>,
    /// Of each service what devices of each kind count for together.
    kinds: Vec<Vec<f64>>,
    worth: Worth,
}

/// What a hosting is worth, less what is missing, and what one more of each service's demand costs.
#[derive(Clone, Debug, Default)]
struct Worth {
    points: f64,
    costs: Vec<f64>,
    kept: Vec<bool>,
}

/// All ways of a problem.
pub(super) struct Exchange<'a> {
    problem: &'a Problem,
    columns: &'a Columns,
    ways: Vec<Way>,
    kinds: Vec<usize>,
    dice: Dice,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(problem: &'a Problem, columns: &'a Columns) -> Self {
        let mut known: Vec<HashMap<Shape, usize>> = vec![HashMap::new(); problem.services.len()];
        let mut half = |s: usize, of: &Configuration| {
            let service = &problem.services[s];
            let all = problem.share(service);
            let kind = of.shape.map(|shape| {
                let next = known[s].len();
                (*known[s].entry(shape).or_insert(next), of.quota)
            });
            let part = |peak: f64| if service.demand > 0.0 { peak / service.demand } else { 0.0 };
            let post = move |post: Post| Half {
                service: s,
                part: part(post.peak),
                points: all * post.accuracy,
                kind,
            };
            let mut posts: Vec<Half> = of.posts().map(post).collect();
            posts.iter_mut().skip(1).for_each(|post| post.kind = None);
            posts
        };
        let mut ways = Vec::new();
        for (s, all) in columns.alone.iter().enumerate() {
            ways.extend(all.iter().map(|of| Way { class: of.class, halves: half(s, of) }));
        }
        for shared in &columns.shared {
            let halves = shared.of.iter().flat_map(|(s, of)| half(*s, of)).collect();
            ways.push(Way { class: shared.of[0].1.class, halves });
        }
        let kinds = known.iter().map(HashMap::len).collect();
        Self { problem, columns, ways, kinds, dice: Dice(0x9e37_79b9_7f4a_7c15) }
    }

    /// What devices hold in a plan that is worth more than `least`, if one is found, where they hold what `start` says at first: until nothing
    /// better is for so many `rounds`, or it is `end`. None is worth more than `bound`.
    pub(super) fn improved(
        &mut self,
        start: &[(Held, u32)],
        (least, bound): (f64, f64),
        rounds: u32,
        end: Until,
    ) -> Option<Vec<(Held, u32)>> {
        let mut current = self.begin(start);
        self.fill(&mut current)?;
        let (mut best, mut since) = (current.clone(), 0);
        while since < rounds && !end.is_over() && best.worth.points < bound - PROVEN {
            let mut trial = current.clone();
            let services = self.problem.services.len() as u64;
            let own = (self.dice.below(2) == 0).then(|| self.dice.below(services) as usize);
            for _ in 0..=self.dice.below(TAKEN) {
                self.take(&mut trial, own);
            }
            since += 1;
            if self.fill(&mut trial).is_none() {
                continue;
            }
            let worse =
                WORSE * (bound - best.worth.points).min(ANY) * f64::from(rounds - since) / f64::from(rounds);
            if trial.worth.points >= current.worth.points - worse {
                current = trial;
            }
            if current.worth.points > best.worth.points + GAIN {
                (best, since) = (current.clone(), 0);
            }
        }
        let better = best.worth.points > least + GAIN && best.worth.kept.iter().all(|kept| *kept);
        better.then(|| best.held.iter().map(|&(way, count)| (self.held(way), count)).collect())
    }

    /// What `start` says, as far as it is among the ways.
    fn begin(&self, start: &[(Held, u32)]) -> Hosting {
        let mut hosting = Hosting {
            held: Vec::new(),
            free: self.problem.classes.iter().map(|(_, count)| *count).collect(),
            kinds: self.kinds.iter().map(|&kinds| vec![0.0; kinds]).collect(),
            worth: Worth::default(),
        };
        for way in 0..self.ways.len() {
            let held = self.held(way);
            for (_, count) in start.iter().filter(|(known, _)| *known == held) {
                (0..*count).for_each(|_| self.put(&mut hosting, way, 1));
            }
        }
        hosting
    }

    fn held(&self, way: usize) -> Held {
        let mut place = way;
        for (s, all) in self.columns.alone.iter().enumerate() {
            match all.get(place) {
                Some(of) => return Held::Alone(s, of.clone()),
                None => place -= all.len(),
            }
        }
        Held::Shared(self.columns.shared[place].clone())
    }

    /// Adds a device, or takes one out.
    fn put(&self, hosting: &mut Hosting, way: usize, by: i32) {
        let of = &self.ways[way];
        match hosting.held.iter_mut().find(|(known, _)| *known == way) {
            Some((_, count)) => *count = count.saturating_add_signed(by),
            None => hosting.held.push((way, 1)),
        }
        hosting.held.retain(|(_, count)| *count > 0);
        hosting.free[of.class] = hosting.free[of.class].saturating_add_signed(-by);
        for half in &of.halves {
            if let Some((kind, quota)) = half.kind {
                hosting.kinds[half.service][kind] += quota * f64::from(by);
            }
        }
    }

    /// Takes a device out that is thrown, one of a service where that is said.
    fn take(&mut self, hosting: &mut Hosting, own: Option<usize>) {
        let serves = |s: usize, way: usize| self.ways[way].halves.iter().any(|half| half.service == s);
        let may = hosting.held.iter().filter(|(way, _)| own.is_none_or(|s| serves(s, *way)));
        let may: Vec<(usize, u32)> = may.copied().collect();
        let all: u32 = may.iter().map(|(_, count)| count).sum();
        if all == 0 {
            return;
        }
        let mut place = self.dice.below(u64::from(all)) as u32;
        let way = may.into_iter().find(|(_, count)| {
            let here = place < *count;
            place = place.saturating_sub(*count);
            here
        });
        if let Some((way, _)) = way {
            self.put(hosting, way, -1);
        }
    }

    /// Uses free devices, one after another, each for what is worth most.
    fn fill(&mut self, hosting: &mut Hosting) -> Option<()> {
        hosting.worth = self.worth(hosting)?;
        let near = NEAR[0] + (NEAR[1] - NEAR[0]) * self.dice.part();
        loop {
            let twos: Vec<Two> = hosting.kinds.iter().map(|kinds| Two::of(kinds)).collect();
            let mut most: Option<(f64, usize)> = None;
            for (i, way) in self.ways.iter().enumerate().filter(|(_, way)| hosting.free[way.class] > 0) {
                let gain = self.gain(way, hosting, &twos) * (near + (1.0 - near) * self.dice.part());
                if most.is_none_or(|(most, _)| gain > most) {
                    most = Some((gain, i));
                }
            }
            let Some((_, way)) = most.filter(|(gain, _)| *gain > GAIN) else { return Some(()) };
            self.put(hosting, way, 1);
            let worth = self.worth(hosting)?;
            if worth.points <= hosting.worth.points + GAIN {
                self.put(hosting, way, -1);
                return Some(());
            }
            hosting.worth = worth;
        }
    }

    /// What one more device is worth at most that is used so.
    fn gain(&self, way: &Way, hosting: &Hosting, twos: &[Two]) -> f64 {
        let mut gain = 0.0f64;
        let mut kept = 0.0;
        for half in &way.halves {
            gain = gain.max(half.part * (half.points - hosting.worth.costs[half.service]));
            if let Some((kind, quota)) = half.kind.filter(|_| !hosting.worth.kept[half.service]) {
                let two = &twos[half.service];
                kept +=
                    two.with(kind, hosting.kinds[half.service][kind] + quota).min(1.0) - two.sum().min(1.0);
            }
        }
        gain + MISSING * kept
    }

    /// What a hosting is worth; `None` if the solver gives up.
    fn worth(&self, hosting: &Hosting) -> Option<Worth> {
        let mut program = Program::new(OptimizationDirection::Minimize);
        let services = &self.problem.services;
        let costs: Vec<_> = services
            .iter()
            .map(|service| {
                let demanded = if service.demand > 0.0 { 1.0 } else { 0.0 };
                program.add_var(demanded, (-MISSING * (self.problem.share(service) + 0.01), f64::INFINITY))
            })
            .collect();
        for &(way, count) in &hosting.held {
            let device = program.add_var(f64::from(count), (0.0, f64::INFINITY));
            for half in &self.ways[way].halves {
                if half.part > 0.0 {
                    let mut row = LinearExpr::empty();
                    row.add(device, 1.0);
                    row.add(costs[half.service], half.part);
                    program.add_constraint(row, ComparisonOp::Ge, half.part * half.points);
                }
            }
        }
        let solution = program.solve().ok()?.into_solution().ok()?;
        let mut points = solution.objective();
        let mut kept = Vec::new();
        for (s, service) in services.iter().enumerate() {
            let missing =
                if service.promise.is_some() { 1.0 - Two::of(&hosting.kinds[s]).sum() } else { 0.0 };
            let is_kept = missing <= EPSILON || self.is_pooled(s, hosting);
            if !is_kept {
                points -= MISSING * missing;
            }
            kept.push(is_kept);
        }
        Some(Worth { points, costs: costs.iter().map(|&cost| solution.var_value(cost)).collect(), kept })
    }

    /// Whether the devices of a service keep its promise as a pool.
    fn is_pooled(&self, s: usize, hosting: &Hosting) -> bool {
        let first: usize = self.columns.alone[..s].iter().map(Vec::len).sum();
        let own = first..first + self.columns.alone[s].len();
        let here = hosting.held.iter().filter(|(way, _)| own.contains(way));
        let (all, counts): (Vec<Configuration>, Vec<u32>) =
            here.map(|&(way, count)| (self.columns.alone[s][way - first].clone(), count)).unzip();
        let plain = all.iter().filter(|of| of.shape.is_some_and(|shape| shape.is_plain())).count();
        let service = &self.problem.services[s];
        let Some(promise) = service.promise.as_ref().filter(|_| plain > 1) else { return false };
        Keeping::new(promise, service.deadline, &all).rule(&counts).is_some()
    }
}

/// Numbers that are the same everywhere, by xorshift (Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn part(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}
