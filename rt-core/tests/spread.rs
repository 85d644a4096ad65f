//! Beyond the guarantee: rows of misses are about as short as the load allows, whatever comes and whoever sends it.

use rt_core::{
    ArrivalBound, ArrivalCurve, BatchTime, Constraint, ConstraintSet, Dispatch, LatencyProfile, Outcome,
    SafeModeConfig, SchedulerConfig, StreamId, StreamSpec,
};

use crate::harness::load::ns;
use crate::harness::{Dice, Harness, config, violates_any};

/// Time of a full batch.
const P: u64 = 1_000;

/// Batches of up to `batch` in `P`, or less for smaller ones.
fn harness(batch: usize, deadline: u64) -> Harness {
    let times: Vec<u64> = (1..=batch as u64).map(|b| P / 2 + P / 2 * b / batch as u64).collect();
    let base = config(&times, batch, 1, deadline, Dispatch::Eager);
    Harness::new(SchedulerConfig { spread: true, ..base }, |_, bound| bound)
}

/// The same, where a suspension lasts as many batches as it mostly does: where it ends mandatory requests go first again.
fn patient(batch: usize, deadline: u64) -> Harness {
    let config = harness(batch, deadline).scheduler.config().clone();
    let safe_mode = SafeModeConfig { hold: ns(100 * P), clean: ns(100 * P), latch: false };
    Harness::new(SchedulerConfig { safe_mode, ..config }, |_, bound| bound)
}

/// Sends `count` requests, one in `gap` on average, evenly or at random, each of one of the streams at random.
fn send(harness: &mut Harness, ids: &[StreamId], count_gap: (u64, u64), even: bool) {
    send_as(harness, ids, count_gap, even, Dice(11));
}

/// The same by these dice.
fn send_as(harness: &mut Harness, ids: &[StreamId], (count, gap): (u64, u64), even: bool, mut dice: Dice) {
    let mut at = 0.0f64;
    for i in 0..count {
        let share = (dice.within(1, 1 << 20) as f64) / f64::from(1 << 20);
        at += if even { gap as f64 } else { -share.ln() * gap as f64 };
        harness.advance_to(at as u64);
        let stream =
            if even { i as usize % ids.len() } else { dice.within(0, ids.len() as u64 - 1) as usize };
        harness.arrive(ids[stream]);
    }
    harness.drain();
    ids.iter().for_each(|&id| harness.account(id));
}

/// The longest row of misses of a stream, and how many are served.
fn fared(harness: &Harness, id: StreamId) -> (usize, usize) {
    let outcomes = harness.outcomes(id);
    let row = outcomes.split(|&hit| hit).map(<[bool]>::len).max().unwrap_or(0);
    (row, outcomes.iter().filter(|&&hit| hit).count())
}

/// At most `misses` in a row of `count` requests in any `P`.
fn promised(misses: u32, count: u64) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(misses).expect("valid")]).expect("one");
    let window = ArrivalBound::window(count, ns(P)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"))
}

#[test]
fn rows_of_an_even_stream_are_as_short_as_its_load_allows() {
    for (batch, deadline) in [1, 4, 8, 20].into_iter().flat_map(|b| [2, 5].map(|rounds| (b, rounds * P))) {
        for load in [2, 3, 4] {
            let mut harness = harness(batch, deadline);
            let id = harness.add(StreamSpec::best_effort());
            send(&mut harness, &[id], (6_000, P / (load * batch as u64)), true);
            let (row, served) = fared(&harness, id);
            println!("B={batch} L={deadline} load {load}: row {row}, {served} served");
            // One in `load` is served, and one more may be lost where batches meet.
            assert!(
                row <= load as usize,
                "{row} in a row at {load} times the capacity, B={batch}, L={deadline}"
            );
            assert!(served as u64 * load * 100 >= 6_000 * 97, "{served} served");
        }
    }
}

