//! Training what [`Selector::learned`] asks: on the daemon's own scheduler in virtual time, with the profile of a service that is
//! promised nothing.
//!
//! A decision is the wish for a batch. What it brings is told until the next one: of the batch that starts what its answers
//! lack in accuracy, and of every request that is missed all that it could have been worth.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use planner::selection::{Class, Inputs};
use rt_core::{
    Alarm, BatchView, Instant, LearnedScale, LoadMonitor, MAX_CLASSES, MAX_NET_WIDTH, Net, Outcome,
    SelectError, Selector, StreamState, Transition, Variant, VariantSelector,
};
use virtual_time::{Batch, Observer, Order, Poisson, Request, Scheduled, drive};

use crate::qlearning::{Brain, Replay};

/// How a selector is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Schooling {
    /// The widths of its hidden layers.
    pub hidden: Vec<usize>,
    /// So many episodes of so many requests, each at a load of its own.
    pub episodes: usize,
    /// Requests of an episode.
    pub requests: usize,
    /// Steps of the optimiser after each, and decisions in a step.
    pub steps: usize,
    /// Decisions in a step.
    pub batch: usize,
    /// Of Adam, at first; a tenth of it at the end.
    pub learning_rate: f64,
    /// What the next decision's worth counts.
    pub discount: f64,
    /// So many right answers are a reward of 1. Errors count squared up to 1, and only as such beyond: where one decision costs
    /// many requests, a larger unit has the network learn the mean of that and not what is usual.
    pub unit: f64,
    /// Episodes after which it is tried, and the best so far kept.
    pub try_every: usize,
    /// Tries that bring nothing better after which it ends, of those in the second half; 0 for never.
    pub patience: usize,
    /// Whatever is random depends on it.
    pub seed: u64,
}

impl Default for Schooling {
    fn default() -> Self {
        Self {
            hidden: vec![64, 64],
            episodes: 150,
            requests: 3_000,
            steps: 300,
            batch: 64,
            learning_rate: 3e-3,
            discount: 0.97,
            unit: 1.0,
            try_every: 10,
            patience: 0,
            seed: 1,
        }
    }
}

/// The loads that are trained, as parts of what the base can: from nearly nothing to a little more than that.
const LOADS: (f64, f64) = (0.02, 1.05);
/// The loads that it is tried on.
const TRIED: [f64; 8] = [0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0];
/// Steps after which the target network is brought up to date, and decisions that are remembered.
const TARGET_EVERY: usize = 500;
const REMEMBERED: usize = 100_000;

/// What comes in the episodes that a selector is trained on, and in those that it is tried on.
pub trait Course {
    /// So many arrivals at the most, two at least, in order, of an episode to train on: at a load that `draw`, which is
    /// uniform in (0, 1], picks, the same for the same seed.
    fn episode(&self, draw: f64, requests: usize, seed: u64) -> Vec<Instant>;

    /// Those of the episodes that it is tried on, of so many requests each at the most: the same each time, and none of
    /// those that it is trained on.
    fn trials(&self, requests: usize) -> Vec<Vec<Instant>>;
}

/// Poisson arrivals of all loads that the base carries, and a little more.
#[derive(Clone, Copy, Debug)]
pub struct AllLoads {
    /// What that is, in requests a second.
    pub capacity_per_s: f64,
}

impl Course for AllLoads {
    fn episode(&self, draw: f64, requests: usize, seed: u64) -> Vec<Instant> {
        let part = LOADS.0 + (LOADS.1 - LOADS.0) * draw;
        Poisson::new(part * self.capacity_per_s, seed).take(requests).collect()
    }

    fn trials(&self, requests: usize) -> Vec<Vec<Instant>> {
        let trial = |(seed, part): (u64, f64)| {
            Poisson::new(part * self.capacity_per_s, 0x5eed_0000 + seed).take(requests).collect()
        };
        (0..).zip(TRIED).map(trial).collect()
    }
}

/// How far a training is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Episodes that were played.
    pub episodes: usize,
    /// What the best of those that were tried reached: the share of requests that were answered in time and right.
    pub right: Option<f64>,
}

/// What a training came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Schooled {
    /// The best of those that were tried.
    pub net: Net,
    /// After how many episodes that was.
    pub at: usize,
    /// How far it went.
    pub progress: Progress,
}

