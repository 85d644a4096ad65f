//! Next states when the whole queue was taken (section 4.4.2), from the time of the batch and the phase alone.
//!
//! While a batch runs for `L`, let the worker's first request come at age `a`, that is `L - a` after the start. In
//! phase `p` of `K` ticks its time has an Erlang density of `K - p` ticks, and what comes after it is `a` long and
//! in phase 0. So the chance of `n` requests, the oldest in a given interval of slack, is the integral of one
//! density, of phase and `L - a`, times one probability, of `n` and `a`. The paper's sums over counts in intervals
//! B, C and D are this integral.

use super::arrivals::Clock;
use super::grid::Grid;
use super::poisson::{CUT, Rules, pmf, window};
use super::rows::{Layout, Rows};

/// What is left out of a row at the ends of its runs.
const DROP: f64 = 1e-15;

/// Rows of next states, phase by phase, for one time and one clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// Nanoseconds.
    pub(super) time: f64,
    pub(super) clock: Clock,
    /// The row of phase 0; the others follow.
    pub(super) row: usize,
}

/// Ages up to some time, cut into pieces of one interval each that one rule integrates.
pub(super) struct Ages {
    clock: Clock,
    pieces: Vec<Piece>,
    nodes: Vec<Node>,
    /// Probabilities that the nodes refer to.
    counts: Vec<f64>,
}

struct Piece {
    bin: usize,
    from: f64,
    to: f64,
    nodes: (usize, usize),
}

/// A place of the rule, and how likely there are `n_first`, … requests if the oldest has this age.
struct Node {
    age: f64,
    weight: f64,
    n_first: usize,
    counts: (usize, usize),
}

impl Ages {
    /// For times up to `longest`.
    pub(super) fn new(rules: &Rules, clock: Clock, grid: &Grid, layout: Layout, longest: f64) -> Self {
        let mut made = Self { clock, pieces: Vec::new(), nodes: Vec::new(), counts: Vec::new() };
        let step = Rules::longest(0.0) / clock.per_ns;
        grid.ages(0.0, longest, |bin, from, to| {
            let parts = ((to - from) / step).ceil().max(1.0);
            let length = (to - from) / parts;
            for part in 0..parts as usize {
                let start = from + length * part as f64;
                made.piece(rules, layout, bin, start, start + length);
            }
        });
        made
    }

    fn piece(&mut self, rules: &Rules, layout: Layout, bin: usize, from: f64, to: f64) {
        let first = self.nodes.len();
        let mut mass = Vec::new();
        let Clock { ticks, per_ns } = self.clock;
        rules.integrate(from, to, per_ns, 0.0, |age, weight| {
            let low = window(per_ns * age, usize::MAX >> 1, &mut mass);
            let n_first = (low / ticks + 1).min(layout.queue + 1);
            let at = self.counts.len();
            for (i, p) in mass.iter().enumerate() {
                let n = ((low + i) / ticks + 1).min(layout.queue + 1);
                self.counts.resize((at + n - n_first + 1).max(self.counts.len()), 0.0);
                self.counts[at + n - n_first] += p;
            }
            self.nodes.push(Node { age, weight, n_first, counts: (at, self.counts.len()) });
        });
        self.pieces.push(Piece { bin, from, to, nodes: (first, self.nodes.len()) });
    }

    /// Adds the rows of all phases for batches that take `time`; it tells how far a sum was from 1.
    pub(super) fn rows(&mut self, rules: &Rules, layout: Layout, time: f64, rows: &mut Rows) -> f64 {
        let Clock { ticks, per_ns } = self.clock;
        let whole = self.pieces.partition_point(|piece| piece.to <= time);
        // The piece that is cut where the batch starts is integrated anew, behind all others, and forgotten.
        let kept = (self.pieces.len(), self.nodes.len(), self.counts.len());
        if let Some(cut) = self.pieces.get(whole).filter(|piece| piece.from < time) {
            let (bin, from) = (cut.bin, cut.from);
            self.piece(rules, layout, bin, from, time);
        }
        let mut grown = Grown::new(layout, ticks);
        let mut mass = Vec::new();
        for piece in self.pieces[..whole].iter().chain(&self.pieces[kept.0..]).rev() {
            let soonest = per_ns * (time - piece.to);
            if soonest > ticks as f64 && pmf(ticks - 1, soonest) < CUT {
                continue;
            }
            for node in &self.nodes[piece.nodes.0..piece.nodes.1] {
                let first = window(per_ns * (time - node.age), ticks - 1, &mut mass);
                let counts = &self.counts[node.counts.0..node.counts.1];
                for (i, count) in counts.iter().enumerate() {
                    grown.add(node.n_first + i, piece.bin, first, &mass, node.weight * per_ns * count);
                }
            }
        }
        self.pieces.truncate(kept.0);
        self.nodes.truncate(kept.1);
        self.counts.truncate(kept.2);
        grown.write(per_ns * time, rows)
    }
}

/// The rows of all phases of one block, while they grow: `mass[n][bin][ticks left less 1]`.
struct Grown {
    layout: Layout,
    ticks: usize,
    /// Queue lengths that were met, of which the first is the least.
    lengths: std::ops::Range<usize>,
    mass: Vec<f64>,
    full: Vec<f64>,
    used: (usize, usize),
}

impl Grown {
    fn new(layout: Layout, ticks: usize) -> Self {
        let used = (usize::MAX, 0);
        Self { layout, ticks, lengths: 0..0, mass: Vec::new(), full: vec![0.0; ticks], used }
    }

    fn add(&mut self, n: usize, bin: usize, first: usize, mass: &[f64], weight: f64) {
        let out = if n > self.layout.queue {
            &mut self.full[first..]
        } else {
            let size = self.layout.bins * self.ticks;
            if self.lengths.is_empty() {
                self.lengths = n..n + 1;
                self.mass.resize(size, 0.0);
            }
            while n < self.lengths.start {
                self.mass.splice(0..0, std::iter::repeat_n(0.0, size));
                self.lengths.start -= 1;
            }
            if n >= self.lengths.end {
                self.lengths.end = n + 1;
                self.mass.resize(size * self.lengths.len(), 0.0);
            }
            self.used = (self.used.0.min(bin), self.used.1.max(bin));
            &mut self.mass[(n - self.lengths.start) * size + bin * self.ticks + first..]
        };
        for (out, p) in out.iter_mut().zip(mass) {
            *out += weight * p;
        }
    }

    /// Writes the rows, with the chance that nobody comes while `expected` ticks are.
    fn write(&self, expected: f64, rows: &mut Rows) -> f64 {
        let mut mass = Vec::new();
        let first = window(expected, self.ticks - 1, &mut mass);
        let mut none = vec![0.0; self.ticks];
        let mut sum = 0.0;
        for (count, none) in none.iter_mut().enumerate() {
            sum += count.checked_sub(first).and_then(|i| mass.get(i)).unwrap_or(&0.0);
            *none = sum;
        }
        let mut worst = 0.0f64;
        let mut run = Vec::new();
        for phase in 0..self.ticks {
            let left = self.ticks - 1 - phase;
            for n in self.lengths.clone() {
                let (low, high) = self.used;
                let base = (n - self.lengths.start) * self.layout.bins * self.ticks + left;
                run.clear();
                run.extend((low..=high).map(|bin| self.mass[base + bin * self.ticks]));
                rows.run(self.layout.state(n, low), &run, DROP);
            }
            rows.run(self.layout.full(), &[self.full[left], none[left]], DROP);
            worst = worst.max((rows.end_row() - 1.0).abs());
        }
        worst
    }
}
