//! Each rival on cases whose outcome can be worked out by hand. Times are in milliseconds.

use planner::{Question, SharedProblem};
use rt_core::{Instant, Outcome, StreamSpec};
use virtual_time::{Order, Run};

use super::*;

const MS: u64 = 1_000_000;

/// A service: its deadline, the times of its batches, and how many its stream sends in what time at most.
type Written<'a> = (u64, &'a [u64], (u64, u64));

/// Services on workers that they share, each with a stream of this constraint.
fn problem(workers: usize, constraint: &str, services: &[Written<'_>]) -> SharedProblem {
    let service = |(i, (deadline, times, (count, length))): (usize, &Written<'_>)| {
        serde_json::json!({"name": format!("v{i}"), "deadline": deadline, "batch": times.len(), "times": times, "streams": [
            {"name": "s", "constraints": [constraint], "arrivals": {"windows": [[count, length]]}}]})
    };
    let services: Vec<_> = services.iter().enumerate().map(service).collect();
    let text = serde_json::json!({"unit": "ms", "background": true, "workers": {"count": workers}, "services": services});
    match Question::parse(&text.to_string()).expect("a problem") {
        Question::Shared(problem) => problem,
        other => panic!("{other:?}"),
    }
}

/// What becomes of requests, each by its time and its service.
fn play(kind: SharedKind, problem: &SharedProblem, arrivals: &[(u64, usize)]) -> Run {
    let streams: Vec<(usize, StreamSpec)> =
        problem.services.iter().enumerate().map(|(s, of)| (s, of.streams[0].1.clone())).collect();
    let arrivals = arrivals.iter().map(|&(time, service)| (Instant::from_nanos(time * MS), service));
    let mut run = Run { streams: streams.len(), ..Run::default() };
    kind.play(problem, (64, &streams), arrivals, Order::Together, |_, _, bound| bound, &mut run)
        .expect("played");
    run
}

/// The batches, each by its start and its requests, numbered as they came; and who was missed.
fn batches(
    kind: SharedKind,
    problem: &SharedProblem,
    arrivals: &[(u64, usize)],
) -> (Vec<(u64, Vec<usize>)>, Vec<usize>) {
    let run = play(kind, problem, arrivals);
    let members =
        |batch: usize| (0..run.requests.len()).filter(|&i| run.requests[i].batch == Some(batch)).collect();
    let starts = run.batches.iter().enumerate();
    let starts = starts.map(|(number, batch)| (batch.start.as_nanos() / MS, members(number))).collect();
    let missed = |&i: &usize| run.requests[i].outcome != Outcome::Served;
    (starts, (0..run.requests.len()).filter(missed).collect())
}

/// A pair batched in 2 and 4, due in 10, and single requests of 3, due in 6.
fn pair_and_single() -> SharedProblem {
    problem(1, "row_miss(0)", &[(10, &[2, 4], (1, 1000)), (6, &[3], (1, 1000))])
}

#[test]
fn clockwork_runs_what_must_start_first_and_drops_what_is_too_late() {
    // The pair must start by 6, a single one by 3. At 6 the third single one is due.
    let ran =
        batches(SharedKind::ClockworkModels, &pair_and_single(), &[(0, 0), (0, 0), (0, 1), (0, 1), (0, 1)]);
    assert_eq!(ran, (vec![(0, vec![2]), (3, vec![3]), (6, vec![0, 1])], vec![4]));
}

#[test]
fn fixed_priority_starves_whom_clockwork_serves() {
    let problem = problem(1, "row_miss(0)", &[(10, &[1], (1, 1)), (12, &[1], (1, 1000))]);
    let arrivals: Vec<_> = std::iter::once((0, 1)).chain((0..30).map(|i| (i, 0))).collect();
    assert_eq!(batches(SharedKind::FixedPriority, &problem, &arrivals).1, [0]);
    // It must start by 11, and of the others all from the one of 3 on may start later.
    let (ran, missed) = batches(SharedKind::ClockworkModels, &problem, &arrivals);
    assert_eq!((ran[3].clone(), missed), ((3, vec![0]), vec![]));
}

#[test]
fn symphony_waits_while_one_more_would_be_in_time() {
    let alone = problem(1, "row_miss(0)", &[(10, &[2, 3], (1, 1000))]);
    assert_eq!(batches(SharedKind::Symphony, &alone, &[(0, 0)]).0, [(7, vec![0])]);
    assert_eq!(batches(SharedKind::Symphony, &alone, &[(0, 0), (5, 0)]).0, [(5, vec![0, 1])]);
    // The single one cannot be deferred, it is its largest batch; the first of the pair may wait until 10 - 4 = 6.
    assert_eq!(
        batches(SharedKind::Symphony, &pair_and_single(), &[(0, 0), (0, 1)]).0,
        [(0, vec![1]), (6, vec![0])]
    );
}

#[test]
fn edgeserving_prefers_what_leaves_the_others_young() {
    // Half of the deadline of one passes while the other runs, or a ninth of that of the other.
    let problem = problem(1, "row_miss(0)", &[(20, &[2], (1, 1000)), (18, &[10], (1, 1000))]);
    let both = [(0, 0), (0, 1)];
    assert_eq!(batches(SharedKind::EdgeServing, &problem, &both).0, [(0, vec![0]), (2, vec![1])]);
    for urgent in [SharedKind::ClockworkModels, SharedKind::FixedPriority] {
        assert_eq!(batches(urgent, &problem, &both).0, [(0, vec![1]), (10, vec![0])]);
    }
    // Two at once leave nothing behind; one would leave the other for 2 ms.
    assert_eq!(batches(SharedKind::EdgeServing, &pair_and_single(), &[(0, 0), (0, 0)]).0, [(0, vec![0, 1])]);
}

#[test]
fn deeprt_runs_what_came_in_half_of_a_deadline_by_earliest_deadline() {
    let alone = problem(1, "row_miss(0)", &[(20, &[2; 4], (4, 10))]);
    assert_eq!(
        batches(SharedKind::DeepRt, &alone, &[(0, 0), (3, 0), (12, 0)]).0,
        [(10, vec![0, 1]), (20, vec![2])]
    );
    // Both jobs are released at 10, and the one of the shorter window is due first.
    let two = problem(1, "row_miss(0)", &[(20, &[2], (1, 10)), (10, &[2], (1, 10))]);
    assert_eq!(batches(SharedKind::DeepRt, &two, &[(5, 0), (6, 1)]).0, [(10, vec![1]), (12, vec![0])]);
}

#[test]
fn deeprt_admits_what_fills_the_worker_and_what_a_blocking_batch_leaves_room_for() {
    let admits = |problem: &SharedProblem| SharedKind::DeepRt.planned(problem).is_some();
    let alike =
        |workers, time| problem(workers, "row_miss(0)", &[(20, &[time], (1, 10)), (20, &[time], (1, 10))]);
    assert!(admits(&alike(1, 5)) && !admits(&alike(1, 6)));
    assert!(admits(&alike(2, 10)) && !admits(&alike(2, 11)), "one on each worker");
    let blocked = |time| problem(1, "row_miss(0)", &[(8, &[2], (1, 4)), (40, &[time], (1, 20))]);
    assert!(admits(&blocked(2)) && !admits(&blocked(3)), "2 + 3 in a window of 4");
    // It knows no misses that are allowed.
    assert!(!admits(&problem(1, "any_miss(9,10)", &[(20, &[6], (1, 10)), (20, &[6], (1, 10))])));
}

#[test]
fn nexus_packs_services_into_cycles_by_mean_rates() {
    // Four in 4 ms; at 500 a second both gather 4 in 8 ms, in which both fit.
    let both =
        |per_s: u64| problem(1, "row_miss(0)", &[(40, &[4; 4], (per_s, 1000)), (40, &[4; 4], (per_s, 1000))]);
    let packed = |per_s| {
        bins::pack(&both(per_s)).expect("a batch fits").into_iter().map(|bin| bin.batches).collect::<Vec<_>>()
    };
    assert_eq!(packed(500), [vec![(0, 4), (1, 4)]]);
    // 100 a second gather 3 in 30 ms, and 4 in no more than 40 - 4.
    assert_eq!(packed(100), [vec![(0, 3), (1, 3)]]);
    assert_eq!(packed(600).len(), 2);
    // A thousand fill a worker, and 100 more share one.
    assert_eq!(packed(1100), [vec![(0, 4)], vec![(1, 4)], vec![(0, 3), (1, 3)]]);
    assert!(SharedKind::NexusCycle.planned(&both(500)).is_some());
    assert!(SharedKind::NexusCycle.planned(&both(600)).is_none());
    // It admits bursts that nobody could serve: 40 at once need ten batches of 4 ms, nine are in time for them.
    let burst: Vec<_> = (0..44).map(|_| (0, 0)).collect();
    assert_eq!(batches(SharedKind::NexusCycle, &both(500), &burst).1.len(), 4);
}

#[test]
fn services_have_turns_in_a_cycle_and_who_has_nothing_is_passed_over() {
    let both = problem(1, "row_miss(0)", &[(40, &[4; 4], (100, 1000)), (40, &[4; 4], (100, 1000))]);
    let arrivals = [(0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (8, 0)];
    let (ran, missed) = batches(SharedKind::NexusCycle, &both, &arrivals);
    // Batches of three in each turn.
    assert_eq!(ran, [(0, vec![0, 1, 2]), (4, vec![4]), (8, vec![3, 5])]);
    assert_eq!(missed, Vec::<usize>::new());
}

#[test]
fn spread_drop_in_a_cycle_loses_every_second_one_if_every_second_one_may_be_lost() {
    // A cycle takes 4; what comes in it must wait for at most 4 + 2. Four may come: two of them are served.
    let two = |count| problem(1, "row_miss(1)", &[(6, &[2, 2], (count, 5)), (6, &[2, 2], (count, 5))]);
    assert!(SharedKind::SpreadCycle.planned(&two(4)).is_some());
    assert!(SharedKind::SpreadCycle.planned(&two(5)).is_none());
    assert!(
        SharedKind::SpreadCycle
            .planned(&problem(1, "row_miss(1)", &[(5, &[2, 2], (4, 5)), (6, &[2, 2], (4, 5))]))
            .is_none()
    );
    let arrivals = [(0, 1), (1, 0), (1, 0), (1, 0), (1, 0)];
    let (ran, missed) = batches(SharedKind::SpreadCycle, &two(4), &arrivals);
    assert_eq!((ran, missed), (vec![(0, vec![0]), (2, vec![2, 4])], vec![1, 3]));
}

#[test]
fn a_partition_runs_services_beside_each_other_slower() {
    // Alone a service needs 2P within 10, so P of 5: two fifths of a worker that needs 2.
    let some = |count: usize| vec![(10, &[2][..], (1, 10)); count];
    let two = problem(1, "row_miss(0)", &some(2));
    assert_eq!(partition::plan(&two), Some(vec![(400, 1), (400, 1)]));
    assert_eq!(partition::plan(&problem(1, "row_miss(0)", &some(3))), None);
    assert!(partition::plan(&problem(2, "row_miss(0)", &some(3))).is_some());
    // What is left goes to both, so each has a half.
    let run = play(SharedKind::Partition, &two, &[(0, 0), (0, 1)]);
    let times: Vec<_> = run.batches.iter().map(|b| (b.start.as_nanos(), b.finish.as_nanos() / MS)).collect();
    assert_eq!(times, [(0, 4), (0, 4)]);
}

#[test]
fn batches_are_cut_to_what_can_be_promised() {
    // Beside a single one that is due in 10 and takes 2, a batch may take 8: four of the five.
    let cut = problem(1, "row_miss(0)", &[(10, &[2], (1, 100)), (100, &[4, 5, 6, 7, 9], (4, 100))]);
    let planned = SharedKind::Device.planned(&cut).expect("admitted");
    assert_eq!(
        planned.services.iter().map(|s| (s.batch, s.time.as_nanos() / MS)).collect::<Vec<_>>(),
        [(1, 2), (4, 7)]
    );
    let (ran, missed) =
        batches(SharedKind::Device, &planned, &[(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (1, 0)]);
    assert_eq!((ran, missed), (vec![(0, vec![0, 1, 2, 3]), (7, vec![5]), (9, vec![4])], vec![]));
}

/// A long batch of one keeps no worker from the tight one on the other.
#[test]
fn a_split_has_a_device_for_each_group_where_all_together_are_promised_less() {
    let all = [(20, &[10][..], (1, 25)), (5, &[2], (1, 10)), (6, &[1], (1, 10))];
    let split = problem(2, "row_miss(0)", &all);
    assert_eq!(SharedKind::Device.planned(&split), None);
    assert_eq!(SharedKind::Split.planned(&split), Some(split.clone()));
    // The long one, and then the short ones one after the other on the other worker, though the first is free soon.
    let run = play(SharedKind::Split, &split, &[(0, 0), (1, 1), (1, 2), (11, 1), (11, 2)]);
    let of = |b: &virtual_time::Batch| (b.worker, b.start.as_nanos() / MS, b.finish.as_nanos() / MS);
    let ran: Vec<_> = run.batches.iter().map(of).collect();
    assert_eq!(ran, [(0, 0, 10), (1, 1, 3), (1, 3, 4), (1, 11, 13), (1, 13, 14)]);
    assert_eq!(
        run.requests.iter().map(|r| (r.stream, r.mandatory)).collect::<Vec<_>>(),
        [(0, true), (1, true), (2, true), (1, true), (2, true)]
    );
    // One worker is not divided, nor two that together promise all.
    let (one, rare) = (problem(1, "row_miss(0)", &all[..1]), problem(2, "row_miss(0)", &all[1..]));
    for together in [one, rare] {
        assert_eq!(SharedKind::Split.planned(&together), SharedKind::Device.planned(&together));
        let both = [(0, 0), (0, together.services.len() - 1)];
        let run = |kind| {
            let run = play(kind, &together, &both);
            (run.batches, run.requests)
        };
        assert_eq!(run(SharedKind::Split), run(SharedKind::Device));
    }
}

/// Batches of a group are cut for what is tight in it, and not for others.
#[test]
fn a_split_cuts_the_batches_of_each_group_for_itself() {
    let split = problem(2, "row_miss(0)", &[(40, &[4, 6, 8, 10, 12], (5, 20)), (5, &[2, 4], (1, 3))]);
    let planned = SharedKind::Split.planned(&split).expect("each has a worker");
    assert_eq!(planned.services.iter().map(|s| s.batch).collect::<Vec<_>>(), [5, 1]);
    assert_eq!(SharedKind::Device.planned(&split), None);
}
