//! Small pipelines against an enumeration of what every device may run, and the best flows along all paths.

mod dice;

use std::collections::BTreeMap;
use std::time::Duration;

use microlp::{ComparisonOp, OptimizationDirection, Variable};
use placement::{Answer, Problem, place};
use serde_json::{Value, json};

use dice::Dice;

/// Accuracy, and by class the time of each size of batch.
type Variant = (f64, Vec<Vec<(u64, u64)>>);

/// Stage, variant, size of batch and its time.
type Post = (usize, usize, u64, u64);

/// A root with one or two leaves.
struct Tree {
    slo: u64,
    demand: f64,
    /// Of each stage and variant: accuracy, and times by class and batch.
    stages: Vec<Vec<Variant>>,
    /// Requests of a leaf by variant of the root.
    requests: Vec<Vec<f64>>,
}

impl Tree {
    fn random(dice: &mut Dice, classes: usize) -> Self {
        let leaves = dice.within(1, 2) as usize;
        let mut variants = || {
            (0..2u64)
                .map(|v| {
                    let times = (0..classes).map(|_| {
                        let one = dice.within(1, 6) << v;
                        vec![(1, one), (4, one + dice.within(1, 3 * one))]
                    });
                    let times = times.collect();
                    (dice.within(60, 80) as f64 + 10.0 * v as f64, times)
                })
                .collect()
        };
        let stages = (0..=leaves).map(|_| variants()).collect();
        let requests =
            (0..leaves).map(|_| (0..2).map(|_| dice.within(2, 30) as f64 / 10.0).collect()).collect();
        Self { slo: dice.within(20, 90), demand: dice.within(5, 120) as f64, stages, requests }
    }

    fn as_json(&self, devices: &[usize]) -> Value {
        let class = |c: usize| format!("c{c}");
        let variants = |of: &[Variant]| -> Vec<Value> {
            let variant = |(v, (accuracy, classes)): (usize, &Variant)| {
                let times: BTreeMap<_, BTreeMap<_, _>> = classes
                    .iter()
                    .enumerate()
                    .map(|(c, times)| (class(c), times.iter().map(|(b, t)| (b.to_string(), *t)).collect()))
                    .collect();
                json!({"name": format!("v{v}"), "accuracy": accuracy, "time": times})
            };
            of.iter().enumerate().map(variant).collect()
        };
        let mut stages = vec![json!({"name": "root", "variants": variants(&self.stages[0])})];
        let mut mult: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for (leaf, requests) in self.requests.iter().enumerate() {
            let name = format!("leaf{leaf}");
            stages
                .push(json!({"name": name, "parent": "root", "variants": variants(&self.stages[leaf + 1])}));
            for (v, of) in requests.iter().enumerate() {
                mult.entry(format!("v{v}")).or_default().insert(name.clone(), *of);
            }
        }
        let devices: BTreeMap<_, _> =
            devices.iter().enumerate().map(|(c, count)| (class(c), count)).collect();
        json!({"devices": devices, "pipelines": [
            {"name": "p", "slo": self.slo, "demand": self.demand, "stages": stages, "mult": {"root": mult}}]})
    }

    /// What a device of a class may run; nothing, too.
    fn posts(&self, class: usize) -> Vec<Option<Post>> {
        let mut posts = vec![None];
        for (stage, variants) in self.stages.iter().enumerate() {
            for (variant, (_, times)) in variants.iter().enumerate() {
                posts.extend(times[class].iter().map(|&(batch, time)| Some((stage, variant, batch, time))));
            }
        }
        posts
    }

