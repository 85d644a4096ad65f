//! A bound below the fluid bound: batches need requests that arrive close enough together.

use rt_core::{Instant, Span};
use virtual_time::Poisson;

use super::decision::{Demand, DemandError};
use super::profile::Profile;

/// How many arrivals are drawn.
const SAMPLE: usize = 200_000;
/// Steps of the search for the price.
const STEPS: usize = 100;

/// An accuracy that no policy exceeds that keeps all deadlines, even if it knows all arrivals ahead and takes them in
/// any order; `None` if the workers cannot carry the load.
///
/// A batch of `b` that takes `l` holds requests that arrived within `slo - l` of each other. Of Poisson arrivals only
/// so many can be put in such groups, which do not overlap: taking each group as early as it is complete makes most of
/// them. The fluid bound with every choice limited to its share of the requests is the ceiling. It is an estimate,
/// from 200,000 drawn arrivals: shares are known to about 0.002.
///
/// # Errors
/// [`DemandError`] for the first value that is outside its range.
pub fn ceiling(profile: &Profile, demand: Demand, seed: u64) -> Result<Option<f64>, DemandError> {
    demand.check()?;
    let arrivals: Vec<Instant> = Poisson::new(demand.load, seed).take(SAMPLE).collect();
    let choices: Vec<Limited> = profile
        .within(profile.slo())
        .map(|(model, batch, latency)| Limited {
            time: latency.as_secs_f64() / batch as f64,
            accuracy: profile.models()[model].accuracy,
            share: groups(&arrivals, batch, profile.slo().saturating_sub(latency)),
        })
        .collect();
    let time = demand.per_request();
    let quickest = worth(&choices, |c| -c.time);
    if quickest.is_none_or(|least| -least > time) {
        return Ok(None);
    }
    // Convex in the price; no price is above that of going from no accuracy to all within the least time.
    let bound = |price: f64| worth(&choices, |c| c.accuracy - price * c.time).map(|w| w + price * time);
    let least = choices.iter().map(|c| c.time).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, 100.0 / least);
    for _ in 0..STEPS {
        let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if bound(left) <= bound(right) {
            high = right;
        } else {
            low = left;
        }
    }
    Ok(bound(low))
}

struct Limited {
    /// Worker time per request, in seconds.
    time: f64,
    accuracy: f64,
    /// At most this share of the requests.
    share: f64,
}

/// The most that requests are worth on average, if each choice is worth `value`.
fn worth(choices: &[Limited], value: impl Fn(&Limited) -> f64) -> Option<f64> {
    let mut values: Vec<(f64, f64)> = choices.iter().map(|c| (value(c), c.share)).collect();
    values.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut left, mut sum) = (1.0, 0.0);
    for (value, share) in values {
        let part = share.min(left);
        sum += part * value;
        left -= part;
    }
    (left < 1e-9).then_some(sum)
}

/// The largest share of the arrivals in groups of `size` that arrived within `window`.
fn groups(arrivals: &[Instant], size: usize, window: Span) -> f64 {
    let (mut first, mut grouped) = (0, 0);
    while let Some(last) = arrivals.get(first + size - 1) {
        if last.since(arrivals[first]) <= window {
            grouped += size;
            first += size;
        } else {
            first += 1;
        }
    }
    if size == 1 { 1.0 } else { grouped as f64 / arrivals.len() as f64 }
}
