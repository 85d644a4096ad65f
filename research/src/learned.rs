//! Training what [`Selector::learned`] asks: on the daemon's own scheduler in virtual time, with the profile of a service that is
//! promised nothing.
//!
//! A decision is the wish for a batch. What it brings is told until the next one: of the batch that starts what its answers
//! lack in accuracy, and of every request that is missed all that it could have been worth.

use std::sync::{Arc, Mutex};

use planner::selection::Inputs;
use rt_core::{
    Alarm, BatchView, Instant, LEARNED_INPUTS, LearnedScale, LoadMonitor, Net, Outcome, SelectError,
    Selector, StreamState, Transition, VariantSelector,
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
    /// Episodes after which it is tried, and the best so far kept.
    pub try_every: usize,
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
            try_every: 10,
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

/// A selector that was trained on Poisson arrivals of all loads that the base carries; `build` makes the scheduler that it
/// selects for.
///
/// # Errors
/// Variants that no selector has, or hidden layers that no [`Net`] has.
///
/// # Panics
/// If an episode has too few requests for a decision to follow another.
pub fn school(
    inputs: &Inputs,
    schooling: &Schooling,
    build: impl Fn(Selector) -> Scheduled,
) -> Result<Selector, SelectError> {
    let scale =
        LearnedScale { requests: inputs.batch, slack: inputs.latency, rate_per_s: inputs.capacity_per_s(0) };
    let mut widths = vec![LEARNED_INPUTS];
    widths.extend(&schooling.hidden);
    widths.push(inputs.variants.len());
    let selector = |weights: &[f32]| {
        let net = Net::new(widths.clone(), weights)?;
        Selector::learned(inputs.variants.clone(), net, scale, LoadMonitor::default())
    };
    let arrivals = |part: f64, seed| {
        Poisson::new(part * scale.rate_per_s, seed).take(schooling.requests).map(|at| (at, 0))
    };
    let mut dice = Poisson::new(1.0, schooling.seed);
    let mut brain = Brain::new(&widths, &mut dice);
    let mut target = brain.weights().to_vec();
    let mut replay = Replay::new(LEARNED_INPUTS, REMEMBERED);
    let mut best: Option<(f64, Selector)> = None;
    let mut steps = 0;
    for episode in 0..schooling.episodes {
        let done = episode as f64 / schooling.episodes as f64;
        let log = Arc::new(Mutex::new(Log::default()));
        let pupil = Pupil {
            net: Net::new(widths.clone(), brain.weights())?,
            scale,
            load: LoadMonitor::default(),
            dice: Poisson::new(
                1.0,
                schooling.seed.wrapping_add(episode as u64 + 1).wrapping_mul(0x9e37_79b9),
            ),
            explore: (1.0 - 3.0 * done).max(0.02),
            log: Arc::clone(&log),
        };
        let scheduled = build(Selector::of(inputs.variants.clone(), pupil)?);
        let part = LOADS.0 + (LOADS.1 - LOADS.0) * dice.unit();
        let seed = (dice.unit() * 1e15) as u64;
        run(inputs, scheduled, arrivals(part, seed), Some(&log));
        let Log { seen, chosen, rewards } = std::mem::take(&mut *log.lock().expect("nobody panics"));
        replay.remember(&seen, &chosen, &rewards);
        let rate = schooling.learning_rate * libm::pow(0.1, done);
        for _ in 0..schooling.steps {
            if steps % TARGET_EVERY == 0 {
                target.copy_from_slice(brain.weights());
            }
            let decisions = replay.sample(schooling.batch, &mut dice);
            brain.step(decisions, &target, schooling.discount as f32, rate as f32);
            steps += 1;
        }
        if (episode + 1) % schooling.try_every == 0 || episode + 1 == schooling.episodes {
            let tried = selector(brain.average())?;
            let of = |(i, &part): (usize, &f64)| {
                run(inputs, build(tried.clone()), arrivals(part, 0x5eed_0000 + i as u64), None)
            };
            let lost = TRIED.iter().enumerate().map(of).sum::<f64>();
            if best.as_ref().is_none_or(|(least, _)| lost < *least) {
                best = Some((lost, tried));
            }
        }
    }
    // Without an episode it is what it was to begin with.
    best.map_or_else(|| selector(brain.average()), |(_, selector)| Ok(selector))
}

/// What all requests together were worth less than they could have been, in answers; told decision by decision too.
fn run(
    inputs: &Inputs,
    mut scheduled: Scheduled,
    arrivals: impl Iterator<Item = (Instant, usize)>,
    log: Option<&Mutex<Log>>,
) -> f64 {
    let accuracies: Vec<f64> = inputs.variants.iter().map(|variant| variant.accuracy).collect();
    let most = accuracies.last().copied().unwrap_or(1.0);
    let mut heard =
        Heard { lacks: accuracies.iter().map(|accuracy| most - accuracy).collect(), most, lost: 0.0, log };
    // They come in order.
    let _ = drive(&mut scheduled, arrivals, Order::Together, |_, _, bound| bound, &mut heard);
    heard.lost
}

/// What was seen, chosen and won by each decision of an episode.
#[derive(Debug, Default)]
struct Log {
    seen: Vec<f32>,
    chosen: Vec<u8>,
    rewards: Vec<f32>,
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
        log.seen.extend(inputs);
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

/// Hears what a run loses.
struct Heard<'a> {
    /// Of each variant, against the most accurate.
    lacks: Vec<f64>,
    most: f64,
    lost: f64,
    log: Option<&'a Mutex<Log>>,
}

impl Heard<'_> {
    fn lose(&mut self, lost: f64) {
        self.lost += lost;
        if let Some(log) = self.log
            && let Some(reward) = log.lock().expect("nobody panics").rewards.last_mut()
        {
            *reward -= lost as f32;
        }
    }
}

impl Observer for Heard<'_> {
    fn request(&mut self, request: &Request) {
        if request.outcome != Outcome::Served {
            self.lose(self.most);
        }
    }

    fn batch(&mut self, batch: &Batch) {
        self.lose(self.lacks[batch.variant] * batch.size as f64);
    }

    fn safe_mode(&mut self, _: Instant, _: Transition) {}

    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}
