//! Batches worth more than their price, which only requests that came close together can form, and what it is worth
//! to keep a worker free for one that is still forming.

use rt_core::Span;

use super::fluid::{Choice, Fluid};
use super::profile::Profile;

/// How finely the time left is divided.
const STEPS: usize = 64;
/// The most batches that are watched for: the decision looks at each.
const MOST: usize = 2;

/// A batch to watch for. It takes so long that its oldest request may have waited for `window` only.
#[derive(Clone, Debug)]
pub(super) struct Prospect {
    pub(super) choice: Choice,
    pub(super) latency: Span,
    /// What it is worth beyond its worker time, above 0.
    pub(super) value: f64,
    /// By how much it lowers the stock.
    pub(super) relief: f64,
    /// In nanoseconds.
    pub(super) window: u64,
    /// [`STEPS`] for each number of requests still missing, from 1.
    gains: Vec<f64>,
    /// Of waiting with none of its requests there.
    pub(super) afresh: f64,
}

impl Prospect {
    /// The batches worth more than `fluid` prices them, the best first, for Poisson arrivals of `load` per second, of
    /// which `comes` a second count against a batch.
    pub(super) fn all(profile: &Profile, fluid: &Fluid, load: f64, comes: f64) -> Vec<Self> {
        let slo = profile.slo();
        let mut found: Vec<Self> = profile
            .within(slo)
            .filter(|&(_, batch, _)| batch > 1)
            .filter_map(|(model, batch, latency)| {
                let (accuracy, seconds) = (profile.models()[model].accuracy, latency.as_secs_f64());
                let value = batch as f64 * (accuracy - fluid.worth) - fluid.price * seconds;
                let window = slo.saturating_sub(latency);
                (value > 1e-9).then(|| Self {
                    choice: Choice { model, batch },
                    latency,
                    value,
                    relief: batch as f64 - comes * seconds,
                    window: window.as_nanos(),
                    gains: Vec::new(),
                    afresh: gain(batch - 1, window.as_secs_f64(), value, fluid.price, load)
                        - fluid.price / load,
                })
            })
            .collect();
        found.sort_by(|a, b| b.afresh.total_cmp(&a.afresh));
        found.truncate(MOST);
        for one in &mut found {
            let window = Span::from_nanos(one.window);
            one.gains = gains(one.choice.batch, window, one.value, fluid.price, load);
        }
        found
    }

    /// What is to be gained, in accuracy times requests, by keeping a worker free while `missing` more requests may
    /// come within `left` nanoseconds.
    pub(super) fn gain(&self, missing: usize, left: u64) -> f64 {
        let step = (left as u128 * STEPS as u128 / u128::from(self.window.max(1))) as usize;
        self.gains[(missing - 1) * STEPS + step.min(STEPS - 1)]
    }
}

fn gains(batch: usize, window: Span, value: f64, price: f64, load: f64) -> Vec<f64> {
    let step = window.as_secs_f64() / STEPS as f64;
    let cells = (1..=batch).flat_map(|missing| (0..STEPS).map(move |i| (missing, i as f64 * step)));
    cells.map(|(missing, left)| gain(missing, left, value, price, load)).collect()
}

/// The chance that they come in time, times the value, less the price of the worker until then.
fn gain(missing: usize, left: f64, value: f64, price: f64, load: f64) -> f64 {
    let mean = load * left;
    let mut term = libm::exp(-mean);
    let mut short = 0.0;
    for count in 0..missing {
        short += term;
        term *= mean / (count + 1) as f64;
    }
    (1.0 - short) * value - price * left.min(missing as f64 / load)
}
