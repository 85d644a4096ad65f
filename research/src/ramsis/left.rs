//! Next states when part of the queue was left (section 4.4.2 for `b < n`), from what the oldest left over knows.
//!
//! Of `n` requests of which the oldest has age `A`, let `b` be taken for a time `L`, and let the oldest of the other
//! `c = n - b` have age `u`. It came with tick `b K` after the first request, an Erlang density of `A - u`; the
//! ticks since then, those before the decision in round `c - 1`, tell how many wait when the batch ends. So what is
//! expected then is, for each `u`, a number for `(c, L)`, weighed with a density for `(A, b)`, and both are shared by
//! many states. A state is taken to be as likely as its slack, rounded down, says.

use std::collections::HashMap;

use super::arrivals::Clock;
use super::grid::Grid;
use super::poisson::{CUT, Rules, pmf, window};
use super::rows::{Layout, dot};

/// From so many ticks on, an Erlang density begins so smoothly that no rule notices.
const SMOOTH: usize = 24;
/// States that are less likely than this, given their slack, know only that all requests are at most as old as the
/// oldest. Of others the probabilities are good to 1e-13 divided by how likely they are.
pub(super) const RARE: f64 = 1e-7;

/// Where an action leads that leaves requests: `scale` times the weighted sum of `len` parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remainder {
    part: u32,
    density: u32,
    len: u32,
    scale: f64,
}

/// All that is shared.
#[derive(Default)]
pub(super) struct Left {
    tables: Vec<Table>,
    parts: Vec<Part>,
    probabilities: Vec<f64>,
    densities: Vec<f64>,
    known: HashMap<(usize, usize, usize), Density>,
}

/// Ages of the oldest that is left, for batches of one time.
struct Table {
    time: f64,
    clock: Clock,
    /// Age, weight, and interval of the slack at the end.
    nodes: Vec<(f64, f64, usize)>,
    /// For each number of requests left, less 1: the first node with a part, its part, and how many follow.
    left: Vec<(u32, u32, u32)>,
}

/// The probabilities of `n_first`, … requests at the end, their slack in interval `bin`.
struct Part {
    bin: u32,
    n_first: u32,
    at: u32,
    len: u32,
    /// Of all of them.
    sum: f64,
}

/// Densities of the nodes of a table from one on.
#[derive(Clone, Copy)]
struct Density {
    node: u32,
    at: u32,
    len: u32,
}

/// What [`Left::remainder`] is about.
pub(super) struct Taken {
    pub(super) clock: Clock,
    /// Nanoseconds that the batch takes.
    pub(super) time: f64,
    /// Requests that wait.
    pub(super) n: usize,
    /// Interval of their slack.
    pub(super) bin: usize,
    /// Requests that are taken, fewer.
    pub(super) batch: usize,
}

/// Ticks while a batch runs.
pub(super) struct During {
    first: usize,
    /// How likely at most `first`, one more, … come, the last of which is sure; backwards.
    fewer: Vec<f64>,
}

impl During {
    pub(super) fn new(mean: f64) -> Self {
        let mut fewer = Vec::new();
        let first = window(mean, usize::MAX >> 1, &mut fewer);
        let mut sum = 0.0;
        for p in &mut fewer {
            sum += *p;
            *p = sum;
        }
        fewer.reverse();
        fewer[0] = 1.0;
        Self { first, fewer }
    }

    /// The chance of fewer than `all` ticks, these and the `from`, `from + 1`, … before that have these
    /// probabilities.
    pub(super) fn below(&self, before: &[f64], from: usize, all: usize) -> f64 {
        // With so many before, at most `first` more are allowed, and one less for each more before.
        let room = all.saturating_sub(from + self.first + 1);
        if all <= from + self.first {
            return 0.0;
        }
        let sure = (room + 1).saturating_sub(self.fewer.len()).min(before.len());
        let some = (room + 1).min(before.len());
        let begin = self.fewer.len().saturating_sub(room + 1);
        let sum: f64 = before[..sure].iter().sum();
        sum + dot(&before[sure..some], &self.fewer[begin..begin + some - sure])
    }
}

impl Left {
    /// Where this leads, and how far its probabilities were from a sum of 1; `likely` is the probability of the
    /// state's queue given its slack, at least [`RARE`].
    pub(super) fn remainder(
        &mut self,
        rules: &Rules,
        grid: &Grid,
        layout: Layout,
        taken: &Taken,
        likely: f64,
    ) -> (Remainder, f64) {
        let same = |table: &Table| table.time == taken.time && table.clock == taken.clock;
        let at = self.tables.iter().position(same).unwrap_or_else(|| {
            self.table(rules, grid, layout, taken.clock, taken.time);
            self.tables.len() - 1
        });
        let key = (at, taken.bin, taken.batch);
        let age = grid.ends[grid.len() - 1] - grid.ends[taken.bin];
        let density = match self.known.get(&key) {
            Some(&known) => known,
            None => {
                let made = self.density(at, age, taken.batch);
                self.known.insert(key, made);
                made
            }
        };
        let (first, part, count) = self.tables[at].left[taken.n - taken.batch - 1];
        let begin = first.max(density.node);
        let end = (first + count).min(density.node + density.len);
        let len = end.saturating_sub(begin);
        let (part, from) =
            (part + begin.saturating_sub(first), density.at + begin.saturating_sub(density.node));
        let parts = &self.parts[part as usize..(part + len) as usize];
        let sum: f64 = parts.iter().zip(&self.densities[from as usize..]).map(|(p, d)| p.sum * d).sum();
        let scale = if sum > 0.0 { 1.0 / sum } else { 0.0 };
        (Remainder { part, density: from, len, scale }, (sum - likely).abs())
    }

