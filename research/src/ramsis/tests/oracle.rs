//! Small problems, worked out the long way: counts by the paper's sums, policies by trying all.

use super::super::*;
use super::{REQUESTS, all, three};

/// The plain formula.
fn poisson(count: usize, mean: f64) -> f64 {
    (1..=count).fold((-mean).exp(), |p, i| p * mean / i as f64)
}

/// Probabilities of the next states by sums over all counts (section 4.4.2): those of the ticks before and after the
/// moment at which the request that is oldest next has come, which is tried interval by interval.
struct Count<'a> {
    problem: &'a Problem,
    clock: Clock,
    time: f64,
    n: usize,
    bin: usize,
    batch: usize,
}

impl Count<'_> {
    const MOST: usize = 60;

    /// In the order of states, the full one and the empty one last.
    fn next(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.problem.layout.len()];
        let ticks = self.clock.ticks;
        let slo = self.problem.spec.slo_ns as f64;
        let ends = &self.problem.grid.ends;
        let age = slo - ends[self.bin];
        let mean = |time: f64| self.clock.per_ns * time;
        let rounds = (self.n - 1) * ticks..self.n * ticks;
        if self.n == self.batch {
            // The phase from interval A, then no request in B, the first in C, others in C and D.
            let phases: Vec<f64> = rounds.map(|k| poisson(k, mean(age))).collect();
            let sum: f64 = phases.iter().sum();
            for (phase, p) in phases.iter().enumerate().map(|(phase, p)| (phase, p / sum)) {
                let none: f64 = (0..ticks - phase).map(|k| poisson(k, mean(self.time))).sum();
                out[self.problem.layout.empty()] += p * none;
                for to in 0..ends.len() - 1 {
                    let low = if to == 0 { 0.0 } else { (self.time - slo + ends[to]).max(0.0) };
                    let high = (self.time - slo + ends[to + 1]).max(low);
                    for b in 0..ticks - phase {
                        for c in ticks - phase - b..Self::MOST {
                            let p = p * poisson(b, mean(low)) * poisson(c, mean(high - low));
                            for d in 0..Self::MOST {
                                let n = (phase + b + c + d) / ticks;
                                out[self.problem.layout.state(n, to)] +=
                                    p * poisson(d, mean(self.time - high));
                            }
                        }
                    }
                }
            }
            return out;
        }
        let sum: f64 = rounds.clone().map(|k| poisson(k, mean(age))).sum();
        for to in 0..ends.len() {
            // When after the oldest the next oldest has come.
            let begin = if to == 0 { 0.0 } else { (ends[to] + self.time - ends[self.bin]).clamp(0.0, age) };
            let end =
                ends.get(to + 1).map_or(age, |end| (end + self.time - ends[self.bin]).clamp(begin, age));
            for before in 0..self.batch * ticks {
                for during in self.batch * ticks - before..rounds.end.max(before) - before {
                    let known = before + during;
                    for after in rounds.start.max(known) - known..rounds.end.max(known) - known {
                        let p = poisson(before, mean(begin)) * poisson(during, mean(end - begin)) / sum
                            * poisson(after, mean(age - end));
                        for come in 0..Self::MOST {
                            let n = (known + after + come) / ticks + 1 - self.batch;
                            out[self.problem.layout.state(n, to)] += p * poisson(come, mean(self.time));
                        }
                    }
                }
            }
        }
        out
    }
}

