//! Several latency objectives: each queue is the problem of one, and what comes mixed fares as expected.

use super::super::*;
use super::happens::{Dice, Happened, serve};
use super::three;

const GROUPS: [Group; 2] = [
    Group { slo_ns: 20_000_000, workers: 3, loads: (100.0, 500.0) },
    Group { slo_ns: 50_000_000, workers: 2, loads: (100.0, 300.0) },
];

fn spec() -> Spec {
    let flavour = Flavour::Requests { max_miss: 0.01 };
    Spec { slo_ns: 1, ..three(Slack::Fixed(50), Batching::Maximal, flavour) }
}

fn objectives() -> Objectives {
    Objectives::over(&spec(), &GROUPS, RoundRobin::poisson, 0.01, 50.0).expect("valid")
}

#[test]
fn each_queue_is_the_problem_of_its_objective_alone() {
    let all = objectives();
    for (queue, group) in GROUPS.iter().enumerate() {
        assert_eq!(all.queue(group.slo_ns), Some(queue));
        let alone = Spec { slo_ns: group.slo_ns, ..spec() };
        for load in [110.0, 200.0, 299.0] {
            let planned = all.at(queue, load).expect("it is planned");
            let arrivals = RoundRobin::poisson(planned.load, group.workers).expect("valid");
            let problem = Problem::new(&alone, &arrivals).expect("valid");
            assert!(planned.load >= load && planned.policy == problem.solve().policy);
        }
    }
    // Nobody has promised anything within another time, however near.
    assert_eq!((all.queue(20_000_001), all.queue(0)), (None, None));
    assert_eq!(
        [0, 2, 3, 4, 5].map(|worker| all.queue_of(worker)),
        [0, 0, 1, 1, 9].map(|q| Some(q).filter(|&q| q < 9))
    );
    assert!(all.at(0, 501.0).is_none() && all.at(2, 1.0).is_none());
}

#[test]
fn a_mixed_flow_fares_in_each_queue_as_expected() {
    let all = objectives();
    // 500 requests a second, each with either objective at random.
    let shares = [0.6, 0.4];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut workers: Vec<Vec<f64>> = vec![Vec::new(); 5];
    let (mut now, mut turns) = (0.0, [0, 0]);
    for _ in 0..600_000 {
        now += dice.wait() * 1e9 / 500.0;
        let slo_ns = GROUPS[usize::from(dice.unit() > shares[0])].slo_ns;
        let queue = all.queue(slo_ns).expect("an objective of a group");
        // In turn to those who serve that queue.
        let own: Vec<_> = (0..workers.len()).filter(|&worker| all.queue_of(worker) == Some(queue)).collect();
        workers[own[turns[queue] % own.len()]].push(now);
        turns[queue] += 1;
    }
    for (queue, group) in GROUPS.iter().enumerate() {
        let load = 500.0 * shares[queue];
        let planned = all.at(queue, load).expect("it is planned");
        let spec = Spec { slo_ns: group.slo_ns, ..spec() };
        let problem = Problem::new(&spec, &RoundRobin::poisson(load, group.workers).expect("valid"));
        let expected = problem.expect("valid").evaluate(&planned.policy).expect("its states");
        let mut sum = Happened::default();
        for worker in (0..workers.len()).filter(|&worker| all.queue_of(worker) == Some(queue)) {
            let seen = serve(&spec, workers[worker].iter().copied(), &planned.policy, usize::MAX);
            sum.requests += seen.requests;
            sum.missed += seen.missed;
            sum.accurate += seen.accurate;
        }
        let (missed, accuracy) = (sum.missed / sum.requests, sum.accurate / (sum.requests - sum.missed));
        assert_eq!(sum.requests as usize, turns[queue], "all of them are served or dropped");
        // Slack is rounded down, and what does not fit into a queue of four is counted as missed.
        assert!(
            accuracy > expected.accuracy - 0.005 && accuracy < expected.accuracy + 0.02,
            "{accuracy} {expected:?}"
        );
        assert!(missed < expected.missed + 0.002, "{missed} {expected:?}");
    }
}

#[test]
fn groups_that_make_no_sense_are_refused_by_name() {
    let refusal = |groups: &[Group]| {
        let made = Objectives::over(&spec(), groups, RoundRobin::poisson, 0.01, 50.0);
        made.expect_err("refused").to_string()
    };
    assert_eq!(refusal(&[]), "number of groups = 0: must be 1 to 64");
    let twice = [GROUPS[0], GROUPS[0]];
    assert_eq!(
        refusal(&twice),
        "groups[1].slo_ns = 20000000: must be above 20000000, that of the group before"
    );
    assert_eq!(refusal(&[Group { workers: 0, ..GROUPS[0] }]), "workers = 0: must be 1 to 4096");
    assert_eq!(
        refusal(&[Group { slo_ns: 1, ..GROUPS[0] }]),
        "slo_ns = 1: must be at least 2000000, the time of the fastest model (2.00 ms)"
    );
}
