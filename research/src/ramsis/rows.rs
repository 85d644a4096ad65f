//! Probabilities of next states, row by row, as runs of neighbouring states.

/// The numbers of states: `(n, bin)` in order, then the full state, then the empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The longest queue.
    pub(super) queue: usize,
    /// Intervals of slack.
    pub(super) bins: usize,
}

impl Layout {
    /// The number of a state with `n` ≥ 1 requests; above the longest queue it is full.
    pub(super) fn state(self, n: usize, bin: usize) -> usize {
        if n > self.queue { self.full() } else { (n - 1) * self.bins + bin }
    }

    pub(super) fn full(self) -> usize {
        self.queue * self.bins
    }

    pub(super) fn empty(self) -> usize {
        self.full() + 1
    }

    pub(super) fn len(self) -> usize {
        self.full() + 2
    }

    /// The state of a request that comes to an idle worker.
    pub(super) fn lone(self) -> usize {
        self.state(1, self.bins - 1)
    }
}

/// States `start..start + len`, their values from `at` on.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u32,
    len: u32,
    at: u32,
}

/// A sparse matrix that is written row by row.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    runs: Vec<Run>,
    /// Where each row's runs end.
    ends: Vec<u32>,
    values: Vec<f64>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds to the row that is being written: `values` from state `start` on, without what is below `cut` at
    /// their ends.
    pub(super) fn run(&mut self, start: usize, values: &[f64], cut: f64) {
        let Some(first) = values.iter().position(|&value| value >= cut) else { return };
        let last = values.iter().rposition(|&value| value >= cut).unwrap_or(first);
        let kept = &values[first..=last];
        self.runs.push(Run {
            start: (start + first) as u32,
            len: kept.len() as u32,
            at: self.values.len() as u32,
        });
        self.values.extend_from_slice(kept);
    }

    /// Ends the row, scales it to a sum of 1, and tells what the sum was.
    pub(super) fn end_row(&mut self) -> f64 {
        let begin = self.ends.last().map_or(0, |&end| end as usize);
        let from = self.runs.get(begin).map_or(self.values.len(), |run| run.at as usize);
        let sum: f64 = self.values[from..].iter().sum();
        if sum > 0.0 {
            self.values[from..].iter_mut().for_each(|value| *value /= sum);
        }
        self.ends.push(self.runs.len() as u32);
        sum
    }

    fn runs(&self, row: usize) -> impl Iterator<Item = (usize, &[f64])> {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let part =
            |run: &Run| (run.start as usize, &self.values[run.at as usize..(run.at + run.len) as usize]);
        self.runs[begin..self.ends[row] as usize].iter().map(part)
    }

    /// What `values` of the next state are expected to be.
    pub(super) fn expect(&self, row: usize, values: &[f64]) -> f64 {
        self.runs(row).map(|(start, run)| dot(run, &values[start..start + run.len()])).sum()
    }

    /// Adds the row, times `weight`, to `out`.
    pub(super) fn spread(&self, row: usize, weight: f64, out: &mut [f64]) {
        for (start, run) in self.runs(row) {
            for (out, value) in out[start..].iter_mut().zip(run) {
                *out += weight * value;
            }
        }
    }
}

/// The sum of products, in four sums side by side.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (fours, others) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = fours.remainder().iter().zip(others.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in fours.zip(others) {
        for i in 0..4 {
            sums[i] += x[i] * y[i];
        }
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}