/// Batches mostly take half of their bound, and now and then several in a row nine tenths of it. Enough waits for each to be begun in
/// time for either.
#[test]
fn rows_stay_short_where_several_batches_in_a_row_take_longer_than_expected() {
    for load in [2, 3, 4, 8] {
        let expected = BatchTime { bound: ns(P), likely: ns(P * 6 / 10), mean: ns(P / 2) };
        let mut config = harness(1, 5 * P).scheduler.config().clone();
        config.workers[0].profile = LatencyProfile::expected(&[expected]).expect("a profile");
        let mut begun = 0u64;
        let mut harness = Harness::new(config, move |_, bound| {
            begun += 1;
            if begun % 40 < 4 { bound * 9 / 10 } else { bound * 46 / 100 }
        });
        let id = harness.add(StreamSpec::best_effort());
        send(&mut harness, &[id], (8_000, P / 2 / load), true);
        let (row, served) = fared(&harness, id);
        println!("load {load}: row {row}, {served} served");
        // Meanwhile nearly twice as much comes for each that is answered.
        assert!(row as u64 <= 2 * load, "load {load}: {row} in a row");
        assert!(served as u64 * load * 100 >= 8_000 * 98, "load {load}: {served} served");
    }
}

/// Batches that mostly take half of their bound, a deadline of three times that: nearly six batches, one after the other.
fn half_of_the_bound(seed: u64, vary: bool) -> Harness {
    let expected = BatchTime { bound: ns(P), likely: ns(P * 53 / 100), mean: ns(P / 2) };
    let mut config = harness(1, P * 50 / 17).scheduler.config().clone();
    config.workers[0].profile = LatencyProfile::expected(&[expected]).expect("a profile");
    let mut dice = Dice(seed);
    Harness::new(config, move |_, bound| match dice.within(0, 99) {
        _ if !vary => bound / 2,
        0 | 1 => dice.within(bound / 2, bound),
        _ => dice.within(bound * 45 / 100, bound * 54 / 100),
    })
}

/// One stream at random, of which one in two or in four can be answered, where *P(b)* is twice what a batch mostly takes. Who knows all that
/// comes has rows of 2 and 4.
#[test]
fn rows_of_a_random_stream_stay_short_where_batches_take_half_of_their_bound() {
    for (load, most) in [(2, 3), (4, 5)] {
        for seed in 0..6 {
            let mut harness = half_of_the_bound(seed, true);
            let id = harness.add(StreamSpec::best_effort());
            let batches = 960;
            send_as(&mut harness, &[id], (load * batches, P / 2 / load), false, Dice(seed));
            let (row, served) = fared(&harness, id);
            println!("load {load}: row {row}, {served} served");
            assert!(row <= most, "load {load}, seed {seed}: {row} in a row");
            assert!(served as u64 * 100 >= batches * 97, "load {load}, seed {seed}: {served} served");
        }
    }
}

/// One batch in ten takes 1.4 *P(b)*. What is begun has time for that as well, once it has been seen: else each that runs over answers
/// nothing, and several in a row leave a long row of misses.
#[test]
fn rows_stay_short_where_batches_run_over() {
    for (load, most) in [(2, 6), (4, 12)] {
        for seed in 0..6 {
            let mut harness = half_of_the_bound(seed, true);
            let mut dice = Dice(seed + 100);
            harness
                .set_service(move |_, bound| if dice.within(0, 9) == 0 { bound * 7 / 5 } else { bound / 2 });
            let id = harness.add(StreamSpec::best_effort());
            send(&mut harness, &[id], (load * 2_000, P / 2 / load), true);
            let (row, served) = fared(&harness, id);
            println!("load {load}: row {row}, {served} served");
            assert!(row <= most, "load {load}, seed {seed}: {row} in a row");
        }
    }
}

