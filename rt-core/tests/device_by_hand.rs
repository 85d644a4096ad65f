//! What a device says of overruns, lateness and wrong numbers, by hand: who is told of what, and when.

use std::collections::HashSet;

use rt_core::sharing::{Device, DeviceConfig, DeviceError, Rule};
use rt_core::{Cause, Dispatch, Instant, SafeModeConfig, Span, StreamSpec};

use crate::harness::{Dice, earliest, instances};
use crate::oracle::Stream;
use crate::oracle::sharing::{Service, Shared};
use crate::shared::{Run, admission, admitted, spec, streams};

/// Nobody is told of a batch that overruns within the margin, not even its own service; of one that does by more all are.
#[test]
fn an_overrun_within_the_margin_harms_nobody_and_one_beyond_it_is_told_to_all() {
    let (mut dice, mut looked) = (Dice(14), 0);
    while looked < instances(100) {
        let (shared, margin) = admitted(&mut dice, looked % 2 == 0, 0);
        if margin == 0 {
            continue;
        }
        looked += 1;
        for beyond in [0, 1] {
            let over = margin + beyond;
            let mut run = Run::new(&shared, margin, move |_, bound| bound + over);
            let stranger = run.add(0, StreamSpec::best_effort());
            run.arrive(0, stranger);
            run.settle();
            run.advance(1_000, true);
            let mut causes: Vec<_> = run.causes.iter().map(|&(_, service, cause)| (service, cause)).collect();
            causes.sort_unstable_by_key(|&(service, _)| service);
            // That it is demoted is told of the culprit as well.
            causes.dedup();
            let all = if beyond > 0 { shared.services.len() } else { 0 };
            let told: Vec<_> = (0..all).map(|service| (service, Cause::ServiceOverrun)).collect();
            assert_eq!(causes, told, "{shared:?}");
        }
    }
}

/// Whoever takes over may number services otherwise: a batch that harmed others is of the same one, or of none that is there.
#[test]
fn whose_batch_did_harm_is_told_by_its_number_where_another_device_takes_over() {
    let service = || Service::of(vec![Stream::hard(1, 50)], 2, 10);
    let shared = Shared::of(vec![service(), service(), service()], 1, 2, false);
    let long = Span::from_nanos(1_000);
    let safe_mode = SafeModeConfig { hold: long, clean: long, latch: false };
    for ends in [false, true] {
        let mut run = Run::lasting(&shared, (&[0; 3], safe_mode), 0, |_, _| 9);
        let ids: Vec<_> = (0..3).map(|s| run.add(s, spec(&Stream::hard(1, 50)))).collect();
        run.arrive(0, ids[0]);
        run.settle();
        run.drain();
        let named = |run: &Run| {
            let alarm = |s: usize| run.device.service(s).safe_mode().state().alarm;
            [0, 1, 2].map(|s| alarm(s).map(|alarm| alarm.evidence.window))
        };
        assert_eq!(named(&run), [Some(1); 3]);
        run.hand_over(&shared, 0, ends.then_some((0, &ids[..1]))).expect("nothing is open");
        let all = if ends { [Some(0), None, Some(0)] } else { [Some(2); 3] };
        assert_eq!(named(&run), all);
    }
}

/// Two overruns within the margin are one that is not, if nothing was calm between them.
#[test]
fn the_margin_is_for_all_overruns_of_a_busy_period_together() {
    let stream = || Stream::hard(1, 20);
    let service = || Service::of(vec![stream()], 1, 5);
    for turns in [false, true] {
        let services = vec![service(), service(), service()];
        let shared = Shared::of(services, 1, 1, turns);
        let binding = admission(&shared).expect("admitted").binding.expect("something is promised");
        assert_eq!(binding.margin(), 1);
        let mut first = true;
        // A stranger's batch keeps its time, then two run over by the margin.
        let mut run = Run::new(&shared, 1, move |service, bound| {
            let kept = std::mem::take(&mut first) || service == 2;
            if kept { bound } else { bound + 1 }
        });
        let ids: Vec<_> = (0..3).map(|s| run.add(s, spec(&stream()))).collect();
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.settle();
        for (s, &id) in ids.iter().enumerate() {
            run.arrive(s, id);
            run.settle();
        }
        run.drain();
        assert!(
            !run.missed.is_empty() && run.missed.iter().all(|&(_, _, warned)| warned),
            "{:?}",
            run.missed
        );
        let told: HashSet<_> =
            run.causes.iter().filter(|c| c.2 == Cause::ServiceOverrun).map(|c| c.1).collect();
        assert_eq!(told.len(), 3, "{:?}", run.causes);
    }
}

