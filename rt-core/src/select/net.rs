//! A small neural network that says what each choice is worth: fully connected layers with rectifiers, without allocation.

use alloc::boxed::Box;
use alloc::vec;

use super::{SelectError, range};

/// The most neurons of a layer, inputs and outputs included.
pub const MAX_NET_WIDTH: usize = 1024;
/// The most layers of weights.
pub const MAX_NET_LAYERS: usize = 4;
/// The largest weight: beyond, the sums of the widest layers would leave what single precision holds.
pub const MAX_NET_WEIGHT: f32 = 1e6;

/// A network in single precision. Its sums are made in one order, so that it answers the same on every machine.
#[derive(Clone, Debug)]
pub struct Net {
    /// Of the inputs, each hidden layer, the outputs.
    widths: Box<[usize]>,
    /// Layer by layer: of each input a row of weights, one for each output; then a bias for each output.
    weights: Box<[f32]>,
    /// What a layer is given, and what it answers.
    given: Box<[f32]>,
    answer: Box<[f32]>,
}

impl PartialEq for Net {
    /// What was computed last does not count.
    fn eq(&self, other: &Self) -> bool {
        self.widths == other.widths && self.weights == other.weights
    }
}

impl Net {
    /// How many weights a network of these `widths` has; `None` if that is beyond counting.
    #[must_use]
    pub fn weights_of(widths: &[usize]) -> Option<usize> {
        widths
            .windows(2)
            .try_fold(0usize, |sum, pair| sum.checked_add(pair[0].checked_add(1)?.checked_mul(pair[1])?))
    }

    /// A network of `widths` from the inputs to the outputs. `weights` holds layer after layer: a row of weights to all
    /// outputs of the layer for each of its inputs, then the biases of the outputs. Allocates.
    ///
    /// # Errors
    /// Fewer than 1 or more than [`MAX_NET_LAYERS`] layers, a width outside 1..=[`MAX_NET_WIDTH`], another number of weights
    /// than the widths ask for, or a weight that is no number or beyond ±[`MAX_NET_WEIGHT`].
    pub fn new(widths: impl Into<Box<[usize]>>, weights: impl Into<Box<[f32]>>) -> Result<Self, SelectError> {
        let (widths, weights) = (widths.into(), weights.into());
        range("number of widths", widths.len() as u64, 2, MAX_NET_LAYERS as u64 + 1)?;
        for &width in &widths {
            range("width of a layer", width as u64, 1, MAX_NET_WIDTH as u64)?;
        }
        let count = Self::weights_of(&widths).unwrap_or(usize::MAX) as u64;
        range("number of weights", weights.len() as u64, count, count)?;
        let is_sound = |weight: &f32| weight.abs() <= MAX_NET_WEIGHT;
        if let Some(index) = weights.iter().position(|weight| !is_sound(weight)) {
            return Err(SelectError::Weight { index, weight: weights[index] });
        }
        let widest = widths.iter().copied().max().unwrap_or(1);
        let room = || vec![0.0; widest].into_boxed_slice();
        Ok(Self { widths, weights, given: room(), answer: room() })
    }

    /// Of the inputs, each hidden layer, the outputs.
    #[must_use]
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// All weights, in the order of [`Net::new`].
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// What the outputs are for these inputs; missing ones count as 0, and more are left alone. Does not allocate.
    pub fn answer(&mut self, inputs: &[f32]) -> &[f32] {
        let count = inputs.len().min(self.widths[0]);
        self.given[..count].copy_from_slice(&inputs[..count]);
        self.given[count..].fill(0.0);
        let (mut from, last) = (0, self.widths.len() - 2);
        for layer in 0..=last {
            let (wide, out) = (self.widths[layer], self.widths[layer + 1]);
            let to = from + (wide + 1) * out;
            dense(&self.weights[from..to], &self.given[..wide], &mut self.answer[..out]);
            from = to;
            if layer < last {
                for (next, &sum) in self.given.iter_mut().zip(&self.answer[..out]) {
                    *next = sum.max(0.0);
                }
            }
        }
        &self.answer[..self.widths[last + 1]]
    }

