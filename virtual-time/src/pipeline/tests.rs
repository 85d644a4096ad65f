//! The drive on pipelines small enough to be worked out by hand.

use std::collections::VecDeque;

use rt_core::{Instant, LatencyProfile, MissReason, Outcome, Span, Variant, WorkerId};

use super::*;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn variant(times: &[u64], accuracy: f64) -> Variant {
    let times: Vec<_> = times.iter().map(|&time| Span::from_nanos(time)).collect();
    Variant { profile: LatencyProfile::new(&times).expect("a profile"), accuracy }
}

/// One request takes 2 and becomes just two of the next stage, of which two at once take 3.
fn tree(deadline: u64) -> Tree {
    let first = TreeStage { parent: None, fan_out: 1, means: vec![], variants: vec![variant(&[2], 0.5)] };
    let second =
        TreeStage { parent: Some(0), fan_out: 2, means: vec![2.0], variants: vec![variant(&[2, 3], 0.8)] };
    Tree { deadline: Span::from_nanos(deadline), stages: vec![first, second] }
}

/// A worker for each stage, first come first served; gives up what it is told to.
#[derive(Default)]
struct Plain {
    waiting: [VecDeque<u64>; 2],
    running: [Vec<u64>; 2],
    give_up: Vec<(Instant, PipelineStep)>,
    heard: Vec<Child>,
}

impl PipelinePolicy for Plain {
    fn workers(&self) -> usize {
        2
    }

    fn arrive(&mut self, _: Instant, arriving: Arriving) {
        self.waiting[0].push_back(arriving.token);
    }

    fn complete(&mut self, _: Instant, worker: WorkerId, _: Span, children: &[Child]) {
        self.running[worker].clear();
        self.heard.extend(children);
        children.iter().for_each(|child| self.waiting[child.stage].push_back(child.token));
    }

    fn poll(&mut self, now: Instant) -> PipelineStep {
        if let Some(i) = self.give_up.iter().position(|&(when, _)| when <= now) {
            let (_, step) = self.give_up.remove(i);
            if let PipelineStep::DropRequest(token) = step {
                self.waiting.iter_mut().for_each(|queue| queue.retain(|&waiting| waiting != token));
            }
            return step;
        }
        for stage in 0..2 {
            if self.running[stage].is_empty() && !self.waiting[stage].is_empty() {
                let size = self.waiting[stage].len().min(stage + 1);
                self.running[stage] = self.waiting[stage].drain(..size).collect();
                return PipelineStep::Start { worker: stage, model: Model { stage, variant: 0 } };
            }
        }
        PipelineStep::Wait { until: self.give_up.iter().map(|&(when, _)| when).min() }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.running[worker].iter().copied()
    }
}

#[derive(Default)]
struct Seen {
    sources: Vec<SourceEnd>,
    batches: Vec<(usize, usize, u64, u64)>,
    in_use: Vec<usize>,
}

impl PipelineObserver for Seen {
    fn source(&mut self, end: &SourceEnd) {
        self.sources.push(*end);
    }

    fn batch(&mut self, batch: &StageBatch) {
        let times = [batch.start, batch.finish].map(|at| at.as_nanos());
        self.batches.push((batch.model.stage, batch.size, times[0], times[1]));
    }

    fn in_use(&mut self, _: Instant, workers: usize) {
        self.in_use.push(workers);
    }
}

fn run(policy: &mut Plain, deadline: u64, arrivals: &[u64]) -> Seen {
    let mut seen = Seen::default();
    let arrivals = arrivals.iter().map(|&nanos| (at(nanos), 0));
    drive_pipeline(policy, &tree(deadline), 1, arrivals, |_, _, bound| bound, &mut seen).expect("in order");
    seen
}

