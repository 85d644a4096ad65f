//! Services on all workers together, or in groups that have some each: how much of what is declared either carries.

use rt_core::sharing::Rule;

use super::MAX_SCALE;
use super::decide::{lists, shortest_turns};
use super::scale::ONE;
use super::shared::{MAX_POINTS, bisect, sent_faster};
use crate::problem::SharedProblem;

/// All ways to put so many services into so many groups, none of them empty; each group in order, and they by their first.
#[must_use]
pub fn groupings(services: usize, groups: usize) -> Vec<Vec<Vec<usize>>> {
    let mut all = vec![Vec::<Vec<usize>>::new()];
    for service in 0..services {
        let with = |grouped: Vec<Vec<usize>>| {
            // It joins a group, or begins the next.
            let places = 0..groups.min(grouped.len() + 1);
            places.map(move |place| {
                let mut grouped = grouped.clone();
                match grouped.get_mut(place) {
                    Some(group) => group.push(service),
                    None => grouped.push(vec![service]),
                }
                grouped
            })
        };
        all = all.into_iter().flat_map(with).collect();
    }
    all.retain(|grouped| grouped.len() == groups);
    all
}

/// How many times as fast all streams of `problem` may send, in thousandths up to 1000 times, if that is more than `above`: by the
/// rule with which it is most.
#[must_use]
pub fn load_scale(problem: &SharedProblem, above: u64) -> Option<u64> {
    let (least, most) = (above + 1, MAX_SCALE * ONE);
    if least > most || !carries(problem, least) {
        return None;
    }
    Some(if carries(problem, most) { most } else { bisect(least, most, |scale| carries(problem, scale)) })
}

/// Whether all is kept by some rule if all streams send so many thousandths times as fast.
fn carries(problem: &SharedProblem, scale: u64) -> bool {
    let Some(specs) = sent_faster(problem, scale, None) else { return false };
    let stated: Vec<u32> = problem.services.iter().map(|service| service.turn.unwrap_or(1)).collect();
    let rules = [Rule::Earliest, Rule::Turns].into_iter();
    let admits = |rule, turns: &[u32]| problem.sharing(rule, turns).admits(&lists(&specs), MAX_POINTS);
    rules.filter(|&rule| problem.rule.is_none_or(|asked| asked == rule)).any(|rule| match rule {
        Rule::Earliest => admits(rule, &stated).is_ok(),
        Rule::Turns => shortest_turns(problem, stated.clone(), |turns| admits(rule, turns)).is_ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certify::certify_shared;
    use crate::problem::Question;

    #[test]
    fn every_grouping_is_there_once() {
        // Stirling numbers of the second kind.
        for (services, groups, count) in
            [(1, 1, 1), (3, 2, 3), (4, 2, 7), (4, 3, 6), (6, 2, 31), (6, 3, 90), (2, 3, 0)]
        {
            let all = groupings(services, groups);
            let mut sorted = all.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!((all.len(), sorted.len()), (count, count), "{services} services in {groups} groups");
            for grouped in &all {
                let mut members = grouped.concat();
                members.sort_unstable();
                assert_eq!(members, (0..services).collect::<Vec<_>>());
                assert!(grouped.iter().all(|group| !group.is_empty()));
            }
        }
        assert_eq!(groupings(3, 2)[0], [vec![0, 1], vec![2]]);
    }

    /// As the limit that `certify` tells, which keeps the rule and the turns of its answer, or more.
    #[test]
    fn the_scale_is_at_least_the_limit_and_the_next_is_refused() {
        for (rule, batch) in [("edf", 2), ("turns", 2), ("auto", 1), ("auto", 2)] {
            let text = format!(
                r#"{{"unit": "ms", "background": true, "workers": {{"count": 2}}, "rule": "{rule}", "services": [
                {{"name": "a", "deadline": 25, "batch": {batch}, "times": [2, 3], "streams": [{{"name": "s",
                  "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[3, 33]]}}}}]}},
                {{"name": "b", "deadline": 40, "batch": 2, "times": [4, 5], "streams": [{{"name": "s",
                  "constraints": ["any_miss(1,3)"], "arrivals": {{"periodic": {{"period": 30, "jitter": 5}}}}}}]}}]}}"#
            );
            let Ok(Question::Shared(problem)) = Question::parse(&text) else { panic!("{text}") };
            let limit = certify_shared(&problem).max_load_scale.expect("something is promised").to_string();
            let limit = (limit.parse::<f64>().expect("a number") * 1000.0).round() as u64;
            let scale = load_scale(&problem, 0).expect("it can be sent slowly enough");
            assert!(scale >= limit && limit > 1000, "{rule}: {scale} thousandths, certified are {limit}");
            assert!(rule == "auto" || batch == 1 || scale == limit, "{rule}: {scale} and {limit}");
            assert_eq!(load_scale(&problem, scale), None);
            assert_eq!(load_scale(&problem, scale - 1), Some(scale));
        }
    }
}
