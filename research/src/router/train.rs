//! Training a router: double Q-learning with experience replay and a target network (van Hasselt et al., 2016), on the
//! simulated workers, repeatable from a seed.

use rt_core::{MAX_NET_LAYERS, MAX_NET_WIDTH, Net};
use virtual_time::Poisson;

use super::features::Features;
use super::{Arrivals, Ended, Load, Mix, Router, Setting, SettingError, View, play, within};
use crate::qlearning::{Brain, Replay};

/// The first seed of the loads that routers are tried on.
const HELD_OUT: u64 = 0x5eed_0000_0000;

/// How a router is trained. The defaults suit a CPU; what Jha et al. have (their appendix A) is in brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// The widths of its hidden layers; 256, 256 in the paper.
    pub hidden: Vec<usize>,
    /// Which rates come, in requests a second, at each of which so many requests come on average.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// The mean number of requests at a rate.
    pub stay: f64,
    /// At most so many episodes of so many requests, each on idle workers.
    pub episodes: usize,
    /// Requests of an episode.
    pub requests: usize,
    /// Steps of the optimiser after each episode; 1.2 million in all in the paper.
    pub steps: usize,
    /// Decisions in a step; 1024 in the paper.
    pub batch: usize,
    /// Decisions that are remembered.
    pub replay: usize,
    /// Of Adam, at first; a tenth of it at the end; 0.0001 in the paper.
    pub learning_rate: f64,
    /// What the next decision's worth counts; 0.99 in the paper.
    pub discount: f64,
    /// Steps after which the target network is brought up to date; 500 in the paper.
    pub target_every: usize,
    /// Episodes after which the router is tried on loads that it is not trained on, and the best so far kept.
    pub try_every: usize,
    /// Trials without a better one after which it ends.
    pub patience: usize,
    /// Whatever is random depends on it.
    pub seed: u64,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            hidden: vec![256, 256],
            low: 0.25,
            high: 48.0,
            stay: 500.0,
            episodes: 150,
            requests: 2_000,
            steps: 300,
            batch: 64,
            replay: 100_000,
            learning_rate: 3e-3,
            discount: 0.97,
            target_every: 500,
            try_every: 10,
            patience: 12,
            seed: 1,
        }
    }
}

/// A router that was trained.
#[derive(Clone, Debug)]
pub struct Trained {
    /// What decides.
    pub net: Net,
    features: Features,
    /// The mean worth on the loads that it was tried on.
    pub worth: f64,
    /// After how many episodes it was best, and how many there were.
    pub episodes: (usize, usize),
}

/// Sends each request where its network holds the worth of this and all that comes after to be largest.
#[derive(Clone, Debug)]
pub struct Learned {
    net: Net,
    features: Features,
    inputs: Vec<f32>,
}

impl Training {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// With the first that is not.
    pub fn check(&self) -> Result<(), SettingError> {
        const MOST: f64 = 1e7;
        within("number of hidden layers", self.hidden.len() as f64, 0.0, MAX_NET_LAYERS as f64 - 1.0)?;
        for &width in &self.hidden {
            within("hidden", width as f64, 1.0, MAX_NET_WIDTH as f64)?;
        }
        Load::Any { low: self.low, high: self.high, requests: self.stay }.check()?;
        for (field, value) in [
            ("episodes", self.episodes),
            ("batch", self.batch),
            ("replay", self.replay),
            ("target-every", self.target_every),
            ("try-every", self.try_every),
        ] {
            within(field, value as f64, 1.0, MOST)?;
        }
        // A decision that another follows.
        within("requests", self.requests as f64, 2.0, MOST)?;
        within("steps", self.steps as f64, 0.0, MOST)?;
        within("patience", self.patience as f64, 1.0, MOST)?;
        within("learning-rate", self.learning_rate, 1e-9, 1.0)?;
        within("discount", self.discount, 0.0, 1.0)
    }

    /// What a router is worth on average on the loads that are kept to try it, none of which is trained on.
    #[must_use]
    pub fn held_out(&self, setting: &Setting, router: &mut dyn Router) -> f64 {
        const RUNS: u64 = 12;
        let mut sum = 0.0;
        for run in 0..RUNS {
            // Steady ones from the lowest to the highest too, so that who fails at either is not kept.
            let part = run as f64 / (RUNS - 1) as f64;
            let steady = Load::Steady(self.low * libm::pow(self.high / self.low, part));
            let steady = Arrivals::new(steady, Mix::even(setting.classes.len()), !(HELD_OUT + run));
            for coming in [self.coming(setting, HELD_OUT + run), steady] {
                play(setting, coming, self.requests, router, |end| {
                    sum += setting.worth(end.class, end.model, end.token_ms);
                });
            }
        }
        sum / (2 * RUNS as usize * self.requests) as f64
    }