/// A network that was trained for `inputs` on `course`; `build` makes the scheduler that a selector selects for. `watch` is
/// told after each episode, and may end it: then it is tried once more.
///
/// # Errors
/// Variants that no selector has, hidden layers that no [`Net`] has, or whatever `build` finds wrong.
pub fn school<E: From<SelectError>>(
    inputs: &Inputs,
    schooling: &Schooling,
    course: &impl Course,
    build: impl Fn(Selector) -> Result<Scheduled, E>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Schooled, E> {
    let scale = inputs.scale();
    let mut widths = vec![scale.count()];
    widths.extend(&schooling.hidden);
    widths.push(inputs.variants.len());
    // Before anything is made of them: widths that are absurd, and variants that no selector has.
    let sound = widths.iter().all(|&width| width <= MAX_NET_WIDTH);
    let count = Net::weights_of(&widths).filter(|_| sound).unwrap_or(0);
    inputs.learned(Net::new(widths.clone(), vec![0.0; count])?)?;
    let trials = course.trials(schooling.requests);
    let asked: usize = trials.iter().map(Vec::len).sum();
    let mut dice = Poisson::new(1.0, schooling.seed);
    let mut brain = Brain::new(&widths, &mut dice);
    let mut target = brain.weights().to_vec();
    let mut replay = Replay::new(scale.count(), REMEMBERED);
    let mut progress = Progress { episodes: 0, right: None };
    // Without an episode it is what it was to begin with.
    let mut best = (Net::new(widths.clone(), brain.average())?, 0);
    let (mut steps, mut in_vain) = (0, 0);
    while progress.episodes < schooling.episodes {
        let done = progress.episodes as f64 / schooling.episodes as f64;
        let log = Arc::new(Mutex::new(Log::default()));
        let own = schooling.seed.wrapping_add(progress.episodes as u64 + 1).wrapping_mul(0x9e37_79b9);
        let pupil = Pupil {
            net: Net::new(widths.clone(), brain.weights())?,
            scale,
            load: LoadMonitor::default(),
            dice: Poisson::new(1.0, own),
            explore: (1.0 - 3.0 * done).max(0.02),
            log: Arc::clone(&log),
        };
        let scheduled = build(Selector::of(inputs.variants.clone(), pupil)?)?;
        let draw = dice.unit();
        let seed = (dice.unit() * 1e15) as u64;
        run(inputs, scheduled, course.episode(draw, schooling.requests, seed), (schooling.unit, Some(&log)));
        let Log { seen, chosen, rewards, .. } = std::mem::take(&mut *log.lock().expect("nobody panics"));
        replay.remember(&seen, &chosen, &rewards);
        let rate = schooling.learning_rate * libm::pow(0.1, done);
        // Where no decision has followed another yet there is nothing to learn from.
        let some = if replay.is_empty() { 0 } else { schooling.steps };
        for _ in 0..some {
            if steps % TARGET_EVERY == 0 {
                target.copy_from_slice(brain.weights());
            }
            let decisions = replay.sample(schooling.batch, &mut dice);
            brain.step(decisions, &target, schooling.discount as f32, rate as f32);
            steps += 1;
        }
        progress.episodes += 1;
        let ends = watch(progress).is_break() || progress.episodes == schooling.episodes;
        if ends || progress.episodes.is_multiple_of(schooling.try_every) {
            let net = Net::new(widths.clone(), brain.average())?;
            let mut worth = 0.0;
            for arrivals in &trials {
                let scheduled = build(inputs.learned(net.clone())?)?;
                worth += run(inputs, scheduled, arrivals.iter().copied(), (schooling.unit, None));
            }
            let right = worth / asked.max(1) as f64;
            if progress.right.is_none_or(|before| right > before) {
                (best, progress.right, in_vain) = ((net, progress.episodes), Some(right), 0);
            } else if 2 * progress.episodes > schooling.episodes {
                in_vain += 1;
            }
        }
        if ends || (schooling.patience > 0 && in_vain >= schooling.patience) {
            break;
        }
    }
    Ok(Schooled { net: best.0, at: best.1, progress })
}

/// What all requests together were worth, in right answers; what they lost is told decision by decision.
fn run(
    inputs: &Inputs,
    mut scheduled: Scheduled,
    arrivals: impl IntoIterator<Item = Instant>,
    (unit, log): (f64, Option<&Mutex<Log>>),
) -> f64 {
    let mut heard = Heard { inputs, worth: 0.0, unit, log };
    let arrivals = inputs.of_classes(arrivals);
    // They come in order.
    let _ = drive(&mut scheduled, arrivals, Order::Together, |_, _, bound| bound, &mut heard);
    heard.worth
}

/// What was seen, chosen and won by each decision of an episode.
#[derive(Debug, Default)]
struct Log {
    seen: Vec<f32>,
    chosen: Vec<u8>,
    rewards: Vec<f32>,
    /// How many of the last one's batch are of each class.
    mix: [u8; MAX_CLASSES],
}

/// Wishes as its network does, or at random, and writes it down.
#[derive(Clone, Debug)]
struct Pupil {
    net: Net,
    scale: LearnedScale,
    load: LoadMonitor,
    dice: Poisson,
    explore: f64,
    log: Arc<Mutex<Log>>,
}

impl VariantSelector for Pupil {
    fn wish(&mut self, batch: &BatchView) -> usize {
        let inputs = self.scale.inputs(batch, self.load.rate_per_s(batch.now));
        let variants = self.net.widths()[self.net.widths().len() - 1];
        let choice = if self.dice.unit() <= self.explore {
            ((self.dice.unit() * variants as f64) as usize).min(variants - 1)
        } else {
            self.net.best(&inputs)
        };
        let mut log = self.log.lock().expect("nobody panics");
        log.seen.extend(&inputs[..self.scale.count()]);
        log.mix = batch.classes;
        log.chosen.push(choice as u8);
        log.rewards.push(0.0);
        choice
    }

    fn observe(&mut self, now: Instant) {
        self.load.observe(now);
    }

    fn rate_per_s(&mut self, now: Instant) -> f64 {
        self.load.rate_per_s(now)
    }
}

/// Hears what a run is worth.
struct Heard<'a> {
    inputs: &'a Inputs,
    worth: f64,
    unit: f64,
    log: Option<&'a Mutex<Log>>,
}

