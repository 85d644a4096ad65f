//! Where runs are copied: levels of nearness that are reached ever more seldom, found by trying.

use rt_core::Instant;

use super::path::{Count, Levels, Path};
use crate::dice::Dice;
use crate::policy::PlayError;

/// Steps of nearness that are told apart.
const STEPS: usize = 240;
/// A level is told from so many runs that reached it on.
const ENOUGH: u64 = 20;
/// From one level to the next it comes so seldom at least.
const RATIO: f64 = 4.0;
/// Copies at a level, with the run itself, at most.
const MOST: f64 = 64.0;
/// Tries at most.
const TRIES: usize = 40;

/// What was found by trying.
pub(super) struct Tried {
    pub(super) levels: Levels,
    /// Steps of a run and all of its copies for a second of the run.
    pub(super) steps_per_s: f64,
}

/// How often each step of nearness was reached from below.
struct Reached {
    often: Vec<f64>,
    runs: Vec<u64>,
    violations: u64,
}

impl Count for Reached {
    fn step(&mut self, _: Instant, weight: f64, (before, after): (f64, f64), begun: u64) {
        self.violations += begun;
        let step = |near: f64| (near * STEPS as f64) as usize;
        for i in step(before) + 1..=step(after).min(STEPS - 1) {
            self.often[i] += weight;
            self.runs[i] += 1;
        }
    }
}

/// Finds levels for runs like `path` by tries of `effort` steps each, until violations are seen, or it comes no nearer.
///
/// # Errors
/// If the arrivals go back.
pub(super) fn find(path: &Path, (capacity, seed): (f64, u64), effort: u64) -> Result<Tried, PlayError> {
    let (mut dice, mut levels, mut stuck) = (Dice(seed), Levels::default(), 0);
    for tried in 0.. {
        let mut reached = Reached { often: vec![0.0; STEPS], runs: vec![0; STEPS], violations: 0 };
        let far = Instant::from_nanos(u64::MAX / 2);
        let end = (far, effort << stuck);
        let (taken, until) = path.clone().go(&levels, (capacity, dice.next()), end, &mut reached)?;
        let steps_per_s = taken as f64 / until.since(Instant::ZERO).as_secs_f64().max(1e-9);
        if reached.violations >= 5 * ENOUGH || tried >= TRIES || stuck > 3 {
            return Ok(Tried { levels, steps_per_s });
        }
        let next = reached.levels();
        stuck = if next.thresholds.last() <= levels.thresholds.last() { stuck + 1 } else { 0 };
        if stuck == 0 {
            levels = next;
        }
    }
    unreachable!("it was tried often enough")
}

impl Reached {
    /// Those that enough runs reached, each so much more seldom than the one before that copies are worth it.
    fn levels(&self) -> Levels {
        let mut levels = Levels::default();
        let mut last = self.often[1..].iter().copied().find(|often| *often > 0.0).unwrap_or(1.0);
        for (i, &often) in self.often.iter().enumerate().skip(1) {
            let ratio = last / often;
            if self.runs[i] >= ENOUGH && ratio >= RATIO {
                levels.thresholds.push(i as f64 / STEPS as f64);
                levels.splits.push(ratio.min(MOST).round() as u32);
                last = often;
            }
        }
        levels
    }
}