    /// Which output is the largest, and the first of those that are equally large; 0 if none is a number.
    pub fn best(&mut self, inputs: &[f32]) -> usize {
        let (mut best, mut most) = (0, f32::NEG_INFINITY);
        for (output, &worth) in self.answer(inputs).iter().enumerate() {
            if worth > most {
                (best, most) = (output, worth);
            }
        }
        best
    }
}

/// One layer. Inputs of 0, which behind a rectifier half of them are, cost nothing, and of the others four are added at a
/// time, so that sums are read and written a fourth as often.
fn dense(weights: &[f32], inputs: &[f32], outputs: &mut [f32]) {
    let width = outputs.len();
    let (rows, biases) = weights.split_at(inputs.len() * width);
    outputs.copy_from_slice(biases);
    let row = |input: usize| &rows[input * width..][..width];
    let (mut some, mut count) = ([0; 4], 0);
    for (input, &value) in inputs.iter().enumerate() {
        if value == 0.0 {
            continue;
        }
        some[count] = input;
        count += 1;
        if count == 4 {
            let [a, b, c, d] = some.map(row);
            let [p, q, r, s] = some.map(|input| inputs[input]);
            for (i, sum) in outputs.iter_mut().enumerate() {
                *sum += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i]);
            }
            count = 0;
        }
    }
    for &input in &some[..count] {
        for (sum, &weight) in outputs.iter_mut().zip(row(input)) {
            *sum += inputs[input] * weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// As it is written in books, in double precision.
    fn naive(widths: &[usize], weights: &[f32], inputs: &[f32]) -> Vec<f64> {
        let mut values: Vec<f64> = inputs.iter().map(|&x| f64::from(x)).collect();
        let mut from = 0;
        for (layer, pair) in widths.windows(2).enumerate() {
            let weight = |i: usize, o: usize| f64::from(weights[from + i * pair[1] + o]);
            let sum =
                |o: usize| (0..pair[0]).map(|i| values[i] * weight(i, o)).sum::<f64>() + weight(pair[0], o);
            let is_last = layer + 2 == widths.len();
            let next = (0..pair[1]).map(|o| if is_last { sum(o) } else { sum(o).max(0.0) }).collect();
            from += (pair[0] + 1) * pair[1];
            values = next;
        }
        values
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn answers_as_it_is_written_in_books(
            widths in proptest::collection::vec(1usize..12, 2..5),
            seeds in proptest::collection::vec(-2.0f32..2.0, 700),
            inputs in proptest::collection::vec(prop_oneof![Just(0.0f32), -2.0f32..2.0], 12),
        ) {
            let weights = seeds[..Net::weights_of(&widths).expect("few")].to_vec();
            let expected = naive(&widths, &weights, &inputs[..widths[0]]);
            let mut net = Net::new(widths, weights).expect("valid");
            // The same again: nothing of the last answer is left.
            for _ in 0..2 {
                let told = net.answer(&inputs).to_vec();
                prop_assert_eq!(told.len(), expected.len());
                for (&told, &expected) in told.iter().zip(&expected) {
                    prop_assert!((f64::from(told) - expected).abs() <= 1e-3 * expected.abs().max(1.0));
                }
            }
        }
    }

    #[test]
    fn the_first_of_the_largest_is_the_best() {
        let mut net = Net::new([1, 3], [0.0, 0.0, 0.0, 1.0, 2.0, 2.0]).expect("valid");
        assert_eq!((net.best(&[]), net.best(&[5.0]), net.best(&[f32::NAN])), (1, 1, 0));
    }

    #[test]
    fn every_refusal_names_field_value_and_limit() {
        let new = |widths: &[usize], weights: &[f32]| {
            alloc::format!("{}", Net::new(widths, weights).expect_err("refused"))
        };
        assert_eq!(new(&[1], &[]), "number of widths = 1 is outside 2..=5");
        assert_eq!(new(&[1, 0], &[]), "width of a layer = 0 is outside 1..=1024");
        assert_eq!(new(&[2000, 1], &[]), "width of a layer = 2000 is outside 1..=1024");
        assert_eq!(new(&[1, 1], &[0.0]), "number of weights = 1 is outside 2..=2");
        assert_eq!(new(&[1, 1], &[0.0, f32::NAN]), "weight[1] = NaN: must be in -1000000..=1000000");
        assert_eq!(new(&[1, 1], &[2e6, 0.0]), "weight[0] = 2000000: must be in -1000000..=1000000");
    }
}