impl Heard<'_> {
    /// Tells the last decision what was lost.
    fn lose(&self, of: impl FnOnce(&Log) -> f64) {
        if let Some(log) = self.log {
            let mut log = log.lock().expect("nobody panics");
            let lost = of(&log);
            if let Some(reward) = log.rewards.last_mut() {
                *reward -= (lost / self.unit) as f32;
            }
        }
    }
}

/// What an answer in time with a variant is worth to a class, and the most that it could be; the only class is that of requests
/// that are all alike.
fn worths(inputs: &Inputs, class: usize, variant: usize) -> (f64, f64) {
    match inputs.classes.get(class) {
        Some(Class { worth, .. }) => (worth.worth[variant], worth.worth.iter().copied().fold(0.0, f64::max)),
        None => {
            let accuracy = |variant: Option<&Variant>| variant.map_or(1.0, |variant| variant.accuracy);
            (accuracy(inputs.variants.get(variant)), accuracy(inputs.variants.last()))
        }
    }
}

impl Observer for Heard<'_> {
    fn request(&mut self, request: &Request) {
        let (in_time, most) = worths(self.inputs, request.stream, request.variant);
        if request.outcome == Outcome::Served {
            let worth = self.inputs.worth_of(request);
            self.worth += worth;
            // What it lacks otherwise was told when its batch began.
            if worth < in_time {
                self.lose(|_| in_time - worth);
            }
        } else {
            self.lose(|_| most);
        }
    }

    fn batch(&mut self, batch: &Batch) {
        let lack = |class| {
            let (worth, most) = worths(self.inputs, class, batch.variant);
            most - worth
        };
        self.lose(|log| match self.inputs.classes.len() {
            0 => lack(0) * batch.size as f64,
            classes => (0..classes).map(|class| f64::from(log.mix[class]) * lack(class)).sum(),
        });
    }

    fn safe_mode(&mut self, _: Instant, _: Transition) {}

    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}

#[cfg(test)]
mod tests;