#[test]
fn transitions_are_those_of_the_sums_over_counts() {
    for (shape, rate, slack, flavour) in [
        (1.0, 300.0, Slack::Fixed(7), Flavour::Paper),
        (1.0, 300.0, Slack::ModelBased, REQUESTS),
        (0.5, 500.0, Slack::Fixed(5), REQUESTS),
        (2.0, 250.0, Slack::ModelBased, Flavour::Paper),
    ] {
        let arrivals = RoundRobin::gamma(rate, 2, shape).expect("valid");
        let problem = Problem::new(&three(slack, Batching::Variable, flavour), &arrivals).expect("valid");
        let mut compared = 0;
        for (state, action) in all(&problem) {
            let State::Queue { n, bin } = state else { continue };
            let batch = usize::from(action.batch);
            let likely = problem.phases.likely(problem.layout.state(n, bin));
            if likely < 1e-7 || bin + 1 == problem.layout.bins {
                continue;
            }
            let time = problem.spec.models.get(usize::from(action.model)).map_or(0.0, |m| m.latency(batch));
            let clock = arrivals.clock(n);
            let mut expected = Count { problem: &problem, clock, time, n, bin, batch }.next();
            if flavour != Flavour::Paper {
                expected[problem.layout.lone()] += std::mem::take(&mut expected[problem.layout.empty()]);
            }
            let mut sum = 0.0;
            for (next, p) in problem.next(state, action) {
                let number = (0..problem.layout.len()).find(|&s| problem.state(s) == next).expect("a state");
                expected[number] -= p;
                sum += p;
            }
            assert!((sum - 1.0).abs() < 1e-12);
            let worst = expected.iter().fold(0.0f64, |worst, off| worst.max(off.abs()));
            assert!(worst < 1e-12 + 1e-13 / likely, "{slack:?}, {shape}, {state:?}, {action:?}: {worst:e}");
            compared += 1;
        }
        assert!(compared > 50, "{compared}");
    }
}

/// The long-run reward per decision, or right answers per request, of every policy; the best of them.
fn best_of_all(problem: &Problem) -> f64 {
    let states = problem.layout.empty();
    let mut chosen: Vec<usize> = vec![0; states];
    let mut best = 0.0f64;
    loop {
        let choices: Vec<_> = (0..states).map(|s| problem.choices(s)[chosen[s]]).collect();
        let mut shares = problem.start();
        let found = problem.weigh(&choices, &mut shares, 1e-13);
        best = best.max(match problem.spec.flavour {
            Flavour::Requests { .. } => found.right(),
            // Here an idle worker decides, too.
            _ => choices.iter().zip(&shares).map(|(choice, share)| choice.reward * share).sum(),
        });
        let Some(next) = (0..states).find(|&s| chosen[s] + 1 < problem.choices(s).len()) else { return best };
        chosen[..next].fill(0);
        chosen[next] += 1;
    }
}

fn tiny(flavour: Flavour, batching: Batching) -> Spec {
    let mut spec = three(Slack::Fixed(2), batching, flavour);
    spec.queue = 2;
    spec
}

#[test]
fn no_policy_of_a_tiny_problem_is_better() {
    for rate in [100.0, 400.0, 900.0] {
        let arrivals = RoundRobin::poisson(rate, 3).expect("valid");
        for batching in [Batching::Maximal, Batching::Variable] {
            let problem = Problem::new(&tiny(Flavour::Paper, batching), &arrivals).expect("valid");
            let solution = problem.solve();
            let best = best_of_all(&problem);
            assert!(solution.gain.1 - solution.gain.0 <= 1e-9);
            assert!(
                (solution.gain.0..=solution.gain.1 + 1e-9).contains(&(best + 5e-10)),
                "{best}: {solution:?}"
            );
        }
    }
}

#[test]
fn no_policy_of_a_tiny_problem_is_right_more_often() {
    for rate in [100.0, 400.0, 900.0, 2500.0] {
        let arrivals = RoundRobin::poisson(rate, 3).expect("valid");
        for batching in [Batching::Maximal, Batching::Variable] {
            let problem = Problem::new(&tiny(REQUESTS, batching), &arrivals).expect("valid");
            let solution = problem.solve();
            let found = problem.evaluate(&solution.policy).expect("its own").right();
            let best = best_of_all(&problem);
            assert!((found - best).abs() < 1e-8, "{batching:?}, {rate}: {found} instead of {best}");
            assert!(solution.gain.0 <= best + 1e-8 && best <= solution.gain.1 + 1e-8, "{solution:?}");
        }
    }
}

#[test]
fn fewer_misses_cost_right_answers() {
    let arrivals = RoundRobin::poisson(1100.0, 3).expect("valid");
    let mut before = 1.0;
    for max_miss in [1.0, 3e-2, 1e-2, 3e-3, 1e-3] {
        let flavour = Flavour::Requests { max_miss };
        let problem =
            Problem::new(&three(Slack::Fixed(40), Batching::Maximal, flavour), &arrivals).expect("valid");
        let found = problem.evaluate(&problem.solve().policy).expect("its own");
        println!("{max_miss}: {found:?}");
        assert!(found.missed <= max_miss, "{found:?}");
        assert!(found.right() <= before + 1e-9, "{found:?}");
        before = found.right();
    }
}

