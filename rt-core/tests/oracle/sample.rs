//! Instances to judge: at random near what their workers can do, and around the largest rate.

use super::theory::{arrivals_within, density};
use super::{Bound, Group, Instance, Stream};
use crate::harness::Dice;

fn small(dice: &mut Dice, low: u64, high: u64) -> u8 {
    dice.within(low, high) as u8
}

fn random_bound(dice: &mut Dice) -> Bound {
    match dice.within(0, 5) {
        0 | 1 => Bound::Periodic { period: small(dice, 1, 6), jitter: small(dice, 0, 8) },
        2 => {
            let mut list: Vec<u8> = (0..dice.within(0, 2)).map(|_| small(dice, 0, 9)).collect();
            list.push(small(dice, 4, 9));
            list.sort_unstable();
            Bound::Distances(list)
        }
        _ => Bound::Window { count: small(dice, 1, 4), length: small(dice, 1, 9) },
    }
}

fn random_stream(dice: &mut Dice) -> Stream {
    let bounds = (0..1 + dice.within(0, 4) / 4).map(|_| random_bound(dice)).collect();
    let constraint = |dice: &mut Dice| {
        let k = small(dice, 1, 5);
        (small(dice, 0, u64::from(k) - 1), k)
    };
    let constraints = (0..1 + dice.within(0, 3) / 3).map(|_| constraint(dice)).collect();
    Stream { bounds, constraints }
}

fn random_group(dice: &mut Dice, most: u64) -> Group {
    let batch = dice.within(1, 3) as usize;
    let mut times = vec![small(dice, 1, 3)];
    (1..batch).for_each(|b| times.push(times[b - 1] + small(dice, 0, 1)));
    Group { count: dice.within(1, most) as usize, batch, times }
}

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) streams: u64,
    /// Kinds of workers.
    pub(crate) groups: u64,
    /// Requests that may come within a deadline, so that the instance can be exhausted.
    pub(crate) crowd: u64,
}

impl Scale {
    /// An instance whose load is near what its workers can do, so that neither answer is a foregone
    /// conclusion.
    pub(crate) fn draw(self, dice: &mut Dice) -> Instance {
        loop {
            let groups: Vec<_> = (0..self.groups).map(|_| random_group(dice, 4 - self.groups)).collect();
            let slowest = groups.iter().map(|g| u64::from(g.full())).max().expect("a group");
            let streams: Vec<_> = (0..dice.within(1, self.streams)).map(|_| random_stream(dice)).collect();
            let latency = small(dice, 2 * slowest - 1, 4 * slowest + 2);
            let instance = Instance { streams, groups, latency };
            let load = |s: &Stream| {
                let (served, of) = density(&s.constraints);
                arrivals_within(s, 120) * u64::from(served) / u64::from(of)
            };
            let demand: u64 = instance.streams.iter().map(load).sum();
            let capacity: u64 =
                instance.groups.iter().map(|g| 120 * (g.count * g.batch) as u64 / u64::from(g.full())).sum();
            let within = |s: &Stream| arrivals_within(s, u64::from(latency));
            let crowd = instance.streams.iter().map(within).sum::<u64>();
            if (40..=110).contains(&(demand * 100 / capacity)) && crowd <= self.crowd {
                return instance;
            }
        }
    }
}

/// One stream of "`count` per `P`", deadline `2P`: around the largest count of Theorem B.
pub(crate) fn systematic() -> Vec<Instance> {
    let mut all = Vec::new();
    for (count, batch, time) in [(1, 1, 2), (1, 2, 2), (2, 1, 3), (2, 2, 2), (3, 1, 2)] {
        for constraint in [(0, 1), (1, 2), (2, 3), (1, 3), (2, 5)] {
            let (served, of) = density(&[constraint]);
            let largest = (count * batch) as u8 * of / served;
            for most in (largest.max(2) - 1..=largest + 1).filter(|&most| most <= 5) {
                let bounds = vec![Bound::Window { count: most, length: time }];
                let streams = vec![Stream { bounds, constraints: vec![constraint] }];
                let groups = vec![Group { count, batch, times: vec![time; batch] }];
                all.push(Instance { streams, groups, latency: 2 * time });
            }
        }
    }
    all
}
