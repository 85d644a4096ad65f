//! A network that learns: gradients by backpropagation, steps by Adam (Kingma and Ba, 2015).

use rt_core::Net;
use virtual_time::Poisson;

use super::replay::Decision;

/// Weights in the order of [`Net::new`], and what the optimiser knows of each.
#[derive(Debug)]
pub(crate) struct Brain {
    widths: Vec<usize>,
    weights: Vec<f32>,
    /// A moving average of them, which decides better than where they happen to be (Polyak and Juditsky 1992).
    average: Vec<f32>,
    gradient: Vec<f32>,
    /// The mean of the gradients, and of their squares.
    mean: Vec<f32>,
    square: Vec<f32>,
    /// What both means still lack of gradients that there never were: the first factor to the power of all steps, the second.
    lacks: (f32, f32),
    /// What goes into each layer and comes out of the last, and what the loss changes with it.
    values: Vec<Vec<f32>>,
    slopes: Vec<Vec<f32>>,
}

impl Brain {
    /// As He et al. (2015) begin: uniform, with a variance of 2 by the number of inputs; the biases are 0.
    pub(crate) fn new(widths: &[usize], dice: &mut Poisson) -> Self {
        let count = Net::weights_of(widths).expect("few weights");
        let mut weights = Vec::with_capacity(count);
        for pair in widths.windows(2) {
            let most = (6.0 / pair[0] as f64).sqrt();
            weights.extend((0..pair[0] * pair[1]).map(|_| ((2.0 * dice.unit() - 1.0) * most) as f32));
            weights.extend((0..pair[1]).map(|_| 0.0));
        }
        let zeros = || vec![0.0; count];
        let layers = || widths.iter().map(|&width| vec![0.0; width]).collect();
        Self {
            widths: widths.to_vec(),
            average: weights.clone(),
            weights,
            gradient: zeros(),
            mean: zeros(),
            square: zeros(),
            lacks: (1.0, 1.0),
            values: layers(),
            slopes: layers(),
        }
    }

    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Their mean over about the last 500 steps.
    pub(crate) fn average(&self) -> &[f32] {
        &self.average
    }

    /// One step towards what the decisions were worth, with `target` saying what comes after is worth.
    pub(crate) fn step<'a>(
        &mut self,
        decisions: impl ExactSizeIterator<Item = Decision<'a>>,
        target: &[f32],
        discount: f32,
        rate: f32,
    ) {
        self.gradient.fill(0.0);
        let share = 1.0 / decisions.len() as f32;
        for Decision { before, choice, reward, after } in decisions {
            // The network chooses, the target says what that is worth.
            let next = first_largest(forward(&self.widths, &self.weights, after, &mut self.values));
            let then = forward(&self.widths, target, after, &mut self.values)[next];
            let goal = reward + discount * then;
            let told = forward(&self.widths, &self.weights, before, &mut self.values)[choice];
            // Huber's loss: one bad guess does not turn everything over.
            self.backward(choice, (told - goal).clamp(-1.0, 1.0) * share);
        }
        self.adam(rate);
        for (average, weight) in self.average.iter_mut().zip(&self.weights) {
            *average += (weight - *average) * 0.002;
        }
    }

    /// Adds the gradient of `slope` times output `choice`, of what was computed last.
    fn backward(&mut self, choice: usize, slope: f32) {
        let layers = self.widths.len() - 1;
        self.slopes[layers].fill(0.0);
        self.slopes[layers][choice] = slope;
        let mut to = self.weights.len();
        for layer in (0..layers).rev() {
            let (wide, out) = (self.widths[layer], self.widths[layer + 1]);
            let from = to - (wide + 1) * out;
            let gradient = &mut self.gradient[from..to];
            let (below, above) = self.slopes.split_at_mut(layer + 1);
            let (slopes, given) = (&above[0][..], &self.values[layer]);
            for (sum, slope) in gradient[wide * out..].iter_mut().zip(slopes) {
                *sum += slope;
            }
            for input in 0..wide {
                // Behind a rectifier that is shut, nothing changes anything.
                if given[input] == 0.0 {
                    below[layer][input] = 0.0;
                    continue;
                }
                let row = input * out..(input + 1) * out;
                for (sum, slope) in gradient[row.clone()].iter_mut().zip(slopes) {
                    *sum += given[input] * slope;
                }
                if layer > 0 {
                    below[layer][input] = dot(&self.weights[from..][row], slopes);
                }
            }
            to = from;
        }
    }

    fn adam(&mut self, rate: f32) {
        const KEEP: f32 = 0.9;
        const KEEP_SQUARE: f32 = 0.999;
        self.lacks = (self.lacks.0 * KEEP, self.lacks.1 * KEEP_SQUARE);
        let rate = rate * (1.0 - self.lacks.1).sqrt() / (1.0 - self.lacks.0);
        let all = self.weights.iter_mut().zip(&self.gradient);
        for ((weight, &slope), (mean, square)) in all.zip(self.mean.iter_mut().zip(&mut self.square)) {
            *mean = KEEP * *mean + (1.0 - KEEP) * slope;
            *square = KEEP_SQUARE * *square + (1.0 - KEEP_SQUARE) * slope * slope;
            *weight -= rate * *mean / (square.sqrt() + 1e-7);
        }
    }
}

