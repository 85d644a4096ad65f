//! What a plan tries out: rules and prices as numbers, better from try to try.

use rt_core::Span;
use virtual_time::Poisson;

use super::decision::{Demand, Tuning};
use super::policy::Policy;
use super::priced::price;
use super::profile::Profile;

/// How many numbers make prices.
const NUMBERS: usize = 13;
/// The first prices, in the order that [`prices`] has: such that never keep a worker waiting for long, and such that keep the
/// last free worker for batches worth more.
const STARTS: [[f64; NUMBERS]; 2] =
    [[0.5; NUMBERS], [0.05, 0.55, 0.05, 0.65, 0.4, 0.5, 0.8, 0.0, 1.0, 0.6, 0.5, 0.5, 0.5]];
/// Each is tried with all of these last three: what comes during a batch counts or does not, and what has waited for long is
/// given up early or late, and is served fast before that or not.
const ENDS: [[f64; 3]; 8] = [
    [0.0, 0.5, 0.5],
    [0.8, 0.5, 0.5],
    [0.8, 0.1, 0.1],
    [0.8, 0.1, 1.0],
    [0.8, 0.5, 1.0],
    [0.8, 0.7, 0.5],
    [0.0, 0.1, 1.0],
    [0.0, 1.0, 1.0],
];
/// How many of the best prices are varied, and of the best rules.
const ELITE: usize = 12;
/// One in so many tries is of thresholds.
const THRESHOLDS: u64 = 3;
/// The part of the tries that are drawn afresh.
const FRESH: f64 = 0.25;

/// A policy to be tried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Candidate {
    Greedy,
    /// Greedy, but not for so long that those that come meanwhile are late: numbers in 0..=1.
    Within([f64; 2]),
    /// Models, and numbers in 0..=1.
    Thresholds([usize; 3], [f64; 2]),
    /// Numbers in 0..=1.
    Priced([f64; NUMBERS]),
}

impl Candidate {
    pub(super) fn is_priced(&self) -> bool {
        matches!(self, Self::Priced(_))
    }

    pub(super) fn policy(&self, profile: &Profile, demand: Demand) -> Policy {
        match *self {
            Self::Greedy => Policy::greedy(profile),
            Self::Within([longest, falls]) => {
                let longest = Span::from_nanos((profile.slo().as_nanos() as f64 * longest) as u64);
                let falls = (2.0 * falls - 0.3).max(0.0);
                Policy::greedy_within(profile, longest, falls * falls / demand.workers as f64)
            }
            Self::Thresholds(models, numbers) => {
                // As many as come within the objective, or as there are workers.
                let scale = (demand.load * profile.slo().as_secs_f64()).max(demand.workers as f64);
                let mut at = numbers.map(|number| (scale * (1.5 * number * number - 0.3)).round() as i64);
                at.sort_unstable();
                Policy::thresholds(profile, models, at)
            }
            Self::Priced(numbers) => Policy::priced(profile, demand, prices(profile, demand, numbers)),
        }
    }
}

/// Candidates and how good they were.
pub(super) struct Search {
    draws: Poisson,
    models: usize,
    /// One in so many tries is of thresholds.
    thresholds: u64,
    /// Whether half of these, where they are drawn afresh, are greedy ones instead, of batches that are not too long.
    within: bool,
    /// What is tried first, the last first.
    first: Vec<Candidate>,
    count: u64,
    /// The best first.
    rules: Vec<(f64, Candidate)>,
    priced: Vec<(f64, Candidate)>,
}

impl Search {
    pub(super) fn new(profile: &Profile, within: bool, seed: u64) -> Self {
        let mut search = Self { thresholds: THRESHOLDS, within, ..Self::of_thresholds(profile, seed) };
        search.first.push(Candidate::Greedy);
        for end in ENDS {
            for mut start in STARTS {
                start[NUMBERS - end.len()..].copy_from_slice(&end);
                search.first.push(Candidate::Priced(start));
            }
        }
        search
    }

    /// Of single models and thresholds alone.
    pub(super) fn of_thresholds(profile: &Profile, seed: u64) -> Self {
        let (models, draws) = (profile.models().len(), Poisson::new(1.0, seed));
        let first = (0..models).map(|model| Candidate::Thresholds([model; 3], [0.0; 2])).collect();
        Self {
            draws,
            models,
            thresholds: 1,
            within: false,
            first,
            count: 0,
            rules: Vec::new(),
            priced: Vec::new(),
        }
    }