#[test]
fn a_source_ends_with_the_last_of_what_it_became() {
    let seen = run(&mut Plain::default(), 7, &[0, 0]);
    // The first becomes two at 2, both answered at 5; the second at 4, both from 5 to 8.
    assert_eq!(seen.batches, [(0, 1, 0, 2), (0, 1, 2, 4), (1, 2, 2, 5), (1, 2, 5, 8)]);
    let ends: Vec<_> = seen.sources.iter().map(|end| (end.seq, end.ended, end.outcome)).collect();
    let late = Outcome::Missed(MissReason::Late);
    assert_eq!(ends, [(0, at(5), Outcome::Served), (1, at(8), late)]);
    // Both answers of the second are late.
    assert_eq!(seen.sources.iter().map(|end| (end.requests, end.lost)).collect::<Vec<_>>(), [(3, 0), (3, 2)]);
    // Of each path the product of its answers.
    assert!((seen.sources[0].accuracy - 0.4).abs() < 1e-12 && seen.in_use == [2]);
    let seen = run(&mut Plain::default(), 8, &[0, 0]);
    assert!(seen.sources.iter().all(|end| end.outcome == Outcome::Served), "in time is up to the deadline");
}

#[test]
fn a_request_that_is_given_up_costs_its_source_and_no_other_of_it() {
    // Of the second source, requests 4 and 5 wait from 4 on.
    let give_up = vec![(at(4), PipelineStep::DropRequest(4))];
    let mut policy = Plain { give_up, ..Plain::default() };
    let seen = run(&mut policy, 100, &[0, 0]);
    assert_eq!(seen.batches[3], (1, 1, 5, 7), "the other is answered by itself");
    let last = seen.sources[1];
    assert_eq!((last.outcome, last.ended), (Outcome::Missed(MissReason::Expired), at(7)));
    assert_eq!((last.requests, last.lost), (3, 1));
}

#[test]
fn of_a_source_that_is_given_up_nothing_is_told_any_more() {
    let mut policy = Plain { give_up: vec![(at(2), PipelineStep::DropSource(0))], ..Plain::default() };
    let seen = run(&mut policy, 100, &[1, 30]);
    assert_eq!(
        seen.batches,
        [(0, 1, 1, 3), (0, 1, 30, 32), (1, 2, 32, 35)],
        "it runs out and becomes nothing"
    );
    let ends: Vec<_> = seen.sources.iter().map(|end| (end.ended, end.outcome)).collect();
    assert_eq!(ends, [(at(2), Outcome::Missed(MissReason::Expired)), (at(35), Outcome::Served)]);
    assert_eq!(seen.sources.iter().map(|end| (end.requests, end.lost)).collect::<Vec<_>>(), [(1, 1), (3, 0)]);
    assert!(policy.heard.iter().all(|child| child.parent == 1));
}

#[test]
fn a_result_that_becomes_nothing_is_an_answer() {
    let mut tree = tree(100);
    tree.stages[1].means = vec![0.0];
    let mut seen = Seen::default();
    let played =
        drive_pipeline(&mut Plain::default(), &tree, 1, [(at(0), 3)], |_, _, bound| bound, &mut seen);
    assert!(played.is_ok());
    let end = seen.sources[0];
    assert_eq!((end.stream, end.ended, end.outcome, end.accuracy), (3, at(2), Outcome::Served, 0.5));
}

#[test]
fn what_is_never_decided_is_missed_and_arrivals_that_go_back_are_refused() {
    struct Idle;
    impl PipelinePolicy for Idle {
        fn workers(&self) -> usize {
            1
        }
        fn arrive(&mut self, _: Instant, _: Arriving) {}
        fn complete(&mut self, _: Instant, _: WorkerId, _: Span, _: &[Child]) {}
        fn poll(&mut self, _: Instant) -> PipelineStep {
            PipelineStep::Wait { until: None }
        }
        fn batch(&self, _: WorkerId) -> impl Iterator<Item = u64> + '_ {
            [].into_iter()
        }
    }
    let mut seen = Seen::default();
    let played = drive_pipeline(&mut Idle, &tree(1), 1, [(at(5), 0)], |_, _, bound| bound, &mut seen);
    assert!(played.is_ok());
    assert_eq!(seen.sources[0].outcome, Outcome::Missed(MissReason::Expired));
    let error = drive_pipeline(
        &mut Idle,
        &tree(1),
        1,
        [(at(5), 0), (at(4), 0)],
        |_, _, bound| bound,
        &mut Seen::default(),
    );
    assert_eq!(error.expect_err("back").index, 1);
}
