//! Requests that come: at one rate, or at one that is drawn anew now and then; of classes in shares that may shift.

use virtual_time::Poisson;

use super::{SettingError, within};

/// The highest rate, in requests a second.
pub const MAX_LOAD_PER_S: f64 = 1e4;

/// How many come.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// So many a second, which routers are told.
    Steady(f64),
    /// A Poisson process whose rate is drawn anew: routers go by the last five arrivals.
    Redrawn {
        /// Shares of the draws, and from which to which rate they are: uniform between.
        ranges: Vec<(f64, f64, f64)>,
        /// How many requests come at a rate before the next is drawn: this mean, geometric.
        requests: f64,
        /// Or how many on average in this time, if it is above 0: the mean is that times the rate.
        seconds: f64,
    },
    /// The same, of a rate whose logarithm is uniform: half of the runs are told the rate. What is trained on.
    Any {
        /// The lowest rate.
        low: f64,
        /// The highest rate.
        high: f64,
        /// The mean number of requests at a rate.
        requests: f64,
    },
}

/// Which share of the requests is of which class.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Of each class; they need not sum to 1.
    pub shares: Vec<f64>,
    /// From which request on others hold, and those.
    pub shift: Option<(u64, Vec<f64>)>,
}

impl Mix {
    /// As many of each.
    #[must_use]
    pub fn even(classes: usize) -> Self {
        Self { shares: vec![1.0; classes], shift: None }
    }

    /// Whether it is one of so many classes.
    ///
    /// # Errors
    /// With what is not.
    pub fn check(&self, classes: usize) -> Result<(), SettingError> {
        let of = |field: &str, shares: &[f64]| {
            within(&format!("number of {field}"), shares.len() as f64, classes as f64, classes as f64)?;
            shares.iter().try_for_each(|&share| within(field, share, 0.0, 1e6))?;
            within(&format!("sum of {field}"), shares.iter().sum(), 1e-6, 1e9)
        };
        of("mix", &self.shares)?;
        self.shift.as_ref().map_or(Ok(()), |(_, shares)| of("shift", shares))
    }
}

impl Load {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// With the first that is not.
    pub fn check(&self) -> Result<(), SettingError> {
        const LEAST: f64 = 1e-3;
        match self {
            &Self::Steady(rate) => within("rate", rate, LEAST, MAX_LOAD_PER_S),
            Self::Redrawn { ranges, requests, seconds } => {
                within("number of ranges", ranges.len() as f64, 1.0, 64.0)?;
                for (i, &(share, low, high)) in ranges.iter().enumerate() {
                    within(&format!("ranges[{i}][0]"), share, 0.0, 1.0)?;
                    within(&format!("ranges[{i}][1]"), low, LEAST, MAX_LOAD_PER_S)?;
                    within(&format!("ranges[{i}][2]"), high, low, MAX_LOAD_PER_S)?;
                }
                within("sum of the shares of ranges", ranges.iter().map(|r| r.0).sum(), 1e-6, 64.0)?;
                within("requests", *requests, 0.0, 1e9)?;
                within("seconds", *seconds, 0.0, 1e9)?;
                within("requests or seconds", requests.max(*seconds), LEAST, 1e9)
            }
            &Self::Any { low, high, requests } => {
                within("low", low, LEAST, MAX_LOAD_PER_S)?;
                within("high", high, low, MAX_LOAD_PER_S)?;
                within("requests", requests, 1.0, 1e9)
            }
        }
    }
}

/// A request that comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coming {
    /// When, in seconds.
    pub at: f64,
    /// Of which class.
    pub class: usize,
    /// What routers are told of the rate.
    pub rate: f64,
}

/// Requests that come for ever: the same for the same seed.
#[derive(Clone, Debug)]
pub struct Arrivals {
    load: Load,
    mix: Mix,
    dice: Poisson,
    at: f64,
    rate: f64,
    /// How many more come at this rate.
    left: u64,
    count: u64,
    /// When the last five came.
    last: [f64; 5],
    is_told: bool,
}

impl Arrivals {
    /// From `seed`; both must be sound.
    #[must_use]
    pub fn new(load: Load, mix: Mix, seed: u64) -> Self {
        let mut dice = Poisson::new(1.0, seed);
        let is_told = match load {
            Load::Steady(_) => true,
            Load::Redrawn { .. } => false,
            Load::Any { .. } => dice.unit() < 0.5,
        };
        Self { load, mix, dice, at: 0.0, rate: 0.0, left: 0, count: 0, last: [0.0; 5], is_told }
    }

    fn redraw(&mut self) {
        let unit = self.dice.unit();
        let (rate, mean) = match &self.load {
            Load::Steady(rate) => (*rate, f64::INFINITY),
            Load::Any { low, high, requests } => (low * libm::pow(high / low, unit), *requests),
            Load::Redrawn { ranges, requests, seconds } => {
                let mut left = unit * ranges.iter().map(|range| range.0).sum::<f64>();
                let found = ranges.iter().find(|range| {
                    left -= range.0;
                    left <= 0.0
                });
                let &(_, low, high) = found.unwrap_or(&ranges[0]);
                let rate = low + (high - low) * self.dice.unit();
                (rate, if *seconds > 0.0 { seconds * rate } else { *requests })
            }
        };
        self.rate = rate;
        // Geometric from 1 on, with that mean; with a mean of 1 or less it is 1.
        let stays = 1.0 - 1.0 / mean.max(1.0);
        let drawn = libm::log(self.dice.unit()) / libm::log(stays);
        self.left = if mean.is_infinite() { u64::MAX } else { 1 + drawn as u64 };
    }
}

impl Iterator for Arrivals {
    type Item = Coming;

    fn next(&mut self) -> Option<Coming> {
        if self.left == 0 {
            self.redraw();
        }
        self.left -= 1;
        self.at -= libm::log(self.dice.unit()) / self.rate;
        let shares = match &self.mix.shift {
            Some((from, shares)) if self.count >= *from => shares,
            _ => &self.mix.shares,
        };
        let mut left = self.dice.unit() * shares.iter().sum::<f64>();
        let class = shares.iter().position(|share| {
            left -= share;
            left <= 0.0
        });
        let class = class.unwrap_or_else(|| shares.iter().rposition(|&share| share > 0.0).unwrap_or(0));
        let place = (self.count % 5) as usize;
        let seen = self.count.clamp(1, 5) as f64;
        let told = seen / (self.at - self.last[place]).max(1e-6);
        self.last[place] = self.at;
        self.count += 1;
        let rate = if self.is_told { self.rate } else { told };
        Some(Coming { at: self.at, class, rate })
    }
}