    fn coming(&self, setting: &Setting, seed: u64) -> Arrivals {
        let load = Load::Any { low: self.low, high: self.high, requests: self.stay };
        Arrivals::new(load, Mix::even(setting.classes.len()), seed)
    }
}

impl Trained {
    /// A router by it.
    #[must_use]
    pub fn router(&self) -> Learned {
        Learned { net: self.net.clone(), features: self.features.clone(), inputs: Vec::new() }
    }
}

impl Router for Learned {
    fn route(&mut self, view: &View<'_>) -> usize {
        self.inputs.clear();
        self.features.see(view, &mut self.inputs);
        self.net.best(&self.inputs)
    }
}

/// Trains a router for classes that come equally often.
///
/// # Panics
/// If the setting is not sound, or the training asks for networks that [`Net`] does not have.
#[must_use]
pub fn train(setting: &Setting, training: &Training) -> Trained {
    let features = Features::new(setting, training.high);
    let mut widths = vec![Features::count(setting)];
    widths.extend(&training.hidden);
    widths.push(setting.models.len());
    let mut dice = Poisson::new(1.0, training.seed);
    let mut brain = Brain::new(&widths, &mut dice);
    let mut target = brain.weights().to_vec();
    let mut replay = Replay::new(widths[0], training.replay);
    let mut best: Option<Trained> = None;
    let (mut steps, mut last) = (0, 0);
    for episode in 0..training.episodes {
        let done = episode as f64 / training.episodes as f64;
        // Everything at first, hardly anything after a third.
        let explore = (1.0 - 3.0 * done).max(0.02);
        let net = Net::new(widths.clone(), brain.weights()).expect("weights that are numbers");
        let mut explorer = Explorer {
            net,
            features: &features,
            dice: &mut dice,
            explore,
            seen: Vec::new(),
            chosen: Vec::new(),
        };
        let mut rewards = vec![0.0; training.requests];
        let ended = |end: Ended| {
            // What is lost instead of what is won: the same order of choices, and smaller numbers.
            rewards[end.request] = setting.worth(end.class, end.model, end.token_ms) as f32 - 1.0;
        };
        let seed = training.seed.wrapping_add(episode as u64 + 1).wrapping_mul(0x9e37_79b9);
        play(setting, training.coming(setting, seed), training.requests, &mut explorer, ended);
        let Explorer { seen, chosen, .. } = explorer;
        replay.remember(&seen, &chosen, &rewards);
        let rate = training.learning_rate * libm::pow(0.1, done);
        for _ in 0..training.steps {
            if steps % training.target_every == 0 {
                target.copy_from_slice(brain.weights());
            }
            let decisions = replay.sample(training.batch, &mut dice);
            brain.step(decisions, &target, training.discount as f32, rate as f32);
            steps += 1;
        }
        if (episode + 1) % training.try_every == 0 || episode + 1 == training.episodes {
            let net = Net::new(widths.clone(), brain.average()).expect("weights that are numbers");
            let mut tried =
                Trained { net, features: features.clone(), worth: 0.0, episodes: (episode + 1, episode + 1) };
            tried.worth = training.held_out(setting, &mut tried.router());
            match &mut best {
                Some(best) if best.worth >= tried.worth => {
                    best.episodes.1 = episode + 1;
                    if (episode + 1 - last) / training.try_every >= training.patience {
                        break;
                    }
                }
                _ => (best, last) = (Some(tried), episode + 1),
            }
        }
    }
    best.expect("an episode")
}

/// Chooses as the network does, or at random, and writes down what it saw.
struct Explorer<'a> {
    net: Net,
    features: &'a Features,
    dice: &'a mut Poisson,
    explore: f64,
    seen: Vec<f32>,
    chosen: Vec<u8>,
}

impl Router for Explorer<'_> {
    fn route(&mut self, view: &View<'_>) -> usize {
        let from = self.seen.len();
        self.features.see(view, &mut self.seen);
        let models = view.fleet.setting.models.len();
        let choice = if self.dice.unit() <= self.explore {
            ((self.dice.unit() * models as f64) as usize).min(models - 1)
        } else {
            self.net.best(&self.seen[from..])
        };
        self.chosen.push(choice as u8);
        choice
    }
}