/// What made a batch begin late counts until that has ended, calm as it may be meanwhile: if it runs over as well, it is late for
/// both.
#[test]
fn what_ran_over_before_a_batch_began_counts_until_it_has_ended() {
    let stream = || Stream::hard(1, 50);
    let service = || Service::of(vec![stream()], 2, 8);
    for turns in [false, true] {
        let shared = Shared {
            services: vec![service(), service()],
            workers: 1,
            longest: 2,
            turns,
            late: 0,
            overrun: 0,
            stall: 0,
            window: 0,
        };
        let margin = admission(&shared).expect("admitted").binding.expect("something is promised").margin();
        assert_eq!(margin, 2);
        // A stranger's batch, then one of each service; of these the first keeps its time, and the last ends at 10 instead of 8.
        let mut batches = 0;
        let mut run = Run::new(&shared, 2, move |_, bound| {
            batches += 1;
            if batches == 2 { bound } else { bound + 2 }
        });
        let own = [0, 1].map(|s| run.add(s, spec(&stream())));
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.settle();
        for (s, &id) in own.iter().enumerate() {
            run.arrive(s, id);
            run.settle();
        }
        run.advance(8, true);
        assert!(run.causes.is_empty() && run.served == [2, 0], "{:?}, {:?}", run.causes, run.served);
        let overruns = |run: &Run| [0, 1].map(|s| run.device.service(s).overruns());
        assert_eq!(overruns(&run), [1, 0], "nobody is told, but it is counted");
        run.drain();
        assert_eq!(overruns(&run), [1, 1]);
        let told: HashSet<_> = run.causes.iter().map(|&(at, service, _)| (at, service)).collect();
        assert!([(9, 0), (9, 1)].iter().all(|of| told.contains(of)), "{:?}", run.causes);
        assert_eq!(run.missed, [(9, 1, true)], "at its deadline, though its batch ends at 10");
    }
}

/// A stranger in 3 to 8 of a service whose batches take `time`, and what is mandatory of another, which comes at 2, takes 2 and is
/// due at 10; the worker is busy up to 3. Who is served first, and whether what is mandatory is missed.
fn one_goes_ahead(turns: bool, time: u8, deadline: u8) -> (usize, bool) {
    let stream = || Stream::hard(1, 100);
    let services = vec![Service::of(vec![stream()], 2, 8), Service::of(vec![], time, deadline)];
    let shared = Shared::of(services, 1, 6, turns);
    let mut first = true;
    let mut run = Run::new(&shared, 0, move |_, bound| if std::mem::take(&mut first) { 3 } else { bound });
    let own = run.add(0, spec(&stream()));
    let stranger = run.add(1, StreamSpec::best_effort());
    run.arrive(1, stranger);
    run.settle();
    run.advance(1, true);
    run.arrive(1, stranger);
    run.advance(2, true);
    run.arrive(0, own);
    run.settle();
    run.advance(3, true);
    let first = run.device.owner(0).expect("something waits");
    run.drain();
    (first, !run.missed.is_empty())
}