    /// What to try when this part of all tries is done.
    pub(super) fn next(&mut self, done: f64) -> Candidate {
        if let Some(first) = self.first.pop() {
            return first;
        }
        self.count += 1;
        let list = if self.count.is_multiple_of(self.thresholds) { &self.rules } else { &self.priced };
        let elite = list.len().min(ELITE);
        let chosen = list.get((self.draws.unit() * elite as f64) as usize).filter(|_| done > FRESH);
        let chosen = chosen.map(|(_, candidate)| *candidate);
        let width = 0.25 * (1.0 - done);
        match chosen {
            Some(Candidate::Priced(numbers)) => Candidate::Priced(self.vary(numbers, width)),
            Some(Candidate::Within(numbers)) => Candidate::Within(self.vary(numbers, width)),
            Some(Candidate::Thresholds(mut models, numbers)) => {
                let place = self.below(2 * models.len());
                if let Some(model) = models.get_mut(place) {
                    *model = (*model + self.below(2) * 2).clamp(1, self.models) - 1;
                }
                Candidate::Thresholds(models, self.vary(numbers, width))
            }
            _ if self.within && self.count.is_multiple_of(2 * self.thresholds) => {
                Candidate::Within([(); 2].map(|()| self.draws.unit()))
            }
            _ if self.count.is_multiple_of(self.thresholds) => {
                let mut models = [(); 3].map(|()| self.below(self.models));
                // The fewer wait the more accurate, mostly.
                models.sort_unstable_by(|a, b| b.cmp(a));
                Candidate::Thresholds(models, [(); 2].map(|()| self.draws.unit()))
            }
            _ => Candidate::Priced([(); NUMBERS].map(|()| self.draws.unit())),
        }
    }

    /// How good a candidate was.
    pub(super) fn tried(&mut self, candidate: Candidate, worth: f64) {
        let list = if candidate.is_priced() { &mut self.priced } else { &mut self.rules };
        list.insert(list.partition_point(|(other, _)| *other >= worth), (worth, candidate));
    }

    /// Rules and prices, the best first.
    pub(super) fn tries(self) -> [Vec<Candidate>; 2] {
        [self.rules, self.priced].map(|list| list.into_iter().map(|(_, candidate)| candidate).collect())
    }

    fn vary<const N: usize>(&mut self, mut numbers: [f64; N], width: f64) -> [f64; N] {
        for number in &mut numbers {
            if self.draws.unit() < 0.5 {
                let step = self.draws.unit() + self.draws.unit() + self.draws.unit() - 1.5;
                *number = (*number + width * step).clamp(0.0, 1.0);
            }
        }
        numbers
    }

    /// A whole number below `count`.
    fn below(&mut self, count: usize) -> usize {
        (self.draws.unit() * count as f64) as usize % count
    }
}

/// Prices of numbers in 0..=1, each the place in a range that suits any profile.
fn prices(profile: &Profile, demand: Demand, numbers: [f64; NUMBERS]) -> Tuning {
    let [
        reserve,
        pressure,
        stiffness,
        target,
        share,
        horizon,
        last,
        other,
        anticipation,
        patience,
        drift,
        lost,
        drain,
    ] = numbers;
    let slo = profile.slo().as_secs_f64();
    let between = |low: f64, high: f64, at: f64| low + (high - low) * at;
    let per_request = demand.per_request();
    // The fewer workers, the more it matters what one of them does.
    let few = 1.0 / (demand.workers as f64).sqrt();
    let reserve = between(0.01, 0.1 + 0.4 * few, reserve);
    // The mean batch and the mean time of a batch in the best mix give the scale of the stock.
    let mix = price(profile, reserve, per_request).mix.map(|(choice, part)| part / choice.batch as f64);
    let batch = 1.0 / (mix[0] + mix[1]).min(1.0);
    let share = between(0.0, 1.2, share) * batch;
    let horizon = slo * between(0.02, 0.35, horizon);
    // Batches end at the rate at which they start.
    let soon = demand.load / batch * horizon;
    // How long a request may wait for the batches that carry the load; for the quickest if none do.
    let least = per_request.max((1.0 + 1e-9) / profile.quickest());
    let carries = |&(_, batch, latency): &(usize, usize, Span)| latency.as_secs_f64() / batch as f64 <= least;
    let longest = profile.within(profile.slo()).filter(carries).map(|(_, _, latency)| latency).min();
    let wait = |latency: Span| (profile.slo().saturating_sub(latency)).as_secs_f64();
    let (most, usual) = (wait(profile.fastest()), longest.map_or(0.0, wait));
    let usual = if most > 0.0 { usual / most } else { 0.0 };
    Tuning {
        reserve,
        pressure: libm::exp((0.05 + few) * between(-1.0, 1.0, pressure)),
        stiffness: 1e-4 * libm::exp((5.3 + libm::log(1.0 + 9.0 * few)) * stiffness),
        target: demand.load * slo * between(-0.05, 0.12, target) - share * soon,
        drift: between(0.0, 1.25, drift),
        share,
        horizon: Span::from_nanos((horizon * 1e9) as u64),
        lost: if lost < 0.5 {
            usual * between(0.4, 1.6, lost)
        } else {
            between(usual, 1.0, 2.0 * lost - 1.0)
        }
        .min(1.0),
        drain: between(0.25, 1.0, drain),
        hold: [between(-0.025, 0.015, last), between(-0.035, 0.005, other)],
        patience: Span::from_nanos((slo * between(0.03, 0.35, patience) * 1e9) as u64),
        anticipation: between(-0.015, 0.015, anticipation),
    }
}