    /// The most accurate flows through devices that run these.
    fn filled(&self, devices: &[Option<Post>]) -> Option<f64> {
        let mut kinds: BTreeMap<Post, f64> = BTreeMap::new();
        devices.iter().flatten().for_each(|&post| *kinds.entry(post).or_default() += 1.0);
        let leaves = self.requests.len();
        let mut program = microlp::Problem::new(OptimizationDirection::Maximize);
        let mut busy: BTreeMap<Post, Vec<(Variable, f64)>> = BTreeMap::new();
        // Of each leaf and root post: the share of the sources that goes there.
        let mut shares: BTreeMap<(usize, Post), Vec<(Variable, f64)>> = BTreeMap::new();
        for root in kinds.keys().filter(|post| post.0 == 0) {
            for leaf in kinds.keys().filter(|post| post.0 > 0 && 2 * (root.3 + post.3) <= self.slo) {
                let accuracy = self.stages[0][root.1].0 * self.stages[leaf.0][leaf.1].0 / 100.0;
                let share = program.add_var(accuracy / leaves as f64, (0.0, 1.0));
                let seconds = |post: &Post| post.3 as f64 / 1e3 / post.2 as f64;
                if leaf.0 == 1 {
                    busy.entry(*root).or_default().push((share, self.demand * seconds(root)));
                }
                let requests = self.requests[leaf.0 - 1][root.1];
                busy.entry(*leaf).or_default().push((share, self.demand * requests * seconds(leaf)));
                shares.entry((leaf.0, *root)).or_default().push((share, 1.0));
            }
        }
        for (post, row) in busy {
            program.add_constraint(row.as_slice(), ComparisonOp::Le, kinds[&post]);
        }
        for leaf in 1..=leaves {
            let of = shares.iter().filter(|((of, _), _)| *of == leaf);
            let all: Vec<(Variable, f64)> = of.flat_map(|(_, row)| row.iter().copied()).collect();
            if all.is_empty() {
                return None;
            }
            program.add_constraint(all.as_slice(), ComparisonOp::Eq, 1.0);
        }
        for root in kinds.keys().filter(|post| post.0 == 0) {
            for leaf in 2..=leaves {
                let mut row = shares.get(&(1, *root)).cloned().unwrap_or_default();
                row.extend(shares.get(&(leaf, *root)).into_iter().flatten().map(|(share, _)| (*share, -1.0)));
                if !row.is_empty() {
                    program.add_constraint(row.as_slice(), ComparisonOp::Eq, 0.0);
                }
            }
        }
        Some(program.solve().ok()?.into_solution().ok()?.objective())
    }

    fn enumerated(&self, counts: &[usize]) -> Option<f64> {
        let mut sets: Vec<Vec<Option<Post>>> = vec![Vec::new()];
        for (class, &count) in counts.iter().enumerate() {
            let posts = self.posts(class);
            // Devices of a class are equal: in order.
            let mut of_class: Vec<Vec<usize>> = vec![Vec::new()];
            for _ in 0..count {
                let longer = of_class.iter().flat_map(|set| {
                    (set.last().copied().unwrap_or(0)..posts.len())
                        .map(move |i| [set.as_slice(), &[i]].concat())
                });
                of_class = longer.collect();
            }
            let both = sets.iter().flat_map(|set| {
                let posts = &posts;
                of_class.iter().map(move |more| {
                    set.iter().copied().chain(more.iter().map(|&i| posts[i])).collect::<Vec<_>>()
                })
            });
            sets = both.collect();
        }
        sets.iter().filter_map(|set| self.filled(set)).max_by(f64::total_cmp)
    }
}

#[test]
fn plans_of_small_pipelines_are_as_good_as_the_best_of_all() {
    let (mut dice, mut fit) = (Dice(0xfeed), 0);
    for problem in 0..80 {
        let counts: Vec<usize> = (0..dice.within(1, 2)).map(|_| dice.within(1, 2) as usize).collect();
        let tree = Tree::random(&mut dice, counts.len());
        let text = tree.as_json(&counts).to_string();
        let parsed = Problem::parse(&text).expect("a problem");
        let placed = place(&parsed, Duration::from_secs(60))
            .unwrap_or_else(|error| panic!("{problem}: {error}: {text}"));
        let answer = Answer::new(&parsed, &placed);
        let best = tree.enumerated(&counts);
        assert_eq!(answer.feasible, best.is_some(), "{problem}: {best:?}: {text}");
        if let (Some(best), Some(found)) = (best, answer.accuracy) {
            assert!((found - best).abs() < 1e-3, "{problem}: found {found}, best {best}: {text}");
            fit += 1;
        }
    }
    assert!(fit >= 20, "only {fit} fit");
}

#[test]
fn the_accuracy_of_a_path_is_as_profiled_where_it_is() {
    let text = r#"{"devices": {"gpu": 2}, "pipelines": [{"name": "p", "slo": 100, "demand": 10,
        "stages": [{"name": "a", "variants": [{"name": "x", "accuracy": 90, "time": {"gpu": {"1": 5}}}]},
                   {"name": "b", "parent": "a", "variants": [{"name": "y", "accuracy": 80, "time": {"gpu": {"1": 5}}}]}],
        "path_accuracy": PROFILED}]}"#;
    let accuracy = |profiled: &str| {
        let problem = Problem::parse(&text.replace("PROFILED", profiled)).expect("a problem");
        let placed = place(&problem, Duration::from_secs(60)).expect("an answer");
        Answer::new(&problem, &placed).accuracy.expect("a plan")
    };
    assert!((accuracy("null") - 72.0).abs() < 1e-6);
    assert!((accuracy(r#"{"x|y": 61.5}"#) - 61.5).abs() < 1e-6);
    assert!((accuracy(r#"[[["x", "y"], 61.5]]"#) - 61.5).abs() < 1e-6);
}
