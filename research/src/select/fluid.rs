//! The fluid bound: the most accurate mix of models and batch sizes that the workers can carry, waiting ignored.

use rt_core::Span;

use super::profile::Profile;

/// A model and a batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which model, from 0.
    pub model: usize,
    /// How many requests, from 1.
    pub batch: usize,
}

/// The best mix for a given worker time per request.
///
/// It maximises `sum x_i accuracy_i` over shares `x_i` of the requests with `sum x_i latency_i / batch_i` at most the
/// time per request: no schedule of any kind that keeps all deadlines is more accurate in the long run. The optimum
/// lies on the upper concave envelope of the points `(latency / batch, accuracy)` and mixes at most two of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fluid {
    /// The mean accuracy, in 0..=1.
    pub accuracy: f64,
    /// What one more second of worker time per request would add to it: the dual price, at least 0.
    pub price: f64,
    /// The most that a request is worth at that price: the largest `accuracy - price * latency / batch`.
    pub worth: f64,
    /// The choices that are mixed and the shares of the requests that they serve, which sum up to 1.
    pub mix: [(Choice, f64); 2],
}

/// The fluid bound of batches that take at most `limit`, with `per_request` seconds of worker time for each request:
/// the workers divided by the load. `None` if even the most efficient batch takes more, or none is that short.
#[must_use]
pub fn fluid(profile: &Profile, limit: Span, per_request: f64) -> Option<Fluid> {
    let envelope = envelope(profile, limit);
    let last = envelope.len().checked_sub(1)?;
    let above = envelope.partition_point(|p| p.time <= per_request);
    if above == 0 || !per_request.is_finite() {
        return None;
    }
    if above > last {
        let top = envelope[last];
        let mix = [(top.choice, 1.0), (top.choice, 0.0)];
        return Some(Fluid { accuracy: top.accuracy, price: 0.0, worth: top.accuracy, mix });
    }
    let (low, high) = (envelope[above - 1], envelope[above]);
    let price = (high.accuracy - low.accuracy) / (high.time - low.time);
    let share = (per_request - low.time) / (high.time - low.time);
    Some(Fluid {
        accuracy: low.accuracy + price * (per_request - low.time),
        price,
        worth: low.accuracy - price * low.time,
        mix: [(low.choice, 1.0 - share), (high.choice, share)],
    })
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Worker time per request, in seconds.
    time: f64,
    accuracy: f64,
    choice: Choice,
}

/// The corners of the upper concave envelope, time and accuracy both rising.
fn envelope(profile: &Profile, limit: Span) -> Vec<Point> {
    let mut points: Vec<Point> = profile
        .within(limit)
        .map(|(model, batch, latency)| Point {
            time: latency.as_secs_f64() / batch as f64,
            accuracy: profile.models()[model].accuracy,
            choice: Choice { model, batch },
        })
        .collect();
    points.sort_by(|a, b| a.time.total_cmp(&b.time).then(b.accuracy.total_cmp(&a.accuracy)));
    let mut corners: Vec<Point> = Vec::new();
    for point in points {
        if corners.last().is_some_and(|last| point.accuracy <= last.accuracy) {
            continue;
        }
        while let [.., first, second] = corners[..] {
            let flatter = (second.accuracy - first.accuracy) * (point.time - first.time)
                <= (point.accuracy - first.accuracy) * (second.time - first.time);
            if !flatter {
                break;
            }
            corners.pop();
        }
        corners.push(point);
    }
    corners
}