/// At 3 what is mandatory has 7 left, of which it takes 2: a batch of 5 may go before it, and none of 6, with which it would be
/// missed.
#[test]
fn what_goes_ahead_leaves_just_enough() {
    for turns in [false, true] {
        assert_eq!(one_goes_ahead(turns, 5, 8), (1, false), "it goes ahead");
        assert_eq!(one_goes_ahead(turns, 6, 8), (0, false), "it would take too long");
        assert_eq!(one_goes_ahead(turns, 5, 10), (0, false), "it is not due before what is mandatory");
    }
}

/// At 6 a full batch of 4 waits of one service, due at 14, and half of a batch of 2 of another, due at 13. The full one goes first, as the
/// other still ends at 12; what it holds itself does not wait behind it.
#[test]
fn a_full_batch_does_not_wait_behind_itself() {
    for turns in [false, true] {
        let streams = [Stream::hard(1, 100), Stream::hard(2, 100)];
        let service = |s: usize, time, deadline| Service {
            batch: 2,
            ..Service::of(vec![streams[s].clone()], time, deadline)
        };
        let shared = Shared::of(vec![service(0, 2, 11), service(1, 4, 12)], 1, 4, turns);
        let mut run = Run::new(&shared, 0, |_, bound| bound);
        let own = [0, 1].map(|s| run.add(s, spec(&streams[s])));
        let stranger = run.add(1, StreamSpec::best_effort());
        run.advance(2, true);
        run.arrive(1, stranger);
        run.settle();
        for s in [0, 1, 1] {
            run.arrive(s, own[s]);
        }
        run.settle();
        run.advance(6, true);
        assert_eq!((run.device.owner(0), run.gone_ahead), (Some(1), 1), "turns: {turns}");
        run.drain();
        assert_eq!((&run.missed[..], &run.served[..]), (&[][..], &[1, 3][..]));
    }
}

/// What has gone ahead counts nobody who comes later: a newcomer waits until nothing mandatory waits; a larger margin waits until all
/// has ended that is there.
#[test]
fn who_comes_waits_for_what_has_gone_ahead() {
    let stream = || Stream::hard(1, 100);
    let service = |time, deadline| Service::of(vec![stream()], time, deadline);
    for over in [0, 1] {
        let services = vec![service(2, 20), service(3, 16)];
        let shared = Shared {
            services,
            workers: 1,
            longest: 3,
            turns: false,
            late: 0,
            overrun: 0,
            stall: 0,
            window: 0,
        };
        let mut batches = 0;
        let mut run = Run::new(&shared, 0, move |_, bound| {
            batches += 1;
            if batches == 3 { bound + over } else { bound }
        });
        let own = run.add(0, spec(&stream()));
        let stranger = run.add(1, StreamSpec::best_effort());
        for _ in 0..2 {
            run.arrive(1, stranger);
        }
        run.settle();
        run.advance(1, true);
        run.arrive(0, own);
        run.advance(4, true);
        assert_eq!(run.device.gone_ahead(), 1);
        assert!(run.device.set_overrun_margin(Instant::from_nanos(4), Span::from_nanos(1)));
        assert!(run.try_add(1, spec(&stream())).is_none());
        run.advance(7, true);
        // What is mandatory is begun, and nothing else waits.
        assert_eq!(run.device.owner(0), Some(0));
        assert!(run.try_add(1, spec(&stream())).is_some());
        run.drain();
        assert!(run.missed.is_empty());
        // It was begun under no margin.
        let told: HashSet<_> = run.causes.iter().map(|&(_, service, _)| service).collect();
        assert_eq!(told, if over > 0 { HashSet::from([0, 1]) } else { HashSet::new() });
    }
}

