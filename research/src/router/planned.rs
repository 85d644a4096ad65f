//! A router that is planned: the best there is for one worker that gets its share of what comes, worked out by dynamic
//! programming for each of several rates.
//!
//! Approximated are: requests are of exponential length instead of equal ones, so that batches are all that is to be known of
//! a worker; an answer is late by the round in which it ends, and by the mean over the classes; each worker gets a Poisson
//! stream of its own. At run time the values are those of the worker that the request would join.

use super::{Class, Router, Setting, View};

/// From one rate to the next.
const STEP: f64 = 1.5;
/// So much more than keeps a deadline can be on a worker.
const ROOM: f64 = 1.2;
/// The most batches that are told apart, so that planning is a matter of seconds.
const MAX_STATES: usize = 200_000;
/// The most sweeps over all states for one rate, and how closely the worth of a request is found before.
const SWEEPS: usize = 2_000;
const CLOSE: f64 = 1e-3;

/// Values of the batches of a worker, for rising rates.
#[derive(Clone, Debug)]
pub struct Planned {
    /// How many batch sizes of each model are told apart, 0 included.
    sizes: Vec<usize>,
    low: f64,
    /// Of each rate the value of each state.
    values: Vec<Vec<f64>>,
}

impl Planned {
    /// For all rates from `low` to `high` requests a second on all workers, of classes in shares. `None` if there are too many
    /// states.
    #[must_use]
    pub fn new(setting: &Setting, shares: &[f64], (low, high): (f64, f64), lenience: f64) -> Option<Self> {
        let size = |model| (f64::from(setting.largest(model)) * ROOM).ceil() as usize + 1;
        let sizes: Vec<usize> = (0..setting.models.len()).map(size).collect();
        let states = sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        let states = states.filter(|&states| states <= MAX_STATES)?;
        let steps = (libm::log(high / low) / libm::log(STEP)).ceil().max(0.0) as i32;
        let mut lenient = setting.clone();
        lenient.classes.iter_mut().for_each(|class| class.deadline_ms *= lenience);
        let mut chain = Chain::new(&lenient, shares, &sizes, states);
        let mut values = vec![0.0; states];
        let solve = |step: i32| {
            let rate = (low * libm::pow(STEP, f64::from(step))).min(high) / setting.workers as f64;
            chain.solve(rate, &mut values);
            values.clone()
        };
        Some(Self { values: (0..=steps).map(solve).collect(), sizes, low })
    }

    fn state(&self, batches: &[u32], joins: usize) -> usize {
        self.sizes.iter().enumerate().rev().fold(0, |state, (model, &size)| {
            let batch = batches[model] as usize + usize::from(model == joins);
            state * size + batch.min(size - 1)
        })
    }
}

impl Router for &Planned {
    fn route(&mut self, view: &View<'_>) -> usize {
        let setting = view.fleet.setting;
        let step = libm::round(libm::log(view.rate / self.low) / libm::log(STEP)).max(0.0) as usize;
        let values = &self.values[step.min(self.values.len() - 1)];
        let worth = |model: usize| {
            let batches = view.fleet.target(model);
            let change = values[self.state(batches, model)] - values[self.state(batches, usize::MAX)];
            // Where no more is told apart, nothing is known to come of it but that it is too much.
            let is_known = (batches[model] as usize) + 1 < self.sizes[model];
            if is_known {
                setting.classes[view.class].accuracy[model] + change
            } else {
                -1.0 - f64::from(batches[model])
            }
        };
        (0..setting.models.len()).max_by(|&a, &b| worth(a).total_cmp(&worth(b))).unwrap_or(0)
    }
}

/// A worker as a Markov decision process.
struct Chain {
    /// Of each class its share and the accuracy of each model.
    classes: Vec<(f64, Vec<f64>)>,
    /// From a batch of each model to one more.
    strides: Vec<usize>,
    /// Of each state and model.
    parts: Vec<Part>,
    /// The most that end a second in any state.
    most: f64,
    next: Vec<f64>,
}

/// A model in a state.
struct Part {
    /// Whether one more is told apart.
    has_room: bool,
    /// How many requests end a second, and what of their worth is lost on average.
    ends: f64,
    lost: f64,
}

impl Chain {
    fn new(setting: &Setting, shares: &[f64], sizes: &[usize], states: usize) -> Self {
        let all: f64 = shares.iter().sum();
        let class = |(class, share): (&Class, &f64)| (share / all, class.accuracy.clone());
        let classes: Vec<_> = setting.classes.iter().zip(shares).map(class).collect();
        let models = sizes.len();
        let strides = (0..models).map(|model| sizes[..model].iter().product()).collect::<Vec<usize>>();
        let (mut parts, mut most) = (Vec::with_capacity(states * models), 0.0f64);
        for state in 0..states {
            let batch = |model: usize| state / strides[model] % sizes[model];
            let batches: Vec<u32> = (0..models).map(|model| batch(model) as u32).collect();
            let round = setting.round_ms(&batches);
            let mut sum = 0.0;
            for model in 0..models {
                let batch = batch(model) as f64;
                let ends = if batch == 0.0 { 0.0 } else { batch * 1e3 / (setting.tokens * round) };
                let lost = |(class, (share, accuracy)): (usize, &(f64, Vec<f64>))| {
                    share * (accuracy[model] - setting.worth(class, model, round))
                };
                let lost = classes.iter().enumerate().map(lost).sum();
                parts.push(Part { has_room: batch as usize + 1 < sizes[model], ends, lost });
                sum += ends;
            }
            most = most.max(sum);
        }
        Self { classes, strides, parts, most, next: vec![0.0; states] }
    }

    /// Relative values at `rate` requests a second, from those given.
    fn solve(&mut self, rate: f64, values: &mut Vec<f64>) {
        let all = rate + self.most;
        let models = self.strides.len();
        let mut joined = vec![f64::NEG_INFINITY; models];
        for _ in 0..SWEEPS {
            let (mut least, mut largest) = (f64::INFINITY, f64::NEG_INFINITY);
            for (state, parts) in self.parts.chunks_exact(models).enumerate() {
                let here = values[state];
                let mut change = 0.0;
                for ((part, &stride), joined) in parts.iter().zip(&self.strides).zip(&mut joined) {
                    let up = part.has_room.then(|| values[state + stride] - here);
                    *joined = up.unwrap_or(f64::NEG_INFINITY);
                    if part.ends > 0.0 {
                        change += part.ends * (values[state - stride] - here - part.lost);
                    }
                }
                for (share, accuracy) in &self.classes {
                    let worth = accuracy.iter().zip(&joined).map(|(accuracy, joined)| accuracy + joined);
                    let best = worth.fold(f64::NEG_INFINITY, f64::max);
                    // With no room left a request is lost.
                    change += rate * share * if best > f64::NEG_INFINITY { best } else { 0.0 };
                }
                change /= all;
                (least, largest) = (least.min(change), largest.max(change));
                self.next[state] = here + change;
            }
            let base = self.next[0];
            self.next.iter_mut().for_each(|value| *value -= base);
            std::mem::swap(values, &mut self.next);
            if largest - least < CLOSE * rate / all {
                break;
            }
        }
    }
}
