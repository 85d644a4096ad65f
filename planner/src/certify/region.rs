//! How much of one service a device can carry beside how much of another: the edge of what is admissible.

use rt_core::StreamSpec;
use rt_core::sharing::Rule;

use super::MAX_SCALE;
use super::decide::lists;
use super::scale::{ONE, faster};
use super::shared::{MAX_POINTS, bisect};
use crate::problem::SharedProblem;

/// The edge for services `one` and `other` of `problem`, by `rule` with `turns`, the other services as they are: for each of
/// `points + 1` evenly spaced scales of the first, from 0 to the largest, the largest scale of the second. A scale says how
/// many times as fast the streams send; it is in steps of a thousandth and at most [`MAX_SCALE`]. Empty if nothing is promised
/// of one of them, or even with neither of them the others are not admissible.
///
/// Every point is admissible; a load that would have to be looked at for too long counts as not admitted.
///
/// `observe` hears how many of these have been found.
///
/// # Panics
/// If there are no such services.
#[must_use]
pub fn region(
    problem: &SharedProblem,
    (rule, turns): (Rule, &[u32]),
    (one, other): (usize, usize),
    points: u64,
    observe: &mut dyn FnMut(u64),
) -> Vec<(f64, f64)> {
    let specs: Vec<Vec<StreamSpec>> = problem.specs().collect();
    let passes = |x: u64, y: u64| {
        let scaled = |(s, list): (usize, &Vec<StreamSpec>)| {
            let scale = if s == one {
                x
            } else if s == other {
                y
            } else {
                ONE
            };
            match scale {
                0 => Some(Vec::new()),
                _ => list.iter().map(|spec| faster(spec, scale)).collect::<Option<Vec<_>>>(),
            }
        };
        let specs: Option<Vec<_>> = specs.iter().enumerate().map(scaled).collect();
        specs.is_some_and(|specs| problem.sharing(rule, turns).admits(&lists(&specs), MAX_POINTS).is_ok())
    };
    let demands = |s: usize| specs[s].iter().any(|spec| spec.demand().is_some());
    if !demands(one) || !demands(other) || !passes(0, 0) {
        return Vec::new();
    }
    let most = |passes: &dyn Fn(u64) -> bool| match passes(MAX_SCALE * ONE) {
        true => MAX_SCALE * ONE,
        false => bisect(0, MAX_SCALE * ONE, passes),
    };
    let widest = most(&|x| passes(x, 0));
    let points = points.max(1);
    let edge = (0..=points).map(|i| {
        observe(i);
        let x = widest * i / points;
        (x as f64 / ONE as f64, most(&|y| passes(x, y)) as f64 / ONE as f64)
    });
    edge.collect()
}

/// Requests a second of a service as its streams declare them, of those that are promised something.
#[must_use]
pub fn promised_per_s(problem: &SharedProblem, service: usize) -> f64 {
    let streams = problem.services[service].streams.iter();
    streams.filter_map(|(_, spec)| spec.demand()).map(|(_, arrivals)| arrivals.rate_per_s()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Question;

    fn problem() -> SharedProblem {
        let text = r#"{"unit": "ms", "workers": {"count": 1}, "rule": "edf", "services": [
            {"name": "a", "deadline": 40, "batch": 2, "time": 4, "streams": [
                {"name": "x", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 50]]}}]},
            {"name": "b", "deadline": 30, "batch": 1, "time": 3, "streams": [
                {"name": "x", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 20]]}}]},
            {"name": "c", "deadline": 90, "batch": 1, "time": 5, "streams": [{"name": "log"}]}]}"#;
        match Question::parse(text).expect("a problem") {
            Question::Shared(problem) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_point_of_the_edge_is_admissible_and_little_more_is_not() {
        let (problem, turns) = (problem(), [1, 1, 1]);
        let mut seen = Vec::new();
        let edge = region(&problem, (Rule::Earliest, &turns), (0, 1), 8, &mut |point| seen.push(point));
        assert_eq!(seen, (0..=8).collect::<Vec<_>>());
        assert_eq!((edge.len(), edge[0].0), (9, 0.0));
        // More of one leaves no more of the other.
        assert!(edge.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 >= pair[1].1), "{edge:?}");
        assert!(edge[0].1 > 1.0 && edge[8].0 > 1.0, "what is declared is well within: {edge:?}");
        let specs: Vec<Vec<StreamSpec>> = problem.specs().collect();
        let admits = |x: f64, y: f64| {
            let of = |list: &[StreamSpec], scale: f64| match (scale * 1000.0).round() as u64 {
                0 => Vec::new(),
                scale => list.iter().map(|spec| faster(spec, scale).expect("in range")).collect(),
            };
            let scaled = [of(&specs[0], x), of(&specs[1], y), specs[2].clone()];
            let streams: Vec<&[StreamSpec]> = scaled.iter().map(Vec::as_slice).collect();
            problem.sharing(Rule::Earliest, &turns).admit(&streams).is_ok()
        };
        for &(x, y) in &edge {
            // Close to capacity a load may be one that is looked at for too long.
            assert!(admits(x, y) && !admits(x, 1.03 * y + 0.03), "{x}, {y}");
        }
        assert!((promised_per_s(&problem, 0) - 40.0).abs() < 1e-9);
    }

    #[test]
    fn where_nothing_is_promised_there_is_no_edge() {
        assert!(region(&problem(), (Rule::Earliest, &[1, 1, 1]), (0, 2), 8, &mut |_| {}).is_empty());
    }
}