    fn table(&mut self, rules: &Rules, grid: &Grid, layout: Layout, clock: Clock, time: f64) {
        let Clock { ticks, per_ns } = clock;
        let slo = grid.ends[grid.len() - 1];
        let mut nodes = Vec::new();
        grid.ages(time, slo + time, |bin, from, to| {
            let mut part = |from, to| {
                let sharp = (ticks as f64).sqrt();
                rules.integrate(from, to, per_ns, sharp, |age, weight| nodes.push((age, weight, bin)));
            };
            if ticks >= SMOOTH {
                return part(from - time, to - time);
            }
            // Where the oldest may have come, densities begin, and not smoothly.
            grid.ages(from - time, to - time, |_, from, to| part(from, to));
        });
        let during = During::new(per_ns * time);
        let mut by_left: Vec<Vec<(u32, Part)>> = (1..layout.queue.max(2)).map(|_| Vec::new()).collect();
        let mut before = Vec::new();
        for (i, &(age, _, bin)) in nodes.iter().enumerate() {
            let first = window(per_ns * age, layout.queue * ticks, &mut before);
            let rounds = (first + before.len()).div_ceil(ticks).min(by_left.len());
            for (round, parts) in by_left.iter_mut().enumerate().take(rounds).skip(first / ticks) {
                let from = (round * ticks).max(first);
                let to = ((round + 1) * ticks).min(first + before.len());
                let n_first = ((from + during.first) / ticks + 1).min(layout.queue + 1);
                let n_last = ((to + during.first + during.fewer.len()) / ticks + 1).min(layout.queue + 1);
                let at = self.probabilities.len();
                let before = &before[from - first..to - first];
                let sum: f64 = before.iter().sum();
                let mut below = 0.0;
                for n in n_first..=n_last {
                    // Less than n rounds in all, or any number if the queue is full.
                    let next = if n > layout.queue { sum } else { during.below(before, from, n * ticks) };
                    self.probabilities.push((next - below).max(0.0));
                    below = next;
                }
                let part = Part {
                    bin: bin as u32,
                    n_first: n_first as u32,
                    at: at as u32,
                    len: (n_last - n_first + 1) as u32,
                    sum,
                };
                parts.push((i as u32, part));
            }
        }
        let mut left = Vec::new();
        for parts in by_left {
            let node = parts.first().map_or(0, |(node, _)| *node);
            left.push((node, self.parts.len() as u32, parts.len() as u32));
            self.parts.extend(parts.into_iter().map(|(_, part)| part));
        }
        self.tables.push(Table { time, clock, nodes, left });
    }

    /// That the request `batch` after the oldest, which has this `age`, has that of each node.
    fn density(&mut self, table: usize, age: f64, batch: usize) -> Density {
        let table = &self.tables[table];
        let Clock { ticks, per_ns } = table.clock;
        let at = self.densities.len();
        let mut node = 0;
        for (i, &(of_node, weight, _)) in table.nodes.iter().enumerate().take_while(|(_, node)| node.0 < age)
        {
            let density = weight * per_ns * pmf(batch * ticks - 1, per_ns * (age - of_node));
            if density >= CUT * weight * per_ns {
                self.densities.push(density);
            } else if self.densities.len() > at {
                break;
            } else {
                node = i + 1;
            }
        }
        Density { node: node as u32, at: at as u32, len: (self.densities.len() - at) as u32 }
    }

    /// Forgets what only [`Left::remainder`] needs.
    pub(super) fn finish(&mut self) {
        self.known = HashMap::new();
        self.tables = Vec::new();
    }

    /// What each part expects of `values`.
    pub(super) fn pull(&self, layout: Layout, values: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.extend(self.parts.iter().map(|part| {
            let all = &self.probabilities[part.at as usize..(part.at + part.len) as usize];
            let value = |(i, p): (usize, &f64)| {
                p * values[layout.state(part.n_first as usize + i, part.bin as usize)]
            };
            all.iter().enumerate().map(value).sum::<f64>()
        }));
    }

    /// What is expected after an action, given what each part expects.
    pub(super) fn expect(&self, to: &Remainder, parts: &[f64]) -> f64 {
        let Remainder { part, density, len, scale } = *to;
        let densities = &self.densities[density as usize..(density + len) as usize];
        scale * dot(densities, &parts[part as usize..(part + len) as usize])
    }

    /// Adds `weight` for an action to the weights of the parts.
    pub(super) fn spread(&self, to: &Remainder, weight: f64, parts: &mut Vec<f64>) {
        let Remainder { part, density, len, scale } = *to;
        parts.resize(self.parts.len(), 0.0);
        let densities = &self.densities[density as usize..(density + len) as usize];
        for (out, density) in parts[part as usize..].iter_mut().zip(densities) {
            *out += weight * scale * density;
        }
    }

    /// Adds the probabilities of next states to `out` and empties the weights.
    pub(super) fn push(&self, layout: Layout, parts: &mut [f64], out: &mut [f64]) {
        for (part, weight) in self.parts.iter().zip(parts) {
            if *weight == 0.0 {
                continue;
            }
            let all = &self.probabilities[part.at as usize..(part.at + part.len) as usize];
            for (i, p) in all.iter().enumerate() {
                out[layout.state(part.n_first as usize + i, part.bin as usize)] += *weight * p;
            }
            *weight = 0.0;
        }
    }
}
