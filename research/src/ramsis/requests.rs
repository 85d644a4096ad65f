//! Beyond the paper: accuracy per request instead of per decision, with a bound on how many miss.
//!
//! A reward per decision prefers to serve few at a time, since a batch of one weighs as much as one of ten. What
//! users see is a share of requests. All requests that come are answered or dropped sooner or later, so the best
//! share is also the most right answers per unit of time: idle times and the lengths of batches are accounted for.

use super::evaluate::Evaluation;
use super::policy::Policy;
use super::problem::{Action, Choice, Problem};
use super::solve::{Search, Solution};

/// How close to the best possible share the policy for one price must be proven, in units of the price if that is
/// above 1.
const CLOSE: f64 = 1e-9;
/// When the long-run shares of states are taken to be settled.
const SETTLED: f64 = 1e-11;
/// Sweeps at most for one price and one share.
const MAX_SWEEPS: usize = 2_000;
/// Sweeps at most for all, after which the best so far must do.
const MAX_ALL: usize = 6_000;
/// Tries at most to better a share.
const MAX_TRIES: usize = 20;
/// The highest price of a miss, in right answers.
const MAX_PRICE: f64 = 1e3;
/// How often the range of prices is halved.
const HALVINGS: usize = 12;

impl Problem {
    /// The policy with the most right answers per request, of those found that are expected to miss at most `max_miss`; if
    /// there is none, the one that is expected to miss least. None of one model, nor the greedy one, is expected to do better.
    ///
    /// A miss costs a price, which is raised from nothing until few enough miss, and then lowered again by
    /// bisection (Lagrange's multiplier). For each price the ratio is maximised (W. Dinkelbach, On nonlinear
    /// fractional programming, 1967).
    pub(super) fn solve_requests(&self, max_miss: f64) -> Solution {
        let mut search = Search::new(self);
        let mut shares = self.start();
        let mut known: Option<Evaluation> = None;
        let mut try_price = |price: f64| {
            // What is reached already is where to begin.
            let ratio = known.map_or(-price, |known| known.right() - price * known.missed);
            let tried = self.at_price(price, ratio, &mut search, &mut shares);
            known = Some(tried.found);
            tried
        };
        let mut best = try_price(0.0);
        let (mut low, mut high) = (0.0, 1.0);
        while best.missed(max_miss) && high <= MAX_PRICE && best.sweeps < MAX_ALL {
            let tried = try_price(high);
            let sweeps = tried.sweeps;
            if !tried.missed(max_miss) {
                best = tried;
                for _ in 0..HALVINGS {
                    let middle = (low + high) / 2.0;
                    let tried = try_price(middle);
                    if tried.sweeps >= MAX_ALL {
                        break;
                    }
                    if tried.missed(max_miss) {
                        low = middle;
                    } else {
                        high = middle;
                        if tried.found.right() >= best.found.right() {
                            best = tried;
                        }
                    }
                }
                break;
            }
            if tried.found.missed < best.found.missed {
                best = tried;
            }
            best.sweeps = sweeps;
            (low, high) = (high, high * 10.0);
        }
        // Of the policies in between that no price finds, those of one model and the greedy one are known.
        for model in 0..self.spec.models.len() {
            let chosen = self.constant(model);
            let choices = chosen.iter().enumerate().map(|(s, &i)| self.choices(s)[usize::from(i)]);
            let found = self.weigh(&choices.collect::<Vec<Choice>>(), &mut shares, SETTLED);
            let better = if found.missed <= max_miss {
                best.missed(max_miss) || found.right() > best.found.right() + CLOSE
            } else {
                found.missed < best.found.missed - CLOSE
            };
            if better {
                let gain = (found.right(), best.gain.1.max(found.right()));
                best = Priced { chosen, found, gain, sweeps: best.sweeps };
            }
        }
        let Priced { chosen, gain, .. } = best;
        Solution { policy: Policy::new(self, &chosen), sweeps: search.sweeps, gain }
    }

    /// In each state the choice, by its index there, of the last model up to `model` that may be run; if none may, the first.
    pub(super) fn constant(&self, model: usize) -> Vec<u16> {
        let best = |state: usize| {
            let allowed = self.choices(state).iter().enumerate();
            let allowed = allowed.filter(|(_, choice)| usize::from(choice.action.model) <= model);
            allowed
                .max_by_key(|(_, choice)| (choice.on_time, choice.action.model))
                .map_or(0, |(i, _)| i as u16)
        };
        (0..self.layout.empty()).map(best).collect()
    }

    /// The best policy where a miss costs `price`; `ratio` is reached in any case.
    fn at_price(&self, price: f64, ratio: f64, search: &mut Search, shares: &mut [f64]) -> Priced {
        let close = CLOSE * price.max(1.0);
        let requests = |choice: &Choice| f64::from(choice.action.batch) + choice.lost;
        let missed = |choice: &Choice| {
            let dropped =
                if choice.action.model == Action::DROP { f64::from(choice.action.batch) } else { 0.0 };
            dropped + choice.lost
        };
        let mut attempt = |ratio: f64| {
            let worth = |_: usize, c: &Choice| c.reward - price * missed(c) - ratio * requests(c);
            // A choice that surely betters the ratio, and not by little, is good enough to go on from.
            let enough = |(low, high): (f64, f64)| high - low <= close || low > close && high < 2.0 * low;
            let left = MAX_SWEEPS.min(MAX_ALL.saturating_sub(search.sweeps));
            let gain = search.improve(worth, left, enough);
            let choices = search.chosen.iter().enumerate().map(|(s, &i)| self.choices(s)[usize::from(i)]);
            let found = self.weigh(&choices.collect::<Vec<Choice>>(), shares, SETTLED);
            let reached = found.right() - price * found.missed;
            // No policy gains more per decision than this, and each decision is about a request at least.
            let most = ratio + gain.1.max(0.0);
            let gain = (reached, most.max(reached));
            Priced { chosen: search.chosen.clone(), found, gain, sweeps: search.sweeps }
        };
        let mut best = attempt(ratio);
        for _ in 0..MAX_TRIES {
            let next = attempt(best.gain.0);
            let better = next.gain.0 - best.gain.0;
            let sweeps = next.sweeps;
            best.gain.1 = next.gain.1.max(best.gain.0);
            if better > 0.0 {
                best = next;
            }
            best.sweeps = sweeps;
            if better <= close || sweeps >= MAX_ALL {
                break;
            }
        }
        best
    }
}

/// What was found for a price.
struct Priced {
    chosen: Vec<u16>,
    found: Evaluation,
    /// Right answers less what misses cost, per request: what was reached, and what is possible at most.
    gain: (f64, f64),
    /// Sweeps so far, for other prices too.
    sweeps: usize,
}

impl Priced {
    fn missed(&self, most: f64) -> bool {
        self.found.missed > most
    }
}