/// Eight streams, each of which sends at even distances, where a batch takes half of *P(b)*: none is forgotten by the others.
#[test]
fn rows_of_several_even_streams_stay_short_where_batches_take_half_of_their_bound() {
    for load in [2, 4] {
        let mut harness = half_of_the_bound(0, false);
        let ids = [(); 8].map(|()| harness.add(StreamSpec::best_effort()));
        send(&mut harness, &ids, (8_000, P / 2 / load), true);
        let rows = ids.map(|id| fared(&harness, id).0);
        println!("load {load}: rows {rows:?}");
        assert!(rows.iter().all(|&row| row <= 2 * load as usize), "load {load}: {rows:?}");
    }
}

#[test]
fn rows_under_random_arrivals_stay_short_for_each_of_several_streams() {
    for (batch, streams) in [(1, 1), (4, 1), (8, 1), (4, 4), (8, 8)] {
        for load in [2, 4] {
            let mut harness = harness(batch, 2 * P);
            let ids: Vec<_> = (0..streams).map(|_| harness.add(StreamSpec::best_effort())).collect();
            send(&mut harness, &ids, (8_000, P / (load * batch as u64)), false);
            let fared: Vec<_> = ids.iter().map(|&id| fared(&harness, id)).collect();
            println!("B={batch} load {load}: {fared:?}");
            let most = 4 * load as usize;
            assert!(fared.iter().all(|&(row, _)| row <= most), "B={batch} load {load}: {fared:?}");
        }
    }
}

/// What it declared is what one full batch after the other answers, or three times that, and two misses in a row are allowed: while it sends
/// more its rows are those of a stream that declared nothing.
#[test]
fn rows_of_a_stream_beyond_its_declaration_are_as_short_as_if_it_had_declared_nothing() {
    for (batch, load, even) in [1, 4, 8]
        .into_iter()
        .flat_map(|b| [2, 4].into_iter().flat_map(move |l| [true, false].map(|e| (b, l, e))))
    {
        let rows = [1, 3].map(|times| {
            let mut harness = patient(batch, 2 * P);
            let beyond = harness.add(promised(2, times * batch as u64));
            send(&mut harness, &[beyond], (8_000, P / (load * batch as u64)), even);
            assert!(harness.mandatory_misses().is_empty(), "what came before is answered");
            fared(&harness, beyond)
        });
        let mut harness = harness(batch, 2 * P);
        let id = harness.add(StreamSpec::best_effort());
        send(&mut harness, &[id], (8_000, P / (load * batch as u64)), even);
        let plain = fared(&harness, id);
        println!("B={batch} load {load}, even {even}: {rows:?}, {plain:?} without a declaration");
        // While it keeps to what it declared it may miss two in a row; where it begins to exceed it one more may be lost.
        let most = plain.0.max(2) + 1;
        assert!(rows.iter().all(|&(row, _)| row <= most), "B={batch} load {load}: {rows:?}, {plain:?}");
        let served = rows.iter().all(|&(_, served)| served * 100 >= plain.1 * 99);
        assert!(served, "B={batch} load {load}: {rows:?}, {plain:?}");
    }
}

/// A stream that sends a little more than it declared has its declared share, however many others there are that declared nothing; one
/// that floods has that and no more.
#[test]
fn who_sends_too_much_has_its_declared_share_beside_a_flood_of_others() {
    // A quarter of what the worker can do is declared, every other request of that is to be served.
    for (batch, factor) in [(4, 6), (4, 10), (8, 6), (8, 20)] {
        let mut harness = harness(batch, 3 * P);
        let own = harness.add(promised(1, batch as u64 / 4));
        let others: Vec<_> = (0..8).map(|_| harness.add(StreamSpec::best_effort())).collect();
        let (gap, count) = (4 * P * 5 / (batch as u64 * factor), 4_000);
        for i in 0..count {
            harness.advance_to(i * gap);
            harness.arrive(own);
            // Eight times what the worker can do.
            (0..8 * batch as u64 * gap / P).for_each(|n| _ = harness.arrive(others[n as usize % 8]));
        }
        harness.drain();
        let (row, served) = fared(&harness, own);
        let (_, other) = fared(&harness, others[0]);
        let share = count * gap / P * batch as u64 / 8;
        println!(
            "B={batch} factor {factor}: {served} of {count} served, declared {share}, row {row}; others {other}"
        );
        assert!(served as u64 * 100 >= share * 90, "{served} served, its share is {share}");
        assert!(
            served as u64 <= 2 * share.max(other as u64),
            "{served} served, {other} of each of the others"
        );
    }
}

