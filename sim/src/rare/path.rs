//! A run that can be copied where it comes near to what is rare (RESTART).

use rt_core::{Instant, Outcome, Span};
use virtual_time::{Order, Scheduled, Walk};

use super::coming::Coming;
use super::record::Record;
use crate::dice::Dice;
use crate::policy::PlayError;

/// How near a run comes before it is copied, and how many go on from there.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    /// Rising, each above 0 and below 1.
    pub(super) thresholds: Vec<f64>,
    /// At each at least 2.
    pub(super) splits: Vec<u32>,
}

impl Levels {
    /// How many of them are reached.
    fn of(&self, near: f64) -> usize {
        self.thresholds.partition_point(|threshold| *threshold <= near)
    }

    /// What a run counts for where so many are reached: there go as many beside it as all of these were split into.
    fn weight(&self, reached: usize) -> f64 {
        self.splits[..reached].iter().map(|split| 1.0 / f64::from(*split)).product()
    }
}

/// The state of a run.
#[derive(Clone, Debug)]
pub(super) struct Path {
    walk: Walk<Scheduled>,
    next: Option<(Instant, usize)>,
    arrivals: Coming,
    record: Record,
    /// It ends where fewer levels are reached.
    born: usize,
    reached: usize,
    near: f64,
}

/// Copies of a run that are still to go on, at least one, each from what comes by its seed. They are made one by one: all at once they are
/// more memory than is at hand.
struct Copies {
    of: Path,
    seeds: Vec<u64>,
}

/// The copy that goes on next.
fn next(left: &mut Vec<Copies>) -> Option<Path> {
    let copies = left.last_mut()?;
    let seed = copies.seeds.pop()?;
    let mut copy = if copies.seeds.is_empty() { left.pop()?.of } else { copies.of.clone() };
    copy.next = copy.arrivals.redraw(copy.walk.now(), seed);
    Some(copy)
}

/// What is counted while runs go on.
pub(super) trait Count {
    /// A run that counts for `weight` came from `before` to `after`, as near as that, and `begun` violations began.
    fn step(&mut self, now: Instant, weight: f64, nearness: (f64, f64), begun: u64);
}

impl Path {
    pub(super) fn new(policy: Scheduled, mut arrivals: Coming, record: Record) -> Self {
        Self {
            walk: Walk::new(policy),
            next: arrivals.next(),
            arrivals,
            record,
            born: 0,
            reached: 0,
            near: 0.0,
        }
    }

    /// Goes on until `end`, or for so many `steps` of all copies together, with as many copies as `levels` say. `capacity` requests may
    /// wait before some are missed. How many steps it took, and until when the run itself came.
    ///
    /// # Errors
    /// If the arrivals go back.
    pub(super) fn go(
        self,
        levels: &Levels,
        (capacity, seed): (f64, u64),
        (end, steps): (Instant, u64),
        count: &mut impl Count,
    ) -> Result<(u64, Instant), PlayError> {
        let (mut dice, mut taken, mut until) = (Dice(seed), 0, Instant::ZERO);
        let (mut path, mut left) = (self, Vec::new());
        loop {
            // A copy that was made on the way to further levels is split there too.
            while path.reached < levels.of(path.near) {
                path.reached += 1;
                let seeds: Vec<_> = (1..levels.splits[path.reached - 1]).map(|_| dice.next()).collect();
                if !seeds.is_empty() {
                    left.push(Copies { of: Self { born: path.reached, ..path.clone() }, seeds });
                }
            }
            if taken >= steps {
                break;
            }
            if path.step()? {
                taken += 1;
                let now = path.walk.now();
                if path.born == 0 {
                    until = now;
                }
                if now <= end {
                    let near = path.nearness(capacity);
                    count.step(now, levels.weight(path.reached), (path.near, near), path.record.begun());
                    path.near = near;
                    path.reached = path.reached.min(levels.of(near));
                    if path.reached >= path.born {
                        continue;
                    }
                }
            }
            let Some(copy) = next(&mut left) else { break };
            path = copy;
        }
        Ok((taken, until))
    }

    fn step(&mut self) -> Result<bool, PlayError> {
        // As the daemon: it decides after each thing that happens.
        let order = Order::CompletionsFirst;
        let bound = |_, _, bound: Span| bound;
        Ok(self.walk.step(&mut self.next, &mut self.arrivals, order, bound, &mut self.record)?)
    }

    fn nearness(&self, capacity: f64) -> f64 {
        let (mut waiting, mut missed) = (0, 0);
        for (request, ended) in self.walk.open() {
            match (ended, request.outcome) {
                (false, _) => waiting += 1,
                (true, Outcome::Missed(_)) => missed += usize::from(self.record.is_of(request.stream)),
                (true, _) => {}
            }
        }
        self.record.nearness(missed, (f64::from(waiting) / capacity).min(0.99))
    }
}
