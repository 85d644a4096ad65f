//! Small boxes against an enumeration of everything that their devices may hold, which shares no code with what is tested.

mod dice;

use std::collections::BTreeMap;
use std::time::Duration;

use microlp::{ComparisonOp, OptimizationDirection, Variable};
use placement::{Answer, Problem, place};
use serde_json::{Value, json};

use dice::Dice;

/// Accuracy, and by class the time of each size of batch.
type Variant = (f64, Vec<Vec<(u64, u64)>>);

/// What one device does for one service.
#[derive(Clone, Debug)]
struct Part {
    service: usize,
    /// Seconds a request takes of the device, and points.
    posts: Vec<(f64, f64)>,
    /// Batch, time, what it is blocked by, turn, and the other's part of a round; what it counts for by quota.
    kind: Option<([u64; 5], f64)>,
}

type Hosted = Vec<Part>;

/// At most so many services and sizes of batches, and whether of some services nothing is demanded.
type Drawn = (u64, u64, bool);

#[derive(Clone, Debug)]
struct Service {
    demand: f64,
    deadline: u64,
    weight: f64,
    /// Accuracy, and by class the time of each batch.
    variants: Vec<Variant>,
    /// Requests, window, share that is mandatory.
    promise: Option<(u64, u64, u64, u64)>,
}

impl Service {
    fn rises(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (count, window, hits, of) = self.promise.unwrap_or((0, 1, 0, 1));
        (0..400).map(move |i| (i * window, (count * (i + 1) * hits).div_ceil(of)))
    }

    fn quota(&self, kind: [u64; 5]) -> f64 {
        let [batch, time, blocked, turn, others] = kind;
        let (count, window, hits, of) = self.promise.unwrap_or((1, 1, 1, 1));
        let rate = (turn * batch) as f64 / (others + turn * time) as f64;
        let mut quota: f64 = (rate * (window * of) as f64 / (count * hits) as f64).min(1.0);
        for (length, requests) in self.rises() {
            let done = (1..)
                .take_while(|i: &u64| {
                    blocked + i.div_ceil(turn) * others + i * time <= length + self.deadline
                })
                .count();
            quota = quota.min((batch * done as u64) as f64 / requests as f64);
        }
        quota
    }

    /// Batch and time of what may run on a class.
    fn posts(&self, class: usize, alone: bool) -> Vec<(usize, u64, u64)> {
        let mut posts = Vec::new();
        for (variant, (_, classes)) in self.variants.iter().enumerate() {
            let fits = |time: u64| {
                if self.promise.is_none() && alone {
                    2 * time <= self.deadline
                } else {
                    time <= self.deadline
                }
            };
            let mut all: Vec<_> = classes[class]
                .iter()
                .filter(|(_, time)| fits(*time))
                .map(|&(b, t)| (variant, b, t))
                .collect();
            if self.promise.is_none() && alone {
                // Without a promise the best peak alone.
                all.sort_by(|a, b| (b.1 * a.2).cmp(&(a.1 * b.2)));
                all.truncate(1);
            }
            posts.extend(all);
        }
        posts
    }

    fn kept(&self, parts: &[&Part]) -> bool {
        if self.promise.is_none() {
            return true;
        }
        let mut kinds: BTreeMap<[u64; 5], f64> = BTreeMap::new();
        for part in parts {
            if let Some((kind, quota)) = part.kind {
                *kinds.entry(kind).or_default() += quota;
            }
        }
        let mut sums: Vec<f64> = kinds.values().copied().collect();
        sums.sort_by(|a, b| b.total_cmp(a));
        if sums.iter().take(2).sum::<f64>() >= 1.0 - 1e-9 {
            return true;
        }
        // One queue, the longest batch of which blocks all.
        let plain: Vec<[u64; 5]> = parts
            .iter()
            .filter_map(|part| part.kind)
            .map(|(kind, _)| kind)
            .filter(|k| k[4] == 0 && k[1] == k[2])
            .collect();
        plain.iter().any(|longest| {
            let pool = || plain.iter().filter(|kind| kind[1] <= longest[1]);
            let rate: f64 = pool().map(|kind| kind[0] as f64 / kind[1] as f64).sum();
            let (count, window, hits, of) = self.promise.expect("a promise");
            let enough = rate * (window * of) as f64 >= (count * hits) as f64 * (1.0 + 1e-3);
            enough
                && self.rises().all(|(length, requests)| {
                    let left = (length + self.deadline).saturating_sub(longest[1]);
                    pool().map(|kind| kind[0] * (left / kind[1])).sum::<u64>() >= requests
                })
        })
    }
}