/// Who comes later may leave less of a margin: it holds from the next calm instant on, and not while more is run over.
#[test]
fn a_smaller_margin_waits_until_no_more_than_that_is_run_over() {
    let stream = || Stream::hard(1, 50);
    let service = || Service::of(vec![stream()], 2, 20);
    let services = vec![service(), service()];
    let shared = Shared::of(services, 1, 2, false);
    let mut run = Run::new(&shared, 5, |service, bound| if service == 0 { bound + 3 } else { bound });
    let own = run.add(1, spec(&stream()));
    let stranger = run.add(0, StreamSpec::best_effort());
    let told = |run: &Run| run.causes.iter().map(|&(_, service, _)| service).collect::<HashSet<_>>();
    let set = |run: &mut Run, margin| {
        run.device.set_overrun_margin(Instant::from_nanos(run.now), Span::from_nanos(margin))
    };
    run.arrive(0, stranger);
    run.settle();
    run.advance(4, true);
    // Two beyond its time, and it runs on.
    assert!(!set(&mut run, 1) && set(&mut run, 2));
    assert!(told(&run).is_empty(), "it is within either");
    run.advance(5, true);
    assert_eq!(told(&run), HashSet::from([0, 1]), "three are more than two");
    assert!(run.missed.is_empty());
    run.advance(40, true);
    assert!(set(&mut run, 0), "all is calm");
    run.arrive(1, own);
    run.settle();
    run.advance(60, true);
    assert_eq!((run.served[1], run.missed.len()), (1, 0));
}

/// Others hear of a batch that runs on as soon as it has run over by more than the margin that counts now.
#[test]
fn the_margin_that_counts_now_is_watched() {
    let stream = || Stream::hard(1, 50);
    let service = || Service::of(vec![stream()], 2, 30);
    let shared = Shared {
        services: vec![service(), service()],
        workers: 1,
        longest: 2,
        turns: false,
        late: 0,
        overrun: 0,
        stall: 0,
        window: 0,
    };
    // A guard that is longer than the margin: its own alarm comes later.
    let mut run = Run::guarded(&shared, &[9, 9], 5, |_, bound| bound + 20);
    let stranger = run.add(0, StreamSpec::best_effort());
    assert!(run.device.set_overrun_margin(Instant::ZERO, Span::from_nanos(1)));
    run.arrive(0, stranger);
    run.settle();
    run.advance(4, true);
    let told: Vec<_> = run.causes.iter().map(|&(at, service, _)| (at, service)).collect();
    assert!(told.contains(&(4, 1)), "{told:?}");
}

/// Two services of 2 and 3 on one worker, of whose deadlines 5 in 1000 are kept for a stall: one that meets a batch of either, or
/// dispatch, is told to nobody and counted for both; another within the window, or a longer one, is told to both.
#[test]
fn a_stall_as_declared_harms_nobody_and_more_is_told_to_all() {
    let stream = || Stream::hard(1, 50);
    let service = |time| Service::of(vec![stream()], time, 15);
    let services = vec![service(2), service(3)];
    let shared = Shared {
        services,
        workers: 1,
        longest: 3,
        turns: false,
        late: 0,
        overrun: 0,
        stall: 5,
        window: 1_000,
    };
    assert!(admission(&shared).is_ok());
    let run = |stalls: &[(u64, u64)], comes: &[(u64, usize)]| {
        let mut run = Run::new(&shared, 0, |_, bound| bound);
        run.stalls = stalls.to_vec();
        let ids = [0, 1].map(|s| run.add(s, spec(&stream())));
        for &(at, s) in comes {
            run.advance(at, true);
            run.arrive(s, ids[s]);
            run.settle();
        }
        run.drain();
        let told: HashSet<_> = run.causes.iter().map(|&(_, service, _)| service).collect();
        (told, run.missed.len(), [0, 1].map(|s| run.device.service(s).stalls()))
    };
    let nobody = HashSet::new;
    assert_eq!(run(&[(100, 105)], &[(99, 0), (99, 1)]), (nobody(), 0, [1, 1]), "both stand still");
    assert_eq!(run(&[(100, 105), (1_105, 1_110)], &[(99, 0), (1_104, 1)]), (nobody(), 0, [2, 2]));
    let both = HashSet::from([0, 1]);
    assert_eq!(run(&[(100, 105), (900, 905)], &[(99, 0), (899, 1)]), (both.clone(), 0, [1, 1]), "too soon");
    assert_eq!(run(&[(100, 106)], &[(99, 1)]).0, both, "too long");
    // The machine stands still while the worker is free, beyond what dispatch may be late by.
    for late in [0, 2] {
        let shared = Shared { late, ..shared.clone() };
        for (stood, explained) in [(5, true), (6, false)] {
            let mut run = Run::new(&shared, 0, |_, bound| bound);
            let id = run.add(0, spec(&stream()));
            run.advance(100 + u64::from(late) + stood, true);
            run.arrive_at(0, id, 100, 100);
            run.settle();
            run.drain();
            let told = (run.causes.is_empty(), run.missed.len(), run.device.service(1).stalls());
            assert_eq!(told, (explained, 0, explained.into()), "{late} and {stood}");
        }
    }
}