/// One request too many, beside others that send far more than can be answered: what a stream may miss meanwhile does not prolong the
/// time in which it may, and then its promise is kept again.
#[test]
fn a_stream_that_sent_one_request_too_many_beside_a_flood_is_promised_again() {
    for (batch, spec, every) in [
        (4, promised(1, 2), 2),
        (4, promised(0, 2), 2),
        (1, promised(0, 1), 4),
        (1, promised(1, 1), 4),
        (1, promised(2, 2), 2),
    ] {
        let mut harness = harness(batch, 2 * P);
        let own = harness.add(spec.clone());
        let others: Vec<_> = (0..8).map(|_| harness.add(StreamSpec::best_effort())).collect();
        let (mut came, mut resumed) = (Vec::new(), None);
        for i in 0..600u64 {
            harness.advance_to(i * P / 4);
            if i % every == 0 || i == 101 {
                came.push(i);
                harness.arrive(own);
            }
            others.iter().for_each(|&other| _ = harness.arrive(other));
            if i > 101 && resumed.is_none() && harness.scheduler.suspension(own).is_none() {
                resumed = Some(i);
            }
        }
        harness.drain();
        let resumed = resumed.expect("promised again");
        let suspensions = harness.suspensions(own);
        // Four windows and what must be clean; then come the three requests of a window, within a deadline each; and what must be clean.
        assert!(resumed <= 101 + 4 * (4 + 1 + 2 + 1) + 3 * every, "{spec:?}: {suspensions:?}");
        assert!(harness.mandatory_misses().is_empty());
        let (outcomes, after) =
            (harness.outcomes(own), |at| came.iter().take_while(|&&came| came < at).count());
        println!("{batch} {spec:?}: {suspensions:?}");
        assert!(!violates_any(&outcomes[..after(101)], spec.constraints()), "{outcomes:?}");
        assert!(!violates_any(&outcomes[after(101 + 4 * (4 + 1) + 1)..], spec.constraints()), "{outcomes:?}");
    }
}

/// What is passed over is told by its deadline, and what is given up at all was ruled out by then.
#[test]
fn a_miss_is_told_by_its_deadline() {
    let mut harness = harness(4, 3 * P);
    let id = harness.add(StreamSpec::best_effort());
    send(&mut harness, &[id], (4_000, P / 12), false);
    let missed =
        || harness.resolutions.iter().filter(|(_, resolution)| resolution.outcome != Outcome::Served);
    for (at, resolution) in missed() {
        assert!(*at <= resolution.request.deadline.as_nanos() + 1, "{at}: {resolution:?}");
    }
    let waited = missed().filter(|(at, resolution)| *at > resolution.request.arrival.as_nanos()).count();
    assert!(waited > 500, "{waited} waited for their turn");
}

/// Its requests are counted from 0 again, and none of them was passed over.
#[test]
fn who_begins_anew_is_served_as_before() {
    let mut harness = harness(1, 2 * P);
    let (first, other) = (harness.add(StreamSpec::best_effort()), harness.add(StreamSpec::best_effort()));
    send(&mut harness, &[first, other], (4_000, P / 4), true);
    let before = harness.resolutions.len();
    let again = harness.scheduler.restart_stream(first).expect("a known stream");
    for i in 0..2_000u64 {
        harness.advance_to(harness.now + P / 4);
        harness.arrive(if i % 2 == 0 { again } else { other });
    }
    harness.drain();
    let served = |id: StreamId| {
        let ended = harness.resolutions[before..].iter().map(|(_, resolution)| resolution);
        ended.filter(|ended| ended.request.stream == id && ended.outcome == Outcome::Served).count()
    };
    let (own, others) = (served(again), served(other));
    assert!(own.abs_diff(others) * 20 <= own + others && own + others > 480, "{own} and {others} served");
}

