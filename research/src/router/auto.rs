//! Whichever router simulation says is worth most at the rate that is seen.

use super::{Arrivals, Greedy, Load, Mix, Planned, Router, Setting, Static, Tally, Trained, View, play};

/// From one rate to the next that a router is chosen for.
const STEP: f64 = 1.2;
/// Up to so many times the highest rate that routers are planned and trained for.
const BEYOND: f64 = 2.0;
/// Requests that each is tried on, and the seed of the first rate: no run and no training has it.
const REQUESTS: usize = 20_000;
const SEED: u64 = 0xa070_0000;

/// Who routes at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// One model for all.
    Only(usize),
    /// The most accurate that still fits.
    Greedy,
    /// The planned router.
    Planned,
    /// The trained one.
    Learned,
}

/// Who routes at which rate.
#[derive(Clone, Debug)]
pub struct Auto {
    planned: Option<Planned>,
    trained: Trained,
    low: f64,
    /// Of rising rates, from the lowest.
    picks: Vec<Pick>,
}

impl Auto {
    /// Tries each model by itself and each router on requests of classes that are equally frequent, at rates from `low` to twice
    /// `high` requests a second, and picks for each rate whoever is worth most.
    #[must_use]
    pub fn new(
        setting: &Setting,
        (planned, trained): (Option<Planned>, Trained),
        (low, high): (f64, f64),
    ) -> Self {
        let mut auto = Self { planned, trained, low, picks: Vec::new() };
        let others = [Pick::Greedy, Pick::Planned, Pick::Learned];
        let all: Vec<Pick> = (0..setting.models.len()).map(Pick::Only).chain(others).collect();
        let all: Vec<Pick> =
            all.into_iter().filter(|&pick| pick != Pick::Planned || auto.planned.is_some()).collect();
        let steps = (libm::log(BEYOND * high / low) / libm::log(STEP)).ceil().max(0.0) as i32;
        for step in 0..=steps {
            let load = Load::Steady(low * libm::pow(STEP, f64::from(step)));
            let worth = |&pick: &Pick| {
                let coming =
                    Arrivals::new(load.clone(), Mix::even(setting.classes.len()), SEED + step as u64);
                let mut tally = Tally::new(setting, REQUESTS);
                let mut router = auto.router(|_| pick);
                play(setting, coming, REQUESTS, &mut router, |end| tally.ended(setting, end));
                tally.mean()
            };
            let tried: Vec<f64> = all.iter().map(worth).collect();
            // Of equals the first.
            let best = (0..all.len()).rev().max_by(|&a, &b| tried[a].total_cmp(&tried[b])).unwrap_or(0);
            auto.picks.push(all[best]);
        }
        auto
    }

    /// A router of its own.
    pub fn choosing(&self) -> impl Router {
        self.router(|rate| {
            let step = libm::round(libm::log(rate / self.low) / libm::log(STEP)).max(0.0) as usize;
            self.picks[step.min(self.picks.len() - 1)]
        })
    }

    fn router<F: Fn(f64) -> Pick + Send>(&self, pick: F) -> Picking<'_, F> {
        Picking { planned: self.planned.as_ref(), learned: self.trained.router(), pick }
    }
}

/// Has whoever is picked for the rate route.
struct Picking<'a, F> {
    planned: Option<&'a Planned>,
    learned: super::Learned,
    pick: F,
}

impl<F: Fn(f64) -> Pick + Send> Router for Picking<'_, F> {
    fn route(&mut self, view: &View<'_>) -> usize {
        match ((self.pick)(view.rate), self.planned) {
            (Pick::Only(model), _) => Static(model).route(view),
            (Pick::Planned, Some(mut planned)) => planned.route(view),
            (Pick::Greedy, _) => Greedy.route(view),
            (Pick::Planned | Pick::Learned, _) => self.learned.route(view),
        }
    }
}