#[test]
fn shortest_queues_have_probabilities_too() {
    let arrivals = ShortestQueue::new(600.0, 3, 300.0).expect("valid");
    let problem =
        Problem::new(&three(Slack::Fixed(8), Batching::Variable, Flavour::Paper), &arrivals).expect("valid");
    assert!(problem.error() < 1e-12, "{:e}", problem.error());
    for (state, action) in all(&problem) {
        let next = problem.next(state, action);
        let sum: f64 = next.iter().map(|(_, p)| p).sum();
        assert!((sum - 1.0).abs() < 1e-12 && next.iter().all(|(_, p)| (0.0..=1.0).contains(p)));
        // Of those who come to a queue of three and more, there are as many as the lower rate says.
        let State::Queue { n: n @ 3.., .. } = state else { continue };
        if usize::from(action.batch) == n {
            let time = problem.spec.models[usize::from(action.model)].latency(n);
            let nobody = (-arrivals.clock(n).per_ns * time).exp();
            let found = next.iter().find(|(state, _)| *state == State::Empty).map_or(0.0, |(_, p)| *p);
            assert!((found - nobody).abs() < 1e-12);
        }
    }
    let solution = problem.solve();
    let found = problem.evaluate(&solution.policy).expect("its own");
    assert!(found.accuracy_per_decision > 0.5 && found.residual < 1e-12);
}

#[test]
fn sets_are_as_close_as_they_should_be() {
    let spec = three(Slack::Fixed(40), Batching::Maximal, Flavour::Program);
    let poisson = |rate| RoundRobin::poisson(rate, 3);
    let set = PolicySet::over(&spec, poisson, (50.0, 3000.0), 0.01, 1.0).expect("a set");
    let all = set.all();
    assert!(all.len() > 20, "{}", all.len());
    for two in all.windows(2) {
        let apart = two[0].expected.accuracy_per_decision - two[1].expected.accuracy_per_decision;
        assert!(two[0].load < two[1].load && (apart.abs() <= 0.01 || two[1].load - two[0].load <= 1.0));
    }
    assert_eq!((all[0].load, all[all.len() - 1].load), (50.0, 3000.0));
    assert_eq!(set.at(10.0).map(|one| one.load), Some(50.0));
    assert_eq!(set.at(50.1).map(|one| one.load), Some(all[1].load));
    assert!(set.at(3000.1).is_none());
    let refusal =
        PolicySet::over(&spec, poisson, (50.0, 3000.0), 1e-9, 1e-9).expect_err("too many").to_string();
    assert_eq!(refusal, "policies = 1001: must be at most 1000");
}

#[test]
fn rewards_and_slack_go_the_way_they_must() {
    let gain = |spec: &Spec, rate| {
        let arrivals = RoundRobin::poisson(rate, 3).expect("valid");
        Problem::new(spec, &arrivals).expect("valid").solve().gain.0
    };
    let spec = three(Slack::Fixed(20), Batching::Maximal, Flavour::Program);
    let mut without = spec.clone();
    without.models.remove(1);
    let mut before = f64::INFINITY;
    for rate in [50.0, 200.0, 400.0, 700.0, 1500.0, 6000.0] {
        let solution = |spec: &Spec| {
            let problem = Problem::new(spec, &RoundRobin::poisson(rate, 3).expect("valid")).expect("valid");
            problem.evaluate(&problem.solve().policy).expect("its own")
        };
        let found = solution(&spec);
        assert!(found.accuracy_per_decision <= before + 1e-9, "more load, more accurate at {rate}");
        before = found.accuracy_per_decision;
        let spec = Spec { flavour: Flavour::Paper, ..spec.clone() };
        let without = Spec { flavour: Flavour::Paper, ..without.clone() };
        assert!(gain(&without, rate) <= gain(&spec, rate) + 1e-9, "fewer models are better at {rate}");
        let any = Spec { batching: Batching::Variable, ..spec.clone() };
        assert!(gain(&spec, rate) <= gain(&any, rate) + 1e-9, "fewer choices are better at {rate}");
    }
}