#[test]
fn late_dispatch_is_announced_to_all_services() {
    let mut dice = Dice(15);
    let (shared, margin) = admitted(&mut dice, false, 1);
    let mut run = Run::new(&shared, margin, |_, bound| bound);
    let stranger = run.add(0, StreamSpec::best_effort());
    for late in [1, 2] {
        run.arrive(0, stranger);
        run.now += late;
        run.settle();
        run.advance(run.now + 100, true);
        let told: Vec<_> = run.causes.iter().map(|&(_, service, cause)| (service, cause)).collect();
        let all: Vec<_> = (0..shared.services.len()).map(|s| (s, Cause::LateDispatch)).collect();
        assert_eq!(told, if late > 1 { all } else { Vec::new() });
    }
}

/// Also where no worker is idle, if it must be served.
#[test]
fn a_request_that_is_taken_in_late_is_announced_to_all_services() {
    let stream = || Stream::hard(1, 100);
    let service = || Service::of(vec![stream()], 4, 25);
    for (turns, late) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let services = vec![service(), service()];
        let shared =
            Shared { services, workers: 1, longest: 4, turns, late: 1, overrun: 0, stall: 0, window: 0 };
        let mut run = Run::new(&shared, 0, |_, bound| bound);
        let (stranger, id) = (run.add(0, StreamSpec::best_effort()), run.add(1, spec(&stream())));
        run.arrive(0, stranger);
        run.settle();
        run.advance(late, true);
        run.arrive_at(0, stranger, 0, 0);
        run.settle();
        assert_eq!(run.causes, [], "what nothing is promised for may come late");
        run.arrive_at(1, id, 0, 0);
        run.settle();
        let told: Vec<_> = run.causes.iter().map(|&(at, s, cause)| (at, s, cause)).collect();
        let all = [(late, 0, Cause::LateDispatch), (late, 1, Cause::LateDispatch)];
        assert_eq!(told, if late > 1 { all.to_vec() } else { Vec::new() });
        run.drain();
    }
}

/// Lateness meets all services: what the one with the smallest guard cannot stand, the others have not counted on either.
#[test]
fn the_smallest_guard_is_that_of_the_device() {
    let mut dice = Dice(18);
    for turns in [false, true] {
        let (shared, margin) = admitted(&mut dice, turns, 1);
        let more: Vec<u8> = (0..shared.services.len()).map(|s| if s == 0 { 0 } else { 5 }).collect();
        let guarded = || Run::guarded(&shared, &more, margin, |_, bound| bound);
        let mut run = guarded();
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.now += 2;
        run.settle();
        let told: HashSet<_> = run.causes.iter().map(|&(_, service, _)| service).collect();
        assert_eq!(
            told.len(),
            shared.services.len(),
            "late by more than the smallest guard: {:?}",
            run.causes
        );
        let (mut run, last) = (guarded(), shared.services.len() - 1);
        let always = Stream::hard(1, 50);
        let id = run.add(last, spec(&always));
        run.now = 9;
        run.arrive_sent(last, id, 6);
        let device = &run.device;
        assert_eq!(device.service(last).waiting_mandatory(), 0, "read later than the smallest guard allows");
        let why = device.service(last).suspension(id).map(|alarm| alarm.cause);
        assert_eq!(why, Some(Cause::LateDispatch));
    }
}

