//! At which rate of arrivals violations come as often as is asked.

use super::{Question, RareError, Violations, violations};

/// From one rate to the next, where it is not known yet on which side the one asked for lies.
const STEP: f64 = 1.25;
/// Rates tried at most for each that is asked for.
const TRIES: usize = 24;
/// Rates that are as close to one another are close enough.
const CLOSE: f64 = 1.06;

/// An estimate at a rate.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// All arrivals of the question come so many times as fast.
    pub scale: f64,
    /// How often violations begin then.
    pub violations: Violations,
}

/// Estimates over rates.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OverRates {
    /// By rising rate.
    pub points: Vec<Point>,
    /// For each that was asked for, at how many times the rates of the question; `None` where no rate was found with
    /// more, or none that is known to have fewer.
    pub scales: Vec<Option<f64>>,
    /// For each, the highest rate tried up to which the upper ends of the confidence intervals are no more than that.
    pub sure: Vec<Option<f64>>,
}

/// At which rates violations begin as often as each of `targets`, a second: between the closest points by the line through the
/// logarithms. Violations are taken to become more with the rate.
///
/// # Errors
/// As [`violations`].
pub fn over_rates(
    question: &Question<'_>,
    targets: &[f64],
    progress: &mut dyn FnMut(f64),
) -> Result<OverRates, RareError> {
    let mut points = Vec::new();
    let mut at = |points: &mut Vec<Point>, scale: f64| -> Result<(), RareError> {
        let mut scaled = question.clone();
        scaled.arrivals.iter_mut().for_each(|(_, rate)| *rate *= scale);
        let point = Point { scale, violations: violations(&scaled, &mut |_| ())? };
        points.push(point);
        points.sort_by(|a: &Point, b| a.scale.total_cmp(&b.scale));
        progress(points.len() as f64);
        Ok(())
    };
    at(&mut points, 1.0)?;
    let mut scales = Vec::new();
    for &target in targets {
        for _ in 0..TRIES {
            let next = match bracket(&points, target) {
                (None, Some(more)) => more.scale / STEP,
                (Some(fewer), None) => fewer.scale * STEP,
                (Some(fewer), Some(more)) if more.scale > fewer.scale * CLOSE => {
                    // In the middle part, lest one of them stays for ever.
                    let line = between(fewer, more, target);
                    let ratio = more.scale / fewer.scale;
                    line.clamp(fewer.scale * ratio.powf(0.2), fewer.scale * ratio.powf(0.8))
                }
                _ => break,
            };
            if !(1e-4..=1e4).contains(&next) {
                break;
            }
            at(&mut points, next)?;
        }
        let (fewer, more) = bracket(&points, target);
        // Where none were seen there may be more all the same.
        let fewer = fewer.filter(|point| point.violations.per_s > 0.0 || point.violations.high <= target);
        scales.push(fewer.zip(more).map(|(fewer, more)| between(fewer, more, target)));
    }
    let sure = |&target: &f64| {
        let sure = points.iter().take_while(|point| point.violations.high <= target);
        sure.last().map(|point| point.scale)
    };
    let sure = targets.iter().map(sure).collect();
    Ok(OverRates { points, scales, sure })
}

/// The highest rate below all with more violations than that, and the one above it.
fn bracket(points: &[Point], target: f64) -> (Option<&Point>, Option<&Point>) {
    let more = points.iter().position(|point| point.violations.per_s > target);
    match more {
        None => (points.last(), None),
        Some(i) => (i.checked_sub(1).map(|i| &points[i]), Some(&points[i])),
    }
}

/// The scale at `target` on the line through the logarithms; if none were seen at the lower rate, as if there were as many as may be.
fn between(fewer: &Point, more: &Point, target: f64) -> f64 {
    let often = |point: &Point| match point.violations {
        Violations { per_s, .. } if per_s > 0.0 => per_s.ln(),
        Violations { high, .. } => high.min(target).ln(),
    };
    let (low, high) = (often(fewer), often(more));
    let part = if high > low { (target.ln() - low) / (high - low) } else { 0.5 };
    (fewer.scale.ln() + part * (more.scale / fewer.scale).ln()).exp()
}
