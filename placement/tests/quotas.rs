//! Theorem Q, played: where quotas add up to 1, whatever comes within the curve is answered in time, beside batches that
//! nothing bounds; and where they do not, something is late.

mod dice;

use std::collections::VecDeque;

use placement::problem::Promise;
use placement::quota::Shape;
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, Span};

use dice::Dice;

/// Equal devices: how many, their batches, how long one takes, and how long another may.
#[derive(Clone, Copy, Debug)]
struct Kind {
    count: u64,
    batch: u64,
    time: u64,
    longest: u64,
}

impl Kind {
    fn random(dice: &mut Dice) -> Self {
        let time = 1 + dice.below(6);
        Self {
            count: 1 + dice.below(3),
            batch: 1 + dice.below(3),
            time,
            longest: time + dice.below(2) * dice.below(6),
        }
    }

    fn quota(&self, promise: &Promise, deadline: u64) -> f64 {
        let [time, longest, deadline] = [self.time, self.longest, deadline].map(Span::from_millis);
        promise.quota(&Shape::alone(self.batch as u32, time, longest), deadline)
    }
}

/// Plays `kinds` for a while; how many mandatory requests were late. At most `count` come in any `window`, of which `hits` of so many are mandatory.
fn late(
    dice: &mut Dice,
    kinds: &[Kind],
    theta: f64,
    (count, window): (u64, u64),
    (hits, of): (u64, u64),
    deadline: u64,
) -> u64 {
    let mut free: Vec<Vec<u64>> = kinds.iter().map(|kind| vec![0; kind.count as usize]).collect();
    let mut queues: Vec<VecDeque<u64>> = vec![VecDeque::new(); kinds.len()];
    let mut came: VecDeque<u64> = VecDeque::new();
    let (mut requests, mut mandatory, mut late) = (0u64, 0u64, 0);
    let eager = dice.below(4);
    for now in 0..400 {
        // Before what comes now: whatever a device may begin, as nothing mandatory waits.
        for at_once in [false, true] {
            for (k, kind) in kinds.iter().enumerate() {
                for device in &mut free[k] {
                    if *device > now {
                        continue;
                    }
                    if queues[k].is_empty() {
                        if !at_once && dice.below(3) > 0 {
                            *device = now + if dice.below(2) == 0 { kind.longest } else { kind.time };
                        }
                        continue;
                    }
                    *device = now + kind.time;
                    for _ in 0..kind.batch {
                        let Some(arrival) = queues[k].pop_front() else { break };
                        late += u64::from(now + kind.time > arrival + deadline);
                    }
                }
            }
            // As much as the curve allows, or less.
            while !at_once && (eager < 3 || dice.below(3) > 0) {
                if came.len() as u64 == count && came.front().is_some_and(|first| now < first + window) {
                    break;
                }
                if came.len() as u64 == count {
                    came.pop_front();
                }
                came.push_back(now);
                requests += 1;
                if requests * hits / of > (requests - 1) * hits / of {
                    mandatory += 1;
                    let share = |j: u64| (j as f64 * theta + 1e-9).floor();
                    let kind = usize::from(kinds.len() == 2 && share(mandatory) <= share(mandatory - 1));
                    queues[kind].push_back(now);
                }
            }
        }
    }
    late
}

#[test]
fn what_quotas_promise_is_kept_and_what_they_refuse_can_be_late() {
    let mut dice = Dice(0x0dd);
    let (mut kept, mut two, mut broken, mut refused) = (0, 0, 0, 0);
    for _ in 0..6_000 {
        let all: Vec<Kind> = (0..1 + dice.below(2)).map(|_| Kind::random(&mut dice)).collect();
        let (count, window, deadline) = (1 + dice.below(8), 2 + dice.below(12), 2 + dice.below(24));
        let of = 1 + dice.below(4);
        let hits = 1 + dice.below(of);
        let bound = ArrivalBound::window(count, Span::from_millis(window)).expect("a window");
        let promise = Promise {
            curve: ArrivalCurve::new(&[bound]).expect("a curve"),
            density: Constraint::any_miss((of - hits) as u32, of as u32).expect("a constraint").density(),
            windows: vec![(count, Span::from_millis(window))],
            m: (of - hits) as u32,
            k: of as u32,
        };
        let parts: Vec<f64> =
            all.iter().map(|kind| kind.count as f64 * kind.quota(&promise, deadline)).collect();
        let total: f64 = parts.iter().sum();
        let theta = if total > 0.0 { parts[0] / total } else { 0.5 };
        let missed: u64 =
            (0..6).map(|_| late(&mut dice, &all, theta, (count, window), (hits, of), deadline)).sum();
        if total >= 1.0 - 1e-9 {
            assert_eq!(
                missed, 0,
                "{all:?}, {count} in {window}, {hits} of {of}, deadline {deadline}, theta {theta}"
            );
            kept += 1;
            two += usize::from(all.len() == 2 && parts.iter().all(|part| *part < 1.0));
        } else if all.len() == 1 {
            refused += 1;
            broken += usize::from(missed > 0);
        }
    }
    println!(
        "{kept} kept, {two} of them by two kinds that do not alone; of {refused} refused for one kind {broken} were broken"
    );
    assert!(kept > 500 && two > 30 && broken * 2 > refused, "{kept} {two} {broken} {refused}");
}
