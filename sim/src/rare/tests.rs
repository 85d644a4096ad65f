//! Estimates beside chains that can be solved, and beside plain counting.

use rt_core::{Constraint, ConstraintSet, StreamSpec};

use super::*;
use crate::process::ModulatedState;
use crate::samples;

const MS: u64 = 1_000_000;

/// A stream that declares one request in 100 ms, and keeps to it or not.
fn stream(m: u32, k: u32) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("valid")]).expect("one");
    StreamSpec::promised(set, samples::window(1, 100 * MS))
}

/// Where what nothing is promised for is served too.
fn open(times: &[u64], count: usize, deadline: u64, streams: &[StreamSpec]) -> Problem {
    Problem { background: true, ..samples::problem(times, count, deadline, streams) }
}

fn question(problem: &Problem, process: Process, rate: f64) -> Question<'_> {
    Question {
        problem,
        arrivals: vec![(process, rate)],
        stream: 0,
        confidence: 0.999,
        precision: 0.1,
        effort: 2_000_000,
        seed: 1,
    }
}

/// One worker, batches of one, and a deadline as long as they take: what comes while it is busy is missed, and each answer is followed
/// by as many misses as requests come within it, a Poisson number of mean `load`. How often violations begin a request, by the
/// chain of what the window holds and of the misses since the last hit.
fn solved(load: f64, (m, k): (u32, u32)) -> f64 {
    const ROW: usize = 40;
    let next = |(j, term): (usize, f64)| (j + 1, term * load / (j + 1) as f64);
    let terms = std::iter::successors(Some((0, (-load).exp())), |&term| Some(next(term)));
    let exactly: Vec<f64> = terms.take(ROW + 2).map(|(_, term)| term).collect();
    let at_least = |j: usize| exactly[j..].iter().sum::<f64>();
    let missed: Vec<f64> = (0..ROW).map(|j| at_least(j + 1) / at_least(j)).collect();
    let windows = 1usize << k;
    let mut states = vec![0.0; windows * ROW];
    states[0] = 1.0;
    let mut begun = 0.0;
    for _ in 0..4_000 {
        let mut next = vec![0.0; windows * ROW];
        begun = 0.0;
        for (state, part) in states.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            let (window, row) = (state / ROW, state % ROW);
            for (miss, part) in [(1, part * missed[row]), (0, part * (1.0 - missed[row]))] {
                let after = (window << 1 | miss) & (windows - 1);
                let row = if miss == 1 { (row + 1).min(ROW - 1) } else { 0 };
                next[after * ROW + row] += part;
                if after.count_ones() > m && window.count_ones() <= m {
                    begun += part;
                }
            }
        }
        states = next;
    }
    begun
}

#[test]
fn estimates_are_those_of_chains_that_can_be_solved() {
    for (load, m, k) in [(1.0, 1, 2), (0.05, 1, 3), (0.02, 2, 3), (0.01, 2, 5), (0.03, 3, 5)] {
        let problem = open(&[10 * MS], 1, 10 * MS, &[stream(m, k)]);
        let rate = load / 0.01;
        let found = violations(&question(&problem, Process::Poisson, rate), &mut |_| ()).expect("estimated");
        let expected = solved(load, (m, k)) * rate;
        println!("{load} ({m},{k}): {expected:.3e} a second, {found:?}");
        assert!(found.low <= expected && expected <= found.high, "{load} ({m},{k}): {expected:e}, {found:?}");
        // As narrow as it is asked to be, where plain runs of this effort would have seen a few at most, or none.
        assert!(found.high < 1.35 * found.per_s, "{load} ({m},{k}): {found:?}");
        assert_eq!(found.levels > 0, expected < 0.5, "{load} ({m},{k}): {found:?}");
    }
}

/// Two workers with batches of two, requests that wait, bursts, and a stream beside it that sends the worst that it declares.
#[test]
fn copies_are_worth_what_plain_runs_count() {
    let beside = StreamSpec::promised(stream(0, 1).constraints().clone(), samples::window(2, 40 * MS));
    let problem = open(&[8 * MS, 10 * MS], 2, 40 * MS, &[stream(1, 4), beside.clone()]);
    let states = [(10.0, 0.05), (1.0, 0.5)].map(|(rate, dwell_s)| ModulatedState { rate, dwell_s });
    let bursts = Process::MarkovModulated { states: states.to_vec() };
    let mut question = question(&problem, bursts, 120.0);
    question.arrivals.push(worst(beside.arrivals().expect("declared")));
    let plain = question.estimate(&Levels::default(), 400.0, &mut |_| ()).expect("counted");
    let levels = Levels { thresholds: vec![0.2, 0.35, 0.55], splits: vec![3, 2, 4] };
    let copied = question.estimate(&levels, 1_500.0, &mut |_| ()).expect("estimated");
    println!("plain {plain:?}\ncopied {copied:?}");
    assert!(plain.per_s > 0.0 && plain.low < copied.high && copied.low < plain.high, "{plain:?}, {copied:?}");
}

#[test]
fn what_keeps_to_its_declaration_violates_nothing() {
    let problem = open(&[10 * MS], 1, 40 * MS, &[stream(0, 1)]);
    let mut question = question(&problem, Process::Poisson, 10.0);
    question.arrivals = vec![worst(&samples::window(1, 100 * MS))];
    question.effort = 400_000;
    let found = violations(&question, &mut |_| ()).expect("estimated");
    assert_eq!((found.per_s, found.low), (0.0, 0.0));
    assert!((found.high * found.seconds - 1000f64.ln()).abs() < 1e-6, "{found:?}");
}

#[test]
fn the_rate_that_is_looked_for_is_found() {
    let problem = open(&[10 * MS], 1, 10 * MS, &[stream(2, 3)]);
    let mut question = question(&problem, Process::Poisson, 5.0);
    (question.effort, question.precision) = (1_000_000, 0.2);
    let targets = [1.0 / 60.0, 1.0 / 3600.0];
    let found = over_rates(&question, &targets, &mut |_| ()).expect("estimated");
    for (target, scale) in targets.iter().zip(found.scales) {
        let rate = 5.0 * scale.expect("found");
        let expected = solved(rate * 0.01, (2, 3)) * rate;
        println!("{rate}: {expected:e} of {target:e}, {} points", found.points.len());
        assert!((0.7..1.4).contains(&(expected / target)), "{rate}: {expected:e} of {target:e}");
    }
}

#[test]
fn what_has_no_answer_is_refused() {
    let problem = open(&[10 * MS], 1, 40 * MS, &[StreamSpec::best_effort()]);
    let told = |question: &Question<'_>| violations(question, &mut |_| ()).expect_err("refused").to_string();
    assert_eq!(
        told(&question(&problem, Process::Poisson, 5.0)),
        "s0 has no constraint that could be violated"
    );
    let problem = open(&[10 * MS], 1, 40 * MS, &[stream(1, 2)]);
    assert_eq!(
        told(&question(&problem, Process::Poisson, -5.0)),
        "arrivals of s0: rate = -5: must be in 1e-9..=1e9"
    );
    let problem = open(&[10 * MS], 1, 40 * MS, &[stream(0, 1)]);
    let crowded = Question { effort: 100_000, ..question(&problem, Process::Poisson, 1e9) };
    let found = violations(&crowded, &mut |_| {});
    assert!(matches!(found, Err(RareError::Effort { effort: 100_000, .. })), "{found:?}");
}
