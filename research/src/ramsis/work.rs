//! From values of states to values before them, and from shares of states to shares after: one step of the
//! problem, backwards and forwards.

use super::problem::{Choice, Next, Problem};
use super::rows::dot;
use super::spec::Flavour;

/// Room for what [`Problem::pull`] and [`Problem::push`] keep between a state and its next.
#[derive(Default)]
pub(super) struct Work {
    fresh: Vec<f64>,
    left: Vec<f64>,
    own: Vec<f64>,
    lone: f64,
}

impl Problem {
    /// Prepares [`Problem::expect`] for these values of all states.
    pub(super) fn pull(&self, values: &[f64], work: &mut Work) {
        work.fresh.clear();
        work.fresh.extend((0..self.rows.len()).map(|row| self.rows.expect(row, values)));
        self.left.pull(self.layout, values, &mut work.left);
        work.own.clear();
        work.own.extend((0..self.own.len()).map(|row| self.own.expect(row, values)));
        work.lone = values[self.layout.empty()];
    }

    /// The expected value of the state that follows `choice` in `state`.
    pub(super) fn expect(&self, state: usize, choice: &Choice, work: &Work) -> f64 {
        match choice.next {
            Next::Fresh(block) => {
                let (first, mass) = self.phases.of(state);
                let from = self.blocks[block as usize].row + first;
                dot(mass, &work.fresh[from..from + mass.len()])
            }
            Next::Left(to) => self.left.expect(&to, &work.left),
            Next::Row(row) => work.own[row as usize],
            Next::Lone => work.lone,
        }
    }

    /// Notes that `choice` is taken in `state` with probability `weight`; the work must be empty at first.
    pub(super) fn spread(&self, state: usize, choice: &Choice, weight: f64, work: &mut Work) {
        work.fresh.resize(self.rows.len(), 0.0);
        match choice.next {
            Next::Fresh(block) => {
                let (first, mass) = self.phases.of(state);
                let from = self.blocks[block as usize].row + first;
                for (out, p) in work.fresh[from..].iter_mut().zip(mass) {
                    *out += weight * p;
                }
            }
            Next::Left(to) => self.left.spread(&to, weight, &mut work.left),
            Next::Row(row) => {
                work.own.resize(self.own.len(), 0.0);
                work.own[row as usize] += weight;
            }
            Next::Lone => work.lone += weight,
        }
    }

    /// Adds the probabilities of next states to `out` and empties the work.
    pub(super) fn push(&self, work: &mut Work, out: &mut [f64]) {
        for (row, weight) in work.fresh.iter_mut().enumerate() {
            if *weight != 0.0 {
                self.rows.spread(row, *weight, out);
                *weight = 0.0;
            }
        }
        self.left.push(self.layout, &mut work.left, out);
        for (row, weight) in work.own.iter_mut().enumerate() {
            if *weight != 0.0 {
                self.own.spread(row, *weight, out);
                *weight = 0.0;
            }
        }
        out[self.layout.empty()] += std::mem::take(&mut work.lone);
        if self.spec.flavour != Flavour::Paper {
            // An idle worker decides again when somebody comes.
            out[self.layout.lone()] += std::mem::take(&mut out[self.layout.empty()]);
        }
    }
}
