//! Services of a device in groups that have workers of their own: whether that carries more than all on all workers.

use std::collections::HashMap;
use std::fmt;

use planner::certify::{groupings, load_scale};

use super::choice::Choice;
use super::search::{search, within_each_time};

/// Up to so many services all groupings are looked at, of more none.
const FEW: usize = 6;
/// It is told of what carries so many thousandths more at least.
const WORTH: u64 = 50;
/// What is declared, in thousandths.
const ONE: u64 = 1000;

/// How the services of a device would carry more, each group as a device with some of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The names of the services of each group.
    pub groups: Vec<Vec<String>>,
    /// Workers of each.
    pub workers: usize,
    /// How many times as fast all that is reserved could be sent, in thousandths.
    pub carries: u64,
    /// The same on all workers together.
    pub together: u64,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, workers, .. } = self;
        let groups: Vec<_> = groups.iter().map(|group| group.join(" and ")).collect();
        write!(f, "as {} devices with {workers} worker(s) each, for {}", groups.len(), groups.join("; "))
    }
}

/// The split of the services that carries most of what is reserved, if that is all of it and clearly more than they do together.
pub(super) fn split(choice: &Choice<'_>) -> Option<Split> {
    let (device, services) = (choice.device(), choice.sizes.len());
    if services > FEW || device.workers < 2 {
        return None;
    }
    let together = most(choice, 0);
    let mut best: Option<Split> = None;
    for count in (2..=services).filter(|count| device.workers.is_multiple_of(*count)) {
        let mut part = device.clone();
        part.workers /= count;
        let mut known = HashMap::<Vec<usize>, u64>::new();
        for groups in groupings(services, count) {
            let above =
                best.as_ref().map_or((together + together * WORTH / 1000).max(ONE - 1), |best| best.carries);
            // Of a group that carries no more than another split does as a whole it matters not how much.
            let carries = |group: &Vec<usize>| {
                *known.entry(group.clone()).or_insert_with(|| most(&choice.of(&part, group), above))
            };
            let least = groups.iter().map(carries).min().unwrap_or(0);
            if least <= above
                || !groups.iter().all(|group| search(&choice.of(&part, group), &mut |_| {}).is_ok())
            {
                continue;
            }
            let names =
                |group: &Vec<usize>| group.iter().map(|&service| choice.service_name(service)).collect();
            best = Some(Split {
                groups: groups.iter().map(names).collect(),
                workers: part.workers,
                carries: least,
                together,
            });
        }
    }
    best
}

/// How many times as fast all that is reserved may be sent with the batches with which it is most, in thousandths, if that is more than
/// `above`; else that.
fn most(choice: &Choice<'_>, above: u64) -> u64 {
    let mut best = (above, None::<Vec<usize>>);
    let mut look_at = |picks: Vec<usize>| {
        let found = choice.problem(&picks).ok().and_then(|problem| load_scale(&problem, best.0));
        if let Some(scale) = found {
            best = (scale, Some(picks));
        }
        best.1.clone()
    };
    let mut at = None;
    for picks in within_each_time(&choice.sizes) {
        at = look_at(picks);
    }
    for (service, sizes) in choice.sizes.iter().enumerate() {
        for pick in 0..sizes.len() {
            let Some(mut picks) = at.clone() else { break };
            if picks[service] != pick {
                picks[service] = pick;
                at = look_at(picks);
            }
        }
    }
    best.0
}