/// Of all that could have been done with these arrivals, one at a time in `P` each: the fewest misses, the shortest longest row with no
/// more, and the shortest with any number. Whoever is served is so in the order of arrival.
fn optimum(arrivals: &[u64], deadline: u64) -> (usize, usize, usize) {
    let all = 0u32..1 << arrivals.len();
    let is_served = |set: u32, i: usize| set >> i & 1 == 1;
    let in_time = |&set: &u32| {
        let mut end = 0;
        (0..arrivals.len()).filter(|&i| is_served(set, i)).all(|i| {
            end = arrivals[i].max(end) + P;
            end <= arrivals[i] + deadline
        })
    };
    let fared = |set: u32| {
        let hits: Vec<_> = (0..arrivals.len()).map(|i| is_served(set, i)).collect();
        let row = hits.split(|&hit| hit).map(<[bool]>::len).max().unwrap_or(0);
        (arrivals.len() - set.count_ones() as usize, row)
    };
    let (misses, row) = all.clone().filter(in_time).map(fared).min().expect("none at all");
    (misses, row, all.filter(in_time).map(|set| fared(set).1).min().expect("none at all"))
}

/// Who knows all that comes does better: by how much, on average.
#[test]
fn short_runs_are_not_far_from_the_best_that_could_have_been_done() {
    for load in [1, 2, 4] {
        let (mut sums, runs) = ([0usize; 5], 300);
        for seed in 0..runs as u64 {
            let mut dice = Dice(seed);
            let mut at = 0;
            let arrivals: Vec<u64> = (0..12)
                .map(|_| {
                    at += dice.within(0, 2 * P / load);
                    at
                })
                .collect();
            let mut harness = harness(1, 2 * P);
            let id = harness.add(StreamSpec::best_effort());
            for &at in &arrivals {
                harness.advance_to(at);
                harness.arrive(id);
            }
            harness.drain();
            let (row, served) = fared(&harness, id);
            let (misses, shortest, any) = optimum(&arrivals, 2 * P);
            let own = arrivals.len() - served;
            assert!(own >= misses && row >= any, "better than any schedule: {arrivals:?}");
            [own, misses, row, shortest, any].iter().zip(&mut sums).for_each(|(&value, sum)| *sum += value);
        }
        let [own, misses, row, shortest, any] = sums.map(|sum| sum as f64 / runs as f64);
        println!(
            "{load} times the capacity: {own:.2} of 12 missed, {misses:.2} at best; a row of {row:.2}, {shortest:.2} at best with as few \
             misses, {any:.2} with any"
        );
        assert!(own <= misses + 0.5 && row <= shortest + 1.5, "far from the best");
    }
}

/// Of what comes all at once no stream's rate is known; each of several workers still has a full batch.
#[test]
fn workers_have_full_batches_of_what_comes_at_one_instant() {
    let mut dice = Dice(7);
    for _ in 0..1_000 {
        let workers = dice.within(2, 4) as usize;
        let base = config(&[P, P], 2, workers, 2 * P - 1, Dispatch::Eager);
        let mut harness = Harness::new(SchedulerConfig { spread: true, ..base }, |_, bound| bound);
        let ids = [(); 3].map(|()| harness.add(StreamSpec::best_effort()));
        harness.advance_to(1);
        for _ in 0..dice.within(10, 40) {
            harness.arrive_unpolled(ids[dice.within(0, 2) as usize]);
        }
        harness.arrive(ids[0]);
        harness.drain();
        ids.iter().for_each(|&id| harness.account(id));
        let served: usize = ids.iter().map(|&id| fared(&harness, id).1).sum();
        assert_eq!(served, 2 * workers);
    }
}