/// Requests are read late by up to the smallest guard, in any order among services; nothing mandatory is missed.
#[test]
fn what_is_read_late_within_the_smallest_guard_is_in_time() {
    let mut dice = Dice(19);
    let mut sent = 0;
    for case in 0..instances(600) {
        let late = 1 + (case % 2) as u8;
        let (shared, margin) = admitted(&mut dice, case % 4 < 2, late);
        let more: Vec<u8> = shared.services.iter().map(|_| dice.within(0, 4) as u8).collect();
        let mut times = Dice(dice.next());
        let mut run = Run::guarded(&shared, &more, margin, move |_, bound| match times.within(0, 2) {
            0 => 1,
            _ => bound,
        });
        let streams = streams(&shared);
        let ids: Vec<_> = streams.iter().map(|(s, spec)| run.add(*s, spec.clone())).collect();
        let stranger = run.add(0, StreamSpec::best_effort());
        let mut history = vec![Vec::new(); ids.len()];
        // Of each stream: what is sent and not read, and when it is read.
        let mut unread: Vec<Vec<(u64, u64)>> = vec![Vec::new(); ids.len()];
        for now in 0..60 {
            run.advance(now, true);
            for k in 0..ids.len() {
                let bounds = streams[k].1.arrivals().expect("declared").bounds();
                while earliest(&history[k], bounds, now) == now && dice.within(0, 3) > 0 {
                    history[k].push(now);
                    let before = unread[k].last().map_or(0, |&(_, read)| read);
                    unread[k].push((now, before.max(now + dice.within(0, late.into()))));
                    sent += 1;
                }
            }
            if dice.within(0, 5) == 0 {
                run.arrive(0, stranger);
                run.settle();
            }
            let from = dice.within(0, ids.len() as u64 - 1) as usize;
            for k in (0..ids.len()).map(|k| (k + from) % ids.len()) {
                while unread[k].first().is_some_and(|&(_, read)| read <= now) {
                    let (at, _) = unread[k].remove(0);
                    run.arrive_sent(streams[k].0, ids[k], at);
                    run.settle();
                }
            }
        }
        run.drain();
        assert!(run.missed.is_empty(), "{:?} missed, more {more:?}: {shared:?}", run.missed);
        assert!(run.causes.is_empty(), "{:?}", run.causes);
    }
    assert!(sent > 10_000, "{sent}");
}

#[test]
fn a_device_is_refused_by_service_and_field() {
    let mut dice = Dice(16);
    let (shared, _) = admitted(&mut dice, false, 0);
    let base = Run::new(&shared, 0, |_, bound| bound);
    let config = |change: fn(&mut rt_core::SchedulerConfig)| {
        let mut services: Vec<_> = (0..2).map(|s| base.device.service(s).config().clone()).collect();
        change(&mut services[1]);
        let longest = Span::from_nanos(4);
        DeviceConfig {
            rule: Rule::Earliest,
            turns: vec![1; 2],
            longest,
            overrun_margin: Span::ZERO,
            services,
        }
    };
    let refused = |change| Device::new(config(change)).map(|_| ()).expect_err("refused");
    let service = |field| DeviceError::Service { service: 1, field };
    assert_eq!(refused(|c| c.dispatch = Dispatch::FullOrLatest), service("dispatch"));
    assert_eq!(refused(|c| c.background = false), service("background"));
    assert_eq!(refused(|c| c.workers[0].count += 1), service("workers"));
    assert!(matches!(refused(|c| c.queue = 0), DeviceError::Config { service: 1, .. }));
    let none = DeviceConfig { services: Vec::new(), turns: Vec::new(), ..config(|_| {}) };
    assert_eq!(Device::new(none).map(|_| ()), Err(DeviceError::Services { count: 0 }));
}