fn first_largest(values: &[f32]) -> usize {
    (0..values.len()).rev().max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0)
}

/// What comes out, with what goes into each layer kept in `values`.
fn forward<'a>(widths: &[usize], weights: &[f32], inputs: &[f32], values: &'a mut [Vec<f32>]) -> &'a [f32] {
    values[0].copy_from_slice(inputs);
    let (mut from, last) = (0, widths.len() - 2);
    for layer in 0..=last {
        let (wide, out) = (widths[layer], widths[layer + 1]);
        let (below, above) = values.split_at_mut(layer + 1);
        let sums = &mut above[0];
        sums.copy_from_slice(&weights[from + wide * out..][..out]);
        for (row, &value) in weights[from..].chunks_exact(out).zip(&below[layer]) {
            if value != 0.0 {
                for (sum, &weight) in sums.iter_mut().zip(row) {
                    *sum += value * weight;
                }
            }
        }
        if layer < last {
            sums.iter_mut().for_each(|sum| *sum = sum.max(0.0));
        }
        from += (wide + 1) * out;
    }
    &values[last + 1]
}

/// In eight sums, which a compiler makes wide instructions of.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    let (pairs, rest) = (a.chunks_exact(8).zip(b.chunks_exact(8)), a.len() / 8 * 8);
    for (a, b) in pairs {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + a[rest..].iter().zip(&b[rest..]).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for (seed, widths) in [(1, &[3, 5, 4, 2][..]), (2, &[4, 9, 3]), (3, &[2, 2])] {
            let mut dice = Poisson::new(1.0, seed);
            let mut brain = Brain::new(widths, &mut dice);
            let inputs: Vec<f32> = (0..widths[0]).map(|_| dice.unit() as f32 - 0.3).collect();
            for choice in 0..*widths.last().expect("some") {
                brain.gradient.fill(0.0);
                forward(&brain.widths, &brain.weights, &inputs, &mut brain.values);
                brain.backward(choice, 1.0);
                let told = brain.gradient.clone();
                for index in 0..brain.weights.len() {
                    const STEP: f32 = 1e-3;
                    let kept = brain.weights[index];
                    let mut at = |weight: f32| {
                        brain.weights[index] = weight;
                        f64::from(forward(&brain.widths, &brain.weights, &inputs, &mut brain.values)[choice])
                    };
                    let slope = (at(kept + STEP) - at(kept - STEP)) / (2.0 * f64::from(STEP));
                    brain.weights[index] = kept;
                    let told = f64::from(told[index]);
                    assert!((told - slope).abs() < 2e-3, "{widths:?} weight {index}: {told} {slope}");
                }
            }
        }
    }

    #[test]
    fn what_decisions_are_worth_is_learned_with_what_comes_after() {
        // Two places: in the first choosing 1 pays 1, in the second choosing 0; one follows the other whatever is chosen.
        let mut dice = Poisson::new(1.0, 4);
        let mut brain = Brain::new(&[2, 16, 2], &mut dice);
        let places: [&[f32]; 2] = [&[1.0, 0.0], &[0.0, 1.0]];
        let all: Vec<Decision<'_>> = (0..4)
            .map(|i| {
                let (place, choice) = (i / 2, i % 2);
                let reward = if place != choice { 1.0 } else { 0.0 };
                Decision { before: places[place], choice, reward, after: places[1 - place] }
            })
            .collect();
        let mut target = brain.weights().to_vec();
        for step in 0..4_000 {
            if step % 20 == 0 {
                target.copy_from_slice(brain.weights());
            }
            brain.step(all.iter().copied(), &target, 0.5, 3e-3);
        }
        // Always the better choice is worth 1 + 1/2 + 1/4 + … = 2.
        for Decision { before, choice, reward, .. } in all {
            let told = forward(&brain.widths, &brain.weights, before, &mut brain.values)[choice];
            assert!((told - (1.0 + reward)).abs() < 0.05, "{before:?} {choice}: {told}");
        }
    }
}