/// All that a device of a class may hold.
fn hosted(services: &[Service], class: usize, rounds: &[(u64, u64)], switch: bool) -> Vec<Hosted> {
    let post = |s: usize, (variant, batch, time): (usize, u64, u64)| {
        (time as f64 / 1e3 / batch as f64, services[s].variants[variant].0)
    };
    let kind = |s: usize, kind: [u64; 5]| {
        services[s].promise.map(|_| (kind, services[s].quota(kind))).filter(|(_, quota)| *quota > 0.0)
    };
    let mut all: Vec<Hosted> = vec![Vec::new()];
    for (s, service) in services.iter().enumerate() {
        for base in service.posts(class, true) {
            let plain = kind(s, [base.1, base.2, base.2, 1, 0]);
            all.push(vec![Part { service: s, posts: vec![post(s, base)], kind: plain }]);
            if !switch || service.promise.is_none() {
                continue;
            }
            for better in service
                .posts(class, true)
                .into_iter()
                .filter(|b| service.variants[b.0].0 > service.variants[base.0].0)
            {
                let kind = kind(s, [base.1, base.2, base.2.max(better.2), 1, 0]);
                if kind.is_some() {
                    all.push(vec![Part { service: s, posts: vec![post(s, base), post(s, better)], kind }]);
                }
            }
        }
        for (other, theirs) in services.iter().enumerate().skip(s + 1) {
            for (a, b) in service
                .posts(class, false)
                .into_iter()
                .flat_map(|a| theirs.posts(class, false).into_iter().map(move |b| (a, b)))
            {
                for &(turn, turn_of_other) in rounds {
                    // One batch of either that nothing waited for, and then a whole turn of the other.
                    let part = |s: usize, own: (usize, u64, u64), turn: u64, (others, each): (u64, u64)| {
                        let shape = [own.1, own.2, own.2.max(each), turn, others * each];
                        let in_time = own.2.max(each) + others * each + own.2 <= services[s].deadline;
                        in_time.then(|| Part { service: s, posts: vec![post(s, own)], kind: kind(s, shape) })
                    };
                    let both =
                        [part(s, a, turn, (turn_of_other, b.2)), part(other, b, turn_of_other, (turn, a.2))];
                    if let [Some(one), Some(two)] = both {
                        all.push(vec![one, two]);
                    }
                }
            }
        }
    }
    all
}

/// The most accurate flows through devices that hold this; `None` if not all demand is served.
fn filled(services: &[Service], devices: &[&Hosted]) -> Option<f64> {
    let worth: f64 = services.iter().map(|service| service.weight * service.demand).sum();
    let worth = if worth > 0.0 { worth } else { 1.0 };
    let mut program = microlp::Problem::new(OptimizationDirection::Maximize);
    let mut served: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); services.len()];
    for held in devices {
        let mut busy = Vec::new();
        for part in *held {
            for &(seconds, accuracy) in &part.posts {
                let service = &services[part.service];
                let share = program.add_var(service.weight * service.demand * accuracy / worth, (0.0, 1.0));
                busy.push((share, seconds * service.demand));
                served[part.service].push((share, 1.0));
            }
        }
        if !busy.is_empty() {
            program.add_constraint(busy.as_slice(), ComparisonOp::Le, 1.0);
        }
    }
    for (row, _) in served.iter().zip(services).filter(|(_, service)| service.demand > 0.0) {
        if row.is_empty() {
            return None;
        }
        program.add_constraint(row.as_slice(), ComparisonOp::Eq, 1.0);
    }
    Some(program.solve().ok()?.into_solution().ok()?.objective())
}

