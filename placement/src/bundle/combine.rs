//! Of each service one bundle, so that all fit and lose least: dynamic programming over the devices used.

use rustc_hash::FxHashMap;

use super::search::{Bundle, Use, of_class};

/// The most uses that are kept of the services so far; beyond it those that lose least.
const MAX_STATES: usize = 200_000;

/// The bundles chosen, and what was looked at.
#[derive(Debug)]
pub(super) struct Combined {
    /// Of each service which bundle, and what all lose, what is left unused included.
    pub(super) best: Option<(f64, Vec<usize>)>,
    /// Whether nothing that loses at most the limit was left out.
    pub(super) complete: bool,
}

/// The services so far, and what they use together.
struct State {
    used: Use,
    loss: f64,
    /// Of the service before, and which bundle of the last.
    before: (u32, u32),
}

/// Chooses from `bundles`, of each service in order of loss, so that at most `counts` devices of each class are used and at most
/// `limit` is lost; an unused device loses its price.
pub(super) fn combine(
    bundles: &[&[Bundle]],
    counts: &[u32],
    prices: &[f64],
    limit: f64,
    states: usize,
) -> Combined {
    let states = states.min(MAX_STATES);
    let mut order: Vec<usize> = (0..bundles.len()).collect();
    order.sort_by_key(|&s| bundles[s].len());
    // Of the services from each on: what they lose at least, and use at most.
    let mut least = vec![0.0; order.len() + 1];
    let mut most = vec![vec![0u32; counts.len()]; order.len() + 1];
    for (i, &s) in order.iter().enumerate().rev() {
        let Some(first) = bundles[s].first() else { return Combined { best: None, complete: true } };
        least[i] = least[i + 1] + first.loss;
        most[i] = (0..counts.len())
            .map(|c| {
                most[i + 1][c] + bundles[s].iter().map(|bundle| of_class(bundle.used, c)).max().unwrap_or(0)
            })
            .collect();
    }
    let idle = |used: Use, more: &[u32]| -> f64 {
        let left = |c: usize| counts[c].saturating_sub(of_class(used, c) + more[c]);
        (0..counts.len()).map(|c| prices[c] * f64::from(left(c))).sum()
    };
    let mut layers: Vec<Vec<State>> = vec![vec![State { used: 0, loss: 0.0, before: (0, 0) }]];
    let mut complete = true;
    for (i, &s) in order.iter().enumerate() {
        let mut known: FxHashMap<Use, usize> = FxHashMap::default();
        let mut next: Vec<State> = Vec::new();
        for (before, state) in layers[i].iter().enumerate() {
            for (choice, bundle) in bundles[s].iter().enumerate() {
                let loss = state.loss + bundle.loss;
                if loss + least[i + 1] > limit {
                    break;
                }
                let used = state.used + bundle.used;
                let fits = (0..counts.len()).all(|c| of_class(used, c) <= counts[c]);
                if !fits || loss + least[i + 1] + idle(used, &most[i + 1]) > limit {
                    continue;
                }
                let state = State { used, loss, before: (before as u32, choice as u32) };
                match known.get(&used) {
                    Some(&at) if next[at].loss <= loss => {}
                    Some(&at) => next[at] = state,
                    None => {
                        known.insert(used, next.len());
                        next.push(state);
                    }
                }
            }
        }
        next.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        if next.len() > states {
            next.truncate(states);
            complete = false;
        }
        layers.push(next);
    }
    let none = vec![0; counts.len()];
    let all = layers.last().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
    let best =
        all.map(|(i, state)| (state.loss + idle(state.used, &none), i)).min_by(|a, b| a.0.total_cmp(&b.0));
    let best = best.map(|(loss, mut at)| {
        let mut chosen = vec![0; bundles.len()];
        for i in (0..order.len()).rev() {
            let (before, choice) = layers[i + 1][at].before;
            chosen[order[i]] = choice as usize;
            at = before as usize;
        }
        (loss, chosen)
    });
    Combined { best, complete }
}