/// The best of all hostings.
fn enumerated(services: &[Service], classes: &[usize], rounds: &[(u64, u64)], switch: bool) -> Option<f64> {
    let all: Vec<Vec<Hosted>> =
        (0..classes.len()).map(|class| hosted(services, class, rounds, switch)).collect();
    let mut slots: Vec<usize> = Vec::new();
    classes.iter().enumerate().for_each(|(class, &count)| slots.extend(std::iter::repeat_n(class, count)));
    let mut best: Option<f64> = None;
    let mut chosen: Vec<usize> = Vec::new();
    fn descend<'a>(
        slots: &[usize],
        all: &'a [Vec<Hosted>],
        chosen: &mut Vec<usize>,
        judge: &mut dyn FnMut(&[&'a Hosted]),
    ) {
        let at = chosen.len();
        if at == slots.len() {
            let devices: Vec<&Hosted> = chosen.iter().zip(slots).map(|(&i, &class)| &all[class][i]).collect();
            return judge(&devices);
        }
        // Devices of a class are equal: in order.
        let first = if at > 0 && slots[at - 1] == slots[at] { chosen[at - 1] } else { 0 };
        for i in first..all[slots[at]].len() {
            chosen.push(i);
            descend(slots, all, chosen, judge);
            chosen.pop();
        }
    }
    descend(&slots, &all, &mut chosen, &mut |devices| {
        let kept = services.iter().enumerate().all(|(s, service)| {
            let parts: Vec<&Part> =
                devices.iter().flat_map(|held| held.iter()).filter(|part| part.service == s).collect();
            service.kept(&parts)
        });
        if kept && let Some(value) = filled(services, devices) {
            best = Some(best.map_or(value, |known| known.max(value)));
        }
    });
    best
}

fn as_json(services: &[Service], classes: &[usize], rounds: &[(u64, u64)], switch: bool) -> Value {
    let name = |class: usize| format!("c{class}");
    let devices: BTreeMap<String, usize> =
        classes.iter().enumerate().map(|(class, &count)| (name(class), count)).collect();
    let of = |service: &Service| {
        let variant = |(v, (accuracy, classes)): (usize, &Variant)| {
            let times: BTreeMap<String, BTreeMap<String, u64>> = classes
                .iter()
                .enumerate()
                .map(|(class, times)| (name(class), times.iter().map(|(b, t)| (b.to_string(), *t)).collect()))
                .collect();
            json!({"name": format!("v{v}"), "accuracy": accuracy, "time": times})
        };
        let variants: Vec<Value> = service.variants.iter().enumerate().map(variant).collect();
        let mut value = json!({"demand": service.demand, "deadline": service.deadline, "weight": service.weight, "variants": variants});
        if let Some((count, window, hits, of)) = service.promise {
            value["promise"] = json!({"windows": [[count, window]], "m": of - hits, "K": of});
        }
        value
    };
    let mut all: Vec<Value> = services.iter().map(of).collect();
    all.iter_mut().enumerate().for_each(|(s, value)| value["name"] = json!(format!("s{s}")));
    json!({"devices": devices, "services": all, "share": rounds, "switch": switch})
}

fn random(dice: &mut Dice, (most_services, sizes, idle): Drawn) -> (Vec<Service>, Vec<usize>) {
    let classes: Vec<usize> = (0..dice.within(1, 2)).map(|_| dice.within(1, 2) as usize).collect();
    let service = |dice: &mut Dice| {
        let mut accuracy = 60.0;
        let variants = (0..2).map(|v| {
            accuracy += dice.within(1, 15) as f64;
            let times = classes.iter().map(|_| {
                let mut time = dice.within(1, 6) << v;
                let mut batches = vec![(1, time)];
                for more in 1..sizes {
                    time += dice.within(0, 2 * batches[0].1);
                    batches.push((1 + 2 * more, time));
                }
                batches
            });
            (accuracy, times.collect())
        });
        let variants: Vec<_> = variants.collect();
        let deadline = dice.within(6, 40);
        let promise = (dice.below(4) > 0).then(|| {
            let of = dice.within(1, 4);
            (dice.within(1, 6), dice.within(4, 30), dice.within(1, of), of)
        });
        Service {
            demand: if idle && dice.below(2) > 0 { 0.0 } else { dice.within(10, 250) as f64 },
            deadline,
            weight: dice.within(1, 3) as f64,
            variants,
            promise,
        }
    };
    let services = (0..dice.within(1, most_services)).map(|_| service(dice)).collect();
    (services, classes)
}

/// Places and enumerates `problems` of them; how many fit.
fn compare((seed, problems): (u64, usize), drawn: Drawn, rounds: &[(u64, u64)], switch: bool) -> usize {
    let (mut dice, mut fit) = (Dice(seed), 0);
    for problem in 0..problems {
        let (services, classes) = random(&mut dice, drawn);
        let text = as_json(&services, &classes, rounds, switch).to_string();
        let parsed = Problem::parse(&text).expect("a problem");
        let placed = place(&parsed, Duration::from_secs(60))
            .unwrap_or_else(|error| panic!("{problem}: {error}: {text}"));
        let answer = Answer::new(&parsed, &placed);
        let best = enumerated(&services, &classes, rounds, switch);
        assert_eq!(answer.feasible, best.is_some(), "{problem}: {best:?}: {text}");
        if let (Some(best), Some(found)) = (best, answer.accuracy) {
            assert!((found - best).abs() < 1e-3, "{problem}: found {found}, best {best}: {text}");
            assert!(
                answer.bound.is_some_and(|bound| bound >= best - 1e-6),
                "{problem}: {:?} bounds {best}: {text}",
                answer.bound
            );
            fit += 1;
        }
    }
    fit
}

#[test]
fn plans_of_small_boxes_are_as_good_as_the_best_of_all() {
    let fit = compare((0x5eed, 150), (3, 2, false), &[], false);
    assert!(fit >= 40, "only {fit} fit");
}

#[test]
fn plans_with_a_better_variant_beside_the_base_are_as_good_as_the_best_of_all() {
    let fit = compare((0xbeef, 100), (2, 2, false), &[], true);
    assert!(fit >= 40, "only {fit} fit");
}

#[test]
fn plans_with_shared_devices_are_as_good_as_the_best_of_all() {
    let fit = compare((0xcafe, 60), (2, 2, false), &[(1, 1), (2, 1)], true);
    assert!(fit >= 20, "only {fit} fit");
    let fit = compare((0xb0de, 60), (2, 2, false), &[(1, 2), (2, 1)], false);
    assert!(fit >= 20, "only {fit} fit");
}

#[test]
fn what_is_left_out_among_many_sizes_of_batches_is_in_no_best_plan() {
    let fit = compare((0xfade, 60), (2, 4, false), &[], false);
    assert!(fit >= 25, "only {fit} fit");
    let fit = compare((0xface, 40), (2, 3, false), &[], true);
    assert!(fit >= 15, "only {fit} fit");
    let fit = compare((0xdead, 20), (2, 3, false), &[(1, 1), (1, 2)], false);
    assert!(fit >= 8, "only {fit} fit");
}

#[test]
fn plans_where_nothing_is_demanded_of_some_services_are_as_good_as_the_best_of_all() {
    let fit = compare((0xd1ce, 60), (3, 2, true), &[], true);
    assert!(fit >= 10, "only {fit} fit");
    let fit = compare((0xfeed, 100), (2, 2, true), &[(1, 1), (1, 4)], false);
    assert!(fit >= 20, "only {fit} fit");
}
